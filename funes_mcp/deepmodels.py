"""The deeper models: which are here, which one a memory needs, and how a memory comes to its vectors.

Everything works without them: words, and the bundled model's vectors, are always there. What is missing or broken is
said in a sentence, and the rest goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Literal

from funes_mcp.errors import BadRequestError, FunesError, MemoryDamagedError, ModelMismatchError, NoMemoryError
from funes_mcp.home import FunesHome, private_folder, write_private
from funes_mcp.hub import files as hub
from funes_mcp.inference.absent import absent
from funes_mcp.inference.known import EMBEDDER, KNOWN, RERANKER, Kind, ModelSpec, known
from funes_mcp.inference.store import ModelBrokenError, ModelStore, Stored, Told
from funes_mcp.memory.derived import NO_MODEL
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.upgrade import FOLDER, Plan, SideVectors

if TYPE_CHECKING:
    from funes_mcp.inference.fastembed_models import CrossEncoderReranker, FastEmbedEmbedder
    from funes_mcp.inference.protocols import Embedder, Reranker
    from funes_mcp.memory.model import Chunk

#: Seconds of embedding behind the scenes for each turn of an agent.
TURN_S: Final = 60.0

#: What people call the model in the package, and the reranker that is made of it.
BUNDLED: Final = "bundled"
MAXSIM: Final = "maxsim"

#: Seconds that one step of embedding should take: what is lost when the process is killed.
_STEP_S: Final = 4.0
_LEAST, _MOST = 16, 4_096

#: Seconds to wait for another writer before vectors are stored; what was embedded is not lost by waiting.
_LOCK_WAIT_S: Final = 30.0

_BUSY: Final = "Another process is embedding this memory already."

_CHOSEN: Final = ".chosen"
_DECLINED: Final = ".declined"
_TOLD: Final = ".told"

#: Told how many passages are done, and how many there are.
Advance = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model, for the list.

    Attributes:
        state: `bundled`, `here`, `broken` (then `problem` says how), or `not here`.
        checked: By what its files were checked when they came: `package`, `hub` or `nothing`.
        usual: Whether it is one of the two that an online user ends with.
    """

    name: str
    kind: Literal["embedder", "reranker"]
    state: Literal["bundled", "here", "broken", "not here"]
    dim: int = 0
    bytes: int = 0
    revision: str = ""
    checked: str = ""
    usual: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MemoryState:
    """What the local memory is stamped with, how far its vectors are, and what it is on its way to."""

    path: str
    model: str
    width: int
    chunks: int
    embedded: int
    moving_to: str = ""
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Deepened:
    """What embedding behind the scenes did.

    Attributes:
        embedded: Passages that got a vector.
        left: Those that still have none of the model that the memory has or moves to.
        switched: Whether the memory went over to another model.
        note: Why nothing could be done, as a sentence; else "".
    """

    embedded: int = 0
    left: int = 0
    switched: bool = False
    note: str = ""


