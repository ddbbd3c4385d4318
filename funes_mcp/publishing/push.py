"""Publishing: what the memory on the Hub lacks goes there in one commit, refused when somebody else was faster.

Then everything is looked at again and tried once more, so that nothing is lost and nothing is doubled. A push that is
cut off leaves the published memory as it was, or whole; the next one finds out by looking.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from funes_mcp import wording
from funes_mcp.errors import FunesError, MemoryDamagedError, NoMemoryError, PushBusyError, PushRefusedError
from funes_mcp.hub import cache
from funes_mcp.hub.errors import (
    HubConflictError,
    HubDeniedError,
    HubError,
    HubRepoMissingError,
    HubRevisionMissingError,
    HubUnreachableError,
)
from funes_mcp.memory.catalog import FILE, Catalog
from funes_mcp.memory.label import HubName
from funes_mcp.memory.lock import WriterLock
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.table import NAME, ChunkTable, Transfer
from funes_mcp.models import PushReport, PushRequest, PushTalk, Target
from funes_mcp.publishing import card, plan, receipts, stage, vectors
from funes_mcp.publishing.open import to_branch
from funes_mcp.render import harmless

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from funes_mcp.hub.datasets import RepoFile, RepoHead
    from funes_mcp.inference.protocols import Embedder
    from funes_mcp.memory.remote import Step
    from funes_mcp.redaction.gate import Scanner

#: How often a commit is tried while others are faster.
TRIES: Final = 6

#: Seconds after a commit that was refused, times the number of tries, at random.
_PAUSE_S: Final = (0.2, 1.0)

#: A card is at most so long; a longer one is somebody's own.
_CARD_BYTES: Final = 1 << 20

#: Characters that are shown of what a memory says it is of.
_PROJECT: Final = 100

_README: Final = "README.md"
_ROOT: Final = f"{NAME}.lance"


class Repo(Protocol):
    """What is asked of the dataset: see `hub.datasets.DatasetRepo`."""

    def head(self, patience: float = 10.0) -> RepoHead: ...

    def may_write(self) -> bool: ...

    def read(self, commit: str, path: str, most: int) -> bytes | None: ...

    def create(self, *, private: bool) -> None: ...

    def commit(
        self,
        parent: str | None,
        add: Mapping[str, Path | bytes],
        delete: Sequence[str],
        message: str,
        told: Callable[[int, int], None] | None = None,
    ) -> str: ...


class Fetched(Protocol):
    """The published table at a commit: see `memory.remote.Mirrored`."""

    @property
    def commit(self) -> str: ...

    @property
    def table(self) -> Path | None: ...

    @property
    def files(self) -> Sequence[RepoFile]: ...

    @property
    def private(self) -> bool: ...


class Copy(Protocol):
    """What is asked of the mirror: see `memory.remote.Mirror`."""

    def alone(self) -> AbstractContextManager[None]: ...

    def fetch(
        self, told: Callable[[Step], None] | None = None, *, patience: float = 10.0, indexes: bool = False
    ) -> Fetched: ...


class Silent:
    """Nobody to speak with. What should be known is kept in `said`."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def agrees(self, question: str) -> bool | None:
        """Nobody is there."""
        return None

    def warn(self, text: str) -> None:
        """Kept for the report."""
        self.said.append(text)

    def step(self, what: str, done: int, total: int) -> None:
        """Nobody looks."""


@dataclass(slots=True)
class _Ours:
    """Our side, which stays the same however often a commit is tried.

    Attributes:
        marks: See `Catalog.session_marks`.
        passed: What the gate said, and `covers` of which rows.
        sending: The rows of the last commit, while it is not known whether it arrived.
        vectors: Those that were made anew.
    """

    table: ChunkTable
    marks: dict[str, int]
    passed: plan.Passed | None = None
    covers: NDArray[np.uint64] | None = None
    sending: plan.Passed | None = None
    vectors: vectors.KeptVectors | None = None


