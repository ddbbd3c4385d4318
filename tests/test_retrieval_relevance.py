"""Knowing when there is nothing: what is refused, and what never is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_support import put, transcript

from funes_mcp.inference.maxsim import MaxSimReranker
from funes_mcp.inference.static import StaticEmbedder
from funes_mcp.memory import terms
from funes_mcp.memory.lexical import Evidence
from funes_mcp.memory.model import Embedding, Filter
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.retrieval import relevance
from funes_mcp.retrieval.search import Found, Question, search

NOW = 1_800_000_000_000
EMBEDDER = StaticEmbedder()
RERANKER = MaxSimReranker()

SAID = (
    "We keep the parser streaming, because a transcript may be larger than the memory of the machine.",
    "The push failed with error E0277 in src/net/transport.rs:41, the trait is not implemented for Frame.",
    "Set retry_budget to 5 and run the suite again with --dry-run before the release.",
    "commit 5f3a9c1 moved IsolateGitConfig out of the test helpers.",
    "The cache is warmed by a thread when the server starts, so that the first question is not slow.",
    "Lunch was good; the new place has soup.",
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryReader]:
    folder: Path = tmp_path_factory.mktemp("relevance")
    told = transcript("s-one")
    for number, text in enumerate(SAID):
        told.say(f"u{number}", text)
    twice = transcript("s-two")
    for number in range(3):
        twice.say(
            f"v{number}",
            "Building the wheel again and again until every check is green, as was asked for yesterday by the "
            f"people who look after the nightly packages of this project: run {number}.",
        )
    with MemoryWriter.open(folder, Embedding(EMBEDDER.name, EMBEDDER.dim)) as writer:
        put(writer, told)
        put(writer, twice)
        writer.commit(EMBEDDER.embed_passages)
    opened = MemoryReader.open(folder)
    yield opened
    opened.close()


def ask(reader: MemoryReader, text: str, least: float | None = None) -> Found:
    question = Question(text, Filter(), k=8, candidates=50, neighbors=0, half_life=30, now=NOW, least=least)
    return search(reader, EMBEDDER, RERANKER, question, late=RERANKER)


@pytest.mark.parametrize(
    "question", ["xyzzy qwfp", "fnord", "tango lessons in Buenos Aires", "ксилофон", "how are volcanoes born"]
)
def test_a_question_about_something_else_is_refused(reader: MemoryReader, question: str) -> None:
    found = ask(reader, question)
    assert found.hits == ()
    assert found.refused is None or found.refused < relevance.FLOOR


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("why does the parser read as a stream", "parser"),
        ("E0277", "E0277"),
        ("src/net/transport.rs", "transport"),
        ("what of totally different things and retry_budget here and now", "retry_budget"),
        ("--dry-run", "--dry-run"),
        ("5f3a9c1", "5f3a9c1"),
        ("5f3a9c1d2e77", "5f3a9c1"),
        ("where went IsolateGitConfig", "IsolateGitConfig"),
        ("soup", "soup"),
    ],
)
def test_what_is_there_is_found(reader: MemoryReader, question: str, part: str) -> None:
    found = ask(reader, question)
    assert found.hits, found.refused
    assert any(part in hit.chunk.text and hit.relevance >= relevance.FLOOR for hit in found.hits)


def test_the_floor_can_be_moved(reader: MemoryReader) -> None:
    everything = ask(reader, "xyzzy qwfp", least=0.0)
    assert everything.hits
    assert everything.refused is None
    strict = ask(reader, "why does the parser read as a stream", least=0.5)
    loose = ask(reader, "why does the parser read as a stream", least=0.0)
    assert 0 < len(strict.hits) < len(loose.hits)
    assert all(hit.relevance >= 0.5 for hit in strict.hits)
    assert ask(reader, "E0277", least=1.0).refused == pytest.approx(relevance.NAMED, abs=0.1)


class Backwards:
    """Stands for a cross-encoder: it orders passages by something else than shared words."""

    name = "backwards"

    def scores(self, _query: str, passages: Sequence[str]) -> Any:
        return np.linspace(0, 1, len(passages), dtype=np.float32)


@pytest.mark.parametrize("text", ["why does the parser read as a stream", "E0277", "xyzzy qwfp"])
def test_relevance_does_not_depend_on_who_orders_the_hits(reader: MemoryReader, text: str) -> None:
    orders, values, verdicts = [], [], []
    for reranker in (RERANKER, Backwards(), None):
        question = Question(text, Filter(), k=8, candidates=50, neighbors=0, half_life=30, now=NOW, least=0.0)
        hits = search(reader, EMBEDDER, reranker, question, late=RERANKER).hits
        orders.append([hit.chunk.turn_uuid for hit in hits])
        values.append({hit.chunk.turn_uuid: hit.relevance for hit in hits if hit.chunk.session_id == "s-one"})
        usual = replace(question, least=None)
        verdicts.append(search(reader, EMBEDDER, reranker, usual, late=RERANKER).refused is None)
    assert orders[0] != orders[1]
    assert values[0] == values[1] == values[2]
    assert len(values[0]) == len(SAID)
    assert len(set(verdicts)) == 1


def test_near_copies_in_a_session_are_one_hit(reader: MemoryReader) -> None:
    found = ask(reader, "building the wheel until checks are green")
    runs = [hit for hit in found.hits if hit.chunk.session_id == "s-two"]
    assert len(runs) == 1
    assert runs[0].alike == 2


def test_relevance_grows_with_what_is_shared_and_with_what_is_meant() -> None:
    shares = relevance.of([Evidence(share, False) for share in (0.0, 0.2, 0.6, 1.0)], [0.6] * 4)
    meanings = relevance.of([Evidence(0.4, False)] * 3, [0.3, 0.6, 1.0])
    alone = relevance.of([Evidence(share, False) for share in (0.0, 0.5, 1.0)], None)
    for values in (shares, meanings, alone):
        assert values == sorted(values)
        assert 0 <= values[0] < values[-1] <= 1
    assert relevance.of([Evidence(0.0, True)], [0.1]) == [relevance.NAMED]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("a well-known follow-up on the 3rd at 10:30, 5pm", []),
        ("run it with --force-with-lease", ["force-with-lease"]),
        ("what of E0308 and src/a.py?", ["e0308", "src/a.py"]),
        ("parseHTMLText or GitHub", ["parsehtmltext", "github"]),
        ("why is NASA loud", []),
    ],
)
def test_names_that_can_only_mean_themselves(question: str, named: list[str]) -> None:
    assert set(named) <= set(terms.identifiers(question))
    assert not named or terms.identifiers(question)
    assert named or terms.identifiers(question) == []


def test_a_summary_does_not_stand_above_what_it_sums_up(tmp_path: Path) -> None:
    told = transcript("s-one")
    told.say("u1", "Let us drop the streaming parser, it is slow and its errors say nothing. Whole files are read.")
    told.say("u2", "Drop the streaming parser and read whole files.", kind="summary", flags={"summary"})
    told.say("u3", "The release notes mention the new flag.", kind="summary", flags={"summary"})
    with MemoryWriter.open(tmp_path, Embedding(EMBEDDER.name, EMBEDDER.dim)) as writer:
        put(writer, told)
        writer.commit(EMBEDDER.embed_passages)
    opened = MemoryReader.open(tmp_path)
    try:
        both = [hit.chunk.turn_uuid for hit in ask(opened, "drop the streaming parser and read whole files").hits]
        assert both[:2] == ["u1", "u2"]
        only = ask(opened, "what do the release notes mention").hits
        assert only[0].chunk.turn_uuid == "u3"
        assert "summary" in only[0].chunk.flags
    finally:
        opened.close()
