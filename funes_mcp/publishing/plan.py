"""Which rows a published memory lacks, and which of those may leave.

Rows are known by their keys (see `Chunk.key`), eight bytes each, so that a plan for some hundred thousand rows takes
some ten megabytes. A message goes whole or not at all, but for blocks that the gate holds back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

from funes_mcp.memory.scrub import outgoing
from funes_mcp.redaction.gate import Scanner, Verdict, examine
from funes_mcp.sessions import the_session

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from funes_mcp.memory.model import Chunk
    from funes_mcp.memory.table import ChunkTable, RowMark

#: More rows than this are picked from a pass over all of them instead of being asked for by id.
_SOME: Final = 20_000


class Selection(Protocol):
    """Says what a person lets out: see `curation.Selection`."""

    @property
    def repository(self) -> str:
        """`owner/name` of the sessions that may leave."""
        ...

    @property
    def waiting(self) -> int:
        """How many sessions wait for a decision."""
        ...

    def lets_row(self, row: RowMark) -> bool:
        """Whether a row may leave."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to leave.

    Attributes:
        wanted: Keys of the rows that the other memory lacks and that may be sent, ascending.
        whole: Keys of all rows of their messages, ascending: what the gate has to read.
        shared: Rows of ours that are there already.
        rows: Rows that are stored here.
        unfilled: Rows that wait for a vector, and with them their messages.
        unselected: Sessions with rows that the other memory lacks and that the person has not let out.
        later: Rows beyond the limit of one push.
        sessions: Session of each row in `wanted`, as positions in `names`.
        names: Ids of sessions.
        turns, sizes: For each row in `whole`, a number for its message; for each message, how many rows it has.
        lacking: For each session, in the order of `names`, how many of its rows the other memory lacks.
        unfilled_sessions: Sessions of which something waits for a vector.
        there: Sessions of which something is there.
    """

    wanted: NDArray[np.uint64]
    whole: NDArray[np.uint64]
    shared: int
    rows: int
    unfilled: int
    unselected: frozenset[str]
    later: int
    sessions: NDArray[np.int64]
    names: tuple[str, ...]
    turns: NDArray[np.int64]
    sizes: NDArray[np.int64]
    lacking: dict[str, int] = field(default_factory=dict)
    unfilled_sessions: frozenset[str] = frozenset()
    there: frozenset[str] = frozenset()

    def sessions_of(self, keys: NDArray[np.uint64]) -> Counter[str]:
        """How many of some wanted rows each session has; keys that are not wanted are passed over."""
        import numpy as np

        places = np.flatnonzero(np.isin(self.wanted, keys))
        return Counter(self.names[number] for number in self.sessions[places].tolist())


def make(
    marks: Iterable[Sequence[RowMark]],
    there: NDArray[np.uint64],
    *,
    anew: bool = False,
    named: Sequence[str] = (),
    selection: Selection | None = None,
    most: int | None = None,
) -> Plan:
    """Find what is to leave.

    Args:
        marks: Every row that is stored here.
        there: Keys of the rows that are stored there, ascending.
        anew: Vectors are made anew, so that rows without one may leave, too.
        named: The only sessions that may leave, by id or the beginning of one; empty for all.
        selection: Of the person, where there is one. A message goes only when all of its rows may.
        most: About so many rows at most, those that were written last.

    Raises:
        NotFoundError: A named session is not stored here.
        AmbiguousSessionError: A name fits several.
    """
    import numpy as np

    numbers: dict[str, int] = {}
    keys: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    turn_parts: list[NDArray[np.uint64]] = [np.empty(0, np.uint64)]
    session_parts: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    filled_parts: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    let_parts: list[NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    for part in marks:
        count = len(part)
        if selection is not None:
            let_parts.append(np.fromiter((selection.lets_row(row) for row in part), np.bool_, count))
        keys.append(np.fromiter((row.key for row in part), np.uint64, count))
        turn_parts.append(np.fromiter((turn_number(row.session_id, row.turn_uuid) for row in part), np.uint64, count))
        session_parts.append(
            np.fromiter((numbers.setdefault(row.session_id, len(numbers)) for row in part), np.int64, count)
        )
        filled_parts.append(np.fromiter((row.filled for row in part), np.bool_, count))
    key = np.concatenate(keys)
    session = np.concatenate(session_parts)
    filled = np.concatenate(filled_parts)
    _, turn = np.unique(np.concatenate(turn_parts), return_inverse=True)
    names = tuple(numbers)
    only = {
        the_session(prefix, names, hint="`funes sessions` lists them.", kept="Nothing was published.")
        for prefix in named
    }

    lacks = ~np.isin(key, there)
    missing = np.bincount(session[lacks], minlength=len(names))
    turns = int(turn.max()) + 1 if len(turn) else 0
    kept_back = np.zeros(len(key), bool)
    if selection is not None:
        shut = np.zeros(turns, bool)
        shut[turn[~np.concatenate(let_parts)]] = True
        kept_back = lacks & shut[turn]
    candidates = lacks & ~kept_back
    if named:
        chosen_names = np.array([name in only for name in names], bool)
        candidates &= chosen_names[session]
    waits = np.zeros(turns, bool)
    if not anew:
        waits[turn[candidates & ~filled]] = True
    unfilled = candidates & waits[turn]
    wanted = candidates & ~waits[turn]
    later = 0
    if most is not None and int(wanted.sum()) > most:
        rows = np.flatnonzero(wanted)
        kept = np.zeros(turns, bool)
        kept[turn[rows[-most:]]] = True
        later = int((wanted & ~kept[turn]).sum())
        wanted &= kept[turn]
    chosen = np.zeros(turns, bool)
    chosen[turn[wanted]] = True
    whole = chosen[turn]
    order = np.argsort(key[whole], kind="stable")
    wanted_order = np.argsort(key[wanted], kind="stable")
    return Plan(
        wanted=key[wanted][wanted_order],
        whole=key[whole][order],
        shared=int((~lacks).sum()),
        rows=len(key),
        unfilled=int(unfilled.sum()),
        unselected=frozenset(names[number] for number in np.unique(session[kept_back]).tolist()),
        later=later,
        sessions=session[wanted][wanted_order],
        names=names,
        turns=turn[whole][order].astype(np.int64),
        sizes=np.bincount(turn, minlength=turns),
        lacking={name: int(n) for name, n in zip(names, missing.tolist(), strict=True) if n},
        unfilled_sessions=frozenset(names[number] for number in np.unique(session[unfilled]).tolist()),
        there=frozenset(names[number] for number in np.unique(session[~lacks]).tolist()),
    )


def turn_number(session_id: str, turn: str) -> int:
    """What a message is known by among the rows of a table, 64 bits."""
    name = f"{session_id}\0{turn}".encode("utf-8", "replace")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


def messages(table: ChunkTable, plan: Plan) -> Iterator[list[Chunk]]:
    """The messages that the gate has to read, each with all of its rows in order.

    Rows that were written again may lie far from the rest of their message; only such messages are kept waiting.
    """
    import numpy as np

    if not len(plan.whole):
        return
    names = [f"{key:016x}" for key in plan.whole.tolist()] if len(plan.whole) <= _SOME else None
    waiting: dict[int, list[Chunk]] = {}
    for part in table.stream(names):
        own = np.fromiter((row.key for row in part), np.uint64, len(part))
        at = np.minimum(np.searchsorted(plan.whole, own), len(plan.whole) - 1)
        for place, row in zip(np.where(plan.whole[at] == own, at, -1).tolist(), part, strict=True):
            if place < 0:
                continue
            turn = int(plan.turns[place])
            rows = waiting.setdefault(turn, [])
            rows.append(row)
            if len(rows) == int(plan.sizes[turn]):
                yield sorted(waiting.pop(turn), key=lambda one: (one.block_idx, one.split_idx))
    for rows in waiting.values():  # doubled ids, in tables that another program wrote
        yield sorted(rows, key=lambda one: (one.block_idx, one.split_idx))


@dataclass(frozen=True, slots=True)
class Passed:
    """What the gate said of a plan.

    Attributes:
        verdict: Its word on every row.
        keys: Of the wanted rows that may leave, ascending.
        sessions: How many of these each session has. `held` says how many rows of each session may not leave.
    """

    verdict: Verdict
    keys: NDArray[np.uint64]
    sessions: Counter[str]
    held: Counter[str]


def gate(table: ChunkTable, plan: Plan, scanner: Scanner, told: Callable[[int, int], None] | None = None) -> Passed:
    """Search everything that is to leave for credentials.

    Args:
        told: Called with rows searched and rows to search.

    Raises:
        ScannerError: The search failed: nothing may leave.
    """
    done = 0

    def blocks() -> Iterator[Chunk]:
        nonlocal done
        for rows in messages(table, plan):
            yield from rows
            done += len(rows)
            if told is not None:
                told(done, len(plan.whole))

    return judged(plan, examine(outgoing(blocks()), scanner))


def judged(plan: Plan, verdict: Verdict) -> Passed:
    """What a verdict says of a plan all of whose rows were searched."""
    import numpy as np

    held = np.fromiter((int(name, 16) for name in verdict.held_ids), np.uint64, len(verdict.held_ids))
    keys = plan.wanted[~np.isin(plan.wanted, held)]
    return Passed(verdict, keys, plan.sessions_of(keys), plan.sessions_of(held))
