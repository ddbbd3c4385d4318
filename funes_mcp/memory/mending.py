"""What is made from a memory's table and turned out to be damaged is taken out of the way, to be made again."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from funes_mcp.errors import DerivedDamagedError
from funes_mcp.memory import catalog as book
from funes_mcp.memory import dense, derived, lexical

#: What can be damaged: the word index, the vectors, the catalog.
PARTS = 3


def damage_in(
    error: Exception, folder: Path, opened: Mapping[str, tuple[int, ...]] | None = None
) -> DerivedDamagedError | None:
    """What an error says is damaged beside the table of the memory in `folder`; None when it says no such thing.

    Args:
        opened: Where it was met with parts open: which file of each, see `MemoryReader.opened`.
    """
    damage: Exception | None = error
    if isinstance(error, sqlite3.Error):
        damage = book.damage_of(folder / book.FILE, error)
    if isinstance(damage, DerivedDamagedError) and damage.path.absolute().parent == folder.absolute():
        damage.met = None if opened is None else opened.get(damage.path.name)
        return damage
    return None


def put_away(damage: DerivedDamagedError, *, alone: bool = False) -> str:
    """Take away what is damaged, unless another process has mended it. The caller holds the writer lock.

    Args:
        alone: Whether the lock was held when the damage was met already, so that nobody can have mended it.

    Returns:
        A sentence about it, to be shown when it was made again; "" when nothing was taken away.

    Raises:
        OSError: It cannot be taken away.
        FunesError: It cannot be looked at.
    """
    if not alone and _is_mended(damage):
        return ""
    if damage.path.name == book.FILE:
        return catalog_aside(damage.path.parent)
    with suppress(FileNotFoundError):  # another process was first
        shutil.rmtree(damage.path)
    return derived.made_again(damage.path.name)


def _is_mended(damage: DerivedDamagedError) -> bool:
    """Whether what stands where the damage was met is whole by now."""
    path = damage.path
    # Some damage shows only when a row is read, and no look at the files would find it. So the very files in which it
    # was met are not looked at again.
    if damage.met is not None and damage.met == _identity(path):
        return False
    if path.name == book.FILE:
        return not book.damage(path.parent)
    if path.name == derived.LEXICAL:
        return lexical.exists(path) and not lexical.damage(path, thorough=True)
    return dense.embedding_of(path) is not None and not dense.damage(path)


def _identity(path: Path) -> tuple[int, ...] | None:
    """Which file the catalog is, or which commit of an index stands there; None for none."""
    if path.name == book.FILE:
        return book.identity(path.parent)
    try:
        return lexical.stamp_of(path) if path.name == derived.LEXICAL else dense.stamp_of(path)
    except OSError:
        return None


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
