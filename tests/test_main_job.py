"""The main job as a newcomer does it: real processes on the history that the repository ships."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "examples" / "sample-history"

QUESTIONS = {
    "why did we drop the streaming parser": "It splits quoted newlines across buffers",
    "which cache for the station list did we settle on": "Which cache did we settle on",
    "colour-blind chart colours": "Okabe-Ito palette",
    "tide tables an hour off since summer time": "adds the station offset to local time",
    "E_TZ_DRIFT": "error code E_TZ_DRIFT",
    "src/cache.py:18": "ttl = timedelta(hours=6)",
}


class Funes:
    """The command in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CLAUDE", "CODEX", "HERMES", "PI_", "FUNES"))}
        self.environ = {**kept, "HOME": str(home), "FUNES_HOME": str(home / ".funes"), "PYTHONUTF8": "1"}

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "funes_mcp", *arguments],
            env=self.environ,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        return done


@pytest.fixture(scope="module")
def funes(tmp_path_factory: pytest.TempPathFactory, with_rules: Callable[[Path], None]) -> Funes:
    funes = Funes(tmp_path_factory.mktemp("a home with späces"))
    with_rules(funes.home / ".funes")
    funes.run("index", str(SAMPLE), "--yes")
    return funes


def test_without_an_index_it_says_what_to_run(tmp_path: Path) -> None:
    done = Funes(tmp_path).run("recall", "anything", code=1)
    assert done.stdout == ""
    assert "funes index" in done.stderr
    assert not (tmp_path / ".funes").exists()


@pytest.mark.parametrize(("question", "passage"), QUESTIONS.items())
def test_the_passage_is_found_word_for_word(funes: Funes, question: str, passage: str) -> None:
    done = funes.run("recall", question)
    assert passage in "".join(done.stdout.split("\n---\n")[:2])


def test_get_opens_the_turn_by_the_ids_that_recall_printed(funes: Funes) -> None:
    found = funes.run("recall", "why did we drop the streaming parser").stdout
    match = re.search(r"→ get (\S+) (\S+)", found)
    assert match
    opened = funes.run("get", match[1][:6], match[2], "--window", "2").stdout
    assert f"turn={match[2]}" in opened
    assert opened.count("\n---\n") == 5
    assert "312 rows rejected" in opened


ODD_QUESTIONS = (
    *("what's the C++ flag -O2?", "foo:bar", "AND", '"unbalanced', "NOT (a OR", "* ? ~ ^", "--release fails"),
    *("x", "🤷", "重跑", "word " * 2000),
)


@pytest.mark.parametrize("question", ODD_QUESTIONS)
def test_any_question_as_typed_works(funes: Funes, question: str) -> None:
    funes.run("recall", "--", question)


def test_filters_restrict(funes: Funes) -> None:
    def harnesses(*flags: str) -> set[str]:
        found = json.loads(
            funes.run("recall", "tide tables cache parser colours", "--json", "--min-relevance", "0", *flags).stdout
        )
        return {hit["chunk"]["harness"] for hit in found["hits"]}

    assert harnesses() == {"claude_code", "codex", "pi"}
    assert harnesses("--harness", "claude") == {"claude_code"}
    assert harnesses("--project", "ada/tidepool") == {"codex"}
    assert harnesses("--since", "2026-05-01") == {"pi"}
    assert harnesses("--until", "2026-03-15") == {"claude_code"}
    assert harnesses("--session", "2266cb9f") == {"codex"}


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--half-life", "nan"), 2, "half-life"),
        (("--neighbors", "99999999999999999999"), 0, ""),
        (("--project", ""), 0, ""),
        (("-k", "1000000000000"), 0, ""),
        (("--since", "soon"), 2, "cannot be read as a time"),
        (("--session", "../.."), 1, "No session starts with"),
        (("--memory", "./no/such/place"), 1, "There is no memory called"),
        (("--memory", "no/such/place"), 2, "names no memory"),
        (("--harness", "cursor"), 2, "Known agents"),
    ],
)
def test_odd_flags_do_something_sensible(funes: Funes, flags: tuple[str, str], code: int, said: str) -> None:
    done = funes.run("recall", "streaming parser", *flags, code=code)
    assert said in done.stderr
    assert bool(done.stdout) == (code == 0)
    assert "no results" not in done.stdout


