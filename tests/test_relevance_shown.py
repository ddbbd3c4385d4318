"""Relevance as it is asked for and read: the option, the tool's argument, the line under a hit, and `no results`."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.server.fake_service import FakeService, hit
from memory_support import put, store, transcript

from funes_mcp import render
from funes_mcp.cli.app import run
from funes_mcp.errors import BadRequestError
from funes_mcp.home import FunesHome
from funes_mcp.inference.static import StaticEmbedder
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.models import Hit, RecallAnswer, RecallRequest
from funes_mcp.retrieval import relevance
from funes_mcp.server import Arguments, answer, recall_request
from funes_mcp.service import IndexService
from funes_mcp.traces.model import FLAGS

ASKED = "why does the parser read as a stream"
SAID = ("We keep the parser streaming, because a transcript may be larger than memory.", "Lunch was good.", "Yes, do.")


# --- asking for it ----------------------------------------------------------------------------------------


def least(value: Any) -> float | None:
    return recall_request(Arguments("recall", {"query": "q", "min_relevance": value}), "local").min_relevance


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0, 0.0),
        (0.25, 0.25),
        ("0.25", 0.25),
        (" .5 ", 0.5),
        ("0", 0.0),
        (1, 1.0),
        ("1e-3", 0.001),
    ],
)
def test_the_tool_takes_numbers_and_strings(given: Any, meant: float) -> None:
    assert least(given) == meant


@pytest.mark.parametrize("given", [None, "", "  ", "null", "None", "undefined"])
def test_the_tool_s_usual_floor_holds_when_none_is_named(given: Any) -> None:
    assert least(given) is None
    assert recall_request(Arguments("recall", {"query": "q"}), "local").min_relevance is None


@pytest.mark.parametrize("given", [True, False, "high", "0,5", "50%", [0.5], {"least": 0.5}, "nan", math.nan])
def test_the_tool_refuses_what_is_no_number_by_name(given: Any) -> None:
    with pytest.raises(BadRequestError, match="`min_relevance` must be a number from 0 to 1, not "):
        least(given)


@pytest.mark.parametrize("given", [-3, 2, 7, "40", math.inf, 10**400, -(10**400)])
def test_the_tool_refuses_what_is_outside_as_the_command_does(given: Any) -> None:
    with pytest.raises(BadRequestError, match="`min_relevance` must be a number from 0 to 1, not "):
        least(given)


@pytest.mark.parametrize("words", [["--min-relevance", "0.25"], ["--min-relevance=0.25"]])
def test_the_command_passes_it_on(words: list[str]) -> None:
    service = FakeService()
    assert run(["recall", "q", *words, "r"], lambda: service) == 0
    assert service.asked == [RecallRequest("q r", min_relevance=0.25)]


@pytest.mark.parametrize("value", ["-0.1", "1.5", "nan", "inf", "high", ""])
def test_the_command_refuses_what_is_outside(capsys: pytest.CaptureFixture[str], value: str) -> None:
    service = FakeService()
    assert run(["recall", "--min-relevance", value, "q"], lambda: service) == 2
    assert service.asked == []
    told = capsys.readouterr()
    assert told.out == ""
    assert "--min-relevance" in told.err


# --- reading it -------------------------------------------------------------------------------------------


def shown(found: Hit) -> list[str]:
    """The lines of a hit that begin with two spaces and a plus, in both forms of an answer; they are the same."""
    whole = render.render_recall(RecallAnswer((found,)), "local")
    bounded = render.render_recall_bounded(RecallAnswer((found,)), "local", "q", 8000)
    lines = [line for line in whole.splitlines() if line.startswith("  + ")]
    assert [line for line in bounded.splitlines() if line.startswith("  + ")] == lines
    return lines


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (1.0, []),
        (render.DOUBTFUL, []),
        (0.494, ["  + relevance 0.49"]),
        (0.1, ["  + relevance 0.10"]),
        (0.0, ["  + relevance 0.00"]),
    ],
)
def test_a_doubtful_hit_says_so(value: float, line: list[str]) -> None:
    assert shown(replace(hit(), relevance=value)) == line


def test_it_stands_before_what_else_is_known() -> None:
    found = replace(hit(branch="feature/x", flags="queued"), relevance=0.2, folded=1)
    (line,) = shown(found)
    assert re.fullmatch(r"  \+ relevance 0\.20; queued: .*; branch feature/x; 1 more of this reply found", line)


@pytest.mark.parametrize("flags", ["", "summary"])
def test_a_summary_is_said_to_be_one(flags: str) -> None:
    assert shown(hit(block_type="summary", flags=flags)) == [f"  + summary: {FLAGS['summary']}"]


def test_scripts_read_it_of_every_hit() -> None:
    answer = RecallAnswer((hit(), replace(hit(), relevance=0.125)))
    assert [one["relevance"] for one in json.loads(render.to_json(answer))["hits"]] == [1.0, 0.125]


# --- nothing relevant -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> IndexService:
    home = FunesHome(tmp_path_factory.mktemp("home"))
    told = transcript("s-one")
    for number, text in enumerate(SAID):
        told.say(f"u{number}", text)
    embedder = StaticEmbedder()
    with MemoryWriter.open(home.memory, Embedding(embedder.name, embedder.dim)) as writer:
        put(writer, told)
        writer.commit(embedder.embed_passages)
    return IndexService(home, {"HOME": str(home.root)})


def test_an_agent_reads_that_nothing_is_relevant_and_how_to_see_the_nearest(service: IndexService) -> None:
    text = answer(service, "recall", {"query": "volcanoes of Iceland"}, "local")
    first, *notes = text.splitlines()
    assert first == render.NO_RESULTS
    (note,) = notes
    assert re.match(
        r"Note: nothing relevant: the best passage's relevance is 0\.0\d, and the usual floor is 0\.1\. ", note
    )
    assert "`min_relevance` of 0" in note
    assert note.endswith(".")
    nearest = answer(service, "recall", {"query": "volcanoes of Iceland", "min_relevance": "0"}, "local")
    assert nearest.splitlines()[0] == render.QUOTES
    assert nearest.count(" score=") == len(SAID)
    assert nearest.count("\n  + relevance 0.0") == len(SAID)


def test_a_floor_of_one_s_own_is_asked_of_every_hit(service: IndexService) -> None:
    usual = service.recall(RecallRequest(ASKED))
    assert min(one.relevance for one in usual.hits) < 0.5 < max(one.relevance for one in usual.hits)
    strict = service.recall(RecallRequest(ASKED, min_relevance=0.5))
    assert strict.hits == tuple(one for one in usual.hits if one.relevance >= 0.5)
    assert strict.notes == ()
    none = service.recall(RecallRequest(ASKED, min_relevance=1.0))
    assert none.hits == ()
    assert none.notes == (relevance.refusal(max(one.relevance for one in usual.hits), 1.0),)


def test_the_refusal_names_the_floor_and_does_not_round_up_to_it() -> None:
    assert "relevance is 0.99, and 1 was asked for. " in relevance.refusal(0.9999, 1.0)
    assert "relevance is 0.94, and 0.945 was asked for. " in relevance.refusal(0.9449, 0.945)
    assert "relevance is 0.09, and the usual floor is 0.1. " in relevance.refusal(0.0999)


def test_a_person_reads_it_on_stderr_and_scripts_in_the_notes(
    service: IndexService, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["recall", "volcanoes of Iceland"], lambda: service) == 0
    told = capsys.readouterr()
    assert told.out == "no results\n"
    assert "nothing relevant" in told.err
    assert "--min-relevance 0" in told.err
    assert run(["recall", "--json", "volcanoes of Iceland"], lambda: service) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["hits"] == []
    assert "nothing relevant" in data["notes"][0]
    assert run(["recall", "--json", "--min-relevance", "0", "volcanoes of Iceland"], lambda: service) == 0
    assert len(json.loads(capsys.readouterr().out)["hits"]) == len(SAID)


@pytest.mark.parametrize(
    ("filters", "told"),
    [
        ({"block_type": "tool_use"}, "the filter leaves no passage: block type tool_use"),
        ({"project": "nosuch/thing"}, "the filter leaves no passage: project nosuch/thing"),
        ({"harness": "hermes"}, "the filter leaves no passage: harness hermes"),
        ({"since": "0d"}, "the filter leaves no passage: since 0d"),
        ({"harness": "hermes", "block_type": "text"}, "the filter leaves no passage: harness hermes"),
        (
            {"harness": "hermes", "project": "no/thing"},
            "each of these filters leaves no passage: harness hermes, project no/thing",
        ),
    ],
)
def test_a_filter_that_leaves_no_passage_is_named(service: IndexService, filters: dict[str, str], told: str) -> None:
    assert answer(service, "recall", {"query": ASKED, **filters}, "local") == f"{render.NO_RESULTS}\nNote: {told}\n"
    assert service.recall(RecallRequest("🟡", **filters)).notes == (told,)


def test_filters_that_leave_no_passage_together_are_named(tmp_path: Path) -> None:
    home = FunesHome(tmp_path)
    early, late = transcript("s-early"), transcript("s-late", cwd="/elsewhere")
    early.say("u0", "The parser reads a stream.")
    late.say("u1", "The parser reads a stream.", kind="thinking")
    store(home.memory, early, late)
    asked = RecallRequest("parser", session="s-early", block_type="thinking")
    answered = IndexService(home, {"HOME": str(tmp_path)}).recall(asked)
    assert answered.hits == ()
    assert answered.notes[-1] == "these filters together leave no passage: block type thinking, session s-early"


@pytest.mark.parametrize("query", ["🟡", "✅", "→ ->", "?!", "\ud800"])
def test_a_question_without_words_is_said_to_have_none(service: IndexService, query: str) -> None:
    answered = service.recall(RecallRequest(query))
    assert answered.hits == ()
    assert answered.notes[-1] == "there are no words in the question to look for"


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        ({"k": 300}, "k is 200 at most: 200 was used, not 300"),
        ({"candidates": 10**9}, "candidates is 1,000 at most: 1,000 was used, not 1,000,000,000"),
        ({"neighbors": 21}, "neighbors is 20 at most: 20 was used, not 21"),
    ],
)
def test_a_number_that_is_cut_is_told(service: IndexService, asked: dict[str, int], note: str) -> None:
    assert service.recall(RecallRequest(ASKED, **asked)).notes == (note,)  # type: ignore[arg-type]
