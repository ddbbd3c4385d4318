"""`funes push` as processes against a Hub: killed wherever it stands, overtaken, refused and cut off."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import LoopbackHub
from memory_support import MODEL, Transcript, embed, put, transcript

from funes_mcp.memory.writer import MemoryWriter

NAME = "acme/memory"


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub(page=100) as hub:
        yield hub


class Machine:
    """A machine with a home of its own, whose `funes push` is a process."""

    def __init__(self, hub: LoopbackHub, home: Path, with_rules: Callable[[Path], None]) -> None:
        self.environ = hub.environ(home)
        self.memory = home / "funes" / "memory"
        with_rules(home / "funes")

    def store(self, *files: Transcript) -> None:
        with MemoryWriter.open(self.memory, MODEL) as writer:
            for file in files:
                put(writer, file)
            writer.commit(embed)

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "funes_mcp", "push", NAME, "--yes", *more]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def push(self) -> tuple[int, str]:
        process = self.start()
        out, err = process.communicate(timeout=100)
        return process.returncode, out + err


def session(name: str, turns: int = 40) -> Transcript:
    file = transcript(name)
    for i in range(turns):
        file.say(f"{name}-{i}", f"Turn {i} of {name}: the tide table was an hour off, so the offsets are in UTC. " * 4)
    return file


def rows(hub: LoopbackHub, folder: Path) -> list[str]:
    """The ids that whoever reads the published memory finds now; none when there is no table."""
    import lancedb

    if NAME not in hub.repos or not any(path.startswith("chunks.lance/") for path in hub.repos[NAME].files):
        return []
    table = lancedb.connect(str(hub.written(NAME, folder))).open_table("chunks")
    return [str(id) for id in table.to_arrow()["id"].to_pylist()]


def test_a_push_that_is_killed_is_completed_by_a_later_one(
    hub: LoopbackHub, tmp_path: Path, with_rules: Callable[[Path], None]
) -> None:
    ann = Machine(hub, tmp_path / "ann", with_rules)
    ann.store(session("one"), session("two"))
    for stage in ("upload", "commit", "landed"):
        hub.fail(stage, "stall", after=5_000 if stage == "upload" else 0)
        process = ann.start()
        assert hub.stalled(stage), process.communicate()
        process.kill()
        process.communicate()
        hub.calm()
        found = rows(hub, tmp_path / stage)
        assert len(found) == (80 if stage == "landed" else 0), stage
    assert ann.push() == (0, f"{NAME}: nothing to publish; it has everything that may go.\n")
    assert len(set(found)) == 80
    assert [commit.message for commit in hub.repos[NAME].history()] == [
        "Add 80 passages of 2 sessions",
        "initial commit",
    ]
    assert not list((tmp_path / "ann" / "funes" / "remotes").rglob("stage"))


def test_two_pushes_at_once_both_arrive(hub: LoopbackHub, tmp_path: Path, with_rules: Callable[[Path], None]) -> None:
    hub.add(NAME, {}, private=True)
    machines = [Machine(hub, tmp_path / name, with_rules) for name in ("ann", "bob")]
    for machine, name in zip(machines, ("one", "two"), strict=True):
        machine.store(session(name))
    together, count, arrived = threading.Barrier(2), itertools.count(), hub.arrived

    def both(repo: str) -> None:
        if next(count) < 2:  # the third is the second try of the one who was slower
            together.wait(300)
        arrived(repo)

    hub.arrived = both  # type: ignore[method-assign]
    processes = [machine.start() for machine in machines]
    said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sorted(one.status for one in hub.asked if one.stage == "commit") == [200, 200, 412]
    found = rows(hub, tmp_path / "end")
    assert (len(found), len(set(found))) == (80, 80)
