"""Claude Code's transcripts: records into turns.

A parser sees the records of one file in order and keeps a small state, so that reading can stop and go on
anywhere. It never says anything about a turn that a later record could make untrue; what depends on the
future (an abandoned branch) is for those who have the whole session to derive from the parents.

Turns, blocks and ids are those of the Rust funes for all that it reads too. What it does not read (prompts
typed while the agent was working, results kept outside the message) gets the `seq` of the turn that follows,
so that the count of the others stays the same; sort by `seq`, then by time.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, cast

from funes_adapters.claude import kinds, wrappers
from funes_adapters.claude.blocks import EXTRA, Content, RawBlock, read_content, storable, structured_result

from funes_mcp.traces import ours
from funes_mcp.traces.model import Block, Event, Role, SessionInfo, Tally, Turn
from funes_mcp.traces.text import clean
from funes_mcp.traces.time import to_rfc3339

HARNESS: Final = "claude_code"
#: Raise it when the same records give other turns.
VERSION: Final = 2

_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
#: Ids that the provider's API gives. Gateways put constants in their place.
_API_ID: Final = re.compile(r"(?:msg|toolu)_[0-9A-Za-z_]{20,}")
#: Words that must stand in a reply for its API id and text to tell it from all others.
_TELLING: Final = 80

#: How much of the past the parser remembers. Copies of a message stand close to each other in a file or are a
#: copy of the whole history so far; calls and results, skipped records and their children, replies and their
#: side questions are neighbours.
_SEEN, _TOOLS, _SKIPPED, _MESSAGES, _QUEUE, _TITLES = 4096, 256, 64, 128, 32, 32
#: A prompt taken from the queue is repeated as an attachment within so many turns, or not at all.
_QUEUE_WAIT: Final = 12
_PROMPT_CAP: Final = 100_000

#: How the sessions begin in which other memory tools watch a session. They repeat it in other words.
_OBSERVERS: Final = (
    "You are a Claude-Mem, a specialized observer tool",
    "Hello memory agent, you are continuing to observe",
)
_OBSERVER_FOLDERS: Final = (".claude-mem/observer-sessions", ".claude-mem\\observer-sessions")

_TITLE_RANK: Final[dict[str, int]] = {"summary": 1, "ai-title": 2, "custom-title": 3}


@dataclass(slots=True)
class _Waiting:
    """A prompt in the queue of a working agent. `removed_at` is the `seq` at which it was taken out."""

    text: str
    ts: str | None
    seq: int
    removed_at: int | None = None


@dataclass(slots=True)
class _State:
    """All that a parser remembers; JSON-able by `to_json`."""

    seq: int = 0
    info: dict[str, Any] = field(default_factory=dict)
    title_rank: int = 0
    seen: deque[bytes] = field(default_factory=deque)
    seen_set: set[bytes] = field(default_factory=set)
    tools: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    messages: dict[str, None] = field(default_factory=dict)
    waiting: list[_Waiting] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    summaries: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    spoken: bool = False
    given: bool = False
    here: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "info": self.info,
            "title_rank": self.title_rank,
            "seen": base64.b64encode(b"".join(self.seen)).decode(),
            "tools": self.tools,
            "parents": self.parents,
            "messages": list(self.messages),
            "waiting": [asdict(w) for w in self.waiting],
            "sent": self.sent,
            "summaries": self.summaries,
            "machine": self.machine,
            "spoken": self.spoken,
            "given": self.given,
            "here": self.here,
        }

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> _State:
        packed = base64.b64decode(state["seen"])
        seen = deque(packed[i : i + 8] for i in range(0, len(packed), 8))
        return cls(
            seq=state["seq"],
            info=dict(state["info"]),
            title_rank=state["title_rank"],
            seen=seen,
            seen_set=set(seen),
            tools=dict(state["tools"]),
            parents=dict(state["parents"]),
            messages=dict.fromkeys(state["messages"]),
            waiting=[_Waiting(**w) for w in state["waiting"]],
            sent=list(state["sent"]),
            summaries=dict(state["summaries"]),
            machine=state["machine"],
            spoken=state["spoken"],
            given=state["given"],
            here=state["here"],
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """What a transcript's place says about it.

    Attributes:
        session_id: Its name without endings, as the Rust funes takes it.
        parent: The session in whose folder a subagent's transcript lies.
        agent: Name or type of the subagent, where a file beside the transcript says it.
        is_agent: Whether the transcript is a subagent's.
    """

    session_id: str
    parent: str | None = None
    agent: str | None = None
    is_agent: bool = False


class ClaudeParser:
    """Parser of one transcript. See `funes_mcp.traces.jsonl.RecordParser`.

    Args:
        origin: What the place of the file says.
        state: What an earlier parser of the file left, or None.
        tally: Where to count.
        side_file: Given the notice of a result kept in a file of its own, what stands in that file behind the
            preview, and whether it was cut; None when there is nothing to be had.
    """

    def __init__(
        self,
        origin: Origin,
        state: dict[str, Any] | None,
        tally: Tally,
        side_file: Callable[[str], tuple[str, bool] | None] = lambda _notice: None,
    ) -> None:
        self._origin, self._tally, self._side_file = origin, tally, side_file
        self._state = _State.from_json(state) if state else _State()
        self._told: SessionInfo | None = None
        self._changed = True
        self._learned = False
        if not state:
            info: dict[str, Any] = {"session_id": origin.session_id, "harness": HARNESS}
            if origin.is_agent:
                info |= {"relation": "subagent", "parent_session_id": origin.parent, "agent_name": origin.agent}
            self._state.info = info

    def state(self) -> dict[str, Any]:
        return self._state.to_json()

    def end(self) -> Iterable[Event]:
        """The session, if something is new of it: since it was said, or else since the last reading."""
        return self._news() if self._state.given and (self._told or self._learned) else ()

    def feed(self, record: dict[str, Any], trimmed: bool) -> Iterable[Event]:
        kind = record.get("type")
        if not isinstance(kind, str):
            self._skip(record, "line", "no record of Claude Code")
            return ()
        self._learn(record)
        if kind in ("user", "assistant"):
            return self._message(kind, record, trimmed)
        if kind == "attachment":
            return self._attachment(record)
        if kind == "queue-operation":
            return self._queue_operation(record)
        if kind in ("tool_result", "tool"):
            return self._bare_result(kind, record, trimmed)
        if kind in _TITLE_RANK:
            self._title(kind, record)
        reason = kinds.noise_reason(kind, record)
        subtype = record.get("subtype")
        name = _name(f"{kind}/{subtype}" if kind == "system" and isinstance(subtype, str) else kind)
        if reason is None:
            self._tally.unknown[name] += 1
            self._bridge(record)
        else:
            self._skip(record, name, reason)
        return ()

    # What is known of the session

    def _learn(self, record: dict[str, Any]) -> None:
        info = self._state.info
        cwd = record.get("cwd")
        if isinstance(cwd, str) and cwd.strip():
            self._state.here = clean(cwd)
            if "cwd" not in info:
                self._know("cwd", cwd)
                if cwd.rstrip("/\\").endswith(_OBSERVER_FOLDERS):
                    self._state.machine = "another memory tool's session"
        branch = record.get("gitBranch")
        if branch != info.get("branch") and isinstance(branch, str) and branch.strip() and branch != "HEAD":
            self._know("branch", branch)
        if "started" not in info:
            started = _time_of(record)
            if started:
                self._know("started", started)
        if info.get("parent_session_id"):
            if self._origin.is_agent and not info.get("agent_name"):
                name = record.get("attributionAgent")
                if isinstance(name, str) and name:
                    self._know("agent_name", name)
            return
        own, recorded = self._origin.session_id, record.get("sessionId")
        if self._origin.is_agent:
            if isinstance(recorded, str) and recorded and recorded != own:
                self._know("parent_session_id", recorded)
            return
        fork = record.get("forkedFrom")
        parent = fork.get("sessionId") if isinstance(fork, dict) else None
        if not (isinstance(parent, str) and parent) and isinstance(recorded, str) and recorded != own:
            # A resumed session of old versions begins with lines that still bear the first one's id.
            parent = recorded if _UUID.fullmatch(recorded) and _UUID.fullmatch(own) else None
        if isinstance(parent, str) and parent and parent != own:
            self._know("parent_session_id", parent)
            self._know("relation", "fork")

    def _title(self, kind: str, record: dict[str, Any]) -> None:
        key = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}[kind]
        title = record.get(key)
        if not isinstance(title, str) or not title.strip():
            return
        if kind == "summary":  # it may be of any session of the project: its leaf says of which
            leaf = record.get("leafUuid")
            if not isinstance(leaf, str):
                return
            if _short_hash(leaf) not in self._state.seen_set:
                _remember(self._state.summaries, leaf, clean(title.strip())[:500], _TITLES)
                return
        self._set_title(kind, title)

    def _set_title(self, kind: str, title: str) -> None:
        rank = _TITLE_RANK[kind]
        if rank >= self._state.title_rank:
            self._state.title_rank = rank
            self._know("title", title.strip()[:500])

    def _know(self, key: str, value: str) -> None:
        if self._state.info.get(key) != value:
            self._state.info[key] = clean(value)
            self._changed = self._learned = True

    def _news(self) -> tuple[Event, ...]:
        """What is known of the session, if something is new since it was last said. Said before every turn."""
        self._state.given = True
        if not self._changed:
            return ()
        self._changed = False
        info = SessionInfo(**self._state.info)
        if info == self._told:
            return ()
        self._told = info
        return (info,)

    # Messages

    def _message(self, kind: str, record: dict[str, Any], trimmed: bool) -> Iterable[Event]:
        message = record.get("message")
        message = message if isinstance(message, dict) else {"content": message}
        content = read_content(message.get("content"))
        if not isinstance(record.get("message"), dict) and content.counted:
            content = replace(content, counted=False)  # the Rust funes reads no bare strings
        if not content.blocks and kind == "user":
            content = self._structured(record, content)
        uuid = _text_of(record.get("uuid"))
        seq = self._state.seq
        if content.counted:
            self._state.seq += 1
        reason = self._why_not(kind, record, message, content)
        if reason is not None:
            self._skip(record, kind, reason)
            return ()
        if uuid and self._seen_before(uuid):
            self._skip_copy(kind)
            return ()
        role = message.get("role")
        turn_role: Role = cast(Role, role) if role in ("user", "assistant", "system", "tool") else cast(Role, kind)
        flags = {"trimmed"} if trimmed else set()
        omitted = list(content.omitted)
        if _is_summary(kind, record, content):
            flags.add("summary")
            blocks = tuple(
                Block("summary", storable(b.text, omitted, "summary"), b.idx)
                for b in content.blocks
                if b.type == "text"
            )
            turn_role = "system"
        else:
            if record.get("isApiErrorMessage"):
                flags.add("error")
            blocks = tuple(self._kept_blocks(kind, content, omitted, flags))
        for part in omitted:
            self._tally.parts[part] += 1
        if not blocks:
            self._skip(record, kind, _why_empty(omitted))
            return ()
        return self._give(kind, record, message, turn_role, seq, blocks, frozenset(flags), content)

    def _structured(self, record: dict[str, Any], content: Content) -> Content:
        """The result that stands beside the message instead of in it."""
        if "toolUseResult" not in record:
            return content
        text = structured_result(record["toolUseResult"])
        if not text.strip():
            return content
        message = record.get("message")
        items = message.get("content") if isinstance(message, dict) else None
        tool_id = None
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and item.get("type") == "tool_result":
                tool_id = _text_of(item.get("tool_use_id"))
        return Content((RawBlock("tool_result", text, EXTRA, None, tool_id),), content.omitted, False)

    def _why_not(self, kind: str, record: dict[str, Any], message: dict[str, Any], content: Content) -> str | None:
        """Why a message is nobody's words, or None if it may be somebody's."""
        state = self._state
        if not state.spoken and kind == "user" and content.blocks and not record.get("isMeta"):
            state.spoken = True
            first = content.blocks[0].text.lstrip()
            if first.startswith(_OBSERVERS):
                state.machine = "another memory tool's session"
            elif ours.is_own_question(first):
                state.machine = "our own question"
            elif first == "Warmup" and (self._origin.is_agent or record.get("isSidechain")):
                state.machine = "warm-up of the program"
        if state.machine:
            return state.machine
        if record.get("isCompactSummary"):
            return None
        if record.get("isMeta"):
            return kinds.CONTEXT
        origin = record.get("origin")
        if isinstance(origin, dict) and origin.get("kind") == "task-notification":
            return "task notification"
        if kind == "assistant":
            message_id = _text_of(message.get("id"))
            if record.get("isSidechain") and not self._origin.is_agent and message_id in state.messages:
                return "repeats the parent's message"
            if message.get("model") == "<synthetic>" and not record.get("isApiErrorMessage"):
                texts = [b.text.strip() for b in content.blocks]
                if all(text in wrappers.PLACEHOLDERS for text in texts):
                    return "placeholder"
        return None

    def _kept_blocks(
        self, kind: str, content: Content, omitted: list[tuple[str, str]], flags: set[str]
    ) -> Iterator[Block]:
        for raw in content.blocks:
            text, block_type, name = raw.text, raw.type, raw.tool_name
            if raw.type == "tool_use":
                if raw.tool_id and name:
                    _remember(self._state.tools, raw.tool_id, name, _TOOLS)
                if ours.is_own_tool(name):
                    omitted.append(("tool_use", "our own tool"))
                    continue
            elif raw.type == "tool_result":
                name = self._state.tools.get(raw.tool_id or "")
                if ours.is_own_tool(name) or ours.is_own_output(text):
                    omitted.append(("tool_result", "our own tool"))
                    continue
                text, reminders = wrappers.without_trailing_reminder(text)
                omitted.extend([("tool_result", "reminder")] * reminders)
                text = self._with_side_file(text, omitted, flags)
            elif raw.type == "text" and kind == "user":
                said = wrappers.said_by_user(text)
                omitted.extend(("text", reason) for reason in said.reasons)
                text = said.text
                if said.output:
                    block_type, name = "tool_result", "bash"
            text = storable(text, omitted, block_type)
            if text.strip():
                yield Block(block_type, text, raw.idx, clean(name) if name else None)

    def _with_side_file(self, text: str, omitted: list[tuple[str, str]], flags: set[str]) -> str:
        if "<persisted-output>" not in text[:64]:
            return text
        found = self._side_file(text)
        if found is None:
            return text
        rest, cut = found
        if ours.is_own_output(rest):
            omitted.append(("tool_result", "our own tool"))
            return ""
        if cut:
            flags.add("trimmed")
        return f"{text}\n{rest}"

    def _give(
        self,
        kind: str,
        record: dict[str, Any],
        message: dict[str, Any],
        role: Role,
        seq: int,
        blocks: tuple[Block, ...],
        flags: frozenset[str],
        content: Content,
    ) -> Iterator[Event]:
        state = self._state
        ts = _time_of(record)
        uuid = _text_of(record.get("uuid"))
        message_id = _text_of(message.get("id"))
        if kind == "user" and any(b.type == "text" for b in blocks):
            yield from self._flush_queue(blocks)
        if message_id and not record.get("isSidechain"):
            _remember(state.messages, message_id, None, _MESSAGES)
        if uuid and state.summaries:
            title = state.summaries.pop(uuid, None)
            if title:
                self._set_title("summary", title)
        identity, digest = _identity(kind, uuid, message_id, ts, content)
        turn = Turn(
            session_id=self._origin.session_id,
            turn_uuid=uuid or f"line-{digest[:16]}",
            parent_uuid=self._parent_of(record),
            seq=seq,
            ts=ts,
            role=role,
            blocks=blocks,
            identity=identity,
            message_id=message_id,
            flags=flags,
            cwd=self._elsewhere(),
        )
        if not uuid and self._seen_before(turn.turn_uuid):
            self._skip_copy(kind)
            return
        self._tally.kept[kind] += 1
        yield from self._news()
        yield turn
        yield from self._flush_removed()

    def _bare_result(self, kind: str, record: dict[str, Any], trimmed: bool) -> Iterable[Event]:
        """A tool's result as a record of its own, which other programs write into such files."""
        message = record.get("message")
        message = message if isinstance(message, dict) else {}
        text = structured_result(message.get("content") or message.get("tool_output") or record.get("content"))
        name = _text_of(message.get("tool_name"))
        if self._state.machine or not text.strip():
            self._skip(record, kind, self._state.machine or "no words")
            return ()
        if ours.is_own_tool(name) or ours.is_own_output(text):
            self._skip(record, kind, "our own tool")
            return ()
        omitted: list[tuple[str, str]] = []
        block = Block("tool_result", storable(text, omitted, "tool_result"), 0, clean(name) if name else None)
        for part in omitted:
            self._tally.parts[part] += 1
        content = Content((RawBlock("tool_result", text, 0, name),), (), False)
        flags = frozenset({"trimmed"} if trimmed else ())
        uuid = _text_of(record.get("uuid"))
        if uuid and self._seen_before(uuid):
            self._skip_copy(kind)
            return ()
        return self._give(kind, record, message, "tool", self._state.seq, (block,), flags, content)

    # Prompts typed while the agent was working

    def _attachment(self, record: dict[str, Any]) -> Iterable[Event]:
        attachment = record.get("attachment")
        attachment = attachment if isinstance(attachment, dict) else {}
        name = _text_of(attachment.get("type")) or "untyped"
        if name != "queued_command":
            self._skip(record, _name(f"attachment/{name}"), kinds.attachment_reason(name))
            return ()
        prompt = _prompt_text(attachment.get("prompt"))
        mode = attachment.get("commandMode")
        said = wrappers.said_by_user(prompt)
        if mode == "task-notification" or not said.text.strip() or _is_bare_command(prompt):
            self._drop_waiting(prompt)
            reason = said.reasons[0] if said.reasons else "no words" if not prompt.strip() else "slash command"
            self._skip(record, "attachment/queued_command", reason)
            return ()
        if self._state.machine:
            self._skip(record, "attachment/queued_command", self._state.machine)
            return ()
        uuid = _text_of(record.get("uuid"))
        if _key(prompt) in self._state.sent or (uuid and self._seen_before(uuid)):
            self._skip(record, "attachment/queued_command", kinds.REPEAT)
            return ()
        waited = self._drop_waiting(prompt)
        ts = (waited.ts if waited else None) or _time_of(record)
        seq = waited.seq if waited else self._state.seq
        self._tally.kept["attachment/queued_command"] += 1
        return self._prompt(said.text, ts, seq, uuid, self._parent_of(record))

    def _queue_operation(self, record: dict[str, Any]) -> Iterable[Event]:
        state = self._state
        operation = record.get("operation")
        kind = _name(f"queue-operation/{operation}") if isinstance(operation, str) else "queue-operation"
        reason = "state of the queue"
        if operation == "enqueue":
            text = _prompt_text(record.get("content"))[:_PROMPT_CAP]
            if text.strip():
                state.waiting.append(_Waiting(text, _time_of(record), state.seq))
                del state.waiting[:-_QUEUE]
                said = wrappers.said_by_user(text).text
                if said.strip() and not _is_bare_command(said):
                    reason = "prompt in the queue"
        elif operation == "dequeue":  # it comes again as a message of its own
            self._next_waiting()
        elif operation == "remove":  # the agent was given it while it worked, or the person took it back
            text = _prompt_text(record.get("content"))
            if text:
                self._drop_waiting(text)
            elif (waiting := self._next_waiting()) is not None:
                waiting.removed_at = state.seq
                state.waiting.append(waiting)
        elif operation == "popAll":  # back into the input line
            state.waiting = [w for w in state.waiting if w.removed_at is not None]
        self._skip(record, kind, reason)
        return ()

    def _next_waiting(self) -> _Waiting | None:
        for at, waiting in enumerate(self._state.waiting):
            if waiting.removed_at is None:
                return self._state.waiting.pop(at)
        return None

    def _drop_waiting(self, text: str) -> _Waiting | None:
        key = _key(text)
        for at, waiting in enumerate(self._state.waiting):
            if _key(waiting.text) == key:
                return self._state.waiting.pop(at)
        return None

    def _flush_queue(self, blocks: tuple[Block, ...]) -> Iterator[Event]:
        """Give the prompts that still wait when the person speaks again: they went in unrecorded.

        A queue that is not empty when the agent has done becomes the next message by itself.
        """
        said = "\n".join(b.text for b in blocks if b.type == "text")
        waiting, self._state.waiting = self._state.waiting, []
        for prompt in waiting:
            if prompt.text.strip() not in said:
                yield from self._send(prompt)

    def _flush_removed(self) -> Iterator[Event]:
        """Give the prompts that were taken from the queue and did not come again in time."""
        if not self._state.waiting:
            return
        due = [
            w for w in self._state.waiting if w.removed_at is not None and self._state.seq - w.removed_at >= _QUEUE_WAIT
        ]
        for prompt in due:
            self._state.waiting.remove(prompt)
            yield from self._send(prompt)

    def _send(self, waiting: _Waiting) -> Iterator[Event]:
        said = wrappers.said_by_user(waiting.text)
        if not said.text.strip() or _is_bare_command(said.text):
            return
        # Counted when it was typed; now it turned out to be kept.
        self._tally.skipped["queue-operation/enqueue", "prompt in the queue"] -= 1
        self._tally.kept["queue-operation/enqueue"] += 1
        yield from self._prompt(said.text, waiting.ts, waiting.seq, None, None)

    def _prompt(self, text: str, ts: str | None, seq: int, uuid: str | None, parent: str | None) -> Iterator[Event]:
        omitted: list[tuple[str, str]] = []
        stored = storable(text, omitted, "text")
        for part in omitted:
            self._tally.parts[part] += 1
        key = _key(text)
        self._state.sent = [*self._state.sent, key][-_QUEUE:]
        digest = _digest("queued", ts or "", text)
        yield from self._news()
        yield Turn(
            session_id=self._origin.session_id,
            turn_uuid=uuid or f"queued-{digest[:16]}",
            parent_uuid=parent,
            seq=seq,
            ts=ts,
            role="user",
            blocks=(Block("text", stored, 0),),
            identity=uuid.lower() if uuid and _UUID.fullmatch(uuid) else f"queued:{digest}",
            flags=frozenset({"queued"}),
            cwd=self._elsewhere(),
        )

    def _elsewhere(self) -> str | None:
        """The folder in which the agent is now, if it is another than the one in which the session began."""
        here = self._state.here
        return None if here == self._state.info.get("cwd") else here

    # Book-keeping

    def _skip(self, record: dict[str, Any], kind: str, reason: str) -> None:
        self._tally.skipped[kind, reason] += 1
        self._bridge(record)

    def _skip_copy(self, kind: str) -> None:
        """Of two lines with one uuid the first stays; it is the one that others follow."""
        self._tally.skipped[kind, "copy of an earlier line"] += 1

    def _bridge(self, record: dict[str, Any]) -> None:
        """Remember what a record that gives no turn follows, for the records that follow it."""
        uuid = record.get("uuid")
        if isinstance(uuid, str) and uuid and "parentUuid" in record:
            _remember(self._state.parents, clean(uuid), self._parent_of(record), _SKIPPED)

    def _parent_of(self, record: dict[str, Any]) -> str | None:
        parent = _text_of(record.get("parentUuid")) or _text_of(record.get("logicalParentUuid"))
        return self._state.parents.get(parent, parent) if parent else None

    def _seen_before(self, uuid: str) -> bool:
        """Whether the uuid stood in this file already; from now on it did."""
        state, key = self._state, _short_hash(uuid)
        if key in state.seen_set:
            return True
        state.seen.append(key)
        state.seen_set.add(key)
        if len(state.seen) > _SEEN:
            state.seen_set.discard(state.seen.popleft())
        return False


