"""The worker behind the hooks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from funes_mcp import hooks, worker
from funes_mcp.home import FunesHome


class Indexed:
    """Stands for the service: notes what it was asked for."""

    def __init__(self, *failures: Exception) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.failures = list(failures)

    def __call__(self, agent: str, path: Path | None) -> None:
        self.calls.append((agent, str(path) if path else None))
        if self.failures:
            raise self.failures.pop(0)


@pytest.fixture
def home(tmp_path: Path) -> FunesHome:
    return FunesHome(tmp_path / "home")


def leave(home: FunesHome, agent: str, event: str, *paths: Path) -> None:
    payload = {key: str(path) for key, path in zip(("transcript_path", "agent_transcript_path"), paths, strict=False)}
    hooks.leave_word(str(home.root), agent, event, json.dumps(payload).encode(), "")


def at_once(paths: Sequence[Path]) -> None:
    """No waiting."""


def transcript(tmp_path: Path, name: str = "t.jsonl") -> Path:
    path = tmp_path / name
    path.write_text("{}\n")
    return path


def test_each_transcript_is_indexed_once(home: FunesHome, tmp_path: Path) -> None:
    path, sub = transcript(tmp_path), transcript(tmp_path, "sub.jsonl")
    leave(home, "claude", "Stop", path)
    leave(home, "claude", "SubagentStop", path, sub)
    leave(home, "claude", "SessionEnd", path)
    leave(home, "codex", "SessionStart", path)
    index = Indexed()
    assert worker.work_off(home, index, at_once) == 4
    assert sorted(index.calls, key=str) == [("claude", str(sub)), ("claude", str(path)), ("codex", None)]
    assert list((home.root / "hooks/waiting").iterdir()) == []
    assert [(name, bool(ok), failed) for name, ok, failed in worker.hook_health(home)] == [
        ("claude SessionEnd", True, ""),
        ("claude Stop", True, ""),
        ("claude SubagentStop", True, ""),
        ("codex SessionStart", True, ""),
    ]


def test_word_left_while_it_works_is_worked_off_too(home: FunesHome, tmp_path: Path) -> None:
    first, second = transcript(tmp_path, "1"), transcript(tmp_path, "2")
    leave(home, "claude", "Stop", first)
    calls: list[str] = []

    def index(agent: str, path: Path | None) -> None:
        if not calls:
            leave(home, "claude", "Stop", second)
            assert hooks.worker_waits(str(home.root))  # so the hook started no other worker
            assert worker.work_off(home, Indexed(), at_once) == 0  # and one that comes all the same goes
        calls.append(str(path))

    worker.work_off(home, index, at_once)
    assert calls == [str(first), str(second)]


def test_a_failure_is_remembered_with_its_reason_and_a_success_after_it(home: FunesHome, tmp_path: Path) -> None:
    path = transcript(tmp_path)
    leave(home, "pi", "agent_settled", path)
    worker.work_off(home, Indexed(RuntimeError("disk full")), at_once)
    [(name, succeeded, failed)] = worker.hook_health(home)
    assert (name, succeeded) == ("pi agent_settled", "")
    assert "disk full" in failed
    leave(home, "pi", "agent_settled", path)
    worker.work_off(home, Indexed(), at_once)
    [(_, succeeded, failed)] = worker.hook_health(home)
    assert succeeded
    assert "disk full" in failed


def test_a_busy_memory_is_tried_again(home: FunesHome, tmp_path: Path) -> None:
    leave(home, "claude", "Stop", transcript(tmp_path))
    index = Indexed(worker.Busy(), worker.Busy())
    worker.work_off(home, index, at_once)
    assert len(index.calls) == 3
    assert worker.hook_health(home)[0][2] == ""


def test_a_transcript_that_was_never_written_is_no_failure(home: FunesHome, tmp_path: Path) -> None:
    leave(home, "claude", "Stop", tmp_path / "never")
    index = Indexed()
    worker.work_off(home, index, at_once)
    assert index.calls == []
    assert worker.hook_health(home)[0][1]


def test_what_a_dead_worker_left_is_done_once_more_and_then_given_up(home: FunesHome, tmp_path: Path) -> None:
    leave(home, "claude", "Stop", transcript(tmp_path))
    folder = worker.folder_of(home)
    assert [word.again for word in worker.take(folder)] == [False]
    assert [word.again for word in worker.take(folder)] == [True]
    assert worker.take(folder) == []
    assert "died" in worker.hook_health(home)[0][2]
    assert list((folder / "waiting").iterdir()) == []


def test_unreadable_words_are_dropped(home: FunesHome) -> None:
    waiting = worker.folder_of(home) / "waiting"
    waiting.mkdir(parents=True)
    for number, data in enumerate([b"", b"{", b"[]", b'{"agent": "claude"}']):
        (waiting / f"{number}.json").write_bytes(data)
    assert worker.work_off(home, Indexed(), at_once) == 0
    assert list(waiting.iterdir()) == []


def test_a_line_written_after_the_hook_is_waited_for(tmp_path: Path) -> None:
    path = transcript(tmp_path)

    def late() -> None:
        time.sleep(0.2)
        with path.open("a") as file:
            file.write("the last message\n")

    thread = threading.Thread(target=late)
    thread.start()
    worker.settle([path], quiet=0.4, most=5.0)
    assert path.read_text().endswith("the last message\n")
    thread.join()


def test_waiting_ends_though_the_file_grows_on(tmp_path: Path) -> None:
    path = transcript(tmp_path)
    stop = threading.Event()

    def grow() -> None:
        while not stop.wait(0.02):
            with path.open("a") as file:
                file.write("x")

    thread = threading.Thread(target=grow)
    thread.start()
    worker.settle([path], quiet=0.4, most=0.6)
    stop.set()
    thread.join()


def test_a_word_that_nobody_takes_shows_as_a_failure(home: FunesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(home, "hermes", "post_llm_call")
    assert worker.hook_health(home) == ()
    monkeypatch.setattr(worker, "OVERDUE_S", -1.0)
    [(name, succeeded, failed)] = worker.hook_health(home)
    assert (name, succeeded) == ("hermes post_llm_call", "")
    assert "worker never" in failed


def test_health_is_empty_where_no_hook_ran_and_survives_damage(home: FunesHome) -> None:
    assert worker.hook_health(home) == ()
    folder = worker.folder_of(home) / "health"
    folder.mkdir(parents=True)
    (folder / "claude Stop.json").write_bytes(b"{broken")
    assert worker.hook_health(home) == ()


def test_the_log_is_bounded(home: FunesHome, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr(worker, "LOG_BYTES", 100)
    for _ in range(5):
        log = worker.open_log(home)
        os.write(log, b"x" * 90)
        os.close(log)
    assert sum(path.stat().st_size for path in home.logs.iterdir()) <= 400
    assert {path.name for path in home.logs.iterdir()} == {"worker.log", "worker.log.1"}
