"""Recognise what this product itself put into a transcript, so that recalled text is never indexed again."""

from __future__ import annotations

import re
from typing import Final

#: Said at the top of every answer of the MCP server.
MARKER: Final = "quotes from past sessions"
#: How the prompts of `funes ask` begin; the sessions that it starts are not indexed.
ASK_OPENING: Final = "Answer from funes, the memory of past coding sessions."
#: How far into a result its marks are looked for: behind the notes that agents put before a result, but not
#: so far that a text which quotes them is taken for ours.
_HEAD: Final = 600

_SERVER: Final = "funes"
_TOOLS: Final = frozenset({"recall", "get", "status"})
#: `mcp__funes__recall`, `mcp_funes_recall`, `funes__recall`, `funes.recall`, and a plugin's
#: `mcp__plugin_funes_funes__recall`.
_OWN_NAME: Final = re.compile(r"(?:mcp__?)?(?:plugin_\w+?_)?funes(?:__?|[./:-])(?:recall|get|status)")
#: The line under each hit that says how to open it; no other program prints one.
_HIT: Final = re.compile(r"^ {2}→ get \S+ \S+ --memory \S", re.MULTILINE)


def is_own_tool(name: str | None, namespace: str | None = None) -> bool:
    """Whether a tool of ours is meant: by its full name, or by a bare one within our server's namespace."""
    if not name:
        return False
    if _OWN_NAME.fullmatch(name):
        return True
    if namespace is None or name not in _TOOLS:
        return False
    return namespace.removeprefix("mcp__").strip("_") == _SERVER


def is_own_output(text: str) -> bool:
    """Whether a tool's result is a passage that we printed, whatever the tool is called."""
    return MARKER in text[:_HEAD] or _HIT.search(text[:_HEAD]) is not None


def is_own_question(first_message: str) -> bool:
    """Whether a session that begins with this message was started by `funes ask`."""
    return first_message.lstrip().startswith(ASK_OPENING)
