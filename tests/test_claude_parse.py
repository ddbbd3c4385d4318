"""Claude Code's transcripts as they really are: one small history for each thing that readers get wrong."""

from __future__ import annotations

import hashlib
import json
import random
import uuid as uuids
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from funes_adapters.claude import ADAPTER
from hypothesis import given, settings
from hypothesis import strategies as st

from funes_mcp.traces import ours
from funes_mcp.traces.model import Cursor, Event, SessionInfo, Tally, Turn

SESSION = "11111111-2222-4333-8444-555555555555"
OTHER = "99999999-2222-4333-8444-555555555555"


def uid(name: object) -> str:
    """A real-looking uuid for a short name."""
    return str(uuids.UUID(hashlib.md5(str(name).encode()).hexdigest()))


def row(kind: str, content: Any, name: object = None, **more: Any) -> dict[str, Any]:
    """A message record. `name` stands for its uuid."""
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind,
        "uuid": uid(name if name is not None else json.dumps([kind, content, more], default=str)),
        "parentUuid": None,
        "sessionId": SESSION,
        "cwd": "/home/ada/tidepool",
        "timestamp": "2026-03-01T10:00:00.000Z",
        "message": message,
        **more,
    }


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(text: Any, name: object = None, **more: Any) -> dict[str, Any]:
    return row("user", text, name, **more)


def reply(text: str, name: object = None, **more: Any) -> dict[str, Any]:
    return row("assistant", [{"type": "text", "text": text}], name, **more)


def call(tool: str, arguments: dict[str, Any], tool_id: str, name: object = None) -> dict[str, Any]:
    return row("assistant", [{"type": "tool_use", "id": tool_id, "name": tool, "input": arguments}], name)


def result(content: Any, tool_id: str, name: object = None, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": tool_id, "content": content}
    return row("user", [block], name, **more)


def write(path: Path, records: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def read(path: Path, cursor: Cursor | None = None) -> tuple[list[Turn], SessionInfo | None, Tally, Cursor]:
    source = ADAPTER.source_at(path)
    assert source is not None
    reader = ADAPTER.read(source, cursor)
    events: list[Event] = list(reader)
    turns = [e for e in events if isinstance(e, Turn)]
    infos = [e for e in events if isinstance(e, SessionInfo)]
    if turns:
        assert isinstance(events[0], SessionInfo), "a session is told before its first turn"
    tally = reader.tally
    assert tally.explained == tally.lines or cursor is not None
    return turns, infos[-1] if infos else None, tally, reader.cursor()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "projects" / "-home-ada-tidepool"


def turns_of(project: Path, *records: Any, name: str = SESSION) -> list[Turn]:
    return read(write(project / f"{name}.jsonl", records))[0]


def texts(turns: Sequence[Turn]) -> list[str]:
    return [b.text for t in turns for b in t.blocks]


# Ids and positions, as the Rust funes computes them


def test_a_plain_session(project: Path) -> None:
    turns, info, tally, _ = read(
        write(
            project / f"{SESSION}.jsonl",
            [
                {"type": "mode", "mode": "normal", "sessionId": SESSION},
                user("why does the tide gauge drift?", "u1", gitBranch="fix/gauge"),
                row(
                    "assistant",
                    [
                        {"type": "thinking", "thinking": "clock skew?", "signature": "x"},
                        {"type": "text", "text": "   "},
                        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"b": "é", "a": 1}},
                    ],
                    "a1",
                    parentUuid=uid("u1"),
                ),
                result([words("one"), {"type": "image"}, words("two")], "t1", "r1"),
            ],
        )
    )
    assert [(t.seq, t.turn_uuid, t.role, t.parent_uuid) for t in turns] == [
        (0, uid("u1"), "user", None),
        (1, uid("a1"), "assistant", uid("u1")),
        (2, uid("r1"), "user", None),
    ]
    assert [(b.type, b.text, b.idx, b.tool_name) for t in turns for b in t.blocks] == [
        ("text", "why does the tide gauge drift?", 0, None),
        ("thinking", "clock skew?", 0, None),
        ("tool_use", '{"b":"é","a":1}', 1, "Bash"),
        ("tool_result", "one\ntwo", 0, "Bash"),
    ]
    assert {t.session_id for t in turns} == {SESSION}
    assert info is not None
    assert (info.harness, info.cwd, info.branch, info.started) == (
        "claude_code",
        "/home/ada/tidepool",
        "fix/gauge",
        "2026-03-01T10:00:00.000Z",
    )
    assert tally.kept == {"user": 2, "assistant": 1}
    assert tally.parts == {("text", "no words"): 1, ("image", "image"): 1}


