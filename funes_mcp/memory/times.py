"""Times as numbers. Pure."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from typing import Final

#: What stands for "no date": lower than any date of this era, and few bits wide.
UNDATED: Final = -(1 << 44)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


@lru_cache(maxsize=4096)  # the rows of a turn have one time, and several stores ask for it
def millis(ts: str | None) -> int:
    """RFC 3339 as Unix milliseconds; a time without an offset is UTC; `UNDATED` for anything else."""
    if not ts:
        return UNDATED
    try:
        moment = datetime.fromisoformat(ts[:-1] + "+00:00" if ts[-1] in "zZ" else ts)
    except ValueError:
        return _lenient(ts)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    gap = moment - _EPOCH
    return (gap.days * 86_400 + gap.seconds) * 1000 + gap.microseconds // 1000


def _lenient(ts: str) -> int:
    """Fractions of a second that are not three or six digits long, which older Pythons refuse."""
    head, dot, rest = ts.partition(".")
    if not dot:
        return UNDATED
    digits = len(rest) - len(rest.lstrip("0123456789"))
    if not digits:
        return UNDATED
    return millis(f"{head}.{(rest[:digits] + '000000')[:6]}{rest[digits:]}")
