"""Late interaction on the bundled model: each word of a query looks for its best match in a passage.

Khattab & Zaharia (2020), "ColBERT": a score is the sum over query words of the greatest cosine with any word of the
passage; here over static word vectors, weighted by how much a word says.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from funes_mcp.inference import bundle

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from funes_mcp.inference.table import WordTable

_TABLE_ROWS = 32_768
_MAX_CHARS = 4_096
_MAX_QUERY_CHARS = 4_096


@dataclass(frozen=True, slots=True)
class Interaction:
    """How well each word of a query is met by each of some passages.

    Attributes:
        weights: float32 (words,): how much each word of the query says, summing to 1; all 0 when none says anything.
        best: float32 (words, passages): the greatest cosine of a word with any word of a passage, in [0, 1].
    """

    weights: NDArray[np.float32]
    best: NDArray[np.float32]

    @property
    def scores(self) -> NDArray[np.float32]:
        """Of each passage the weighted mean over the query's words: float32 (passages,), in [0, 1]."""
        return self.weights @ self.best

    def covered(self, passages: Sequence[int]) -> float:
        """The same for some passages taken as one: how much of the query they meet between them."""
        return float(self.weights @ self.best[:, passages].max(axis=1)) if len(passages) else 0.0


class MaxSimReranker:
    """`Reranker` on the model in the package. Safe to share between threads; nothing is loaded before first use."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @cached_property
    def name(self) -> str:
        """The bundled model's name, marked as used for late interaction."""
        return bundle.card_name(self._folder) + "+maxsim"

    def scores(self, query: str, passages: Sequence[str]) -> NDArray[np.float32]:
        """Weighted mean over the query's words of the best cosine in each passage, in [0, 1].

        float32, shape (len(passages),). All zeros when the query has no word. Of a passage the first 4,096
        characters count, and of the query.
        """
        return self.interact(query, passages).scores

    def interact(self, query: str, passages: Sequence[str]) -> Interaction:
        """What `scores` sums up, word by word."""
        import numpy as np

        with self._lock:
            table = self._table
            if table.full:
                table.reset()
            asked = table.count([query[:_MAX_QUERY_CHARS]]).rows
            found = table.count([text[:_MAX_CHARS] for text in passages])
            table.settle()
            weights = table.weights[asked]
            best = np.zeros((len(asked), len(passages)), np.float32)
            filled = np.flatnonzero(found.sizes)
            if not len(filled) or not weights.any():
                return Interaction(weights, best)
            weights /= weights.sum()
            words, at = np.unique(found.rows, return_inverse=True)
            cosines = table.vectors[asked] @ table.vectors[words].T
        cosines[asked[:, None] == words] = 1  # a hash or a rare name has no vector, yet is itself
        starts = (np.cumsum(found.sizes) - found.sizes)[filled]
        best[:, filled] = np.clip(np.maximum.reduceat(cosines[:, at], starts, axis=1), 0, 1)
        return Interaction(weights, best)

    @cached_property
    def _table(self) -> WordTable:
        from funes_mcp.inference.table import WordTable

        return WordTable(bundle.load(self._folder), _TABLE_ROWS, opaque=True)
