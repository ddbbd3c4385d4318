"""Where Claude Code keeps its sessions, and what in those folders is one."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from funes_adapters.claude import history, parse

from funes_mcp.traces.jsonl import JsonlReader, loads
from funes_mcp.traces.model import Cursor, Root, Source, Tally
from funes_mcp.traces.text import clean, munge
from funes_mcp.traces.time import to_unix_ms

HARNESS: Final = parse.HARNESS

_SUFFIXES: Final = (".jsonl.zst", ".jsonl")
_META_CAP: Final = 64 * 1024
_SETTINGS_CAP: Final = 4 * 1024 * 1024
#: What Claude Code's documentation gives as the default of `cleanupPeriodDays`.
CLEANUP_DAYS: Final = 30.0
#: Of a result kept in a file of its own, at most so many bytes are taken in.
SIDE_FILE_CAP: Final = 256 * 1024
#: Subagents' transcripts lie in `subagents/`, those of a workflow in `subagents/workflows/<workflow>/`.
_AGENT_DEPTH: Final = 4
#: A prompt this fresh may be ahead of its transcript.
_FRESH_MS: Final = 10 * 60 * 1000

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_SAVED_TO: Final = re.compile(r"saved to: *([^\n]+)")


def roots(environ: Mapping[str, str], home: Path) -> list[Root]:
    """The projects of `CLAUDE_CONFIG_DIR` (blank means unset), else of `~/.claude`; the prompt history
    beside them; and the sessions that Claude's desktop program runs, where it is installed."""
    named = environ.get("CLAUDE_CONFIG_DIR", "").strip()
    base, why = (Path(named).expanduser(), "CLAUDE_CONFIG_DIR") if named else (home / ".claude", "default")
    found = [
        Root(HARNESS, base / "projects", why, "projects"),
        Root(HARNESS, base / "history.jsonl", why, "history"),
    ]
    desktop = _desktop_folder(environ, home)
    if desktop.is_dir():
        found.append(Root(HARNESS, desktop, "Claude's desktop program", "desktop"))
    return found


def _desktop_folder(environ: Mapping[str, str], home: Path) -> Path:
    if sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        base = Path(environ.get("APPDATA", "").strip() or home / "AppData" / "Roaming")
    else:
        base = Path(environ.get("XDG_CONFIG_HOME", "").strip() or home / ".config")
    return base / "Claude" / "local-agent-mode-sessions"


def sources(root: Root, tally: Tally) -> Iterator[Source]:
    """Every transcript below a root, each real file once; folders that are links are followed, loops are not."""
    if root.kind == "history":
        source = _source(root.path, root.path, tally, "history") if root.path.is_file() else None
        if source is not None:
            yield source
        return
    seen: set[Path] = set()
    for path in _walk(root.path, tally):
        reason = _no_transcript(path)
        if reason is not None:
            tally.skipped["file", reason] += 1
            continue
        source = _source(root.path, path, tally)
        if source is None:
            continue
        if source.path in seen:
            tally.skipped["file", "reached twice"] += 1
            continue
        seen.add(source.path)
        yield source


def deleted_after(root: Root) -> float | None:
    """Days after its last change that Claude Code deletes a transcript: `cleanupPeriodDays` of its settings."""
    if root.kind != "projects":
        return None
    try:
        with root.path.with_name("settings.json").open("rb") as file:
            settings = loads(file.read(_SETTINGS_CAP))
    except (OSError, ValueError):
        return CLEANUP_DAYS
    days = settings.get("cleanupPeriodDays") if isinstance(settings, dict) else None
    return float(days) if isinstance(days, (int, float)) and 0 <= days < 1e6 else CLEANUP_DAYS


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is one of Claude Code's transcripts, or its prompt history."""
    if not path.name.endswith(_SUFFIXES) or _no_transcript(path) is not None:
        return False
    return any(_is_record(record) for record in _first_records(head))


