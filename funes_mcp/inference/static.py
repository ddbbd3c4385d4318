"""The bundled embedder: a text is the weighted sum of its words' vectors. NumPy alone, no network, no ML runtime."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from funes_mcp.inference import bundle

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from funes_mcp.inference.table import Counted, WordTable

_TABLE_ROWS = 49_152
_MAX_CHARS = 16_384
_BATCH = 64
# BLAS starts threads for a product of more than about 36,000 factors; below that the order of a sum is fixed.
_BLOCK = 128


class StaticEmbedder:
    """`Embedder` on the model in the package. Safe to share between threads; nothing is loaded before first use."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @cached_property
    def name(self) -> str:
        """Stamp of the vectors: the model's name and version, from its card."""
        return bundle.card_name(self._folder)

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return bundle.load(self._folder).dim

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed_passages`. Of a text only the first 16,384 characters count."""
        import numpy as np

        out = np.zeros((len(texts), self.dim), np.float32)
        with self._lock:
            table = self._table
            for start in range(0, len(texts), _BATCH):
                if table.full:
                    table.reset()
                counted = table.count([text[:_MAX_CHARS] for text in texts[start : start + _BATCH]])
                table.settle()
                _pool(table, counted, out[start : start + _BATCH])
        return out

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """See `Embedder.embed_query`; a question is embedded as a passage is."""
        row: NDArray[np.float32] = self.embed_passages([text])[0]
        return row

    @cached_property
    def _table(self) -> WordTable:
        from funes_mcp.inference.table import WordTable

        return WordTable(bundle.load(self._folder), _TABLE_ROWS)


def _pool(table: WordTable, counted: Counted, out: NDArray[np.float32]) -> None:
    """Write the unit vectors of texts with these words into `out`, which is all zeros.

    A word said n times counts sqrt(n) times: a passage that repeats a word is about it, but not n times as much.
    Summed in the order in which the words stand, so that nothing depends on what was embedded before.
    """
    import numpy as np

    rows = counted.rows
    factors = table.pooled[rows] * np.sqrt(counted.counts, dtype=np.float32)
    vectors = table.vectors
    near = np.empty((_BLOCK, vectors.shape[1]), np.float32)  # one for all: the allocator gives back what is as large
    end = 0
    for row, size in zip(out, counted.sizes.tolist(), strict=True):
        start, end = end, end + size
        for at in range(start, end, _BLOCK):
            block = slice(at, min(at + _BLOCK, end))
            taken = near[: block.stop - at]
            np.take(vectors, rows[block], 0, taken, "clip")
            row += factors[block] @ taken
    norms = np.sqrt(np.einsum("ij,ij->i", out, out))
    out /= np.where(norms > 0, norms, 1)[:, None]
