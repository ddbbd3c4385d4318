"""Reading Hermes' sessions: the database by what is new in it, and the older files that it may lack."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from funes_adapters.hermes.parse import Row, SessionParser, content_key, identity_of
from funes_adapters.hermes.sessions import HARNESS
from funes_adapters.hermes.store import Extent, Store

from funes_mcp.traces.identity import digest
from funes_mcp.traces.model import Cursor, Event, SessionInfo, Source, Tally
from funes_mcp.traces.text import clean_tree, compact_json
from funes_mcp.traces.time import to_rfc3339

#: Messages that a branch copies are written within so many seconds of its beginning.
_COPYING_SECONDS: Final = 300.0
#: How many branches of branches are followed to the message that was first.
_BRANCH_DEPTH: Final = 8
#: An older session file is one JSON document, read whole; a longer one is passed over.
_FILE_CAP: Final = 256 * 1024 * 1024


class DatabaseReader:
    """Reads one `state.db` from a cursor on: of each session, the messages that it got since.

    A session that grew is parsed from its beginning, for what a message is depends on those before it (a
    compaction's copies, a call's name), but only its new turns are given. When messages that were read
    before have been taken back or replaced, everything is read again (`whole`). A session that has gone
    from the database altogether keeps what was read of it.
    """

    def __init__(self, source: Source, cursor: Cursor | None) -> None:
        self.tally = Tally()
        self._source = source
        self._known = _known(cursor)
        self._next: dict[str, list[Any]] = {}
        store = Store(source.path)
        try:
            if not store.readable:
                self.tally.lines += 1
                self.tally.skipped["database", "no messages table"] += 1
                self._extents: dict[str, Extent] = {}
                self._infos: dict[str, SessionInfo] = {}
                self.whole = cursor is None
                return
            self._extents = store.extents()
            self._infos = store.infos()
            self.whole = cursor is None or self._rewritten(store)
        finally:
            store.close()
        if self.whole:
            self._known = {}
        else:
            self._next = dict(self._known)

    def _rewritten(self, store: Store) -> bool:
        """Whether rows that were read are no longer there or no longer count, in a session that still is."""
        read = {sid: entry[0] for sid, entry in self._known.items()}
        before = store.extents(read) if read else {}
        return any(
            sid in before
            and [before[sid].count, before[sid].id_sum, before[sid].undone, before[sid].undone_sum] != entry[1:5]
            for sid, entry in self._known.items()
        )

    def __iter__(self) -> Iterator[Event]:
        newest_first = sorted(self._extents, key=lambda sid: (-self._extents[sid].last_id, sid))
        store: Store | None = None
        try:
            for session_id in newest_first:
                extent = self._extents[session_id]
                info = self._infos.get(session_id) or SessionInfo(session_id, HARNESS)
                mark = digest(*(str(value) for value in astuple(info)))[:12]
                entry = [extent.last_id, extent.count, extent.id_sum, extent.undone, extent.undone_sum, mark]
                known = self._known.get(session_id)
                if known == entry:
                    continue
                grown = known is None or known[0] != extent.last_id
                if known is None or grown or known[5] != mark:
                    yield info
                if grown:
                    store = store or Store(self._source.path)
                    try:
                        yield from self._session(store, session_id, known[0] if known else 0, extent.last_id)
                    except OSError:
                        # What was given stays; the session is looked at again when the database next changes.
                        self.tally.lines += 1
                        self.tally.skipped["session", "damaged in the database"] += 1
                        continue
                self._next[session_id] = entry
        finally:
            if store is not None:
                store.close()

    def _session(self, store: Store, session_id: str, after: int, up_to: int) -> Iterator[Event]:
        copied = _Copies(store, self._infos, session_id)
        parser = SessionParser(session_id)
        ignored = Tally()
        for row in store.rows(session_id):
            if row.key > up_to:
                break
            identity = copied.identity_of(row)
            turn = parser.feed(row, self.tally if row.key > after else ignored, identity)
            if turn is not None and row.key > after:
                yield turn

    def cursor(self) -> Cursor:
        """What has been read of each session. Valid after the iteration has ended."""
        last = max((entry[0] for entry in self._next.values()), default=0)
        state = {"sessions": self._next}
        return Cursor(last, digest(compact_json(state))[:16], state)


class _Copies:
    """Follows how a branch repeats its parent, whose messages it holds with new ids and perhaps new times."""

    def __init__(self, store: Store, infos: dict[str, SessionInfo], session_id: str, depth: int = 0) -> None:
        self._session_id = session_id
        self._until: float | None = None
        self._parent: list[tuple[str, str]] = []
        self._at = 0
        info = infos.get(session_id)
        parent = info.parent_session_id if info is not None and info.relation == "fork" else None
        if parent is None or depth >= _BRANCH_DEPTH:
            return
        started = store.started(session_id)
        if started is None:
            return
        self._until = started + _COPYING_SECONDS
        above = _Copies(store, infos, parent, depth + 1)
        self._parent = [(content_key(row), above.identity_of(row)) for row in store.rows(parent)]

    def identity_of(self, row: Row) -> str:
        """The identity of the next message: that of the parent's, for as long as the parent is repeated."""
        own = identity_of(self._session_id, row)
        if self._until is None:
            return own
        late = isinstance(row.timestamp, (int, float)) and row.timestamp > self._until
        key = content_key(row)
        at = self._at
        while not late and at < len(self._parent):
            if self._parent[at][0] == key:
                self._at = at + 1
                return self._parent[at][1]
            at += 1
        self._until = None
        return own


