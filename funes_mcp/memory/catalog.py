"""What a memory knows besides its rows: which sources were read how far, and where each message stands.

One SQLite file. A *message* is what is stored once; a *sighting* is one place where it stands (a session, in
one source). All of it can be made again by reading the sources once more, except sightings in transcripts
that are gone; the rows themselves are never at stake.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from funes_mcp.errors import DerivedDamagedError, FunesError, MemoryDamagedError
from funes_mcp.home import private_folder
from funes_mcp.memory import readonly
from funes_mcp.memory.conversation import in_order
from funes_mcp.memory.times import UNDATED, millis
from funes_mcp.traces.model import BLOCK_TYPES, Cursor, SessionInfo, Source, Tally

FILE: Final = "catalog.db"
VERSION: Final = 2
_PATIENCE: Final = 30.0
_AT_ONCE: Final = 500
_MAKE_AGAIN: Final = "Run `funes index`: it is put aside, and made again from the table."
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EPOCH: Final = datetime(1970, 1, 1)

_SCHEMA: Final = """
create table if not exists meta (name text primary key, value text not null) without rowid;
create table if not exists sources (
    no integer primary key, path text not null unique, harness text not null, root text not null,
    kind text not null, signature text not null, size integer not null, cursor text, tally text,
    failure text not null, complete integer not null, read_at text not null);
create table if not exists sessions (no integer primary key, id text not null unique, base text not null);
create index if not exists sessions_base on sessions (base);
create table if not exists infos (no integer primary key, data text not null unique);
create table if not exists standing (
    session integer not null, source integer not null, info integer not null,
    started text not null, fork integer not null, primary key (session, source)) without rowid;
create table if not exists sightings (
    no integer primary key, session integer not null, turn not null, source integer not null,
    message integer not null, seq integer not null, info integer not null,
    parent, ts, role not null, message_id, flags, kinds not null);
create unique index if not exists sightings_turn on sightings (session, turn, source);
create index if not exists sightings_message on sightings (message);
create index if not exists sightings_source on sightings (source);
create index if not exists sightings_prompts on sightings (session) where flags in ('history', 'history trimmed');
create table if not exists messages (
    no integer primary key, session integer not null, turn not null, seq integer not null,
    blocks not null, content integer not null, shape integer not null, ts);
create index if not exists messages_session on messages (session, seq);
create table if not exists split (base text primary key) without rowid;
create table if not exists forgotten (session text primary key, at text not null) without rowid;
"""


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is known of a source.

    Attributes:
        signature: Of the file when it was last read; see `signature_of`.
        complete: Whether it was read to its end then.
        failure: Why it could not be read, or "".
        read_at: RFC 3339 UTC.
    """

    no: int
    path: str
    harness: str
    root: str
    kind: str
    signature: str
    size: int
    cursor: Cursor | None
    tally: Tally
    failure: str
    complete: bool
    read_at: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the memory has of one agent.

    Attributes:
        sessions: Sessions in which something stands.
        copied: Passages in its sessions that are copies of stored ones in other sessions.
        newest: RFC 3339 UTC of the newest dated turn, or "".
        title: Of the session in which that stands, or "".
    """

    sessions: int = 0
    copied: int = 0
    newest: str = ""
    title: str = ""


class TurnFacts(NamedTuple):
    """What a transcript says of a turn besides its blocks.

    Attributes:
        parent: The turn that it follows, where recorded.
        ts: RFC 3339 UTC or "".
        flags, kinds: Space-joined flags, and types of its blocks, each in alphabetical order.
    """

    parent: str | None
    ts: str
    role: str
    message_id: str | None
    flags: str
    kinds: str


class Place(NamedTuple):
    """A sighting: a message in a session of a source.

    Attributes:
        session, source, info: Row numbers.
        message: The message's identity as a signed 64-bit integer.
    """

    session: int
    turn: str
    source: int
    message: int
    seq: int
    facts: TurnFacts
    info: int


_FROM_HISTORY: Final = "flags in ('history', 'history trimmed')"
_PLACE: Final = "session, turn, source, message, seq, info, parent, ts, role, message_id, flags, kinds"
_ROLES: Final = ("user", "assistant", "tool", "system")
_KINDS: Final[dict[str, int]] = {kind: 1 << bit for bit, kind in enumerate(sorted(BLOCK_TYPES))}
_USUAL: Final = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def _place(row: Sequence[Any]) -> Place:
    session, turn, source, message, seq, info, parent, ts, role, message_id, flags, kinds = row
    facts = TurnFacts(
        None if parent is None else _long(parent),
        _moment(ts),
        _role(role),
        message_id,
        flags or "",
        _kinds(kinds),
    )
    return Place(session, _long(turn), source, message, seq, facts, info)


def _role(role: int | str) -> str:
    return _ROLES[role] if isinstance(role, int) else str(role)


def _kinds(kinds: int | str) -> str:
    if isinstance(kinds, int):
        return " ".join(kind for kind, bit in _KINDS.items() if kinds & bit)
    return str(kinds)


def _place_row(place: Place) -> tuple[Any, ...]:
    facts = place.facts
    return (
        place.session,
        _short(place.turn),
        place.source,
        place.message,
        place.seq,
        place.info,
        None if facts.parent is None else _short(facts.parent),
        _instant(facts.ts),
        _ROLES.index(facts.role) if facts.role in _ROLES else facts.role,
        facts.message_id,
        facts.flags or None,
        _bits(facts.kinds),
    )


@lru_cache(maxsize=256)
def _bits(kinds: str) -> int | str:
    """Types of blocks as the sum of their bits; as they are when one is unknown."""
    bits = 0
    for kind in kinds.split():
        if kind not in _KINDS:
            return kinds
        bits |= _KINDS[kind]
    return bits


@lru_cache(maxsize=16_384)  # a turn's id stands in its place, in that of the next turn, and with its message
def _short(name: str) -> bytes | str:
    """A UUID as its 16 bytes; any other name as it is."""
    if len(name) == 36 and _UUID.fullmatch(name):
        return bytes.fromhex(name.replace("-", ""))
    return name


def _long(name: bytes | str) -> str:
    if isinstance(name, bytes):
        digits = name.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return name


@lru_cache(maxsize=4096)
def _instant(ts: str) -> int | str | None:
    """A time as milliseconds when it is written the usual way, so that these say all of it; else as it is."""
    if not ts:
        return None
    number = millis(ts) if _USUAL.fullmatch(ts) else UNDATED
    return ts if number == UNDATED else number


def _moment(value: int | str | None) -> str:
    if not isinstance(value, int):
        return value or ""
    moment = _EPOCH + timedelta(milliseconds=value)
    return f"{moment.isoformat(timespec='milliseconds')}Z"


class Message(NamedTuple):
    """What is stored of a message: under which session and turn, and in which pieces.

    Attributes:
        blocks: `block:pieces` for each block, space-joined.
        content: Digest of the stored texts.
        shape: Digest of everything else in its rows.
        ts: RFC 3339 UTC or "".
    """

    no: int
    session: int
    turn: str
    seq: int
    blocks: str
    content: int
    shape: int
    ts: str = ""

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return _pieces(self.blocks)

    def block_numbers(self) -> set[int]:
        """The blocks that it has rows of."""
        return {block for block, _ in self.pieces()}

    def pieces(self) -> Iterator[tuple[int, int]]:
        """The coordinates `(block_idx, split_idx)` of its rows, in order."""
        return pieces_of(self.blocks)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message where it is stored: what its transcript says of the turn, and under which facts of the session.

    Attributes:
        role, flags, kinds: See `TurnFacts`.
        info: A row number.
    """

    message: Message
    role: str
    flags: str
    kinds: str
    info: int


