"""The bundled embedder: a text is the weighted sum of its words' vectors. NumPy alone, no network, no ML runtime."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from funes_mcp.inference import bundle

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from funes_mcp.inference.table import WordTable

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
                rows = [table.rows(text[:_MAX_CHARS]) for text in texts[start : start + _BATCH]]
                table.settle()
                for i, found in enumerate(rows, start):
                    _pool(table, found, out[i])
        return out

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """See `Embedder.embed_query`; a question is embedded as a passage is."""
        row: NDArray[np.float32] = self.embed_passages([text])[0]
        return row

    @cached_property
    def _table(self) -> WordTable:
        from funes_mcp.inference.table import WordTable

        return WordTable(bundle.load(self._folder), _TABLE_ROWS)


def _pool(table: WordTable, rows: list[int], out: NDArray[np.float32]) -> None:
    """Write the unit vector of a text with these word rows into `out`.

    A word said n times counts sqrt(n) times: a passage that repeats a word is about it, but not n times as much.
    """
    import numpy as np

    # In the order in which the words stand, never by row number, which depends on what was embedded before.
    counted = Counter(rows)
    at = np.fromiter(counted, np.intp, len(counted))
    factors = table.pooled[at] * np.sqrt(np.fromiter(counted.values(), np.float32, len(counted)))
    for start in range(0, len(at), _BLOCK):
        out += factors[start : start + _BLOCK] @ table.vectors[at[start : start + _BLOCK]]
    norm = np.sqrt(np.dot(out, out))
    if norm > 0:
        out /= norm
