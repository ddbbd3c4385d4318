"""Entries of a pi session as turns. Pure: records in, turns out, and a small state between readings.

A session file is a tree: each entry names the one it follows, and abandoned branches stay in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from funes_adapters.pi.sessions import HARNESS

from funes_mcp.traces.identity import digest
from funes_mcp.traces.jsonl import JsonlReader
from funes_mcp.traces.model import Block, BlockType, Cursor, Event, Role, SessionInfo, Source, Tally, Turn
from funes_mcp.traces.ours import is_own_output, is_own_question, is_own_tool
from funes_mcp.traces.text import clean, compact_json, elide
from funes_mcp.traces.time import to_rfc3339

#: Raise it when the same records give other turns.
VERSION: Final = 2

#: Entries that are no turns, of which is remembered what they follow. The next entry refers to the last one.
_PASSED: Final = 256

#: `<time>_<id>`, as pi names the files.
_STEM_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{1,3})Z")

#: Entry types that carry no conversation, with the reason under which they are counted.
_NOISE: Final[dict[str, str]] = {
    "model_change": "state of the program",
    "thinking_level_change": "state of the program",
    "usage": "usage",
    "label": "a bookmark",
    "custom": "an extension's data",
    "context_edit": "an edit of what the model sees",
}

#: What every entry has, whatever it is about.
_ENVELOPE: Final = frozenset({"type", "id", "parentId", "timestamp"})

#: Another program's sessions have the same header but entries of their own, named `user/message` and so on.
_FOREIGN: Final = re.compile(r"[a-z]+/[a-z]+|text-chunks")


def reader(source: Source, cursor: Cursor | None) -> JsonlReader:
    """A reader of one session file. Raises `OSError`."""
    return JsonlReader(
        source, cursor, lambda state, tally: SessionParser(source.path.stem, state, tally), version=VERSION
    )


@dataclass(slots=True)
class _State:
    """All that a parser has to remember, JSON-able.

    Attributes:
        seq: Messages so far that the Rust funes makes turns of.
        unnamed: Turns so far whose entry has no id.
        parents: The turn that an entry follows which is none itself.
        told: Digest of the last `SessionInfo` given.
        foreign: Whether the header is another program's.
        asked: Whether the user's first message was met.
        ours: Whether that was a question of `funes ask`: the whole session is left out then.
    """

    seq: int = 0
    unnamed: int = 0
    cwd: str | None = None
    title: str | None = None
    parent: str | None = None
    started: str | None = None
    told: str = ""
    foreign: bool = False
    asked: bool = False
    ours: bool = False
    parents: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> _State:
        """The state that `asdict` was made of. Raises `TypeError` and `KeyError` for anything else."""
        return cls(**{each.name: saved[each.name] for each in fields(cls)})


class SessionParser:
    """See `funes_mcp.traces.jsonl.RecordParser`. The session is named after its file, as the Rust funes does."""

    def __init__(self, session_id: str, state: dict[str, Any] | None, tally: Tally) -> None:
        self._session_id = clean(session_id)
        self._tally = tally
        self._state = _State.of(state) if state is not None else _State()
        self._facts_told: tuple[str | None, ...] = ()

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def end(self) -> Iterable[Event]:
        # What was learned of a session behind its last turn; without any turn there is none to speak of.
        told = self._state.told
        info = self._info() if told else None
        return [info] if info is not None and self._state.told != told else []

    def feed(self, record: dict[str, Any], trimmed: bool) -> list[Event]:
        kind = _text(record.get("type"))
        ts = to_rfc3339(record.get("timestamp"))
        if kind == "session":
            return self._header(record, ts)
        message = record.get("message")
        if kind == "message" and isinstance(message, dict):
            return self._message(record, message, ts or to_rfc3339(message.get("timestamp")), trimmed)
        if kind in ("compaction", "branch_summary"):
            return self._summary(record, record, kind, ts, trimmed)
        if kind == "custom_message":
            return self._injected(record, record, kind, ts, trimmed)
        if kind == "session_info":
            self._state.title = _text(record.get("name")).strip() or None
            return self._skip(record, kind, "the session's facts")
        if kind in _NOISE:
            return self._skip(record, kind, _NOISE[kind])
        if self._state.foreign and _FOREIGN.fullmatch(kind):
            return self._skip(record, kind, "another program's session")
        if kind == "message":
            return self._skip(record, kind, "no words")
        if kind and record.keys() <= _ENVELOPE:
            return self._skip(record, kind, "of an unknown kind, with nothing in it")
        self._tally.unknown[kind or "?"] += 1
        self._pass_over(record)
        return []

    # Sessions

    def _header(self, record: dict[str, Any], ts: str | None) -> list[Event]:
        state = self._state
        state.cwd = _text(record.get("cwd")) or state.cwd
        state.title = _text(record.get("title")).strip() or state.title
        above = _text(record.get("parentSession")) or _text(record.get("branchedFrom"))
        name = re.split(r"[\\/]", above)[-1].removesuffix(".jsonl")
        state.parent = name if name and name != self._session_id else state.parent
        state.started = ts or to_rfc3339(record.get("createdAt")) or state.started
        state.foreign = record.get("version") == 0
        return self._skip(record, "session", "the session's facts")

    def _info(self) -> SessionInfo | None:
        """What is known of the session, unless this reading has said it already."""
        state = self._state
        facts = (state.cwd, state.title, state.parent, state.started)
        if facts == self._facts_told:
            return None
        self._facts_told = facts
        state.told = digest(*(str(value) for value in facts))
        return SessionInfo(
            session_id=self._session_id,
            harness=HARNESS,
            cwd=state.cwd,
            title=state.title,
            parent_session_id=state.parent,
            relation="fork" if state.parent else None,
            started=state.started or _stem_time(self._session_id),
        )

    # Messages

    def _message(self, entry: dict[str, Any], message: dict[str, Any], ts: str | None, trimmed: bool) -> list[Event]:
        said = _text(message.get("role"))
        label = f"message/{said or '?'}"
        if said == "user":
            return self._spoken(entry, message, "user", label, ts, trimmed)
        if said == "assistant":
            return self._spoken(entry, message, "assistant", label, ts, trimmed)
        if said == "toolResult":
            return self._result(entry, message, label, ts, trimmed)
        if said == "bashExecution":
            return self._command(entry, message, label, ts, trimmed)
        if said in ("compactionSummary", "branchSummary"):
            return self._summary(entry, message, label, ts, trimmed)
        if said in ("custom", "hookMessage"):
            return self._injected(entry, message, label, ts, trimmed)
        if said == "system":
            return self._skip(entry, label, "system message")
        self._tally.unknown[label] += 1
        self._pass_over(entry)
        return []

    def _spoken(
        self,
        entry: dict[str, Any],
        message: dict[str, Any],
        role: Role,
        label: str,
        ts: str | None,
        trimmed: bool,
    ) -> list[Event]:
        content = message.get("content")
        blocks: list[Block] = []
        counts = False
        reason = "no words"
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):  # a form that the Rust funes passes over
                if part.strip():
                    blocks.append(self._block("text", part, len(blocks)))
                continue
            if not isinstance(part, dict):
                continue
            kind = _text(part.get("type"))
            if kind == "text":
                text = _text(part.get("text"))
                if text.strip():
                    blocks.append(self._block("text", text, len(blocks)))
                    counts = True
            elif kind == "thinking" and role == "assistant":
                text = _text(part.get("thinking"))
                if text.strip():
                    blocks.append(self._block("thinking", text, len(blocks)))
                    counts = True
            elif kind == "toolCall" and role == "assistant":
                arguments = part.get("arguments", {})
                text = arguments if isinstance(arguments, str) else compact_json(arguments)
                blocks.append(self._block("tool_use", text, len(blocks), _text(part.get("name"))))
                counts = True
            else:
                if kind == "image":
                    reason = "image"
                self._tally.parts["text", kind or "?"] += 1
        if not blocks and message.get("stopReason") in ("error", "aborted"):
            reason = "failed request"
        return self._give(entry, blocks, role, label, ts, trimmed, counts, reason)

    def _result(
        self, entry: dict[str, Any], message: dict[str, Any], label: str, ts: str | None, trimmed: bool
    ) -> list[Event]:
        text, images = _flat(message.get("content"))
        if images:
            self._tally.parts["tool_result", "image"] += images
        counts = bool(text.strip())
        tool = _text(message.get("toolName")) or None
        if is_own_tool(tool) or is_own_output(text):
            return self._give(entry, [], "tool", label, ts, trimmed, counts, "our own answer")
        blocks = [self._block("tool_result", text, 0, tool)] if counts else []
        return self._give(entry, blocks, "tool", label, ts, trimmed, counts, "image" if images else "no words")

    def _command(
        self, entry: dict[str, Any], message: dict[str, Any], label: str, ts: str | None, trimmed: bool
    ) -> list[Event]:
        """A command that the user ran: the call and its output, in one turn of the user's."""
        command, output = _text(message.get("command")), _text(message.get("output"))
        if is_own_output(output):
            return self._give(entry, [], "user", label, ts, trimmed, False, "our own answer")
        blocks = []
        if command.strip():
            blocks.append(self._block("tool_use", compact_json({"command": command}), 0, "bash"))
        if output.strip():
            blocks.append(self._block("tool_result", output, len(blocks), "bash"))
        return self._give(entry, blocks, "user", label, ts, trimmed, False, "no words")

    def _summary(
        self, entry: dict[str, Any], holder: dict[str, Any], label: str, ts: str | None, trimmed: bool
    ) -> list[Event]:
        text = _text(holder.get("summary"))
        blocks = [self._block("summary", text, 0)] if text.strip() else []
        return self._give(entry, blocks, "system", label, ts, trimmed, False, "no words")

    def _injected(
        self, entry: dict[str, Any], holder: dict[str, Any], label: str, ts: str | None, trimmed: bool
    ) -> list[Event]:
        """What an extension put before the model: text, but nobody's words."""
        text, images = _flat(holder.get("content"))
        if images:
            self._tally.parts["text", "image"] += images
        if is_own_output(text):
            return self._give(entry, [], "system", label, ts, trimmed, False, "our own answer")
        blocks = [self._block("text", text, 0)] if text.strip() else []
        return self._give(entry, blocks, "system", label, ts, trimmed, False, "image" if images else "no words")

    # Turns

    def _give(
        self,
        entry: dict[str, Any],
        blocks: list[Block],
        role: Role,
        label: str,
        ts: str | None,
        trimmed: bool,
        counts: bool,
        reason: str,
    ) -> list[Event]:
        """The turn of an entry, or its account when no block is left.

        `counts` says that the Rust funes makes a turn of it. Other turns take the place of the one before.
        """
        state = self._state
        seq = state.seq if counts else max(state.seq - 1, 0)
        state.seq += counts
        if role == "user" and not state.asked and blocks and blocks[0].type == "text":
            state.asked = True
            state.ours = is_own_question(blocks[0].text)
        if state.ours:
            return self._skip(entry, label, "our own question")
        if not blocks:
            return self._skip(entry, label, reason)
        self._tally.kept[label] += 1
        uuid = _text(entry.get("id"))
        if not uuid:  # as in the first releases
            uuid = f"{self._session_id}-{state.unnamed}"
            state.unnamed += 1
        flags = {name for name, is_set in (("trimmed", trimmed), ("summary", blocks[0].type == "summary")) if is_set}
        if state.started is None:
            state.started = _stem_time(self._session_id) or ts
        turn = Turn(
            session_id=self._session_id,
            turn_uuid=uuid,
            parent_uuid=self._above(entry),
            seq=seq,
            ts=ts,
            role=role,
            blocks=tuple(blocks),
            # Ids are only eight hex digits, so that equal ones mean a copy only with all else equal too.
            identity=digest("pi", uuid, str(entry.get("timestamp")), role, *(block.text for block in blocks)),
            flags=frozenset(flags),
        )
        info = self._info()
        return [turn] if info is None else [info, turn]

    def _block(self, block_type: BlockType, text: str, idx: int, tool: str | None = None) -> Block:
        text, payloads = elide(clean(text))
        if payloads:
            self._tally.parts[block_type, "base64"] += payloads
        return Block(block_type, text, idx, tool or None)

    def _skip(self, entry: dict[str, Any], label: str, reason: str) -> list[Event]:
        self._tally.skipped[label, reason] += 1
        self._pass_over(entry)
        return []

    def _pass_over(self, entry: dict[str, Any]) -> None:
        """Remember what an entry follows that is no turn, so that what follows it follows a turn."""
        uuid = _text(entry.get("id"))
        if not uuid or entry.get("type") == "session":
            return
        parents = self._state.parents
        parents[uuid] = self._above(entry)
        while len(parents) > _PASSED:
            del parents[next(iter(parents))]

    def _above(self, entry: dict[str, Any]) -> str | None:
        """The turn that an entry follows, entries that are no turns left out."""
        above = _text(entry.get("parentId")) or None
        return self._state.parents.get(above, above) if above is not None else None


def _flat(content: object) -> tuple[str, int]:
    """The text of a message's content, and how many images it holds."""
    if isinstance(content, str):
        return clean(content), 0
    texts: list[str] = []
    images = 0
    for part in content if isinstance(content, list) else []:
        if isinstance(part, str):
            texts.append(clean(part))
        elif isinstance(part, dict):
            if part.get("type") == "text":
                texts.append(_text(part.get("text")))
            elif part.get("type") == "image":
                images += 1
    return "\n".join(texts), images


def _stem_time(stem: str) -> str | None:
    match = _STEM_TIME.match(stem)
    return to_rfc3339(f"{match[1]}T{match[2]}:{match[3]}:{match[4]}.{match[5]}Z") if match else None


def _text(value: object) -> str:
    return clean(value) if isinstance(value, str) else ""
