"""`funes scrub`: take credentials out of what is stored already."""

from __future__ import annotations

from collections.abc import Callable

import click

from funes_mcp.cli import terminal
from funes_mcp.cli.progress import counted
from funes_mcp.models import ScrubReport, Service


@click.command("scrub", epilog="\b\nExamples:\n  funes scrub --dry-run\n  funes scrub")
@click.option("--dry-run", is_flag=True, help="Count only; change nothing.")
@click.pass_obj
def command(open_service: Callable[[], Service], dry_run: bool) -> int:
    """Search everything in the memory for credentials and put a mark in the place of each.

    For passages that an earlier version stored, and after an update that knows more kinds. Transcripts are never
    touched. What was replaced is gone from every file of the memory when this ends.
    """
    with counted("passages") as told:
        report = open_service().scrub(dry=dry_run, told=told)
    terminal.out(summary(report))
    return 0


def summary(report: ScrubReport) -> str:
    """What a scrub did, for people."""
    found = report.counts.total()
    lines = [f"{report.rows:,} passages searched in {report.seconds:.1f} s."]
    if not found and not report.facts:
        return f"{lines[0]} No credential found.\n"
    verb = "would be replaced" if report.dry else "replaced"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(report.counts.items(), key=lambda i: (-i[1], i[0])))
    if found:
        lines.append(f"{found:,} credentials {verb} in {report.blocks:,} blocks of {report.messages:,} turns: {kinds}.")
    if report.facts:
        lines.append(f"{report.facts:,} {verb} in titles, branches, folders and what is remembered of transcripts.")
    if report.dropped:
        lines.append(
            f"{report.dropped:,} blocks {'would be ' if report.dry else ''}dropped whole: no cut in them was safe."
        )
    if not report.dry:
        lines.append(
            "Transcripts and their backups still hold them, and so does what was published before: make the "
            "credentials invalid."
        )
    return "\n".join(lines) + "\n"
