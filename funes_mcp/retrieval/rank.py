"""The arithmetic of ranking: pure functions over scores. What was measured for each is in docs/retrieval.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from funes_mcp.traces.model import BLOCK_TYPES

if TYPE_CHECKING:
    from numpy import float32, int64, uint8, uint64
    from numpy.typing import NDArray

    Scores = NDArray[float32]

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of the ranking. The defaults are plateaus, not peaks: see docs/retrieval.md.

    Attributes:
        vectors: What the vectors' normalised score weighs against the words', which weighs 1.
        rerank: Share of the reranker's score in the second stage; the first stage has the rest.
        decay: By how much each further hit of a session counts less than the one before it.
        coverage: What it weighs, against its best hit, how much of the question all hits of a session meet between
            them.
        recency: The most that a passage can gain by being new, as a share of its score.
        dated: The most that a passage can gain by being of a day that the question names.
        named: The most that a passage can gain by holding the identifiers of a question exactly, as a share of its
            score; in full when the question is nothing but these.
        tools: What the score of a tool's arguments or output is multiplied by: what people and agents said of a
            thing answers more questions than the many outputs that mention it. The more of a question its
            identifiers are that a passage holds exactly, the less it is lowered.
        summaries: What the score of a machine's summary of earlier turns is multiplied by when it is decided which
            hit stands for its session. A summary says again, in a model's words, what stands in other passages, and
            these are to be read first; that the session is told of counts as much as before.
    """

    vectors: float = 0.8
    rerank: float = 0.55
    decay: float = 0.3
    coverage: float = 0.3
    recency: float = 0.02
    dated: float = 0.3
    named: float = 2.0
    tools: float = 0.55
    summaries: float = 0.8


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


def by_type(block_type: NDArray[uint8], tools: float) -> Scores:
    """What scores are multiplied by for their kind: `tools` for tool calls and results, else 1; float32 (n,).

    Args:
        block_type: (n,) positions in `BLOCK_TYPES`.
    """
    import numpy as np

    is_tool = np.isin(block_type, [BLOCK_TYPES.index("tool_use"), BLOCK_TYPES.index("tool_result")])
    return np.where(is_tool, tools, 1.0).astype(np.float32)


def as_lead(block_type: NDArray[uint8], summaries: float) -> Scores:
    """What scores are multiplied by when the hit is chosen that stands for a session; float32 (n,).

    Args:
        block_type: (n,) positions in `BLOCK_TYPES`.
    """
    import numpy as np

    return np.where(block_type == BLOCK_TYPES.index("summary"), summaries, 1.0).astype(np.float32)


def boosted(scores: Scores, by: Scores, share: float) -> Scores:
    """Scores raised by at most `share` where `by`, in [0, 1], is great, and scaled back to [0, 1]."""
    import numpy as np

    return (scores * (1.0 + share * by) / (1.0 + share)).astype(np.float32)


def blend(first: Scores, second: Scores, share: float | Scores) -> Scores:
    """`(1 - share) * first + share * second`, element by element."""
    import numpy as np

    return ((1.0 - share) * first + share * second).astype(np.float32)


def by_session(
    scores: Scores,
    sessions: NDArray[uint64],
    decay: float,
    coverage: float = 0.0,
    covered: Callable[[list[int]], float] | None = None,
    lead: Scores | None = None,
) -> Scores:
    """Scores that order sessions by all their hits, and hits within a session by themselves.

    A session is worth the sum of its hits, best first, each further one times `decay` less; its best hit stands
    for it and gets that sum. The other hits keep their own score, so that one session does not fill an answer.

    Args:
        scores: float32 (n,), in [0, 1].
        sessions: (n,) a number for each session.
        decay: In [0, 1).
        coverage: What `covered` weighs.
        covered: Told the positions of a session's hits, best first, says in [0, 1] how well they answer together.
        lead: float32 (n,), in [0, 1]: what scores are multiplied by when it is decided which hit is the best.

    Returns:
        float32 (n,), in [0, 1]: everything is scaled by the inverse of the greatest possible sum.
    """
    import numpy as np

    hits: dict[int, list[int]] = {}
    for i in np.argsort(-scores, kind="stable").tolist():
        hits.setdefault(int(sessions[i]), []).append(i)
    out = np.array(scores, dtype=np.float32)
    for places in hits.values():
        worth = sum(float(scores[place]) * decay**rank for rank, place in enumerate(places))
        first = places[0] if lead is None else max(places, key=lambda place: float(scores[place] * lead[place]))
        out[first] = worth + (coverage * covered(places) if covered is not None else 0.0)
    most = 1.0 / (1.0 - decay) + (coverage if covered is not None else 0.0)
    return (out / most).astype(np.float32)


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

    rounded = np.round(scores, 6).tolist()
    times = ts.tolist()
    return sorted(range(len(keys)), key=lambda i: (-rounded[i], -times[i], keys[i]))