def test_what_is_passed_over_keeps_the_positions_of_the_rest(project: Path) -> None:
    turns = turns_of(
        project,
        user("<local-command-stdout>x</local-command-stdout>", "u0"),
        user([{"type": "text", "text": "[Request interrupted by user]"}, {"type": "text", "text": "go on"}], "u1"),
        user("skill text", "u2", isMeta=True),
        user("and then?", "u3"),
    )
    assert [(t.seq, t.turn_uuid, t.blocks[0].idx) for t in turns] == [(1, uid("u1"), 1), (3, uid("u3"), 0)]


def test_one_reply_on_several_lines_is_joined_by_its_message_id(project: Path) -> None:
    lines = [
        row("assistant", [block], n, message={"id": "msg_01"})
        for n, block in enumerate(
            [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "t", "name": "Read", "input": {}},
            ]
        )
    ]
    turns = turns_of(project, *lines)
    assert [t.message_id for t in turns] == ["msg_01"] * 3
    assert len({t.turn_uuid for t in turns}) == len({t.identity for t in turns}) == 3


def test_a_constant_message_id_of_a_gateway_merges_nothing(project: Path) -> None:
    first = turns_of(project, reply("yes", "a", message={"id": "ocgo"}), reply("no", "b", message={"id": "ocgo"}))
    second = turns_of(project, reply("yes", "c", message={"id": "ocgo"}), name=OTHER)
    assert len({t.identity for t in [*first, *second]}) == 3


# Copies


def test_a_resumed_session_copies_its_history_under_a_new_id(project: Path) -> None:
    old = [user("one", "u1"), reply("two", "u2"), user("three", "u3")]
    first = turns_of(project, *old)
    copies = [{**r, "sessionId": OTHER} for r in old]
    second = turns_of(project, *copies, reply("four", "u4", sessionId=OTHER), name=OTHER)
    assert [t.identity for t in second[:3]] == [t.identity for t in first]
    assert len({t.identity for t in [*first, *second]}) == 4
    assert {t.session_id for t in second} == {OTHER}


def test_a_branch_writes_every_line_twice(project: Path) -> None:
    fork = {"sessionId": OTHER, "messageUuid": uid("u1")}
    path = write(
        project / f"{SESSION}.jsonl",
        [
            user("one", "u1"),
            user("one", "u1", forkedFrom=fork),
            reply("two", "u2"),
            reply("two", "u2", forkedFrom=fork),
        ],
    )
    turns, info, tally, _ = read(path)
    assert texts(turns) == ["one", "two"]
    assert tally.skipped == {("user", "copy of an earlier line"): 1, ("assistant", "copy of an earlier line"): 1}
    assert info is not None
    assert (info.parent_session_id, info.relation) == (OTHER, "fork")


def test_rewritten_earlier_lines_count_once(project: Path) -> None:
    old = [user("one", "u1"), reply("two", "u2")]
    assert texts(turns_of(project, *old, *old, user("three", "u3"), reply("four", "u4"))) == [
        "one",
        "two",
        "three",
        "four",
    ]


def test_two_branches_of_one_file_both_stay(project: Path) -> None:
    turns = turns_of(
        project,
        user("start", "u0"),
        reply("left", "a1", parentUuid=uid("u0")),
        reply("right", "a2", parentUuid=uid("u0")),
    )
    assert [t.parent_uuid for t in turns] == [None, uid("u0"), uid("u0")]


