"""`funes ask` as people use it, with a program in Claude Code's place that does as its question says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures.server.fake_service import SESSION, TURN, FakeService

from funes_mcp.cli.app import run

FAKE_SERVICE = Path(__file__).parent / "fixtures" / "server" / "fake_service.py"

#: The agent: its answer is what stands behind "say " in the question; it notes how it was started.
AGENT = """#!%(python)s
import json, os, signal, subprocess, sys, time
if sys.argv[1:3] == ["auth", "status"]:
    if os.environ.get("LOGGED_OUT"):
        print("Not logged in. Run claude auth login.")
        sys.exit(1)
    sys.exit(0)
text = sys.stdin.read()
with open(%(log)r, "w") as log:
    json.dump({"argv": sys.argv[1:], "environ": dict(os.environ), "cwd": os.listdir("."), "stdin": text}, log)
question = text.rpartition("The question:")[2].strip()
word, _, rest = question.partition(" ")
if word == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if rest == "hard":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(%(log)r + ".pids", "w") as log:
        log.write(f"{os.getpid()} {child.pid}")
    time.sleep(600)
if word == "leave":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
if word == "fail":
    print("out of credit\\nsee \\x1b[2Jthe bill", file=sys.stderr)
    sys.exit(7)
if word == "silent":
    sys.exit(0)
for part in rest.split("|"):
    delta = {"type": "text_delta", "text": part}
    print(json.dumps({"type": "stream_event", "event": {"type": "content_block_delta", "delta": delta}}), flush=True)
print(json.dumps({"type": "result", "is_error": False, "result": rest.replace("|", "")}))
"""

TAG = f"{SESSION[:8]}.1"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, Any]]:
    """Puts the agent on PATH; returns what it noted."""
    folder, log = tmp_path / "bin dir", tmp_path / "log.json"
    folder.mkdir()
    program = folder / "claude"
    program.write_text(AGENT % {"python": sys.executable, "log": str(log)})
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FUNES_HOME", str(tmp_path / "funes"))
    return lambda: json.loads(log.read_text()) if log.exists() else {}


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(["ask", *words], FakeService)
    out, err = capsys.readouterr()
    return code, out, err


def test_an_answer_with_its_sources(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "claude", f"say It is| 8443 [{TAG}].")
    assert code == 0
    assert out == (
        f"It is 8443 [{TAG}].\n\nSources\n[{TAG}] 2026-03-11T09:04:00.000Z claude_code -home-ada-tidepool/e81f7132\n"
        f"  funes get {SESSION} {TURN}\n"
    )
    assert err == "note: 2 of 3 passages have vectors\n"  # and no progress: nobody looks at this stderr


def test_the_agent_is_alone_with_the_passages(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, _ = ask(capsys, "claude", "say", "yes", "--agent-args", "--model 'a b'", "--memory", "./other")
    assert code == 0
    noted = agent()
    assert noted["cwd"] == []
    assert noted["environ"]["FUNES_NO_HOOKS"] == "1"
    assert noted["argv"][:3] == ["-p", "--model", "a b"]
    assert "> you asked: say yes" in noted["stdin"]


def test_json_for_scripts(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(capsys, "claude", f"say 8443 [{TAG}] or 8080 [deadbeef.2]", "--json", "--memory", "./a b")
    assert code == 0
    value = json.loads(out)
    assert (value["answered"], value["agent"], value["asked"]) == (True, "claude", True)
    assert value["answer"] == f"8443 [{TAG}] or 8080 [deadbeef.2]"
    assert [source["get"] for source in value["sources"]] == [f"funes get {SESSION} {TURN} --memory './a b'"]
    assert value["unknown_citations"] == ["deadbeef.2"]
    assert [passage["cited"] for passage in value["passages"]] == [True]


def test_made_up_and_missing_sources_are_flagged(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = ask(capsys, "claude", "say It is 8443 [deadbeef.2]")
    assert "cites what it was not given: deadbeef.2" in err
    assert "names no passage as its source" in err


def test_the_passages_do_not_answer(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "claude", "say The passages do not answer this. They are about tea.")
    assert code == 0
    assert out == "The passages do not answer this. They are about tea.\n"
    assert "Try other words" in err
    assert "names no passage" not in err


def test_nothing_recalled_starts_no_agent(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "claude", "nothing here")
    assert (code, out) == (3, "")
    assert "Nothing relevant was recalled, so no agent was asked." in err
    assert "funes recall" in err
    assert agent() == {}
    code, out, _ = ask(capsys, "claude", "nothing here", "--json")
    assert code == 3
    assert json.loads(out) == {"answered": False, "agent": "claude", "asked": False}


@pytest.mark.parametrize(
    ("question", "code", "words"),
    [
        ("busy now", 1, "The memory is on fire.\nPut it out."),
        ("empty now", 1, "There is no memory yet.\nRun `funes index`"),
        ("raise now", 1, "ZeroDivisionError"),
        (" ", 2, "The question is empty."),
    ],
)
def test_a_failed_recall_starts_no_agent(
    agent: Callable[[], Any], capsys: pytest.CaptureFixture[str], question: str, code: int, words: str
) -> None:
    assert ask(capsys, "claude", question)[0] == code
    assert agent() == {}
    ask(capsys, "claude", question)
    assert words in ask(capsys, "claude", question)[2]


def test_an_agent_that_is_not_here(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ask(capsys, "codex", "say x")
    assert code == 1
    assert "there is no `codex` on PATH" in err
    assert "npm install -g @openai/codex" in err
    assert ask(capsys, "emacs", "say x")[0] == 2


def test_nobody_is_logged_in(
    agent: Callable[[], Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGGED_OUT", "1")
    code, _, err = ask(capsys, "claude", "say x")
    assert code == 1
    assert "Claude Code says: Not logged in. Run claude auth login." in err
    assert agent() == {}


def test_a_failure_is_told_in_the_agents_words(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "claude", "fail now")
    assert (code, out) == (1, "")
    assert "Claude Code ended with exit code 7:\n  out of credit\n  see ␛[2Jthe bill\n" in err
    assert "gave no answer" in ask(capsys, "claude", "silent now")[2]


def test_a_terminal_obeys_no_answer(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = ask(capsys, "claude", "say a\x1b]52;c;eA==\x07b\r|\nc")
    assert out.startswith("a␛]52;c;eA==␇b")
    assert "\x1b" not in out


def test_flags_that_cannot_be_split(agent: Callable[[], Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "claude", "say x", "--agent-args", "'")[0] == 2


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(FAKE_SERVICE), "cli", "ask", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )


def pids(folder: Path) -> list[int]:
    path = folder / "log.json.pids"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if path.exists() and len(path.read_text().split()) == 2:
            return [int(word) for word in path.read_text().split()]
        time.sleep(0.05)
    raise AssertionError("the agent was never started")


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        try:  # a dead child of nobody may wait for its reaper
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", ["gently", "hard"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_agent_and_its_children(
    agent: Callable[[], Any], tmp_path: Path, how: str, number: signal.Signals
) -> None:
    process = start(tmp_path, "claude", f"hang {how}")
    started = pids(tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"interrupted" in err
    assert all(gone(pid) for pid in started)


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_what_the_agent_leaves_running_is_ended(agent: Callable[[], Any], tmp_path: Path) -> None:
    process = start(tmp_path, "claude", "leave yes")
    out, _ = process.communicate(timeout=30)  # would wait for ever for the one that holds the agent's output open
    assert process.returncode == 0
    assert out == b"yes\n"
