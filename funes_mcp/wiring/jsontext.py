"""JSON edits that keep the layout, the order and every other byte."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from funes_mcp.wiring import document
from funes_mcp.wiring.document import BrokenText, Keys, UnsafeEdit, WrongShape, newline_of

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class JsonFormat:
    """Strict JSON, as the agents themselves read it."""

    name = "JSON"

    def parse(self, text: str) -> dict[str, Any]:
        if not text.strip():
            return {}
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise BrokenText(error.msg, error.lineno, error.colno) from None
        except RecursionError:
            raise BrokenText("nested too deeply") from None
        if not isinstance(value, dict):
            raise WrongShape((), "an object")
        return value

    def put(self, text: str, keys: Keys, value: Any) -> str:
        root = self.parse(text)
        wanted = document.put_value(root, keys, value)
        if wanted == root and document.has(root, keys):
            return text
        if not text.strip():
            return _dump(document.nest(keys, value), "", _Layout(text)) + "\n"
        depth = document.deepest(root, keys)
        layout = _Layout(text)
        if depth == len(keys) or document.has(root, keys[: depth + 1]):  # replaces a value, perhaps a null
            cut = keys[: depth + 1]
            start, end = _span(text, cut)
            new = _dump(document.nest(keys[depth + 1 :], value), layout.indent_of(text, start), layout)
            result = text[:start] + new + text[end:]
        else:
            key = keys[depth]
            assert isinstance(key, str)
            result = _insert(text, keys[:depth], layout, document.nest(keys[depth + 1 :], value), key)
        return self._checked(result, wanted)

    def append(self, text: str, keys: Keys, value: Any) -> str:
        root = self.parse(text)
        wanted = document.append_value(root, keys, value)
        if document.look(root, keys) is None:
            return self.put(text, keys, [value])
        return self._checked(_insert(text, keys, _Layout(text), value, None), wanted)

    def drop(self, text: str, keys: Keys) -> str:
        root = self.parse(text)
        if not document.has(root, keys):
            return text
        wanted = document.drop_value(root, keys)
        parent, _ = _span(text, keys[:-1])
        parts = _parts(text, parent)
        index = keys[-1] if isinstance(keys[-1], int) else [part[0] for part in parts].index(keys[-1])
        while isinstance(keys[-1], str) and keys[-1] in [part[0] for part in parts[index + 1 :]]:
            index += 1 + [part[0] for part in parts[index + 1 :]].index(keys[-1])
        if len(parts) == 1:
            closing = _span(text, keys[:-1])[1] - 1
            result = text[: parent + 1] + text[closing:]
        elif index + 1 < len(parts):
            result = text[: parts[index][1]] + text[parts[index + 1][1] :]
        else:
            result = text[: parts[index - 1][3]] + text[parts[index][3] :]
        return self._checked(result, wanted)

    def _checked(self, text: str, wanted: dict[str, Any]) -> str:
        try:
            same = self.parse(text) == wanted
        except (BrokenText, WrongShape):
            same = False
        if not same:
            raise UnsafeEdit
        return text


class _Layout:
    """How a text is laid out: its line ending, its unit of indentation, and whether it is all on one line."""

    def __init__(self, text: str) -> None:
        self.newline = newline_of(text)
        first = re.search(r"[\[{][ \t]*\r?\n([ \t]+)\S", text)
        self.unit = first[1] if first else "  "
        self.flat = "\n" not in text.strip() and len(text.strip()) > 2

    def indent_of(self, text: str, position: int) -> str:
        """The indentation of the line that holds a position."""
        start = text.rfind("\n", 0, position) + 1
        return re.match(r"[ \t]*", text[start:])[0]  # type: ignore[index]


def _dump(value: Any, indent: str, layout: _Layout) -> str:
    if layout.flat:
        return json.dumps(value, ensure_ascii=False)
    text = json.dumps(value, ensure_ascii=False, indent=layout.unit)
    return text.replace("\n", layout.newline + indent)


def _skip(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]


def _parts(text: str, start: int) -> list[tuple[str | int, int, int, int]]:
    """`(key, start of the whole, start of the value, end)` of each member of the object or list at `start`."""
    found: list[tuple[str | int, int, int, int]] = []
    is_object = text[start] == "{"
    position = _skip(text, start + 1)
    while text[position] not in "]}":
        begin = position
        key: str | int = len(found)
        if is_object:
            key, position = scanstring(text, position + 1, True)
            position = _skip(text, _skip(text, position) + 1)
        _, end = _DECODER.raw_decode(text, position)
        found.append((key, begin, position, end))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return found


def _span(text: str, keys: Keys) -> tuple[int, int]:
    """Where the value at a path starts and ends. Of a key given twice the last counts, as in every parser."""
    start = _skip(text, 0)
    end = len(text.rstrip())
    for key in keys:
        _, _, start, end = [part for part in _parts(text, start) if part[0] == key][-1]
    return start, end


def _insert(text: str, keys: Keys, layout: _Layout, value: Any, key: str | None) -> str:
    """Put a member last into the object (with a key) or list at a path."""
    start, end = _span(text, keys)
    parts = _parts(text, start)
    label = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    if parts:
        _, begin, _, last = parts[-1]
        before = text[text.rfind("\n", 0, begin) + 1 : begin] if "\n" in text[start:begin] else None
        if before is not None and not before.strip():
            return f"{text[:last]},{layout.newline}{before}{label}{_dump(value, before, layout)}{text[last:]}"
        flat = json.dumps(value, ensure_ascii=False)
        return f"{text[:last]}, {label}{flat}{text[last:]}"
    if layout.flat:
        return f"{text[: start + 1]}{label}{_dump(value, '', layout)}{text[end - 1 :]}"
    outer = layout.indent_of(text, start)
    inner = outer + layout.unit
    body = f"{layout.newline}{inner}{label}{_dump(value, inner, layout)}{layout.newline}{outer}"
    return text[: start + 1] + body + text[end - 1 :]
