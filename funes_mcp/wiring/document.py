"""Edits of a configuration text that leave everything else in it as it was.

Three formats share one small language: `put` a value at a path, `append` to a list at a path, `drop` what is at a
path. Each edit is made in the text itself where that is possible. The result is parsed again and compared with the
same edit made on plain values, so an edit that would touch anything else is never returned.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

from funes_mcp.errors import FunesError

#: Keys and list positions from the top of a document down.
Keys = Sequence[str | int]


class ConfigError(FunesError):
    """A configuration that cannot be read or must not be edited. Nothing was changed."""


class BrokenText(Exception):
    """The text does not parse.

    Args:
        reason: What the parser says.
        line, column: Where, counted from 1; 0 when not known.
    """

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.column = column


class WrongShape(Exception):
    """Something stands where a table or a list is needed."""

    def __init__(self, keys: Keys, wanted: str) -> None:
        self.where = ".".join(str(key) for key in keys) or "the top level"
        self.wanted = wanted
        super().__init__(f"{self.where} is not {wanted}")


class UnsafeEdit(Exception):
    """No way was found to make the edit and leave the rest alone."""


class Format(Protocol):
    """One configuration format. Every method is pure: text in, text out.

    All of them raise `BrokenText` for text that does not parse, `WrongShape` when the path leads through something
    that is not a table (or list), and `UnsafeEdit` when the edit cannot be made without touching other content.
    """

    name: str

    def parse(self, text: str) -> dict[str, Any]:
        """The content as plain values; an empty text is an empty table."""
        ...

    def put(self, text: str, keys: Keys, value: Any) -> str:
        """Set the value at a path, making missing tables. A value that is there already is left untouched."""
        ...

    def append(self, text: str, keys: Keys, value: Any) -> str:
        """Add to the end of the list at a path, making it when missing."""
        ...

    def drop(self, text: str, keys: Keys) -> str:
        """Take out what is at a path; the same text when nothing is there."""
        ...


def look(root: Any, keys: Keys) -> Any:
    """The value at a path, or None."""
    here = root
    for key in keys:
        if isinstance(here, dict) and isinstance(key, str):
            here = here.get(key)
        elif isinstance(here, list) and isinstance(key, int) and 0 <= key < len(here):
            here = here[key]
        else:
            return None
    return here


def has(root: Any, keys: Keys) -> bool:
    """Whether anything (even a null) is at a path."""
    here = root
    for key in keys:
        in_table = isinstance(here, dict) and isinstance(key, str) and key in here
        if not in_table and not (isinstance(here, list) and isinstance(key, int) and 0 <= key < len(here)):
            return False
        here = here[key]
    return True


def deepest(root: Any, keys: Keys) -> int:
    """How many leading keys lead to something that is not null.

    Raises:
        WrongShape: when one of them but the last leads to something that is neither table nor list.
    """
    here = root
    for depth, key in enumerate(keys):
        wanted = "a table" if isinstance(key, str) else "a list"
        if not isinstance(here, dict if isinstance(key, str) else list):
            raise WrongShape(keys[:depth], wanted)
        found = look(here, [key])
        if found is None:
            return depth
        here = found
    return len(keys)


def nest(keys: Keys, value: Any) -> Any:
    """`value` wrapped in a table for each key."""
    for key in reversed(keys):
        value = {key: value}
    return value


def put_value(root: Any, keys: Keys, value: Any) -> Any:
    """What `Format.put` means, on plain values; returns a copy."""
    result = copy.deepcopy(root)
    deepest(result, keys)
    here = result
    for depth, key in enumerate(keys[:-1]):
        if look(here, [key]) is None:
            here[key] = {}
        here = here[key]
        if not isinstance(here, dict if isinstance(keys[depth + 1], str) else list):
            raise WrongShape(keys[: depth + 1], "a table")
    here[keys[-1]] = copy.deepcopy(value)
    return result


def append_value(root: Any, keys: Keys, value: Any) -> Any:
    """What `Format.append` means, on plain values; returns a copy."""
    current = look(root, keys)
    if current is None:
        return put_value(root, keys, [value])
    if not isinstance(current, list):
        raise WrongShape(keys, "a list")
    return put_value(root, keys, [*current, value])


def drop_value(root: Any, keys: Keys) -> Any:
    """What `Format.drop` means, on plain values; returns a copy."""
    result = copy.deepcopy(root)
    if has(result, keys):
        del look(result, keys[:-1])[keys[-1]]
    return result


def newline_of(text: str) -> str:
    """The line ending that a text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def prune(fmt: Format, text: str, keys: Keys, before: Any) -> str:
    """Take out tables and lists that an earlier `drop` left empty, from the path upwards.

    One that the user had before funes came (`before`, as plain values) stays.
    """
    path = list(keys)
    while path:
        value = look(fmt.parse(text), path)
        if value not in ({}, []) or has(before, path):
            break
        text = fmt.drop(text, path)
        path.pop()
    return text
