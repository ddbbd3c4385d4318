"""Times as people type them, and what age means for a passage."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from funes_mcp.errors import BadRequestError

_AGE = re.compile(r"(\d{1,6})\s*(m|min|h|d|w|mo|y)", re.IGNORECASE)
_UNITS = {
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
    "mo": timedelta(days=30),
    "y": timedelta(days=365),
}
_WORDS = {"today": 0, "yesterday": 1}


def parse_when(text: str, now: datetime, name: str) -> int:
    """A moment as typed: an ISO date or time, an age (`45m`, `12h`, `7d`, `2w`, `6mo`, `1y`), or a day's name.

    The names are `today` and `yesterday`. A time without an offset is taken in the zone of `now`, which must be aware.

    Returns:
        Unix milliseconds.

    Raises:
        BadRequestError: For anything else; `name` says which argument it was.
    """
    typed = text.strip()
    try:
        if typed.lower() in _WORDS:
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            return _milliseconds(midnight - timedelta(days=_WORDS[typed.lower()]))
        if age := _AGE.fullmatch(typed.removesuffix("ago").strip()):
            return _milliseconds(now - int(age[1]) * _UNITS[age[2].lower()])
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", typed))
        return _milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo))
    except (ValueError, OverflowError):
        raise BadRequestError(
            f"{name} cannot be read as a time: {typed[:60]!r}.",
            "Give a date (2026-03-01), a time (2026-03-01T14:00), or an age (12h, 7d, 2w, 6mo).",
        ) from None


def milliseconds_of(ts: str) -> int | None:
    """Unix milliseconds of a stored `ts` (RFC 3339 UTC); None when it is empty or unreadable."""
    try:
        return _milliseconds(datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", ts))) if ts else None
    except ValueError:
        return None


def _milliseconds(moment: datetime) -> int:
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (moment.astimezone(timezone.utc) - epoch) // timedelta(milliseconds=1)
