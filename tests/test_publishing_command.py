"""Publishing as it is typed, and as hooks do it: processes and a Hub on the loopback, through `huggingface_hub`."""

from __future__ import annotations

import json
import os
import random
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import READER, STRANGER, LoopbackHub
from memory_support import Transcript, transcript
from publishing_support import Dataset, Machine

from funes_mcp.cli.app import run
from funes_mcp.home import FunesHome
from funes_mcp.memory.table import ChunkTable
from funes_mcp.worker import hook_health

MEMORY = "team/memory"


def token(seed: int) -> str:
    rng = random.Random(seed)
    return "ghp_" + "".join(rng.choice(string.ascii_letters + string.digits) for _ in range(36))


def session(name: str, *texts: str) -> Transcript:
    made = transcript(name)
    for number, text in enumerate(texts):
        made.say(f"{name}-{number}", text)
    return made


@pytest.fixture(scope="module")
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub(page=1000) as made:
        yield made


@pytest.fixture(autouse=True)
def empty(hub: LoopbackHub) -> None:
    hub.calm()
    hub.repos.clear()
    hub.asked.clear()
    hub.before_commit = None


class Host:
    """A machine: a home of its own, a memory, and the program."""

    def __init__(self, hub: LoopbackHub, home: Path, with_rules: Callable[[Path], None]) -> None:
        self.hub = hub
        self.home = home
        self.root = home / "funes"
        with_rules(self.root)
        self.environ = {**hub.environ(home), "PATH": os.environ["PATH"], "PYTHONUTF8": "1"}

    def store(self, *files: Transcript) -> None:
        Machine(self.root, Dataset()).store(*files)

    def start(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "funes_mcp", *words],
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def funes(self, *words: str, code: int = 0, **environ: str) -> str:
        process = self.start(*words, **environ)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        return out + err

    def typed(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
    ) -> tuple[int, str]:
        """The same in this process, off a terminal."""
        self.hub.settle(monkeypatch, self.home, self.environ.get("HF_TOKEN"))
        code = run(list(words))
        printed = capsys.readouterr()
        return code, printed.out + printed.err


@pytest.fixture
def ann(hub: LoopbackHub, tmp_path: Path, with_rules: Callable[[Path], None]) -> Host:
    return Host(hub, tmp_path / "ann", with_rules)


@pytest.fixture
def bob(hub: LoopbackHub, tmp_path: Path, with_rules: Callable[[Path], None]) -> Host:
    return Host(hub, tmp_path / "bob", with_rules)


def published(hub: LoopbackHub, folder: Path) -> list[str]:
    """The texts of all rows, in order; an id that is there twice fails."""
    for path, content in hub.repos[MEMORY].files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    rows = [row for part in ChunkTable.open(folder).stream() for row in part]
    assert len({row.id for row in rows}) == len(rows)
    return sorted(row.text for row in rows)


def test_two_hosts_and_a_credential_that_stays(
    ann: Host,
    bob: Host,
    hub: LoopbackHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    secret = token(1)
    ann.store(session("one", "the parser was dropped", f"the key is {secret}"))
    bob.store(session("two", "the tide tables were an hour off"))
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY)
    assert code == 2
    assert "funes push team/memory --yes" in said
    assert MEMORY not in hub.repos
    said = ann.funes("push", MEMORY, "--yes")
    assert "LFS" not in said  # the library's own bars
    assert "1 passage of 1 session published" in said
    assert "Held back: 1 passage of 1 session" in said
    assert "github" in said
    assert "funes scrub" in said
    assert hub.repos[MEMORY].private
    code, said = bob.typed(monkeypatch, capsys, "push", MEMORY)
    assert code == 2
    assert "none of them from this machine" in said
    assert bob.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    fetched = hub.count("content")
    assert "the parser was dropped" in bob.typed(monkeypatch, capsys, "recall", "parser dropped", "--memory", MEMORY)[1]
    assert hub.count("content") == fetched > 0  # what bob published himself need not come back
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY)
    assert code == 2
    assert "nothing published" in said
    said = ann.typed(monkeypatch, capsys, "status")[1]
    assert "1 passage held back (" in said
    assert published(hub, tmp_path / "t") == ["the parser was dropped", "the tide tables were an hour off"]
    assert not hub.saw(secret.encode())