def _identity(kind: str, uuid: str | None, message_id: str | None, ts: str | None, content: Content) -> tuple[str, str]:
    """The same for every copy of a message, wherever and under whatever uuid it stands; and a digest of the
    message where it has no real uuid, else "".

    A reply is known by the API's id of it together with what it says: side questions repeat replies under
    new uuids. Without an API id, and for short replies, the line's uuid counts; where that is no real uuid,
    what was said and when counts too.
    """
    real = uuid is not None and _UUID.fullmatch(uuid) is not None
    digest = ""
    if not real:
        said = (f"{b.type}\0{b.idx}\0{b.tool_id}\0{b.text}" for b in content.blocks)
        digest = _digest(kind, ts or "", *said)
    if message_id and _API_ID.fullmatch(message_id):
        telling = any(b.tool_id and _API_ID.fullmatch(b.tool_id) for b in content.blocks)
        if telling or sum(len(b.text) for b in content.blocks) >= _TELLING:
            words = _digest(*(f"{b.type}\0{b.tool_id}\0{b.text}" for b in content.blocks))
            return f"{message_id}:{words}", digest
    if uuid and real:
        return uuid.lower(), digest
    return f"{uuid or ''}:{digest}", digest


def _is_summary(kind: str, record: dict[str, Any], content: Content) -> bool:
    if record.get("isCompactSummary"):
        return True
    return kind == "user" and bool(content.blocks) and content.blocks[0].text.startswith(wrappers.CONTINUED)


def _why_empty(omitted: list[tuple[str, str]]) -> str:
    """The one reason for a message without any block: the last part's, unless it is no reason at all."""
    reasons = [reason for _type, reason in omitted if reason != "no words"]
    return reasons[-1] if reasons else "no words"


def _prompt_text(value: Any) -> str:
    """A queued prompt: text, or a list of blocks of which the words count."""
    if isinstance(value, str):
        return value
    return "\n".join(b.text for b in read_content(value).blocks if b.type == "text")


def _name(kind: str) -> str:
    """A record's type as it is counted."""
    return clean(kind)[:80]


def _is_bare_command(text: str) -> bool:
    """`/exit` and the like: nothing was said."""
    return re.fullmatch(r"\s*/[\w:-]+\s*", text) is not None


def _time_of(record: dict[str, Any]) -> str | None:
    return to_rfc3339(record.get("timestamp")) or to_rfc3339(record.get("_audit_timestamp"))


def _text_of(value: Any) -> str | None:
    return clean(value) if isinstance(value, str) and value else None


def _remember(memory: dict[str, Any], key: str, value: Any, size: int) -> None:
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > size:
        del memory[next(iter(memory))]


def _key(text: str) -> str:
    return _digest(text.strip())[:16]


def _short_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\x01".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
