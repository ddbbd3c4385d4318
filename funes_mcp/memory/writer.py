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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from funes_mcp.errors import DerivedDamagedError, FunesError, MemoryBusyError
from funes_mcp.memory import catalog as book
from funes_mcp.memory import derived, lance, tombstones
from funes_mcp.memory.batch import Batch, Put
from funes_mcp.memory.catalog import Catalog, Message, Place, SourceState, TurnFacts, safe_text, signature_of
from funes_mcp.memory.entering import enter
from funes_mcp.memory.mending import catalog_aside
from funes_mcp.memory.model import Chunk, Embedding
from funes_mcp.memory.plan import ids_of, planned
from funes_mcp.memory.repair import repair_if_needed
from funes_mcp.memory.rows import Content, alias, digest_of, has_less, in_block_order, kinds_of, message_of, signed
from funes_mcp.memory.stamp import ERASE, REVISION, check_model, put_stamp
from funes_mcp.memory.storable import check_session, check_turn
from funes_mcp.memory.stores import Committed, Stores
from funes_mcp.memory.table import ChunkTable, table_path
from funes_mcp.memory.tombstones import Tombstone
from funes_mcp.memory.upgrade import SideVectors
from funes_mcp.traces.model import Cursor, SessionInfo, Source, Tally, Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Embed = Callable[[list[str]], NDArray[np.float32]]