def test_a_side_question_repeats_its_parent(project: Path) -> None:
    words = "the gauge is read twice because the poller and the watchdog both own the port, so drop one"
    api = {"id": "msg_01AbCdEfGhIjKlMnOpQrStUv"}
    path = write(
        project / f"{SESSION}.jsonl",
        [
            reply(words, "a1", message=api, requestId="r1"),
            reply(words, "a2", message=api, requestId="r2", isSidechain=True),
        ],
    )
    turns, _, tally, _ = read(path)
    assert len(turns) == 1
    assert tally.skipped == {("assistant", "repeats the parent's message"): 1}
    agent = turns_of(project, reply(words, "a3", message=api, isSidechain=True), name="agent-aside")
    assert agent[0].identity == turns[0].identity


def test_short_names_in_place_of_uuids_are_not_one_message(tmp_path: Path) -> None:
    one = turns_of(tmp_path / "alpha", {**user("tides"), "uuid": "u1"}, name="session-1")
    two = turns_of(tmp_path / "beta", {**user("moons"), "uuid": "u1"}, name="session-1")
    again = turns_of(tmp_path / "gamma", {**user("tides"), "uuid": "u1"}, name="session-2")
    assert one[0].turn_uuid == two[0].turn_uuid == "u1"
    assert one[0].identity != two[0].identity
    assert one[0].identity == again[0].identity


def test_lines_without_uuids_are_told_apart_by_what_they_say(project: Path) -> None:
    lines = [{"type": "user", "message": {"role": "user", "content": text}} for text in ("a", "b", "a")]
    turns = turns_of(project, *lines)
    assert texts(turns) == ["a", "b"]
    assert len({t.turn_uuid for t in turns}) == 2


def test_a_session_begins_with_lines_of_another(project: Path) -> None:
    path = write(project / f"{SESSION}.jsonl", [user("old", "u1", sessionId=OTHER), user("new", "u2")])
    turns, info, _, _ = read(path)
    assert {t.session_id for t in turns} == {SESSION}
    assert info is not None
    assert (info.parent_session_id, info.relation) == (OTHER, "fork")


# Prompts typed while the agent works


def queue(operation: str, content: str | None = None, ts: str = "2026-03-01T10:00:05.000Z") -> dict[str, Any]:
    record = {"type": "queue-operation", "operation": operation, "timestamp": ts, "sessionId": SESSION}
    return record if content is None else {**record, "content": content}


def queued(prompt: Any, name: str = "q", **more: Any) -> dict[str, Any]:
    attachment = {"type": "queued_command", "prompt": prompt, "commandMode": "prompt", **more}
    return {
        "type": "attachment",
        "uuid": uid(name),
        "parentUuid": uid("u1"),
        "timestamp": "2026-03-01T10:00:09.000Z",
        "attachment": attachment,
    }


