"""Where Hermes keeps its sessions: a SQLite database a profile, and older files beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from funes_mcp.traces.adapter import SourceReader
from funes_mcp.traces.model import Cursor, Root, Source, Tally

HARNESS: Final = "hermes"
DATABASE: Final = "state.db"
#: Files of `sessions/` that Hermes itself does not read back: dumps of requests, and its routing table.
_NOT_SESSIONS: Final = ("request_dump_",)


def roots(environ: Mapping[str, str], home: Path) -> list[Root]:
    """Hermes' home: `HERMES_HOME`, else `~/.hermes` (`%LOCALAPPDATA%\\hermes` on Windows).

    A home that is itself a profile (`…/profiles/<name>`) stands for the home it belongs to, so that the
    sessions of every profile are found whichever is active.
    """
    named = environ.get("HERMES_HOME", "").strip()
    if named:
        path, why = Path(named).expanduser(), "HERMES_HOME"
    elif os.name == "nt":
        local = environ.get("LOCALAPPDATA", "").strip()
        path, why = (Path(local) if local else home / "AppData" / "Local") / "hermes", "default"
    else:
        path, why = home / ".hermes", "default"
    if path.parent.name == "profiles":
        path = path.parent.parent
    found = [Root(HARNESS, path, why, "home")]
    windows = home / "AppData" / "Local" / "hermes"
    if why == "default" and windows != path and windows.is_dir():  # a home of Windows, seen from WSL
        found.append(Root(HARNESS, windows, why, "home"))
    return found


def sources(root: Root, tally: Tally) -> Iterator[Source]:
    """The databases of the home and of its profiles, and the session files beside each."""
    if root.path.is_file():
        yield from _one(root, root.path, _kind_of(root.path), tally)
        return
    homes = [root.path]
    profiles = root.path / "profiles"
    homes += [path for path in _listing(profiles, tally) if path.is_dir()]
    for home in homes:
        yield from _one(root, home / DATABASE, "database", tally)
        for path in _listing(home / "sessions", tally):
            if path.suffix not in (".jsonl", ".json") or not path.is_file():
                continue
            if path.name.startswith(_NOT_SESSIONS) or path.name == "sessions.json":
                tally.skipped["file", "not a session"] += 1
                continue
            yield from _one(root, path, _kind_of(path), tally)


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is a database (by its magic and its name) or one of Hermes' older session files."""
    if path.suffix == ".db":
        return head.startswith(b"SQLite format 3\0")
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:4096].partition(b"\n")[0]
    if path.suffix == ".jsonl":
        return first.startswith(b'{"role":') and b'"type":"message"' not in first.replace(b" ", b"")
    return path.suffix == ".json" and b'"session_id"' in head and b'"messages"' in head


def source_at(path: Path) -> Source | None:
    """The source that a file somewhere is."""
    root = Root(HARNESS, path.parent, "named")
    return next(_one(root, path, _kind_of(path), Tally()), None)


def _kind_of(path: Path) -> str:
    return {".jsonl": "jsonl", ".json": "snapshot"}.get(path.suffix, "database")


def _listing(folder: Path, tally: Tally) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        tally.skipped["folder", error.strerror or "unreadable"] += 1
        return []


def _one(root: Root, path: Path, kind: str, tally: Tally) -> Iterator[Source]:
    """A source made from one `stat` of each of its files. A database's newest messages are in its log."""
    try:
        real = path.resolve()
        stat = real.stat()
    except FileNotFoundError:
        return
    except (OSError, RuntimeError) as error:
        tally.skipped["file", getattr(error, "strerror", None) or "unreadable"] += 1
        return
    size, mtime_ns, ctime_ns = stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
    if kind == "database":
        try:
            log = real.with_name(real.name + "-wal").stat()
        except OSError:
            pass
        else:
            # Reading a database makes an empty log and, for root, changes a log's owner: that is nothing new.
            if log.st_size:
                size += log.st_size
                mtime_ns = max(mtime_ns, log.st_mtime_ns)
    beside = real if kind == "database" else real.parent.parent / DATABASE
    yield Source(
        harness=HARNESS,
        root=root.path,
        path=real,
        size=size,
        mtime_ns=mtime_ns,
        ctime_ns=ctime_ns,
        inode=stat.st_ino,
        kind=kind,
        context=(("database", str(beside)),),
        many=kind == "database",
    )


def reader(source: Source, cursor: Cursor | None) -> SourceReader:
    """A reader of one source. The parsers are imported here: finding sources does not need them."""
    from funes_adapters.hermes.reader import DatabaseReader, FileReader

    return DatabaseReader(source, cursor) if source.kind == "database" else FileReader(source)
