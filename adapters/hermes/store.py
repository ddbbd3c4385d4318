"""Hermes' database, opened so that its owner never notices."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from funes_adapters.hermes.parse import Row
from funes_adapters.hermes.sessions import HARNESS

from funes_mcp.traces.model import SessionInfo
from funes_mcp.traces.text import clean
from funes_mcp.traces.time import to_rfc3339

#: Seconds that one statement may run, and that a lock is waited for.
STATEMENT_SECONDS: Final = 30.0
_BUSY_SECONDS: Final = 2.0
#: Bytes that are read of one column.
COLUMN_CAP: Final = 2 * 1024 * 1024
#: Rows fetched at once: no read transaction stays open while turns are made of them.
_BATCH: Final = 32
#: How far the chain of parents is followed; it has no good reason to be longer, and may be a ring.
_ANCESTORS: Final = 32


@dataclass(frozen=True, slots=True)
class Extent:
    """What is in a session: how many rows, the sum of their ids, the highest; and of the rows taken back."""

    count: int
    id_sum: int
    last_id: int
    undone: int
    undone_sum: int


class Store:
    """A connection to one `state.db`, read-only by its URI.

    Opened any other way, SQLite would take part in the write-ahead log of a running Hermes: a read-write
    connection checkpoints and deletes the log when it closes, and an immutable one does not see the log.

    Raises `OSError` from every method when the database cannot be read (damaged, locked, too slow).
    """

    def __init__(self, path: Path, seconds: float = STATEMENT_SECONDS) -> None:
        self._path = path
        self._seconds = seconds
        self._deadline = 0.0
        try:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise OSError(f"{path}: {error}") from error
        self._connection.text_factory = _decoded
        self._connection.set_progress_handler(self._overdue, 10_000)
        try:
            self._messages = self._columns("messages")
            self._sessions = self._columns("sessions")
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    @property
    def readable(self) -> bool:
        """Whether it has messages at all: an id, a session and a role for each."""
        return {"id", "session_id", "role"} <= self._messages

    def extents(self, up_to: dict[str, int] | None = None) -> dict[str, Extent]:
        """What is in each session; with `up_to`, counting only rows up to that id in the sessions named."""
        found: dict[str, Extent] = {}
        rows = self._all("SELECT session_id, COUNT(*), SUM(id), MAX(id) FROM messages GROUP BY session_id")
        for session_id, count, id_sum, last_id in rows:
            if not isinstance(session_id, str):
                continue
            bound = None if up_to is None else up_to.get(session_id)
            if bound is not None and bound < last_id:
                count, id_sum = self._all(
                    "SELECT COUNT(*), COALESCE(SUM(id), 0) FROM messages WHERE session_id = ? AND id <= ?",
                    (session_id, bound),
                )[0]
            undone, undone_sum = self._undone(session_id, last_id if bound is None else bound)
            found[session_id] = Extent(count, id_sum, last_id, undone, undone_sum)
        return found

    def _undone(self, session_id: str, bound: int) -> tuple[int, int]:
        where = self._undone_sql
        if not where:
            return 0, 0
        row = self._all(
            f"SELECT COUNT(*), COALESCE(SUM(id), 0) FROM messages WHERE session_id = ? AND {where} AND id <= ?",
            (session_id, bound),
        )[0]
        return row[0], row[1]

    @property
    def _undone_sql(self) -> str:
        """Rows that the user took back. Compaction also switches rows off, but marks them."""
        if "active" not in self._messages:
            return ""
        if "compacted" not in self._messages:
            return "active = 0"
        return "active = 0 AND COALESCE(compacted, 0) = 0"

    def rows(self, session_id: str) -> Iterator[Row]:
        """The messages of a session in the order of their ids."""
        ids = [row[0] for row in self._all("SELECT id FROM messages WHERE session_id = ? ORDER BY id", (session_id,))]
        texts = ("content", "tool_calls", "reasoning", "reasoning_content")
        selected = [_capped(name) if name in self._messages else "NULL" for name in texts]
        plain = ("tool_call_id", "tool_name", "timestamp")
        selected += [name if name in self._messages else "NULL" for name in plain]
        selected.append(self._undone_sql or "0")
        sql = f"SELECT id, role, {', '.join(selected)} FROM messages WHERE id IN (%s) ORDER BY id"
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            for values in self._all(sql % ", ".join("?" * len(batch)), batch):
                yield _row(values)

    def infos(self) -> dict[str, SessionInfo]:
        """What is known of each session that has a row of its own."""
        names = (
            "id", "source", "parent_session_id", "cwd", "git_branch", "git_repo_root",
            "title", "started_at", "ended_at", "end_reason", "model_config",
        )  # fmt: skip
        if "id" not in self._sessions:
            return {}
        selected = ", ".join(f"substr({name}, 1, 65536)" if name in self._sessions else "NULL" for name in names)
        sessions = {}
        for values in self._all(f"SELECT {selected} FROM sessions"):
            session = _Session(*(clean(text) if (text := _text(value)) else None for value in values))
            if session.id:
                sessions[session.id] = session
        return {session_id: _info(session, sessions) for session_id, session in sessions.items()}

    def started(self, session_id: str) -> float | None:
        """When a session began, in seconds since 1970; None when that is not recorded as a number."""
        if not {"id", "started_at"} <= self._sessions:
            return None
        rows = self._all("SELECT started_at FROM sessions WHERE id = ?", (session_id,))
        return float(rows[0][0]) if rows and isinstance(rows[0][0], (int, float)) else None

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._all(f"PRAGMA table_info({table})")}

    def _all(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        self._deadline = time.monotonic() + self._seconds
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            why = "took too long to read" if "interrupted" in str(error) else str(error)
            raise OSError(f"{self._path}: {why}") from error

    def _overdue(self) -> int:
        return int(time.monotonic() > self._deadline)


@dataclass(frozen=True, slots=True)
class _Session:
    id: str | None
    source: str | None
    parent: str | None
    cwd: str | None
    branch: str | None
    git_root: str | None
    title: str | None
    started: str | None
    ended: str | None
    end_reason: str | None
    config: str | None


def _info(session: _Session, sessions: dict[str, _Session]) -> SessionInfo:
    """Its own facts, and its directory from the nearest ancestor that has one: subagents record none."""
    cwd = branch = None
    at: _Session | None = session
    for _step in range(_ANCESTORS):
        if at is None:
            break
        cwd = at.cwd or at.git_root
        branch = at.branch
        if cwd:
            break
        at = sessions.get(at.parent or "")
    parent = session.parent if session.parent != session.id else None
    return SessionInfo(
        session_id=session.id or "",
        harness=HARNESS,
        cwd=cwd,
        branch=branch,
        title=session.title,
        parent_session_id=parent,
        relation=None if parent is None else ("fork" if _is_fork(session, sessions.get(parent)) else "subagent"),
        started=to_rfc3339(session.started),
    )


def _is_fork(session: _Session, parent: _Session | None) -> bool:
    """Whether a session goes on from a copy of its parent (a branch, or what follows a compaction).

    Otherwise the parent started it for a task of its own.
    """
    if session.source == "subagent":
        return False
    try:
        config = json.loads(session.config or "{}")
    except (ValueError, RecursionError):
        config = None
    if isinstance(config, dict):
        if config.get("_branched_from"):
            return True
        if config.get("_delegate_from"):
            return False
    return parent is not None and parent.end_reason in ("branched", "compression", "compressed")


def _capped(column: str) -> str:
    """SQL for a column, or its beginning as bytes. `substr` of text would end it at the first NUL."""
    as_bytes = f"CAST({column} AS BLOB)"
    return f"CASE WHEN length({as_bytes}) < {COLUMN_CAP} THEN {column} ELSE substr({as_bytes}, 1, {COLUMN_CAP}) END"


def _row(values: Sequence[Any]) -> Row:
    key, role, *texts, call_id, tool_name, timestamp, undone = values
    content, calls, reasoning, reasoning_content = (_raw_text(value) for value in texts)
    return Row(
        key=key,
        role=_text(role) or "",
        content=content,
        tool_calls=calls,
        tool_call_id=_text(call_id),
        tool_name=_text(tool_name),
        timestamp=timestamp if isinstance(timestamp, (int, float)) else _text(timestamp),
        reasoning=reasoning,
        reasoning_content=reasoning_content,
        undone=bool(undone),
        trimmed=any(isinstance(value, bytes) and len(value) >= COLUMN_CAP for value in texts),
    )


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _raw_text(value: object) -> str | None:
    """A column as text, or None when it is NULL; SQLite lets any column hold any type."""
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, (int, float)):
        return repr(value)
    return value if isinstance(value, str) else None


def _text(value: object) -> str | None:
    """The same, and None when it is empty."""
    return _raw_text(value) or None
