"""`funes add` and `funes remove` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from wiring_support import Desk

from funes_mcp.cli import terminal
from funes_mcp.cli.app import run
from funes_mcp.models import IndexReport, IndexRequest, Progress


class Indexer:
    """A service that can only be asked to index."""

    def __init__(self) -> None:
        self.requests: list[IndexRequest] = []

    def index(self, request: IndexRequest, progress: Progress | None = None) -> IndexReport:
        self.requests.append(request)
        return IndexReport(chunks_stored=3)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(tmp_path)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "HERMES_HOME", "FUNES_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in desk.environ.items():
        monkeypatch.setenv(name, value)
    desk.install("codex")
    desk.root("codex")
    return desk


def call(indexer: Indexer, *words: str) -> int:
    return run(list(words), lambda: indexer)  # type: ignore[arg-type,return-value]


def test_off_a_terminal_nothing_is_asked_or_indexed_or_trusted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(click, "confirm", lambda *_, **__: pytest.fail("asked"))
    indexer = Indexer()
    assert call(indexer, "add", "codex") == 0
    printed = capsys.readouterr()
    assert "Codex now has funes" in printed.out
    assert str(desk.home / ".codex/hooks.json") in printed.out
    assert "funes index" in printed.err
    assert "--trust-hooks" in printed.err
    assert indexer.requests == []
    assert "hooks.state" not in (desk.home / ".codex/config.toml").read_text()
    assert call(indexer, "remove", "codex") == 0
    assert "no longer has funes" in capsys.readouterr().out
    assert call(indexer, "remove", "codex") == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert desk.snapshot() == {}


def test_yes_indexes_but_does_not_trust(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    indexer = Indexer()
    assert call(indexer, "add", "codex", "--yes") == 0
    assert len(indexer.requests) == 1
    assert "hooks.state" not in (desk.home / ".codex/config.toml").read_text()
    assert call(indexer, "add", "codex", "--trust-hooks", "--no-index") == 0
    assert "hooks.state" in (desk.home / ".codex/config.toml").read_text()
    assert len(indexer.requests) == 1


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_each_thing_is_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    asked: list[str] = []

    def confirm(question: str, default: bool, err: bool) -> bool:
        asked.append(question)
        return answer

    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(click, "confirm", confirm)
    indexer = Indexer()
    assert call(indexer, "add", "codex", "--models", "no") == 0
    assert len(asked) == 2
    assert "trust" in asked[0]
    assert "Index" in asked[1]
    assert ("hooks.state" in (desk.home / ".codex/config.toml").read_text()) is answer
    assert len(indexer.requests) == int(answer)


def test_a_missing_agent_is_one_sentence_and_asks_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: pytest.fail("asked"))
    assert call(Indexer(), "add", "claude") == 1
    printed = capsys.readouterr()
    assert "Claude Code is not here" in printed.err
    assert "npm install -g @anthropic-ai/claude-code" in printed.err
    assert not (desk.home / ".funes").exists()


def test_a_broken_file_is_told_with_its_place(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    (desk.home / ".codex/config.toml").write_text("a = 1\nb = = 2\n")
    assert call(Indexer(), "add", "codex", "--yes") == 1
    assert "config.toml, line 2" in capsys.readouterr().err


def test_a_memory_and_a_home_are_bound(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUNES_HOME", str(desk.home / "other home"))
    assert call(Indexer(), "add", "codex", "acme/memory", "--no-index") == 0
    hooks = json.loads((desk.home / ".codex/hooks.json").read_text())
    line = hooks["hooks"]["SessionEnd"][0]["hooks"][0]["command"]
    assert "--home" in line
    assert "acme/memory" in line
    config = (desk.home / ".codex/config.toml").read_text()
    assert 'args = ["mcp", "acme/memory"]' in config or '"mcp", "acme/memory"]' in config


def test_an_unknown_agent(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(Indexer(), "add", "emacs") == 2
    assert "claude, codex, hermes, pi" in capsys.readouterr().err
