"""How much of a labelled corpus of made-up credentials is found, and how little else."""

from __future__ import annotations

from collections import Counter

import pytest
from secrets_corpus import CONTEXTS, KINDS, cases, lookalikes, redactor_of

from funes_mcp.redaction import Redactor


@pytest.fixture(scope="module")
def redactor(request: pytest.FixtureRequest) -> Redactor:
    return redactor_of(request.config)


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len({kind.name for kind in KINDS}) >= 40
    assert len(CONTEXTS) >= 7
    assert sum(1 for _ in lookalikes()) >= 200


def test_98_percent_of_the_corpus_are_found_and_most_of_every_kind(redactor: Redactor) -> None:
    total: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for case in cases(seed=1):
        total[case.kind] += 1
        if case.leaks(redactor.redact(case.text).text):
            missed[case.kind] += 1
    assert missed.total() <= 0.02 * total.total(), missed.most_common()
    assert {kind for kind in total if missed[kind] > 0.25 * total[kind]} == set()


def test_a_found_value_is_replaced_and_what_is_around_it_stays(redactor: Redactor) -> None:
    for case in cases(seed=2):
        if case.context not in ("prose", "environment", "stack trace"):
            continue
        text = redactor.redact(case.text).text
        first, last = case.text.split("\n", 1)[0], case.text.rsplit("\n", 1)[1]
        if case.context != "prose":
            assert text.startswith(first)
        assert text.endswith(last)
        assert "[REDACTED:" in text or case.leaks(text)


def test_redacting_again_changes_nothing(redactor: Redactor) -> None:
    for case in cases(seed=3):
        once = redactor.redact(case.text).text
        again = redactor.redact(once)
        assert again.text == once
        assert not again.counts


def test_the_gate_finds_nothing_in_a_redacted_text(redactor: Redactor) -> None:
    for case in cases(seed=4):
        assert redactor.scan(redactor.redact(case.text).text) == []


def test_at_most_one_percent_of_lookalikes_are_taken_for_credentials(redactor: Redactor) -> None:
    total = 0
    wrong: list[str] = []
    for _context, text in lookalikes(seed=1):
        total += 1
        if redactor.redact(text).text != text:
            wrong.append(text)
    assert len(wrong) <= 0.01 * total, wrong
