"""The arithmetic of ranking: pure functions over scores. What was measured for each is in docs/retrieval.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import float32, float64, int64, uint64
    from numpy.typing import NDArray

    Scores = NDArray[float32]

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of the ranking. The defaults are plateaus, not peaks: see docs/retrieval.md.

    Attributes:
        words: Share of the words' score in the first stage; the vectors have the rest.
        rerank: Share of the reranker's score in the second stage; the first stage has the rest.
        session: How much a passage gains from the other hits of its session, at most.
        decay: By how much each further hit of a session counts less than the one before.
        recency: The most that a passage can gain by being new, as a share of its score.
    """

    words: float = 0.6
    rerank: float = 0.5
    session: float = 0.3
    decay: float = 0.5
    recency: float = 0.02


def unit_range(scores: Scores) -> Scores:
    """Scores brought to [0, 1] by their least and greatest; all 1 when they are equal, empty stays empty.

    Args:
        scores: float32 of shape (n,).
    """
    import numpy as np

    if not len(scores):
        return scores
    low, high = float(scores.min()), float(scores.max())
    if high - low <= 1e-9:
        return np.ones_like(scores)
    return ((scores - low) / (high - low)).astype(np.float32)


def by_greatest(scores: Scores) -> Scores:
    """Scores divided by the greatest, so that an absent score stays 0; negative ones count as 0.

    Args:
        scores: float32 of shape (n,).
    """
    import numpy as np

    top = float(scores.max()) if len(scores) else 0.0
    return np.clip(scores / top, 0.0, None).astype(np.float32) if top > 0 else np.zeros_like(scores)


def blend(first: Scores, second: Scores, share: float) -> Scores:
    """`(1 - share) * first + share * second`, element by element."""
    import numpy as np

    return ((1.0 - share) * first + share * second).astype(np.float32)


def session_support(scores: Scores, sessions: NDArray[uint64], decay: float) -> Scores:
    """For each passage, what the hits of its session add up to: the best once, the next times `decay`, and so on.

    Args:
        scores: float32 (n,), not negative.
        sessions: (n,) a number for each session.

    Returns:
        float32 (n,), scaled so that the greatest is 1.
    """
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    weight: dict[int, float] = {}
    total: dict[int, float] = {}
    for i in order.tolist():
        session = int(sessions[i])
        share = weight.get(session, 1.0)
        total[session] = total.get(session, 0.0) + share * float(scores[i])
        weight[session] = share * decay
    support = np.array([total[int(s)] for s in sessions], dtype=np.float32)
    return by_greatest(support)


def recency(ts: NDArray[int64], now: int, half_life: float, undated: int) -> Scores:
    """How new passages are: 1 for now (and for the future), halved every `half_life` days, 0 when undated.

    It is only ever used to break near-ties: multiplied into the score it makes old memories unreachable.

    Args:
        ts: Unix milliseconds, int64 (n,).
        now: Unix milliseconds.
        half_life: Days; 0 or less switches recency off (all 0).
        undated: The value of `ts` that stands for "no date".
    """
    import numpy as np

    if half_life <= 0:
        return np.zeros(len(ts), dtype=np.float32)
    age = np.clip((now - ts.astype(np.float64)) / DAY_MS, 0.0, None)
    fresh = np.exp2(-age / half_life)
    fresh[ts == undated] = 0.0
    return fresh.astype(np.float32)


def ordered(scores: Scores, ts: NDArray[int64], keys: Sequence[int]) -> list[int]:
    """Positions, best first. Ties go to the newer passage, then to the smaller id: the same on every run."""
    import numpy as np

    rounded: NDArray[float64] = np.round(scores.astype(np.float64), 6)
    return sorted(range(len(keys)), key=lambda i: (-rounded[i], -int(ts[i]), keys[i]))
