"""What texts are found by: whole identifiers, the inside of camelCase names, scripts without spaces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.memory import conversation, terms
from funes_mcp.memory.conversation import Node
from funes_mcp.memory.times import UNDATED, millis


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in src/foo_bar.rs:12, line", ["src/foo_bar.rs:12", "src/foo_bar.rs", "foo_bar.rs", "foo_bar"]),
        ("CVE-2026-25680.", ["cve-2026-25680"]),
        ("std::vec::Vec", ["std::vec::vec"]),
        ("self.my_method(x)", ["self.my_method", "my_method"]),
        ("the C++ flag", ["c++"]),
        ("C# or c", ["c#"]),
        ("run it --loud, --dry-run -v --no", ["--loud", "dry-run", "--no"]),
        ("just words, nothing - else!", []),
        ("error E0277 at 53aa5117, 42", ["e0277", "53aa5117"]),
        ("---- //// ::", []),
        ("x" * 500 + "_y", []),
    ],
)
def test_identifiers(text: str, expected: list[str]) -> None:
    assert terms.names(text)[0] == expected


def test_camel_case_names_are_found_by_their_parts() -> None:
    assert terms.names("call parseHTMLText and fooBar.getItem2")[1] == [
        "parse",
        "html",
        "text",
        "foo",
        "bar",
        "get",
        "item",
    ]


def test_scripts_without_spaces_are_cut_in_pairs_and_free_the_words_beside_them() -> None:
    assert terms.bigrams("重跑测试 x 猫") == ["重跑", "跑测", "测试", "猫"]
    assert terms.without_unspaced("重跑gen-itgc后").split() == ["gen-itgc"]
    assert terms.has_unspaced("안녕")
    assert not terms.has_unspaced("Überlauf élan")


def test_stop_words_leave_a_question_unless_nothing_else_is_there() -> None:
    assert terms.question_words("What's the flag?") == ["flag"]
    assert terms.question_words("who are you") == ["who", "are", "you"]


@given(st.text(max_size=300))
def test_any_text_has_terms_or_none_but_never_an_error(text: str) -> None:
    known = terms.Names()
    assert known.find(text) == known.find(text) == terms.names(text)
    terms.question_words(text)
    terms.bigrams(text)


@pytest.mark.parametrize(
    ("ts", "expected"),
    [
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T00:00:00.1234567Z", 123),
        ("", UNDATED),
        ("yesterday", UNDATED),
        (None, UNDATED),
    ],
)
def test_times(ts: str | None, expected: int) -> None:
    assert millis(ts) == expected


def node(turn: str, parent: str | None, seq: int, kinds: str = "text", message: str | None = None) -> Node:
    return Node(turn, parent, seq, "", "assistant" if message else "user", message, "", kinds)


def test_reading_on_follows_the_branch_of_the_turn() -> None:
    nodes = [node("a", None, 0), node("b", "a", 1), node("c", "b", 2), node("d", "a", 3), node("e", "d", 4)]
    line, abandoned = conversation.ordered(nodes, "e")
    assert [n.turn for n in line] == ["a", "d", "e"]
    assert abandoned == {"b", "c"}
    line, _ = conversation.ordered(nodes, "b")
    assert [n.turn for n in line] == ["a", "b", "c"]


def test_results_of_parallel_calls_and_lines_of_a_reply_are_no_branches() -> None:
    nodes = [
        node("p", None, 0),
        node("a1", "p", 1, "tool_use", "m"),
        node("a2", "a1", 2, "tool_use", "m"),
        node("r1", "a1", 3, "tool_result"),
        node("r2", "a2", 4, "tool_result"),
        node("z", "r1", 5),
    ]
    line, abandoned = conversation.ordered(nodes, "a1")
    assert [n.turn for n in line] == ["p", "a1", "a2", "r1", "r2", "z"]
    assert not abandoned
    assert [[n.turn for n in group] for group in conversation.replies(line)][1] == ["a1", "a2"]


def test_a_parent_that_is_not_stored_is_the_line_above() -> None:
    nodes = [node("a", None, 0), node("b", "unknown", 1), node("c", "b", 2)]
    line, abandoned = conversation.ordered(nodes, "a")
    assert [n.turn for n in line] == ["a", "b", "c"]
    assert not abandoned


@given(st.lists(st.integers(-1, 30), min_size=1, max_size=30), st.integers(0, 29))
def test_a_turn_is_always_in_its_own_branch(parents: list[int], at: int) -> None:
    nodes = [node(f"n{i}", f"n{p}" if p >= 0 else None, i) for i, p in enumerate(parents)]
    wanted = f"n{at % len(nodes)}"
    line, _ = conversation.ordered(nodes, wanted)
    assert wanted in [n.turn for n in line]
    assert [n.seq for n in line] == sorted(n.seq for n in line)
