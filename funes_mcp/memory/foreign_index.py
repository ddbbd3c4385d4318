"""Indexes a table that somebody else made, in a process of its own.

Native code reads files here that anybody may have written. A crash, a hang or a huge allocation ends this process and
is told as an error; whoever started it goes on. The process has no tokens in its environment, and ends with its parent.

It writes one JSON object a line to stdout: `{"at": [done, total]}`, `{"alive": true}`, and at last `{"done": {...}}`
(see `Indexed`) or `{"failed": [message, hint]}`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from funes_mcp.errors import FunesError, MemoryDamagedError
from funes_mcp.memory import derived

if TYPE_CHECKING:
    from funes_mcp.memory.foreign import ForeignTable

#: Seconds without a word from the process until it counts as hanging.
SILENCE_S: Final = 300.0

#: Memory that the process may have in use: a base for the libraries and buffers, and what a row needs in the lists of
#: ids (about 500 bytes, measured). Of address space, which native code reserves freely, many times as much.
BASE_BYTES: Final = 2 << 30
BYTES_A_ROW: Final = 1 << 10
_SPACE_FACTOR: Final = 32

#: Largest file it may write.
_LARGEST_FILE: Final = 64 << 30

#: Rows that are indexed at a time: small enough to tell how far it is, large enough to train a dictionary on.
_AT_ONCE: Final = 4_000

#: The folder with the lock of the one process that writes the indexes.
_LOCK: Final = "indexing"

_LONGEST_LINE: Final = 1 << 16
_TELL_EVERY_S: Final = 0.25
_LOOK_EVERY_S: Final = 0.1
_TOO_LARGE: Final = 71  # exit code

#: What the process gets of the environment: where programs and temporary files are, not who we are.
_PASSED: Final = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
)

#: What it is told besides: to take no code from the folder it is in, and not to reserve memory for every processor.
_SET: Final = {"PYTHONSAFEPATH": "1", "PYTHONIOENCODING": "utf-8", "MALLOC_ARENA_MAX": "4"}


@dataclass(frozen=True, slots=True)
class Indexed:
    """What came of it.

    Attributes:
        rows: Rows that are indexed.
        refused: `(why, how many)` of those that are not.
        lacking: Columns that the table has not, or not of a type that can be read.
    """

    rows: int = 0
    refused: tuple[tuple[str, int], ...] = ()
    lacking: tuple[str, ...] = ()


def index_apart(
    table: Path,
    folder: Path,
    rows: int,
    *,
    compare: bool = False,
    told: Callable[[int, int], None] | None = None,
    silence: float = SILENCE_S,
    command: Sequence[str] | None = None,
) -> Indexed:
    """Bring the indexes in `folder` in line with a table, in another process.

    Args:
        table: Holds `chunks.lance`.
        folder: Where `lexical/` and `dense/` go.
        rows: How many rows the table says it has.
        compare: Whether rows that are indexed already may read otherwise now.
        told: Called with rows done and rows to do.
        silence: See `SILENCE_S`.
        command: What to run instead of this module.

    Raises:
        MemoryDamagedError: The table cannot be read, or the process ended in another way than by telling.
        FunesError: What else went wrong there (a full disk).
    """
    order = json.dumps({"table": str(table), "folder": str(folder), "rows": rows, "compare": compare})
    argv = command or [sys.executable, "-m", "funes_mcp.memory.foreign_index", order]
    environ = {name: value for name in _PASSED if (value := os.environ.get(name)) is not None}
    process = subprocess.Popen(
        argv,
        cwd=folder,
        env={**environ, **_SET},
        stdin=subprocess.PIPE,  # never written to: it closes when we end
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(process.stdout, lines), name="funes-indexing", daemon=True).start()
    try:
        while True:
            try:
                line = lines.get(timeout=silence)
            except queue.Empty:
                raise MemoryDamagedError(
                    f"Reading this memory's files made no progress for {silence:.0f} s and was ended."
                ) from None
            if line is None:
                raise _ended(process.wait())
            result = _heard(line, told)
            if result is not None:
                return result
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def _read(stream: IO[bytes], lines: queue.SimpleQueue[bytes | None]) -> None:
    with suppress(OSError, ValueError), stream:
        while line := stream.readline(_LONGEST_LINE):
            lines.put(line)
    lines.put(None)


def _heard(line: bytes, told: Callable[[int, int], None] | None) -> Indexed | None:
    """Take in a line of the process; its result, once it comes. Raises what the process failed with."""
    try:
        message = json.loads(line)
        if "at" in message and told is not None:
            done, total = message["at"]
            told(int(done), int(total))
        if "failed" in message:
            what, hint, damaged = message["failed"]
            raise (MemoryDamagedError if damaged else FunesError)(_plain(what), _plain(hint))
        if "done" in message:
            found = message["done"]
            refused = tuple((str(why), int(count)) for why, count in found["refused"])
            return Indexed(int(found["rows"]), refused, tuple(map(str, found["lacking"])))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # a library has printed something
    return None


def _plain(text: object) -> str:
    """What the process says of files that it does not trust, in one line."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:400].strip()


