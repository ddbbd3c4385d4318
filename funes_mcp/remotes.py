"""Published memories as a process reads them: how fresh, how long to wait, and what is said of a copy that is older.

A command line fetches and indexes what is new before it answers. A server answers from the copy that it has and brings
the new one in the background; without a copy it waits a little, then says how far the fetch is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.errors import FunesError, MemoryDamagedError
from funes_mcp.hub.errors import HubUnreachableError
from funes_mcp.memory.folder_repo import FolderName, FolderRepo
from funes_mcp.memory.label import HubName
from funes_mcp.memory.remote import Mirror, Repo, Step, Told

if TYPE_CHECKING:
    from funes_mcp.memory.mirror_state import State
    from funes_mcp.memory.reader import MemoryReader

#: A memory that is not ours.
Name = HubName | FolderName

#: Seconds for which a memory is read without asking the Hub again, or looking at its folder.
FRESH_S: Final = 30.0
FRESH_FOLDER_S: Final = 1.0

#: Seconds until a failure without a copy is tried again.
RETRY_S: Final = 10.0

#: Seconds for the Hub to say where a memory stands: when there is a copy, and when there is none.
PATIENCE_S: Final = 3.0
PATIENCE_WITHOUT_COPY_S: Final = 10.0

#: Seconds that a server's answer waits: for a first copy, and for a newer one.
FIRST_WAIT_S: Final = 20.0
WAIT_S: Final = 3.0
#: The same when the Hub was asked before by this process.
LATER_WAIT_S: Final = 1.0


class FetchingError(FunesError):
    """The first fetch of a memory goes on in the background."""


@dataclass(frozen=True, slots=True)
class Read:
    """A published memory, open, and what is to be said of it."""

    reader: MemoryReader
    state: State
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _View:
    """A memory as this process has it."""

    mirror: Mirror
    read: Read | None = None
    look_again: float = 0.0
    asked: bool = False
    failure: FunesError | None = None
    step: Step | None = None
    thread: threading.Thread | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    starting: threading.Lock = field(default_factory=threading.Lock)


class Remotes:
    """The published memories that this process reads.

    Args:
        root: `$FUNES_HOME`.
        repo: Stands for a memory's repository on the Hub.
        clock: Seconds, never going back.

    Attributes:
        in_background: Whether fetches go on behind the answers, as in a server.
        told: Told how far a fetch is, in the foreground.
    """

    def __init__(
        self,
        root: Path,
        repo: Callable[[HubName], Repo] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._repo = repo
        self._clock = clock
        self._views: dict[Name, _View] = {}
        self.in_background = False
        self.told: Told | None = None

    def mirror(self, name: Name) -> Mirror:
        """The mirror of a memory."""
        return self._view(name).mirror

    def read(self, name: Name) -> Read:
        """A memory, open, as new as it can be had.

        Raises:
            HubError: Nothing of it is here, and the Hub does not give it.
            FetchingError: Nothing of it is here yet.
            FunesError: Nothing of it is here, and what the Hub has cannot be read.
        """
        view = self._view(name)
        if view.thread is None and self._clock() < view.look_again:
            if view.read is not None:
                try:
                    view.read.reader.refresh()
                    return view.read
                except (OSError, MemoryDamagedError):  # deleted by hand, or made again by another process
                    self._forget(view)
            elif view.failure is not None:
                raise view.failure
        if not self.in_background:
            self._bring(view, self.told)
        else:
            self._bring_behind(view)
        if view.read is None:
            raise view.failure or FetchingError(f"{name.label} is being fetched.", "Ask again in a moment.")
        return view.read

    def start(self, name: Name) -> None:
        """Have a memory brought in the background, without waiting for it."""
        self._begin(self._view(name))

    def _view(self, name: Name) -> _View:
        view = self._views.get(name)
        if view is None:
            repo: Repo | None = None
            if isinstance(name, FolderName):
                repo = FolderRepo(name)
            elif self._repo is not None:
                repo = self._repo(name)
            view = self._views[name] = _View(Mirror(self._root, name, repo))
        return view

    def _bring(self, view: _View, told: Told | None) -> None:
        """Look at the Hub, fetch and index what is new, and open it; or open what is here, with a note."""
        mirror = view.mirror
        usable = mirror.usable
        notes: tuple[str, ...] = ()
        failure: FunesError | None = None
        try:
            mirror.fetch(told, patience=PATIENCE_S if usable else PATIENCE_WITHOUT_COPY_S)
            mirror.index(told)
        except FunesError as error:
            failure = error
            if usable and mirror.usable:
                notes = (f"{error.message} {self._as_of(mirror)}",)
        self._open(view, failure, notes)

    def _open(self, view: _View, failure: FunesError | None, notes: tuple[str, ...]) -> None:
        state = view.mirror.state
        read: Read | None = None
        if state is not None and state.indexed is not None:
            try:
                read = Read(_reader(view, state), state, notes)
            except (OSError, FunesError) as error:
                failure = failure or MemoryDamagedError(f"The copy of {view.mirror.name.label} cannot be read: {error}")
        with view.lock:
            view.read = read
            view.failure = None if read is not None else failure
            view.asked = True
            fresh = FRESH_FOLDER_S if isinstance(view.mirror.name, FolderName) else FRESH_S
            view.look_again = self._clock() + (fresh if read is not None else min(fresh, RETRY_S))

    def _bring_behind(self, view: _View) -> None:
        """The same in a thread, and wait for it a little; then open what is here meanwhile."""
        first = view.read is None and not view.mirror.usable
        under_way = view.thread is not None
        thread = self._begin(view)
        known = view.failure if first and isinstance(view.failure, HubUnreachableError) else None
        if first and known is None:
            thread.join(FIRST_WAIT_S)
        elif not under_way:
            thread.join(LATER_WAIT_S if view.asked else WAIT_S)
        if not thread.is_alive():
            return
        label = view.mirror.name.label
        if known is not None and view.step is None:
            raise known  # it did not answer before, and is asked again behind the answers
        if first:
            raise FetchingError(
                f"{label} is being fetched for the first time: {progress_text(view.step)}.",
                "It goes on in the background: ask again in a moment.",
            )
        if view.step is None:
            note = f"The Hub has not answered yet. {self._as_of(view.mirror)}"
        else:
            note = f"A newer version is on its way ({progress_text(view.step)}). {self._as_of(view.mirror)}"
        state = view.mirror.state
        with suppress(OSError, FunesError):
            if state is not None and state.indexed is not None:
                reader = _reader(view, state)
                with view.lock:
                    if view.thread is thread and thread.is_alive():
                        view.read = Read(reader, state, (note,))

    def _begin(self, view: _View) -> threading.Thread:
        def told(step: Step) -> None:
            view.step = step

        def run() -> None:
            try:
                self._bring(view, told)
            except Exception as error:
                self._open(view, FunesError(f"{view.mirror.name.label} could not be fetched: {error}"), ())
            finally:
                view.thread = None

        with view.starting:  # a mirror belongs to one thread
            thread = view.thread
            if thread is None or not thread.is_alive():
                view.step = None
                view.thread = thread = threading.Thread(target=run, name="funes-mirror", daemon=True)
                thread.start()
            return thread

    @staticmethod
    def _forget(view: _View) -> None:
        view.read = None
        view.look_again = 0.0

    @staticmethod
    def _as_of(mirror: Mirror) -> str:
        state = mirror.state
        when = "" if state is None or state.indexed is None else state.indexed.at
        if state is not None and state.is_indexed and (checked := mirror.checked_at) is not None:
            when = checked.strftime("%Y-%m-%dT%H:%M:%SZ")
        when = moment(when)
        return f"This is {mirror.name.label} as of {when}."


def _reader(view: _View, state: State) -> MemoryReader:
    """The reader that there is, or another one when the indexes have changed. Raises `FunesError`, `OSError`.

    One that is in use is not brought to the newest commit here: this may be another thread.
    """
    if view.read is not None and view.read.state.indexed == state.indexed:
        return view.read.reader
    return view.mirror.reader()


def progress_text(step: Step | None) -> str:
    """How far a fetch is, in a few words."""
    if step is None:
        return "asking the Hub"
    if step.kind == "waiting":
        return "another process is fetching it"
    if step.kind == "passages":
        return f"{step.done:,} of {step.total:,} passages indexed"
    amount = f"{step.bytes_done / 1e6:,.1f} of {step.bytes_total / 1e6:,.1f} MB"
    return f"{step.done:,} of {step.total:,} files, {amount} fetched"


def moment(ts: str) -> str:
    """An RFC 3339 time in UTC as people read it, to the minute."""
    try:
        at = datetime.strptime(ts, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return "an unknown time"
    return at.strftime("%Y-%m-%d %H:%M UTC")
