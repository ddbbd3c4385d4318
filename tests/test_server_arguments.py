"""Arguments as clients and models really send them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fixtures.server.fake_service import SESSION, TURN, FakeService
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.errors import BadRequestError
from funes_mcp.models import RecallRequest
from funes_mcp.server import MAX_K, Arguments, answer, recall_request, tools


def request(**given: Any) -> RecallRequest:
    return recall_request(Arguments("recall", given), "local")


@pytest.mark.parametrize("k", [3, 3.0, "3", " 3 ", "3.0", 3.9])
def test_a_number_may_come_as_a_string(k: Any) -> None:
    assert request(query="q", k=k).k == 3


@pytest.mark.parametrize("k", [None, "", "  ", "null", "None"])
def test_an_empty_number_is_absent(k: Any) -> None:
    assert request(query="q", k=k).k == 8


@pytest.mark.parametrize("k", [101, 10**9, 10**400, "1e999", math.inf])
def test_a_number_that_is_too_large_is_held_with_a_note(k: Any) -> None:
    arguments = Arguments("recall", {"query": "q", "k": k})
    assert recall_request(arguments, "local").k == MAX_K
    (note,) = arguments.notes
    assert note.startswith("`k` is 100 at most: 100 was used, not ")
    assert len(note) < 100


@pytest.mark.parametrize("k", [0, -5, "-3", -(10**400), -math.inf])
def test_a_number_that_is_too_small_is_refused_as_on_the_command_line(k: Any) -> None:
    with pytest.raises(BadRequestError, match="`k` must be 1 or more, not "):
        request(query="q", k=k)


def test_what_was_cut_is_told_with_the_answer() -> None:
    service = FakeService()
    assert "Note: `k` is 100 at most: 100 was used, not 300\n" in answer(
        service, "recall", {"query": "q", "k": 300}, ""
    )
    assert "Note: `max_bytes` is 500 at least: 500 was used, not 9\n" in answer(
        service, "recall", {"query": "q", "max_bytes": 9}, ""
    )
    assert "Note: `query` is 20,000 characters at most" in answer(service, "recall", {"query": "q " * 20_000}, "")
    opened = {"session_id": SESSION, "turn_uuid": TURN, "window": 10**9}
    assert "Note: `window` is 50 at most: 50 was used, not 1000000000\n" in answer(service, "get", opened, "")
    assert "Note" not in answer(service, "get", {**opened, "window": 50}, "")
    with pytest.raises(BadRequestError, match="`window` must be 0 or more"):
        answer(service, "get", {**opened, "window": -1}, "")


@pytest.mark.parametrize("k", [True, "many", [8], {"k": 8}, "nan", math.nan])
def test_what_is_no_number_is_refused_by_name(k: Any) -> None:
    with pytest.raises(BadRequestError, match="`k` must be a whole number"):
        request(query="q", k=k)


def test_empty_optional_arguments_are_absent() -> None:
    empty = dict.fromkeys(("block_type", "harness", "memory", "project", "since", "until", "session"), "")
    assert request(query="q", **empty) == request(query="q") == RecallRequest("q")


def test_optional_arguments_arrive() -> None:
    given = {"harness": "claude", "project": "a/b", "since": "7d", "until": "1d", "session": "abc"}
    asked = request(query="q", block_type="TEXT", memory="/m", **given)
    assert asked == RecallRequest("q", block_type="text", memory="/m", **given)


@pytest.mark.parametrize("query", [None, "", "   ", [], {}, True])
def test_a_missing_query_is_refused_by_name(query: Any) -> None:
    with pytest.raises(BadRequestError, match="`query`"):
        request(query=query)


@pytest.mark.parametrize("query", ["null", "none", "AND", "what's the C++ flag -O2?", '"unbalanced', "x", "🦀", "日"])
def test_any_words_are_a_query(query: str) -> None:
    assert request(query=query).query == query


def test_other_forms_of_a_query_are_understood() -> None:
    assert request(query=404).query == "404"
    assert request(query=["lock", "timeout"]).query == "lock timeout"
    assert len(request(query="x" * 1_000_000).query) == 20_000


def test_a_block_type_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(BadRequestError, match="tool_result"):
        request(query="q", block_type="code")
    assert request(query="q", block_type="all").block_type is None


def test_unknown_arguments_are_ignored_and_named() -> None:
    arguments = Arguments("recall", {"query": "q", "limit": 3})
    arguments.ignore_unknown()
    (note,) = arguments.notes
    assert "limit" in note
    assert "max_bytes" in note
    plain = Arguments("recall", {"query": "q", "k": 3})
    plain.ignore_unknown()
    assert plain.notes == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(list(tools()[0].input_schema["properties"])), json_values))
def test_no_arguments_raise_anything_but_a_sentence(given: dict[str, Any]) -> None:
    told = ""
    try:
        asked = recall_request(Arguments("recall", given), "local")
    except BadRequestError as error:
        told = error.message
    else:
        assert 1 <= asked.k <= MAX_K
        assert asked.query.strip()
        return
    assert "`" in told


def test_tools_are_what_agents_need_them_to_be() -> None:
    for tool in tools():
        wire = tool.model_dump(by_alias=True, exclude_none=True)
        assert wire["annotations"] == {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        }
        assert wire["_meta"]["anthropic/alwaysLoad"] is True
        assert "outputSchema" not in wire
    assert [tool.name for tool in tools()] == ["recall", "get", "status"]
    assert len(str([tool.model_dump(by_alias=True, exclude_none=True) for tool in tools()])) < 6000
