"""`funes status`: how a memory stands."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from funes_mcp import render
from funes_mcp.cli import terminal
from funes_mcp.models import Service


@click.command("status", epilog="\b\nExample:\n  funes status --json | jq .pending")
@click.argument("named", default="", metavar="[MEMORY]")
@click.option("--memory", default="local", metavar="LABEL", help="The same as MEMORY.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_obj
def command(open_service: Callable[[], Service], named: str, memory: str, as_json: bool) -> None:
    """Show what is stored, how fresh it is, and what was left out and why.

    MEMORY is the local one unless named: a dataset on the Hub (owner/name), of which nothing is fetched for this, or
    a folder (./memory).
    """
    report = open_service().status(named or memory)
    text = render.to_json(report) + "\n" if as_json else render.render_status(report, os.path.expanduser("~"))
    terminal.out(text)