def source_at(path: Path) -> Source | None:
    """The source that a file somewhere is."""
    if not path.name.endswith(_SUFFIXES):
        return None
    kind = "history" if path.name == "history.jsonl" and not path.parent.name.startswith("-") else "jsonl"
    return _source(path.parent, path, Tally(), kind)


def reader(source: Source, cursor: Cursor | None) -> JsonlReader:
    """A reader of one source. Raises `OSError`."""
    if source.kind == "history":
        projects = source.path.parent / "projects"

        def make_history(state: dict[str, Any] | None, tally: Tally) -> history.HistoryParser:
            return history.HistoryParser(state, tally, _Transcripts(projects).may_exist)

        return JsonlReader(source, cursor, make_history, history.VERSION)
    origin = origin_of(source.path)

    def make(state: dict[str, Any] | None, tally: Tally) -> parse.ClaudeParser:
        return parse.ClaudeParser(origin, state, tally, SideFiles(session_folder(source.path)).rest_of)

    return JsonlReader(source, cursor, make, parse.VERSION)


# Names and places


def origin_of(path: Path) -> parse.Origin:
    """What a transcript's place says: its session's id is the file's name, a subagent's starts with `agent-`.

    Sessions of the desktop program are all called `audit`; there the folder names the session.
    """
    stem = _stem(path)
    if stem == "audit":
        return parse.Origin(path.parent.name)
    if not stem.startswith("agent-"):
        return parse.Origin(stem)
    folder = session_folder(path)
    parent = folder.name if folder != path.with_name(stem) else None
    return parse.Origin(stem, parent, _agent_name(path.with_name(f"{stem}.meta.json")), is_agent=True)


def session_folder(path: Path) -> Path:
    """The folder of a session's own files: `<session>/` beside its transcript, above its subagents'."""
    for folder in list(path.parents)[:_AGENT_DEPTH]:
        if folder.name == "subagents":
            return folder.parent
    return path.with_name(_stem(path))


def _agent_name(meta: Path) -> str | None:
    """The kind of a subagent, or what it was asked, from the file beside its transcript."""
    try:
        with meta.open("rb") as file:
            record = loads(file.read(_META_CAP))
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict):
        return None
    for key in ("agentType", "name", "description"):
        value = record.get(key)
        if isinstance(value, str) and value.strip():
            return clean(value.strip())[:200]
    return None


def _stem(path: Path) -> str:
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix):
            return path.name[: -len(suffix)]
    return path.stem


def _no_transcript(path: Path) -> str | None:
    """Why a file in the agent's folders is no transcript, or None if it may be one."""
    name = path.name
    folder = path.parent.name
    if folder == "tool-results":
        return "result kept in a file of its own"
    if name == "journal.jsonl":
        return "journal of a workflow"
    if name.endswith(".meta.json"):
        return "description of a subagent"
    if name == "sessions-index.json":
        return "list of sessions"
    if folder == "memory" and name.endswith(".md"):
        return "notes of the agent"
    return None if name.endswith(_SUFFIXES) else "no transcript"


def _source(root: Path, path: Path, tally: Tally, kind: str = "jsonl") -> Source | None:
    try:
        real = path.resolve()
        stat = real.stat()
    except (OSError, RuntimeError) as error:
        tally.skipped["file", f"cannot be read ({getattr(error, 'strerror', None) or error})"] += 1
        return None
    if stat.st_size == 0:
        tally.skipped["file", "empty"] += 1
        return None
    times = (stat.st_mtime_ns, stat.st_ctime_ns)
    return Source(HARNESS, root, real, stat.st_size, *times, stat.st_ino, kind, many=kind == "history")