#: Messages that are read at once, to be looked at.
_MESSAGES_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it is stored, with its rows in order."""

    message: int
    rows: list[Chunk]


class MemoryWriter:
    """Writes to the memory in a folder. The caller holds the writer lock (see `lock.run_locked`).

    Use as a context manager. Between `begin` and `finish` or `fail` everything that is put belongs to that
    source. Nothing is durable before `commit`; a commit may fall in the middle of a source, and may go on in the
    background while more is put. Belongs to one thread.

    Attributes:
        mended: Sentences about what was found lost or damaged when it was opened, and was made again.
    """

    def __init__(self, folder: Path, embedding: Embedding) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._stack.enter_context(derived.private_files())
        try:
            self.mended: list[str] = []
            self._catalog = self._open_catalog()
            self._stack.callback(self._catalog.close)
            self._lookup = Catalog(folder, writable=False)  # sees what is committed while a commit goes on
            self._stack.callback(self._lookup.close)
            self._storing: Future[Committed] | None = None
            self._flying: dict[int, Content] = {}
            self._looked_up: dict[int, Message | None] = {}
            self._unreported = Committed()
            self._batch = Batch()
            self._current: tuple[Source, str] | None = None
            self._info: dict[str, SessionInfo] = {}
            self._visits: dict[tuple[str, str | None], SessionInfo] = {}
            self._broken = False
            check_model(self._catalog, folder, embedding)
            self._stores = Stores(folder, embedding)
            self.mended += repair_if_needed(self._catalog, self._stores, folder)
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
            self._stores.close()
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
            self._batch.puts.pop(path, None)  # what an earlier reading gave that was not committed
            self._batch.seen[path] = set()
        else:
            self._batch.seen.pop(path, None)

    def put_session(self, info: SessionInfo) -> None:
        """Say what is known of a session; it holds for the turns that follow. Raises `UnstorableError`."""
        path = self._at()
        info = _cleaned(info)
        check_session(info)
        info = self._still_known(info)
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
        wanted = {signed(chunks[0].identity) for chunks in turns if chunks}
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

        Raises:
            UnstorableError: No store can hold it; nothing of it was put.
        """
        path = self._at()
        if not chunks:
            return 0
        check_turn(turn, chunks)
        if self._is_forgotten(turn.session_id, path):
            self._batch.forgotten.add(path)
            return 0
        info = self._info.get(turn.session_id) or SessionInfo(turn.session_id, chunks[0].harness)
        if turn.repo is not None:
            info = self._elsewhere(info, turn)
        message = signed(chunks[0].identity)
        batch = self._batch
        where = (turn.session_id, turn.turn_uuid)
        kinds = kinds_of(chunks)
        facts = TurnFacts(turn.parent_uuid, turn.ts or "", turn.role, turn.message_id, chunks[0].flags, kinds)
        batch.puts.setdefault(path, {})[where] = Put(message, turn.seq, facts, info)
        if path in batch.seen:
            batch.seen[path].add(where)
        content = digest_of(chunks)
        waiting = batch.contents.get(message) or self._flying.get(message)
        if waiting is not None:
            if waiting.digest == content or has_less(chunks, {chunk.block_idx for chunk in waiting.chunks}):
                self._count(chunks, waiting.chunks[0].session_id == turn.session_id)
                return 0
            batch.chunks -= len(waiting.chunks) if message in batch.contents else 0
        else:
            stored = self._looked_up[message] if message in self._looked_up else self._lookup.message(message)
            if stored is not None and (stored.content == content or has_less(chunks, stored.block_numbers())):
                self._count(chunks, self._lookup.session_id(stored.session) == turn.session_id)
                return 0
        batch.contents[message] = Content(list(chunks), content, names, vectors)
        batch.chunks += len(chunks)
        return len(chunks)

    def put_vectors_of(self, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        """Put the vectors, float32 (chunks, width), of a turn that was put without and waits."""
        content = self._batch.contents.get(signed(chunks[0].identity))
        if content is not None and content.chunks[0] is chunks[0]:  # else it was put once more, with other words
            content.vectors = vectors

    def lost_its_sense(self, source: Source, tally: Tally) -> bool:
        """Whether a source that said something was read anew, and no record in it can be understood any more.

        Then it was damaged, and not written anew without what it said: to `finish` it would take that out.
        """
        path = _path(source)
        state = self._states.get(path)
        nothing = path in self._batch.seen and not self._batch.seen[path] and not tally.understood
        return nothing and not source.many and state is not None and self._lookup.gave(state.no)

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
        self._batch = Batch()
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

    def _store(self, batch: Batch, embed: Embed | None) -> Committed:
        done = Committed(known=batch.known, copied=batch.copied)
        vectors = self._embedded(batch, embed)
        with self._catalog.transaction():
            affected, fresh = enter(self._catalog, batch, self._is_forgotten)
            again = self._carry_out(affected, batch.contents, fresh, vectors, done)
            self._save_sources(batch)
            self._catalog.read_again(again)
        for path in (*batch.finished, *batch.failed):
            state = self._catalog.source(path)
            if state is not None:
                self._states[path] = state
        return done

    def backfill(self, embed: Embed, limit: int) -> int:
        """Give vectors to the newest rows that lack one. Returns how many; 0 when none is left."""
        self._unreported.add(self._settled())
        if self._stores.version is None:
            return 0
        chunks = self._stores.table.without_vector(limit)
        return self.put_vectors(chunks, embed([chunk.text for chunk in chunks])) if chunks else 0

    def put_vectors(self, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> int:
        """Give rows their vectors, float32 (n, width), made without the lock. Returns how many rows took theirs.

        A row that is gone or says something else by now is left alone.
        """
        self._unreported.add(self._settled())
        if not chunks or self._stores.version is None:
            return 0
        table = self._stores.table
        stored = {row.id: row for part in table.stream([chunk.id for chunk in chunks]) for row in part}
        same = [i for i, c in enumerate(chunks) if c.id in stored and stored[c.id].text == c.text]
        if not same:
            return 0
        rows = [stored[chunks[place].id] for place in same]
        self._broken = True
        with self._catalog.transaction():
            self._stores.put_vectors(rows, vectors[same])
            put_stamp(self._catalog, table)
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
        if self._stores.version is None:
            return
        self._broken = True
        with self._catalog.transaction():
            self._stores.restamp(embedding, vector_of)
            put_stamp(self._catalog, self._stores.table)
            self._catalog.put(REVISION, revision)
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
            catalog.read_again(self._carry_out(affected, {}, {}, {}, done))
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
        if self._stores.version is None:
            return
        waiting: dict[int, list[Chunk]] = {}
        for part in self._stores.table.stream():
            for row in part:
                waiting.setdefault(message_of(row), []).append(row)
            known = self._catalog.messages({message_of(row) for row in part})
            whole = [no for no, message in known.items() if len(waiting[no]) >= sum(1 for _ in message.pieces())]
            if whole:
                yield [Stored(no, in_block_order(waiting.pop(no))) for no in whole]
        # Rows that are written again come to lie elsewhere: those have found each other by now.
        if waiting:
            known = self._catalog.messages(waiting)
            yield [Stored(no, in_block_order(rows)) for no, rows in waiting.items() if no in known]

    def stored_of(self, messages: Iterable[int]) -> Iterator[list[Stored]]:
        """Those of some messages that are stored, some hundreds at a time."""
        self._unreported.add(self._settled())
        wanted = sorted(messages)
        for start in range(0, len(wanted), _MESSAGES_AT_ONCE):
            ids = {
                no: list(ids_of(self._catalog, message).values())
                for no, message in self._catalog.messages(wanted[start : start + _MESSAGES_AT_ONCE]).items()
            }
            names = [name for group in ids.values() for name in group]
            rows = {row.id: row for part in self._stores.table.stream(names) for row in part} if names else {}
            yield [Stored(no, [rows[name] for name in group if name in rows]) for no, group in ids.items()]

    @property
    def rows(self) -> int:
        """How many rows are stored."""
        self._unreported.add(self._settled())
        return 0 if self._stores.version is None else self._stores.table.rows

    def rewrite(self, contents: Mapping[int, Sequence[Chunk]], embed: Embed | None) -> Committed:
        """Give stored messages other rows. What they said before is in files of the memory until `erase`.

        Args:
            contents: All rows of each message; none of them empty.
            embed: See `commit`.
        """
        done = self._settled()
        if not self._batch.empty:
            raise FunesError("Commit before rewriting.")
        batch = Batch(contents={no: Content(list(rows), digest_of(rows)) for no, rows in contents.items()})
        self._broken = True
        vectors = self._embedded(batch, embed)
        with self._catalog.transaction():
            self._catalog.put(ERASE, "yes")
            self._carry_out(set(contents), batch.contents, {}, vectors, done)
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
            self._carry_out(affected, {}, {}, {}, done)
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
        try:
            self._erase(told)
        except (DerivedDamagedError, MemoryBusyError):
            raise  # whoever called knows what to do
        except FunesError as error:
            raise FunesError(
                f"{error.message} What was removed is found no more, but files of the memory still hold it.",
                error.hint or "`funes index` tries again.",
            ) from error
        return True

    def _erase(self, told: Callable[[int, int], None] | None) -> None:
        self._stores.close()
        if self._stores.version is not None:
            with self._catalog.transaction():
                self._stores.table.rewrite()
                put_stamp(self._catalog, self._stores.table)
            self._stores.renew_indexes(told)
        for path in self._folder.glob(f"{book.FILE}*.damaged"):
            path.unlink(missing_ok=True)
        with self._catalog.transaction():
            self._catalog.prune()
        self._catalog.vacuum()
        with self._catalog.transaction():
            self._catalog.drop(ERASE)

    def maintain(self) -> bool:
        """Join the table's small files and drop its old versions when there are many. True when it did.

        An `erase` that was interrupted is done again.
        """
        if self.erase():
            return True
        if self._stores.version is None or not ChunkTable.crowded(table_path(self._folder)):
            return False
        with self._catalog.transaction():
            did = self._stores.table.maintain()
            put_stamp(self._catalog, self._stores.table)
        return did

    # -- inside ----------------------------------------------------------------------------------------

    def _open_catalog(self) -> Catalog:
        """The catalog; one that cannot be read is put aside, as everything in it can be found out again."""
        try:
            return Catalog(self._folder)
        except DerivedDamagedError:
            self.mended.append(catalog_aside(self._folder))
            return Catalog(self._folder)

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
                self._catalog.put(ERASE, "yes")  # this catalog was made again, and that word with it was lost
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

    def _embedded(self, batch: Batch, embed: Embed | None) -> dict[int, NDArray[np.float32]]:
        """Vectors for the texts in hand, by message. Not inside a transaction: this may take long."""
        vectors = {no: made for no, content in batch.contents.items() if (made := content.vectors) is not None}
        bare = {no: content.chunks for no, content in batch.contents.items() if no not in vectors}
        if embed is not None and bare:
            texts = [chunk.text for chunks in bare.values() for chunk in chunks]
            matrix = embed(texts)
            width = self._stores.embedding.width
            if matrix.shape != (len(texts), width):
                raise FunesError(f"The model gave vectors of shape {matrix.shape} for {len(texts)} texts of {width}.")
            start = 0
            for message, chunks in bare.items():
                vectors[message] = matrix[start : start + len(chunks)]
                start += len(chunks)
        return vectors

    def _carry_out(
        self,
        affected: Iterable[int],
        contents: dict[int, Content],
        fresh: dict[int, list[Place]],
        vectors: Mapping[int, NDArray[np.float32]],
        done: Committed,
    ) -> set[int]:
        """Find out what has to change of some messages, and change it; see `planned`.

        Returns:
            The sources that have to be read again.
        """
        plan = planned(self._catalog, affected, contents, fresh, self._stores.rows)
        did = self._stores.write(plan, vectors)
        if did is not None:
            done.add(did)
            put_stamp(self._catalog, self._stores.table)
        return plan.again

    def _save_sources(self, batch: Batch) -> None:
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


def _path(source: Source) -> str:
    return safe_text(str(source.path))


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cleaned(info: SessionInfo) -> SessionInfo:
    """A session's facts without characters that no store can hold."""
    values: dict[str, Any] = {
        name: safe_text(value)
        for name in ("cwd", "repo", "branch", "commit", "title", "agent_name", "originator")
        if isinstance(value := getattr(info, name), str) and not value.isascii()
    }
    return replace(info, **values) if values else info
