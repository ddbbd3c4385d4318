"""Runs an agent's program: its output as it comes, and nothing of it left behind, however the run ends."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Final

#: Where programs get a process group, and a session, of their own: Ctrl-C in the terminal reaches us alone.
_POSIX: Final = os.name == "posix"

#: Lines of each stream that are kept for saying why a run failed.
KEPT_LINES: Final = 40
#: Longest line of output that is read, in characters; agents repeat whole requests in one.
MAX_LINE: Final = 64 * 1024 * 1024

#: Seconds that an interrupted agent has to leave by itself, then once more after it was told to end.
_LEAVE_S: Final = 2.0
_END_S: Final = 1.0
#: Seconds that output may still come after the program has ended: something it started may hold the stream open.
_LAST_OUTPUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    Attributes:
        code: Its exit code; negative for a signal.
        errors: The last lines of its standard error.
    """

    code: int
    errors: tuple[str, ...]


class Terminated(KeyboardInterrupt):
    """This process was told to end by a signal other than Ctrl-C."""


def run(
    argv: Sequence[str],
    stdin: str,
    environ: Mapping[str, str],
    folder: Path,
    line: Callable[[str], None],
) -> Ended:
    """Run a program to its end, in a process group of its own.

    Args:
        stdin: Written to its standard input, which is then closed.
        environ: Its whole environment.
        folder: Where it runs.
        line: Called with each line of its standard output, without the newline, as it comes.

    Raises:
        OSError: When it cannot be started.
        KeyboardInterrupt: After Ctrl-C; the program and all that it started have ended by then.
    """
    with _ends_as_interrupt():
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=dict(environ),
            start_new_session=_POSIX,
        )
        try:
            return _follow(process, stdin, line)
        except BaseException:
            end(process)
            raise
        finally:
            _kill(process)  # what it left running in its group
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError, ValueError):
                        stream.close()


def _follow(process: subprocess.Popen[bytes], stdin: str, line: Callable[[str], None]) -> Ended:
    lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    errors: deque[str] = deque(maxlen=KEPT_LINES)
    assert process.stdout is not None
    assert process.stderr is not None
    _start(_pump, process.stdout, lines.put)
    watcher = _start(_pump, process.stderr, lambda raw: errors.append(_text(raw)) if raw is not None else None)
    if process.stdin is not None:
        _start(_write, process.stdin, stdin.encode("utf-8", "replace"))
    quiet = 0.0
    while True:
        try:
            raw = lines.get(timeout=0.1)
        except queue.Empty:
            if process.poll() is not None:
                quiet += 0.1
                if quiet >= _LAST_OUTPUT_S:
                    break
            continue
        if raw is None:
            break
        line(_text(raw))
    code = process.wait()
    watcher.join(_LAST_OUTPUT_S)
    return Ended(code, tuple(text for text in list(errors) if text.strip()))


def _start(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _pump(stream: IO[bytes], put: Callable[[bytes | None], object]) -> None:
    with contextlib.suppress(OSError, ValueError):
        while raw := stream.readline(MAX_LINE):
            put(raw)
    put(None)


def _write(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError, ValueError):  # a program that ends early does not read it all
        stream.write(data)
    with contextlib.suppress(OSError, ValueError):
        stream.close()


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").removesuffix("\n")


# --- ending ---------------------------------------------------------------------------------------------


def end(process: subprocess.Popen[bytes]) -> None:
    """Have a program and its whole group end: asked first, then told, then killed. A second Ctrl-C kills at once."""
    try:
        for number, patience in ((signal.SIGINT, _LEAVE_S), (signal.SIGTERM, _END_S)):
            if not _POSIX or not _send(process, number):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break
    except KeyboardInterrupt:
        pass
    finally:
        _kill(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)


def _send(process: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the group; False when there is nobody left in it."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    if _POSIX:
        # Its id stays the group's for as long as anyone is in it, so that no stranger can be hit.
        _send(process, signal.SIGKILL)
    elif process.poll() is None:
        subprocess.run(
            ["taskkill", "/T", "/F", "/PID", str(process.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )


@contextlib.contextmanager
def _ends_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the child as Ctrl-C does, where this is the main thread."""
    names = ("SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]

    def handle(number: int, _frame: FrameType | None) -> None:
        raise Terminated(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [(number, signal.signal(number, handle)) for number in numbers]
    try:
        yield
    finally:
        for number, old in before:
            signal.signal(number, old)
