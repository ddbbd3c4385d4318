"""Find credentials in a text and put a mark in their place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from funes_mcp.redaction.keys import find_private_keys
from funes_mcp.redaction.library import Library
from funes_mcp.redaction.model import MARK, UNSEARCHED, Finding, Redacted, ScannerError, mark
from funes_mcp.redaction.named import find_named
from funes_mcp.redaction.spans import Span, merged
from funes_mcp.redaction.structures import (
    find_aws_secrets,
    find_bearers,
    find_cookies,
    find_encoded_keys,
    find_in_commands,
    find_in_kubernetes,
    find_in_urls,
    find_seed_phrases,
)
from funes_mcp.redaction.tokens import find_hashes, find_tokens, runs_of
from funes_mcp.redaction.values import looks_random

#: How often a text is searched again after something was replaced in it.
_ROUNDS: Final = 16

#: Shorter texts hold no credential.
_SHORTEST: Final = 10

_MARKED: Final = re.compile(rb"\[REDACTED:[a-z0-9-]{1,64}\]")


class Redactor:
    """Finds credentials. Cheap to make; everything heavy is loaded when first needed. Thread-safe.

    Args:
        cache_dir: Where the library keeps its compiled rules (see `Library`).
        library: Whether the library's rules are used besides our own detectors.
    """

    def __init__(self, cache_dir: Path | None = None, *, library: bool = True) -> None:
        self._library = Library(cache_dir) if library else None
        self._own = Redactor(library=False) if library else self
        self._loader: Thread | None = None

    @property
    def failure(self) -> str | None:
        """Why the library's rules are not applied, when they are not; for `funes status`."""
        return self._library.failure if self._library else None

    @property
    def compiled(self) -> bool:
        """Whether `warm` most likely takes less than a second: the rules are loaded, or were compiled before."""
        return self._library is None or self._library.compiled

    def warm(self) -> None:
        """Load (and compile, the first time) the library's rules. Never raises; see `failure`."""
        if self._library is not None:
            with suppress(ScannerError):
                self._library.load()

    def warm_apart(self) -> None:
        """The same in a thread, which leaves the interpreter to others most of the time; see `loading`."""
        self._loader = Thread(target=self.warm, name="funes-rules", daemon=True)
        self._loader.start()

    @property
    def loading(self) -> bool:
        """Whether `warm_apart` goes on, so that `redact` would have to wait for it."""
        return self._loader is not None and self._loader.is_alive()

    def redact(self, text: str) -> Redacted:
        """Replace the value of every credential by `[REDACTED:<kind>]`. Never raises.

        What is around a value stays. Redacting the answer again changes nothing. A block that cannot be
        searched for a fault of ours is replaced as a whole, and counted as `unsearched-block`. When the
        library cannot be used, our own detectors go on alone (see `failure`).
        """
        if len(text) < _SHORTEST:
            return Redacted(text)
        try:
            return self._redact(text)
        except Exception:  # a fault of ours must neither stop the indexing nor let a credential through
            return Redacted(mark(UNSEARCHED), Counter({UNSEARCHED: 1}))

    def provisional(self, text: str) -> Redacted:
        """What our own detectors make of a text, without waiting for the library's rules.

        Not to be kept before `confirms` says so. Never raises.
        """
        return self._own.redact(text)

    def confirms(self, text: str, found: Redacted) -> bool:
        """Whether `redact` gives for a text just what `provisional` gave. Waits for the rules. Never raises."""
        if len(text) < _SHORTEST:
            return found.text == text
        if not found.counts and self._library is not None:
            try:
                if not self._library.find(text.encode("utf-8", "surrogatepass")):
                    return True
            except ScannerError:  # our own detectors go on alone
                return True
            except Exception:
                pass  # `redact` knows what to do
        return self.redact(text) == found

    def scan(self, text: str, *, timeout: float | None = None) -> list[Finding]:
        """Everything in the text that looks like a credential, by every means there is.

        Unlike `redact` it does not go on when the library cannot be used or takes longer than `timeout`
        seconds: whoever publishes must be sure. Raises `ScannerError`.
        """
        data = text.encode("utf-8", "surrogatepass")
        try:
            spans = self._find(data, strict=True, timeout=timeout)
        except ScannerError:
            raise
        except Exception as error:
            raise ScannerError(f"The search for secrets failed: {type(error).__name__}: {error}") from error
        if text.isascii():
            return [Finding(s.kind, s.start, s.end, s.origin) for s in spans]
        return _in_code_points(data, spans)

    def _redact(self, text: str) -> Redacted:
        data = text.encode("utf-8", "surrogatepass")
        counts: Counter[str] = Counter()
        for _ in range(_ROUNDS):
            spans = self._find(data, strict=False, timeout=None)
            if not spans:
                break
            parts: list[bytes] = []
            last = 0
            for span in spans:
                parts += (data[last : span.start], mark(span.kind).encode())
                last = span.end
                counts[span.kind] += 1
            parts.append(data[last:])
            data = b"".join(parts)
        return Redacted(data.decode("utf-8", "surrogatepass"), counts) if counts else Redacted(text)

    def _find(self, data: bytes, *, strict: bool, timeout: float | None) -> list[Span]:
        spans = own_findings(data)
        if self._library is not None:
            try:
                spans += self._library.find(data, timeout)
            except ScannerError:
                if strict:
                    raise
        elif strict:
            raise ScannerError("The rules of the secret scanner are switched off.")
        if not spans:
            return spans
        spans = list(_outside_marks(data, [_on_characters(data, span) for span in spans]))
        return merged(spans + list(_again(data, spans)))


