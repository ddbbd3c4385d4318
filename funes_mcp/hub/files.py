"""Single files of public repositories, fetched so that a cut connection costs nothing twice.

`huggingface_hub` speaks to the Hub (`HF_ENDPOINT`, proxies, tokens, offline switch are its business). What is kept
here is the part of a file that has come: it stays on disk under the name of the file's checksum, and the next try
asks for the rest.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from funes_mcp.home import private_folder
from funes_mcp.hub.address import endpoint, offline
from funes_mcp.hub.errors import (
    HubDeniedError,
    HubError,
    HubFileMissingError,
    HubRepoMissingError,
    HubRevisionMissingError,
    words,
)
from funes_mcp.hub.limits import prepare
from funes_mcp.hub.streams import Told, bar

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

__all__ = ["Fetched", "HubError", "HubFileMissingError", "Told", "answers", "endpoint", "fetch", "offline", "sha256_of"]

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SHA1: Final = re.compile(r"[0-9a-f]{40}")
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file that is here and is what the Hub says it is.

    Attributes:
        revision: The commit it was taken from.
        sha256: Of its content, 64 hex digits.
        verified: Whether the Hub named a checksum (SHA-256 of large files, git's SHA-1 of small ones).
    """

    revision: str
    size: int
    sha256: str
    verified: bool


def answers(repo: str, path: str, revision: str, patience: float = 3.0) -> bool:
    """Whether the Hub gives that file's size within `patience` seconds. Never raises."""
    if offline():
        return False
    found: list[bool] = []

    def ask() -> None:
        with suppress(Exception):
            _metadata(repo, path, revision, timeout=patience)
            found.append(True)

    # In a thread of its own: looking a name up cannot be given a time limit.
    thread = Thread(target=ask, name="funes-hub", daemon=True)
    thread.start()
    thread.join(patience)
    return bool(found)


def fetch(repo: str, path: str, revision: str, target: Path, told: Told | None = None) -> Fetched:
    """Bring a file of a model repository to `target`; one that is there already is only checked.

    Args:
        repo: `owner/name`.
        path: The file's path in the repository.
        revision: A commit, or the name of a branch.

    Raises:
        HubFileMissingError: There is no such file.
        HubError: Anything else, told in a sentence. What has come is kept for the next try.
    """
    if offline():
        raise HubError("HF_HUB_OFFLINE is set, so nothing is fetched.", "Unset it, or use --from DIR.")
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined,unused-ignore]

    try:
        about = _metadata(repo, path, revision)
        if about.etag is None:
            raise HubError(f"{endpoint()} does not say what {repo}/{path} is.")
        size = about.size or 0
        private_folder(target.parent)
        if not _is(target, about):
            part = target.with_name(f".{target.name}.{_name(about.etag)}.part")
            headers = build_hf_headers()
            if urlsplit(about.location).netloc != urlsplit(endpoint()).netloc:
                headers.pop("authorization", None)  # a large file lies elsewhere, and the token is the Hub's alone
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                have = file.seek(0, os.SEEK_END)
                if size and have > size:
                    have = 0
                    file.truncate(0)
                    file.seek(0)
                if told is not None:
                    told(have, size)
                http_get(
                    about.location,
                    file,
                    resume_size=have,
                    headers=headers,
                    expected_size=about.size,
                    tqdm_class=bar(told, size),
                )
            if not _is(part, about):
                part.unlink()
                raise HubError(f"{path} of {repo} came damaged: its checksum is not the one that the Hub names.")
            os.replace(part, target)
        elif told is not None:
            told(size, size)
    except HubError:
        raise
    except Exception as error:
        raise _told(error, repo, path, revision) from error
    verified = bool(_SHA256.fullmatch(about.etag) or _SHA1.fullmatch(about.etag))
    return Fetched(about.commit_hash or revision, target.stat().st_size, sha256_of(target), verified)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, 64 hex digits. Raises `OSError`."""
    return _digest(path, hashlib.sha256())


def _metadata(repo: str, path: str, revision: str, timeout: float = 10.0) -> HfFileMetadata:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    prepare()  # before the first request of the process: later, it would cut off those that are under way
    url = hf_hub_url(repo, path, revision=revision, endpoint=endpoint())
    return get_hf_file_metadata(url, timeout=timeout, token=None, library_name="funes-mcp")


def _is(path: Path, about: HfFileMetadata) -> bool:
    """Whether the file is there whole, as far as the Hub says what it is."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    if about.size is not None and size != about.size:
        return False
    etag = about.etag or ""
    if _SHA256.fullmatch(etag):
        return sha256_of(path) == etag
    if _SHA1.fullmatch(etag):  # git's name of a blob
        return _digest(path, hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)) == etag
    return about.size is not None


def _digest(path: Path, digest: Any) -> str:
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return str(digest.hexdigest())


def _name(etag: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in etag)[:64]


def _told(error: Exception, repo: str, path: str, revision: str) -> HubError:
    """An error of the library as a sentence."""
    from huggingface_hub import errors

    where = endpoint()
    if isinstance(error, errors.EntryNotFoundError):
        return HubFileMissingError(f"{repo} has no file {path} at {revision}.")
    if isinstance(error, errors.RevisionNotFoundError):
        return HubRevisionMissingError(f"{repo} has no revision {revision} at {where}.")
    if isinstance(error, errors.GatedRepoError):
        return HubDeniedError(f"{repo} is given to known accounts only.", "Set HF_TOKEN to a token that may read it.")
    if isinstance(error, errors.RepositoryNotFoundError):
        # The Hub answers so for what is private, too.
        return HubRepoMissingError(f"There is no repository {repo} at {where}, or it is not public.")
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        return HubError(f"{where} answered {error.response.status_code} when asked for {path} of {repo}.")
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return HubError(f"{error.filename} cannot be written: {error.strerror}")
    reason = words(str(error)) or type(error).__name__
    return HubError(
        f"{path} of {repo} could not be fetched from {where}: {reason}", "Try again: what has come is kept."
    )
