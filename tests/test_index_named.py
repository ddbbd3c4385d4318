"""`funes index` of what a person names: every file has its place in the account, and nothing stands for another."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from fixtures.server.fake_service import FakeService
from histories_support import claude_file, claude_line, index, service, write

from funes_mcp.cli.app import run
from funes_mcp.cli.index import summary
from funes_mcp.errors import FunesError
from funes_mcp.indexing import Pass
from funes_mcp.memory.catalog import FILE
from funes_mcp.models import ForgetRequest, IndexRequest, SourceCounts
from funes_mcp.render import render_status
from funes_mcp.traces.model import NO_THINKING

posix = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are Unicode there")

PI_HEADER = {"type": "session", "version": 3, "id": "p1", "timestamp": "2026-05-01T10:00:00.000Z", "cwd": "/home/ann"}


def pi_message(number: int, *content: dict[str, str]) -> dict[str, object]:
    message = {"role": "assistant", "content": list(content)}
    stamp = f"2026-05-01T10:0{number}:00.000Z"
    return {"type": "message", "id": f"m{number}", "parentId": None, "timestamp": stamp, "message": message}


def pi_file(path: Path, *messages: dict[str, object]) -> Path:
    return write(path, [PI_HEADER, *(messages or (pi_message(0, {"type": "text", "text": "hello there"}),))])


def counts(home: Path, harness: str) -> SourceCounts:
    (status,) = [status for status in service(home).status().harnesses if status.harness == harness]
    return status.sources


def test_an_empty_path_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    asked = FakeService()
    assert run(["index", ""], lambda: asked) == 2
    assert asked.asked == []
    assert "`.` is the current one" in capsys.readouterr().err


@posix
def test_a_folder_whose_name_is_no_utf8_is_read_and_remembered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    write(folder / "a.jsonl", [claude_line("u1", "alpha", "a")])
    assert run(["index", str(folder)], lambda: service(tmp_path)) == 0
    assert "claude_code: 1 file: 1 read" in capsys.readouterr().out
    found = counts(tmp_path, "claude_code")
    assert (found.found, found.read, found.gone) == (1, 1, 0)
    write(folder / "b.jsonl", [claude_line("u2", "beta", "b")])
    assert service(tmp_path).status().pending == 1


def test_a_name_that_is_not_there_is_said_in_characters_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["index", "/nowhere/caf\udce9"], lambda: service(Path("/nowhere"))) == 2
    assert "There is nothing at /nowhere/caf\ufffd." in capsys.readouterr().err


def test_a_broken_configuration_is_told_before_anything_is_read(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a.jsonl", [claude_line("u1", "alpha", "a")])
    (tmp_path / ".funes").mkdir()
    (tmp_path / ".funes" / "config.toml").write_text("[[homes\n")
    with pytest.raises(FunesError, match="is no TOML"):
        index(tmp_path, path=tmp_path / "old")
    assert not (tmp_path / ".funes" / "memory" / FILE).exists()


def test_the_memory_is_no_source_of_itself(tmp_path: Path) -> None:
    claude_file(tmp_path, "a", "alpha")
    index(tmp_path)
    report = index(tmp_path, path=tmp_path)
    assert "hermes" not in report.sources
    assert report.sources[""].skipped["of funes itself"] >= 1
    assert service(tmp_path).status().pending == 0


def test_a_folder_that_is_named_is_read_though_it_lies_where_funes_keeps_things(tmp_path: Path) -> None:
    pi_file(tmp_path / ".funes" / "logs" / "p.jsonl")
    report = service(tmp_path).index(IndexRequest(path=tmp_path / ".funes" / "logs"))
    assert report.sources["pi"].found == 1


def test_another_agents_transcript_is_said_to_be_left_out_by_the_filter(tmp_path: Path) -> None:
    pi_file(tmp_path / "old" / "p.jsonl")
    (tmp_path / "old" / "notes.txt").write_text("no transcript")
    report = index(tmp_path, path=tmp_path / "old", harness="claude")
    assert report.sources[""].skipped == {
        "a transcript of pi, not asked for": 1,
        "no transcript of a known agent": 1,
    }


def test_thinking_that_is_left_out_is_counted(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": "it may be the glaze"}
    path = tmp_path / ".pi" / "agent" / "sessions" / "x" / "p.jsonl"
    pi_file(path, pi_message(0, thought, {"type": "text", "text": "I look at it."}))
    report = index(tmp_path, thinking=False)
    assert report.chunks_stored == 1
    assert report.records["pi"].parts[NO_THINKING] == 1
    assert "(1 thoughts left out)" in summary(report)
    assert "left out of kept records: thinking (--no-thinking) 1" in render_status(service(tmp_path).status())
    other = tmp_path / "with"
    pi_file(other / ".pi" / "agent" / "sessions" / "x" / "p.jsonl", pi_message(0, thought))
    assert NO_THINKING not in index(other).records["pi"].parts


def test_thinking_that_was_left_out_is_had_as_the_help_says(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": "it may be the glaze"}
    pi_file(
        tmp_path / ".pi" / "agent" / "sessions" / "x" / "p.jsonl",
        pi_message(0, thought, {"type": "text", "text": "I look."}),
    )
    index(tmp_path, thinking=False)
    assert index(tmp_path).sources["pi"].unchanged == 1
    memory = service(tmp_path)
    plan = memory.plan_forgetting(ForgetRequest("p"))
    memory.forget(plan)
    memory.unforget(plan.sessions)
    assert index(tmp_path).chunks_stored == 2


@pytest.mark.parametrize(
    ("harness", "path"),
    [
        ("claude_code", ".claude/projects/-p/a.jsonl"),
        ("codex", ".codex/sessions/2026/05/01/rollout-2026-05-01T10-00-00-0199.jsonl"),
        ("pi", ".pi/agent/sessions/x/p.jsonl"),
        ("hermes", ".hermes/state.db"),
        ("hermes", ".hermes/sessions/h.jsonl"),
    ],
)
def test_an_empty_file_is_left_out_whose_ever_it_is(tmp_path: Path, harness: str, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_bytes(b"")
    found = index(tmp_path).sources[harness]
    assert (found.found, found.read, found.skipped) == (0, 0, {"empty": 1})


def test_an_emptied_file_is_counted_once(tmp_path: Path) -> None:
    path = claude_file(tmp_path, "a", "alpha")
    index(tmp_path)
    path.write_bytes(b"")
    found = counts(tmp_path, "claude_code")
    assert (found.found, found.read, found.gone, found.skipped) == (0, 0, 0, {"empty": 1})
    assert service(tmp_path).status().chunks == 1


def test_a_file_that_could_not_be_read_does_not_wait_until_it_changes(tmp_path: Path) -> None:
    claude_file(tmp_path, "good", "alpha")
    path = tmp_path / ".hermes" / "state.db"
    path.parent.mkdir()
    path.write_bytes(b"no database at all" * 400)
    index(tmp_path)
    report = service(tmp_path).status()
    assert (report.pending, counts(tmp_path, "hermes").failed) == (0, 1)
    path.write_bytes(b"another that is none" * 400)
    report = service(tmp_path).status()
    found = counts(tmp_path, "hermes")
    assert (report.pending, found.waiting, found.failed) == (1, 1, 0)


def test_a_path_is_remembered_though_reading_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "old" / "a.jsonl", [claude_line("u1", "alpha", "a")])

    def full(*_: object) -> None:
        raise FunesError("The disk is full.")

    monkeypatch.setattr(Pass, "_commit", full)
    with pytest.raises(FunesError, match="full"):
        service(tmp_path).index(IndexRequest(path=tmp_path / "old"))
    monkeypatch.undo()
    assert service(tmp_path).status().pending == 1
    assert index(tmp_path, path=tmp_path / "old").chunks_stored == 1