def test_a_second_pass_stores_nothing(funes: Funes) -> None:
    done = funes.run("index", str(SAMPLE))
    assert "0 new passages" in done.stdout
    report = json.loads(funes.run("status", "--json").stdout)
    assert report["chunks"] == report["embedded"] == 19
    assert report["sessions"] == 4


def test_a_new_turn_is_added_and_a_deleted_transcript_keeps_its_rows(
    tmp_path: Path, with_rules: Callable[[Path], None]
) -> None:
    funes = Funes(tmp_path)
    with_rules(tmp_path / ".funes")
    folder = tmp_path / ".claude" / "projects" / "-home-ada-tidepool"
    folder.mkdir(parents=True)
    name = "2d7412ae-281f-5e27-8730-43248ee5d033.jsonl"
    lines = (SAMPLE / "claude" / "projects" / "-home-ada-tidepool" / name).read_text("utf-8").splitlines(keepends=True)
    transcript = folder / name
    transcript.write_text("".join(lines[:2]) + lines[2][:40], "utf-8")
    assert "2 new passages" in funes.run("index").stdout
    transcript.write_text("".join(lines), "utf-8")
    assert "2 new passages" in funes.run("index").stdout
    transcript.unlink()
    funes.run("index")
    assert "E_TZ_DRIFT" in funes.run("recall", "E_TZ_DRIFT").stdout


def test_a_credential_never_reaches_the_disk(tmp_path: Path, with_rules: Callable[[Path], None]) -> None:
    secret = "ghp_" + "aB3dE5fG7hJ9kL2mN4pQ" + "6rS8tU0vWxYz1C3e"
    funes = Funes(tmp_path)
    with_rules(tmp_path / ".funes")
    transcript = tmp_path / "0b7f7a62-7d2b-4a53-9d0e-1f4f7e2f0a11.jsonl"
    arguments = {"command": f"curl -H 'Authorization: token {secret}' https://api.example.org/harbours"}
    content = [
        {"type": "text", "text": f"The harbour service wants a token, I use {secret} for now."},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": json.dumps(arguments)}},
    ]
    facts = {"sessionId": transcript.stem, "cwd": "/home/ada/tidepool", "timestamp": "2026-03-11T09:00:00.000Z"}
    message = {"role": "assistant", "content": content}
    line = {"type": "assistant", "uuid": "0b7f7a62-7d2b-4a53-9d0e-1f4f7e2f0a12", **facts, "message": message}
    transcript.write_text(json.dumps(line) + "\n", "utf-8")
    assert "credentials replaced" in funes.run("index", str(transcript)).stdout
    found = funes.run("recall", "which token does the harbour service want").stdout
    assert "[REDACTED:" in found
    assert "harbour service wants a token" in found
    for path in (tmp_path / ".funes").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_an_agent_calls_the_tools(funes: Funes) -> None:
    async def talk() -> tuple[str, str, str]:
        server = StdioServerParameters(command=sys.executable, args=["-m", "funes_mcp", "mcp"], env=funes.environ)
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            assert {tool.name for tool in (await client.list_tools()).tools} == {"recall", "get", "status"}
            found = await client.call_tool("recall", {"query": "why did we drop the streaming parser", "k": "3"})
            text = getattr(found.content[0], "text", "")
            match = re.search(r"→ get (\S+) (\S+)", text)
            assert match
            opened = await client.call_tool("get", {"session_id": match[1], "turn_uuid": match[2], "window": ""})
            nothing = await client.call_tool("get", {"session_id": "nope", "turn_uuid": "x"})
            assert nothing.is_error
            status = await client.call_tool("status", {})
            return text, getattr(opened.content[0], "text", ""), getattr(status.content[0], "text", "")

    found, opened, status = anyio.run(talk)
    assert "quotes from past sessions" in found.splitlines()[0]
    assert "It splits quoted newlines across buffers" in found
    assert len(found.encode()) < 10_000
    assert "Agreed. Drop it" in opened
    assert "19 passages in 4 sessions" in status


def test_everything_it_makes_is_private(funes: Funes) -> None:
    for path in (funes.home / ".funes").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_commands_in_the_readme_are_the_ones_that_are_tested() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(re.findall(r"^<!-- (?:install|tests) -->\n```sh\n[^\n]+\n```$", readme, re.MULTILINE)) == 2
    for name in re.findall(r"\]\(((?!http)[^)]+)\)", readme):
        assert (ROOT / name).exists(), name
