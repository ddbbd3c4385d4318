"""Where Codex keeps its sessions ("rollouts"): a tree by date, an archive, plain or compressed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from funes_mcp.traces.adapter import SourceReader
from funes_mcp.traces.files import source_of, walk
from funes_mcp.traces.model import Cursor, Root, Source, Tally

HARNESS: Final = "codex"
_SUFFIXES: Final = (".jsonl", ".jsonl.zst")
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: `rollout-<local time>-<thread id>`, as Codex names the files.
_NAME: Final = re.compile(
    r"rollout-(?P<date>\d{4}-\d\d-\d\d)T(?P<time>\d\d-\d\d-\d\d)-(?P<id>.+)|rollout-(?P<bare>[0-9a-f]{8}-.+)"
)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: What the first records of a rollout hold, whatever the order of their keys.
_ENVELOPE: Final = re.compile(
    rb'"type"\s*:\s*"(?:session_meta|response_item|event_msg|turn_context|world_state)"|"record_type"\s*:\s*"state"'
)


def roots(environ: Mapping[str, str], home: Path) -> list[Root]:
    """`sessions` and `archived_sessions` of Codex' home: `CODEX_HOME`, else `~/.codex`."""
    named = environ.get("CODEX_HOME", "").strip()
    base, why = (Path(named).expanduser(), "CODEX_HOME") if named else (home / ".codex", "default")
    return [
        Root(HARNESS, base / "sessions", why, "sessions"),
        Root(HARNESS, base / "archived_sessions", why, "archived"),
    ]


def sources(root: Root, tally: Tally) -> Iterator[Source]:
    """Every rollout below a root, each session once.

    Codex compresses a rollout in place when it is a week old, and moves it when it is archived; for a
    moment both copies are there. The plain one counts, and the one that is not archived.
    """
    for path in walk(root.path, tally):
        if not path.name.endswith(_SUFFIXES):
            tally.skipped["file", "not a rollout"] += 1
            continue
        if path.suffix == ".zst" and path.with_suffix("").exists():
            tally.skipped["file", "also there uncompressed"] += 1
            continue
        if root.kind == "archived" and _unarchived(path):
            tally.skipped["file", "also there unarchived"] += 1
            continue
        source = source_of(HARNESS, root.path, path, tally)
        if source is not None:
            yield source


def claims(path: Path, head: bytes) -> bool:
    """Whether a file is a rollout: by the envelope of its first records, or by its name."""
    if head.startswith(_ZSTD_MAGIC):
        return path.name.endswith(".jsonl.zst") and path.name.startswith("rollout-")
    if not path.name.endswith(".jsonl"):
        return False
    return path.name.startswith("rollout-") or _ENVELOPE.search(head) is not None


def source_at(path: Path) -> Source | None:
    """The source that a file somewhere is."""
    return source_of(HARNESS, path.parent, path, Tally()) if path.name.endswith(_SUFFIXES) else None


def thread_of(path: Path) -> str:
    """The thread id that a rollout's name holds, else the name without its endings."""
    stem = path.name
    for suffix in reversed(_SUFFIXES):
        stem = stem.removesuffix(suffix)
    uuids = _UUID.findall(stem)
    return uuids[-1] if uuids else stem


def is_uuid(name: str) -> bool:
    """Whether a name is a thread id, of any version of UUID."""
    return _UUID.fullmatch(name) is not None


def date_of(path: Path) -> str | None:
    """The time in a rollout's name. It is local time without a zone, and taken for UTC: good to a day."""
    match = _NAME.match(path.name)
    if match is None or match["date"] is None:
        return None
    return f"{match['date']}T{match['time'].replace('-', ':')}Z"


def _unarchived(path: Path) -> bool:
    """Whether the sessions' tree still (or again) holds an archived rollout."""
    match = _NAME.match(path.name)
    if match is None or match["date"] is None:
        return False
    folder = path.parent.parent.joinpath("sessions", *match["date"].split("-"))
    plain = path.name.removesuffix(".zst")
    return (folder / plain).exists() or (folder / f"{plain}.zst").exists()


def reader(source: Source, cursor: Cursor | None) -> SourceReader:
    """A reader of one source. The parser is imported here: finding sources does not need it."""
    from funes_adapters.codex import parse

    return parse.reader(source, cursor)
