"""`funes doctor` finds what is wrong with a memory, and `funes status` says what is in it."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from histories_support import claude_file, claude_line, index, service, write

from funes_mcp import doctor
from funes_mcp.cli.app import run
from funes_mcp.errors import FunesError
from funes_mcp.memory.catalog import Catalog
from funes_mcp.memory.lock import WriterLock
from funes_mcp.memory.table import ChunkTable
from funes_mcp.models import Finding, HarnessStatus, RecallRequest
from funes_mcp.render import render_doctor, render_status


@pytest.fixture(autouse=True)
def _nothing_is_late_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claude keeps the transcripts of these tests, however old they are, unless a test says otherwise."""
    monkeypatch.setattr("funes_adapters.claude.sessions.CLEANUP_DAYS", 1e5)


def problems(home: Path) -> list[Finding]:
    return [finding for finding in service(home).doctor().findings if finding.state == "problem"]


def of(home: Path, harness: str = "claude_code") -> HarnessStatus:
    (status,) = [status for status in service(home).status().harnesses if status.harness == harness]
    return status


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Two sessions, one of which begins as a copy of the other, all indexed."""
    claude_file(tmp_path, "aaaa", "why is the glaze cracking", "because it cools too fast")
    lines = [claude_line("aaaa-0", "why is the glaze cracking", "bbbb"), claude_line("b1", "and the clay?", "bbbb")]
    title = {"type": "custom-title", "customTitle": "Cracks in the glaze", "sessionId": "bbbb"}
    folder = tmp_path / ".claude" / "projects" / "-home-ann-kiln"
    write(folder / "bbbb.jsonl", [*lines, {"type": "mode", "mode": "plan", "sessionId": "bbbb"}, title])
    (folder / "notes.txt").write_text("no transcript")
    index(tmp_path)
    return tmp_path


def test_a_memory_that_is_in_order(home: Path) -> None:
    report = service(home).doctor()
    assert [finding for finding in report.findings if finding.state == "problem"] == []
    text = render_doctor(report, str(home))
    assert "~/.claude/projects (default): 3 files: 2 read and unchanged, 1 left out (no transcript)" in text
    assert "6 lines: 4 records kept, 2 left out, each with its reason" in text
    assert "3 rows in the table, the same 3 here" in text
    assert "passages are found by their own words" in text
    assert text.endswith("everything is accounted for\n")
    assert str(home) not in text


def test_the_status_says_what_is_there(home: Path) -> None:
    status = of(home)
    counts = status.sources
    assert (counts.found, counts.read, counts.waiting, counts.failed, counts.gone) == (2, 2, 0, 0, 0)
    assert counts.skipped == {"no transcript": 1}
    assert (status.sessions, status.chunks, status.computed, status.copied) == (2, 3, 4, 1)
    assert status.newest == "2026-05-01T10:00:00.000Z"
    claude_file(home, "aaaa", "why is the glaze cracking", "because it cools too fast", "so slow it down")
    write(home / ".claude/projects/-home-ann-kiln/cccc.jsonl", [claude_line("c", "x", "cccc")])
    (home / ".claude/projects/-home-ann-kiln/bbbb.jsonl").unlink()
    counts = of(home).sources
    assert (counts.found, counts.read, counts.waiting, counts.gone) == (2, 0, 2, 1)
    text = render_status(service(home).status(), str(home))
    assert "4 passages in the transcripts, 1 of them copies of others" in text
    assert "1 deleted since, their passages kept" in text


def test_the_newest_session_is_named_by_its_title(home: Path) -> None:
    lines = [claude_line("t1", "later words", "bbbb", ts="2026-06-01T10:00:00.000Z")]
    title = {"type": "custom-title", "customTitle": "Cracks in the glaze", "sessionId": "bbbb"}
    write(home / ".claude/projects/-home-ann-kiln/bbbb.jsonl", [*lines, title])
    index(home)
    assert (of(home).newest, of(home).title) == ("2026-06-01T10:00:00.000Z", "Cracks in the glaze")
    assert "newest 2026-06-01T10:00:00.000Z (Cracks in the glaze)" in render_status(service(home).status())


def test_without_a_memory_it_says_what_to_type(tmp_path: Path) -> None:
    claude_file(tmp_path, "aaaa", "words")
    found = problems(tmp_path)
    assert [(f.about, f.hint) for f in found] == [
        ("transcripts", "Run `funes index`."),
        ("memory", "Run `funes index` to build one."),
    ]
    assert not (tmp_path / ".funes").exists()


def test_a_transcript_that_was_not_read_is_named(home: Path) -> None:
    claude_file(home, "aaaa", "why is the glaze cracking", "rewritten long ago")
    claude_file(home, "dddd", "being written right now", when=None)
    (found,) = problems(home)
    assert "1 transcript (" in found.message
    assert "aaaa.jsonl" in found.message
    assert found.hint == "Run `funes index`."
    assert any("1 being written to" in f.message for f in service(home).doctor().findings)
    index(home)
    assert problems(home) == []


def test_an_unknown_type_is_named(home: Path) -> None:
    claude_file(home, "eeee")
    write(
        home / ".claude/projects/-home-ann-kiln/eeee.jsonl",
        [claude_line("e", "x", "eeee"), {"type": "oracle", "sessionId": "eeee", "words": "of wisdom"}],
    )
    index(home)
    (found,) = problems(home)
    assert (found.about, found.message) == ("claude_code", "1 records of an unknown type: oracle")


def test_an_account_that_does_not_add_up(home: Path) -> None:
    catalog = Catalog(home / ".funes" / "memory")
    state = catalog.sources()[0]
    catalog._db.execute("update sources set tally = '[{}, [], {}, 7, []]' where no = ?", (state.no,))
    catalog.close()
    (found,) = problems(home)
    assert "aaaa.jsonl (7 lines, 0 accounted for)" in found.message


@pytest.mark.parametrize("harm", ["row", "words", "vectors"])
def test_rows_that_are_lost_are_missed_and_repaired(home: Path, harm: str) -> None:
    memory = home / ".funes" / "memory"
    if harm == "row":
        table = ChunkTable.open(memory)
        table.delete([sorted(table.ids())[0]])
        expected = {"catalog", "words", "vectors"}
    elif harm == "words":
        from funes_mcp.memory.lexical import LexicalReader, LexicalWriter

        writer = LexicalWriter(memory / "lexical", bulk=False)
        writer.delete(list(LexicalReader(memory / "lexical").keys())[:1])
        writer.commit()
        writer.close()
        expected = {"words"}
    else:
        from funes_mcp.memory.dense import DenseReader, DenseWriter

        reader = DenseReader(memory / "dense")
        vectors = DenseWriter(memory / "dense", reader.embedding)
        vectors.delete(list(reader.keys())[:1])
        vectors.commit()
        expected = {"vectors"}
    found = problems(home)
    assert {finding.about for finding in found} - {"recall", "privacy"} == expected
    if harm == "row":
        assert found[0].message == "2 rows in the table: 0 of them lack here, 1 others are here"
        index(home)
    else:
        hint = next(finding.hint for finding in found if finding.about == harm)
        shutil.rmtree(hint.split()[1].rstrip(":"))
        service(home).recall(RecallRequest("glaze"))
    assert [finding.about for finding in problems(home) if finding.about != "privacy"] == []


def test_a_file_that_its_adapter_does_not_see(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from funes_adapters.claude import sessions

    everything = sessions.sources
    monkeypatch.setattr(sessions, "sources", lambda root, tally: list(everything(root, tally))[1:])
    (found,) = problems(home)
    assert "3 files are there, 2 are accounted for" in found.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_transcript(home: Path) -> None:
    path = claude_file(home, "ffff", "secret")
    path.chmod(0)
    index(home)
    assert any("ffff.jsonl (Permission denied)" in finding.message for finding in problems(home))


def test_files_that_others_can_read(home: Path) -> None:
    (home / ".funes" / "memory" / "catalog.db").chmod(0o644)
    (found,) = problems(home)
    assert "catalog.db" in found.message
    assert found.hint == f"chmod -R go= {home / '.funes'}"


def test_a_question_that_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, request: RecallRequest) -> None:
        raise FunesError("The word index is broken.", "Mend it.")

    monkeypatch.setattr("funes_mcp.service.IndexService.recall", broken)
    (found,) = problems(home)
    assert (found.message, found.hint) == ("a question failed: The word index is broken.", "Mend it.")


def test_a_writer_at_work_is_no_problem(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.0)
    lock = WriterLock(home / ".funes" / "memory")
    assert lock.acquire()
    with lock:
        report = service(home).doctor()
    assert report.problems == 0
    assert any("another funes process is writing" in finding.message for finding in report.findings)


def test_a_hook_that_failed_after_its_last_success(home: Path) -> None:
    survey = service(home)._survey("local")
    hooks = [
        ("claude Stop", "2026-05-02T00:00:00Z", "2026-05-01T00:00:00Z (busy)"),
        ("codex Stop", "2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z (no model)"),
        ("pi agent_end", "", "2026-05-02T00:00:00Z"),
    ]
    answer = service(home).recall
    found = doctor.examine(
        doctor.FunesHome(home / ".funes"), survey, [], hooks, ["Codex: its hooks are not trusted"], answer, ""
    )
    assert [f.message.split(" failed")[0] for f in found.findings if f.state == "problem"] == [
        "codex Stop",
        "pi agent_end",
    ]
    assert [f.message for f in found.findings if f.about == "wiring"] == ["Codex: its hooks are not trusted"]


@pytest.mark.parametrize(("days", "named"), [(None, False), (30, True), (90, False), ("x", False), (0, True)])
def test_transcripts_about_to_be_deleted(home: Path, days: object, named: bool) -> None:
    week = 86_400 * 7
    claude_file(home, "aaaa", "changed and not read", when=time.time() - 4 * week)
    claude_file(home, "gggg", "read and old", when=time.time() - 4 * week)
    index(home, path=home / ".claude/projects/-home-ann-kiln/gggg.jsonl")
    if days is not None:
        (home / ".claude" / "settings.json").write_text(json.dumps({"cleanupPeriodDays": days}))
    found = [finding for finding in service(home).doctor().findings if finding.about == "deletion"]
    assert [finding.state for finding in found] == ["problem"] * named
    if named:
        assert "aaaa.jsonl" in found[0].message
        assert "gggg.jsonl" not in found[0].message
        assert any("deleted by" in note for note in service(home).status().notes)


def test_a_named_folder_is_looked_at_again(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    write(folder / "one.jsonl", [claude_line("o", "words of old", "one")])
    (folder / "readme.md").write_text("what this is")
    index(tmp_path, path=folder)
    report = service(tmp_path).doctor()
    assert report.problems == 0
    assert any(
        "(indexed by name): 2 files: 1 read and unchanged, 1 left out (no transcript of a known agent)" in f.message
        for f in report.findings
    )
    write(folder / "two.jsonl", [claude_line("t", "more words", "two")])
    (found,) = problems(tmp_path)
    assert "two.jsonl" in found.message


def test_a_transcript_that_a_hook_names_is_where_it_always_is(home: Path) -> None:
    index(home, path=claude_file(home, "aaaa", "why is the glaze cracking", "because", "of the clay"))
    report = service(home).doctor()
    assert report.problems == 0
    assert not [finding for finding in report.findings if "indexed by name" in finding.message]


def test_the_command_exits_with_what_it_found(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    assert run(["doctor"], lambda: service(home)) == 0
    assert capsys.readouterr().out.endswith("everything is accounted for\n")
    claude_file(home, "hhhh", "never read")
    assert run(["doctor", "--json"], lambda: service(home)) == 1
    report = json.loads(capsys.readouterr().out)
    assert [f["hint"] for f in report["findings"] if f["state"] == "problem"] == ["Run `funes index`."]
    assert report["harnesses"][0]["sources"]["waiting"] == 1


OTHER_HOME = '[[homes]]\npath = "{}"\nhost = "windows"\nagents = ["claude"]\n'


def test_another_home_is_read_too(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    claude_file(other, "iiii", "said on the other side", project="C--Users-ann-kiln")
    write(other / ".codex" / "sessions" / "rollout-x.jsonl", [])
    config = home / ".funes" / "config.toml"
    config.write_text(OTHER_HOME.format(other))
    config.chmod(0o600)
    index(home)
    status = of(home)
    assert (str(other / ".claude/projects"), "config.toml, windows", True) in status.roots
    assert status.sources.found == 3
    assert status.chunks == 4
    assert [root for root, _, _ in of(home, "codex").roots if root.startswith(str(other))] == []
    assert problems(home) == []


@pytest.mark.parametrize("text", ["homes = 3", "[[homes]]\nhost = 'x'", "[[homes]", "homes = ['a']"])
def test_a_configuration_that_cannot_be_understood_is_said(home: Path, text: str) -> None:
    config = home / ".funes" / "config.toml"
    config.write_text(text)
    config.chmod(0o600)
    with pytest.raises(FunesError, match=r"config\.toml"):
        index(home)
    assert any("config.toml" in finding.message for finding in problems(home))
    assert any("config.toml" in note for note in service(home).status().notes)


def test_nothing_is_changed_by_looking(home: Path) -> None:
    def stamps() -> dict[Path, int]:
        sqlite = {".db-shm", ".db-wal"}  # which SQLite makes for whoever reads
        return {p: p.stat().st_mtime_ns for p in home.rglob("*") if p.is_file() and p.suffix not in sqlite}

    before = stamps()
    service(home).doctor()
    after = stamps()
    assert {p for p in after if before.get(p) != after[p]} <= {home / ".funes/memory/writer.lock"}
