"""Credentials in what is kept besides passages: facts of sessions, and what parsers remember between two readings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from funes_mcp.traces.model import SessionInfo

#: The fields of a session that are words of a person or a machine, and no ids.
WORDS: Final = ("title", "cwd", "branch", "agent_name", "originator")

#: Packed digests, which no credential is told from; parsers keep those.
_PACKED: Final = re.compile(r"[A-Za-z0-9+/]{64,}={0,2}")


def redacted_info(info: SessionInfo, redact: Callable[[str], str]) -> SessionInfo:
    """The facts of a session without credentials; the same object when there are none."""
    changed: dict[str, Any] = {}
    for name in WORDS:
        value = getattr(info, name)
        if value and (clean := redact(value)) != value:
            changed[name] = clean
    return replace(info, **changed) if changed else info


def redacted_json(value: Any, redact: Callable[[str], str]) -> Any:
    """A value as JSON has it, with every string in it redacted; names in objects stay."""
    if isinstance(value, str):
        return value if _PACKED.fullmatch(value) else redact(value)
    if isinstance(value, dict):
        return {name: redacted_json(item, redact) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_json(item, redact) for item in value]
    return value
