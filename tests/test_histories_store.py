"""Histories as agents leave them, in a memory: whose turns are whose, in which order, and what was counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from memory_support import MODEL, Transcript, embed, rows_of, source_of, store, transcript, words_of

from funes_mcp.memory import derived
from funes_mcp.memory.catalog import Catalog
from funes_mcp.memory.chunk import chunks_of
from funes_mcp.memory.conversation import in_order
from funes_mcp.memory.model import Sighting
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.rows import alias
from funes_mcp.memory.table import ChunkTable
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.traces.model import Cursor, SessionInfo, Source, Tally


def account(folder: Path, path: str) -> Tally:
    state = Catalog(folder, writable=False).source(path)
    assert state is not None
    return state.tally


def told(lines: int, unfinished: int, images: int) -> Tally:
    return Tally(
        kept=Counter({"user": lines - unfinished}),
        skipped=Counter({("line", "unfinished last line"): unfinished}),
        lines=lines,
        parts=Counter({("text", "image"): images}),
    )


def test_the_accounts_of_all_readings_of_a_source_add_up(tmp_path: Path) -> None:
    file = transcript("one")
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        for whole, tally in [(True, told(4, 1, 2)), (False, told(3, -1, 1)), (False, Tally())]:
            writer.begin(source_of(file), whole=whole)
            writer.finish(source_of(file), Cursor(1, "d"), tally)
            writer.commit(embed)
        assert account(tmp_path, file.path) == told(7, 0, 3)
        writer.begin(source_of(file), whole=True)
        writer.finish(source_of(file), Cursor(1, "d"), told(5, 0, 1))
        writer.commit(embed)
    assert account(tmp_path, file.path) == told(5, 0, 1)


def order(folder: Path, session: str) -> list[str]:
    turns = MemoryReader.open(folder).turns(session, "m", 9)
    assert turns is not None
    return [turn.turn_uuid for turn in turns]


@pytest.mark.parametrize(
    ("times", "said"),
    [(["10:00", "10:02", "10:01"], ["z", "m", "a"]), (["10:00", "10:02", None], ["a", "m", "z"])],
    ids=["by their times", "by their ids where a time is missing"],
)
def test_turns_that_share_a_position_are_in_order(tmp_path: Path, times: list[str | None], said: list[str]) -> None:
    file = transcript("one")
    for name, time in zip("zam", times, strict=True):
        turn = file.say(name, f"words of {name}", parent=None)
        file.turns[-1] = replace(turn, seq=4, ts=time and f"2026-01-01T{time}:00.000Z")
    store(tmp_path, file)
    assert order(tmp_path, "one") == said
    reader = MemoryReader.open(tmp_path)
    (middle,) = [row for row in rows_of(tmp_path).values() if row.turn_uuid == "m"]
    before, after = reader.beside(middle, 3)
    assert [row.turn_uuid for row in (*before, middle, *after)] == said
    # What stands beside a passage is indexed with it: the same when the index is made again from the table.
    words = words_of(tmp_path, ["z", "m", "word"])
    derived.catch_up(ChunkTable.open(tmp_path), tmp_path, everything=True)
    assert words_of(tmp_path, ["z", "m", "word"]) == words


def test_order_is_the_same_however_it_is_asked_for() -> None:
    items = [(1, "", "b"), (0, "t9", "x"), (1, "t1", "c"), (2, "t2", "a"), (2, "t1", "b"), (1, "t5", "a")]
    expected = [(0, "t9", "x"), (1, "t5", "a"), (1, "", "b"), (1, "t1", "c"), (2, "t1", "b"), (2, "t2", "a")]
    for start in range(len(items)):
        assert in_order(items[start:] + items[:start], lambda i: (i[0], i[2]), lambda i: i[1]) == expected


def prompts(session: str, *texts: str) -> Transcript:
    """A prompt history: what a person typed in a session whose transcript is thought to be gone."""
    file = Transcript("/t/history.jsonl", SessionInfo(session, "claude_code", cwd="/home/ann/proj"))
    for number, text in enumerate(texts):
        file.say(f"history-{number}", text, flags=frozenset({"history"}), identity=f"history:{session}{number}")
    return file


@pytest.mark.parametrize("transcript_first", [True, False])
def test_remembered_prompts_give_way_to_a_transcript(tmp_path: Path, transcript_first: bool) -> None:
    file, history = transcript("gone"), prompts("gone", "first question", "second question")
    file.say("u1", "first question")
    file.say("u2", "an answer", role="assistant")
    store(tmp_path, *([file] if transcript_first else [history]))
    store(tmp_path, *([history] if transcript_first else [file]))
    assert [row.turn_uuid for row in sorted(rows_of(tmp_path).values(), key=lambda row: row.seq)] == ["u1", "u2"]
    reader = MemoryReader.open(tmp_path)
    turns = reader.turns("gone", "u1", 5)
    assert turns is not None
    assert [turn.blocks for turn in turns] == [("first question",), ("an answer",)]
    assert reader.turns("gone", "history-1", 5) is None


def test_remembered_prompts_of_other_sessions_stay(tmp_path: Path) -> None:
    file, history = transcript("there"), prompts("gone", "a question")
    file.say("u1", "another question")
    store(tmp_path, file, history)
    found = {(row.session_id, row.flags): row.text for row in rows_of(tmp_path).values()}
    assert found == {("there", ""): "another question", ("gone", "history"): "a question"}


def test_remembered_prompts_come_back_when_the_transcript_lost_its_words(tmp_path: Path) -> None:
    file, history = transcript("gone"), prompts("gone", "a question")
    file.say("u1", "a question")
    store(tmp_path, file, history)
    file.turns, file.rewritten = [], True
    store(tmp_path, file)
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        assert not writer.unchanged(source_of(history))
        assert writer.cursor_of(source_of(history)) is None
    store(tmp_path, history)
    assert [row.turn_uuid for row in rows_of(tmp_path).values()] == ["history-0"]


def agent(folder: str, parent: str, *texts: str) -> Transcript:
    path = f"/t/{folder}/subagents/agent-a1b2c3.jsonl"
    info = SessionInfo("agent-a1b2c3", "claude_code", parent_session_id=parent, relation="subagent")
    file = Transcript(path, replace(info, started="2026-01-01T00:00:00.000Z"))
    for text in texts:
        file.say(f"{folder}-{len(file.turns)}", text)
    return file


@pytest.mark.parametrize("turned", [False, True])
def test_subagents_of_two_sessions_with_one_name_stay_apart(tmp_path: Path, turned: bool) -> None:
    files = [agent("p1", "first", "task of the first", "done"), agent("p2", "second", "task of the second")]
    other = alias("agent-a1b2c3", files[1].path)
    for file in reversed(files) if turned else files:
        store(tmp_path, file)
    rows = rows_of(tmp_path).values()
    assert {(row.session_id, row.parent_session_id) for row in rows} == {
        ("agent-a1b2c3", "first"),
        (other, "second"),
    }
    reader = MemoryReader.open(tmp_path)
    turns = reader.turns("agent-a1b2c3", "p1-0", 9)
    assert turns is not None
    assert [turn.turn_uuid for turn in turns] == ["p1-0", "p1-1"]
    files[1].say("p2-1", "said later")
    store(tmp_path, files[1])
    assert {row.session_id for row in rows_of(tmp_path).values() if row.text == "said later"} == {other}


def test_a_subagents_copy_under_a_resumed_session_is_also_there(tmp_path: Path) -> None:
    first, second = agent("p1", "first", "the task"), agent("p2", "second")
    second.copy_from(first, 1)
    second.say("more", "said under the second only")
    store(tmp_path, first, second)
    rows = {row.text: row for row in rows_of(tmp_path).values()}
    assert rows["the task"].parent_session_id == "first"
    assert MemoryReader.open(tmp_path).also_in(rows["the task"]) == (Sighting(alias("agent-a1b2c3", second.path), 0),)


def test_a_session_pruned_from_a_store_of_many_keeps_its_rows(tmp_path: Path) -> None:
    source = Source("hermes", Path("/h"), Path("/h/state.db"), 1, 1, 1, 1, "database", many=True)

    def read(**sessions: list[str]) -> None:
        with MemoryWriter.open(tmp_path, MODEL) as writer:
            writer.begin(source, whole=True)
            for name, texts in sessions.items():
                writer.put_session(SessionInfo(name, "hermes"))
                file = transcript(name)
                for text in texts:
                    turn = file.say(text, text, identity=f"{name} {text}")
                    writer.put_turn(turn, chunks_of(turn, file.info, "/h/state.db"))
            writer.finish(source, Cursor(1, ""), Tally())
            writer.commit(embed)

    read(kept=["one", "two"], pruned=["three"], emptied=["four"])
    read(kept=["one"], emptied=[])
    assert {(row.session_id, row.text) for row in rows_of(tmp_path).values()} == {("kept", "one"), ("pruned", "three")}
    read(kept=["one"], pruned=["five"])
    assert {row.text for row in rows_of(tmp_path).values()} == {"one", "five"}
