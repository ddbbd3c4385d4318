"""JSON lines as agents leave them: growing, torn, huge, compressed. Read in constant memory, and resumed.

Reading is split in two. `RecordStream` turns bytes into records and knows nothing of agents; a
`RecordParser` turns records into turns and knows nothing of files. `JsonlReader` joins them.

What is read does not depend on when it is read: any sequence of readings, each going on from the cursor of
the one before, gives the same turns and (added up) the same account as one reading of the whole file. Three
rules make that so.

- A record is taken as soon as its closing brace is there, newline or not: nothing that may follow can change
  a JSON object. The cursor then stands behind the brace. Anything else needs its newline.
- A last line that is neither is left for later. It is counted as unfinished, and the next reading takes that
  count back before it looks at the line again.
- Whether a record is over the size cap depends on the record alone, not on the line that it shares.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Protocol, cast

import orjson

from funes_mcp.traces.model import Cursor, Event, Source, Tally
from funes_mcp.traces.text import clean_tree

#: Records of at most so many bytes are read as they stand.
RECORD_CAP: Final = 10 * 1024 * 1024
#: Of a longer record, each string is cut to so many bytes.
STRING_KEEP: Final = 256 * 1024
#: In a longer record, a string of at least so many bytes that looks like base64 is left out altogether.
PAYLOAD_MIN: Final = 4 * 1024

_CHUNK: Final = 1024 * 1024
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n\x0b\x0c\0"

#: A prefix up to this long is hashed whole, a longer one at its ends and in windows between.
_DIGEST_WHOLE: Final = 64 * 1024 * 1024
_DIGEST_WINDOW: Final = 256 * 1024
_DIGEST_WINDOWS: Final = 64

# Reasons that stand in `Tally.skipped` for lines that are no records.
BLANK = "blank"
TORN = "torn line"
NO_OBJECT = "not a JSON object"
OVERSIZE = "over the size cap"
UNFINISHED = "unfinished last line"
DAMAGED = "damaged compression"


class RecordParser(Protocol):
    """Turns the records of one source into events. Pure: it sees records, and its own earlier state.

    It counts each record that it is fed exactly once, in the tally that it was made with: as kept, skipped
    with a reason, or unknown. Parts of records are counted under `Tally.parts`. A turn that it has given
    never changes because of later records, and its state stays small however long the source is.
    """

    def feed(self, record: dict[str, Any], trimmed: bool) -> Iterable[Event]:
        """Take the next record. `trimmed` says that it was over the size cap and strings in it were cut."""
        ...

    def end(self) -> Iterable[Event]:
        """What is left to say at the end of this reading (a `SessionInfo`; never a turn)."""
        ...

    def state(self) -> dict[str, Any]:
        """All that the parser has to know to go on: JSON-able and bounded."""
        ...


class Item(NamedTuple):
    """What a `RecordStream` met: a record, or a line (piece) that is none, with the reason.

    `trimmed` is True when strings of the record were cut; payloads left out do not count.
    """

    record: dict[str, Any] | None
    reason: str = ""
    trimmed: bool = False


def loads(data: bytes) -> Any:
    """One JSON value, as tolerantly as is safe. Raises `ValueError` for anything that is none.

    Beyond what the standard allows it takes invalid UTF-8 (U+FFFD), lone surrogate escapes (U+FFFD), raw
    control characters in strings, and `NaN`.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return clean_tree(json.loads(data.decode("utf-8", "replace"), strict=False))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def _close_of_string(data: bytes, start: int) -> int:
    """Index of the quote that ends the string whose content begins at `start`, or -1."""
    while True:
        quote = data.find(b'"', start)
        if quote < 0:
            return -1
        slash = quote
        while slash > start and data[slash - 1] == 0x5C:
            slash -= 1
        if (quote - slash) % 2 == 0:
            return quote
        start = quote + 1


_STRUCTURE: Final = re.compile(rb'["{}]')
_STRIDE: Final = 4096


