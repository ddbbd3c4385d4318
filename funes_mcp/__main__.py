"""The command `funes`. What agents start (`mcp`, `hook`) is reached without loading the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["mcp"] and len(words) <= 2 and not any(word.startswith("-") for word in words):
        from funes_mcp import handshake

        _leave(handshake.main(words[1:]))
    if words[:1] == ["hook"]:
        from funes_mcp import hooks

        raise SystemExit(hooks.main(words[1:]))
    from funes_mcp.cli import main as run

    raise SystemExit(run(words))


def _leave(code: int) -> None:
    """End at once: a search in another thread must not hold up a server whose client has gone."""
    import os

    if sys.stderr is not None:
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
