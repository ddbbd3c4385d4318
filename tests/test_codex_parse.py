"""Codex' rollouts: every form in which a message was ever recorded, and what no person said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from funes_adapters.codex import ADAPTER
from hypothesis import given, settings
from hypothesis import strategies as st

from funes_mcp.traces.adapter import SourceReader
from funes_mcp.traces.model import Cursor, SessionInfo, Tally, Turn

SID = "01901e00-0000-7000-8000-000000000001"
PARENT = "01900000-0000-7000-8000-000000000000"
STEM = f"rollout-2024-06-16T06-53-41-{SID}"
AT = "2024-06-16T06:53:41.000Z"

Record = dict[str, Any]


def line(kind: str, payload: Record, at: str = AT, **more: Any) -> Record:
    return {"timestamp": at, "type": kind, "payload": payload, **more}


def meta(sid: str | None = SID, at: str = AT, **more: Any) -> Record:
    named = {} if sid is None else {"id": sid}
    return line(
        "session_meta", {**named, "timestamp": at, "cwd": "/home/u/funes", "originator": "codex_exec", **more}, at
    )


def item(at: str = AT, **payload: Any) -> Record:
    return line("response_item", payload, at)


def message(role: str, *texts: str, at: str = AT, **more: Any) -> Record:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(at, type="message", role=role, content=[{"type": kind, "text": text} for text in texts], **more)


def event(kind: str, at: str = AT, **payload: Any) -> Record:
    return line("event_msg", {"type": kind, **payload}, at)


def call(name: str, arguments: Any = "{}", call_id: str = "c1", **more: Any) -> Record:
    return item(type="function_call", name=name, arguments=arguments, call_id=call_id, **more)


def output(value: Any, call_id: str = "c1") -> Record:
    return item(type="function_call_output", call_id=call_id, output=value)


def write(folder: Path, records: Iterable[Record | str], name: str = f"{STEM}.jsonl") -> Path:
    path = folder / name
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
    return path


def read_path(path: Path, cursor: Cursor | None = None) -> tuple[list[Turn], SessionInfo | None, SourceReader]:
    source = ADAPTER.source_at(path)
    assert source is not None
    reader = ADAPTER.read(source, cursor)
    turns: list[Turn] = []
    info = None
    for found in reader:
        if isinstance(found, SessionInfo):
            info = found
        else:
            assert turns or info or cursor  # a session is introduced before its first turn
            turns.append(found)
    assert reader.tally.explained == reader.tally.lines
    assert not [kind for kind in reader.tally.unknown if "Error" in kind]
    return turns, info, reader


def read(folder: Path, *records: Record | str, name: str = f"{STEM}.jsonl") -> tuple[list[Turn], Tally, SessionInfo]:
    turns, info, reader = read_path(write(folder, records, name))
    assert info is not None
    return turns, reader.tally, info


def said(turns: Iterable[Turn]) -> list[tuple[str, str]]:
    return [(block.type, block.text) for turn in turns for block in turn.blocks]


# Items


def test_items_become_turns_with_the_ids_of_the_rust_funes(tmp_path: Path) -> None:
    turns, _, info = read(
        tmp_path,
        meta(),
        message("user", "why did we drop it?"),
        item(type="reasoning", summary=[{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]),
        call("exec_command", '{"cmd":"ls"}'),
        output("file.txt"),
        item(type="custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2"),
        item(type="custom_tool_call_output", call_id="c2", output="done"),
        message("assistant", "because", "of that"),
    )
    assert [(t.turn_uuid, t.seq, t.role) for t in turns] == [
        (f"{SID}-0", 0, "user"),
        (f"{SID}-1", 1, "assistant"),
        (f"{SID}-2", 2, "assistant"),
        (f"{SID}-3", 3, "tool"),
        (f"{SID}-4", 4, "assistant"),
        (f"{SID}-5", 5, "tool"),
        (f"{SID}-6", 6, "assistant"),
    ]
    assert said(turns) == [
        ("text", "why did we drop it?"),
        ("thinking", "a\nb"),
        ("tool_use", '{"cmd":"ls"}'),
        ("tool_result", "file.txt"),
        ("tool_use", "*** Begin Patch"),
        ("tool_result", "done"),
        ("text", "because"),
        ("text", "of that"),
    ]
    assert [b.tool_name for t in turns for b in t.blocks] == [
        None,
        None,
        "exec_command",
        "exec_command",
        "apply_patch",
        "apply_patch",
        None,
        None,
    ]
    assert [b.idx for b in turns[-1].blocks] == [0, 1]
    assert (info.session_id, info.cwd, info.started, info.originator) == (SID, "/home/u/funes", AT, None)
    assert turns[0].ts == AT
    assert len({t.identity for t in turns}) == len(turns)


def test_what_is_passed_over_still_counts(tmp_path: Path) -> None:
    """The id of a turn tells how many items came before it, indexed or not."""
    turns, tally, _ = read(
        tmp_path,
        meta(),
        message("developer", "be nice"),
        message("user", "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"),
        item(type="reasoning", summary=[], encrypted_content="gAAAA"),
        item(type="web_search_call", action={"type": "search", "query": "q"}),
        output(""),
        message("user", "hello"),
    )
    assert [(t.turn_uuid, t.seq) for t in turns] == [(f"{SID}-1.001", 1), (f"{SID}-2", 2)]
    assert tally.skipped["response_item/message", "developer message"] == 1
    assert tally.skipped["response_item/message", "environment"] == 1
    assert tally.skipped["response_item/reasoning", "encrypted"] == 1


AGENTS = "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nuse tabs\n</INSTRUCTIONS>"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (AGENTS, None),
        (f"{AGENTS}\n<environment_context>x</environment_context>", None),
        (f"{AGENTS}\n\nfix the bug", "fix the bug"),
        ("<user_instructions>\nuse tabs\n</user_instructions>", None),
        ("<user_shell_command>\n<command>ls</command>\n</user_shell_command>", None),
        ('<hook_prompt hook_run_id="1">do more</hook_prompt>', None),
        ("<skill>\n<name>x</name>\n</skill>", None),
        ('<subagent_notification>\n{"a":1}\n</subagent_notification>', None),
        ("<turn_aborted>\ninterrupted\n</turn_aborted>", None),
        ("why is <environment_context> in there?", "why is <environment_context> in there?"),
        ("<environment_context> is what I mean", "<environment_context> is what I mean"),
        ("# AGENTS.md instructions are wrong, fix them", "# AGENTS.md instructions are wrong, fix them"),
        ("# Context from my IDE setup:\n\n## Active file: a\n\n## My request for Codex:\nlist files", "list files"),
        ("## My request for Codex:\nlist files", "list files"),
        ("  indented\n", "  indented\n"),
    ],
)
def test_what_the_program_says_in_the_users_name(tmp_path: Path, text: str, words: str | None) -> None:
    turns, tally, _ = read(tmp_path, meta(), message("user", text), message("assistant", "ok"))
    assert said(turns) == [*([] if words is None else [("text", words)]), ("text", "ok")]
    assert turns[-1].turn_uuid == f"{SID}-1"
    if words is None:
        assert sum(tally.skipped.values()) == 2  # the session's facts, and this


def test_the_kinds_that_codex_notes_tell_the_users_words(tmp_path: Path) -> None:
    noted = {"content_item_kinds": ["environments.environment_context", "user.text"]}
    turns, tally, _ = read(
        tmp_path,
        meta(),
        message("user", "no wrapper", "<skill>quoted</skill>", internal_chat_message_metadata_passthrough=noted),
    )
    assert [(b.text, b.idx) for b in turns[0].blocks] == [("<skill>quoted</skill>", 1)]
    assert tally.parts["text", "environment"] == 1


def test_images_leave_no_block(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64," + "QUJD" * 400}
    content = [
        {"type": "input_text", "text": "see"},
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        image,
        {"type": "input_text", "text": "</image>"},
    ]
    turns, tally, _ = read(
        tmp_path,
        meta(),
        item(type="message", role="user", content=content),
        item(type="message", role="user", content=[image]),
    )
    assert [(b.text, b.idx) for b in turns[0].blocks] == [("see", 0)]
    assert tally.skipped["response_item/message", "image"] == 1
    assert tally.parts["text", "image"] == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb"),
        (
            [{"type": "input_text", "text": "Wall time: 0.0036 seconds\nOutput:"}, {"type": "input_text", "text": "x"}],
            "x",
        ),
        ([{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "data:"}], "x"),
        ({"output": "Success.", "metadata": {"exit_code": 0}}, "Success."),
        ({"content": "text", "success": True}, "text"),
        ('{"output":"a\\nb","metadata":{"exit_code":0}}', "a\nb"),
        ('{"output": 1}', '{"output": 1}'),
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\nx", "Chunk ID: 1\nProcess exited with code 0\nOutput:\nx"),
        ({"other": 1}, '{"other":1}'),
        (12, "12"),
    ],
)
def test_outputs_in_each_form(tmp_path: Path, value: Any, text: str) -> None:
    turns, _, _ = read(tmp_path, meta(), call("x"), output(value), message("user", "y"))
    assert said(turns)[1] == ("tool_result", text)
    assert turns[1].turn_uuid == f"{SID}-1"


def test_an_output_of_images_only(tmp_path: Path) -> None:
    turns, tally, _ = read(
        tmp_path, meta(), output([{"type": "input_image", "image_url": "data:"}]), message("user", "y")
    )
    assert said(turns) == [("text", "y")]
    assert turns[0].turn_uuid == f"{SID}-1"  # the Rust funes stores the array as text
    assert tally.parts["tool_result", "image"] == 1


def test_calls_in_each_form(tmp_path: Path) -> None:
    turns, _, _ = read(
        tmp_path,
        meta(),
        call("search", {"q": "é"}, namespace="mcp__docs"),
        call("x", None, namespace="multi_agent_v1"),
        item(type="local_shell_call", call_id="c3", action={"type": "exec", "command": ["ls"]}),
        output("file", "c3"),
        item(type="message", role="assistant", content=None, function_call={"name": "shell", "arguments": "{}"}),
        item(type="message", role="function", name="shell", content="done"),
    )
    assert [(b.tool_name, b.text) for t in turns for b in t.blocks] == [
        ("mcp__docs__search", '{"q":"é"}'),
        ("x", "{}"),
        ("local_shell", '{"type":"exec","command":["ls"]}'),
        ("local_shell", "file"),
        ("shell", "{}"),
        ("shell", "done"),
    ]
    assert [t.turn_uuid for t in turns] == [f"{SID}-{n}" for n in ("0", "1", "1.001", "2", "2.001", "3")]


def test_our_own_answers_are_never_indexed(tmp_path: Path) -> None:
    turns, tally, _ = read(
        tmp_path,
        meta(),
        call("recall", '{"query":"q"}', namespace="mcp__funes"),
        output([{"type": "input_text", "text": "an old passage"}]),
        call("exec_command", "{}", "c2"),
        output("[2024-06-16] codex w\n  → get s t --memory local\nan old passage", "c2"),
        call("recall", "{}", "c3"),
        output("another's tool of this name", "c3"),
    )
    assert [text for kind, text in said(turns) if kind == "tool_result"] == ["another's tool of this name"]
    assert tally.skipped["response_item/function_call_output", "our own answer"] == 2
    assert turns[-1].turn_uuid == f"{SID}-5"


@pytest.mark.parametrize(
    ("payload", "texts"),
    [
        ({"summary": [{"type": "summary_text", "text": "a"}], "encrypted_content": "gAAAA"}, ["a"]),
        ({"summary": "a"}, ["a"]),
        ({"summary": ["a", "b"]}, ["a\nb"]),
        ({"summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]}, ["raw"]),
        (
            {"summary": [{"type": "summary_text", "text": "a"}], "content": [{"type": "text", "text": "raw"}]},
            ["a", "raw"],
        ),
        ({"summary": [], "content": None, "encrypted_content": "gAAAA"}, []),
        ({"summary": None}, []),
    ],
)
def test_reasoning_in_each_form(tmp_path: Path, payload: Record, texts: list[str]) -> None:
    turns, _, _ = read(tmp_path, meta(), item(type="reasoning", **payload), message("user", "x"))
    assert said(turns)[:-1] == [("thinking", text) for text in texts]
    assert "gAAAA" not in str(turns)


def test_a_compaction_gives_its_summary_and_not_the_history_again(tmp_path: Path) -> None:
    history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    turns, tally, _ = read(
        tmp_path,
        meta(),
        message("user", "hello"),
        line("compacted", {"message": "We chose sqlite.", "replacement_history": history}),
        message("assistant", "The summary as a message."),
        line("compacted", {"message": "A prefix.\nThe summary as a message.", "replacement_history": history}),
        line("compacted", {"message": "", "replacement_history": history}),
    )
    assert said(turns) == [("text", "hello"), ("summary", "We chose sqlite."), ("text", "The summary as a message.")]
    assert (turns[1].flags, turns[1].role) == ({"summary"}, "system")
    assert (turns[1].turn_uuid, turns[2].turn_uuid) == (f"{SID}-0.001", f"{SID}-1")
    assert tally.parts["summary", "repeated history"] == 3
    assert tally.skipped["compacted", "recorded twice"] == 1


# Recorded as items, as events, or as both


def test_both_recordings_are_one_turn(tmp_path: Path) -> None:
    """An item comes before the user's event, and behind the assistant's."""
    turns, tally, _ = read(
        tmp_path,
        meta(),
        message("user", "hello"),
        event("user_message", message="hello"),
        event("agent_reasoning", text="thinking"),
        item(type="reasoning", summary=[{"type": "summary_text", "text": "thinking"}]),
        event("agent_message", message="hi"),
        event("token_count", info={}),
        message("assistant", "hi"),
        message("user", "hello"),
        event("user_message", message="hello"),
    )
    assert said(turns) == [("text", "hello"), ("thinking", "thinking"), ("text", "hi"), ("text", "hello")]
    assert [t.turn_uuid for t in turns] == [f"{SID}-{n}" for n in range(4)]
    assert sum(n for (_, why), n in tally.skipped.items() if why == "recorded twice") == 4


def test_events_alone_are_turns(tmp_path: Path) -> None:
    turns, _, _ = read(
        tmp_path,
        meta(),
        event("user_message", message="hello"),
        event("agent_reasoning", text="hm"),
        event("agent_message", message="hi"),
        event("user_message", message="hello"),
    )
    assert said(turns) == [("text", "hello"), ("thinking", "hm"), ("text", "hi"), ("text", "hello")]
    assert [t.seq for t in turns] == [0, 1, 2, 3]
    assert [t.turn_uuid for t in turns] == sorted({t.turn_uuid for t in turns})


def test_an_event_that_no_item_repeats_is_a_turn_in_its_place(tmp_path: Path) -> None:
    turns, _, _ = read(
        tmp_path,
        meta(),
        message("assistant", "before"),
        event("user_message", message="only an event"),
        call("x"),
        event("agent_message", message="and another"),
        event("task_complete"),
    )
    assert said(turns) == [("text", "before"), ("text", "only an event"), ("tool_use", "{}"), ("text", "and another")]
    assert [(t.turn_uuid, t.seq) for t in turns] == [
        (f"{SID}-0", 0),
        (f"{SID}-0.001", 0),
        (f"{SID}-1", 1),
        (f"{SID}-1.001", 1),
    ]


def test_the_first_message_as_an_event_before_its_item(tmp_path: Path) -> None:
    turns, _, _ = read(
        tmp_path,
        meta(),
        event("user_message", message="hello"),
        message("user", "hello"),
        message("assistant", "hi"),
    )
    assert said(turns) == [("text", "hello"), ("text", "hi")]
    assert turns[1].turn_uuid == f"{SID}-1"


def test_the_first_releases_wrote_no_envelope(tmp_path: Path) -> None:
    turns, tally, info = read(
        tmp_path,
        {"id": SID, "timestamp": AT, "instructions": None, "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        {"record_type": "state"},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"output":"x","metadata":{}}'},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
    )
    assert said(turns) == [("text", "hello"), ("tool_use", "{}"), ("tool_result", "x"), ("text", "hi")]
    assert (info.session_id, info.started, info.branch) == (SID, AT, "main")
    assert {t.ts for t in turns} == {None}
    assert tally.unknown == {}


# Forks and subagents


def copied_history(at: str, turn: str) -> list[Record]:
    return [
        event("task_started", at, turn_id=turn),
        message("user", "the parent's question", at=at),
        event("user_message", at, message="the parent's question"),
        message("assistant", "the parent's answer", at=at),
        event("task_complete", at, turn_id=turn),
    ]


@pytest.mark.parametrize(
    ("old", "new", "begin", "late"),
    [  # turn ids that tell, none at all, and others
        ("01900000-1111-7000-8000-000000000000", "01901e00-2222-7000-8000-000000000000", AT, AT),
        ("", "", "2024-06-16T06:53:42.500Z", "2024-06-16T06:53:42.500Z"),
        ("turn-1", "turn-2", "2024-06-16T06:53:41.010Z", "2024-06-16T06:53:41.010Z"),
    ],
)
def test_a_copied_history_is_left_to_the_parent(tmp_path: Path, old: str, new: str, begin: str, late: str) -> None:
    spawn = {"parent_thread_id": PARENT, "agent_nickname": "Euler"}
    turns, tally, info = read(
        tmp_path,
        meta(forked_from_id=PARENT, source={"subagent": {"thread_spawn": spawn}}),
        meta(PARENT),
        *copied_history(AT, old),
        event("task_started", begin, turn_id=new),
        message("user", "the task", at=late),
        message("assistant", "done", at=late),
    )  # fmt: skip
    assert [(t.turn_uuid, t.blocks[0].text) for t in turns] == [(f"{SID}-2", "the task"), (f"{SID}-3", "done")]
    assert (info.session_id, info.parent_session_id, info.relation, info.agent_name) == (
        SID, PARENT, "subagent", "Euler",
    )  # fmt: skip
    assert sum(n for (_, why), n in tally.skipped.items() if why.startswith("copied")) == 6


@pytest.mark.parametrize("more", [{}, {"history_base": {"thread_id": PARENT}}])
def test_a_fork_that_copies_nothing_is_all_its_own(tmp_path: Path, more: Record) -> None:
    turns, _, info = read(tmp_path, meta(forked_from_id=PARENT, **more), message("user", "another way"))
    assert said(turns) == [("text", "another way")]
    assert (info.parent_session_id, info.relation) == (PARENT, "fork")


def test_a_subagent_without_a_copy(tmp_path: Path) -> None:
    turns, _, info = read(
        tmp_path,
        meta(session_id=PARENT, parent_thread_id=PARENT, thread_source="subagent", agent_role="explorer"),
        message("user", "the task"),
    )
    assert len(turns) == 1
    assert (info.session_id, info.parent_session_id, info.relation, info.agent_name) == (
        SID, PARENT, "subagent", "explorer",
    )  # fmt: skip


def test_a_review_is_a_subagent_of_nobody_named(tmp_path: Path) -> None:
    _, _, info = read(tmp_path, meta(source={"subagent": "review"}), message("user", "x"))
    assert (info.relation, info.agent_name, info.parent_session_id) == ("subagent", "review", None)


# Facts


def test_facts_of_the_checkout_and_the_thread(tmp_path: Path) -> None:
    git = {"repository_url": "git@github.com:huggingface/funes.git", "branch": "main", "commit_hash": "abc"}
    _, _, info = read(
        tmp_path,
        meta(git=git, originator="opencode"),
        message("user", "x"),
        event("thread_name_updated", thread_name="A title"),
    )
    assert (info.repo, info.branch, info.commit) == ("huggingface/funes", "main", "abc")
    assert (info.originator, info.title) == ("opencode", "A title")


def test_a_broken_first_line_costs_only_itself(tmp_path: Path) -> None:
    turns, tally, info = read(
        tmp_path,
        '{"timestamp":"2024-06-16T06:53:41.000Z","type":"session_meta","payload":{"id":"019',
        line("turn_context", {"cwd": "/home/u/funes"}),
        message("user", "hello"),
    )
    assert [t.turn_uuid for t in turns] == [f"{SID}-0"]
    assert (info.session_id, info.cwd) == (SID, "/home/u/funes")
    assert info.started is not None
    assert tally.skipped["line", "torn line"] == 1


def test_turns_know_when_they_are_said_in_another_folder(tmp_path: Path) -> None:
    turns, _, info = read(
        tmp_path,
        meta(),
        line("turn_context", {"cwd": "/home/u/one"}),
        message("user", "a"),
        line("turn_context", {"cwd": "/home/u/two"}),
        message("user", "b"),
        message("assistant", "c"),
        line("turn_context", {}),
        message("user", "d"),
        line("turn_context", {"cwd": "/home/u/funes"}),
        message("user", "e"),
    )
    assert info.cwd == "/home/u/funes"
    assert [turn.cwd for turn in turns] == ["/home/u/one", "/home/u/two", "/home/u/two", "/home/u/two", None]


def test_a_directory_from_the_environment_when_nothing_else_tells(tmp_path: Path) -> None:
    _, _, info = read(
        tmp_path,
        message("user", "<environment_context>\n  <cwd>/home/u/x</cwd>\n</environment_context>"),
        message("user", "hello"),
    )
    assert info.cwd == "/home/u/x"


def test_each_reading_introduces_the_session(tmp_path: Path) -> None:
    records = [meta(), message("user", "one")]
    path = write(tmp_path, records)
    _, first, reader = read_path(path)
    write(tmp_path, [*records, message("user", "two")])
    source = ADAPTER.source_at(path)
    assert source is not None
    again = ADAPTER.read(source, reader.cursor())
    assert [type(found) for found in again] == [SessionInfo, Turn]
    write(tmp_path, [*records, message("user", "two"), event("thread_name_updated", thread_name="A title")])
    last = ADAPTER.read(source, again.cursor())
    (info,) = list(last)
    assert info == replace(first, title="A title") if first else False
    assert list(ADAPTER.read(source, last.cursor())) == []


def test_no_time_is_no_time(tmp_path: Path) -> None:
    record = {"type": "response_item", "payload": message("user", "x")["payload"]}
    first = {"type": "session_meta", "payload": {"id": SID}}
    turns, _, info = read(tmp_path, first, record)
    assert turns[0].ts is None
    assert info.started is not None
    assert info.started.startswith("2024-06-")  # from the thread's id


def test_offsets_and_numbers_are_times(tmp_path: Path) -> None:
    turns, _, _ = read(
        tmp_path,
        meta(),
        message("user", "x", at="2024-06-16T14:53:41+08:00"),
        {**message("user", "y"), "timestamp": 1718520821000},
    )
    assert [t.ts for t in turns] == [AT, AT]


def test_an_id_in_no_record_and_no_uuid_in_the_name(tmp_path: Path) -> None:
    turns, _, _ = read(tmp_path, meta(None, session_id="abc"), message("user", "x"), name="rollout-x.jsonl")
    assert turns[0].session_id == "abc"
    turns, _, _ = read(tmp_path, meta(None), message("user", "x"), name="rollout-x.jsonl")
    assert turns[0].session_id == "rollout-x"


def test_unknown_types_are_named_and_counted(tmp_path: Path) -> None:
    _, tally, _ = read(
        tmp_path,
        meta(),
        message("user", "x"),
        line("novelty", {}),
        item(type="novelty"),
        event("novelty"),
        message("oracle", "x"),
        {"type": "novelty"},
        {},
    )
    assert tally.unknown == {
        "novelty": 2,
        "response_item/novelty": 1,
        "event_msg/novelty": 1,
        "response_item/message/oracle": 1,
        "?": 1,
    }


# Files


def test_where_codex_is_looked_for(tmp_path: Path) -> None:
    sessions, archived = ADAPTER.roots({}, tmp_path)
    assert (sessions.path, archived.path) == (tmp_path / ".codex/sessions", tmp_path / ".codex/archived_sessions")
    assert ADAPTER.roots({"CODEX_HOME": " "}, tmp_path) == [sessions, archived]
    named = ADAPTER.roots({"CODEX_HOME": str(tmp_path / "x")}, tmp_path)
    assert [(r.path, r.why) for r in named] == [
        (tmp_path / "x/sessions", "CODEX_HOME"),
        (tmp_path / "x/archived_sessions", "CODEX_HOME"),
    ]
    assert [s for root in named for s in ADAPTER.sources(root, Tally())] == []


def found_in(home: Path) -> tuple[list[str], Tally]:
    tally = Tally()
    roots = ADAPTER.roots({"CODEX_HOME": str(home)}, home)
    return [str(s.path.relative_to(home)) for root in roots for s in ADAPTER.sources(root, tally)], tally


def test_a_session_is_one_session_compressed_archived_or_both(tmp_path: Path) -> None:
    day, archive = tmp_path / "sessions/2024/06/16", tmp_path / "archived_sessions"
    day.mkdir(parents=True)
    archive.mkdir()
    plain = write(day, [meta(), message("user", "hello")])
    turns, _, _ = read_path(plain)
    data = plain.read_bytes()

    (day / f"{STEM}.jsonl.zst").write_bytes(zstandard.compress(data))
    found, tally = found_in(tmp_path)
    assert found == [f"sessions/2024/06/16/{STEM}.jsonl"]
    assert tally.skipped["file", "also there uncompressed"] == 1

    plain.unlink()
    assert found_in(tmp_path)[0] == [f"sessions/2024/06/16/{STEM}.jsonl.zst"]
    compressed, info, _ = read_path(day / f"{STEM}.jsonl.zst")
    assert compressed == turns  # the same ids: nothing is embedded again
    assert info is not None

    (archive / f"{STEM}.jsonl").write_bytes(data)
    found, tally = found_in(tmp_path)
    assert found == [f"sessions/2024/06/16/{STEM}.jsonl.zst"]
    assert tally.skipped["file", "also there unarchived"] == 1

    (day / f"{STEM}.jsonl.zst").unlink()
    (archive / "notes.txt").write_text("x")
    found, tally = found_in(tmp_path)
    assert found == [f"archived_sessions/{STEM}.jsonl"]
    assert tally.skipped["file", "not a rollout"] == 1
    assert read_path(archive / f"{STEM}.jsonl")[0] == turns


def test_a_plain_file_named_as_compressed(tmp_path: Path) -> None:
    path = write(tmp_path, [meta(), message("user", "hello")], f"{STEM}.jsonl.zst")
    assert said(read_path(path)[0]) == [("text", "hello")]


def test_a_link_that_leads_round(tmp_path: Path) -> None:
    day = tmp_path / "sessions/2024/06/16"
    day.mkdir(parents=True)
    write(day, [meta(), message("user", "hello")])
    (day / "loop").symlink_to(tmp_path / "sessions")
    (day / f"{STEM}2.jsonl").symlink_to(tmp_path / "nowhere")
    found, tally = found_in(tmp_path)
    assert len(found) == 1
    assert sum(tally.skipped.values()) == 1


def test_claiming_a_named_file() -> None:
    assert ADAPTER.claims(Path("x.jsonl"), json.dumps(meta()).encode())
    assert ADAPTER.claims(Path("x.jsonl"), b'{"timestamp":"","type": "response_item"}')
    assert ADAPTER.claims(Path(f"{STEM}.jsonl.zst"), b"\x28\xb5\x2f\xfd...")
    assert not ADAPTER.claims(Path("x.jsonl"), b'{"type":"user","message":{}}')
    assert not ADAPTER.claims(Path("x.json"), b"{}")
    assert not ADAPTER.claims(Path("x.jsonl.zst"), b"\x28\xb5\x2f\xfd...")


def test_a_record_over_the_cap_is_cut_and_the_rest_stays(tmp_path: Path) -> None:
    turns, _, _ = read(tmp_path, meta(), call("x"), output("word " * 2_200_000), message("user", "after"))
    assert turns[1].flags == {"trimmed"}
    assert 200_000 < len(turns[1].blocks[0].text) < 300_000
    assert turns[2].turn_uuid == f"{SID}-2"


# Reading again

TEXTS = st.sampled_from(["hello", "hi", "<skill>x</skill>", ""])
RECORDS = st.one_of(
    TEXTS.map(lambda text: message("user", text)),
    TEXTS.map(lambda text: message("assistant", text)),
    TEXTS.map(lambda text: event("user_message", message=text)),
    TEXTS.map(lambda text: event("agent_message", message=text)),
    TEXTS.map(lambda text: event("agent_reasoning", text=text)),
    TEXTS.map(lambda text: item(type="reasoning", summary=[{"type": "summary_text", "text": text}])),
    TEXTS.map(lambda text: line("compacted", {"message": text})),
    st.builds(call, st.sampled_from(["x", "mcp__funes__recall"]), st.just("{}"), st.sampled_from(["c0", "c1"])),
    st.sampled_from([output("out", "c0"), output("out", "c1"), {"record_type": "state"}]),
    st.sampled_from([meta(), meta(PARENT), meta(forked_from_id=PARENT), event("task_started"), event("token_count")]),
    st.sampled_from([line("turn_context", {"cwd": "/w"}), event("thread_name_updated", thread_name="t")]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(RECORDS, max_size=20), st.lists(st.integers(0, 4000), max_size=4))
def test_slices_give_what_the_whole_gives(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("slices")
    data = write(folder, records).read_bytes()
    path = folder / f"{STEM}.jsonl"
    turns: list[Turn] = []
    tally = Tally()
    cursor: Cursor | None = None
    for cut in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:cut])
        new, _, reader = read_slice(path, cursor)
        turns += new
        tally.add(reader.tally)
        cursor = Cursor(**json.loads(json.dumps(asdict(reader.cursor()))))  # as a catalog keeps it
    whole, _, reader = read_slice(path, None)
    assert turns == whole
    counted = {kind: n for kind, n in tally.skipped.items() if n}
    assert counted == {kind: n for kind, n in reader.tally.skipped.items() if n}
    assert (+tally.kept, +tally.unknown, tally.lines) == (reader.tally.kept, reader.tally.unknown, reader.tally.lines)
    assert reader.tally.unknown == {}
    assert len({t.turn_uuid for t in whole}) == len(whole)


def read_slice(path: Path, cursor: Cursor | None) -> tuple[list[Turn], list[SessionInfo], SourceReader]:
    source = ADAPTER.source_at(path)
    assert source is not None
    reader = ADAPTER.read(source, cursor)
    events = list(reader)
    return (
        [found for found in events if isinstance(found, Turn)],
        [found for found in events if isinstance(found, SessionInfo)],
        reader,
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "type role content text message payload summary action arguments input output call_id name namespace id "
    "timestamp cwd git source session_id forked_from_id metadata images replacement_history history_base turn_id"
)
WORDS = (
    "session_meta response_item event_msg compacted turn_context message reasoning function_call user assistant "
    "function_call_output local_shell_call web_search_call user_message agent_message tool_call input_text"
)
SHAPED = st.recursive(
    st.none() | st.integers() | st.sampled_from(WORDS.split(" ")) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split(" ")), inner, max_size=6),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(KEYS.split(" ")), SHAPED | JSON, max_size=6), max_size=6))
def test_no_record_raises(records: list[Record]) -> None:
    from funes_adapters.codex.parse import RolloutParser

    tally = Tally()
    parser = RolloutParser(Path(f"{STEM}.jsonl"), None, tally)
    for number, record in enumerate(records, 1):
        for found in parser.feed(record, False):
            if isinstance(found, Turn):
                assert found.blocks
                assert replace(found).session_id
        assert tally.explained == number
    json.dumps(parser.state())
    parser.end()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_no_file_raises(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / f"{STEM}.jsonl"
    path.write_bytes(data)
    read_slice(path, None)