def _skip_structure(data: bytes, at: int, depth: int) -> tuple[int, int]:
    """How far one can go from `at`, outside a string, and the depth there, without leaving the object.

    Looks at 4 KiB at once, and leaves the rest to its callers: strings with escapes, strings that are longer,
    and the last closing brace. Returns `at` itself where it is of no help.
    """
    window = data[at : at + _STRIDE]
    if b"\\" in window:
        return at, depth
    parts = window.split(b'"')
    if len(parts) % 2 == 0:  # it ends within a string: stop before that
        window = window[: -len(parts.pop()) - 1]
    outside = b"".join(parts[::2])
    closed = outside.count(b"}")
    if closed >= depth:
        return at, depth
    return at + len(window), depth + outside.count(b"{") - closed


def object_end(data: bytes) -> int:
    """Length of the JSON object that `data` begins with, by its balanced braces; -1 if it does not end."""
    if not data.startswith(b"{"):
        return -1
    depth = 0
    at = 0
    while True:
        at, depth = _skip_structure(data, at, depth)
        match = _STRUCTURE.search(data, at)
        if match is None:
            return -1
        at = match.end()
        byte = data[at - 1]
        if byte == 0x22:
            at = _close_of_string(data, at) + 1
            if at == 0:
                return -1
        elif byte == 0x7B:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return at


_FIRST_KEY: Final = re.compile(rb'\{"[A-Za-z_]{1,40}":')
_SALVAGE_TRIES: Final = 16


def _salvage(data: bytes) -> int:
    """Where a whole record begins behind a torn one on the same line, up to the line's end; -1 if nowhere.

    A killed writer leaves half a record without a newline, and the next one appends to it. An object inside
    the torn record must not be taken for one: a record begins with the key that the torn one begins with,
    has a time, and says whose it is.
    """
    first = _FIRST_KEY.match(data)
    if first is None:
        return -1
    at = 0
    for _ in range(_SALVAGE_TRIES):
        at = data.find(first[0], at + 1)
        if at < 0:
            break
        try:
            value = loads(data[at:])
        except ValueError:
            continue
        if isinstance(value, dict) and "timestamp" in value and not value.keys().isdisjoint(_OWNERS):
            return at
    return -1


_OWNERS: Final = frozenset({"sessionId", "payload", "id"})


class _Slimmer:
    """Follows one JSON object over the cap through any number of chunks and keeps a small version of it.

    Strings over `keep` bytes are cut, and long base64 is left out, so that the words beside a 30 MB image
    survive. `overflow` says that even so it grew over the cap and only its end was looked for.
    """

    def __init__(self, cap: int, keep: int, payload_min: int) -> None:
        self._cap, self._keep, self._payload_min = cap, keep, payload_min
        self.out = bytearray()
        self.trimmed = False
        self.overflow = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._head = bytearray()
        self._length = 0

    def feed(self, data: bytes) -> int:
        """Take more bytes of the line. Returns how many belong to the object once it ends, else -1."""
        at = 0
        while at < len(data):
            if self._in_string:
                at = self._string(data, at)
                continue
            end, self._depth = _skip_structure(data, at, self._depth)
            if end > at:
                self._emit(data[at:end])
                at = end
                continue
            match = _STRUCTURE.search(data, at)
            end = len(data) if match is None else match.end()
            self._emit(data[at:end])
            at = end
            if match is None:
                break
            byte = data[end - 1]
            if byte == 0x22:
                self._in_string, self._escaped = True, False
                self._head.clear()
                self._length = 0
            elif byte == 0x7B:
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return at
        return -1

    def _string(self, data: bytes, at: int) -> int:
        begin = at
        if self._escaped:  # the byte behind a backslash at the end of the chunk before
            self._escaped = False
            at += 1
        quote = _close_of_string(data, at)
        end = len(data) if quote < 0 else quote
        self._length += end - begin
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[begin : min(end, begin + room)]
        if quote < 0:
            slash = end
            while slash > at and data[slash - 1] == 0x5C:
                slash -= 1
            self._escaped = (end - slash) % 2 == 1
            return end
        self._in_string = False
        self._emit(self._shortened() + b'"')
        return quote + 1

    def _shortened(self) -> bytes:
        head = bytes(self._head)
        if self._length >= self._payload_min and _is_payload(head[: self._payload_min]):
            comma = head.find(b";base64,", 0, 256)
            return head[: comma + 8 if comma >= 0 else 0] + b"[base64: %d bytes left out]" % self._length
        if self._length <= len(head):
            return head
        self.trimmed = True
        return _cut_string(head) + b" [%d bytes left out]" % (self._length - len(head))

    def _emit(self, data: bytes) -> None:
        if self.overflow:
            return
        self.out += data
        if len(self.out) > self._cap:
            self.overflow = True
            self.out.clear()


