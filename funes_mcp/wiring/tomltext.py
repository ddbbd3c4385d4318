"""TOML edits that keep comments, order and layout."""

from __future__ import annotations

import re
from typing import Any

from funes_mcp.wiring import document
from funes_mcp.wiring.document import BrokenText, Keys, UnsafeEdit, newline_of

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


class TomlFormat:
    """TOML. New tables go to the end of the text as blocks of their own, which can be taken out again whole."""

    name = "TOML"

    def parse(self, text: str) -> dict[str, Any]:
        import tomlkit
        from tomlkit.exceptions import ParseError, TOMLKitError

        try:
            value = tomlkit.parse(text).unwrap()
        except ParseError as error:
            raise BrokenText(str(error).split(" at line")[0], error.line, error.col + 1) from None
        except (TOMLKitError, ValueError, RecursionError) as error:
            raise BrokenText(str(error)) from None
        return value

    def put(self, text: str, keys: Keys, value: Any) -> str:
        root = self.parse(text)
        wanted = document.put_value(root, keys, value)
        if wanted == root and document.has(root, keys):
            return text
        attempts = []
        if not document.has(root, keys) and isinstance(value, dict):
            attempts.append(lambda: _with_block(text, _table(keys, value)))
        attempts.append(lambda: _edit(text, keys, value, "put"))
        return self._first(attempts, wanted)

    def append(self, text: str, keys: Keys, value: Any) -> str:
        root = self.parse(text)
        wanted = document.append_value(root, keys, value)
        attempts = []
        if isinstance(value, dict):
            attempts.append(lambda: _with_block(text, _table(keys, value, item=True)))
        attempts.append(lambda: _edit(text, keys, value, "append"))
        return self._first(attempts, wanted)

    def drop(self, text: str, keys: Keys) -> str:
        root = self.parse(text)
        if not document.has(root, keys):
            return text
        wanted = document.drop_value(root, keys)
        value = document.look(root, keys)
        attempts = []
        if isinstance(value, dict):
            item = isinstance(keys[-1], int)
            block = _table(keys[:-1] if item else keys, value, item=item)
            attempts.append(lambda: _without_block(text, block))
        attempts.append(lambda: _edit(text, keys, None, "drop"))
        return self._first(attempts, wanted)

    def _first(self, attempts: list[Any], wanted: dict[str, Any]) -> str:
        for attempt in attempts:
            try:
                result: str = attempt()
                if _same(self.parse(result), wanted):
                    return result
            except Exception:  # an attempt that breaks is an attempt that failed; the check decides
                continue
        raise UnsafeEdit


def _same(left: Any, right: Any) -> bool:
    """Equality, where a table or list that became empty counts as absent: TOML cannot keep an implicit one."""
    return bool(_without_empties(left) == _without_empties(right))


def _without_empties(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _without_empties(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [_without_empties(item) for item in value]
    return value


def _key(key: str | int) -> str:
    text = str(key)
    return text if _BARE.match(text) else _string(text)


def _string(text: str) -> str:
    body = "".join(_ESCAPES.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04X}") for c in text)
    return f'"{body}"'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"


def _table(keys: Keys, value: dict[str, Any], item: bool = False) -> list[str]:
    """The lines of a table (or of one item of a list of tables) under its own header."""
    header = ".".join(_key(key) for key in keys)
    lines = [f"[[{header}]]" if item else f"[{header}]"]
    lines += [f"{_key(key)} = {_value(entry)}" for key, entry in value.items()]
    return lines


def _with_block(text: str, lines: list[str]) -> str:
    newline = newline_of(text)
    ending = "" if not text or text.endswith("\n") else newline
    gap = newline if text.strip() else ""
    return text + ending + gap + newline.join(lines) + newline


def _without_block(text: str, lines: list[str]) -> str:
    newline = newline_of(text)
    block = newline.join(lines) + newline
    start = text.rfind(block)
    if start < 0:
        raise UnsafeEdit
    head, tail = text[:start], text[start + len(block) :]
    if head.endswith(newline * 2):
        head = head[: -len(newline)]
    elif head == newline:
        head = ""
    return head + tail


def _edit(text: str, keys: Keys, value: Any, how: str) -> str:
    import tomlkit

    doc = tomlkit.parse(text)
    here: Any = doc
    for key in keys[:-1]:
        if isinstance(key, str) and key not in here:
            here[key] = tomlkit.table(is_super_table=True)
        here = here[key]
    last = keys[-1]
    if how == "drop":
        del here[last]
    elif how == "append" and last in here:
        here[last].append(value)
    elif how == "append":
        here[last] = [value]
    elif isinstance(value, dict) and last in here and isinstance(here[last], dict):
        table = here[last]  # in place, so that comments beside unchanged keys stay
        for gone in [key for key in table if key not in value]:
            del table[gone]
        for key, entry in value.items():
            if key not in table or table[key] != entry:
                table[key] = entry
    else:
        here[last] = value
    return tomlkit.dumps(doc)
