"""Puts transcripts into a memory: each message once, in its home session, whatever is read in which order.

The rules, all of which depend only on what stands in the transcripts and not on the order of reading:

* A message is recognised by its identity (see `chunk.content_identity`). It is stored once, under its *home*:
  of the places where it stands, the one whose session is no fork, then began first, then has the least id,
  then whose source has the least path.
* What a source says replaces what that source said before. A source that is gone says what it last said.
* A store of many sessions says it of each session that is in it: one that was pruned from it is gone, too.
* Sources that carry the same session id are one session, unless they have different messages at one turn, or
  are subagents of different sessions. Then they are unrelated: the one with the least path keeps the id, the
  others' sessions are called `<id>~<six hex digits of their path's SHA-1>`.
* Prompts that are known from a prompt history only are not stored of a session that has a transcript.

A commit writes the table, then the word index, then the vectors, then the catalog. Whatever was cut off in
between is brought in line when the memory is next opened for writing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from hashlib import blake2b, sha1
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from funes_mcp.errors import FunesError, MemoryDamagedError, ModelMismatchError
from funes_mcp.memory import catalog as book
from funes_mcp.memory import dense, derived, lance, lexical, tombstones
from funes_mcp.memory.catalog import Catalog, Message, Place, SourceState, TurnFacts, safe_text, signature_of
from funes_mcp.memory.chunk import chunk_id, munge
from funes_mcp.memory.lexical import Entry
from funes_mcp.memory.model import Chunk, Embedding
from funes_mcp.memory.table import ChunkTable, table_path, table_version
from funes_mcp.memory.times import millis
from funes_mcp.memory.tombstones import Tombstone
from funes_mcp.memory.upgrade import SideVectors
from funes_mcp.traces.model import Cursor, SessionInfo, Source, Tally, Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Embed = Callable[[list[str]], NDArray[np.float32]]

#: The fact in the catalog that says which table version everything else belongs to.
STAMP: Final = "table_version"
ROWS: Final = "rows"
#: The facts that say which model made the vectors, and at which revision.
MODEL: Final = "model"
REVISION: Final = "model_revision"
#: The fact that says that what was removed is still in files of the memory.
ERASE: Final = "to_erase"
#: The flag of turns from a prompt history.
HISTORY: Final = "history"

#: A commit with at least so many new rows is given more threads and memory.
_BULK: Final = 2_000

#: Messages that are read at once, to be looked at.
_MESSAGES_AT_ONCE: Final = 1_000


@dataclass(slots=True)
class Committed:
    """What a commit did, in chunks.

    Attributes:
        stored: New rows.
        known: Chunks that were put and stood in the memory already, under the same session.
        copied: Chunks that were put and stand in another session.
        changed: Rows that were written again (another text, another home, another position).
        removed: Rows whose message stands nowhere any more.
        embedded: Rows that got a vector.
    """

    stored: int = 0
    known: int = 0
    copied: int = 0
    changed: int = 0
    removed: int = 0
    embedded: int = 0

    def add(self, other: Committed) -> None:
        """Add what another commit did."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it is stored, with its rows in order."""

    message: int
    rows: list[Chunk]


@dataclass(frozen=True, slots=True)
class _Put:
    """A turn as it was put, until the next commit."""

    message: int
    seq: int
    facts: TurnFacts
    info: SessionInfo


@dataclass(slots=True)
class _Content:
    """The rows of a message as one of its places gave them, and a digest of their texts.

    Attributes:
        names: See `Entry.names`, for each row; empty when nobody found out yet.
        vectors: float32 (rows, width); None when nobody made them yet.
    """

    chunks: list[Chunk]
    digest: int
    names: Sequence[tuple[str, str]] = ()
    vectors: NDArray[np.float32] | None = None


