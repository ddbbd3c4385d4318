"""What a JSONL reader must survive, and that reading in pieces gives what reading at once gives."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from funes_mcp.traces import jsonl
from funes_mcp.traces.jsonl import Item, JsonlReader, RecordStream
from funes_mcp.traces.model import Block, Cursor, Event, Source, Tally, Turn


def source_of(path: Path) -> Source:
    stat = path.stat()
    return Source("test", path.parent, path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


class Numbering:
    """A parser that makes a turn of each record and numbers it: its state matters."""

    def __init__(self, state: dict[str, Any] | None, tally: Tally) -> None:
        self.seq = state["seq"] if state else 0
        self.tally = tally

    def feed(self, record: dict[str, Any], trimmed: bool) -> Iterator[Event]:
        if record.get("type") == "boom":
            raise KeyError("boom")
        self.tally.kept["any"] += 1
        text = json.dumps(record, sort_keys=True)
        flags = frozenset({"trimmed"}) if trimmed else frozenset()
        yield Turn("s", str(self.seq), None, self.seq, None, "user", (Block("text", text, 0),), text, None, flags)
        self.seq += 1

    def end(self) -> list[Event]:
        return []

    def state(self) -> dict[str, Any]:
        return {"seq": self.seq}


def read(path: Path, cursor: Cursor | None = None, cap: int = jsonl.RECORD_CAP) -> tuple[list[Event], JsonlReader]:
    reader = JsonlReader(source_of(path), cursor, Numbering, cap=cap)
    return list(reader), reader


def items(data: bytes, **limits: int) -> list[Item]:
    return list(RecordStream(io.BytesIO(data), **limits))


def records(data: bytes, **limits: int) -> list[dict[str, Any]]:
    return [item.record for item in items(data, **limits) if item.record is not None]


def reasons(data: bytes, **limits: int) -> list[str]:
    return [item.reason for item in items(data, **limits) if item.record is None]


@pytest.mark.parametrize(
    ("data", "found", "passed_over"),
    [
        (b"", [], []),
        (b'{"a":1}\n{"a":2}\n', [1, 2], []),
        (b'\xef\xbb\xbf{"a":1}\r\n{"a":2}\r\n', [1, 2], []),
        (b'{"a":1}\n\n   \n{"a":2}', [1, 2], [jsonl.BLANK, jsonl.BLANK]),
        (b'\0\0\0{"a":1}\n{"a":2}\0\0\n', [1, 2], []),
        (b'{"a":1}{"a":2}\n', [1, 2], []),
        (b'{"a":1} {"a":2}garbage\n{"a":3}\n', [1, 2, 3], [jsonl.TORN]),
        (b'{"a":1}\n{"text":"half\n{"a":2}\n', [1, 2], [jsonl.TORN]),
        (b'{"a":1,"text":"broken by\na newline"}\n{"a":2}\n', [2], [jsonl.TORN, jsonl.TORN]),
        (b'{"type":"x","t":"ha{"type":"x","timestamp":1,"id":"u","a":2}\n', [2], [jsonl.TORN]),
        (b'{"id":"u","t":"to"rn","in":{"type":"x","timestamp":1,"id":"u"}\n{"a":2}\n', [2], [jsonl.TORN]),
        (b'{"type":"u","t":"to"rn","in":{"type":"x","timestamp":1}\n{"a":2}\n', [2], [jsonl.TORN]),
        (b'42\n"text"\n[1]\nnull\n{"a":1}\n', [1], [jsonl.NO_OBJECT] * 4),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe binary", [], [jsonl.TORN, jsonl.TORN]),
        (b'{"a":1,"s":"}{\\"}"}\n', [1], []),
        (
            b'{"a":1e999}\n{"a":' + b"[" * 5000 + b"]" * 5000 + b'}\n{"a":2}\n',
            [float("inf"), 2],
            [jsonl.TORN],
        ),
    ],
)
def test_every_kind_of_line_costs_only_itself(data: bytes, found: list[Any], passed_over: list[str]) -> None:
    assert [r["a"] for r in records(data)] == found
    assert reasons(data) == passed_over
    assert [r["a"] for r in records(data, chunk=3)] == found
    assert reasons(data, chunk=3) == passed_over


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (b'"\\ud83d cut"', "\ufffd cut"),
        (b'"\\ud83d\\ude00 whole"', "\U0001f600 whole"),
        (b'"bad \xff byte"', "bad \ufffd byte"),
        (b'"nul \\u0000 and tab \t"', "nul \ufffd and tab \t"),
        ('"漢字 и кириллица"'.encode(), "漢字 и кириллица"),
    ],
)
def test_text_that_cannot_be_stored_is_replaced(source: bytes, text: str) -> None:
    from funes_mcp.traces.text import clean

    (record,) = records(b'{"text":' + source + b"}\n")
    assert clean(record["text"]) == text
    text.encode()


def test_a_torn_tail_is_left_and_taken_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2,"te')
    turns, first = read(path)
    assert len(turns) == 1
    assert first.cursor().offset == 8
    assert first.tally.skipped == {("line", jsonl.UNFINISHED): 1}
    with path.open("ab") as file:
        file.write(b'xt":"rest"}\n')
    turns, second = read(path, first.cursor())
    assert [t.seq for t in turns if isinstance(t, Turn)] == [1]
    assert not second.whole
    first.tally.add(second.tally)
    assert first.tally.lines == first.tally.explained == 2
    assert +first.tally.skipped == {}


def test_a_whole_last_record_needs_no_newline(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}')
    turns, first = read(path)
    assert len(turns) == 2
    with path.open("ab") as file:
        file.write(b"\n")
    turns, second = read(path, first.cursor())
    assert turns == []
    assert second.tally.lines == 0
    with path.open("ab") as file:
        file.write(b'{"a":3}\n')
    turns, _ = read(path, second.cursor())
    assert [t.seq for t in turns if isinstance(t, Turn)] == [2]


def test_a_rewritten_file_is_read_again_even_with_the_same_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    stat = path.stat()
    _, first = read(path)
    assert jsonl.change_of(path, first.cursor()) == "unchanged"
    path.write_bytes(b'{"a":1}\n{"a":7}\n')
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert jsonl.change_of(path, first.cursor()) == "rewritten"
    turns, second = read(path, first.cursor())
    assert second.whole
    assert len(turns) == 2


def test_touching_a_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n')
    _, first = read(path)
    os.utime(path)
    turns, second = read(path, first.cursor())
    assert (turns, second.whole) == ([], False)


def test_a_shortened_file_and_another_parser_version_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    _, first = read(path)
    assert JsonlReader(source_of(path), first.cursor(), Numbering, version=2).whole
    path.write_bytes(b'{"a":1}\n')
    assert JsonlReader(source_of(path), first.cursor(), Numbering).whole


def test_the_middle_of_a_long_prefix_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_DIGEST_WHOLE", 4096)
    monkeypatch.setattr(jsonl, "_DIGEST_WINDOW", 16)
    monkeypatch.setattr(jsonl, "_DIGEST_WINDOWS", 8)
    path = tmp_path / "s.jsonl"
    data = bytearray(b"x" * 20_000)
    path.write_bytes(data)
    before = jsonl.prefix_digest(path, 20_000)
    assert jsonl.prefix_digest(path, 20_001) == ""
    for at in (0, 511, 19_999, 512 + (20_000 - 1024) // 8):
        changed = bytearray(data)
        changed[at] = 0
        path.write_bytes(changed)
        assert jsonl.prefix_digest(path, 20_000) != before


def test_zstd_reads_as_the_plain_file_does_and_goes_on_from_its_cursor(tmp_path: Path) -> None:
    plain, packed = tmp_path / "s.jsonl", tmp_path / "s.jsonl.zst"
    data = b"".join(b'{"a":%d}\n' % n for n in range(1000))
    plain.write_bytes(data)
    packed.write_bytes(zstandard.compress(data[:5000]) + zstandard.compress(data[5000:]))
    turns, first = read(plain)
    assert read(packed)[0] == turns
    again, second = read(packed, first.cursor())
    assert (again, second.whole) == ([], False)


def test_a_damaged_zstd_costs_only_its_damaged_part(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    packed = zstandard.compress(b'{"a":1}\n')
    path.write_bytes(packed + b"\x28\xb5\x2f\xfd not really")
    turns, reader = read(path)
    assert len(turns) == 1
    assert reader.tally.skipped == {("line", jsonl.DAMAGED): 1}
    path.write_bytes(zstandard.compress(os.urandom(100_000))[:50_000])
    assert read(path)[0] == []
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    assert read(path)[0] == []


@pytest.mark.parametrize("checked", [False, True])
def test_a_zstd_that_is_cut_short_is_damaged_wherever_it_is_cut(tmp_path: Path, checked: bool) -> None:
    path = tmp_path / "s.jsonl.zst"
    one = zstandard.ZstdCompressor(write_checksum=checked).compress(b'{"a":1}\n{"a":2}\n')
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    whole = one + skippable + one
    for size in range(4, len(whole) + 1):
        path.write_bytes(whole[:size])
        turns, reader = read(path)
        ends = size in (len(one), len(one + skippable), len(whole))
        assert reader.tally.skipped == ({} if ends else {("line", jsonl.DAMAGED): 1}), size
        assert ends <= (len(turns) in (2, 4))
    assert len(turns) == 4


def test_a_zstd_of_many_blocks_ends_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.zst"
    parts = (os.urandom(200_000).hex().encode(), b"0" * 400_000, os.urandom(200_000).hex().encode())
    packed = zstandard.compress(b"".join(b'{"a":"%s"}\n' % part for part in parts))
    for cut, found in ((0, 3), (5_000, 2)):
        path.write_bytes(packed[: len(packed) - cut])
        turns, reader = read(path)
        assert (len(turns), reader.tally.skipped["line", jsonl.DAMAGED]) == (found, cut > 0)


def test_a_mistake_of_the_parser_costs_one_record_and_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"a":1}\n{"type":"boom"}\n{"a":2}\n')
    turns, reader = read(path)
    assert len(turns) == 2
    assert reader.tally.unknown == {"boom (KeyError)": 1}
    assert reader.tally.explained == reader.tally.lines == 3


def test_the_words_beside_a_huge_image_survive_in_bounded_memory(tmp_path: Path) -> None:
    import base64

    path = tmp_path / "s.jsonl"
    image = base64.b64encode(os.urandom(3_000_000)).decode()
    with path.open("w") as file:
        file.write('{"text":"before","data":"')
        for _ in range(7):
            file.write(image)
        file.write('","url":"data:image/png;base64,' + image + '","after":"kept \\"too\\""}\n{"a":2}\n')
        file.write('{"long":"' + "words and words " * 1_000_000 + '","after":1}\n{"a":3}\n')
        file.write('{"many":[' + ",".join(['"x"'] * 3_000_000) + "]}\n")
        file.write("no json " * 2_000_000 + "\n" + '{"a":4}\n')
    tracemalloc.start()
    with path.open("rb") as handle:
        found = list(RecordStream(handle))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 80_000_000
    first, second, long, *rest = found
    assert first.record == {
        "text": "before",
        "data": f"[base64: {7 * len(image)} bytes left out]",
        "url": f"data:image/png;base64,[base64: {len(image) + 22} bytes left out]",
        "after": 'kept "too"',
    }
    assert not first.trimmed
    assert second.record == {"a": 2}
    assert long.trimmed
    assert long.record is not None
    assert long.record["long"].startswith("words and words ")
    assert long.record["long"].endswith("bytes left out]")
    assert long.record["after"] == 1
    assert [(i.record, i.reason) for i in rest] == [
        ({"a": 3}, ""),
        (None, jsonl.OVERSIZE),
        (None, jsonl.TORN),
        ({"a": 4}, ""),
    ]


@given(st.binary(max_size=300), st.integers(1, 40), st.integers(2, 64))
def test_a_long_string_is_cut_between_characters(data: bytes, keep: int, chunk: int) -> None:
    text = data.decode("utf-8", "replace")
    line = json.dumps({"t": text, "u": 1}, ensure_ascii=len(data) % 2 == 0).encode() + b"\n"
    (item,) = items(line, cap=8, keep=keep, chunk=chunk)
    if item.record is None:
        assert item.reason == jsonl.OVERSIZE
    else:
        assert item.record["u"] == 1


_PIECES = st.sampled_from(
    [
        b'{"type":"x","timestamp":1,"id":"u","n":1}',
        b'{"type":"x","tor',
        b'{"a":"\\"}{","b":{"c":[1,{}]}}',
        b'{"a":"' + b"long words " * 12 + b'"}',
        b'{"a":"' + "漢字é\\ud83d".encode() * 8 + b'"}',
        b'{"a":[' + b'"x",' * 40 + b"1]}",
        b'{"a":"torn',
        b'{"bad":}',
        b"}}",
        b"\n",
        b"\r\n",
        b"\n",
        b"\0\0",
        b"   ",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b'"',
        b"\\",
        b"{",
        b"42",
        b"",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(_PIECES, st.binary(max_size=12)), max_size=16).map(b"".join),
    st.lists(st.integers(0, 600), max_size=6),
    st.sampled_from([24, 60, 100, 10_000]),
)
def test_any_slicing_gives_what_one_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cuts: list[int], cap: int
) -> None:
    path = tmp_path_factory.mktemp("slices") / "s.jsonl"
    path.write_bytes(data)
    whole, whole_reader = read(path, cap=cap)
    whole_tally = whole_reader.tally
    assert whole_tally.explained == whole_tally.lines

    events: list[Event] = []
    total = Tally()
    cursor: Cursor | None = None
    for cut in [*sorted(c for c in cuts if c < len(data)), len(data)]:
        path.write_bytes(data[:cut])
        part, reader = read(path, cursor, cap)
        assert cursor is None or not reader.whole
        events += part
        total.add(reader.tally)
        cursor = json_round_trip(reader.cursor())
    assert events == whole
    assert (+total.kept, +total.skipped, total.lines) == (
        whole_tally.kept,
        whole_tally.skipped,
        whole_tally.lines,
    )
    assert cursor is not None
    assert cursor.state == whole_reader.cursor().state


def json_round_trip(cursor: Cursor) -> Cursor:
    return Cursor(cursor.offset, cursor.digest, json.loads(json.dumps(cursor.state)))
