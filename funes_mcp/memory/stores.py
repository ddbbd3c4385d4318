"""The table and the two indexes beside it, changed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.errors import FunesError
from funes_mcp.memory import dense, derived, lexical
from funes_mcp.memory.model import Chunk, Embedding
from funes_mcp.memory.packing import Entry
from funes_mcp.memory.plan import Plan
from funes_mcp.memory.rows import neighbours
from funes_mcp.memory.table import ChunkTable, table_path, table_version
from funes_mcp.memory.upgrade import SideVectors

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: So many new documents are given more threads and memory.
_BULK: Final = 2_000


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


class Stores:
    """The table of the memory in `folder`, its word index and its vectors. For one writer, who holds the lock.

    Nothing is opened before it is needed. When a method raises, the indexes may be behind the table: `repair` brings
    them in line.
    """

    def __init__(self, folder: Path, embedding: Embedding) -> None:
        self._folder = folder
        self._table: ChunkTable | None = None
        self._words: lexical.LexicalReader | None = None
        self._lexical: lexical.LexicalWriter | None = None
        self.embedding = embedding

    def close(self) -> None:
        """Let go of the files, after the word index has joined its segments."""
        if self._lexical is not None:
            self._lexical.close()
        self._lexical = self._words = None

    @property
    def version(self) -> int | None:
        """Of the table, or None when there is none yet."""
        return table_version(table_path(self._folder))

    @property
    def table(self) -> ChunkTable:
        """The table, made when there is none."""
        if self._table is None:
            self._table = ChunkTable.create(self._folder, self.embedding)
        return self._table

    def rows(self, names: Sequence[str]) -> dict[str, Chunk]:
        """Rows by their ids, as of the last commit: from the word index, and from the table what that does not hold."""
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
            found.update((row.id, row) for part in self.table.stream(lacking) for row in part)
        return found

    def write(self, plan: Plan, vectors: Mapping[int, NDArray[np.float32]]) -> Committed | None:
        """Carry a plan out: table, words, vectors. None when there is nothing to do.

        Args:
            vectors: Of the rows of messages, in order, float32 (rows, width).
        """
        if not plan.rows and not plan.old:
            return None
        table = self.table
        removed = plan.removed
        rows = list(plan.rows.values())
        had = {name for ids in plan.old.values() for name in ids.values()}
        found = self._vectors_for(plan, vectors)
        words = self._queue_words(plan, removed, had)  # they are cut into terms while the table is written
        replaced = [row for row in rows if row.id in had]
        fresh = [row for row in rows if row.id not in had]
        table.upsert(replaced, [found.get(row.id) for row in replaced])
        table.append(fresh, [found.get(row.id) for row in fresh])
        table.delete(sorted(removed))
        words.commit()
        self._write_vectors(rows, found, removed | had)
        SideVectors(self._folder).discard({int(name, 16) for name in removed | had})
        new = sum(1 for row in rows if not plan.old.get(plan.owner[row.id]))
        return Committed(
            stored=new,
            changed=len(rows) - new,
            removed=sum(len(plan.old[message]) for message in plan.gone),
            embedded=sum(1 for row in rows if plan.owner[row.id] in vectors),
        )

    def put_vectors(self, rows: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        """Give stored rows their vectors, float32 (rows, width)."""
        self.table.upsert(rows, list(vectors))
        writer = dense.DenseWriter(self._folder / derived.DENSE, self.embedding)
        writer.add(rows, vectors)
        writer.commit()

    def restamp(self, embedding: Embedding, vector_of: Callable[[str, str], NDArray[np.float32] | None]) -> None:
        """Give all rows another model's vectors; see `MemoryWriter.restamp`."""
        table = self.table.restamp(embedding, vector_of)
        derived.catch_up_vectors(table, self._folder / derived.DENSE, renewed=True)
        with suppress(FunesError):  # the old vectors' files; `maintain` tries again
            table.drop_versions()
        self._table, self.embedding = table, embedding

    def renew_indexes(self, told: Callable[[int, int], None] | None = None) -> None:
        """Write the indexes again, so that nothing which was removed is left in their files.

        Args:
            told: Called with rows done and rows to do.
        """
        self.close()
        derived.rebuild_words(self.table, self._folder / derived.LEXICAL, told=told)
        dense.DenseWriter(self._folder / derived.DENSE, self.embedding).purge()

    def _vectors_for(self, plan: Plan, vectors: Mapping[int, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
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
            texts = self.rows(list(set(kept.values())))
            stored = {
                name: matrix[place]
                for ids, matrix in self.table.vectors(sorted(set(kept.values())))
                for place, name in enumerate(ids)
            }
            for name, old in kept.items():
                if old in stored and old in texts and texts[old].text == plan.rows[name].text:
                    found[name] = stored[old]
        return found

    def _queue_words(self, plan: Plan, removed: set[str], had: set[str]) -> lexical.LexicalWriter:
        """Hand the documents that change to the word index, which is to be committed after the table."""
        rows = {row.key: row for row in plan.rows.values()}
        changed = set(rows)
        again: set[int] = set()
        beside: dict[int, tuple[int | None, int | None]] = {}
        order: dict[int, int] = {}
        for session, keys in plan.after.items():
            order.update((key, len(order)) for key in keys)
            earlier = neighbours(plan.before.get(session, []))
            for key, pair in neighbours(keys).items():
                beside[key] = pair
                if key in changed or earlier.get(key) != pair or not changed.isdisjoint(k for k in pair if k):
                    again.add(key)
        needed = again | {k for key in again for k in beside[key] if k is not None}
        others = self.rows([f"{key:016x}" for key in needed - rows.keys()])
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

        writer = dense.DenseWriter(self._folder / derived.DENSE, self.embedding)
        writer.delete(int(name, 16) for name in stale)
        filled = [row for row in rows if row.id in found]
        if filled:
            writer.add(filled, np.stack([found[row.id] for row in filled]).astype(np.float32, copy=False))
        writer.commit()
