"""What the search for credentials answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal

from funes_mcp.errors import FunesError

#: Who found it: our own detectors, or the library's rules.
Origin = Literal["own", "library"]

#: How a replaced value begins. Nothing that starts so is ever taken for a credential.
MARK: Final = "[REDACTED:"

#: What stands for a block that could not be searched at all.
UNSEARCHED: Final = "unsearched-block"


def mark(kind: str) -> str:
    """The text that takes the place of a credential of this kind."""
    return f"{MARK}{kind}]"


@dataclass(frozen=True, slots=True)
class Finding:
    """A credential in a text.

    Attributes:
        kind: What it is, in lower case with dashes (`github-token`, `password`).
        start, end: The value alone, in code points of the text.
        origin: Who found it.
    """

    kind: str
    start: int
    end: int
    origin: Origin = "own"


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its credentials.

    Attributes:
        text: The text; the very object that was given when nothing was found.
        counts: How many values were replaced, by kind.
    """

    text: str
    counts: Counter[str] = field(default_factory=Counter)


class ScannerError(FunesError):
    """The search could not be carried out in full, so nothing may be published on its word."""
