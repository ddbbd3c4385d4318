"""`funes add` and `funes remove` as they are typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from wiring_support import Desk

from funes_mcp.cli import terminal
from funes_mcp.cli.app import run
from funes_mcp.models import IndexReport, IndexRequest, Progress, PushReport, PushRequest, PushTalk, Target
from funes_mcp.wiring.flow import find_wiring


class Indexer:
    """A service that can only be asked to index, and to publish to one dataset."""

    def __init__(self, target: Target | None = None) -> None:
        self.requests: list[IndexRequest] = []
        self.target = target or Target("acme/memory", "there", passages=7, shared=True)
        self.done: list[str] = []

    def look_at(self, memory: str, talk: PushTalk | None = None) -> Target:
        assert memory == self.target.label
        return self.target

    def create(self, memory: str) -> str:
        self.done.append("created")
        return f"https://hub/datasets/{memory}"

    def agree(self, memory: str, *, public: bool) -> None:
        self.done.append(f"agreed to {'public' if public else 'private'}")

    def push(self, request: PushRequest, talk: PushTalk | None = None) -> PushReport:
        assert request.yes
        self.done.append("pushed")
        return PushReport(request.memory, sent=3, sessions=1)

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


def bound(desk: Desk) -> tuple[str, str]:
    """The memory that Codex reads and the one that its hooks publish to."""
    state = desk.wirer.state(find_wiring("codex"))
    return state.memory, state.publishes


THERE = Target("acme/memory", "there", passages=7)


@pytest.mark.parametrize(
    ("target", "question"),
    [
        (THERE, "7 passages, none of them from this machine"),
        (replace(THERE, passages=None), "holds no memory"),
        (replace(THERE, private=False, shared=True), "holds sessions of this machine already"),
        (Target("acme/memory", "unreachable", "No network."), "cannot be reached now"),
    ],
)
def test_publishing_is_asked_about_and_without_a_yes_the_memory_is_only_read(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: Target, question: str
) -> None:
    service = Indexer(target)
    assert call(service, "add", "codex", "acme/memory") == 0  # nobody to ask
    assert bound(desk) == ("acme/memory", "")
    assert "are not published there" in capsys.readouterr().err
    answers = {"publish": False}
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answers["publish"] or "publish" not in text.lower()

    monkeypatch.setattr(terminal, "is_terminal", lambda stream: True)
    monkeypatch.setattr(click, "confirm", confirm)
    assert call(service, "add", "codex", "acme/memory", "--no-index") == 0
    assert question in asked[0]
    assert bound(desk) == ("acme/memory", "")
    assert service.done == []
    answers["publish"] = True
    assert call(service, "add", "codex", "acme/memory", "--models", "no") == 0
    assert bound(desk) == ("acme/memory", "acme/memory")
    assert service.done == [f"agreed to {'private' if target.private else 'public'}", "pushed"]
    assert ("is public" in capsys.readouterr().err) is not target.private


@pytest.mark.parametrize("terminal_there", [False, True])
def test_a_dataset_that_is_missing_and_not_to_be_made_binds_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal_there: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(terminal, "is_terminal", lambda stream: terminal_there)
    monkeypatch.setattr(click, "confirm", lambda text, **_: asked.append(text))
    service = Indexer(Target("acme/memory", "missing", "There is no dataset acme/memory."))
    assert call(service, "add", "codex", "acme/memory") == 1
    assert ["Create the private dataset acme/memory" in text for text in asked] == [True] * terminal_there
    printed = capsys.readouterr().err
    assert "no dataset acme/memory. It was not made, and Codex was not changed." in printed
    assert "--yes" in printed
    assert bound(desk) == ("", "")
    assert service.done == []
    assert service.requests == []


def test_yes_indexes_and_publishes_in_one_go(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    service = Indexer(Target("acme/memory", "missing"))
    assert call(service, "add", "codex", "acme/memory", "--yes") == 0
    assert len(service.requests) == 1
    assert service.done == ["created", "pushed"]
    printed = capsys.readouterr()
    assert "3 passages of 1 session published" in printed.out
    assert "The private dataset was made: https://hub/datasets/acme/memory" in printed.err


def test_what_holds_sessions_of_this_machine_is_not_asked_about(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click, "confirm", lambda *_, **__: pytest.fail("asked"))
    assert call(Indexer(replace(THERE, shared=True)), "add", "codex", "acme/memory", "--no-index") == 0
    assert bound(desk) == ("acme/memory", "acme/memory")


def test_a_memory_that_may_not_be_written_to_is_only_read(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    service = Indexer(replace(THERE, writable=False))
    assert call(service, "add", "codex", "acme/memory", "--yes") == 0
    assert bound(desk) == ("acme/memory", "")
    assert "may not write" in capsys.readouterr().err
    assert service.done == []


def test_local_unbinds(desk: Desk) -> None:
    assert call(Indexer(), "add", "codex", "acme/memory", "--no-index") == 0
    assert call(Indexer(), "add", "codex", "local", "--no-index") == 0
    assert bound(desk) == ("", "")


def test_a_folder_is_read_and_what_is_no_memory_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(Indexer(), "add", "codex", str(desk.home / "memory"), "--no-index") == 0
    assert bound(desk) == (str(desk.home / "memory"), "")
    assert call(Indexer(), "add", "codex", "memory", "--no-index") == 2
    assert "names no memory" in capsys.readouterr().err


def test_an_unknown_agent(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(Indexer(), "add", "emacs") == 2
    assert "claude, codex, hermes, pi" in capsys.readouterr().err
