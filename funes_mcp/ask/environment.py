"""The environment of an agent that is asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from funes_mcp.hooks import GUARD


def surroundings(environ: Mapping[str, str], sets: Mapping[str, str], drops: Sequence[str]) -> dict[str, str]:
    """The environment of an agent that is asked: its hooks of ours do nothing."""
    kept = {name: value for name, value in environ.items() if not name.startswith(tuple(drops))}
    return {**kept, **sets, GUARD: "1"}
