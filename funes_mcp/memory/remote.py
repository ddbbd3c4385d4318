"""The copy on this machine of a memory that is published as a dataset on the Hub: its mirror.

Under `$FUNES_HOME/remotes/<slug>/`:

    table/chunks.lance/   the table's newest version as it is published: links into the cache of `huggingface_hub`
    plain/chunks.lance/   the same version without the indexes that it names, which is what is read here
    lexical/, dense/      the indexes that answer, made here
    state.json            what is in the former; replaced in one step, last
    checked               its time is when the Hub last said that this is how the memory stands

All of it can be deleted at any time, by hand too. A file is fetched once, whatever commits it is part of, and only
files of the newest version are. One process at a time changes a mirror; reading takes no lock.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, Literal, Protocol

from funes_mcp.errors import FunesError, MemoryBusyError, MemoryDamagedError
from funes_mcp.home import private_folder, write_private
from funes_mcp.memory import derived, lexical, manifest
from funes_mcp.memory.foreign_index import index_apart
from funes_mcp.memory.label import HubName
from funes_mcp.memory.lock import WriterLock
from funes_mcp.memory.mirror_state import FILE, State, load

if TYPE_CHECKING:
    from funes_mcp.hub.datasets import RepoFile, RepoHead
    from funes_mcp.memory.reader import MemoryReader

#: Where mirrors lie in `$FUNES_HOME`.
FOLDER: Final = "remotes"

#: The folder of the table in the repository.
TABLE: Final = "chunks.lance"

#: A memory of two million passages has about 4 GB.
MOST_BYTES: Final = 20 << 30
MOST_FILE_BYTES: Final = 10 << 30
MOST_ROWS: Final = 20_000_000
MOST_FILES: Final = 20_000

#: How many files come at the same time.
AT_ONCE: Final = 4

#: Seconds for which another process that fetches the same memory is waited for.
PATIENCE_WITH_OTHERS: Final = 1_800.0

_CHECKED: Final = "checked"
_PUBLISHED: Final = "table"
_PLAIN: Final = "plain"
_INDEXES: Final = "_indices"
_LOOK_AGAIN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Step:
    """How far the fetch of a memory is.

    Attributes:
        kind: `waiting` for another process, `files` that are fetched, or `passages` that are indexed.
        done, total: Files or passages.
        bytes_done, bytes_total: Of the files.
    """

    kind: Literal["waiting", "files", "passages"]
    done: int = 0
    total: int = 0
    bytes_done: int = 0
    bytes_total: int = 0


Told = Callable[[Step], None]


class Repo(Protocol):
    """What is needed of a repository; see `hub.datasets.DatasetRepo`."""

    def head(self, patience: float = ...) -> RepoHead: ...

    def files(self, commit: str, under: str) -> list[RepoFile]: ...

    def fetch(self, commit: str, file: RepoFile, told: Callable[[int, int], None] | None = ...) -> Path: ...


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What a fetch brought here.

    Attributes:
        commit: Where the memory stands.
        table: The folder that holds `chunks.lance` as it is published; None when the repository has none.
        files: Every file under `chunks.lance` at that commit; paths begin with that.
        private: Whether the repository is.
    """

    commit: str
    table: Path | None
    files: tuple[RepoFile, ...]
    private: bool


class Named(Protocol):
    """A memory that is not ours: a `HubName`, or a folder."""

    @property
    def label(self) -> str: ...

    @property
    def slug(self) -> str: ...


def folder_of(root: Path, name: Named) -> Path:
    """Where what this machine knows of a published memory lies, in the folder `root` (`$FUNES_HOME`)."""
    return root / FOLDER / name.slug


def mirrors(root: Path) -> list[tuple[Path, int]]:
    """Every mirror's folder in `root`, and the bytes in it; what it links to is not counted."""
    found: list[tuple[Path, int]] = []
    with suppress(OSError):
        for folder in sorted((root / FOLDER).iterdir()):
            size = 0
            for at, _, names in os.walk(folder):
                for name in names:
                    with suppress(OSError):
                        size += os.lstat(os.path.join(at, name)).st_size
            if (folder / FILE).exists():
                found.append((folder, size))
    return found


