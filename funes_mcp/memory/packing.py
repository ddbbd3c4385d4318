"""Rows in few bytes: what the word index stores beside its words, so that reading needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from funes_mcp.errors import DerivedDamagedError
from funes_mcp.home import write_private
from funes_mcp.memory.model import Chunk, Passage

#: How much of each neighbouring chunk goes into `words`, in code points. On LoCoMo (997 questions, words alone)
#: hit@1 is 67.4 with none, 71.0 with 100, 72.4 with 200, 72.0 with 300; on commit messages asked of the sessions that
#: led to them it falls from 10.7 to 7.1 between 200 and 300. In a field of their own, whatever its weight,
#: neighbours give 70.8 at best on LoCoMo.
NEAR: Final = 200

_COMMON: Final = (
    "session_id",
    "workdir",
    "source_path",
    "harness",
    "repo",
    "cwd",
    "branch",
    "commit",
    "parent_session_id",
    "agent_name",
)
_OWN: Final = tuple(name for name in Chunk._fields if name != "id" and name not in _COMMON)
_COMMON_OF: Final = attrgetter(*_COMMON)
_OWN_OF: Final = attrgetter(*_OWN)
_DICTIONARY: Final = "rows.dict"
_DICTIONARY_SIZE: Final = 112_000
_SAMPLES: Final = 2_000
_LEVEL: Final = 3


class Entry(NamedTuple):
    """A chunk to index, with the texts of the chunks before and after it in its session ("" for none).

    Attributes:
        names: What `terms.Names.joined` gives for its text; None when nobody found out yet.
    """

    chunk: Chunk
    before: str = ""
    after: str = ""
    names: tuple[str, str] | None = None

    @property
    def near(self) -> tuple[str, str]:
        """What of its neighbours is indexed with a chunk: the end of the one before, the beginning of the next."""
        return self.before[-NEAR:], self.after[:NEAR]


class Packer:
    """Rows in few bytes, and back.

    What rows of a session have in common is stored beside the rest, as it is: tantivy compresses neighbouring
    documents together. The rest is compressed row by row, once there are enough rows to train a dictionary on.
    Not for use in several threads at once.
    """

    def __init__(self, folder: Path, dictionary: Any = None) -> None:
        """With `dictionary`, a `zstandard.ZstdCompressionDict`, in place of the one in `folder`."""
        import zstandard

        self._zstd = zstandard
        self._path = folder / _DICTIONARY
        self._compressor: Any = None
        self._plain = zstandard.ZstdDecompressor()
        self._trained: Any = None
        self._dictionary: Any = None
        self._last: tuple[Any, bytes] = (None, b"")
        if dictionary is None:
            self._load()
        else:
            self._use(dictionary)

    @property
    def dictionary(self) -> Any:
        """What rows are compressed with, to be given to other packers; None until there is one."""
        return self._dictionary

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except OSError:
            return
        try:
            self._use(self._zstd.ZstdCompressionDict(data))
        except (ValueError, self._zstd.ZstdError) as error:
            raise DerivedDamagedError(self._path.parent, f"{_DICTIONARY} cannot be read") from error

    def _use(self, dictionary: Any) -> None:
        self._dictionary = dictionary
        self._compressor = None
        self._trained = self._zstd.ZstdDecompressor(dict_data=dictionary)

    def train(self, entries: Sequence[Entry]) -> None:
        """Make the dictionary, when there is none yet and there are enough rows to learn from."""
        if self._trained is not None or len(entries) < _SAMPLES:
            return
        step = len(entries) // _SAMPLES
        samples: list[bytes | bytearray | memoryview] = [_own_part(entry) for entry in entries[::step][:_SAMPLES]]
        try:
            dictionary = self._zstd.train_dictionary(_DICTIONARY_SIZE, samples)
        except self._zstd.ZstdError:  # too little in the samples to learn from
            return
        write_private(self._path, dictionary.as_bytes())
        self._load()

    def pack(self, entry: Entry) -> tuple[bytes, bytes]:
        """What is common to the session's rows, and the rest with the neighbours' words."""
        import orjson

        values = _COMMON_OF(entry.chunk)
        if values != self._last[0]:
            self._last = (values, orjson.dumps(values))
        if self._compressor is None:
            self._compressor = self._zstd.ZstdCompressor(level=_LEVEL, dict_data=self._dictionary)
        return self._last[1], self._compressor.compress(_own_part(entry))

    def unpack(self, key: int, common: bytes, own: bytes) -> Passage:
        """What `pack` was given. Raises `DerivedDamagedError` when it cannot be read."""
        import orjson

        try:
            if self._trained is None and self._zstd.get_frame_parameters(own).dict_id:
                self._load()
            decompressor = self._plain if self._trained is None else self._trained
            *own_values, before, after = orjson.loads(decompressor.decompress(own))
            values = dict(zip(_OWN, own_values, strict=True))
            values.update(zip(_COMMON, orjson.loads(common), strict=True))
            return Passage(Chunk(f"{key:016x}", **values), before, after)
        except (ValueError, TypeError, self._zstd.ZstdError) as error:
            raise DerivedDamagedError(self._path.parent, "a row of it cannot be read") from error


def _own_part(entry: Entry) -> bytes:
    import orjson

    return orjson.dumps((*_OWN_OF(entry.chunk), *entry.near))
