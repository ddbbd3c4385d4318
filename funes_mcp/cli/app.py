"""The group of commands, each imported when it is called, and what happens to errors."""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from funes_mcp import __version__
from funes_mcp.cli import terminal
from funes_mcp.errors import FunesError
from funes_mcp.models import Service

#: Name of a command, its module (whose `command` it is), and its line in the help.
COMMANDS: Final = (
    ("index", "funes_mcp.cli.index", "Read the agents' transcripts into the memory."),
    ("recall", "funes_mcp.cli.recall", "Find passages of past sessions."),
    ("get", "funes_mcp.cli.get", "Open a turn of a past session."),
    ("ask", "funes_mcp.cli.ask", "Have an agent answer from the memory, with its sources."),
    ("status", "funes_mcp.cli.status", "Show what is stored, and what was left out and why."),
    ("sessions", "funes_mcp.cli.sessions", "List the ids of the sessions in the memory."),
    ("add", "funes_mcp.cli.add", "Give an agent its memory: index, tools, hooks."),
    ("remove", "funes_mcp.cli.remove", "Take back what add did."),
    ("push", "funes_mcp.cli.push", "Publish the memory to a dataset on the Hub."),
    ("scrub", "funes_mcp.cli.scrub", "Take credentials out of what is stored."),
    ("forget", "funes_mcp.cli.forget", "Remove sessions for good."),
    ("curate", "funes_mcp.cli.curate", "Choose the sessions that a project's published memory gets."),
    ("models", "funes_mcp.cli.models", "Show models, fetch deeper ones, move the memory to another."),
    ("doctor", "funes_mcp.cli.doctor", "Check the memory against the disk."),
    ("mcp", "funes_mcp.cli.mcp", "The MCP server that agents start."),
)

#: Exit code after Ctrl-C, and of a program whose reader has gone, as shells count them.
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


class LazyGroup(click.Group):
    """Commands by name, from the table; those that are not installed are not offered."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, module, _ in COMMANDS if importlib.util.find_spec(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for name, module, _ in COMMANDS:
            if name == cmd_name and importlib.util.find_spec(module):
                command: click.Command = importlib.import_module(module).command
                return command
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        offered = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, _, line in COMMANDS if name in offered])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog='\b\nFirst:  funes index\nThen:   funes recall "why did we drop the streaming parser"',
)
@click.version_option(__version__, prog_name="funes")
def funes() -> None:
    """Durable memory for coding agents: their sessions, found again word for word."""


def open_default_service() -> Service:
    """The service on this machine's memory."""
    from funes_mcp.home import FunesHome
    from funes_mcp.service import open_service

    return open_service(FunesHome.from_environ(os.environ), os.environ)


def run(words: Sequence[str], open_service: Callable[[], Service] = open_default_service) -> int:
    """Run a command line and say in a sentence what went wrong, if anything; the exit code.

    Args:
        words: The arguments, without the program's name.
        open_service: Called by the commands that need the service.
    """
    terminal.prepare()
    try:
        code = _run([terminal.argument(word) for word in words], open_service)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        if error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL):
            return _reader_gone()
        terminal.complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        _silence_stdout()
        return 1


def _run(words: list[str], open_service: Callable[[], Service]) -> int:
    try:
        result: Any = funes.main(args=words, prog_name="funes", standalone_mode=False, obj=open_service)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else error.format_message())
        return 0 if not words else 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        terminal.complain("interrupted")
        return INTERRUPTED
    except FunesError as error:
        terminal.complain(error.message, error.hint)
        return error.exit_code
    except OSError:
        raise
    except Exception as error:
        if os.environ.get("FUNES_DEBUG"):
            traceback.print_exc()
        terminal.complain(
            f"this is a fault in funes: {type(error).__name__}: {error}", "FUNES_DEBUG=1 shows where it happened."
        )
        return 1


def _reader_gone() -> int:
    _silence_stdout()
    return BROKEN_PIPE


def _silence_stdout() -> None:
    """Let the interpreter's last flush go nowhere: there is nobody to read it."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
