"""How an indexing pass, or the fetch of a memory, is shown: a bar on a terminal, now and then a line elsewhere.

Always on stderr. And how a pass is stopped: Ctrl-C takes effect where nothing is half-written.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from funes_mcp import wording
from funes_mcp.cli import terminal
from funes_mcp.memory.label import HubName, parse
from funes_mcp.models import IndexReport, Progress, Service

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from funes_mcp.memory.remote import Step

#: Seconds between two lines off a terminal.
LINE_INTERVAL = 5.0

#: Share of the bytes that must be read before the time left is guessed.
LEAST_SHARE = 0.05


@contextmanager
def shown() -> Iterator[Progress]:
    """The progress that suits stderr; what it draws is taken away again at the end."""
    if not terminal.is_terminal(sys.stderr):
        yield Lines(terminal.say, time.monotonic)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, no_color=not terminal.colours(sys.stderr))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[files]} files, {task.fields[rate]} passages/s,"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        yield Drawn(bar, time.monotonic)


@contextmanager
def stoppable(progress: Progress) -> Iterator[Progress]:
    """The same progress, which raises `KeyboardInterrupt` after Ctrl-C where nothing is half-written.

    A second Ctrl-C raises at once, and so does the first before the pass has started.
    """
    wrapped = _Stoppable(progress)
    before = signal.signal(signal.SIGINT, wrapped.asked)
    try:
        yield wrapped
    finally:
        signal.signal(signal.SIGINT, before)


class _Stoppable:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._under_way = False
        self._asked = False

    def asked(self, number: int, frame: FrameType | None) -> None:
        if self._asked or not self._under_way:
            raise KeyboardInterrupt
        self._asked = True
        # Not through `sys.stderr`: it may be in the middle of a write.
        os.write(2, b"\nStopping; what was read is kept. Ctrl-C again stops at once.\n")

    def _stop_here(self) -> None:
        if self._asked:
            self._asked = self._under_way = False
            raise KeyboardInterrupt

    def started(self, sources: int, total_bytes: int, *, compiling: bool = False) -> None:
        self._progress.started(sources, total_bytes, compiling=compiling)
        self._under_way = True

    def read(self, chunks: int) -> None:
        self._progress.read(chunks)
        self._stop_here()

    def source_done(self, path: str, bytes_read: int, chunks: int) -> None:
        self._progress.source_done(path, bytes_read, chunks)
        self._stop_here()

    def committed(self, chunks: int) -> None:
        self._progress.committed(chunks)
        self._stop_here()

    def finished(self, report: IndexReport) -> None:
        self._progress.finished(report)


class _Counted:
    """What both kinds know: how far the pass is."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = clock()
        self.sources = self.done = self.chunks = 0

    def begin(self, sources: int) -> None:
        self._begun = self._clock()
        self.sources, self.done, self.chunks = sources, 0, 0

    def rate(self) -> float:
        return self.chunks / max(self._clock() - self._begun, 1e-3)


