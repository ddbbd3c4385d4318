"""How well funes knows that it has nothing: what each floor loses and refuses; one JSON line each.

    python benchmarks/relevance.py SESSIONS --locomo locomo10.json [--commits FILE] [--rerank NAME] [--keep FOLDER]

SESSIONS is the folder of transcripts for which `paraphrases.json` was written. `--locomo` is the file of that name of
the public benchmark (or some of its dialogs): each dialog becomes a memory. `--commits` is a list of objects with a
`query` and the `sessions` that answer it. Questions are asked of the memory that can answer them and of others, with no
floor, and the relevance of the best of eight hits is compared with floors afterwards:

- *lost*: of the questions whose session is among the hits, the share whose best hit is below the floor, in percent;
- *refused*: of the questions asked of a memory that knows nothing of them, the same share;
- *right*: of all answers that are left, the share given by a memory that can answer.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import Build, report

if TYPE_CHECKING:
    from funes_mcp.service import IndexService

FLOORS = (0.06, 0.08, 0.1, 0.15, 0.3, 0.5)
BANDS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.01)

#: Questions that no memory here can answer.
ELSEWHERE = (
    *("xyzzy qwfp", "blorpt", "zorgle the frobnitz quux", "how do I wibble the snorkwangle", "mxyzptlk", "fnord"),
    *(
        "tango lessons in Buenos Aires",
        "how are volcanoes born",
        "what is the capital of Mongolia",
        "recipe for borscht",
    ),
    *("who won the cycling race in Flanders", "when do swallows fly south", "price of saffron per gram"),
    *("symptoms of a vitamin D deficiency", "how long is the Trans-Siberian railway", "rules of bridge bidding"),
    *("best time to prune an apple tree", "what did Spinoza say about substance", "how to descale an espresso machine"),
    *("average rainfall in Bergen in October",),
)


@dataclass(frozen=True)
class Asked:
    """A question's outcome: where it comes from, whether the memory can answer, the best relevance, a true hit."""

    kind: str
    own: bool
    best: float
    hit: bool


@dataclass(frozen=True)
class Set:
    """Questions with the sessions that answer them, by one memory."""

    kind: str
    memory: str
    questions: list[tuple[str, set[str]]]


def lay_dialog(folder: Path, number: int, sample: dict[str, Any]) -> list[tuple[str, set[str]]]:
    """Write a dialog's sessions as transcripts; its questions."""
    conversation, names = sample["conversation"], {}
    folder.mkdir(parents=True, exist_ok=True)
    for key, turns in conversation.items():
        match = re.fullmatch(r"session_(\d+)", key)
        if not match or not turns:
            continue
        name = names[match[1]] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"locomo/{number}/{match[1]}"))
        when = _moment(conversation.get(f"{key}_date_time", ""))
        with (folder / f"{name}.jsonl").open("w") as file:
            for place, turn in enumerate(t for t in turns if t.get("text", "").strip()):
                role = "user" if turn["speaker"] == turns[0]["speaker"] else "assistant"
                text = f"{turn['speaker']}: {turn['text']}"
                line = {
                    "type": role,
                    "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{place}")),
                    "sessionId": name,
                    "timestamp": f"{when + datetime.timedelta(minutes=place):%Y-%m-%dT%H:%M:%S}.000Z",
                    "cwd": f"/dialog{number}",
                    "message": {"role": role, "content": [{"type": "text", "text": text}]},
                }
                file.write(json.dumps(line) + "\n")
    questions = []
    for one in sample["qa"]:
        found = re.findall(r"D(\d+):\d+", str(one.get("evidence", "")))
        gold = {names[session] for session in found if session in names}
        if gold:
            questions.append((str(one["question"]), gold))
    return questions


