"""A memory that is published on the Hub, read from another machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import rust_memory
from hub_server import READER, LoopbackHub
from memory_support import MODEL, Transcript, store, transcript
from rust_memory import rust_rows

from funes_mcp import remotes, render
from funes_mcp.errors import FunesError
from funes_mcp.home import FunesHome
from funes_mcp.hub.datasets import DatasetRepo, RepoFile, RepoHead
from funes_mcp.hub.errors import HubDeniedError, HubRepoMissingError, HubUnreachableError
from funes_mcp.memory import foreign_index, remote
from funes_mcp.memory.chunk import chunks_of
from funes_mcp.memory.label import HubName
from funes_mcp.memory.remote import Mirror, Step
from funes_mcp.memory.table import ChunkTable
from funes_mcp.models import GetRequest, RecallAnswer, RecallRequest
from funes_mcp.service import IndexService

NAME = "acme/x"
BOAT_HOUSE = "We keep the lanterns in the boat house"


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub() as running:
        yield running


class MachineA:
    """Somebody's memory, and a way to plant it on the Hub as it is now."""

    def __init__(self, folder: Path, hub: LoopbackHub) -> None:
        self.memory = folder / "memory"
        self.hub = hub
        self.file = transcript("aaaa-1")

    def tell(self, *texts: str, file: Transcript | None = None) -> None:
        file = file or self.file
        for text in texts:
            file.say(f"{file.info.session_id}-{len(file.turns)}", text)
        store(self.memory, file)
        self.publish()

    def publish(self) -> None:
        here = {path.relative_to(self.memory).as_posix() for path in self.memory.rglob("*") if path.is_file()}
        there = self.hub.repos[NAME].files if NAME in self.hub.repos else {}
        gone = tuple(path for path in there if path.startswith("chunks.lance/") and path not in here)
        self.hub.add(NAME, delete=gone) if gone else None
        self.hub.add_folder(NAME, self.memory / "chunks.lance", "chunks.lance", private=True)


@pytest.fixture
def ours(tmp_path: Path, hub: LoopbackHub) -> MachineA:
    machine = MachineA(tmp_path / "a", hub)
    machine.tell(BOAT_HOUSE, "and the oars under the pier")
    return machine


