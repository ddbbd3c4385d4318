"""The vectors of a memory as they are searched: derived from the table, quantised, append-only.

A segment is one file of arrays, mapped into memory and never changed: keys, times, types, a code for the
session, the vectors as int8 with one scale a row, and the signs of their components as bits. A manifest,
replaced in one step, names the segments and the rows in them that are dead. Segments of like size are merged,
so that their number grows with the logarithm of what was added.

A search over few rows computes every product. Over many it first ranks by the number of signs that agree with
the question's and computes products for the best few thousand.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from funes_mcp.errors import DerivedDamagedError, FunesError, MemoryDamagedError
from funes_mcp.home import private_folder, write_private
from funes_mcp.memory.lexical import Found, hashed, kind_code, project_names, projects, storage_error
from funes_mcp.memory.model import Chunk, Embedding, Filter, Scored
from funes_mcp.memory.times import UNDATED, millis

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Raised whenever the files change shape: vectors of another version are taken from the table again.
VERSION: Final = 1

#: Up to so many rows every product is computed.
EXACT: Final = 20_000

#: So many rows with the best signs are compared exactly, or this many times the limit.
SHORTLIST: Final = 4_000
SHORTLIST_FACTOR: Final = 20

_MANIFEST: Final = "manifest.json"
_MAGIC: Final = b"funesvec"
_ALIGN: Final = 64
_TIER: Final = 6
_SMALLEST_TIER: Final = 256
_DEAD_SHARE: Final = 0.25
#: A writer may replace files between two looks.
_LOOKS: Final = 5
_ARRAYS: Final = ("keys", "ts", "session", "kind", "scale", "vectors", "bits")


@dataclass(slots=True)
class _SegmentState:
    name: str
    rows: int
    dead: list[int] = field(default_factory=list)

    def misfits(self, rows: int) -> bool:
        """Whether this cannot be said of a segment with so many rows."""
        return rows != self.rows or (bool(self.dead) and not 0 <= min(self.dead) <= max(self.dead) < rows)


@dataclass(slots=True)
class _Manifest:
    model: str
    width: int
    next: int = 1
    segments: list[_SegmentState] = field(default_factory=list)

    @property
    def alive(self) -> int:
        return sum(segment.rows - len(segment.dead) for segment in self.segments)


@dataclass(frozen=True, slots=True)
class _Session:
    """What filters ask of a session: the hash of its id, its harness, the names of its project."""

    hash: int
    harness: str
    projects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows as arrays of equal length: `keys` u64, `ts` i64 (milliseconds), `session` u32 (index into
    `sessions`), `kind` u8, `scale` f32, `vectors` i8 (n, width), `bits` u64 (n, ceil(width / 64))."""

    keys: NDArray[np.uint64]
    ts: NDArray[np.int64]
    session: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    scale: NDArray[np.float32]
    vectors: NDArray[np.int8]
    bits: NDArray[np.uint64]
    sessions: tuple[_Session, ...]


def embedding_of(folder: Path) -> Embedding | None:
    """The stamp of the vectors in a folder, or None when there are none of this version."""
    try:
        manifest = _read_manifest(folder)
    except (OSError, MemoryDamagedError):
        return None
    return Embedding(manifest.model, manifest.width)


def stamp_of(folder: Path) -> tuple[int, int, int]:
    """Tells apart the commits of the vectors in a folder. Raises `OSError`."""
    stat = (folder / _MANIFEST).stat()
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def damage(folder: Path) -> str:
    """What is wrong with the vectors of this version in a folder, in a few words; "" for nothing.

    Those that are missing, or of another version, are not damaged. Reads the beginnings of the files.
    """
    found = ""
    for _ in range(_LOOKS):
        try:
            manifest = _read_manifest(folder)
        except (OSError, _OtherVersionError):
            return ""
        except MemoryDamagedError:
            return f"{_MANIFEST} cannot be read"
        for state in manifest.segments:
            try:
                _check_segment(folder / state.name, state, manifest.width)
            except FileNotFoundError:  # it may have been merged away between the two reads
                found = f"{state.name} is missing"
                break
            except DerivedDamagedError:
                return f"{state.name} is not what was written"
            except OSError:
                return ""
        else:
            return ""
    return found


