"""`funes push`: publish the memory to a dataset on the Hub."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from funes_mcp import render, wording
from funes_mcp.cli import terminal
from funes_mcp.cli.progress import LINE_INTERVAL
from funes_mcp.models import PushReport, PushRequest, PushTalk, Service

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Exit code when everything that could go is held back; see also `PushRefusedError`.
HELD = 2

_STEPS = {
    "fetching": "Fetching what is published",
    "searching": "Searching for credentials",
    "embedding": "Embedding with the model that is used there",
    "writing": "Writing",
    "uploading": "Uploading",
}
_BYTES = ("fetching", "uploading")


@click.command(
    "push",
    epilog="""\b
Examples:
  funes push ann/memory
  funes push ann/memory --dry-run
  funes push team/memory --session 5f0c2a52-… --session 0199f3c1-…
\b
Exit codes: 0 done, or nothing to do; 1 failed; 2 refused, or everything is held back.
""",
)
@click.argument("memory", metavar="OWNER/NAME")
@click.option("--yes", "-y", is_flag=True, help="Answer yes to every question.")
@click.option("--session", "sessions", multiple=True, metavar="ID", help="Publish this session only. Repeatable.")
@click.option("--compact", is_flag=True, help="Join the files of the published memory, also with nothing to publish.")
@click.option("--dry-run", is_flag=True, help="Say what would be published; publish nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_obj
def command(
    open_service: Callable[[], Service],
    memory: str,
    yes: bool,
    sessions: tuple[str, ...],
    compact: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Publish the passages that a memory on the Hub lacks.

    The dataset is made when there is none: private, and after asking. Everything that leaves is searched for
    credentials first; what looks like one is held back, and `funes scrub` takes it out.
    """
    request = PushRequest(memory, sessions, yes, compact, dry_run)
    with talking() as talk:
        report = open_service().push(request, talk)
    terminal.out(render.to_json(report) + "\n" if as_json else summary(report))
    terminal.notes(report.notes)
    return HELD if report.nothing_left and not dry_run else 0


def summary(report: PushReport) -> str:
    """What a push did, for people."""
    verb = "would be published" if report.dry else "published"
    lines = []
    if report.sent:
        done = f"{wording.count(report.sent, 'passage')} of {wording.count(report.sessions, 'session')} {verb}"
        size = f" ({render.size_text(report.bytes)})" if report.bytes else ""
        lines.append(f"{report.label}: {done}{size}.")
    elif report.held:
        lines.append(f"{report.label}: nothing {verb}.")
    elif report.joined:
        lines.append(f"{report.label}: its files are joined ({render.size_text(report.bytes)} uploaded).")
    elif report.missing:
        lines.append(f"{report.label}: nothing to publish, and no dataset was made for it.")
    else:
        lines.append(f"{report.label}: nothing to publish; it has everything that may go.")
    if report.missing and report.sent:
        lines.append(f"The dataset would be made, private: {report.url}")
    if report.created:
        lines.append(f"The private dataset was made: {report.url}")
    if report.embedded:
        lines.append("They were embedded with the model that is used there.")
    if report.held:
        lines.append(
            f"Held back: {wording.count(report.held, 'passage')} of "
            f"{wording.count(len(report.held_sessions), 'session')} that look like credentials "
            f"({render.kinds_text(report.kinds)}). Run `funes scrub`, then push again."
        )
    if report.unfilled:
        lines.append(f"{wording.wait(report.unfilled, 'passage')} for a vector: run `funes index`.")
    if report.left_out:
        lines.append(f"{wording.wait(report.left_out, 'session')} for your review: run `funes curate {report.label}`.")
    if report.later:
        lines.append(f"{wording.count(report.later, 'passage')} left for the next push.")
    return "\n".join(lines) + "\n"


@contextmanager
def talking() -> Iterator[PushTalk]:
    """How a push speaks here: questions and a bar on a terminal, now and then a line elsewhere."""
    talk = Talk(terminal.is_terminal(sys.stderr), terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr))
    try:
        yield talk
    finally:
        talk.clear()


class Talk:
    """See `PushTalk`.

    Args:
        drawn: Whether progress is drawn.
        asks: Whether somebody can answer.
    """

    def __init__(self, drawn: bool, asks: bool) -> None:
        self._drawn = drawn
        self._asks = asks
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._what = ""
        self._next = 0.0

    def agrees(self, question: str) -> bool | None:
        """Asks on a terminal."""
        if not self._asks:
            return None
        self.clear()
        return click.confirm(question, default=False, err=True)

    def warn(self, text: str) -> None:
        """Said at once."""
        self.clear()
        terminal.say(f"warning: {text}")

    def step(self, what: str, done: int, total: int) -> None:
        """Draws, or says a line every few seconds."""
        if self._drawn:
            self._draw(what, done, total)
            return
        now = time.monotonic()
        if what != self._what:
            self._what, self._next = what, now + LINE_INTERVAL
        elif now >= self._next:
            self._next = now + LINE_INTERVAL
            terminal.say(f"{_STEPS.get(what, what).lower()}: {_amount(what, done, total)}")

    def clear(self) -> None:
        """Take away what is drawn."""
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._task, self._what = None, None, ""

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            console = Console(stderr=True, no_color=not terminal.colours(sys.stderr))
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"))
            self._bar = Progress(*columns, console=console, transient=True)
            self._bar.start()
        amount = _amount(what, done, total)
        if self._task is None:
            self._task = self._bar.add_task(_STEPS.get(what, what), total=total or None, amount=amount)
        elif what != self._what:
            self._bar.reset(self._task, description=_STEPS.get(what, what), total=total or None, amount=amount)
        self._what = what
        self._bar.update(self._task, completed=done, total=total or None, amount=amount)


def _amount(what: str, done: int, total: int) -> str:
    if what in _BYTES:
        return render.size_text(done) + (f" of {render.size_text(total)}" if total else "")
    return f"{done:,}" + (f" of {total:,}" if total else "") + " passages"