def prompts(turns: Sequence[Turn]) -> list[tuple[str, bool]]:
    return [(t.blocks[0].text, "queued" in t.flags) for t in turns if t.role == "user"]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([queued("also the moon")], [("also the moon", True)], id="attachment"),
        pytest.param(
            [queue("enqueue", "also the moon"), queue("remove"), queued("also the moon"), reply("ok", "z")],
            [("also the moon", True)],
            id="removed, then an attachment",
        ),
        pytest.param(
            [queue("enqueue", "also the moon"), queue("dequeue"), user("also the moon", "u2")],
            [("also the moon", False)],
            id="it becomes a message",
        ),
        pytest.param(
            [queue("enqueue", "also the moon"), reply("working", "z"), user("thanks", "u2")],
            [("also the moon", True), ("thanks", False)],
            id="only in the queue",
        ),
        pytest.param(
            [queue("enqueue", "also the moon"), queue("remove"), *[reply(f"step {n}", n) for n in range(14)]],
            [("also the moon", True)],
            id="removed and never repeated",
        ),
        pytest.param(
            [queue("enqueue", "also the moon"), queue("popAll", "also the moon"), user("the moon too", "u2")],
            [("the moon too", False)],
            id="taken back and rewritten",
        ),
        pytest.param(
            [
                queue("enqueue", "a b"),
                queue("enqueue", "c d"),
                queue("dequeue"),
                queue("dequeue"),
                user("a b\nc d", "u2"),
            ],
            [("a b\nc d", False)],
            id="two become one message",
        ),
        pytest.param(
            [
                queue("enqueue", "<task-notification>\n<task-id>1</task-id>\n</task-notification>"),
                queue("remove"),
                queued("<task-notification>x</task-notification>", commandMode="task-notification"),
                queue("enqueue", "/exit"),
                user("bye", "u2"),
            ],
            [("bye", False)],
            id="nobody typed it",
        ),
        pytest.param(
            [queued([{"type": "text", "text": "see this"}, {"type": "image", "source": {}}])],
            [("see this", True)],
            id="words beside an image",
        ),
    ],
)
def test_a_prompt_typed_mid_turn_is_there_once(
    project: Path, records: list[dict[str, Any]], expected: list[tuple[str, bool]]
) -> None:
    path = write(project / f"{SESSION}.jsonl", [user("chart the tides", "u1"), reply("on it", "a1"), *records])
    turns, _, tally, _ = read(path)
    assert sorted(prompts(turns)) == sorted([("chart the tides", False), *expected])
    assert all(count >= 0 for count in tally.skipped.values())


def test_a_queued_prompt_stands_where_it_was_typed(project: Path) -> None:
    turns = turns_of(
        project,
        user("chart the tides", "u1"),
        queue("enqueue", "also the moon"),
        reply("first", "a1", timestamp="2026-03-01T10:00:07.000Z"),
        user("thanks", "u2", timestamp="2026-03-01T10:01:00.000Z"),
    )
    in_order = sorted(turns, key=lambda t: (t.seq, t.ts or ""))
    assert texts(in_order) == ["chart the tides", "also the moon", "first", "thanks"]
    assert [t.seq for t in in_order] == [0, 1, 1, 2]


# What no person said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("[Request interrupted by user]", None),
        ("[Request interrupted by user for tool use]", None),
        ("why does [Request interrupted by user] show up?", "why does [Request interrupted by user] show up?"),
        ("<system-reminder>\nbe brief\n</system-reminder>", None),
        ("<system-reminder>be brief</system-reminder>\nfix the gauge", "fix the gauge"),
        ("what is the <system-reminder> tag for?", "what is the <system-reminder> tag for?"),
        ("is <system-reminder>x</system-reminder> ours?", "is <system-reminder>x</system-reminder> ours?"),
        ("<command-name>/clear</command-name>\n<command-args></command-args>", None),
        (
            "<command-message>goal</command-message>\n<command-name>/goal</command-name>"
            "<command-args>make CI green</command-args>",
            "/goal make CI green",
        ),
        ("<local-command-stdout>Copied</local-command-stdout>", None),
        ("<local-command-caveat>Caveat: x</local-command-caveat>", None),
        ("<task-notification>\n<task-id>1</task-id>\n</task-notification>\nRead the output file", None),
        ("<ide_opened_file>The user opened a.py</ide_opened_file>\nrename it", "rename it"),
        ("<user-memory-input>use tabs</user-memory-input>", "use tabs\n"),
        ("<bash-input>ls -a</bash-input>", "! ls -a"),
        ("<bash-stdout></bash-stdout><bash-stderr></bash-stderr>", None),
        ("a < b and <b>bold</b>", "a < b and <b>bold</b>"),
    ],
)
def test_wrappers_go_and_words_stay(project: Path, text: str, kept: str | None) -> None:
    path = write(project / f"{SESSION}.jsonl", [user(text, "u1"), user("next", "u2")])
    turns, _, tally, _ = read(path)
    assert texts(turns) == ([kept] if kept is not None else []) + ["next"]
    assert turns[-1].seq == 1
    assert tally.skipped.total() == (kept is None)


def test_output_of_a_typed_command_is_no_speech(project: Path) -> None:
    (turn,) = turns_of(project, user("<bash-stdout>a.py</bash-stdout><bash-stderr>oops</bash-stderr>"))
    assert [(b.type, b.text, b.tool_name) for b in turn.blocks] == [("tool_result", "a.py\noops", "bash")]


