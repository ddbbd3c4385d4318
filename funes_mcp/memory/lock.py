"""One writer at a time, and no work left lying when two meet.

The lock is `flock` on a file: it ends with the process that holds it, however that ends. Nobody waits on a
heartbeat, and readers never take it. Whoever finds it taken leaves a mark, and the holder looks for the
mark before it goes and once more after.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from funes_mcp.errors import MemoryBusyError
from funes_mcp.home import private_folder

T = TypeVar("T")

_LOCK: Final = "writer.lock"
_DIRTY: Final = "writer.dirty"
_PAUSE: Final = 0.05


class WriterLock:
    """The writer lock of the memory in `folder`. Not shared between threads; not inherited by `exec`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self, wait: float = 0.0) -> bool:
        """Take the lock, trying for `wait` seconds. False when another process keeps it. Raises `OSError`."""
        if self._descriptor is not None:
            return True
        private_folder(self._folder)
        descriptor = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait
        try:
            while not _try_lock(descriptor):
                left = deadline - time.monotonic()
                if left <= 0:
                    os.close(descriptor)
                    return False
                time.sleep(min(_PAUSE, left))
        except BaseException:
            with suppress(OSError):
                os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Let go. Harmless when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def mark_dirty(self) -> None:
        """Leave word for the holder that there is more to do. Raises `OSError`."""
        private_folder(self._folder)
        os.close(os.open(self._folder / _DIRTY, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def take_dirty(self) -> bool:
        """Whether such word was left; it is gone afterwards."""
        try:
            os.unlink(self._folder / _DIRTY)
        except FileNotFoundError:
            return False
        return True

    @property
    def dirty(self) -> bool:
        """Whether word was left, without taking it."""
        return (self._folder / _DIRTY).exists()

    def __enter__(self) -> WriterLock:
        if not self.acquire():
            raise MemoryBusyError("Another funes process is writing to this memory.", "Try again in a moment.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_held(folder: Path) -> bool:
    """Whether a process writes to the memory in `folder` right now. Makes nothing."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def run_locked(folder: Path, work: Callable[[], T], wait: float = 0.0) -> T | None:
    """Do `work` as the only writer, again for as long as others leave word that there is more.

    Returns what the last round returned. None means that another process holds the lock: word was left, and
    that process does the work. A caller who finds the lock taken first leaves the mark and then tries once
    more, and the holder looks for the mark after it let go: so one of the two always sees it.
    """
    lock = WriterLock(folder)
    if not lock.acquire(wait):
        lock.mark_dirty()
        if not lock.acquire():
            return None
    result: T | None = None
    while True:
        try:
            lock.take_dirty()
            result = work()
            while lock.take_dirty():
                result = work()
        finally:
            lock.release()
        if not lock.dirty or not lock.acquire():
            return result


def _try_lock(descriptor: int) -> bool:
    """`flock` without waiting; on systems that lack it, a byte-range lock, which also ends with the process."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _try_lock_windows(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK):
            return False
        raise
    return True


def _try_lock_windows(descriptor: int) -> bool:
    import msvcrt

    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True
