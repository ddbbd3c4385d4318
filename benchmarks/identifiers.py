"""Ask for identifiers that stand in a memory, alone and in a sentence; one JSON line for each kind, and one for all.

    python benchmarks/identifiers.py SESSIONS [--funes funes] [--each 60]

Of each kind (names with underscores, in camel case, options, paths, dotted names, error codes, shortened digests) some
are drawn, always the same, from those that stand in at most 50 passages. A question counts as hit@k when one of its
first k passages holds the identifier, in whatever case.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import time
from collections import Counter, defaultdict
from pathlib import Path

import lancedb
from bench import report, served

_BEFORE, _AFTER = r"(?<![\w./-])", r"(?![\w./-])"
KINDS = {
    "snake": r"[a-z][a-z0-9]*(?:_[a-z0-9]+){1,4}",
    "camel": r"[A-Z]?[a-z]+(?:[A-Z][a-z]+){1,4}",
    "option": r"--[a-z][a-z]+(?:-[a-z]+){0,3}",
    "path": r"[\w-]+(?:/[\w-]+){1,4}\.[a-z]{1,4}",
    "dotted": r"[a-z]\w+\.[a-z]\w+(?:\.\w+)?",
    "code": r"[A-Z]{1,4}[0-9]{3,5}",
    "digest": r"(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,8}",
}
FORMS = {"alone": "{}", "in a sentence": "what did we find out about {}?"}
MOST_PASSAGES = 50
K = 8
#: Where one passage of an answer ends and the next begins.
BETWEEN = "\n---\n"


def drawn(home: Path, each: int) -> dict[str, list[str]]:
    """Identifiers of each kind that stand in few passages of the memory."""
    table = lancedb.connect(home / "memory").open_table("chunks")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for batch in table.search().select(["text"]).to_batches():
        for text in batch["text"].to_pylist():
            for kind, pattern in KINDS.items():
                counts[kind].update(set(re.findall(_BEFORE + pattern + _AFTER, text)))
    draw = random.Random(5)
    rare = {kind: sorted(name for name, n in counts[kind].items() if n <= MOST_PASSAGES) for kind in KINDS}
    return {kind: draw.sample(names, min(each, len(names))) for kind, names in rare.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--funes", default="funes", help="the command under test")
    parser.add_argument("--each", type=int, default=60, help="identifiers of each kind")
    given = parser.parse_args()
    with served(given.funes, given.sessions) as (client, build):
        client.recall("warm up")
        asked = drawn(build.home / ".funes", given.each)
        for form, sentence in FORMS.items():
            seconds: list[float] = []
            whole: list[int] = []
            for kind, names in asked.items():
                ranks = []
                for name in names:
                    started = time.perf_counter()
                    found = client.recall(sentence.format(name), k=K).split(BETWEEN)
                    seconds.append(time.perf_counter() - started)
                    ranks.append(next((at for at, text in enumerate(found, 1) if name.lower() in text.lower()), 0))
                whole += ranks
                told(f"{kind} {form}", ranks)
            told(f"identifiers {form}", whole, p50_ms=round(1e3 * statistics.median(seconds), 1))


def told(name: str, ranks: list[int], **more: float) -> None:
    """Print what the questions of a kind came to."""
    shares = {f"hit@{k}": round(100 * sum(0 < rank <= k for rank in ranks) / max(1, len(ranks)), 1) for k in (1, K)}
    report(name, n=len(ranks), **shares, **more)


if __name__ == "__main__":
    main()