def own_findings(data: bytes) -> list[Span]:
    """What our own detectors find. Each is asked only where a cheap test says that it may find something."""
    low = data.lower()  # of bytes: ASCII alone is changed, and positions stay
    runs = runs_of(data)
    spans = list(find_named(data, low, runs))
    spans += find_in_commands(data, low)
    if b"@" in data and (b"://" in data or rb":\/\/" in data):
        spans += find_in_urls(data)
    if b"$" in data:
        spans += find_hashes(data)
    if b"mnemonic" in low or b" phrase" in low:
        spans += find_seed_phrases(low)
    if b"kind" in low and b"secret" in low:
        spans += find_in_kubernetes(data, low)
    if not runs:  # the rest looks for long values
        return spans
    spans += find_tokens(data, runs)
    spans += find_aws_secrets(data)
    spans += find_encoded_keys(data, low)
    if b"PRIVATE KEY" in data or b"PuTTY-User" in data:
        spans += find_private_keys(data)
    if b"bearer" in low or b"basic" in low:
        spans += find_bearers(data, low)
    if b"cookie" in low or b"TRUE\t" in data or b"TRUE\\t" in data:
        spans += find_cookies(data, low)
    return spans


def _on_characters(data: bytes, span: Span) -> Span:
    """The span widened to whole characters: patterns of bytes may stop inside one."""
    start, end = span.start, span.end
    while start > 0 and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return span if (start, end) == (span.start, span.end) else span._replace(start=start, end=end)


def _outside_marks(data: bytes, spans: Iterable[Span]) -> Iterable[Span]:
    """Spans without what earlier marks cover, so that a mark is never found, cut or joined."""
    if MARK.encode() not in data:
        return spans
    marks = [m.span() for m in _MARKED.finditer(data)]
    return (s for s in spans if not any(start < s.end and s.start < end for start, end in marks))


def _again(data: bytes, spans: Iterable[Span]) -> Iterable[Span]:
    """Other places in the text where a value stands that was recognised once."""
    seen: set[bytes] = set()
    for span in spans:
        value = data[span.start : span.end]
        if len(value) < 12 or value in seen or len(value) > 400 or not looks_random(value, 10):
            continue
        seen.add(value)
        at = data.find(value)
        while at >= 0:
            end = at + len(value)
            if at != span.start and not data[end : end + 1].isalnum() and not data[at - 1 : at].isalnum():
                yield span._replace(start=at, end=end)
            at = data.find(value, end)


def _in_code_points(data: bytes, spans: list[Span]) -> list[Finding]:
    found: list[Finding] = []
    done = points = 0
    for span in spans:
        points += len(data[done : span.start].decode("utf-8", "surrogatepass"))
        size = len(data[span.start : span.end].decode("utf-8", "surrogatepass"))
        found.append(Finding(span.kind, points, points + size, span.origin))
        points += size
        done = span.end
    return found
