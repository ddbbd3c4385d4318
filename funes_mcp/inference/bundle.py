"""The model that ships in the package: vectors of BERT's word pieces, distilled by `scripts/distill.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VECTORS = "vectors.npy"
ROWS = "rows.npy"
VOCAB = "vocab.txt"
CARD = "card.json"


@dataclass(frozen=True, slots=True)
class Bundle:
    """A distilled model, read only.

    Attributes:
        name: Stamp of the vectors it makes.
        pieces: Word piece to row number; pieces that continue a word start with `##`.
        vectors: int8, shape (pieces, dim), mapped from disk: a row times its scale is the piece's vector.
        scales: float32, shape (pieces,).
        weights: float32, shape (pieces,): how much a piece says, from its frequency in general text, in [0, 1].
    """

    name: str
    pieces: dict[str, int]
    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]
    weights: NDArray[np.float32]

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])


def card_name(folder: Path | None = None) -> str:
    """The stamp of the model in `folder`, without loading it."""
    return str(json.loads(_folder(folder).joinpath(CARD).read_text("utf-8"))["name"])


@cache
def load(folder: Path | None = None) -> Bundle:
    """The model in `folder`, by default the one in the package. Loaded once a process.

    Raises:
        OSError, ValueError: The files are missing or are not those that `scripts/distill.py` writes.
    """
    import numpy as np

    at = _folder(folder)
    vectors: NDArray[np.int8] = np.asarray(np.load(at / VECTORS, mmap_mode="r"))
    rows: NDArray[np.float32] = np.load(at / ROWS)
    pieces = {piece: i for i, piece in enumerate((at / VOCAB).read_text("utf-8").split("\n"))}
    if not len(vectors) == len(rows) == len(pieces):
        raise ValueError(f"the model in {at} is broken: its files do not belong together")
    return Bundle(card_name(folder), pieces, vectors, rows[:, 0].copy(), rows[:, 1].copy())


def _folder(folder: Path | None) -> Path:
    from importlib.resources import files

    return folder if folder is not None else Path(str(files(__package__) / "data"))
