"""What passes between the memory and those who use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from funes_mcp.traces.model import BlockType

#: Columns that the Rust funes reads and writes, in its order. Ours follow them.
CONTRACT_COLUMNS: Final = (
    "id",
    "text",
    "session_id",
    "workdir",
    "turn_uuid",
    "parent_uuid",
    "seq",
    "ts",
    "role",
    "block_type",
    "tool_name",
    "source_path",
    "block_idx",
    "split_idx",
    "vector",
    "harness",
    "repo",
)

#: Our own columns, after the contract's; all utf8 and nullable.
OWN_COLUMNS: Final = (
    "message_id",
    "cwd",
    "branch",
    "commit",
    "parent_session_id",
    "agent_name",
    "flags",
    "identity",
)


@dataclass(frozen=True, slots=True)
class Embedding:
    """The stamp of a memory's vectors: the model that made them and how many numbers each has."""

    model: str
    width: int


class Chunk(NamedTuple):
    """One row of a memory, without its vector. A tuple, as they are made and sent between processes by the thousands.

    The first sixteen fields are the contract's columns, in its order; the rest are ours. `ts` is RFC 3339
    UTC or "" when unknown; `repo` is `owner/name` or ""; `flags` holds space-joined words of
    `traces.model.FLAGS` in alphabetical order, or ""; `identity` is 16 hex digits that every copy of the
    same message has in common (see `chunk.content_identity`), or "" in rows that another program wrote.
    """

    id: str
    text: str
    session_id: str
    workdir: str
    turn_uuid: str
    parent_uuid: str | None
    seq: int
    ts: str
    role: str
    block_type: BlockType
    tool_name: str | None
    source_path: str
    block_idx: int
    split_idx: int
    harness: str
    repo: str
    message_id: str | None = None
    cwd: str | None = None
    branch: str | None = None
    commit: str | None = None
    parent_session_id: str | None = None
    agent_name: str | None = None
    flags: str = ""
    identity: str = ""

    @property
    def key(self) -> int:
        """The id as an unsigned 64-bit integer: how derived indexes name a chunk."""
        return int(self.id, 16)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as it is searched: with the end of the chunk before it in its session and the beginning of the next."""

    chunk: Chunk
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which chunks a search may return. Empty fields do not restrict; all given ones must hold.

    Attributes:
        harness: As stored (`claude_code`).
        block_type: One of `traces.model.BLOCK_TYPES`.
        project: `owner/name`, a path, or the last part of either; compared without case.
        since, until: Unix milliseconds, inclusive and exclusive. Undated chunks fail both.
        session_id: A full session id.
    """

    harness: str | None = None
    block_type: str | None = None
    project: str | None = None
    since: int | None = None
    until: int | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """A chunk that a leg of the search found: its key and that leg's raw score (BM25, or cosine)."""

    key: int
    score: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """A place in which a turn stands: the session and its position there."""

    session_id: str
    seq: int