_BASE64_BYTES: Final = re.compile(rb"(?:data:[\w.+/;=-]{1,200},)?(?:[A-Za-z0-9+/_=-]|\\r|\\n|\\/){256,}")


def _is_payload(head: bytes) -> bool:
    match = _BASE64_BYTES.match(head)
    return match is not None and match.end() > len(head) * 0.9 and len(set(head)) >= 24


def _cut_string(head: bytes) -> bytes:
    """The beginning of a string's source, cut where no escape and no character is cut in two."""
    backslash = head.rfind(b"\\", max(0, len(head) - 12))
    if backslash >= 0:
        while backslash > 0 and head[backslash - 1] in b"\\":
            backslash -= 1
        head = head[:backslash]
    return head.decode("utf-8", "ignore").encode()


class RecordStream:
    """The records of a byte stream, one by one, in constant memory.

    Args:
        file: What to read, at `offset`.
        offset: Bytes of the stream before the first one read; only counted on.
        inside_line: Whether `offset` stands behind a record on whose line more may follow.
        cap: Records over so many bytes are slimmed (`_Slimmer`).
        keep: To what length strings of slimmed records are cut.
    """

    def __init__(
        self,
        file: BinaryIO,
        offset: int = 0,
        inside_line: bool = False,
        *,
        cap: int = RECORD_CAP,
        keep: int = STRING_KEEP,
        payload_min: int = PAYLOAD_MIN,
        chunk: int = _CHUNK,
    ) -> None:
        self._file = file
        self._cap, self._keep, self._payload_min, self._chunk = cap, keep, payload_min, chunk
        self._data = b""
        self._at = 0
        self._ended = False
        #: Offset behind all that has been taken in.
        self.consumed = offset
        #: Whether `consumed` stands behind a record and not behind a newline.
        self.inside_line = inside_line
        #: Whether bytes of an unfinished last line remain. Valid at the end.
        self.unfinished = False

    def __iter__(self) -> Iterator[Item]:
        while True:
            newline = self._data.find(b"\n", self._at)
            if newline < 0:
                if len(self._data) - self._at > self._cap:
                    yield from self._long_line()
                    if self.unfinished:
                        return
                elif not self._fill():
                    yield from self._tail()
                    return
                continue
            if newline - self._at > self._cap:
                yield from self._long_line()
                continue
            yield from self._line(self._data[self._at : newline])
            self._take(newline + 1 - self._at, inside_line=False)

    def _fill(self) -> bool:
        """Read on. False at the end of the stream."""
        more = b"" if self._ended else self._file.read(self._chunk)
        if not more:
            self._ended = True
            return False
        self._data = self._data[self._at :] + more if self._at < len(self._data) else more
        self._at = 0
        return True

    def _take(self, count: int, inside_line: bool) -> None:
        self._at += count
        self.consumed += count
        self.inside_line = inside_line

    def _line(self, line: bytes) -> Iterator[Item]:
        """A line (or the rest of one) of at most the cap, whose newline is there."""
        rest = _stripped(line)
        if not rest:
            if not self.inside_line:
                yield Item(None, BLANK)
            return
        while rest:
            try:
                value = loads(rest)
            except ValueError:
                pass
            else:
                yield Item(value) if isinstance(value, dict) else Item(None, NO_OBJECT)
                return
            first = _first_object(rest)
            if first is not None:
                record, length = first
                yield Item(record)
                rest = _stripped(rest[length:])
                continue
            yield Item(None, TORN)
            whole = _salvage(rest)
            if whole < 0:
                return
            rest = rest[whole:]

    def _tail(self) -> Iterator[Item]:
        """What stands behind the last newline, at most the cap long, at the end of the stream."""
        while True:
            rest = self._data[self._at :]
            body = _stripped(rest)
            if not body:
                return
            first = _first_object(body)
            if first is None:
                self.unfinished = True
                return
            record, length = first
            self._take(rest.index(body) + length, inside_line=True)
            yield Item(record)

    def _long_line(self) -> Iterator[Item]:
        """Take one object, or all of a line that has none, from a line longer than the cap."""
        self._skip_blank()
        if self._at >= len(self._data) and not self._fill():
            return
        if self._data[self._at] != 0x7B:
            if self._data[self._at] == 0x0A:
                return
            yield from self._rest_of_line(TORN)
            return
        newline = self._data.find(b"\n", self._at)
        end = len(self._data) if newline < 0 else newline
        if end - self._at <= self._cap:
            return  # blanks made it long, or there is more to read
        first = _first_object(self._data[self._at : self._at + self._cap])
        if first is not None:
            record, length = first
            self._take(length, inside_line=True)
            yield Item(record)
            return
        yield from self._long_object()

    def _long_object(self) -> Iterator[Item]:
        slimmer = _Slimmer(self._cap, self._keep, self._payload_min)
        passed = 0  # bytes of the object seen and no longer in the buffer
        while True:
            newline = self._data.find(b"\n", self._at)
            end = len(self._data) if newline < 0 else newline
            length = slimmer.feed(self._data[self._at : end])
            if length >= 0:
                self._at += length
                self.consumed += passed + length
                self.inside_line = True
                yield self._slimmed(slimmer)
                return
            passed += end - self._at
            self._at = end
            if newline >= 0:
                self._at = newline + 1
                self.consumed += passed + 1
                self.inside_line = False
                yield Item(None, TORN)
                return
            if not self._fill():
                self.unfinished = True
                return

    def _slimmed(self, slimmer: _Slimmer) -> Item:
        if slimmer.overflow:
            return Item(None, OVERSIZE)
        try:
            record = loads(bytes(slimmer.out))
        except ValueError:
            return Item(None, TORN)
        return Item(record, trimmed=slimmer.trimmed)

    def _rest_of_line(self, reason: str) -> Iterator[Item]:
        """Pass over a line that is no record, however long, without keeping it."""
        passed = 0
        while True:
            newline = self._data.find(b"\n", self._at)
            if newline >= 0:
                passed += newline + 1 - self._at
                self._at = newline + 1
                self.consumed += passed
                self.inside_line = False
                yield Item(None, reason)
                return
            passed += len(self._data) - self._at
            self._at = len(self._data)
            if not self._fill():
                self.unfinished = True
                return

    def _skip_blank(self) -> None:
        """Go to the first byte that is not blank, or to the newline."""
        while True:
            match = _NOT_BLANK.search(self._data, self._at)
            if match is not None:
                self._take(match.start() - self._at, self.inside_line)
                if not self._data.startswith(_BOM, self._at):
                    return
                self._take(len(_BOM), self.inside_line)
                continue
            self._take(len(self._data) - self._at, self.inside_line)
            if not self._fill():
                return


