"""Private keys: the lines between BEGIN and END, also when one of the two is cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from funes_mcp.redaction.spans import BY_FORMAT, Span

#: The longest key that is looked for, in bytes. RSA with 16,384 bits, numbered and escaped twice, is shorter.
_LONGEST: Final = 24_000

_BODY_BYTES: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")


#: What may stand between two lines of a key: an escape, a diff's sign, a line's number, a header.
_BETWEEN: Final = (
    rb"(?:\s|\\+[nrt]|\\(?=\s)|[+|>:\"',-]|\d{1,5}(?=[\s|:\xe2])|\xe2\x86\x92"
    rb"|(?:Proc-Type|DEK-Info|Version|Comment|Encryption|Public-Lines|Private-Lines|Key-Derivation"
    rb"|Argon2-[A-Za-z]+):[^\n\\]{0,120})*"
)


@cache
def _begin() -> re.Pattern[bytes]:
    return re.compile(rb"-----BEGIN[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d")


@cache
def _end() -> re.Pattern[bytes]:
    return re.compile(rb"-----(?:END|BEGIN)[ A-Z0-9]{0,40}PRIVATE KEY(?: BLOCK)?-----|Private-MAC:")


@cache
def _lines() -> re.Pattern[bytes]:
    """Base64 lines in sequence, with what a diff, `cat -n` or an escape puts between them."""
    return re.compile(rb"(?:" + _BETWEEN + rb"(?:[A-Za-z0-9+/]{24,}={0,2}|=[A-Za-z0-9+/]{4}(?![A-Za-z0-9+/])))+")


@cache
def _last_line() -> re.Pattern[bytes]:
    return re.compile(_BETWEEN + rb"[A-Za-z0-9+/]{1,70}={1,2}|" + _BETWEEN + rb"[A-Za-z0-9+/]{12,70}(?=\s*\Z)")


def find_private_keys(text: bytes) -> Iterator[Span]:
    """The body of every private key, without the lines that mark its begin and its end."""
    last = 0
    for opening in _begin().finditer(text):
        if opening.start() < last:
            continue
        start = opening.end()
        closing = _end().search(text, start, start + _LONGEST)
        if closing is not None and not closing[0].startswith(b"-----BEGIN"):
            end = closing.start()
            if not _is_body(text[start:end]):
                continue
        else:
            lines = _lines().match(text, start, start + _LONGEST)
            if lines is None or not _is_body(lines[0]):
                continue
            end = lines.end()
            more = _last_line().match(text, end, end + 100)
            if more is not None:
                end = more.end()
        yield from _trimmed(text, start, end)
        last = end
    for closing in _end().finditer(text):
        if closing.start() >= last and closing[0].startswith(b"-----END"):
            tail = _tail_start(text, last, closing.start())
            if tail is not None:
                yield from _trimmed(text, tail, closing.start())
            last = closing.end()


def _is_body(body: bytes) -> bool:
    letters = [c for c in body if c in _BODY_BYTES]
    return len(letters) >= 44 and len(set(letters)) >= 16 and b"..." not in body and b"[REDACTED" not in body


def _trimmed(text: bytes, start: int, end: int) -> Iterator[Span]:
    """The span without the line ends around it, escaped or not."""
    while True:
        if text[start : start + 1].isspace():
            start += 1
        elif (skip := re.compile(rb"\\+[nr]").match(text, start, end)) is not None:
            start = skip.end()
        else:
            break
    while end > start:
        if text[end - 1 : end].isspace():
            end -= 1
        elif (tail := re.compile(rb"\\+[nr]\Z").search(text, max(start, end - 6), end)) is not None:
            end = tail.start()
        else:
            break
    yield Span(start, end, "private-key", BY_FORMAT)


def _tail_start(text: bytes, floor: int, end: int) -> int | None:
    """Where the base64 lines before an END line begin whose BEGIN line is not in the text."""
    floor = max(floor, end - _LONGEST)
    start: int | None = None
    while end > floor:
        breaks = [m.start() for m in re.finditer(rb"\n|\\+n", text[max(floor, end - 200) : end])]
        line_start = max(floor, end - 200) + breaks[-1] if breaks else floor
        line = text[line_start:end].strip(b"\\nr \t\r\n+|>:")
        if line and not (len(line) >= 4 and all(c in _BODY_BYTES for c in line)):
            break
        if line:
            start = line_start
        if line_start == end or not breaks:
            break
        end = line_start
    return start if start is not None and _is_body(text[start:]) else None
