"""What is made from a memory's table and turned out to be damaged is taken out of the way, to be made again."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

from funes_mcp.errors import DerivedDamagedError
from funes_mcp.memory import catalog as book
from funes_mcp.memory import derived

#: What can be damaged: the word index, the vectors, the catalog.
PARTS = 3

_NAMES = {derived.LEXICAL: "word index", derived.DENSE: "vector index"}


def damage_in(error: Exception, folder: Path) -> DerivedDamagedError | None:
    """What an error says is damaged beside the table of the memory in `folder`; None when it says no such thing."""
    damage: Exception | None = error
    if isinstance(error, sqlite3.Error):
        damage = book.damage_of(folder / book.FILE, error)
    if isinstance(damage, DerivedDamagedError) and damage.path.absolute().parent == folder.absolute():
        return damage
    return None


def put_away(damage: DerivedDamagedError) -> str:
    """Take away what is damaged. The caller holds the writer lock.

    Returns:
        A sentence about it, to be shown when it was made again.

    Raises:
        OSError: It cannot be taken away.
    """
    if damage.path.name == book.FILE:
        return catalog_aside(damage.path.parent)
    with suppress(FileNotFoundError):  # another process was first
        shutil.rmtree(damage.path)
    return f"The {_NAMES[damage.path.name]} was damaged and was made again from the table; no passage was lost."


def catalog_aside(folder: Path) -> str:
    """Put the catalog of the memory in `folder` aside: all in it can be found out again. Returns a sentence."""
    path = folder / book.FILE
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{path}{suffix}.damaged")
    return (
        "The catalog was damaged and was made again from the table; no passage was lost. "
        f"The damaged one is kept as {path.name}.damaged. Paths that were named to `funes index` are to be named again."
    )
