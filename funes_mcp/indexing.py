"""One indexing pass: read what changed, make chunks, hand them to the writer, keep the account."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from funes_mcp.errors import FunesError
from funes_mcp.memory.chunk import chunks_of
from funes_mcp.models import IndexReport, Progress
from funes_mcp.traces.model import SessionInfo, Source, Tally

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from funes_mcp.memory.writer import Committed, MemoryWriter
    from funes_mcp.traces.adapter import TraceAdapter

#: Chunks that are written in one step: large enough for the native writers, small enough to be searchable
#: early and to keep memory bounded.
COMMIT_CHUNKS = 8_000

#: What the first step of a pass waits for: the newest sessions are searchable within a moment.
FIRST_COMMIT_CHUNKS = 1_000


@dataclass(frozen=True, slots=True)
class Work:
    """A source to read, and who reads it."""

    adapter: TraceAdapter
    source: Source


def newest_first(work: Iterable[Work]) -> list[Work]:
    """The order of a pass: what was written last is searchable first."""
    return sorted(work, key=lambda w: (-w.source.mtime_ns, str(w.source.path)))


class Pass:
    """One pass over sources with an open writer. Bad input costs that input; Ctrl-C keeps what is written.

    Args:
        writer: Open, its lock held by the caller.
        embed: Makes unit vectors, float32 (n, width), of n texts.
        report: Filled while the pass goes on.
        thinking: Whether thinking blocks are stored.
        redact: Applied to the rendered text of each whole block before it is split.
    """

    def __init__(
        self,
        writer: MemoryWriter,
        embed: Callable[[list[str]], NDArray[float32]],
        report: IndexReport,
        *,
        thinking: bool = True,
        redact: Callable[[str], str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self._writer = writer
        self._embed = embed
        self._report = report
        self._thinking = thinking
        self._redact = redact
        self._progress = progress
        self._threshold = FIRST_COMMIT_CHUNKS

    def run(self, work: Sequence[Work]) -> None:
        """Read every source and commit. A `KeyboardInterrupt` ends the pass early and is reported."""
        started = time.monotonic()
        if self._progress:
            self._progress.started(len(work), sum(w.source.size for w in work))
        try:
            for item in work:
                self._read(item)
            self._commit()
            self._writer.maintain()
        except KeyboardInterrupt:
            self._report.interrupted = True
            self._commit()
        finally:
            self._report.seconds += time.monotonic() - started
            if self._progress:
                self._progress.finished(self._report)

    def _read(self, work: Work) -> None:
        source = work.source
        counts = self._report.sources[source.harness]
        offset = 0
        chunks = 0
        try:
            cursor = self._writer.cursor_of(source)
            reader = work.adapter.read(source, cursor)
            self._writer.begin(source, whole=reader.whole)
            offset = 0 if reader.whole or cursor is None else cursor.offset
            infos: dict[str, SessionInfo] = {}
            for event in reader:
                if isinstance(event, SessionInfo):
                    infos[event.session_id] = event
                    self._writer.put_session(event)
                    continue
                info = infos.get(event.session_id)
                if info is None:
                    info = infos[event.session_id] = SessionInfo(event.session_id, source.harness)
                    self._writer.put_session(info)
                rows = chunks_of(event, info, str(source.path), thinking=self._thinking, redact=self._redact)
                chunks += self._writer.put_turn(event, rows)
                if self._writer.waiting >= self._threshold:
                    self._commit()
            self._writer.finish(source, reader.cursor(), reader.tally)
        except FunesError:  # the memory's own trouble, not the source's
            raise
        except OSError as error:
            self._fail(source, error.strerror or str(error))
            return
        except Exception as error:  # a fault of ours with one file must not cost the others
            self._fail(source, f"{type(error).__name__}: {error}")
            return
        counts.read += 1
        self._report.records.setdefault(source.harness, Tally()).add(reader.tally)
        if self._progress:
            self._progress.source_done(str(source.path), max(0, source.size - offset), chunks)

    def _fail(self, source: Source, reason: str) -> None:
        self._writer.fail(source, reason)
        self._report.sources[source.harness].failed += 1
        self._report.failures.append((str(source.path), reason))
        if self._progress:
            self._progress.source_done(str(source.path), source.size, 0)

    def _commit(self) -> None:
        done: Committed = self._writer.commit(self._embed)
        self._threshold = COMMIT_CHUNKS
        report = self._report
        report.chunks_stored += done.stored
        report.chunks_known += done.known
        report.chunks_copied += done.copied
        report.chunks_removed += done.removed
        report.embedded += done.embedded
        if self._progress:
            self._progress.committed(done.stored)
