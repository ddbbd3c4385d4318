"""What is on disk beside what the memory knows of it: every file and every line with what became of it."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp import discovery
from funes_mcp.errors import FunesError
from funes_mcp.memory.catalog import Catalog, Coverage, SourceState, safe_text, signature_of
from funes_mcp.models import HarnessStatus, SourceCounts
from funes_mcp.traces.model import Root, Source, Tally

if TYPE_CHECKING:
    from funes_mcp.traces.adapter import TraceAdapter

#: The fact in the catalog that holds the paths which somebody named to `funes index`.
_PATHS: Final = "paths"

#: Days before an agent deletes a transcript in which that is worth saying.
SOON_DAYS: Final = 7.0


@dataclass(slots=True)
class Place:
    """A root, or a path that somebody named, with what is in it.

    Attributes:
        adapter: None for a named path.
        sources: Found there now, each with what is known of it.
        passed_over: Files that are no sources, with reasons.
        deleted_after: Days after which the agent deletes what is in it; None when it does not.
    """

    root: Root
    adapter: TraceAdapter | None
    sources: list[tuple[Source, SourceState | None]] = field(default_factory=list)
    passed_over: Tally = field(default_factory=Tally)
    deleted_after: float | None = None


@dataclass(slots=True)
class Survey:
    """Everything that is on disk, and everything that was ever read.

    Attributes:
        left: What is known of sources that are in none of the places.
    """

    places: list[Place]
    left: list[SourceState]
    states: Sequence[SourceState]
    harnesses: tuple[str, ...]
    notes: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Sources that were never read, or changed since they were, or since reading them failed."""
        return sum(
            is_waiting(source, state) and not has_failed(source, state)
            for place in self.places
            for source, state in place.sources
        )

    def doomed(self, within_days: float = SOON_DAYS) -> list[tuple[Source, bool]]:
        """Transcripts that their agent will delete so soon, oldest first, and whether all of each was read."""
        now = time.time_ns()
        found = []
        for place in self.places:
            if place.deleted_after is not None:
                limit = now - int((place.deleted_after - within_days) * 86_400e9)
                found += [(s, not is_waiting(s, state)) for s, state in place.sources if s.mtime_ns <= limit]
        return sorted(found, key=lambda item: (item[0].mtime_ns, str(item[0].path)))


def is_waiting(source: Source, state: SourceState | None) -> bool:
    """Whether a source was never read to its end, or changed since."""
    return state is None or not state.complete or state.signature != signature_of(source)


def has_failed(source: Source, state: SourceState | None) -> bool:
    """Whether a source could not be read as it is now."""
    return state is not None and bool(state.failure) and state.signature == signature_of(source)


def survey(
    roots: Sequence[tuple[TraceAdapter, Root]],
    states: Sequence[SourceState],
    paths: Sequence[Path],
    adapters: Sequence[TraceAdapter] = (),
    apart: Collection[Path] = (),
) -> Survey:
    """Look at all roots and named paths; only `stat`s, and beginnings of files in named paths.

    Args:
        apart: Folders in named paths that are passed over; see `discovery.sources_at`.
    """
    known = {state.path: state for state in states}
    seen: set[Path] = set()
    met: set[str] = set()
    places = []

    def take(place: Place, source: Source) -> None:
        path = safe_text(str(source.path))
        met.add(path)
        place.sources.append((source, known.get(path)))

    for adapter, root in roots:
        place = Place(root, adapter, deleted_after=_deleted_after(adapter, root))
        for _, source in discovery.sources(adapter, root, place.passed_over, seen):
            take(place, source)
        places.append(place)
    for path in paths:
        place = Place(Root("", path, "indexed by name", "path"), None)
        with suppress(FunesError):
            for _, source in discovery.sources_at(adapters, path, place.passed_over, apart=apart):
                if source.path not in seen:
                    seen.add(source.path)
                    take(place, source)
        places.append(place)
    left = [state for state in states if state.path not in met]
    names = dict.fromkeys([adapter.harness for adapter, _ in roots] + sorted({state.harness for state in states}))
    return Survey(places, left, states, tuple(names))


def _deleted_after(adapter: TraceAdapter, root: Root) -> float | None:
    days = getattr(adapter, "deleted_after", None)  # adapters of others need not know of it
    return None if days is None else days(root)


def harness_statuses(
    survey: Survey, coverage: Mapping[str, Coverage], chunks: Mapping[str, int]
) -> tuple[HarnessStatus, ...]:
    """The summary by agent.

    Args:
        coverage: What the catalog says of each agent.
        chunks: Stored rows by agent.
    """
    found = []
    for harness in dict.fromkeys([*survey.harnesses, *sorted(chunks)]):
        about = coverage.get(harness, Coverage())
        records = Tally()
        for state in survey.states:
            if state.harness == harness:
                records.add(state.tally)
        found.append(
            HarnessStatus(
                harness=harness,
                roots=tuple(
                    (str(place.root.path), place.root.why, place.root.path.exists())
                    for place in survey.places
                    if place.root.harness == harness
                ),
                sources=_counts(harness, survey),
                sessions=about.sessions,
                chunks=chunks.get(harness, 0),
                records=records,
                newest=about.newest,
                title=about.title,
                copied=about.copied,
            )
        )
    return tuple(found)


def _counts(harness: str, survey: Survey) -> SourceCounts:
    counts = SourceCounts()
    for place in survey.places:
        for source, state in place.sources:
            if source.harness != harness:
                continue
            counts.found += 1
            if has_failed(source, state):
                counts.failed += 1
            elif is_waiting(source, state):
                counts.waiting += 1
            else:
                counts.read += 1
        if place.root.harness == harness:
            for (_, reason), number in place.passed_over.skipped.items():
                counts.skipped[reason] = counts.skipped.get(reason, 0) + number
    for state in survey.left:
        if state.harness == harness:
            # Of a memory that was made elsewhere the disk says nothing.
            there = not survey.places or Path(state.path).exists()
            if survey.places and there and _is_empty(Path(state.path)):
                continue  # counted among what is left out where it lies
            counts.gone += not there
            counts.found += there
            counts.failed += there and bool(state.failure)
            counts.read += there and not state.failure
    return counts


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def remembered_paths(memory: Path) -> tuple[Path, ...]:
    """The paths that somebody named to be indexed into a memory."""
    catalog = Catalog.found(memory)
    if catalog is None:
        return ()
    try:
        return tuple(Path(path) for path in json.loads(catalog.get(_PATHS) or "[]"))
    finally:
        catalog.close()


def remember_path(catalog: Catalog, path: Path, own: Sequence[Path]) -> None:
    """Keep a path that somebody named, so that it can be looked at again.

    Args:
        own: Where the agents' sessions are: what lies there (a transcript that a hook names) is looked at anyway.
    """
    resolved = path.resolve()
    if any(root == resolved or root in resolved.parents for root in (each.resolve() for each in own)):
        return
    before = [Path(name) for name in json.loads(catalog.get(_PATHS) or "[]")]
    if any(resolved == other or other in resolved.parents for other in before):
        return
    kept = [other for other in before if resolved not in other.parents]
    catalog.put(_PATHS, json.dumps(sorted({str(other) for other in (*kept, resolved)})))
