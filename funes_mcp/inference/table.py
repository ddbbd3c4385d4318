"""Words to vectors, remembered: the table that the embedder and the reranker look words up in."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from funes_mcp.inference.bundle import Bundle
from funes_mcp.inference.words import is_opaque, parts, split, tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class WordTable:
    """Row numbers for words, with each row's vector and weight. Bounded in memory; one thread at a time.

    A row is computed from its word alone, so what was looked up before never changes a result. Row numbers hold
    until the next `reset`, which callers make when `full`; `settle` must be called between asking for rows and
    reading their values.

    Attributes:
        vectors: float32, shape (>= rows, dim), unit length, or zeros for a word that has no meaning known.
        pooled: float32, shape (>= rows,): the factor of a row in the sum that is a text's vector.
        weights: float32, shape (>= rows,): how much the word says, in [0, 1].
    """

    def __init__(self, bundle: Bundle, capacity: int, *, opaque: bool = False) -> None:
        """`opaque` says whether hashes and the like get rows: of use for exact matches, not for meaning."""
        import numpy as np

        self._opaque = opaque
        self._bundle = bundle
        self._factors = bundle.weights * bundle.scales
        self._capacity = capacity
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._words: dict[str, int] = {}
        self._settled = 0
        self.vectors = np.zeros((1024, bundle.dim), np.float32)
        self.pooled = np.zeros(1024, np.float32)
        self.weights = np.zeros(1024, np.float32)

    @property
    def full(self) -> bool:
        """Whether `capacity` words or four times as many spellings are held: time for a `reset`."""
        return len(self._words) >= self._capacity or len(self._tokens) >= 4 * self._capacity

    def reset(self) -> None:
        """Forget all rows; the next look-ups compute them again."""
        self._tokens.clear()
        self._words.clear()
        self._settled = 0

    def rows(self, text: str) -> list[int]:
        """The rows of a text's words, in order, repeats kept."""
        found = tokens(text)
        known = self._tokens
        try:
            return list(chain.from_iterable([known[token] for token in found]))
        except KeyError:
            words = self._words
            for token in found:
                if token not in known:
                    within = parts(token)
                    if not self._opaque:
                        within = tuple([word for word in within if not is_opaque(word)])
                    known[token] = tuple([words.setdefault(word, len(words)) for word in within])
            return list(chain.from_iterable([known[token] for token in found]))

    def settle(self) -> None:
        """Compute the rows that are new since the last time."""
        start, self._settled = self._settled, len(self._words)
        if start == self._settled:
            return
        new = list(islice(reversed(self._words), self._settled - start))[::-1]
        if self._settled > len(self.vectors):
            self._grow()
        span = slice(start, self._settled)
        self.vectors[span], self.pooled[span], self.weights[span] = self._compute(new)

    def _grow(self) -> None:
        import numpy as np

        size = max(self._settled, min(2 * len(self.vectors), self._capacity + 1024))
        for name in ("vectors", "pooled", "weights"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), np.float32)
            new[: len(old)] = old
            setattr(self, name, new)

    def _compute(self, words: list[str]) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Of each word its unit vector, its factor in a text's sum, and its weight."""
        import numpy as np

        bundle = self._bundle
        ids = [() if self._opaque and is_opaque(word) else split(word, bundle.pieces) for word in words]
        vectors = np.zeros((len(words), bundle.dim), np.float32)
        weights = np.zeros(len(words), np.float32)
        # Piece after piece, so that a word's sum does not depend on the words beside it.
        for place in range(max(map(len, ids), default=0)):
            at = np.array([i for i, own in enumerate(ids) if len(own) > place])
            piece = np.array([own[place] for own in ids if len(own) > place])
            vectors[at] += bundle.vectors[piece] * self._factors[piece, None]
            weights[at] = np.maximum(weights[at], bundle.weights[piece])
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        vectors /= np.where(norms > 0, norms, 1)[:, None]
        if self._opaque:
            weights[[is_opaque(word) for word in words]] = 1
        return vectors, norms, weights