class Drawn(_Counted):
    """A bar by bytes, with files, passages a second and the time left."""

    def __init__(self, bar: Bar, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._bar = bar
        self._task: TaskID = bar.add_task("Looking for transcripts", total=None, files="0", rate="0")

    def started(self, sources: int, total_bytes: int, *, compiling: bool = False) -> None:
        self.begin(sources)
        doing = "Compiling the search for credentials, once" if compiling else "Indexing"
        self._bar.reset(self._task, total=max(1, total_bytes), description=doing, files=f"0/{sources:,}", rate="0")

    def read(self, chunks: int) -> None:
        self.chunks += chunks
        self._bar.update(self._task, description="Indexing", rate=f"{self.rate():,.0f}")

    def source_done(self, path: str, bytes_read: int, chunks: int) -> None:
        self.done += 1
        self._bar.update(self._task, advance=bytes_read, files=f"{self.done:,}/{self.sources:,}")

    def committed(self, chunks: int) -> None:
        self._bar.refresh()

    def finished(self, report: IndexReport) -> None:
        self._bar.update(self._task, completed=self._bar.tasks[0].total, rate=f"{self.rate():,.0f}")


class Lines(_Counted):
    """A line every few seconds, for logs."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._write = write
        self._bytes = self._total = 0
        self._next = clock() + LINE_INTERVAL

    def started(self, sources: int, total_bytes: int, *, compiling: bool = False) -> None:
        self.begin(sources)
        self._bytes, self._total = 0, total_bytes
        self._next = self._clock() + LINE_INTERVAL
        if sources:
            first = "; first the search for credentials is compiled, once" if compiling else ""
            self._write(f"indexing {wording.count(sources, 'file')}, {total_bytes / 1e6:,.1f} MB{first}")

    def read(self, chunks: int) -> None:
        self.chunks += chunks
        self._tell()

    def source_done(self, path: str, bytes_read: int, chunks: int) -> None:
        self.done += 1
        self._bytes += bytes_read
        self._tell()

    def _tell(self) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + LINE_INTERVAL
            line = f"{self.done:,} of {self.sources:,} files, {self.chunks:,} passages, {self.rate():,.0f}/s"
            if self._bytes > self._total * LEAST_SHARE:
                left = (self._clock() - self._begun) * (self._total - self._bytes) / self._bytes
                line += f", about {max(left, 0):,.0f} s left"
            self._write(line)

    def committed(self, chunks: int) -> None:
        """Nothing to say: the next line will."""

    def finished(self, report: IndexReport) -> None:
        """Nothing to say: the command prints the report."""


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """Tell how far something is that takes long: a line drawn again on a terminal, now and then one elsewhere."""
    drawn = terminal.is_terminal(sys.stderr)
    last = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (0.2 if drawn else LINE_INTERVAL):
            return
        last = now
        line = f"{done:,} of {total:,} {what}"
        if drawn:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        else:
            terminal.say(line)

    try:
        yield told
    finally:
        if drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def fetching(service: Service, memory: str) -> Iterator[None]:
    """Show how far the fetch of a published memory is, as long as something is fetched or indexed."""
    name = parse(memory)
    if not isinstance(name, HubName):
        yield
        return
    shown = _DrawnFetch(name.label) if terminal.is_terminal(sys.stderr) else _FetchLines(name.label, terminal.say)
    service.remotes.told = shown.told
    try:
        yield
    finally:
        service.remotes.told = None
        shown.close()


class _FetchLines:
    """A line when something begins, and every few seconds."""

    def __init__(self, label: str, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._label = label
        self._write = write
        self._clock = clock
        self._kind = ""
        self._next = 0.0

    def told(self, step: Step) -> None:
        if step.kind != self._kind:
            self._kind, self._next = step.kind, self._clock() + LINE_INTERVAL
            if step.kind == "files":
                self._write(
                    f"fetching {self._label}: {wording.count(step.total, 'file')}, {step.bytes_total / 1e6:,.1f} MB"
                )
            elif step.kind == "passages":
                self._write(f"indexing {self._label}: {step.total:,} passages")
            else:
                self._write(f"another funes process is fetching {self._label}; waiting for it")
        elif self._clock() >= self._next:
            self._next = self._clock() + LINE_INTERVAL
            if step.kind == "files":
                amount = f"{step.bytes_done / 1e6:,.1f} of {step.bytes_total / 1e6:,.1f} MB"
                self._write(f"{step.done:,} of {step.total:,} files, {amount}")
            elif step.kind == "passages":
                self._write(f"{step.done:,} of {step.total:,} passages")

    def close(self) -> None:
        """Nothing to take away."""


class _DrawnFetch:
    """A bar, drawn once there is something to show, and taken away in the end."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def told(self, step: Step) -> None:
        bar, task = self._drawn()
        if step.kind == "files":
            amount = (
                f"{step.done:,}/{step.total:,} files, {step.bytes_done / 1e6:,.1f}/{step.bytes_total / 1e6:,.1f} MB"
            )
            bar.update(
                task,
                description=f"Fetching {self._label}",
                total=max(1, step.bytes_total),
                completed=step.bytes_done,
                amount=amount,
            )
        elif step.kind == "passages":
            bar.update(
                task,
                description=f"Indexing {self._label}",
                total=max(1, step.total),
                completed=step.done,
                amount=f"{step.done:,}/{step.total:,} passages",
            )
        else:
            bar.update(task, description=f"Waiting for another process to fetch {self._label}", total=None, amount="")

    def _drawn(self) -> tuple[Bar, TaskID]:
        if self._bar is None or self._task is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            console = Console(stderr=True, no_color=not terminal.colours(sys.stderr))
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"))
            self._bar = Bar(*columns, console=console, transient=True)
            self._task = self._bar.add_task(f"Fetching {self._label}", total=None, amount="")
            self._bar.start()
        return self._bar, self._task

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
