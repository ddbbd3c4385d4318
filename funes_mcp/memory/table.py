"""The Lance table that is a memory: the only module that knows LanceDB and Arrow.

Both are imported where they are used: opening a memory to read it must not pay for them.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from funes_mcp.errors import FunesError, MemoryDamagedError, ModelMismatchError
from funes_mcp.home import private_folder
from funes_mcp.memory import lance, manifest
from funes_mcp.memory.lexical import storage_error
from funes_mcp.memory.model import CONTRACT_COLUMNS, OWN_COLUMNS, Chunk, Embedding

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
    from numpy.typing import NDArray

NAME: Final = "chunks"
MODEL_KEY: Final = b"embedding_model"

#: Names the repository that a published memory is of; the Rust funes writes and heeds it, too.
PROJECT_KEY: Final = b"project"

#: Lance's own per-column settings: strings are compressed in the file, and any reader undoes it. Without being told,
#: Lance compresses long strings one by one (350 bytes a row for `text`) and short ones in blocks of 4 KiB. In blocks
#: of 64 KiB `text` takes 193 and is written and read in half the time; what is read by itself is read in whole blocks.
#: Only for files of `_FORMAT`: those of 2.1 have no room for it, and a block with a longer string cannot be written.
_COMPRESSED: Final = {
    b"lance-encoding:compression": b"zstd",
    b"lance-encoding:structural-encoding": b"miniblock",
    b"lance-encoding:minichunk-size": b"65536",
}

#: Lance's file format of new tables, the same whatever LanceDB is installed. A table of another format keeps its own.
_FORMAT: Final = (2, 2)

_INTEGERS: Final = frozenset({"seq", "block_idx", "split_idx"})
_NULLABLE: Final = frozenset({"parent_uuid", "tool_name", *OWN_COLUMNS} - {"flags", "identity"})
_FIELDS: Final = Chunk._fields
_ID: Final = re.compile(r"[0-9a-f]{16}")
_IDS_AT_ONCE: Final = 5_000
_SOME: Final = 20_000  # so many rows are asked for by name; more are picked from all of them
_FRAGMENTS: Final = 40
_BYTES_A_FRAGMENT: Final = 4 << 20
_VERSIONS: Final = 60

_NOW: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class RowMark:
    """What it takes to know a row again: its key, where it is from, and whether it has a vector."""

    key: int
    session_id: str
    turn_uuid: str
    repo: str
    filled: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows of a table, its sessions, and the rows of each agent by the name that is stored ("" where none is)."""

    rows: int
    sessions: int
    agents: dict[str, int]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Which rows of a table go into another, and how they are changed on the way.

    Attributes:
        keys: Of the rows, in ascending order.
        lets: Whether a row may go as it is now, by id and text.
        blank: Identities (16 hex digits) that are left empty.
        embed: Makes the vectors anew from the texts; None copies them bit for bit.
        told: Called with the number of rows that went so far.
    """

    keys: NDArray[np.uint64]
    lets: Callable[[str, str], bool]
    blank: frozenset[str] = frozenset()
    embed: Callable[[list[str]], NDArray[np.float32]] | None = None
    told: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where a row stands in its session."""

    key: int
    session_id: str
    seq: int
    ts: str
    turn: str
    block: int
    split: int


def table_path(folder: Path) -> Path:
    """Where the table of the memory in `folder` lies."""
    return folder / f"{NAME}.lance"


def table_version(path: Path) -> int | None:
    """The newest version of the table at `path` (a `chunks.lance` folder); None when there is no table."""
    try:
        name = manifest.newest(entry.name for entry in (path / manifest.VERSIONS).iterdir())
    except OSError:
        return None
    return None if name is None else manifest.version_of(name)


def schema_of(embedding: Embedding, project: str = "") -> pa.Schema:
    """The columns of a new table, with the model's name in the metadata, and the project's where it has one."""
    import pyarrow as pa

    columns = []
    for name in (*CONTRACT_COLUMNS, *OWN_COLUMNS):
        if name == "vector":
            columns.append(pa.field(name, pa.list_(pa.float32(), embedding.width)))
        elif name in _INTEGERS:
            columns.append(pa.field(name, pa.int64()))
        else:
            columns.append(pa.field(name, pa.utf8(), metadata=_COMPRESSED))
    metadata = {MODEL_KEY: embedding.model.encode()}
    if project:
        metadata[PROJECT_KEY] = project.encode()
    return pa.schema(columns, metadata=metadata)


