"""The folder where `huggingface_hub` keeps what has been fetched, for all programs of this machine."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_BLOCK: Final = 1 << 20


def cache_folder() -> Path:
    """Where files are kept, from the environment as it is now: the library looks once, when it is imported."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if not named:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        named = os.path.join(os.environ.get("HF_HOME") or os.path.join(base, "huggingface"), "hub")
    return Path(os.path.expandvars(named)).expanduser().absolute()


def dataset_folder(repo: str) -> Path:
    """Where the files of a dataset repository are kept: `blobs/` by checksum, `snapshots/` by commit and path."""
    return cache_folder() / "--".join(("datasets", *repo.split("/")))


def is_content(path: Path, size: int, oid: str) -> bool | None:
    """Whether a file is what a repository says it is; None when it is not here, or not to be read.

    Args:
        size: In bytes.
        oid: SHA-256 of its content (64 hex digits), or git's SHA-1 of its blob (40).
    """
    digest = hashlib.sha256() if len(oid) == 64 else hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    try:
        with open(path, "rb") as content:
            if os.fstat(content.fileno()).st_size != size:
                return False
            while block := content.read(_BLOCK):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest() == oid


def keep(repo: str, path: Path) -> None:
    """Put a file that was just uploaded where a fetched one would lie, so that it need not be fetched. Never raises.

    Args:
        path: A large file, which a repository knows by the SHA-256 of its content. It is linked, so it must not change.
    """
    with suppress(OSError):
        digest = hashlib.sha256()
        with open(path, "rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
        blob = dataset_folder(repo) / "blobs" / digest.hexdigest()
        if not blob.exists():
            blob.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, blob)


def linked(blob: Path, pointer: Path) -> Path:
    """A name in a commit's folder for a content that is here, as the library makes it; the content where it cannot."""
    try:
        pointer.parent.mkdir(parents=True, exist_ok=True)
        pointer.unlink(missing_ok=True)
        pointer.symlink_to(os.path.relpath(blob, pointer.parent))
    except OSError:
        return blob
    return pointer


def discard(storage: Path, *paths: Path) -> None:
    """Take damaged files out of the cache: the names, and what they lead to if that is in the cache as well."""
    root = storage.parent.resolve()
    for path in paths:
        with suppress(OSError):
            content = path.resolve()
            path.unlink(missing_ok=True)
            if content.is_relative_to(root):
                content.unlink(missing_ok=True)
