"""Sessions that `funes ask` started are known by how they begin, in every agent's transcripts."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from funes_adapters.claude import ADAPTER as CLAUDE
from funes_adapters.codex import ADAPTER as CODEX
from funes_adapters.hermes import ADAPTER as HERMES
from funes_adapters.pi import ADAPTER as PI

from funes_mcp.ask.model import Passage
from funes_mcp.ask.prompt import build
from funes_mcp.traces.adapter import TraceAdapter
from funes_mcp.traces.model import Tally, Turn

AT = "2026-03-11T09:04:00.000Z"
SESSION = "0195c5e0-0000-7000-8000-000000000001"
QUESTION = build(
    "Which port?",
    [Passage("e81f7132.1", "e81f7132-x", "t", "local", AT, "codex", "-w/e81f7132", "text", "It is 8443.")],
).text
OTHER = "What does 'Answer from funes, the memory of past coding sessions.' mean?"


def jsonl(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def claude(folder: Path, first: str) -> Path:
    def row(role: str, text: str, uuid: str) -> dict[str, Any]:
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        return {"type": role, "uuid": uuid, "sessionId": SESSION, "timestamp": AT, "message": message}

    return jsonl(folder / f"{SESSION}.jsonl", row("user", first, "a"), row("assistant", "8443", "b"))


def codex(folder: Path, first: str) -> Path:
    def line(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": AT, "type": kind, "payload": payload}

    def message(role: str, kind: str, text: str) -> dict[str, Any]:
        return line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])

    return jsonl(
        folder / f"rollout-2026-03-11T09-04-00-{SESSION}.jsonl",
        line("session_meta", id=SESSION, timestamp=AT, cwd="/w", originator="codex_exec"),
        message("user", "input_text", "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"),
        message("user", "input_text", first),
        line("event_msg", type="user_message", message=first),
        line("event_msg", type="agent_message", message="8443"),
        message("assistant", "output_text", "8443"),
        line("event_msg", type="token_count"),
    )


def codex_events(folder: Path, first: str) -> Path:
    """As releases wrote it that record events alone."""
    events = [("user_message", first), ("agent_message", "8443")]
    return jsonl(
        folder / f"rollout-2026-03-11T09-04-00-{SESSION}.jsonl",
        {"timestamp": AT, "type": "session_meta", "payload": {"id": SESSION, "timestamp": AT, "cwd": "/w"}},
        *({"timestamp": AT, "type": "event_msg", "payload": {"type": k, "message": m}} for k, m in events),
    )


def pi(folder: Path, first: str) -> Path:
    def entry(role: str, text: str, key: str) -> dict[str, Any]:
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        return {"type": "message", "id": key, "timestamp": AT, "message": message}

    return jsonl(
        folder / f"2026-03-11T09-04-00-000Z_{SESSION}.jsonl",
        {"type": "session", "version": 3, "id": SESSION, "timestamp": AT, "cwd": "/w"},
        entry("system", "You answer.", "00"),
        entry("user", first, "aa"),
        entry("assistant", "8443", "bb"),
    )


def hermes(folder: Path, first: str) -> Path:
    path = folder / "state.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE sessions (id TEXT, source TEXT, parent_session_id TEXT, started_at REAL, cwd TEXT)")
        db.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, "
            "tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL)"
        )
        db.execute("INSERT INTO sessions VALUES ('s', 'tool', NULL, 1773219840.0, '/w')")
        for at, (role, content) in enumerate([("user", first), ("assistant", "8443")]):
            db.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s', ?, ?, ?)",
                (role, content, 1773219840.5 + at),
            )
    return path


def read(adapter: TraceAdapter, path: Path) -> tuple[list[Turn], Tally]:
    source = adapter.source_at(path)
    assert source is not None
    reader = adapter.read(source, None)
    turns = [event for event in reader if isinstance(event, Turn)]
    assert reader.tally.explained == reader.tally.lines
    return turns, reader.tally


WRITERS = [(CLAUDE, claude), (CODEX, codex), (CODEX, codex_events), (PI, pi), (HERMES, hermes)]


@pytest.mark.parametrize(("adapter", "write"), WRITERS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_question_of_ours_and_its_answer_are_not_turns(adapter: TraceAdapter, write: Any, tmp_path: Path) -> None:
    turns, tally = read(adapter, write(tmp_path, QUESTION))
    assert turns == []
    assert sum(count for (_, reason), count in tally.skipped.items() if reason == "our own question") >= 2


@pytest.mark.parametrize(("adapter", "write"), WRITERS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_question_about_ours_is_a_turn(adapter: TraceAdapter, write: Any, tmp_path: Path) -> None:
    turns, _ = read(adapter, write(tmp_path, OTHER))
    assert [block.text for turn in turns for block in turn.blocks] == [OTHER, "8443"]
