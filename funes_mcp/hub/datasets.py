"""Dataset repositories of a Hub: look, fetch, commit. Knows nothing of memories.

Everything goes through `huggingface_hub`; what is added are limits and checks. The library has no time limit of its
own for most requests, follows whatever wait a server names, and puts files where the server's headers say. Files are
handed to it as streams, so that one path, plain HTTP, carries every upload, and its progress can be told; given
names of files it would hand them to another library where that is installed, which has neither.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar, cast

from funes_mcp.hub.address import endpoint, host, offline
from funes_mcp.hub.errors import (
    HubError,
    HubFileMissingError,
    HubUnreachableError,
    offline_error,
    slow_error,
)
from funes_mcp.hub.errors import (
    told as as_told,
)
from funes_mcp.hub.files import Told

if TYPE_CHECKING:
    import httpx
    from huggingface_hub import HfApi

_T = TypeVar("_T")

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
#: What the library makes names of files from: an ETag as the Hub gives it, and nothing that climbs.
_ETAG: Final = re.compile(r'(?:W/)?"?[A-Za-z0-9][A-Za-z0-9._-]{0,199}"?')

#: Seconds for the parts of a request where the caller names none. A commit of many files takes the Hub a while.
_CONNECT: Final = 10.0
_READ: Final = 20.0
_WRITE_READ: Final = 120.0
#: The longest wait that a server may ask for between two tries, in seconds.
_MOST_WAIT: Final = 20
#: The longest look at a repository's list of files, in seconds.
_LISTING: Final = 60.0
#: More files than any memory has, from a repository that is not one.
_MOST_FILES: Final = 50_000
_MOST_PATH: Final = 400
_BLOCK: Final = 1 << 20


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
            info = api.dataset_info(self.repo, revision=self.revision, timeout=patience)
            if info.sha is None or not _COMMIT.fullmatch(info.sha):
                raise HubError(f"{host()} does not say where {self.revision} of {self.repo} stands.")
            return RepoHead(info.sha, bool(info.private))

        return self._within(patience, ask)

    def files(self, commit: str, under: str) -> list[RepoFile]:
        """All files in a folder at a commit, also in folders in it; none when there is no such folder.

        Paths that are not plain relative ones are left out and counted in `dropped`.
        """
        api = self._api()
        self.dropped = 0

        def ask() -> list[RepoFile]:
            found: list[RepoFile] = []
            entries = api.list_repo_tree(
                self.repo, under, recursive=True, revision=_commit(commit), repo_type="dataset"
            )
            for entry in entries:
                if len(found) + self.dropped >= _MOST_FILES:
                    raise HubError(f"{self.repo} has more than {_MOST_FILES:,} files in {under}: it is no memory.")
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
        if not is_plain(file.path):
            raise HubError(f"{self.repo} has a file whose path cannot be used here.")
        storage = cache_folder() / "--".join(("datasets", *self.repo.split("/")))
        pointer = storage / "snapshots" / _commit(commit) / file.path
        blob = storage / "blobs" / file.oid
        for at in (pointer, blob):
            if _is(at, file):
                if told is not None:
                    told(file.size, file.size)
                return at if at is pointer else _linked(blob, pointer)
        self._discard(storage, pointer, blob)
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
                tqdm_class=_bar(told, file.size),
            )
        except Exception as error:
            raise as_told(error, self.repo) from error
        at = Path(got)
        if not _is(at, file):
            self._discard(storage, at, blob)
            raise HubError(
                f"{file.path} of {self.repo} came damaged from {host()}: it is not what the repository says it is.",
                "It was not kept. Try again.",
            )
        return at

    def read(self, commit: str, path: str, most: int) -> bytes | None:
        """A small file's content, None when there is none of that path.

        Raises:
            HubError: Also when it has more than `most` bytes.
        """
        api = self._api()

        def ask() -> RepoFile | None:
            found = api.get_paths_info(self.repo, [path], revision=_commit(commit), repo_type="dataset")
            return next((file for entry in found if (file := _file(entry)) is not None and file.path == path), None)

        file = self._within(_READ, ask)
        if file is None:
            return None
        if file.size > most:
            raise HubError(f"{path} of {self.repo} has {file.size:,} bytes, which is more than is read of it.")
        return self.fetch(commit, file).read_bytes()

    def create(self, *, private: bool) -> None:
        """Make the repository. Raises `HubConflictError` when it exists already."""
        api = self._api()
        try:
            api.create_repo(self.repo, private=private, repo_type="dataset", exist_ok=False)
        except Exception as error:
            raise as_told(error, self.repo) from error

    def commit(
        self,
        parent: str | None,
        add: Mapping[str, Path | bytes],
        delete: Sequence[str],
        message: str,
        told: Told | None = None,
    ) -> str:
        """Make one commit, all or nothing, and give its id.

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
        api = self._api()
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        try:
            meter = _Meter(told)
            bodies = {path: _Body(content, meter) for path, content in add.items()}
            adds = [CommitOperationAdd(path, cast(BinaryIO, body)) for path, body in bodies.items()]
            meter.start(sum(body.size for body in bodies.values()))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are about the library's own calls
                api.preupload_lfs_files(
                    self.repo, adds, repo_type="dataset", revision=self.revision, free_memory=False, num_threads=4
                )
                done = self._send(api, [*adds, *map(CommitOperationDelete, delete)], message, parent)
            meter.finish()
            return done
        except Exception as error:
            raise as_told(error, self.repo) from error

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
        except (KeyError, TypeError, ValueError) as error:
            # An answer that is no answer, to the commit or to the question before it. `told` knows what has a status.
            known = as_told(error, self.repo)
            if type(known) is HubError and error.__cause__ is None:
                raise HubUnreachableError(
                    f"{host()} did not say whether the commit to {self.repo} was made.", "Try again.", uncertain=True
                ) from error
            raise known from error
        return info.oid

    def _api(self) -> HfApi:
        """The library, with limits set. Raises `HubUnreachableError` when the switch says offline."""
        if offline():
            raise offline_error(self.repo)
        _prepare()
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
            raise as_told(failed[0], self.repo) from failed[0]
        raise slow_error(self.repo, patience)

    def _discard(self, storage: Path, *paths: Path) -> None:
        """Take a damaged file out of the cache: the names and what they lead to, nothing outside of the cache."""
        root = storage.parent.resolve()
        for path in paths:
            with suppress(OSError):
                content = path.resolve()
                path.unlink(missing_ok=True)
                if content.is_relative_to(root):
                    content.unlink(missing_ok=True)