class DeepModels:
    """The models of a home. Loads nothing before it is needed; may be used from several threads.

    Args:
        bundled, maxsim: The embedder in the package and the reranker made of it, where they are in use already.
    """

    def __init__(
        self,
        home: FunesHome,
        bundled: Callable[[], Embedder] | None = None,
        maxsim: Callable[[], Reranker] | None = None,
    ) -> None:
        self._root = home.root
        self._memory = home.memory
        self._bundled = bundled
        self._maxsim = maxsim
        self.store = ModelStore(home.root / "models")
        self._lock = Lock()
        self._embedders: dict[str, tuple[Stored, FastEmbedEmbedder]] = {}
        self._rerankers: dict[str, tuple[Stored, CrossEncoderReranker]] = {}
        self._ready: dict[str, Stored] = {}
        self._failed: dict[str, tuple[Stored, str]] = {}
        self._loading: set[str] = set()
        #: Whether models load in the background, and answers do without them meanwhile.
        self.in_background = False

    # -- the bundled ones ------------------------------------------------------------------------------

    @cached_property
    def bundled(self) -> Embedder:
        """The embedder in the package."""
        if self._bundled is not None:
            return self._bundled()
        from funes_mcp.inference.static import StaticEmbedder

        return StaticEmbedder()

    @cached_property
    def maxsim(self) -> Reranker:
        """The reranker made of the package's model."""
        if self._maxsim is not None:
            return self._maxsim()
        from funes_mcp.inference.maxsim import MaxSimReranker

        return MaxSimReranker()

    def named(self, name: str) -> str:
        """A model's full name for what a person typed."""
        typed = name.strip()
        if typed.lower() in (BUNDLED, self.bundled.name.lower()):
            return self.bundled.name
        spec = known(typed)
        if spec is not None:
            return spec.name
        return next((s.spec.name for s in self.store.all() if s.spec.name.lower() == typed.lower()), typed)

    # -- for a recall ----------------------------------------------------------------------------------

    def embedder_for(self, stamp: Embedding, revision: str = "", *, ours: bool = True) -> tuple[Embedder | None, str]:
        """What embeds questions to a memory with that stamp; without one, a sentence that says why.

        Args:
            revision: Of the model that made the memory's vectors; "" when that is not known.
            ours: Whether the memory can be embedded again here.
        """
        found, trouble = self._found(stamp, revision, ours)
        if not isinstance(found, Stored):
            return found, trouble
        embedder, trouble = self._embedder(found)
        return (None, f"{trouble} Words alone decide") if trouble else (embedder, "")

    def trouble_with(self, stamp: Embedding, revision: str = "") -> str:
        """Why nothing embeds questions to a memory with that stamp, as far as is known without loading a model."""
        found, trouble = self._found(stamp, revision, ours=True)
        if isinstance(found, Stored):
            try:
                self.store.check(found)
            except FunesError as error:
                return f"{error.message.rstrip('.')}: words alone decide" + (f" ({error.hint})" if error.hint else "")
        return trouble

    def trouble_with_memory(self) -> str:
        """The same for the local memory; "" where there is none. Opens nothing of it for writing."""
        from funes_mcp.memory.stamp import stamp_of

        stamp = stamp_of(self._memory)
        return "" if stamp is None or not stamp.width else self.trouble_with(stamp, self._revision())

    def _found(self, stamp: Embedding, revision: str, ours: bool) -> tuple[Embedder | Stored | None, str]:
        """See `embedder_for`; what is on the disk is given as it is."""
        if not ours and stamp.model == NO_MODEL:
            return None, "this memory has no vectors that can be used: words alone decide"
        if stamp.model == self.bundled.name and (ours or stamp.width == self.bundled.dim):
            return self.bundled, ""
        if not ours and stamp.model == self.bundled.name:
            dims = f"{stamp.width} numbers, and {stamp.model} gives {self.bundled.dim}"
            return None, f"this memory's vectors have {dims}: words alone decide"
        owner = stamp.model or "an unnamed model"
        stored = self.store.get(stamp.model) if stamp.model else None
        if stored is None or stored.spec.kind != "embedder":
            how = f" (`funes models pull {stamp.model}`)" if known(stamp.model) else ""
            return None, f"this memory's vectors are {owner}'s, which is not here: words alone decide{how}"
        again = f" (`funes models use {stamp.model}` embeds it again)" if ours else ""
        if stored.spec.dim != stamp.width:
            dims = f"{stamp.width} numbers, and the {owner} that is here gives {stored.spec.dim}"
            return None, f"this memory's vectors have {dims}: words alone decide{again}"
        if revision and stored.spec.revision != revision:
            return None, f"this memory's vectors are of another revision of {owner}: words alone decide{again}"
        return stored, ""

    def _embedder(self, stored: Stored) -> tuple[Embedder, str]:
        """A stored embedder, with a sentence when it cannot be used (yet)."""
        name = stored.spec.name
        with self._lock:
            held = self._embedders.get(name)
            if held is None or held[0] != stored:
                from funes_mcp.inference.fastembed_models import FastEmbedEmbedder

                held = self._embedders[name] = (stored, FastEmbedEmbedder(self.store, stored))
        return held[1], self._load(stored, held[1].load)

    def reranker_for(self, wanted: str, *, asked: bool = True) -> tuple[Reranker | None, str]:
        """The reranker that `--rerank` means: `auto` (the usual cross-encoder where it is here), `off`, `maxsim`, or
        a cross-encoder's name; with a sentence when another has to stand in.

        Args:
            asked: Whether it was named for this one question. What a server was started with has gone since, maybe,
                and its questions are to be answered.

        Raises:
            FunesError: The one that was asked for is not here, or is no cross-encoder.
        """
        choice = wanted.strip() or "auto"
        if choice.lower() == "off":
            return None, ""
        auto = choice.lower() == "auto"
        name = RERANKER if auto else self.named(choice)
        if choice.lower() == MAXSIM or name == self.bundled.name:
            return self.maxsim, ""
        stored = self._cross_encoder(name)
        if stored is None:
            if asked and not auto:
                raise self._absent(name, "reranker")
            gone = f"there is no cross-encoder {name} here: MaxSim orders the hits (`funes models` lists what is here)"
            return self.maxsim, "" if auto else gone
        with self._lock:
            held = self._rerankers.get(name)
            if held is None or held[0] != stored:
                from funes_mcp.inference.fastembed_models import CrossEncoderReranker

                held = self._rerankers[name] = (stored, CrossEncoderReranker(self.store, stored, self.maxsim))
        trouble = self._load(stored, held[1].load)
        if not trouble:
            return held[1], ""
        broken = name in self._failed
        return self.maxsim, f"{trouble} MaxSim orders the hits" if broken or not auto else ""

    def _cross_encoder(self, name: str) -> Stored | None:
        with suppress(FunesError):  # what can be no name of a model
            stored = self.store.get(name)
            if stored is not None and stored.spec.kind == "reranker":
                return stored
        return None

    def _load(self, stored: Stored, load: Callable[[], None]) -> str:
        """Load a model, or see to it that it is being loaded. A sentence unless it can be used now."""
        name = stored.spec.name
        with self._lock:
            if self._ready.get(name) == stored:
                return ""
            failed = self._failed.get(name)
            if failed is not None and failed[0] == stored:
                return failed[1]
            if name in self._loading:
                return f"The model {name} is still being loaded."
            self._loading.add(name)
        if self.in_background:
            Thread(target=self._try, args=(stored, load), name="funes-model", daemon=True).start()
            return f"The model {name} is still being loaded."
        return self._try(stored, load)

    def _try(self, stored: Stored, load: Callable[[], None]) -> str:
        name, trouble = stored.spec.name, ""
        try:
            load()
        except FunesError as error:
            trouble = f"{error.message.rstrip('.')} ({error.hint.rstrip('.')})." if error.hint else error.message
        except Exception as error:  # whatever a runtime does, the words go on
            trouble = f"The model {name} cannot be loaded: {type(error).__name__}: {error}."
        finally:
            with self._lock:
                self._loading.discard(name)
                self._failed.pop(name, None)
                if trouble:
                    self._failed[name] = (stored, trouble)
                else:
                    self._ready[name] = stored
        return trouble

    # -- for an indexing pass --------------------------------------------------------------------------

    def for_index(self, model: str | None) -> tuple[Embedding, Embedder | None, str]:
        """The stamp to write with, what embeds on the way (None: vectors follow later), and the model's revision.

        Args:
            model: As typed, for a memory that is made now.

        Raises:
            ModelMismatchError: There is a memory with another stamp.
            FunesError: The model is not here, or is no embedder.
        """
        from funes_mcp.memory.stamp import stamp_of

        bundled = self.bundled
        stamp = stamp_of(self._memory)
        name = self.named(model) if model else None
        if stamp is None or not stamp.width:
            if name is None or name == bundled.name:
                return Embedding(bundled.name, bundled.dim), bundled, ""
            spec = self._embedder_here(name).spec
            return Embedding(spec.name, spec.dim), None, spec.revision
        if name is not None and name != stamp.model:
            if name != bundled.name:
                self._embedder_here(name)  # first of all: nothing can move to one that is not here
            raise ModelMismatchError(
                f"This memory's vectors are {stamp.model}'s.", f"`funes models use {name}` moves it to {name}."
            )
        return stamp, bundled if stamp.model == bundled.name else None, ""

    def _embedder_here(self, name: str) -> Stored:
        stored = self.store.get(name)
        if stored is None or stored.spec.kind != "embedder":
            raise self._absent(name, "embedder")
        return stored

    def _absent(self, name: str, wanted: Kind) -> FunesError:
        """What to say of a name that means no model of that kind on this machine."""
        stored = self.store.get(name)
        return absent(name, wanted, stored.spec if stored is not None else self._fetchable(name))

    def _fetchable(self, name: str) -> ModelSpec | None:
        """The model that a pull brings under that name."""
        spec = known(name)
        if spec is None:
            from funes_mcp.inference.fastembed_models import described

            spec = described(name)
        return spec

    # -- what is here, and bringing more ---------------------------------------------------------------

    def states(self, *, whole: bool = False) -> list[ModelState]:
        """Every model that is here or usual. With `whole` every byte is compared with its checksum."""
        bundled = self.bundled
        found = [ModelState(bundled.name, "embedder", "bundled", dim=bundled.dim)]
        here = {stored.spec.name: stored for stored in self.store.all()}
        for spec in KNOWN:
            if spec.name not in here:
                found.append(
                    ModelState(
                        spec.name,
                        spec.kind,
                        "not here",
                        spec.dim,
                        int(spec.megabytes * 1e6),
                        revision=spec.revision,
                        usual=True,
                    )
                )
        for name, stored in here.items():
            problem = ""
            try:
                self.store.check(stored, whole=whole)
            except FunesError as error:
                problem = error.message
            found.append(
                ModelState(
                    name,
                    stored.spec.kind,
                    "broken" if problem else "here",
                    stored.spec.dim,
                    stored.bytes,
                    stored.spec.revision,
                    stored.checked,
                    name in (EMBEDDER, RERANKER),
                    problem,
                )
            )
        return sorted(found, key=lambda state: (state.kind, state.state != "bundled", state.name))

    def pull(self, name: str, source: Path | None = None, told: Told | None = None) -> Stored:
        """Bring a model here, from the Hub or from a folder. Raises `FunesError`."""
        full = self.named(name)
        if full == self.bundled.name:
            raise BadRequestError(f"{full} came with funes.")
        spec = self._fetchable(full)
        if spec is None:
            raise BadRequestError(
                f"fastembed has no model {name!r}.",
                f"Usual ones: {EMBEDDER}, {RERANKER}. See fastembed's list of text embeddings and cross-encoders.",
            )
        return self.store.pull(spec, source, told)

    def missing(self) -> list[ModelSpec]:
        """The usual models that are not here."""
        return [spec for spec in KNOWN if self.store.get(spec.name) is None]

    def wanting(self) -> list[tuple[ModelSpec, str]]:
        """The usual models that are not here, and those that are damaged with a sentence that says so.

        Reads every byte of what is here, so it is for a person who asked for models.
        """
        found = []
        for spec in KNOWN:
            stored, trouble = self.store.get(spec.name), ""
            try:
                if stored is not None:
                    self.store.check(stored, whole=True)
                    continue
            except ModelBrokenError as error:
                trouble = error.message
            found.append((spec, trouble))
        return found

    def hub_answers(self) -> bool:
        """Whether the usual models can be had from the Hub now. Waits three seconds at most."""
        spec = KNOWN[0]
        return hub.answers(spec.repo, spec.files[0].path, spec.revision)

    @property
    def declined(self) -> bool:
        """Whether the person was asked about the usual models and said no."""
        return (self.store.folder / _DECLINED).exists()

    def decline(self) -> None:
        """Never ask again."""
        self._mark(_DECLINED)

    def first_time_offline(self) -> bool:
        """True once: when it is to be said that the Hub cannot be reached."""
        if (self.store.folder / _TOLD).exists():
            return False
        self._mark(_TOLD)
        return True

    def _mark(self, name: str, text: str = "") -> None:
        with suppress(OSError):
            private_folder(self.store.folder)
            write_private(self.store.folder / name, text.encode())

    def choose(self, model: str) -> None:
        """Remember that a person chose a model: the memory then stays with it."""
        self._mark(_CHOSEN, self.named(model))

    # -- moving a memory -------------------------------------------------------------------------------

    def adopt(self) -> bool:
        """Begin to move the memory to the usual embedder, when that is here and nobody chose another.

        True when there is something to do behind the scenes.

        Raises:
            FunesError: The model that the memory moves to, or would, is damaged or gone.
        """
        from funes_mcp.memory.stamp import stamp_of

        side = SideVectors(self._memory)
        plan = side.plan()
        if plan is not None:
            if plan.embedding.model != self.bundled.name:
                self.store.check(self._embedder_here(plan.embedding.model))
            return True
        stored = self.store.get(EMBEDDER)
        stamp = stamp_of(self._memory)
        if stored is None or stamp is None or stamp.model != self.bundled.name:
            return False
        with self._alone() as alone:
            if not alone or (self.store.folder / _CHOSEN).exists():
                return False
            self.store.check(stored)
            side.begin(Plan(Embedding(stored.spec.name, stored.spec.dim), stored.spec.revision))
            return True

    def use(self, name: str, told: Advance | None = None, seconds: float | None = None) -> Deepened:
        """Move the memory to a model, going on where an earlier call stopped. Old answers are given meanwhile.

        Args:
            seconds: Stop after about so long; None for not before the end.

        Raises:
            NoMemoryError: There is nothing to move.
            ModelMissingError: The model is not here.
            FunesError: The model cannot be loaded, or another process is at it.
        """
        from funes_mcp.memory.stamp import stamp_of

        full = self.named(name)
        stamp = stamp_of(self._memory)
        if stamp is None:
            raise NoMemoryError()
        if full == self.bundled.name:
            plan = Plan(Embedding(full, self.bundled.dim), "")
        else:
            stored = self._embedder_here(full)
            self.store.check(stored)
            plan = Plan(Embedding(full, stored.spec.dim), stored.spec.revision)
            trouble = self._embedder(stored)[1]
            if trouble:
                raise FunesError(f"{trouble} The memory stays as it is.")
        with self._alone() as alone:
            if not alone:  # it puts vectors beside the memory, and they must be of one model
                raise FunesError(
                    f"{_BUSY} Nothing was changed.", "Behind the scenes it works for a minute at a time: try again."
                )
            self.choose(full)
            side = SideVectors(self._memory)
            if stamp == plan.embedding and self._revision() in ("", plan.revision):
                side.drop()
            else:
                side.begin(plan)
            done = self._deepened(seconds, told)
        if done.note:
            raise FunesError(done.note)
        return done

    def moving(self) -> tuple[str, int] | None:
        """The model that the memory is on its way to, and how many passages are done."""
        side = SideVectors(self._memory)
        plan = side.plan()
        return None if plan is None else (plan.embedding.model, side.done)

    def work_waits(self) -> bool:
        """Whether there may be something to embed; a few looks at files."""
        if SideVectors(self._memory).plan() is not None:
            return True
        return bool(self.store.all()) and self._lacking() > 0

    def memory_state(self) -> MemoryState | None:
        """What the local memory is stamped with; None when there is none."""
        from funes_mcp.memory.reader import MemoryReader

        try:
            reader = MemoryReader.open(self._memory)
        except NoMemoryError:
            return None
        try:
            moving = self.moving() or ("", 0)
            return MemoryState(
                str(self._memory),
                reader.embedding.model,
                reader.embedding.width,
                reader.chunks,
                reader.embedded,
                moving[0],
                moving[1],
            )
        finally:
            reader.close()

    def copies(self) -> list[tuple[str, Embedding]]:
        """The stamp of each memory of which there is a copy here, under the name of the copy's folder."""
        from funes_mcp.memory.dense import embedding_of
        from funes_mcp.memory.derived import DENSE
        from funes_mcp.memory.remote import mirrors

        found = ((folder.name, embedding_of(folder / DENSE)) for folder, _ in mirrors(self._root))
        return [(name, stamp) for name, stamp in found if stamp is not None]

    def deepen(self, seconds: float | None = TURN_S, told: Advance | None = None) -> Deepened:
        """Embed what has no vector yet, newest first: first what the memory moves to, then what it lacks.

        The writer's lock is held only while vectors are stored. Raises `FunesError`.
        """
        with self._alone() as alone:
            return self._deepened(seconds, told) if alone else Deepened(note=_BUSY)

    def _deepened(self, seconds: float | None, told: Advance | None) -> Deepened:
        """The same, for the one process that embeds this memory."""
        deadline = None if seconds is None else time.monotonic() + seconds
        done = Deepened()
        side = SideVectors(self._memory)
        plan = side.plan()
        if plan is not None:
            done = self._move(side, plan, deadline, told)
            if not done.switched:
                return done
        filled = self._fill(deadline, told)
        return Deepened(done.embedded + filled.embedded, filled.left, done.switched, filled.note)

    def _move(self, side: SideVectors, plan: Plan, deadline: float | None, told: Advance | None) -> Deepened:
        from funes_mcp.memory.table import ChunkTable

        embedder, note = self._waited_for(plan.embedding, plan.revision)
        if embedder is None:
            return Deepened(note=note)
        table = ChunkTable.open(self._memory)
        names = side.missing(table)
        total, embedded = table.rows, 0
        for rows in self._rows(table, names, deadline):
            vectors = embedder.embed_passages([row.text for row in rows])
            side.put([row.key for row in rows], [row.text for row in rows], vectors)
            embedded += len(rows)
            if told is not None:
                told(total - len(names) + embedded, total)
        left = len(side.missing(ChunkTable.open(self._memory)))
        if left and embedded < len(names):
            return Deepened(embedded, left)
        switched = self._switch(side, plan)
        return Deepened(embedded, left, switched, "" if switched else "Another process is writing to this memory.")

    def _switch(self, side: SideVectors, plan: Plan) -> bool:
        """Put the collected vectors in the place of the memory's own. False when another process writes."""
        from funes_mcp.memory.lock import WriterLock
        from funes_mcp.memory.stamp import stamp_of
        from funes_mcp.memory.writer import MemoryWriter

        lock = WriterLock(self._memory)
        if not lock.acquire(_LOCK_WAIT_S):
            return False
        with lock:
            stamp = stamp_of(self._memory)
            if stamp is not None:
                with MemoryWriter.open(self._memory, stamp) as writer:
                    writer.restamp(plan.embedding, plan.revision, side.load())
            side.drop()
        return True

    def _fill(self, deadline: float | None, told: Advance | None) -> Deepened:
        """Give vectors to the rows that have none."""
        from funes_mcp.memory.lock import WriterLock
        from funes_mcp.memory.stamp import stamp_of
        from funes_mcp.memory.table import ChunkTable
        from funes_mcp.memory.writer import MemoryWriter

        lacking = self._lacking()
        stamp = stamp_of(self._memory)
        if not lacking or stamp is None:
            return Deepened()
        embedder, note = self._waited_for(stamp, self._revision())
        if embedder is None:
            return Deepened(left=lacking, note=note)
        embedded = 0
        while deadline is None or time.monotonic() < deadline:
            table = ChunkTable.open(self._memory)
            waiting = [chunk.id for chunk in table.without_vector(_MOST)]
            before = embedded
            for rows in self._rows(table, waiting, deadline):
                vectors = embedder.embed_passages([row.text for row in rows])
                lock = WriterLock(self._memory)
                if not lock.acquire(_LOCK_WAIT_S):
                    return Deepened(
                        embedded, max(0, lacking - embedded), note="Another process is writing to this memory."
                    )
                with lock, MemoryWriter.open(self._memory, stamp) as writer:
                    embedded += writer.put_vectors(rows, vectors)
                    writer.maintain()
                if told is not None:
                    told(min(embedded, lacking), lacking)
            if embedded == before:
                break
        return Deepened(embedded, max(0, lacking - embedded))

    def _rows(self, table: object, names: Sequence[str], deadline: float | None) -> Iterator[list[Chunk]]:
        """Rows by their ids, in that order, in steps that take some seconds each, until the deadline."""
        from funes_mcp.memory.table import ChunkTable

        assert isinstance(table, ChunkTable)
        size, at = _LEAST, 0
        while at < len(names) and (deadline is None or time.monotonic() < deadline):
            wanted = names[at : at + size]
            at += len(wanted)
            try:
                found = {row.id: row for part in table.stream(wanted) for row in part}
            except MemoryDamagedError:  # that version was cleared away meanwhile: look at the newest
                table = ChunkTable.open(self._memory)
                found = {row.id: row for part in table.stream(wanted) for row in part}
            started = time.monotonic()
            rows = [found[name] for name in wanted if name in found]
            if rows:
                yield rows
            spent = max(time.monotonic() - started, 1e-3)
            size = int(min(_MOST, max(_LEAST, size * min(4.0, _STEP_S / spent))))

    def _waited_for(self, stamp: Embedding, revision: str) -> tuple[Embedder | None, str]:
        """The embedder, loaded whatever else is going on."""
        before, self.in_background = self.in_background, False
        try:
            return self.embedder_for(stamp, revision)
        finally:
            self.in_background = before

    def _lacking(self) -> int:
        """How many rows have no vector."""
        state = self.memory_state()
        return 0 if state is None else state.chunks - state.embedded

    def _revision(self) -> str:
        from funes_mcp.memory.catalog import Catalog
        from funes_mcp.memory.stamp import REVISION

        catalog = Catalog.found(self._memory)
        if catalog is None:
            return ""
        try:
            return catalog.get(REVISION) or ""
        finally:
            catalog.close()

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """One process embeds a memory at a time; yields whether it is this one."""
        from funes_mcp.memory.lock import WriterLock

        lock = WriterLock(self._memory / FOLDER)
        if not lock.acquire():
            yield False
            return
        with lock:
            yield True
