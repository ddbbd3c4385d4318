"""One writer at a time; a wake-up is never lost; a killed writer holds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from funes_mcp.errors import MemoryBusyError
from funes_mcp.memory.lock import WriterLock, is_held, run_locked

HOLDER = """
import sys, time
from pathlib import Path
from funes_mcp.memory.lock import WriterLock, is_held
lock = WriterLock(Path(sys.argv[1]))
assert lock.acquire()
print("held", flush=True)
sys.stdin.readline()
"""

COUNTER = """
import sys
from pathlib import Path
from funes_mcp.memory.lock import run_locked, is_held
folder = Path(sys.argv[1])
def work():
    for path in sorted(folder.glob("todo-*")):
        path.unlink()
        with open(folder / "done", "a") as file:
            file.write(path.name + "\\n")
for number in range(int(sys.argv[3])):
    (folder / f"todo-{sys.argv[2]}-{number}").touch()
    run_locked(folder, work)
"""


def test_the_lock_is_exclusive_and_private(tmp_path: Path) -> None:
    first, second = WriterLock(tmp_path / "m"), WriterLock(tmp_path / "m")
    assert first.acquire()
    assert not second.acquire()
    with pytest.raises(MemoryBusyError), second:
        pass
    first.release()
    with second:
        assert second.held
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "m" / "writer.lock").stat().st_mode & 0o777 == 0o600


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    lock = WriterLock(tmp_path)
    assert not lock.acquire()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lock.acquire(5.0)
    holder.stdout.close()
    holder.stdin.close()


def test_whoever_finds_it_taken_leaves_word_and_the_holder_goes_once_more(tmp_path: Path) -> None:
    rounds: list[int] = []

    def work() -> str:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            assert run_locked(tmp_path, lambda: "not reached") is None
        return "done"

    assert run_locked(tmp_path, work) == "done"
    assert rounds == [0, 1]
    assert not WriterLock(tmp_path).dirty


def test_a_failure_lets_go(tmp_path: Path) -> None:
    def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_locked(tmp_path, work)
    assert WriterLock(tmp_path).acquire()


def test_processes_that_race_lose_no_work(tmp_path: Path) -> None:
    racers = [subprocess.Popen([sys.executable, "-c", COUNTER, str(tmp_path), str(n), "40"]) for n in range(3)]
    assert [racer.wait(60) for racer in racers] == [0, 0, 0]
    assert not list(tmp_path.glob("todo-*"))
    assert len((tmp_path / "done").read_text().splitlines()) == 120


def test_one_can_see_that_somebody_writes(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    assert list(tmp_path.iterdir()) == []
    lock = WriterLock(tmp_path)
    assert lock.acquire()
    assert is_held(tmp_path)
    lock.release()
    assert not is_held(tmp_path)
