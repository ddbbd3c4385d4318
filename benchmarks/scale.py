"""Measure everything that there is a budget for, as a memory grows: one JSON line for each size and figure.

    python benchmarks/scale.py SESSIONS [--sizes 10000,100000,300000] [--funes funes] [--keep FOLDER]

SESSIONS is a folder of transcripts. They are indexed as usual; then memories of the sizes asked for are made of their
passages, in their sessions and order, through the writer that `funes index` uses. From the second round on a sixth of
the words of every passage is replaced by words from anywhere else, so that no two passages are the same and the
vocabulary grows as it does in life. Measured from outside, over MCP, the command line and the hook. `--keep` leaves
the memories in a folder and takes them from there the next time.

The cross-encoder is one of the usual one's shape with random weights (see `crossencoder.py`), or with
`--cross-encoder DIR` the real one from a folder. It needs the package `onnx`, which the extra `dev` brings.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import crossencoder
from bench import (
    Build,
    Client,
    bench_handshake,
    bench_index,
    bench_recall,
    folder_bytes,
    quantiles,
    questions_from,
    report,
    timed,
)

if TYPE_CHECKING:
    from funes_mcp.memory.model import Chunk
    from funes_mcp.memory.writer import MemoryWriter
    from funes_mcp.traces.model import SessionInfo, Source, Turn

#: Of so many words one is replaced in every round but the first.
REPLACED = 6
COMMIT_EVERY = 8_000


def passages(build: Build, sessions: Path) -> list[list[Chunk]]:
    """The passages of every session, in order."""
    from funes_mcp.memory.table import ChunkTable

    if not (build.home / ".funes" / "memory").exists():
        bench_index(build, sessions)
    found: dict[str, list[Chunk]] = {}
    for part in ChunkTable.open(build.home / ".funes" / "memory").stream():
        for row in part:
            found.setdefault(row.session_id, []).append(row)
    return [sorted(found[name], key=lambda r: (r.seq, r.block_idx, r.split_idx)) for name in sorted(found)]


def rounds(base: list[list[Chunk]], size: int) -> Iterator[list[Chunk]]:
    """Sessions with `size` passages in all: the real ones, then varied ones."""
    rng = random.Random(11)
    words = [word for rows in base for row in rng.sample(rows, min(len(rows), 20)) for word in row.text.split(" ")]
    left, number = size, 0
    while left > 0:
        for rows in base:
            taken = rows[:left]
            left -= len(taken)
            name = str(uuid.UUID(int=rng.getrandbits(128)))
            yield [varied(row, name, number, rng, words) for row in taken]
            if left <= 0:
                return
        number += 1


def varied(row: Chunk, session: str, number: int, rng: random.Random, words: list[str]) -> Chunk:
    """A passage for another session, in the words of a later round."""
    text = row.text
    if number:
        parts = text.split(" ")
        for _ in range(max(1, len(parts) // REPLACED)):
            parts[rng.randrange(len(parts))] = rng.choice(words)
        text = " ".join(parts)[:1200].strip() or "nothing"
    return row._replace(text=text, session_id=session, turn_uuid=str(uuid.UUID(int=rng.getrandbits(128))))


def as_turn(row: Chunk, seq: int, parent: str | None) -> tuple[Turn, SessionInfo]:
    from funes_mcp.traces.model import Block, SessionInfo, Turn

    info = SessionInfo(row.session_id, row.harness, cwd=row.cwd, repo=row.repo, started=row.ts or None)
    kind = row.block_type if row.block_type in ("text", "thinking") else "text"
    block = Block(kind, row.text, 0)
    role: Literal["user", "assistant"] = "user" if row.role == "user" else "assistant"
    return Turn(row.session_id, row.turn_uuid, parent, seq, row.ts, role, (block,), row.turn_uuid), info


def source_at(path: str, number: int) -> Source:
    from funes_mcp.traces.model import Source

    return Source("claude_code", Path("/generated"), Path(path), number + 1, number, number, 1)


def put(writer: MemoryWriter, rows: list[Chunk], number: int) -> None:
    """One session."""
    from funes_mcp.memory.chunk import chunks_of
    from funes_mcp.traces.model import Cursor, Tally

    source = source_at(f"/generated/{rows[0].session_id}.jsonl", number)
    writer.begin(source, whole=True)
    parent = None
    for seq, row in enumerate(rows):
        turn, info = as_turn(row, seq, parent)
        if parent is None:
            writer.put_session(info)
        writer.put_turn(turn, chunks_of(turn, info, str(source.path)))
        parent = turn.turn_uuid
    writer.finish(source, Cursor(len(rows), "x"), Tally(lines=len(rows)))


def fill(memory: Path, sessions: Iterator[list[Chunk]]) -> float:
    """Make a memory; the seconds that it took, without the generating."""
    from funes_mcp.inference.static import StaticEmbedder
    from funes_mcp.memory.model import Embedding
    from funes_mcp.memory.writer import MemoryWriter

    embedder = StaticEmbedder()
    spent = 0.0
    memory.mkdir(parents=True)
    with MemoryWriter.open(memory, Embedding(embedder.name, embedder.dim)) as writer:
        for number, rows in enumerate(sessions):
            started = time.perf_counter()
            put(writer, rows, number)
            if writer.waiting >= COMMIT_EVERY:
                writer.commit(embedder.embed_passages)
            spent += time.perf_counter() - started
        spent += timed(lambda: writer.commit(embedder.embed_passages))
        spent += timed(writer.maintain)
    return spent


def one_turn(memory: Path, rows: list[Chunk]) -> float:
    """Seconds for a session of one new turn, from opening the memory to closing it."""
    from funes_mcp.inference.static import StaticEmbedder
    from funes_mcp.memory.model import Embedding
    from funes_mcp.memory.writer import MemoryWriter

    embedder = StaticEmbedder()
    embedder.embed_query("warm up")

    def work() -> None:
        with MemoryWriter.open(memory, Embedding(embedder.name, embedder.dim)) as writer:
            put(writer, rows, int(time.time()))
            writer.commit(embedder.embed_passages)
            writer.maintain()

    return timed(work)


def hook(build: Build, path: Path) -> None:
    """What an agent does at the end of a turn, the transcript at `path`."""
    payload = json.dumps({"hook_event_name": "Stop", "transcript_path": str(path), "cwd": str(path.parent)})
    command = [*build.command, "hook", "claude", "Stop"]
    subprocess.run(command, env=build.environ, input=payload.encode(), capture_output=True, check=True)


def bench_hook(build: Build, size: int) -> None:
    """How long a hook keeps its agent waiting; and from there until a recall finds the turn."""
    path = build.home / ".claude" / "projects" / "-bench" / f"{uuid.uuid4()}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    client = Client(build)
    client.handshake()
    client.recall("warm up")
    found, latencies = [], []
    for number in range(8):
        needle = f"needle{uuid.uuid4().hex[:10]}"
        line = {
            "type": "user",
            "uuid": str(uuid.uuid4()),
            "sessionId": path.stem,
            "timestamp": f"2026-01-01T00:00:{number:02d}.000Z",
            "cwd": "/bench",
            "message": {"role": "user", "content": f"We call it {needle} from now on."},
        }
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        started = time.perf_counter()
        latencies.append(timed(lambda: hook(build, path)))
        while needle not in client.recall(needle) and time.perf_counter() - started < 60:
            time.sleep(0.02)
        found.append(time.perf_counter() - started)
    client.close()
    worst = {"worst_ms": round(1e3 * max(latencies))}
    report("hook", chunks=size, **quantiles(latencies), **worst)
    report("from a hook to a recall", chunks=size, p50_s=round(sorted(found)[4], 2), worst_s=round(max(found), 2))


def bench_cross_encoder(build: Build, size: int, questions: list[str], folder: Path, name: str) -> None:
    """Recalls whose first hits are ordered by a cross-encoder."""
    build.run("models", "pull", "--from", str(folder), name)
    client = Client(build, "--rerank", name)
    client.handshake()
    while "being loaded" in client.recall("warm up"):
        time.sleep(0.2)
    latencies = [timed(lambda question=question: client.recall(question)) for question in questions]
    report("recall, cross-encoder", chunks=size, **quantiles(latencies), rss_mb=client.rss_mb())
    client.close()


def measure(build: Build, size: int, base: list[list[Chunk]], made_in: float | None) -> None:
    memory = build.home / ".funes" / "memory"
    parts = {p.name: folder_bytes(p) if p.is_dir() else p.stat().st_size for p in sorted(memory.iterdir())}
    figures: dict[str, object] = {} if made_in is None else {"chunks_per_s": round(size / made_in)}
    report(
        "memory",
        chunks=size,
        **figures,
        bytes_per_chunk=round(sum(parts.values()) / size),
        bytes_per_chunk_by_part={name: round(n / size) for name, n in parts.items() if n > size},
    )
    cold = sorted(timed(lambda: build.run("recall", "why did the push fail")) for _ in range(5))
    report("cold recall", chunks=size, p50_s=round(cold[2], 3), worst_s=round(cold[-1], 3))
    turns = []
    for number in range(5):
        row = base[0][0]._replace(session_id=str(uuid.uuid4()), turn_uuid=str(uuid.uuid4()), text=f"turn {number}")
        turns.append(one_turn(memory, [row]))
    report("one turn", chunks=size, p50_s=round(sorted(turns)[2], 3), worst_s=round(max(turns), 3))


def main() -> None:
    from funes_mcp.inference.known import RERANKER

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--sizes", default="10000,100000,300000")
    parser.add_argument("--funes", default=f"{sys.executable} -m funes_mcp", help="the command under test")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--cross-encoder", type=Path, metavar="DIR", help="the usual cross-encoder's files")
    parser.add_argument("--keep", type=Path, help="leave the memories here, and use those that are here")
    given = parser.parse_args()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="funes-scale-"))
    try:
        base_home = folder / "base"
        base_home.mkdir(parents=True, exist_ok=True)
        base = passages(Build(shlex.split(given.funes), base_home.resolve()), given.sessions.resolve())
        questions = questions_from(given.sessions, given.questions)
        for size in (int(text) for text in given.sizes.split(",")):
            build = Build(shlex.split(given.funes), (folder / str(size)).resolve())
            memory = build.home / ".funes" / "memory"
            made_in = None if memory.exists() else fill(memory, rounds(base, size))
            measure(build, size, base, made_in)
            bench_handshake(build, 5, chunks=size)
            bench_recall(build, questions, chunks=size)
            bench_hook(build, size)
            reads = given.cross_encoder or crossencoder.write(folder / "cross-encoder")
            name = RERANKER if given.cross_encoder else crossencoder.NAME
            bench_cross_encoder(build, size, questions[:40], reads.resolve(), name)
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
