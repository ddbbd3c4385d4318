"""Records of a Codex rollout as turns. Pure: records in, turns out, and a small state between readings.

How turns are numbered. Each response item that the Rust funes keeps is a turn `<session>-<n>`, n counting
those items from 0, whether or not we index it. What only we make a turn of (a web search, a message that is
recorded as an event alone, an item of the first releases) must not move that count: behind item n it is
`<session>-<n>.001` and so on with n as its place, and before the first item `<session>-.0000` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from funes_adapters.codex.forms import (
    ITEM_TEXTS,
    as_json,
    is_counted,
    item_kinds,
    joined,
    output_text,
    parts_of,
    summary_of,
    text_of,
    tool_name,
    uuid_ms,
    uuid_time,
)
from funes_adapters.codex.kinds import NOISE, NOISE_ITEMS, event_reason, own_words, request_of
from funes_adapters.codex.sessions import HARNESS, date_of, is_uuid, thread_of

from funes_mcp.traces.identity import digest
from funes_mcp.traces.jsonl import JsonlReader
from funes_mcp.traces.model import Block, BlockType, Cursor, Event, Role, SessionInfo, Source, Tally, Turn
from funes_mcp.traces.ours import is_own_output, is_own_question, is_own_tool
from funes_mcp.traces.text import clean, elide, repo_of_remote
from funes_mcp.traces.time import to_rfc3339, to_unix_ms

#: Raise it when the same records give other turns.
VERSION: Final = 3

#: Calls whose tool is remembered until their output comes.
_CALLS: Final = 256
#: Messages remembered to recognise their second recording by.
_RECENT: Final = 24
#: Messages recorded as events that wait for the item that repeats them; it is the next record as a rule.
_WAITING: Final = 16
_WAITING_CHARS: Final = 65_536

#: A copied history is written at once. Later records are the session's own, where no turn ids tell.
_COPY_MS: Final = 500
#: … and where turn ids tell, this only bounds a copy that never ends.
_COPY_MAX_MS: Final = 120_000


_COPIED: Final = "copied from the session it was forked from"
_REPEATS: Final = "recorded twice"
_OWN: Final = "our own question"


def reader(source: Source, cursor: Cursor | None) -> JsonlReader:
    """A reader of one rollout. Raises `OSError`."""
    return JsonlReader(source, cursor, lambda state, tally: RolloutParser(source.path, state, tally), version=VERSION)


@dataclass(slots=True)
class _Facts:
    """What is known of the session so far; `SessionInfo` without its fixed parts."""

    session_id: str = ""
    cwd: str | None = None
    repo: str | None = None
    branch: str | None = None
    commit: str | None = None
    title: str | None = None
    parent_session_id: str | None = None
    relation: Literal["subagent", "fork"] | None = None
    agent_name: str | None = None
    originator: str | None = None
    started: str | None = None


_FACTS: Final = tuple(each.name for each in fields(_Facts))


@dataclass(slots=True)
class _Waiting:
    """A message recorded as an event, until it is clear that no item repeats it."""

    role: Role
    type: BlockType
    text: str
    ts: str | None
    kind: str
    key: str
    trimmed: bool


@dataclass(slots=True)
class _State:
    """All that a parser has to remember, JSON-able.

    Attributes:
        seq: Items so far that the Rust funes makes turns of.
        extra: Turns of ours alone since the last of them.
        any_item: Whether a response item was met: events only repeat items then.
        told: Digest of the last `SessionInfo` given.
        named: Whether the session's id is settled, by a record or by the first turn.
        copying: Whether the records are those of the session that this one was forked from.
        copy_ids: Whether turn ids were met in that copy.
        began: Unix milliseconds at which the file was begun, for telling the copy's end.
        tools: Tool names by the id of their call.
        recent: Keys of messages given lately.
        waiting: See `_Waiting`.
        said: Length and digest of the assistant's last message, which a compaction repeats.
        asked: Whether the user's first message was met.
        here: The folder of the turns that follow.
        ours: Whether that was a question of `funes ask`: the whole session is left out then.
    """

    facts: _Facts = field(default_factory=_Facts)
    seq: int = 0
    extra: int = 0
    any_item: bool = False
    told: str = ""
    named: bool = False
    copying: bool = False
    copy_ids: bool = False
    began: int | None = None
    tools: dict[str, str] = field(default_factory=dict)
    recent: list[str] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)
    said: tuple[int, str] = (0, "")
    asked: bool = False
    ours: bool = False
    here: str | None = None

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> _State:
        """The state that `asdict` was made of. Raises `TypeError` and `KeyError` for anything else."""
        state = cls(**{each.name: saved[each.name] for each in fields(cls)})
        state.facts = _Facts(**saved["facts"])
        state.waiting = [_Waiting(**waiting) for waiting in saved["waiting"]]
        state.said = (int(saved["said"][0]), str(saved["said"][1]))
        return state


class RolloutParser:
    """See `funes_mcp.traces.jsonl.RecordParser`."""

    def __init__(self, path: Path, state: dict[str, Any] | None, tally: Tally) -> None:
        self._path = path
        self._tally = tally
        self._state = _State.of(state) if state is not None else _State()
        self._facts_told: tuple[object, ...] = ()

    def state(self) -> dict[str, Any]:
        return asdict(self._state)

    def end(self) -> Iterable[Event]:
        # What was learned of a session behind its last turn; without any turn there is none to speak of.
        told = self._state.told
        info = self._info() if told else None
        return [info] if info is not None and self._state.told != told else []

    def feed(self, record: dict[str, Any], trimmed: bool) -> list[Event]:
        kind = text_of(record.get("type"))
        payload = record.get("payload")
        ts = to_rfc3339(record.get("timestamp") or record.get("time"))
        if self._state.ours:
            name = text_of(payload.get("type")) if isinstance(payload, dict) else ""
            return self._skip(f"{kind or 'item'}/{name}" if name else kind or "item", _OWN)
        if not isinstance(payload, dict):
            return self._without_payload(record, kind, ts, trimmed)
        if kind == "session_meta":
            return self._meta(payload, ts)
        if self._state.copying and self._still_copied(kind, payload, ts):
            return self._copied(kind, payload)
        if kind == "response_item":
            return self._item(payload, kind, ts, trimmed, record.get("metadata"))
        if kind == "event_msg":
            return self._event(payload, ts, trimmed)
        if kind == "compacted":
            return self._compacted(payload, ts, trimmed)
        if kind == "turn_context":
            self._learn_cwd(payload.get("cwd"))
            return self._skip(kind, "state of the program")
        if kind in NOISE:
            return self._skip(kind, NOISE[kind])
        self._tally.unknown[kind or "?"] += 1
        return self._flushed()

    # Sessions

    def _meta(self, payload: dict[str, Any], ts: str | None) -> list[Event]:
        state = self._state
        named = text_of(payload.get("id"))
        if not state.named:
            state.named = True
            state.began = to_unix_ms(ts)
            state.facts = self._facts_of(payload, ts)
            return self._skip("session_meta", "the session's facts")
        if named and named != state.facts.session_id and state.seq == 0 and state.extra == 0:
            # The facts of the parent, whose records follow. Newer forks point to them and copy nothing.
            state.copying = True
            if state.facts.parent_session_id is None:
                state.facts.parent_session_id = named
                state.facts.relation = state.facts.relation or "fork"
            return self._skip("session_meta", _COPIED)
        if named == state.facts.session_id:
            fresh = self._facts_of(payload, ts)
            state.facts.branch, state.facts.commit = fresh.branch, fresh.commit
            state.facts.cwd = state.facts.cwd or fresh.cwd
            state.facts.repo = state.facts.repo or fresh.repo
        return self._skip("session_meta", "the session's facts")

    def _facts_of(self, payload: dict[str, Any], ts: str | None) -> _Facts:
        session_id = text_of(payload.get("id"))
        if not session_id:
            in_name = thread_of(self._path)
            session_id = in_name if is_uuid(in_name) else text_of(payload.get("session_id")) or in_name
        source = payload.get("source")
        subagent = source.get("subagent") if isinstance(source, dict) else None
        spawn = subagent.get("thread_spawn") if isinstance(subagent, dict) else None
        spawn = spawn if isinstance(spawn, dict) else {}
        base = payload.get("history_base")
        fork = text_of(payload.get("forked_from_id")) or text_of(
            base.get("thread_id") if isinstance(base, dict) else None
        )
        spawned_by = text_of(payload.get("parent_thread_id")) or text_of(spawn.get("parent_thread_id"))
        is_subagent = subagent is not None or payload.get("thread_source") == "subagent"
        parent = (spawned_by or fork) if is_subagent else (fork or spawned_by)
        originator = text_of(payload.get("originator"))
        git = payload.get("git")
        git = git if isinstance(git, dict) else {}
        agent = ""
        if is_subagent:
            agent = next(
                (
                    name
                    for name in (
                        text_of(payload.get("agent_nickname")),
                        text_of(spawn.get("agent_nickname")),
                        text_of(payload.get("agent_role")),
                        text_of(spawn.get("agent_role")),
                        text_of(subagent),
                    )
                    if name
                ),
                "",
            )
        return _Facts(
            session_id=session_id,
            cwd=text_of(payload.get("cwd")) or None,
            repo=repo_of_remote(text_of(git.get("repository_url"))),
            branch=text_of(git.get("branch")) or None,
            commit=text_of(git.get("commit_hash")) or None,
            parent_session_id=parent or None,
            relation="subagent" if is_subagent else ("fork" if parent else None),
            agent_name=agent or None,
            originator=None if originator.lower().startswith("codex") else originator or None,
            started=to_rfc3339(payload.get("timestamp")) or ts or uuid_time(session_id) or self._date(),
        )

    def _date(self) -> str | None:
        return to_rfc3339(date_of(self._path))

    def _settle(self, ts: str | None) -> None:
        """Name the session after its file, when no record named it before its first turn."""
        state = self._state
        if state.named:
            return
        state.named = True
        state.facts.session_id = thread_of(self._path)
        state.facts.started = uuid_time(state.facts.session_id) or self._date() or ts

    def _learn_cwd(self, cwd: object) -> None:
        self._state.here = text_of(cwd) or self._state.here
        if self._state.facts.cwd is None:
            self._state.facts.cwd = text_of(cwd) or None

    def _info(self) -> SessionInfo | None:
        """What is known of the session, unless this reading has said it already."""
        facts = tuple([getattr(self._state.facts, name) for name in _FACTS])
        if facts == self._facts_told:
            return None
        self._facts_told = facts
        self._state.told = digest(*(str(value) for value in facts))
        return SessionInfo(harness=HARNESS, **asdict(self._state.facts))

    # A copied history

    def _still_copied(self, kind: str, payload: dict[str, Any], ts: str | None) -> bool:
        """Whether a record still belongs to the history copied from the parent.

        Turn ids are UUIDs of version 7 and begin with the time, as thread ids do: turns older than the
        thread are the parent's. Without such ids the record's own time has to tell, for a copy is written
        at once, with the time of the fork on each record.
        """
        state = self._state
        now = to_unix_ms(ts)
        later = None if now is None or state.began is None else now - state.began
        named = text_of(payload.get("turn_id"))
        turn, thread = uuid_ms(named), uuid_ms(state.facts.session_id)
        begins = kind == "turn_context" or payload.get("type") in ("task_started", "turn_started")
        if begins and turn is not None and thread is not None:
            state.copy_ids = True
            state.copying = turn < thread
        elif begins and named and later is not None:
            state.copying = later <= 0
        if later is not None and later > (_COPY_MAX_MS if state.copy_ids else _COPY_MS):
            state.copying = False
        return state.copying

    def _copied(self, kind: str, payload: dict[str, Any]) -> list[Event]:
        """Pass over a record of the parent's, but count it as the Rust funes does."""
        if kind == "response_item":
            self._state.any_item = True
            if is_counted(payload):
                self._state.seq += 1
            call = text_of(payload.get("call_id"))
            if call and payload.get("type") in ("function_call", "custom_tool_call"):
                self._remember_call(call, tool_name(payload))
        name = text_of(payload.get("type"))
        self._tally.skipped[f"{kind}/{name}" if name else kind, _COPIED] += 1
        return []

    # Response items

    def _item(self, payload: dict[str, Any], kind: str, ts: str | None, trimmed: bool, metadata: object) -> list[Event]:
        self._state.any_item = True
        counts = kind == "response_item" and is_counted(payload)
        name = text_of(payload.get("type")) or ("message" if "role" in payload else "")
        label = f"{kind}/{name}" if kind == "response_item" else f"item/{name}"
        if name == "message":
            events = self._message(payload, label, ts, trimmed, metadata, counts)
        elif name == "reasoning":
            events = self._reasoning(payload, label, ts, trimmed, counts)
        elif name in ("function_call", "custom_tool_call", "tool_search_call"):
            tool = tool_name(payload)
            call = text_of(payload.get("call_id"))
            if call and tool:
                self._remember_call(call, tool)
            arguments = payload.get("arguments", payload.get("input"))
            events = self._one("tool_use", as_json(arguments), tool or name, "assistant", label, ts, trimmed, counts)
        elif name in ("local_shell_call", "web_search_call"):
            tool = name.removesuffix("_call")
            call = text_of(payload.get("call_id"))
            if call:
                self._remember_call(call, tool)
            action = payload.get("action")
            if action:
                events = self._one("tool_use", as_json(action), tool, "assistant", label, ts, trimmed, counts)
            else:
                events = self._skip(label, "no words")
        elif name.endswith("_call_output"):
            events = self._output(payload, label, ts, trimmed, counts)
        elif name == "agent_message":
            text = joined(payload.get("content"), self._tally, "text")
            events = self._one("text", text, None, "assistant", label, ts, trimmed, counts)
        elif name in NOISE_ITEMS:
            events = self._skip(label, NOISE_ITEMS[name])
        else:
            self._tally.unknown[label] += 1
            events = self._flushed()
        if counts:
            self._state.seq += 1
            self._state.extra = 0
        return events

    def _message(
        self,
        payload: dict[str, Any],
        label: str,
        ts: str | None,
        trimmed: bool,
        metadata: object,
        counts: bool,
    ) -> list[Event]:
        said = text_of(payload.get("role"))
        if said in ("developer", "system"):
            return self._skip(label, "developer message")
        if said not in ("user", "assistant", "function", "tool"):
            self._tally.unknown[f"{label}/{said or '?'}"] += 1
            return self._flushed()
        role: Role = "user" if said == "user" else "assistant" if said == "assistant" else "tool"
        parts = parts_of(payload.get("content"))
        kinds = item_kinds(payload, metadata)
        blocks: list[Block] = []
        late: list[str] = []  # parts that the reference does not know come behind those it does
        keys: list[str] = []
        idx = 0
        reason = "no words"
        for at, (part, text) in enumerate(parts):
            if part not in ITEM_TEXTS and part != "text":
                self._tally.parts["text", "image" if "image" in part else part or "?"] += 1
                reason = "image" if "image" in part else reason
                continue
            if not text.strip():
                continue
            idx += part in ITEM_TEXTS
            keys.append(_key(role, text))
            words = text
            if role == "user":
                keys.append(_key(role, own_words(text)[0]))
                words, why = self._users_words(text, kinds[at] if at < len(kinds) else "")
                if not words.strip():
                    reason = why or reason
                    self._tally.parts["text", why or "no words"] += 1
                    continue
                if why:
                    self._tally.parts["text", why] += 1
            if part in ITEM_TEXTS:
                blocks.append(self._block("tool_result" if role == "tool" else "text", words, idx - 1, None))
            else:
                late.append(words)
        for words in late:
            blocks.append(self._block("tool_result" if role == "tool" else "text", words, idx, None))
            idx += 1
        call = payload.get("function_call")
        if isinstance(call, dict):
            blocks.append(self._block("tool_use", as_json(call.get("arguments")), idx, text_of(call.get("name"))))
        if role == "tool":
            tool = text_of(payload.get("name")) or None
            blocks = [Block(b.type, b.text, b.idx, tool) for b in blocks]
            if is_own_tool(tool) or any(is_own_output(block.text) for block in blocks):
                return self._skip(label, "our own answer")
        if len(parts) > 1:
            keys.append(_key(role, "\n".join(text for _part, text in parts if text)))
        if not blocks:
            return self._skip(label, reason, keys)
        if role == "user" and self._is_ours(blocks[0].text):
            return self._skip(label, _OWN, keys)
        if role != "tool":
            repeated = self._told_as_event(keys)
            if repeated:
                return self._skip(label, _REPEATS)
            events = self._flushed(keys)
            self._remember(keys)
            if role == "assistant":
                text = "\n".join(block.text for block in blocks if block.type == "text").strip()
                self._state.said = (len(text), digest(text))
        else:
            events = self._flushed()
        return [*events, *self._turn(blocks, role, label, ts, trimmed, counts)]

    def _is_ours(self, words: str) -> bool:
        """Whether the session begins with a question of `funes ask`; the user's first message tells."""
        if not self._state.asked:
            self._state.asked = True
            self._state.ours = is_own_question(words)
        return self._state.ours

    def _users_words(self, text: str, kind: str) -> tuple[str, str]:
        """What is the user's own in one part of a message, by the kind that Codex noted for it, else by
        the wrappers."""
        if kind.startswith("user."):
            return request_of(text)
        if kind and kind != "unknown":
            return "", _INJECTED.get(kind, "written by the program")
        words, reason = own_words(text)
        if reason == "environment":
            found = re.search(r"<cwd>([^<]+)</cwd>", text)
            if found:
                self._learn_cwd(found[1].strip())
        return words, reason

    def _reasoning(
        self, payload: dict[str, Any], label: str, ts: str | None, trimmed: bool, counts: bool
    ) -> list[Event]:
        summary = summary_of(payload.get("summary"))
        told, content = [], []
        for part, text in parts_of(payload.get("content")):
            if part != "encrypted_text" and text.strip():
                content.append(text)
        texts = [text for text in (*summary, *content) if text.strip()]
        keys = [_key("reasoning", text) for text in texts] + [_key("reasoning", "\n".join(summary))]
        whole = "\n".join(summary)
        if whole.strip():
            told.append(whole)
        raw = "\n".join(content)
        if raw.strip():
            told.append(raw)
        if not told:
            encrypted = bool(payload.get("encrypted_content"))
            return self._skip(label, "encrypted" if encrypted else "no words")
        if self._told_as_event(keys):
            return self._skip(label, _REPEATS)
        events = self._flushed(keys)
        self._remember(keys)
        blocks = [self._block("thinking", text, idx, None) for idx, text in enumerate(told)]
        return [*events, *self._turn(blocks, "assistant", label, ts, trimmed, counts)]

    def _output(self, payload: dict[str, Any], label: str, ts: str | None, trimmed: bool, counts: bool) -> list[Event]:
        tool = self._state.tools.get(text_of(payload.get("call_id"))) or tool_name(payload) or None
        text = output_text(payload.get("output"), self._tally)
        if is_own_tool(tool) or is_own_output(text):
            return self._skip(label, "our own answer")
        return self._one("tool_result", text, tool, "tool", label, ts, trimmed, counts)

    # Events, and what stands outside the envelope

    def _event(self, payload: dict[str, Any], ts: str | None, trimmed: bool) -> list[Event]:
        name = text_of(payload.get("type"))
        label = f"event_msg/{name}"
        if name == "user_message":
            words, reason = own_words(text_of(payload.get("message")))
            if payload.get("images") or payload.get("local_images"):
                self._tally.parts["text", "image"] += 1
            if not words.strip():
                return self._skip(label, reason or "no words")
            if self._is_ours(words):
                return self._skip(label, _OWN)
            return self._said(_Waiting("user", "text", words, ts, label, _key("user", words), trimmed))
        if name == "agent_message":
            text = text_of(payload.get("message"))
            if not text.strip():
                return self._skip(label, "no words")
            return self._said(_Waiting("assistant", "text", text, ts, label, _key("assistant", text), trimmed))
        if name in ("agent_reasoning", "agent_reasoning_raw_content"):
            text = text_of(payload.get("text"))
            if not text.strip():
                return self._skip(label, "no words")
            key = _key("reasoning", text)
            return self._said(_Waiting("assistant", "thinking", text, ts, label, key, trimmed))
        if name == "tool_call" and text_of(payload.get("call_id")) not in self._state.tools:
            arguments = payload.get("input", payload.get("arguments"))
            tool = text_of(payload.get("name")) or None
            return self._one("tool_use", as_json(arguments), tool, "assistant", label, ts, trimmed, False)
        if name == "tool_call":
            return self._skip(label, "repeats an item")
        if name == "thread_name_updated":
            self._state.facts.title = text_of(payload.get("thread_name")).strip() or self._state.facts.title
        if name == "token_count":  # comes between a message's two recordings
            self._tally.skipped[label, "state of the program"] += 1
            return []
        noise = event_reason(name)
        if noise is not None:
            return self._skip(label, noise)
        self._tally.unknown[label] += 1
        return self._flushed()

    def _said(self, message: _Waiting) -> list[Event]:
        """A message recorded as an event. Where items are recorded too, one repeats it, just before or just
        behind; only when none does, it is a turn of its own."""
        state = self._state
        if message.key in state.recent:
            state.recent.remove(message.key)
            return self._skip(message.kind, _REPEATS)
        if not state.any_item:
            self._remember([message.key])
            self._tally.kept[message.kind] += 1
            return self._as_turn(message)
        events: list[Event] = []
        if message.type != "thinking" and any(other.type != "thinking" for other in state.waiting):
            events = self._flushed()
        if len(state.waiting) >= _WAITING or len(message.text) > _WAITING_CHARS:
            events += self._flushed()
        # Counted as what it will prove to be as a rule; `_flushed` corrects the account otherwise.
        self._tally.skipped[message.kind, _REPEATS] += 1
        state.waiting.append(message)
        return events

    def _flushed(self, repeated: list[str] | None = None) -> list[Event]:
        """The turns of messages that waited in vain. Those with a key in `repeated` have been answered."""
        waiting, self._state.waiting = self._state.waiting, []
        events: list[Event] = []
        for message in waiting:
            if repeated and message.key in repeated:
                continue
            self._take_back(message.kind, _REPEATS)
            self._tally.kept[message.kind] += 1
            events += self._as_turn(message)
        return events

    def _take_back(self, kind: str, reason: str) -> None:
        skipped = self._tally.skipped
        skipped[kind, reason] -= 1
        if not skipped[kind, reason]:
            del skipped[kind, reason]

    def _as_turn(self, message: _Waiting) -> list[Event]:
        block = self._block(message.type, message.text, 0, None)
        return self._emit([block], message.role, message.ts, message.trimmed, False)

    def _told_as_event(self, keys: list[str]) -> bool:
        """Whether an item repeats a message that was given when only events were known of the session."""
        answered = {f"event:{key}" for key in keys}.intersection(self._state.recent)
        self._state.recent = [key for key in self._state.recent if key not in answered]
        return bool(answered)

    def _remember(self, keys: list[str]) -> None:
        prefix = "" if self._state.any_item else "event:"
        recent = self._state.recent
        recent += [f"{prefix}{key}" for key in keys if f"{prefix}{key}" not in recent]
        del recent[:-_RECENT]

    def _remember_call(self, call: str, tool: str) -> None:
        tools = self._state.tools
        tools[call] = tool
        while len(tools) > _CALLS:
            del tools[next(iter(tools))]

    def _compacted(self, payload: dict[str, Any], ts: str | None, trimmed: bool) -> list[Event]:
        """The summary that a compaction goes on from. The history that it replaces is in the file already."""
        label = "compacted"
        if payload.get("replacement_history"):
            self._tally.parts["summary", "repeated history"] += 1
        text = text_of(payload.get("message")).strip()
        if not text:
            return self._skip(label, "no words")
        length, said = self._state.said
        if length and digest(text[-length:]) == said:
            return self._skip(label, _REPEATS)
        return self._one("summary", text, None, "system", label, ts, trimmed, False)

    def _without_payload(self, record: dict[str, Any], kind: str, ts: str | None, trimmed: bool) -> list[Event]:
        """Records of the first releases: a header, items without an envelope, and states between them."""
        if "record_type" in record and not kind:
            return self._skip(f"record/{text_of(record['record_type']) or '?'}", "state of the program")
        if not kind and "role" not in record and "id" in record and not self._state.named:
            self._state.named = True
            self._state.facts = self._facts_of(record, ts)
            return self._skip("header", "the session's facts")
        if "role" in record or kind in NOISE_ITEMS or kind == "reasoning" or "_call" in kind:
            any_item = self._state.any_item
            events = self._item(record, "item", ts, trimmed, None)
            self._state.any_item = any_item
            return events
        if kind in NOISE or kind in ("session_meta", "turn_context", "compacted"):
            return self._skip(kind, "no words")
        self._tally.unknown[kind or "?"] += 1
        return self._flushed()

    # Turns

    def _one(
        self,
        block_type: BlockType,
        text: str,
        tool: str | None,
        role: Role,
        label: str,
        ts: str | None,
        trimmed: bool,
        counts: bool,
    ) -> list[Event]:
        events = self._flushed()
        if not text.strip():
            return [*events, *self._skip(label, "no words")]
        return [*events, *self._turn([self._block(block_type, text, 0, tool)], role, label, ts, trimmed, counts)]

    def _turn(
        self, blocks: list[Block], role: Role, label: str, ts: str | None, trimmed: bool, counts: bool
    ) -> list[Event]:
        self._tally.kept[label] += 1
        return self._emit(blocks, role, ts, trimmed, counts)

    def _emit(self, blocks: list[Block], role: Role, ts: str | None, trimmed: bool, counts: bool) -> list[Event]:
        self._settle(ts)
        state = self._state
        seq = state.seq
        if counts:
            uuid = f"{state.facts.session_id}-{seq}"
        elif seq == 0:
            seq = state.extra
            uuid = f"{state.facts.session_id}-.{state.extra:04d}"
            state.extra += 1
        else:
            seq -= 1
            state.extra += 1
            uuid = f"{state.facts.session_id}-{seq}.{state.extra:03d}"
        flags = {flag for flag, is_set in (("trimmed", trimmed), ("summary", blocks[0].type == "summary")) if is_set}
        turn = Turn(
            session_id=state.facts.session_id,
            turn_uuid=uuid,
            parent_uuid=None,
            seq=seq,
            ts=ts,
            role=role,
            blocks=tuple(blocks),
            identity=digest("codex", uuid, *(block.text for block in blocks)),
            flags=frozenset(flags),
            cwd=None if state.here == state.facts.cwd else state.here,
        )
        info = self._info()
        return [turn] if info is None else [info, turn]

    def _block(self, block_type: BlockType, text: str, idx: int, tool: str | None) -> Block:
        text, payloads = elide(clean(text))
        if payloads:
            self._tally.parts[block_type, "base64"] += payloads
        return Block(block_type, text, idx, clean(tool) if tool else None)

    def _skip(self, label: str, reason: str, repeated: list[str] | None = None) -> list[Event]:
        self._tally.skipped[label, reason] += 1
        return self._flushed(repeated)


#: Kinds that Codex notes for parts of messages that it writes itself in the user's name.
_INJECTED: Final[dict[str, str]] = {
    "environments.environment_context": "environment",
    "agents_md.instructions": "instructions file",
    "host_skills.instructions": "skill text",
    "skills.selected_skill_instructions": "skill text",
    "permissions.instructions": "developer message",
    "multi_agent.subagent_notification": "notice from a subagent",
}


def _key(speaker: str, text: str) -> str:
    return digest(speaker, " ".join(text.split()))[:16]