def _ended(code: int) -> MemoryDamagedError:
    if code == _TOO_LARGE:
        return MemoryDamagedError("Reading this memory's files took too much memory and was ended.")
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return MemoryDamagedError(f"Reading this memory's files ended the process that did it ({how}).")


# --- in the process -------------------------------------------------------------------------------------


def main(order: Mapping[str, Any]) -> int:
    """Do what `index_apart` ordered; the exit code."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print does not belong between our lines
    lock = threading.Lock()
    last = 0.0

    def tell(message: Mapping[str, Any], *, always: bool = False) -> None:
        nonlocal last
        with lock:
            now = time.monotonic()
            if always or now - last >= _TELL_EVERY_S:
                last = now
                out.write(json.dumps(message) + "\n")

    rows = int(order["rows"])
    _confine(rows)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threading.Thread(target=_watch_memory, args=(BASE_BYTES + rows * BYTES_A_ROW,), daemon=True).start()
    try:
        result = _index(Path(order["table"]), Path(order["folder"]), bool(order["compare"]), tell)
    except Exception as error:
        if isinstance(error, FunesError):
            what = [error.message, error.hint, isinstance(error, MemoryDamagedError)]
        else:
            first = str(error).splitlines()[0][:300] if str(error) else ""
            what = [f"This memory's files cannot be read: {type(error).__name__}: {first}", "", True]
        tell({"failed": what}, always=True)
        return 1
    done = {"rows": result.rows, "refused": result.refused, "lacking": result.lacking}
    tell({"done": done}, always=True)
    return 0


def _index(table: Path, folder: Path, compare: bool, tell: Callable[..., None]) -> Indexed:
    from funes_mcp.memory.foreign import ForeignTable
    from funes_mcp.memory.lock import WriterLock
    from funes_mcp.memory.table import ChunkTable

    # Whoever ordered this is alone with the mirror, but a process whose parent was killed ends a moment after it.
    lock = WriterLock(folder / _LOCK)
    while not lock.acquire(_LOOK_EVERY_S):
        tell({"alive": True})
    try:
        with derived.private_files():
            foreign = ForeignTable(ChunkTable.open(table), lambda: tell({"alive": True}))
            if compare:
                _drop_changed(foreign, folder)
            derived.catch_up(
                foreign,
                folder,
                told=lambda done, total: tell({"at": [done, total]}, always=done in (0, total)),
                group=_AT_ONCE,
            )
            rows = sum(1 for _ in foreign.ids())
        return Indexed(rows, tuple(sorted(foreign.refused.items())), tuple(foreign.lacking))
    finally:
        lock.release()


def _drop_changed(table: ForeignTable, folder: Path) -> None:
    """Take rows out of the indexes that the table has with other words: they are indexed again as they are now."""
    from funes_mcp.memory import dense, lexical

    if not lexical.exists(folder / derived.LEXICAL):
        return
    reader = lexical.LexicalReader(folder / derived.LEXICAL)
    changed: list[int] = []
    for rows in table.stream():
        have = reader.rows([row.key for row in rows])
        changed += [row.key for row in rows if row.key in have and have[row.key] != row]
    if not changed:
        return
    words = lexical.LexicalWriter(folder / derived.LEXICAL, bulk=False)
    try:
        words.delete(changed)
        words.commit()
    finally:
        words.close()
    stamp = dense.embedding_of(folder / derived.DENSE)
    if stamp is not None:
        vectors = dense.DenseWriter(folder / derived.DENSE, stamp)
        vectors.delete(changed)
        vectors.commit()


def _confine(rows: int) -> None:
    """Limits that the system keeps, where it has them."""
    with suppress(OSError):  # the first to be ended when the machine runs out of memory (Linux)
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        import resource
    except ImportError:  # Windows
        return
    space = _SPACE_FACTOR * (BASE_BYTES + rows * BYTES_A_ROW)
    for limit, value in (
        (resource.RLIMIT_AS, space),
        (resource.RLIMIT_CORE, 0),  # a core file would hold the memory's texts
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
    ):
        with suppress(OSError, ValueError):
            _, most = resource.getrlimit(limit)
            value = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(limit, (value, value))


def _end_with_parent() -> None:
    with suppress(OSError):
        while os.read(0, 1):
            pass
    os._exit(1)


def _watch_memory(most: int) -> None:
    """End the process when it uses more memory than it may; what it only reserves does not count."""
    page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
    while True:
        time.sleep(_LOOK_EVERY_S)
        try:
            shared = Path("/proc/self/statm").read_bytes().split()
            used = (int(shared[1]) - int(shared[2])) * page  # without mapped files, which can be read again
        except (OSError, ValueError, IndexError):
            return
        if used > most:
            os._exit(_TOO_LARGE)


if __name__ == "__main__":
    # Without the interpreter's own end, which would wait for threads of libraries: all is written and told.
    os._exit(main(json.loads(sys.argv[1])))
