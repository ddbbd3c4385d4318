"""Where decisions are kept: one file a published memory, under `$FUNES_HOME/curation`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from funes_mcp.curation import decisions
from funes_mcp.curation.decisions import Decisions, Entry
from funes_mcp.errors import BadRequestError, FunesError, MemoryBusyError
from funes_mcp.home import FunesHome, write_private
from funes_mcp.memory.label import HubName
from funes_mcp.memory.lock import WriterLock

#: Seconds to wait for another process that is writing down decisions.
PATIENCE_S: Final = 5.0

_FILE: Final = re.compile(r"(.+)-[0-9a-f]{8}\.toml")


@dataclass(frozen=True, slots=True)
class Kept:
    """A file and what it says."""

    path: Path
    decisions: Decisions


def folder(home: FunesHome) -> Path:
    """Where the files are."""
    return home.root / "curation"


def path_of(home: FunesHome, name: HubName) -> Path:
    """The file for a memory, made or not.

    It is the same for all revisions of a dataset and however its name is capitalised. When the memory was curated
    under another address of the Hub (`HF_ENDPOINT`), that file counts: the other way round everything would be
    published there.

    Raises:
        FunesError: Several files may be meant.
    """
    repo = name.repo.lower()
    path = folder(home) / f"{HubName(repo).slug}.toml"
    if path.exists():
        return path
    prefix = repo.replace("/", "--")
    others = [other for other in _files(home) if (match := _FILE.fullmatch(other.name.lower())) and match[1] == prefix]
    if len(others) > 1:
        raise FunesError(
            f"Several files say what {name.label} gets: {', '.join(map(str, others))}.", "Move all but one away."
        )
    return others[0] if others else path


def load(home: FunesHome, name: HubName) -> Kept | None:
    """What was decided for a memory; None when it is not curated.

    Raises:
        FunesError: The file cannot be read or understood, or is another memory's. Then nothing may be published.
    """
    path = path_of(home, name)
    text = _read(path)
    if text is None:
        return None
    found = decisions.parse(text, str(path))
    if not decisions.same(found.memory, name.repo):
        raise FunesError(
            f"{path} says what {found.memory} gets, not {name.repo}.",
            "Correct the line `memory`, or move the file away.",
        )
    return Kept(path, found)


def every(home: FunesHome) -> list[Kept]:
    """All files that say something. Raises `FunesError` as `load` does."""
    found = []
    for path in _files(home):
        text = _read(path)
        if text is not None:
            found.append(Kept(path, decisions.parse(text, str(path))))
    return found


def save(home: FunesHome, name: HubName, repository: str, changes: Mapping[str, Entry]) -> Kept:
    """Write decisions into the file as it is now, which is made when missing.

    Raises:
        FunesError: It cannot be understood, says another repository, or cannot be written; it is as it was.
    """
    with _lock(home):
        return _saved(home, name, repository, changes)


def rewrite(home: FunesHome, change: Callable[[str, str], str]) -> None:
    """Change what all files say.

    Args:
        change: Gets a file's text and what to call it in errors; see `decisions.without` and `decisions.reworded`.

    Raises:
        FunesError: One cannot be understood or written; it is as it was.
    """
    if not _files(home):
        return
    with _lock(home):
        for path in _files(home):
            text = _read(path)
            if text is not None and (other := change(text, str(path))) != text:
                _write(path, other)


def _lock(home: FunesHome) -> WriterLock:
    lock = WriterLock(folder(home))
    try:
        if not lock.acquire(PATIENCE_S):
            raise MemoryBusyError("Another funes process is writing down decisions.", "Try again in a moment.")
    except OSError as error:
        raise FunesError(f"{folder(home)} cannot be written: {error}. What was said before is kept.") from error
    return lock


def _write(path: Path, text: str) -> None:
    try:
        write_private(path, text.encode())
    except (OSError, UnicodeEncodeError) as error:
        raise FunesError(f"{path} could not be written: {error}. What it said before is kept.") from error


def _saved(home: FunesHome, name: HubName, repository: str, changes: Mapping[str, Entry]) -> Kept:
    path = path_of(home, name)
    text = _read(path)
    if text is None:
        text = decisions.begun(name.repo, repository)
    elif not decisions.same(decisions.parse(text, str(path)).repository, repository):
        raise BadRequestError(f"{path} now names another repository than {repository}; nothing was changed.")
    text = decisions.edit(text, changes, str(path))
    _write(path, text)
    return Kept(path, decisions.parse(text, str(path)))


def _files(home: FunesHome) -> list[Path]:
    try:
        return sorted(path for path in folder(home).iterdir() if _FILE.fullmatch(path.name.lower()))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FunesError(f"{folder(home)} cannot be read: {error}. Nothing is published until it can.") from error


def _read(path: Path) -> str | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FunesError(f"{path} cannot be read: {error}. Nothing is published until it can.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FunesError(
            f"{path}, line {line}: this is no UTF-8. Nothing is published until that is corrected."
        ) from error
