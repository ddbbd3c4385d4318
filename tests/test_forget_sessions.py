"""Sessions that are removed for good: from the table, the indexes, the catalog and the files, and from later passes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from secrets_support import ONE, TWO, Agent

from funes_mcp.cli.app import funes
from funes_mcp.curation import files
from funes_mcp.curation.decisions import Entry
from funes_mcp.errors import BadRequestError, FunesError, NotFoundError
from funes_mcp.home import FunesHome
from funes_mcp.memory.label import HubName
from funes_mcp.models import ForgetRequest, IndexRequest, RecallRequest
from funes_mcp.redaction import Redactor

THREE = "a0b1c2d3-0000-4000-8000-00000000aaaa"
PLANTED = ("marzipanfjord", "quokkatrellis", "zephyrtitle", "Kumquatbranch")


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


@pytest.fixture
def agent(tmp_path: Path, redactor: Redactor) -> Agent:
    agent = Agent(tmp_path, redactor)
    agent.write(ONE, "we sail to marzipanfjord", "past the quokkatrellis", title="zephyrtitle", branch="Kumquatbranch")
    agent.write(TWO, "an innocent question", "an innocent answer", cwd="/home/ada/other")
    agent.service().index(IndexRequest())
    return agent


def forget(agent: Agent, **request: str) -> int:
    service = agent.service()
    return service.forget(service.plan_forgetting(ForgetRequest(**request)))


def sessions(agent: Agent) -> set[str]:
    return {row.session_id for row in agent.rows()}


def run(agent: Agent, monkeypatch: pytest.MonkeyPatch, *words: str, typed: str = "") -> Result:
    return CliRunner().invoke(funes, list(words), obj=agent.service, standalone_mode=False, input=typed)


def test_nothing_of_it_is_left_among_decisions(agent: Agent) -> None:
    home, name = FunesHome(agent.home / ".funes"), HubName("ada/kiln")
    titled = {ONE: Entry("include", title="zephyrtitle"), TWO: Entry("exclude", title="an innocent question")}
    path = files.save(home, name, "ada/tidepool", titled).path
    forget(agent, session=ONE[:8])
    assert ONE not in path.read_text()
    assert "zephyrtitle" not in path.read_text()
    assert "an innocent question" in path.read_text()
    path.write_text("[")
    with pytest.raises(FunesError, match="line 1"):
        forget(agent, session=TWO[:8])
    assert sessions(agent) == {TWO}


def test_nothing_of_it_is_left_in_any_file(agent: Agent) -> None:
    assert agent.files_with(*PLANTED)
    assert forget(agent, session=ONE[:8]) == 2
    assert sessions(agent) == {TWO}
    assert agent.files_with(*PLANTED) == []
    agent.consistent()
    table = agent.memory / "chunks.lance"
    assert len(list((table / "data").iterdir())) == 1
    assert len(list((table / "_versions").glob("*.manifest"))) == 1
    assert not list(table.glob("_deletions/*"))
    segments = json.loads((agent.memory / "lexical" / "meta.json").read_bytes())["segments"]
    assert [segment["deletes"] for segment in segments] == [None] * len(segments)
    assert sorted(path.name for path in agent.memory.iterdir() if path.name.startswith("lexical")) == ["lexical"]
    assert not (agent.memory / "catalog.db-wal").exists() or (agent.memory / "catalog.db-wal").stat().st_size == 0
    database = sqlite3.connect(agent.memory / "catalog.db")
    assert database.execute("pragma freelist_count").fetchone() == (0,)
    database.close()
    hits = agent.service().recall(RecallRequest("where do we sail, marzipanfjord?")).hits
    assert all(hit.chunk.session_id == TWO for hit in hits)


def test_files_that_could_not_be_written_again_are_told_and_follow(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FunesError("The memory could not be written: the disk is full.", "Free some space.")

    with monkeypatch.context() as patch:
        patch.setattr("funes_mcp.memory.table.ChunkTable.rewrite", full)
        with pytest.raises(FunesError, match="files of the memory still hold it") as caught:
            forget(agent, session=ONE)
        assert caught.value.hint == "Free some space."
        assert sessions(agent) == {TWO}
        report = agent.service().doctor()
        assert any("still hold" in finding.message and "funes index" in finding.hint for finding in report.findings)
    agent.service().index(IndexRequest())
    assert agent.files_with(*PLANTED) == []
    assert not any("still hold" in finding.message for finding in agent.service().doctor().findings)


def test_what_is_to_be_erased_is_not_lost_with_the_catalog(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise FunesError("The memory could not be written: the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr("funes_mcp.memory.table.ChunkTable.rewrite", full)
        with pytest.raises(FunesError, match="files of the memory still hold it"):
            forget(agent, session=ONE)
    (agent.memory / "catalog.db").write_bytes(b"garbage" * 1000)
    for _ in range(2):
        agent.service().index(IndexRequest())
    assert agent.files_with(*PLANTED) == []
    assert sessions(agent) == {TWO}


def test_the_dictionary_that_rows_are_packed_with_is_made_again(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("funes_mcp.memory.packing._SAMPLES", 200)
    texts = [f"the captain of marzipanfjord wrote entry {n} in the log of {n * 7919 % 1009}" for n in range(400)]
    agent.write(THREE, *texts)
    agent.service().index(IndexRequest())
    dictionary = agent.memory / "lexical" / "rows.dict"
    assert b"marzipanfjord" in dictionary.read_bytes()
    forget(agent, session=THREE)
    forget(agent, session=ONE)
    assert agent.files_with("marzipanfjord") == []
    agent.consistent()


def test_the_next_passes_do_not_bring_it_back(agent: Agent) -> None:
    path = agent.project / f"{ONE}.jsonl"
    before = path.read_bytes()
    forget(agent, session=ONE)
    assert path.read_bytes() == before
    report = agent.service().index(IndexRequest())
    assert report.sources["claude_code"].read == 0
    agent.write(ONE, "we sail to marzipanfjord", "past the quokkatrellis", "and on", title="zephyrtitle")
    agent.service().index(IndexRequest())
    assert sessions(agent) == {TWO}
    assert agent.files_with(*PLANTED) == []
    agent.consistent()


@pytest.mark.parametrize("lost", ["catalog", "file", "memory"])
def test_one_of_the_two_places_is_enough(agent: Agent, lost: str) -> None:
    forget(agent, session=ONE)
    beside = agent.memory.with_name("memory.forgotten.json")
    assert beside.stat().st_mode & 0o777 == 0o600
    if lost == "catalog":
        for path in agent.memory.glob("catalog.db*"):
            path.unlink()
    elif lost == "file":
        beside.unlink()
    else:
        import shutil

        shutil.rmtree(agent.memory)
    (agent.project / f"{ONE}.jsonl").touch()
    agent.service().index(IndexRequest())
    assert sessions(agent) == {TWO}
    assert [item.session for item in agent.service().forgotten(ForgetRequest())] == [ONE]
    assert beside.exists()


def test_undo_brings_it_back_with_the_next_pass(agent: Agent) -> None:
    rows = agent.rows()
    forget(agent, session=ONE)
    service = agent.service()
    (item,) = service.forgotten(ForgetRequest(session=ONE[:6]))
    assert service.unforget([item.session]) == [str(agent.project / f"{ONE}.jsonl")]
    agent.service().index(IndexRequest())
    assert [(row.id, row.text) for row in agent.rows()] == [(row.id, row.text) for row in rows]
    assert agent.service().forgotten(ForgetRequest()) == []
    agent.consistent()


def test_undo_knows_what_to_read_when_the_file_was_lost(agent: Agent) -> None:
    forget(agent, session=ONE)
    agent.memory.with_name("memory.forgotten.json").unlink()
    agent.service().unforget([ONE])
    agent.service().index(IndexRequest())
    assert sessions(agent) == {ONE, TWO}


def test_a_project_and_what_is_older_than_a_date(agent: Agent) -> None:
    agent.write(THREE, "much later words", cwd="/home/ada/other")
    path = agent.project / f"{THREE}.jsonl"
    path.write_text(path.read_text("utf-8").replace("2026-03-11", "2026-06-11"), "utf-8")
    agent.service().index(IndexRequest())
    service = agent.service()
    assert service.plan_forgetting(ForgetRequest(project="other")).sessions == (TWO, THREE)
    assert service.plan_forgetting(ForgetRequest(project="/home/ada/other/")).sessions == (TWO, THREE)
    assert service.plan_forgetting(ForgetRequest(before="2026-05-01")).sessions == (TWO, ONE)
    with pytest.raises(NotFoundError):
        service.plan_forgetting(ForgetRequest(before="2026-01-01"))
    with pytest.raises(NotFoundError):
        service.plan_forgetting(ForgetRequest(project="nothing"))
    forget(agent, before="2026-05-01")
    assert sessions(agent) == {THREE}
    assert len(agent.service().forgotten(ForgetRequest(before="2026-05-01"))) == 2


@pytest.mark.parametrize(
    "request_", [ForgetRequest(), ForgetRequest("a", "b"), ForgetRequest(" "), ForgetRequest("", None)]
)
def test_one_thing_must_be_named(agent: Agent, request_: ForgetRequest) -> None:
    with pytest.raises(BadRequestError):
        agent.service().plan_forgetting(request_)


def fork_of(agent: Agent, session: str, *more: str) -> None:
    """A session that was resumed: it begins with a copy of the first one's lines."""
    lines = (agent.project / f"{ONE}.jsonl").read_text("utf-8").splitlines()
    agent.write(session, *more)
    path = agent.project / f"{session}.jsonl"
    copied = [line.replace(f'"sessionId": "{ONE}"', f'"sessionId": "{session}"') for line in lines if '"uuid"' in line]
    path.write_text("\n".join(copied) + "\n" + path.read_text("utf-8").replace("T09:", "T10:"), "utf-8")


