"""A memory in a folder that was not made here (a copy of a dataset, another program's), read as a published one is.

It is as little to be trusted as what comes from the Hub, and nothing is written into its folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from funes_mcp.errors import NoMemoryError

if TYPE_CHECKING:
    from funes_mcp.hub.datasets import RepoFile, RepoHead


@dataclass(frozen=True, slots=True)
class FolderName:
    """A memory by the folder that holds its `chunks.lance`, and as a person called it."""

    folder: Path
    label: str

    @property
    def slug(self) -> str:
        """A folder's name for it, which no other folder shares."""
        return f"folder-{hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]}"


class FolderRepo:
    """The folder in the place of a repository. Its state is told from names, sizes and times of its files."""

    def __init__(self, name: FolderName) -> None:
        self._name = name

    def head(self, patience: float = 10.0) -> RepoHead:
        """A digest of what is there. Raises `NoMemoryError`."""
        from funes_mcp.hub.datasets import RepoHead

        digest = hashlib.sha1(usedforsecurity=False)
        for file in self.files("", "chunks.lance"):
            digest.update(f"{file.path}\0{file.oid}\n".encode("utf-8", "replace"))
        return RepoHead(digest.hexdigest(), True)

    def files(self, commit: str, under: str) -> list[RepoFile]:
        """The files of the table."""
        from funes_mcp.hub.datasets import RepoFile

        root = self._name.folder / under
        if not root.is_dir():
            raise NoMemoryError(self._name.label)
        return [RepoFile(f"{under}/{path}", size, f"{size:x}-{time:x}") for path, size, time in sorted(_walk(root))]

    def fetch(self, commit: str, file: RepoFile, told: Callable[[int, int], None] | None = None) -> Path:
        """Where the file lies: it is here."""
        if told is not None:
            told(file.size, file.size)
        return self._name.folder / file.path


def _walk(root: Path) -> Iterator[tuple[str, int, int]]:
    """Path in the folder, size and time of every regular file, or link to one; links to folders are not followed."""
    for at, _, names in os.walk(root):
        for name in names:
            path = os.path.join(at, name)
            try:
                about = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode):
                yield os.path.relpath(path, root).replace(os.sep, "/"), about.st_size, about.st_mtime_ns
