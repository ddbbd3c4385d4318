"""However long a session is, what a parser carries from reading to reading stays small."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from funes_adapters.claude import ADAPTER as CLAUDE
from funes_adapters.codex import ADAPTER as CODEX
from funes_adapters.pi import ADAPTER as PI
from histories_support import claude_line

from funes_mcp.traces.adapter import TraceAdapter

THREAD = "00000000-0000-4000-9000-000000000001"
AT = "2026-03-01T10:00:00.000Z"
Records = Iterator[dict[str, Any]]


def claude(number: int) -> Records:
    call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "kiln"}
    yield claude_line(f"u{number}", "words", "s", parent=f"r{number - 1}")
    for uuid, role, part in ((f"a{number}", "assistant", call), (f"r{number}", "user", result)):
        yield {**claude_line(uuid, "", "s", role=role), "message": {"role": role, "id": uuid, "content": [part]}}
    yield {"type": "queue-operation", "operation": "enqueue", "content": f"queued {number}", "timestamp": AT}
    yield {"type": "progress", "uuid": f"p{number}", "parentUuid": f"r{number}", "sessionId": "s"}


def codex(number: int) -> Records:
    payloads = [
        ("event_msg", {"type": "user_message", "message": f"event {number}"}),
        ("response_item", {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": f"c{number}"}),
        ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "words"}]}),
    ]
    if number == 0:
        payloads.insert(0, ("session_meta", {"id": THREAD, "cwd": "/w"}))
    for kind, payload in payloads:
        yield {"timestamp": AT, "type": kind, "payload": payload}


def pi(number: int) -> Records:
    call = {"type": "toolCall", "id": f"c{number}", "name": "bash", "arguments": {}}
    above = f"{2 * number - 1:08x}"
    message = {"role": "assistant", "content": [call]}
    yield {"type": "message", "id": f"{2 * number:08x}", "parentId": above, "timestamp": AT, "message": message}
    yield {"type": "model_change", "id": f"{2 * number + 1:08x}", "parentId": f"{2 * number:08x}"}


def prompts(number: int) -> Records:
    where = {"project": "/gone", "sessionId": f"s{number}"}
    yield {"display": f"prompt {number}", "pastedContents": {}, "timestamp": 1_772_000_000_000 + number, **where}


@pytest.mark.parametrize(
    ("adapter", "name", "records"),
    [
        (CLAUDE, "s.jsonl", claude),
        (CODEX, f"rollout-2026-03-01T10-00-00-{THREAD}.jsonl", codex),
        (PI, "p.jsonl", pi),
        (CLAUDE, "history.jsonl", prompts),
    ],
    ids=["claude", "codex", "pi", "claude's prompts"],
)
def test_a_longer_session_needs_no_larger_state(
    tmp_path: Path, adapter: TraceAdapter, name: str, records: Callable[[int], Records]
) -> None:
    sizes = []
    for length in (1_500, 3_000):
        path = tmp_path / name
        path.write_text("".join(json.dumps(record) + "\n" for n in range(length) for record in records(n)))
        source = adapter.source_at(path)
        assert source is not None
        reader = adapter.read(source, None)
        for _ in reader:
            pass
        sizes.append(len(json.dumps(reader.cursor().state)))
        assert reader.tally.lines == reader.tally.explained
    assert sizes[1] < max(1.1 * sizes[0], 4_000)
    assert sizes[1] < 100_000
