"""One indexing pass: what was read goes to the writer, and the account of it into a report."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from funes_mcp import collection
from funes_mcp.errors import FunesError
from funes_mcp.models import IndexReport, Progress
from funes_mcp.reading import Begun, Ended, Failed, Message, Read, Work, reads_apart, reason_of
from funes_mcp.traces.model import SessionInfo, Tally

if TYPE_CHECKING:
    from funes_mcp.inference.protocols import Embedder
    from funes_mcp.memory.model import Chunk
    from funes_mcp.memory.writer import MemoryWriter

#: Chunks that are written in one step: large enough for the native writers, small enough to be searchable
#: early and to keep memory bounded.
COMMIT_CHUNKS = 8_000

#: What the first step of a pass waits for: the newest sessions are searchable within a moment.
FIRST_COMMIT_CHUNKS = 1_000

#: Why a transcript that turned into garbage is not taken for one without turns.
SENSELESS = "nothing in it can be understood any more; what was stored of it is kept"


def newest_first(work: Iterable[Work]) -> list[Work]:
    """The order of a pass: what was written last is searchable first."""
    return sorted(work, key=lambda w: (-w.source.mtime_ns, str(w.source.path)))


class Pass:
    """One pass with an open writer, whose lock the caller holds. Ctrl-C keeps what was read.

    Args:
        embedder: Makes the vectors that do not come with what was read; None stores everything without vectors.
        report: Filled while the pass goes on.
        compiling: Whether who reads compiles the rules of its redactor first; to be told.
    """

    def __init__(
        self,
        writer: MemoryWriter,
        embedder: Embedder | None,
        report: IndexReport,
        progress: Progress | None = None,
        *,
        compiling: bool = False,
    ) -> None:
        self._writer = writer
        self._embedder = embedder
        self._report = report
        self._progress = progress
        self._compiling = compiling
        self._threshold = FIRST_COMMIT_CHUNKS

    def run(self, work: Sequence[Work], messages: Iterator[Message]) -> None:
        """Take everything that is read from `work` and commit it."""
        started = time.monotonic()
        if self._progress:
            self._progress.started(len(work), sum(w.source.size for w in work), compiling=self._compiling)
        try:
            if reads_apart(work):  # the first of it will take a moment
                self._writer.prepare()
            with collection.seldom():
                self._take(work, messages)
            self._commit()
            self._writer.maintain()
        except KeyboardInterrupt:
            self._report.interrupted = True
            with suppress(FunesError):  # a second Ctrl-C in the middle of a commit: the next pass repairs it
                self._commit()
        finally:
            self._report.seconds += time.monotonic() - started
            if self._progress:
                self._progress.finished(self._report)

    def _take(self, work: Sequence[Work], messages: Iterator[Message]) -> None:
        current: Work | None = None
        given_up: Work | None = None
        chunks = 0
        for message in messages:
            if isinstance(message, Begun):
                current, chunks = work[message.place], 0
                self._writer.begin(current.source, whole=message.whole)
            elif isinstance(message, Failed):
                if work[message.place] is not given_up:  # that is told of already
                    self._fail(work[message.place], message.reason)
            elif current is not None and isinstance(message, Read):
                try:
                    stored = self._put(message)
                except (FunesError, OSError, sqlite3.Error):  # the memory's trouble, not this source's
                    raise
                except Exception as error:
                    self._fail(current, reason_of(error))
                    given_up, current = current, None  # what follows of it is passed over
                    continue
                chunks += stored
                if self._progress:
                    self._progress.read(stored)
            elif current is not None and isinstance(message, Ended):
                if self._writer.lost_its_sense(current.source, message.tally):
                    self._fail(current, SENSELESS)
                    continue
                self._writer.finish(current.source, message.cursor, message.tally)
                self._count(current, message, chunks)
            if self._writer.waiting >= self._threshold:
                self._commit(background=True)

    def _put(self, part: Read) -> int:
        self._report.redacted.update(part.redacted)
        waiting = 0
        at = 0
        bare: list[list[Chunk]] = []
        self._writer.expect(item[1] for item in part.items if isinstance(item, tuple))
        for item in part.items:
            if isinstance(item, SessionInfo):
                self._writer.put_session(item)
                continue
            turn, chunks = item
            span = slice(at, at + len(chunks))
            names = () if part.names is None else part.names[span]
            vectors = None if part.vectors is None else part.vectors[span]
            stored = self._writer.put_turn(turn, chunks, names, vectors)
            waiting += stored
            if stored and vectors is None:
                bare.append(chunks)
            at += len(chunks)
        if bare and self._embedder is not None:
            made = self._embedder.embed_passages([chunk.text for chunks in bare for chunk in chunks])
            at = 0
            for chunks in bare:
                self._writer.put_vectors_of(chunks, made[at : at + len(chunks)])
                at += len(chunks)
        return waiting

    def _count(self, work: Work, ended: Ended, chunks: int) -> None:
        source = work.source
        self._report.sources[source.harness].read += 1
        self._report.records.setdefault(source.harness, Tally()).add(ended.tally)
        if self._progress:
            before = work.cursor.offset if work.cursor else 0
            self._progress.source_done(str(source.path), max(0, source.size - before), chunks)

    def _fail(self, work: Work, reason: str) -> None:
        self._writer.fail(work.source, reason)
        self._report.sources[work.source.harness].failed += 1
        self._report.failures.append((str(work.source.path), reason))
        if self._progress:
            self._progress.source_done(str(work.source.path), work.source.size, 0)

    def _commit(self, *, background: bool = False) -> None:
        embed = None if self._embedder is None else self._embedder.embed_passages
        done = self._writer.commit(embed, background=background)
        self._threshold = COMMIT_CHUNKS
        report = self._report
        report.chunks_stored += done.stored
        report.chunks_known += done.known
        report.chunks_copied += done.copied
        report.chunks_removed += done.removed
        report.embedded += done.embedded
        if self._progress:
            self._progress.committed(done.stored)
