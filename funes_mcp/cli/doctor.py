"""`funes doctor`: a memory compared with the disk."""

from __future__ import annotations

import os
from collections.abc import Callable

import click

from funes_mcp import render
from funes_mcp.cli import terminal
from funes_mcp.models import Service


@click.command("doctor", epilog="\b\nExample:\n  funes doctor --json | jq '.findings[] | select(.state != \"ok\")'")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_obj
def command(open_service: Callable[[], Service], as_json: bool) -> int:
    """Check that the memory holds what is on disk, and that everything works.

    Looks at every transcript and every row, asks the memory for passages, and changes nothing. Exits with 1
    when something is broken or not accounted for.
    """
    report = open_service().doctor()
    text = render.to_json(report) + "\n" if as_json else render.render_doctor(report, os.path.expanduser("~"))
    terminal.out(text)
    return 1 if report.problems else 0
