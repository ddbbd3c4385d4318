"""Agents' folders in a home of their own, and a memory of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from funes_mcp.home import FunesHome
from funes_mcp.models import IndexReport, IndexRequest
from funes_mcp.redaction import Redactor
from funes_mcp.service import IndexService

#: Long ago enough for a transcript to be due for reading.
LONG_AGO = 1_790_000_000


@cache
def _loaded() -> dict[str, Any]:
    """What is slow to load, and the same for every memory."""
    first = IndexService(FunesHome(Path("/nowhere")), {})
    made: dict[str, Any] = {name: getattr(first, name) for name in ("_embedder", "_reranker")}
    return {**made, "_redactor": Redactor(library=False)}


def service(home: Path, memory: str = ".funes") -> IndexService:
    made = IndexService(FunesHome(home / memory), {"HOME": str(home)}, lock_wait=0.0)
    made.__dict__.update(_loaded())
    return made


def index(home: Path, memory: str = ".funes", **request: Any) -> IndexReport:
    return service(home, memory).index(IndexRequest(**request))


def claude_line(uuid: str, text: str, session: str, **more: Any) -> dict[str, Any]:
    role = more.pop("role", "user")
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": more.pop("parent", None),
        "sessionId": session,
        "cwd": more.pop("cwd", "/home/ann/kiln"),
        "timestamp": more.pop("ts", "2026-05-01T10:00:00.000Z"),
        "message": {"role": role, "content": text},
        **more,
    }


def write(path: Path, records: Iterable[Any], when: float | None = LONG_AGO) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    if when is not None:
        os.utime(path, (when, when))
    return path


def claude_file(home: Path, session: str, *texts: str, project: str = "-home-ann-kiln", **more: Any) -> Path:
    lines = [claude_line(f"{session}-{n}", text, session) for n, text in enumerate(texts)]
    return write(home / ".claude" / "projects" / project / f"{session}.jsonl", lines, **more)
