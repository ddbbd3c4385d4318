"""Whether the files of a word index are whole, found out without opening it.

Tantivy finds damage when it meets it, in the middle of a search, and ends some of it in a panic. Each of its files
ends with a checksum, so all of it can be found before.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any, Final

_MAGIC: Final = 1337
_LONGEST_FOOTER: Final = 50_000
_PARTS: Final = ("fast", "fieldnorm", "idx", "pos", "store", "term")
_AT_ONCE: Final = 1 << 22
#: A writer may replace files between two looks.
_LOOKS: Final = 5


def damage(folder: Path, *, thorough: bool = False) -> str:
    """What is wrong with the index in `folder`, in a few words; "" for nothing. Raises `OSError`.

    Args:
        thorough: Whether all bytes are read; else only the end of each file, which takes milliseconds.
    """
    found = ""
    for _ in range(_LOOKS):
        before = (folder / "meta.json").read_bytes()
        found = _damage(folder, before, thorough)
        try:
            if not found or (folder / "meta.json").read_bytes() == before:
                return found
        except FileNotFoundError:
            continue
    return found


def _damage(folder: Path, meta: bytes, thorough: bool) -> str:
    try:
        files = [name for segment in json.loads(meta)["segments"] for name in _files(segment)]
    except (ValueError, KeyError, TypeError, AttributeError):
        return "meta.json cannot be read"
    try:
        managed = json.loads((folder / ".managed.json").read_bytes())
    except FileNotFoundError:
        managed = []
    except ValueError:
        managed = None
    if not isinstance(managed, list):
        return ".managed.json cannot be read"
    for name in files:
        try:
            if not _is_whole(folder / name, thorough):
                return f"{name} is not what was written"
        except FileNotFoundError:
            return f"{name} is missing"
    return ""


def _files(segment: dict[str, Any]) -> list[str]:
    name = str(segment["segment_id"]).replace("-", "")
    files = [f"{name}.{part}" for part in _PARTS]
    if segment["deletes"] is not None:
        files.append(f"{name}.{int(segment['deletes']['opstamp'])}.del")
    return files


def _is_whole(path: Path, thorough: bool) -> bool:
    """Whether a file ends with a footer, and its bytes have the checksum that stands there."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            return False
        file.seek(size - 8)
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if int.from_bytes(tail[4:], "little") != _MAGIC or length > min(size - 8, _LONGEST_FOOTER):
            return False
        file.seek(size - 8 - length)
        try:
            checksum = int(json.loads(file.read(length))["crc"])
        except (ValueError, KeyError, TypeError):
            return False
        if not thorough:
            return True
        file.seek(0)
        left, found = size - 8 - length, 0
        while left and (data := file.read(min(left, _AT_ONCE))):
            found = zlib.crc32(data, found)
            left -= len(data)
        return found == checksum
