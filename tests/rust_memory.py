"""A published memory as the Rust funes leaves it in a dataset repository, built with Lance when a test runs.

It differs from ours in: its seventeen columns and no more (older ones lack the last, or the last two), vectors of
bge-small, a word index and, from 256 rows, a vector index of Lance in `_indices/`, one fragment for each push, and
the manifests of all former versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from hub_server import Commit, LoopbackHub
    from numpy.typing import NDArray

MODEL: Final = "BAAI/bge-small-en-v1.5"
WIDTH: Final = 384
#: Its columns in its order; the whole numbers among them.
COLUMNS: Final = (
    "id",
    "text",
    "session_id",
    "workdir",
    "turn_uuid",
    "parent_uuid",
    "seq",
    "ts",
    "role",
    "block_type",
    "tool_name",
    "source_path",
    "block_idx",
    "split_idx",
    "vector",
    "harness",
    "repo",
)
_NUMBERS: Final = ("seq", "block_idx", "split_idx")
#: Lance cannot train a vector index on fewer.
TRAINABLE: Final = 256

_SUBJECTS: Final = (
    ("the tide table", "Summer time shifted every station by one hour, so the offsets are stored in UTC now."),
    ("the upload", "It was flaky because two workers renamed the same temporary file."),
    ("the colour scale", "We settled on a palette that colour-blind readers can tell apart."),
    ("the cache", "It was dropped: the database answers in two milliseconds without it."),
    ("the parser", "A quoted newline was split across two buffers, which the streaming parser now carries over."),
)


@dataclass(frozen=True)
class RustRow:
    """One row, whose id follows from where it stands."""

    session: str
    turn: str
    text: str
    seq: int
    role: str = "user"
    parent: str | None = None
    ts: str = "2026-01-01T00:00:00Z"
    kind: str = "text"
    tool: str | None = None
    block: int = 0
    split: int = 0
    harness: str = "claude_code"
    repo: str = "acme/tides"
    workdir: str = "-home-ann-tides"

    @property
    def id(self) -> str:
        return hashlib.sha1(f"{self.session}:{self.turn}:{self.block}:{self.split}".encode()).hexdigest()[:16]

    def cells(self) -> dict[str, Any]:
        """By column, without the vector."""
        return {
            "id": self.id,
            "text": self.text,
            "session_id": self.session,
            "workdir": self.workdir,
            "turn_uuid": self.turn,
            "parent_uuid": self.parent,
            "seq": self.seq,
            "ts": self.ts,
            "role": self.role,
            "block_type": self.kind,
            "tool_name": self.tool,
            "source_path": f"/home/ann/.claude/projects/{self.workdir}/{self.session}.jsonl",
            "block_idx": self.block,
            "split_idx": self.split,
            "harness": self.harness,
            "repo": self.repo,
        }


def rust_rows(
    count: int = 12, *, session: str = "5e551000-0000-4000-8000-{:012d}", a_session: int = 6
) -> list[RustRow]:
    """Conversations of questions and answers; every text is another one."""
    rows: list[RustRow] = []
    for i in range(count):
        number, seq = divmod(i, a_session)
        name = session.format(number)
        what, answer = _SUBJECTS[i // 2 % len(_SUBJECTS)]
        text = f"What about {what}, number {i}?" if i % 2 == 0 else f"About {what}, number {i - 1}: {answer}"
        rows.append(
            RustRow(
                name,
                f"{name}-turn-{seq}",
                text,
                seq,
                role="user" if i % 2 == 0 else "assistant",
                parent=f"{name}-turn-{seq - 1}" if seq else None,
                ts=f"2026-01-{number % 28 + 1:02d}T10:{seq:02d}:00Z",
            )
        )
    return rows


def made_up_vectors(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors that depend on the text alone, no two alike: an index cannot be trained on equal ones."""
    import numpy as np

    seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") for text in texts]
    rows = np.stack([np.random.default_rng(seed).standard_normal(WIDTH, np.float32) for seed in seeds])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def rust_table(
    folder: Path,
    rows: Sequence[RustRow] = (),
    *,
    fragments: int = 3,
    without: Sequence[str] = (),
    indexes: bool = True,
    model: str | None = MODEL,
    vectors: Callable[[Sequence[str]], NDArray[np.float32]] = made_up_vectors,
) -> Path:
    """Write `chunks.lance` into `folder`, and give its path.

    Args:
        fragments: In so many pushes, each of which leaves a fragment and manifests; indexes of former ones stay.
        without: Columns that older versions do not have: ("repo",) or ("repo", "harness").
        indexes: The word index, and the vector index where there are rows enough.
        model: What the metadata says; None: nothing.
    """
    import lancedb
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
    from lancedb.index import FTS, IvfPq

    rows = list(rows) or rust_rows()
    names = [name for name in COLUMNS if name not in without]
    types = {name: pa.int64() for name in _NUMBERS} | {"vector": pa.list_(pa.float32(), WIDTH)}
    stamp = {} if model is None else {"embedding_model": model}
    schema = pa.schema([pa.field(name, types.get(name, pa.utf8())) for name in names], metadata=stamp)
    embedded = vectors([row.text for row in rows])

    def part(start: int, end: int) -> Any:
        cells = [row.cells() for row in rows[start:end]]
        flat = pa.array(embedded[start:end].reshape(-1), pa.float32())
        columns = {
            name: pa.array([cell[name] for cell in cells], schema.field(name).type)
            for name in names
            if name != "vector"
        }
        columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, WIDTH)
        return pa.table([columns[name] for name in names], schema=schema)

    cuts = [len(rows) * i // fragments for i in range(fragments + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    table = lancedb.connect(str(folder)).create_table("chunks", part(cuts[0], cuts[1]))
    for start, end in pairwise(cuts[1:]):
        if indexes:  # what a push adds is not in the indexes until the next one
            table.create_index("text", config=FTS(), replace=True)
        table.add(part(start, end))
    if indexes and len(rows) >= TRAINABLE:
        table.create_index("vector", config=IvfPq(distance_type="l2", num_sub_vectors=WIDTH // 16))
    return folder / "chunks.lance"


def rust_card(repo: str, rows: int) -> bytes:
    """A dataset card with the marks that the Rust funes keeps its numbers between."""
    return (
        "---\npretty_name: funes memory\ntags:\n  - funes\n  - lance\nsize_categories:\n  - n<1K\n---\n\n"
        f"# {repo}\n\nWritten by another funes.\n\n<!-- funes:stats -->\n| | |\n|---|---|\n| Chunks | {rows:,} |\n"
        f"| Embedding model | `{MODEL}` |\n| Updated | 2026-01-01 |\n<!-- /funes:stats -->\n\nAfter the numbers.\n"
    ).encode()


def plant(
    hub: LoopbackHub, repo: str, folder: Path, rows: Sequence[RustRow] = (), *, private: bool = True, **how: Any
) -> Commit:
    """Build such a memory in `folder` and commit it to the Hub, card and all.

    Args:
        how: As for `rust_table`.
    """
    rows = list(rows) or rust_rows()
    table = rust_table(folder, rows, **how)
    files = {
        f"chunks.lance/{path.relative_to(table).as_posix()}": path.read_bytes()
        for path in sorted(table.rglob("*"))
        if path.is_file()
    }
    return hub.add(repo, {**files, "README.md": rust_card(repo, len(rows))}, private=private, message="funes push")
