"""Which sessions were forgotten. Kept in the catalog, and in a file beside the memory that outlives the memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from funes_mcp.home import write_private


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A session that is never stored again.

    Attributes:
        session: Its id. Where unrelated transcripts share an id, that of the one that is meant.
        at: When it was forgotten, RFC 3339 UTC.
        why: What the person asked for (`session …`, `project …`, `before …`), or "".
        sources: Paths of the transcripts in which it stood; empty when that is not known any more.
    """

    session: str
    at: str = ""
    why: str = ""
    sources: tuple[str, ...] = ()


def path_of(folder: Path) -> Path:
    """Where the tombstones of the memory in `folder` are kept beside it."""
    return folder.with_name(f"{folder.name}.forgotten.json")


def load(folder: Path) -> dict[str, Tombstone]:
    """The tombstones in the file, by session. A file that cannot be read counts as none: the catalog has them, too."""
    try:
        entries: Any = json.loads(path_of(folder).read_bytes())
        return {
            str(entry["session"]): Tombstone(
                str(entry["session"]),
                str(entry.get("at", "")),
                str(entry.get("why", "")),
                tuple(str(path) for path in entry.get("sources", ())),
            )
            for entry in entries
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def save(folder: Path, stones: Mapping[str, Tombstone]) -> None:
    """Keep the tombstones, readable by their owner only. Raises `OSError`."""
    entries = [
        {"session": stone.session, "at": stone.at, "why": stone.why, "sources": list(stone.sources)}
        for _, stone in sorted(stones.items())
    ]
    write_private(path_of(folder), json.dumps(entries, indent=1).encode())