_NOT_BLANK: Final = re.compile(rb"[^ \t\r\x0b\x0c\0]")


def _stripped(line: bytes) -> bytes:
    """Without blanks and NUL at the ends, and without byte order marks at the beginning."""
    line = line.strip(_BLANK)
    while line.startswith(_BOM):
        line = line[3:].lstrip(_BLANK)
    return line


def _first_object(data: bytes) -> tuple[dict[str, Any], int] | None:
    """The JSON object that `data` begins with, and its length."""
    end = object_end(data)
    if end < 0:
        return None
    try:
        value = loads(data[:end])
    except ValueError:
        return None
    return (value, end) if isinstance(value, dict) else None


_LONGEST_ZSTD_HEADER: Final = 18
_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)


def frames_end(file: BinaryIO) -> bool:
    """Whether the last of a zstd file's frames is all there, by their headers and those of their blocks.

    Reads on from wherever the file stands, and leaves it there.
    """
    import zstandard

    stood, at = file.tell(), 0
    size = file.seek(0, os.SEEK_END)
    try:
        while at < size:
            file.seek(at)
            head = file.read(_LONGEST_ZSTD_HEADER)
            if len(head) >= 8 and int.from_bytes(head[:4], "little") in _SKIPPABLE:
                at += 8 + int.from_bytes(head[4:8], "little")
                continue
            at += zstandard.frame_header_size(head)
            checked = zstandard.get_frame_parameters(head).has_checksum
            last = False
            while not last:
                file.seek(at)
                block = file.read(3)
                if len(block) < 3:
                    return False
                bits = int.from_bytes(block, "little")
                last, repeated = bool(bits & 1), bits >> 1 & 3 == 1
                at += 3 + (1 if repeated else bits >> 3)
            at += 4 * checked
        return at == size
    except zstandard.ZstdError:
        return False
    finally:
        file.seek(stood)


