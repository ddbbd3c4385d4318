"""Errors that are meant for a person: what happened, and what to type next."""

from __future__ import annotations

from pathlib import Path


class FunesError(Exception):
    """Something a person can act on. The command line prints it and exits with `exit_code`.

    Args:
        message: What happened, and what was kept.
        hint: What to type or do next, if anything.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class NoMemoryError(FunesError):
    """There is no index yet."""

    def __init__(self, label: str = "local") -> None:
        if label == "local":
            super().__init__("There is no memory yet.", "Run `funes index` to build one.")
        else:
            super().__init__(f"There is no memory called {label!r}.", "Name a folder that holds one, or `local`.")


class MemoryBusyError(FunesError):
    """Another process holds the writer lock."""


class MemoryDamagedError(FunesError):
    """The memory's files cannot be read."""


class DerivedDamagedError(MemoryDamagedError):
    """Something that was made from a memory's table, and can be made from it again, is damaged.

    Args:
        path: The index's folder, or the file of the catalog.
        reason: What is wrong with it, in a few words.
        hint: What to type, where it is not made again by itself.
    """

    def __init__(self, path: Path, reason: str, hint: str = "") -> None:
        hint = hint or f"Delete {path}: the next recall makes it again from the table."
        super().__init__(f"{path} is damaged: {reason}. No passage is lost by that.", hint)
        self.path = path
        #: Which file the one who met the damage had open; None when that is not known.
        self.met: tuple[int, ...] | None = None


class ModelMismatchError(FunesError):
    """The memory is stamped with another embedding model than the one asked for."""


class NotFoundError(FunesError):
    """A session or turn that is not in the memory."""


class AmbiguousSessionError(FunesError):
    """A session prefix that fits several sessions."""


class BadRequestError(FunesError):
    """An argument that cannot be understood."""

    exit_code = 2


class PushBusyError(FunesError):
    """Another process publishes to the same memory."""


class PushRefusedError(FunesError):
    """Nobody agreed that something is published; nothing was."""

    exit_code = 2
