"""A home with one agent's transcripts and a memory, for tests of what is taken out of it again."""

from __future__ import annotations

import json
import random
from pathlib import Path

from funes_mcp.home import FunesHome
from funes_mcp.memory.dense import DenseReader
from funes_mcp.memory.lexical import LexicalReader
from funes_mcp.memory.model import Chunk
from funes_mcp.memory.scrub import outgoing
from funes_mcp.memory.table import ChunkTable
from funes_mcp.models import DoctorReport
from funes_mcp.redaction import Redactor
from funes_mcp.redaction.gate import Verdict, examine
from funes_mcp.service import IndexService

ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def drawn(seed: int, size: int = 36) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(ALPHABET) for _ in range(size))


def token(seed: int) -> str:
    return "ghp_" + drawn(seed)


class Agent:
    """A home with one Claude Code project in it, and a memory."""

    def __init__(self, home: Path, redactor: Redactor) -> None:
        self.home = home
        self.project = home / ".claude" / "projects" / "-home-ada-tidepool"
        self.project.mkdir(parents=True)
        self.environ = {"HOME": str(home), "FUNES_HOME": str(home / ".funes")}
        self.redactor = redactor

    @property
    def memory(self) -> Path:
        return self.home / ".funes" / "memory"

    def write(self, session: str, *texts: str, title: str = "", branch: str = "main", cwd: str = "/home/ada/t") -> Path:
        path = self.project / f"{session}.jsonl"
        lines = [json.dumps({"type": "ai-title", "aiTitle": title, "sessionId": session})] if title else []
        for number, text in enumerate(texts):
            lines.append(
                json.dumps(
                    {
                        "type": "user" if number % 2 == 0 else "assistant",
                        "uuid": f"{session[:8]}-0000-4000-8000-{number:012d}",
                        "sessionId": session,
                        "cwd": cwd,
                        "gitBranch": branch,
                        "timestamp": f"2026-03-11T09:{number:02d}:00.000Z",
                        "message": {
                            "role": "user" if number % 2 == 0 else "assistant",
                            "content": [{"type": "text", "text": text}],
                        },
                    }
                )
            )
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    def service(self, *, redacting: bool = True) -> IndexService:
        service = IndexService(FunesHome(self.home / ".funes"), self.environ, lock_wait=5.0)
        service.__dict__["_redactor"] = self.redactor if redacting else None
        return service

    def rows(self) -> list[Chunk]:
        rows = [row for part in ChunkTable.open(self.memory).stream() for row in part]
        return sorted(rows, key=lambda row: (row.session_id, row.seq, row.block_idx, row.split_idx))

    def gate(self) -> Verdict:
        return examine(outgoing(self.rows()), self.redactor)

    def consistent(self) -> None:
        """The table, both indexes and the catalog say the same."""
        found: DoctorReport = self.service().doctor()
        wrong = [f for f in found.findings if f.about in ("table", "catalog", "words", "vectors", "recall", "records")]
        assert [f for f in wrong if f.state == "problem"] == []
        rows = {row.key: row for row in self.rows()}
        words = LexicalReader(self.memory / "lexical").rows(list(rows))
        assert {key: row.text for key, row in words.items()} == {key: row.text for key, row in rows.items()}
        assert DenseReader(self.memory / "dense").keys() == set(rows)

    def files_with(self, *texts: str) -> list[str]:
        """Names of the files of the home that hold one of these texts, as it is."""
        found = []
        for path in sorted((self.home / ".funes").rglob("*")):
            if path.is_file() and "rules" not in path.parts:
                data = path.read_bytes()
                found += [path.name for text in texts if text.encode() in data]
        return found


ONE = "e81f7132-fc0c-4256-8825-b07987fc68c3"
TWO = "2266cb9f-6d2f-4c5b-9a38-0f2b1de0a77a"