class _Zstd:
    """The bytes in a `.zst` file, as a file. Damage ends them, and is remembered."""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard

        self._file = file
        self._error = zstandard.ZstdError
        self._reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        self._at = 0
        self.damaged = False

    def read(self, size: int) -> bytes:
        if self.damaged:
            return b""
        try:
            data = self._reader.read1(size)  # `read` would lose what precedes damage
        except self._error:
            self.damaged = True
            return b""
        if not data and size:
            self.damaged = not frames_end(self._file)  # a frame that is cut short is no error to the library
        self._at += len(data)
        return data

    def seek(self, offset: int) -> None:
        """Go forward to `offset` of the decompressed bytes, or to their end."""
        while self._at < offset and self.read(min(offset - self._at, _CHUNK)):
            pass

    def __enter__(self) -> _Zstd:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def open_stream(path: Path) -> BinaryIO:
    """Open a transcript for reading, decompressing zstd, which its first bytes tell. Raises `OSError`.

    Of what it gives, only `read`, `seek` forward to an offset and the context manager can be relied on.
    """
    file = path.open("rb")
    try:
        magic = file.read(4)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return cast(BinaryIO, _Zstd(file)) if magic == _ZSTD_MAGIC else file


def prefix_digest(path: Path, length: int) -> str:
    """A digest of the first `length` bytes of what a file holds (decompressed); "" if it holds fewer.

    Up to 64 MiB all bytes are hashed; of a longer prefix its length, its first and last 8 MiB, and 64 even
    windows of 256 KiB between, so that the cost has a bound. Raises `OSError`.
    """
    digest = hashlib.blake2b(digest_size=16)
    with open_stream(path) as file:
        at = 0
        for start, end in _windows(length):
            if start > at:
                file.seek(start)
                at = start
            while at < end:
                data = file.read(min(_CHUNK, end - at))
                if not data:
                    return ""
                digest.update(data)
                at += len(data)
    return f"{length:x}-{digest.hexdigest()}"


def _windows(length: int) -> list[tuple[int, int]]:
    if length <= _DIGEST_WHOLE:
        return [(0, length)]
    ends = _DIGEST_WINDOW * 32
    stride = (length - 2 * ends) // _DIGEST_WINDOWS
    between = [(ends + i * stride, ends + i * stride + _DIGEST_WINDOW) for i in range(_DIGEST_WINDOWS)]
    return [(0, ends), *between, (length - ends, length)]


Change = Literal["unchanged", "appended", "rewritten"]


