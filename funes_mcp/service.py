"""The index service: index, recall, get, status. Everything above (command line, server, hooks) goes through it.

Importing this module loads neither a model nor a table; each comes when it is first needed.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from funes_mcp import config, discovery
from funes_mcp.coverage import Survey, harness_statuses, remember_path, remembered_paths, survey
from funes_mcp.deepmodels import TURN_S, Deepened, DeepModels
from funes_mcp.errors import (
    BadRequestError,
    DerivedDamagedError,
    FunesError,
    MemoryBusyError,
    NoMemoryError,
)
from funes_mcp.home import FunesHome
from funes_mcp.hub.errors import HubUnreachableError
from funes_mcp.indexing import Pass, newest_first
from funes_mcp.memory.catalog import FILE, Catalog, SourceState, safe_text, signature_of
from funes_mcp.memory.label import LOCAL, HubName, parse
from funes_mcp.models import (
    BoundMemory,
    DoctorReport,
    ForgetPlan,
    ForgetRequest,
    Forgotten,
    GetAnswer,
    GetRequest,
    IndexReport,
    IndexRequest,
    Progress,
    PublishedStatus,
    PushReport,
    PushRequest,
    PushTalk,
    RecallAnswer,
    RecallRequest,
    ScrubReport,
    Service,
    SourceCounts,
    StatusReport,
    Target,
    TurnView,
)
from funes_mcp.reading import How, Work, read_apart
from funes_mcp.sessions import the_session
from funes_mcp.traces.model import BLOCK_TYPES, Root, Tally

if TYPE_CHECKING:
    from funes_mcp.curation.desk import Desk
    from funes_mcp.inference.maxsim import MaxSimReranker
    from funes_mcp.inference.protocols import Embedder
    from funes_mcp.memory.model import Embedding, Filter
    from funes_mcp.memory.reader import MemoryReader
    from funes_mcp.redaction import Redactor
    from funes_mcp.remotes import Name, Remotes
    from funes_mcp.traces.adapter import TraceAdapter

T = TypeVar("T")

#: Seconds for which `funes index` waits for another writer before it leaves the work to it.
LOCK_WAIT_S = 60.0

#: More turns beside a hit than this are never shown.
MOST_NEIGHBORS = 20

#: More passages than this are never returned, however many are asked for.
MOST_PASSAGES = 200

#: More passages than this are never reranked.
MOST_CANDIDATES = 1_000


@dataclass(frozen=True, slots=True)
class _Opened:
    """A memory, open.

    Attributes:
        label: The memory that it is, which need not be the one that was asked for.
        notes: What is to be said of it.
        foreign: Whether somebody else may have written it.
        lacking: Columns that it has not.
    """

    reader: MemoryReader
    label: str
    notes: tuple[str, ...] = ()
    foreign: bool = False
    lacking: tuple[str, ...] = ()


def open_service(home: FunesHome, environ: Mapping[str, str]) -> Service:
    """The service over a home folder. Loads nothing yet: models, tables and adapters come when first needed."""
    return IndexService(home, environ)


class IndexService:
    """See `models.Service` for what the methods promise.

    Args:
        home: Where the local memory lives.
        environ: The environment that names the agents' folders.
        lock_wait: Seconds to wait for another writer.
        rerank: The reranker of requests that name none; see `DeepModels.reranker_for`.
    """

    def __init__(
        self,
        home: FunesHome,
        environ: Mapping[str, str],
        *,
        lock_wait: float = LOCK_WAIT_S,
        rerank: str = "auto",
    ) -> None:
        self._home = home
        self._environ = environ
        self._lock_wait = lock_wait
        self._rerank = rerank
        self._readers: dict[str, MemoryReader] = {}
        self._serving = False

    @cached_property
    def _loaded(self) -> tuple[list[TraceAdapter], list[str]]:
        return discovery.load_adapters()

    @property
    def _adapters(self) -> list[TraceAdapter]:
        return self._loaded[0]

    @cached_property
    def _embedder(self) -> Embedder:
        from funes_mcp.inference.static import StaticEmbedder

        return StaticEmbedder()

    @cached_property
    def models(self) -> DeepModels:
        """The models of this home."""
        return DeepModels(self._home, lambda: self._embedder, lambda: self._reranker)

    @cached_property
    def remotes(self) -> Remotes:
        """The published memories that this process reads."""
        from funes_mcp.remotes import Remotes

        found = Remotes(self._home.root)
        found.in_background = self._serving
        return found

    @cached_property
    def _redactor(self) -> Redactor:
        from funes_mcp.redaction import Redactor

        return Redactor(self._rules)

    @property
    def _rules(self) -> Path:
        return self._home.root / "cache" / "rules"

    @cached_property
    def _reranker(self) -> MaxSimReranker:
        from funes_mcp.inference.maxsim import MaxSimReranker

        return MaxSimReranker()

    # -- index ---------------------------------------------------------------------------------------------

    def index(self, request: IndexRequest, progress: Progress | None = None) -> IndexReport:
        """Bring the memory up to date with the transcripts."""
        from funes_mcp.memory.lock import run_locked

        adapters = discovery.select(self._adapters, request.harness)
        if request.path is not None and not request.path.exists():
            raise BadRequestError(f"There is nothing at {request.path}.")
        config.load(self._home)  # what is wrong with it is told before anything is read
        self._home.ensure()

        begun = False

        def work() -> IndexReport:
            nonlocal begun
            if begun:  # for another process that found the lock taken
                used = self._used_adapters(self._source_states(self._home.memory))
                return self._indexed(used, IndexRequest(), None)
            begun = True
            return self._indexed(adapters, request, progress)

        report = run_locked(self._home.memory, work, wait=self._lock_wait)
        if report is None:
            raise MemoryBusyError(
                "Another funes process is writing to this memory"
                + ("; it will take these changes too." if request.path is None else "."),
                "See `funes status`." if request.path is None else "Try again in a moment.",
            )
        return report

    def _indexed(
        self, adapters: Sequence[TraceAdapter], request: IndexRequest, progress: Progress | None
    ) -> IndexReport:
        """One pass; what turns out to be damaged in it and can be made again is, and then the pass is begun anew."""
        from funes_mcp.memory.mending import PARTS, damage_in, put_away

        report = IndexReport()
        for _ in range(PARTS):
            try:
                return self._index(adapters, request, progress, report)
            except (DerivedDamagedError, sqlite3.DatabaseError) as error:
                damage = damage_in(error, self._home.memory)
                if damage is None:
                    raise
                report = IndexReport(notes=[*report.notes, put_away(damage, alone=True)])
        return self._index(adapters, request, progress, report)

    def _index(
        self,
        adapters: Sequence[TraceAdapter],
        request: IndexRequest,
        progress: Progress | None,
        report: IndexReport,
    ) -> IndexReport:
        started = time.monotonic()
        self._put_in_order(report)
        found, passed_over = self._find(adapters, request)
        for work in found:
            report.sources.setdefault(work.source.harness, SourceCounts()).found += 1
        for harness, tally in passed_over.items():
            counts = report.sources.setdefault(harness, SourceCounts())
            for (_, reason), number in tally.skipped.items():
                counts.skipped[reason] = counts.skipped.get(reason, 0) + number
        changed = _changed(found, self._true_states(), report)
        if request.limit is not None:
            for work in changed[request.limit :]:
                counts = report.sources[work.source.harness]
                counts.skipped["over the limit"] = counts.skipped.get("over the limit", 0) + 1
            changed = changed[: request.limit]
        report.seconds = time.monotonic() - started
        if not changed:
            if request.model:  # a model that cannot be meant is told of, also when there is nothing to do
                self.models.for_index(request.model)
            self._erase_what_waits()
            if progress:
                progress.started(0, 0)
                progress.finished(report)
            return report
        embedding, embedder, revision = self.models.for_index(request.model)
        how = How(request.thinking, self._redactor, embedder)
        compiling = how.compiling
        messages = read_apart(changed, how)
        from funes_mcp.memory.stamp import REVISION
        from funes_mcp.memory.writer import MemoryWriter

        with MemoryWriter.open(self._home.memory, embedding) as writer:
            if revision:
                writer.catalog.put(REVISION, revision)
            report.notes += writer.mended
            if request.path is not None:  # first: what a full disk keeps from being read is then seen to be missing
                own = [root.path for _, root in self._roots(self._adapters)]
                remember_path(writer.catalog, request.path, own)
            Pass(writer, embedder, report, progress, compiling=compiling).run(changed, messages)
        return report

    def _put_in_order(self, report: IndexReport) -> None:
        """Mend what is damaged or behind the table, which may have more to be read than what changed."""
        from funes_mcp.memory.repair import is_in_line
        from funes_mcp.memory.stamp import stamp_of
        from funes_mcp.memory.writer import MemoryWriter

        folder = self._home.memory
        catalog = Catalog.found(folder)
        try:
            if is_in_line(catalog, folder):
                return
        finally:
            if catalog is not None:
                catalog.close()
        stamp = stamp_of(folder)
        if stamp is not None:
            with MemoryWriter.open(folder, stamp) as writer:
                report.notes += writer.mended

    def _erase_what_waits(self) -> None:
        """Go on with an erasure that failed, where nothing else has the memory opened."""
        from funes_mcp.memory.stamp import erasure_waits, stamp_of
        from funes_mcp.memory.writer import MemoryWriter

        if erasure_waits(self._home.memory) and (stamp := stamp_of(self._home.memory)) is not None:
            with MemoryWriter.open(self._home.memory, stamp) as writer:
                writer.maintain()

    def _find(self, adapters: Sequence[TraceAdapter], request: IndexRequest) -> tuple[list[Work], dict[str, Tally]]:
        """All sources that a request means, newest first, and what was passed over, by harness ("" for a path)."""
        passed_over: dict[str, Tally] = {}
        if request.path is not None:
            tally = passed_over.setdefault("", Tally())
            others = [adapter for adapter in self._adapters if adapter not in adapters]
            there = discovery.sources_at(adapters, request.path, tally, others=others, apart=self._home.folders)
            return newest_first(Work(a, s) for a, s in there), passed_over
        seen: set[Path] = set()
        found: list[Work] = []
        for adapter, root in self._roots(adapters):
            tally = passed_over.setdefault(adapter.harness, Tally())
            found.extend(Work(a, s) for a, s in discovery.sources(adapter, root, tally, seen))
        return newest_first(found), passed_over

    def _roots(self, adapters: Sequence[TraceAdapter]) -> list[tuple[TraceAdapter, Root]]:
        """Where the agents' sessions are, in the homes that the configuration names too. Raises `FunesError`."""
        return discovery.roots(adapters, self._environ, self._user_home, config.load(self._home).homes)

    @property
    def _user_home(self) -> Path:
        named = self._environ.get("HOME", "").strip()
        return Path(named) if named else Path.home()

    def deepen(self, seconds: float | None = TURN_S) -> Deepened:
        """Embed what waits for it, for about so long; then index what others wanted to meanwhile."""
        from funes_mcp.memory.lock import WriterLock

        done = self.models.deepen(seconds)
        if WriterLock(self._home.memory).dirty:
            with suppress(MemoryBusyError):
                self.index(IndexRequest())
        return done

    def prepare(self) -> None:
        """Compile the rules of the search for credentials, which takes seconds, when that was not done yet."""
        with suppress(Exception):
            if not any(self._rules.glob("*")):
                self._redactor.warm()

    def behind(self, seconds: float) -> Sequence[str]:
        """Names of the agents in use whose transcripts changed so long ago and still wait to be read."""
        used = self._used_adapters(self._source_states(self._home.memory))
        if not used:
            return []
        states = self._true_states()
        found, _ = self._find(used, IndexRequest())
        latest = time.time_ns() - int(seconds * 1e9)
        failed = {(state.path, state.signature) for state in states if state.failure}
        late = {
            work.adapter.name
            for work in _changed(found, states)
            if work.source.mtime_ns <= latest
            and (safe_text(str(work.source.path)), signature_of(work.source)) not in failed  # tried as it is
        }
        return sorted(late)

    def _used_adapters(self, states: Sequence[SourceState]) -> list[TraceAdapter]:
        """The agents of which something under one of their own folders was read before.

        A memory that was made from a named path stays what it is.
        """
        read = {(state.harness, state.root) for state in states}
        return [
            adapter
            for adapter in self._adapters
            if any((adapter.harness, safe_text(str(root.path))) in read for _, root in self._roots([adapter]))
        ]

    @staticmethod
    def _source_states(folder: Path) -> list[SourceState]:
        """What is known of every source that was ever read; nothing when there is no catalog that can be read."""
        catalog = Catalog.found(folder)
        if catalog is None:
            return []
        try:
            return catalog.sources()
        finally:
            catalog.close()

    def _true_states(self) -> list[SourceState]:
        """The same of the local memory; nothing when its table is gone, and so everything is to be read again."""
        from funes_mcp.memory.repair import is_lost

        catalog = Catalog.found(self._home.memory)
        if catalog is None:
            return []
        try:
            return [] if is_lost(catalog, self._home.memory) else catalog.sources()
        finally:
            catalog.close()

    # -- recall and get ------------------------------------------------------------------------------------

    def recall(self, request: RecallRequest) -> RecallAnswer:
        """Search a memory."""
        if not request.query.strip():
            raise BadRequestError("The question is empty.", 'Ask something: funes recall "why did we …"')
        return self._mending(request.memory, lambda: self._recall(request))

    def _recall(self, request: RecallRequest) -> RecallAnswer:
        opened = self._open(request.memory, request.bound)
        reader = opened.reader
        from funes_mcp.retrieval import nothing, relevance
        from funes_mcp.retrieval.search import Question, search

        embedder, trouble = self.models.embedder_for(reader.embedding, reader.revision, ours=not opened.foreign)
        reranker, doubt = self.models.reranker_for(request.rerank or self._rerank, asked=bool(request.rerank))
        notes = [*opened.notes, *(note for note in (trouble, doubt) if note)]
        k = _at_most("k", request.k, MOST_PASSAGES, notes)
        candidates = _at_most("candidates", request.candidates, MOST_CANDIDATES, notes)
        neighbors = _at_most("neighbors", request.neighbors, MOST_NEIGHBORS, notes)
        for column, value in (("harness", request.harness), ("repo", request.project)):
            if value and column in opened.lacking:
                notes.append(f"{opened.label} does not say the {column} of its passages (it has no such column)")
        if reader.embedded < reader.chunks:
            notes.append(f"{reader.embedded} of {reader.chunks} passages have vectors; words find the rest")
        where = self._filter(request, reader)
        found = search(
            reader,
            embedder,
            reranker,
            Question(
                text=request.query,
                where=where,
                k=max(1, k),
                candidates=max(1, candidates),
                neighbors=max(0, neighbors),
                half_life=request.half_life,
                now=time.time_ns() // 1_000_000,
                least=request.min_relevance,
            ),
            late=self._reranker,
        )
        if found.refused is not None:
            notes.append(relevance.refusal(found.refused, request.min_relevance))
        if not found.hits:
            typed = {
                "harness": request.harness,
                "block_type": request.block_type,
                "project": request.project,
                "since": request.since,
                "until": request.until,
                "session_id": request.session,
            }
            why = nothing.reason(reader, request.query, where, typed, judged=found.refused is not None)
            if why:
                notes.append(why)
        return RecallAnswer(found.hits, tuple(notes), opened.label)

    def get(self, request: GetRequest) -> GetAnswer:
        """Open a turn with the turns around it."""
        return self._mending(request.memory, lambda: self._get(request))

    def _get(self, request: GetRequest) -> GetAnswer:
        opened = self._open(request.memory, request.bound)
        session = self._session(opened.reader, request.session)
        turns = opened.reader.turns(session, request.turn, max(0, request.window))
        views = tuple(TurnView(t.turn_uuid, t.role, t.seq, t.ts, t.blocks, t.marks) for t in turns or ())
        notes = opened.notes
        if turns is None:
            from funes_mcp.render import turns_text

            notes = (*notes, turns_text(opened.reader.turn_ids(session)))
        return GetAnswer(session, request.turn, turns is not None, views, notes, opened.label)

    def sessions(self, prefix: str = "") -> Sequence[str]:
        """Ids of the sessions that start so."""
        return self._mending(LOCAL, lambda: self._reader(LOCAL).sessions(prefix))

    def warm(self, memory: str = LOCAL) -> None:
        """Load what a recall needs. Never raises: the recall itself will say what is wrong.

        Deeper models go on loading in the background, and the first recalls do without them. So are published
        memories fetched from here on.
        """
        self.models.in_background = True
        self._serving = True
        with suppress(Exception):
            name = self._foreign(memory)
            if name is not None:
                self.remotes.start(name)
                memory = LOCAL  # it is not waited for, and most of what is loaded is the same
            self.recall(RecallRequest("warm up", k=1, memory=memory))

    def _open(self, label: str, bound: bool = False) -> _Opened:
        """The memory that a label means, as it is now.

        Args:
            bound: Whether the local one answers when a published one cannot be had.

        Raises:
            BadRequestError: The label names nothing.
            NoMemoryError: There is none, found out before anything heavy is loaded.
            HubError, FunesError: See `Remotes.read`.
        """
        name: Name | None = self._foreign(label)
        if name is None:
            reader = self._reader(label)
            return _Opened(reader, label.strip() or LOCAL, reader.news())
        try:
            read = self.remotes.read(name)
        except HubUnreachableError as error:
            if not bound:
                raise
            try:
                local = self._reader(LOCAL)
            except NoMemoryError:
                raise error from None
            note = f"{error.message} No copy of it is here: these are from the local memory."
            return _Opened(local, LOCAL, (note, *local.news()))
        account = read.state.indexed
        return _Opened(read.reader, name.label, read.notes, True, () if account is None else account.lacking)

    def _foreign(self, label: str) -> Name | None:
        """The name of a memory that was not made here; None for those that were. Raises `NoMemoryError`."""
        name = parse(label)
        if isinstance(name, Path) and not ((folder := self._folder(label)) / FILE).exists():
            from funes_mcp.memory.folder_repo import FolderName

            return FolderName(folder, label.strip())
        return name if isinstance(name, HubName) else None

    def _reader(self, label: str) -> MemoryReader:
        """A reader of a memory on this machine that sees what is committed now."""
        from funes_mcp.memory import lock
        from funes_mcp.memory.reader import MemoryReader

        reader = self._readers.get(label)
        if reader is None:
            folder = self._folder(label)
            try:
                reader = self._readers[label] = MemoryReader.open(folder, label=label)
            except NoMemoryError:
                if lock.is_held(folder):
                    raise FunesError("The first index is under way.", "Try again in a moment.") from None
                raise
        else:
            reader.refresh()
        return reader

    def _mending(self, label: str, do: Callable[[], T]) -> T:
        """Read a memory; where something made from its table turns out to be damaged, have it made again and go on."""
        from funes_mcp.memory.mending import PARTS, damage_in
        from funes_mcp.memory.reader import MemoryReader

        for _ in range(PARTS):
            try:
                return do()
            except (DerivedDamagedError, sqlite3.DatabaseError) as error:
                reader = self._readers.get(label)
                damage = None if reader is None else damage_in(error, self._folder(label), reader.opened)
                if damage is None:  # of a memory that is not of this machine, or cannot be opened at all
                    raise
                self._readers[label] = MemoryReader.open(damage.path.parent, label=label, damaged=damage)
        return do()

    def _folder(self, label: str) -> Path:
        """The folder of a memory on this machine: the local one, or another funes home or memory folder."""
        path = parse(label)
        if path is None:
            return self._home.memory
        if isinstance(path, Path):
            for folder in (path, path / "memory"):
                if (folder / "chunks.lance").is_dir():
                    return folder
        raise NoMemoryError(label)

    def _session(self, reader: MemoryReader, prefix: str) -> str:
        hint = "Session ids stand behind `→ get` in what recall prints."
        return the_session(prefix, reader.sessions(prefix.strip()), hint=hint)

    def _filter(self, request: RecallRequest, reader: MemoryReader) -> Filter:
        from funes_mcp.memory.model import Filter
        from funes_mcp.retrieval.when import parse_when

        if request.block_type is not None and request.block_type not in BLOCK_TYPES:
            raise BadRequestError(
                f"There is no block type {request.block_type!r}.", f"Block types: {', '.join(BLOCK_TYPES)}."
            )
        if math.isnan(request.half_life):
            raise BadRequestError("The half-life must be a number of days.")
        now = datetime.now().astimezone()
        return Filter(
            harness=discovery.select(self._adapters, request.harness)[0].harness if request.harness else None,
            block_type=request.block_type,
            project=request.project or None,
            since=parse_when(request.since, now, "since") if request.since else None,
            until=parse_when(request.until, now, "until") if request.until else None,
            session_id=self._session(reader, request.session) if request.session else None,
        )

    # -- scrub and forget ----------------------------------------------------------------------------------

    def scrub(self, *, dry: bool = False, told: Callable[[int, int], None] | None = None) -> ScrubReport:
        """Take credentials out of what is stored."""
        from funes_mcp.curation import files
        from funes_mcp.curation.decisions import reworded
        from funes_mcp.memory.writer import MemoryWriter
        from funes_mcp.publishing.stage import sweep
        from funes_mcp.redaction import ScannerError
        from funes_mcp.scrubbing import scrub

        embedding = self._embedding()
        self._redactor.warm()
        if self._redactor.failure is not None:  # half a search would say that all is well
            raise ScannerError(self._redactor.failure)
        same = (self._embedder.name, self._embedder.dim) == (embedding.model, embedding.width)
        embed = self._embedder.embed_passages if same else None

        def work() -> ScrubReport:
            started = time.monotonic()
            with MemoryWriter.open(self._home.memory, embedding) as writer:
                report = scrub(writer, self._redactor, embed, dry=dry, told=told)
            if not dry:

                def redact(words: str) -> str:
                    found = self._redactor.redact(words)
                    report.facts += found.counts.total()
                    return found.text

                files.rewrite(self._home, lambda text, file: reworded(text, redact, file))
                sweep(self._home.root / "remotes")  # what a killed push left of the old rows
            report.seconds = time.monotonic() - started
            return report

        return self._alone(work)

    # -- publishing ----------------------------------------------------------------------------------------

    def push(self, request: PushRequest, talk: PushTalk | None = None) -> PushReport:
        """Publish what a memory on the Hub lacks."""
        from funes_mcp.publishing.open import publisher
        from funes_mcp.publishing.push import Silent

        return publisher(self._home, request.memory, self._redactor, self.models).push(request, talk or Silent())

    def look_at(self, memory: str, talk: PushTalk | None = None) -> Target:
        """Say how a dataset stands to which an agent is to be bound."""
        from funes_mcp.publishing.open import publisher
        from funes_mcp.publishing.push import Silent

        return publisher(self._home, memory, self._redactor, self.models).look_at(talk or Silent())

    def create(self, memory: str) -> str:
        """Make the private dataset that a person agreed to."""
        from funes_mcp.publishing.open import publisher

        return publisher(self._home, memory, self._redactor, self.models).create()

    def agree(self, memory: str, *, public: bool) -> None:
        """Remember that a person said that this machine's sessions go there."""
        from funes_mcp.hub.address import endpoint
        from funes_mcp.publishing import receipts
        from funes_mcp.publishing.open import folder_of, target

        name = target(memory)
        folder = folder_of(self._home, name)
        known = receipts.load(folder) or receipts.Receipt(name.label, endpoint())
        receipts.save(folder, replace(known, agreed=True, public=public))

    def plan_forgetting(self, request: ForgetRequest) -> ForgetPlan:
        """Say what a request comes to."""
        from funes_mcp.forgetting import plan
        from funes_mcp.publishing.bound import published_copies

        if not (self._home.memory / FILE).exists():
            raise NoMemoryError
        catalog = Catalog(self._home.memory, writable=False)
        try:
            made = plan(catalog, request, datetime.now().astimezone())
        finally:
            catalog.close()
        return replace(made, published=published_copies(self._home, made.sessions))

    def forget(self, plan: ForgetPlan, told: Callable[[int, int], None] | None = None) -> int:
        """Remove sessions for good, also from the files of the memory."""
        from funes_mcp.curation import files
        from funes_mcp.curation.decisions import without
        from funes_mcp.memory.writer import MemoryWriter
        from funes_mcp.publishing.stage import sweep

        embedding = self._embedding()
        # The titles of sessions stand there. First: without its decision a session is not published.
        files.rewrite(self._home, lambda text, file: without(text, plan.sessions, file))

        def work() -> int:
            with MemoryWriter.open(self._home.memory, embedding) as writer:
                removed = writer.forget(plan.sessions, plan.why)
                writer.erase(told)
            sweep(self._home.root / "remotes")  # what a killed push left of them
            return removed

        return self._alone(work)

    def forgotten(self, request: ForgetRequest) -> Sequence[Forgotten]:
        """The forgotten sessions that a request names."""
        from funes_mcp.forgetting import choose
        from funes_mcp.memory.tombstones import Tombstone, load

        stones = load(self._home.memory)
        if (self._home.memory / FILE).exists():
            catalog = Catalog(self._home.memory, writable=False)
            try:
                listed = catalog.forgotten_at()
            finally:
                catalog.close()
            stones = {**{name: Tombstone(name, at) for name, at in listed.items()}, **stones}
        return choose(stones.values(), request)

    def unforget(self, sessions: Sequence[str]) -> Sequence[str]:
        """Let sessions be indexed again."""
        from funes_mcp.memory.writer import MemoryWriter

        embedding = self._embedding()

        def work() -> list[str]:
            with MemoryWriter.open(self._home.memory, embedding) as writer:
                return writer.remember(sessions)

        return self._alone(work)

    def curation(self, memory: str, repository: str | None, here: Path) -> Desk:
        """Get ready to review sessions for a published memory."""
        from funes_mcp.curation.desk import open_desk

        return open_desk(self._home, memory, repository, here, lambda: self._reader(LOCAL))

    def _alone(self, work: Callable[[], T]) -> T:
        """Do `work` once as the only writer, and then what others left word of meanwhile."""
        from funes_mcp.memory.lock import run_locked

        done: list[T] = []

        def step() -> None:
            if done:
                self._indexed(self._used_adapters(self._source_states(self._home.memory)), IndexRequest(), None)
            else:
                done.append(work())

        run_locked(self._home.memory, step, wait=self._lock_wait)
        if not done:
            raise MemoryBusyError("Another funes process is writing to this memory.", "Try again in a moment.")
        return done[0]

    def _embedding(self) -> Embedding:
        """The stamp of the local memory. Raises `NoMemoryError`, `MemoryDamagedError`."""
        from funes_mcp.memory.table import ChunkTable, table_path, table_version

        if table_version(table_path(self._home.memory)) is None:
            raise NoMemoryError
        return ChunkTable.open(self._home.memory).embedding

    # -- status --------------------------------------------------------------------------------------------

    def status(self, memory: str = LOCAL) -> StatusReport:
        """Say how a memory stands."""
        return self._mending(memory, lambda: self._status(memory))

    def _status(self, memory: str) -> StatusReport:
        from funes_mcp.curation import trouble
        from funes_mcp.wiring.flow import wiring_notes
        from funes_mcp.worker import hook_health

        name = self._foreign(memory)
        if name is not None:
            return self._published_status(name)
        reader: MemoryReader | None = None
        try:
            folder = self._folder(memory)
            reader = self._reader(memory)  # first: what is damaged is mended, and then says what was read
        except NoMemoryError:
            if memory not in ("", LOCAL):
                raise
        survey = self._survey(memory)
        notes = [*self._loaded[1], *survey.notes]
        if reader is None:
            return StatusReport(
                LOCAL,
                str(self._home.memory),
                exists=False,
                pending=survey.waiting,
                harnesses=harness_statuses(survey, {}, {}),
                notes=tuple(notes),
                bound=self._bound(),
            )
        notes.extend(reader.news())
        counts = reader.counts
        if memory in ("", LOCAL) and (moving := self.models.moving()) is not None:
            notes.append(
                f"on the way to {moving[0]}: {moving[1]:,} of {counts.chunks:,} passages are embedded with it; "
                f"the vectors of {reader.embedding.model} answer meanwhile"
            )
        if trouble_with_model := self.models.trouble_with(reader.embedding, reader.revision):
            notes.append(trouble_with_model)
        if counts.embedded < counts.chunks:
            notes.append(f"{counts.embedded:,} of {counts.chunks:,} passages have vectors; words find the rest")
        hooks: tuple[tuple[str, str, str], ...] = ()
        if memory in ("", LOCAL):
            hooks = hook_health(self._home)
            notes.extend(wiring_notes(self._home, self._environ, self._user_home))
            lost = sum(not read for _, read in survey.doomed())
            if lost:
                notes.append(
                    f"{lost} transcripts will soon be deleted by their agent and are not all read: `funes index`"
                )
        bound: tuple[BoundMemory, ...] = ()
        if memory in ("", LOCAL):
            if decided := trouble(self._home):
                notes.append(decided)
            bound = self._bound()
        coverage = {} if reader.catalog is None else reader.catalog.coverage()
        return StatusReport(
            label=memory or LOCAL,
            path=str(folder),
            exists=True,
            chunks=counts.chunks,
            sessions=counts.sessions,
            embedded=counts.embedded,
            embedder=reader.embedding.model,
            disk_bytes=_disk_bytes(folder),
            pending=survey.waiting,
            harnesses=harness_statuses(survey, coverage, dict(counts.by_harness)),
            notes=tuple(notes),
            hooks=hooks,
            bound=bound,
        )

    def _bound(self, name: HubName | None = None) -> tuple[BoundMemory, ...]:
        """What is known here of the published memories that agents are bound to or that were published to.

        Args:
            name: Only this one.
        """
        from funes_mcp.publishing.bound import bound_memories
        from funes_mcp.wiring.flow import bindings

        def marks() -> dict[str, int]:
            catalog = Catalog.found(self._home.memory)
            if catalog is None:
                return {}
            try:
                return catalog.session_marks()
            finally:
                catalog.close()

        found = bound_memories(self._home, bindings(self._home, self._environ, self._user_home), marks)
        return tuple(one for one in found if name is None or one.label == name.label)

    def _published_status(self, name: Name) -> StatusReport:
        """How a published memory stands here. Looks at the Hub, and fetches nothing.

        Raises:
            HubError: Nothing of it is here or was published from here, and the Hub does not say anything of it.
        """
        from funes_mcp.remotes import PATIENCE_S

        mirror, on_hub = self.remotes.mirror(name), isinstance(name, HubName)
        state, checked = mirror.state, mirror.checked_at
        bound = self._bound(name) if isinstance(name, HubName) else ()
        published = any(one.rows for one in bound)
        notes: list[str] = []
        head = None
        try:
            head = mirror.head(PATIENCE_S)
        except FunesError as error:
            if state is None and not published:
                raise
            notes.append(error.message)
        account = None if state is None else state.indexed
        if state is None or account is None:
            if head is None and not published:
                raise FunesError(f"Nothing of {name.label} can be read here yet.", *notes[:1])
            if head is not None:
                brings = "fetches" if on_hub else "indexes"
                notes.append(f"nothing of it is here yet: `funes recall --memory {name.label} …` {brings} it")
            return StatusReport(
                name.label,
                str(mirror.folder),
                exists=False,
                notes=tuple(notes),
                published=PublishedStatus("", None if head is None else head.private, on_hub=on_hub),
                bound=bound,
            )
        reader = mirror.reader()
        counts = reader.counts
        if head is not None and head.commit != account.commit:
            newer = "there is a newer version on the Hub; the next recall fetches it"
            notes.append(newer if on_hub else "it has changed; the next recall indexes what is new")
        _, trouble = self.models.embedder_for(reader.embedding, ours=False)
        if trouble:
            notes.append(trouble)
        if counts.embedded < counts.chunks and reader.embedding.width > 1:
            notes.append(f"{counts.embedded:,} of {counts.chunks:,} passages have vectors; words find the rest")
        return StatusReport(
            label=name.label,
            path=str(mirror.folder),
            exists=True,
            chunks=counts.chunks,
            sessions=counts.sessions,
            embedded=counts.embedded,
            embedder=reader.embedding.model,
            disk_bytes=_disk_bytes(mirror.folder) + mirror.linked_bytes,
            notes=tuple(notes),
            published=PublishedStatus(
                account.commit,
                state.private if head is None else head.private,
                account.at,
                "" if checked is None else checked.strftime("%Y-%m-%dT%H:%M:%SZ"),
                account.refused,
                account.lacking,
                on_hub,
            ),
            bound=bound,
        )

    def _survey(self, memory: str) -> Survey:
        """What is on disk, beside what the memory knows of it. Of a memory elsewhere only the latter."""
        if memory not in ("", LOCAL):
            with suppress(NoMemoryError):
                return survey([], self._source_states(self._folder(memory)), ())
            return survey([], (), ())
        states = self._true_states()
        try:
            roots, trouble = self._roots(self._adapters), ""
        except FunesError as error:  # the configuration; the rest can be said all the same
            roots, trouble = discovery.roots(self._adapters, self._environ, self._user_home), error.message
        paths = remembered_paths(self._home.memory)
        found = survey(roots, states, paths, self._adapters, self._home.folders)
        found.notes.extend([trouble] if trouble else [])
        return found

    def doctor(self) -> DoctorReport:
        """Check the local memory against the disk."""
        from funes_mcp.doctor import examine
        from funes_mcp.wiring.flow import wiring_notes
        from funes_mcp.worker import hook_health

        return examine(
            self._home,
            self._survey(LOCAL),
            self._loaded[1],
            hook_health(self._home),
            wiring_notes(self._home, self._environ, self._user_home),
            self.recall,
            self.models.trouble_with_memory(),
        )


def _changed(found: Sequence[Work], states: Sequence[SourceState], report: IndexReport | None = None) -> list[Work]:
    """The sources that differ from what the memory last read (`states`); the others are counted in `report`."""
    known = {state.path: state for state in states}
    changed = []
    for work in found:
        state = known.get(safe_text(str(work.source.path)))
        if state is None:
            changed.append(work)
        elif not state.complete or state.signature != signature_of(work.source):
            changed.append(replace(work, cursor=state.cursor))
        elif report is not None:
            report.sources[work.source.harness].unchanged += 1
    return changed


def _at_most(name: str, asked: int, most: int, notes: list[str]) -> int:
    """A number held to the greatest that there is; a note says so."""
    if asked > most:
        notes.append(f"{name} is {most:,} at most: {most:,} was used, not {asked:,}")
    return min(asked, most)


def _disk_bytes(folder: Path) -> int:
    """Bytes of all files below a folder; those that vanish meanwhile do not count."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total
