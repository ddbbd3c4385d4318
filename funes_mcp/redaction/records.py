"""Credentials in what is kept besides passages: facts of sessions, and what parsers remember between two readings."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
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


#: What ids of turns, tools and sessions look like. Parsers keep thousands, and each search has its price.
_ID: Final = re.compile(r"[\w:.-]{1,64}")


def redacted_json(value: Any, redact: Callable[[str], str], uncounted: Callable[[str], str] | None = None) -> Any:
    """A value as JSON has it, with every string in it redacted; names in objects stay.

    Args:
        uncounted: The same as `redact` without an account of what it finds: asked first about many strings at once.
    """
    ids = dict.fromkeys(text for text in _strings(value) if _ID.fullmatch(text))
    together = "\n".join(ids)
    return _redacted(value, redact, ids if (uncounted or redact)(together) == together else {})


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _redacted(value: Any, redact: Callable[[str], str], clean: Container[str]) -> Any:
    if isinstance(value, str):
        return value if value in clean or _PACKED.fullmatch(value) else redact(value)
    if isinstance(value, dict):
        return {name: _redacted(item, redact, clean) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item, redact, clean) for item in value]
    return value
