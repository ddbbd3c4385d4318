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
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

from funes_mcp import collection
from funes_mcp.memory import lance
from funes_mcp.memory.catalog import safe_text
from funes_mcp.memory.chunk import chunks_of
from funes_mcp.memory.model import Chunk
from funes_mcp.memory.terms import Names
from funes_mcp.redaction.model import Redacted
from funes_mcp.redaction.records import redacted_info, redacted_json
from funes_mcp.traces.checkout import Checkouts
from funes_mcp.traces.model import NO_THINKING, Cursor, SessionInfo, Source, Tally, Turn
from funes_mcp.traces.text import clean

if TYPE_CHECKING:
    from ctypes import c_ulong
    from multiprocessing.connection import Connection

    from numpy import float32
    from numpy.typing import NDArray

    from funes_mcp.inference.protocols import Embedder
    from funes_mcp.redaction import Redactor
    from funes_mcp.traces.adapter import TraceAdapter

#: Chunks in a batch: enough to make sending and embedding cheap, few enough to keep both sides busy.
BATCH_CHUNKS = 256

#: Batches that may wait for the writer: what is read while it commits, or was before the first. About 100 MB.
QUEUED_BATCHES = 256

#: Messages that wait for the writer when it has enough to do: with fewer it embeds what comes, instead of waiting. With
#: none it finds the identifiers, too, for which it has to fill a second table of tokens.
BUSY_MESSAGES = 2

#: Characters of transcripts that are read ahead while the rules of the redactor load: what five seconds read. They are
#: held as parsed and as made, with vectors: about 200 MB.
AHEAD_CHARS = 24_000_000

