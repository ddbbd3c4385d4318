"""Rows that are stored, searched for credentials as whole blocks and cut anew where there were some. Pure.

Pieces that are joined again are not always what was cut: a blank at a seam is gone, a text that repeats itself may
be joined differently. What leaves a memory is the joined text, so that is what has to be clean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from funes_mcp.memory.chunk import chunk_id, split, stitch
from funes_mcp.memory.model import Chunk
from funes_mcp.redaction import Redactor
from funes_mcp.redaction.gate import BLOCK_TIMEOUT_S, Outgoing
from funes_mcp.redaction.model import mark

#: What takes the place of a block from which no credential can be cut safely.
DROPPED: Final = "dropped-block"

#: How often a block is cut and joined again before it is given up.
_ROUNDS: Final = 4


@dataclass(slots=True)
class Scrubbed:
    """A message without credentials.

    Attributes:
        rows: All of its rows; None when nothing had to be changed.
        counts: What was replaced, by kind.
        dropped: Blocks that were given up.
        blocks: Blocks that were changed.
    """

    rows: list[Chunk] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    blocks: int = 0


def blocks_of(rows: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """The rows of each block, in order, given those of whole messages in order."""
    for _, group in groupby(rows, lambda row: (row.session_id, row.turn_uuid, row.block_idx)):
        yield list(group)


def outgoing(rows: Iterable[Chunk]) -> Iterator[Outgoing]:
    """What the gate before publishing looks at, given the rows of whole messages in order."""
    for block in blocks_of(rows):
        first = block[0]
        yield Outgoing(
            text=stitch([row.text for row in block]),
            rows=tuple((row.id, row.text) for row in block),
            facts=tuple(fact for fact in (first.cwd, first.branch, first.agent_name, first.tool_name) if fact),
            message=first.identity or f"{first.session_id}:{first.turn_uuid}",
        )


def scrubbed(rows: Sequence[Chunk], redactor: Redactor, *, timeout: float = BLOCK_TIMEOUT_S) -> Scrubbed:
    """The rows of a message without credentials.

    Args:
        rows: All of them, in order.
        timeout: Seconds that one search of a block may take.

    Raises:
        ScannerError: The search failed; nothing is known of the message then.
    """
    result = Scrubbed()
    kept: list[Chunk] = []
    for block in blocks_of(rows):
        before = stitch([row.text for row in block])
        name = block[0].tool_name
        clean_name = _clean_name(name, redactor) if name else name
        text = _clean(before, redactor, timeout, result)
        if text == before and clean_name == name:
            kept.extend(block)
            continue
        result.blocks += 1
        kept.extend(_cut_again(block[0]._replace(tool_name=clean_name), text))
    if result.blocks:
        result.rows = kept
    return result


def _clean(text: str, redactor: Redactor, timeout: float, result: Scrubbed) -> str:
    counts: Counter[str] = Counter()
    for _ in range(_ROUNDS):
        if not redactor.scan(text, timeout=timeout):
            result.counts += counts
            return text
        found = redactor.redact(text)
        if not found.counts:
            break
        counts += found.counts
        text = stitch(split(found.text))
    result.counts[DROPPED] += 1
    result.dropped += 1
    return mark(DROPPED)


def _clean_name(name: str, redactor: Redactor) -> str:
    return redactor.redact(name).text


def _cut_again(first: Chunk, text: str) -> Iterator[Chunk]:
    """The rows of a block with another text."""
    for number, piece in enumerate(split(text)):
        name = chunk_id(first.session_id, first.turn_uuid, first.block_idx, number)
        yield first._replace(id=name, text=piece, split_idx=number)
