"""How much of a session was reviewed, and whether that still is its beginning. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """A turn as far as it is stored under one session.

    Attributes:
        turn: Its id.
        message: The identity of what was said: another number means that the turn says something else now.
        passages: How many rows it has.
    """

    turn: str
    message: int
    passages: int


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The turns of a session that somebody has looked at: its first ones, in the order of the conversation.

    Attributes:
        turns, passages: How many turns and rows there were.
        last_turn: Id of the last of them.
        digest: Of their ids and contents in order, 16 hex digits.
    """

    turns: int
    passages: int
    last_turn: str
    digest: str


def reviewed(turns: Sequence[StoredTurn]) -> Reviewed:
    """What a review of these turns covers."""
    return Reviewed(len(turns), _passages(turns), turns[-1].turn if turns else "", _digest(turns))


def covered(review: Reviewed, turns: Sequence[StoredTurn]) -> int | None:
    """How many of a session's turns a review covers: the first so many.

    None when these are not what was reviewed: a turn came between, went, was reordered or says something else, or
    one has rows that were not there (thinking that is kept now, say).
    """
    first = turns[: review.turns]
    if len(first) < review.turns or _digest(first) != review.digest or _passages(first) > review.passages:
        return None
    return review.turns


def _passages(turns: Iterable[StoredTurn]) -> int:
    return sum(turn.passages for turn in turns)


def _digest(turns: Iterable[StoredTurn]) -> str:
    # Of the message only its identity is known here; that is made of the words before any credential was taken out
    # of them, so `funes scrub` does not undo a review.
    digest = blake2b(digest_size=8)
    for turn in turns:
        name = turn.turn.encode("utf-8", "surrogatepass")
        digest.update(len(name).to_bytes(8, "big"))
        digest.update(name)
        digest.update((turn.message & ((1 << 64) - 1)).to_bytes(8, "big"))
    return digest.hexdigest()
