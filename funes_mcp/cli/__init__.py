"""One module a command: parse arguments, call the service, print."""

from __future__ import annotations

from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    """Run the command line on these words (without the program's name); the exit code."""
    from funes_mcp.cli.app import run

    return run(words)
