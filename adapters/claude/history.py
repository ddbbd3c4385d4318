"""Prompts that Claude Code remembers although it deleted the session that they were typed in.

`history.jsonl` keeps every prompt for good; transcripts are deleted after 30 days by default. A prompt whose
session is gone becomes a turn of a thin session, flagged so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from funes_adapters.claude import wrappers
from funes_adapters.claude.blocks import storable

from funes_mcp.traces.model import Block, Event, SessionInfo, Tally, Turn
from funes_mcp.traces.text import clean
from funes_mcp.traces.time import to_rfc3339

HARNESS: Final = "claude_code"
VERSION: Final = 1
_SESSIONS: Final = 64

#: Given the session's id (None where the line has none), the project's path and the time of a prompt:
#: whether its transcript may still be there.
MayExist = Callable[[str | None, str | None, str | None], bool]


class HistoryParser:
    """Parser of `history.jsonl`. See `funes_mcp.traces.jsonl.RecordParser`.

    Lines of old versions name no session: those of one project and day are taken for one.
    """

    def __init__(self, state: dict[str, Any] | None, tally: Tally, may_exist: MayExist) -> None:
        self._tally, self._may_exist = tally, may_exist
        #: Turns given so far, of the sessions met last.
        self._counts: dict[str, int] = dict(state["counts"]) if state else {}
        self._told: set[str] = set()

    def state(self) -> dict[str, Any]:
        return {"counts": self._counts}

    def end(self) -> Iterable[Event]:
        return ()

    def feed(self, record: dict[str, Any], trimmed: bool) -> Iterable[Event]:
        display = record.get("display")
        if not isinstance(display, str):
            self._tally.skipped["prompt", "no record of the prompt history"] += 1
            return ()
        said = wrappers.said_by_user(_with_pastes(display, record.get("pastedContents")))
        if not said.text.strip():
            self._tally.skipped["prompt", said.reasons[0] if said.reasons else "no words"] += 1
            return ()
        if said.text.lstrip().startswith("/") and len(said.text.split()) == 1:
            self._tally.skipped["prompt", "slash command"] += 1
            return ()
        project, named = _text(record.get("project")), _text(record.get("sessionId"))
        ts = to_rfc3339(record.get("timestamp"))
        if self._may_exist(named, project, ts):
            self._tally.skipped["prompt", "its session is still there"] += 1
            return ()
        session = named or f"history-{_digest(project or '')[:8]}-{(ts or 'undated')[:10]}"
        return self._turn(session, project, ts, said.text, trimmed)

    def _turn(self, session: str, cwd: str | None, ts: str | None, text: str, trimmed: bool) -> Iterable[Event]:
        omitted: list[tuple[str, str]] = []
        block = Block("text", storable(text, omitted, "text"), 0)
        for part in omitted:
            self._tally.parts[part] += 1
        self._tally.kept["prompt"] += 1
        digest = _digest(session, ts or "", text)
        seq = self._counts.pop(session, 0)
        self._counts[session] = seq + 1
        if len(self._counts) > _SESSIONS:
            del self._counts[next(iter(self._counts))]
        if session not in self._told:
            self._told.add(session)
            yield SessionInfo(session, HARNESS, cwd=cwd, started=ts if seq == 0 else None)
        yield Turn(
            session_id=session,
            turn_uuid=f"history-{digest[:16]}",
            parent_uuid=None,
            seq=seq,
            ts=ts,
            role="user",
            blocks=(block,),
            identity=f"history:{digest}",
            flags=frozenset({"history", "trimmed"} if trimmed else {"history"}),
        )


def _with_pastes(display: str, pasted: Any) -> str:
    """The prompt with pasted text behind it, for which the display has only a placeholder."""
    if not isinstance(pasted, dict):
        return display
    texts = [p["content"] for p in pasted.values() if isinstance(p, dict) and isinstance(p.get("content"), str)]
    return "\n\n".join([display, *texts])


def _text(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) and value.strip() else None


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\x01".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
