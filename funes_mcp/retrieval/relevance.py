"""Whether a passage has to do with a question at all: a number that means the same for every question.

A passage's `score` orders the hits of one question and says nothing beyond it: the best of nothing scores high too.
Relevance is made of two facts that need no other passage to compare with. `met` is how well the words of the
question are met by words of like meaning (late interaction), `share` how many of its telling words stand there,
each by how rare it is. Their logistic regression was fitted on questions asked of the right memory and of wrong
ones; docs/retrieval.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from funes_mcp.memory.lexical import Evidence

#: The best hit must be at least so relevant, or the answer is that there is none.
FLOOR: Final = 0.1

#: Of a passage that holds an identifier of the question exactly, at least.
NAMED: Final = 0.9

_BIAS: Final = -9.0
_MET: Final = 10.0
_SHARE: Final = 8.0

#: Words of like meaning alone, when not one word of the question stands there: often gibberish like gibberish.
_NONE_SHARED: Final = -2.0

#: Without late interaction the share stands for it.
_BIAS_ALONE: Final = -3.0
_SHARE_ALONE: Final = 6.0


def of(evidence: Sequence[Evidence], met: Sequence[float] | None) -> list[float]:
    """The relevance of passages, in [0, 1].

    Args:
        evidence: Of each passage.
        met: Late interaction's scores of the same passages, in [0, 1], or None when there is none.
    """
    if met is None:
        odds = [_BIAS_ALONE + _SHARE_ALONE * known.share for known in evidence]
    else:
        odds = [
            _BIAS + _MET * m + _SHARE * known.share + (0.0 if known.share else _NONE_SHARED)
            for known, m in zip(evidence, met, strict=True)
        ]
    plain = [1.0 / (1.0 + math.exp(-value)) for value in odds]
    return [max(value, NAMED) if known.named else value for value, known in zip(plain, evidence, strict=True)]


def refusal(best: float, least: float | None = None) -> str:
    """What to tell a reader when nothing was relevant enough.

    Args:
        least: The floor that was asked for; None for the usual one.
    """
    floor = f"the usual floor is {FLOOR:g}" if least is None else f"{least:g} was asked for"
    known = math.floor(best * 100) / 100  # rounded up it could look like enough
    return (
        f"nothing relevant: the best passage's relevance is {known:.2f}, and {floor}. Other words, or an exact name, "
        "path or error text, may find it; a `min_relevance` of 0 (`--min-relevance 0`) shows the nearest passages all "
        "the same."
    )
