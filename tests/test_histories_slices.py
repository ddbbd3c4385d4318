"""Any history of all four agents, indexed pass by pass while it grows, is the memory that one pass would make."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from histories_support import index, service
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from memory_support import rows_of, words_of
from test_hermes_parse import make, put, session

from funes_mcp.memory.catalog import Catalog
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.table import ChunkTable

WORDS = ["amber", "basil", "cedar", "delta", "ember", "fjord"]
ROLES = ["user", "assistant"]


@dataclass
class Speaker:
    """Makes up records. Every one of them is new, and says something that can be searched for."""

    draw: Callable[[Any], Any]
    count: int = 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def text(self) -> str:
        word = self.draw(st.sampled_from(WORDS))
        return f"{word} {word}{self.number()} " * self.draw(st.sampled_from([1, 1, 1, 150]))

    def time(self) -> str:
        return f"2026-03-01T{self.number() // 60 % 24:02d}:{self.count % 60:02d}:00.000Z"


@dataclass
class File:
    """A transcript as its agent writes it: whole lines, and perhaps the beginning of the next."""

    path: Path
    record: Callable[[Speaker, File], list[dict[str, Any]]]
    name: str
    lines: list[bytes] = field(default_factory=list)
    torn: bytes = b""
    next: bytes = b""

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(b"".join(line + b"\n" for line in self.lines) + self.torn)


def claude(speaker: Speaker, file: File) -> list[dict[str, Any]]:
    kind = speaker.draw(st.sampled_from(["said", "said", "reply", "tool", "queued", "title", "progress"]))
    number = speaker.number()
    base = {"sessionId": file.name, "cwd": "/home/ann/kiln", "timestamp": speaker.time(), "uuid": f"u{number}"}
    base["parentUuid"] = f"u{number - 2}"
    if speaker.draw(st.integers(0, 9)) == 0:
        del base["timestamp"]

    def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
        return {**base, "type": role, "message": {"role": role, "content": content, **more}}

    if kind == "said":
        return [said(speaker.draw(st.sampled_from(ROLES)), speaker.text())]
    if kind == "reply":
        parts = [{"type": "thinking", "thinking": speaker.text()}, {"type": "text", "text": speaker.text()}]
        return [
            {**said("assistant", [part], id=f"m{number}"), "uuid": f"u{number}-{place}"}
            for place, part in enumerate(parts)
        ]
    if kind == "tool":
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": speaker.text()}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": speaker.text()}
        return [said("assistant", [call], id=f"m{number}"), {**said("user", [result]), "uuid": f"u{number}r"}]
    if kind == "queued":
        attachment = {"type": "queued_command", "prompt": speaker.text()}
        return [{**base, "type": "attachment", "attachment": attachment}]
    if kind == "title":
        return [{"type": "custom-title", "customTitle": f"title {number}", "sessionId": file.name}]
    return [{**base, "type": "progress", "data": {}}]


def codex(speaker: Speaker, file: File) -> list[dict[str, Any]]:
    def line(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": speaker.time(), "type": kind, "payload": payload}

    if not file.lines:
        return [line("session_meta", id=file.name, cwd="/home/ann/kiln", originator="codex_exec")]
    kind = speaker.draw(st.sampled_from(["user", "assistant", "event", "call", "context"]))
    number = speaker.number()
    if kind in ROLES:
        part = {"type": "input_text" if kind == "user" else "output_text", "text": speaker.text()}
        item = line("response_item", type="message", role=kind, content=[part])
        event = line("event_msg", type="user_message" if kind == "user" else "agent_message", message=part["text"])
        return [item, event]
    if kind == "event":
        return [line("event_msg", type="user_message", message=speaker.text())]
    if kind == "call":
        call = line("response_item", type="function_call", name="shell", arguments="{}", call_id=f"c{number}")
        output = speaker.text()
        return [call, line("response_item", type="function_call_output", call_id=f"c{number}", output=output)]
    return [line("turn_context", cwd="/home/ann/kiln", model="m")]


def pi(speaker: Speaker, file: File) -> list[dict[str, Any]]:
    if not file.lines:
        return [
            {"type": "session", "version": 3, "id": file.name, "timestamp": speaker.time(), "cwd": "/home/ann/kiln"}
        ]
    number = speaker.number()
    entry = {"id": f"{number:08x}", "parentId": f"{number - 3:08x}", "timestamp": speaker.time()}
    kind = speaker.draw(st.sampled_from(["user", "assistant", "toolResult", "compaction", "model_change"]))
    if kind == "compaction":
        return [{**entry, "type": kind, "summary": speaker.text()}]
    if kind == "model_change":
        return [{**entry, "type": kind, "modelId": "m"}]
    message = {"role": kind, "content": [{"type": "text", "text": speaker.text()}]}
    if kind == "toolResult":
        message |= {"toolCallId": "c", "toolName": "bash"}
    return [{**entry, "type": "message", "message": message}]


def hermes(speaker: Speaker, database: sqlite3.Connection) -> None:
    """Something happens in the database: said, taken back, or compacted."""
    names = [row[0] for row in database.execute("select id from sessions")]
    kind = speaker.draw(st.sampled_from(["new", "say", "say", "say", "undo", "compact"])) if names else "new"
    at = 1_772_000_000.0 + speaker.number()
    if kind == "new":
        session(database, f"h{speaker.count}", started_at=at, cwd="/home/ann/kiln")
        return
    name = speaker.draw(st.sampled_from(names))
    rows = [row[0] for row in database.execute("select id from messages where session_id = ? and active", (name,))]
    if kind == "say" or not rows:
        role = speaker.draw(st.sampled_from(["user", "assistant"]))
        put(database, "messages", session_id=name, role=role, content=speaker.text(), timestamp=at)
    elif kind == "undo":
        database.execute("update messages set active = 0 where id = ?", (rows[-1],))
    else:
        kept = database.execute("select role, content, timestamp from messages where id = ?", (rows[-1],)).fetchone()
        database.execute("update messages set active = 0, compacted = 1 where session_id = ? and active", (name,))
        put(database, "messages", session_id=name, role="assistant", content=f"[CONTEXT COMPACTION] {at}", timestamp=at)
        put(database, "messages", session_id=name, role=kept[0], content=kept[1], timestamp=kept[2])


def place(home: Path, agent: str, number: int) -> File:
    if agent == "claude":
        name = f"00000000-0000-4000-8000-{number:012d}"
        return File(home / ".claude/projects/-home-ann-kiln" / f"{name}.jsonl", claude, name)
    if agent == "codex":
        name = f"00000000-0000-4000-9000-{number:012d}"
        return File(home / f".codex/sessions/2026/03/01/rollout-2026-03-01T10-00-00-{name}.jsonl", codex, name)
    name = f"00000000-0000-4000-a000-{number:012d}"
    return File(home / ".pi/agent/sessions/--home-ann-kiln--" / f"2026-03-01T10-00-00-000Z_{name}.jsonl", pi, name)


def grow(speaker: Speaker, file: File) -> None:
    """More lines; half of one may come first, and be whole the next time."""
    for record in (r for _ in range(speaker.draw(st.integers(1, 3))) for r in file.record(speaker, file)):
        line = json.dumps(record).encode()
        if file.torn:
            file.lines.append(file.torn + file.next)
            file.torn = b""
        file.lines.append(line)
    if speaker.draw(st.booleans()):
        line = json.dumps(file.record(speaker, file)[0]).encode()
        at = speaker.draw(st.integers(1, len(line)))
        file.torn, file.next = line[:at], line[at:]


def copied(speaker: Speaker, file: File, into: File) -> File:
    """A session that goes on from another's beginning, under a name of its own."""
    into.lines = [
        line.replace(file.name.encode(), into.name.encode())
        for line in file.lines[: speaker.draw(st.integers(1, max(1, len(file.lines))))]
    ]
    return into