#: Bytes in the pipe between the processes. A batch is several hundred kilobytes: in a pipe of the usual 64 the child
#: would wait for the parent's other threads several times for each.
PIPE_BYTES = 1 << 20

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
        vectors: float32 (n, width), one for each chunk in order; None when they are left to the writer.
        names: What `terms.Names.joined` gives for each chunk in order; None when that is left to the writer.
        redacted: How many credentials were replaced, by kind.
    """

    items: list[SessionInfo | tuple[Turn, list[Chunk]]]
    vectors: NDArray[float32] | None
    names: list[tuple[str, str]] | None
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
class _Opening:
    """A source is about to be opened: should this process die before it is begun, then of it."""

    place: int


_Parsed = _Opening | Begun | SessionInfo | Turn | Ended | Failed


@dataclass(frozen=True, slots=True)
class How:
    """How sources are read.

    Attributes:
        thinking: Whether thinking blocks are kept.
        redactor: Replaces credentials in the rendered text of each whole block, in titles and other words about a
            session, and in what a parser remembers.
        embedder: Embeds chunks as they are read; None leaves that to the writer.
        names: Finds the identifiers in chunks as they are read; None leaves that to the writer.
        checkouts: Knows which repository a working directory belongs to.
        waiting: How many messages wait for who gets them: with few, a part of the work is left to them.
    """

    thinking: bool = True
    redactor: Redactor | None = None
    embedder: Embedder | None = None
    names: Names | None = None
    checkouts: Checkouts = field(default_factory=Checkouts)
    waiting: Callable[[], int] | None = None

    @property
    def compiling(self) -> bool:
        """Whether the rules of the redactor have to be compiled before anything is given."""
        return self.redactor is not None and not self.redactor.compiled


def read(work: Sequence[Work], how: How, places: Iterable[int] | None = None) -> Iterator[Message]:
    """Read sources one after another. Never raises for what is in them.

    Args:
        places: The positions of those that are read, in order; None for all.
    """
    for message in _read(work, how, range(len(work)) if places is None else places):
        if not isinstance(message, _Opening):
            yield message


def _read(work: Sequence[Work], how: How, places: Iterable[int]) -> Iterator[Message | _Opening]:
    parsed = _parsed(work, places)
    if how.redactor is None:
        maker = _Maker(work, how, Redacted)
    else:
        maker = yield from _ahead(parsed, work, how, how.redactor)
    for event in parsed:
        yield from maker.take(event)


def _parsed(work: Sequence[Work], places: Iterable[int]) -> Iterator[_Parsed]:
    """What the adapters give, as it is: nothing in it is redacted yet."""
    for place in places:
        one = work[place]
        yield _Opening(place)
        try:
            reader = one.adapter.read(one.source, one.cursor)
            yield Begun(place, reader.whole)
            yield from reader
            yield Ended(reader.cursor(), reader.tally)
        except OSError as error:
            yield Failed(place, error.strerror or str(error))
        except Exception as error:  # a fault of ours with one file must not cost the others
            yield Failed(place, reason_of(error))


def reason_of(error: Exception) -> str:
    """Why a source could not be taken in, for a fault of ours; short, as it may quote what it met."""
    return f"{type(error).__name__}: {error}"[:LONGEST_REASON]


@dataclass(slots=True)
class _Trial:
    """What was made of a source (so far) with our own detectors alone, and all that is needed to make it again."""

    events: list[_Parsed] = field(default_factory=list)
    made: list[Message] = field(default_factory=list)
    searched: list[tuple[str, Redacted]] = field(default_factory=list)


def _ahead(
    parsed: Iterator[_Parsed], work: Sequence[Work], how: How, redactor: Redactor
) -> Generator[Message | _Opening, None, _Maker]:
    """Make ahead what can be while the redactor's rules load, which takes seconds when they have to be compiled.

    Nothing of that is given before every text in it was searched by those rules, too; a source in which they find
    something is made again. Only that a source is being opened is told at once, so that others know what this process
    was at, should it die.

    Returns:
        What makes the rest of `parsed`, in the middle of a source maybe.
    """
    trials: deque[_Trial] = deque()

    def search(text: str) -> Redacted:
        found = redactor.provisional(text)
        trials[-1].searched.append((text, found))
        return found

    trying = _Maker(work, replace(how, waiting=None), search)
    maker = _Maker(work, how, redactor.redact)
    held = 0
    while redactor.loading and held < AHEAD_CHARS:
        event = next(parsed, None)
        if event is None:
            break
        if isinstance(event, _Opening):
            trials.append(_Trial())
            yield event
            continue
        trials[-1].events.append(event)
        trials[-1].made += trying.take(event)
        if isinstance(event, Turn):
            held += sum(len(block.text) for block in event.blocks) + 1_000
    while trials:
        trial = trials.popleft()
        if all(redactor.confirms(text, found) for text, found in trial.searched):
            yield from trial.made
            if not trials:
                maker.go_on(trying)
        else:
            for event in trial.events:
                yield from maker.take(event)
    return maker


class _Maker:
    """Makes messages of what the adapters give.

    Args:
        search: Finds credentials in a text.
    """

    def __init__(self, work: Sequence[Work], how: How, search: Callable[[str], Redacted]) -> None:
        self._work = work
        self._how = how
        self._search = search
        self._making: _Making | None = None
        self._failed = -1

    def go_on(self, other: _Maker) -> None:
        """Go on in the middle of the source that another one is at."""
        self._making, self._failed = other._making, other._failed

    def take(self, event: _Parsed) -> Iterator[Message]:
        """What is to be given of a source with this event. Never raises for what is in it."""
        if isinstance(event, Begun):
            self._making = _Making(self._work[event.place], event.place, self._how.checkouts)
            yield event
        elif isinstance(event, Failed):
            self._making = None
            if event.place != self._failed:
                yield replace(event, reason=self._search(event.reason).text)
        elif self._making is not None and not isinstance(event, _Opening):
            try:
                yield from self._taken(event, self._making)
            except Exception as error:  # what follows of this source is parsed and passed over
                self._failed = self._making.place
                self._making = None
                yield Failed(self._failed, self._search(reason_of(error)).text)

    def _taken(self, event: SessionInfo | Turn | Ended, making: _Making) -> Iterator[Read | Ended]:
        if isinstance(event, Turn):
            making.turn(event, self._search, thinking=self._how.thinking)
            if making.chunks >= BATCH_CHUNKS:
                yield self._batch(making)
        elif isinstance(event, SessionInfo):
            making.info(event, self._search)
        else:
            if making.items:
                yield self._batch(making)
            tally = Tally()  # a copy: this may be made again of the same event
            tally.add(event.tally)
            tally.parts.update(making.left_out)
            state = event.cursor.state
            if state is not None:  # parsers remember titles, and prompts in a queue
                state = redacted_json(state, lambda text: self._search(text).text)
            yield replace(event, cursor=replace(event.cursor, state=state), tally=tally)

    def _batch(self, making: _Making) -> Read:
        items, redacted = making.taken()
        embedder, names = self._how.embedder, self._how.names
        waiting = BUSY_MESSAGES if self._how.waiting is None else self._how.waiting()
        if waiting < BUSY_MESSAGES:
            embedder = None
        if waiting < 1:
            names = None
        texts = [chunk.text for item in items if isinstance(item, tuple) for chunk in item[1]]
        return Read(
            items,
            None if embedder is None else embedder.embed_passages(texts),
            None if names is None else list(map(names.joined, texts)),
            redacted,
        )


class _Making:
    """The batch that is being made of a source.

    Attributes:
        left_out: Blocks that were asked to be left out of the whole source, as `Tally.parts`.
    """

    def __init__(self, work: Work, place: int, checkouts: Checkouts) -> None:
        self.place = place
        self._checkouts = checkouts
        self.items: list[SessionInfo | tuple[Turn, list[Chunk]]] = []
        self.chunks = 0
        self.left_out: Counter[tuple[str, str]] = Counter()
        self._source = work.source
        self._path = safe_text(str(work.source.path))
        self._infos: dict[str, SessionInfo] = {}
        self._homes: dict[str, str | None] = {}
        self._redacted: Counter[str] = Counter()

    def info(self, info: SessionInfo, search: Callable[[str], Redacted]) -> None:
        """Add what is known of a session."""
        info = _named_storably(info)
        if info.repo is None and info.cwd is not None:
            info = replace(info, repo=self._checkouts.repo_at(info.cwd))
        self._homes[info.session_id] = info.cwd
        info = self._infos[info.session_id] = redacted_info(info, partial(self._redact, search))
        self.items.append(info)

    def turn(self, turn: Turn, search: Callable[[str], Redacted], *, thinking: bool) -> None:
        """Add a turn with its chunks."""
        turn = _named_storably(turn)
        known = self._infos.get(turn.session_id)
        if known is None:
            known = self._infos[turn.session_id] = SessionInfo(turn.session_id, self._source.harness)
            self.items.append(known)
        if turn.cwd is not None:
            repo = self._checkouts.elsewhere(turn.cwd, self._homes.get(turn.session_id), known.repo)
            turn = replace(turn, cwd=None, repo=repo)
            if repo is not None:
                known = replace(known, repo=repo or None)
        chunks = chunks_of(turn, known, self._path, thinking=thinking, redact=partial(self._redact, search))
        if not thinking and (thoughts := sum(block.type == "thinking" for block in turn.blocks)):
            self.left_out[NO_THINKING] += thoughts
        self.items.append((turn.without_blocks(), chunks))
        self.chunks += len(chunks)

    def taken(self) -> tuple[list[SessionInfo | tuple[Turn, list[Chunk]]], Counter[str]]:
        """What was added since the last time, and how many credentials were replaced in it, by kind."""
        taken = self.items, self._redacted
        self.items, self.chunks, self._redacted = [], 0, Counter()
        return taken

    def _redact(self, search: Callable[[str], Redacted], text: str) -> str:
        found = search(text)
        if found.counts:
            self._redacted.update(found.counts)
        return found.text


_SESSION_NAMES: Final = ("session_id", "parent_session_id")
_TURN_NAMES: Final = ("session_id", "turn_uuid", "parent_uuid", "message_id")
_Named = TypeVar("_Named", SessionInfo, Turn)


def _named_storably(item: _Named) -> _Named:
    """A session or turn whose ids any store can hold: those that were made of a file's name may be no UTF-8."""
    names = _SESSION_NAMES if isinstance(item, SessionInfo) else _TURN_NAMES
    changed: dict[str, Any] = {
        name: clean(value) for name in names if isinstance(value := getattr(item, name), str) and not value.isascii()
    }
    return replace(item, **changed) if changed else item


