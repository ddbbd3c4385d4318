"""The forms in which a rollout's payloads come: one value out of each, whichever release wrote it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from funes_mcp.traces.model import Tally
from funes_mcp.traces.text import clean, compact_json
from funes_mcp.traces.time import to_rfc3339

_UUID7: Final = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
#: The first part of an MCP tool's result is Codex' own.
_TIMING: Final = re.compile(r"\s*Wall time: [\d.]+ seconds\s*(?:Output:\s*)?")
#: Types of text that the Rust funes reads in a message.
ITEM_TEXTS: Final = ("input_text", "output_text")
#: Namespaces of MCP servers; Codex' own tools have others, which older sessions do not name.
_SERVERS: Final = ("mcp", "funes")


def is_counted(payload: dict[str, Any]) -> bool:
    """Whether the Rust funes makes a turn of a response item: then the count of turns moves on."""
    name = payload.get("type")
    if name == "message":
        content = payload.get("content")
        if isinstance(content, str):
            return bool(content.strip())
        return isinstance(content, list) and any(
            part in ITEM_TEXTS and text.strip() for part, text in parts_of(content)
        )
    if name == "reasoning":
        summary = payload.get("summary")
        return isinstance(summary, list) and any(
            isinstance(part, dict) and part.get("type") == "summary_text" and text_of(part.get("text")).strip()
            for part in summary
        )
    if name in ("function_call", "custom_tool_call"):
        return True
    if name in ("function_call_output", "custom_tool_call_output"):
        output = payload.get("output")
        return bool(output.strip()) if isinstance(output, str) else output is not None
    return False


def parts_of(content: object) -> list[tuple[str, str]]:
    """Type and text of each part of a message's content, in whichever form it comes."""
    if isinstance(content, str):
        return [("input_text", content)]
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return []
    parts: list[tuple[str, str]] = []
    for part in content:
        if isinstance(part, str):
            parts.append(("text", part))
        elif isinstance(part, dict):
            parts.append((text_of(part.get("type")), text_of(part.get("text"))))
    return parts


def summary_of(summary: object) -> list[str]:
    """The texts of a reasoning summary: a list of parts, of strings, or one string."""
    if isinstance(summary, str):
        return [summary]
    if isinstance(summary, dict):
        summary = [summary]
    if not isinstance(summary, list):
        return []
    known = [part for part in summary if isinstance(part, (str, dict))]
    return [part if isinstance(part, str) else text_of(part.get("text")) for part in known]


def item_kinds(payload: dict[str, Any], metadata: object) -> list[str]:
    """What Codex noted of each part of a message, where it did."""
    for holder in (payload.get("internal_chat_message_metadata_passthrough"), payload.get("metadata"), metadata):
        kinds = holder.get("content_item_kinds") if isinstance(holder, dict) else None
        if isinstance(kinds, list):
            return [text_of(kind) for kind in kinds]
    return []


def tool_name(payload: dict[str, Any]) -> str:
    """A tool's name; that of an MCP tool behind its server's, for two servers may have tools of one name."""
    name, namespace = text_of(payload.get("name")), text_of(payload.get("namespace")).rstrip("_")
    if not name or not namespace.startswith(_SERVERS) or name.startswith(namespace):
        return name
    return f"{namespace}__{name}"


def output_text(output: object, tally: Tally) -> str:
    """A tool's output as plain text.

    Left out is what is not the tool's: the wrapping of text in objects and arrays, and the part in which
    Codex notes how long an MCP tool took. The header that commands' outputs carry within one text stays: it
    says how the command ended.
    """
    if isinstance(output, str):
        if output.startswith('{"output"'):
            try:
                value = json.loads(output)
            except (ValueError, RecursionError):
                return output
            if isinstance(value, dict) and value.keys() <= {"output", "metadata"} and isinstance(value["output"], str):
                return value["output"]
        return output
    if isinstance(output, dict):
        for name in ("output", "content", "content_items", "text"):
            if isinstance(output.get(name), (str, list)):
                return output_text(output[name], tally)
        return compact_json(output)
    if isinstance(output, list):
        return joined(output, tally, "tool_result")
    return "" if output is None else compact_json(output)


def joined(content: object, tally: Tally, block_type: str) -> str:
    texts = []
    for at, (part, text) in enumerate(parts_of(content)):
        if "image" in part or "audio" in part:
            tally.parts[block_type, "image"] += 1
        elif not (at == 0 and block_type == "tool_result" and _TIMING.fullmatch(text)):
            texts.append(text)
    return "\n".join(texts)


def as_json(value: object) -> str:
    """Arguments as JSON text; they are text already, as a rule."""
    if isinstance(value, str):
        return value
    return "{}" if value is None else compact_json(value)


def uuid_ms(uuid: str) -> int | None:
    """Unix milliseconds that a UUID of version 7 begins with (RFC 9562, section 5.7)."""
    match = _UUID7.fullmatch(uuid)
    return int(match[1] + match[2], 16) if match else None


def uuid_time(uuid: str) -> str | None:
    return to_rfc3339(uuid_ms(uuid))


def text_of(value: object) -> str:
    return clean(value) if isinstance(value, str) else ""