def vectors_of(folder: Path) -> dict[str, Any]:
    parts = list(ChunkTable.open(folder).vectors())
    return {name: matrix[place] for ids, matrix in parts for place, name in enumerate(ids)}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_pass_by_pass_is_one_pass(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    home = tmp_path_factory.mktemp("home")
    speaker = Speaker(data.draw)
    database = make(home / ".hermes")
    files: list[File] = []
    for _ in range(data.draw(st.integers(3, 12))):
        action = data.draw(st.sampled_from(["new", "grow", "grow", "grow", "copy", "rewrite", "hermes", "hermes"]))
        if action == "hermes":
            hermes(speaker, database)
        elif action == "new" or not files:
            files.append(place(home, data.draw(st.sampled_from(["claude", "codex", "pi"])), len(files)))
            grow(speaker, files[-1])
        else:
            file = data.draw(st.sampled_from(files))
            if action == "grow":
                grow(speaker, file)
            elif action == "copy":
                agent = {claude: "claude", codex: "codex", pi: "pi"}[file.record]
                files.append(copied(speaker, file, place(home, agent, len(files))))
            else:
                kept = [line for line in file.lines[1:] if data.draw(st.booleans())]
                file.lines, file.torn = file.lines[:1] + kept, b""
        for file in files:
            file.write()
        if data.draw(st.booleans()):
            note(f"indexed after {action}")
            index(home)
    index(home)
    index(home, "fresh")
    sliced, fresh = home / ".funes/memory", home / "fresh/memory"
    if not (fresh / "chunks.lance").exists():
        return
    assert rows_of(sliced) == rows_of(fresh)
    one, two = vectors_of(sliced), vectors_of(fresh)
    assert one.keys() == two.keys() == rows_of(fresh).keys()
    assert all(np.allclose(one[name], two[name], atol=1e-5) for name in one)
    words = WORDS + [f"{word}{number}" for word in WORDS for number in range(speaker.count + 1)]
    assert words_of(sliced, words) == words_of(fresh, words)
    accounts = [
        {state.path: state.tally for state in Catalog(folder, writable=False).sources()} for folder in (sliced, fresh)
    ]
    for path, tally in accounts[1].items():
        assert tally.lines == tally.explained
        if not path.endswith("state.db"):  # rows that were taken back are counted as they were when they were read
            assert plain(accounts[0][path]) == plain(tally)
    left, right = MemoryReader.open(sliced), MemoryReader.open(fresh)
    assert left.counts == right.counts
    assert left.sessions() == right.sessions()
    for row in rows_of(fresh).values():
        assert left.also_in(row) == right.also_in(row)
        assert left.turns(row.session_id, row.turn_uuid, 2) == right.turns(row.session_id, row.turn_uuid, 2)
    assert [f.message for f in service(home).doctor().findings if f.state == "problem"] == []


def plain(tally: Any) -> tuple[Any, ...]:
    return tally.lines, +tally.kept, +tally.skipped, +tally.unknown, +tally.parts