def safe_text(text: str) -> str:
    """A path or name with what UTF-8 cannot hold spelled out (`\\udcff`)."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def signature_of(source: Source) -> str:
    """What changes when a source does, as far as one `stat` can tell."""
    return json.dumps([source.size, source.mtime_ns, source.ctime_ns, source.inode, source.kind, list(source.context)])


def _message(row: Sequence[Any]) -> Message:
    no, session, turn, seq, blocks, content, shape, ts = row
    return Message(no, session, _long(turn), seq, _blocks_of(blocks), content, shape, _moment(ts))


def _pieces(blocks: str | int) -> int:
    """How many rows a message has."""
    return blocks if isinstance(blocks, int) else sum(int(part.partition(":")[2]) for part in blocks.split())


def pieces_of(blocks: str) -> Iterator[tuple[int, int]]:
    """The coordinates `(block_idx, split_idx)` of the rows of a message with these blocks, in order."""
    for part in blocks.split():
        block, _, count = part.partition(":")
        for number in range(int(count)):
            yield int(block), number


def _blocks_of(kept: str | int) -> str:
    return f"0:{kept}" if isinstance(kept, int) else kept


def _blocks(blocks: str) -> str | int:
    """Most messages are one block, the first: then only the number of its pieces is kept."""
    return int(blocks[2:]) if blocks.startswith("0:") and " " not in blocks else blocks


def damage_of(path: Path, error: sqlite3.Error) -> DerivedDamagedError | None:
    """What an error says of the catalog's file at `path`; None when it says nothing about what is in it."""
    # SQLite's words for a file that is none of its own, or whose pages are. Everything that has to do with getting at
    # the file is a subclass.
    if type(error) is sqlite3.DatabaseError or str(error).startswith("no such table"):
        return DerivedDamagedError(path, str(error), _MAKE_AGAIN)
    return None


def identity(folder: Path) -> tuple[int, int] | None:
    """Which file the catalog in `folder` is; None when there is none. Another one has another, whatever is in it."""
    try:
        stat = (folder / FILE).stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def damage(folder: Path) -> str:
    """What is wrong with the catalog in `folder`, in a few words; "" for nothing. Reads all of it.

    Raises:
        FunesError: It cannot be got at.
    """
    if identity(folder) is None:
        return "it is gone"
    try:
        catalog = Catalog(folder, writable=False)
    except DerivedDamagedError as error:
        return error.message
    try:
        return catalog.damage()
    finally:
        catalog.close()


def _trouble(path: Path, error: sqlite3.Error) -> FunesError:
    damage = damage_of(path, error)
    if damage is not None:
        return damage
    if "full" in str(error):
        return FunesError(
            f"{path} cannot be opened: the disk is full. What was stored before is kept.", "Free some space."
        )
    return FunesError(f"{path} cannot be opened: {error}.")


