"""Finding transcripts below a folder: links followed without loops, and every failure counted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from funes_mcp.traces.model import Source, Tally


def walk(root: Path, tally: Tally) -> Iterator[Path]:
    """All files below a folder, in order of their paths. A folder reached over several links is read once.

    A folder that is not there holds nothing; one that cannot be read is counted.
    """
    visited: set[tuple[int, int]] = set()

    def failed(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            tally.skipped["folder", error.strerror or "unreadable"] += 1

    for folder, names, files in os.walk(root, followlinks=True, onerror=failed):
        try:
            stat = os.stat(folder)
        except OSError as error:
            failed(error)
            continue
        if (stat.st_dev, stat.st_ino) in visited:
            names.clear()
            continue
        visited.add((stat.st_dev, stat.st_ino))
        names.sort()
        for name in sorted(files):
            yield Path(folder, name)


def source_of(
    harness: str,
    root: Path,
    path: Path,
    tally: Tally,
    kind: str = "jsonl",
    context: tuple[tuple[str, str], ...] = (),
) -> Source | None:
    """A file as a source, from one `stat`; None, and counted, when it is no regular file or not readable."""
    try:
        real = path.resolve()
        stat = real.stat()
    except (OSError, RuntimeError) as error:
        tally.skipped["file", getattr(error, "strerror", None) or "unreadable"] += 1
        return None
    if not real.is_file():
        tally.skipped["file", "not a regular file"] += 1
        return None
    return Source(
        harness=harness,
        root=root,
        path=real,
        size=stat.st_size,
        mtime_ns=stat.st_mtime_ns,
        ctime_ns=stat.st_ctime_ns,
        inode=stat.st_ino,
        kind=kind,
        context=context,
    )
