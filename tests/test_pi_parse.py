"""pi's sessions: trees in files, forks with ids of eight digits, and what extensions add."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from funes_adapters.pi import ADAPTER
from funes_adapters.pi.parse import SessionParser
from hypothesis import given, settings
from hypothesis import strategies as st

from funes_mcp.traces.adapter import SourceReader
from funes_mcp.traces.model import Cursor, SessionInfo, Tally, Turn

STEM = "2024-12-03T14-00-00-000Z_01938c5e-0000-7000-8000-000000000001"
AT = "2024-12-03T14:00:01.000Z"

Record = dict[str, Any]


def header(**more: Any) -> Record:
    return {"type": "session", "version": 3, "id": "01938c5e", "timestamp": AT, "cwd": "/home/u/funes", **more}


def entry(kind: str, key: str | None, above: str | None = None, at: Any = AT, **more: Any) -> Record:
    named = {} if key is None else {"id": key, "parentId": above}
    return {"type": kind, **named, "timestamp": at, **more}


def message(
    role: str, content: Any, key: str | None = "a", above: str | None = None, at: Any = AT, **more: Any
) -> Record:
    return entry("message", key, above, at, message={"role": role, "content": content, **more})


def text(*texts: str) -> list[Record]:
    return [{"type": "text", "text": each} for each in texts]


def write(folder: Path, records: Iterable[Record | str], name: str = f"{STEM}.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    path.write_text("".join(f"{each}\n" for each in lines), encoding="utf-8")
    return path


def read_path(path: Path, cursor: Cursor | None = None) -> tuple[list[Turn], list[SessionInfo], SourceReader]:
    source = ADAPTER.source_at(path)
    assert source is not None
    reader = ADAPTER.read(source, cursor)
    events = list(reader)
    assert reader.tally.explained == reader.tally.lines or cursor
    assert not [kind for kind in reader.tally.unknown if "Error" in kind]
    if events and cursor is None:
        assert isinstance(events[0], SessionInfo)  # a session is introduced before its first turn
    turns = [found for found in events if isinstance(found, Turn)]
    return turns, [found for found in events if isinstance(found, SessionInfo)], reader


def read(folder: Path, *records: Record | str, name: str = f"{STEM}.jsonl") -> tuple[list[Turn], Tally, SessionInfo]:
    turns, infos, reader = read_path(write(folder, records, name))
    return turns, reader.tally, infos[-1]


def said(turns: Iterable[Turn]) -> list[tuple[str, str]]:
    return [(block.type, block.text) for turn in turns for block in turn.blocks]


# Messages


def test_messages_become_turns_with_the_ids_of_the_rust_funes(tmp_path: Path) -> None:
    turns, _, info = read(
        tmp_path,
        header(),
        message("user", text("why did we drop it?"), "u1"),
        message(
            "assistant",
            [
                {"type": "thinking", "thinking": "hm", "thinkingSignature": "x"},
                {"type": "text", "text": "\n\n"},
                {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls", "é": 1}},
            ],
            "a1",
            "u1",
        ),
        message("toolResult", text("one", "two"), "r1", "a1", toolName="bash", toolCallId="c1"),
        message("toolResult", "as a string", "r2", "r1", toolName="read"),
    )
    assert [(t.turn_uuid, t.parent_uuid, t.seq, t.role) for t in turns] == [
        ("u1", None, 0, "user"),
        ("a1", "u1", 1, "assistant"),
        ("r1", "a1", 2, "tool"),
        ("r2", "r1", 3, "tool"),
    ]
    assert [(b.type, b.text, b.idx, b.tool_name) for t in turns for b in t.blocks] == [
        ("text", "why did we drop it?", 0, None),
        ("thinking", "hm", 0, None),
        ("tool_use", '{"command":"ls","é":1}', 1, "bash"),
        ("tool_result", "one\ntwo", 0, "bash"),
        ("tool_result", "as a string", 0, "read"),
    ]
    assert {t.session_id for t in turns} == {STEM}
    assert (info.session_id, info.cwd, info.started, info.harness) == (STEM, "/home/u/funes", AT, "pi")


def test_what_only_we_read_does_not_move_the_count(tmp_path: Path) -> None:
    turns, _, _ = read(
        tmp_path,
        header(),
        message("user", "a string", "u1"),
        message("user", text("parts"), "u2"),
        message("assistant", [], "a1"),
        entry("compaction", "k1", summary="We chose sqlite.", firstKeptEntryId="u2"),
        message("bashExecution", None, "b1", command="make", output="ok"),
        message("assistant", text("hi"), "a2"),
    )
    assert [(t.turn_uuid, t.seq) for t in turns] == [("u1", 0), ("u2", 0), ("k1", 0), ("b1", 0), ("a2", 1)]
    assert said(turns) == [
        ("text", "a string"),
        ("text", "parts"),
        ("summary", "We chose sqlite."),
        ("tool_use", '{"command":"make"}'),
        ("tool_result", "ok"),
        ("text", "hi"),
    ]
    assert turns[2].flags == {"summary"}
    assert turns[3].role == "user"


@pytest.mark.parametrize(
    ("at", "ts"),
    [
        (1733234401000, AT),
        ("1733234401000", AT),
        ("2024-12-03T22:00:01+08:00", AT),
        (None, None),
        (0, None),
        ("soon", None),
    ],
)
def test_times_in_each_form(tmp_path: Path, at: Any, ts: str | None) -> None:
    turns, _, _ = read(tmp_path, header(), message("user", text("x"), at=at))
    assert turns[0].ts == ts


def test_the_messages_own_time_stands_in(tmp_path: Path) -> None:
    record = message("user", text("x"), timestamp=1733234401000)
    del record["timestamp"]
    assert read(tmp_path, header(), record)[0][0].ts == AT


def test_summaries_and_what_extensions_say(tmp_path: Path) -> None:
    turns, tally, info = read(
        tmp_path,
        header(),
        entry("branch_summary", "s1", summary="tried sqlite", fromId="x"),
        message("branchSummary", None, "s2", summary="tried lance"),
        message("compactionSummary", None, "s3", summary="all of it"),
        entry("custom_message", "m1", customType="ext", content="remember this", display=True),
        message("custom", text("and this"), "m2", customType="ext"),
        entry("custom", "d1", customType="ext", data={"text": "not this"}),
        entry("context_edit", "e1", targetId="m1", replacement={"content": "nor this"}),
        entry("label", "l1", targetId="m1", label="good"),
        entry("session_info", "i1", name="A title"),
        entry("usage", "y1", usage={}),
        entry("model_change", "o1", modelId="x"),
        entry("thinking_level_change", "p1", thinkingLevel="high"),
        message("system", text("you are"), "z1"),
    )
    assert said(turns) == [
        ("summary", "tried sqlite"),
        ("summary", "tried lance"),
        ("summary", "all of it"),
        ("text", "remember this"),
        ("text", "and this"),
    ]
    assert {t.role for t in turns} == {"system"}
    assert info.title == "A title"
    assert tally.unknown == {}
    assert sum(tally.skipped.values()) == 9


def test_images_leave_no_block(tmp_path: Path) -> None:
    image = {"type": "image", "data": "QUJD" * 400, "mimeType": "image/png"}
    turns, tally, _ = read(
        tmp_path,
        header(),
        message("user", [*text("see"), image], "u1"),
        message("user", [image], "u2"),
        message("toolResult", [image], "r1", toolName="read"),
        message("toolResult", text("data:image/png;base64," + "QUJD" * 400), "r2", toolName="read"),
    )
    assert said(turns)[0] == ("text", "see")
    assert len(turns) == 2
    assert "QUJDQUJD" not in str(turns)
    assert tally.skipped["message/user", "image"] == 1
    assert tally.skipped["message/toolResult", "image"] == 1


def test_our_own_answers_are_never_indexed(tmp_path: Path) -> None:
    turns, tally, _ = read(
        tmp_path,
        header(),
        message("toolResult", text("an old passage"), "r1", toolName="mcp__funes__recall"),
        message("toolResult", text("What follows are quotes from past sessions.\nx"), "r2", toolName="codemode"),
        message("bashExecution", None, "b1", command="funes recall x", output="[x]\n  → get s t --memory local\nx"),
        message("toolResult", text("another's"), "r3", toolName="recall"),
    )
    assert [(t.turn_uuid, t.seq) for t in turns] == [("r3", 2)]
    assert sum(n for (_, why), n in tally.skipped.items() if why == "our own answer") == 3


def test_failed_requests_have_no_words(tmp_path: Path) -> None:
    _, tally, _ = read(tmp_path, header(), message("user", text("x")), message("assistant", [], stopReason="error"))
    assert tally.skipped["message/assistant", "failed request"] == 1


def test_unknown_types_are_named_and_counted(tmp_path: Path) -> None:
    _, tally, _ = read(
        tmp_path,
        header(),
        message("user", text("x")),
        {**entry("novelty", "n1"), "text": "words"},
        entry("hollow", "n0"),
        message("oracle", text("x"), "n2"),
        entry("user/message", "n3"),
        {},
    )
    assert tally.unknown == {"novelty": 1, "message/oracle": 1, "?": 1}
    for kind in ("hollow", "user/message"):
        assert tally.skipped[kind, "of an unknown kind, with nothing in it"] == 1


def test_another_programs_session_with_the_same_header(tmp_path: Path) -> None:
    turns, infos, reader = read_path(
        write(tmp_path, [header(version=0), {"type": "user/message", "seq": 1, "data": {}}])
    )
    assert (turns, infos) == ([], [])
    assert reader.tally.unknown == {}
    assert reader.tally.skipped["user/message", "another program's session"] == 1


# The tree, and copies


def test_a_branch_can_be_walked_over_entries_that_are_no_turns(tmp_path: Path) -> None:
    turns, _, _ = read(
        tmp_path,
        header(),
        message("user", text("root"), "u1"),
        message("assistant", text("first way"), "a1", "u1"),
        entry("model_change", "m1", "u1"),
        entry("label", "l1", "m1"),
        message("assistant", text("second way"), "a2", "l1"),
        message("assistant", [], "a3", "a2"),
        message("user", text("go on"), "u2", "a3"),
    )
    above = {t.turn_uuid: t.parent_uuid for t in turns}
    assert above == {"u1": None, "a1": "u1", "a2": "u1", "u2": "a2"}


def test_a_fork_copies_entries_under_the_same_ids(tmp_path: Path) -> None:
    shared = [message("user", text("question"), "u1"), message("assistant", text("answer"), "a1", "u1")]
    first, _, _ = read(tmp_path, header(), *shared, name="2024-12-03T14-00-00-000Z_one.jsonl")
    parent = "/home/u/.pi/agent/sessions/--home-u-funes--/2024-12-03T14-00-00-000Z_one.jsonl"
    second, _, info = read(
        tmp_path, header(parentSession=parent), *shared, message("user", text("other"), "u2", "a1"), name="two.jsonl"
    )
    assert [t.identity for t in second[:2]] == [t.identity for t in first]
    assert (info.parent_session_id, info.relation) == ("2024-12-03T14-00-00-000Z_one", "fork")
    windows = header(branchedFrom="C:\\pi\\sessions\\one.jsonl")
    assert read(tmp_path, windows, *shared, name="three.jsonl")[2].parent_session_id == "one"


def test_equal_short_ids_are_no_copy(tmp_path: Path) -> None:
    first, _, _ = read(tmp_path, header(), message("user", text("x"), "deadbeef"), name="one.jsonl")
    for record in (
        message("user", text("y"), "deadbeef"),
        message("user", text("x"), "deadbeef", at="2024-12-03T14:00:02Z"),
        message("assistant", text("x"), "deadbeef"),
    ):
        other, _, _ = read(tmp_path, header(), record, name="two.jsonl")
        assert other[0].identity != first[0].identity


def test_each_reading_introduces_the_session(tmp_path: Path) -> None:
    records = [header(), message("user", text("one"), "u1")]
    _, infos, reader = read_path(write(tmp_path, records))
    path = write(tmp_path, [*records, message("user", text("two"), "u2", "u1")])
    turns, again, reader = read_path(path, reader.cursor())
    assert (len(turns), again) == (1, infos)
    write(tmp_path, [*records, message("user", text("two"), "u2", "u1"), entry("session_info", "i", name="A title")])
    turns, again, reader = read_path(path, reader.cursor())
    assert (turns, [info.title for info in again]) == ([], ["A title"])
    assert read_path(path, reader.cursor())[:2] == ([], [])


def test_entries_without_ids_are_turns_of_their_own(tmp_path: Path) -> None:
    turns, _, _ = read(tmp_path, header(), message("user", text("x"), None), message("user", text("x"), None))
    assert [t.turn_uuid for t in turns] == [f"{STEM}-0", f"{STEM}-1"]
    assert len({t.identity for t in turns}) == 2


def test_a_missing_header(tmp_path: Path) -> None:
    turns, _, info = read(tmp_path, message("user", text("x"), "u1"))
    assert (info.session_id, info.cwd, info.started) == (STEM, None, "2024-12-03T14:00:00.000Z")
    assert len(turns) == 1
    assert read(tmp_path, message("user", text("x"), "u1"), name="x.jsonl")[2].started == AT


# Files


def test_where_pi_is_looked_for(tmp_path: Path) -> None:
    (default,) = ADAPTER.roots({"PI_CODING_AGENT_DIR": " ", "PI_CODING_AGENT_SESSION_DIR": ""}, tmp_path)
    assert (default.path, default.why) == (tmp_path / ".pi/agent/sessions", "default")
    (named,) = ADAPTER.roots({"PI_CODING_AGENT_DIR": str(tmp_path / "x")}, tmp_path)
    assert (named.path, named.why) == (tmp_path / "x/sessions", "PI_CODING_AGENT_DIR")
    flat, other = ADAPTER.roots({"PI_CODING_AGENT_SESSION_DIR": str(tmp_path / "y")}, tmp_path)
    assert (flat.path, flat.why, other) == (tmp_path / "y", "PI_CODING_AGENT_SESSION_DIR", default)
    assert list(ADAPTER.sources(default, Tally())) == []


def test_sessions_are_found_in_folders_and_flat(tmp_path: Path) -> None:
    write(tmp_path / "sessions/--home-u-funes--", [header()])
    write(tmp_path / "sessions/--home-u-funes--", ["x"], "notes.txt")
    write(tmp_path / "flat", [header()])
    environ = {"PI_CODING_AGENT_DIR": str(tmp_path), "PI_CODING_AGENT_SESSION_DIR": str(tmp_path / "flat")}
    tally = Tally()
    found = [s.path.parent.name for root in ADAPTER.roots(environ, tmp_path) for s in ADAPTER.sources(root, tally)]
    assert found == ["flat", "--home-u-funes--"]
    assert tally.skipped["file", "not a session"] == 1


def test_claiming_a_named_file() -> None:
    path = Path("x.jsonl")
    assert ADAPTER.claims(path, json.dumps(header()).encode() + b"\n{}")
    assert ADAPTER.claims(path, json.dumps(message("user", text("x"))).encode())
    assert not ADAPTER.claims(path, b'{"type":"user","sessionId":"x","message":{}}')
    assert not ADAPTER.claims(path, b'{"type":"session_meta","payload":{}}')
    assert not ADAPTER.claims(Path("x.txt"), json.dumps(header()).encode())


# Reading again

TEXTS = st.sampled_from(["hello", "quotes from past sessions", ""])
KEYS = st.sampled_from(["a", "b", "c", None])
RECORDS = st.one_of(
    st.builds(message, st.sampled_from(["user", "assistant", "toolResult", "custom"]), TEXTS.map(text), KEYS, KEYS),
    st.builds(message, st.sampled_from(["user", "assistant"]), TEXTS, KEYS, KEYS),
    st.builds(lambda key, above: entry("model_change", key, above), KEYS, KEYS),
    st.builds(lambda key, summary: entry("compaction", key, summary=summary), KEYS, TEXTS),
    st.sampled_from([header(), header(cwd="/w"), entry("session_info", "i", name="t"), entry("novelty", "n")]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(RECORDS, max_size=16), st.lists(st.integers(0, 3000), max_size=4))
def test_slices_give_what_the_whole_gives(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("slices")
    path = write(folder, records)
    data = path.read_bytes()
    turns: list[Turn] = []
    tally = Tally()
    cursor: Cursor | None = None
    for cut in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:cut])
        new, _, reader = read_path(path, cursor)
        turns += new
        tally.add(reader.tally)
        cursor = Cursor(**json.loads(json.dumps(asdict(reader.cursor()))))  # as a catalog keeps it
    whole, _, reader = read_path(path)
    assert turns == whole
    counted = {kind: n for kind, n in tally.skipped.items() if n}
    assert counted == {kind: n for kind, n in reader.tally.skipped.items() if n}
    assert (tally.kept, tally.unknown, tally.lines) == (reader.tally.kept, reader.tally.unknown, reader.tally.lines)


NAMES = (
    "type id parentId timestamp message role content text thinking arguments name toolName summary command "
    "output cwd parentSession data customType title stopReason"
)
WORDS = (
    "session message compaction custom_message session_info user assistant toolResult bashExecution custom "
    "text thinking toolCall image"
)
SHAPED = st.recursive(
    st.none() | st.integers() | st.sampled_from(WORDS.split(" ")) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES.split(" ")), inner, max_size=6),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(NAMES.split(" ")), SHAPED, max_size=6), max_size=6))
def test_no_record_raises(records: list[Record]) -> None:
    tally = Tally()
    parser = SessionParser(STEM, None, tally)
    for number, record in enumerate(records, 1):
        for found in parser.feed(record, False):
            assert not isinstance(found, Turn) or found.blocks
        assert tally.explained == number
    json.dumps(parser.state())
    parser.end()


def test_a_long_session_of_images_leaves_a_small_state(tmp_path: Path) -> None:
    image = {"type": "image", "data": "QUJD" * 20_000, "mimeType": "image/png"}
    records = [message("toolResult", [*text(f"shot {n}"), image], f"{n:08x}", toolName="shot") for n in range(400)]
    turns, _, reader = read_path(write(tmp_path, [header(), *records]))
    assert len(turns) == 400
    assert len(json.dumps(asdict(reader.cursor()))) < 2_000
