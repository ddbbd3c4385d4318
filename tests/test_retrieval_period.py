"""The days that a question names."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.retrieval import period

NOW = datetime(2026, 11, 30, 9, 15, tzinfo=timezone(timedelta(hours=2)))


def days(question: str) -> list[tuple[str, str]]:
    """First and last day of every stretch."""
    stretches, _ = period.named(question, NOW)
    return [(day(s.start), day(s.end - 1)) for s in stretches]


def day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, NOW.tzinfo).date().isoformat()


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("what broke in June 2023?", "2023-06-01", "2023-06-30"),
        ("what did we ship on 3 May, 2024", "2024-05-03", "2024-05-03"),
        ("the outage of August 11th 2023", "2023-08-11", "2023-08-11"),
        ("what happened in December 2025", "2025-12-01", "2025-12-31"),
        ("logs of 2026-05-04 please", "2026-05-04", "2026-05-04"),
        ("notes from 2026-02", "2026-02-01", "2026-02-28"),
        ("the design of Sept. 2025", "2025-09-01", "2025-09-30"),
        ("decided during 2024", "2024-01-01", "2024-12-31"),
        ("what did I do yesterday", "2026-11-29", "2026-11-29"),
        ("where did I stop today", "2026-11-30", "2026-11-30"),
        ("what we tried last Friday", "2026-11-27", "2026-11-27"),
        ("last monday, a Monday itself", "2026-11-23", "2026-11-23"),
        ("the fix of three days ago", "2026-11-27", "2026-11-27"),
        ("the fix of two weeks ago", "2026-11-13", "2026-11-19"),
    ],
)
def test_a_day_a_month_or_a_year(question: str, first: str, last: str) -> None:
    assert days(question) == [(first, last)]


def test_without_a_year_any_of_the_last_ones_is_meant() -> None:
    found = days("the talk on 29 February")
    assert found == [("2024-02-29", "2024-02-29"), ("2020-02-29", "2020-02-29")]
    assert len(days("what did we decide in March?")) == period.YEARS_BACK


@pytest.mark.parametrize(
    "question",
    [
        "why did we drop the streaming parser",
        "may I use the second one",
        "march through the array from the end",
        "CVE-2026-25680 golang.org/x/net",
        "release v2026-05-01 of the image",
        "fix 31 February",
        "port 2024 is taken",
        "error E0308 at line 12",
        "decode(second, august=1)",
    ],
)
def test_most_questions_name_no_day(question: str) -> None:
    assert period.named(question, NOW) == ((), question)


def test_what_is_left_is_the_topic() -> None:
    _, rest = period.named("what broke in the build on 3 May 2024?", NOW)
    assert " ".join(rest.split()) == "what broke in the build on ?"
    assert period.named("yesterday", NOW)[1] == "yesterday"


def test_nearness_is_one_inside_and_fades_outside() -> None:
    stretches, _ = period.named("on 10 May 2024", NOW)
    start = stretches[0].start
    one = 86_400_000
    ts = np.array([start, start + one - 1, start + 4 * one, start - 3 * one, start + 400 * one], np.int64)
    near = period.closeness(ts, stretches)
    assert near[0] == near[1] == 1.0
    assert near[2] == pytest.approx(0.5, abs=0.01)
    assert near[3] == pytest.approx(0.5, abs=0.01)
    assert near[4] < 1e-6
    assert period.closeness(ts, ()).tolist() == [0.0] * 5


def test_an_undated_passage_is_far_from_every_day() -> None:
    stretches, _ = period.named("in 2024", NOW)
    assert period.closeness(np.array([np.iinfo(np.int64).min], np.int64), stretches)[0] < 1e-6


@given(st.text(max_size=80) | st.from_regex(r"[0-9]{1,4}[ -]?(may|on|in|last|ago|2024| |-)[a-z0-9 -]{0,20}"))
def test_any_text_is_a_question(question: str) -> None:
    stretches, rest = period.named(question, NOW)
    assert len(stretches) <= period.MOST
    assert all(stretch.start < stretch.end for stretch in stretches)
    assert rest == question or any(c.isalnum() for c in rest)
