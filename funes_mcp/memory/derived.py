"""Bring the read indexes (words and vectors) in line with the table, whatever state they are in.

Both can be deleted at any time, and what is damaged is. What is missing or left over is found by comparing ids, so an
interrupted build goes on where it stopped: a mark beside an index that is made from nothing says until its end that it
is unfinished.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from funes_mcp.errors import DerivedDamagedError, MemoryDamagedError
from funes_mcp.home import private_folder, write_private
from funes_mcp.memory import dense, lexical
from funes_mcp.memory.conversation import in_order
from funes_mcp.memory.model import Chunk, Embedding
from funes_mcp.memory.packing import Entry
from funes_mcp.memory.table import RowPlace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEXICAL: Final = "lexical"
DENSE: Final = "dense"

#: Stands for the model of a table without vectors.
NO_MODEL: Final = "none"

_GROUP: Final = 10_000


def discard_damaged(folder: Path) -> list[str]:
    """Remove the indexes of the memory in `folder` that are damaged. Returns a sentence about each.

    Raises:
        OSError: One cannot be removed.
    """
    said = []
    for name, damage in ((LEXICAL, lexical.damage), (DENSE, dense.damage)):
        if wrong := damage(folder / name):
            shutil.rmtree(folder / name)
            said.append(made_again(name, wrong))
    return said


def made_again(name: str, wrong: str = "") -> str:
    """A sentence about an index that was damaged, `wrong` says how."""
    what = {LEXICAL: "word index", DENSE: "vector index"}[name]
    how = f" ({wrong})" if wrong else ""
    return f"The {what} was damaged{how} and was made again from the table; no passage was lost."


def sound(folder: Path) -> bool:
    """Whether both indexes of the memory in `folder` are there and whole, as far as a short look shows."""
    words, vectors = folder / LEXICAL, folder / DENSE
    return (
        not unfinished(folder)
        and lexical.exists(words)
        and not lexical.damage(words)
        and dense.embedding_of(vectors) is not None
        and not dense.damage(vectors)
    )


def unfinished(folder: Path) -> bool:
    """Whether the making of an index of the memory in `folder` was cut off, or goes on now."""
    return any(_mark(folder / name).exists() for name in (LEXICAL, DENSE))


def _mark(index: Path) -> Path:
    return index.with_name(f"{index.name}.unfinished")


@contextmanager
def _finishing(index: Path, *, begun: bool) -> Iterator[None]:
    """Mark an index as unfinished while it is made, when nothing of it was there; taken away after the end alone."""
    mark = _mark(index)
    if not begun:
        private_folder(index.parent)
        write_private(mark, b"")
    yield
    mark.unlink(missing_ok=True)


@contextmanager
def private_files() -> Iterator[None]:
    """Whatever is made inside, by native code too, is readable by its owner only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


class Rows(Protocol):
    """What the indexes are made from: a `ChunkTable`, or what stands for one."""

    @property
    def embedding(self) -> Embedding: ...

    def places(self) -> Iterator[RowPlace]: ...

    def stream(self, ids: Iterable[str] | None = None) -> Iterator[list[Chunk]]: ...

    def ids(self) -> dict[str, bool]: ...

    def vectors(self, ids: Iterable[str] | None = None) -> Iterator[tuple[list[str], NDArray[np.float32]]]: ...


def catch_up(
    table: Rows,
    folder: Path,
    *,
    everything: bool = False,
    told: Callable[[int, int], None] | None = None,
    group: int = _GROUP,
) -> int:
    """Make `folder`'s indexes say what the table says. Returns how many documents had to be written.

    Args:
        table: The truth.
        folder: Holds `lexical/` and `dense/`; they are made when missing.
        everything: Build both from nothing.
        told: Called with rows done and rows to do.
        group: How many rows are written at a time.
    """
    return catch_up_words(table, folder / LEXICAL, everything=everything, told=told, group=group) + catch_up_vectors(
        table, folder / DENSE, everything=everything
    )


def catch_up_words(
    table: Rows,
    folder: Path,
    *,
    everything: bool = False,
    told: Callable[[int, int], None] | None = None,
    group: int = _GROUP,
) -> int:
    """The word index's half of `catch_up`. One that turns out to be damaged is made anew."""
    if not everything and lexical.exists(folder) and not lexical.damage(folder):
        with suppress(DerivedDamagedError), _finishing(folder, begun=True):
            return _caught_up_words(table, folder, told, group)
    with _finishing(folder, begun=False):
        shutil.rmtree(folder, ignore_errors=True)
        return _caught_up_words(table, folder, told, group)


