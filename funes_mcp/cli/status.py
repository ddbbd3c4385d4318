"""`funes status`: how a memory stands."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from funes_mcp import render
from funes_mcp.cli import terminal
from funes_mcp.models import Service


@click.command("status", epilog="\b\nExample:\n  funes status --json | jq .pending")
@click.argument("memory", default="local")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_obj
def command(open_service: Callable[[], Service], memory: str, as_json: bool) -> None:
    """Show what is stored, how fresh it is, and what was left out and why.

    MEMORY is the local one unless named.
    """
    report = open_service().status(memory)
    text = render.to_json(report) + "\n" if as_json else render.render_status(report, os.path.expanduser("~"))
    terminal.out(text)
