"""Lance's manifest of a table's version, read without Lance: which files the version consists of, and how large it is.

A published table is data from elsewhere. Lance follows what a manifest says: a list of base paths makes it open files
anywhere on the machine or on other servers, and indexes that are named are opened whenever a filter could use them. So
a manifest is looked at before Lance sees it: one that points out of its own folder is refused, and what our reader
opens is a copy without the indexes, which are not fetched.

The file is: parts that are not needed here, the length of the message (u32), the message (protobuf), then the
position of that length (i64), two version numbers (u16), and `LANC`; all little-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from funes_mcp.errors import MemoryDamagedError

#: A manifest grows by about 150 bytes with each of a table's files.
MOST_MANIFEST_BYTES: Final = 64 << 20

DATA: Final = "data"
DELETIONS: Final = "_deletions"
VERSIONS: Final = "_versions"

_MAGIC: Final = b"LANC"
_TAIL: Final = struct.Struct("<qHH4s")
_LENGTH: Final = struct.Struct("<I")

# Numbers of fields in Lance's table.proto.
_FRAGMENTS, _VERSION, _INDEXES, _FLAGS, _TRANSACTION, _BASES, _BRANCH = 2, 3, 6, 9, 12, 18, 20
_AUXILIARY, _TRANSACTION_PART = 4, 21
_FILES, _DELETION, _ROWS, _OVERLAYS = 2, 3, 4, 11
_EXTERNAL: Final = (6, 8, 10)
_PATH, _BASE = 1, 7
_KIND, _READ, _ID, _DELETED = 1, 2, 3, 4

_MANY_BASES: Final = 1 << 4
_LEFT_OUT: Final = frozenset({_AUXILIARY, _INDEXES, _TRANSACTION, _TRANSACTION_PART})
_SUFFIXES: Final = ("arrow", "bin")
_FILE_NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,200}")
_MANIFEST_NAME: Final = re.compile(r"(\d{1,20})\.manifest")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a table.

    Attributes:
        version: Its number.
        rows: How many rows it says there are, those that are deleted left out.
        files: The files it consists of, as paths within the table's folder, in order, each once.
        plain: A manifest file for the same version that names no indexes.
    """

    version: int
    rows: int
    files: tuple[str, ...]
    plain: bytes


def version_of(name: str) -> int | None:
    """The version that a manifest's file name stands for, or None when it is no such name.

    Lance names the file of version v either `v.manifest` or, padded to twenty digits, 2**64 - 1 - v.
    """
    found = _MANIFEST_NAME.fullmatch(name)
    if found is None:
        return None
    number = int(found[1])
    return (1 << 64) - 1 - number if len(found[1]) == 20 else number


def newest(names: Iterable[str]) -> str | None:
    """The name of the newest manifest among the names of files, or None when there is none."""
    versions = {name: version for name in names if (version := version_of(name)) is not None and version >= 0}
    return max(versions, key=lambda name: (versions[name], name)) if versions else None


def parse(data: bytes) -> Manifest:
    """Read a manifest file.

    Raises:
        MemoryDamagedError: It is none, or it names files that do not lie in the table's folder.
    """
    try:
        return _parse(data)
    except (ValueError, IndexError, struct.error) as error:
        raise MemoryDamagedError(f"The table's manifest cannot be read: {error}.") from error


def _parse(data: bytes) -> Manifest:
    if len(data) > MOST_MANIFEST_BYTES:
        raise ValueError(f"it has {len(data):,} bytes")
    position, _, _, magic = _TAIL.unpack(data[-_TAIL.size :])
    if magic != _MAGIC or not 0 <= position <= len(data) - _TAIL.size - _LENGTH.size:
        raise ValueError("it is no manifest")
    (length,) = _LENGTH.unpack_from(data, position)
    begin = position + _LENGTH.size
    if begin + length > len(data) - _TAIL.size:
        raise ValueError("it is cut off")
    message = data[begin : begin + length]
    version = rows = 0
    files: dict[str, None] = {}
    kept: list[bytes] = []
    for number, value, raw in _fields(message):
        if number == _FRAGMENTS:
            rows += _fragment(_bytes(value), files)
        elif number == _VERSION:
            version = _number(value)
        elif number == _BASES or (number == _FLAGS and _number(value) & _MANY_BASES):
            raise _outside("it has base paths")
        elif number == _BRANCH and value:
            raise _outside("it is a branch")
        if number not in _LEFT_OUT:
            kept.append(raw)
    plain = b"".join(kept)
    tail = data[-_TAIL.size + 8 :]
    return Manifest(version, rows, tuple(files), _LENGTH.pack(len(plain)) + plain + bytes(8) + tail)


def _fragment(message: bytes, files: dict[str, None]) -> int:
    """Note the files of a fragment; returns how many rows it has."""
    rows = deleted = 0
    fragment = 0
    deletion: bytes | None = None
    for number, value, _ in _fields(message):
        if number == 1:
            fragment = _number(value)
        elif number == _FILES:
            files[f"{DATA}/{_data_file(_bytes(value))}"] = None
        elif number == _OVERLAYS:
            for inner, part, _ in _fields(_bytes(value)):
                if inner == 1:
                    files[f"{DATA}/{_data_file(_bytes(part))}"] = None
        elif number == _DELETION:
            deletion = (deletion or b"") + _bytes(value)  # a message that comes twice is merged
        elif number == _ROWS:
            rows = _number(value)
        elif number in _EXTERNAL:
            raise _outside("its row ids lie in files of their own")
    if deletion is not None:
        name, deleted = _deletion_file(deletion, fragment)
        files[f"{DELETIONS}/{name}"] = None
    return max(0, rows - deleted)


def _data_file(message: bytes) -> str:
    path = ""
    for number, value, _ in _fields(message):
        if number == _PATH:
            path = _bytes(value).decode("utf-8")
        elif number == _BASE:
            raise _outside("a file of it has a base path")
    if not _FILE_NAME.fullmatch(path):
        raise _outside(f"it names the file {path[:80]!r}")
    return path


def _deletion_file(message: bytes, fragment: int) -> tuple[str, int]:
    kind = read = identity = deleted = 0
    for number, value, _ in _fields(message):
        if number == _KIND:
            kind = _number(value)
        elif number == _READ:
            read = _number(value)
        elif number == _ID:
            identity = _number(value)
        elif number == _DELETED:
            deleted = _number(value)
        elif number == _BASE:
            raise _outside("a file of it has a base path")
    if kind >= len(_SUFFIXES):
        raise ValueError("it has deletions of an unknown kind")
    return f"{fragment}-{read}-{identity}.{_SUFFIXES[kind]}", deleted


def _outside(what: str) -> MemoryDamagedError:
    return MemoryDamagedError(f"The table is not read: {what}, which leads out of its own folder or may do so.")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """The fields of a protobuf message: number, value (a number, or bytes), and the bytes of the field as they are."""
    at, size = 0, len(message)
    while at < size:
        start = at
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(message, at)
        elif kind == 2:
            length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        elif kind in (1, 5):
            width = 8 if kind == 1 else 4
            value, at = message[at : at + width], at + width
        else:
            raise ValueError("it holds what protobuf 3 does not have")
        if at > size:
            raise ValueError("it is cut off")
        yield number, value, message[start:at]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("it holds a number that is too long")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("it holds a number where a message is due")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("it holds a message where a number is due")
    return value