def is_plain(path: str) -> bool:
    """Whether a path of a repository may become a path here: relative, POSIX, short, visible, nothing hidden."""
    return (
        len(path) <= _MOST_PATH
        and path.isprintable()
        and "\\" not in path
        and all(
            part != "" and (part[0] != "." or part == ".gitattributes") and len(part.encode(errors="replace")) <= 255
            for part in path.split("/")
        )
    )


def cache_folder() -> Path:
    """Where `huggingface_hub` keeps files, from the environment as it is now (the library looks once)."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if not named:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        named = os.path.join(os.environ.get("HF_HOME") or os.path.join(base, "huggingface"), "hub")
    return Path(os.path.expandvars(named)).expanduser().absolute()


def _commit(commit: str) -> str:
    if not _COMMIT.fullmatch(commit):
        raise HubError(f"{commit[:50]!r} is not the id of a commit.")
    return commit


def _file(entry: Any) -> RepoFile | None:
    """An entry of the library's listing; None when it is not a file, or says nothing that can be checked."""
    from huggingface_hub.hf_api import RepoFile as Entry

    if not isinstance(entry, Entry):
        return None
    size, oid = (entry.lfs.size, entry.lfs.sha256) if entry.lfs is not None else (entry.size, entry.blob_id)
    kind = _SHA256 if entry.lfs is not None else _COMMIT
    if not isinstance(entry.path, str) or not isinstance(size, int) or size < 0 or not kind.fullmatch(str(oid)):
        raise HubError(f"{host()} does not say what a file of the repository is.")
    return RepoFile(entry.path, size, oid)


