"""Words to vectors, remembered: the table that the embedder and the reranker look words up in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, TypeVar

from funes_mcp.inference.bundle import Bundle
from funes_mcp.inference.words import is_opaque, parts, split, token_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Counted:
    """The words of some texts, one text after the other, each word once a text, in the order in which they stand.

    Attributes:
        rows: intp (words,): rows of a `WordTable`.
        counts: intp (words,): how often each stands in its text.
        sizes: intp (texts,): how many different words each text has.
    """

    rows: NDArray[np.intp]
    counts: NDArray[np.intp]
    sizes: NDArray[np.intp]


class WordTable:
    """Row numbers for words, with each row's vector and weight. Bounded in memory; one thread at a time.

    A row is computed from its word alone, so what was looked up before never changes a result. Row numbers hold
    until the next `reset`, which callers make when `full`; `settle` must be called between counting words and
    reading the values of their rows.

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
        self._words: dict[str, int] = {}
        self._settled = 0
        # Tokens by number: the rows of one are `_within[start : start + size]` with its entry in `_spans`.
        self._tokens: dict[bytes, int] = {}
        self._spans = np.zeros((1024, 2), np.intp)
        self._within = np.zeros(1024, np.intp)
        self._filled = 0
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
        self._settled = self._filled = 0

    def count(self, texts: Sequence[str]) -> Counted:
        """The words of texts as rows. Their order depends on the texts alone, never on row numbers."""
        import numpy as np

        cut = [token_bytes(text) for text in texts]
        found = list(chain.from_iterable(cut))
        known = self._tokens
        numbers = np.fromiter(map(known.get, found, repeat(-1)), np.intp, len(found))
        missing = np.flatnonzero(numbers < 0)
        if len(missing):
            new = [found[place] for place in missing]
            self._learn(list(dict.fromkeys(new)))
            numbers[missing] = np.fromiter(map(known.__getitem__, new), np.intp, len(new))
        starts, sizes = self._spans[numbers].T
        ends = np.cumsum(sizes)
        rows = self._within[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts + sizes - ends, sizes)]
        text_of = np.repeat(np.repeat(np.arange(len(cut)), list(map(len, cut))), sizes)
        # One number for a text and a word in it, so that one sort counts the words of all texts.
        both, first, counts = np.unique(text_of * (len(self._words) + 1) + rows, return_index=True, return_counts=True)
        order = np.argsort(first)
        of, rows = np.divmod(both[order], len(self._words) + 1)
        return Counted(rows, counts[order], np.bincount(of, minlength=len(cut)))

    def _learn(self, new: list[bytes]) -> None:
        """Give rows to the words of tokens that are met for the first time."""
        import numpy as np

        words = self._words
        within: list[tuple[int, ...]] = []
        for token in new:
            found = parts(token.decode())
            if not self._opaque:
                found = tuple([word for word in found if not is_opaque(word)])
            within.append(tuple([words.setdefault(word, len(words)) for word in found]))
        start = len(self._tokens)
        self._tokens.update(zip(new, range(start, start + len(new)), strict=True))
        sizes = np.fromiter(map(len, within), np.intp, len(within))
        filled = self._filled + int(sizes.sum())
        self._spans = _grown(self._spans, start + len(new))
        self._within = _grown(self._within, filled)
        self._spans[start : start + len(new), 0] = self._filled + np.cumsum(sizes) - sizes
        self._spans[start : start + len(new), 1] = sizes
        self._within[self._filled : filled] = list(chain.from_iterable(within))
        self._filled = filled

    def settle(self) -> None:
        """Compute the rows that are new since the last time."""
        start, self._settled = self._settled, len(self._words)
        if start == self._settled:
            return
        new = list(islice(reversed(self._words), self._settled - start))[::-1]
        self.vectors = _grown(self.vectors, self._settled)
        self.pooled = _grown(self.pooled, self._settled)
        self.weights = _grown(self.weights, self._settled)
        span = slice(start, self._settled)
        self.vectors[span], self.pooled[span], self.weights[span] = self._compute(new)

    def _compute(self, words: list[str]) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Of each word its unit vector, its factor in a text's sum, and its weight."""
        import numpy as np

        bundle = self._bundle
        ids = [() if self._opaque and is_opaque(word) else split(word, bundle.pieces) for word in words]
        sizes = np.fromiter(map(len, ids), np.intp, len(ids))
        pieces = np.fromiter(chain.from_iterable(ids), np.intp, int(sizes.sum()))
        starts = np.cumsum(sizes) - sizes
        vectors = np.zeros((len(words), bundle.dim), np.float32)
        weights = np.zeros(len(words), np.float32)
        # Piece after piece, so that a word's sum does not depend on the words beside it.
        for place in range(int(sizes.max(initial=0))):
            at = np.flatnonzero(sizes > place)
            piece = pieces[starts[at] + place]
            vectors[at] += bundle.vectors[piece] * self._factors[piece, None]
            weights[at] = np.maximum(weights[at], bundle.weights[piece])
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        vectors /= np.where(norms > 0, norms, 1)[:, None]
        if self._opaque:
            weights[[is_opaque(word) for word in words]] = 1
        return vectors, norms, weights


def _grown(array: NDArray[Number], size: int) -> NDArray[Number]:
    """The array, or a copy with room for at least `size` rows."""
    import numpy as np

    if size <= len(array):
        return array
    larger = np.zeros((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
