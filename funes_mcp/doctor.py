"""Proves a memory against the disk, and says what to type where that fails. Changes nothing by itself; the recall
that is tried puts indexes in order which are behind the table, as every recall does.

Everything is compared with something that was found out in another way: files listed by the adapters with a
plain walk of the folders, an account with the number of its lines, the table with both indexes and the catalog.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Final, Literal

from funes_mcp import wording
from funes_mcp.coverage import SOON_DAYS, Place, Survey, harness_statuses, is_waiting
from funes_mcp.errors import FunesError
from funes_mcp.home import FunesHome
from funes_mcp.memory import derived
from funes_mcp.memory.catalog import Catalog, Coverage, safe_text
from funes_mcp.models import DoctorReport, Finding, RecallAnswer, RecallRequest
from funes_mcp.traces.files import walk
from funes_mcp.traces.model import Tally

Recall = Callable[[RecallRequest], RecallAnswer]
State = Literal["ok", "note", "problem"]

#: A transcript that changed so many seconds ago is waited for no longer: hooks are long done by then.
LATE_S: Final = 600.0

#: How many of a kind are named.
_NAMED: Final = 5
#: How long the writer lock is waited for, to compare what nobody is just changing.
_PATIENCE_S: Final = 2.0
_ROWS_TRIED: Final = 3
_REPORT: Final = "This is a fault of funes: report it, with what `funes doctor --json` prints."
_INDEX: Final = "Run `funes index`."


@dataclass(slots=True)
class _Findings:
    items: list[Finding] = field(default_factory=list)

    def add(self, about: str, state: State, message: str, hint: str = "") -> None:
        self.items.append(Finding(about, state, message, hint if state != "ok" else ""))


def examine(
    home: FunesHome,
    survey: Survey,
    broken_adapters: Sequence[str],
    hooks: Sequence[tuple[str, str, str]],
    wiring: Sequence[str],
    recall: Recall,
    without_model: str,
) -> DoctorReport:
    """Look at everything.

    Args:
        survey: The disk beside the memory.
        broken_adapters: Sentences about adapters that cannot be loaded.
        hooks: See `StatusReport.hooks`.
        wiring: Sentences about the agents' configuration.
        recall: Asks the memory a question.
        without_model: Why the memory's vectors cannot be asked; "" where they can.
    """
    found = _Findings()
    for sentence in (*broken_adapters, *survey.notes):
        found.add("setup", "problem", sentence)
    for place in survey.places:
        _look_at_place(place, found)
    _look_at_sources(survey, found)
    _look_at_deletions(survey, found)
    chunks: Counter[str] = Counter()
    coverage: dict[str, Coverage] = {}
    try:
        coverage, chunks = _look_at_memory(home, found, recall)
    except FunesError as error:
        found.add("memory", "problem", error.message, error.hint or "See `funes status`.")
    except OSError as error:
        found.add("memory", "problem", f"{error.filename or home.memory}: {error.strerror or error}")
    if without_model:
        found.add("model", "problem", without_model, "`funes models` lists what is here.")
    _look_at_permissions(home, found)
    _look_at_mirrors(home, found)
    _look_at_hooks(hooks, found)
    for sentence in wiring:
        found.add("wiring", "note", sentence)
    statuses = harness_statuses(survey, coverage, chunks)
    return DoctorReport(str(home.memory), tuple(found.items), statuses)


# -- transcripts -------------------------------------------------------------------------------------------


def _look_at_place(place: Place, found: _Findings) -> None:
    root = place.root
    about = root.harness or "elsewhere"
    where = f"{safe_text(str(root.path))} ({root.why})"
    if not root.path.exists():
        found.add(about, "note", f"{where} is not there")
        return
    counts: Counter[str] = Counter()
    for source, state in place.sources:
        if state is not None and state.failure:
            counts["failed"] += 1
        elif state is None:
            counts["never read"] += 1
        else:
            counts["changed since"] += is_waiting(source, state)
    read = len(place.sources) - counts.total()
    skipped = Counter({reason: n for (kind, reason), n in place.passed_over.skipped.items() if kind == "file"})
    parts = [f"{read:,} read and unchanged"]
    parts += [f"{number:,} {what}" for what, number in sorted(counts.items()) if number]
    parts += [f"{number:,} left out ({reason})" for reason, number in sorted(skipped.items())]
    found.add(about, "ok", f"{where}: {len(place.sources) + skipped.total():,} files: {', '.join(parts)}")
    for (kind, reason), number in sorted(place.passed_over.skipped.items()):
        if kind != "file" and reason != "reached twice":
            found.add(about, "problem", f"{where}: {number} folders: {reason}", "Make them readable for yourself.")
    _count_again(place, len(place.sources) + skipped.total(), where, found)


def _count_again(place: Place, accounted: int, where: str, found: _Findings) -> None:
    """Compare with a plain walk. A home with many other things in it is listed by its adapter alone."""
    if place.root.kind == "home" or not place.root.path.is_dir():
        return
    there = sum(1 for _ in walk(place.root.path, Tally()))
    if there != accounted:
        about = place.root.harness or "elsewhere"
        found.add(about, "problem", f"{where}: {there:,} files are there, {accounted:,} are accounted for", _REPORT)


def _look_at_sources(survey: Survey, found: _Findings) -> None:
    late: list[str] = []
    fresh = 0
    now = time.time()
    for place in survey.places:
        for source, state in place.sources:
            if is_waiting(source, state) and not (state and state.failure):
                if now - source.mtime_ns / 1e9 > LATE_S:
                    late.append(safe_text(str(source.path)))
                else:
                    fresh += 1
    if late:
        found.add("transcripts", "problem", f"{_named(late, 'transcript')} not read yet, or changed since", _INDEX)
    if fresh:
        found.add("transcripts", "note", f"{fresh} being written to in these minutes; hooks or `funes index` read them")
    failed = [f"{state.path} ({state.failure})" for state in survey.states if state.failure]
    if failed:
        found.add(
            "transcripts",
            "problem",
            f"{_named(failed, 'transcript')} could not be read",
            "Make them readable, then run `funes index`.",
        )
    gone = [state for state in survey.left if not Path(state.path).exists()]
    if gone:
        found.add("transcripts", "ok", f"{len(gone):,} were deleted since they were read; what was read is kept")
    lines = kept = skipped = 0
    for state in survey.states:
        lines += state.tally.lines
        kept += state.tally.kept.total()
        skipped += state.tally.skipped.total()
    wrong = [
        f"{state.path} ({state.tally.lines:,} lines, {state.tally.explained:,} accounted for)"
        for state in survey.states
        if state.tally.lines != state.tally.explained or min(_numbers(state.tally), default=0) < 0
    ]
    if wrong:
        found.add("records", "problem", f"{_named(wrong, 'account')} does not add up", _REPORT)
    else:
        found.add(
            "records", "ok", f"{lines:,} lines: {kept:,} records kept, {skipped:,} left out, each with its reason"
        )
    unknown: Counter[tuple[str, str]] = Counter()
    for state in survey.states:
        unknown.update({(state.harness, kind): number for kind, number in state.tally.unknown.items()})
    for (harness, kind), number in sorted(unknown.items()):
        found.add(harness, "problem", f"{number:,} records of an unknown type: {kind}", _REPORT)


def _numbers(tally: Tally) -> Iterator[int]:
    yield from tally.kept.values()
    yield from tally.skipped.values()
    yield from tally.unknown.values()


def _look_at_deletions(survey: Survey, found: _Findings) -> None:
    doomed = survey.doomed()
    lost = [safe_text(str(source.path)) for source, read in doomed if not read]
    if lost:
        found.add(
            "deletion",
            "problem",
            f"{_named(lost, 'transcript')} will be deleted by the agent within {SOON_DAYS:.0f} days and not all read",
            _INDEX,
        )
    elif doomed:
        found.add(
            "deletion",
            "ok",
            f"{len(doomed):,} transcripts will be deleted by the agent within {SOON_DAYS:.0f} days; all are read",
        )


# -- the memory --------------------------------------------------------------------------------------------


def _look_at_memory(home: FunesHome, found: _Findings, recall: Recall) -> tuple[dict[str, Coverage], Counter[str]]:
    from funes_mcp.errors import NoMemoryError
    from funes_mcp.memory.lock import WriterLock, is_held
    from funes_mcp.memory.table import table_path, table_version

    folder = home.memory
    if table_version(table_path(folder)) is None:
        raise NoMemoryError
    lock = WriterLock(folder)
    try:
        quiet = lock.acquire(_PATIENCE_S)
        refused = ""
    except OSError as error:  # it is read all the same
        quiet, refused = not is_held(folder), error.strerror or str(error)
    try:
        if refused:
            found.add("lock", "note", f"nothing can be written to the memory ({refused})")
        elif not quiet:
            found.add("lock", "note", "another funes process is writing; rows are not compared", "Try again later.")
        elif lock.dirty:
            found.add("lock", "note", "a process left word of work that nobody took; the next index does it")
        else:
            found.add("lock", "ok", "nobody is writing")
        coverage, chunks = _compare(folder, found) if quiet else ({}, Counter())
    finally:
        lock.release()
    _ask(folder, found, recall)
    return coverage, chunks


def _compare(folder: Path, found: _Findings) -> tuple[dict[str, Coverage], Counter[str]]:
    from funes_mcp.memory import lexical
    from funes_mcp.memory.chunk import chunk_id
    from funes_mcp.memory.dense import DenseReader
    from funes_mcp.memory.lexical import LexicalReader
    from funes_mcp.memory.stamp import erasure_waits
    from funes_mcp.memory.table import ChunkTable

    table = ChunkTable.open(folder)
    ids = table.ids()
    keys = {int(name, 16) for name in ids}
    if table.rows != len(ids):
        found.add("table", "problem", f"{table.rows:,} rows have {len(ids):,} ids", "Run `funes index`.")
    catalog = Catalog(folder, writable=False)
    try:
        expected = {
            int(chunk_id(session, message.turn, block, piece), 16)
            for session, message in catalog.all_messages()
            for block, piece in message.pieces()
        }
        coverage = catalog.coverage()
    finally:
        catalog.close()
    if erasure_waits(folder):
        found.add("removed", "problem", "files of the memory still hold what was removed from it", _INDEX)
    _same("catalog", keys, expected, _INDEX, found)
    if wrong := lexical.damage(folder / derived.LEXICAL, thorough=True):
        found.add("words", "problem", f"the word index is damaged: {wrong}", _remade(folder / derived.LEXICAL))
    words = LexicalReader(folder / derived.LEXICAL)
    _same("words", keys, words.keys(), _remade(folder / derived.LEXICAL), found)
    filled = {int(name, 16) for name, full in ids.items() if full}
    vectors = DenseReader(folder / derived.DENSE)
    if table.embedding.width:
        _same("vectors", filled, vectors.keys(), _remade(folder / derived.DENSE), found)
    if len(filled) < len(keys):
        found.add("vectors", "note", f"{len(keys) - len(filled):,} of {len(keys):,} passages have no vector yet")
    chunks = Counter({name: words.count("harness", name) for name in words.values("harness")})
    return coverage, chunks


def _same(about: str, table: set[int], other: set[int], hint: str, found: _Findings) -> None:
    if table == other:
        found.add(about, "ok", f"{len(table):,} rows in the table, the same {len(other):,} here")
    else:
        lacking, surplus = len(table - other), len(other - table)
        found.add(
            about,
            "problem",
            f"{len(table):,} rows in the table: {lacking:,} of them lack here, {surplus:,} others are here",
            hint,
        )


def _remade(index: Path) -> str:
    return f"Delete {index}: the next recall makes it again from the table."


def _ask(folder: Path, found: _Findings, recall: Recall) -> None:
    """Ask for some stored passages in their own words."""
    from funes_mcp.memory.lexical import LexicalReader

    words = LexicalReader(folder / derived.LEXICAL)
    keys = sorted(words.keys())
    if not keys:
        found.add("recall", "note", "there is nothing to be found yet")
        return
    missed = 0
    started = time.monotonic()
    for number in range(_ROWS_TRIED):
        key = keys[(2 * number + 1) * len(keys) // (2 * _ROWS_TRIED)]
        (row,) = words.rows([key]).values()
        try:
            answer = recall(RecallRequest(row.text[:300], k=50, session=row.session_id, neighbors=0, min_relevance=0))
        except FunesError as error:
            found.add("recall", "problem", f"a question failed: {error.message}", error.hint or _REPORT)
            return
        except Exception as error:  # the very thing that is looked for
            found.add("recall", "problem", f"a question failed: {type(error).__name__}: {error}", _REPORT)
            return
        # A near-copy may stand for it.
        missed += not any(hit.chunk.turn_uuid == row.turn_uuid or hit.alike for hit in answer.hits)
    took = (time.monotonic() - started) / _ROWS_TRIED * 1000
    if missed:
        found.add(
            "recall",
            "problem",
            f"{missed} of {_ROWS_TRIED} stored passages are not found by their own words",
            _remade(folder / derived.LEXICAL),
        )
    else:
        found.add("recall", "ok", f"{_ROWS_TRIED} stored passages are found by their own words ({took:.0f} ms each)")


# -- around it ---------------------------------------------------------------------------------------------


def _look_at_mirrors(home: FunesHome, found: _Findings) -> None:
    from funes_mcp.memory.remote import mirrors

    here = mirrors(home.root)
    if here:
        listed = ", ".join(f"{folder.name} ({size / 1e6:,.1f} MB)" for folder, size in here[:_NAMED])
        more = f" and {len(here) - _NAMED} more" if len(here) > _NAMED else ""
        found.add(
            "other memories",
            "ok",
            f"copies of {len(here)} are in {here[0][0].parent}: {listed}{more}; any may be deleted, and comes again "
            "when it is read",
        )


def _look_at_permissions(home: FunesHome, found: _Findings) -> None:
    if os.name == "nt" or not home.root.exists():
        return
    open_ = []
    for path in [home.root, *home.root.rglob("*")]:
        with suppress(OSError):
            mode = path.lstat().st_mode
            if mode & 0o077 and not path.is_symlink():
                open_.append(safe_text(str(path)))
    if open_:
        found.add("privacy", "problem", f"{_named(open_, 'file')} can be read by others", f"chmod -R go= {home.root}")
    else:
        found.add("privacy", "ok", "nobody else can read the files of funes")


def _look_at_hooks(hooks: Sequence[tuple[str, str, str]], found: _Findings) -> None:
    for name, succeeded, failed in hooks:
        if failed and _moment(failed) >= _moment(succeeded):
            found.add("hooks", "problem", f"{name} failed at {failed}; last success {succeeded or 'never'}", _INDEX)
        else:
            found.add("hooks", "ok", f"{name}: last success {succeeded}")


def _moment(text: str) -> datetime:
    """The time at the beginning of a text; the epoch for none."""
    try:
        return datetime.fromisoformat(text.partition(" ")[0].replace("Z", "+00:00"))
    except ValueError:
        return datetime.fromtimestamp(0, timezone.utc)


def _named(names: Sequence[str], noun: str) -> str:
    shown = "; ".join(names[:_NAMED]) + (f"; and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
    return f"{wording.count(len(names), noun)} ({shown})"