def test_copies_in_a_resumed_session_stay_and_are_told(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_of(agent, THREE, "its own words")
    agent.service().index(IndexRequest())
    plan = agent.service().plan_forgetting(ForgetRequest(session=ONE))
    assert plan.copies == ((THREE, 2),)
    assert plan.chunks == 0
    done = run(agent, monkeypatch, "forget", ONE, "--yes")
    assert THREE in done.output
    assert "Copies stay" in done.output
    assert sessions(agent) == {TWO, THREE}
    assert any("marzipanfjord" in row.text for row in agent.rows())
    agent.consistent()
    forget(agent, session=THREE)
    assert agent.files_with(*PLANTED) == []


def test_copies_go_when_both_sessions_are_forgotten(agent: Agent) -> None:
    fork_of(agent, THREE, "its own words")
    agent.service().index(IndexRequest())
    plan = agent.service().plan_forgetting(ForgetRequest(project="t"))
    assert (plan.copies, plan.chunks) == ((), 3)
    agent.service().forget(plan)
    assert agent.files_with(*PLANTED) == []


def test_unrelated_transcripts_with_one_id_are_forgotten_one_by_one(agent: Agent, tmp_path: Path) -> None:
    other = tmp_path / ".claude" / "projects" / "-home-ada-zebra"
    other.mkdir()
    path = agent.write("00000000-0000-4000-8000-000000000001", "first of the two")
    twin = other / path.name
    twin.write_text(path.read_text("utf-8").replace("first of the two", "second of the two"), "utf-8")
    agent.service().index(IndexRequest())
    names = {row.text: row.session_id for row in agent.rows() if "of the two" in row.text}
    assert len(set(names.values())) == 2
    forget(agent, session=names["first of the two"])
    for changed in (path, twin):
        changed.write_text(changed.read_text("utf-8") + "\n", "utf-8")
    agent.service().index(IndexRequest())
    assert [row.text for row in agent.rows() if "of the two" in row.text] == ["second of the two"]


def test_a_subagents_session_goes_with_its_parent(agent: Agent) -> None:
    folder = agent.project / ONE / "subagents"
    folder.mkdir(parents=True)
    line = json.loads((agent.project / f"{ONE}.jsonl").read_text("utf-8").splitlines()[-1])
    line |= {"isSidechain": True, "agentId": "ab12", "uuid": "11111111-0000-4000-8000-000000000001"}
    line["message"]["content"] = [{"type": "text", "text": "the subagent saw the quokkatrellis"}]
    (folder / "agent-ab12.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    agent.service().index(IndexRequest())
    plan = agent.service().plan_forgetting(ForgetRequest(session=ONE))
    assert (len(plan.sessions), plan.subagents) == (2, 1)
    agent.service().forget(plan)
    assert agent.files_with(*PLANTED) == []
    assert len(agent.service().forgotten(ForgetRequest(session=ONE))) == 2


def test_off_a_terminal_it_is_refused_without_yes(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = agent.rows()
    for words in (("forget", ONE), ("forget", "--before", "2027-01-01")):
        refused = run(agent, monkeypatch, *words, typed="y\n")
        assert isinstance(refused.exception, FunesError)
        assert "--yes" in refused.exception.hint
    assert agent.rows() == rows


def test_on_a_terminal_it_asks_and_no_is_the_default(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("funes_mcp.cli.terminal.is_terminal", lambda stream: True)
    rows = agent.rows()
    asked = run(agent, monkeypatch, "forget", ONE, typed="\n")
    assert "1 session with 2 passages" in asked.output
    assert agent.rows() == rows
    done = run(agent, monkeypatch, "forget", ONE, typed="y\n")
    assert "will not bring them back" in done.output
    assert sessions(agent) == {TWO}


def test_what_is_out_of_reach_is_said_and_undo_lists(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(agent, monkeypatch, "forget", "--project", "other", "--yes")
    assert "Out of reach" in done.output
    assert str(agent.project / f"{TWO}.jsonl") in done.output
    assert TWO in run(agent, monkeypatch, "forget", "--undo").output
    assert "funes index" in run(agent, monkeypatch, "forget", "--undo", "--project", "other", "--yes").output
    assert "Nothing is forgotten" in run(agent, monkeypatch, "forget", "--undo").output
    agent.service().index(IndexRequest())
    assert sessions(agent) == {ONE, TWO}
