"""Reads a memory: searches, rows, and the conversation around a turn. Takes no lock and loads no LanceDB.

Everything comes from the derived indexes and the catalog. Only when those are missing or behind the table are
they brought in line first, which does load it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.errors import DerivedDamagedError, FunesError, MemoryBusyError, MemoryDamagedError, NoMemoryError
from funes_mcp.memory import catalog as book
from funes_mcp.memory import conversation, dense, derived, lexical
from funes_mcp.memory.catalog import Catalog, TurnFacts
from funes_mcp.memory.chunk import chunk_id, stitch
from funes_mcp.memory.conversation import Node
from funes_mcp.memory.lexical import Evidence, Found
from funes_mcp.memory.lock import WriterLock
from funes_mcp.memory.mending import PARTS, damage_in, put_away
from funes_mcp.memory.model import Chunk, Embedding, Filter, Passage, Scored, Sighting
from funes_mcp.memory.repair import is_in_line
from funes_mcp.memory.stamp import REVISION, STAMP
from funes_mcp.memory.table import NAME, ChunkTable, table_path, table_version
from funes_mcp.memory.times import UNDATED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_REMEMBERED: Final = 50_000
_PATIENCE: Final = 5.0
#: Seconds between two tries to bring an open memory in line with its table.
_TRY_EVERY: Final = 60.0
_INDEX_STAMP: Final = "index_of"


@dataclass(frozen=True, slots=True)
class Meta:
    """What is known of chunks without fetching them, as arrays of equal length, in the order asked for.

    Attributes:
        session: uint64 (n,), a number that chunks of the same session share; 0 for unknown chunks.
        ts: int64 (n,), Unix milliseconds, or `times.UNDATED`.
        block_type: uint8 (n,), positions in `BLOCK_TYPES`.
    """

    session: NDArray[np.uint64]
    ts: NDArray[np.int64]
    block_type: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is stored."""

    chunks: int
    sessions: int
    embedded: int
    by_harness: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn put together again from its rows.

    Attributes:
        turn_uuid: Of its first line, or the one that was asked for.
        blocks: The texts of its blocks, whole and in order.
        marks: Flags of the turn, and `conversation.ABANDONED`.
    """

    turn_uuid: str
    role: str
    seq: int
    ts: str
    blocks: tuple[str, ...]
    marks: tuple[str, ...] = ()


class MemoryReader:
    """A memory, open for reading. Use `open`. Searches and reads may run in several threads at once."""

    def __init__(self, index: Path, catalog: Catalog | None, mended: Sequence[str] = (), behind: str = "") -> None:
        self._folder = index
        self._mended = tuple(mended)
        self._behind = behind
        self._tried = time.monotonic()
        self._words = lexical.LexicalReader(index / derived.LEXICAL)
        self._vectors = dense.DenseReader(index / derived.DENSE)
        self._catalog = catalog
        self._found: dict[int, Found] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        label: str = "local",
        *,
        table: Path | None = None,
        damaged: DerivedDamagedError | None = None,
    ) -> MemoryReader:
        """Open the memory in `folder`. What is damaged beside its table is made again, where that can be written.

        Args:
            folder: Holds the indexes and the catalog, and the table unless that is given.
            label: How the person calls this memory.
            table: A folder that holds `chunks.lance` elsewhere, for reading only; `folder` then needs no
                catalog.
            damaged: How something made from the table turned out to be damaged: it is made again, unless another
                process has done so.

        Raises:
            NoMemoryError: There is no table. Found out from file names alone.
            MemoryDamagedError: The table cannot be read.
            FunesError: The indexes cannot be read, and not be made again.
        """
        version = table_version(table_path(table or folder))
        if version is None:
            raise NoMemoryError(label)
        if table is not None:
            if _stamp(folder) != f"{version}" or not derived.sound(folder):
                build_read_index(table, folder)
            return cls(folder, None)
        said: list[str] = []
        for _ in range(PARTS):
            try:
                return cls._opened(folder, damaged, said)
            except (DerivedDamagedError, sqlite3.DatabaseError) as error:
                damaged = damage_in(error, folder)
                if damaged is None:
                    raise
        return cls._opened(folder, damaged, said)

    @classmethod
    def _opened(cls, folder: Path, damaged: DerivedDamagedError | None, said: list[str]) -> MemoryReader:
        behind = ""
        catalog = Catalog.found(folder)
        if damaged is not None or not is_in_line(catalog, folder):
            if catalog is not None:
                catalog.close()
            behind = _put_in_order(folder, damaged, said)
            catalog = Catalog.found(folder)
        return cls(folder, catalog, said, behind)

    def close(self) -> None:
        """Let go of the catalog."""
        if self._catalog is not None:
            self._catalog.close()

    def refresh(self) -> bool:
        """Look at the newest commit; a few file stats when there is none. True when there was one."""
        changed = self._words.refresh()
        changed = self._vectors.refresh() or changed
        changed = self._renew_catalog() or changed
        if self._behind and self._try_again():
            self._words.refresh()
            self._vectors.refresh()
            self._renew_catalog()
            changed = True
        if changed:
            self._found = {}
        return changed

    def _renew_catalog(self) -> bool:
        """Open the catalog that another process has put in the place of this one. False when there is none."""
        if self._catalog is None and not self._behind:  # of an index without one
            return False
        found = book.identity(self._folder)
        if found is None or (self._catalog is not None and found == self._catalog.identity):
            return False
        try:
            catalog = Catalog.found(self._folder)
        except FunesError:  # what is open can be read
            return False
        if catalog is None:
            return False
        if catalog.get(STAMP) is None:  # it is being filled
            catalog.close()
            return False
        # The old one is not closed: another thread may be reading it. It goes when nobody refers to it.
        self._catalog = catalog
        return True

    def _try_again(self) -> bool:
        """Whether a memory that was behind its table is so no longer; now and then something is done about it."""
        if not is_in_line(self._catalog, self._folder):
            if time.monotonic() - self._tried < _TRY_EVERY:
                return False
            self._tried = time.monotonic()
            said: list[str] = []
            try:
                behind = _put_in_order(self._folder, None, said)
            except MemoryBusyError:
                return False
            finally:
                self._mended = (*self._mended, *said)
            if behind:
                self._behind = behind
                return False
        self._behind = ""
        return True

    @property
    def opened(self) -> dict[str, tuple[int, ...]]:
        """Which catalog, and which commit of the indexes, is read, by the names of their files; see `damage_in`."""
        found: dict[str, tuple[int, ...] | None] = {
            derived.LEXICAL: self._words.stamp,
            derived.DENSE: self._vectors.stamp,
            book.FILE: None if self._catalog is None else self._catalog.identity,
        }
        return {name: stamp for name, stamp in found.items() if stamp is not None}

    def news(self) -> tuple[str, ...]:
        """Sentences about what was damaged and made again, each said once, and why the memory is behind its table."""
        mended, self._mended = self._mended, ()
        return (*mended, *([self._behind] if self._behind else ()))

    @property
    def embedding(self) -> Embedding:
        """The stamp of the vectors."""
        return self._vectors.embedding

    @property
    def revision(self) -> str:
        """The revision of the model that made the vectors; "" when that is not known."""
        return "" if self._catalog is None else self._catalog.get(REVISION) or ""

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return self._words.size

    @property
    def is_empty(self) -> bool:
        """Whether no chunk is stored, in whatever state the indexes are."""
        return not (
            self._words.size or self._vectors.size or (self._catalog is not None and self._catalog.holds_messages())
        )

    @property
    def embedded(self) -> int:
        """How many of them have a vector."""
        return self._vectors.size

    @property
    def counts(self) -> Counts:
        """How much is stored."""
        sessions = len(self._words.values("session")) if self._catalog is None else self._catalog.session_count()
        harnesses = tuple((name, self._words.count("harness", name)) for name in self._words.values("harness"))
        return Counts(self._words.size, sessions, self._vectors.size, tuple((name, n) for name, n in harnesses if n))

    @property
    def catalog(self) -> Catalog | None:
        """For `status`; None for a memory that was not made here."""
        return self._catalog

    # -- search ----------------------------------------------------------------------------------------

    def lexical(self, question: str, where: Filter, limit: int, *, exactly: bool = False) -> list[Scored]:
        """The chunks with the question's words, best first; see `LexicalReader.search`."""
        return self._remembered(self._words.search(question, where, limit, exactly=exactly))

    def held(self, question: str, keys: Sequence[int]) -> NDArray[np.float32]:
        """How many of a question's identifiers chunks hold, float32 (n,); see `LexicalReader.held`."""
        import numpy as np

        return np.array(self._words.held(question, keys), np.float32)

    def dense(self, vector: NDArray[np.float32], where: Filter, limit: int) -> list[Scored]:
        """The chunks nearest to a vector, float32 (width,), best first; see `DenseReader.search`."""
        return self._remembered(self._vectors.search(vector, where, limit))

    def any_pass(self, where: Filter) -> bool:
        """Whether any chunk passes a filter."""
        return self._words.any_pass(where)

    def rows(self, keys: Sequence[int]) -> list[Chunk]:
        """The chunks with those keys, in that order; keys that are not there are left out."""
        found = self._words.rows(keys)
        return [found[key] for key in keys if key in found]

    def passages(self, keys: Sequence[int]) -> list[Passage]:
        """The same, each with what is indexed of its neighbours."""
        found = self._words.passages(keys)
        return [found[key] for key in keys if key in found]

    def evidence(self, question: str, passages: Sequence[Passage]) -> list[Evidence]:
        """What the passages have of a question's words; see `LexicalReader.evidence`."""
        return self._words.evidence(question, passages)

    def meta(self, keys: Sequence[int]) -> Meta:
        """What is known of chunks without fetching them."""
        import numpy as np

        unknown = [key for key in keys if key not in self._found]
        found = self._words.describe(unknown) if unknown else {}
        nothing = Found(0, UNDATED, 0)
        known = [self._found.get(key) or found.get(key, nothing) for key in keys]
        return Meta(
            np.array([item.session for item in known], np.uint64),
            np.array([item.ts for item in known], np.int64),
            np.array([item.block_type for item in known], np.uint8),
        )

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """The chunks' vectors, float32 (n, width); zeros for chunks without one."""
        return self._vectors.vectors(keys)

    # -- sessions --------------------------------------------------------------------------------------

    def sessions(self, prefix: str = "") -> list[str]:
        """Ids of the sessions that start so, in order."""
        if self._catalog is not None:
            return self._catalog.session_ids(prefix)
        return self._words.sessions(prefix)

    def also_in(self, chunk: Chunk) -> tuple[Sighting, ...]:
        """The other sessions in which a chunk's message stands."""
        if self._catalog is None:
            return ()
        return tuple(
            Sighting(name, seq) for name, seq in self._catalog.also_in(chunk.session_id, chunk.turn_uuid, chunk.seq)
        )

    def beside(self, chunk: Chunk, turns: int) -> tuple[list[Chunk], list[Chunk]]:
        """The first chunk of each of the turns before and after a chunk's, in its session, in order.

        Lines of the chunk's own reply are not its neighbours.
        """
        if turns <= 0:
            return [], []
        pieces = self._words.around(chunk.session_id, chunk.seq, 3 * turns + 6, 3 * turns + 2)
        rows = conversation.in_order(pieces, lambda row: (row.seq, row.turn_uuid), lambda row: row.ts)
        at = next((place for place, row in enumerate(rows) if row.turn_uuid == chunk.turn_uuid), len(rows))
        order = {row.turn_uuid: place for place, row in enumerate(rows)}
        firsts: dict[str, Chunk] = {}
        for row in rows:
            own = row.turn_uuid == chunk.turn_uuid or (
                row.message_id is not None and row.message_id == chunk.message_id and row.role == chunk.role
            )
            if not own:
                firsts.setdefault(f"m{row.message_id}" if row.message_id else f"t{row.turn_uuid}", row)
        before = [row for row in firsts.values() if order[row.turn_uuid] < at]
        after = [row for row in firsts.values() if order[row.turn_uuid] >= at]
        return before[-turns:], after[:turns]

    def turns(self, session_id: str, turn_uuid: str, window: int) -> list[StoredTurn] | None:
        """A turn with `window` turns on each side, along its branch; None when it is not in the session.

        Works in every session in which a copied turn stands. Lines of one reply are one turn.
        """
        nodes, rows_of = self._conversation(session_id)
        if not any(node.turn == turn_uuid for node in nodes):
            return None
        line, abandoned = conversation.ordered(nodes, turn_uuid)
        groups = conversation.replies(line)
        at = next(i for i, group in enumerate(groups) if any(node.turn == turn_uuid for node in group))
        shown = groups[max(0, at - max(window, 0)) : at + max(window, 0) + 1]
        texts = rows_of([node.turn for group in shown for node in group])
        turns = []
        for group in shown:
            head = group[0]
            asked = any(node.turn == turn_uuid for node in group)
            marks = sorted({word for node in group for word in node.flags.split()})
            if head.turn in abandoned:
                marks.append(conversation.ABANDONED)
            blocks = tuple(text for node in group for text in _blocks(texts.get(node.turn, [])))
            turns.append(
                StoredTurn(turn_uuid if asked else head.turn, head.role, head.seq, head.ts, blocks, tuple(marks))
            )
        return turns

    def turn_ids(self, session_id: str) -> list[str]:
        """Ids of all turns of a session, in the order of the transcript; none when it is not there."""
        nodes, _ = self._conversation(session_id)
        return [node.turn for node in conversation.as_said(nodes)]

    def _conversation(self, session_id: str) -> tuple[list[Node], Callable[[Sequence[str]], dict[str, list[Chunk]]]]:
        """The turns of a session, and a way to get the rows of some of them."""
        catalog = self._catalog  # all from one, as a refresh may put another in its place
        session = None if catalog is None else catalog.find_session(session_id)
        if catalog is None or session is None:
            return self._conversation_of_rows(session_id)
        messages: dict[str, int] = {}
        nodes: list[Node] = []
        places = catalog.places_of_session(session)
        spoken = [place for place in places if "history" not in place.facts.flags.split()]
        for place in spoken or places:
            if place.turn not in messages:
                messages[place.turn] = place.message
                nodes.append(_node(place.turn, place.seq, place.facts))

        def rows_of(turns: Sequence[str]) -> dict[str, list[Chunk]]:
            homes = catalog.messages(messages[turn] for turn in turns)
            keys: dict[str, list[int]] = {}
            for turn in turns:
                home = homes.get(messages[turn])
                if home is not None:
                    name = catalog.session_id(home.session)
                    keys[turn] = [int(chunk_id(name, home.turn, b, p), 16) for b, p in home.pieces()]
            found = self._words.rows([key for group in keys.values() for key in group])
            return {turn: [found[key] for key in group if key in found] for turn, group in keys.items()}

        return nodes, rows_of

    def _conversation_of_rows(
        self, session_id: str
    ) -> tuple[list[Node], Callable[[Sequence[str]], dict[str, list[Chunk]]]]:
        turns: dict[str, list[Chunk]] = {}
        for row in self._words.session_rows(session_id):
            turns.setdefault(row.turn_uuid, []).append(row)
        nodes = []
        for turn, rows in turns.items():
            rows.sort(key=lambda row: (row.block_idx, row.split_idx))
            kinds = " ".join(sorted({row.block_type for row in rows}))
            head = rows[0]
            facts = TurnFacts(head.parent_uuid, head.ts, head.role, head.message_id, head.flags, kinds)
            nodes.append(_node(turn, head.seq, facts))
        return nodes, lambda wanted: {turn: turns[turn] for turn in wanted if turn in turns}

    def _remembered(self, hits: list[tuple[Scored, Found]]) -> list[Scored]:
        if len(self._found) > _REMEMBERED:
            self._found = {}
        self._found.update((scored.key, about) for scored, about in hits)
        return [scored for scored, _ in hits]