def reads_apart(work: Sequence[Work]) -> bool:
    """Whether there is so much to read, and a process can be forked so safely, here and now, that one is."""
    return (
        sys.platform in ("linux", "freebsd")
        and not lance.loaded()
        and sum(w.source.size for w in work) >= PARALLEL_BYTES
    )


def read_apart(work: Sequence[Work], how: How) -> Iterator[Message]:
    """The same in a child process, where one can be forked safely; here otherwise.

    Best called before anything starts native threads, which a fork would not carry over.
    """
    if not reads_apart(work):
        if how.redactor is not None:  # its rules load while the table does
            how.redactor.warm_apart()
        return read(work, how)
    from multiprocessing import get_context

    context = get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    taken = context.RawValue("L", 0)
    child = context.Process(target=_child, args=(theirs, ours, taken, work, how), daemon=True)
    child.start()
    theirs.close()
    _widen(ours)
    # A pipe holds few batches; the child must not wait for a commit, so a thread takes batches off it.
    queue: Queue[bytes | None] = Queue(QUEUED_BATCHES)
    Thread(target=_drain, args=(ours, queue), name="funes-reading", daemon=True).start()
    return _received(queue, taken, child.terminate, work, how)


def _widen(pipe: Connection) -> None:
    """Give a pipe more room, where the system has a call for it (Linux)."""
    import fcntl

    call = getattr(fcntl, "F_SETPIPE_SZ", None)
    if call is not None:
        with suppress(OSError):  # over what this user's pipes may hold
            fcntl.fcntl(pipe.fileno(), call, PIPE_BYTES)


