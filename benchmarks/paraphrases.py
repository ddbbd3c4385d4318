"""Ask questions in other words than those of the passage that answers them; one JSON line.

    python benchmarks/paraphrases.py SESSIONS [--funes funes] [--type text]

SESSIONS is the folder of transcripts for which `paraphrases.json` was written. Each of its questions was written by
hand for one passage, in words of which none that is rare (in less than 1 % of all passages, as an English stem) stands
in that passage. A question counts as hit@k when the passage's session is among the first k different sessions.
`--wrong` asks them, and gibberish, of a memory without those sessions, and counts how often nothing was answered.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from pathlib import Path

from bench import Client, report, served

GET = re.compile(r"^\s*(?:→|->)\s*get\s+(\S+)\s+(\S+)", re.MULTILINE)
NONSENSE = ("xyzzy qwfp", "blorpt", "zorgle the frobnitz quux", "how do I wibble the snorkwangle", "mxyzptlk", "fnord")


def ask(client: Client, question: str, block_type: str | None, least: float | None) -> list[str]:
    """The different sessions of an answer, best first."""
    text = client.recall(question, k=40, block_type=block_type, min_relevance=least)
    return list(dict.fromkeys(session for session, _ in GET.findall(text)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--funes", default="funes", help="the command under test")
    parser.add_argument("--type", dest="block_type", help="recall only this block type")
    parser.add_argument("--min-relevance", type=float, help="instead of the usual floor")
    parser.add_argument("--wrong", action="store_true", help="SESSIONS has nothing to do with the questions")
    given = parser.parse_args()
    asked = json.loads((Path(__file__).parent / "paraphrases.json").read_text("utf-8"))
    ranks, seconds, empty = [], [], 0
    questions = [(one["query"], set(one["sessions"])) for one in asked]
    if given.wrong:
        questions += [(text, set()) for text in NONSENSE]
    with served(given.funes, given.sessions) as (client, _):
        ask(client, "warm up", None, None)
        for question, gold in questions:
            started = time.perf_counter()
            order = ask(client, question, given.block_type, given.min_relevance)
            seconds.append(time.perf_counter() - started)
            empty += not order
            ranks.append(next((rank for rank, session in enumerate(order, 1) if session in gold), 0))
    seconds.sort()
    report(
        "paraphrases" + (f" {given.block_type}" if given.block_type else "") + (" wrong" if given.wrong else ""),
        n=len(ranks),
        **{f"hit@{k}": round(100 * sum(0 < rank <= k for rank in ranks) / len(ranks), 1) for k in (1, 5, 10)},
        mrr=round(sum(1 / rank for rank in ranks if rank) / len(ranks), 3),
        nothing=empty,
        p50_ms=round(1e3 * statistics.median(seconds), 1),
        p95_ms=round(1e3 * seconds[int(0.95 * (len(seconds) - 1))], 1),
    )


if __name__ == "__main__":
    main()
