"""The days that a question names: "in June 2023", "on 3 May", "2026-05-04", "yesterday", "two weeks ago".

Pure. Passages of those days are preferred, never required, so a date that was misread costs little.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from numpy import float32, int64
    from numpy.typing import NDArray

#: Of a date without a year, the years that may be meant: this one and so many before it.
YEARS_BACK: Final = 10

#: At most so many stretches of time are taken from one question.
MOST: Final = 64

_DAY_MS: Final = 86_400_000

#: What happened on a day is told on that day or soon after, and time zones shift it: days until closeness halves.
_NEAR_DAYS: Final = 3.0

#: The same as a share of a longer stretch.
_NEAR_SHARE: Final = 0.25

_NAMES: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTED: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS: Final = {"a": 1, "an": 1} | {word: number for number, word in enumerate(_COUNTED, 1)}

_FULL: Final = "|".join(_NAMES)
_MONTH: Final = rf"(?P<month>{_FULL}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)"
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_LEAD: Final = r"(?:in|during|since|of|last|this|early|late|mid|from|until|till|by|before|after|around|back\ in)"

_ABSOLUTE: Final = tuple(
    re.compile(pattern, re.IGNORECASE | re.VERBOSE)
    for pattern in (
        rf"(?<![\w.-]){_YEAR}-(?P<number>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])(?![\d-])",
        rf"(?<![\w.-]){_YEAR}-(?P<number>0[1-9]|1[0-2])(?![\w.-])",
        rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?(?!\w)",
        rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}(?:,?\s+{_YEAR})?(?![\w:.])",
        rf"\b{_MONTH},?\s+(?:of\s+)?{_YEAR}\b",
        rf"\b{_LEAD}[\s-]+(?P<month>{_FULL})\b(?!\s*\()",
        rf"\b(?:in|during|of|since|year)\s+{_YEAR}(?![\w.-])",
    )
)
_RELATIVE: Final = re.compile(
    rf"""\b(?:
        (?P<word>today|yesterday)
      | (?P<which>last|past|this)\s+(?P<span>week|weekend|month|year)
      | (?:last|on)\s+(?P<weekday>{"|".join(_DAYS)})
      | (?P<count>\d{{1,3}}|{"|".join(_NUMBERS)})\s+(?P<unit>day|week|month|year)s?\s+ago
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_LENGTHS: Final = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time, in Unix milliseconds: `start` is in it, `end` is not."""

    start: int
    end: int


def named(question: str, now: datetime) -> tuple[tuple[Stretch, ...], str]:
    """The stretches of time that a question names, none for most questions, and the question without their names.

    What is left is the whole question when nothing else would be.

    Args:
        question: As typed. English names of months and days; ISO dates.
        now: What relative ages count from; aware. Its zone is the one of all days.
    """
    found: dict[Stretch, None] = {}
    taken: list[tuple[int, int]] = []
    for pattern in _ABSOLUTE:
        for match in pattern.finditer(question):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            groups = match.groupdict()
            month = _month(groups)
            day = int(groups["day"]) if groups.get("day") else None
            named = int(groups["year"]) if groups.get("year") else None
            years = [named] if named else list(range(now.year, now.year - YEARS_BACK, -1))
            made = [stretch for year in years if (stretch := _absolute(year, month, day, now)) is not None]
            if made:
                taken.append(match.span())
                found.update(dict.fromkeys(made))
    for match in _RELATIVE.finditer(question):
        found[_relative(match, now)] = None
        taken.append(match.span())
    rest = question
    for start, end in sorted(taken, reverse=True):
        rest = f"{rest[:start]} {rest[end:]}"
    return tuple(found)[:MOST], rest if any(char.isalnum() for char in rest) else question


def closeness(ts: NDArray[int64], stretches: tuple[Stretch, ...]) -> NDArray[float32]:
    """How near moments are to the nearest of some stretches: 1 inside, halved every few days outside.

    Args:
        ts: Unix milliseconds, int64 (n,). Values of undated passages are far from everything.

    Returns:
        float32 (n,), in [0, 1].
    """
    import numpy as np

    near = np.zeros(len(ts), np.float32)
    moments = ts.astype(np.float64)
    for stretch in stretches:
        away = np.maximum(stretch.start - moments, moments - (stretch.end - 1)).clip(0.0) / _DAY_MS
        halving = max(_NEAR_DAYS, _NEAR_SHARE * (stretch.end - stretch.start) / _DAY_MS)
        near = np.maximum(near, np.exp2(-np.minimum(away / halving, 100.0)).astype(np.float32))
    return near


def _month(groups: dict[str, str | None]) -> int | None:
    if number := groups.get("number"):
        return int(number)
    if not (name := groups.get("month")):
        return None
    return next(at for at, full in enumerate(_NAMES, 1) if full.startswith(name.lower()[:3]))


def _absolute(year: int, month: int | None, day: int | None, now: datetime) -> Stretch | None:
    """A day, a month or a year; None for a day that the calendar does not have."""
    zone = now.tzinfo
    try:
        start = datetime(year, month or 1, day or 1, tzinfo=zone)
        if day is not None:
            end = start + timedelta(days=1)
        elif month is not None:
            end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
        else:
            end = datetime(year + 1, 1, 1, tzinfo=zone)
        return _stretch(start, end)
    except (ValueError, OverflowError):
        return None


def _relative(match: re.Match[str], now: datetime) -> Stretch:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if word := match["word"]:
        start = today - timedelta(days=1 if word.lower() == "yesterday" else 0)
        return _stretch(start, start + timedelta(days=1))
    if span := match["span"]:
        length = timedelta(days=_LENGTHS[span.lower()])
        if match["which"].lower() == "last":
            return _stretch(today - 2 * length, today)
        return _stretch(today - length, today + timedelta(days=1))
    if name := match["weekday"]:
        back = (today.weekday() - _DAYS.index(name.lower())) % 7 or 7
        start = today - timedelta(days=back)
        return _stretch(start, start + timedelta(days=1))
    count = match["count"].lower()
    number = int(count) if count.isdigit() else _NUMBERS[count]
    unit = _LENGTHS[match["unit"].lower()]
    middle = today - timedelta(days=number * unit)
    return _stretch(middle - timedelta(days=unit // 2), middle + timedelta(days=1 + unit // 2))


def _stretch(start: datetime, end: datetime) -> Stretch:
    return Stretch(_milliseconds(start), _milliseconds(end))


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
