"""After an index: offer the deeper models, and see that what waits for vectors gets them behind the scenes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from funes_mcp.cli import terminal
from funes_mcp.deepmodels import DeepModels
from funes_mcp.errors import FunesError
from funes_mcp.home import FunesHome
from funes_mcp.hub.address import offline
from funes_mcp.hub.files import endpoint
from funes_mcp.inference.store import Told
from funes_mcp.models import Service

#: The option of the commands that offer the models.
option = click.option(
    "--models",
    type=click.Choice(["yes", "no"]),
    help="Fetch the deeper models, or not, without asking. Off a terminal nothing is fetched unless yes.",
)


def follow(service: Service, wanted: str | None, yes: bool = False) -> None:
    """Do what is left to do for the vectors after an index. A model that cannot be had is no failure of it.

    Args:
        wanted: `yes`, `no`, or None to ask where a person can answer.
        yes: Whether the person said yes to all questions beforehand.
    """
    home = FunesHome.from_environ(os.environ)
    asking = wanted is None and terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)
    if wanted == "no" or (wanted is None and not asking and not (home.root / "models").is_dir()):
        return
    models = service.models
    try:
        if wanted == "yes" or (asking and _agrees(models, yes)):
            complete(models, None)
        if (models.adopt() or models.work_waits()) and _start(home):
            _say_what_follows(models)
    except FunesError as error:
        terminal.complain(error.message, error.hint)
        terminal.say("The memory works with the bundled model meanwhile.")


def complete(models: DeepModels, source: Path | None) -> None:
    """Bring the usual models here that are not here or are damaged. Raises `FunesError`."""
    for spec, trouble in models.wanting():
        if trouble:
            terminal.say(f"{trouble} It is brought again.")
        pull(models, spec.name, source)


def pull(models: DeepModels, name: str, source: Path | None) -> None:
    """Bring a model here, with a bar on a terminal. Raises `FunesError`."""
    with _fetching(name) as told:
        stored = models.pull(name, source, told)
    how = {
        "package": "checksums as this release of funes names them",
        "hub": "checksums as the Hub names them",
        "nothing": "no checksums to compare with",
    }[stored.checked]
    terminal.say(f"{stored.spec.name}: {stored.bytes / 1e6:,.1f} MB, {how}")


def _agrees(models: DeepModels, yes: bool) -> bool:
    """Ask about the models that are not here, when they can be had; each thing is said once only."""
    missing = models.missing()
    if not missing or models.declined or offline():
        return False
    if not models.hub_answers():
        if models.first_time_offline():
            terminal.say(f"{endpoint()} does not answer: the bundled model does the work. Later: `funes models pull`.")
        return False
    if yes:
        return True
    names = " and ".join(spec.name for spec in missing)
    size = sum(spec.megabytes for spec in missing)
    agreed = click.confirm(f"Fetch deeper models ({names}, {size:,.0f} MB, from {endpoint()})?", default=True, err=True)
    if not agreed:
        models.decline()
    return agreed


def _start(home: FunesHome) -> bool:
    from funes_mcp import hooks
    from funes_mcp.catchup import start_worker

    try:
        if not hooks.worker_waits(str(home.root)):
            start_worker(home)
    except OSError:
        return False
    return True


def _say_what_follows(models: DeepModels) -> None:
    moving = models.moving()
    if moving is not None:
        terminal.say(
            f"The memory moves to {moving[0]} behind the scenes, a minute at each turn; `funes status` says how far, "
            f"`funes models use {moving[0]}` does it now."
        )


@contextmanager
def _fetching(name: str) -> Iterator[Told]:
    """A bar for the files of a model, or a line for each off a terminal."""
    if not terminal.is_terminal(sys.stderr):
        seen: set[str] = set()

        def line(path: str, more: int, size: int) -> None:
            if path not in seen:
                seen.add(path)
                terminal.say(f"{name}: {path}" + (f", {size / 1e6:,.1f} MB" if size > 100_000 else ""))

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True, no_color=not terminal.colours(sys.stderr))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {}

        def draw(path: str, more: int, size: int) -> None:
            if path not in tasks:
                tasks[path] = bar.add_task(f"{name.split('/')[-1]} {Path(path).name}", total=size or None)
            bar.advance(tasks[path], more)

        yield draw


@contextmanager
def embedding(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for passages that are embedded, or a line now and then off a terminal."""
    if not terminal.is_terminal(sys.stderr):
        from time import monotonic

        next_line = [monotonic() + 5.0]

        def line(done: int, total: int) -> None:
            if monotonic() >= next_line[0]:
                next_line[0] = monotonic() + 5.0
                terminal.say(f"{title}: {done:,} of {total:,} passages")

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, no_color=not terminal.colours(sys.stderr))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
