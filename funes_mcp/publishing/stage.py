"""Work copies of tables: of ours, so that it stands still while it is read; of the published one, to write to.

A work copy has folders of its own and links to the files of the table, none of which Lance ever changes. Everything is
in one folder, which is removed afterwards and when it is found left over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.errors import FunesError, MemoryDamagedError, NoMemoryError
from funes_mcp.home import private_folder
from funes_mcp.memory.table import ChunkTable, Transfer, table_path, table_version
from funes_mcp.publishing import vectors

if TYPE_CHECKING:
    from funes_mcp.memory.model import Embedding

#: How often a table is linked anew that was tidied up meanwhile.
_TRIES: Final = 20

#: A table in more files than this is slow to open from far away, and is joined.
MOST_FILES: Final = 64

#: So many rows more than Lance's own indexes know are searched one by one by whoever uses them; and what share of all.
MOST_UNINDEXED: Final = 10_000
_UNINDEXED_SHARE: Final = 0.2

#: A hint of Lance's where to begin to look for the newest version. It looks on from there by itself.
_HINT: Final = "latest_version_hint.json"

#: The folder beside the stage whose lock a push holds.
LOCK: Final = "push"

_FOLDERS: Final = ("data", "_deletions")


@dataclass(frozen=True, slots=True)
class Changes:
    """What has to be done to a repository so that it holds what the stage holds.

    Attributes:
        add: Files by their path in the repository.
        delete: Paths in the repository.
        rows: Rows that were added.
        joined: Whether files were joined and indexes brought up to date.
    """

    add: dict[str, Path]
    delete: tuple[str, ...]
    rows: int
    joined: bool

    @property
    def size(self) -> int:
        """Bytes to send."""
        return sum(path.stat().st_size for path in self.add.values())


def snapshot(memory: Path, folder: Path) -> ChunkTable:
    """Our own table as it is now, for as long as `folder` stands, whatever is written to the memory meanwhile.

    Raises:
        NoMemoryError: There is no table.
        MemoryDamagedError: It cannot be read.
    """
    source = table_path(memory)
    for _ in range(_TRIES):
        version = table_version(source)
        if version is None:
            raise NoMemoryError
        shutil.rmtree(folder, ignore_errors=True)
        try:
            manifest = _manifest(source, version)
            _link_all(source, table_path(folder), [manifest])
        except FileNotFoundError:
            continue
        # Files of a version are removed only when there is a newer one.
        if table_version(source) == version:
            return ChunkTable.open(folder)
    raise MemoryDamagedError("The memory is being written to all the time.", "Try again in a moment.")


class Stage:
    """The published table at one of its commits, to be written to.

    Args:
        folder: The work copy; whatever is there goes.
        theirs: The folder with the table as it was fetched; None where there is none yet.
        files: Paths of the repository's files under `chunks.lance`.

    Attributes:
        begun: Whether there was a table. `table` is the one in the work copy, None while there is none.
    """

    def __init__(self, folder: Path, theirs: Path | None, files: Iterable[str]) -> None:
        self._folder = folder
        self._files = frozenset(files)
        self._begun: frozenset[str] = frozenset()
        self.begun = theirs is not None
        self._joined = False
        self._rows = 0
        self.table: ChunkTable | None = None
        shutil.rmtree(folder, ignore_errors=True)
        private_folder(folder)
        if theirs is not None:
            source = table_path(theirs)
            version = table_version(source)
            if version is None:
                raise MemoryDamagedError(f"The copy of the published memory at {theirs} has no table.")
            _link_all(source, table_path(folder), [_manifest(source, version)], indexes=True)
            self._begun = frozenset(self._paths())
            self.table = ChunkTable.open(folder)

    @property
    def files(self) -> int:
        """How many files hold the rows."""
        with suppress(OSError):
            return sum(1 for _ in os.scandir(table_path(self._folder) / "data"))
        return 0

    def append(self, source: ChunkTable, transfer: Transfer, embedding: Embedding, project: str = "") -> int:
        """Add rows of `source`, in one version. Returns how many.

        Args:
            embedding, project: The stamps of a table that is made now.

        Raises:
            FunesError: They do not fit, or could not be written.
        """
        if self.table is None:
            self.table = ChunkTable.create_from(self._folder, embedding, source, transfer, project)
            self._rows = self.table.rows
        else:
            self._rows = self.table.append_from(source, transfer)
        return self._rows

    def join(self) -> None:
        """Join files, and bring Lance's own indexes up to date. Their files must have been fetched.

        Raises:
            FunesError: It could not be written.
        """
        assert self.table is not None
        self.table.tidy()
        self._joined = True

    def changes(self) -> Changes:
        """What makes the repository hold what is here."""
        now = self._paths()
        root = self._folder
        add = {path: root / path for path in sorted(now - self._begun) if not path.endswith(_HINT)}
        gone = sorted(self._files - now) if self._joined else []
        return Changes(add, tuple(gone), self._rows, self._joined)

    def _paths(self) -> set[str]:
        found: set[str] = set()
        for folder, _, names in os.walk(self._folder):
            found.update(os.path.relpath(os.path.join(folder, name), self._folder) for name in names)
        return {path.replace(os.sep, "/") for path in found}


def wants_joining(files: int, rows: int, unindexed: Sequence[int]) -> bool:
    """Whether it pays to write a published table again.

    Args:
        files: That hold its rows.
        rows: That it has.
        unindexed: For each of Lance's own indexes, the rows that it lacks.
    """
    most = max(unindexed, default=0)
    return files > MOST_FILES or (most > MOST_UNINDEXED and most > rows * _UNINDEXED_SHARE)


def sweep(remotes: Path) -> None:
    """Remove work copies and vectors that were left over; of a push under way only the latter. Never raises."""
    from funes_mcp.memory import lock

    with suppress(OSError):
        for folder in remotes.iterdir():
            with suppress(OSError):
                (folder / vectors.FILE).unlink(missing_ok=True)  # the push has it open, and goes on
            if (folder / "stage").exists() and not lock.is_held(folder / LOCK):
                shutil.rmtree(folder / "stage", ignore_errors=True)


def _manifest(table: Path, version: int) -> str:
    for name in (f"{(1 << 64) - 1 - version:020}.manifest", f"{version}.manifest"):
        if (table / "_versions" / name).exists():
            return name
    raise FileNotFoundError(table / "_versions")


def _link_all(source: Path, target: Path, manifests: Sequence[str], *, indexes: bool = False) -> None:
    private_folder(target / "_versions")
    for folder in (*_FOLDERS, *(["_indices"] if indexes else [])):
        for place, _, names in os.walk(source / folder):
            made = target / os.path.relpath(place, source)
            private_folder(made)
            for name in names:
                _link(Path(place, name), made / name)
    for name in manifests:
        _link(source / "_versions" / name, target / "_versions" / name)


def _link(source: Path, target: Path) -> None:
    real = Path(os.path.realpath(source, strict=True))
    for way in (os.link, os.symlink, shutil.copyfile):
        try:
            way(real, target)
            return
        except FileNotFoundError:
            raise
        except (OSError, NotImplementedError) as error:
            trouble = error
    raise FunesError(f"{target} cannot be made: {trouble}")
