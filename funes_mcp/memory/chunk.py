"""Turns into chunks: render the blocks, split them, name the pieces. Pure; all positions are code points.

The rendering, the split and the ids are the stored contract of a memory: another program computes the same
ids for the same transcript, and both recognise each other's rows by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b, sha1
from typing import Final

from funes_mcp.memory.model import Chunk
from funes_mcp.traces.model import Block, SessionInfo, Turn

#: A piece is never longer than this many code points.
WINDOW: Final = 1200

#: Code points that consecutive pieces of a block have in common, at most.
OVERLAP: Final = 150

#: The characters with the Unicode property White_Space. `str.strip()` alone would also take U+001C..U+001F,
#: which the contract keeps.
WHITESPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_NOT_PLAIN: Final = re.compile("[^A-Za-z0-9]")


@lru_cache(maxsize=256)
def munge(cwd: str | None) -> str:
    """The `workdir` column: a working directory with everything but ASCII letters and digits made `-`."""
    return _NOT_PLAIN.sub("-", cwd) if cwd else ""


def chunk_id(session_id: str, turn_uuid: str, block_idx: int, split_idx: int) -> str:
    """The first 16 hex digits of SHA-1 over the four coordinates joined by colons."""
    raw = f"{session_id}:{turn_uuid}:{block_idx}:{split_idx}"
    return sha1(raw.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()[:16]


def content_identity(turn: Turn) -> str:
    """16 hex digits shared by every copy of a message with this content, and by nothing else.

    The content is part of it so that two unrelated transcripts which happen to use the same ids are kept
    apart, and so that a message that changed is seen to have changed.
    """
    digest = blake2b(turn.identity.encode("utf-8", "replace"), digest_size=8)
    for block in turn.blocks:
        text = block.text.encode("utf-8", "replace")
        head = f"\0{block.idx}\0{block.type}\0{block.tool_name or ''}\0{len(text)}\0"
        digest.update(head.encode("utf-8", "replace"))
        digest.update(text)
    return digest.hexdigest()


def render(block: Block) -> str:
    """A block as it is stored: tool calls and results carry a label, everything else is its text."""
    if block.type == "tool_use":
        return f"[tool_use {block.tool_name}] {block.text}".strip(WHITESPACE)
    if block.type == "tool_result":
        label = "tool_result" if block.tool_name is None else f"tool_result {block.tool_name}"
        return f"[{label}] {block.text}".strip(WHITESPACE)
    return block.text.strip(WHITESPACE)


def split(text: str) -> list[str]:
    """Cut a rendered block into stripped pieces of at most `WINDOW` code points that overlap by `OVERLAP`.

    A cut falls on the last newline of the window, else on its last space, when that lies in the second
    half; otherwise at the window's end. Pieces that are blank are left out and not numbered.
    """
    text = text.strip(WHITESPACE)
    size = len(text)
    if size <= WINDOW:
        return [text] if text else []
    pieces: list[str] = []
    start = 0
    while True:
        end = min(start + WINDOW, size)
        if end < size:
            middle = start + WINDOW // 2
            cut = text.rfind("\n", start, end)
            if cut <= middle:
                cut = text.rfind(" ", start, end)
            if cut > middle:
                end = cut
        piece = text[start:end].strip(WHITESPACE)
        if piece:
            pieces.append(piece)
        if end >= size:
            return pieces
        start = max(end - OVERLAP, start + 1)


def stitch(pieces: Sequence[str]) -> str:
    """Join the pieces of a block, in order, dropping what two neighbours share once.

    The seam is the longest end of what is joined so far that begins the next piece, never more than
    `OVERLAP` code points, so that text which repeats itself is not swallowed.
    """
    parts: list[str] = []
    tail = ""
    for piece in pieces:
        seam = _seam(tail, piece) if parts else 0
        parts.append(piece[seam:])
        tail = (tail + piece[seam:])[-OVERLAP:]
    return "".join(parts)


def _seam(left: str, right: str) -> int:
    longest = min(len(left), len(right), OVERLAP)
    for size in range(longest, 0, -1):
        if left.endswith(right[:size]):
            return size
    return 0


def chunks_of(
    turn: Turn,
    info: SessionInfo,
    source_path: str,
    *,
    thinking: bool = True,
    redact: Callable[[str], str] | None = None,
) -> list[Chunk]:
    """The rows that a turn is stored as, in order; none when nothing in it is worth storing.

    Args:
        turn: The turn, with the block numbers that its parser counted.
        info: What is known of its session when the turn is read.
        source_path: Path of the transcript.
        thinking: Whether thinking blocks are kept. Leaving them out does not renumber the others.
        redact: Applied to the rendered text of each whole block, before it is split.
    """
    identity = content_identity(turn)
    workdir = munge(info.cwd)
    flags = " ".join(sorted(turn.flags))
    chunks: list[Chunk] = []
    for block in turn.blocks:
        if block.type == "thinking" and not thinking:
            continue
        text = render(block)
        if redact is not None:
            text = redact(text)
        for number, piece in enumerate(split(text)):
            chunks.append(
                Chunk(
                    id=chunk_id(turn.session_id, turn.turn_uuid, block.idx, number),
                    text=piece,
                    session_id=turn.session_id,
                    workdir=workdir,
                    turn_uuid=turn.turn_uuid,
                    parent_uuid=turn.parent_uuid,
                    seq=turn.seq,
                    ts=turn.ts or "",
                    role=turn.role,
                    block_type=block.type,
                    tool_name=block.tool_name,
                    source_path=source_path,
                    block_idx=block.idx,
                    split_idx=number,
                    harness=info.harness,
                    repo=info.repo or "",
                    message_id=turn.message_id,
                    cwd=info.cwd,
                    branch=info.branch,
                    commit=info.commit,
                    parent_session_id=info.parent_session_id,
                    agent_name=info.agent_name,
                    flags=flags,
                    identity=identity,
                )
            )
    return chunks