def _caught_up_words(table: Rows, folder: Path, told: Callable[[int, int], None] | None, group: int) -> int:
    places = list(table.places())
    wanted = {place.key for place in places}
    writer = lexical.LexicalWriter(folder, bulk=len(places) > 2_000)
    try:
        writer.commit()
        have = lexical.LexicalReader(folder).keys()
        sessions: dict[str, list[RowPlace]] = {}
        for place in places:
            sessions.setdefault(place.session_id, []).append(place)
        # A row that comes or goes changes its neighbours' documents too: take its whole session again.
        stale = {name for name, group in sessions.items() if any(place.key not in have for place in group)}
        gone = have - wanted
        if gone:
            reader = lexical.LexicalReader(folder)
            left = reader.rows(sorted(gone))
            stale.update(chunk.session_id for chunk in left.values() if chunk.session_id in sessions)
            writer.delete(gone)
        total = sum(len(sessions[name]) for name in stale)
        done = 0
        if told is not None and total:
            told(done, total)
        for parts in _groups([_sorted(sessions[name]) for name in sorted(stale)], group):
            rows = _rows(table, [place for part in parts for place in part])
            writer.delete(place.key for part in parts for place in part if place.key in have)
            # All at once: the first call with enough rows is what the dictionary is trained on.
            writer.add(
                entry for part in parts for entry in entries([rows[place.key] for place in part if place.key in rows])
            )
            writer.commit()
            done += sum(map(len, parts))
            if told is not None:
                told(done, total)
        writer.commit()
        return total
    finally:
        writer.close()


def rebuild_words(table: Rows, folder: Path, *, told: Callable[[int, int], None] | None = None) -> None:
    """Make the word index in `folder` again from the table, so that no file of the old one is left.

    It is made beside the old one and takes its place in the end. What a process that was killed here has left
    is put right when the memory is next opened.
    """
    fresh, stale = (folder.with_name(folder.name + suffix) for suffix in (".new", ".old"))
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    catch_up_words(table, fresh, everything=True, told=told)
    if folder.exists():
        os.rename(folder, stale)
    os.rename(fresh, folder)
    shutil.rmtree(stale, ignore_errors=True)


def catch_up_vectors(table: Rows, folder: Path, *, everything: bool = False, renewed: bool = False) -> int:
    """The vectors' half of `catch_up`. With `renewed` all are taken anew, and the old ones answer until then."""
    with _finishing(folder, begun=not everything and dense.embedding_of(folder) is not None):
        if everything:
            shutil.rmtree(folder, ignore_errors=True)
        return _caught_up_vectors(table, folder, renewed)


def _caught_up_vectors(table: Rows, folder: Path, renewed: bool) -> int:
    embedding = table.embedding if table.embedding.width else Embedding(NO_MODEL, 1)
    # Vectors of another model answer until all of these are there.
    other = renewed or dense.embedding_of(folder) not in (None, embedding)
    writer = dense.DenseWriter(folder, embedding, fresh=renewed)
    try:
        have = writer.keys()
    except (MemoryDamagedError, OSError):
        write_private(_mark(folder), b"")
        shutil.rmtree(folder, ignore_errors=True)
        writer = dense.DenseWriter(folder, embedding)
        have = set()
    filled = {int(name, 16) for name, full in table.ids().items() if full} if table.embedding.width else set()
    writer.delete(have - filled)
    missing = sorted(filled - have)
    for start in range(0, len(missing), _GROUP):
        names = [f"{key:016x}" for key in missing[start : start + _GROUP]]
        rows = {chunk.id: chunk for part in table.stream(names) for chunk in part}
        for ids, vectors in table.vectors(names):
            here = [place for place, name in enumerate(ids) if name in rows]
            writer.add([rows[ids[place]] for place in here], vectors[here])
        if other:
            writer.flush()
        else:
            writer.commit()
    if other:
        writer.flush()
    writer.commit()
    return len(missing)


def entries(chunks: Sequence[Chunk]) -> Iterator[Entry]:
    """The chunks of one session, in order, each with its neighbours' texts."""
    for place, chunk in enumerate(chunks):
        before = chunks[place - 1].text if place else ""
        after = chunks[place + 1].text if place + 1 < len(chunks) else ""
        yield Entry(chunk, before, after)


def _sorted(places: Iterable[RowPlace]) -> list[RowPlace]:
    """The rows of a session in order."""
    pieces = sorted(places, key=lambda place: (place.block, place.split))
    return in_order(pieces, lambda place: (place.seq, place.turn), lambda place: place.ts)


def _groups(sessions: Iterable[list[RowPlace]], least: int) -> Iterator[list[list[RowPlace]]]:
    group: list[list[RowPlace]] = []
    size = 0
    for session in sessions:
        group.append(session)
        size += len(session)
        if size >= least:
            yield group
            group, size = [], 0
    if group:
        yield group


def _rows(table: Rows, places: Sequence[RowPlace]) -> dict[int, Chunk]:
    names = [f"{place.key:016x}" for place in places]
    return {chunk.key: chunk for part in table.stream(names) for chunk in part}
