"""The command line as people and scripts use it: real processes over a service without a memory."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.server.fake_service import SESSION, TURN, FakeService

from funes_mcp.cli.app import COMMANDS, run
from funes_mcp.cli.progress import Lines, stoppable
from funes_mcp.models import GetRequest, IndexReport, IndexRequest, RecallRequest

FAKE = Path(__file__).parent / "fixtures" / "server" / "fake_service.py"


class Ran:
    """What a command line did in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *words: str) -> None:
        self.service = FakeService()
        self.code = run(words, lambda: self.service)
        self.out, self.err = capsys.readouterr()

    @property
    def asked(self) -> object:
        (only,) = self.service.asked
        return only


def spawn(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, **options.pop("env", {})}  # type: ignore[dict-item]
    command = [sys.executable, str(FAKE), "cli", *words]
    return subprocess.run(command, capture_output=True, timeout=60, env=environ, **options)  # type: ignore[call-overload]


def test_recall_has_the_promised_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "recall", "q")
    assert ran.asked == RecallRequest("q", k=8, candidates=50, neighbors=1, half_life=30.0, memory="local")
    assert ran.code == 0


def test_recall_has_the_promised_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "-k",
        "3",
        "--candidates",
        "20",
        "--neighbors",
        "0",
        "--half-life",
        "0",
        "--type",
        "text",
        "--harness",
        "claude",
        "--memory",
        "/m",
    ]
    more = ["--project", "a/b", "--since", "7d", "--until", "2026-01-01", "--session", "e81f"]
    assert Ran(capsys, "recall", *flags, "q", *more).asked == RecallRequest(
        "q", 3, 20, 0, 0.0, "text", "claude", "a/b", "e81f", "7d", "2026-01-01", "/m"
    )


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (["why", "did", "we", "drop", "it"], "why did we drop it"),
        (["what's the C++ flag -O2?"], "what's the C++ flag -O2?"),
        (["-O2", "or", "-O3"], "-O2 or -O3"),
        (["--release build fails"], "--release build fails"),
        (["--", "--no-verify"], "--no-verify"),
        (["-kernel panic"], "-kernel panic"),
        (['"unbalanced', "AND", "("], '"unbalanced AND ('),
        (["🦀", "日本"], "🦀 日本"),
        (["- -"], "- -"),
    ],
)
def test_a_question_needs_no_quotes(capsys: pytest.CaptureFixture[str], words: list[str], query: str) -> None:
    for command in (["recall", *words], ["recall", "-k", "3", *words], ["recall", "-k3", "--type", "text", *words]):
        asked = Ran(capsys, *command).asked
        assert isinstance(asked, RecallRequest)
        assert asked.query == query


def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "recall", "q", "--neigbors", "0")
    assert ran.code == 2
    assert "--neighbors" in ran.err
    assert ran.service.asked == []


def test_a_question_from_a_pipe() -> None:
    done = spawn("recall", "-", input="müde lock\n".encode())
    assert "you asked: müde lock" in done.stdout.decode()
    assert spawn("recall", "-", input=b" \n").returncode == 2