def build_read_index(table: Path, index: Path, told: Callable[[int, int], None] | None = None) -> None:
    """Make, or bring up to date, the indexes of a table that is only read.

    Args:
        table: The folder that holds `chunks.lance`.
        index: Where the indexes go.
        told: Called with rows done and rows to do.

    Raises:
        NoMemoryError: There is no table.
        MemoryDamagedError: It cannot be read.
        MemoryBusyError: Another process is building the same index.
    """
    version = table_version(table_path(table))
    if version is None:
        raise NoMemoryError(str(table))
    lock = WriterLock(index)
    lock.acquire(_PATIENCE)
    with lock, derived.private_files():
        derived.catch_up(ChunkTable.open(table), index, told=told)
        from funes_mcp.home import write_private

        write_private(index / _INDEX_STAMP, f"{version}\n".encode())


def _put_in_order(folder: Path, damaged: DerivedDamagedError | None, said: list[str]) -> str:
    """Bring a memory's own catalog and indexes in line with its table, unless a writer is about to do so.

    Args:
        damaged: How one of them turned out to be damaged.
        said: Gets sentences about what was damaged and is made again.

    Returns:
        Why that could not be done, where what is there can be read all the same; else "".
    """
    try:
        _catch_up(folder, damaged, said)
    except (FunesError, OSError) as error:
        if isinstance(error, (MemoryDamagedError, MemoryBusyError)):
            raise
        reason = error.message if isinstance(error, FunesError) else f"{error.strerror or error}."
        if damaged is not None or not derived.sound(folder):
            raise FunesError(
                f"The indexes of the memory in {folder} are missing or damaged, and cannot be made again: {reason}",
                "Make that folder writable and have room on its disk, or read a copy of it: "
                '`funes recall --memory COPY "…"`.',
            ) from error
        return f"The memory could not be brought up to date: {reason} These are from what was there before."
    return ""


