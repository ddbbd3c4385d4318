"""`funes sessions`: the ids in the memory."""

from __future__ import annotations

from collections.abc import Callable

import click

from funes_mcp import render
from funes_mcp.cli import terminal
from funes_mcp.models import Service


@click.command("sessions", epilog="\b\nExample:\n  funes sessions e81f")
@click.argument("prefix", default="")
@click.pass_obj
def command(open_service: Callable[[], Service], prefix: str) -> None:
    """List the ids of the sessions in the memory, or of those that start with PREFIX."""
    terminal.out("".join(f"{render.harmless(session)}\n" for session in open_service().sessions(prefix)))
