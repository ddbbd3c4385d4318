"""`funes forget`: remove sessions for good."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from funes_mcp import wording
from funes_mcp.cli import terminal
from funes_mcp.cli.progress import counted
from funes_mcp.errors import BadRequestError, NotFoundError
from funes_mcp.models import ForgetPlan, ForgetRequest, Service
from funes_mcp.render import harmless

#: Names that are listed one by one.
LISTED = 10


@click.command(
    "forget",
    epilog="""\b
Examples:
  funes forget e81f7132
  funes forget --project ada/tidepool --yes
  funes forget --before 2025-01-01
  funes forget --undo              (lists what is forgotten)
  funes forget --undo e81f7132
""",
)
@click.argument("session", required=False)
@click.option("--project", metavar="P", help="All sessions of a project: owner/name, a path, or its last part.")
@click.option("--before", metavar="DATE", help="All sessions whose last turn was before a date, or an age (90d).")
@click.option("--undo", is_flag=True, help="Let forgotten sessions be indexed again; without a name, list them.")
@click.option("--yes", is_flag=True, help="Do not ask. Needed off a terminal.")
@click.pass_obj
def command(
    open_service: Callable[[], Service],
    session: str | None,
    project: str | None,
    before: str | None,
    undo: bool,
    yes: bool,
) -> int:
    """Remove sessions from the memory, with those of their subagents, and never index them again.

    SESSION is an id or a unique prefix of one. The transcripts stay: funes never touches them.
    """
    request = ForgetRequest(session, project, before)
    service = open_service()
    if undo:
        return _undo(service, request, yes)
    plan = service.plan_forgetting(request)
    terminal.say(_announcement(plan))
    if not _agreed("Remove them for good?", yes):
        terminal.say("Nothing was removed.")
        return 1
    with counted("passages written again") as told:
        removed = service.forget(plan, told)
    terminal.out(_summary(plan, removed))
    return 0


def _announcement(plan: ForgetPlan) -> str:
    lines = [
        f"{wording.count(len(plan.sessions), 'session')}"
        + (f", {plan.subagents:,} of them of subagents," if plan.subagents else "")
        + f" with {wording.count(plan.chunks, 'passage')}:"
    ]
    lines += _listed(plan.sessions)
    if plan.published:
        lines.append(f"Published copies stay: {', '.join(harmless(copy.label) for copy in plan.published)}.")
    return "\n".join(lines)


def _summary(plan: ForgetPlan, removed: int) -> str:
    lines = [
        f"Forgot {wording.count(len(plan.sessions), 'session')}: {wording.count(removed, 'passage')} with words, "
        "vectors and titles are gone from the memory's files, and `funes index` will not bring them back."
    ]
    if plan.copies:
        lines.append(
            "Copies stay in sessions that were resumed or forked from them. Forget those, too, if that is meant:"
        )
        lines += [f"  {harmless(name)}: {wording.count(count, 'turn')}" for name, count in plan.copies[:LISTED]]
        if len(plan.copies) > LISTED:
            lines.append(f"  … and {len(plan.copies) - LISTED:,} more")
    lines.append(
        "Out of reach: the transcripts themselves, backups, and copies that were published. Delete the transcripts "
        "in the agent, and a published copy where it lies (a dataset's history keeps old files)."
    )
    if plan.transcripts:
        lines += ["Transcripts:", *_listed(plan.transcripts)]
    if plan.published:
        lines.append("Published by this machine, where copies stay until the dataset is deleted:")
        lines += [
            f"  {harmless(copy.label)}: {wording.count(copy.sessions, 'session')}; delete it at {harmless(copy.page)}, "
            f"then `funes push {harmless(copy.label)}` from every machine that publishes there"
            for copy in plan.published
        ]
    lines.append("To take it back: funes forget --undo " + _undo_words(plan.why))
    return "\n".join(lines) + "\n"


def _undo_words(why: str) -> str:
    kind, _, name = why.partition(" ")
    return harmless(name if kind == "session" else f"--{kind} {name!r}")


def _undo(service: Service, request: ForgetRequest, yes: bool) -> int:
    chosen = service.forgotten(request)
    if request == ForgetRequest():
        if not chosen:
            terminal.out("Nothing is forgotten.\n")
        for item in chosen:
            terminal.out(f"{harmless(item.session)}  {item.at}  {harmless(item.why)}\n")
        return 0
    if not chosen:
        raise NotFoundError("No forgotten session fits.", "`funes forget --undo` lists them.")
    names = [item.session for item in chosen]
    terminal.say("\n".join([f"{wording.count(len(names), 'forgotten session')}:", *_listed(names)]))
    if not _agreed("Let them be indexed again?", yes):
        terminal.say("Nothing was changed.")
        return 1
    service.unforget(names)
    terminal.out(
        f"{wording.count(len(names), 'session')} may be indexed again. Run `funes index` to read "
        f"{'it' if len(names) == 1 else 'them'} from the transcripts that are still there.\n"
    )
    return 0


def _agreed(question: str, yes: bool) -> bool:
    """Ask on a terminal. Raises `BadRequestError` off one, unless the answer was given."""
    if yes:
        return True
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        raise BadRequestError("This is not done without being asked for.", "Add --yes.")
    return click.confirm(question, default=False, err=True)


def _listed(names: tuple[str, ...] | list[str]) -> list[str]:
    lines = [f"  {harmless(name)}" for name in names[:LISTED]]
    return lines + ([f"  … and {len(names) - LISTED:,} more"] if len(names) > LISTED else [])
