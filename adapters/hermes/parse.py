"""Rows of Hermes' `messages` table (and lines of its older files) as turns. Pure: no database, no files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from funes_mcp.traces.identity import digest
from funes_mcp.traces.model import Block, BlockType, Role, Tally, Turn
from funes_mcp.traces.ours import is_own_output, is_own_question, is_own_tool
from funes_mcp.traces.text import clean, clean_tree, compact_json, elide
from funes_mcp.traces.time import to_rfc3339

#: Before content that is a list of parts; Hermes' store encodes it so.
_PARTS_PREFIX: Final = "\0json:"

_SUMMARY_HEADS: Final = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
_SUMMARY_END: Final = "--- END OF CONTEXT SUMMARY"
#: A summary that shares a message with a copy of an earlier one stands behind these two.
_PRIOR_HEAD: Final = "[PRIOR CONTEXT"
_PRIOR_END: Final = "[END OF PRIOR CONTEXT"

_SKILL: Final = re.compile(r"\[IMPORTANT: The user (?:has invoked|launched this CLI session with) the ")
_SKILL_ASK: Final = "The user has provided the following instruction alongside the skill invocation: "
_BUNDLE_ASK: Final = "\nUser instruction: "
#: Whole messages that the program writes in the user's name.
_MACHINE: Final = re.compile(r"\[(?:System: |SYSTEM: |IMPORTANT: (?:Background process|MCP servers|The \"))")
#: Notes that the program puts before the user's words, each a paragraph in brackets.
_NOTE: Final = re.compile(r"\[(?:System note|Note): [^\]]*\]\s*")
_AUTO_SKILL: Final = "skill is auto-loaded"

_WRAPPED: Final = re.compile(r"\s*<untrusted_tool_result[^>]*>\n(?P<body>.*?)\n?</untrusted_tool_result>\s*", re.DOTALL)
_WRAP_NOTE: Final = "The following content was retrieved from an external source."
#: What compaction leaves of a tool's result in its copy.
_CLEARED: Final = ("[Old tool output cleared", "[Duplicate tool output")


@dataclass(frozen=True, slots=True)
class Row:
    """A message as it is stored.

    Attributes:
        key: The row's id, or the line's number; orders the messages of a session.
        timestamp: Whatever the column holds; seconds since 1970 as a rule.
        undone: The user took it back (`/undo`, `/retry`).
        trimmed: A column was longer than is read.
    """

    key: int
    role: str
    content: str | None = None
    tool_calls: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    timestamp: object = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    undone: bool = False
    trimmed: bool = False


def content_key(row: Row) -> str:
    """Digest of all that a message says, without its time: what copies with a new time are compared by."""
    return digest(*_content(row))


def _content(row: Row) -> tuple[str, str, str, str]:
    return row.role, row.content or "", row.tool_calls or "", row.tool_call_id or ""


def identity_of(session_id: str, row: Row) -> str:
    """What copies of a message in other sessions are recognised by: speaker, content and exact time.

    Row ids are new in every copy. A message without a time is only itself.
    """
    if row.timestamp is None:
        return digest("hermes", session_id, str(row.key), content_key(row))
    return digest("hermes", repr(row.timestamp), *_content(row))


class SessionParser:
    """Turns the messages of one session, in the order of their ids, into turns."""

    def __init__(self, session_id: str, turn_prefix: str = "") -> None:
        self._session_id = session_id
        self._turn_prefix = turn_prefix
        self._seq = 0
        self._seen: set[str] = set()
        self._names: dict[str, str] = {}
        self._asked = False  # whether the user's first message was met
        self._ours = False  # whether that was a question of `funes ask`: the whole session is left out then

    def feed(self, row: Row, tally: Tally, identity: str | None = None) -> Turn | None:
        """The turn of the next message, or None; it is counted either way.

        `identity` stands for the message's own when it is known to be a copy.
        """
        kind = f"message/{row.role or '?'}"
        tally.lines += 1
        raw = _Raw(row)
        seq = self._seq
        if raw.retained:
            self._seq += 1
        reason = self._why_not(row, raw)
        if reason == _UNKNOWN:
            tally.unknown[kind] += 1
            return None
        blocks: tuple[Block, ...] = ()
        flags: set[str] = {"trimmed"} if row.trimmed else set()
        if not reason:
            found, reason = self._blocks(row, raw, tally)
            blocks = tuple(found)
        if self._is_ours(row, blocks):
            blocks, reason = (), "our own question"
        if not blocks:
            tally.skipped[kind, reason or "no words"] += 1
            return None
        if any(block.type == "summary" for block in blocks):
            flags.add("summary")
        is_summary = all(block.type == "summary" for block in blocks)
        tally.kept[kind] += 1
        return Turn(
            session_id=self._session_id,
            turn_uuid=f"{self._turn_prefix}{row.key}",
            parent_uuid=None,
            seq=seq,
            ts=to_rfc3339(row.timestamp),
            role="system" if is_summary else cast(Role, row.role),
            blocks=blocks,
            identity=identity or identity_of(self._session_id, row),
            flags=frozenset(flags),
        )

    def _is_ours(self, row: Row, blocks: tuple[Block, ...]) -> bool:
        if row.role == "user" and blocks and not self._asked:
            self._asked = True
            self._ours = is_own_question(blocks[0].text)
        return self._ours

    def _why_not(self, row: Row, raw: _Raw) -> str:
        if row.role == "system":
            return "system message"
        if row.role == "session_meta":
            return "tool definitions"
        if row.role not in ("user", "assistant", "tool"):
            return _UNKNOWN
        for call, name in raw.calls_by_id():
            self._names[call] = name
        if row.undone:
            return "taken back by the user"
        copies = set(self._copy_keys(row, raw))
        copied = not copies.isdisjoint(self._seen)
        self._seen |= copies
        return "copy made by compaction" if copied else ""

    def _copy_keys(self, row: Row, raw: _Raw) -> Iterator[str]:
        """A compaction writes the messages that it keeps again, with new ids, the old times, and results
        of tools perhaps cut down: the same speaker at the same instant with the same words or calls."""
        if row.timestamp is None:
            return
        when = repr(row.timestamp)
        if row.role == "tool":
            yield digest("tool", when, row.tool_call_id or row.content or "")
            return
        if row.content:
            yield digest(row.role, when, row.content)
        calls = [call for call, _name in raw.calls_by_id()]
        if calls or not row.content:
            yield digest(row.role, when, *calls)

    def _blocks(self, row: Row, raw: _Raw, tally: Tally) -> tuple[list[Block], str]:
        """The blocks that are kept, and else the reason why there is none."""
        if raw.images:
            tally.parts["tool_result" if row.role == "tool" else "text", "image"] += raw.images
        if row.role == "tool":
            return self._result(row, raw, tally)
        blocks: list[Block] = []
        late: list[tuple[BlockType, str]] = []  # blocks that the reference does not know come behind its own
        reason = ""
        idx = 0
        if row.role == "assistant":
            first = row.reasoning_content if row.reasoning_content is not None else row.reasoning
            if not _blank(first):
                blocks.append(_block("thinking", first or "", idx, tally))
                idx += 1
            elif not _blank(row.reasoning):
                late.append(("thinking", row.reasoning or ""))
        if not _blank(row.content):
            text = raw.text
            summary, rest = _split_summary(text)
            if row.role == "user" and summary is None:
                rest, reason = _user_words(rest)
            if summary is not None:
                blocks.append(_block("summary", summary, idx, tally))
                if rest and not self._said_before(row, rest):
                    late.append(("text", rest))
            elif not _blank(rest):
                blocks.append(_block("text", rest, idx, tally))
            elif raw.images and not reason:
                reason = "image"
            idx += 1
        if row.role == "assistant":
            for name, arguments in raw.calls:
                blocks.append(_block("tool_use", arguments, idx, tally, name))
                idx += 1
        for block_type, text in late:
            blocks.append(_block(block_type, text, idx, tally))
            idx += 1
        return blocks, reason

    def _said_before(self, row: Row, words: str) -> bool:
        """Whether words behind a summary are the copy of a message that was met before."""
        return row.timestamp is not None and digest(row.role, repr(row.timestamp), words) in self._seen

    def _result(self, row: Row, raw: _Raw, tally: Tally) -> tuple[list[Block], str]:
        name = row.tool_name or self._names.get(row.tool_call_id or "")
        text = raw.text
        if text.startswith(_CLEARED):
            return [], "cleared by compaction"
        text = _unwrapped(text)
        if is_own_tool(name) or is_own_output(text):
            return [], "our own answer"
        if _blank(text):
            return [], "image" if raw.images else "no words"
        return [_block("tool_result", text, 0, tally, name)], ""


_UNKNOWN: Final = "unknown"


class _Raw:
    """What a row holds, decoded: text, number of images, calls; and whether the reference makes a turn of it."""

    def __init__(self, row: Row) -> None:
        self.images = 0
        self.text = self._decoded(row.content or "")
        self._entries = self._calls_of(row.tool_calls) if row.role == "assistant" else []
        #: Name and arguments of each call.
        self.calls: list[tuple[str | None, str]] = [_call(entry) for entry in self._entries]
        said = not _blank(row.content)
        if row.role == "assistant":
            first = row.reasoning_content if row.reasoning_content is not None else row.reasoning
            self.retained = said or bool(self.calls) or not _blank(first)
        else:
            self.retained = said and row.role in ("user", "tool")

    def calls_by_id(self) -> Iterator[tuple[str, str]]:
        """Id and tool name of each call that has an id."""
        for entry, (name, _arguments) in zip(self._entries, self.calls, strict=True):
            call = entry.get("id") if isinstance(entry, dict) else None
            if isinstance(call, str) and call:
                yield call, name or ""

    def _decoded(self, content: str) -> str:
        if not content.startswith(_PARTS_PREFIX):
            return content
        try:
            value = json.loads(content[len(_PARTS_PREFIX) :])
        except (ValueError, RecursionError):
            return content[len(_PARTS_PREFIX) :]
        return self._flat(value)

    def _flat(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            value = [value]
        if not isinstance(value, list):
            return ""
        texts: list[str] = []
        for part in value:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict):
                if isinstance(part.get("text"), str):
                    texts.append(part["text"])
                elif "image" in str(part.get("type", "")):
                    self.images += 1
        return "\n".join(texts)

    @staticmethod
    def _calls_of(tool_calls: str | None) -> list[Any]:
        if not tool_calls:
            return []
        try:
            value = clean_tree(json.loads(tool_calls))
        except (ValueError, RecursionError):
            return []
        return value if isinstance(value, list) else []


def _call(entry: Any) -> tuple[str | None, str]:
    """Name and arguments of one call. The arguments are JSON text already, as a rule."""
    function = entry.get("function") if isinstance(entry, dict) else None
    if not isinstance(function, dict):
        return None, "{}"
    name = function.get("name")
    arguments = function.get("arguments", {})
    return (
        name if isinstance(name, str) else None,
        arguments if isinstance(arguments, str) else compact_json(arguments),
    )


def _split_summary(text: str) -> tuple[str | None, str]:
    """A compaction's summary, when the message holds one, and what else the message says.

    The instructions to the model that lead a summary are left out: they are the same in every one.
    """
    prior = ""
    if text.startswith(_PRIOR_HEAD) and _PRIOR_END in text:
        prior, _mark, text = text.partition(_PRIOR_END)
        prior = prior.partition("]")[2].strip()
        text = text.partition("]")[2].lstrip()
    if not text.startswith(_SUMMARY_HEADS):
        return None, text
    summary, found, rest = text.partition(_SUMMARY_END)
    if found:
        rest = rest.partition("---")[2]
    if summary.startswith("[CONTEXT COMPACTION"):
        _instructions, newline, body = summary.partition("\n")
        if newline:
            summary = body
    else:
        summary = summary.partition(":")[2]
    return summary.strip(), rest.strip() or prior


def _user_words(text: str) -> tuple[str, str]:
    """The user's own words within a message in the user's name; and if there are none, why."""
    if _SKILL.match(text):
        asked = _skill_request(text)
        return asked, "" if asked else "skill text"
    if _MACHINE.match(text):
        return "", "skill text" if _AUTO_SKILL in text[:400] else "written by the program"
    words = text
    while (note := _NOTE.match(words)) is not None:
        words = words[note.end() :]
    if words != text and _blank(words):
        return "", "written by the program"
    return words, ""


def _skill_request(text: str) -> str:
    _before, found, asked = text.rpartition(_SKILL_ASK)
    if found:
        return asked.partition("\n\n[Runtime note:")[0].strip()
    _before, found, asked = text.partition(_BUNDLE_ASK)
    return asked.partition("\n\n[Loaded as part of the ")[0].strip() if found else ""


def _unwrapped(text: str) -> str:
    """A tool's result without the warning that Hermes wraps results from outside in.

    An MCP tool's result is further an object whose only key is `result`.
    """
    if "<untrusted_tool_result" not in text:
        return text

    def body(match: re.Match[str]) -> str:
        inner = match["body"]
        if inner.startswith(_WRAP_NOTE):
            inner = inner.partition("\n\n")[2]
        return inner

    text = _WRAPPED.sub(body, text)
    if text.startswith('{"result"'):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if isinstance(value, dict) and list(value) == ["result"] and isinstance(value["result"], str):
            return value["result"]
    return text


def _block(block_type: BlockType, text: str, idx: int, tally: Tally, tool_name: str | None = None) -> Block:
    text, payloads = elide(clean(text))
    if payloads:
        tally.parts[block_type, "base64"] += payloads
    return Block(block_type, text, idx, clean(tool_name) if tool_name else None)


def _blank(text: str | None) -> bool:
    return text is None or not text.strip()
