"""What a turn is stored as: the contract's rendering, split, ids, and putting the pieces together again."""

from __future__ import annotations

from hashlib import sha1

import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.memory.chunk import (
    OVERLAP,
    WHITESPACE,
    WINDOW,
    chunk_id,
    chunks_of,
    content_identity,
    munge,
    render,
    split,
    stitch,
)
from funes_mcp.traces.model import Block, SessionInfo, Turn

INFO = SessionInfo("s1", "claude_code", cwd="/home/ann/my_proj", repo="ann/proj")


def turn(*blocks: Block, identity: str = "m1") -> Turn:
    return Turn("s1", "u1", "u0", 3, "2026-01-02T03:04:05.678Z", "assistant", blocks, identity)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (Block("text", "  hi \n", 0), "hi"),
        (Block("tool_use", '{"a":1}', 0, "Bash"), '[tool_use Bash] {"a":1}'),
        (Block("tool_use", "{}", 0), "[tool_use None] {}"),
        (Block("tool_result", "out\n", 0, "Read"), "[tool_result Read] out"),
        (Block("tool_result", "", 0), "[tool_result]"),
        (Block("text", "\x1cheld\x1c", 0), "\x1cheld\x1c"),
    ],
)
def test_rendering(block: Block, expected: str) -> None:
    assert render(block) == expected


def test_an_id_is_the_start_of_a_sha1_over_the_coordinates() -> None:
    assert chunk_id("s", "u", 2, 1) == sha1(b"s:u:2:1").hexdigest()[:16]


def test_workdir_keeps_ascii_letters_and_digits() -> None:
    assert munge("/home/ann/my_proj.é") == "-home-ann-my-proj--"
    assert munge(None) == ""


def test_a_cut_prefers_a_newline_then_a_space_in_the_second_half() -> None:
    text = "a" * 700 + "\n" + "b" * 300 + " " + "c" * 900
    first, second, *_ = split(text)
    assert first == "a" * 700
    assert second.startswith("a" * OVERLAP + "\nb")
    no_newline = "a" * 1000 + " " + "c" * 900
    assert split(no_newline)[0] == "a" * 1000
    early = "a" * 599 + "\n" + "b" * 1500
    assert len(split(early)[0]) == WINDOW


def test_a_cut_exactly_in_the_middle_is_too_early() -> None:
    assert len(split("a" * 600 + " " + "b" * 1000)[0]) == WINDOW
    assert len(split("a" * 601 + " " + "b" * 1000)[0]) == 601


def test_blank_pieces_are_not_numbered() -> None:
    text = "a" * 1100 + "\n" + " " * 3000 + "b" * 40
    chunks = chunks_of(turn(Block("text", text, 0)), INFO, "/t.jsonl")
    assert [chunk.split_idx for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk.text.strip() for chunk in chunks)


@given(st.text(alphabet=st.sampled_from("ab \n\tç\u3000\x1c")) | st.text(max_size=200), st.integers(1, 40))
def test_pieces_are_bounded_stripped_and_cover_the_text(text: str, times: int) -> None:
    whole = (text * times).strip(WHITESPACE)
    pieces = split(whole)
    assert all(len(piece) <= WINDOW and piece == piece.strip(WHITESPACE) and piece for piece in pieces)
    at = 0
    for piece in pieces:
        found = whole.find(piece, max(0, at - OVERLAP - WINDOW))
        assert found >= 0
        at = found + len(piece)
    assert bool(pieces) == bool(whole)


@given(st.lists(st.from_regex(r"[a-z0-9]{1,12}", fullmatch=True), min_size=1, max_size=1200))
def test_stitching_undoes_the_split_of_words(words: list[str]) -> None:
    text = " ".join(f"{word}{number}" for number, word in enumerate(words))
    assert stitch(split(text)) == text


def test_stitching_never_swallows_more_than_the_overlap() -> None:
    repeating = "abcabcabc " * 60
    assert len(stitch([repeating.strip(), repeating.strip()])) == 2 * len(repeating.strip()) - 149


def test_a_redactor_sees_whole_blocks_and_thinking_can_be_left_out() -> None:
    seen: list[str] = []

    def redact(text: str) -> str:
        seen.append(text)
        return text.replace("secret", "…")

    blocks = (Block("thinking", "hm", 0), Block("tool_use", "x secret " * 400, 1, "Bash"), Block("text", "end", 2))
    chunks = chunks_of(turn(*blocks), INFO, "/t.jsonl", thinking=False, redact=redact)
    assert seen[0].startswith("[tool_use Bash] x secret")
    assert len(seen) == 2
    assert {chunk.block_idx for chunk in chunks} == {1, 2}
    assert not any("secret" in chunk.text for chunk in chunks)


def test_rows_carry_what_is_known_of_the_turn_and_its_session() -> None:
    (chunk,) = chunks_of(turn(Block("text", "hello", 4)), INFO, "/t.jsonl")
    assert (chunk.id, chunk.session_id, chunk.workdir, chunk.turn_uuid) == (
        chunk_id("s1", "u1", 4, 0),
        "s1",
        "-home-ann-my-proj",
        "u1",
    )
    assert (chunk.parent_uuid, chunk.seq, chunk.ts, chunk.role) == ("u0", 3, "2026-01-02T03:04:05.678Z", "assistant")
    assert (chunk.harness, chunk.repo, chunk.source_path, chunk.cwd) == (
        "claude_code",
        "ann/proj",
        "/t.jsonl",
        "/home/ann/my_proj",
    )
    assert chunk.identity == content_identity(turn(Block("text", "hello", 4)))


def test_identity_tells_apart_messages_and_contents_but_not_places() -> None:
    one = turn(Block("text", "hello", 0))
    assert content_identity(one) != content_identity(turn(Block("text", "hullo", 0)))
    assert content_identity(one) != content_identity(turn(Block("text", "hello", 0), identity="m2"))
    elsewhere = Turn("s9", "u7", None, 0, None, "assistant", one.blocks, "m1")
    assert content_identity(one) == content_identity(elsewhere)
