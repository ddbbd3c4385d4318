"""Late interaction: a passage that holds the words of the question comes first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.inference.maxsim import MaxSimReranker
from funes_mcp.inference.protocols import Reranker

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=200)


@pytest.fixture(scope="module")
def reranker() -> Reranker:
    return MaxSimReranker()


def test_the_passage_that_holds_the_words_wins(reranker: Reranker) -> None:
    passages = ["We bought apples at the market.", "The streaming parser was dropped: it lost torn lines.", "A parser."]
    scores = reranker.scores("why did we drop the streaming parser", passages)
    assert int(scores.argmax()) == 1
    assert scores.dtype == np.float32


def test_rare_words_count_more_than_common_ones(reranker: Reranker) -> None:
    scores = reranker.scores("what about the kubernetes", ["what about the weather", "kubernetes"])
    assert scores[1] > scores[0]


def test_a_neighbouring_meaning_counts_something(reranker: Reranker) -> None:
    scores = reranker.scores("repository", ["repo", "banana"])
    assert scores[0] > scores[1] + 0.1


def test_a_commit_hash_matches_itself_alone(reranker: Reranker) -> None:
    scores = reranker.scores("what did b2f87a4e change", ["b2f87a4e changed it", "daea7b14 changed it"])
    assert scores[0] > scores[1] + 0.2


def test_a_passage_scores_the_same_in_any_company(reranker: Reranker) -> None:
    alone = reranker.scores("streaming parser", ["the parser streams"])
    among = reranker.scores("streaming parser", ["x", "", "the parser streams", "y z"])
    assert among[2] == pytest.approx(alone[0], abs=1e-6)


@pytest.mark.parametrize("query", ["", "?", "🎉", "\ud800"])
def test_a_query_without_words_decides_nothing(reranker: Reranker, query: str) -> None:
    assert reranker.scores(query, ["some", "text"]).tolist() == [0, 0]


def test_no_passages_give_no_scores(reranker: Reranker) -> None:
    assert reranker.scores("hello", []).shape == (0,)


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=6))
def test_scores_are_finite_and_bounded(query: str, passages: list[str]) -> None:
    scores = MaxSimReranker().scores(query, passages)
    assert scores.shape == (len(passages),)
    assert np.all((scores >= 0) & (scores <= 1 + 1e-4))


@given(st.text(alphabet="abc de", min_size=1, max_size=40))
def test_a_passage_answers_itself_best(text: str) -> None:
    scores = MaxSimReranker().scores(text, [text, "zebra"])
    assert scores[0] >= scores[1]
