"""Credentials that were stored before they were searched for, taken out of a memory and of its files."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from secrets_support import ALPHABET, ONE, TWO, Agent, drawn, token

from funes_mcp.cli.app import funes
from funes_mcp.curation import files
from funes_mcp.curation.decisions import Entry
from funes_mcp.home import FunesHome
from funes_mcp.memory.label import HubName
from funes_mcp.memory.scrub import DROPPED, scrubbed
from funes_mcp.models import GetRequest, IndexRequest, RecallRequest
from funes_mcp.redaction import Finding, Redacted, Redactor, ScannerError


@pytest.fixture(scope="module")
def redactor(tmp_path_factory: pytest.TempPathFactory) -> Redactor:
    return Redactor()


@pytest.fixture
def agent(tmp_path: Path, redactor: Redactor) -> Agent:
    return Agent(tmp_path, redactor)


def test_what_an_older_version_stored_is_repaired(agent: Agent) -> None:
    long = ("The harbour list is slow. " * 44)[:1130] + f" export API_TOKEN={token(2)} and then " + "it sails. " * 200
    path = agent.write(
        ONE,
        f"we use {token(1)} for the harbour service",
        long,
        "nothing to hide in here",
        title=f"Rotate {token(3)}",
        branch=f"fix/{token(4)}",
    )
    agent.write(TWO, "an innocent question", "an innocent answer")
    before = path.read_bytes()
    agent.service(redacting=False).index(IndexRequest())
    innocent = [row for row in agent.rows() if row.session_id == TWO]
    assert agent.gate().held >= 2

    looked = agent.service().scrub(dry=True)
    assert agent.gate().held >= 2
    report = agent.service().scrub()
    assert looked.counts == report.counts
    assert report.counts["github-token"] >= 1
    assert report.dropped == 0
    assert agent.gate().held == 0
    assert agent.gate().passed == len(agent.rows())
    agent.consistent()
    assert agent.files_with(*(token(seed) for seed in (1, 2, 3, 4))) == []
    assert path.read_bytes() == before
    assert [row for row in agent.rows() if row.session_id == TWO] == innocent
    hits = agent.service().recall(RecallRequest("which one do we use for the harbour service")).hits
    assert any("we use [REDACTED:github-token] for the harbour" in hit.chunk.text for hit in hits)
    turn = agent.service().get(GetRequest(ONE, f"{ONE[:8]}-0000-4000-8000-000000000001", 0)).turns[0]
    assert turn.blocks[0] == long.strip().replace(token(2), turn.blocks[0].split("API_TOKEN=")[1].split()[0])

    rows = agent.rows()
    again = agent.service().scrub()
    assert (again.counts.total(), again.facts, again.erased) == (0, 0, False)
    path.touch()
    agent.service().index(IndexRequest())
    assert agent.rows() == rows
    path.write_bytes(before + before.splitlines(keepends=True)[-1].replace(b"000002", b"000003"))
    agent.service().index(IndexRequest())
    assert len(agent.rows()) == len(rows) + 1
    assert agent.gate().held == 0
    agent.consistent()


def test_titles_among_decisions_are_searched_too(agent: Agent) -> None:
    agent.write(ONE, "an innocent question", "an innocent answer")
    agent.service().index(IndexRequest())
    entries = {ONE: Entry("include", title=f"Rotate {token(3)}"), TWO: Entry("exclude", title="fine")}
    path = files.save(FunesHome(agent.home / ".funes"), HubName("ada/kiln"), "ada/tidepool", entries).path
    assert agent.service().scrub().facts == 1
    assert token(3) not in path.read_text()
    assert 'title = "Rotate [REDACTED:' in path.read_text()
    assert path.read_text().count("decision = ") == 2


def test_a_transcript_that_is_read_again_from_its_beginning_does_not_double(agent: Agent) -> None:
    path = agent.write(ONE, f"the token is {token(1)} as ever", "fine")
    agent.service(redacting=False).index(IndexRequest())
    agent.service().scrub()
    rows = agent.rows()
    path.write_text("\n".join(["", *path.read_text("utf-8").splitlines()]) + "\n", "utf-8")
    agent.service().index(IndexRequest())
    assert [(row.id, row.text) for row in agent.rows()] == [(row.id, row.text) for row in rows]


def test_the_gate_and_scrub_agree_after_one_round(agent: Agent) -> None:
    """Blocks whose pieces are not what they were when they are joined again: repetitions, seams, values at borders."""
    rng = random.Random(5)
    texts = []
    for number in range(24):
        filler = rng.choice(["ab " * 700, "word\n" * 500, "x" * 2400, "=" * 1190, " \n" * 900, "a.b-c_d " * 300])
        at = rng.randrange(1000, 1230)
        value = rng.choice(
            [token(number), f"password='{drawn(number, 14)}!'", f"https://ann:{drawn(number, 16)}@h.org"]
        )
        texts.append(filler[:at] + " " + value + " " + filler)
    agent.write(ONE, *texts)
    agent.service(redacting=False).index(IndexRequest())
    assert agent.gate().held > 20
    rounds = 0
    while agent.gate().held:
        agent.service().scrub()
        rounds += 1
    assert rounds == 1
    agent.consistent()


class Stubborn(Redactor):
    """Finds something in a text that no cut takes away."""

    def scan(self, text: str, *, timeout: float | None = None) -> list[Finding]:
        return [Finding("odd", 0, 1)] if "odd" in text else []

    def redact(self, text: str) -> Redacted:
        return Redacted(text)


def test_a_block_that_cannot_be_cut_is_dropped_whole(agent: Agent) -> None:
    agent.write(ONE, "an odd thing", "a plain thing")
    agent.service(redacting=False).index(IndexRequest())
    agent.redactor = Stubborn()
    report = agent.service().scrub()
    assert (report.dropped, report.counts[DROPPED]) == (1, 1)
    assert [row.text for row in agent.rows()] == ["[REDACTED:dropped-block]", "a plain thing"]
    assert agent.gate().held == 0
    assert agent.files_with("an odd thing") == []


def test_without_the_scanner_nothing_is_called_clean(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.write(ONE, f"the token is {token(1)} as ever")
    agent.service(redacting=False).index(IndexRequest())
    rows = agent.rows()
    monkeypatch.setitem(__import__("sys").modules, "kingfisher_sdk", None)
    agent.redactor = Redactor()
    with pytest.raises(ScannerError):
        agent.service().scrub()
    assert agent.rows() == rows


def test_a_scrub_that_was_killed_before_the_files_were_written_again_ends_with_the_next_pass(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.write(ONE, f"the token is {token(1)} as ever", "fine")
    agent.service(redacting=False).index(IndexRequest())

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("funes_mcp.memory.derived.rebuild_words", killed)
        with pytest.raises(KeyboardInterrupt):
            agent.service().scrub()
    agent.write(TWO, "another session")
    agent.service().index(IndexRequest())
    assert agent.files_with(token(1)) == []
    agent.consistent()


def test_rows_keep_their_place_when_their_block_becomes_shorter(redactor: Redactor) -> None:
    key = "".join(random.Random(9).choice(ALPHABET + "+/") for _ in range(3000))
    lines = "\n".join(key[at : at + 64] for at in range(0, 3000, 64))
    name = "RSA PRIVATE " + "KEY"
    text = f"here:\n-----BEGIN {name}-----\n{lines}\n-----END {name}-----\nthat was it"
    from funes_mcp.memory.chunk import chunks_of
    from funes_mcp.traces.model import Block, SessionInfo, Turn

    turn = Turn("s", "t", None, 0, None, "user", (Block("text", text, 0), Block("text", "next", 1)), "t")
    rows = chunks_of(turn, SessionInfo("s", "claude_code"), "/t.jsonl")
    assert len(rows) > 3
    result = scrubbed(rows, redactor)
    assert result.rows is not None
    assert [row.text for row in result.rows] == [
        "here:\n[REDACTED:private-key]\nthat was it",
        "next",
    ]
    assert result.rows[1] == rows[-1]
    assert result.rows[0].id == rows[0].id


def test_the_command_counts_by_kind(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    agent.write(ONE, f"the token is {token(1)} as ever", "fine")
    agent.service(redacting=False).index(IndexRequest())
    for name, value in agent.environ.items():
        monkeypatch.setenv(name, value)
    looked = CliRunner().invoke(funes, ["scrub", "--dry-run"], obj=agent.service, standalone_mode=False)
    assert "1 credentials would be replaced in 1 blocks of 1 turns: 1 github-token" in looked.output
    done = CliRunner().invoke(funes, ["scrub"], obj=agent.service, standalone_mode=False)
    assert "1 credentials replaced" in done.output
    assert "make the credentials invalid" in done.output
    done = CliRunner().invoke(funes, ["scrub"], obj=agent.service, standalone_mode=False)
    assert "No credential found" in done.output


def test_what_a_parser_remembers_between_two_passes_is_redacted(agent: Agent) -> None:
    path = agent.write(ONE, "hello", "there")
    queued = {"type": "queue-operation", "operation": "enqueue", "content": f"use {token(7)} then", "sessionId": ONE}
    summary = {"type": "summary", "summary": f"About {token(8)}", "leafUuid": "0b7f7a62-7d2b-4a53-9d0e-1f4f7e2f0a12"}
    with path.open("a") as file:
        file.write(json.dumps({**queued, "timestamp": "2026-03-11T09:30:00.000Z"}) + "\n" + json.dumps(summary) + "\n")
    agent.service().index(IndexRequest())
    assert agent.files_with(token(7), token(8)) == []
