"""The arithmetic of ranking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.retrieval import rank
from funes_mcp.traces.model import BLOCK_TYPES

UNDATED = np.iinfo(np.int64).min


def floats(*values: float) -> rank.Scores:
    return np.array(values, np.float32)


@pytest.mark.parametrize("normalise", [rank.unit_range, rank.by_greatest])
def test_normalised_scores_keep_their_order_and_range(normalise: object) -> None:
    assert callable(normalise)
    for scores in (floats(), floats(3), floats(0, 0), floats(-1, 2, 5)):
        out = normalise(scores)
        assert out.dtype == np.float32
        assert len(out) == len(scores)
        assert ((out >= 0) & (out <= 1)).all()
        assert (np.diff(out) >= 0).all()


def test_a_session_is_worth_all_its_hits_but_does_not_fill_the_answer() -> None:
    scores = floats(0.8, 0.7, 0.7, 0.75)
    sessions = np.array([1, 2, 2, 3], np.uint64)
    out = rank.by_session(scores, sessions, 0.3)
    order = rank.ordered(out, np.zeros(4, np.int64), [0, 1, 2, 3])
    assert order == [1, 0, 3, 2]


def test_a_session_whose_hits_answer_more_between_them_is_worth_more() -> None:
    scores = floats(0.6, 0.5, 0.6)
    sessions = np.array([1, 1, 2], np.uint64)
    out = rank.by_session(scores, sessions, 0.0, 0.5, lambda places: 1.0 if len(places) > 1 else 0.2)
    assert out[0] > out[2]
    assert ((out >= 0) & (out <= 1)).all()


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 4)), min_size=1, max_size=30))
def test_the_order_of_hits_within_a_session_is_their_own(hits: list[tuple[float, int]]) -> None:
    scores = np.array([score for score, _ in hits], np.float32)
    sessions = np.array([session for _, session in hits], np.uint64)
    out = rank.by_session(scores, sessions, 0.3)
    assert ((out >= 0) & (out <= 1.0001)).all()
    for session in set(sessions.tolist()):
        inside = np.flatnonzero(sessions == session)
        assert out[inside].argmax() in np.flatnonzero(out[inside] == out[inside].max())
        assert scores[inside[out[inside].argmax()]] == scores[inside].max()


def test_recency_breaks_near_ties_and_nothing_more() -> None:
    now = 1_000 * rank.DAY_MS
    ts = np.array([now, now - 30 * rank.DAY_MS, UNDATED, now + rank.DAY_MS], np.int64)
    assert rank.recency(ts, now, 30, UNDATED).tolist() == [1.0, 0.5, 0.0, 1.0]
    assert rank.recency(ts, now, 0, UNDATED).tolist() == [0.0] * 4
    share = rank.Weights().recency
    old_but_better, new = floats(0.52), floats(0.5)
    assert rank.boosted(old_but_better, floats(0), share) > rank.boosted(new, floats(1), share)
    assert rank.boosted(floats(0.5), floats(1), share) > rank.boosted(floats(0.5), floats(0), share)


def test_ties_go_to_the_newer_then_to_the_smaller_id() -> None:
    scores = floats(0.5, 0.5, 0.5, 0.9)
    ts = np.array([1, 2, 2, 0], np.int64)
    assert rank.ordered(scores, ts, [7, 9, 8, 1]) == [3, 2, 1, 0]


def test_what_tools_printed_counts_less() -> None:
    kinds = np.array([0, 1, 2, 3, 4], np.uint8)
    out = rank.by_type(kinds, 0.75)
    assert out.tolist() == [1.0, 1.0, 0.75, 0.75, 1.0]


def test_a_summary_stands_for_its_session_only_when_nothing_else_comes_near() -> None:
    kinds = np.array([BLOCK_TYPES.index("text"), BLOCK_TYPES.index("summary")], np.uint8)
    lead = rank.as_lead(kinds, 0.8)
    sessions = np.array([1, 1], np.uint64)
    near, far = floats(0.9, 1.0), floats(0.7, 1.0)
    assert rank.by_session(near, sessions, 0.3, lead=lead).argmax() == 0
    assert rank.by_session(far, sessions, 0.3, lead=lead).argmax() == 1
    for scores in (near, far):
        plain, held = (rank.by_session(scores, sessions, 0.3, lead=given) for given in (None, lead))
        assert held.max() == plain.max()
