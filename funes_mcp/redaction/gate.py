"""The gate before anything is published: every outgoing block is searched once more, whatever was done at indexing.

It fails closed. A search that fails or takes too long lets nothing out, and so does a row that was not searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, Protocol

from funes_mcp.redaction.model import MARK, Finding

#: Seconds that the search of one block may take. A block of a megabyte takes a tenth of one.
BLOCK_TIMEOUT_S: Final = 20.0


class Scanner(Protocol):
    """What the gate asks: see `Redactor.scan`."""

    def scan(self, text: str, *, timeout: float | None = None) -> list[Finding]:
        """Everything that looks like a credential. Raises `ScannerError`."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A whole block that is to leave, with the rows it is cut into.

    Attributes:
        text: The block, its pieces joined again.
        rows: `(id, text)` of each of its rows.
        facts: What else the rows say in words of their own: working directory, branch, name of a subagent.
        message: A name shared by all blocks of a message.
    """

    text: str
    rows: tuple[tuple[str, str], ...]
    facts: tuple[str, ...] = ()
    message: str = ""


@dataclass(slots=True)
class Verdict:
    """What may leave.

    Attributes:
        passed, held: Rows that may leave, and that are held back.
        held_ids: The ids of the latter.
        counts: What looked like a credential, by kind.
        redacted: Messages that hold a mark. Their `identity` must not leave: it is a digest of what they said
            before, by which a guess of a weak password could be proved.
    """

    passed: int = 0
    held: int = 0
    held_ids: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    redacted: set[str] = field(default_factory=set)
    _seen: set[int] = field(default_factory=set)

    @property
    def nothing_left(self) -> bool:
        """Whether there was something to send, and all of it is held back."""
        return self.passed == 0 and self.held > 0

    def lets(self, row: str, text: str) -> bool:
        """Whether a row may leave: it was searched as it is now, and nothing was found."""
        return _mark_of(row, text) in self._seen


def examine(blocks: Iterable[Outgoing], scanner: Scanner, *, timeout: float = BLOCK_TIMEOUT_S) -> Verdict:
    """Search every block, in constant memory but for sixteen bytes a row. Only then may the first row leave.

    Args:
        timeout: Seconds for one block.

    Raises:
        ScannerError: The search failed or took too long: nothing may leave.
    """
    verdict = Verdict()
    known: dict[str, Counter[str]] = {}
    for block in blocks:
        found = Counter(finding.kind for finding in scanner.scan(block.text, timeout=timeout))
        for fact in block.facts:
            if fact not in known:  # few and often repeated
                known[fact] = Counter(finding.kind for finding in scanner.scan(fact, timeout=timeout))
            found.update(known[fact])
        if MARK in block.text:
            verdict.redacted.add(block.message)
        if found:
            verdict.counts.update(found)
            verdict.held += len(block.rows)
            verdict.held_ids.update(row for row, _ in block.rows)
        else:
            verdict.passed += len(block.rows)
            verdict._seen.update(_mark_of(row, text) for row, text in block.rows)
    return verdict


def _mark_of(row: str, text: str) -> int:
    digest = blake2b(f"{row}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest, "big")
