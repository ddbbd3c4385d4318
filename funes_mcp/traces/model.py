"""What every parser produces: sessions, turns and blocks, and an account of what was not kept.

The model knows no agent and no storage. Everything downstream (chunks, vectors, words) is made from it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

BlockType = Literal["text", "thinking", "tool_use", "tool_result", "summary"]
Role = Literal["user", "assistant", "tool", "system"]

BLOCK_TYPES: Final[tuple[BlockType, ...]] = ("text", "thinking", "tool_use", "tool_result", "summary")

#: Words that may stand in `Turn.flags`, with what they mean.
FLAGS: Final[dict[str, str]] = {
    "summary": "a machine's summary of earlier turns, not anybody's words",
    "queued": "typed while the agent was working",
    "history": "known only from the agent's prompt history; the transcript is gone",
    "trimmed": "a record over the size cap; only its beginning is kept",
    "error": "the agent's report of a failed request",
}


#: As what thinking is counted in `Tally.parts` that was asked to be left out.
NO_THINKING: Final = ("thinking", "--no-thinking")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a turn.

    Attributes:
        type: What kind of block it is.
        text: Its payload as plain text: words for `text`, `thinking` and `summary`; the arguments as
            compact JSON (keys in source order, literal UTF-8) for `tool_use`; the output for `tool_result`.
            Never holds lone surrogates, NUL, or image and base64 payloads.
        idx: Its position among the non-blank blocks of its turn, counted as the Rust funes counts them.
        tool_name: Name of the tool, for `tool_use` and `tool_result` when it is known.
    """

    type: BlockType
    text: str
    idx: int
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a session, as one line or row of a transcript records it.

    Attributes:
        session_id: The session that this transcript belongs to.
        turn_uuid: The agent's own id of the message; unique in the session.
        parent_uuid: The message it follows, where the agent records one.
        seq: Position among the turns of the session, in file order, counted as the Rust funes counts.
        ts: RFC 3339 in UTC with milliseconds and `Z`, or None when the transcript gives no usable time.
        role: Who speaks.
        blocks: The blocks that are kept; `Block.idx` need not be contiguous.
        identity: The same for every copy of this message in any file (resume, fork, branch), and for
            nothing else: what copies are recognised by. Holds no file name and no session id, unless
            the agent's message ids are unique only inside a session.
        message_id: Joins several lines that are one reply; unique only inside a session.
        flags: Words of `FLAGS`.
        cwd: The folder in which it was said, as recorded, where that is another than the session's; else None.
        repo: As `SessionInfo.repo`, where that folder belongs to another repository than the session's, "" when it
            belongs to none or nobody can tell; None for the session's. Found out by who reads, not by parsers.
    """

    session_id: str
    turn_uuid: str
    parent_uuid: str | None
    seq: int
    ts: str | None
    role: Role
    blocks: tuple[Block, ...]
    identity: str
    message_id: str | None = None
    flags: frozenset[str] = frozenset()
    cwd: str | None = None
    repo: str | None = None

    def without_blocks(self) -> Turn:
        """Everything but what was said."""
        return Turn(
            self.session_id,
            self.turn_uuid,
            self.parent_uuid,
            self.seq,
            self.ts,
            self.role,
            (),
            self.identity,
            self.message_id,
            self.flags,
            self.cwd,
            self.repo,
        )


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What is known of a session besides its turns. A later one for the same session replaces an earlier.

    Attributes:
        cwd: The working directory as recorded, not munged; None when none is.
        repo: `owner/name` of the checkout when the transcript itself names the remote; else, space-joined, of all
            remotes that the checkout has when the transcript is read.
        branch, commit: Of the checkout, where recorded.
        title: A name worth showing (the agent's or the user's own), never made up here.
        parent_session_id: The session that started this one (a subagent) or that it was copied from.
        relation: How it hangs on its parent.
        agent_name: The subagent's name or type.
        originator: The program that wrote the transcript when it is not the agent itself.
        started: RFC 3339 UTC of the first dated record.
    """

    session_id: str
    harness: str
    cwd: str | None = None
    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    title: str | None = None
    parent_session_id: str | None = None
    relation: Literal["subagent", "fork"] | None = None
    agent_name: str | None = None
    originator: str | None = None
    started: str | None = None


@dataclass(frozen=True, slots=True)
class Root:
    """A folder (or file) in which an agent keeps sessions, and how it came to be looked at.

    Attributes:
        why: The environment variable or default that named it, for `funes doctor`.
        kind: The adapter's own word for what is in it (`projects`, `archived`, `history`, ...).
        host: How the person calls the machine or account whose folder it is; "" for this one.
    """

    harness: str
    path: Path
    why: str
    kind: str = "sessions"
    host: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One thing that is read as a whole: a transcript file, or a database.

    Attributes:
        path: Real path (links resolved), the identity of the source.
        size, mtime_ns, ctime_ns, inode: From one `stat`; of a database, the sum or newest of its files.
        kind: The adapter's own word for how to read it.
        context: What the adapter learned while finding it (a parent session's id, ...). Small, JSON-able.
        many: A store of many sessions (a database, say), from which the agent prunes whole sessions: what was
            read of those stays, as that of a deleted transcript does.
    """

    harness: str
    root: Path
    path: Path
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    kind: str = "jsonl"
    context: tuple[tuple[str, str], ...] = ()
    many: bool = False


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a source has been read, so that the next pass reads only what is new.

    Attributes:
        offset: Bytes consumed (decompressed): just behind the last newline, or the last record that is
            complete without one. Rows or ids for a database.
        digest: Of the bytes before `offset` (see `jsonl.prefix_digest`); another digest means rewritten.
        state: The parser's own memory, JSON-able and bounded; None for parsers that keep none.
    """

    offset: int
    digest: str
    state: dict[str, Any] | None = None


@dataclass(slots=True)
class Tally:
    """An account of everything met in a source: nothing is skipped in silence.

    Of one source, `kept`, `skipped` and `unknown` together are `lines`. The account of a reading that goes on
    from a cursor may take back what was counted of a then unfinished last line (-1): added up, the accounts
    of all readings are that of one whole reading.

    Attributes:
        kept: Records that became (part of) a turn, by record type.
        skipped: Records, lines or files that did not, by `(record type, reason)`; the type is `line` for
            what is no record, and `file` for what was not opened. A reason is a short phrase from the
            person's point of view ("torn line", "no words", "developer message").
        unknown: Record types that the parser does not know, by type. They count as unexplained.
        lines: Lines (or rows) seen; two records on one line count as two.
        parts: Parts of kept records that were left out, by `(block type, reason)` ("image", "reminder").
    """

    kept: Counter[str] = field(default_factory=Counter)
    skipped: Counter[tuple[str, str]] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    parts: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def explained(self) -> int:
        """How many lines the account has a word for."""
        return self.kept.total() + self.skipped.total() + self.unknown.total()

    @property
    def understood(self) -> int:
        """How many records are of a type that the parser knows, kept or not."""
        return self.kept.total() + sum(
            count for (kind, _), count in self.skipped.items() if kind not in ("line", "file")
        )

    def add(self, other: Tally) -> None:
        """Add another account to this one."""
        self.kept.update(other.kept)
        self.skipped.update(other.skipped)
        self.unknown.update(other.unknown)
        self.lines += other.lines
        self.parts.update(other.parts)


Event = SessionInfo | Turn
