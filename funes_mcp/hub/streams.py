"""Files on their way up and down, counted."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

#: Told how many more bytes have come or gone, and how many there are in all (0: unknown).
Told = Callable[[int, int], None]


def bar(told: Told | None, size: int) -> Any:
    """What the library takes for the class of a progress bar: it draws nothing and passes the numbers on.

    `update_transfer` is there so that the library makes one bar and not two where content comes in chunks; what has
    been transferred then is not what is here.
    """

    class Bar:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.total = size
            self.n = 0

        def update(self, more: float = 1) -> None:
            self.n += int(more)
            if told is not None:
                told(int(more), size)

        def update_transfer(self, more: float = 1) -> None:
            pass

        def __getattr__(self, name: str) -> Callable[..., None]:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *_, **__: None

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    return Bar


@contextmanager
def undrawn() -> Iterator[None]:
    """The library draws no bars of its own inside: how far a commit is, is told by who asked for it."""
    from huggingface_hub.utils import (  # type: ignore[attr-defined,unused-ignore]
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    off = are_progress_bars_disabled()
    if not off:
        disable_progress_bars()
    try:
        yield
    finally:
        if not off:
            enable_progress_bars()


class Meter:
    """Adds up what is read of several files, in several threads.

    Args:
        told: Called by one thread at a time.
    """

    def __init__(self, told: Told | None) -> None:
        self._told = told
        self._total = 0
        self._done = 0
        self._lock = Lock()
        self.started = False

    def start(self, total: int) -> None:
        """From here on, reading is sending: before, the library looks at what there is."""
        self._total = total
        self.started = True

    def more(self, count: int) -> None:
        """So many bytes more have been read for the first time."""
        with self._lock:
            if self._told is not None and count:
                self._done += count
                self._told(count, self._total)

    def finish(self) -> None:
        """All is there: what the Hub had already was never read again."""
        self.more(self._total - self._done)


class Body(io.BufferedIOBase):
    """A file to upload, open only while it is read: a commit may have more files than a process may open.

    Its size is the one at the beginning, also when the file grows. Raises `OSError`.
    """

    def __init__(self, content: Path | bytes, meter: Meter) -> None:
        self._content = content
        self._meter = meter
        self._open: io.BufferedIOBase | None = None
        self._at = 0
        self._furthest = 0
        self.size = len(content) if isinstance(content, bytes) else content.stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence] + offset
        self._shut()
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(self.size - self._at, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        if self._open is None:
            self._open = io.BytesIO(self._content) if isinstance(self._content, bytes) else self._content.open("rb")
            self._open.seek(self._at)
        data = self._open.read(wanted)
        self._at += len(data)
        if len(data) == left or not data:
            self._shut()
        if self._meter.started and self._at > self._furthest:
            self._meter.more(self._at - self._furthest)
            self._furthest = self._at
        return data

    def close(self) -> None:
        self._shut()
        super().close()

    def _shut(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
