"""What differs between a terminal and a pipe: colours, characters, where messages go."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO, Any

import click


def prepare() -> None:
    """Make output that no console can refuse: characters it does not have become `?`."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def argument(word: str) -> str:
    """A command line argument as text, also where the locale is not the one it was typed in.

    The name of something that is there stays as it is: in other words it would name nothing.
    """
    try:
        word.encode()
        return word
    except UnicodeEncodeError:
        return word if os.path.lexists(word) else os.fsencode(word).decode("utf-8", "replace")


def is_terminal(stream: IO[Any] | None) -> bool:
    """Whether a person is looking at this stream."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def colours(stream: IO[Any] | None) -> bool:
    """Whether to colour: on a terminal that can, unless `NO_COLOR` is set."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def heading(text: str) -> str:
    """A line of ours made bold on a terminal, to tell it from the passages."""
    return click.style(text, bold=True) if colours(sys.stdout) else text


def lacks_arrow() -> bool:
    """Whether the console has no `→`."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "→".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def out(text: str) -> None:
    """Write data: to stdout, as it is."""
    if sys.stdout is not None:
        sys.stdout.write(text)


def say(text: str) -> None:
    """Write a message for the person: to stderr, where it cannot end up in data."""
    if sys.stderr is not None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def notes(texts: Sequence[str]) -> None:
    """Write notes that came with an answer."""
    for text in texts:
        say(f"note: {text}")


def complain(message: str, hint: str = "") -> None:
    """Say what went wrong, and what to do."""
    say(f"funes: {message}" + (f"\n{hint}" if hint else ""))