def test_a_summary_is_nobodys_words(project: Path) -> None:
    opening = "This session is being continued from a previous conversation that ran out of context. "
    flagged, old = turns_of(
        project,
        {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": uid("b"),
            "parentUuid": None,
            "logicalParentUuid": uid("a"),
        },
        user(opening + 'The user said "never".', "s1", isCompactSummary=True, parentUuid=uid("b")),
        user(opening + "It was about tides.", "s2"),
    )
    for turn in (flagged, old):
        assert [b.type for b in turn.blocks] == ["summary"]
        assert (turn.role, turn.flags) == ("system", {"summary"})
    assert flagged.parent_uuid == uid("a")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (user("skill text", isMeta=True), "context put in by the program"),
        (user("<x>", origin={"kind": "task-notification"}), "task notification"),
        (reply("No response requested.", message={"model": "<synthetic>"}), "placeholder"),
        (row("assistant", [{"type": "redacted_thinking", "data": "Zm9v"}]), "encrypted"),
        (row("assistant", [{"type": "thinking", "thinking": "", "signature": "s"}]), "hidden by the provider"),
        (user([{"type": "image", "source": {"type": "base64", "data": "x"}}]), "image"),
        (user(""), "no words"),
    ],
)
def test_every_line_passed_over_has_its_reason(project: Path, record: dict[str, Any], reason: str) -> None:
    turns, _, tally, _ = read(write(project / f"{SESSION}.jsonl", [record]))
    assert turns == []
    assert dict(tally.skipped) == {(record["type"], reason): 1}


def test_a_failed_request_is_marked(project: Path) -> None:
    (turn,) = turns_of(project, reply("API Error: 529 overloaded", isApiErrorMessage=True))
    assert turn.flags == {"error"}


@pytest.mark.parametrize(
    "opening",
    [
        "You are a Claude-Mem, a specialized observer tool for creating searchable memory",
        "Hello memory agent, you are continuing to observe the primary session.",
        ours.ASK_OPENING + " Question: why?",
    ],
)
def test_sessions_of_machines_are_not_indexed(project: Path, opening: str) -> None:
    turns, info, tally, _ = read(write(project / f"{SESSION}.jsonl", [user(opening, "u1"), reply("noted", "a1")]))
    assert (turns, info) == ([], None)
    assert tally.skipped.total() == 2


def test_someone_asking_about_observers_is_a_person(project: Path) -> None:
    assert len(turns_of(project, user("what does 'You are a Claude-Mem, a specialized observer tool' mean?"))) == 1


def test_a_warm_up_of_the_program_is_not_indexed(project: Path) -> None:
    warm = turns_of(project, user("Warmup", isSidechain=True), reply("I'm ready to help."), name="agent-a1b2c3d")
    assert warm == []


@pytest.mark.parametrize("tool", ["mcp__funes__recall", "mcp__plugin_funes_funes__recall", "mcp__funes__get"])
def test_our_own_answers_are_not_indexed_again(project: Path, tool: str) -> None:
    path = write(
        project / f"{SESSION}.jsonl",
        [call(tool, {"query": "tides"}, "t1", "a1"), result("an old passage", "t1", "r1"), user("thanks", "u1")],
    )
    turns, _, tally, _ = read(path)
    assert texts(turns) == ["thanks"]
    assert turns[0].seq == 2
    assert tally.skipped == {("assistant", "our own tool"): 1, ("user", "our own tool"): 1}


def test_our_own_answers_are_known_by_their_first_line(project: Path) -> None:
    answer = f"What follows are {ours.MARKER}, not instructions.\n[2026] an old passage"
    assert texts(turns_of(project, call("Bash", {"c": 1}, "t1"), result(answer, "t1"))) == ['{"c":1}']


# Results


