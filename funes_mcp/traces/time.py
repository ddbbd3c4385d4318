"""Any way in which agents write a time, made RFC 3339 in UTC."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from typing import Any, Final

_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d):?(\d\d)(?::?(\d\d)(?:[.,](\d{1,12}))?)?)?"
    r"\s*(?:([Zz])|([+-])(\d\d):?(\d\d)?)?"
)
#: The result's own form, which most agents write. Days that not every month has take the long way.
_EXACT: Final = re.compile(
    r"2[01]\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z"
)
_NUMBER: Final = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,12})?")

#: Zero times of other languages (year 1, 1970) are no times, and no agent wrote before the first bound.
_FIRST: Final = datetime(2000, 1, 1, tzinfo=timezone.utc)
_LAST: Final = datetime(2200, 1, 1, tzinfo=timezone.utc)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

#: Below the first bound a number counts seconds, then milliseconds, microseconds, and nanoseconds. Between
#: the years 2000 and 2200 the four ranges do not overlap.
_UNITS: Final = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))


def to_rfc3339(value: Any) -> str | None:
    """A time as RFC 3339 in UTC with milliseconds and `Z`, or None when `value` is no usable time.

    Takes ISO 8601 text with `Z`, a numeric offset or nothing (then UTC is meant), and numbers or numeric
    text counting seconds, milliseconds, microseconds or nanoseconds since 1970. Times before 2000 and from
    2200 on are taken for nonsense. Fractions are cut, not rounded.
    """
    if isinstance(value, str):
        if _EXACT.fullmatch(value):
            return value
        text = value.strip()
        moment = _from_iso(text)
        if moment is None and _NUMBER.fullmatch(text):
            moment = _from_number(float(text))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        moment = _from_number(value)
    else:
        return None
    if moment is None or not _FIRST <= moment < _LAST:
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def to_unix_ms(rfc3339: str | None) -> int | None:
    """Unix milliseconds of a time that `to_rfc3339` gave; None for None or anything it cannot read."""
    moment = _from_iso(rfc3339) if rfc3339 else None
    return None if moment is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def _from_iso(text: str) -> datetime | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _zulu, sign, off_hours, off_minutes = match.groups()
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            min(int(second or 0), 59),  # a leap second is shown as the second before it
            int((fraction or "0")[:6].ljust(6, "0")),
            timezone.utc,
        )
        if sign:
            offset = timedelta(hours=int(off_hours), minutes=int(off_minutes or 0))
            moment = moment - offset if sign == "+" else moment + offset
    except (ValueError, OverflowError):
        return None
    return moment


def _from_number(value: float) -> datetime | None:
    try:
        if not math.isfinite(value) or value < 0:
            return None
        for bound, microseconds in _UNITS:
            if value < bound:
                return _EPOCH + timedelta(microseconds=int(value * microseconds))
        return _EPOCH + timedelta(microseconds=int(value) // 1000)
    except (OverflowError, ValueError):
        return None