class Mirror:
    """The mirror of one memory. Not for use in several threads at once.

    Args:
        root: `$FUNES_HOME`.
        name: The memory.
        repo: Stands for the repository on the Hub.
    """

    def __init__(self, root: Path, name: Named, repo: Repo | None = None) -> None:
        self.name = name
        self.folder = folder_of(root, name)
        self._given = repo
        self._lock = WriterLock(self.folder)

    @property
    def state(self) -> State | None:
        """What is here; None when nothing is, or nothing that this version of the program reads."""
        return load(self.folder)

    @property
    def checked_at(self) -> datetime | None:
        """When the Hub last said that the table here is how the memory stands."""
        with suppress(OSError):
            return datetime.fromtimestamp((self.folder / _CHECKED).stat().st_mtime, timezone.utc)
        return None

    @property
    def usable(self) -> bool:
        """Whether there is a copy that answers, however old."""
        state = self.state
        return state is not None and state.indexed is not None and self._has_indexes()

    @property
    def linked_bytes(self) -> int:
        """Bytes of the files in the cache of `huggingface_hub` that the table here consists of."""
        state = self.state
        if state is None:
            return 0
        parts = {f"{TABLE}/{part}" for part in state.parts}
        return sum(file.size for file in state.files if file.path in parts)

    @contextmanager
    def alone(self, told: Told | None = None, wait: float = PATIENCE_WITH_OTHERS) -> Iterator[None]:
        """Nobody else changes the mirror meanwhile. May be entered again by who is in it already.

        Raises:
            MemoryBusyError: Another process did so all the time.
        """
        if self._lock.held:
            yield
            return
        deadline = time.monotonic() + wait
        while not self._lock.acquire(_LOOK_AGAIN_S):
            if time.monotonic() > deadline:
                raise MemoryBusyError(f"Another funes process is fetching {self.name.label}.", "Try again later.")
            if told is not None:
                told(Step("waiting"))
        try:
            yield
        finally:
            self._lock.release()

    def head(self, patience: float = 10.0) -> RepoHead:
        """Where the memory stands on the Hub. Raises `HubError`."""
        return self._repo.head(patience)

    def fetch(self, told: Told | None = None, *, patience: float = 10.0, indexes: bool = False) -> Mirrored:
        """Bring the table here as it stands on the Hub; only files that are not here are asked for.

        Args:
            told: Told how far it is, from several threads, one at a time.
            patience: Seconds for the Hub to say where the memory stands.
            indexes: Whether also the files of Lance's own indexes are wanted.

        Raises:
            HubError: The Hub does not give it. What has come is kept for the next time.
            MemoryDamagedError: It is no memory, it leads out of its folder, or it is larger than any memory is.
            MemoryBusyError: See `alone`.
            FunesError: It cannot be stored here (a full disk).
        """
        head = self.head(patience)
        state = self.state
        if state is not None and self._is_here(state, head, indexes):
            self._looked()
            return self._mirrored(state)
        with self.alone(told):
            state = self.state  # another process may have brought it meanwhile
            if state is None or not self._is_here(state, head, indexes):
                try:
                    state = self._bring(head, state, indexes, told)
                except OSError as error:
                    raise lexical.storage_error(f"{self.name.label} could not be stored", error) from error
            self._looked()
            return self._mirrored(state)

    def index(self, told: Told | None = None) -> State:
        """Bring the indexes in line with the table that is here. Costs nothing when they are.

        Raises:
            MemoryDamagedError: The table cannot be read. The indexes answer as they are, if there are any.
            FunesError: There is nothing to index, or it cannot be stored.
        """
        state = self._needed()
        if state.is_indexed and self._has_indexes():
            return state
        with self.alone(told):
            state = self._needed()
            before = state.indexed if self._has_indexes() else None
            if before is not None and before.stamps == state.stamps:
                return self._save(replace(state, indexed=replace(before, commit=state.commit, at=state.fetched_at)))
            if not all((self.folder / _PLAIN / TABLE / path).exists() for path in state.parts):
                raise MemoryDamagedError(
                    f"Files of {self.name.label} have left the cache of huggingface_hub.", "Try again with the Hub."
                )
            with self._called():
                result = index_apart(
                    self.folder / _PLAIN,
                    self.folder,
                    state.rows,
                    compare=self._has_indexes() and (before is None or not _only_added(before.stamps, state.stamps)),
                    told=None if told is None else lambda done, total: told(Step("passages", done, total)),
                )
            return self._save(replace(state, indexed=state.account(result)))

    def reader(self) -> MemoryReader:
        """Reads what is indexed here. Raises `MemoryDamagedError` when nothing is."""
        from funes_mcp.memory.reader import MemoryReader

        return MemoryReader(self.folder, None)

    @property
    def _repo(self) -> Repo:
        if self._given is None:
            if not isinstance(self.name, HubName):
                raise FunesError(f"{self.name.label} is nowhere to be had.")
            from funes_mcp.hub.datasets import DatasetRepo

            self._given = DatasetRepo(self.name.repo, self.name.revision)
        return self._given

    @contextmanager
    def _called(self) -> Iterator[None]:
        """What is wrong with a table is said of the memory by its label."""
        try:
            yield
        except MemoryDamagedError as error:
            raise MemoryDamagedError(f"{self.name.label}: {error.message}", error.hint) from error

    def _looked(self) -> None:
        with suppress(OSError):
            (self.folder / _CHECKED).touch(mode=0o600)

    def _needed(self) -> State:
        state = self.state
        if state is None:
            raise FunesError(f"Nothing of {self.name.label} is here.")
        if not state.parts:
            raise FunesError(
                f"{self.name.label} holds no memory: there is no {TABLE} in it.",
                f"`funes push {self.name.label}` publishes one.",
            )
        return state

    def _has_indexes(self) -> bool:
        return derived.sound(self.folder)

    def _is_here(self, state: State, head: RepoHead, indexes: bool) -> bool:
        if state.commit != head.commit or state.private != head.private or (indexes and not state.with_indexes):
            return False
        wanted = [file.path for file in state.files] if state.with_indexes and indexes else []
        wanted = [path for path in wanted if path.startswith(f"{TABLE}/{_INDEXES}/")]
        wanted += [f"{TABLE}/{path}" for path in state.parts]
        return all((self.folder / _PUBLISHED / path).exists() for path in wanted)

    def _mirrored(self, state: State) -> Mirrored:
        table = self.folder / _PUBLISHED if state.parts else None
        return Mirrored(state.commit, table, state.files, state.private)

    def _save(self, state: State) -> State:
        write_private(self.folder / FILE, state.as_json())
        return state

    def _bring(self, head: RepoHead, before: State | None, indexes: bool, told: Told | None) -> State:
        """Fetch what a commit has and is not here, link it, and drop what is not part of it any more."""
        files = {file.path: file for file in self._repo.files(head.commit, TABLE)}
        self._check_sizes(files)
        state = State(head.commit, head.private, _now(), tuple(files.values()), with_indexes=indexes)
        state = replace(state, indexed=None if before is None else before.indexed)
        name = manifest.newest(_within(files, manifest.VERSIONS))
        if name is None:
            # What was there was taken away: it is not to be found here either.
            for part in (_PUBLISHED, _PLAIN, derived.LEXICAL, derived.DENSE):
                shutil.rmtree(self.folder / part, ignore_errors=True)
            return self._save(replace(state, indexed=None))
        place = f"{manifest.VERSIONS}/{name}"
        newest = Path(os.path.realpath(self._repo.fetch(head.commit, files[f"{TABLE}/{place}"])))
        with self._called():
            read = manifest.parse(newest.read_bytes())
        if read.version != manifest.version_of(name):
            raise MemoryDamagedError(f"{self.name.label} is not read: its newest manifest is another version's.")
        if read.rows > MOST_ROWS:
            raise self._too_much(f"{read.rows:,} rows")
        wanted = [f"{TABLE}/{path}" for path in read.files]
        lacking = [path for path in wanted if path not in files]
        if lacking:
            raise MemoryDamagedError(
                f"{self.name.label} is incomplete on the Hub: {len(lacking)} of its files are not there."
            )
        if indexes:
            wanted += [path for path in files if path.startswith(f"{TABLE}/{_INDEXES}/")]
        sources = self._fetch(head.commit, [files[path] for path in wanted], before, told)
        published = self.folder / _PUBLISHED / TABLE
        plain = self.folder / _PLAIN / TABLE
        parts = {path: sources[f"{TABLE}/{path}"] for path in read.files}
        _sync(published, {path.removeprefix(f"{TABLE}/"): source for path, source in sources.items()}, {place: newest})
        _sync(plain, parts, {})
        private_folder(plain / manifest.VERSIONS)
        write_private(plain / place, read.plain)
        for old in (plain / manifest.VERSIONS).iterdir():
            if old.name != name:
                old.unlink(missing_ok=True)
        return self._save(replace(state, parts=(*read.files, place), rows=read.rows))

    def _check_sizes(self, files: Mapping[str, RepoFile]) -> None:
        """Refuse what no memory is, before anything of it is fetched."""
        if len(files) > MOST_FILES:
            raise self._too_much(f"{len(files):,} files")
        manifests = [file.size for path, file in files.items() if path.startswith(f"{TABLE}/{manifest.VERSIONS}/")]
        if max(manifests, default=0) > manifest.MOST_MANIFEST_BYTES:
            raise self._too_much(f"a manifest of {max(manifests):,} bytes")
        kept = [file.size for path, file in files.items() if path.startswith(_LOADED)]
        if max(kept, default=0) > MOST_FILE_BYTES or sum(kept) > MOST_BYTES:
            raise self._too_much(f"{sum(kept) / 1e9:,.1f} GB")

    def _too_much(self, what: str) -> MemoryDamagedError:
        return MemoryDamagedError(f"{self.name.label} is not fetched: it has {what}, which is more than a memory has.")

    def _fetch(
        self, commit: str, wanted: Sequence[RepoFile], before: State | None, told: Told | None
    ) -> dict[str, Path]:
        """Where the files lie on this machine, by path; those that are not here are fetched, some at a time."""
        sources: dict[str, Path] = {}
        known = {file.path: file for file in before.files} if before is not None else {}
        missing = []
        for file in wanted:
            here = self.folder / _PUBLISHED / file.path
            if known.get(file.path) == file and here.exists() and here.stat().st_size == file.size:
                sources[file.path] = Path(os.path.realpath(here))
            else:
                missing.append(file)
        if not missing:
            return sources
        lock = Lock()
        step = Step("files", 0, len(missing), 0, sum(file.size for file in missing))

        def more(files: int, size: int) -> None:
            nonlocal step
            with lock:
                done = min(step.bytes_done + size, step.bytes_total)
                step = replace(step, done=step.done + files, bytes_done=done)
                if told is not None:
                    told(step)

        def bring(file: RepoFile) -> None:
            source = self._repo.fetch(commit, file, lambda count, _: more(0, count))
            sources[file.path] = Path(os.path.realpath(source))
            more(1, 0)

        more(0, 0)
        _each(missing, bring)
        return sources


