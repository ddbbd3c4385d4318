"""Vectors that were made for a push, kept until it has arrived: one that is cut off or overtaken makes them once.

They lie in one file beside the stage, each after a digest of its text and a checksum, in the order in which they were
made. What a kill leaves half of at the end is cut off, and what does not fit its checksum is made anew.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from funes_mcp.home import private_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from funes_mcp.inference.protocols import Embedder

#: The file's name in the folder of a mirror.
FILE: Final = "vectors"

#: So many texts are embedded between two writes: what a kill can lose.
_AT_ONCE: Final = 256

_DIGEST: Final = 16
_SUM: Final = 4


class KeptVectors:
    """An embedder that remembers. Where nothing can be written it still embeds.

    Args:
        path: The file; it is made when the first text comes, and made anew when it is of another model.
        embedder: Makes what is not there yet.
    """

    def __init__(self, path: Path, embedder: Embedder) -> None:
        self._path = path
        self._embedder = embedder
        self._size = _DIGEST + _SUM + 4 * embedder.dim
        self._places: dict[bytes, int] = {}
        self._file: BinaryIO | None = None
        self._opened = False

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of texts, float32 (n, width)."""
        import numpy as np

        found = np.zeros((len(texts), self._embedder.dim), "<f4")
        for start in range(0, len(texts), _AT_ONCE):
            self._fill(texts[start : start + _AT_ONCE], found[start : start + _AT_ONCE])
        return found.astype(np.float32, copy=False)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _fill(self, texts: Sequence[str], into: NDArray[np.float32]) -> None:
        import numpy as np

        if not self._opened:
            self._opened = True
            with suppress(OSError):
                self._open()
        names = [_digest(text) for text in texts]
        lacking = []
        for row, name in enumerate(names):
            vector = self._read(name)
            if vector is None:
                lacking.append(row)
            else:
                into[row] = np.frombuffer(vector, "<f4")
        if lacking:
            into[lacking] = self._embedder.embed_passages([texts[row] for row in lacking])
            self._append([(names[row], into[row].tobytes()) for row in lacking])

    def _open(self) -> None:
        private_folder(self._path.parent)
        head = _digest(f"{self._embedder.name}\0{self._embedder.dim}")
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
        file = os.fdopen(descriptor, "r+b", buffering=0)
        if file.read(_DIGEST) != head:
            file.seek(0)
            file.truncate()
            file.write(head)
        count = (os.fstat(descriptor).st_size - _DIGEST) // self._size
        file.truncate(self._place(count))
        for place in map(self._place, range(count)):
            file.seek(place)
            self._places[file.read(_DIGEST)] = place
        self._file = file

    def _place(self, number: int) -> int:
        return _DIGEST + number * self._size

    def _read(self, name: bytes) -> bytes | None:
        place = self._places.get(name)
        if place is None or self._file is None:
            return None
        try:
            self._file.seek(place)
            record = self._file.read(self._size)
        except OSError:
            return None
        return record[_DIGEST + _SUM :] if record == _record(name, record[_DIGEST + _SUM :]) else None

    def _append(self, made: Sequence[tuple[bytes, bytes]]) -> None:
        if self._file is None:
            return
        try:
            end = self._file.seek(0, os.SEEK_END)
            self._file.write(b"".join(_record(*item) for item in made))
            if self._file.tell() != end + len(made) * self._size:
                raise OSError("not all of it was written")
        except OSError:  # a full disk: what is whole is found by the next push
            self.close()
            return
        self._places.update((name, end + number * self._size) for number, (name, _) in enumerate(made))


def _record(name: bytes, vector: bytes) -> bytes:
    return name + zlib.crc32(name + vector).to_bytes(_SUM, "little") + vector


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