@pytest.mark.parametrize(
    "words", [("recall",), ("recall", "  "), ("get", "only"), ("nonsense",), ("recall", "-k", "x")]
)
def test_a_command_line_that_makes_no_sense_is_2(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    ran = Ran(capsys, *words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.service.asked == []


def test_data_goes_to_stdout_and_notes_to_stderr() -> None:
    done = spawn("recall", "hello")
    assert done.stdout.decode().splitlines()[0] == (
        f"[2026-03-11T09:04:00.000Z] claude_code -home-ada-tidepool/{SESSION[:8]} text  score=0.812"
    )
    assert done.stderr.decode() == "note: 2 of 3 passages have vectors\n"
    nothing = spawn("recall", "nothing")
    assert (nothing.stdout, nothing.returncode) == (b"no results\n", 0)


def test_answers_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(Ran(capsys, "recall", "q", "--json").out)
    assert found["hits"][0]["chunk"]["session_id"] == SESSION
    assert json.loads(Ran(capsys, "get", SESSION, TURN, "--json").out)["found"] is True
    assert json.loads(Ran(capsys, "status", "--json").out)["chunks"] == 1234


def test_get(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "get", "e81f", TURN, "--window", "1", "--memory", "local")
    assert ran.asked == GetRequest("e81f", TURN, 1, "local")
    assert f"turn={TURN}\nbecause\n" in ran.out
    missing = Ran(capsys, "get", SESSION, "nowhere")
    assert (missing.out, missing.code) == (f"turn nowhere not found in session {SESSION}\n", 1)
    assert Ran(capsys, "get", "zzz", TURN).code == 1


def test_status_and_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    assert "1,234 passages in 2 sessions" in Ran(capsys, "status").out
    assert Ran(capsys, "status", "/elsewhere").asked == "/elsewhere"
    assert Ran(capsys, "sessions", "e8").out == f"{SESSION}\n"


def test_index_has_the_promised_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert Ran(capsys, "index").asked == IndexRequest()
    words = ("index", "/tmp/x", "--harness", "codex", "--limit", "5", "--no-thinking", "--yes")
    assert Ran(capsys, *words).asked == IndexRequest(Path("/tmp/x"), "codex", 5, False)


def test_index_reports_plainly_off_a_terminal() -> None:
    done = spawn("index", stdin=subprocess.DEVNULL)
    assert done.stdout.decode() == (
        "claude_code: 3 files: 2 read, 0 unchanged, 1 failed\n"
        "400 new passages in 2.0 s, 200 a second (5 known already)\n"
    )
    assert done.stderr.decode() == (
        "indexing 2 files, 2.0 MB\ncould not read /home/ada/␛[2Jc.jsonl: permission denied\n"
    )
    assert done.returncode == 0


def test_an_interrupted_index_says_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "index", "--harness", "interrupted")
    assert ran.code == 130
    assert "What is stored is kept" in ran.err


def test_a_pass_that_compiles_the_search_for_credentials_says_so() -> None:
    lines: list[str] = []
    Lines(lines.append, lambda: 0.0).started(1, 5_000, compiling=True)
    assert lines == ["indexing 1 file, 0.0 MB; first the search for credentials is compiled, once"]


def test_ctrl_c_stops_an_index_where_nothing_is_half_written(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Lines(lambda line: None, lambda: 0.0)
    reached = []
    with stoppable(progress) as told:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        told.started(3, 10)
        signal.raise_signal(signal.SIGINT)
        reached.append("the write goes on")
        with pytest.raises(KeyboardInterrupt):
            told.committed(1)
        told.committed(1)  # the commit of what was read before the stop
        told.finished(IndexReport())
    assert reached
    assert "Ctrl-C again stops at once" in capfd.readouterr().err
    with stoppable(progress) as told:
        told.started(3, 10)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_anywhere_else_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    def stopped() -> FakeService:
        raise KeyboardInterrupt

    assert run(["status"], stopped) == 130
    assert capsys.readouterr().err.strip() == "funes: interrupted"


def test_an_error_is_a_sentence_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    empty = Ran(capsys, "recall", "empty")
    assert (empty.code, empty.out) == (1, "")
    assert empty.err == "funes: There is no memory yet.\nRun `funes index` to build one.\n"
    fault = Ran(capsys, "recall", "raise")
    assert fault.code == 1
    assert "Traceback" not in fault.err
    assert "FUNES_DEBUG=1" in fault.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f'"{sys.executable}" "{FAKE}" cli recall "many 2000" | head -n 1'
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, timeout=60)
    assert done.stderr == b""
    assert done.returncode in (0, 141)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, str(FAKE), "cli", "recall", "q"], stdout=full, stderr=subprocess.PIPE, timeout=60
        )
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_a_console_without_the_characters_gets_an_answer_that_can_be_parsed(encoding: str) -> None:
    done = spawn("recall", "日本", env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert re.search(rf"^  -> get {SESSION} {TURN} --memory local\s*$", done.stdout.decode(encoding), re.M)
    assert b"you asked: ??" in done.stdout


def test_a_question_typed_in_another_locale_is_read_as_utf8() -> None:
    environ = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = spawn("recall", "grün", "--json", env=environ)
    assert done.returncode == 0
    assert b"gr?n" in done.stdout


def test_nothing_is_coloured_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in Ran(capsys, "recall", "q").out


def on_a_terminal(*words: str, **environ: str) -> str:
    """What a command prints on a terminal (stdout and stderr are one)."""
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    values = {**os.environ, "TERM": "xterm-256color", **environ}
    values.pop("NO_COLOR", None) if "NO_COLOR" not in environ else None
    process = subprocess.Popen(
        [sys.executable, str(FAKE), "cli", *words], stdin=child, stdout=child, stderr=child, env=values
    )
    os.close(child)
    shown = bytearray()
    while True:
        try:
            got = os.read(parent, 65536)
        except OSError:
            break
        if not got:
            break
        shown += got
    process.wait(60)
    os.close(parent)
    return shown.decode()


def test_a_terminal_gets_bold_headings_unless_it_wants_none() -> None:
    assert "\x1b[1m[2026-03-11" in on_a_terminal("recall", "q")
    assert "\x1b" not in on_a_terminal("recall", "q", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("recall", "q", TERM="dumb")


def test_a_terminal_gets_a_bar() -> None:
    shown = on_a_terminal("index")
    assert "Indexing" in shown
    assert "2/2 files" in shown
    assert "400 new passages" in shown


def test_help_names_every_command_and_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Ran(capsys, "--help")
    assert shown.code == 0
    for name in ("index", "recall", "get", "status", "sessions", "mcp"):
        assert re.search(rf"^  {name} +\S", shown.out, re.M)
        one = Ran(capsys, name, "--help")
        assert one.code == 0
        assert "Usage: funes" in one.out
    assert len({name for name, _, _ in COMMANDS}) == len(COMMANDS)
    assert Ran(capsys).out == shown.out
    assert Ran(capsys, "--version").out.startswith("funes, version ")


def test_help_of_the_server_is_printed_and_the_server_is_not_started() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "funes_mcp", "mcp", "--help"], capture_output=True, stdin=subprocess.DEVNULL, timeout=60
    )
    assert b"Usage: funes mcp [OPTIONS] [MEMORY]" in done.stdout
