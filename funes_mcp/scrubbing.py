"""`funes scrub`: credentials in rows that are stored already, taken out of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from funes_mcp.memory.scrub import scrubbed
from funes_mcp.models import ScrubReport
from funes_mcp.redaction.records import redacted_info, redacted_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from funes_mcp.memory.model import Chunk
    from funes_mcp.memory.writer import Embed, MemoryWriter
    from funes_mcp.redaction import Redactor
    from funes_mcp.traces.model import SessionInfo

#: Rows that are written again in one step.
_STEP: Final = 4_000


def scrub(
    writer: MemoryWriter,
    redactor: Redactor,
    embed: Embed | None,
    *,
    dry: bool,
    told: Callable[[int, int], None] | None = None,
) -> ScrubReport:
    """Search everything that is stored, and write again what has to be changed.

    First everything is searched and the messages noted that hold something; then these are read once more and
    written again in steps, so that memory is bounded by a step and eight bytes for each of them.

    Args:
        embed: Makes vectors of texts; None leaves the changed rows without.
        dry: Count only.
        told: Called with rows searched and rows there are, then with rows erased and rows to erase.

    Raises:
        ScannerError: The search failed. What was written before is clean; nothing else was changed.
    """
    report = ScrubReport(dry=dry)
    hold: set[int] = set()
    total = writer.rows
    for part in writer.stored():
        for message in part:
            result = scrubbed(message.rows, redactor)
            report.rows += len(message.rows)
            if result.rows is not None:
                hold.add(message.message)
                report.messages += 1
                report.blocks += result.blocks
                report.dropped += result.dropped
                report.counts.update(result.counts)
        if told is not None:
            told(report.rows, total)

    def redact(text: str) -> str:
        found = redactor.redact(text)
        report.facts += found.counts.total()
        return found.text

    def info(facts: SessionInfo) -> SessionInfo:
        return redacted_info(facts, redact)

    def memory(state: Any) -> Any:
        return redacted_json(state, redact, lambda text: redactor.redact(text).text)

    if dry:
        writer.catalog.look_through(info, memory)
        return report
    waiting: dict[int, list[Chunk]] = {}
    for part in writer.stored_of(hold):
        for message in part:
            rows = scrubbed(message.rows, redactor).rows
            if rows is not None:
                waiting[message.message] = rows
        if sum(map(len, waiting.values())) >= _STEP:
            _write(writer, waiting, embed)
            waiting = {}
    _write(writer, waiting, embed)
    writer.rewrite_facts(info, memory)
    report.erased = writer.erase(told)
    return report


def _write(writer: MemoryWriter, rows: Mapping[int, Sequence[Chunk]], embed: Embed | None) -> None:
    if rows:
        writer.rewrite(rows, embed)
