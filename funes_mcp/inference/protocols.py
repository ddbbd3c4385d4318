"""What the layers above ask of a model: texts to vectors, and how well passages answer a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """Turns texts into vectors whose dot product says how near their meanings are.

    A text's vector depends on that text alone: not on the others of its batch, nor on what was embedded before.
    """

    @property
    def name(self) -> str:
        """The stamp stored with a memory. Two embedders with one name give interchangeable vectors."""

    @property
    def dim(self) -> int:
        """Width of a vector."""

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of stored passages: float32, shape (len(texts), dim), rows of unit length.

        A text without any word (empty, blank, punctuation only) gets a row of zeros. Any string is accepted,
        lone surrogates and all.
        """

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Vector of a question: float32, shape (dim,), unit length, or zeros when the text has no word."""


class Reranker(Protocol):
    """Reads a query beside each passage and says how well they go together."""

    @property
    def name(self) -> str:
        """The model's name, for `status` and `doctor`. Nothing stored depends on it."""

    def scores(self, query: str, passages: Sequence[str]) -> NDArray[np.float32]:
        """One score a passage, higher is better: float32, shape (len(passages),).

        Scores of one call are comparable with each other; across rerankers they are not.
        """
