"""Small transcripts that are put into memories, and ways to look at everything that is stored of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from funes_mcp.memory import derived
from funes_mcp.memory.chunk import chunks_of
from funes_mcp.memory.lexical import LexicalReader
from funes_mcp.memory.model import Chunk, Embedding
from funes_mcp.memory.stores import Committed
from funes_mcp.memory.table import ChunkTable
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.traces.model import Block, Cursor, SessionInfo, Source, Tally, Turn

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL = Embedding("test-model", 16)


def embed(texts: list[str]) -> NDArray[np.float32]:
    """Unit vectors that depend on the text alone."""
    import numpy as np

    rows = [np.frombuffer(blake2b(text.encode(), digest_size=16).digest(), np.uint8) for text in texts]
    matrix = np.stack(rows).astype(np.float32) - 127.5
    return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), np.float32)


@dataclass
class Transcript:
    """A file: which session it is and the turns in it, in order."""

    path: str
    info: SessionInfo
    turns: list[Turn] = field(default_factory=list)
    read: int = 0
    rewritten: bool = True

    def say(self, uuid: str, text: str, **more: Any) -> Turn:
        """Add a turn with one block."""
        turn = Turn(
            session_id=self.info.session_id,
            turn_uuid=uuid,
            parent_uuid=more.pop("parent", self.turns[-1].turn_uuid if self.turns else None),
            seq=len(self.turns),
            ts=f"2026-01-01T00:{len(self.turns) // 60:02d}:{len(self.turns) % 60:02d}.000Z",
            role=more.pop("role", "user"),
            blocks=(Block(more.pop("kind", "text"), text, 0),),
            identity=more.pop("identity", uuid),
            **more,
        )
        self.turns.append(turn)
        return turn

    def copy_from(self, other: Transcript, count: int) -> None:
        """Begin as a resumed session does: with another's first turns under this session's id."""
        self.turns = [
            replace(turn, session_id=self.info.session_id, seq=seq) for seq, turn in enumerate(other.turns[:count])
        ]


def transcript(
    name: str, started: int = 0, *, path: str = "", fork: bool = False, cwd: str = "/home/ann/proj"
) -> Transcript:
    """An empty transcript of session `name` that began `started` minutes after midnight."""
    info = SessionInfo(
        name,
        "claude_code",
        cwd=cwd,
        repo="ann/proj",
        started=f"2026-01-01T{started // 60:02d}:{started % 60:02d}:00.000Z",
        relation="fork" if fork else None,
    )
    return Transcript(path or f"/t/{name}.jsonl", info)


def source_of(file: Transcript) -> Source:
    """The file as a stat shows it."""
    digest = blake2b(repr(file.turns).encode(), digest_size=4).digest()
    return Source("claude_code", Path("/t"), Path(file.path), len(file.turns), int.from_bytes(digest, "big"), 0, 1)


def put(writer: MemoryWriter, file: Transcript, *, thinking: bool = True, commit_every: int = 0) -> None:
    """Read what is new in a file, or all of it when it was rewritten."""
    source = source_of(file)
    whole = file.rewritten or writer.cursor_of(source) is None
    writer.begin(source, whole=whole)
    writer.put_session(file.info)
    for number, turn in enumerate(file.turns[0 if whole else file.read :]):
        writer.put_turn(turn, chunks_of(turn, file.info, file.path, thinking=thinking))
        if commit_every and number % commit_every == commit_every - 1:
            writer.commit(embed)
    writer.finish(source, Cursor(len(file.turns), "d"), Tally(lines=len(file.turns)))
    file.read, file.rewritten = len(file.turns), False


def store(folder: Path, *files: Transcript, commit_every: int = 0) -> Committed:
    """Index files, in that order, in one commit."""
    with MemoryWriter.open(folder, MODEL) as writer:
        for file in files:
            put(writer, file, commit_every=commit_every)
        return writer.commit(embed)


def rows_of(folder: Path) -> dict[str, Chunk]:
    """Every row of the table by id; the ids must be distinct."""
    rows = [chunk for part in ChunkTable.open(folder).stream() for chunk in part]
    found = {row.id: row for row in rows}
    assert len(found) == len(rows)
    return found


def vectors_of(folder: Path) -> dict[str, tuple[float, ...]]:
    """Every vector of the table by id."""
    return {
        name: tuple(round(float(x), 5) for x in matrix[place])
        for ids, matrix in ChunkTable.open(folder).vectors()
        for place, name in enumerate(ids)
    }


def words_of(folder: Path, words: Sequence[str]) -> dict[str, set[int]]:
    """Which rows the word index finds by each word, in their own text and in their neighbours'."""
    reader = LexicalReader(folder / derived.LEXICAL)
    query = reader._tantivy.Query
    found = {}
    for word in words:
        term = query.term_query(reader._schema, "words", word, "freq")
        hits = reader._searcher.search(term, 10_000, count=False).hits
        found[word] = set(reader._values("key", [address for _, address in hits]))
    return found