class FileReader:
    """Reads one older file of `sessions/`: a JSON object a line, or one document with all messages.

    Hermes wrote these beside the database; they matter where the database could not be written. Messages
    that the database holds of the same session are left to it. Always read whole: they are small and rare.
    """

    def __init__(self, source: Source) -> None:
        self.tally = Tally()
        self.whole = True
        self._source = source
        self._size = 0

    def __iter__(self) -> Iterator[Event]:
        data = _read(self._source.path, self.tally)
        self._size = len(data)
        is_lines = self._source.kind == "jsonl"
        stem = self._source.path.stem
        session_id = stem if is_lines else stem.removeprefix("session_")
        messages, started = self._lines(data) if is_lines else self._document(data)
        rows = [_row_of(number, message) for number, message in messages]
        held, info = self._in_database(session_id)
        info = info or SessionInfo(session_id, HARNESS, started=started)
        parser = SessionParser(session_id, "file-")
        told = False
        for row in rows:
            key = _spoken_key(row)
            if held[key] > 0:
                held[key] -= 1
                self.tally.lines += 1
                self.tally.skipped[f"message/{row.role or '?'}", "also in the database"] += 1
                continue
            turn = parser.feed(row, self.tally)
            if turn is None:
                continue
            if not told:
                yield info
                told = True
            yield turn

    def cursor(self) -> Cursor:
        return Cursor(self._size, "")

    def _lines(self, data: bytes) -> tuple[list[tuple[int, dict[str, Any]]], str | None]:
        messages: list[tuple[int, dict[str, Any]]] = []
        for number, line in enumerate(data.splitlines()):
            if not line.strip():
                continue
            value = _loads(line)
            if isinstance(value, dict):
                messages.append((number, value))
            else:
                self.tally.lines += 1
                self.tally.skipped["line", "torn line" if value is None else "not a JSON object"] += 1
        return messages, None

    def _document(self, data: bytes) -> tuple[list[tuple[int, dict[str, Any]]], str | None]:
        value = _loads(data)
        messages = value.get("messages") if isinstance(value, dict) else None
        if not isinstance(messages, list):
            self.tally.lines += 1
            self.tally.skipped["file", "not a session"] += 1
            return [], None
        started = to_rfc3339(value.get("session_start")) if isinstance(value, dict) else None
        found = [(number, message) for number, message in enumerate(messages) if isinstance(message, dict)]
        self.tally.lines += len(messages) - len(found)
        self.tally.skipped["line", "not a JSON object"] += len(messages) - len(found)
        return found, started

    def _in_database(self, session_id: str) -> tuple[Counter[str], SessionInfo | None]:
        path = Path(dict(self._source.context).get("database", ""))
        if not path.is_file():
            return Counter(), None
        try:
            store = Store(path)
            try:
                if not store.readable:
                    return Counter(), None
                held = Counter(_spoken_key(row) for row in store.rows(session_id))
                return held, store.infos().get(session_id)
            finally:
                store.close()
        except OSError:
            self.tally.lines += 1
            self.tally.skipped["database", "cannot be read for comparison"] += 1
            return Counter(), None


def _spoken_key(row: Row) -> str:
    return content_key(Row(0, row.role, (row.content or "").strip(), tool_call_id=row.tool_call_id))


def _row_of(number: int, message: dict[str, Any]) -> Row:
    def text(name: str) -> str | None:
        value = message.get(name)
        return value if isinstance(value, str) else None

    content = message.get("content")
    if content is not None and not isinstance(content, str):
        content = "\0json:" + compact_json(content)
    calls = message.get("tool_calls")
    return Row(
        key=number,
        role=text("role") or "",
        content=content,
        tool_calls=compact_json(calls) if calls else None,
        tool_call_id=text("tool_call_id"),
        tool_name=text("tool_name") or text("name"),
        timestamp=message.get("timestamp"),
        reasoning=text("reasoning"),
        reasoning_content=text("reasoning_content"),
    )


def _read(path: Path, tally: Tally) -> bytes:
    with path.open("rb") as file:
        data = file.read(_FILE_CAP + 1)
    if len(data) > _FILE_CAP:
        tally.lines += 1
        tally.skipped["file", "over the size cap"] += 1
        return b""
    return data


def _loads(data: bytes) -> Any:
    """A JSON value, or None for anything that is none."""
    try:
        return clean_tree(json.loads(data.decode("utf-8-sig", "replace"), strict=False))
    except (ValueError, RecursionError):
        return None


def _known(cursor: Cursor | None) -> dict[str, list[Any]]:
    """What a cursor says was read; entries of another shape are forgotten, and so read again."""
    sessions = (cursor.state or {}).get("sessions") if cursor is not None else None
    if not isinstance(sessions, dict):
        return {}
    return {sid: entry for sid, entry in sessions.items() if isinstance(entry, list) and len(entry) == 6}
