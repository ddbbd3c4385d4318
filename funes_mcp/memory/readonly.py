"""Files of a memory that cannot be written to, for libraries that want to write beside what they only read.

Tantivy takes a lock in the folder of an index, and SQLite keeps notes of its log beside the database. Both get a
private folder with what they read.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from funes_mcp.errors import FunesError


def links(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder with links to the files that are in `folder` now, but for locks. Raises `FunesError`."""
    made = _private(folder)
    try:
        for name in os.listdir(folder):
            if not name.endswith(".lock"):
                os.symlink(folder.absolute() / name, Path(made.name, name))
    except OSError as error:
        raise _refused(folder, error) from error
    return made


def copies(*files: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder with copies of those of some files that are there. Raises `FunesError`."""
    made = _private(files[0].parent)
    try:
        for file in files:
            with suppress(FileNotFoundError):
                shutil.copyfile(file, Path(made.name, file.name))
    except OSError as error:
        raise _refused(files[0].parent, error) from error
    return made


def _private(folder: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix="funes-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _refused(folder, error) from error


def _refused(folder: Path, error: OSError) -> FunesError:
    return FunesError(
        f"{folder} cannot be written to, and neither can a temporary folder: {error.strerror or error}.",
        "Name a folder that can be in TMPDIR.",
    )
