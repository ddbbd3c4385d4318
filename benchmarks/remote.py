"""Compare a published memory with the local one that it was made from: one JSON line.

    python benchmarks/remote.py SESSIONS [--rows 20000] [--questions 200]

SESSIONS is a folder of transcripts. They are indexed in a throwaway home; that memory lies on a Hub on the loopback
(the tests'); another home fetches it by the command line. Then the same questions go to both in turn, in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import questions_from

ROOT = Path(__file__).resolve().parent.parent
NAME = "acme/bench"

sys.path.insert(0, str(ROOT / "tests"))


def run(environ: dict[str, str], *arguments: str) -> tuple[float, str]:
    """Run a command of funes; its seconds and what it wrote to stderr."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "funes_mcp", *arguments],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    return time.perf_counter() - started, done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--rows", type=int, default=20_000, help="passages of the memory, at most")
    parser.add_argument("--questions", type=int, default=200)
    arguments = parser.parse_args()

    from hub_server import LoopbackHub

    with tempfile.TemporaryDirectory() as folder, LoopbackHub(page=500) as hub:
        one, other = (Path(folder, name) for name in ("a", "b"))
        one.mkdir()
        other.mkdir()
        at_one, at_other = ({**hub.environ(home), "PATH": os.environ["PATH"]} for home in (one, other))
        run(at_one, "index", str(arguments.sessions), "--yes")

        from funes_mcp.home import FunesHome
        from funes_mcp.memory.table import ChunkTable
        from funes_mcp.models import RecallRequest
        from funes_mcp.service import IndexService

        memory = one / "funes" / "memory"
        table = ChunkTable.open(memory)
        table.delete(sorted(table.ids())[arguments.rows :])
        commit = hub.add_folder(NAME, memory / "chunks.lance", "chunks.lance", private=True)
        size = sum(len(blob.data) for blob in commit.tree.values())
        first, told = run(at_other, "recall", "a first question", "--memory", NAME)
        got = [ask.path for ask in hub.asked if ask.method == "GET" and ask.stage in ("resolve", "content")]
        asked = len(hub.asked)
        again, _ = run(at_other, "recall", "a second question", "--memory", NAME)
        requests = len(hub.asked) - asked

        os.environ.update({name: value for name, value in at_other.items() if name.startswith("HF_")})
        local = IndexService(FunesHome(one / "funes"), at_one)
        remote = IndexService(FunesHome(other / "funes"), at_other)
        times: dict[str, list[float]] = {"local": [], "remote": []}
        questions = questions_from(arguments.sessions, arguments.questions)
        for question in [questions[0], *questions]:
            for service, label in ((local, "local"), (remote, NAME)):
                started = time.perf_counter()
                service.recall(RecallRequest(question, memory=label))
                times["local" if label == "local" else "remote"].append(time.perf_counter() - started)
        middle = {name: 1000 * statistics.median(taken[1:]) for name, taken in times.items()}
        late = {name: 1000 * statistics.quantiles(taken[1:], n=20)[-1] for name, taken in times.items()}
        figures = {
            "bench": "remote",
            "passages": table.rows,
            "published_mb": round(size / 1e6, 1),
            "files_fetched": len(got),
            "files_fetched_twice": len(got) - len(set(got)),
            "first_recall_s": round(first, 2),
            "told": told.strip().splitlines(),
            "next_recall_s": round(again, 2),
            "next_recall_requests": requests,
            "local_p50_ms": round(middle["local"], 1),
            "remote_p50_ms": round(middle["remote"], 1),
            "ratio": round(middle["remote"] / middle["local"], 3),
            "local_p95_ms": round(late["local"], 1),
            "remote_p95_ms": round(late["remote"], 1),
        }
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
