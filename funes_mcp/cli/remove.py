"""`funes remove`: take back what `funes add` did."""

from __future__ import annotations

import os
from pathlib import Path

import click

from funes_mcp.cli import terminal
from funes_mcp.home import FunesHome
from funes_mcp.wiring.flow import Wirer, find_wiring


@click.command("remove", epilog="\b\nExample:\n  funes remove claude")
@click.argument("agent", metavar="claude|codex|pi|hermes")
def command(agent: str) -> int:
    """Take funes out of an agent: its tools, its hooks, and nothing else. The memory stays."""
    wiring = find_wiring(agent)
    named = os.environ.get("HOME", "").strip()
    wirer = Wirer(FunesHome.from_environ(os.environ), os.environ, Path(named).absolute() if named else Path.home())
    outcome = wirer.remove(wiring)
    if outcome.written:
        terminal.out(f"{wiring.title} no longer has funes. Changed back:\n")
        terminal.out("".join(f"  {path}\n" for path in outcome.written))
    else:
        terminal.out(f"{wiring.title} has no funes; nothing was changed.\n")
    return 0