_LOADED: Final = tuple(f"{TABLE}/{part}/" for part in (manifest.DATA, manifest.DELETIONS))


def _within(files: Mapping[str, RepoFile], folder: str) -> Iterator[str]:
    """The names of the files that lie directly in a folder of the table."""
    for path in files:
        parts = path.split("/")
        if parts[:-1] == [TABLE, folder]:
            yield parts[-1]


def _only_added(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether files were added to a table and nothing else was done to it: then its rows read as they did.

    Args:
        before, after: See `State.stamps`.
    """

    def some(stamps: Sequence[str], folder: str) -> set[str]:
        return {stamp for stamp in stamps if stamp.startswith(f"{folder}/")}

    same = some(before, manifest.DELETIONS) == some(after, manifest.DELETIONS)
    return same and some(before, manifest.DATA) <= some(after, manifest.DATA)


def _each(items: Sequence[RepoFile], work: Callable[[RepoFile], None]) -> None:
    """Do `work` with each, some at a time. Raises what the first one raised that failed; the rest is left then.

    The threads do not keep the process alive: an interrupted fetch ends at once, and what has come of a file is kept.
    """
    left = list(reversed(items))
    failed: list[BaseException] = []
    lock = Lock()

    def run() -> None:
        while True:
            with lock:
                if failed or not left:
                    return
                item = left.pop()
            try:
                work(item)
            except BaseException as error:
                failed.append(error)

    threads = [Thread(target=run, name="funes-fetch", daemon=True) for _ in range(min(AT_ONCE, len(left)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _sync(folder: Path, files: Mapping[str, Path], last: Mapping[str, Path]) -> None:
    """Make a folder hold links to these files and nothing else; those of `last` after the others.

    Args:
        files: Where each lies, by its path in the folder.
    """
    wanted = {**files, **last}
    for path, source in wanted.items():
        target = folder / path
        private_folder(target.parent)
        if not (target.is_symlink() and os.readlink(target) == str(source)):
            _link(source, target)
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            if os.path.relpath(path, folder).replace(os.sep, "/") not in wanted:
                os.unlink(path)


def _link(source: Path, target: Path) -> None:
    """Put a link to a file in a place, or the file again where links cannot be made."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        try:
            temporary.symlink_to(source)
        except OSError:
            try:
                os.link(source, temporary)
            except OSError:
                shutil.copyfile(source, temporary)
                temporary.chmod(0o600)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
