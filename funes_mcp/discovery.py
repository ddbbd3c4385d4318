"""Which transcripts there are: the agents' own folders, or a path that somebody named."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from funes_mcp.config import OtherHome
from funes_mcp.errors import BadRequestError, FunesError
from funes_mcp.traces.adapter import TraceAdapter
from funes_mcp.traces.model import Root, Source, Tally

ENTRY_POINTS = "funes.adapters"

#: Bytes of a file that an adapter is shown to say whether it is one of its transcripts.
HEAD_BYTES = 64 * 1024


def load_adapters() -> tuple[list[TraceAdapter], list[str]]:
    """The adapters that are installed, by name, and a sentence about each that cannot be loaded.

    Raises `FunesError` when there is none at all.
    """
    from importlib.metadata import entry_points

    found: dict[str, TraceAdapter] = {}
    broken = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found[point.name] = point.load()
        except Exception as error:  # somebody else's adapter must not cost ours
            broken.append(f"The adapter {point.name} ({point.value}) cannot be loaded: {error}")
    if not found:
        raise FunesError("No adapters are installed.", "Install funes-mcp again: `pip install .`")
    return [found[name] for name in sorted(found)], broken


def modules_beside(name: str) -> dict[str, str]:
    """The modules called `name` beside the installed adapters, by agent; they need not exist."""
    from importlib.metadata import entry_points

    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return {point.name: f"{point.module}.{name}" for point in points}


def find_beside(agent: str, name: str, attribute: str, purpose: str) -> Any:
    """An attribute of the module called `name` beside an agent's adapter (`claude_code` means `claude`).

    Args:
        purpose: What it is for, as in "cannot be wired".

    Raises:
        BadRequestError: There is no such agent.
        FunesError: The module cannot be imported, or lacks the attribute.
    """
    from importlib import import_module

    known = modules_beside(name)
    wanted = agent.strip().lower().replace("-", "_")
    wanted = "claude" if wanted == "claude_code" else wanted
    if wanted not in known:
        raise BadRequestError(f"There is no agent called {agent!r}.", f"Known agents: {', '.join(known)}.")
    try:
        return getattr(import_module(known[wanted]), attribute)
    except Exception as error:
        raise FunesError(f"The adapter {wanted} cannot be {purpose}: {type(error).__name__}: {error}") from error


def select(adapters: Sequence[TraceAdapter], harness: str | None) -> list[TraceAdapter]:
    """The adapters that a harness name means (`claude` and `claude_code` are one). Raises `BadRequestError`."""
    if harness is None:
        return list(adapters)
    wanted = harness.strip().lower()
    chosen = [a for a in adapters if wanted in (a.name, a.harness)]
    if not chosen:
        known = ", ".join(a.name for a in adapters)
        raise BadRequestError(f"There is no agent called {harness!r}.", f"Known agents: {known}.")
    return chosen


def roots(
    adapters: Sequence[TraceAdapter], environ: Mapping[str, str], home: Path, others: Sequence[OtherHome] = ()
) -> list[tuple[TraceAdapter, Root]]:
    """Where the given agents keep their sessions: here, and in the other homes that the person named.

    The environment names folders of this home only.
    """
    found = [(adapter, root) for adapter in adapters for root in adapter.roots(environ, home)]
    here = {root.path for _, root in found}
    for other in others:
        for adapter in adapters:
            if other.agents and other.agents.isdisjoint((adapter.name, adapter.harness)):
                continue
            for root in adapter.roots({}, other.path):
                if root.path not in here:
                    here.add(root.path)
                    why = f"config.toml, {other.host}"
                    found.append((adapter, replace(root, why=why, host=other.host)))
    return found


def sources(adapter: TraceAdapter, root: Root, tally: Tally, seen: set[Path]) -> Iterator[tuple[TraceAdapter, Source]]:
    """The sources under one root that have not been met under another (`seen` holds real paths); no empty files."""
    for source in adapter.sources(root, tally):
        if not source.size:
            tally.skipped["file", "empty"] += 1
            continue
        if source.path in seen:
            tally.skipped["file", "reached twice"] += 1
            continue
        seen.add(source.path)
        yield adapter, source


def sources_at(
    adapters: Sequence[TraceAdapter],
    path: Path,
    tally: Tally,
    *,
    others: Sequence[TraceAdapter] = (),
    apart: Collection[Path] = (),
) -> Iterator[tuple[TraceAdapter, Source]]:
    """The transcripts at a path that somebody named: a file, or a folder of any agents' transcripts.

    Each file goes to the first adapter that recognises its beginning; one that none recognises is counted.

    Args:
        others: Adapters whose transcripts were not asked for: they are counted as theirs.
        apart: Folders that are passed over, as the memory's own.

    Raises:
        FunesError: There is nothing at the path.
    """
    if not path.exists():
        raise FunesError(f"There is nothing at {path}.")
    seen: set[Path] = set()
    for file in _files(path, apart, tally):
        try:
            real = file.resolve()
            if real in seen:
                tally.skipped["file", "reached twice"] += 1
                continue
            seen.add(real)
            if real.stat().st_size == 0:
                tally.skipped["file", "empty"] += 1
                continue
            with real.open("rb") as handle:
                head = handle.read(HEAD_BYTES)
        except OSError as error:
            tally.skipped["file", f"cannot be read ({error.strerror or error})"] += 1
            continue
        adapter = next((a for a in adapters if a.claims(real, head)), None)
        if adapter is None and (owner := next((a for a in others if a.claims(real, head)), None)) is not None:
            tally.skipped["file", f"a transcript of {owner.name}, not asked for"] += 1
            continue
        source = adapter.source_at(real) if adapter else None
        if adapter is None or source is None:
            tally.skipped["file", "no transcript of a known agent"] += 1
            continue
        yield adapter, source


def _files(path: Path, apart: Collection[Path], tally: Tally) -> Iterator[Path]:
    """A file itself, or all files below a folder, links followed once each."""
    if not path.is_dir():
        yield path
        return
    visited: set[tuple[int, int]] = set()
    named = path.resolve()  # whoever names a folder wants what is in it
    own = {kept for one in apart if not named.is_relative_to(kept := one.resolve())}
    for folder, names, files in os.walk(path, followlinks=True):
        if Path(folder).resolve() in own:
            tally.skipped["folder", "of funes itself"] += 1
            names.clear()
            continue
        stat = os.stat(folder)
        if (stat.st_dev, stat.st_ino) in visited:
            names.clear()
            continue
        visited.add((stat.st_dev, stat.st_ino))
        names.sort()
        for name in sorted(files):
            yield Path(folder, name)
