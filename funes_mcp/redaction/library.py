"""The rules of kingfisher, run in process. It never uses the network: validation is a call we do not make."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.redaction.model import ScannerError
from funes_mcp.redaction.spans import BY_FORMAT, Span
from funes_mcp.redaction.values import is_standin, is_uuid

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

#: Escapes are made what they stand for, at the same length: the library's patterns want a word to begin where a
#: value does, and in `\\nghp_…` none does.
_ESCAPES: Final = ((b"\\n", b" \n"), (b"\\t", b" \t"), (b"\\r", b" \r"), (b'\\"', b' "'), (b"\\'", b" '"))

#: Rules of the library that name what is meant to be seen.
_PUBLIC: Final = re.compile(
    r"pub(?:lic)?[-_.]|publishable|client-id|account-id|-username|-host|-domain|-url$|project-api-key"
)


class Library:
    """The scanner, built on first use. Thread-safe.

    Building reads rules that were compiled before (about half a second), or compiles them (several seconds,
    once for a version and a machine) and keeps them.

    Args:
        cache_dir: Where compiled rules are kept; the library's own choice in the user's cache when None.
    """

    def __init__(self, cache_dir: Path | None = None) -> None:
        self._cache_dir = cache_dir
        self._lock = threading.Lock()
        self._scanner: Scanner | None = None
        self._failure: str | None = None

    @property
    def failure(self) -> str | None:
        """Why the library cannot be used, or None as far as is known."""
        return self._failure

    @property
    def compiled(self) -> bool:
        """Whether rules were compiled before, as far as a look into `cache_dir` tells."""
        if self._scanner is not None or self._failure is not None or self._cache_dir is None:
            return True
        try:
            return any(self._cache_dir.iterdir())
        except OSError:
            return False

    def load(self) -> None:
        """Build the scanner now. Raises `ScannerError` when that is impossible."""
        self._ready()

    def _ready(self) -> Scanner:
        scanner = self._scanner
        if scanner is not None:
            return scanner
        with self._lock:
            if self._scanner is None:
                if self._failure is not None:
                    raise ScannerError(self._failure)
                try:
                    from kingfisher_sdk import Rules, Scanner

                    self._scanner = Scanner(Rules(cache_dir=self._cache_dir))
                except Exception as error:  # a wheel that does not fit, rules that do not load: any kind
                    self._failure = f"The secret scanner cannot be loaded: {type(error).__name__}: {error}"
                    raise ScannerError(self._failure) from error
            return self._scanner

    def find(self, text: bytes, timeout: float | None = None) -> list[Span]:
        """What the rules find, as spans of bytes. Raises `ScannerError`."""
        scanner = self._ready()
        if b"\\" in text:
            for escape, plain in _ESCAPES:
                text = text.replace(escape, plain)
        try:
            found = scanner.scan(text, timeout=timeout)
        except Exception as error:
            raise ScannerError(f"The secret scanner failed: {type(error).__name__}: {error}") from error
        spans: list[Span] = []
        for finding in found:
            if not finding.visible:
                continue
            name = finding.rule_id
            if _PUBLIC.search(name):
                continue
            where = finding.location
            start, end = where["start_offset"], where["end_offset"]
            if not finding.is_base64_encoded:
                secret = finding.secret.encode("utf-8", "surrogatepass")
                inside = text.find(secret, start, end)
                if inside >= 0:
                    start, end = inside, inside + len(secret)
            value = text[start:end].strip(b"\"'`")
            if is_uuid(value) or b"[REDACTED:" in value or (len(value) < 400 and is_standin(value)):
                continue
            spans.append(Span(start, end, kind_of(name), BY_FORMAT + 1, "library"))
        return spans


def kind_of(rule_id: str) -> str:
    """`betterleaks.github-pat.1` → `github-pat`."""
    name = rule_id.rpartition("/")[2] if "/" in rule_id else rule_id.partition(".")[2] or rule_id
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\.\d+$", "", name).lower()).strip("-")
