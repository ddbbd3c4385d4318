"""Times as people type them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from funes_mcp.errors import BadRequestError
from funes_mcp.retrieval.when import milliseconds_of, parse_when

NOW = datetime(2026, 3, 11, 15, 30, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2026-03-01", "2026-02-28T22:00:00Z"),
        ("2026-03-01T14:00", "2026-03-01T12:00:00Z"),
        ("2026-03-01T14:00:00Z", "2026-03-01T14:00:00Z"),
        ("2026-03-01T14:00:00+08:00", "2026-03-01T06:00:00Z"),
        ("12h", "2026-03-11T01:30:00Z"),
        ("7d", "2026-03-04T13:30:00Z"),
        ("2w ago", "2026-02-25T13:30:00Z"),
        ("yesterday", "2026-03-09T22:00:00Z"),
        (" today ", "2026-03-10T22:00:00Z"),
    ],
)
def test_reads_dates_times_and_ages(typed: str, meant: str) -> None:
    assert parse_when(typed, NOW, "since") == milliseconds_of(meant)


@pytest.mark.parametrize("typed", ["", "soon", "7", "99999999y", "2026-13-01", "9" * 400 + "d"])
def test_says_what_it_cannot_read(typed: str) -> None:
    with pytest.raises(BadRequestError, match="since cannot be read"):
        parse_when(typed, NOW, "since")


def test_a_passage_without_a_date_has_no_age() -> None:
    assert milliseconds_of("") is None
    assert milliseconds_of("no date") is None
