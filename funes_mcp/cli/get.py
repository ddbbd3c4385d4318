"""`funes get`: open a turn."""

from __future__ import annotations

from collections.abc import Callable

import click

from funes_mcp import render
from funes_mcp.cli import progress, terminal
from funes_mcp.cli.recall import MEMORY_HELP
from funes_mcp.models import GetRequest, Service


@click.command("get", epilog="\b\nExample:\n  funes get e81f7132 5d0c6a1e-97a5-4c30-9d1e-0b1f2c3d4e5f --window 1")
@click.argument("session")
@click.argument("turn")
@click.option("--window", default=3, show_default=True, type=click.IntRange(0), help="Turns shown before and after.")
@click.option("--memory", default="local", metavar="LABEL", help=MEMORY_HELP)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_obj
def command(
    open_service: Callable[[], Service], session: str, turn: str, window: int, memory: str, as_json: bool
) -> int:
    """Open a turn of a past session, whole, with the turns around it.

    SESSION and TURN are the two ids of a `get` line that recall prints. The beginning of the session's id
    will do.
    """
    service = open_service()
    with progress.fetching(service, memory):
        answer = service.get(GetRequest(session, turn, window, memory))
    if as_json:
        terminal.out(render.to_json(answer) + "\n")
    else:
        terminal.notes(answer.notes)
        terminal.out(render.render_get(answer, heading=terminal.heading))
    return 0 if answer.found else 1
