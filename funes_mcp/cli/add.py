"""`funes add`: wire an agent."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from funes_mcp.cli import binding, deeper, progress, terminal
from funes_mcp.home import FunesHome
from funes_mcp.models import IndexRequest, Service
from funes_mcp.wiring.flow import Wirer, find_wiring
from funes_mcp.wiring.model import Consent
from funes_mcp.wiring.program import Program, find_program, forwarded, is_ephemeral


@click.command(
    "add",
    epilog="""\b
Examples:
  funes add claude
  funes add codex --yes --trust-hooks
  funes add pi --no-index
  funes add claude ann/memory
""",
)
@click.argument("agent", metavar="claude|codex|pi|hermes")
@click.argument("memory", default="local")
@click.option("--yes", is_flag=True, help="Answer yes to every question but that of trusting Codex's hooks.")
@click.option("--trust-hooks", is_flag=True, help="Codex: mark funes's own hooks as trusted.")
@click.option("--no-index", is_flag=True, help="Do not read the sessions that are there already.")
@deeper.option
@click.pass_obj
def command(
    open_service: Callable[[], Service],
    agent: str,
    memory: str,
    yes: bool,
    trust_hooks: bool,
    no_index: bool,
    models: str | None,
) -> int:
    """Give an agent its memory: the tools `recall` and `get`, hooks that index each turn, the first index.

    MEMORY is the local one unless named. With a dataset on the Hub (`owner/name`) the agent reads that one, and this
    machine's sessions are published there when a session begins or ends, if you say so. Doing it again changes
    nothing; `funes remove` takes it all back.
    """
    home = FunesHome.from_environ(os.environ)
    wiring = find_wiring(agent)
    wirer = Wirer(home, os.environ, _user_home())
    presence = wirer.presence(wiring)
    asked = presence.program or presence.used  # there is nothing to ask about an agent that is not here
    bound = binding.bind(memory, wiring.title, open_service, yes) if asked else binding.Binding()
    program = Program(
        find_program(os.environ),
        home=str(home.root) if os.environ.get("FUNES_HOME", "").strip() else "",
        memory=bound.memory,
        forwarded=forwarded(os.environ),
        publishes=bound.publishes,
    )
    given = {c.key for c in wirer.consents(wiring) if asked and _agrees(c, yes, trust_hooks)}
    outcome = wirer.add(wiring, program, given, presence)
    if outcome.written:
        terminal.out(f"{wiring.title} now has funes. Written:\n")
        terminal.out("".join(f"  {path}\n" for path in outcome.written))
    else:
        terminal.out(f"{wiring.title} had funes already; nothing was changed.\n")
    terminal.notes([*outcome.notes, *bound.notes])
    if is_ephemeral(program.argv):
        terminal.notes(
            [f"{program.argv[0]} is in a cache that may be cleared; `uv tool install funes-mcp` is lasting."]
        )
    then = f", then `funes push {bound.memory}`" if bound.publishes else ""
    if no_index:
        return 0
    if not yes and not _ask("Index the sessions that are on this machine now?", True):
        terminal.notes([f"Nothing was indexed yet: run `funes index`{then}."])
        return 0
    from funes_mcp.cli.index import summary

    service = open_service()
    with progress.shown() as shown:
        report = service.index(IndexRequest(), shown)
    terminal.out(summary(report))
    if report.interrupted:
        return 130
    code = binding.first_push(service, bound) if bound.publishes else 0
    deeper.follow(service, models, yes)
    return code


def _agrees(consent: Consent, yes: bool, trust_hooks: bool) -> bool:
    if consent.flag == "--trust-hooks" and trust_hooks:
        return True
    if consent.covered_by_yes and yes:
        return True
    return False if yes and not consent.covered_by_yes else _ask(consent.question, consent.default)


def _ask(question: str, default: bool) -> bool:
    """Ask on a terminal; off one nothing is asked and the answer is no."""
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        return False
    return click.confirm(question, default=default, err=True)


def _user_home() -> Path:
    named = os.environ.get("HOME", "").strip()
    return Path(named).absolute() if named else Path.home()