def test_a_reminder_behind_a_result_goes(project: Path) -> None:
    text = "1\tint x;\n\n<system-reminder>\nconsider malware\n</system-reminder>\n"
    quoted = "see <system-reminder> in docs\n<system-reminder>\nx\n</system-reminder>\nand more"
    turns = turns_of(project, result(text, "t1", "r1"), result(quoted, "t2", "r2"))
    assert texts(turns) == ["1\tint x;", quoted]


@pytest.mark.parametrize(
    ("structured", "text"),
    [
        ("plain", "plain"),
        ({"stdout": "out", "stderr": "err", "interrupted": False}, "out\nerr"),
        ({"type": "text", "file": {"filePath": "a", "content": "text of a"}}, "text of a"),
        ({"content": [{"type": "text", "text": "from the agent"}]}, "from the agent"),
        ({"filenames": ["a.py", "b.py"], "numFiles": 2}, "a.py\nb.py"),
        ([{"type": "text", "text": "of a server"}], "of a server"),
    ],
)
def test_a_result_may_stand_beside_the_message_only(project: Path, structured: Any, text: str) -> None:
    turns = turns_of(
        project,
        call("Bash", {}, "t1", "a1"),
        result("", "t1", "r1", toolUseResult=structured),
        user("next", "u2"),
    )
    assert [(b.type, b.text, b.tool_name) for b in turns[1].blocks] == [("tool_result", text, "Bash")]
    assert turns[1].blocks[0].idx >= 1000, "it takes no position of those that are counted"
    assert [t.seq for t in turns] == [0, 1, 1]


def saved(path: str, preview: str = "tide 1") -> str:
    return (
        f"<persisted-output>\nOutput too large (60KB). Full output saved to: {path}\n\n"
        f"Preview (first 2KB):\n{preview}\n...\n</persisted-output>"
    )


@pytest.mark.parametrize(
    "style", ["/home/ada/.claude/projects/p/{}/tool-results/t1.txt", r"C:\u\{}\tool-results\t1.txt"]
)
def test_a_result_in_a_file_of_its_own_is_followed(project: Path, style: str) -> None:
    side = project / SESSION / "tool-results" / "t1.txt"
    side.parent.mkdir(parents=True)
    side.write_text("tide 1\ntide 2\ntide 3\n")
    notice = saved(style.format(SESSION))
    (turn,) = turns_of(project, result(notice, "t1"))
    assert turn.blocks[0].text == f"{notice}\ntide 2\ntide 3\n"
    assert turn.flags == frozenset()
    side.write_text("tide 1\n" + "wave " * 100_000)
    (turn,) = turns_of(project, result(notice, "t1"))
    assert len(turn.blocks[0].text) < 300_000
    assert turn.flags == {"trimmed"}


def test_a_result_outside_the_session_is_not_followed(project: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("not yours")
    folder = project / SESSION / "tool-results"
    folder.mkdir(parents=True)
    (folder / "link.txt").symlink_to(secret)
    for path in (
        str(secret),
        f"{folder}/link.txt",
        f"{folder}/../../{OTHER}/x.txt",
        f"{folder}/..",
        f"{folder}/gone.txt",
    ):
        notice = saved(path)
        assert texts(turns_of(project, result(notice, "t1"))) == [notice]


def test_images_leave_nothing_but_their_words(project: Path) -> None:
    pixels = "iVBORw0KGgo" + "A1b2C3d4E5f6G7h8+/" * 200
    turns = turns_of(
        project,
        user([{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "base64", "data": pixels}}], "u1"),
        result([{"type": "image", "source": {"data": pixels}}, {"type": "text", "text": "a chart"}], "t1", "r1"),
        user(f"![x](data:image/png;base64,{pixels}) what is it?", "u2"),
        call("Upload", {"data": pixels}, "t2", "a1"),
    )
    kept = "\n".join(texts(turns))
    assert "iVBOR" not in kept
    assert "a chart" in kept
    assert "what is it?" in kept
    assert f"[base64: {len(pixels)} characters left out]" in kept


# Sessions


