"""The card of a published memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from funes_mcp.publishing.card import CLOSE, OPEN, TAGS, Facts, size_category, written

FACTS = Facts(
    "ann/memory", 12_345, 67, {"codex": 345, "claude_code": 12_000, "": 5}, "BAAI/bge-small-en-v1.5", "2026-05-01"
)


def new(facts: Facts = FACTS) -> str:
    card = written(None, facts)
    assert card is not None
    return card


def test_a_new_card_says_what_it_is_and_how_to_read_it() -> None:
    import yaml

    card = new()
    head, _, body = card.removeprefix("---\n").partition("\n---\n")
    about = yaml.safe_load(head)
    assert about["tags"] == list(TAGS) == ["funes", "agent-memory", "embeddings", "lance"]
    assert about["size_categories"] == ["10K<n<100K"]
    assert 'funes recall "why did we …" --memory ann/memory' in body
    assert "funes add claude ann/memory" in body
    for line in (
        "| Passages | 12,345 |",
        "| Sessions | 67 |",
        "| Agents | Claude Code (12,000), Codex (345) |",
        "| Embedding model | `BAAI/bge-small-en-v1.5` |",
        "| Updated | 2026-05-01 |",
    ):
        assert line in body[body.index(OPEN) : body.index(CLOSE)]


def test_only_what_stands_between_the_markers_is_written_again() -> None:
    mine = f"---\nlicense: mit\n---\n# Ours\n\nBefore {OPEN}\nold numbers\n{CLOSE} after\n{OPEN} and {CLOSE}\n"
    card = written(mine, FACTS)
    assert card is not None
    assert card.startswith(f"---\nlicense: mit\n---\n# Ours\n\nBefore {OPEN}\n| | |")
    assert card.endswith(f"{CLOSE} after\n{OPEN} and {CLOSE}\n")
    assert "old numbers" not in card
    again = written(card, replace(FACTS, passages=99_999))
    assert again is not None
    assert again.replace("99,999", "12,345") == card


@pytest.mark.parametrize("card", ["", "# By hand\n", f"{CLOSE} the wrong way round {OPEN}", f"{OPEN} never closed"])
def test_a_card_without_markers_is_left_alone(card: str) -> None:
    assert written(card, FACTS) is None


def test_a_card_that_says_the_same_is_left_alone() -> None:
    assert written(new(), FACTS) is None


def test_names_from_other_machines_cannot_break_the_card() -> None:
    card = new(replace(FACTS, agents={f"x | y\n{CLOSE}<b>`": 1}, model="m` |\n<script>"))
    assert card.count(CLOSE) == 1
    assert "<script>" not in card
    [line] = [line for line in card.splitlines() if line.startswith("| Agents |")]
    assert line.count("|") == 3


@pytest.mark.parametrize(
    ("rows", "name"),
    [(0, "n<1K"), (999, "n<1K"), (1_000, "1K<n<10K"), (999_999, "100K<n<1M"), (10**9, "n>100M")],
)
def test_sizes_are_called_as_the_hub_calls_them(rows: int, name: str) -> None:
    assert size_category(rows) == name
