"""`funes index`: bring the memory up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from funes_mcp.cli import deeper, progress, terminal
from funes_mcp.models import IndexReport, IndexRequest, Service
from funes_mcp.render import harmless, sources_text
from funes_mcp.traces.model import NO_THINKING

#: Failures that are listed one by one.
LISTED_FAILURES = 10


class _Somewhere(click.Path):
    """A path that says where. An empty one is a variable that was not set, and would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; leave it out for the agents' own folders, `.` is the current one.", param, ctx)
        return super().convert(value, param, ctx)


@click.command(
    "index",
    epilog="""\b
Examples:
  funes index
  funes index --harness codex --limit 50
  funes index ~/old-transcripts
""",
)
@click.argument("path", required=False, type=_Somewhere(path_type=Path))
@click.option("--harness", metavar="NAME", help="Only one agent: claude, codex, pi or hermes.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="At most N changed files, newest first.")
@click.option("--no-thinking", is_flag=True, help="Leave out the agents' thinking in what is read now.")
@click.option("--model", metavar="NAME", help="The embedder of a memory that is made now; see `funes models`.")
@deeper.option
@click.option("--yes", is_flag=True, help="Answer yes to every question. Off a terminal none is asked.")
@click.pass_obj
def command(
    open_service: Callable[[], Service],
    path: Path | None,
    harness: str | None,
    limit: int | None,
    no_thinking: bool,
    model: str | None,
    models: str | None,
    yes: bool,
) -> int:
    """Read new and changed transcripts into the memory.

    Without PATH: those of every agent found on this machine. PATH is a transcript, or a folder of them.
    Running it again costs little: only what changed is read. Thinking that was left out (`--no-thinking`) is read
    when its session is: `funes forget ID`, `funes forget ID --undo`, `funes index`.
    """
    request = IndexRequest(path=path, harness=harness, limit=limit, thinking=not no_thinking, model=model)
    service = open_service()
    with progress.shown() as shown, progress.stoppable(shown) as told:
        report = service.index(request, told)
    terminal.out(summary(report))
    for note in report.notes:
        terminal.say(harmless(note))
    failed = [f"{path}: {reason}" for path, reason in report.failures]
    for line in failed[:LISTED_FAILURES]:
        terminal.say(f"could not read {harmless(line)}")
    if len(failed) > LISTED_FAILURES:
        terminal.say(f"... and {len(failed) - LISTED_FAILURES} more")
    if report.interrupted:
        terminal.say("Interrupted. What is stored is kept; `funes index` goes on from here.")
        return 130
    deeper.follow(service, models, yes)
    return 0


def summary(report: IndexReport) -> str:
    """What an indexing pass did, for people."""
    lines = [
        f"{harness or 'elsewhere'}: {sources_text(counts)}"
        for harness, counts in sorted(report.sources.items())
        if counts.found or counts.skipped
    ]
    if not lines:
        return "No transcripts found in the agents' folders. `funes index PATH` reads others.\n"
    thoughts = sum(tally.parts[NO_THINKING] for tally in report.records.values())
    details = [
        f"{count:,} {what}"
        for count, what in (
            (report.chunks_known, "known already"),
            (report.chunks_copied, "copies of others"),
            (report.chunks_removed, "taken out"),
            (report.redacted.total(), "credentials replaced"),
            (thoughts, "thoughts left out"),
        )
        if count
    ]
    rate = f", {report.chunks_stored / report.seconds:,.0f} a second" if report.seconds > 1 else ""
    lines.append(
        f"{report.chunks_stored:,} new passages in {report.seconds:.1f} s{rate}"
        + (f" ({', '.join(details)})" if details else "")
    )
    return "\n".join(lines) + "\n"
