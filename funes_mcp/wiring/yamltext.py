"""YAML edits that keep comments, order and layout."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from funes_mcp.wiring import document
from funes_mcp.wiring.document import BrokenText, Keys, UnsafeEdit, WrongShape, newline_of

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


class YamlFormat:
    """YAML in block style is edited line by line; flow style and odd shapes go through a round trip."""

    name = "YAML"

    def parse(self, text: str) -> dict[str, Any]:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        try:
            value = YAML(typ="safe", pure=True).load(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
            raise BrokenText(error.problem or "not valid YAML", line, column) from None
        except (YAMLError, ValueError, RecursionError) as error:
            raise BrokenText(str(error).splitlines()[0] if str(error) else "not valid YAML") from None
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise WrongShape((), "a mapping")
        return value

    def put(self, text: str, keys: Keys, value: Any) -> str:
        root = self.parse(text)
        wanted = document.put_value(root, keys, value)
        if wanted == root and document.has(root, keys):
            return text
        return self._first(text, wanted, keys, value, "put")

    def append(self, text: str, keys: Keys, value: Any) -> str:
        root = self.parse(text)
        wanted = document.append_value(root, keys, value)
        if document.look(root, keys) is None:
            return self._first(text, wanted, keys, [value], "put")
        return self._first(text, wanted, keys, value, "append")

    def drop(self, text: str, keys: Keys) -> str:
        root = self.parse(text)
        if not document.has(root, keys):
            return text
        return self._first(text, document.drop_value(root, keys), keys, None, "drop")

    def _first(self, text: str, wanted: dict[str, Any], keys: Keys, value: Any, how: str) -> str:
        for attempt in (_by_lines, _by_round_trip):
            try:
                result = attempt(text, keys, value, how)
                if self.parse(result) == wanted:
                    return result
            except Exception:  # an attempt that breaks is an attempt that failed; the check decides
                continue
        raise UnsafeEdit


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _block(value: Any, indent: str) -> list[str]:
    """A table or list in block style, every line with its indentation."""
    lines: list[str] = []
    entries = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, entry in entries:
        label = "-" if key is None else f"{_scalar(key)}:"
        if isinstance(entry, dict) and entry and key is None:
            inner = _block(entry, indent + "  ")
            lines.append(f"{indent}- {inner[0].lstrip()}")
            lines += inner[1:]
        elif isinstance(entry, dict | list) and entry and not (isinstance(entry, list) and _flat(entry)):
            lines.append(f"{indent}{label}")
            lines += _block(entry, indent + ("" if isinstance(entry, list) and key is not None else "  "))
        elif isinstance(entry, list) and entry:
            lines.append(f"{indent}{label} [{', '.join(_scalar(item) for item in entry)}]")
        else:
            lines.append(f"{indent}{label} {_scalar(entry)}")
    return lines


def _flat(items: list[Any]) -> bool:
    return not any(isinstance(item, dict | list) for item in items)


def _by_lines(text: str, keys: Keys, value: Any, how: str) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import MappingNode, SequenceNode

    root = YAML(pure=True).compose(text)
    newline = newline_of(text)
    if root is None:
        return _join(text, len(text), _block(document.nest(keys, value), ""), newline)
    node: Any = root
    parent: Any = None
    position = 0  # where the entry of `node` in its parent starts
    after_key = 0  # where the key of `parent` ends
    key_end = 0
    depth = 0
    for key in keys:
        if isinstance(node, MappingNode) and isinstance(key, str):
            pair = next(((k, v) for k, v in node.value if k.value == key), None)
            if pair is None:
                break
            position, after_key, key_end = pair[0].start_mark.index, key_end, pair[0].end_mark.index
            parent, node = node, pair[1]
        elif isinstance(node, SequenceNode) and isinstance(key, int):
            parent, node = node, node.value[key]
            position, after_key = node.start_mark.index, key_end
        else:
            raise UnsafeEdit
        depth += 1
    if how == "drop":
        start = text.rfind("\n", 0, position) + 1
        if text[start:position].strip(" -") or (isinstance(keys[-1], str) and "-" in text[start:position]):
            raise UnsafeEdit  # shares its line with something else
        tail = text[_line_end(text, _leaf_end(node)) :]
        if len(parent.value) == 1 and depth > 1:  # what would be left is null, and not an empty list or table
            colon = text.index(":", after_key) + 1
            return text[:colon] + (" []" if isinstance(parent, SequenceNode) else " {}") + text[colon:start] + tail
        return text[:start] + tail
    if how == "put" and depth == len(keys):
        if node.id == "scalar" and node.style in (None, "'", '"') and not isinstance(value, dict | list):
            return text[: node.start_mark.index] + _scalar(value) + text[node.end_mark.index :]
        start = text.rfind("\n", 0, position) + 1
        indent = text[start:position]
        if indent.strip(" ") or not isinstance(keys[-1], str):
            raise UnsafeEdit
        end = _line_end(text, _leaf_end(node))
        return _join(text[:start] + text[end:], start, _block({keys[-1]: value}, indent), newline)
    if how == "put":
        value = document.nest(keys[depth + 1 :], value)
        if not isinstance(node, MappingNode) or node.flow_style or not node.value:
            raise UnsafeEdit
        column = node.start_mark.column if depth else 0
        lines = _block({keys[depth]: value}, " " * column)
    else:
        if not isinstance(node, SequenceNode) or node.flow_style or not node.value:
            raise UnsafeEdit
        lines = _block([value], " " * node.start_mark.column)
    return _join(text, _line_end(text, _leaf_end(node)), lines, newline)


def _leaf_end(node: Any) -> int:
    """Where the last written character of a node is; a block collection's own mark lies behind later comments."""
    if node.id != "scalar" and node.value and not node.flow_style:
        last = node.value[-1]
        return _leaf_end(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end


def _line_end(text: str, position: int) -> int:
    """The start of the line after a position; the position itself when it is at the start of a line already."""
    if position and text[position - 1] == "\n":
        return position
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def _join(text: str, position: int, lines: list[str], newline: str) -> str:
    head = text[:position]
    ending = "" if not head or head.endswith("\n") else newline
    return head + ending + newline.join(lines) + newline + text[position:]


def _by_round_trip(text: str, keys: Keys, value: Any, how: str) -> str:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1_000_000
    dashes = re.search(r"^([ ]*)[^\s#-][^\n]*:[ ]*\r?\n([ ]*)- ", text, re.MULTILINE)
    offset = len(dashes[2]) - len(dashes[1]) if dashes else 0
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    doc = yaml.load(text)
    here = doc
    for key in keys[:-1]:
        if isinstance(key, str) and here.get(key) is None:
            here[key] = {}
        here = here[key]
    if how == "drop":
        del here[keys[-1]]
    elif how == "append":
        here[keys[-1]].append(value)
    else:
        here[keys[-1]] = value
    out = io.StringIO()
    yaml.dump(doc, out)
    result = out.getvalue()
    return result.replace("\n", "\r\n") if "\r\n" in text and "\r\n" not in result else result
