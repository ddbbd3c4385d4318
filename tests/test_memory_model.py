"""What passes between the layers of the memory."""

from __future__ import annotations

from dataclasses import fields, replace

from funes_mcp.traces.model import Block, Turn


def test_a_turn_without_its_blocks_is_the_same_but_for_them() -> None:
    turn = Turn("s", "u", "p", 3, "t", "user", (Block("text", "hi", 0),), "i", "m", frozenset({"queued"}), "/x", "a/b")
    usual = {field.name: field.default for field in fields(Turn)}
    assert all(getattr(turn, name) != value for name, value in usual.items())
    assert turn.without_blocks() == replace(turn, blocks=())