class Catalog:
    """The catalog of the memory in `folder`, made when missing.

    Args:
        writable: False opens it for reading only, and then it must exist. Where its folder cannot be written to, too.

    Raises:
        DerivedDamagedError: The file is no catalog of this version, or not finished.
        FunesError: It cannot be got at (a full disk, no permission).
    """

    def __init__(self, folder: Path, *, writable: bool = True) -> None:
        self._path = path = (folder / FILE).absolute()
        # Before it is opened: when another takes its place in between, that shows at the next look.
        self._identity = identity(folder)
        self._copy: TemporaryDirectory[str] | None = None
        if writable:
            private_folder(folder)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connect(path.as_uri(), writable=True)
            return
        log = path.with_name(path.name + "-wal")
        # Where nothing can be written there is no writer either, and SQLite could not keep its notes of one.
        alone = f"{path.as_uri()}?mode=ro&immutable=1"
        if not os.access(path.parent, os.W_OK) and not log.exists():
            self._connect(alone)
            return
        try:
            self._connect(f"{path.as_uri()}?mode=ro")
        except DerivedDamagedError:
            raise
        except FunesError as error:  # its notes cannot be written: permission, or a full disk
            if "locked" in error.message or not os.access(path, os.R_OK):
                raise
            if log.exists():  # what a writer left that was cut off
                self._copy = readonly.copies(path, log)
                self._connect(f"{Path(self._copy.name, FILE).as_uri()}?mode=rw")
            else:
                self._connect(alone)

    def _connect(self, name: str, *, writable: bool = False) -> None:
        try:
            self._db = sqlite3.connect(name, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(writable=writable)
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            raise _trouble(self._path, error) from error

    @classmethod
    def found(cls, folder: Path) -> Catalog | None:
        """The catalog, for reading only; None when there is none that can be used, and so one that has to be made.

        Raises:
            FunesError: It cannot be got at.
        """
        if not (folder / FILE).exists():
            return None
        try:
            return cls(folder, writable=False)
        except DerivedDamagedError:
            return None

    def _prepare(self, *, writable: bool) -> None:
        self._db.execute(f"pragma busy_timeout = {int(_PATIENCE * 1000)}")
        if writable:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
            self._db.execute("pragma cache_size = -32000")
        version = self._db.execute("pragma user_version").fetchone()[0]
        if version == 0:  # new, or its making was cut off: by a full disk, say
            if not writable:
                raise DerivedDamagedError(self._path, "it was never finished", _MAKE_AGAIN)
            self._db.executescript(f"begin; {_SCHEMA}; pragma user_version = {VERSION}; commit;")
        elif version != VERSION:
            raise DerivedDamagedError(self._path, "it was made by another version of funes", _MAKE_AGAIN)

    @property
    def identity(self) -> tuple[int, int] | None:
        """Which file is open, as `identity` says it; None for one that was only made by that."""
        return self._identity

    def damage(self) -> str:
        """What is wrong with it, in a few words; "" for nothing. Reads all of it."""
        blank = sqlite3.connect(":memory:")
        try:
            blank.executescript(_SCHEMA)
            wanted = {name for (name,) in blank.execute("select name from sqlite_master")}
        finally:
            blank.close()
        try:
            lacking = wanted - {name for (name,) in self._db.execute("select name from sqlite_master")}
            wrong = str(self._db.execute("pragma integrity_check(1)").fetchone()[0])
        except sqlite3.Error as error:
            if damage_of(self._path, error) is None:
                raise _trouble(self._path, error) from error
            return str(error)
        if lacking:
            return f"it lacks {', '.join(sorted(lacking))}"
        return "" if wrong == "ok" else wrong

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()
        if self._copy is not None:
            self._copy.cleanup()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens, or nothing. Raises `FunesError` when it cannot be written."""
        try:
            self._db.execute("begin immediate")
            try:
                yield
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise
            self._db.execute("commit")
        except sqlite3.Error as error:
            damage = damage_of(self._path, error)
            if damage is not None:
                raise damage from error
            if "full" in str(error):
                raise FunesError(
                    "The catalog could not be written: the disk is full. What was stored before is kept.",
                    "Free some space, then run `funes index` again.",
                ) from error
            raise FunesError(f"The catalog could not be written: {error}") from error

    # -- small facts -----------------------------------------------------------------------------------

    def get(self, name: str) -> str | None:
        """A small fact, or None."""
        row = self._db.execute("select value from meta where name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, name: str, value: str) -> None:
        """Keep a small fact."""
        self._db.execute("insert or replace into meta values (?, ?)", (name, value))

    def drop(self, name: str) -> None:
        """Keep a small fact no longer."""
        self._db.execute("delete from meta where name = ?", (name,))

    def note_hook(self, name: str, when: str, *, ok: bool) -> None:
        """Keep when a hook last did its work, or last failed. RFC 3339."""
        self.put(f"hook:{'ok' if ok else 'failed'}:{name}", when)

    def hooks(self) -> list[tuple[str, str, str]]:
        """`(name, last success, last failure)` of every hook that ran, "" for never."""
        found: dict[str, dict[str, str]] = {}
        for name, value in self._db.execute("select name, value from meta where name like 'hook:%'"):
            _, state, hook = str(name).split(":", 2)
            found.setdefault(hook, {})[state] = str(value)
        return [(hook, times.get("ok", ""), times.get("failed", "")) for hook, times in sorted(found.items())]

    # -- sources ---------------------------------------------------------------------------------------

    def sources(self) -> list[SourceState]:
        """Every source that was ever read, by path."""
        rows = self._db.execute(
            "select no, path, harness, root, kind, signature, size, cursor, tally, failure, complete, read_at"
            " from sources order by path"
        )
        return [_source_state(row) for row in rows]

    def source(self, path: str) -> SourceState | None:
        """What is known of a source, or None when it was never read."""
        row = self._db.execute(
            "select no, path, harness, root, kind, signature, size, cursor, tally, failure, complete, read_at"
            " from sources where path = ?",
            (path,),
        ).fetchone()
        return None if row is None else _source_state(row)

    def source_no(self, path: str, harness: str, root: str, kind: str) -> int:
        """The number of a source, which is made known when it is not."""
        row = self._db.execute("select no from sources where path = ?", (path,)).fetchone()
        if row is not None:
            return int(row[0])
        cursor = self._db.execute(
            "insert into sources (path, harness, root, kind, signature, size, failure, complete, read_at)"
            " values (?, ?, ?, ?, '', 0, '', 0, '')",
            (path, harness, root, kind),
        )
        return int(cursor.lastrowid or 0)

    def save_source(
        self,
        no: int,
        source: Source,
        cursor: Cursor | None,
        tally: Tally | None,
        failure: str,
        read_at: str,
    ) -> None:
        """Keep how far a source was read; with a failure, what was read before stays."""
        self._db.execute(
            "update sources set harness = ?, root = ?, kind = ?, size = ? where no = ?",
            (source.harness, safe_text(str(source.root)), source.kind, source.size, no),
        )
        if failure:
            self._db.execute(
                "update sources set signature = ?, failure = ?, complete = 0, read_at = ? where no = ?",
                (signature_of(source), failure, read_at, no),
            )
            return
        self._db.execute(
            "update sources set signature = ?, cursor = ?, tally = ?, failure = '', complete = 1, read_at = ?"
            " where no = ?",
            (signature_of(source), _cursor_json(cursor), _tally_json(tally or Tally()), read_at, no),
        )

    def save_signature(self, no: int, signature: str) -> None:
        """A source that was touched but not changed."""
        self._db.execute("update sources set signature = ? where no = ?", (signature, no))

    def read_again(self, sources: Iterable[int]) -> None:
        """Have sources read from their beginning at the next pass."""
        self._db.executemany("update sources set cursor = null, complete = 0 where no = ?", [(no,) for no in sources])

    def source_paths(self) -> dict[int, str]:
        """Paths of all sources by number."""
        return {int(no): str(path) for no, path in self._db.execute("select no, path from sources")}

    # -- sessions --------------------------------------------------------------------------------------

    def session_no(self, session_id: str, base: str | None = None) -> int:
        """The number of a session, which is made known when it is not."""
        row = self._db.execute("select no from sessions where id = ?", (session_id,)).fetchone()
        if row is not None:
            return int(row[0])
        cursor = self._db.execute("insert into sessions (id, base) values (?, ?)", (session_id, base or session_id))
        return int(cursor.lastrowid or 0)

    def session_id(self, no: int) -> str:
        """The id of a session."""
        row = self._db.execute("select id from sessions where no = ?", (no,)).fetchone()
        if row is None:
            raise MemoryDamagedError("The catalog names a session that it does not hold.")
        return str(row[0])

    def find_session(self, session_id: str) -> int | None:
        """The number of a session that stands in the memory, or None."""
        row = self._db.execute("select no from sessions where id = ?", (session_id,)).fetchone()
        return None if row is None else int(row[0])

    def session_ids(self, prefix: str) -> list[str]:
        """Ids of the sessions with something in them that start so, in order."""
        rows = self._db.execute(
            "select id from sessions s where substr(id, 1, ?) = ?"
            " and exists (select 1 from sightings where session = s.no) order by id",
            (len(prefix), prefix),
        )
        return [str(row[0]) for row in rows]

    def holds_messages(self) -> bool:
        """Whether anything is stored."""
        return bool(self._db.execute("select exists(select 1 from messages)").fetchone()[0])

    def session_count(self) -> int:
        """How many sessions have something stored or standing in them."""
        row = self._db.execute("select count(distinct session) from sightings").fetchone()
        return int(row[0])

    def coverage(self) -> dict[str, Coverage]:
        """What there is of each agent."""
        copied: Counter[str] = Counter()
        # Few messages stand in several places; only those are looked at one by one.
        copies = (
            "select o.harness, m.blocks, count(distinct g.session) - 1"
            " from (select message from sightings group by message having count(*) > 1) d"
            " join messages m on m.no = d.message join sightings g on g.message = d.message"
            " join sources o on o.no = g.source group by d.message"
        )
        for harness, blocks, count in self._db.execute(copies):
            copied[str(harness)] += _pieces(blocks) * int(count)
        # The session is that of the row with the greatest time: SQLite promises so for a lone `max`.
        sums = (
            "select o.harness, count(distinct g.session), max(case when typeof(g.ts) = 'integer' then g.ts end),"
            " g.session from sightings g join sources o on o.no = g.source group by o.harness"
        )
        return {
            str(harness): Coverage(
                int(sessions),
                copied[str(harness)],
                _moment(newest),
                self._title(int(session)),
            )
            for harness, sessions, newest, session in self._db.execute(sums).fetchall()
        }

    def _title(self, session: int) -> str:
        titles = (info.title for info in self.session_infos(self.session_id(session)))
        return next((title for title in titles if title), "")

    def info_no(self, info: SessionInfo) -> int:
        """The number under which these facts of a session are kept."""
        data = json.dumps(
            [
                info.session_id,
                info.harness,
                info.cwd,
                info.repo,
                info.branch,
                info.commit,
                info.title,
                info.parent_session_id,
                info.relation,
                info.agent_name,
                info.originator,
                info.started,
            ]
        )
        row = self._db.execute("select no from infos where data = ?", (data,)).fetchone()
        if row is not None:
            return int(row[0])
        return int(self._db.execute("insert into infos (data) values (?)", (data,)).lastrowid or 0)

    def infos(self, numbers: Iterable[int]) -> dict[int, SessionInfo]:
        """Facts of sessions by number."""
        found: dict[int, SessionInfo] = {}
        for row in self._in("select no, data from infos where no in", numbers):
            found[int(row[0])] = SessionInfo(*json.loads(row[1]))
        return found

    def infos_of_repository(self, name: str) -> set[int]:
        """Numbers of the facts of sessions that were held in a checkout of `owner/name`, compared without case."""
        wanted = name.lower()
        found = set()
        for no, data in self._db.execute("select no, data from infos"):
            repo = SessionInfo(*json.loads(data)).repo
            if repo is not None and wanted in repo.lower().split():
                found.add(int(no))
        return found

    def sessions_with(self, infos: Iterable[int]) -> set[int]:
        """The sessions in which a turn has one of these facts."""
        return {int(row[0]) for row in self._in("select distinct session from sightings where info in", infos)}

    def copied_into(self, sessions: Iterable[int]) -> dict[int, dict[str, int]]:
        """How many messages of some sessions are stored under another one, and under which: by session."""
        found: dict[int, dict[str, int]] = {}
        for row in self._in(
            "select g.session, s.id, count(distinct g.message) from sightings g join messages m on m.no = g.message"
            " join sessions s on s.no = m.session where m.session <> g.session and g.session in",
            sessions,
            " group by g.session, s.id order by s.id",
        ):
            found.setdefault(int(row[0]), {})[str(row[1])] = int(row[2])
        return found

    def session_infos(self, session_id: str) -> list[SessionInfo]:
        """What the sources of a session say of it, by path."""
        rows = self._db.execute(
            "select i.data from standing t join sessions s on s.no = t.session join infos i on i.no = t.info"
            " join sources o on o.no = t.source where s.id = ? order by o.path",
            (session_id,),
        )
        return [SessionInfo(*json.loads(row[0])) for row in rows]

    def stand(self, session: int, source: int, info: int, started: str, fork: bool) -> bool:
        """Keep what a source says of a session. True when its start or its being a fork changed."""
        row = self._db.execute(
            "select info, started, fork from standing where session = ? and source = ?", (session, source)
        ).fetchone()
        if row is not None and tuple(row) == (info, started, int(fork)):
            return False
        self._db.execute(
            "insert or replace into standing values (?, ?, ?, ?, ?)", (session, source, info, started, int(fork))
        )
        return row is None or (str(row[1]), int(row[2])) != (started, int(fork))

    def ranks(self, sessions: Iterable[int]) -> dict[int, tuple[int, str, str]]:
        """For each session `(is a fork, start, id)`: the least is the home of what several have in common."""
        found: dict[int, tuple[int, str, str]] = {}
        for row in self._in(
            "select s.no, s.id, min(t.fork), min(case t.started when '' then '~' else t.started end)"
            " from sessions s left join standing t on t.session = s.no where s.no in",
            sessions,
            " group by s.no",
        ):
            found[int(row[0])] = (int(row[2] or 0), str(row[3] or "~"), str(row[1]))
        return found

    def sources_of_base(self, base: str) -> list[tuple[str, int]]:
        """`(path, number)` of the sources in which the sessions that share a transcript id stand, by path."""
        rows = self._db.execute(
            "select distinct o.path, o.no from sessions s join sightings g on g.session = s.no"
            " join sources o on o.no = g.source where s.base = ? order by o.path",
            (base,),
        )
        return [(str(path), int(no)) for path, no in rows]

    def started_by(self, base: str) -> dict[int, str]:
        """Of the sources in which a subagent's session id stands: the session that started it, by source."""
        rows = self._db.execute(
            "select t.source, i.data from sessions s join standing t on t.session = s.no"
            " join infos i on i.no = t.info where s.base = ?",
            (base,),
        )
        infos = {int(source): SessionInfo(*json.loads(data)) for source, data in rows}
        return {
            source: info.parent_session_id
            for source, info in infos.items()
            if info.relation == "subagent" and info.parent_session_id
        }

    def is_split(self, base: str) -> bool:
        """Whether unrelated transcripts use this session id."""
        return self._db.execute("select 1 from split where base = ?", (base,)).fetchone() is not None

    def split(self, base: str) -> None:
        """Remember that unrelated transcripts use this session id."""
        self._db.execute("insert or ignore into split values (?)", (base,))

    def base(self, session: int) -> str:
        """The id that a session's transcript carries."""
        row = self._db.execute("select base from sessions where no = ?", (session,)).fetchone()
        return "" if row is None else str(row[0])

    def stands(self, session: int, source: int) -> bool:
        """Whether a source said something of a session."""
        row = self._db.execute("select 1 from standing where session = ? and source = ?", (session, source)).fetchone()
        return row is not None

    def move(self, base: str, source: int, target: int) -> set[int]:
        """Make everything that stands in a source under a transcript's session id stand under one session.

        Returns the messages that moved.
        """
        others = [
            int(row[0])
            for row in self._db.execute("select no from sessions where base = ? and no <> ?", (base, target))
        ]
        moved: set[int] = set()
        for session in others:
            rows = self._db.execute(
                "select message from sightings where session = ? and source = ?", (session, source)
            ).fetchall()
            moved.update(int(row[0]) for row in rows)
            for table in ("sightings", "standing"):
                self._db.execute(
                    f"update or replace {table} set session = ? where session = ? and source = ?",
                    (target, session, source),
                )
        return moved

    def drop_session(self, session: int) -> None:
        """Drop what sources say of a session."""
        self._db.execute("delete from standing where session = ?", (session,))

    def clear(self) -> None:
        """Drop everything but forgotten sessions."""
        for table in ("meta", "sources", "sessions", "infos", "standing", "sightings", "messages", "split"):
            self._db.execute(f"delete from {table}")

    # -- sightings -------------------------------------------------------------------------------------

    def place(self, session: int, turn: str, source: int) -> Place | None:
        """What stands at a turn of a session in a source."""
        row = self._db.execute(
            f"select {_PLACE} from sightings where session = ? and turn = ? and source = ?",
            (session, _short(turn), source),
        ).fetchone()
        return None if row is None else _place(row)

    def places_at(self, session: int, turn: str) -> list[Place]:
        """What stands at a turn of a session, in each source."""
        rows = self._db.execute(
            f"select {_PLACE} from sightings where session = ? and turn = ?", (session, _short(turn))
        )
        return [_place(row) for row in rows.fetchall()]

    def remembered(self, sessions: Iterable[int]) -> dict[int, list[int]]:
        """The messages that sessions have from a prompt history, by session; sessions without are left out."""
        found: dict[int, list[int]] = {}
        for row in self._in(f"select session, message from sightings where {_FROM_HISTORY} and session in", sessions):
            found.setdefault(int(row[0]), []).append(int(row[1]))
        return found

    def transcribed(self, sessions: Iterable[int]) -> set[int]:
        """Those of some sessions of which a transcript has something."""
        select = (
            "select no from sessions s where exists (select 1 from sightings where session = s.no"
            f" and (flags is null or not {_FROM_HISTORY})) and no in"
        )
        return {int(row[0]) for row in self._in(select, sessions)}

    def occupied(self, session: int) -> bool:
        """Whether anything stands in a session."""
        row = self._db.execute("select 1 from sightings where session = ? limit 1", (session,)).fetchone()
        return row is not None

    def gave(self, source: int) -> bool:
        """Whether anything stands in a source."""
        row = self._db.execute("select 1 from sightings where source = ? limit 1", (source,)).fetchone()
        return row is not None

    def sighted(self, messages: Iterable[int]) -> set[int]:
        """Those of some messages that stand anywhere."""
        return {int(row[0]) for row in self._in("select distinct message from sightings where message in", messages)}

    def save_places(self, places: Iterable[Place]) -> None:
        """Keep sightings, in place of those with the same session, turn and source."""
        self._db.executemany(
            f"insert into sightings ({_PLACE}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " on conflict (session, turn, source) do update set message = excluded.message, seq = excluded.seq,"
            " info = excluded.info, parent = excluded.parent, ts = excluded.ts, role = excluded.role,"
            " message_id = excluded.message_id, flags = excluded.flags, kinds = excluded.kinds",
            [_place_row(place) for place in places],
        )

    def remove_places(self, places: Iterable[Place]) -> None:
        """Drop sightings."""
        self._db.executemany(
            "delete from sightings where session = ? and turn = ? and source = ?",
            [(p.session, _short(p.turn), p.source) for p in places],
        )

    def places_of_source(self, source: int) -> Iterator[Place]:
        """All sightings in a source."""
        for row in self._db.execute(f"select {_PLACE} from sightings where source = ?", (source,)).fetchall():
            yield _place(row)

    def places_of_session(self, session: int) -> list[Place]:
        """All sightings in a session, in order of position."""
        rows = self._db.execute(f"select {_PLACE} from sightings where session = ?", (session,))
        places = sorted(map(_place, rows), key=lambda place: place.source)
        return in_order(places, lambda place: (place.seq, place.turn), lambda place: place.facts.ts)

    def places_of_messages(self, messages: Iterable[int]) -> dict[int, list[Place]]:
        """All sightings of some messages."""
        found: dict[int, list[Place]] = {}
        for row in self._in(f"select {_PLACE} from sightings where message in", messages):
            found.setdefault(int(row[3]), []).append(_place(row))
        return found

    def shared_messages(self, session: int) -> list[int]:
        """Messages of a session that stand in another place as well."""
        rows = self._db.execute(
            "select distinct a.message from sightings a where a.session = ? and exists"
            " (select 1 from sightings b where b.message = a.message and b.session <> a.session)",
            (session,),
        )
        return [int(row[0]) for row in rows]

    def also_in(self, session_id: str, turn: str, seq: int) -> list[tuple[str, int]]:
        """`(session id, position)` of the other places of the message stored at this turn, in order."""
        rows = self._db.execute(
            "select distinct s2.id, g.seq from sessions s join messages m on m.session = s.no"
            " join sightings g on g.message = m.no join sessions s2 on s2.no = g.session"
            " where s.id = ? and m.seq = ? and m.turn = ? and s2.no <> s.no order by s2.id, g.seq",
            (session_id, seq, _short(turn)),
        )
        found: dict[str, int] = {}
        for name, at in rows:
            found.setdefault(str(name), int(at))
        return list(found.items())

    # -- messages --------------------------------------------------------------------------------------

    def message(self, no: int) -> Message | None:
        """What is stored of a message."""
        row = self._db.execute("select * from messages where no = ?", (no,)).fetchone()
        return None if row is None else _message(row)

    def messages(self, numbers: Iterable[int]) -> dict[int, Message]:
        """What is stored of some messages."""
        return {int(row[0]): _message(row) for row in self._in("select * from messages where no in", numbers)}

    def turns_of_session(self, session: int) -> list[tuple[int, str, str]]:
        """What is stored under a session, in order of position: `(message, turn, blocks)`, see `Message`."""
        rows = self._db.execute("select no, turn, blocks, seq, ts from messages where session = ?", (session,))
        turns = [(no, _long(turn), blocks, seq, ts) for no, turn, blocks, seq, ts in rows]
        ordered = in_order(turns, lambda row: (row[3], row[1]), lambda row: _moment(row[4]))
        return [(no, turn, _blocks_of(blocks)) for no, turn, blocks, _, _ in ordered]

    def stored_in(self, sessions: Iterable[int]) -> dict[int, list[StoredMessage]]:
        """What is stored under some sessions, by session, in order of position."""
        found: dict[int, StoredMessage] = {}
        # Of several sources that tell the same, the first by path is where the rows say they come from.
        for row in self._in(
            "select m.no, m.session, m.turn, m.seq, m.blocks, m.content, m.shape, m.ts,"
            " g.role, g.flags, g.kinds, g.info from messages m"
            " join sightings g on g.session = m.session and g.turn = m.turn and g.message = m.no"
            " join sources o on o.no = g.source where m.session in",
            sessions,
            " order by o.path",
        ):
            role, flags, kinds, info = row[8:]
            if row[0] not in found:
                found[row[0]] = StoredMessage(_message(row[:8]), _role(role), flags or "", _kinds(kinds), info)
        groups: dict[int, list[StoredMessage]] = {}
        for item in found.values():
            groups.setdefault(item.message.session, []).append(item)
        return {
            session: in_order(group, lambda item: (item.message.seq, item.message.turn), lambda item: item.message.ts)
            for session, group in groups.items()
        }

    def all_messages(self) -> Iterator[tuple[str, Message]]:
        """Every stored message with the id of its session."""
        rows = self._db.execute("select s.id, m.* from messages m join sessions s on s.no = m.session")
        for row in rows:
            yield str(row[0]), _message(row[1:])

    def session_marks(self) -> dict[str, int]:
        """A number for each session with something stored in it, which changes with whatever is stored there."""
        # The sum of 32-bit parts stays far below what SQLite's integers hold.
        sums = (
            "select s.id, sum(m.content & 4294967295) + sum(m.no & 4294967295) from messages m"
            " join sessions s on s.no = m.session group by m.session"
        )
        return {str(session): int(mark) for session, mark in self._db.execute(sums)}

    def save_messages(self, messages: Iterable[Message]) -> None:
        """Keep what is stored of messages."""
        self._db.executemany(
            "insert or replace into messages values (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (m.no, m.session, _short(m.turn), m.seq, _blocks(m.blocks), m.content, m.shape, _instant(m.ts))
                for m in messages
            ],
        )

    def remove_messages(self, numbers: Iterable[int]) -> None:
        """Drop what is known of messages."""
        self._db.executemany("delete from messages where no = ?", [(no,) for no in numbers])

    # -- forgotten sessions ----------------------------------------------------------------------------

    def forgotten(self) -> set[str]:
        """Ids of the sessions that the person had removed."""
        return {str(row[0]) for row in self._db.execute("select session from forgotten")}

    def forget(self, sessions: Iterable[str], at: str) -> None:
        """Remember that sessions are never to be stored again."""
        self._db.executemany("insert or ignore into forgotten values (?, ?)", [(name, at) for name in sessions])

    def forgotten_at(self) -> dict[str, str]:
        """The same with the time of each, RFC 3339 UTC."""
        return {str(name): str(at) for name, at in self._db.execute("select session, at from forgotten")}

    def remember(self, sessions: Iterable[str]) -> None:
        """Take back `forget`."""
        self._db.executemany("delete from forgotten where session = ?", [(name,) for name in sessions])

    def sources_of_session(self, session: int) -> dict[int, str]:
        """Numbers and paths of the sources in which a session stands."""
        rows = self._db.execute(
            "select no, path from sources where no in (select source from sightings where session = ?1"
            " union select source from standing where session = ?1)",
            (session,),
        )
        return {int(no): str(path) for no, path in rows}

    def drop_cursors(self, sources: Iterable[int]) -> None:
        """Have sources read from their beginning once they change. What a parser remembered of them goes."""
        self._db.executemany("update sources set cursor = null where no = ?", [(no,) for no in sources])

    def standing_infos(self) -> list[tuple[str, SessionInfo]]:
        """What each source says of each session in it, by session id."""
        rows = self._db.execute(
            "select s.id, i.data from standing t join sessions s on s.no = t.session join infos i on i.no = t.info"
            " order by s.id"
        )
        return [(str(name), SessionInfo(*json.loads(data))) for name, data in rows]

    def newest_turns(self) -> dict[str, int]:
        """When the last dated turn of each session was, in Unix milliseconds; undated sessions are left out."""
        newest: dict[str, int] = {}
        rows = self._db.execute(
            "select s.id, max(g.ts) from sightings g join sessions s on s.no = g.session"
            " where typeof(g.ts) = 'integer' group by s.id"
        )
        newest.update((str(name), int(ts)) for name, ts in rows)
        for name, ts in self._db.execute(
            "select s.id, g.ts from sightings g join sessions s on s.no = g.session where typeof(g.ts) = 'text'"
        ):
            moment = millis(str(ts))
            if moment != UNDATED:
                newest[str(name)] = max(moment, newest.get(str(name), moment))
        return newest

    def shared_with(self, sessions: Iterable[int]) -> dict[str, int]:
        """The sessions outside of some in which messages of these stand as well, and how many."""
        inside = set(sessions)
        found: dict[int, set[int]] = {}
        for session in inside:
            rows = self._db.execute(
                "select distinct b.session, b.message from sightings a join sightings b on b.message = a.message"
                " and b.session <> a.session where a.session = ?",
                (session,),
            )
            for other, message in rows:
                if other not in inside:
                    found.setdefault(int(other), set()).add(int(message))
        return {self.session_id(session): len(messages) for session, messages in sorted(found.items())}

    def pieces_in(self, sessions: Iterable[int]) -> int:
        """How many rows are stored of the messages that stand in nothing but these sessions."""
        inside = set(sessions)
        total = 0
        for session in inside:
            rows = self._db.execute("select blocks, no from messages where session = ?", (session,)).fetchall()
            shared = set(self.shared_messages(session))
            outside = {
                message
                for message, places in self.places_of_messages(n for _, n in rows if n in shared).items()
                if any(place.session not in inside for place in places)
            }
            total += sum(_pieces(blocks) for blocks, no in rows if no not in outside)
        return total

    def replace_infos(self, change: Callable[[SessionInfo], SessionInfo]) -> set[int]:
        """Change what is known of sessions. Returns the messages whose rows say it."""
        affected: set[int] = set()
        for no, data in self._db.execute("select no, data from infos").fetchall():
            info = SessionInfo(*json.loads(data))
            other = change(info)
            if other == info:
                continue
            fresh = self.info_no(other)
            affected.update(
                int(row[0])
                for row in self._db.execute("select distinct message from sightings where info = ?", (no,)).fetchall()
            )
            for table in ("sightings", "standing"):
                self._db.execute(f"update {table} set info = ? where info = ?", (fresh, no))
            self._db.execute("delete from infos where no = ?", (no,))
        return affected

    def replace_memories(self, change: Callable[[Any], Any]) -> int:
        """Change what parsers remember of sources, and why sources failed. Returns how many changed."""
        changed = 0
        rows = self._db.execute("select no, cursor, failure from sources").fetchall()
        for no, cursor, failure in rows:
            state = None if cursor is None else json.loads(cursor)
            other, reason = change(state), change(failure)
            if other != state or reason != failure:
                self._db.execute(
                    "update sources set cursor = ?, failure = ? where no = ?",
                    (None if other is None else json.dumps(other), reason, no),
                )
                changed += 1
        return changed

    def look_through(self, info: Callable[[SessionInfo], object], memory: Callable[[Any], object]) -> None:
        """Show everything that `replace_infos` and `replace_memories` would be asked to change."""
        for (data,) in self._db.execute("select data from infos").fetchall():
            info(SessionInfo(*json.loads(data)))
        for cursor, failure in self._db.execute("select cursor, failure from sources").fetchall():
            memory(None if cursor is None else json.loads(cursor))
            memory(failure)

    def prune(self) -> None:
        """Drop what is said of sessions in which nothing stands."""
        self._db.execute(
            "delete from infos where no not in (select info from sightings) and no not in (select info from standing)"
        )
        self._db.execute(
            "delete from sessions where no not in (select session from sightings)"
            " and no not in (select session from standing) and no not in (select session from messages)"
        )

    def vacuum(self) -> None:
        """Write the whole file again, so that nothing that was dropped is left in it or in its log.

        Raises:
            FunesError: It could not be written.
        """
        try:
            self._db.execute("vacuum")
            busy = self._db.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
        except sqlite3.Error as error:
            raise FunesError(f"The catalog could not be written: {error}") from error
        if busy:
            raise FunesError("The catalog is being read by another process.", "Run the command again in a moment.")

    def _in(self, select: str, values: Iterable[int], tail: str = "") -> Iterator[Sequence[Any]]:
        wanted = list(values)
        for start in range(0, len(wanted), _AT_ONCE):
            part = wanted[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            yield from self._db.execute(f"{select} ({marks}){tail}", part).fetchall()


def _source_state(row: Sequence[Any]) -> SourceState:
    cursor, tally = row[7], row[8]
    return SourceState(
        no=int(row[0]),
        path=str(row[1]),
        harness=str(row[2]),
        root=str(row[3]),
        kind=str(row[4]),
        signature=str(row[5]),
        size=int(row[6]),
        cursor=None if cursor is None else Cursor(**json.loads(cursor)),
        tally=_tally(tally),
        failure=str(row[9]),
        complete=bool(row[10]),
        read_at=str(row[11]),
    )


def _cursor_json(cursor: Cursor | None) -> str | None:
    if cursor is None:
        return None
    return json.dumps({"offset": cursor.offset, "digest": cursor.digest, "state": cursor.state})


def _tally_json(tally: Tally) -> str:
    skipped = [[kind, reason, count] for (kind, reason), count in sorted(tally.skipped.items()) if count]
    parts = [[kind, reason, count] for (kind, reason), count in sorted(tally.parts.items()) if count]
    kept, unknown = ({kind: n for kind, n in counts.items() if n} for counts in (tally.kept, tally.unknown))
    return json.dumps([kept, skipped, unknown, tally.lines, parts])


def _tally(text: str | None) -> Tally:
    if text is None:
        return Tally()
    kept, skipped, unknown, lines, parts = json.loads(text)
    return Tally(
        kept=Counter(kept),
        skipped=Counter({(kind, reason): count for kind, reason, count in skipped}),
        unknown=Counter(unknown),
        lines=int(lines),
        parts=Counter({(kind, reason): count for kind, reason, count in parts}),
    )
