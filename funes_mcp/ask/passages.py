"""Recall's answer taken apart again: pure functions over the text that every MCP client is given."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from funes_mcp.ask.model import Passage, Recalled

_HEAD: Final = re.compile(r"\[(?P<ts>[^\]\n]*)\] (?P<harness>\S+) (?P<where>\S+) (?P<type>\S+)  score=[\d.]+")
_GET: Final = re.compile(r"  → get (?P<session>\S+) (?P<turn>\S+) --memory (?P<memory>.+)")
_NOTE: Final = "Note: "
_END: Final = "---"

#: Characters by which a session is named: eight of a random UUID, thirteen of one that begins with the time.
_RANDOM: Final = 8
_TIMED: Final = 13
#: Other ids begin with a time, too; this takes in its milliseconds.
_OTHER: Final = 24


@dataclass(slots=True)
class _Found:
    head: re.Match[str]
    get: re.Match[str]
    lines: list[str]


def parse(text: str) -> Recalled:
    """The passages of a `recall` answer. Lines in passages cannot be taken for recall's own: it marks those."""
    notes: list[str] = []
    found: list[_Found] = []
    head: re.Match[str] | None = None
    current: _Found | None = None
    for line in text.split("\n"):
        if current is not None:
            if line == _END:
                current = None
            else:
                current.lines.append(line)
        elif head is not None and (get := _GET.fullmatch(line)):
            current = _Found(head, get, [])
            found.append(current)
            head = None
        elif line.startswith(_NOTE) and not found:
            notes.append(line.removeprefix(_NOTE))
        else:
            head = _HEAD.fullmatch(line)
    names = session_names([_unquoted(each.get["session"]) for each in found])
    return Recalled(
        tuple(
            Passage(
                tag=f"{names[_unquoted(each.get['session'])]}.{number}",
                session=_unquoted(each.get["session"]),
                turn=_unquoted(each.get["turn"]),
                memory=_unquoted(each.get["memory"]),
                ts=each.head["ts"],
                harness=each.head["harness"],
                where=each.head["where"],
                block_type=each.head["type"],
                text="\n".join(each.lines),
            )
            for number, each in enumerate(found, 1)
        ),
        tuple(notes),
    )


def session_names(sessions: Sequence[str]) -> dict[str, str]:
    """A short name for each session: a prefix of its id, different from the others', that `get` understands."""
    names: dict[str, str] = {}
    for session in dict.fromkeys(sessions):
        size = _size(session)
        while size < len(session) and any(o != session and o.startswith(session[:size]) for o in sessions):
            size += 1
        names[session] = session[:size]
    return names


def _size(session: str) -> int:
    try:
        parsed = uuid.UUID(session)
    except ValueError:
        return _OTHER
    return _TIMED if parsed.version in (1, 6, 7) else _RANDOM


def _unquoted(label: str) -> str:
    try:
        words = shlex.split(label)
    except ValueError:
        return label
    return words[0] if len(words) == 1 else label
