"""Where pi keeps its sessions: a folder a working directory, or one flat folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from funes_mcp.traces.adapter import SourceReader
from funes_mcp.traces.files import source_of, walk
from funes_mcp.traces.model import Cursor, Root, Source, Tally

HARNESS: Final = "pi"
_SUFFIX: Final = ".jsonl"
#: The header that a session begins with, whatever the order of its keys; Claude Code's lines have `sessionId`.
_HEADER: Final = re.compile(rb'"type"\s*:\s*"session"')
_ENTRY: Final = re.compile(rb'"type"\s*:\s*"message"')
_MESSAGE: Final = re.compile(rb'"message"\s*:\s*\{')
_OTHERS: Final = re.compile(rb'"sessionId"|"payload"')


def roots(environ: Mapping[str, str], home: Path) -> list[Root]:
    """The sessions folder of pi's agent folder: `PI_CODING_AGENT_DIR`, else `~/.pi/agent`.

    `PI_CODING_AGENT_SESSION_DIR` names one more folder, which holds sessions without a folder each.
    """
    found: list[Root] = []
    flat = environ.get("PI_CODING_AGENT_SESSION_DIR", "").strip()
    if flat:
        found.append(Root(HARNESS, Path(flat).expanduser(), "PI_CODING_AGENT_SESSION_DIR", "flat"))
    named = environ.get("PI_CODING_AGENT_DIR", "").strip()
    agent, why = (Path(named).expanduser(), "PI_CODING_AGENT_DIR") if named else (home / ".pi" / "agent", "default")
    found.append(Root(HARNESS, agent / "sessions", why, "sessions"))
    return found


def sources(root: Root, tally: Tally) -> Iterator[Source]:
    """Every session file below a root."""
    for path in walk(root.path, tally):
        if path.suffix != _SUFFIX:
            tally.skipped["file", "not a session"] += 1
            continue
        source = source_of(HARNESS, root.path, path, tally)
        if source is not None:
            yield source


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is a session of pi: by its header, or where that is missing, by its messages."""
    if path.suffix != _SUFFIX:
        return False
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    if _OTHERS.search(first):
        return False
    if _HEADER.search(first):
        return True
    return _ENTRY.search(first) is not None and _MESSAGE.search(first) is not None


def source_at(path: Path) -> Source | None:
    """The source that a file somewhere is."""
    return source_of(HARNESS, path.parent, path, Tally()) if path.suffix == _SUFFIX else None


def reader(source: Source, cursor: Cursor | None) -> SourceReader:
    """A reader of one source. The parser is imported here: finding sources does not need it."""
    from funes_adapters.pi import parse

    return parse.reader(source, cursor)