def _catch_up(folder: Path, damaged: DerivedDamagedError | None, said: list[str]) -> None:
    from funes_mcp.memory.writer import MemoryWriter

    lock = WriterLock(folder)
    deadline = time.monotonic() + _PATIENCE
    while not lock.acquire():
        # A writer is at work: what it has committed can be read, and it will bring the rest in line.
        if damaged is None and derived.sound(folder):
            return
        if time.monotonic() > deadline:
            raise MemoryBusyError("The memory is being built by another process.", "Try again in a moment.")
        time.sleep(0.05)
    with lock:
        if damaged is not None and (sentence := put_away(damaged)):
            said.append(sentence)
        with MemoryWriter.open(folder, ChunkTable.open(folder).embedding) as writer:
            said += writer.mended


def _stamp(folder: Path) -> str:
    try:
        return (folder / _INDEX_STAMP).read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _node(turn: str, seq: int, facts: TurnFacts) -> Node:
    return Node(turn, facts.parent, seq, facts.ts, facts.role, facts.message_id, facts.flags, facts.kinds)


def _blocks(rows: Sequence[Chunk]) -> list[str]:
    """The whole texts of a turn's blocks, from its rows."""
    pieces: dict[int, list[Chunk]] = {}
    for row in rows:
        pieces.setdefault(row.block_idx, []).append(row)
    return [
        stitch([row.text for row in sorted(group, key=lambda row: row.split_idx)])
        for _, group in sorted(pieces.items())
    ]


def is_memory(folder: Path) -> bool:
    """Whether `folder` holds a memory's table."""
    return table_version(folder / f"{NAME}.lance") is not None