@dataclass(frozen=True, slots=True)
class _Theirs:
    """The published memory as it was found.

    Attributes:
        commit: Where it stands; None: there is no such dataset, or it is not to be seen, as `missing` says.
        work: The work copy of its table.
        keys: Of its rows, ascending.
    """

    commit: str | None
    private: bool
    files: tuple[str, ...]
    work: stage.Stage
    keys: NDArray[np.uint64]
    missing: str = ""

    @property
    def table(self) -> ChunkTable | None:
        return self.work.table

    @property
    def has_indexes(self) -> bool:
        """Whether Lance's own indexes are in it."""
        return any(path.startswith(f"{_ROOT}/_indices/") for path in self.files)


class Publisher:
    """Publishes the memory in a folder to one dataset.

    Args:
        memory: The local memory's folder.
        folder: The mirror's folder, where receipt and stage are kept too.
        name, repo, mirror: The dataset.
        endpoint: The address of its Hub.
        scanner: Searches for credentials.
        embedder_for: What makes vectors for a stamp, or a sentence that says why nothing does.
        selection: Which sessions the person lets out; None for all.
        of_project: The same for a memory that is marked as being of a project; None: no matter.
        pause: Waits for so many seconds.
    """

    def __init__(
        self,
        memory: Path,
        folder: Path,
        name: HubName,
        repo: Repo,
        mirror: Copy,
        scanner: Scanner,
        embedder_for: Callable[[Embedding], tuple[Embedder | None, str]],
        *,
        endpoint: str = "",
        selection: plan.Selection | None = None,
        of_project: Callable[[str], plan.Selection | None] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._memory = memory
        self._folder = folder
        self._name = name
        self._repo = repo
        self._mirror = mirror
        self._scanner = scanner
        self._embedder_for = embedder_for
        self._endpoint = endpoint
        self._selection = selection
        self._of_project = of_project
        self._pause = pause
        self._stage = folder / "stage"
        self._vectors = folder / vectors.FILE

    def push(self, request: PushRequest, talk: PushTalk) -> PushReport:
        """Publish what the dataset lacks.

        Raises:
            PushBusyError: Another process of this machine does.
            PushRefusedError: A question was answered with no, or there was nobody to ask.
            NoMemoryError: There is nothing to publish from.
            ScannerError: The search for credentials failed: nothing left this machine.
            HubError: The Hub did not take it. The published memory is whole.
        """
        started = time.monotonic()
        with self._alone():
            try:
                report = self._push(request, talk)
            except NoMemoryError:  # no failure to wait for: the first session makes one
                raise
            except FunesError as error:
                self._failed(error)
                raise
            if not (request.dry or request.sessions or report.later):
                with suppress(OSError):
                    self._vectors.unlink(missing_ok=True)
        report.seconds = time.monotonic() - started
        return report

    def look_at(self, talk: PushTalk) -> Target:
        """How the dataset stands, before an agent is bound to it.

        Raises:
            HubDeniedError: The token may not even read it.
            FunesError: It is no memory.
        """
        label, receipt = self._name.label, self._receipt()
        try:
            head = self._repo.head()
            agreed = receipt.agreed and (head.private or receipt.public)
            target = Target(label, "there", private=head.private, writable=self._repo.may_write(), agreed=agreed)
            with self._mirror.alone():
                found = self._mirror.fetch(lambda step: _fetching(talk, step))
                if found.table is None:
                    return target
                table = ChunkTable.open(found.table)
                shared = self._shares(table)
            return replace(target, passages=table.rows, shared=shared)
        except HubRepoMissingError as error:
            return Target(label, "missing", error.message)
        except HubUnreachableError as error:
            return Target(label, "unreachable", error.message)

    def create(self) -> str:
        """Make the dataset, private, which a person has agreed to. Returns the address of its page.

        Raises:
            HubDeniedError: The token may not make it, or may not see the one that is there.
            HubError: The Hub did not make it.
        """
        try:
            self._repo.create(private=True)
        except HubConflictError:
            try:
                self._repo.head()
            except HubRepoMissingError as error:
                raise HubDeniedError(
                    f"{self._name.label} exists, and your token may not see it. Nothing was published.",
                    "Set HF_TOKEN to one that may, or choose another name.",
                ) from error
            raise  # somebody made it just now
        with suppress(OSError):
            receipts.save(self._folder, replace(self._receipt(), made=True, agreed=True, public=False, rows=0))
        return self._page

    @property
    def _page(self) -> str:
        return f"{self._endpoint}/datasets/{self._name.repo}"

    def _shares(self, theirs: ChunkTable) -> bool:
        import numpy as np

        with self._alone():
            try:
                ours = stage.snapshot(self._memory, self._stage / "ours")
            except NoMemoryError:
                return False
            return bool(np.isin(ours.keys(), theirs.keys()).any())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """With the stage empty before and gone afterwards. Raises `PushBusyError`."""
        lock = WriterLock(self._folder / stage.LOCK)
        if not lock.acquire():
            raise PushBusyError(
                f"Another funes process is publishing to {self._name.label}; the next push takes what it leaves."
            )
        try:
            shutil.rmtree(self._stage, ignore_errors=True)
            yield
        finally:
            shutil.rmtree(self._stage, ignore_errors=True)
            lock.release()

    def _failed(self, error: FunesError) -> None:
        with suppress(OSError):
            receipts.save(self._folder, receipts.failed(self._receipt(), error.message))

    def _receipt(self) -> receipts.Receipt:
        known = receipts.load(self._folder)
        return known or receipts.Receipt(self._name.label, self._endpoint)

    # -- the loop --------------------------------------------------------------------------------------

    def _push(self, request: PushRequest, talk: PushTalk) -> PushReport:
        # The marks first: what is stored between the two is then found to wait, which is the safe side.
        marks = self._marks()
        ours = _Ours(stage.snapshot(self._memory, self._stage / "ours"), marks)
        report = PushReport(self._name.label, self._page, dry=request.dry)
        try:
            return self._tried(request, talk, report, ours)
        finally:
            if ours.vectors is not None:
                ours.vectors.close()

    def _tried(self, request: PushRequest, talk: PushTalk, report: PushReport, ours: _Ours) -> PushReport:
        for attempt in range(1, TRIES + 1):
            report.attempts = attempt
            try:
                self._attempt(request, talk, report, ours)
                return report
            except (HubConflictError, HubUnreachableError) as error:
                if ours.sending is None and not isinstance(error, HubConflictError):
                    raise
                last = error
            if attempt < TRIES:
                self._pause(attempt * random.uniform(*_PAUSE_S))
        if ours.sending is not None:
            raise HubUnreachableError(
                f"{last.message} Whether {self._name.label} has got the passages is not known.",
                "The next push finds out, and sends what is missing.",
            )
        raise HubConflictError(
            f"Others published to {self._name.label} {TRIES} times while this push was on its way. It is whole, "
            "and nothing of this push is in it.",
            f"Try again: funes push {self._name.label}",
        )

    def _attempt(self, request: PushRequest, talk: PushTalk, report: PushReport, ours: _Ours) -> None:
        import numpy as np

        theirs = self._look(talk)
        selection = self._selected(theirs, report)
        report.public = theirs.commit is not None and not theirs.private
        report.missing = theirs.commit is None
        there = theirs.keys
        anew = theirs.table is not None and theirs.table.embedding != ours.table.embedding
        made = plan.make(
            ours.table.marks(),
            there,
            anew=anew,
            named=request.sessions,
            selection=selection,
            most=request.most if anew else None,
        )
        if ours.sending is not None and np.isin(ours.sending.keys, there).all():
            # The answer was lost, the commit was not.
            report.commit, report.sent, report.sessions = theirs.commit or "", *_sizes(ours.sending)
            self._done(report, ours, made, ours.sending)
            return
        ours.sending, report.sent, report.sessions, report.held, report.embedded = None, 0, 0, 0, 0
        report.unfilled, report.later = made.unfilled, made.later
        report.left_out = 0 if selection is None else selection.waiting
        compact = request.compact and theirs.table is not None
        if theirs.missing and (request.dry or not len(made.wanted)) and theirs.missing not in report.notes:
            report.notes.append(theirs.missing)
        if not len(made.wanted) and not compact:
            self._done(report, ours, made, None)
            return
        embed = self._embed(theirs.table, ours) if anew and len(made.wanted) else None
        if theirs.commit is None and self._name != HubName(self._name.repo):
            # A new dataset has its main branch only: making one would leave it there, empty.
            raise HubRepoMissingError(
                f"{theirs.missing} A branch can only be published to when it is there.",
                f"Make the dataset first: funes push {self._name.repo}",
            )
        if not request.dry and len(made.wanted):
            self._agree(request, talk, theirs, made)
        passed = self._gated(ours, made, talk, report)
        report.sent, report.sessions = _sizes(passed)
        report.held, report.held_sessions = passed.held.total(), tuple(sorted(passed.held))
        report.kinds = Counter(passed.verdict.counts) if report.held else Counter()
        report.embedded = report.sent if anew else 0
        if request.dry or not (report.sent or compact):
            self._done(report, ours, made, passed)
            return
        if theirs.commit is None:
            self.create()
            report.created, report.missing = True, False
            theirs = replace(theirs, commit=self._repo.head().commit)

        def append(to: _Theirs) -> None:
            if len(passed.keys):
                what, count = "embedding" if embed else "writing", len(passed.keys)
                transfer = Transfer(
                    passed.keys,
                    passed.verdict.lets,
                    frozenset(passed.verdict.redacted),
                    embed,
                    lambda done: talk.step(what, done, count),
                )
                to.work.append(ours.table, transfer, ours.table.embedding, selection.repository if selection else "")

        append(theirs)
        theirs = self._joined(request, talk, theirs, append)
        changes = theirs.work.changes()
        report.joined = changes.joined and bool(changes.add)
        report.bytes, report.files = changes.size, len(changes.add)
        if not changes.add:  # it was joined already
            self._done(report, ours, made, passed)
            return
        add: dict[str, Path | bytes] = dict(changes.add)
        if (readme := self._card(theirs)) is not None:
            add[_README] = readme
        added = f"Add {wording.count(report.sent, 'passage')} of {wording.count(report.sessions, 'session')}"
        what = added if report.sent else "Join files"
        try:
            report.commit = self._repo.commit(theirs.commit, add, changes.delete, what, _summed(talk, "uploading"))
        except HubUnreachableError as error:
            if error.uncertain and report.sent:
                ours.sending = passed
            raise
        except HubRevisionMissingError as error:  # it could be read: a tag, or a commit by a short name
            raise HubRevisionMissingError(
                f"{self._name.label} is no branch, and nothing else can be written to. Nothing was published.",
                to_branch(self._name),
            ) from error
        for path in changes.add.values():
            cache.keep(self._name.repo, path)  # this machine's mirror need not fetch what came from here
        self._done(report, ours, made, passed)

    def _selected(self, theirs: _Theirs, report: PushReport) -> plan.Selection | None:
        """What the person lets out; of a memory that is marked as a project's, nothing without having decided so."""
        project = "" if theirs.table is None else theirs.table.project
        if not project or self._of_project is None:
            return self._selection
        if self._selection is None:
            name = harmless(project)[:_PROJECT]
            note = (
                f"{self._name.label} is the memory of {name}: it gets sessions that were reviewed, and none was yet: "
                f"`funes curate {self._name.label} {name}`"
            )
            if note not in report.notes:
                report.notes.append(note)
        return self._of_project(project)

    # -- its steps -------------------------------------------------------------------------------------

    def _marks(self) -> dict[str, int]:
        if not (self._memory / FILE).exists():
            return {}
        catalog = Catalog(self._memory, writable=False)
        try:
            return catalog.session_marks()
        finally:
            catalog.close()

    def _look(self, talk: PushTalk, *, indexes: bool = False) -> _Theirs:
        """What is published, with a work copy of it to write to. Raises `HubError`, `FunesError`."""
        import numpy as np

        folder = self._stage / "theirs"
        none = np.empty(0, np.uint64)
        try:
            with self._mirror.alone():  # the links are made before anybody brings it further
                found = self._mirror.fetch(lambda step: _fetching(talk, step), indexes=indexes)
                files = tuple(file.path for file in found.files)
                work = stage.Stage(folder, found.table, files)
        except HubRepoMissingError as error:
            return _Theirs(None, True, (), stage.Stage(folder, None, ()), none, error.message)
        if work.table is not None and not (work.table.embedding.model and work.table.embedding.width):
            raise FunesError(
                f"{self._name.label} does not say which model made its vectors, so nothing can be added to it.",
                "Publish to another dataset.",
            )
        try:
            keys = none if work.table is None else work.table.keys()
        except (TypeError, ValueError, LookupError) as error:  # whatever somebody else's table has for ids
            raise MemoryDamagedError(f"The table of {self._name.label} cannot be read: {error}") from error
        return _Theirs(found.commit, found.private, files, work, keys)

    def _agree(self, request: PushRequest, talk: PushTalk, theirs: _Theirs, made: plan.Plan) -> None:
        """Ask what has to be asked, and remember that it was. Raises `PushRefusedError`."""
        label = self._name.label
        receipt = self._receipt()
        public = theirs.commit is not None and not theirs.private
        sessions = wording.count(len(made.sessions_of(made.wanted)), "session")
        question = ""
        if public:
            talk.warn(f"{label} is public: everybody can read what is published there.")
        if theirs.commit is None:
            question = f"Create the private dataset {label}?"
        elif theirs.table is None:
            # One that held rows of ours was emptied by somebody: perhaps to take them back.
            if receipt.rows or not (receipt.made or receipt.agreed):
                question = f"{label} exists and holds no memory. Publish {sessions} of this machine there?"
        elif not made.shared and theirs.table.rows and not (receipt.agreed and not receipt.rows):
            question = (
                f"{label} holds {theirs.table.rows:,} passages, none of them from this machine. "
                f"Publish {sessions} of this machine there?"
            )
        if not question and public and not receipt.public:
            question = f"Publish {sessions} of this machine there?"
        if question and not request.yes:
            answer = talk.agrees(question)
            if answer is None:
                reason = f"{theirs.missing} " if theirs.missing else ""
                hint = f"Run `funes push {label}` in a terminal, or `funes push {label} --yes`."
                if theirs.commit is None:
                    hint += " If it is there already, set HF_TOKEN, or run `hf auth login`."
                raise PushRefusedError(
                    f"{reason}{_asked(question)} Nobody was there to answer, so nothing was published.", hint
                )
            if not answer:
                raise PushRefusedError("Nothing was published.")
        # To have one made is not to agree to one that somebody else makes meanwhile.
        if theirs.commit is not None and (question or not receipt.agreed):
            with suppress(OSError):
                receipts.save(self._folder, replace(receipt, agreed=True, public=public))

    def _embed(self, table: ChunkTable | None, ours: _Ours) -> Callable[[list[str]], NDArray[np.float32]]:
        assert table is not None
        embedder, _ = self._embedder_for(table.embedding)
        if embedder is None:
            model = table.embedding.model
            raise FunesError(
                f"The vectors of {self._name.label} are made by {model}, which is not here or cannot be used. "
                "Nothing was published.",
                f"`funes models pull {model}` brings it, and `funes models` says how it stands; then push again.",
            )
        if ours.vectors is not None:
            ours.vectors.close()
        ours.vectors = vectors.KeptVectors(self._vectors, embedder)
        return ours.vectors.embed_passages

    def _gated(self, ours: _Ours, made: plan.Plan, talk: PushTalk, report: PushReport) -> plan.Passed:
        import numpy as np

        if ours.passed is not None and ours.covers is not None and np.isin(made.whole, ours.covers).all():
            return plan.judged(made, ours.passed.verdict)  # it was searched before somebody else was faster
        started = time.monotonic()
        passed = plan.gate(ours.table, made, self._scanner, lambda done, of: talk.step("searching", done, of))
        report.searching += time.monotonic() - started
        ours.passed, ours.covers = passed, made.whole
        return passed

    def _joined(
        self, request: PushRequest, talk: PushTalk, theirs: _Theirs, append: Callable[[_Theirs], None]
    ) -> _Theirs:
        """The same with files joined, where that pays; the new rows are in it already."""
        table, work = theirs.table, theirs.work
        assert table is not None
        lacks = list(table.indexes().values()) if theirs.has_indexes else []
        if not (work.begun and (request.compact or stage.wants_joining(work.files, table.rows, lacks))):
            return theirs
        if theirs.has_indexes:  # joining moves rows, which the indexes have to follow
            theirs = self._look(talk, indexes=True)
            append(theirs)
        theirs.work.join()
        return theirs

    def _card(self, theirs: _Theirs) -> bytes | None:
        """The README to write; None to leave it as it is."""
        old, table = None, theirs.table
        assert table is not None
        if theirs.commit is not None:
            try:
                raw = self._repo.read(theirs.commit, _README, _CARD_BYTES)
                old = None if raw is None else raw.decode()
            except (HubError, UnicodeDecodeError):
                return None  # it is there, and not ours
        spread = table.spread()
        facts = card.Facts(
            self._name.repo,
            spread.rows,
            spread.sessions,
            spread.agents,
            table.embedding.model,
            datetime.now(timezone.utc).date().isoformat(),
        )
        new = card.written(old, facts)
        return None if new is None else new.encode()

    def _done(self, report: PushReport, ours: _Ours, made: plan.Plan, passed: plan.Passed | None) -> None:
        """Remember how things stand now."""
        if report.dry:
            return
        receipt = self._receipt()
        states = {}
        for name, lacks in made.lacking.items():
            if passed is not None and passed.sessions[name] >= lacks:
                continue
            if name in made.unselected:
                states[name] = receipts.LEFT_OUT
            elif passed is not None and name in passed.held and name not in made.unfilled_sessions:
                states[name] = receipts.HELD
            else:
                states[name] = receipts.WAITS
        new = replace(
            receipt,
            pushed=receipts.now(),
            commit=report.commit or receipt.commit,
            rows=made.shared + report.sent,
            sent=report.sent or receipt.sent,
            held_rows=report.held,
            held=dict(report.kinds),
            failed="",
            reason="",
            agreed=receipt.agreed or made.shared > 0,
        )
        with suppress(OSError):  # the next `status` says less then
            some = made.there | (passed.sessions.keys() if passed is not None else set())
            receipts.save_sent(self._folder, receipts.after(ours.marks, states, some))
            receipts.save(self._folder, new)


def _summed(talk: PushTalk, what: str) -> Callable[[int, int], None]:
    """Tells of bytes, of which each call brings some more."""
    done = 0

    def told(more: int, total: int) -> None:
        nonlocal done
        done += more
        talk.step(what, done, total)

    return told


def _fetching(talk: PushTalk, step: Step) -> None:
    if step.kind == "files":
        talk.step("fetching", step.bytes_done, step.bytes_total)


def _sizes(passed: plan.Passed) -> tuple[int, int]:
    """Rows and sessions that may leave."""
    return len(passed.keys), len(passed.sessions)


def _asked(question: str) -> str:
    """A question as it is quoted where nobody answers it."""
    return f"It has to be asked first: “{question}”"
