"""A message as rows: what they say of it, and of the place at which it is stored. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha1
from typing import TYPE_CHECKING, Any

from funes_mcp.memory.catalog import Place
from funes_mcp.memory.chunk import chunk_id, munge
from funes_mcp.memory.model import Chunk
from funes_mcp.traces.model import SessionInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class Content:
    """The rows of a message as one of its places gave them, and a digest of their texts.

    Attributes:
        names: See `Entry.names`, for each row; empty when nobody found out yet.
        vectors: float32 (rows, width); None when nobody made them yet.
    """

    chunks: list[Chunk]
    digest: int
    names: Sequence[tuple[str, str]] = ()
    vectors: NDArray[np.float32] | None = None


def alias(session_id: str, path: str) -> str:
    """The name of a session whose id an unrelated transcript has, too."""
    return f"{session_id}~{sha1(path.encode(), usedforsecurity=False).hexdigest()[:6]}"


def signed(identity: str) -> int:
    """16 hex digits as SQLite holds them."""
    number = int(identity, 16)
    return number - (1 << 64) if number >> 63 else number


def unsigned(number: int) -> str:
    """The 16 hex digits that `signed` was given."""
    return f"{number & ((1 << 64) - 1):016x}"


def _unknown_identity(session_id: str, turn: str) -> int:
    digest = blake2b(f"row\0{session_id}\0{turn}".encode("utf-8", "replace"), digest_size=8)
    return signed(digest.hexdigest())


def _number(digest: Any) -> int:
    return int.from_bytes(digest.digest(), "big", signed=True)


def digest_of(chunks: Sequence[Chunk]) -> int:
    """A digest of what the rows of a message say, wherever it stands."""
    parts: list[bytes] = []
    for chunk in chunks:
        text = chunk.text.encode("utf-8", "replace")
        head = f"{chunk.block_idx}\0{chunk.split_idx}\0{chunk.block_type}\0{chunk.tool_name or ''}\0{len(text)}\0"
        parts += (head.encode("utf-8", "replace"), text)
    return _number(blake2b(b"".join(parts), digest_size=8))


def shape_of(session_id: str, home: Place, info: SessionInfo, path: str) -> int:
    """A digest of what the rows of a message say of the place where it stands."""
    facts = home.facts
    text = "\0".join(
        (
            session_id,
            home.turn,
            str(home.seq),
            "-" if facts.parent is None else f"+{facts.parent}",
            facts.ts,
            facts.role,
            "-" if facts.message_id is None else f"+{facts.message_id}",
            facts.flags,
            path,
            info.harness,
            *("-" if value is None else f"+{value}" for value in (info.cwd, info.repo, info.branch)),
            *("-" if value is None else f"+{value}" for value in (info.commit, info.parent_session_id)),
            "-" if info.agent_name is None else f"+{info.agent_name}",
        )
    )
    return _number(blake2b(text.encode("utf-8", "replace"), digest_size=8))


def blocks_of(chunks: Sequence[Chunk]) -> str:
    """How many rows each block of a message has, as `Message.blocks` holds it."""
    counts: dict[int, int] = {}
    for chunk in chunks:
        counts[chunk.block_idx] = counts.get(chunk.block_idx, 0) + 1
    return " ".join(f"{block}:{count}" for block, count in sorted(counts.items()))


def message_of(row: Chunk) -> int:
    """The message that a row belongs to."""
    return signed(row.identity) if row.identity else _unknown_identity(row.session_id, row.turn_uuid)


def in_block_order(rows: list[Chunk]) -> list[Chunk]:
    """The rows of a message, in order."""
    return sorted(rows, key=lambda row: (row.block_idx, row.split_idx))


def kinds_of(chunks: Sequence[Chunk]) -> str:
    """The types of blocks of a turn, space-joined, each once."""
    return " ".join(sorted({chunk.block_type for chunk in chunks}))


def has_less(chunks: Sequence[Chunk], stored: set[int]) -> bool:
    """Whether some blocks are left out that are stored (thinking, say): what is stored stays."""
    blocks = {chunk.block_idx for chunk in chunks}
    return blocks < stored


def is_at_home(chunk: Chunk, session_id: str, home: Place, info: SessionInfo, path: str) -> bool:
    """Whether a row already is as `at_home` would make it."""
    facts = home.facts
    return (
        chunk.source_path == path
        and chunk.session_id == session_id
        and chunk.turn_uuid == home.turn
        and chunk.seq == home.seq
        and chunk.parent_uuid == facts.parent
        and chunk.ts == facts.ts
        and chunk.role == facts.role
        and chunk.message_id == facts.message_id
        and chunk.flags == facts.flags
        and chunk.harness == info.harness
        and chunk.repo == (info.repo or "")
        and chunk.cwd == info.cwd
        and chunk.branch == info.branch
        and chunk.commit == info.commit
        and chunk.parent_session_id == info.parent_session_id
        and chunk.agent_name == info.agent_name
    )


def at_home(chunk: Chunk, session_id: str, home: Place, info: SessionInfo, path: str, message: int) -> Chunk:
    """A row of a message as it is stored at its home."""
    facts = home.facts
    return chunk._replace(
        id=chunk_id(session_id, home.turn, chunk.block_idx, chunk.split_idx),
        session_id=session_id,
        workdir=munge(info.cwd),
        turn_uuid=home.turn,
        parent_uuid=facts.parent,
        seq=home.seq,
        ts=facts.ts,
        role=facts.role,
        source_path=path,
        harness=info.harness,
        repo=info.repo or "",
        message_id=facts.message_id,
        cwd=info.cwd,
        branch=info.branch,
        commit=info.commit,
        parent_session_id=info.parent_session_id,
        agent_name=info.agent_name,
        flags=facts.flags,
        identity=unsigned(message),
    )


def neighbours(keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """For each key the one before it and the one after it."""
    last = len(keys) - 1
    return {
        key: (keys[place - 1] if place else None, keys[place + 1] if place < last else None)
        for place, key in enumerate(keys)
    }