class DenseWriter:
    """Adds vectors to and takes them out of the files in `folder`, which are made when missing."""

    def __init__(self, folder: Path, embedding: Embedding, *, fresh: bool = False) -> None:
        """With `fresh`, or when those in `folder` are another model's, the first commit replaces all that is there."""
        self._folder = folder
        private_folder(folder)
        try:
            manifest = _read_manifest(folder)
        except (OSError, MemoryDamagedError):
            manifest = None
        if manifest is None:
            manifest = _Manifest(embedding.model, embedding.width)
        elif fresh or (manifest.model, manifest.width) != (embedding.model, embedding.width):
            # Those of another model are read until the first commit, so no file may take the name of one of theirs.
            manifest = _Manifest(embedding.model, embedding.width, manifest.next)
        self._manifest = manifest
        self._added: list[_Rows] = []
        self._dead: set[int] = set()
        self._flushed = False

    def keys(self) -> set[int]:
        """The keys that have a vector."""
        found: set[int] = set()
        for state in self._manifest.segments:
            keys = _load(self._folder / state.name).keys.tolist()
            for position in sorted(state.dead, reverse=True):
                del keys[position]
            found.update(keys)
        return found

    def add(self, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        """Queue vectors, float32 (n, width), unit length, in the order of `chunks`. Replaces older ones."""
        if len(chunks) != len(vectors):
            raise ValueError("one vector for each chunk")
        if chunks:
            self._dead.update(chunk.key for chunk in chunks)
            self._added.append(_rows_of(chunks, vectors, self._manifest.width))

    def delete(self, keys: Iterable[int]) -> None:
        """Queue the removal of vectors that are stored; of those queued by `add`, none."""
        self._dead.update(keys)

    def flush(self) -> None:
        """Write what is queued without showing it: `commit` does. Raises `FunesError` when that fails (a full disk)."""
        try:
            self._bury()
            if self._added:
                self._append(_joined(self._added))
        except OSError as error:
            raise storage_error("The vectors could not be written", error) from error
        self._added.clear()
        self._dead.clear()
        self._flushed = True

    def commit(self) -> None:
        """Make what is queued durable and visible. Raises `FunesError` when that fails (a full disk)."""
        if not self._added and not self._dead and not self._flushed:
            if not (self._folder / _MANIFEST).exists():
                self._save()
            return
        try:
            self._bury()
            if self._added:
                self._append(_joined(self._added))
            while self._merge_once():
                pass
            self._save()
        except OSError as error:
            raise storage_error("The vectors could not be written", error) from error
        self._added.clear()
        self._dead.clear()
        self._flushed = False
        self._sweep()

    def purge(self) -> None:
        """Write every segment with dead rows again, so that these are gone from the disk. Raises `FunesError`."""
        try:
            for state in [state for state in self._manifest.segments if state.dead]:
                if len(state.dead) == state.rows:
                    self._manifest.segments.remove(state)
                else:
                    self._rewrite([state])
            self._save()
        except OSError as error:
            raise storage_error("The vectors could not be written", error) from error
        self._sweep()

    def _bury(self) -> None:
        import numpy as np

        if not self._dead:
            return
        dead = np.fromiter(self._dead, np.uint64, len(self._dead))
        for state in self._manifest.segments:
            hit = np.flatnonzero(np.isin(_load(self._folder / state.name).keys, dead))
            if len(hit):
                state.dead = sorted(set(state.dead).union(hit.tolist()))

    def _append(self, rows: _Rows) -> None:
        name = f"{self._manifest.next:08d}.seg"
        _store(self._folder / name, rows)
        self._manifest.next += 1
        self._manifest.segments.append(_SegmentState(name, len(rows.keys)))

    def _merge_once(self) -> bool:
        """Merge one tier that is full, or rewrite a segment with many dead rows. False when all is well."""
        tiers: dict[int, list[_SegmentState]] = {}
        for state in self._manifest.segments:
            if len(state.dead) == state.rows:
                self._manifest.segments.remove(state)
                return True
            if len(state.dead) > _DEAD_SHARE * state.rows and len(state.dead) > 64:
                return self._rewrite([state])
            tier = 0
            while state.rows > _SMALLEST_TIER * _TIER**tier:
                tier += 1
            tiers.setdefault(tier, []).append(state)
        for states in tiers.values():
            if len(states) >= _TIER:
                return self._rewrite(states)
        return False

    def _rewrite(self, states: list[_SegmentState]) -> bool:
        alive = [_alive(_load(self._folder / state.name), state.dead) for state in states]
        self._append(_joined(alive))
        names = {state.name for state in states}
        self._manifest.segments = [s for s in self._manifest.segments if s.name not in names]
        return True

    def _save(self) -> None:
        manifest = self._manifest
        data = {
            "version": VERSION,
            "model": manifest.model,
            "width": manifest.width,
            "next": manifest.next,
            "segments": [{"name": s.name, "rows": s.rows, "dead": s.dead} for s in manifest.segments],
        }
        write_private(self._folder / _MANIFEST, json.dumps(data).encode())

    def _sweep(self) -> None:
        """Remove files that no manifest names: merged segments, and what a killed writer left."""
        named = {state.name for state in self._manifest.segments}
        for path in self._folder.glob("*.seg"):
            if path.name not in named:
                with suppress(OSError):
                    path.unlink()


class _OtherVersionError(MemoryDamagedError):
    """The files are those of another version of funes."""


class DenseReader:
    """Searches the vectors in `folder`. Sees a commit after `refresh`.

    Raises:
        DerivedDamagedError: The files there are not those of this version.
        FunesError: They cannot be got at.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp: tuple[int, int, int] | None = None
        self._segments: dict[str, _Rows] = {}
        self._parts: list[tuple[_Rows, Any]] = []
        self._order: Any = None
        self._manifest = _Manifest("", 0)
        self.refresh()

    @property
    def embedding(self) -> Embedding:
        """The stamp of the vectors."""
        return Embedding(self._manifest.model, self._manifest.width)

    @property
    def stamp(self) -> tuple[int, int, int] | None:
        """Which commit is read, as `stamp_of` says it; None before the first."""
        return self._stamp

    @property
    def size(self) -> int:
        """How many chunks have a vector."""
        return self._manifest.alive

    def keys(self) -> set[int]:
        """The keys of all chunks that have a vector."""
        found: set[int] = set()
        for rows, alive in self._parts:
            found.update((rows.keys if alive is None else rows.keys[alive]).tolist())
        return found

    def refresh(self) -> bool:
        """Look at the newest commit. False when there is none since the last look."""
        signature = self._signature()
        if signature == self._stamp:
            return False
        for attempt in range(_LOOKS):
            try:
                manifest = _read_manifest(self._folder)
                self._segments = {
                    state.name: self._segments.get(state.name) or _load(self._folder / state.name)
                    for state in manifest.segments
                }
                break
            except FileNotFoundError as error:  # merged away between the two reads
                if attempt == _LOOKS - 1:
                    raise DerivedDamagedError(self._folder, "a file of it is missing") from error
            except OSError as error:
                raise FunesError(f"The vectors in {self._folder} cannot be read: {error.strerror or error}.") from error
        for state in manifest.segments:
            if state.misfits(len(self._segments[state.name].keys)):
                raise DerivedDamagedError(self._folder, f"{state.name} is not what was written")
        self._manifest = manifest
        self._parts = [(self._segments[s.name], _mask(s)) for s in manifest.segments]
        self._order = None
        self._stamp = signature
        return True

    def search(self, vector: NDArray[np.float32], where: Filter, limit: int) -> list[tuple[Scored, Found]]:
        """The chunks whose vectors point most in the direction of `vector`, float32 (width,), best first.

        The score is the cosine, to the precision of int8. Ties go to the newer, then to the lower key.
        """
        import numpy as np

        if vector.shape != (self._manifest.width,):
            raise FunesError(
                f"The question's vector has {vector.size} numbers, this memory's have {self._manifest.width}."
            )
        norm = float(np.linalg.norm(vector))
        if limit <= 0 or not norm > 0.0:
            return []
        try:
            return self._search((vector / norm).astype(np.float32), where, limit)
        except (IndexError, ValueError) as error:  # numbers that lead out of the arrays
            raise DerivedDamagedError(self._folder, "it holds numbers that were not written") from error

    def _search(self, unit: NDArray[np.float32], where: Filter, limit: int) -> list[tuple[Scored, Found]]:
        import numpy as np

        allowed = [(rows, self._allowed(rows, alive, where)) for rows, alive in self._parts]
        chosen = self._chosen(unit, allowed, limit)
        scores, keys, ts, sessions, kinds = [], [], [], [], []
        for rows, picked in chosen:
            if len(picked) == 0:
                continue
            for start in range(0, len(picked), 8192):
                block = picked[start : start + 8192]
                scores.append((rows.vectors[block].astype(np.float32) @ unit) * rows.scale[block])
            keys.append(rows.keys[picked])
            ts.append(rows.ts[picked])
            hashes = np.array([s.hash for s in rows.sessions], np.uint64)
            sessions.append(hashes[rows.session[picked]])
            kinds.append(rows.kind[picked])
        if not scores:
            return []
        score, key, when = np.concatenate(scores), np.concatenate(keys), np.concatenate(ts)
        session, kind = np.concatenate(sessions), np.concatenate(kinds)
        best = np.lexsort((key, -when, -score))[:limit]
        return [
            (Scored(int(key[i]), float(score[i])), Found(int(session[i]), int(when[i]), int(kind[i]))) for i in best
        ]

    def vectors(self, keys: Sequence[int]) -> NDArray[np.float32]:
        """The vectors of chunks, float32 (n, width), to the precision of int8; zeros where there is none."""
        import numpy as np

        out = np.zeros((len(keys), self._manifest.width), np.float32)
        for (rows, _), (places, at) in zip(self._parts, self._places(keys), strict=True):
            out[places] = rows.vectors[at].astype(np.float32) * rows.scale[at, None]
        return out

    def _places(self, keys: Sequence[int]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Where the vectors of those keys are: for each part positions in `keys`, and the rows of these."""
        import numpy as np

        if self._order is None:
            self._order = [np.argsort(rows.keys) for rows, _ in self._parts]
        wanted = np.array(keys, np.uint64)
        found = []
        for (rows, alive), order in zip(self._parts, self._order, strict=True):
            at = np.searchsorted(rows.keys, wanted, sorter=order)
            at = np.minimum(at, len(order) - 1)
            row = order[at]
            hit = (rows.keys[row] == wanted) if alive is None else (rows.keys[row] == wanted) & alive[row]
            places = np.flatnonzero(hit)
            found.append((places, row[places]))
        return found

    def _signature(self) -> tuple[int, int, int]:
        try:
            return stamp_of(self._folder)
        except FileNotFoundError as error:
            raise DerivedDamagedError(self._folder, "there are no vectors") from error
        except OSError as error:
            raise FunesError(f"The vectors in {self._folder} cannot be read: {error.strerror or error}.") from error

    def _allowed(self, rows: _Rows, alive: Any, where: Filter) -> Any:
        """A mask of the rows that a filter lets through, or None when it is all of them."""
        import numpy as np

        mask = alive
        if where.session_id is not None or where.harness is not None or where.project is not None:
            wanted = None if where.session_id is None else hashed(where.session_id)
            names = None if where.project is None else set(project_names(where.project))
            passes = np.array(
                [
                    (wanted is None or s.hash == wanted)
                    and (where.harness is None or s.harness == where.harness)
                    and (names is None or not names.isdisjoint(s.projects))
                    for s in rows.sessions
                ],
                bool,
            )
            mask = passes[rows.session] if mask is None else mask & passes[rows.session]
        if where.block_type is not None:
            same = rows.kind == kind_code(where.block_type)
            mask = same if mask is None else mask & same
        if where.since is not None or where.until is not None:
            inside = rows.ts > UNDATED
            if where.since is not None:
                inside &= rows.ts >= where.since
            if where.until is not None:
                inside &= rows.ts < where.until
            mask = inside if mask is None else mask & inside
        return mask

    def _chosen(self, unit: Any, allowed: list[tuple[_Rows, Any]], limit: int) -> list[tuple[_Rows, Any]]:
        """The rows whose products are computed: all, or those with the best signs over all segments."""
        import numpy as np

        total = sum(len(rows.keys) if mask is None else int(np.count_nonzero(mask)) for rows, mask in allowed)
        if total <= EXACT:
            return [
                (rows, np.arange(len(rows.keys)) if mask is None else np.flatnonzero(mask)) for rows, mask in allowed
            ]
        keep = max(SHORTLIST, SHORTLIST_FACTOR * limit)
        asked = _signs(unit[None, :])[0]
        far = np.uint16(0xFFFF)
        distances = []
        for rows, mask in allowed:
            apart = np.zeros(len(rows.keys), np.uint16)
            for column, word in enumerate(asked):
                apart += np.bitwise_count(rows.bits[:, column] ^ word)
            if mask is not None:
                apart[~mask] = far
            distances.append(apart)
        every = np.concatenate(distances)
        if keep < len(every):
            # A count over the few possible distances, instead of a partition of all rows.
            counts = np.cumsum(np.bincount(every[every < far], minlength=1))
            cut = int(np.searchsorted(counts, keep))
        else:
            cut = int(far) - 1
        return [(rows, np.flatnonzero(apart <= cut)) for (rows, _), apart in zip(allowed, distances, strict=True)]


def _mask(state: _SegmentState) -> Any:
    """Which rows of a segment are alive, or None when all are."""
    import numpy as np

    if not state.dead:
        return None
    alive = np.ones(state.rows, bool)
    alive[state.dead] = False
    return alive


def _signs(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """The signs of the components as bits, uint64 (n, ceil(width / 64)), padded with zero bits."""
    import numpy as np

    packed = np.packbits(vectors > 0, axis=1)
    missing = -packed.shape[1] % 8
    if missing:
        packed = np.pad(packed, ((0, 0), (0, missing)))
    return np.ascontiguousarray(packed).view(np.uint64)


def _rows_of(chunks: Sequence[Chunk], vectors: NDArray[np.float32], width: int) -> _Rows:
    import numpy as np

    vectors = np.nan_to_num(np.asarray(vectors, np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    if vectors.ndim != 2 or vectors.shape[1] != width:
        raise FunesError(f"The model gave vectors of shape {vectors.shape}, this memory's have {width} numbers.")
    peak = np.abs(vectors).max(axis=1)
    scale = np.where(peak > 0, peak / 127.0, 1.0).astype(np.float32)
    quantised = np.rint(vectors / scale[:, None]).astype(np.int8)
    told: dict[tuple[str, ...], int] = {}
    sessions: dict[_Session, int] = {}
    codes = np.empty(len(chunks), np.uint32)
    for place, chunk in enumerate(chunks):
        facts = (chunk.session_id, chunk.harness, chunk.repo, chunk.cwd or "", chunk.workdir)
        code = told.get(facts)
        if code is None:
            session = _Session(hashed(chunk.session_id), chunk.harness, projects(chunk.repo, chunk.cwd, chunk.workdir))
            code = told[facts] = sessions.setdefault(session, len(sessions))
        codes[place] = code
    return _Rows(
        keys=np.array([chunk.key for chunk in chunks], np.uint64),
        ts=np.array([millis(chunk.ts) for chunk in chunks], np.int64),
        session=codes,
        kind=np.array([kind_code(chunk.block_type) for chunk in chunks], np.uint8),
        scale=scale,
        vectors=quantised,
        bits=_signs(vectors),
        sessions=tuple(sessions),
    )


def _joined(parts: list[_Rows]) -> _Rows:
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    sessions: dict[_Session, int] = {}
    codes = []
    for part in parts:
        table = np.array([sessions.setdefault(s, len(sessions)) for s in part.sessions], np.uint32)
        codes.append(table[part.session] if len(table) else part.session)
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS if name != "session"}
    return _Rows(session=np.concatenate(codes), sessions=tuple(sessions), **columns)


def _alive(rows: _Rows, dead: list[int]) -> _Rows:
    import numpy as np

    if not dead:
        return rows
    keep = np.ones(len(rows.keys), bool)
    keep[dead] = False
    return _Rows(sessions=rows.sessions, **{name: getattr(rows, name)[keep] for name in _ARRAYS})


def _store(path: Path, rows: _Rows) -> None:
    import numpy as np

    arrays = {name: np.ascontiguousarray(getattr(rows, name)) for name in _ARRAYS}
    layout: dict[str, list[Any]] = {}
    offset = 0
    for name, array in arrays.items():
        layout[name] = [array.dtype.str, list(array.shape), offset]
        offset += -(-array.nbytes // _ALIGN) * _ALIGN
    sessions = [[s.hash, s.harness, list(s.projects)] for s in rows.sessions]
    head = json.dumps({"arrays": layout, "sessions": sessions}).encode()
    lead = _MAGIC + len(head).to_bytes(8, "little") + head
    data = bytearray(lead + b"\0" * (-len(lead) % _ALIGN))
    for array in arrays.values():
        data += array.tobytes()
        data += b"\0" * (-len(data) % _ALIGN)
    write_private(path, bytes(data))


def _load(path: Path) -> _Rows:
    """A segment, its arrays mapped. Raises `FileNotFoundError`, or `DerivedDamagedError` for a broken file."""
    import numpy as np

    try:
        whole: Any = np.memmap(path, np.uint8, "r")
        if whole[:8].tobytes() != _MAGIC:
            raise ValueError("not a segment")
        length = int.from_bytes(whole[8:16].tobytes(), "little")
        head = json.loads(whole[16 : 16 + length].tobytes())
        start = -(-(16 + length) // _ALIGN) * _ALIGN
        columns: dict[str, Any] = {}
        for name in _ARRAYS:
            kind, shape, offset = head["arrays"][name]
            dtype = np.dtype(kind)
            size = int(np.prod(shape)) * dtype.itemsize
            raw = whole[start + offset : start + offset + size]
            columns[name] = np.asarray(raw.view(dtype).reshape(shape))
        sessions = tuple(_Session(int(h), str(n), tuple(map(str, p))) for h, n, p in head["sessions"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DerivedDamagedError(path.parent, f"{path.name} is not what was written") from error
    return _Rows(sessions=sessions, **columns)


def _check_segment(path: Path, state: _SegmentState, width: int) -> None:
    """Whether a segment is as long as it says, and says what the manifest does.

    Raises `FileNotFoundError`, or `DerivedDamagedError`.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            lead = file.read(16)
            length = int.from_bytes(lead[8:], "little")
            if lead[:8] != _MAGIC or length > size:
                raise ValueError("not a segment")
            head = json.loads(file.read(length))
        start = -(-(16 + length) // _ALIGN) * _ALIGN
        for name in _ARRAYS:
            kind, shape, offset = head["arrays"][name]
            if start + offset + math.prod(shape) * int(kind[2:]) > size or state.misfits(shape[0]):
                raise ValueError(name)
        if head["arrays"]["vectors"][1][1] != width:
            raise ValueError("vectors")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DerivedDamagedError(path.parent, f"{path.name} is not what was written") from error


def _read_manifest(folder: Path) -> _Manifest:
    try:
        data = json.loads((folder / _MANIFEST).read_bytes())
        if data["version"] != VERSION:
            raise _OtherVersionError(f"{folder / _MANIFEST} was made by another version of funes.")
        return _Manifest(
            model=str(data["model"]),
            width=int(data["width"]),
            next=int(data["next"]),
            segments=[
                _SegmentState(Path(str(s["name"])).name, int(s["rows"]), [int(p) for p in s["dead"]])
                for s in data["segments"]
            ],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DerivedDamagedError(folder, f"{_MANIFEST} cannot be read") from error
