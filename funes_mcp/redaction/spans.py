"""Spans of bytes in a text, and how overlapping ones become one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from funes_mcp.redaction.model import Origin

#: The format of a provider's token says what it is; a name beside a value says less.
BY_FORMAT: Final = 0
BY_STRUCTURE: Final = 1
BY_NAME: Final = 2


class Span(NamedTuple):
    """Bytes `start` to `end` of a text are a credential; the lowest `rank` names an overlap."""

    start: int
    end: int
    kind: str
    rank: int
    origin: Origin = "own"


def merged(spans: Iterable[Span]) -> list[Span]:
    """Sorted and without overlaps. What overlaps is joined and named by its best rank, then its longest span."""
    out: list[Span] = []
    names: list[tuple[int, int]] = []
    for span in sorted(spans):
        if span.end <= span.start:
            continue
        quality = (span.rank, span.start - span.end)
        if out and span.start < out[-1].end:
            last = out[-1]
            winner = span if quality < names[-1] else last
            out[-1] = Span(last.start, max(last.end, span.end), winner.kind, winner.rank, winner.origin)
            names[-1] = min(names[-1], quality)
        else:
            out.append(span)
            names.append(quality)
    return out