def change_of(path: Path, cursor: Cursor) -> Change:
    """What happened to a file since `cursor` was taken, by its content and not by its times.

    `appended` also when only an unfinished last line stands behind the cursor. Raises `OSError`.
    """
    if prefix_digest(path, cursor.offset) != cursor.digest:
        return "rewritten"
    with open_stream(path) as file:
        file.seek(cursor.offset)
        return "appended" if file.read(1) else "unchanged"


@dataclass(frozen=True, slots=True)
class _Saved:
    """`Cursor.state` of a `JsonlReader`.

    Attributes:
        version: Of the parser. Another one means that the source is read again from the beginning.
        inside_line: See `RecordStream`.
        open: The reason under which the end of the file was counted as not yet readable, or "".
        parser: The parser's own state.
    """

    version: int
    inside_line: bool
    open: str
    parser: dict[str, Any] | None

    @classmethod
    def of(cls, state: dict[str, Any] | None) -> _Saved | None:
        match state:
            case {"v": int(version), "inside": bool(inside), "open": str(reason), "parser": dict(parser)}:
                return cls(version, inside, reason, parser)
        return None

    def to_json(self) -> dict[str, Any]:
        return {"v": self.version, "inside": self.inside_line, "open": self.open, "parser": self.parser}


class JsonlReader:
    """Reads one JSONL source (plain or zstd) with a parser, from a cursor on. See `SourceReader`.

    Args:
        source: What to read.
        cursor: Where to go on, if what stands before it is still the same.
        make: Makes the parser, given the state it left (None for a new one) and the tally to count in.
        version: Of the parser; raise it when the same records give other turns, and all is read again.

    Raises `OSError` when the file cannot be opened.
    """

    def __init__(
        self,
        source: Source,
        cursor: Cursor | None,
        make: Callable[[dict[str, Any] | None, Tally], RecordParser],
        version: int = 1,
        *,
        cap: int = RECORD_CAP,
    ) -> None:
        self._source, self._version, self._cap = source, version, cap
        saved = _Saved.of(cursor.state) if cursor else None
        fits = (
            cursor is not None
            and saved is not None
            and saved.version == version
            and change_of(source.path, cursor) != "rewritten"
        )
        self.tally = Tally()
        self.whole = not fits
        self._saved = saved if fits and saved else _Saved(version, False, "", None)
        self._offset = cursor.offset if fits and cursor else 0
        self._parser = make(self._saved.parser, self.tally)
        self._cursor: Cursor | None = None

    def __iter__(self) -> Iterator[Event]:
        tally, before = self.tally, self._saved
        if before.open:
            tally.lines -= 1
            tally.skipped["line", before.open] -= 1
        with open_stream(self._source.path) as file:
            file.seek(self._offset)
            stream = RecordStream(file, self._offset, before.inside_line, cap=self._cap)
            for item in stream:
                tally.lines += 1
                if item.record is None:
                    tally.skipped["line", item.reason] += 1
                    continue
                if item.trimmed:
                    tally.parts["record", "over the size cap, cut short"] += 1
                try:
                    yield from self._parser.feed(item.record, item.trimmed)
                except Exception as error:  # a parser's mistake must cost one record, and be seen
                    if tally.explained < tally.lines:
                        tally.unknown[f"{item.record.get('type')} ({type(error).__name__})"] += 1
            reason = UNFINISHED if stream.unfinished else ""
            if isinstance(file, _Zstd) and file.damaged:
                reason = DAMAGED
        yield from self._parser.end()
        if reason:
            tally.lines += 1
            tally.skipped["line", reason] += 1
        state = _Saved(self._version, stream.inside_line, reason, self._parser.state())
        digest = prefix_digest(self._source.path, stream.consumed)
        self._cursor = Cursor(stream.consumed, digest, state.to_json())

    def cursor(self) -> Cursor:
        """Where the next reading starts. Raises `RuntimeError` before the iteration has ended."""
        if self._cursor is None:
            raise RuntimeError("the source has not been read to its end")
        return self._cursor