def _walk(root: Path, tally: Tally) -> Iterator[Path]:
    """Every file below a folder, in order. Links to folders are followed, each real folder once."""
    visited: set[tuple[int, int]] = set()

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError) or Path(error.filename or "") != root:
            tally.skipped["folder", f"cannot be read ({error.strerror or error})"] += 1

    for folder, folders, files in os.walk(root, followlinks=True, onerror=failed):
        try:
            stat = os.stat(folder)
        except OSError as error:
            failed(error)
            folders.clear()
            continue
        if (stat.st_dev, stat.st_ino) in visited:
            folders.clear()
            tally.skipped["folder", "reached twice"] += 1
            continue
        visited.add((stat.st_dev, stat.st_ino))
        folders.sort()
        for name in sorted(files):
            yield Path(folder, name)


def _first_records(head: bytes) -> Iterator[dict[str, Any]]:
    for line in head.splitlines()[:50]:
        try:
            record = loads(line.strip(b"\xef\xbb\xbf\0 \t"))
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def _is_record(record: dict[str, Any]) -> bool:
    if isinstance(record.get("display"), str) and "pastedContents" in record and "project" in record:
        return True
    kind = record.get("type")
    if "payload" in record or not isinstance(kind, str):
        return False
    if kind in ("user", "assistant"):
        return "message" in record
    return (
        kind == "attachment"
        or ("sessionId" in record and kind != "session")
        or (kind == "summary" and "summary" in record)
    )


# Files beside a transcript


class SideFiles:
    """Results that were too long for a transcript, in the session's own `tool-results/`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rest_of(self, notice: str) -> tuple[str, bool] | None:
        """What stands in the file that a notice names, behind the notice's preview, and whether it was cut.

        None unless the file lies in this session's folder, whatever path the notice gives: only the last
        part of it counts.
        """
        named = _SAVED_TO.search(notice[:2_000])
        if named is None:
            return None
        text = named[1].strip()
        path = PureWindowsPath(text) if "\\" in text else PurePosixPath(text)
        if path.parent.name != "tool-results" or path.name in ("", "..", "."):
            return None
        try:
            inside = (self._folder / "tool-results").resolve()
            real = (inside / path.name).resolve()
            if real.parent != inside or inside.parent != self._folder.resolve() or not real.is_file():
                return None
            with real.open("rb") as file:
                data = file.read(SIDE_FILE_CAP + 1)
        except (OSError, RuntimeError, ValueError):
            return None
        whole = clean(data[:SIDE_FILE_CAP].decode("utf-8", "ignore"))
        preview = notice.partition("Preview")[2].partition("\n")[2]
        preview = preview.rpartition("</persisted-output>")[0].rstrip().removesuffix("...").strip()
        rest = whole[whole.index(preview) + len(preview) :] if preview and preview in whole else whole
        return (rest.lstrip("\n"), len(data) > SIDE_FILE_CAP) if rest.strip() else None


class _Transcripts:
    """Which transcripts are there, to tell whether a prompt's own is gone."""

    def __init__(self, projects: Path) -> None:
        self._projects = projects
        self._now_ms = time.time_ns() // 1_000_000
        self._sessions: set[str] | None = None
        self._newest: dict[str, float] = {}

    def may_exist(self, session: str | None, project: str | None, ts: str | None) -> bool:
        """Whether the transcript of a prompt may be there (or about to be).

        Without a session's id: whether any of the project was written to after the prompt was typed.
        """
        typed = to_unix_ms(ts)
        if typed is not None and self._now_ms - typed < _FRESH_MS:
            return True
        self._list()
        assert self._sessions is not None
        if session is not None:
            return session in self._sessions
        newest = self._newest.get(munge(project) or "" if project else "")
        return newest is not None and (typed is None or newest >= typed)

    def _list(self) -> None:
        if self._sessions is not None:
            return
        self._sessions = set()
        for path in _walk(self._projects, Tally()):
            if _no_transcript(path) is not None:
                continue
            self._sessions.add(_stem(path))
            folder = session_folder(path)
            self._sessions.add(folder.name)  # a session of which only the subagents are left
            try:
                written = path.stat().st_mtime * 1000
            except OSError:
                continue
            name = folder.parent.name
            self._newest[name] = max(written, self._newest.get(name, 0.0))
