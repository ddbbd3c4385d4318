"""Numbers of things in sentences for people."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 passage`, `1,204 passages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def wait(number: int, noun: str) -> str:
    """`1 session waits`, `2 sessions wait`."""
    return f"{count(number, noun)} {'waits' if number == 1 else 'wait'}"