def _drain(pipe: Connection, queue: Queue[bytes | None]) -> None:
    with suppress(EOFError, OSError):
        while True:
            queue.put(pipe.recv_bytes())
    queue.put(None)


def _received(
    queue: Queue[bytes | None], taken: c_ulong, stop: Callable[[], None], work: Sequence[Work], how: How
) -> Iterator[Message]:
    at, opening = 0, -1
    open_source = False
    try:
        while (data := queue.get()) is not None:
            taken.value += 1
            message: Message | _Opening | None = pickle.loads(data)
            if message is None:
                return
            if isinstance(message, _Opening):
                opening = message.place
                continue
            if isinstance(message, Begun):
                at, open_source = message.place, True
            elif isinstance(message, Failed):
                at, open_source = message.place + 1, False
            elif isinstance(message, Ended):
                at, open_source = at + 1, False
            yield message
    finally:
        stop()
    deadly = at if open_source else opening
    # What was parsed ahead died with the process: it is read again, but for what killed it.
    yield from read(work, how, range(at, deadly))
    if deadly >= at:
        yield Failed(deadly, "the process that read it died")
    yield from read(work, how, range(max(at, deadly + 1), len(work)))


def _child(pipe: Connection, other: Connection, taken: c_ulong, work: Sequence[Work], how: How) -> None:
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both; the parent decides
    if how.redactor is not None:
        how.redactor.warm_apart()
    sent = 0
    how = replace(how, names=Names(), waiting=lambda: sent - taken.value)
    with suppress(BrokenPipeError, OSError), collection.seldom():
        for message in _read(work, how, range(len(work))):
            pipe.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
            sent += 1
        pipe.send_bytes(pickle.dumps(None))
    pipe.close()
    os._exit(0)