def _is(path: Path, file: RepoFile) -> bool:
    """Whether a file is here, whole and what the repository says."""
    digest = hashlib.sha256() if len(file.oid) == 64 else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    try:
        if path.stat().st_size != file.size:
            return False
        with open(path, "rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
    except OSError:
        return False
    return digest.hexdigest() == file.oid


def _linked(blob: Path, pointer: Path) -> Path:
    """A name in a commit's folder for a content that is here, as the library makes it; the content where it cannot."""
    try:
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:
        return blob
    return pointer


@cache
def _prepare() -> None:
    """Set limits on the library's requests, and keep it from writing to the terminal. Once in a process."""
    import logging

    from huggingface_hub import set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def client() -> httpx.Client:
        made = default_client_factory()
        hooks = made.event_hooks
        made.event_hooks = {"request": [*hooks["request"], _limit], "response": [*hooks["response"], _check]}
        return made

    set_client_factory(client)
    if not {"HF_DEBUG", "HF_HUB_VERBOSITY"} & os.environ.keys():
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


def _limit(request: httpx.Request) -> None:
    """A time limit where the library has set none."""
    limits = dict(request.extensions.get("timeout") or {})
    read = _READ if request.method in ("GET", "HEAD") else _WRITE_READ
    for part, seconds in {"connect": _CONNECT, "pool": _CONNECT, "write": _WRITE_READ, "read": read}.items():
        if limits.get(part) is None:
            limits[part] = seconds
    request.extensions["timeout"] = limits


def _check(response: httpx.Response) -> None:
    """Refuse headers that would lead out of the cache, and shorten the waits that a server asks for."""
    headers = response.headers
    for name in ("ETag", "X-Linked-Etag"):
        if (etag := headers.get(name)) is not None and response.status_code < 400 and not _ETAG.fullmatch(etag):
            raise HubError(f"{host()} names a file in a way that cannot be used here.")
    if (commit := headers.get("X-Repo-Commit")) is not None and not _COMMIT.fullmatch(commit):
        raise HubError(f"{host()} names a commit in a way that cannot be used here.")
    if response.status_code >= 400:
        if (wait := headers.get("Retry-After", "")).isdigit() and int(wait) > _MOST_WAIT:
            headers["Retry-After"] = str(_MOST_WAIT)
        # Of this one, only the seconds until the limit is lifted are waited for.
        headers["RateLimit"] = re.sub(r"\bt\s*=\s*(\d+)", _shortened, headers.get("RateLimit", ""))


def _shortened(match: re.Match[str]) -> str:
    return f"t={min(int(match[1]), _MOST_WAIT)}"


def _bar(told: Told | None, size: int) -> Any:
    """What the library takes for a progress bar: it draws nothing and passes the numbers on."""

    class Bar:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def update(self, more: int = 1) -> None:
            if told is not None:
                told(int(more), size)

        def close(self) -> None:
            pass

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar


class _Meter:
    """Adds up what is read of several files, in several threads."""

    def __init__(self, told: Told | None) -> None:
        self._told = told
        self._total = 0
        self._done = 0
        self._started = False
        self._lock = Lock()

    def start(self, total: int) -> None:
        """From here on, reading is sending: before, the library looks at what there is."""
        self._total = total
        self._started = True

    def more(self, count: int) -> None:
        with self._lock:
            if self._told is not None and count:
                self._done += count
                self._told(count, self._total)

    def finish(self) -> None:
        """What the Hub had already was not read again."""
        self.more(self._total - self._done)

    @property
    def started(self) -> bool:
        return self._started


class _Body(io.BufferedIOBase):
    """A file to upload, open only while it is read: a commit may have more files than a process may open."""

    def __init__(self, content: Path | bytes, meter: _Meter) -> None:
        self._content = content
        self._meter = meter
        self._open: io.BufferedIOBase | None = None
        self._at = 0
        self._seen = 0
        self.size = len(content) if isinstance(content, bytes) else content.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = base + offset
        if self._open is not None:
            self._open.seek(self._at)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        if self._open is None:
            self._open = io.BytesIO(self._content) if isinstance(self._content, bytes) else self._content.open("rb")
            self._open.seek(self._at)
        data = self._open.read(-1 if size is None else size)
        self._at += len(data)
        if self._at >= self.size or not data:
            self._open.close()
            self._open = None
        if self._meter.started and self._at > self._seen:
            self._meter.more(self._at - self._seen)
            self._seen = self._at
        return data
