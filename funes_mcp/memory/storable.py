"""Whether something can be stored at all, found out before it is put: a store that refuses it costs a whole commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from funes_mcp.memory.model import Chunk
from funes_mcp.traces.model import SessionInfo, Turn

#: What the table and the catalog keep as numbers must fit into 64 bits.
_LARGEST: Final = 2**63 - 1


class UnstorableError(ValueError):
    """Something in a transcript that no store can hold. Costs its transcript, not the pass."""


def check_session(info: SessionInfo) -> None:
    """Raises `UnstorableError`."""
    for name in info.__slots__:
        _check_text(name, getattr(info, name))


def check_turn(turn: Turn, chunks: Sequence[Chunk]) -> None:
    """Raises `UnstorableError`."""
    for name in ("session_id", "turn_uuid", "parent_uuid", "ts", "role", "message_id", "repo"):
        _check_text(name, getattr(turn, name))
    _check_number("seq", turn.seq)
    for chunk in chunks:
        _check_text("text", chunk.text)
        _check_text("tool_name", chunk.tool_name)
        _check_text("block_type", chunk.block_type)
        _check_number("block_idx", chunk.block_idx)


def _check_text(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise UnstorableError(f"its {name} is no text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UnstorableError(f"its {name} is no valid Unicode") from error


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, int) or not -_LARGEST <= value <= _LARGEST:
        raise UnstorableError(f"its {name} is no number of 64 bits")
