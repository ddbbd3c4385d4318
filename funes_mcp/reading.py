"""Reading sources into chunks, here or in a process of its own.

A first pass over a large history is bound by Python: parsing, cutting and embedding on one core, writing on
the other. So the reading may run in a child process that sends what it reads in batches. A transcript that
kills the child costs that transcript; the rest is read on.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING

from funes_mcp.memory.chunk import chunks_of
from funes_mcp.memory.model import Chunk
from funes_mcp.redaction.records import redacted_info, redacted_json
from funes_mcp.traces.checkout import Checkouts
from funes_mcp.traces.model import Cursor, SessionInfo, Source, Tally, Turn

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from numpy import float32
    from numpy.typing import NDArray

    from funes_mcp.inference.protocols import Embedder
    from funes_mcp.redaction import Redactor
    from funes_mcp.traces.adapter import TraceAdapter

#: Chunks in a batch: enough to make sending and embedding cheap, few enough to keep both sides busy.
BATCH_CHUNKS = 256

#: Batches that may wait for the writer: what is read while it commits. About 40 MB.
QUEUED_BATCHES = 64

#: Characters that are kept of why a source could not be read: an error may quote what it met.
LONGEST_REASON = 200

#: Bytes of transcripts from which a process of its own pays for its start.
PARALLEL_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """A source to read, who reads it, and from where on."""

    adapter: TraceAdapter
    source: Source
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A source is open.

    Attributes:
        place: Its position in the work.
        whole: Whether it is read from its beginning.
    """

    place: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Read:
    """A part of a source: sessions, and turns (without their blocks) with their chunks, in order.

    Attributes:
        vectors: float32 (n, width), one for each chunk in order; None when nobody embeds here.
        redacted: How many credentials were replaced, by kind.
    """

    items: list[SessionInfo | tuple[Turn, list[Chunk]]]
    vectors: NDArray[float32] | None
    redacted: Counter[str]


@dataclass(frozen=True, slots=True)
class Ended:
    """The source was read to its end."""

    cursor: Cursor
    tally: Tally


@dataclass(frozen=True, slots=True)
class Failed:
    """The source could not be read, for a reason to be told."""

    place: int
    reason: str


Message = Begun | Read | Ended | Failed


@dataclass(frozen=True, slots=True)
class How:
    """How sources are read.

    Attributes:
        thinking: Whether thinking blocks are kept.
        redactor: Replaces credentials in the rendered text of each whole block, in titles and other words about a
            session, and in what a parser remembers.
        embedder: Embeds chunks as they are read; None leaves that to the writer.
    """

    thinking: bool = True
    redactor: Redactor | None = None
    embedder: Embedder | None = None


@dataclass(slots=True)
class _Batch:
    items: list[SessionInfo | tuple[Turn, list[Chunk]]] = field(default_factory=list)
    chunks: int = 0
    redacted: Counter[str] = field(default_factory=Counter)

    def redact(self, text: str, how: How) -> str:
        """The text without credentials; what was replaced is counted."""
        if how.redactor is None:
            return text
        found = how.redactor.redact(text)
        self.redacted.update(found.counts)
        return found.text


def read(work: Sequence[Work], how: How, first: int = 0) -> Iterator[Message]:
    """Read sources one after another. Never raises for what is in them.

    Args:
        first: The position at which to start.
    """
    checkouts = Checkouts()
    for place in range(first, len(work)):
        try:
            yield from _read_one(work[place], place, how, checkouts)
        except OSError as error:
            yield Failed(place, error.strerror or str(error))
        except Exception as error:  # a fault of ours with one file must not cost the others
            reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
            yield Failed(place, reason if how.redactor is None else how.redactor.redact(reason).text)


def _read_one(work: Work, place: int, how: How, checkouts: Checkouts) -> Iterator[Message]:
    reader = work.adapter.read(work.source, work.cursor)
    yield Begun(place, reader.whole)
    path = str(work.source.path)
    infos: dict[str, SessionInfo] = {}
    batch = _Batch()
    for event in reader:
        if isinstance(event, SessionInfo):
            info = event
            if info.repo is None and info.cwd is not None:
                info = replace(info, repo=checkouts.repo_at(info.cwd))
            info = redacted_info(info, partial(batch.redact, how=how))
            infos[event.session_id] = info
            batch.items.append(info)
            continue
        known = infos.get(event.session_id)
        if known is None:
            known = infos[event.session_id] = SessionInfo(event.session_id, work.source.harness)
            batch.items.append(known)
        chunks = chunks_of(event, known, path, thinking=how.thinking, redact=partial(batch.redact, how=how))
        batch.items.append((replace(event, blocks=()), chunks))
        batch.chunks += len(chunks)
        if batch.chunks >= BATCH_CHUNKS:
            yield _embedded(batch, how)
            batch = _Batch()
    if batch.items:
        yield _embedded(batch, how)
    cursor = reader.cursor()
    if how.redactor is not None and cursor.state is not None:  # parsers remember titles, and prompts in a queue
        redactor = how.redactor
        cursor = replace(cursor, state=redacted_json(cursor.state, lambda text: redactor.redact(text).text))
    yield Ended(cursor, reader.tally)


def _embedded(batch: _Batch, how: How) -> Read:
    if how.embedder is None:
        return Read(batch.items, None, batch.redacted)
    texts = [chunk.text for item in batch.items if isinstance(item, tuple) for chunk in item[1]]
    return Read(batch.items, how.embedder.embed_passages(texts), batch.redacted)


def read_apart(work: Sequence[Work], how: How) -> Iterator[Message]:
    """The same in a child process, where one can be forked safely; here otherwise.

    Must be called before anything starts native threads, which a fork would not carry over.
    """
    if sys.platform not in ("linux", "freebsd") or sum(w.source.size for w in work) < PARALLEL_BYTES:
        if how.redactor is not None:  # its rules load while the table does
            Thread(target=how.redactor.warm, name="funes-rules", daemon=True).start()
        return read(work, how)
    from multiprocessing import get_context

    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, ours, work, how), daemon=True)
    child.start()
    theirs.close()
    # A pipe holds one batch; the child must not wait for a commit, so a thread takes batches off it.
    queue: Queue[bytes | None] = Queue(QUEUED_BATCHES)
    Thread(target=_drain, args=(ours, queue), name="funes-reading", daemon=True).start()
    return _received(queue, child.terminate, work, how)


def _drain(pipe: Connection, queue: Queue[bytes | None]) -> None:
    with suppress(EOFError, OSError):
        while True:
            queue.put(pipe.recv_bytes())
    queue.put(None)


def _received(
    queue: Queue[bytes | None], stop: Callable[[], None], work: Sequence[Work], how: How
) -> Iterator[Message]:
    at = 0
    open_source = False
    try:
        while (data := queue.get()) is not None:
            message: Message | None = pickle.loads(data)
            if message is None:
                return
            if isinstance(message, Begun):
                at, open_source = message.place, True
            elif isinstance(message, Failed):
                at, open_source = message.place + 1, False
            elif isinstance(message, Ended):
                at, open_source = at + 1, False
            yield message
    finally:
        stop()
    if open_source:
        yield Failed(at, "the process that read it died")
        at += 1
    yield from read(work, how, at)


def _child(pipe: Connection, other: Connection, work: Sequence[Work], how: How) -> None:
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both; the parent decides
    with suppress(BrokenPipeError, OSError):
        for message in read(work, how):
            pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        pipe.send_bytes(pickle.dumps(None))
    pipe.close()
    os._exit(0)