@dataclass(slots=True)
class _Batch:
    """Everything that was put since the last commit, by path of the source."""

    sources: dict[str, Source] = field(default_factory=dict)
    puts: dict[str, dict[tuple[str, str], _Put]] = field(default_factory=dict)
    infos: dict[tuple[str, str], SessionInfo] = field(default_factory=dict)
    contents: dict[int, _Content] = field(default_factory=dict)
    seen: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    finished: dict[str, tuple[Cursor, Tally]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    chunks: int = 0
    known: int = 0
    copied: int = 0

    @property
    def empty(self) -> bool:
        return not (self.puts or self.finished or self.failed or self.infos)


@dataclass(slots=True)
class _Plan:
    """What a commit has to change.

    Attributes:
        rows: Rows to write, new or in place of others; `owner` is the message of each.
        names: See `Entry.names`, of those rows for which they are known.
        keys: Of the rows of each message that came with rows, in order.
        old: For each message that changes, the rows that are stored of it: `(block, piece)` to id.
        messages: What is stored afterwards.
        gone: Messages of which nothing is left.
        before, after: For each session whose rows change, the keys of its rows in order.
        again: Sources to be read from their beginning, because the text of a message is not at hand.
    """

    rows: dict[str, Chunk] = field(default_factory=dict)
    owner: dict[str, int] = field(default_factory=dict)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    keys: dict[int, list[int]] = field(default_factory=dict)
    old: dict[int, dict[tuple[int, int], str]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    before: dict[int, list[int]] = field(default_factory=dict)
    after: dict[int, list[int]] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)

    @property
    def removed(self) -> set[str]:
        return {name for ids in self.old.values() for name in ids.values()} - self.rows.keys()


class MemoryWriter:
    """Writes to the memory in a folder. The caller holds the writer lock (see `lock.run_locked`).

    Use as a context manager. Between `begin` and `finish` or `fail` everything that is put belongs to that
    source. Nothing is durable before `commit`; a commit may fall in the middle of a source, and may go on in the
    background while more is put. Belongs to one thread.
    """

    def __init__(self, folder: Path, embedding: Embedding) -> None:
        self._folder = folder
        self._embedding = embedding
        self._stack = ExitStack()
        self._stack.enter_context(derived.private_files())
        try:
            self._catalog = _open_catalog(folder)
            self._stack.callback(self._catalog.close)
            self._lookup = Catalog(folder, writable=False)  # sees what is committed while a commit goes on
            self._stack.callback(self._lookup.close)
            self._storing: Future[Committed] | None = None
            self._flying: dict[int, _Content] = {}
            self._looked_up: dict[int, Message | None] = {}
            self._unreported = Committed()
            self._table: ChunkTable | None = None
            self._words: lexical.LexicalReader | None = None
            self._lexical: lexical.LexicalWriter | None = None
            self._batch = _Batch()
            self._current: tuple[Source, str] | None = None
            self._info: dict[str, SessionInfo] = {}
            self._visits: dict[tuple[str, str | None], SessionInfo] = {}
            self._broken = False
            self._check_model()
            self._repair_if_needed()
            self._states = {state.path: state for state in self._catalog.sources()}
            self._stones = self._tombstones()
        except BaseException:
            self._stack.close()
            raise

    @classmethod
    def open(cls, folder: Path, embedding: Embedding) -> MemoryWriter:
        """Open the memory in `folder`, repairing what an interrupted writer left; nothing there is fine.

        Raises:
            ModelMismatchError: The memory is stamped with another model.
            MemoryDamagedError: Its table cannot be read.
        """
        return cls(folder, embedding)

    def __enter__(self) -> MemoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go. What was not committed is dropped, and read again by the next pass."""
        try:
            if self._storing is not None:
                wait([self._storing])
            if self._lexical is not None:
                self._lexical.close()
        finally:
            self._stack.close()

    def prepare(self) -> None:
        """Load the libraries that a commit needs: more than a second, worth spending while there is nothing to do."""
        import tantivy  # noqa: F401

        lance.load()

    # -- sources ---------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """For `status` and `doctor`. Waits for a commit that goes on in the background."""
        self._unreported.add(self._settled())
        return self._catalog

    def source(self, source: Source) -> SourceState | None:
        """What is known of a source, or None when it was never read."""
        return self._states.get(_path(source))

    def unchanged(self, source: Source) -> bool:
        """Whether a source was read to its end and has not changed since, as far as a `stat` can tell."""
        state = self._states.get(_path(source))
        return state is not None and state.complete and state.signature == signature_of(source)

    def cursor_of(self, source: Source) -> Cursor | None:
        """Where to go on reading a source; None for the beginning."""
        state = self._states.get(_path(source))
        return None if state is None else state.cursor

    def begin(self, source: Source, *, whole: bool) -> None:
        """Start to put what a source gives.

        Args:
            whole: The reading starts at the beginning, so turns that it does not give are gone from the source.
        """
        path = _path(source)
        self._current = source, path
        self._info = {}
        self._visits = {}
        self._batch.sources[path] = source
        self._batch.told[path] = set()
        if whole:
            self._batch.seen[path] = set()
        else:
            self._batch.seen.pop(path, None)

    def put_session(self, info: SessionInfo) -> None:
        """Say what is known of a session; it holds for the turns that follow."""
        path = self._at()
        info = self._still_known(_cleaned(info))
        self._info[info.session_id] = info
        self._batch.infos[path, info.session_id] = info
        self._batch.told[path].add(info.session_id)

    def _still_known(self, info: SessionInfo) -> SessionInfo:
        """With the repository that an earlier reading found in a folder which is gone by now."""
        if info.repo is not None or info.cwd is None:
            return info
        for earlier in self._lookup.session_infos(info.session_id):
            if earlier.repo is not None and earlier.cwd == info.cwd:
                return replace(info, repo=earlier.repo)
        return info

    def _elsewhere(self, info: SessionInfo, turn: Turn) -> SessionInfo:
        """The session's facts with the repository of a turn that was said in another one's checkout."""
        repo = turn.repo
        if not repo:  # nobody can tell now; it may have been known before that checkout was gone
            session = self._lookup.find_session(turn.session_id)
            places = [] if session is None else self._lookup.places_at(session, turn.turn_uuid)
            earlier = self._lookup.infos(place.info for place in places).values()
            repo = next((known.repo for known in earlier if known.repo and known.repo != info.repo), None)
        where = (turn.session_id, repo)
        found = self._visits.get(where)
        if found is None or replace(found, repo=info.repo) != info:
            found = self._visits[where] = replace(info, repo=repo)
        return found

    def expect(self, turns: Iterable[Sequence[Chunk]]) -> None:
        """Look up at once what is stored of turns that are put next, before any commit, by their chunks."""
        wanted = {_signed(chunks[0].identity) for chunks in turns if chunks}
        self._looked_up = {**dict.fromkeys(wanted), **self._lookup.messages(wanted)}

    def put_turn(
        self,
        turn: Turn,
        chunks: Sequence[Chunk],
        names: Sequence[tuple[str, str]] = (),
        vectors: NDArray[np.float32] | None = None,
    ) -> int:
        """Put a turn, with its chunks from `chunk.chunks_of`. Returns how many of them wait to be stored.

        0 means that the memory has them, or that there is nothing in the turn to store, or that its session
        was forgotten.

        Args:
            names: For each chunk what `terms.Names.joined` gives, where that was found out already.
            vectors: float32 (chunks, width), where they were made already.
        """
        path = self._at()
        if not chunks:
            return 0
        if self._is_forgotten(turn.session_id, path):
            self._batch.forgotten.add(path)
            return 0
        info = self._info.get(turn.session_id) or SessionInfo(turn.session_id, chunks[0].harness)
        if turn.repo is not None:
            info = self._elsewhere(info, turn)
        message = _signed(chunks[0].identity)
        batch = self._batch
        where = (turn.session_id, turn.turn_uuid)
        facts = TurnFacts(turn.parent_uuid, turn.ts or "", turn.role, turn.message_id, chunks[0].flags, _kinds(chunks))
        batch.puts.setdefault(path, {})[where] = _Put(message, turn.seq, facts, info)
        if path in batch.seen:
            batch.seen[path].add(where)
        content = _content(chunks)
        waiting = batch.contents.get(message) or self._flying.get(message)
        if waiting is not None:
            if waiting.digest == content or _has_less(chunks, {chunk.block_idx for chunk in waiting.chunks}):
                self._count(chunks, waiting.chunks[0].session_id == turn.session_id)
                return 0
            batch.chunks -= len(waiting.chunks) if message in batch.contents else 0
        else:
            stored = self._looked_up[message] if message in self._looked_up else self._lookup.message(message)
            if stored is not None and (stored.content == content or _has_less(chunks, stored.block_numbers())):
                self._count(chunks, self._lookup.session_id(stored.session) == turn.session_id)
                return 0
        batch.contents[message] = _Content(list(chunks), content, names, vectors)
        batch.chunks += len(chunks)
        return len(chunks)

    def put_vectors_of(self, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        """Put the vectors, float32 (chunks, width), of a turn that was put without and waits."""
        content = self._batch.contents.get(_signed(chunks[0].identity))
        if content is not None and content.chunks[0] is chunks[0]:  # else it was put once more, with other words
            content.vectors = vectors

    def finish(self, source: Source, cursor: Cursor, tally: Tally) -> None:
        """The source was read to its end."""
        path = _path(source)
        self._batch.sources[path] = source
        self._batch.finished[path] = (cursor, tally)
        self._batch.failed.pop(path, None)
        self._current = None

    def fail(self, source: Source, reason: str) -> None:
        """The source could not be read. What it gave before stays."""
        path = _path(source)
        self._batch.sources[path] = source
        self._batch.failed[path] = reason
        self._batch.finished.pop(path, None)
        self._batch.seen.pop(path, None)
        self._current = None

    @property
    def waiting(self) -> int:
        """How many chunks wait for a commit."""
        return self._batch.chunks

    # -- commit ----------------------------------------------------------------------------------------

    def commit(self, embed: Embed | None = None, *, background: bool = False) -> Committed:
        """Make everything that was put durable and visible.

        Args:
            embed: Gives unit vectors, float32 (n, width), for texts. Called at most once, for rows that are
                new and came without. None stores those without vectors; `backfill` adds them.
            background: Go on in another thread (`embed` too is called there), after the last such commit has
                ended. The next call of `commit`, `backfill`, `forget` or `maintain` waits for it.

        Returns:
            What was done since the last answer; the sum over all calls is the whole.

        Raises:
            FunesError: It could not be written (a full disk); what was stored before is kept. The writer is
                of no more use then: open another.
        """
        done = self._settled()
        done.add(self._unreported)
        self._unreported = Committed()
        batch = self._batch
        if batch.empty:
            return done
        self._batch = _Batch()
        if self._current is not None:
            current, path = self._current
            self._batch.sources[path] = current
            self._batch.told[path] = batch.told[path]
            if path in batch.seen:
                self._batch.seen[path] = batch.seen[path]
        self._broken = True
        if background:
            self._flying = batch.contents
            executor = ThreadPoolExecutor(1, "funes-commit")
            self._storing = executor.submit(self._store, batch, embed)
            executor.shutdown(wait=False)
        else:
            done.add(self._store(batch, embed))
            self._broken = False
        return done

    def _settled(self) -> Committed:
        """Wait for the commit in the background. Raises what it raised."""
        done = Committed()
        self._looked_up = {}
        if self._storing is not None:
            storing, self._storing = self._storing, None
            done = storing.result()
            self._flying = {}
            self._broken = False
        self._usable()
        return done

    def _store(self, batch: _Batch, embed: Embed | None) -> Committed:
        done = Committed(known=batch.known, copied=batch.copied)
        vectors = self._embedded(batch, embed)
        with self._catalog.transaction():
            affected, fresh = self._apply(batch)
            plan = self._planned(affected, batch.contents, fresh)
            self._write(plan, vectors, done)
            self._save_sources(batch)
            self._catalog.read_again(plan.again)
        for path in (*batch.finished, *batch.failed):
            state = self._catalog.source(path)
            if state is not None:
                self._states[path] = state
        return done

    def backfill(self, embed: Embed, limit: int) -> int:
        """Give vectors to the newest rows that lack one. Returns how many; 0 when none is left."""
        self._unreported.add(self._settled())
        if table_version(table_path(self._folder)) is None:
            return 0
        table = self._opened_table()
        chunks = table.without_vector(limit)
        return self.put_vectors(chunks, embed([chunk.text for chunk in chunks])) if chunks else 0

    def put_vectors(self, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> int:
        """Give rows their vectors, float32 (n, width), made without the lock. Returns how many rows took theirs.

        A row that is gone or says something else by now is left alone.
        """
        self._unreported.add(self._settled())
        if not chunks or table_version(table_path(self._folder)) is None:
            return 0
        table = self._opened_table()
        stored = {row.id: row for part in table.stream([chunk.id for chunk in chunks]) for row in part}
        same = [i for i, c in enumerate(chunks) if c.id in stored and stored[c.id].text == c.text]
        if not same:
            return 0
        rows = [stored[chunks[place].id] for place in same]
        self._broken = True
        with self._catalog.transaction():
            table.upsert(rows, list(vectors[same]))
            writer = dense.DenseWriter(self._folder / derived.DENSE, self._embedding)
            writer.add(rows, vectors[same])
            writer.commit()
            self._catalog.put(STAMP, str(table.version))
        self._broken = False
        return len(rows)

    def restamp(
        self, embedding: Embedding, revision: str, vector_of: Callable[[str, str], NDArray[np.float32] | None]
    ) -> None:
        """Go over to another model: all vectors and the stamp change in one version of the table.

        Rows without a vector of the new model keep none, and `backfill` gives them one. Whoever reads meanwhile sees
        the old vectors until all new ones are there.

        Args:
            revision: Of the model; "" when that says nothing.
            vector_of: Gives a row's vector by its id and text, or None.

        Raises:
            FunesError: It could not be written (a full disk); the memory is as it was.
        """
        self._unreported.add(self._settled())
        if table_version(table_path(self._folder)) is None:
            return
        table = self._opened_table()
        self._broken = True
        with self._catalog.transaction():
            table = table.restamp(embedding, vector_of)
            derived.catch_up_vectors(table, self._folder / derived.DENSE, renewed=True)
            with suppress(FunesError):  # the old vectors' files; `maintain` tries again
                table.drop_versions()
            self._catalog.put(STAMP, str(table.version))
            self._catalog.put(MODEL, json.dumps([embedding.model, embedding.width]))
            self._catalog.put(REVISION, revision)
        self._table, self._embedding = table, embedding
        self._broken = False

    def forget(self, session_ids: Iterable[str], why: str = "") -> int:
        """Remove sessions for good: they are not stored again when their transcripts are. Returns rows removed.

        A message that also stands in another session stays, there. Files of the memory hold what was removed until
        `erase` is called; `maintain` does so, too.

        Args:
            why: Kept with the tombstones; see `Tombstone.why`.
        """
        self._unreported.add(self._settled())
        if not self._batch.empty:
            raise FunesError("Commit before forgetting.")
        now = _now()
        done = Committed()
        catalog = self._catalog
        numbers: dict[int, dict[int, str]] = {}
        for name in session_ids:
            session = catalog.find_session(name)
            sources = {} if session is None else catalog.sources_of_session(session)
            if session is not None:
                numbers[session] = sources
            paths = tuple(sorted(sources.values()))
            for stone in self._names_of(name, session, paths):
                self._stones[stone] = Tombstone(stone, now, why, paths)
        tombstones.save(self._folder, self._stones)
        self._broken = True
        with catalog.transaction():
            catalog.put(ERASE, "yes")
            catalog.forget(self._stones, now)
            affected: set[int] = set()
            for session, sources in numbers.items():
                places = catalog.places_of_session(session)
                affected.update(place.message for place in places)
                catalog.remove_places(places)
                catalog.drop_session(session)
                catalog.drop_cursors(sources)
            plan = self._planned(affected, {}, {})
            self._write(plan, {}, done)
            catalog.read_again(plan.again)
            catalog.prune()
        self._broken = False
        return done.removed

    def _names_of(self, name: str, session: int | None, paths: Sequence[str]) -> list[str]:
        """How a session is called on its tombstones: where others share its id, by its transcripts."""
        base = name if session is None else self._catalog.base(session)
        if session is not None and self._catalog.is_split(base):
            return [alias(base, path) for path in paths] or [name]
        return [name]

    def remember(self, session_ids: Iterable[str]) -> list[str]:
        """Take tombstones away and have the transcripts read again. Returns the paths of those, where known."""
        self._unreported.add(self._settled())
        stones = [self._stones.pop(name) for name in session_ids if name in self._stones]
        known = {path: no for no, path in self._catalog.source_paths().items()}
        paths = {path for stone in stones for path in stone.sources}
        # Of a tombstone whose file was lost nobody knows where its session stood.
        again = (
            known.values() if not all(stone.sources for stone in stones) else [known[p] for p in paths if p in known]
        )
        with self._catalog.transaction():
            self._catalog.remember(stone.session for stone in stones)
            self._catalog.read_again(again)
        tombstones.save(self._folder, self._stones)
        return sorted(paths)

    @property
    def stones(self) -> dict[str, Tombstone]:
        """The tombstones, by session."""
        return dict(self._stones)

    def stored(self) -> Iterator[list[Stored]]:
        """Every stored message with all of its rows, some thousands at a time, as the table has them."""
        self._unreported.add(self._settled())
        if table_version(table_path(self._folder)) is None:
            return
        table = self._opened_table()
        waiting: dict[int, list[Chunk]] = {}
        for part in table.stream():
            for row in part:
                waiting.setdefault(_message_of(row), []).append(row)
            known = self._catalog.messages({_message_of(row) for row in part})
            whole = [no for no, message in known.items() if len(waiting[no]) >= sum(1 for _ in message.pieces())]
            if whole:
                yield [Stored(no, _in_order(waiting.pop(no))) for no in whole]
        # Rows that are written again come to lie elsewhere: those have found each other by now.
        if waiting:
            yield [Stored(no, _in_order(rows)) for no, rows in waiting.items() if no in self._catalog.messages([no])]

    def stored_of(self, messages: Iterable[int]) -> Iterator[list[Stored]]:
        """Those of some messages that are stored, some hundreds at a time."""
        self._unreported.add(self._settled())
        wanted = sorted(messages)
        for start in range(0, len(wanted), _MESSAGES_AT_ONCE):
            ids = {
                no: list(self._ids(message).values())
                for no, message in self._catalog.messages(wanted[start : start + _MESSAGES_AT_ONCE]).items()
            }
            names = [name for group in ids.values() for name in group]
            rows = {row.id: row for part in self._opened_table().stream(names) for row in part} if names else {}
            yield [Stored(no, [rows[name] for name in group if name in rows]) for no, group in ids.items()]

    @property
    def rows(self) -> int:
        """How many rows are stored."""
        self._unreported.add(self._settled())
        return 0 if table_version(table_path(self._folder)) is None else self._opened_table().rows

    def rewrite(self, contents: Mapping[int, Sequence[Chunk]], embed: Embed | None) -> Committed:
        """Give stored messages other rows. What they said before is in files of the memory until `erase`.

        Args:
            contents: All rows of each message; none of them empty.
            embed: See `commit`.
        """
        done = self._settled()
        if not self._batch.empty:
            raise FunesError("Commit before rewriting.")
        batch = _Batch(contents={no: _Content(list(rows), _content(rows)) for no, rows in contents.items()})
        self._broken = True
        vectors = self._embedded(batch, embed)
        with self._catalog.transaction():
            self._catalog.put(ERASE, "yes")
            self._write(self._planned(set(contents), batch.contents, {}), vectors, done)
        SideVectors(self._folder).discard({row.key for rows in contents.values() for row in rows})
        self._broken = False
        return done

    def rewrite_facts(self, info: Callable[[SessionInfo], SessionInfo], memory: Callable[[Any], Any]) -> Committed:
        """Change what is known of sessions (`info`), and what parsers remember of sources (`memory`, JSON)."""
        done = self._settled()
        self._broken = True
        with self._catalog.transaction():
            affected = self._catalog.replace_infos(info)
            if self._catalog.replace_memories(memory) or affected:
                self._catalog.put(ERASE, "yes")
            self._write(self._planned(affected, {}, {}), {}, done)
        self._broken = False
        return done

    def erase(self, told: Callable[[int, int], None] | None = None) -> bool:
        """Make sure that nothing which was removed is left in a file of the memory. False when nothing was to be done.

        Everything is written again: the table, the word index with its dictionary, vectors, catalog.

        Args:
            told: Called with rows done and rows to do.

        Raises:
            FunesError: It could not be written; it will be tried again by `maintain`.
        """
        self._unreported.add(self._settled())
        if self._catalog.get(ERASE) is None:
            return False
        if self._lexical is not None:
            self._lexical.close()
        self._lexical = self._words = None
        if table_version(table_path(self._folder)) is not None:
            table = self._opened_table()
            with self._catalog.transaction():
                table.rewrite()
                self._catalog.put(STAMP, str(table.version))
            derived.rebuild_words(table, self._folder / derived.LEXICAL, told=told)
            dense.DenseWriter(self._folder / derived.DENSE, self._embedding).purge()
        for path in self._folder.glob(f"{book.FILE}*.damaged"):
            path.unlink(missing_ok=True)
        with self._catalog.transaction():
            self._catalog.prune()
        self._catalog.vacuum()
        with self._catalog.transaction():
            self._catalog.drop(ERASE)
        return True

    def maintain(self) -> bool:
        """Join the table's small files and drop its old versions when there are many. True when it did.

        An `erase` that was interrupted is done again.
        """
        if self.erase():
            return True
        path = table_path(self._folder)
        if table_version(path) is None or not ChunkTable.crowded(path):
            return False
        table = self._opened_table()
        with self._catalog.transaction():
            did = table.maintain()
            self._catalog.put(STAMP, str(table.version))
        return did

    # -- inside ----------------------------------------------------------------------------------------

    def _tombstones(self) -> dict[str, Tombstone]:
        """All tombstones. Where one of the two places lacks some, it gets them back."""
        stones = tombstones.load(self._folder)
        listed = self._catalog.forgotten_at()
        lacking = {name: Tombstone(name, at) for name, at in listed.items() if name not in stones}
        if lacking:
            stones.update(lacking)
            tombstones.save(self._folder, stones)
        if stones.keys() - listed.keys():
            with self._catalog.transaction():
                for stone in stones.values():
                    self._catalog.forget([stone.session], stone.at)
        return stones

    def _is_forgotten(self, session_id: str, path: str) -> bool:
        stones = self._stones
        return bool(stones) and (session_id in stones or alias(session_id, path) in stones)

    def _at(self) -> str:
        """The path of the source that things are put of."""
        if self._current is None:
            raise FunesError("Nothing is put outside of a source.")
        return self._current[1]

    def _usable(self) -> None:
        if self._broken:
            raise FunesError("The last write to this memory failed; open it again.")

    def _count(self, chunks: Sequence[Chunk], same_session: bool) -> None:
        if same_session:
            self._batch.known += len(chunks)
        else:
            self._batch.copied += len(chunks)

    def _opened_table(self) -> ChunkTable:
        if self._table is None:
            self._table = ChunkTable.create(self._folder, self._embedding)
        return self._table

    def _check_model(self) -> None:
        model = self._catalog.get(MODEL)
        if self._catalog.get(STAMP) != str(table_version(table_path(self._folder))):
            return  # the table decides: a writer may have been killed between its stamp and the catalog's
        if model is not None and json.loads(model) != [self._embedding.model, self._embedding.width]:
            raise ModelMismatchError(
                f"This memory's vectors were made by {json.loads(model)[0]}, not by {self._embedding.model}.",
                "See `funes models`.",
            )

    def _embedded(self, batch: _Batch, embed: Embed | None) -> dict[int, NDArray[np.float32]]:
        """Vectors for the texts in hand, by message. Not inside a transaction: this may take long."""
        vectors = {no: made for no, content in batch.contents.items() if (made := content.vectors) is not None}
        bare = {no: content.chunks for no, content in batch.contents.items() if no not in vectors}
        if embed is not None and bare:
            texts = [chunk.text for chunks in bare.values() for chunk in chunks]
            matrix = embed(texts)
            if matrix.shape != (len(texts), self._embedding.width):
                raise FunesError(
                    f"The model gave vectors of shape {matrix.shape} for {len(texts)} texts of {self._embedding.width}."
                )
            start = 0
            for message, chunks in bare.items():
                vectors[message] = matrix[start : start + len(chunks)]
                start += len(chunks)
        return vectors

    def _apply(self, batch: _Batch) -> tuple[set[int], dict[int, list[Place]]]:
        """Write what was put into the catalog.

        Returns:
            The messages that may have to be stored differently; and all places of those that are new.
        """
        catalog = self._catalog
        affected: set[int] = set(batch.contents)
        numbers = {
            path: catalog.source_no(path, source.harness, safe_text(str(source.root)), source.kind)
            for path, source in batch.sources.items()
        }
        for (path, session_id), info in batch.infos.items():
            if self._is_forgotten(session_id, path):
                batch.forgotten.add(path)
                continue
            session = self._session(session_id, path)
            fork = info.relation == "fork"
            if catalog.stand(session, numbers[path], catalog.info_no(info), info.started or "", fork):
                affected.update(catalog.shared_messages(session))
        split = {session_id for _, session_id in batch.infos if len(set(catalog.started_by(session_id).values())) > 1}
        sighted = catalog.sighted({put.message for puts in batch.puts.values() for put in puts.values()})
        fresh: dict[int, list[Place]] = {}
        earlier = {path for path in batch.finished if path in batch.seen and catalog.gave(numbers[path])}
        infos: dict[int, int] = {}
        taken: dict[int, bool] = {}
        touched: set[int] = set()
        for path, puts in batch.puts.items():
            source = numbers[path]
            sessions: dict[str, int] = {}
            changed: list[Place] = []
            for (session_id, turn), put in puts.items():
                if session_id not in sessions:
                    sessions[session_id] = self._session(session_id, path)
                    taken[sessions[session_id]] = catalog.occupied(sessions[session_id])
                if id(put.info) not in infos:
                    infos[id(put.info)] = catalog.info_no(put.info)
                session = sessions[session_id]
                place = Place(session, turn, source, put.message, put.seq, put.facts, infos[id(put.info)])
                known = False
                for other in catalog.places_at(session, turn) if taken[session] else ():
                    if other.source != source:
                        if other.message != put.message:
                            split.add(session_id)
                    elif other == place:
                        known = True
                    elif other.message != put.message:
                        affected.add(other.message)
                if not known:
                    changed.append(place)
                    affected.add(put.message)
                    if put.message not in sighted:
                        fresh.setdefault(put.message, []).append(place)
            catalog.save_places(changed)
            touched.update(sessions.values())
        for path in earlier:
            seen = batch.seen[path]
            gone = [
                place
                for place in catalog.places_of_source(numbers[path])
                if (catalog.base(place.session), place.turn) not in seen
                and (not batch.sources[path].many or catalog.base(place.session) in batch.told[path])
            ]
            affected.update(place.message for place in gone)
            touched.update(place.session for place in gone)
            catalog.remove_places(gone)
        for base in split:
            catalog.split(base)
        for base in split | {session_id for puts in batch.puts.values() for session_id, _ in puts}:
            if catalog.is_split(base):
                affected.update(self._resplit(base))
                fresh = {}
        for messages in catalog.remembered(touched).values():
            affected.update(messages)
        return affected, fresh

    def _session(self, session_id: str, path: str) -> int:
        """The number of the session that a transcript's session id means in the source at `path`."""
        catalog = self._catalog
        if catalog.is_split(session_id):
            paths = [other for other, _ in catalog.sources_of_base(session_id)]
            if any(other < path for other in paths):
                return catalog.session_no(alias(session_id, path), session_id)
        return catalog.session_no(session_id)

    def _resplit(self, base: str) -> set[int]:
        """Move what stands under a session id that unrelated sources share to where it belongs."""
        affected: set[int] = set()
        for rank, (path, source) in enumerate(self._catalog.sources_of_base(base)):
            target = self._catalog.session_no(alias(base, path) if rank else base, base)
            affected.update(self._catalog.move(base, source, target))
        return affected

    def _planned(self, affected: Iterable[int], contents: dict[int, _Content], fresh: dict[int, list[Place]]) -> _Plan:
        """Compare what should be stored of each message with what is.

        Args:
            affected: The messages to look at.
            contents: The rows of those that came with rows.
            fresh: All places of those that were in no place before.
        """
        catalog = self._catalog
        wanted = sorted(affected)
        places = catalog.places_of_messages(message for message in wanted if message not in fresh)
        places.update(fresh)
        stored = catalog.messages(message for message in wanted if message not in fresh)
        ranks = catalog.ranks({place.session for group in places.values() for place in group})
        paths = catalog.source_paths()
        infos = catalog.infos({place.info for group in places.values() for place in group})
        places = self._without_remembered(places)
        plan = _Plan()
        homes: dict[int, Place] = {}
        for message in wanted:
            before = stored.get(message)
            group = places.get(message)
            if not group:
                if before is not None:
                    plan.gone.append(message)
                    plan.old[message] = self._ids(before)
                continue
            if len(group) == 1:
                home = group[0]
            else:
                home = min(group, key=lambda p: (ranks[p.session], paths[p.source], p.seq, p.turn))
            given = contents.get(message)
            if given is not None:
                content, blocks = given.digest, _blocks(given.chunks)
            elif before is not None:
                content, blocks = before.content, before.blocks
            else:  # its rows were lost, or it was not stored for the sake of what is no longer there
                plan.again.update(place.source for place in group)
                continue
            shape = _shape(ranks[home.session][2], home, infos[home.info], paths[home.source])
            if before is not None:
                if (before.content, before.shape) == (content, shape):
                    continue
                plan.old[message] = self._ids(before)
            homes[message] = home
            plan.messages.append(
                Message(message, home.session, home.turn, home.seq, blocks, content, shape, home.facts.ts)
            )
        unread = [name for m in homes if m not in contents for name in plan.old[m].values()]
        rows = self._stored_rows(unread)
        for message, home in homes.items():
            given = contents.get(message)
            if given is not None:
                chunks = given.chunks
            else:
                chunks = [rows[name] for name in plan.old[message].values() if name in rows]
            names = () if given is None else given.names
            session_id, info, path = ranks[home.session][2], infos[home.info], paths[home.source]
            for place, chunk in enumerate(chunks):
                row = chunk
                if not _is_at_home(chunk, session_id, home, info, path):
                    row = _at_home(chunk, session_id, home, info, path, message)
                plan.rows[row.id] = row
                plan.owner[row.id] = message
                if names:
                    plan.names[row.id] = names[place]
                if given is not None:
                    plan.keys.setdefault(message, []).append(row.key)
        sessions = {m.session for m in plan.messages} | {stored[m].session for m in plan.old}
        plan.before = {session: self._ordered(session, {}) for session in sessions}
        catalog.remove_messages(plan.gone)
        catalog.save_messages(plan.messages)
        plan.after = {session: self._ordered(session, plan.keys) for session in sessions}
        return plan

    def _without_remembered(self, places: dict[int, list[Place]]) -> dict[int, list[Place]]:
        """The places without those that a prompt history gives of sessions with a transcript."""
        remembered = {
            place.session for group in places.values() for place in group if HISTORY in place.facts.flags.split()
        }
        if not remembered:
            return places
        transcribed = self._catalog.transcribed(remembered)
        return {
            message: [p for p in group if p.session not in transcribed or HISTORY not in p.facts.flags.split()]
            for message, group in places.items()
        }

    def _write(self, plan: _Plan, vectors: dict[int, NDArray[np.float32]], done: Committed) -> None:
        """Carry a plan out: table, words, vectors, stamp."""
        if not plan.rows and not plan.old:
            return
        table = self._opened_table()
        removed = plan.removed
        rows = list(plan.rows.values())
        had = {name for ids in plan.old.values() for name in ids.values()}
        found = self._vectors_for(plan, vectors, table)
        words = self._queue_words(plan, removed, had)  # they are cut into terms while the table is written
        replaced = [row for row in rows if row.id in had]
        fresh = [row for row in rows if row.id not in had]
        table.upsert(replaced, [found.get(row.id) for row in replaced])
        table.append(fresh, [found.get(row.id) for row in fresh])
        table.delete(sorted(removed))
        words.commit()
        self._write_vectors(rows, found, removed | had)
        SideVectors(self._folder).discard({int(name, 16) for name in removed | had})
        self._catalog.put(STAMP, str(table.version))
        self._catalog.put(MODEL, json.dumps([self._embedding.model, self._embedding.width]))
        new = sum(1 for row in rows if not plan.old.get(plan.owner[row.id]))
        done.stored += new
        done.changed += len(rows) - new
        done.removed += sum(len(plan.old[message]) for message in plan.gone)
        done.embedded += sum(1 for row in rows if plan.owner[row.id] in vectors)

    def _vectors_for(
        self, plan: _Plan, vectors: dict[int, NDArray[np.float32]], table: ChunkTable
    ) -> dict[str, NDArray[np.float32]]:
        """A vector for each row that has one: just made, or that of the row which it replaces."""
        found: dict[str, NDArray[np.float32]] = {}
        kept: dict[str, str] = {}
        places: dict[int, int] = {}
        for name, row in plan.rows.items():
            message = plan.owner[name]
            if message in vectors:
                place = places.get(message, 0)
                places[message] = place + 1
                found[name] = vectors[message][place]
            else:
                old = plan.old.get(message, {}).get((row.block_idx, row.split_idx))
                if old is not None:
                    kept[name] = old
        if kept:
            texts = self._stored_rows(list(set(kept.values())))
            stored = {
                name: matrix[place]
                for ids, matrix in table.vectors(sorted(set(kept.values())))
                for place, name in enumerate(ids)
            }
            for name, old in kept.items():
                if old in stored and old in texts and texts[old].text == plan.rows[name].text:
                    found[name] = stored[old]
        return found

    def _queue_words(self, plan: _Plan, removed: set[str], had: set[str]) -> lexical.LexicalWriter:
        """Hand the documents that change to the word index, which is to be committed after the table."""
        rows = {row.key: row for row in plan.rows.values()}
        changed = set(rows)
        again: set[int] = set()
        beside: dict[int, tuple[int | None, int | None]] = {}
        order: dict[int, int] = {}
        for session, keys in plan.after.items():
            order.update((key, len(order)) for key in keys)
            earlier = _neighbours(plan.before.get(session, []))
            for key, pair in _neighbours(keys).items():
                beside[key] = pair
                if key in changed or earlier.get(key) != pair or not changed.isdisjoint(k for k in pair if k):
                    again.add(key)
        needed = again | {k for key in again for k in beside[key] if k is not None}
        others = self._stored_rows([f"{key:016x}" for key in needed - rows.keys()])
        rows.update((chunk.key, chunk) for chunk in others.values())

        def text(key: int | None) -> str:
            return rows[key].text if key is not None and key in rows else ""

        writer = self._word_writer(bulk=len(again) >= _BULK)
        writer.delete({int(name, 16) for name in removed | had} | (again - changed))
        entries = [
            Entry(row := rows[key], text(beside[key][0]), text(beside[key][1]), plan.names.get(row.id))
            for key in sorted(again, key=order.__getitem__)
            if key in rows
        ]
        writer.add(entries)
        return writer

    def _word_writer(self, *, bulk: bool) -> lexical.LexicalWriter:
        """Stays open, so that segments are merged while the next ones are made."""
        if self._lexical is None or (bulk and not self._lexical.bulk):
            if self._lexical is not None:
                self._lexical.close()
            self._lexical = lexical.LexicalWriter(self._folder / derived.LEXICAL, bulk=bulk)
        return self._lexical

    def _write_vectors(self, rows: Sequence[Chunk], found: dict[str, NDArray[np.float32]], stale: set[str]) -> None:
        import numpy as np

        writer = dense.DenseWriter(self._folder / derived.DENSE, self._embedding)
        writer.delete(int(name, 16) for name in stale)
        filled = [row for row in rows if row.id in found]
        if filled:
            writer.add(filled, np.stack([found[row.id] for row in filled]).astype(np.float32, copy=False))
        writer.commit()

    def _save_sources(self, batch: _Batch) -> None:
        now = _now()
        for path, (cursor, tally) in batch.finished.items():
            source = batch.sources[path]
            no = self._catalog.source_no(path, source.harness, safe_text(str(source.root)), source.kind)
            before = None if path in batch.seen else self._catalog.source(path)
            if before is not None:  # the reading went on from another, and so does its account
                before.tally.add(tally)
                tally = before.tally
            # What a parser remembers of a forgotten session is forgotten, too; a store of many remembers no words.
            kept = None if path in batch.forgotten and not source.many else cursor
            self._catalog.save_source(no, source, kept, tally, "", now)
        for path, reason in batch.failed.items():
            source = batch.sources[path]
            no = self._catalog.source_no(path, source.harness, safe_text(str(source.root)), source.kind)
            self._catalog.save_source(no, source, None, None, reason, now)

    def _ids(self, message: Message) -> dict[tuple[int, int], str]:
        session_id = self._catalog.session_id(message.session)
        return {(block, piece): chunk_id(session_id, message.turn, block, piece) for block, piece in message.pieces()}

    def _ordered(self, session: int, known: Mapping[int, list[int]]) -> list[int]:
        """Keys of the rows stored under a session, in order.

        Args:
            known: The keys of all rows of some messages.
        """
        session_id = self._catalog.session_id(session)
        keys: list[int] = []
        for message, turn, blocks in self._catalog.turns_of_session(session):
            keys += known.get(message) or [int(chunk_id(session_id, turn, b, p), 16) for b, p in book.pieces_of(blocks)]
        return keys

    def _stored_rows(self, names: Sequence[str]) -> dict[str, Chunk]:
        """Rows as of the last commit: from the word index, and from the table what that does not hold."""
        if not names:
            return {}
        if self._words is None and lexical.exists(self._folder / derived.LEXICAL):
            self._words = lexical.LexicalReader(self._folder / derived.LEXICAL)
        found: dict[str, Chunk] = {}
        if self._words is not None:
            self._words.refresh()
            found = {row.id: row for row in self._words.rows([int(name, 16) for name in names]).values()}
        lacking = [name for name in names if name not in found]
        if lacking:
            found.update((row.id, row) for part in self._opened_table().stream(lacking) for row in part)
        return found

    # -- repair ----------------------------------------------------------------------------------------

    def _repair_if_needed(self) -> None:
        version = table_version(table_path(self._folder))
        if version is None:
            if self._catalog.get(STAMP) is not None:
                # The table is gone: nothing in the catalog or the indexes is true any more.
                self._start_over()
            return
        if (
            self._catalog.get(STAMP) == str(version)
            and lexical.exists(self._folder / derived.LEXICAL)
            and dense.embedding_of(self._folder / derived.DENSE) == self._embedding
        ):
            return
        self._repair()

    def _start_over(self) -> None:
        import shutil

        for name in (derived.LEXICAL, derived.DENSE):
            shutil.rmtree(self._folder / name, ignore_errors=True)
        with self._catalog.transaction():
            self._catalog.clear()

    def _repair(self) -> None:
        """Bring catalog and indexes in line with the table."""
        table = self._opened_table()
        ids = table.ids()
        with self._catalog.transaction():
            listed: dict[str, int] = {}
            lost: list[int] = []
            for session_id, message in self._catalog.all_messages():
                names = [chunk_id(session_id, message.turn, b, p) for b, p in message.pieces()]
                if all(name in ids for name in names):
                    listed.update(dict.fromkeys(names, message.no))
                else:
                    lost.append(message.no)
            sightings = self._catalog.places_of_messages(lost)
            self._catalog.read_again({p.source for group in sightings.values() for p in group})
            self._catalog.remove_messages(lost)
            unknown = [name for name in ids if name not in listed]
            affected = self._import(table, unknown)
            left = self._planned_import(affected, table)
            if left:
                table.delete(sorted(left))
            derived.catch_up(table, self._folder)
            self._catalog.put(STAMP, str(table.version))
            self._catalog.put(MODEL, json.dumps([self._embedding.model, self._embedding.width]))
        self._words = None

    def _import(self, table: ChunkTable, names: Sequence[str]) -> dict[int, list[Chunk]]:
        """Make known, from the rows themselves, what the catalog does not know. Returns rows by message."""
        catalog = self._catalog
        turns: dict[tuple[str, str], list[Chunk]] = {}
        for part in table.stream(names):
            for row in part:
                turns.setdefault((row.session_id, row.turn_uuid), []).append(row)
        started: dict[str, str] = {}
        for (session_id, _), rows in turns.items():
            stamps = [row.ts for row in rows if row.ts]
            if stamps:
                first = min(stamps, key=millis)
                if session_id not in started or millis(first) < millis(started[session_id]):
                    started[session_id] = first
        found: dict[int, list[Chunk]] = {}
        for (session_id, turn), rows in turns.items():
            rows.sort(key=lambda row: (row.block_idx, row.split_idx))
            row = rows[0]
            message = _message_of(row)
            source = catalog.source_no(row.source_path, row.harness, "", "")
            base, mark, _ = session_id.rpartition("~")
            if not mark or alias(base, row.source_path) != session_id:
                base = session_id
            if base != session_id:
                catalog.split(base)
            session = catalog.session_no(session_id, base)
            info = SessionInfo(
                session_id=base,
                harness=row.harness,
                cwd=row.cwd,
                repo=row.repo or None,
                branch=row.branch,
                commit=row.commit,
                parent_session_id=row.parent_session_id,
                agent_name=row.agent_name,
                started=started.get(session_id),
            )
            number = catalog.info_no(info)
            if not catalog.stands(session, source):
                catalog.stand(session, source, number, info.started or "", False)
            facts = TurnFacts(row.parent_uuid, row.ts, row.role, row.message_id, row.flags, _kinds(rows))
            if catalog.place(session, turn, source) is None:
                catalog.save_places([Place(session, turn, source, message, row.seq, facts, number)])
            found.setdefault(message, []).extend(rows)
        return found

    def _planned_import(self, found: dict[int, list[Chunk]], table: ChunkTable) -> set[str]:
        """Enter imported messages as stored where their rows are. Returns ids of rows that are doubled.

        When a message turns out to be stored in two places, the better home keeps its rows.
        """
        catalog = self._catalog
        stored = catalog.messages(found)
        places = catalog.places_of_messages(found)
        ranks = catalog.ranks({p.session for group in places.values() for p in group})
        paths = catalog.source_paths()
        infos = catalog.infos({p.info for group in places.values() for p in group})
        surplus: set[str] = set()
        for message, rows in found.items():
            homes: dict[tuple[str, str], list[Chunk]] = {}
            for row in rows:
                homes.setdefault((row.session_id, row.turn_uuid), []).append(row)
            before = stored.get(message)
            ranked = sorted(
                (p for p in places.get(message, []) if (ranks[p.session][2], p.turn) in homes),
                key=lambda p: (ranks[p.session], paths[p.source], p.seq, p.turn),
            )
            if not ranked:
                surplus.update(row.id for row in rows)
                continue
            home = ranked[0]
            session_id = ranks[home.session][2]
            if before is not None:
                old = self._ids(before)
                held = catalog.session_id(before.session)
                if (held, before.turn) == (session_id, home.turn):
                    # The same place with pieces that the catalog does not list: keep what it lists.
                    surplus.update(row.id for row in rows if row.id not in set(old.values()))
                    continue
                if catalog.ranks([before.session])[before.session] < ranks[home.session]:
                    surplus.update(row.id for row in rows)
                    continue
                surplus.update(old.values())
            kept = homes[session_id, home.turn]
            surplus.update(row.id for row in rows if row not in kept)
            shape = _shape(session_id, home, infos[home.info], paths[home.source])
            catalog.save_messages(
                [
                    Message(
                        message, home.session, home.turn, home.seq, _blocks(kept), _content(kept), shape, home.facts.ts
                    )
                ]
            )
        return surplus


def stamp_of(folder: Path) -> Embedding | None:
    """Which model made the vectors of the memory in `folder`; None when there is no memory.

    Asks the catalog, and the table only where that is behind. Raises `MemoryDamagedError`.
    """
    version = table_version(table_path(folder))
    if version is None:
        return None
    if (folder / book.FILE).exists():
        with suppress(MemoryDamagedError):
            catalog = Catalog(folder, writable=False)
            try:
                model = catalog.get(MODEL)
                if model is not None and catalog.get(STAMP) == str(version):
                    name, width = json.loads(model)
                    return Embedding(str(name), int(width))
            finally:
                catalog.close()
    return ChunkTable.open(folder).embedding


def alias(session_id: str, path: str) -> str:
    """The name of a session whose id an unrelated transcript has, too."""
    return f"{session_id}~{sha1(path.encode(), usedforsecurity=False).hexdigest()[:6]}"


def _open_catalog(folder: Path) -> Catalog:
    """The catalog; one that cannot be read is put aside, as everything in it can be found out again."""
    try:
        return Catalog(folder)
    except MemoryDamagedError:
        path = folder / book.FILE
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                os.replace(f"{path}{suffix}", f"{path}{suffix}.damaged")
        return Catalog(folder)


def _path(source: Source) -> str:
    return safe_text(str(source.path))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _signed(identity: str) -> int:
    """16 hex digits as SQLite holds them."""
    number = int(identity, 16)
    return number - (1 << 64) if number >> 63 else number


def _unsigned(number: int) -> str:
    return f"{number & ((1 << 64) - 1):016x}"


def _unknown_identity(session_id: str, turn: str) -> int:
    digest = blake2b(f"row\0{session_id}\0{turn}".encode("utf-8", "replace"), digest_size=8)
    return _signed(digest.hexdigest())


def _number(digest: Any) -> int:
    return int.from_bytes(digest.digest(), "big", signed=True)


def _content(chunks: Sequence[Chunk]) -> int:
    """A digest of what the rows of a message say, wherever it stands."""
    parts: list[bytes] = []
    for chunk in chunks:
        text = chunk.text.encode("utf-8", "replace")
        head = f"{chunk.block_idx}\0{chunk.split_idx}\0{chunk.block_type}\0{chunk.tool_name or ''}\0{len(text)}\0"
        parts += (head.encode("utf-8", "replace"), text)
    return _number(blake2b(b"".join(parts), digest_size=8))


def _shape(session_id: str, home: Place, info: SessionInfo, path: str) -> int:
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


def _blocks(chunks: Sequence[Chunk]) -> str:
    counts: dict[int, int] = {}
    for chunk in chunks:
        counts[chunk.block_idx] = counts.get(chunk.block_idx, 0) + 1
    return " ".join(f"{block}:{count}" for block, count in sorted(counts.items()))


def _message_of(row: Chunk) -> int:
    """The message that a row belongs to."""
    return _signed(row.identity) if row.identity else _unknown_identity(row.session_id, row.turn_uuid)


def _in_order(rows: list[Chunk]) -> list[Chunk]:
    return sorted(rows, key=lambda row: (row.block_idx, row.split_idx))


def _kinds(chunks: Sequence[Chunk]) -> str:
    """The types of blocks of a turn, space-joined, each once."""
    return " ".join(sorted({chunk.block_type for chunk in chunks}))


def _has_less(chunks: Sequence[Chunk], stored: set[int]) -> bool:
    """Whether some blocks are left out that are stored (thinking, say): what is stored stays."""
    blocks = {chunk.block_idx for chunk in chunks}
    return blocks < stored


def _is_at_home(chunk: Chunk, session_id: str, home: Place, info: SessionInfo, path: str) -> bool:
    """Whether a row already is as `_at_home` would make it."""
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


def _at_home(chunk: Chunk, session_id: str, home: Place, info: SessionInfo, path: str, message: int) -> Chunk:
    """A row of a message as it is stored at its home."""
    facts = home.facts
    return Chunk(
        id=chunk_id(session_id, home.turn, chunk.block_idx, chunk.split_idx),
        text=chunk.text,
        session_id=session_id,
        workdir=munge(info.cwd),
        turn_uuid=home.turn,
        parent_uuid=facts.parent,
        seq=home.seq,
        ts=facts.ts,
        role=facts.role,
        block_type=chunk.block_type,
        tool_name=chunk.tool_name,
        source_path=path,
        block_idx=chunk.block_idx,
        split_idx=chunk.split_idx,
        harness=info.harness,
        repo=info.repo or "",
        message_id=facts.message_id,
        cwd=info.cwd,
        branch=info.branch,
        commit=info.commit,
        parent_session_id=info.parent_session_id,
        agent_name=info.agent_name,
        flags=facts.flags,
        identity=_unsigned(message),
    )


def _neighbours(keys: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    last = len(keys) - 1
    return {
        key: (keys[place - 1] if place else None, keys[place + 1] if place < last else None)
        for place, key in enumerate(keys)
    }


def _cleaned(info: SessionInfo) -> SessionInfo:
    """A session's facts without characters that no store can hold."""
    values: dict[str, Any] = {
        name: safe_text(value)
        for name in ("cwd", "repo", "branch", "commit", "title", "agent_name", "originator")
        if isinstance(value := getattr(info, name), str) and not value.isascii()
    }
    return replace(info, **values) if values else info
