"""The content of a message as blocks, counted as the Rust funes counts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from funes_mcp.traces.model import BlockType
from funes_mcp.traces.text import clean, compact_json, elide

#: Blocks that the Rust funes does not count get positions from here on, so that they never take one of its.
EXTRA: Final = 1_000

_OTHER_USES: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_NOT_TEXT: Final[dict[str, str]] = {
    "image": "image",
    "document": "document",
    "redacted_thinking": "encrypted",
    "tool_reference": "tool definitions",
    "container_upload": "file reference",
    "fallback": "state of the program",
    "connector_text": "state of the program",
}


@dataclass(frozen=True, slots=True)
class RawBlock:
    """A block before anything is left out of it.

    Attributes:
        idx: Position among the blocks that the Rust funes counts, or from `EXTRA` on.
        tool_id: Joins a call and its result.
        tool_name: Of a call.
    """

    type: BlockType
    text: str
    idx: int
    tool_name: str | None = None
    tool_id: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """Blocks with words, and `(block type, reason)` of all that has none.

    `counted` says whether the Rust funes makes a turn of this message.
    """

    blocks: tuple[RawBlock, ...]
    omitted: tuple[tuple[str, str], ...]
    counted: bool


def read_content(content: Any) -> Content:
    """The blocks of `message.content`: a string, or a list of typed blocks."""
    if isinstance(content, str):
        if content.strip():
            return Content((RawBlock("text", content, 0),), (), True)
        return Content((), (("text", "no words"),), False)
    if not isinstance(content, list):
        return Content((), (), False)
    blocks: list[RawBlock] = []
    omitted: list[tuple[str, str]] = []
    counted = extra = 0
    for item in content:
        if not isinstance(item, dict):
            omitted.append(("text", "not a block"))
            continue
        block = _read_block(item, counted, EXTRA + extra, omitted)
        if block is None:
            continue
        blocks.append(block)
        if block.idx == counted:
            counted += 1
        else:
            extra += 1
    return Content(tuple(blocks), tuple(omitted), counted > 0)


def _read_block(item: dict[str, Any], idx: int, extra: int, omitted: list[tuple[str, str]]) -> RawBlock | None:
    """A block with the position `idx` if the Rust funes counts it, else `extra`; None when it has no words."""
    kind = item.get("type")
    if not isinstance(kind, str):
        kind = "untyped"
    if kind == "text":
        text = item.get("text")
        if isinstance(text, str) and text.strip():
            return RawBlock("text", text, idx)
        omitted.append(("text", "no words"))
    elif kind == "thinking":
        text = item.get("thinking")
        if isinstance(text, str) and text.strip():
            return RawBlock("thinking", text, idx)
        omitted.append(("thinking", "hidden by the provider"))
    elif kind == "tool_use" or kind in _OTHER_USES:
        at = idx if kind == "tool_use" else extra
        arguments = compact_json(item.get("input", {}))
        return RawBlock("tool_use", arguments, at, _string(item.get("name")), _string(item.get("id")))
    elif kind == "tool_result" or kind.endswith("_tool_result"):
        content = item.get("content")
        text = result_text(content, omitted)
        if text.strip():
            at = idx if kind == "tool_result" and not isinstance(content, dict) else extra
            return RawBlock("tool_result", text, at, None, _string(item.get("tool_use_id")))
        omitted.append((kind, "no words"))
    else:
        omitted.append((kind, _NOT_TEXT.get(kind, "unknown block type")))
    return None


def result_text(content: Any, omitted: list[tuple[str, str]]) -> str:
    """The words of a tool's result: a string, or its text parts joined by newlines."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        if "type" not in content:
            return structured_result(content)
        content = [content]
    if not isinstance(content, list):
        return ""
    parts: list[str] = []
    for item in content:
        if isinstance(item, str):
            parts.append(item)
        elif isinstance(item, dict):
            if item.get("type") == "text":
                parts.append(_string(item.get("text")) or "")
            elif item.get("type") == "web_search_result":
                parts.append(f"{_string(item.get('title')) or ''} {_string(item.get('url')) or ''}".strip())
            else:
                kind = _string(item.get("type")) or "untyped"
                omitted.append((kind, _NOT_TEXT.get(kind, "unknown block type")))
    return "\n".join(parts)


#: Where the structured result of a tool keeps its words, most telling first.
_RESULT_KEYS: Final = ("content", "result", "output", "text", "message", "summary", "error")
#: Wrappings in which models of another make leave it.
_NESTING: Final = ("responseParts", "functionResponse", "response")


def structured_result(value: Any) -> str:
    """The words in `toolUseResult`, which some versions write instead of a content block; "" if none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return result_text(value, [])
    if not isinstance(value, dict):
        return ""
    streams = [value[key] for key in ("stdout", "stderr") if isinstance(value.get(key), str)]
    if streams:
        return "\n".join(stream for stream in streams if stream.strip())
    file = value.get("file")
    if isinstance(file, dict) and isinstance(file.get("content"), str):
        return str(file["content"])
    for key in _NESTING:
        if isinstance(value.get(key), dict):
            return structured_result(value[key])
    for key in _RESULT_KEYS:
        text = result_text(value.get(key), [])
        if text.strip():
            return text
    names = value.get("filenames")
    return "\n".join(n for n in names if isinstance(n, str)) if isinstance(names, list) else ""


def storable(text: str, omitted: list[tuple[str, str]], kind: str) -> str:
    """The text as it may be stored: no lone surrogates, no NUL, no payloads."""
    text, found = elide(clean(text))
    omitted.extend([(kind, "base64")] * found)
    return text


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
