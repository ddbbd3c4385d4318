"""Dataset repositories of a Hub: look, fetch, commit. Knows nothing of memories.

Everything goes through `huggingface_hub`, held to limits (`limits.prepare`), and what comes is checked. Files are
handed to it as streams, so that one way, plain HTTP, carries every upload, and its progress can be told; given
names of files it would hand them to another library where that is installed, which has neither.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

from funes_mcp.hub.address import endpoint, host, offline
from funes_mcp.hub.cache import cache_folder, dataset_folder, discard, is_content, linked
from funes_mcp.hub.errors import (
    HubDeniedError,
    HubError,
    HubFileMissingError,
    HubUnreachableError,
    offline_error,
    slow_error,
)
from funes_mcp.hub.errors import told as as_told
from funes_mcp.hub.limits import prepare
from funes_mcp.hub.streams import Body, Meter, Told, bar, undrawn

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_T = TypeVar("_T")

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: The longest look at a repository's list of files or at one of them, and at making one, in seconds.
_LISTING: Final = 60.0
_LOOKING: Final = 20.0
_MAKING: Final = 120.0
#: More files than any memory has, from a repository that is not one.
_MOST_FILES: Final = 50_000
_MOST_PATH: Final = 400
#: Of one name in a path, in bytes: what file systems take.
_MOST_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class RepoFile:
    """A file at a commit.

    Attributes:
        size: In bytes.
        oid: SHA-256 of the content of a large file (64 hex digits), git's SHA-1 of a small one's blob (40).
    """

    path: str
    size: int
    oid: str


@dataclass(frozen=True, slots=True)
class RepoHead:
    """Where a branch stands."""

    commit: str
    private: bool


class DatasetRepo:
    """One dataset repository at the Hub in use. Asks nothing until a method is called.

    Every method raises a `HubError`: `HubUnreachableError`, `HubDeniedError`, `HubRepoMissingError`,
    `HubRevisionMissingError`, `HubConflictError`, or `HubError` itself for what cannot be helped by trying again.
    A repository that has another name now is followed to it, as far as the Hub says so.

    Attributes:
        repo: `owner/name`.
        revision: A branch.
        dropped: How many paths the last `files` left out because they are not plain.
    """

    def __init__(self, repo: str, revision: str = "main") -> None:
        self.repo = repo
        self.revision = revision
        self.dropped = 0

    def head(self, patience: float = 10.0) -> RepoHead:
        """Where the branch stands, within `patience` seconds, also where looking the Hub's name up hangs."""
        api = self._api()

        def ask() -> RepoHead:
            info = api.dataset_info(self.repo, revision=self.revision, timeout=patience, expand=["sha", "private"])
            if not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
                raise HubError(f"{host()} does not say where {self._label} stands.")
            return RepoHead(info.sha, bool(info.private))

        return self._within(patience, ask)

    def files(self, commit: str, under: str) -> list[RepoFile]:
        """All files in a folder at a commit, also in folders in it; none when there is no such folder.

        Paths that are not plain relative ones are left out and counted in `dropped`.
        """
        api = self._api()
        at = _commit(commit)
        self.dropped = 0

        def ask() -> list[RepoFile]:
            found: list[RepoFile] = []
            seen = 0
            for entry in api.list_repo_tree(self.repo, under, recursive=True, revision=at, repo_type="dataset"):
                seen += 1
                if seen > _MOST_FILES:
                    raise HubError(f"{self._label} has more than {_MOST_FILES:,} files in {under}: it is no memory.")
                file = _file(entry)
                if file is None:
                    continue
                if is_plain(file.path) and file.path.startswith(f"{under}/"):
                    found.append(file)
                else:
                    self.dropped += 1
            return found

        try:
            return self._within(_LISTING, ask)
        except HubFileMissingError:
            return []

    def fetch(self, commit: str, file: RepoFile, told: Told | None = None) -> Path:
        """A file's path in the cache that all programs of this machine share, brought there if it is not yet.

        What is there is what the repository says it is: size and checksum are looked at.

        Raises:
            HubFileMissingError: There is no such file.
            HubError: Anything else. A damaged file does not stay in the cache.
        """
        if not is_plain(file.path) or not (_SHA256.fullmatch(file.oid) or _COMMIT.fullmatch(file.oid)):
            raise HubError(f"{self._label} has a file whose path or checksum cannot be used here.")
        storage = dataset_folder(self.repo)
        pointer = storage / "snapshots" / _commit(commit) / file.path
        blob = storage / "blobs" / file.oid
        for here in (pointer, blob):
            found = is_content(here, file.size, file.oid)
            if found:
                if told is not None:
                    told(file.size, file.size)
                return pointer if here is pointer else linked(blob, pointer)
            if found is False:  # and not where nothing was: another thread may just have put it there
                discard(storage, here)
        self._api()
        from huggingface_hub import hf_hub_download

        try:
            got = hf_hub_download(
                self.repo,
                file.path,
                repo_type="dataset",
                revision=commit,
                endpoint=endpoint(),
                cache_dir=cache_folder(),
                library_name="funes-mcp",
                tqdm_class=bar(told, file.size),
            )
        except Exception as error:
            raise as_told(error, self._label) from error
        came = Path(got)
        if not is_content(came, file.size, file.oid):
            discard(storage, came, blob)
            raise HubError(
                f"{file.path} of {self._label} came damaged from {host()}: it is not what the repository says it is.",
                "It was not kept. Try again.",
            )
        return came

    def read(self, commit: str, path: str, most: int) -> bytes | None:
        """A small file's content, None when there is none of that path.

        Raises:
            HubError: Also when it has more than `most` bytes.
        """
        api = self._api()
        at = _commit(commit)

        def ask() -> RepoFile | None:
            found = api.get_paths_info(self.repo, [path], revision=at, repo_type="dataset")
            return next((file for entry in found if (file := _file(entry)) is not None and file.path == path), None)

        file = self._within(_LOOKING, ask)
        if file is None:
            return None
        if file.size > most:
            raise HubError(f"{path} of {self._label} has {file.size:,} bytes, which is more than is read of it.")
        return self.fetch(commit, file).read_bytes()

    def may_write(self) -> bool:
        """Whether the token may commit to the repository, as far as the Hub says."""
        api = self._api()

        def ask() -> None:
            try:
                api.auth_check(self.repo, repo_type="dataset", write=True)
            except TypeError:  # an older library asks about reading alone
                api.auth_check(self.repo, repo_type="dataset")

        try:
            self._within(_LOOKING, ask)
        except HubDeniedError:
            return False
        return True

    def create(self, *, private: bool) -> None:
        """Make the repository. Raises `HubConflictError` when it exists already."""
        api = self._api()

        def ask() -> None:
            api.create_repo(self.repo, private=private, repo_type="dataset", exist_ok=False)

        # In a limited time, since the library asks again without end while another is being made.
        self._within(_MAKING, ask)

    def commit(
        self,
        parent: str | None,
        add: Mapping[str, Path | bytes],
        delete: Sequence[str],
        message: str,
        told: Told | None = None,
    ) -> str:
        """Make one commit, all or nothing, and give its id; the head's when everything is there already.

        Large files travel first and mean nothing until the commit; the Hub keeps them, so that the next try need
        not send them again. The commit itself is sent once.

        Args:
            parent: Where the branch has to stand for this to happen; None: wherever it stands.
            add: Content, or where it lies on this machine, by path in the repository.
            delete: Paths in the repository.
            told: Called from several threads, one at a time.

        Raises:
            HubConflictError: The branch stands elsewhere.
            HubUnreachableError: `uncertain` when the commit may have landed nevertheless.
        """
        if bad := [path for path in (*add, *delete) if not is_plain(path)]:
            raise HubError(f"{bad[0]!r} cannot be a path in a repository.")
        if parent is not None:
            _commit(parent)
        api = self._api()
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        meter = Meter(told)
        try:
            bodies = {path: Body(content, meter) for path, content in add.items()}
            adds = [CommitOperationAdd(path, cast(BinaryIO, body)) for path, body in bodies.items()]
            meter.start(sum(body.size for body in bodies.values()))
            with warnings.catch_warnings(), undrawn():
                warnings.simplefilter("ignore")  # they are about the library's own calls
                api.preupload_lfs_files(
                    self.repo, adds, repo_type="dataset", revision=self.revision, free_memory=False, num_threads=4
                )
                done = self._send(api, [*adds, *map(CommitOperationDelete, delete)], message, parent)
        except Exception as error:
            raise as_told(error, self._label) from error
        meter.finish()
        return done

    def _send(self, api: HfApi, operations: Sequence[Any], message: str, parent: str | None) -> str:
        """The commit itself, after its large files have been sent."""
        try:
            info = api.create_commit(
                self.repo,
                operations,
                commit_message=message,
                repo_type="dataset",
                revision=self.revision,
                parent_commit=parent,
            )
            if not isinstance(info.oid, str) or not _COMMIT.fullmatch(info.oid):
                raise ValueError("no id of a commit")
        except (KeyError, TypeError, ValueError) as error:
            known = as_told(error, self._label)
            if isinstance(known, HubUnreachableError):  # what was sent has been answered, but not in a way one can read
                known.uncertain = True
            raise known from error
        return info.oid

    @property
    def _label(self) -> str:
        return self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"

    def _api(self) -> HfApi:
        """The library, with limits set. Raises `HubUnreachableError` when the switch says offline."""
        if offline():
            raise offline_error(self._label)
        prepare()
        from huggingface_hub import HfApi

        return HfApi(endpoint=endpoint(), library_name="funes-mcp")

    def _within(self, patience: float, ask: Callable[[], _T]) -> _T:
        """What `ask` gives, in a thread of its own: looking a name up cannot be given a time limit."""
        found: list[_T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                found.append(ask())
            except BaseException as error:
                failed.append(error)

        thread = Thread(target=run, name="funes-hub", daemon=True)
        thread.start()
        thread.join(patience)
        if found:
            return found[0]
        if failed:
            raise as_told(failed[0], self._label) from failed[0]
        raise slow_error(self._label, patience)


def is_plain(path: str) -> bool:
    """Whether a path of a repository may become a path here: relative, POSIX, short, visible, nothing hidden."""
    return (
        len(path) <= _MOST_PATH
        and path.isprintable()
        and "\\" not in path
        and all(
            part != "" and (part[0] != "." or part == ".gitattributes") and len(part.encode()) <= _MOST_NAME
            for part in path.split("/")
        )
    )


def _commit(commit: str) -> str:
    if not _COMMIT.fullmatch(commit):
        raise HubError(f"{commit[:50]!r} is not the id of a commit.")
    return commit


def _file(entry: Any) -> RepoFile | None:
    """An entry of the library's listing; None when it is a folder."""
    from huggingface_hub.hf_api import RepoFile as Entry

    if not isinstance(entry, Entry):
        return None
    size, oid = (entry.lfs.size, entry.lfs.sha256) if entry.lfs is not None else (entry.size, entry.blob_id)
    kind = _SHA256 if entry.lfs is not None else _COMMIT
    if not isinstance(entry.path, str) or not isinstance(size, int) or size < 0 or not kind.fullmatch(str(oid)):
        raise HubError(f"{host()} does not say what a file of the repository is.")
    return RepoFile(entry.path, size, oid)
