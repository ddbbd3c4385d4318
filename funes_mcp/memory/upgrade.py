"""Vectors of another model, collected beside a memory until there are enough to take the place of its own.

A memory is moved from one model to another by embedding every stored text again. That may take hours and may be
cut off anywhere, so what is done is kept in files of its own, and the memory answers with its old vectors meanwhile.
At the end the table is written once more with the new vectors and the new stamp, in one version; the vectors that
are searched follow in one step. What was stored or changed in between has no new vector then and gets one later.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.home import private_folder, write_private
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.times import millis

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from funes_mcp.memory.table import ChunkTable

FOLDER: Final = "upgrade"
_PLAN: Final = "plan.json"
_SUFFIX: Final = ".vec"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a memory is on its way to: the new stamp, and the revision of that model."""

    embedding: Embedding
    revision: str


class SideVectors:
    """The plan of the memory in a folder and what is done of it. Reading takes no lock; one process may `put`."""

    def __init__(self, memory: Path) -> None:
        self.folder = memory / FOLDER

    def plan(self) -> Plan | None:
        """What was begun, if anything."""
        try:
            value = json.loads((self.folder / _PLAN).read_bytes())
            return Plan(Embedding(str(value["model"]), int(value["width"])), str(value["revision"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(self, plan: Plan) -> None:
        """Begin, or go on when the same was begun; what was done of another plan is dropped. Raises `OSError`."""
        if self.plan() == plan:
            return
        self.drop()
        private_folder(self.folder)
        data = {"model": plan.embedding.model, "width": plan.embedding.width, "revision": plan.revision}
        write_private(self.folder / _PLAN, json.dumps(data).encode())

    def drop(self) -> None:
        """Give up, or clear away after the end. The plan goes first, so that it is never taken for one half done."""
        with suppress(OSError):
            (self.folder / _PLAN).unlink()
        for path in self._files():
            with suppress(OSError):
                path.unlink()

    def remove(self) -> None:
        """Drop everything, the folder too."""
        self.drop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def done(self) -> int:
        """How many vectors there are, from the names of the files alone."""
        return sum(_count(path) for path in self._files())

    def keys(self) -> set[int]:
        """The rows that have a vector here."""
        found: set[int] = set()
        for path in self._files():
            keys = _load(path)
            if keys is not None:
                found.update(keys[0].tolist())
        return found

    def put(self, keys: Sequence[int], texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        """Keep vectors, float32 (n, width), of rows with those texts, durably. Raises `OSError`."""
        import numpy as np

        if not keys:
            return
        last = max((int(path.name[:8]) for path in self._files()), default=0)
        data = io.BytesIO()
        np.save(data, np.array(keys, np.uint64))
        np.save(data, np.array([digest(text) for text in texts], np.uint64))
        np.save(data, np.ascontiguousarray(vectors, np.float32))
        write_private(self.folder / f"{last + 1:08d}-{len(keys)}{_SUFFIX}", data.getvalue())

    def discard(self, keys: set[int]) -> None:
        """Take the vectors of rows that are removed away, too. Raises `OSError`."""
        import numpy as np

        for path in self._files() if keys else ():
            part = _load(path)
            if part is None:
                continue
            kept = ~np.isin(part[0], np.fromiter(keys, np.uint64, len(keys)))
            if kept.all():
                continue
            if kept.any():
                data = io.BytesIO()
                for array in part:
                    np.save(data, array[kept])
                write_private(path.with_name(f"{path.name[:8]}-{int(kept.sum())}{_SUFFIX}"), data.getvalue())
            path.unlink()

    def load(self) -> Lookup:
        """Everything that is here, to be looked up by row and text."""
        parts = [part for path in self._files() if (part := _load(path)) is not None]
        return Lookup(parts)

    def missing(self, table: ChunkTable) -> list[str]:
        """Ids of the rows that have no vector here yet, newest first, undated ones last."""
        have = self.keys()
        waiting = [
            (millis(place.ts) if place.ts else -1, place.key) for place in table.places() if place.key not in have
        ]
        waiting.sort(reverse=True)
        return [f"{key:016x}" for _, key in waiting]

    def _files(self) -> list[Path]:
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return []
        return [self.folder / name for name in names if name.endswith(_SUFFIX) and name[:8].isdigit()]


class Lookup:
    """Vectors by row; a row whose text is another than the one that was embedded has none."""

    def __init__(self, parts: Sequence[tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.float32]]]) -> None:
        self._parts = parts
        self._at = {
            int(key): (part, row) for part, (keys, _, _) in enumerate(parts) for row, key in enumerate(keys.tolist())
        }

    def __call__(self, name: str, text: str) -> NDArray[np.float32] | None:
        """The vector of the row with that id (16 hex digits), if its text is still the same."""
        found = self._at.get(int(name, 16))
        if found is None:
            return None
        _, digests, vectors = self._parts[found[0]]
        row: NDArray[np.float32] = vectors[found[1]]
        return row if int(digests[found[1]]) == digest(text) else None


def digest(text: str) -> int:
    """What a text is recognised by, 64 bits."""
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _count(path: Path) -> int:
    count = path.name[9 : -len(_SUFFIX)]
    return int(count) if count.isdigit() else 0


def _load(path: Path) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.float32]] | None:
    """A file's arrays, the vectors mapped; None for one that is damaged: its rows are embedded again."""
    import numpy as np

    try:
        with open(path, "rb") as file:
            keys = np.load(file, allow_pickle=False)
            digests = np.load(file, allow_pickle=False)
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
            vectors = np.memmap(path, kind, "r", file.tell(), shape)
    except (OSError, ValueError, EOFError):
        with suppress(OSError):
            path.unlink()
        return None
    if not len(keys) == len(digests) == len(vectors):
        with suppress(OSError):
            path.unlink()
        return None
    return keys, digests, vectors