def test_what_would_be_made_is_said(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", f"the key is {token(1)}"))
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY, "--dry-run")
    assert (code, "There is no team/memory" in said, "would be made" in said) == (0, True, False)
    ann.store(session("two", "plain words"))
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY, "--dry-run")
    assert "1 passage of 1 session would be published" in said
    assert f"The dataset would be made, private: {hub.url}/datasets/{MEMORY}" in said
    assert json.loads(ann.funes("push", MEMORY, "--dry-run", "--json").partition("\n")[0])["missing"] is True
    assert MEMORY not in hub.repos
    assert "would be made" not in ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[1]
    ann.store(session("three", "other words"))
    assert "would be made" not in ann.typed(monkeypatch, capsys, "push", MEMORY, "--dry-run")[1]


def test_what_is_forgotten_is_named_where_it_was_published(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", "plain words"), session("two", f"the key is {token(1)}"))
    assert ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    assert MEMORY not in ann.typed(monkeypatch, capsys, "forget", "two", "--yes")[1]  # all of it was held back
    said = ann.typed(monkeypatch, capsys, "forget", "one", "--yes")[1]
    assert f"Published copies stay: {MEMORY}." in said
    page = f"{hub.url}/datasets/{MEMORY}/settings"
    assert f"{MEMORY}: 1 session; delete it at {page}, then `funes push {MEMORY}`" in said


def test_status_tells_what_was_published_to_a_memory_that_was_never_recalled_from(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", "plain words"), session("two", "more words", "and more"))
    assert ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    told = f"3 passages of 2 sessions of this machine are there (commit {hub.repos[MEMORY].head().id[:12]})"
    code, said = ann.typed(monkeypatch, capsys, "status", MEMORY)
    assert (code, told in said, "last push 20" in said) == (0, True, True)
    assert f"`funes recall --memory {MEMORY} …` fetches it" in said
    assert "a private dataset on the Hub" in said
    hub.fail("info", 503, 9)
    code, said = ann.typed(monkeypatch, capsys, "status", MEMORY)
    assert (code, told in said, "answered 503" in said, "private" in said) == (0, True, True, False)
    assert ann.typed(monkeypatch, capsys, "status", "team/other")[0] == 1


def test_a_killed_first_push_does_not_ask_twice(
    ann: Host, hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", "first words"))
    hub.fail("commit", 403)
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")
    assert code == 1
    assert "does not let this token" in said
    assert MEMORY in hub.repos
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY)
    assert (code, published(hub, tmp_path / "t")) == (0, ["first words"])


def test_a_target_where_nothing_ever_arrived_is_not_remembered(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", f"the key is {token(1)}"))
    assert ann.typed(monkeypatch, capsys, "push", "taem/memory")[0] == 2  # nobody agreed
    hub.add("mate/memory", private=True)
    hub.fail("commit", 403)
    assert ann.typed(monkeypatch, capsys, "push", "meat/memory", "--yes")[0] == 2  # all of it is held back
    ann.store(session("two", "plain words"))
    assert ann.typed(monkeypatch, capsys, "push", "mate/memory", "--yes")[0] == 1
    assert "on the Hub" not in ann.typed(monkeypatch, capsys, "status")[1]
    assert ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    hub.fail("info", 503, 9)
    ann.typed(monkeypatch, capsys, "push", MEMORY)
    said = ann.typed(monkeypatch, capsys, "status")[1]
    assert said.count("on the Hub") == 1
    assert f"memory {MEMORY} on the Hub" in said
    assert "the last push failed" in said


def test_a_branch_is_pushed_to_and_a_commit_or_tag_is_not(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", "first words"))
    commit = hub.add(MEMORY, private=True).id
    code, said = ann.typed(monkeypatch, capsys, "push", f"hf://datasets/{MEMORY}@{commit}", "--yes")
    assert (code, "is a commit, which cannot be written to" in said) == (2, True)
    assert f"`funes push {MEMORY}`" in said
    assert f"`funes push hf://datasets/{MEMORY}@BRANCH`" in said
    tagged = hub.repos[MEMORY].commits[commit]
    hub.repos[MEMORY].commits["v1"] = tagged  # as a tag is looked up, and not among the branches
    code, said = ann.typed(monkeypatch, capsys, "push", f"hf://datasets/{MEMORY}@v1", "--yes")
    assert (code, "is no branch" in said) == (1, True)
    assert f"`funes push {MEMORY}`" in said
    hub.add(MEMORY, {"a": b""}, branch="br")
    code, said = ann.typed(monkeypatch, capsys, "push", f"hf://datasets/{MEMORY}@br", "--yes")
    assert (code, "1 passage of 1 session published" in said) == (0, True)


def test_without_the_right_to_write_nothing_leaves(
    ann: Host, bob: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", "first words"))
    assert ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    bob.store(session("two", "words of bob"))
    bob.environ["HF_TOKEN"] = READER
    head = hub.repos[MEMORY].head()
    code, said = bob.typed(monkeypatch, capsys, "push", MEMORY, "--yes")
    assert code == 1
    assert "does not let this token" in said
    assert hub.repos[MEMORY].head() is head


def test_a_public_memory_is_warned_of(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", "first words"))
    hub.add(MEMORY, {"README.md": b"# Written by hand\n"})
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY)
    assert code == 2
    assert "is public: everybody can read" in said
    assert ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    assert hub.repos[MEMORY].files["README.md"] == b"# Written by hand\n"


def test_a_dataset_that_the_token_may_not_see_is_not_taken_for_a_missing_one(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ann.store(session("one", "first words"))
    hub.add(MEMORY, private=True)
    ann.environ["HF_TOKEN"] = STRANGER
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY)
    assert code == 2
    assert "your token may not see it" in said
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")
    assert code == 1
    assert hub.count("commit") == 0


def test_an_agent_is_bound_and_everything_is_published_in_one_go(
    ann: Host, hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript_of(ann, "why was the parser dropped")
    code, said = ann.typed(monkeypatch, capsys, "add", "claude", MEMORY, "--yes", "--models", "no")
    assert code == 0
    assert "1 passage of 1 session published" in said
    assert hub.repos[MEMORY].private
    assert published(hub, tmp_path / "t") == ["why was the parser dropped"]
    code, said = ann.typed(monkeypatch, capsys, "status")
    assert f"memory {MEMORY} on the Hub: read by claude; published to when a session of claude begins or ends" in said
    assert "has every session of this machine" in said
    asked = len(hub.asked)
    code, said = ann.typed(monkeypatch, capsys, "add", "claude", "local", "--yes", "--models", "no")
    assert (code, len(hub.asked)) == (0, asked)
    assert "read by claude" not in ann.typed(monkeypatch, capsys, "status")[1]

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ann.environ["HF_HUB_OFFLINE"] = "1"
    hub.settle(monkeypatch, ann.home)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = run(["add", "claude", MEMORY, "--yes", "--models", "no"])
    printed = capsys.readouterr()
    assert code == 0
    assert "is bound to team/memory all the same" in printed.err
    assert "Nothing was published yet: run `funes push team/memory`" in printed.err


def test_an_agent_is_not_bound_to_a_dataset_that_cannot_be_made(
    ann: Host, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transcript_of(ann, "why was the parser dropped")
    ann.environ["HF_TOKEN"] = READER
    before = sorted(path for path in ann.home.rglob("*") if ".claude" in str(path))
    code, said = ann.typed(monkeypatch, capsys, "add", "claude", MEMORY, "--yes", "--models", "no")
    assert code == 1
    assert "Claude Code was not changed" in said
    assert "HF_TOKEN" in said
    assert sorted(path for path in ann.home.rglob("*") if ".claude" in str(path)) == before
    assert not list(ann.root.glob("wiring*"))
    hub.add(MEMORY, private=True)
    ann.environ["HF_TOKEN"] = STRANGER  # the dataset is there, and not to be seen
    code, said = ann.typed(monkeypatch, capsys, "add", "claude", MEMORY, "--yes", "--models", "no")
    assert (code, "Claude Code was not changed" in said) == (1, True)
    assert "read by claude" not in ann.typed(monkeypatch, capsys, "status")[1]


def test_the_model_of_the_published_memory_makes_the_vectors(
    ann: Host,
    bob: Host,
    hub: LoopbackHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from models_support import EMBEDDER, tiny_embedder, written

    from funes_mcp.deepmodels import DeepModels
    from funes_mcp.memory.model import Embedding

    models = DeepModels(FunesHome(ann.root))
    spec, files = tiny_embedder(16, 1)
    Machine(bob.root, Dataset()).store(session("two", "tide tables"), model=Embedding(EMBEDDER, spec.dim))
    assert bob.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    ann.store(session("one", "streaming parser"))
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")
    assert code == 1
    assert f"`funes models pull {EMBEDDER}` brings it" in said
    models.store.pull(spec, written(files, tmp_path / "stick"))
    code, said = ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")
    assert code == 0, said
    assert "embedded with the model that is used there" in said
    assert published(hub, tmp_path / "t") == ["streaming parser", "tide tables"]
    embedder, _ = models.embedder_for(Embedding(EMBEDDER, 16))
    assert embedder is not None
    vectors = {
        name: row
        for ids, rows in ChunkTable.open(tmp_path / "t").vectors()
        for name, row in zip(ids, rows, strict=True)
    }
    rows = {row.text: row.id for part in ChunkTable.open(tmp_path / "t").stream() for row in part}
    expected = embedder.embed_passages(["streaming parser"])[0]
    assert vectors[rows["streaming parser"]].tobytes() == expected.tobytes()


# -- hooks ---------------------------------------------------------------------------------------------


def transcript_of(host: Host, *sayings: str) -> Path:
    folder = host.home / ".claude" / "projects" / "-home-ann-proj"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "type": "user" if at % 2 == 0 else "assistant",
            "uuid": f"00000000-0000-0000-0000-{at:012d}",
            "parentUuid": None,
            "sessionId": "one",
            "cwd": "/home/ann/proj",
            "timestamp": f"2026-05-01T10:00:{at:02d}.000Z",
            "message": {"role": "user" if at % 2 == 0 else "assistant", "content": saying},
        }
        for at, saying in enumerate(sayings)
    ]
    path = folder / "one.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def hook(host: Host, event: str, path: Path) -> None:
    """Have an agent's hook called, and wait until its worker is done."""
    words = [sys.executable, "-m", "funes_mcp", "hook", "claude", event, "--memory", MEMORY]
    payload = json.dumps({"transcript_path": str(path), "hook_event_name": event})
    subprocess.run(words, env=host.environ, input=payload, text=True, check=True, timeout=30)


def health(host: Host, name: str) -> tuple[str, str] | None:
    return next(((ok, bad) for known, ok, bad in hook_health(FunesHome(host.root)) if known == name), None)


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_session_that_ends_is_published_and_a_turn_is_not(
    ann: Host, hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = transcript_of(ann, "why was the parser dropped")
    publishing = f"claude SessionEnd, publishing to {MEMORY}"
    hook(ann, "SessionEnd", path)  # nobody ever agreed
    until(lambda: health(ann, publishing))
    found = health(ann, publishing)
    assert found is not None
    assert found[0] == ""
    assert "funes push team/memory" in found[1]
    assert MEMORY not in hub.repos
    assert "funes push team/memory" in ann.typed(monkeypatch, capsys, "status")[1]
    assert ann.typed(monkeypatch, capsys, "push", MEMORY, "--yes")[0] == 0
    asked = len(hub.asked)

    path = transcript_of(ann, "why was the parser dropped", "it split quoted newlines")
    hook(ann, "Stop", path)
    until(lambda: "1 session waits" in ann.typed(monkeypatch, capsys, "status")[1])
    until(lambda: not worker_runs(ann))
    assert len(hub.asked) == asked  # a turn asks nobody
    hook(ann, "SessionEnd", path)
    until(lambda: len(hub.repos[MEMORY].commits) == 3)
    until(lambda: (health(ann, publishing) or ("", ""))[0])
    assert published(hub, tmp_path / "t") == ["it split quoted newlines", "why was the parser dropped"]
    said = ann.typed(monkeypatch, capsys, "status")[1]
    assert "has every session of this machine" in said

    asked = len(hub.asked)
    hook(ann, "SessionStart", path)
    until(lambda: health(ann, f"claude SessionStart, publishing to {MEMORY}"))
    assert len(hub.asked) == asked  # nothing waits, so nobody is asked


def worker_runs(host: Host) -> bool:
    from funes_mcp.hooks import worker_waits

    return worker_waits(str(host.root)) or any((host.root / "hooks" / "waiting").glob("*.json*"))