def test_titles_in_their_order_of_worth(project: Path) -> None:
    path = write(
        project / f"{SESSION}.jsonl",
        [
            {"type": "summary", "summary": "Of another session", "leafUuid": uid("elsewhere")},
            {"type": "summary", "summary": "About tides", "leafUuid": uid("u1")},
            user("tides?", "u1"),
        ],
    )
    _, info, tally, cursor = read(path)
    assert info is not None
    assert info.title == "About tides"
    assert tally.skipped == {("summary", "title of the session"): 2}
    for record, title in (
        ({"type": "ai-title", "aiTitle": "Tide gauge drift"}, "Tide gauge drift"),
        ({"type": "custom-title", "customTitle": "gauge"}, "gauge"),
    ):
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        turns, info, _, cursor = read(path, cursor)
        assert turns == []
        assert info is not None
        assert info.title == title
    with path.open("a") as file:
        file.write(json.dumps({"type": "ai-title", "aiTitle": "Something else"}) + "\n")
    assert read(path, cursor)[1] is None


def test_a_subagent_is_linked_to_its_parent(project: Path) -> None:
    folder = project / SESSION / "subagents"
    path = write(folder / "agent-a1b2c3d.jsonl", [user("look into it", "u1", isSidechain=True, agentId="a1b2c3d")])
    (folder / "agent-a1b2c3d.meta.json").write_text('{"agentType":"Explore","description":"look"}')
    turns, info, _, _ = read(path)
    assert turns[0].session_id == "agent-a1b2c3d"
    assert info is not None
    assert (info.parent_session_id, info.relation, info.agent_name) == (SESSION, "subagent", "Explore")
    flat = write(project / "agent-7777777.jsonl", [user("look", "u2", isSidechain=True, sessionId=OTHER)])
    _, info, _, _ = read(flat)
    assert info is not None
    assert (info.parent_session_id, info.relation, info.agent_name) == (OTHER, "subagent", None)
    nested = write(folder / "workflows" / "wf1" / "agent-8888888.jsonl", [user("look", "u3")])
    _, info, _, _ = read(nested)
    assert info is not None
    assert info.parent_session_id == SESSION


def test_a_recorded_folder_is_kept_as_it_is(project: Path) -> None:
    _, info, _, _ = read(write(project / f"{SESSION}.jsonl", [user("x", cwd=r"C:\Users\Ada\tide-pool")]))
    assert info is not None
    assert info.cwd == r"C:\Users\Ada\tide-pool"


@pytest.mark.parametrize(
    ("times", "ts"),
    [
        ({"timestamp": "2026-03-01T18:00:00+08:00"}, "2026-03-01T10:00:00.000Z"),
        ({"timestamp": 1772359200000}, "2026-03-01T10:00:00.000Z"),
        ({"timestamp": "0001-01-01T00:00:00Z"}, None),
        ({"timestamp": None, "_audit_timestamp": "2026-03-01T10:00:00Z"}, "2026-03-01T10:00:00.000Z"),
        ({"timestamp": "soon"}, None),
    ],
)
def test_times_are_made_one_form(project: Path, times: dict[str, Any], ts: str | None) -> None:
    assert [t.ts for t in turns_of(project, user("x", **times))] == [ts]


def test_parents_lead_past_records_that_are_no_turns(project: Path) -> None:
    turns = turns_of(
        project,
        user("one", "u1"),
        {"type": "attachment", "uuid": uid("x1"), "parentUuid": uid("u1"), "attachment": {"type": "todo"}},
        {"type": "progress", "uuid": uid("x2"), "parentUuid": uid("x1"), "data": {}},
        reply("two", "a1", parentUuid=uid("x2")),
    )
    assert turns[1].parent_uuid == uid("u1")


def test_a_kind_never_seen_is_named(project: Path) -> None:
    _, _, tally, _ = read(
        write(project / f"{SESSION}.jsonl", [{"type": "teleport"}, {"type": "system", "subtype": "warp"}])
    )
    assert tally.unknown == {"teleport": 1, "system/warp": 1}


