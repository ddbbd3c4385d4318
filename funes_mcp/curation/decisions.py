"""What a person decided about the sessions that a published memory gets, in a file that people read and edit.

    memory = "ann/kiln-memory"
    repository = "ann/kiln"

    [sessions.e81f7132-fc0c-5256-8825-b07987fc68c3]
    title = "Why the streaming parser went"
    decision = "include"
    when = "2026-03-11T09:04:00Z"
    turns = 41
    passages = 63
    last_turn = "5f1b…"
    reviewed = "9c0ffee123456789"

Pure: text in, decisions out, and edited text. What a person wrote beside it (comments, further keys, the order)
stays. A file that cannot be understood is an error and never read as far as it goes: what is left out could be an
`exclude`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from funes_mcp.curation.reviewed import Reviewed
from funes_mcp.errors import FunesError
from funes_mcp.render import harmless

Choice = Literal["include", "exclude"]
CHOICES: Final[tuple[Choice, ...]] = ("include", "exclude")

#: Characters of a title, or a note, that are written down.
TITLE: Final = 100

_SESSIONS: Final = "sessions"
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_BLANK: Final = re.compile(r"\s+")
_REPOSITORY: Final = re.compile(r"[^\s/]+/[^\s/]+")
_DIGEST: Final = re.compile(r"[0-9a-f]{16}")

_HEAD: Final = """\
# Which sessions a push sends to {memory}: reviewed ones of {repository}, nothing else.
# `include` sends a session as far as it was reviewed; `exclude`, or no decision, sends nothing of it. What was sent
# before is not taken back. Review:  funes curate {memory}
memory = {memory_value}
repository = {repository_value}
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is written of a session.

    Attributes:
        choice: None when nothing was decided, and for sessions of subagents.
        when: RFC 3339 UTC of the review, or "".
        reviewed: How much was looked at; None when that is not known (a line that was written by hand).
        title, note: For the person.
        parent: Of a subagent's session: the one whose decision it goes with, or "".
    """

    choice: Choice | None = None
    when: str = ""
    reviewed: Reviewed | None = None
    title: str = ""
    note: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Decisions:
    """All that was decided for a memory.

    Attributes:
        memory: Its label.
        repository: `owner/name` of the checkouts whose sessions may be sent.
        entries: By session id.
    """

    memory: str
    repository: str
    entries: Mapping[str, Entry] = field(default_factory=dict)


def is_repository(name: str) -> bool:
    """Whether this has the form `owner/name`."""
    return _REPOSITORY.fullmatch(name) is not None and harmless(name) == name


def same(one: str, other: str) -> bool:
    """Whether two names mean one repository: hosts do not tell `Ann/Kiln` from `ann/kiln`."""
    return one.lower() == other.lower()


def parse(text: str, file: str) -> Decisions:
    """Read the file's text.

    Args:
        file: How to call it in errors.

    Raises:
        FunesError: It cannot be understood; the message names file and line.
    """
    values = _values(text, file)
    memory = _text(values, "memory", text, file, "")
    repository = _text(values, "repository", text, file, "")
    if not memory or not is_repository(repository):
        missing = "memory" if not memory else "repository"
        raise _wrong(file, _line(text, missing) if missing in values else 1, f"`{missing}` does not say owner/name")
    sessions = values.get(_SESSIONS, {})
    if not isinstance(sessions, dict):
        raise _wrong(file, _line(text, _SESSIONS), "`sessions` is no table")
    return Decisions(memory, repository, {str(name): _entry(str(name), e, text, file) for name, e in sessions.items()})


def edit(text: str, changes: Mapping[str, Entry], file: str) -> str:
    """The text with these entries in place of what it says of them; all else stays as it is written.

    Raises:
        FunesError: It cannot be understood, or cannot be edited without changing something else.
    """
    import tomlkit

    values = _values(text, file)
    if not changes:
        return text
    stated = values.get(_SESSIONS, {})
    known = {name for name in changes if isinstance(stated, dict) and name in stated}
    wanted = {**values, _SESSIONS: dict(stated) if isinstance(stated, dict) else stated}
    for name, entry in changes.items():
        table = dict(wanted[_SESSIONS].get(name, {}))
        for key, value in _fields(entry).items():
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        wanted[_SESSIONS][name] = table
    if known:
        document = tomlkit.parse(text)
        for name in known:
            table = cast(Any, document[_SESSIONS])[name]
            for key, value in _fields(changes[name]).items():
                if value is None:
                    table.pop(key, None)
                elif key not in table or table[key] != value:
                    table[key] = value
        text = tomlkit.dumps(document)
    fresh = {name: entry for name, entry in changes.items() if name not in known}
    for attempt in (_appended, _inserted):
        try:
            result = attempt(text, fresh)
            if _values(result, file) == wanted:
                return result
        except Exception:  # an attempt that breaks is an attempt that failed; the comparison decides
            continue
    raise FunesError(f"{file} could not be edited without changing what else is in it; nothing was changed.")


def without(text: str, sessions: Collection[str], file: str) -> str:
    """The text with nothing about some sessions. Raises `FunesError` as `edit` does."""
    import tomlkit

    values = _values(text, file)
    stated = values.get(_SESSIONS, {})
    gone = [name for name in stated if name in sessions] if isinstance(stated, dict) else []
    if not gone:
        return text
    document = tomlkit.parse(text)
    for name in gone:
        del cast(Any, document[_SESSIONS])[name]
    left = {name: entry for name, entry in stated.items() if name not in gone}
    return _checked(tomlkit.dumps(document), {**values, _SESSIONS: left}, file)


def reworded(text: str, change: Callable[[str], str], file: str) -> str:
    """The text with titles and notes changed. Raises `FunesError` as `edit` does."""
    import tomlkit

    values = _values(text, file)
    stated = values.get(_SESSIONS, {})
    document = tomlkit.parse(text)
    wanted: dict[str, Any] = {}
    changed = False
    for name, entry in stated.items() if isinstance(stated, dict) else ():
        wanted[name] = entry
        for key in ("title", "note"):
            words = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(words, str) and (other := change(words)) != words:
                wanted[name] = {**wanted[name], key: other}
                cast(Any, document[_SESSIONS])[name][key] = other
                changed = True
    return _checked(tomlkit.dumps(document), {**values, _SESSIONS: wanted}, file) if changed else text


def _checked(text: str, wanted: dict[str, Any], file: str) -> str:
    """An edited text, when it says what it should. TOML may drop a table that became empty."""
    found = _values(text, file)
    if {**found, _SESSIONS: found.get(_SESSIONS, {})} != wanted:
        raise FunesError(f"{file} could not be edited without changing what else is in it; nothing was changed.")
    return text


def begun(memory: str, repository: str) -> str:
    """The text of a file in which nothing is decided yet."""
    return _HEAD.format(
        memory=memory, repository=repository, memory_value=_string(memory), repository_value=_string(repository)
    )


def title_of(text: str) -> str:
    """A title, or a note, as it is written down: one short line without characters that a terminal would obey."""
    line = harmless(_BLANK.sub(" ", text[: TITLE * 4]).strip())
    return line if len(line) <= TITLE else f"{line[: TITLE - 1]}…"


def _fields(entry: Entry) -> dict[str, Any]:
    """An entry as keys of its table; None for those that it must not have. A title or note that is there stays."""
    review = entry.reviewed
    fields: dict[str, Any] = {}
    if entry.title:
        fields["title"] = entry.title
    if entry.note:
        fields["note"] = entry.note
    fields["parent"] = entry.parent or None
    fields["decision"] = entry.choice
    fields["when"] = entry.when or None
    fields["turns"] = None if review is None else review.turns
    fields["passages"] = None if review is None else review.passages
    fields["last_turn"] = None if review is None else review.last_turn
    fields["reviewed"] = None if review is None else review.digest
    return fields


def _entry(name: str, value: Any, text: str, file: str) -> Entry:
    if not isinstance(value, dict):
        raise _wrong(file, _line(text, name), f"what is said of session {name} is no table")

    def said(key: str) -> str:
        return _text(value, key, text, file, name)

    choice = value.get("decision")
    if choice is not None and choice not in CHOICES:
        raise _wrong(file, _line(text, name, "decision"), '`decision` is neither "include" nor "exclude"')
    counts = [value.get(key) for key in ("turns", "passages")]
    for key, count in zip(("turns", "passages"), counts, strict=True):
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise _wrong(file, _line(text, name, key), f"`{key}` is no number")
    digest = said("reviewed")
    if digest and not _DIGEST.fullmatch(digest):
        raise _wrong(file, _line(text, name, "reviewed"), "`reviewed` is not what `funes curate` writes there")
    review = None
    if digest and counts[0] is not None and counts[1] is not None:
        review = Reviewed(counts[0], counts[1], said("last_turn"), digest)
    when = value.get("when", "")
    return Entry(
        cast("Choice | None", choice),
        when if isinstance(when, str) else str(when),  # TOML has dates of its own
        review,
        said("title"),
        said("note"),
        said("parent"),
    )


def _text(values: Mapping[str, Any], key: str, text: str, file: str, session: str) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise _wrong(file, _line(text, session or key, key if session else ""), f"`{key}` is no text")
    return value


def _values(text: str, file: str) -> dict[str, Any]:
    import tomlkit
    from tomlkit.exceptions import ParseError, TOMLKitError

    try:
        values: dict[str, Any] = tomlkit.parse(text).unwrap()
    except ParseError as error:
        raise _wrong(file, error.line, str(error).split(" at line")[0].rstrip(".")) from None
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise _wrong(file, _culprit(text, str(error)), str(error).rstrip(".")) from None
    return values


def _culprit(text: str, reason: str) -> int:
    """The line at which a text stops being TOML, when the parser does not say: the first that it cannot end with."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    lines = text.splitlines(keepends=True)
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high) // 2
        try:
            tomlkit.parse("".join(lines[: middle + 1]))
            low = middle + 1
        except (TOMLKitError, ValueError, RecursionError) as error:
            if str(error) == reason:
                high = middle
            else:  # cut in the middle of something
                low = middle + 1
    return min(low + 1, max(1, len(lines)))


