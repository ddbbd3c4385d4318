"""A transcript that cannot be stored, or not be understood, costs itself and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from histories_support import LONG_AGO, claude_file, claude_line, index, service, write

from funes_mcp.indexing import SENSELESS
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.models import GetRequest, RecallRequest

posix = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are Unicode there")


@posix
@pytest.mark.parametrize("odd", [b"caf\xe9.jsonl", b"caf\xe9/subagents/agent-1.jsonl", b"caf\xe9/plain.jsonl"])
def test_a_name_that_is_no_utf8_is_indexed_under_one_that_is(tmp_path: Path, odd: bytes) -> None:
    claude_file(tmp_path, "good", "alpha zanzibar")
    path = tmp_path / ".claude" / "projects" / "-p" / os.fsdecode(odd)
    write(path, [claude_line("u1", "beta zanzibar", "s1")])
    report = index(tmp_path)
    assert (report.failures, report.chunks_stored) == ([], 2)
    memory = service(tmp_path)
    hits = memory.recall(RecallRequest("zanzibar")).hits
    assert {hit.chunk.text for hit in hits} == {"alpha zanzibar", "beta zanzibar"}
    for hit in hits:
        assert memory.get(GetRequest(hit.chunk.session_id, hit.chunk.turn_uuid, 0)).found
    assert index(tmp_path).sources["claude_code"].unchanged == 2


@posix
def test_two_such_names_that_are_alike_stay_apart(tmp_path: Path) -> None:
    for name, text in ((b"caf\xe8.jsonl", "first zanzibar"), (b"caf\xe9.jsonl", "second zanzibar")):
        path = tmp_path / ".claude" / "projects" / "-p" / os.fsdecode(name)
        write(path, [claude_line("u1", text, "s1")])
    index(tmp_path)
    assert len(service(tmp_path).sessions("caf")) == 2


def test_a_transcript_that_no_store_can_hold_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claude_file(tmp_path, "bad", "words", "unlucky words", "more words")
    claude_file(tmp_path, "good", "alpha zanzibar")
    put = MemoryWriter.put_turn

    def unlucky(self: MemoryWriter, turn: object, chunks: list[object], *more: object) -> int:
        if any("unlucky" in getattr(chunk, "text", "") for chunk in chunks):
            chunks = [chunk._replace(text="\udce9") for chunk in chunks]  # type: ignore[attr-defined]
        return put(self, turn, chunks, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryWriter, "put_turn", unlucky)
    report = index(tmp_path)
    counts = report.sources["claude_code"]
    assert (counts.read, counts.failed) == (1, 1)
    assert [reason for _, reason in report.failures] == ["UnstorableError: its text is no valid Unicode"]
    assert MemoryReader.open(tmp_path / ".funes" / "memory").sessions("good") == ["good"]
    monkeypatch.undo()
    report = index(tmp_path)
    assert (report.failures, report.sources["claude_code"].unchanged) == ([], 1)
    assert service(tmp_path).recall(RecallRequest("unlucky")).hits


@pytest.mark.parametrize(
    "garbage",
    [
        bytes(range(128, 256)) * 40,
        b"\xde\xad\n" * 100,
        b"\n\n\n",
        b"\0" * 500,
        b'{"no": "record", "of": "any agent"}\n',
        b'{"type":"user","uuid":"one-0","sess',
        b"\x28\xb5\x2f\xfd damaged",
    ],
    ids=["noise", "lines of noise", "blank lines", "zeros", "another program's", "torn", "compressed"],
)
def test_a_transcript_that_turned_into_garbage_keeps_its_rows(tmp_path: Path, garbage: bytes) -> None:
    path = claude_file(tmp_path, "one", "alpha zanzibar", "beta zanzibar")
    index(tmp_path)
    good = path.read_bytes()
    path.write_bytes(garbage)
    os.utime(path, (LONG_AGO + 1, LONG_AGO + 1))
    memory = service(tmp_path)
    assert list(memory.behind(0)) == ["claude"]
    for _ in range(2):
        report = index(tmp_path)
        assert (report.chunks_removed, report.sources["claude_code"].failed) == (0, 1)
        assert [reason for _, reason in report.failures] == [SENSELESS]
        assert len(service(tmp_path).recall(RecallRequest("zanzibar")).hits) == 2
    assert list(memory.behind(0)) == []  # it was tried as it is
    (claude,) = [one for one in memory.status().harnesses if one.harness == "claude_code"]
    assert claude.sources.failed == 1
    path.write_bytes(good)
    report = index(tmp_path)
    assert (report.failures, report.chunks_stored, report.chunks_removed) == ([], 0, 0)
    claude_file(tmp_path, "one", "alpha zanzibar", "gamma zanzibar")
    report = index(tmp_path)
    assert (report.failures, report.chunks_stored, report.chunks_removed) == ([], 1, 1)
    texts = {hit.chunk.text for hit in service(tmp_path).recall(RecallRequest("zanzibar")).hits}
    assert texts == {"alpha zanzibar", "gamma zanzibar"}


def test_a_transcript_that_was_rewritten_without_words_takes_its_rows_out(tmp_path: Path) -> None:
    path = claude_file(tmp_path, "one", "alpha zanzibar")
    index(tmp_path)
    write(path, [{"type": "custom-title", "customTitle": "empty", "sessionId": "one"}])
    report = index(tmp_path)
    assert (report.failures, report.chunks_removed) == ([], 1)


def test_a_transcript_that_was_garbage_from_the_first_is_read_and_accounted_for(tmp_path: Path) -> None:
    path = claude_file(tmp_path, "one", "alpha")
    path.write_bytes(b"\xde\xad\n")
    report = index(tmp_path)
    assert (report.failures, report.records["claude_code"].skipped.total()) == ([], 1)
    assert index(tmp_path).sources["claude_code"].unchanged == 1