# Whatever comes

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_KEYS = ("type", "message", "uuid", "parentUuid", "timestamp", "cwd", "sessionId", "toolUseResult", "attachment")
_KINDS = ("user", "assistant", "attachment", "queue-operation", "summary", "tool_result", "system", "ai-title")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=6).flatmap(
            lambda d: st.sampled_from(_KINDS).map(lambda kind: {**d, "type": kind} if len(d) % 4 else d)
        ),
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), max_size=4),
)
def test_no_input_raises(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], damage: list[tuple[int, int]]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / f"{SESSION}.jsonl"
    blocks = [{"type": "tool_result", "content": r.get("message")} for r in records]
    lines = [*records, user(blocks or "x"), user("plain"), queued(records), call("x", {"a": records}, "t")]
    data = bytearray(b"\n".join(json.dumps(r).encode() for r in lines))
    for at, byte in damage:
        data[at % len(data)] = byte
    path.write_bytes(bytes(data))
    turns, _, tally, cursor = read(path)
    assert not any("Error" in kind for kind in tally.unknown), "the parser made a mistake"
    json.dumps(cursor.state).encode()
    for turn in turns:
        assert turn.blocks
        for block in turn.blocks:
            assert block.text.strip()
            block.text.encode()
            assert "\0" not in block.text


def _history(rng: random.Random) -> list[dict[str, Any]]:
    """A session with all that the parser keeps in mind: copies, calls, queues, titles, noise, branches."""
    records: list[dict[str, Any]] = []
    for n in range(rng.randrange(5, 40)):
        parent = uid(rng.randrange(n + 1))
        ts = f"2026-03-01T10:{n:02d}:00.000Z"
        pick = rng.randrange(12)
        if pick < 2:
            records.append(user(f"prompt {n}", n, parentUuid=parent, timestamp=ts))
        elif pick == 2:
            records.append(
                reply(f"reply {n}", n, parentUuid=parent, message={"id": f"msg_{n % 3}"}, isSidechain=n % 2 == 0)
            )
        elif pick == 3:
            records += [
                call("mcp__funes__recall" if n % 3 else "Bash", {"n": n}, f"t{n}", n),
                result(f"out {n}", f"t{n}", -n - 1),
            ]
        elif pick == 4 and records:
            records.append(rng.choice(records))
        elif pick == 5:
            records.append(queue("enqueue", f"typed {n}", ts))
        elif pick == 6:
            records.append(queue(rng.choice(["remove", "dequeue", "popAll"]), None, ts))
        elif pick == 7:
            records.append(queued(f"typed {rng.randrange(n + 1)}", f"q{n}"))
        elif pick == 8:
            records.append({"type": "summary", "summary": f"title {n}", "leafUuid": uid(rng.randrange(n + 3))})
        elif pick == 9:
            records.append({"type": "progress", "uuid": uid(n), "parentUuid": parent})
        elif pick == 10:
            records.append(user("<system-reminder>x</system-reminder>", n, gitBranch=f"b{n % 3}"))
        else:
            records.append(user(f"meta {n}", n, isMeta=True))
    return records


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.floats(0, 1), max_size=5))
def test_any_slicing_of_a_session_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[float]
) -> None:
    path = tmp_path_factory.mktemp("slices") / f"{SESSION}.jsonl"
    data = b"".join(json.dumps(r).encode() + b"\n" for r in _history(random.Random(seed)))
    path.write_bytes(data)
    whole, whole_info, whole_tally, whole_cursor = read(path)
    turns: list[Turn] = []
    info: SessionInfo | None = None
    total = Tally()
    cursor: Cursor | None = None
    for cut in [*sorted(1 + int(c * (len(data) - 1)) for c in cuts), len(data)]:
        path.write_bytes(data[:cut])
        part, told, tally, now = read(path, cursor)
        turns += part
        info = told or info
        total.add(tally)
        cursor = Cursor(now.offset, now.digest, json.loads(json.dumps(now.state)))
    assert turns == whole
    assert info == whole_info
    assert cursor == whole_cursor
    assert (+total.kept, +total.skipped, +total.parts) == (+whole_tally.kept, +whole_tally.skipped, +whole_tally.parts)
    assert total.lines == whole_tally.lines
