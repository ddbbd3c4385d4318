"""Measure a build of funes from outside: one JSON line per figure.

    python benchmarks/bench.py SESSIONS [--funes funes] [--repeat 5]

SESSIONS is a folder of transcripts (any agents', mixed). Everything happens in a throwaway home. Figures are
wall-clock on the machine at hand, so compare two builds in one run on one machine, not against a table.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread


@dataclass(frozen=True)
class Build:
    """The command under test and the throwaway home it runs in."""

    command: list[str]
    home: Path

    @property
    def environ(self) -> dict[str, str]:
        """The caller's environment without anything that names an agent's folder."""
        prefixes = ("CLAUDE", "CODEX", "HERMES", "PI_", "FUNES")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
        return {**kept, "HOME": str(self.home), "FUNES_HOME": str(self.home / ".funes")}

    def run(self, *arguments: str) -> str:
        """Run a command to its end; its standard output. Raises `CalledProcessError`."""
        done = subprocess.run(
            [*self.command, *arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout


def timed(work: Callable[[], object]) -> float:
    """Seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def report(name: str, **figures: object) -> None:
    """One JSON line."""
    print(json.dumps({"bench": name, **figures}), flush=True)


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Peak(Thread):
    """The most memory that the processes below this one hold together, where /proc tells; a look ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mb = 0.0
        self._ended = Event()

    def run(self) -> None:
        """Look until `end`."""
        while not self._ended.wait(0.1):
            self.mb = max(self.mb, _resident_mb(os.getpid()))

    def end(self) -> float:
        """Megabytes."""
        self._ended.set()
        self.join()
        return self.mb


def _resident_mb(parent: int) -> float:
    found = 0.0
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                pages = int(Path(f"/proc/{child}/statm").read_text().split()[1])
                found += pages * resource.getpagesize() / (1 << 20) + _resident_mb(child)
    return found


def bench_index(build: Build, sessions: Path) -> int:
    """The first pass over everything, twice; the number of chunks stored.

    Wall-clock from the command's start to its end, credentials being searched for. The very first pass of a home
    compiles the rules of that search; the other finds them compiled and the memory gone.
    """
    chunks = 0
    memory = build.home / ".funes" / "memory"
    for name in ("index, rules to be compiled", "index"):
        shutil.rmtree(memory, ignore_errors=True)
        chunks = _bench_first(name, build, sessions)
    return chunks


def _bench_first(name: str, build: Build, sessions: Path) -> int:
    peak = Peak()
    peak.start()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = timed(lambda: build.run("index", str(sessions), "--yes"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak_mb = peak.end()
    chunks = int(json.loads(build.run("status", "--json"))["chunks"])
    memory = build.home / ".funes" / "memory"
    parts = {p.name: folder_bytes(p) if p.is_dir() else p.stat().st_size for p in sorted(memory.iterdir())}
    report(
        name,
        chunks=chunks,
        seconds=round(seconds, 2),
        cpu_seconds=round(cpu, 2),
        chunks_per_s=round(chunks / seconds),
        peak_rss_mb=round(peak_mb),
        bytes_per_chunk=round(sum(parts.values()) / max(1, chunks)),
        bytes_per_chunk_by_part={name: round(size / max(1, chunks)) for name, size in parts.items()},
    )
    return chunks


def bench_again(build: Build, sessions: Path, repeat: int) -> None:
    """A pass that finds nothing new."""
    report("index again", seconds=[round(timed(lambda: build.run("index", str(sessions))), 2) for _ in range(repeat)])


def bench_cold(build: Build, repeat: int) -> None:
    """`funes recall` and `funes --help` from a cold shell."""
    for name, arguments in {
        "cold recall": ("recall", "why did the push fail"),
        "cold help": ("--help",),
        "cold status": ("status",),
    }.items():
        seconds = sorted(timed(partial(build.run, *arguments)) for _ in range(repeat))
        report(name, p50_s=round(statistics.median(seconds), 3), worst_s=round(seconds[-1], 3))


class Client:
    """The least an MCP client needs, over newline-delimited JSON; `arguments` are those of `funes mcp`."""

    def __init__(self, build: Build, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [*build.command, "mcp", *arguments],
            env=build.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._number = 0

    def call(self, method: str, **params: object) -> dict[str, object]:
        """Send a request and wait for its answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        while True:
            answer: dict[str, object] = json.loads(self._process.stdout.readline())
            if answer.get("id") == self._number:
                return answer

    def handshake(self) -> None:
        """`initialize` and `tools/list`."""
        info = {"name": "bench", "version": "1"}
        self.call("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        assert self._process.stdin
        self._process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        self.call("tools/list")

    def recall(self, question: str, **more: object) -> str:
        """The text of an answer; `more` are further arguments of the tool. Raises `RuntimeError` for an error."""
        result = self.call("tools/call", name="recall", arguments={"query": question, **more})["result"]
        assert isinstance(result, dict)
        text = "".join(part.get("text", "") for part in result["content"])
        if result.get("isError"):
            raise RuntimeError(text)
        return text

    def rss_mb(self) -> int:
        """Resident memory of the server, where /proc tells; else 0."""
        status = Path(f"/proc/{self._process.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)

    def close(self) -> None:
        """End the server by closing its input."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


@contextmanager
def served(funes: str, sessions: Path) -> Iterator[tuple[Client, Build]]:
    """A server on a memory of these transcripts, in a throwaway home. Ends the program when a command fails."""
    home = Path(tempfile.mkdtemp(prefix="funes-bench-"))
    try:
        build = Build(shlex.split(funes), home)
        build.run("index", str(sessions.resolve()), "--yes")
        client = Client(build)
        client.handshake()
        yield client, build
        client.close()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd} failed ({error.returncode}):\n{error.stderr}")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def bench_handshake(build: Build, repeat: int, **more: object) -> None:
    """From the start of the server to its list of tools."""
    handshakes = []
    for _ in range(repeat):
        started = time.perf_counter()
        client = Client(build)
        client.handshake()
        handshakes.append(time.perf_counter() - started)
        client.close()
    report("handshake", **more, p50_s=round(statistics.median(handshakes), 3), worst_s=round(max(handshakes), 3))


def bench_recall(build: Build, questions: Sequence[str], **more: object) -> None:
    """The first recall of a server, and recalls once it is warm."""
    client = Client(build)
    client.handshake()
    first = timed(lambda: client.recall("warm up"))
    latencies = [timed(partial(client.recall, question)) for question in questions]
    report("recall", **more, first_ms=round(1e3 * first), **quantiles(latencies), rss_mb=client.rss_mb())
    client.close()


def quantiles(seconds: Sequence[float]) -> dict[str, object]:
    """Count, median and 95th percentile, in milliseconds."""
    ordered = sorted(seconds)
    return {
        "n": len(ordered),
        "p50_ms": round(1e3 * statistics.median(ordered), 1),
        "p95_ms": round(1e3 * ordered[int(0.95 * (len(ordered) - 1))], 1),
    }


def questions_from(sessions: Path, count: int) -> list[str]:
    """Questions made of words that stand in the transcripts, the same on every run."""
    import random
    import re

    rng = random.Random(7)
    files = sorted(path for path in sessions.rglob("*.jsonl") if path.is_file())
    questions = []
    for _ in range(count):
        with rng.choice(files).open("rb") as handle:
            words = re.findall(r"[A-Za-z]{3,14}", handle.read(200_000).decode("utf-8", "replace"))
        if words:
            start = rng.randrange(len(words))
            questions.append("why did we " + " ".join(words[start : start + rng.randint(3, 9)]))
    return questions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--funes", default="funes", help="the command under test")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--questions", type=int, default=100)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="funes-bench-"))
    try:
        build = Build(shlex.split(given.funes), home)
        bench_index(build, given.sessions.resolve())
        bench_again(build, given.sessions.resolve(), given.repeat)
        bench_cold(build, given.repeat)
        bench_handshake(build, given.repeat)
        bench_recall(build, questions_from(given.sessions, given.questions))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd} failed ({error.returncode}):\n{error.stderr}")
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