def _moment(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.strptime(text.strip(), "%I:%M %p on %d %B, %Y")
    except ValueError:
        return datetime.datetime(2023, 1, 1)


def ask(service: IndexService, kind: str, own: bool, questions: Sequence[tuple[str, set[str]]]) -> Iterator[Asked]:
    """Ask a memory without a floor."""
    from funes_mcp.models import RecallRequest

    for text, gold in questions:
        hits = service.recall(RecallRequest(text, neighbors=0, min_relevance=0)).hits
        best = max((hit.relevance for hit in hits), default=0.0)
        yield Asked(kind, own, best, any(hit.chunk.session_id in gold for hit in hits))


def every(sets: Sequence[Set], memories: dict[str, IndexService]) -> Iterator[Asked]:
    """Each set asked of its memory, and a part of it of one that knows nothing of it; other topics of both kinds."""
    dialogs = [name for name in memories if name != "code"]
    for number, one in enumerate(sets):
        yield from ask(memories[one.memory], one.kind, True, one.questions)
        if one.memory == "code":
            yield from ask(memories[dialogs[0]], f"{one.kind} of a dialog", False, one.questions)
        else:
            other = dialogs[(dialogs.index(one.memory) + 1) % len(dialogs)]
            if other != one.memory:
                yield from ask(memories[other], f"{one.kind} of another dialog", False, one.questions[::3])
            yield from ask(memories["code"], f"{one.kind} of code", False, one.questions[number % 7 :: 7])
    topics = [(text, set[str]()) for text in ELSEWHERE]
    yield from ask(memories["code"], "other topics of code", False, topics)
    yield from ask(memories[dialogs[0]], "other topics of a dialog", False, topics)


def told(asked: Sequence[Asked]) -> None:
    """A line a floor, and one a band of relevance."""

    def share(some: Sequence[Asked], floor: float) -> float:
        return round(100 * sum(one.best < floor for one in some) / max(1, len(some)), 1)

    kinds = list(dict.fromkeys((one.kind, one.own) for one in asked))
    for floor in FLOORS:
        by_kind = {kind: [one for one in asked if one.kind == kind] for kind, _ in kinds}
        left = [one for one in asked if one.best >= floor]
        report(
            "floor",
            floor=floor,
            lost={kind: share([one for one in by_kind[kind] if one.hit], floor) for kind, own in kinds if own},
            refused={kind: share(by_kind[kind], floor) for kind, own in kinds if not own},
            right=round(100 * sum(one.own for one in left) / max(1, len(left)), 1),
        )
    for low, high in itertools.pairwise(BANDS):
        inside = [one for one in asked if low <= one.best < high]
        right = round(100 * sum(one.own for one in inside) / max(1, len(inside)))
        report("best hit", relevance=[low, min(high, 1.0)], n=len(inside), right=right)
    report("asked", **{kind: sum(one.kind == kind for one in asked) for kind, _ in kinds})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--locomo", type=Path, required=True)
    parser.add_argument("--commits", type=Path)
    parser.add_argument("--rerank", default="auto", help="as of `funes recall`")
    parser.add_argument("--keep", type=Path, help="leave the memories here, and use those that are here")
    given = parser.parse_args()
    from funes_mcp.home import FunesHome
    from funes_mcp.service import IndexService

    folder = (given.keep or Path(tempfile.mkdtemp(prefix="funes-relevance-"))).resolve()

    def memory(name: str, sessions: Path) -> IndexService:
        build = Build([sys.executable, "-m", "funes_mcp"], folder / name)
        if not (build.home / ".funes" / "memory").exists():
            build.home.mkdir(parents=True, exist_ok=True)
            build.run("index", str(sessions), "--yes")
        return IndexService(FunesHome(build.home / ".funes"), {"HOME": str(build.home)}, rerank=given.rerank)

    try:
        paraphrases = json.loads((Path(__file__).parent / "paraphrases.json").read_text("utf-8"))
        sets = [Set("paraphrases", "code", [(one["query"], set(one["sessions"])) for one in paraphrases])]
        if given.commits:
            commits = json.loads(given.commits.read_text("utf-8"))
            sets.append(Set("commits", "code", [(one["query"], set(one["sessions"])) for one in commits]))
        memories = {"code": memory("code", given.sessions.resolve())}
        for number, sample in enumerate(json.loads(given.locomo.read_text("utf-8"))):
            name = f"dialog{number}"
            sets.append(Set("locomo", name, lay_dialog(folder / name / "transcripts", number, sample)))
            memories[name] = memory(name, folder / name / "transcripts")
        told(list(every(sets, memories)))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd} failed ({error.returncode}):\n{error.stderr}")
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
