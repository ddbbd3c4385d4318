"""Rows of a table that somebody else made, held to what our indexes and our lines can bear.

A row that cannot be one of a memory (an id that is none, no text, absurd sizes) is refused and counted. What stands
beside the text is put right or left out: nothing of it reaches a heading or a command line as it came. Texts stay word
for word; `render` keeps them apart from our own lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from funes_mcp.errors import MemoryDamagedError
from funes_mcp.memory.chunk import munge
from funes_mcp.memory.model import CONTRACT_COLUMNS, OWN_COLUMNS, Chunk, Embedding
from funes_mcp.memory.table import ChunkTable, RowPlace
from funes_mcp.traces.model import BLOCK_TYPES, FLAGS, BlockType

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
    from numpy.typing import NDArray

#: Bytes of a text. Ours have 4,800 at most (1,200 code points); other programs may cut less.
MOST_TEXT: Final = 400_000

#: A session is read whole to show a turn of it. The largest seen in practice has some 20,000 rows.
MOST_SESSION_ROWS: Final = 200_000
MOST_SESSION_BYTES: Final = 256 << 20

#: Bytes of all texts together. Columns that repeat a value take no room in the files, and much in an index.
MOST_BYTES: Final = 40 << 30

#: Numbers of a vector; those of embedding models have up to 4,096. And of all vectors together, a byte each here.
MOST_WIDTH: Final = 8_192
MOST_NUMBERS: Final = 20 << 30

_NEEDED: Final = ("id", "text", "session_id", "turn_uuid")
_INTEGERS: Final = ("seq", "block_idx", "split_idx")
_PLACE: Final = ("id", "session_id", "turn_uuid", "seq", "ts", "block_idx", "split_idx")
_LARGEST_SEQ: Final = 1 << 40
_LARGEST_INDEX: Final = 1 << 31

_ID: Final = re.compile(r"[0-9a-f]{16}")
#: Ids of sessions and turns stand in command lines: none is an option, and none needs more than a shell's quotes.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@+=~\[\]-]{0,127}")
_TS: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_REPOS: Final = re.compile(r"[A-Za-z0-9._/-]+(?: [A-Za-z0-9._/-]+)*")
_HIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


class ForeignTable:
    """The rows of a table as the derived indexes take them; see `derived.Rows`.

    Args:
        table: The table, opened.
        pulse: Called now and then while rows are read.

    Raises:
        MemoryDamagedError: It is no memory, or larger than any memory is.
    """

    def __init__(self, table: ChunkTable, pulse: Callable[[], None] = lambda: None) -> None:
        self._table = table
        self._pulse = pulse
        self._accepted: set[int] | None = None
        self.refused: Counter[str] = Counter()
        schema = table.schema
        kinds = {name: schema.field(name).type for name in schema.names if schema.names.count(name) == 1}
        for name in _NEEDED:
            if name not in kinds or not _is_text(kinds[name]):
                held = f"holds {str(kinds[name])[:60]}, not text" if name in kinds else "is missing"
                raise MemoryDamagedError(f"This is no memory: its column `{name}` {held}.")
        wanted = [name for name in (*CONTRACT_COLUMNS, *OWN_COLUMNS) if name != "vector"]
        self._columns = [name for name in wanted if name in kinds and _fits(name, kinds[name])]
        self.lacking = [name for name in wanted if name not in self._columns]
        self.embedding = self._stamp(kinds.get("vector"))
        if not self.embedding.width:
            self.lacking.append("vector")

    def _stamp(self, kind: Any) -> Embedding:
        stamp = self._table.embedding
        if not stamp.width or not _MODEL.fullmatch(stamp.model) or not _is_vector(kind):
            return Embedding("", 0)  # vectors that nobody can compare with anything
        if stamp.width > MOST_WIDTH or stamp.width * self._table.rows > MOST_NUMBERS:
            raise MemoryDamagedError(
                f"This memory is not read: {self._table.rows:,} vectors of {stamp.width:,} numbers are too much."
            )
        return stamp

    def places(self) -> Iterator[RowPlace]:
        """Where every row stands that is not refused; `refused` then says how many are, and why."""
        self.refused = Counter()
        accepted: set[int] = set()
        sizes: dict[str, list[int]] = {}
        total = 0
        names = [name for name in _PLACE if name in self._columns]
        columns = {name: name for name in names} | {"bytes": "octet_length(cast(text as string))"}
        for batch in self._batches(columns):
            have = {name: _values(batch[name]) for name in names}
            nothing: list[Any] = [None] * batch.num_rows
            rows = zip(*(have.get(name, nothing) for name in _PLACE), batch["bytes"].to_pylist(), strict=True)
            for identity, session, turn, seq, ts, block, split, size in rows:
                why = _trouble(identity, session, turn, seq or 0, block or 0, split or 0, size)
                key = 0 if why else int(identity, 16)
                if not why and key in accepted:
                    why = "an id that another row has"
                if not why:
                    held = sizes.setdefault(session, [0, 0])
                    held[0] += 1
                    held[1] += size
                    if held[0] > MOST_SESSION_ROWS or held[1] > MOST_SESSION_BYTES:
                        why = "in a session that is too large"
                if why:
                    self.refused[why] += 1
                    continue
                total += size
                accepted.add(key)
                yield RowPlace(key, session, seq or 0, _ts(ts), turn, block or 0, split or 0)
            if total > MOST_BYTES:
                raise MemoryDamagedError(f"This memory is not read: its texts have more than {MOST_BYTES >> 30} GiB.")
        self._accepted = accepted

    def stream(self, ids: Iterable[str] | None = None) -> Iterator[list[Chunk]]:
        """The accepted rows, or those of them with the given ids, some thousands at a time."""
        accepted = self._known()
        seen: set[int] = set()
        for batch in self._batches(self._columns, ids):
            have = {name: _values(batch[name]) for name in self._columns}
            size = batch.num_rows
            nothing: list[Any] = [None] * size
            columns = [have.get(name, nothing) for name in _FIELDS]
            chunks = []
            for row in zip(*columns, strict=True):
                name, text = row[0], row[1]
                if not isinstance(name, str) or not _ID.fullmatch(name):
                    continue
                key = int(name, 16)
                if key not in accepted or key in seen:
                    continue
                seen.add(key)
                if not isinstance(text, str):
                    self.refused["a text that is not UTF-8"] += 1
                    continue
                chunks.append(_chunk(row))
            yield chunks

    def ids(self) -> dict[str, bool]:
        """The ids of the accepted rows, and whether each has a vector."""
        accepted = self._known()
        columns = {"id": "id"}
        if self.embedding.width:
            columns["filled"] = "vector is not null"
        found: dict[str, bool] = {}
        for batch in self._batches(columns):
            filled = batch["filled"].to_pylist() if "filled" in columns else [False] * batch.num_rows
            for name, full in zip(_values(batch["id"]), filled, strict=True):
                if isinstance(name, str) and _ID.fullmatch(name) and int(name, 16) in accepted:
                    found.setdefault(name, bool(full))
        return found

    def vectors(self, ids: Iterable[str] | None = None) -> Iterator[tuple[list[str], NDArray[np.float32]]]:
        """The vectors of unit length that can be made of those stored; without those that cannot (NaN, zeros)."""
        import numpy as np

        accepted = self._known()
        seen: set[str] = set()
        for names, matrix in self._table.vectors(ids):
            self._pulse()
            with np.errstate(all="ignore"):
                wide = matrix.astype(np.float64)
                size = np.linalg.norm(wide, axis=1)
                good = np.isfinite(size) & (size > 0)
                unit = (wide / np.where(good, size, 1.0)[:, None]).astype(np.float32)
            for place, name in enumerate(names):
                known = bool(name and _ID.fullmatch(name)) and int(name, 16) in accepted and name not in seen
                good[place] &= known
                seen.add(name)
            kept = np.flatnonzero(good)
            yield [names[place] for place in kept], unit[kept]

    def _known(self) -> set[int]:
        if self._accepted is None:
            for _ in self.places():
                pass
        assert self._accepted is not None
        return self._accepted

    def _batches(self, columns: Any, ids: Iterable[str] | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self._table.batches(columns, ids):
            self._pulse()
            yield batch


def _trouble(identity: Any, session: Any, turn: Any, seq: int, block: int, split: int, size: int | None) -> str:
    """Why a row cannot be one of a memory; "" when it can."""
    if not isinstance(identity, str) or not _ID.fullmatch(identity):
        return "an id that is none"
    if not isinstance(session, str) or not _NAME.fullmatch(session):
        return "a session id that is none"
    if not isinstance(turn, str) or not _NAME.fullmatch(turn):
        return "a turn id that is none"
    if not (0 <= seq < _LARGEST_SEQ and 0 <= block < _LARGEST_INDEX and 0 <= split < _LARGEST_INDEX):
        return "a position that is none"
    if not size:
        return "no text"
    return f"a text over {MOST_TEXT // 1000} kB" if size > MOST_TEXT else ""


_FIELDS: Final = tuple(name for name in (*CONTRACT_COLUMNS, *OWN_COLUMNS) if name != "vector")


def _chunk(row: Sequence[Any]) -> Chunk:
    """An accepted row; everything but its text and ids is cleaned."""
    have = dict(zip(_FIELDS, row, strict=True))
    kind = have["block_type"]
    identity = have["identity"]
    return Chunk(
        id=have["id"],
        text=have["text"],
        session_id=have["session_id"],
        workdir=_workdir(have["workdir"]),
        turn_uuid=have["turn_uuid"],
        parent_uuid=_name(have["parent_uuid"]),
        seq=have["seq"] or 0,
        ts=_ts(have["ts"]),
        role=_word(have["role"]) or "unknown",
        block_type=cast(BlockType, kind if kind in BLOCK_TYPES else "text"),
        tool_name=_line(have["tool_name"], 200),
        source_path=_line(have["source_path"], 1_000) or "",
        block_idx=have["block_idx"] or 0,
        split_idx=have["split_idx"] or 0,
        harness=_word(have["harness"]),
        repo=_repo(have["repo"]),
        message_id=_line(have["message_id"], 200),
        cwd=_line(have["cwd"], 1_000),
        branch=_line(have["branch"], 200),
        commit=_word(have["commit"]) or None,
        parent_session_id=_name(have["parent_session_id"]),
        agent_name=_line(have["agent_name"], 200),
        flags=_flags(have["flags"]),
        identity=identity if isinstance(identity, str) and _ID.fullmatch(identity) else "",
    )


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def _ts(value: Any) -> str:
    return value if isinstance(value, str) and _TS.fullmatch(value) else ""


@lru_cache(4096)
def _word(value: str | None) -> str:
    return value if value and _WORD.fullmatch(value) else ""


@lru_cache(4096)
def _workdir(value: str | None) -> str:
    return munge((value or "")[:300])


@lru_cache(4096)
def _repo(value: str | None) -> str:
    return value if value and len(value) <= 1_000 and _REPOS.fullmatch(value) else ""


@lru_cache(4096)
def _flags(value: str | None) -> str:
    return " ".join(sorted({word for word in (value or "")[:1_000].split() if word in FLAGS}))


@lru_cache(4096)
def _line(value: str | None, most: int) -> str | None:
    """A text of one line, without what hides or turns it round."""
    return None if value is None else _HIDDEN.sub("", value[:most]).strip() or None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _fits(name: str, kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind)) if name in _INTEGERS else _is_text(kind)


def _is_vector(kind: Any) -> bool:
    import pyarrow as pa

    return kind is not None and bool(pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type))


def _values(column: Any) -> list[Any]:
    """A column as Python values; text that is not UTF-8 becomes None."""
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist()
        return values
    except UnicodeDecodeError:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return [_decoded(value) for value in column.cast(pa.large_binary()).to_pylist()]


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None
