"""Where Claude Code's sessions are looked for, and what is passed over there."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from funes_adapters.claude import ADAPTER

from funes_mcp.traces.model import Root, SessionInfo, Source, Tally, Turn

SESSION = "11111111-2222-4333-8444-555555555555"
GONE = "99999999-2222-4333-8444-555555555555"
LINE = json.dumps({"type": "user", "uuid": "u1", "sessionId": SESSION, "message": {"role": "user", "content": "hi"}})


def put(path: Path, text: str = LINE + "\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def found(folder: Path) -> tuple[list[Source], Tally]:
    tally = Tally()
    sources = list(ADAPTER.sources(Root("claude_code", folder, "test", "projects"), tally))
    return sources, tally


def test_the_configured_folder_is_honoured_and_blank_means_unset(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    for environ, base, why in (
        ({}, home / ".claude", "default"),
        ({"CLAUDE_CONFIG_DIR": "  "}, home / ".claude", "default"),
        ({"CLAUDE_CONFIG_DIR": str(other)}, other, "CLAUDE_CONFIG_DIR"),
    ):
        roots = ADAPTER.roots(environ, home)
        assert [(r.path, r.why, r.kind) for r in roots] == [
            (base / "projects", why, "projects"),
            (base / "history.jsonl", why, "history"),
        ]


def test_no_folder_is_no_trouble(tmp_path: Path) -> None:
    sources, tally = found(tmp_path / "nowhere")
    assert (sources, tally.skipped) == ([], {})


def test_everything_in_the_folder_is_read_or_counted(tmp_path: Path) -> None:
    project = tmp_path / "-home-ada-tidepool"
    agents = project / SESSION / "subagents"
    read = [
        put(project / f"{SESSION}.jsonl"),
        put(project / "agent-1111111.jsonl"),
        put(agents / "agent-2222222.jsonl"),
        put(agents / "workflows" / "wf1" / "agent-3333333.jsonl"),
        put(project / GONE / "subagents" / "agent-4444444.jsonl"),
    ]
    put(agents / "agent-2222222.meta.json", "{}")
    put(agents / "workflows" / "wf1" / "journal.jsonl")
    put(project / SESSION / "tool-results" / "t1.txt", "text")
    put(project / SESSION / "tool-results" / "t2.jsonl")
    put(project / "memory" / "MEMORY.md", "notes")
    put(project / "sessions-index.json", "{}")
    put(project / "empty.jsonl", "")
    put(project / "picture.png", "x")
    sources, tally = found(tmp_path)
    assert {s.path for s in sources} == set(read)
    assert tally.skipped == {
        ("file", "description of a subagent"): 1,
        ("file", "journal of a workflow"): 1,
        ("file", "result kept in a file of its own"): 2,
        ("file", "notes of the agent"): 1,
        ("file", "list of sessions"): 1,
        ("file", "empty"): 1,
        ("file", "no transcript"): 1,
    }


def test_a_session_of_which_only_subagents_are_left_is_linked(tmp_path: Path) -> None:
    put(tmp_path / "p" / GONE / "subagents" / "agent-4444444.jsonl")
    (source,), _ = found(tmp_path)
    info = next(e for e in ADAPTER.read(source, None) if isinstance(e, SessionInfo))
    assert (info.session_id, info.parent_session_id, info.relation) == ("agent-4444444", GONE, "subagent")


def test_linked_folders_are_followed_once_and_loops_end(tmp_path: Path) -> None:
    dotfiles = tmp_path / "dotfiles" / "projects"
    put(dotfiles / "-home-ada-tidepool" / f"{SESSION}.jsonl")
    root = tmp_path / ".claude" / "projects"
    root.parent.mkdir()
    root.symlink_to(dotfiles)
    (dotfiles / "-other-name").symlink_to(dotfiles / "-home-ada-tidepool")
    (dotfiles / "-home-ada-tidepool" / "loop").symlink_to(dotfiles)
    (dotfiles / "-home-ada-tidepool" / "copy.jsonl").symlink_to(dotfiles / "-home-ada-tidepool" / f"{SESSION}.jsonl")
    (dotfiles / "-home-ada-tidepool" / "dangling.jsonl").symlink_to(tmp_path / "gone")
    sources, tally = found(root)
    assert [s.path for s in sources] == [dotfiles / "-home-ada-tidepool" / f"{SESSION}.jsonl"]
    assert tally.skipped["file", "reached twice"] == 1
    assert sum(n for (kind, _), n in tally.skipped.items() if kind == "file") == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_costs_only_itself(tmp_path: Path) -> None:
    put(tmp_path / "a" / f"{SESSION}.jsonl")
    put(tmp_path / "b" / f"{GONE}.jsonl")
    (tmp_path / "b").chmod(0)
    try:
        sources, tally = found(tmp_path)
    finally:
        (tmp_path / "b").chmod(0o700)
    assert len(sources) == 1
    assert tally.skipped.total() == 1


def test_the_same_name_in_two_projects_is_two_sources(tmp_path: Path) -> None:
    put(tmp_path / "alpha" / "session-1.jsonl")
    put(tmp_path / "beta" / "session-1.jsonl", LINE.replace("hi", "ho") + "\n")
    sources, _ = found(tmp_path)
    identities = {e.identity for s in sources for e in ADAPTER.read(s, None) if isinstance(e, Turn)}
    assert len(sources) == len(identities) == 2


@pytest.mark.parametrize(
    ("head", "ours"),
    [
        (LINE, True),
        ('{"type":"summary","summary":"x","leafUuid":"y"}', True),
        ("not json\n" + LINE, True),
        ('{"display":"hi","pastedContents":{},"timestamp":1,"project":"/p"}', True),
        ('{"type":"session_meta","payload":{"id":"x"}}', False),
        ('{"type":"session","version":3,"id":"x","cwd":"/"}', False),
        ('{"type":"message","id":"x","message":{"role":"user"}}', False),
        ('{"a":1}', False),
        ("\x00\x01\x02", False),
    ],
)
def test_a_named_file_is_recognised_by_what_it_holds(head: str, ours: bool) -> None:
    assert ADAPTER.claims(Path("/x/some.jsonl"), head.encode()) is ours
    assert not ADAPTER.claims(Path("/x/some.txt"), head.encode())


def test_sessions_of_the_desktop_program_are_named_after_their_folders(tmp_path: Path) -> None:
    line = (
        '{"type":"user","_audit_timestamp":"2026-03-01T10:00:00Z","uuid":"u","message":{"role":"user","content":"hi"}}'
    )
    put(tmp_path / "local_1" / "audit.jsonl", line)
    put(tmp_path / "local_2" / "audit.jsonl", line)
    sources, _ = found(tmp_path)
    turns = [e for s in sources for e in ADAPTER.read(s, None) if isinstance(e, Turn)]
    assert [(t.session_id, t.ts) for t in turns] == [
        ("local_1", "2026-03-01T10:00:00.000Z"),
        ("local_2", "2026-03-01T10:00:00.000Z"),
    ]


# Prompts of sessions that are gone


def prompt(text: str, **more: Any) -> str:
    return json.dumps(
        {"display": text, "pastedContents": {}, "timestamp": 1772359200000, "project": "/home/ada/tidepool", **more}
    )


def history(tmp_path: Path, *lines: str) -> tuple[list[Turn], list[SessionInfo], Tally]:
    put(tmp_path / "history.jsonl", "\n".join(lines) + "\n")
    tally = Tally()
    (source,) = ADAPTER.sources(Root("claude_code", tmp_path / "history.jsonl", "test", "history"), tally)
    reader = ADAPTER.read(source, None)
    events = list(reader)
    assert reader.tally.explained == reader.tally.lines == len(lines)
    turns = [e for e in events if isinstance(e, Turn)]
    return turns, [e for e in events if isinstance(e, SessionInfo)], reader.tally


def test_prompts_of_deleted_sessions_become_thin_sessions(tmp_path: Path) -> None:
    put(tmp_path / "projects" / "-home-ada-tidepool" / f"{SESSION}.jsonl")
    turns, infos, tally = history(
        tmp_path,
        prompt("still there", sessionId=SESSION),
        prompt("why does the gauge drift?", sessionId=GONE),
        prompt("see [Pasted text #1]", sessionId=GONE, pastedContents={"1": {"type": "text", "content": "gauge.log"}}),
        prompt("/exit", sessionId=GONE),
        prompt("  ", sessionId=GONE),
        "torn",
    )
    assert [(t.session_id, t.seq, t.role, t.blocks[0].text) for t in turns] == [
        (GONE, 0, "user", "why does the gauge drift?"),
        (GONE, 1, "user", "see [Pasted text #1]\n\ngauge.log"),
    ]
    assert all(t.flags == {"history"} and t.ts == "2026-03-01T10:00:00.000Z" for t in turns)
    assert [(i.session_id, i.cwd) for i in infos] == [(GONE, "/home/ada/tidepool")]
    assert tally.skipped == {
        ("prompt", "its session is still there"): 1,
        ("prompt", "slash command"): 1,
        ("prompt", "no words"): 1,
        ("line", "torn line"): 1,
    }


def test_prompts_that_name_no_session_are_taken_when_none_can_hold_them(tmp_path: Path) -> None:
    kept = put(tmp_path / "projects" / "-home-ada-tidepool" / f"{SESSION}.jsonl")
    before, after = 1772359200000 - 86_400_000, 1772359200000 + 86_400_000
    os.utime(kept, (1772359200, 1772359200))
    turns, infos, _ = history(tmp_path, prompt("old", timestamp=before), prompt("new", timestamp=after))
    assert [t.blocks[0].text for t in turns] == ["new"], "a session written to after a prompt may hold it"
    assert infos[0].session_id.startswith("history-")
    assert infos[0].session_id.endswith("2026-03-02")


def test_a_fresh_prompt_waits_for_its_transcript(tmp_path: Path) -> None:
    turns, _, _ = history(tmp_path, prompt("just now", sessionId=GONE, timestamp=time.time_ns() // 1_000_000))
    assert turns == []


def test_the_prompt_history_grows(tmp_path: Path) -> None:
    path = put(tmp_path / "history.jsonl", prompt("one", sessionId=GONE) + "\n")
    source = ADAPTER.source_at(path)
    assert source is not None
    assert source.kind == "history"
    first = ADAPTER.read(source, None)
    assert len(list(first)) == 2
    with path.open("a") as file:
        file.write(prompt("two", sessionId=GONE) + "\n")
    turns = [e for e in ADAPTER.read(source, first.cursor()) if isinstance(e, Turn)]
    assert [(t.seq, t.blocks[0].text) for t in turns] == [(1, "two")]
