"""Recalled text is recognised, so that it is never indexed again."""

from __future__ import annotations

import pytest

from funes_mcp.render import QUOTES
from funes_mcp.traces.ours import is_own_output, is_own_tool


@pytest.mark.parametrize(
    "name",
    [
        "mcp__funes__recall",
        "mcp_funes_get",
        "mcp__plugin_funes_funes__status",
        "funes__recall",
        "funes.recall",
    ],
)
def test_our_tools_by_their_full_names(name: str) -> None:
    assert is_own_tool(name)


def test_a_bare_name_is_ours_only_in_our_namespace() -> None:
    assert is_own_tool("recall", "mcp__funes")
    assert is_own_tool("get", "funes")
    assert not is_own_tool("recall", "mcp__other")
    assert not is_own_tool("recall")
    assert not is_own_tool("get")
    assert not is_own_tool("mcp__funes_notes__recall")
    assert not is_own_tool(None)


def test_our_answers_by_what_they_say() -> None:
    assert is_own_output(f"{QUOTES}\n\nan old passage")
    assert is_own_output(f"Chunk ID: 1\nWall time: 0.1 seconds\nOutput:\n{QUOTES}\nan old passage")
    assert is_own_output("[2026-01-02] codex w/12345678 text  score=0.5\n  → get s t --memory local\nan old passage")
    assert not is_own_output("an old passage")
    assert not is_own_output("use `→ get` with --memory")
    assert not is_own_output("words " * 200 + QUOTES)
