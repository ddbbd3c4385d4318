"""`funes hook`: leaves word, prints nothing, never waits, never fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from funes_mcp import hooks

PAYLOAD = {"session_id": "s", "transcript_path": "/t/ä b.jsonl", "hook_event_name": "Stop"}

#: What a hook may import beyond what Python has loaded at its start; all of it small.
ALLOWED = {
    "funes_mcp", "json", "json.decoder", "json.encoder", "json.scanner", "select", "signal", "fcntl", "binascii",
    "re", "enum", "types", "functools", "collections", "collections.abc", "keyword", "operator", "reprlib",
    "atexit",  # the probe below
    "itertools", "copyreg", "typing", "runpy", "pkgutil", "importlib", "warnings", "contextlib", "math", "pwd", "grp",
}  # fmt: skip


def test_the_folders_it_makes_are_private(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        hooks.leave_word(str(tmp_path / "home"), "claude", "Stop", b"", "")
    finally:
        os.umask(before)
    for folder in ("home", "home/hooks", "home/hooks/waiting"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def words(home: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_bytes()) for path in sorted((home / "hooks/waiting").glob("*.json"))]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose worker lock is taken, so that no worker is started."""
    monkeypatch.setattr(hooks, "worker_waits", lambda home: True)
    monkeypatch.setattr(hooks, "_give_up_later", lambda: None)
    monkeypatch.delenv(hooks.GUARD, raising=False)
    monkeypatch.setenv("FUNES_HOME", str(tmp_path / "fünes home"))
    return tmp_path / "fünes home"


def run(monkeypatch: pytest.MonkeyPatch, argv: list[str], data: bytes, close: bool = True) -> int:
    """Run a hook with this on standard input, which stays open unless `close`."""
    reading, writing = os.pipe()
    os.write(writing, data)
    if close:
        os.close(writing)
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        code = hooks.main(argv)
    if not close:
        os.close(writing)
    return code


@pytest.mark.parametrize("close", [True, False])
def test_word_is_left_whether_or_not_the_pipe_is_closed(
    home: Path, monkeypatch: pytest.MonkeyPatch, close: bool
) -> None:
    assert run(monkeypatch, ["claude", "Stop"], json.dumps(PAYLOAD).encode(), close) == 0
    [word] = words(home)
    assert word["agent"] == "claude"
    assert word["event"] == "Stop"
    assert word["paths"] == ["/t/ä b.jsonl"]
    assert (home / "hooks").stat().st_mode & 0o077 == 0


def test_the_same_word_is_left_once_and_others_beside_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        run(monkeypatch, ["claude", "Stop"], json.dumps(PAYLOAD).encode())
    sub = {**PAYLOAD, "agent_transcript_path": "/t/sub.jsonl"}
    run(monkeypatch, ["claude", "SubagentStop"], json.dumps(sub).encode())
    assert sorted(len(word["paths"]) for word in words(home)) == [1, 2]  # type: ignore[arg-type]


def test_a_session_start_means_everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, ["codex", "SessionStart"], json.dumps(PAYLOAD).encode())
    assert words(home)[0]["paths"] == []


def test_a_huge_payload_is_read_at_its_beginning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps({**PAYLOAD, "history": "x" * 50_000})[:-20_000].encode()
    run(monkeypatch, ["claude", "Stop"], data)
    assert words(home)[0]["paths"] == ["/t/ä b.jsonl"]


@pytest.mark.parametrize("data", [b"", b"null", b"[1]", b"\xff\xfe", b'{"transcript_path": 3}', b"{" * 5000])
def test_nonsense_means_everything_and_is_no_failure(home: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    assert run(monkeypatch, ["hermes", "post_llm_call"], data) == 0
    assert words(home)[0]["paths"] == []


@pytest.mark.parametrize("argv", [[], ["claude"], ["--home"], ["a", "b", "c", "--what"]])
def test_odd_arguments_are_no_failure(home: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]) -> None:
    assert run(monkeypatch, argv, b"{}") == 0


def test_home_and_memory_from_the_command_line(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    run(monkeypatch, ["pi", "agent_settled", "--home", str(other), "--memory", "a/b"], b"{}")
    assert words(other)[0]["memory"] == "a/b"
    assert not home.exists()


def test_an_agent_that_funes_itself_started_is_not_indexed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hooks.GUARD, "1")
    assert run(monkeypatch, ["claude", "Stop"], json.dumps(PAYLOAD).encode()) == 0
    assert not home.exists()


def test_a_home_that_cannot_be_written_is_no_failure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write_text("not a folder")
    assert run(monkeypatch, ["claude", "Stop"], b"{}") == 0


def test_words_do_not_pile_up_without_end(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "MOST_WAITING", 3)
    for number in range(10):
        run(monkeypatch, ["claude", "Stop"], json.dumps({"transcript_path": f"/t/{number}"}).encode())
    assert len(words(home)) == 4


def test_one_worker_for_many_hooks(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.undo()
    (home / "hooks").mkdir(parents=True)
    assert not hooks.worker_waits(str(home))
    with (home / "hooks/worker.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert hooks.worker_waits(str(home))
    assert not hooks.worker_waits(str(home))


def test_the_real_command_is_silent_and_loads_little(tmp_path: Path) -> None:
    """Started as an agent starts it, its standard input open; the worker it starts has nothing to index."""
    probe = (
        "import sys; before = set(sys.modules); from funes_mcp.__main__ import main\n"
        "import atexit\n"
        "atexit.register(lambda: print(*sorted(set(sys.modules) - before), file=open(sys.argv[-1], 'w')))\n"
        "main(['hook', 'claude', 'Stop'])"
    )
    listing = tmp_path / "modules"
    environ = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen(
        [sys.executable, "-c", probe, str(listing)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    )
    assert process.stdin is not None
    process.stdin.write(b'{"transcript_path": "/nowhere/x.jsonl"}')
    process.stdin.flush()
    assert process.wait(30) == 0  # standard input is still open
    process.stdin.close()
    assert process.stdout is not None
    assert process.stderr is not None
    assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    process.stdout.close()
    process.stderr.close()
    loaded = {name for name in listing.read_text().split() if not name.startswith(("_", "re.", "sre_", "encodings"))}
    assert {name for name in loaded if not name.startswith("funes_mcp")} <= ALLOWED
    assert {name for name in loaded if name.startswith("funes_mcp")} == {
        "funes_mcp", "funes_mcp.__main__", "funes_mcp.hooks",
    }  # fmt: skip
    health = tmp_path / ".funes/hooks/health/claude Stop.json"
    deadline = time.monotonic() + 30  # the detached worker outlives the hook
    while not health.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "succeeded" in json.loads(health.read_text())