def _made_in(folder: Path) -> Any:
    """The database in `folder`, for tables to be made in it."""
    options = {"new_table_data_storage_version": ".".join(map(str, _FORMAT))}
    return lance.load().connect(str(folder), storage_options=options)


def _format(path: Path) -> tuple[int, int]:
    """The format of the files of the table at `path`, as one of them says in its last bytes; (0, 0) when none does."""
    with suppress(OSError):
        for file in (path / "data").iterdir():
            with file.open("rb") as opened:
                opened.seek(-8, os.SEEK_END)
                tail = opened.read(8)
            if tail[4:] == b"LANC":
                return int.from_bytes(tail[:2], "little"), int.from_bytes(tail[2:4], "little")
    return 0, 0


def _as_written(schema: pa.Schema, embedding: Embedding, path: Path) -> pa.Schema:
    """A table's columns as those of a new table are written, as far as the format of the one at `path` allows it."""
    import pyarrow as pa

    if _format(path) < _FORMAT:
        return schema
    usual = {column.name: column for column in schema_of(embedding)}
    known = [usual.get(column.name, column) for column in schema]
    columns = [to if to.type == column.type else column for column, to in zip(schema, known, strict=True)]
    return pa.schema(columns, metadata=schema.metadata)


class ChunkTable:
    """The table of the memory in `folder`. Use `open` or `create`."""

    def __init__(self, table: Any, path: Path, embedding: Embedding) -> None:
        self._table = table
        self._path = path
        self.embedding = embedding

    @classmethod
    def create(cls, folder: Path, embedding: Embedding) -> ChunkTable:
        """Open the table, making an empty one stamped with `embedding` when there is none.

        Raises:
            ModelMismatchError: It is stamped with another model.
            MemoryDamagedError: There is something else in its place.
        """
        if table_version(table_path(folder)) is None:
            private_folder(folder)
            try:
                _made_in(folder).create_table(NAME, schema=schema_of(embedding))
            except (OSError, ValueError, RuntimeError) as error:
                raise storage_error("The memory could not be made", error) from error
        table = cls.open(folder)
        if table.embedding != embedding:
            raise ModelMismatchError(
                f"This memory's vectors were made by {table.embedding.model}, not by {embedding.model}.",
                "See `funes models`.",
            )
        table.complete()
        return table

    @classmethod
    def open(cls, folder: Path) -> ChunkTable:
        """Open the table in `folder`. Raises `MemoryDamagedError` when that cannot be done."""
        import pyarrow as pa

        path = table_path(folder)
        try:
            table = lance.load().connect(str(folder)).open_table(NAME)
            schema = table.schema
        except (OSError, ValueError, RuntimeError) as error:
            raise MemoryDamagedError(f"The table {path} cannot be opened: {_first_line(error)}") from error
        lacking = [name for name in ("id", "text", "session_id", "turn_uuid") if name not in schema.names]
        if lacking:
            raise MemoryDamagedError(f"The table {path} is no memory: it has no column {', '.join(lacking)}.")
        width = 0
        if "vector" in schema.names:
            kind = schema.field("vector").type
            if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
                width = kind.list_size
        model = (schema.metadata or {}).get(MODEL_KEY, b"").decode("utf-8", "replace")
        return cls(table, path, Embedding(model, width))

    @property
    def version(self) -> int:
        """The version that this object looks at."""
        return int(self._table.version)

    @property
    def project(self) -> str:
        """The repository that the table says it is of, or "". In a published memory anybody may have written it."""
        name: bytes = (self._table.schema.metadata or {}).get(PROJECT_KEY, b"")
        return name.decode("utf-8", "replace").strip()

    @property
    def rows(self) -> int:
        """How many chunks are stored."""
        return int(self._table.count_rows())

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self._table.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self._table.schema

    def batches(self, columns: Any, ids: Iterable[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, or of those with the given ids, some thousands of rows at a time.

        Args:
            columns: Names, or a mapping of names to SQL expressions.
        """
        for where in [None] if ids is None else _slices(ids):
            yield from self._batches(columns, None if where is None else _among(where))

    def complete(self) -> None:
        """Add our own columns, empty, to a table that another program made."""
        have = set(self.columns)
        lacking = [name for name in (*CONTRACT_COLUMNS, *OWN_COLUMNS) if name not in have and name != "vector"]
        if lacking:
            self._table.add_columns(
                {name: f"cast(null as {'bigint' if name in _INTEGERS else 'string'})" for name in lacking}
            )

    def append(self, chunks: Sequence[Chunk], vectors: Sequence[NDArray[np.float32] | None]) -> None:
        """Add rows whose ids are not there yet, in one version. Raises `FunesError` (a full disk)."""
        if chunks:
            data = self._arrow(chunks, vectors)
            self._guarded(lambda: self._table.add(data))

    def append_from(self, source: ChunkTable, transfer: Transfer) -> int:
        """Add rows of another table in one version, in little memory. Returns how many.

        This table keeps its columns: it gets those that it has, and null where the source has none of that name.

        Raises:
            FunesError: They do not fit, or could not be written; the table is as it was.
        """
        import pyarrow as pa

        feed = _Feed(source, self._table.schema, transfer)
        reader = pa.RecordBatchReader.from_batches(self._table.schema, feed.batches())
        self._fed(feed, lambda: self._table.add(reader))
        return feed.rows

    @classmethod
    def create_from(
        cls, folder: Path, embedding: Embedding, source: ChunkTable, transfer: Transfer, project: str = ""
    ) -> ChunkTable:
        """Make a table with rows of another one, in one version. Raises `FunesError`."""
        import pyarrow as pa

        schema = schema_of(embedding, project)
        feed = _Feed(source, schema, transfer)
        reader = pa.RecordBatchReader.from_batches(schema, feed.batches())
        private_folder(folder)
        cls._fed(feed, lambda: _made_in(folder).create_table(NAME, reader, schema=schema, on_bad_vectors="null"))
        return cls.open(folder)

    def indexes(self) -> dict[str, int]:
        """The search indexes that Lance keeps in the table itself, with the number of rows each lacks.

        Those that have the name that Lance gives to them. Their files need not be here.
        """
        lacking: dict[str, int] = {}
        for name in (f"{column}_idx" for column in self.columns):
            # Asked one by one: a list is made by opening them all, and what is not here is complained about on stderr.
            with suppress(OSError, ValueError, RuntimeError):
                stats = self._table.index_stats(name)
                if stats is not None:
                    lacking[name] = int(stats.num_unindexed_rows)
        return lacking

    def tidy(self) -> None:
        """Join all files, bring Lance's own indexes up to date, and drop every version but the one that results.

        Raises:
            FunesError: It could not be written.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LanceDB's: nobody else looks at the table
            for _ in range(2):  # the second time drops what the first wrote between joining and indexing
                self._guarded(lambda: self._table.optimize(cleanup_older_than=_NOW, delete_unverified=True))

    @staticmethod
    def _fed(feed: _Feed, work: Callable[[], Any]) -> None:
        try:
            work()
        except (OSError, ValueError, RuntimeError) as error:
            if feed.failure is not None:  # LanceDB reports it as a fault of its own
                raise feed.failure from error
            raise storage_error("The passages could not be written", error) from error

    def upsert(self, chunks: Sequence[Chunk], vectors: Sequence[NDArray[np.float32] | None]) -> None:
        """Add rows, in one version, in place of those that have their ids. Raises `FunesError`."""
        if chunks:
            data = self._arrow(chunks, vectors)
            merge = self._table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            self._guarded(lambda: merge.execute(data, on_bad_vectors="null"))

    def delete(self, ids: Iterable[str]) -> None:
        """Remove rows. Raises `FunesError`."""
        for wanted in _slices(ids):
            self._guarded(lambda wanted=wanted: self._table.delete(_among(wanted)))

    def ids(self) -> dict[str, bool]:
        """Every id, and whether its row has a vector."""
        found: dict[str, bool] = {}
        columns = {"id": "id"}
        if "vector" in self.columns:
            columns["filled"] = "vector is not null"
        for batch in self._batches(columns):
            filled = batch["filled"].to_pylist() if "filled" in columns else [False] * batch.num_rows
            found.update(zip(batch["id"].to_pylist(), filled, strict=True))
        found.pop(None, None)  # type: ignore[call-overload]
        return found

    def keys(self) -> NDArray[np.uint64]:
        """The keys of all rows, in ascending order: eight bytes each."""
        import numpy as np

        found: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
        for batch in self._batches(["id"]):
            names = [name for name in batch["id"].to_pylist() if name is not None and _ID.fullmatch(name)]
            found.append(np.fromiter((int(name, 16) for name in names), np.uint64, len(names)))
        return np.unique(np.concatenate(found))

    def marks(self) -> Iterator[list[RowMark]]:
        """Every row in short, some thousands at a time, in the order in which they were written."""
        have = set(self.columns)
        columns: dict[str, str] = {name: name for name in ("id", "session_id", "turn_uuid", "repo") if name in have}
        if "vector" in have:
            columns["filled"] = "vector is not null"
        for batch in self._batches(columns):
            names = ("id", "session_id", "turn_uuid", "repo", "filled")
            values = [batch[name].to_pylist() if name in columns else [None] * batch.num_rows for name in names]
            yield [
                RowMark(int(name, 16), session or "", turn or "", repo or "", bool(filled))
                for name, session, turn, repo, filled in zip(*values, strict=True)
                if name is not None and _ID.fullmatch(name)
            ]

    def spread(self) -> Spread:
        """How the rows are spread over sessions and agents."""
        sessions: set[str] = set()
        agents: Counter[str] = Counter()
        rows = 0
        columns = [name for name in ("session_id", "harness") if name in set(self.columns)]
        for batch in self._batches(columns):
            rows += batch.num_rows
            sessions.update(name for name in batch["session_id"].unique().to_pylist() if name)
            if "harness" in columns:
                for item in batch["harness"].value_counts().to_pylist():
                    agents[item["values"] or ""] += item["counts"]
        return Spread(rows, len(sessions), dict(agents))

    def places(self) -> Iterator[RowPlace]:
        """Where every row stands, in no special order."""
        names = ["id", "session_id", "seq", "ts", "turn_uuid", "block_idx", "split_idx"]
        have = [name for name in names if name in set(self.columns)]
        for batch in self._batches(have):
            columns = [batch[name].to_pylist() if name in have else [None] * batch.num_rows for name in names]
            for name, session, seq, ts, turn, block, split in zip(*columns, strict=True):
                if name is not None and _ID.fullmatch(name):
                    key = int(name, 16)
                    yield RowPlace(key, session or "", seq or 0, ts or "", turn or "", block or 0, split or 0)

    def stream(self, ids: Iterable[str] | None = None) -> Iterator[list[Chunk]]:
        """All rows, or those with the given ids, without vectors, some thousands at a time."""
        names = [name for name in _FIELDS if name in set(self.columns)]
        for where in [None] if ids is None else _slices(ids):
            for batch in self._batches(names, None if where is None else _among(where)):
                yield _chunks(batch, names)

    def vectors(self, ids: Iterable[str] | None = None) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """The vectors that are there: ids and float32 (n, width), some thousands at a time."""
        import numpy as np

        if not self.embedding.width:
            return
        for where in [None] if ids is None else _slices(ids):
            condition = "vector is not null" if where is None else f"vector is not null and {_among(where)}"
            for batch in self._batches(["id", "vector"], condition):
                column = batch["vector"]
                flat = column.flatten().to_numpy(zero_copy_only=False)
                if len(flat) == 0:
                    continue
                matrix = np.asarray(flat, np.float32).reshape(-1, self.embedding.width)
                yield batch["id"].to_pylist(), matrix

    def without_vector(self, limit: int) -> list[Chunk]:
        """The newest rows that have no vector yet, undated ones last."""
        waiting: list[tuple[str, str]] = []
        columns = [name for name in ("id", "ts") if name in set(self.columns)]
        for batch in self._batches(columns, "vector is null"):
            ts = batch["ts"].to_pylist() if "ts" in columns else [""] * batch.num_rows
            waiting.extend((when or "", name) for when, name in zip(ts, batch["id"].to_pylist(), strict=True))
        waiting.sort(reverse=True)
        ids = [name for _, name in waiting[:limit]]
        rows = {chunk.id: chunk for part in self.stream(ids) for chunk in part}
        return [rows[name] for name in ids if name in rows]

    @staticmethod
    def crowded(path: Path) -> bool:
        """Whether the table at `path` lies in many files or keeps many versions; without opening it."""
        return _scattered(path) or _entries(path / "_versions") > _VERSIONS

    def maintain(self, *, force: bool = False) -> bool:
        """Join small files and drop old versions when there are many. True when something was done.

        Readers of this memory use the derived indexes, so no version but the newest is in use. Joining writes
        the whole table again, so the larger it is, the more files are let be.
        """
        scattered = force or _scattered(self._path)
        if not scattered and _entries(self._path / "_versions") <= _VERSIONS:
            return False
        with suppress(OSError, ValueError, RuntimeError), warnings.catch_warnings():
            # Housekeeping: when it fails the table is as good as before, and the next run tries again.
            warnings.simplefilter("ignore")  # LanceDB's, of what the docstring settles
            self._table.optimize(cleanup_older_than=_NOW, delete_unverified=True)
        return True

    def rewrite(self) -> None:
        """Write all rows that are there into new files, in one version, and remove all others.

        Deleted rows stay in the files of a table until those are written again, and joining files leaves those alone
        in which little was deleted. Needs the room of the table once more while it lasts, and little memory.

        Raises:
            FunesError: It could not be written (a full disk); the table is as it was.
        """
        import pyarrow as pa

        schema = _as_written(self._table.schema, self.embedding, self._path)
        # Sorted by where they are, which is the order in which they were written.
        batches = (pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in self._batches(self.columns))
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        self._guarded(lambda: self._table.add(reader, mode="overwrite", on_bad_vectors="null"))
        self.drop_versions()

    def drop_versions(self) -> None:
        """Remove the files of all versions but the newest. Raises `FunesError`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LanceDB's, of what the docstring settles
            self._guarded(lambda: self._table.optimize(cleanup_older_than=_NOW, delete_unverified=True))

    def restamp(self, embedding: Embedding, vector_of: Callable[[str, str], NDArray[np.float32] | None]) -> ChunkTable:
        """Write all rows again with other vectors and another stamp, in one version. Returns the table as it is then.

        Needs the room of the table once more while it lasts, and little memory.

        Args:
            vector_of: Gives the vector for an id and a text, or None.

        Raises:
            FunesError: It could not be written (a full disk); the table is as it was.
        """
        import pyarrow as pa

        old = self._table.schema
        kind = pa.list_(pa.float32(), embedding.width)
        columns = [pa.field("vector", kind) if column.name == "vector" else column for column in old]
        metadata = {**(old.metadata or {}), MODEL_KEY: embedding.model.encode()}
        schema = _as_written(pa.schema(columns, metadata=metadata), embedding, self._path)
        target = ChunkTable(self._table, self._path, embedding)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self._batches([name for name in old.names if name != "vector"]):
                ids, texts = batch["id"].to_pylist(), batch["text"].to_pylist()
                found = [vector_of(i, t) if _ID.fullmatch(i or "") else None for i, t in zip(ids, texts, strict=True)]
                arrays = [target._vector_array(found, kind) if c.name == "vector" else batch[c.name] for c in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        folder = self._path.parent
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        base = lance.load().connect(str(folder))
        self._guarded(lambda: base.create_table(NAME, reader, schema=schema, mode="overwrite", on_bad_vectors="null"))
        return ChunkTable.open(folder)

    def _arrow(self, chunks: Sequence[Chunk], vectors: Sequence[NDArray[np.float32] | None]) -> pa.Table:
        import pyarrow as pa

        if len(chunks) != len(vectors):
            raise ValueError("one vector, or None, for each chunk")
        schema = self._table.schema
        values = dict(zip(_FIELDS, zip(*chunks, strict=True), strict=True))
        arrays = []
        for column in schema:
            if column.name == "vector":
                arrays.append(self._vector_array(vectors, column.type))
            elif column.name in _FIELDS:
                arrays.append(pa.array(values[column.name], column.type))
            else:
                arrays.append(pa.nulls(len(chunks), column.type))
        return pa.Table.from_arrays(arrays, schema=schema)

    def _vector_array(self, vectors: Sequence[NDArray[np.float32] | None], kind: Any) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        width = self.embedding.width
        matrix = np.zeros((len(vectors), width), np.float32)
        absent = np.zeros(len(vectors), bool)
        for place, vector in enumerate(vectors):
            if vector is None:
                absent[place] = True
            else:
                matrix[place] = vector
        values = pa.array(matrix.reshape(-1)).cast(kind.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=pa.array(absent) if absent.any() else None)

    def _batches(self, columns: Any, where: str | None = None) -> Iterator[pa.RecordBatch]:
        query = self._table.search().select(columns)
        if where is not None:
            query = query.where(where)
        try:
            yield from query.to_batches(batch_size=4096)
        except (OSError, ValueError, RuntimeError) as error:
            raise MemoryDamagedError(f"The table {self._path} cannot be read: {_first_line(error)}") from error

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except (OSError, ValueError, RuntimeError) as error:
            raise storage_error("The memory could not be written", error) from error


class _Feed:
    """Rows of one table as batches in the shape of another."""

    def __init__(self, source: ChunkTable, schema: pa.Schema, transfer: Transfer) -> None:
        self._source = source
        self._schema = schema
        self._transfer = transfer
        self._columns = [name for name in source.columns if name in set(schema.names)]
        if "vector" in self._columns and transfer.embed is not None:
            self._columns.remove("vector")
        self.rows = 0
        self.failure: FunesError | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            wanted = self._transfer.keys
            where: list[str | None] = [None]
            if len(wanted) <= _SOME:
                where = [_among(names) for names in _slices(f"{int(key):016x}" for key in wanted)]
            for condition in where:
                for batch in self._source._batches(list(dict.fromkeys(["id", "text", *self._columns])), condition):
                    fitted = self._fitted(batch)
                    if fitted is not None:
                        yield fitted
        except FunesError as error:
            self.failure = error
            raise
        except (TypeError, ValueError, NotImplementedError) as error:  # Arrow's, of types that do not fit
            self.failure = FunesError(f"The passages do not fit into that memory: {_first_line(error)}")
            raise self.failure from error

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        import numpy as np
        import pyarrow as pa

        keys = self._transfer.keys
        ids, texts = batch["id"].to_pylist(), batch["text"].to_pylist()
        own = np.fromiter((int(name, 16) if name and _ID.fullmatch(name) else 0 for name in ids), np.uint64, len(ids))
        at = np.searchsorted(keys, own)
        there = (at < len(keys)) & (keys[np.minimum(at, len(keys) - 1)] == own) if len(keys) else np.zeros(0, bool)
        go = [row for row in np.flatnonzero(there).tolist() if self._transfer.lets(ids[row], texts[row] or "")]
        if not go:
            return None
        batch = batch.take(pa.array(go, pa.int64()))
        arrays = []
        for column in self._schema:
            if column.name == "vector" and self._transfer.embed is not None:
                arrays.append(self._embedded([texts[row] or "" for row in go], column.type))
            elif column.name not in self._columns:
                arrays.append(pa.nulls(len(go), column.type))
            elif column.name == "identity" and self._transfer.blank:
                names = ["" if name in self._transfer.blank else name for name in batch["identity"].to_pylist()]
                arrays.append(pa.array(names, column.type))
            else:
                arrays.append(batch[column.name].cast(column.type))
        self.rows += len(go)
        if self._transfer.told is not None:
            self._transfer.told(self.rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _embedded(self, texts: list[str], kind: Any) -> pa.Array:
        import numpy as np
        import pyarrow as pa

        assert self._transfer.embed is not None
        matrix = np.asarray(self._transfer.embed(texts), np.float32)
        return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)).cast(kind.value_type), type=kind)


def _chunks(batch: pa.RecordBatch, names: Sequence[str]) -> list[Chunk]:
    """Rows as chunks; columns that the table lacks, and nulls where text is due, become "" or None."""
    have = dict.fromkeys(names)
    size = batch.num_rows
    values: list[list[Any]] = []
    for name in _FIELDS:
        if name not in have:
            empty: Any = None if name in _NULLABLE else 0 if name in _INTEGERS else ""
            values.append([empty] * size)
            continue
        column = batch[name].to_pylist()
        if name in _INTEGERS:
            values.append([int(value or 0) for value in column])
        elif name in _NULLABLE:
            values.append(column)
        else:
            values.append([value or "" for value in column])
    return [Chunk(*row) for row in zip(*values, strict=True) if _ID.fullmatch(row[0])]


def _among(ids: Sequence[str]) -> str:
    for name in ids:
        if not _ID.fullmatch(name):
            raise FunesError(f"{name!r} is no chunk id.")
    return "id in (" + ", ".join(f"'{name}'" for name in ids) + ")"


def _slices(ids: Iterable[str]) -> Iterator[list[str]]:
    wanted = list(ids)
    for start in range(0, len(wanted), _IDS_AT_ONCE):
        yield wanted[start : start + _IDS_AT_ONCE]


def _scattered(path: Path) -> bool:
    with suppress(OSError):
        sizes = [entry.stat().st_size for entry in (path / "data").iterdir()]
        return len(sizes) > _FRAGMENTS + sum(sizes) // _BYTES_A_FRAGMENT
    return False


def _entries(folder: Path) -> int:
    with suppress(OSError):
        return sum(1 for _ in folder.iterdir())
    return 0


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