def _line(text: str, name: str, key: str = "") -> int:
    """The line in which something is written, as well as can be found out: where `name` stands, then `key`."""
    lines = ["" if line.lstrip().startswith("#") else line for line in text.splitlines()]
    word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
    at = next((number for number, line in enumerate(lines) if word.search(line.partition("=")[0])), 0)
    if key:
        pattern = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""")
        at = next((number for number in range(at, len(lines)) if pattern.match(lines[number])), at)
    return at + 1


def _wrong(file: str, line: int, what: str) -> FunesError:
    return FunesError(
        f"{file}, line {line}: {what}. Nothing is published until that is corrected.",
        "Correct the line in an editor. Without the file, all sessions would be published.",
    )


def _appended(text: str, fresh: Mapping[str, Entry]) -> str:
    """With a block for each new entry at the end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    parts = [text if not text or text.endswith("\n") else text + newline]
    for name, entry in fresh.items():
        lines = ["", f"[{_SESSIONS}.{_key(name)}]"]
        for key, value in _fields(entry).items():
            if value is not None:
                lines.append(f"{key} = {_string(value) if isinstance(value, str) else value}")
        parts.append(newline.join([*lines, ""]))
    return "".join(parts)


def _inserted(text: str, fresh: Mapping[str, Entry]) -> str:
    """With each new entry where the text keeps its entries, however it writes them."""
    import tomlkit

    document = tomlkit.parse(text)
    if _SESSIONS not in document:
        document[_SESSIONS] = tomlkit.table(is_super_table=True)
    for name, entry in fresh.items():
        fields = {key: value for key, value in _fields(entry).items() if value is not None}
        cast(Any, document[_SESSIONS])[name] = fields
    return tomlkit.dumps(document)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    body = "".join(escapes.get(c, c if c >= " " and c != "\x7f" else f"\\u{ord(c):04X}") for c in text)
    return f'"{body}"'