def funes(hub: LoopbackHub, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "funes_mcp", *arguments],
        env=hub.environ(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def fetched(hub: LoopbackHub) -> list[str]:
    """The files of which content was sent, in order: their paths, or the address of a large one's content."""
    return [
        one.path.split("/resolve/", 1)[-1].split("/", 1)[-1]
        for one in hub.asked
        if one.method == "GET" and one.stage in ("resolve", "content")
    ]


def test_a_command_line_fetches_what_is_new_and_nothing_twice(hub: LoopbackHub, ours: MachineA, tmp_path: Path) -> None:
    home = tmp_path / "b"
    home.mkdir()
    done = funes(hub, home, "recall", "where are the lanterns", "--memory", NAME)
    assert BOAT_HOUSE in done.stdout
    assert f"  → get aaaa-1 aaaa-1-0 --memory {NAME}\n" in done.stdout
    assert f"fetching {NAME}: 1 file," in done.stderr
    assert f"indexing {NAME}: 2 passages" in done.stderr
    first = fetched(hub)
    assert len(first) == len(set(first)) == 2  # the manifest and the data

    hub.asked.clear()
    opened = funes(hub, home, "get", "aaaa-1", "aaaa-1-1", "--memory", f"hf://datasets/{NAME}", "--window", "0")
    assert "and the oars under the pier" in opened.stdout
    assert fetched(hub) == []

    ours.tell("The third lantern is broken", file=transcript("bbbb-2"))
    hub.asked.clear()
    again = funes(hub, home, "recall", "broken lantern", "--memory", NAME, "--json")
    answer = json.loads(again.stdout)
    assert answer["memory"] == NAME
    assert answer["hits"][0]["chunk"]["text"] == "The third lantern is broken"
    second = fetched(hub)
    assert len(second) == 2
    assert not set(first) & set(second)
    assert f"indexing {NAME}: 1 passages" in again.stderr

    links = [path for path in (home / "funes" / "remotes").rglob("*") if path.is_symlink()]
    assert len(links) == 2 * 2 + 1  # the data in both tables, and one manifest
    assert all(path.resolve().is_relative_to(home / "hf" / "hub") for path in links)

    told = funes(hub, home, "status", "--memory", NAME)
    commit = hub.repos[NAME].head().id
    assert "3 passages in 2 sessions" in told.stdout
    assert f"commit {commit[:12]}, fetched 20" in told.stdout
    assert "a private dataset on the Hub" in told.stdout


def test_two_processes_that_open_a_memory_at_once_fetch_each_file_once(
    hub: LoopbackHub, ours: MachineA, tmp_path: Path
) -> None:
    home = tmp_path / "b"
    home.mkdir()
    command = [sys.executable, "-m", "funes_mcp", "recall", "lanterns", "--memory", NAME]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    both = [subprocess.Popen(command, env=hub.environ(home), encoding="utf-8", **pipes) for _ in range(2)]
    for process in both:
        out, told = process.communicate(timeout=120)
        assert BOAT_HOUSE in out, told
    got = fetched(hub)
    assert len(got) == len(set(got)) == 2


# --- in this process ------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "b"
    folder.mkdir()
    return folder


@pytest.fixture
def service(hub: LoopbackHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> IndexService:
    hub.settle(monkeypatch, home)
    monkeypatch.setattr(remote, "index_apart", index_here)
    return open_again(home)


def index_here(
    table: Path, folder: Path, rows: int, *, compare: bool, told: Callable[[int, int], None] | None
) -> foreign_index.Indexed:
    """What the process of its own does, in this one, to save the time that it takes to start."""

    def tell(message: dict, **_: object) -> None:
        if told is not None and "at" in message:
            told(*message["at"])

    return foreign_index._index(table, folder, compare, tell)


def open_again(home: Path) -> IndexService:
    environ = {"HOME": str(home)}
    return IndexService(FunesHome(home / "funes"), environ, rerank="off")


def ask(service: IndexService, query: str, memory: str = NAME, *, bound: bool = False) -> RecallAnswer:
    return service.recall(RecallRequest(query, memory=memory, bound=bound, min_relevance=0.0))


def texts(answer: RecallAnswer) -> list[str]:
    return [hit.chunk.text for hit in answer.hits]


def plant_local(home: Path) -> None:
    file = transcript("llll-1")
    file.say("llll-1-0", "Our own lanterns are in the attic")
    store(home / "funes" / "memory", file)


def test_a_bound_memory_that_cannot_be_had_is_stood_in_for_and_a_named_one_is_not(
    hub: LoopbackHub, service: IndexService, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_local(home)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    answer = ask(service, "lanterns", bound=True)
    assert texts(answer) == ["Our own lanterns are in the attic"]
    assert answer.memory == "local"
    assert "No copy of it is here: these are from the local memory." in answer.notes[0]
    opened = service.get(GetRequest("llll-1", "llll-1-0", memory=NAME, bound=True))
    assert (opened.found, opened.memory) == (True, "local")
    with pytest.raises(HubUnreachableError):
        ask(service, "lanterns")
    with pytest.raises(HubUnreachableError):
        service.get(GetRequest("llll-1", "llll-1-0", memory=NAME))


def test_the_model_of_a_copy_is_listed(service: IndexService, ours: MachineA) -> None:
    assert service.models.copies() == []
    ask(service, "lanterns")
    ((name, stamp),) = service.models.copies()
    assert "acme" in name
    assert stamp == MODEL


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize(
    ("status", "error"), [(401, HubDeniedError), (403, HubDeniedError), (404, HubRepoMissingError)]
)
def test_a_refusal_is_an_error_without_a_copy_and_a_note_with_one(
    hub: LoopbackHub, service: IndexService, ours: MachineA, home: Path, status: int, error: type, bound: bool
) -> None:
    plant_local(home)
    headers = {404: {"X-Error-Code": "RepoNotFound"}}.get(status, {})
    hub.fail("info", status, 1, headers=headers)
    with pytest.raises(error):
        ask(service, "lanterns", bound=bound)
    if status != 404 or bound:
        return
    assert BOAT_HOUSE in texts(ask(open_again(home), "lanterns"))
    hub.fail("info", status, 1, headers=headers)
    answer = ask(open_again(home), "lanterns", bound=bound)
    assert BOAT_HOUSE in texts(answer)
    assert f"This is {NAME} as of 20" in answer.notes[0]
    assert answer.memory == NAME


def test_without_the_hub_the_copy_answers_and_says_so(
    hub: LoopbackHub, service: IndexService, ours: MachineA, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(service, "lanterns")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for bound in (True, False):
        away = ask(open_again(home), "lanterns", bound=bound)
        assert BOAT_HOUSE in texts(away)
        assert away.notes[0].startswith(f"HF_HUB_OFFLINE is set, so {NAME} is not asked for")
        assert f"This is {NAME} as of 20" in away.notes[0]
    report = open_again(home).status(NAME)
    assert report.chunks == 2
    assert report.notes[0].startswith("HF_HUB_OFFLINE is set")


def test_the_hub_is_asked_again_after_a_while_and_not_before(
    hub: LoopbackHub, service: IndexService, ours: MachineA
) -> None:
    now = 1_000.0
    service.remotes._clock = lambda: now
    assert len(texts(ask(service, "lanterns"))) == 2
    ours.tell("A lantern more")
    asked = len(hub.asked)
    assert len(texts(ask(service, "lanterns"))) == 2
    assert len(hub.asked) == asked
    now += 31
    assert "A lantern more" in texts(ask(service, "lanterns"))


def test_rows_that_were_taken_out_or_changed_are_so_in_the_copy(
    hub: LoopbackHub, service: IndexService, ours: MachineA, home: Path
) -> None:
    ask(service, "lanterns")
    table = ChunkTable.open(ours.memory)
    first, second = sorted((row for part in table.stream() for row in part), key=lambda row: row.seq)
    table.delete([first.id])
    del ours.file.turns[1]
    ours.file.say(second.turn_uuid, "and the [REDACTED] under the pier")
    table.upsert(chunks_of(ours.file.turns[-1], ours.file.info, "/t"), [None])
    ours.publish()
    found = texts(ask(open_again(home), "where are the oars and the lanterns under the pier"))
    assert found == ["and the [REDACTED] under the pier"]
    words = b"".join(p.read_bytes() for p in (home / "funes" / "remotes").rglob("*.term"))
    assert b"oars" not in words


def test_a_memory_that_is_emptied_is_gone_here_too(
    hub: LoopbackHub, service: IndexService, ours: MachineA, home: Path
) -> None:
    ask(service, "lanterns")
    hub.add(NAME, delete=tuple(path for path in hub.repos[NAME].files if path.startswith("chunks.lance/")))
    with pytest.raises(FunesError, match="holds no memory"):
        ask(open_again(home), "lanterns")
    assert not list((home / "funes" / "remotes").rglob("*.seg"))


def test_a_mirror_that_was_deleted_by_hand_is_made_again(
    hub: LoopbackHub, service: IndexService, ours: MachineA, home: Path
) -> None:
    import shutil

    ask(service, "lanterns")
    told = [finding.message for finding in service.doctor().findings if finding.about == "other memories"]
    assert len(told) == 1
    assert told[0].startswith(f"copies of 1 are in {home / 'funes' / 'remotes'}: acme--x-")
    shutil.rmtree(home / "funes" / "remotes")
    assert len(texts(ask(service, "lanterns"))) == 2
    shutil.rmtree(home / "hf")
    ours.tell("A lantern more")
    assert "A lantern more" in texts(ask(open_again(home), "lanterns"))


@pytest.mark.parametrize("name", ["lexical/version", "lexical/*.term", "dense/*.seg"])
def test_a_mirror_whose_index_is_damaged_is_indexed_again(
    hub: LoopbackHub, ours: MachineA, home: Path, name: str
) -> None:
    assert funes(hub, home, "recall", "lanterns", "--memory", f"hf://{NAME}").returncode == 0
    (path,) = home.rglob(f"remotes/*/{name}")
    path.write_bytes(b"\xde\xad" * 50)
    done = funes(hub, home, "recall", "lanterns", "--memory", f"hf://{NAME}")
    assert (done.returncode, BOAT_HOUSE in done.stdout) == (0, True)


def test_a_fetch_that_breaks_off_goes_on_where_it_was(
    hub: LoopbackHub, service: IndexService, ours: MachineA, home: Path
) -> None:
    hub.fail("content", "cut", 20, after=100)
    with pytest.raises(HubUnreachableError):
        ask(service, "lanterns")
    hub.calm()
    assert BOAT_HOUSE in texts(ask(open_again(home), "lanterns"))


def test_a_memory_of_another_program_is_read_with_its_words(
    hub: LoopbackHub, service: IndexService, tmp_path: Path
) -> None:
    rows = rust_rows(60)
    rust_memory.plant(hub, "acme/rust", tmp_path / "built", rows)
    answer = ask(service, rows[7].text, "acme/rust")
    assert rows[7].text in texts(answer)
    assert answer.notes == (
        "this memory's vectors are BAAI/bge-small-en-v1.5's, which is not here: words alone decide "
        "(`funes models pull BAAI/bge-small-en-v1.5`)",
    )
    opened = service.get(GetRequest(rows[7].session, rows[7].turn, memory="acme/rust"))
    assert opened.found
    assert "turn" in service.get(GetRequest(rows[7].session, "0", memory="acme/rust")).notes[-1]
    report = service.status("acme/rust")
    assert (report.chunks, report.embedded, report.embedder) == (60, 60, "BAAI/bge-small-en-v1.5")
    assert not [request for request in hub.asked if "_indices" in request.path]


def test_a_folder_that_was_not_made_here_is_read_the_same_way(
    hub: LoopbackHub, service: IndexService, ours: MachineA, tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(ours.memory / "chunks.lance", copy / "chunks.lance")
    before = sorted((path, path.stat().st_mtime_ns) for path in copy.rglob("*"))
    answer = ask(service, "lanterns", str(copy))
    assert (BOAT_HOUSE in texts(answer), answer.memory) == (True, str(copy))
    assert sorted((path, path.stat().st_mtime_ns) for path in copy.rglob("*")) == before
    assert "not made here" in render.render_status(service.status(str(copy)))
    assert hub.asked == []
    made_here = ask(service, "lanterns", str(ours.memory))
    assert BOAT_HOUSE in texts(made_here)


def test_an_older_one_says_that_it_lacks_what_is_asked_for(
    hub: LoopbackHub, service: IndexService, tmp_path: Path
) -> None:
    rust_memory.plant(hub, "acme/old", tmp_path / "built", fragments=1, indexes=False, without=("repo", "harness"))
    answer = service.recall(RecallRequest("anything", harness="claude", memory="acme/old"))
    assert answer.hits == ()
    assert "acme/old does not say the harness of its passages (it has no such column)" in answer.notes
    report = service.status("acme/old")
    assert report.published is not None
    assert {"repo", "harness"} <= set(report.published.lacking)
    assert "columns that it has not: harness, repo, message_id" in render.render_status(report)


def test_fetching_2000_passages_is_told_and_every_file_comes_once(
    hub: LoopbackHub, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.settle(monkeypatch, home, token=READER)
    machine = MachineA(tmp_path / "a", hub)
    for number in range(5):
        file = transcript(f"cccc-{number}")
        for turn in range(400):
            file.say(f"cccc-{number}-{turn}", f"passage {number * 400 + turn} speaks of nothing")
        store(machine.memory, file)
    machine.publish()
    steps: list[Step] = []
    mirror = Mirror(home / "funes", HubName(NAME))
    mirrored = mirror.fetch(steps.append)
    mirror.index(steps.append)
    assert mirrored.commit == hub.repos[NAME].head().id
    got = fetched(hub)
    assert len(got) == len(set(got))
    files = [step for step in steps if step.kind == "files"]
    assert (files[0].done, files[-1].done) == (0, files[0].total)
    assert files[-1].bytes_done == files[-1].bytes_total > 0
    passages = [step for step in steps if step.kind == "passages"]
    assert [(step.done, step.total) for step in (passages[0], passages[-1])] == [(0, 2000), (2000, 2000)]
    assert mirror.reader().chunks == 2000
    assert mirror.state is not None
    assert mirror.state.with_indexes is False
    hub.asked.clear()
    mirror.fetch(indexes=True)
    assert fetched(hub) == []


# --- the server -----------------------------------------------------------------------------------------


def test_a_server_bound_to_a_published_memory_answers_from_it(hub: LoopbackHub, ours: MachineA, home: Path) -> None:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    plant_local(home)
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "funes_mcp", "mcp", NAME], env=hub.environ(home)
    )

    async def talk() -> list[tuple[bool, str]]:
        async with Client(stdio_client(command)) as client:
            answers = []
            for tool, arguments in (
                ("recall", {"query": "where are the lanterns"}),
                ("get", {"session_id": "aaaa-1", "turn_uuid": "aaaa-1-1"}),
                ("recall", {"query": "where are the lanterns", "memory": "local"}),
                ("recall", {"query": "where are the lanterns", "memory": "acme/none"}),
                ("recall", {"query": "where are the lanterns", "memory": "none"}),
                ("status", {}),
            ):
                result = await client.call_tool(tool, arguments)
                answers.append((bool(result.is_error), result.content[0].text))
            return answers

    found, opened, local, missing, nothing, status = asyncio.run(talk())
    assert f"  → get aaaa-1 aaaa-1-0 --memory {NAME}\n" in found[1]
    assert "and the oars under the pier" in opened[1]
    assert "  → get llll-1 llll-1-0 --memory local\n" in local[1]
    assert missing[0]
    assert "There is no acme/none at" in missing[1]
    assert not nothing[0]  # "none" is how some clients say that they name nothing
    assert f"memory {NAME}: " in status[1]


class Gate:
    """A repository whose files come once the gate is open."""

    def __init__(self, name: HubName) -> None:
        self.repo = DatasetRepo(name.repo, name.revision)
        self.open = threading.Event()
        self.reached = threading.Event()

    def head(self, patience: float = 10.0) -> RepoHead:
        return self.repo.head(patience)

    def files(self, commit: str, under: str) -> list[RepoFile]:
        return self.repo.files(commit, under)

    def fetch(self, commit: str, file: RepoFile, told: Callable[[int, int], None] | None = None) -> Path:
        if not file.path.endswith(".manifest"):
            self.reached.set()
            assert self.open.wait(120)
        return self.repo.fetch(commit, file, told)


def test_a_server_answers_from_its_copy_while_a_new_one_is_on_its_way(
    hub: LoopbackHub, service: IndexService, ours: MachineA, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    gate = Gate(HubName(NAME))
    mine = remotes.Remotes(home / "funes", lambda name: gate, lambda: now)
    mine.in_background = True
    service.__dict__["remotes"] = mine
    monkeypatch.setattr(remotes, "FIRST_WAIT_S", 0.01)

    def begun() -> None:
        gate.open.clear()
        gate.reached.clear()
        mine.start(HubName(NAME))
        assert gate.reached.wait(120)

    def settled() -> None:
        gate.open.set()
        thread = mine._views[HubName(NAME)].thread
        if thread is not None:
            thread.join(120)

    begun()
    with pytest.raises(remotes.FetchingError, match="is being fetched for the first time: 0 of 1 files"):
        ask(service, "lanterns")
    settled()
    answer = ask(service, "lanterns")
    assert (len(answer.hits), answer.notes[:-1]) == (2, ())  # the last one is on the model
    ours.tell("A lantern more")
    now += 31
    begun()
    answer = ask(service, "lanterns")
    assert len(answer.hits) == 2
    assert answer.notes[0].startswith("A newer version is on its way (0 of 1 files")
    assert f"This is {NAME} as of 20" in answer.notes[0]
    settled()
    answer = ask(service, "lanterns")
    assert "A lantern more" in texts(answer)
    assert answer.notes[:-1] == ()


def test_a_server_does_not_wait_again_for_a_hub_that_did_not_answer(
    service: IndexService, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(Gate):
        asked = 0

        def head(self, patience: float = 10.0) -> RepoHead:
            self.asked += 1
            if self.asked > 1:
                assert self.open.wait(120)
            raise HubUnreachableError("It did not answer.")

    plant_local(home)
    now = 1_000.0
    gate = Silent(HubName(NAME))
    mine = remotes.Remotes(home / "funes", lambda name: gate, lambda: now)
    mine.in_background = True
    service.__dict__["remotes"] = mine
    monkeypatch.setattr(remotes, "LATER_WAIT_S", 0.01)
    assert ask(service, "lanterns", bound=True).memory == "local"
    now += 31
    assert ask(service, "lanterns", bound=True).memory == "local"  # with the gate closed
    with pytest.raises(HubUnreachableError):
        ask(service, "lanterns")
    gate.open.set()


def test_a_local_recall_loads_nothing_of_the_hub(home: Path) -> None:
    plant_local(home)
    program = """if True:
        import os, sys
        from pathlib import Path
        from funes_mcp.home import FunesHome
        from funes_mcp.models import RecallRequest
        from funes_mcp.service import IndexService
        home = Path(sys.argv[1])
        service = IndexService(FunesHome(home / "funes"), {"HOME": str(home)}, rerank="off")
        assert service.recall(RecallRequest("lanterns", min_relevance=0.0)).hits
        heavy = ("huggingface_hub", "lancedb", "funes_mcp.remotes", "funes_mcp.hub.datasets")
        print([name for name in heavy if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", program, str(home)], capture_output=True, encoding="utf-8")
    assert done.stdout == "[]\n", done.stderr
