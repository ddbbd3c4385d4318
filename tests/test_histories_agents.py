"""Small histories of the real agents, indexed and asked: what a person would notice if one were read wrongly."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import zstandard
from histories_support import claude_file, claude_line, index, service, write
from memory_support import rows_of
from test_hermes_parse import make, put, session

from funes_mcp.memory.model import Chunk
from funes_mcp.models import GetRequest, Hit, RecallRequest
from funes_mcp.render import render_recall
from funes_mcp.traces.model import Tally

ROLLOUT = "rollout-2026-03-01T10-00-00-00000000-0000-4000-9000-000000000001.jsonl"


def rows(home: Path) -> list[Chunk]:
    return sorted(rows_of(home / ".funes" / "memory").values(), key=lambda row: (row.session_id, row.seq, row.ts))


def recall(home: Path, question: str, **more: Any) -> list[Hit]:
    return list(service(home).recall(RecallRequest(question, **more)).hits)


def shown(home: Path, question: str) -> str:
    return render_recall(service(home).recall(RecallRequest(question)), "local")


def said(home: Path, session_id: str, turn: str) -> list[str]:
    answer = service(home).get(GetRequest(session_id, turn, window=9))
    return [block for view in answer.turns for block in view.blocks]


def accounted(home: Path) -> bool:
    return [f for f in service(home).doctor().findings if f.state == "problem" and f.about != "deletion"] == []


def test_a_resumed_session_is_one_conversation_in_two_places(tmp_path: Path) -> None:
    claude_file(tmp_path, "aaaa", "glaze one", "glaze two", "glaze three")
    copies = [claude_line(f"aaaa-{n}", f"glaze {word}", "bbbb") for n, word in enumerate(["one", "two", "three"])]
    write(
        tmp_path / ".claude/projects/-home-ann-kiln/bbbb.jsonl",
        [*copies, claude_line("b4", "glaze four", "bbbb", parent="aaaa-2")],
    )
    index(tmp_path)
    assert [row.text for row in rows(tmp_path)] == ["glaze one", "glaze two", "glaze three", "glaze four"]
    hit = next(hit for hit in recall(tmp_path, "glaze two") if hit.chunk.text == "glaze two")
    assert [sighting.session_id for sighting in hit.also_in] == ["bbbb"]
    assert said(tmp_path, "aaaa", "aaaa-1") == ["glaze one", "glaze two", "glaze three"]
    assert said(tmp_path, "bbbb", "aaaa-1") == ["glaze one", "glaze two", "glaze three", "glaze four"]
    answer = service(tmp_path).get(GetRequest("bbbb", "0"))
    assert (answer.found, len(answer.notes)) == (False, 1)
    assert answer.notes[0].startswith("the session has 4 turns: aaaa-0 is the first, b4 the last.")


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    claude_file(tmp_path, "aaaa", "one", "two", "three")
    index(tmp_path)
    claude_file(tmp_path, "aaaa", "one", "two", "three", "four", "five")
    assert index(tmp_path).chunks_stored == 2
    assert [row.text for row in rows(tmp_path)] == ["one", "two", "three", "four", "five"]
    assert accounted(tmp_path)


def test_touching_everything_embeds_nothing(tmp_path: Path) -> None:
    for name in ("aaaa", "bbbb"):
        claude_file(tmp_path, name, f"words of {name}")
    index(tmp_path)
    for path in (tmp_path / ".claude").rglob("*.jsonl"):
        os.utime(path)
    report = index(tmp_path)
    assert (report.chunks_stored, report.embedded) == (0, 0)
    assert index(tmp_path).sources["claude_code"].unchanged == 2
    assert [row.ts for row in rows(tmp_path)] == ["2026-05-01T10:00:00.000Z"] * 2


def test_a_rewritten_file_of_the_same_size_and_time_is_read_again(tmp_path: Path) -> None:
    claude_file(tmp_path, "aaaa", "the red glaze")
    index(tmp_path)
    claude_file(tmp_path, "aaaa", "the tan glaze")
    index(tmp_path)
    assert [row.text for row in rows(tmp_path)] == ["the tan glaze"]


def codex_lines(*texts: str) -> list[dict[str, Any]]:
    def line(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-03-01T10:00:00.000Z", "type": kind, "payload": payload}

    meta = line("session_meta", id="00000000-0000-4000-9000-000000000001", cwd="/home/ann/kiln")
    return [
        meta,
        *(
            line("response_item", type="message", role="user", content=[{"type": "input_text", "text": text}])
            for text in texts
        ),
    ]


def test_a_rollout_stays_one_session_when_it_is_compressed_and_archived(tmp_path: Path) -> None:
    folder = tmp_path / ".codex" / "sessions" / "2026" / "03" / "01"
    path = write(folder / ROLLOUT, codex_lines("how hot is the kiln", "and how long"))
    index(tmp_path)
    packed = path.with_name(f"{ROLLOUT}.zst")
    packed.write_bytes(zstandard.ZstdCompressor().compress(path.read_bytes()))
    path.unlink()
    report = index(tmp_path)
    assert (report.chunks_stored, report.embedded, report.chunks_known) == (0, 0, 2)
    archived = tmp_path / ".codex" / "archived_sessions" / ROLLOUT
    write(archived, codex_lines("how hot is the kiln", "and how long", "said in the archive"))
    packed.unlink()
    assert index(tmp_path).chunks_stored == 1
    assert service(tmp_path).sessions() == ["00000000-0000-4000-9000-000000000001"]
    assert len(rows(tmp_path)) == 3
    (status,) = [s for s in service(tmp_path).status().harnesses if s.harness == "codex"]
    assert (status.computed, status.copied, status.sources.gone) == (3, 0, 2)
    assert accounted(tmp_path)


def test_odd_bytes_cost_only_themselves(tmp_path: Path) -> None:
    path = claude_file(tmp_path, "aaaa", "good words")
    whole = [json.dumps(claude_line(f"x{n}", f"more words {n}", "aaaa")) for n in range(5)]
    cut_emoji = whole[0].replace("more words 0", "a cut emoji \\ud83d here")
    lines = [cut_emoji, whole[1] + whole[2], whole[3][:60], "[1]", "", "\x00\x00" + whole[4]]
    path.write_bytes(path.read_bytes() + "\r\n".join(lines).encode() + b"\r\n\xff\xfe\n")
    claude_file(tmp_path, "bbbb", "words elsewhere")
    index(tmp_path)
    assert {row.text for row in rows(tmp_path)} == {
        "good words",
        "a cut emoji \ufffd here",
        *(f"more words {n}" for n in (1, 2, 4)),
        "words elsewhere",
    }
    (status,) = [s for s in service(tmp_path).status().harnesses if s.harness == "claude_code"]
    records: Tally = status.records
    assert {reason: n for (_, reason), n in records.skipped.items()} == {
        "torn line": 2,
        "not a JSON object": 1,
        "blank": 1,
    }
    assert accounted(tmp_path)


def test_a_database_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    claude_file(tmp_path, "aaaa", "words of claude")
    (tmp_path / ".hermes").mkdir()
    (tmp_path / ".hermes" / "state.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    report = index(tmp_path)
    assert [row.text for row in rows(tmp_path)] == ["words of claude"]
    ((path, _),) = report.failures
    assert path.endswith("state.db")
    failed = [f.message for f in service(tmp_path).doctor().findings if f.state == "problem"]
    assert len(failed) == 1
    assert "state.db" in failed[0]


def test_what_hermes_prunes_is_kept_when_it_also_takes_something_back(tmp_path: Path) -> None:
    database = make(tmp_path / ".hermes")
    for name in ("kept", "pruned"):
        session(database, name)
        for word in ("first", "second"):
            put(
                database,
                "messages",
                session_id=name,
                role="user",
                content=f"{word} of {name}",
                timestamp=1_772_000_000.0,
            )
    index(tmp_path)
    database.execute("delete from messages where session_id = 'pruned'")
    database.execute("delete from sessions where id = 'pruned'")
    database.execute("update messages set active = 0 where content = 'second of kept'")
    index(tmp_path)
    assert [row.text for row in rows(tmp_path)] == ["first of kept", "first of pruned", "second of pruned"]
    assert accounted(tmp_path)


def agent_file(home: Path, parent: str, text: str) -> None:
    line = claude_line(f"{parent}-agent", text, parent, isSidechain=True, agentId="a1b2c3")
    folder = home / ".claude/projects/-home-ann-kiln" / parent / "subagents"
    write(folder / "agent-a1b2c3.jsonl", [line])
    (folder / "agent-a1b2c3.meta.json").write_text(json.dumps({"agentType": "Explore"}))


def test_subagents_are_found_and_labelled_with_the_right_parent(tmp_path: Path) -> None:
    agent_file(tmp_path, "first-session", "look for the crackle recipe")
    agent_file(tmp_path, "second-session", "look for the celadon recipe")
    index(tmp_path)
    assert "subagent Explore of first-se" in shown(tmp_path, "crackle recipe").split("---")[0]
    assert "subagent Explore of second-s" in shown(tmp_path, "celadon recipe").split("---")[0]
    assert len(service(tmp_path).sessions()) == 2
    assert accounted(tmp_path)


def history(home: Path, *prompts: tuple[str, str]) -> None:
    write(
        home / ".claude" / "history.jsonl",
        [
            {
                "display": text,
                "pastedContents": {},
                "timestamp": 1_772_000_000_000,
                "project": "/home/ann/kiln",
                "sessionId": name,
            }
            for name, text in prompts
        ],
    )


def test_prompts_of_a_deleted_session_are_found_until_it_returns(tmp_path: Path) -> None:
    claude_file(tmp_path, "there", "of a session that is there")
    history(tmp_path, ("gone", "how thick should the slip be"), ("there", "of a session that is there"))
    index(tmp_path)
    assert "history: known only from the agent's prompt history" in shown(tmp_path, "how thick should the slip be")
    claude_file(tmp_path, "gone", "how thick should the slip be", "as thick as cream")
    index(tmp_path)
    assert [(row.text, row.flags) for row in rows(tmp_path) if row.session_id == "gone"] == [
        ("how thick should the slip be", ""),
        ("as thick as cream", ""),
    ]
    (tmp_path / ".claude/projects/-home-ann-kiln/gone.jsonl").unlink()
    history(tmp_path, ("gone", "how thick should the slip be"), ("gone", "how thick should the slip be, really"))
    index(tmp_path)
    assert [row.flags for row in rows(tmp_path)] == [""] * 3
    assert accounted(tmp_path)


def test_worktrees_of_a_repository_are_one_project(tmp_path: Path) -> None:
    main, tree = tmp_path / "kiln", tmp_path / "trees" / "fix"
    private = main / ".git" / "worktrees" / "fix"
    private.mkdir(parents=True)
    (main / ".git" / "config").write_text('[remote "origin"]\n\turl = git@example.org:ann/kiln.git\n')
    (private / "commondir").write_text("../..\n")
    tree.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {private}\n")
    for name, cwd in (("aaaa", main), ("bbbb", tree)):
        line = claude_line(name, f"the glaze in {name}", name, cwd=str(cwd), gitBranch=f"branch-{name}")
        write(tmp_path / ".claude/projects" / name / f"{name}.jsonl", [line])
    write(tmp_path / ".claude/projects/c/cccc.jsonl", [claude_line("cccc", "the glaze in cccc", "cccc", cwd="/c")])
    index(tmp_path)
    found = recall(tmp_path, "the glaze", project="ann/kiln")
    assert {hit.chunk.session_id for hit in found} == {"aaaa", "bbbb"}
    assert "branch branch-bbbb" in shown(tmp_path, "the glaze in bbbb").split("---")[0]
    shutil.rmtree(tree)
    with (tmp_path / ".claude/projects/bbbb/bbbb.jsonl").open("a") as file:
        file.write(json.dumps(claude_line("b2", "said later", "bbbb", cwd=str(tree))) + "\n")
    index(tmp_path)
    assert {row.repo for row in rows(tmp_path) if row.session_id == "bbbb"} == {"ann/kiln"}


def test_a_folder_of_windows_is_one_project_however_it_is_spelled(tmp_path: Path) -> None:
    for name, cwd in (("aaaa", "C:\\Users\\ann\\my-kiln"), ("bbbb", "c:/Users/ann/My-Kiln")):
        write(
            tmp_path / ".claude/projects" / name / f"{name}.jsonl",
            [claude_line(name, f"the glaze in {name}", name, cwd=cwd)],
        )
    index(tmp_path)
    for project in ("my-kiln", "C:\\Users\\ann\\my-kiln", "c:/users/ann/my-kiln"):
        assert {hit.chunk.session_id for hit in recall(tmp_path, "glaze", project=project)} == {"aaaa", "bbbb"}
    assert recall(tmp_path, "glaze", project="kiln") == []


@pytest.mark.parametrize(("ts", "head"), [(None, "[no date]"), ("2035-01-01T00:00:00Z", "[2035-01-01T00:00:00.000Z]")])
def test_no_date_and_a_date_to_come_do_no_harm(tmp_path: Path, ts: str | None, head: str) -> None:
    lines = [claude_line(f"u{n}", f"the glaze {n}", "aaaa", ts=ts) for n in (3, 1, 2)]
    write(tmp_path / ".claude/projects/p/aaaa.jsonl", lines)
    claude_file(tmp_path, "bbbb", "the glaze of today and nothing else to be asked")
    index(tmp_path)
    assert shown(tmp_path, "the glaze 1").startswith(head)
    assert said(tmp_path, "aaaa", "u1") == ["the glaze 3", "the glaze 1", "the glaze 2"]
    assert all(0.0 <= hit.score <= 1.0 for hit in recall(tmp_path, "the glaze"))


def test_a_compaction_is_a_summary_and_nobodys_words(tmp_path: Path) -> None:
    text = "This session is being continued from a previous conversation. The user said: glaze everything twice."
    write(
        tmp_path / ".claude/projects/p/aaaa.jsonl",
        [claude_line("u1", "we fire the kiln", "aaaa"), claude_line("u2", text, "aaaa", isCompactSummary=True)],
    )
    index(tmp_path)
    assert [(row.role, row.block_type, row.flags) for row in rows(tmp_path)] == [
        ("user", "text", ""),
        ("system", "summary", "summary"),
    ]
    assert "summary: a machine's summary of earlier turns" in shown(tmp_path, "glaze everything twice")


def test_a_memory_can_be_named_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claude_file(tmp_path, "aaaa", "the red glaze")
    index(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert [hit.chunk.text for hit in recall(tmp_path, "glaze", memory="./.funes")] == ["the red glaze"]
    assert service(tmp_path).status("./.funes").chunks == 1
