"""What parsers remember between two readings holds no credential."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.redaction import Redactor
from funes_mcp.redaction.records import redacted_json

TOKEN = "ghp_" + "Qw3rTy7uIoP1aSdFgHjK9lZxCvBnM5eR2tYu"


@pytest.fixture(scope="module")
def own() -> Redactor:
    return Redactor(library=False)


def test_ids_are_searched_together_and_stay(own: Redactor) -> None:
    asked: list[str] = []

    def redact(text: str) -> str:
        asked.append(text)
        return own.redact(text).text

    memory = {
        "tools": {f"toolu_{n:024}": "exec_command" for n in range(50)},
        "parents": {"a": "a2cc74c0-c22c-4fb2-8d2e-c78110b275ac", "b": None},
        "recent": [f"event:{n:016x}" for n in range(50)],
        "titles": ["Fix the parser", 7, True],
    }
    assert redacted_json(memory, redact) == memory
    assert len(asked) == 2  # all ids, and the title


def test_a_credential_among_ids_goes_and_the_ids_stay(own: Redactor) -> None:
    memory = {"queued": [TOKEN, f"use {TOKEN} now"], "recent": ["event:2623dfbae29828f4", "short"]}
    clean = redacted_json(memory, lambda text: own.redact(text).text)
    assert clean["recent"] == memory["recent"]
    assert TOKEN not in str(clean)
    assert all("[REDACTED:" in text for text in clean["queued"])


STATES = st.recursive(
    st.one_of(st.none(), st.integers(), st.sampled_from(["msg_1", "a b", TOKEN, f"x {TOKEN}", "event:0f", ""])),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
)


@given(STATES)
def test_every_string_is_as_if_it_was_searched_alone(own: Redactor, state: object) -> None:
    def alone(value: object) -> object:
        if isinstance(value, str):
            return own.redact(value).text
        if isinstance(value, dict):
            return {name: alone(item) for name, item in value.items()}
        return [alone(item) for item in value] if isinstance(value, list) else value

    assert redacted_json(state, lambda text: own.redact(text).text) == alone(state)


def test_what_is_found_is_counted_once(own: Redactor) -> None:
    counted = 0

    def redact(text: str) -> str:
        nonlocal counted
        found = own.redact(text)
        counted += found.counts.total()
        return found.text

    redacted_json({"a": [TOKEN, "toolu_01"]}, redact, lambda text: own.redact(text).text)
    assert counted == 1
