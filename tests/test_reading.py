"""Reading in a process of its own gives what reading here gives, whatever happens to that process."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from funes_mcp import reading
from funes_mcp.memory import lance
from funes_mcp.reading import Begun, Ended, Failed, How, Read, Work, read, read_apart
from funes_mcp.redaction.model import Redacted
from funes_mcp.traces.model import Block, Cursor, Event, SessionInfo, Source, Tally, Turn


class Reader:
    """Gives three turns of a session, or fails as its name says."""

    whole = True

    def __init__(self, name: str, here: int) -> None:
        self.tally = Tally(lines=3)
        self._name = name
        self._here = here

    def __iter__(self) -> Iterator[Event]:
        yield SessionInfo(self._name, "test", cwd="/w")
        for number in range(3):
            if number == 1 and self._name == "broken":
                raise RuntimeError("a fault")
            if number == 1 and self._name == "deadly" and os.getpid() != self._here:
                os._exit(3)
            blocks = (Block("text", f"{self._name} {number}", 0),)
            yield Turn(self._name, f"t{number}", None, number, None, "user", blocks, f"{self._name}{number}")

    def cursor(self) -> Cursor:
        return Cursor(3, "digest")


class Adapter:
    """Reads sources by their names."""

    name = harness = "test"

    def __init__(self) -> None:
        self._here = os.getpid()

    def read(self, source: Source, cursor: Cursor | None) -> Reader:
        if source.path.name == "missing":
            raise FileNotFoundError(2, "No such file or directory")
        return Reader(source.path.name, self._here)


def work(*names: str) -> list[Work]:
    adapter: Any = Adapter()
    root = Path("/r")
    return [Work(adapter, Source("test", root, root / name, 10, 0, 0, 0)) for name in names]


def shape(messages: Iterator[reading.Message]) -> list[object]:
    found: list[object] = []
    for message in messages:
        if isinstance(message, Read):
            found += [item[1][0].text for item in message.items if isinstance(item, tuple)]
        elif isinstance(message, Begun):
            found.append(message.place)
        elif isinstance(message, Failed):
            found.append((message.place, message.reason))
        elif isinstance(message, Ended):
            found.append(message.cursor.offset)
    return found


def test_a_source_that_cannot_be_read_costs_only_itself() -> None:
    assert shape(read(work("one", "missing", "broken", "two"), How())) == [
        0,
        *["one 0", "one 1", "one 2"],
        3,
        (1, "No such file or directory"),
        2,
        (2, "RuntimeError: a fault"),
        3,
        *["two 0", "two 1", "two 2"],
        3,
    ]


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(lance, "loaded", lambda: False)  # another test may have


@pytest.mark.usefixtures("apart")
def test_a_process_of_its_own_reads_the_same() -> None:
    names = ("one", "missing", "broken", "two")
    assert shape(read_apart(work(*names), How())) == shape(read(work(*names), How()))


@pytest.mark.usefixtures("apart")
def test_nothing_is_forked_once_native_threads_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reading.reads_apart(work("one"))
    monkeypatch.setattr(lance, "loaded", lambda: True)
    assert not reading.reads_apart(work("one"))


@pytest.mark.usefixtures("apart")
def test_a_transcript_that_kills_the_process_costs_only_itself() -> None:
    assert shape(read_apart(work("one", "deadly", "two"), How())) == [
        0,
        *["one 0", "one 1", "one 2"],
        3,
        1,
        (1, "the process that read it died"),
        2,
        *["two 0", "two 1", "two 2"],
        3,
    ]


@pytest.mark.usefixtures("apart")
def test_blocks_stay_behind_and_chunks_come_through() -> None:
    turns = [
        item
        for message in read_apart(work("one"), How())
        if isinstance(message, Read)
        for item in message.items
        if isinstance(item, tuple)
    ]
    assert [turn.blocks for turn, _ in turns] == [(), (), ()]
    assert [chunk.cwd for _, chunks in turns for chunk in chunks] == ["/w"] * 3


class Loading:
    """A redactor whose rules load until it was asked `after` times whether they do.

    "1" is replaced by its own detectors, what is in `rules` by its rules only.
    """

    def __init__(self, after: int, rules: str) -> None:
        self._left = after
        self._rules = rules

    def warm_apart(self) -> None:
        """It loads already."""

    @property
    def loading(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def provisional(self, text: str) -> Redacted:
        return Redacted(text.replace("1", "*"), Counter(own=text.count("1")))

    def redact(self, text: str) -> Redacted:
        found = self.provisional(text)
        for rule in filter(None, self._rules.split(",")):
            if rule in found.text:
                found = Redacted(found.text.replace(rule, "*"), found.counts + Counter(rules=1))
        return found

    def confirms(self, text: str, found: Redacted) -> bool:
        return self.redact(text) == found


def loading(after: int, rules: str = "") -> How:
    redactor: Any = Loading(after, rules)
    return How(redactor=redactor)


@pytest.mark.parametrize("rules", ["", "two 0", "one 2", "one,two", "fault", "/w", "two 2,broken"])
@pytest.mark.parametrize("after", [1, 2, 4, 7, 9, 14, 20, 1000])
def test_what_is_read_while_the_rules_load_gives_the_same(
    after: int, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BATCH_CHUNKS", 2)
    names = ("one", "missing", "broken", "two", "broken")
    ahead = list(read(work(*names), loading(after, rules)))
    assert ahead == list(read(work(*names), loading(0, rules)))
    texts = str(shape(iter(ahead)))
    assert not any(rule in texts for rule in rules.split(",") if rule)


def test_what_is_read_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "AHEAD_CHARS", 0)
    how = loading(1000)
    assert next(iter(read(work("one"), how))) == Begun(0, whole=True)
    assert how.redactor is not None
    assert how.redactor.loading


@pytest.mark.usefixtures("apart")
def test_a_transcript_that_kills_the_process_before_anything_was_sent_costs_only_itself() -> None:
    names = ("one", "broken", "deadly", "two", "deadly")
    found = shape(read_apart(work(*names), loading(1000)))
    assert found == [
        *shape(read(work("one", "broken"), loading(0))),
        (2, "the process that read it died"),
        3,
        *["two 0", "two *", "two 2"],
        3,
        4,
        *["deadly 0", "deadly *", "deadly 2"],
        3,
    ]


def test_a_block_that_cannot_be_redacted_costs_its_source_only() -> None:
    how = loading(0)

    def redact(text: str) -> Redacted:
        if text == "two 1":
            raise RuntimeError("a fault")
        return Redacted(text)

    vars(how.redactor)["redact"] = redact
    assert shape(read(work("one", "two", "three"), how))[4:] == [
        3,
        1,
        (1, "RuntimeError: a fault"),
        2,
        *["three 0", "three 1", "three 2"],
        3,
    ]
