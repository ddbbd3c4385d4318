"""The gate before anything is published."""

from __future__ import annotations

import random
import string

import pytest

from funes_mcp.memory.chunk import chunks_of
from funes_mcp.memory.model import Chunk
from funes_mcp.memory.scrub import outgoing
from funes_mcp.redaction import Redactor, ScannerError
from funes_mcp.redaction.gate import Outgoing, examine
from funes_mcp.traces.model import Block, SessionInfo, Turn


def token(seed: int) -> str:
    rng = random.Random(seed)
    return "ghp_" + "".join(rng.choice(string.ascii_letters + string.digits) for _ in range(36))


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor()


def rows_of(*texts: str, cwd: str = "/home/ada/t", session: str = "s") -> list[Chunk]:
    info = SessionInfo(session, "claude_code", cwd=cwd)
    rows: list[Chunk] = []
    for number, text in enumerate(texts):
        turn = Turn(session, f"t{number}", None, number, None, "user", (Block("text", text, 0),), f"{session}{number}")
        rows += chunks_of(turn, info, "/t.jsonl")
    return rows


def test_rows_that_look_secret_are_held_back_and_the_rest_goes(redactor: Redactor) -> None:
    rows = rows_of("plain words", f"a {token(1)} here", "more words")
    verdict = examine(outgoing(rows), redactor)
    assert [verdict.lets(row.id, row.text) for row in rows] == [True, False, True]
    assert (verdict.passed, verdict.held, dict(verdict.counts)) == (2, 1, {"github-token": 1})
    assert verdict.held_ids == {rows[1].id}
    assert not verdict.nothing_left


def test_a_value_that_is_cut_by_the_border_of_two_rows_holds_back_the_whole_block(redactor: Redactor) -> None:
    for shift in range(0, 60, 7):
        rows = rows_of("=" * (1200 - shift) + f" {token(2)} " + "-" * 400)
        assert len(rows) > 1
        verdict = examine(outgoing(rows), redactor)
        assert verdict.held == len(rows)
        assert verdict.nothing_left


def test_only_what_was_searched_as_it_is_now_may_leave(redactor: Redactor) -> None:
    rows = rows_of("plain words")
    verdict = examine(outgoing(rows), redactor)
    assert verdict.lets(rows[0].id, rows[0].text)
    assert not verdict.lets(rows[0].id, "other words")
    assert not verdict.lets("0" * 16, rows[0].text)


def test_what_rows_say_besides_their_text_is_searched(redactor: Redactor) -> None:
    rows = rows_of("plain words", cwd=f"/home/ada/{token(3)}")
    assert examine(outgoing(rows), redactor).held == 1


def test_nothing_to_send_is_not_nothing_left(redactor: Redactor) -> None:
    assert not examine((), redactor).nothing_left


def test_messages_with_a_mark_are_named_because_their_digest_would_prove_a_guess(redactor: Redactor) -> None:
    rows = rows_of("plain words", "the password is [REDACTED:password] now")
    verdict = examine(outgoing(rows), redactor)
    assert verdict.redacted == {rows[1].identity}
    assert verdict.passed == 2


def test_when_one_search_takes_too_long_nothing_leaves(redactor: Redactor) -> None:
    blocks = [Outgoing("fine", (("a", "fine"),)), Outgoing("password and token " * 40_000, (("b", "x"),))]
    with pytest.raises(ScannerError):
        examine(blocks, redactor, timeout=1e-9)


def test_when_the_scanner_is_missing_nothing_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kingfisher_sdk", None)
    with pytest.raises(ScannerError):
        examine(outgoing(rows_of("plain words")), Redactor())


def test_when_a_detector_fails_nothing_leaves(redactor: Redactor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_data: bytes) -> list[object]:
        raise RecursionError

    monkeypatch.setattr("funes_mcp.redaction.redactor.own_findings", fail)
    with pytest.raises(ScannerError):
        examine(outgoing(rows_of("plain words")), redactor)
