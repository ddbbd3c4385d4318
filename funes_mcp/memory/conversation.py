"""The order in which the turns of a session were said. Pure.

A transcript is a list of lines, but what it records is a tree: a person goes back and asks again, and both
ways stay in the file. Reading on from a turn means to follow its branch, not the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, TypeVar

ABANDONED: Final = "abandoned branch"
_RESULT: Final = "tool_result"


_Item = TypeVar("_Item")
_PLACE: Final = itemgetter(0)


def in_order(
    items: Iterable[_Item], place: Callable[[_Item], tuple[int, str]], when: Callable[[_Item], str]
) -> list[_Item]:
    """Turns of one session, or what belongs to turns, in the order in which they were said.

    Several turns may share a position: what an agent keeps outside of the messages (prompts typed while it was
    working, say) is not counted. Those are in order of their times, or of their ids where a time is missing.

    Args:
        place: Gives an item's `(seq, turn)`. Items of a turn keep their order.
        when: Gives its time, in one form, or "". Asked for only where it matters.
    """
    placed = sorted([(place(item), item) for item in items], key=_PLACE)
    found: list[_Item] = []
    start = 0
    while start < len(placed):
        (seq, turn), item = placed[start]
        end = start + 1
        found.append(item)
        while end < len(placed) and placed[end][0][0] == seq:
            found.append(placed[end][1])
            end += 1
        if placed[end - 1][0][1] != turn:
            beside = [(when(item), turn) for (_, turn), item in placed[start:end]]
            if all(ts for ts, _ in beside):
                order = sorted(range(len(beside)), key=beside.__getitem__)
                found[start:end] = [placed[start + at][1] for at in order]
        start = end
    return found


@dataclass(frozen=True, slots=True)
class Node:
    """A turn of a session: its id, what it follows, its position, and what decides how it hangs together."""

    turn: str
    parent: str | None
    seq: int
    ts: str
    role: str
    message_id: str | None
    flags: str
    kinds: str


def as_said(nodes: Iterable[Node]) -> list[Node]:
    """Turns of one session in the order in which they were said, all branches."""
    return in_order(nodes, lambda node: (node.seq, node.turn), lambda node: node.ts)


def ordered(nodes: Sequence[Node], turn: str) -> tuple[list[Node], set[str]]:
    """The turns of the branch in which `turn` stands, in order, and the ids of all abandoned turns.

    Args:
        nodes: All turns of the session, each id once.
        turn: Id of one of them.
    """
    line = as_said(nodes)
    known = {node.turn: node for node in line}
    at = {node.turn: place for place, node in enumerate(line)}
    parents: dict[str, str | None] = {}
    children: dict[str, list[Node]] = {}
    before: Node | None = None
    for node in line:
        parent = known.get(node.parent) if node.parent is not None else None
        if parent is None or at[parent.turn] >= at[node.turn]:
            # Its parent is not stored (a line without words), or there is none: it follows the line above.
            parent = before
        parents[node.turn] = None if parent is None else parent.turn
        if parent is not None:
            children.setdefault(parent.turn, []).append(node)
        before = node
    kept = _branch(line, known, parents, line[-1].turn)
    abandoned = {node.turn for node in line if node.turn not in kept}
    if turn in abandoned:
        leaf = turn
        while children.get(leaf):
            leaf = children[leaf][-1].turn
        kept = _branch(line, known, parents, leaf)
    return [node for node in line if node.turn in kept], abandoned


def _branch(line: Sequence[Node], known: dict[str, Node], parents: dict[str, str | None], leaf: str) -> set[str]:
    """The turns on the way to `leaf`, with what hangs on them without being another way to go on."""
    way: set[str] = set()
    step: str | None = leaf
    while step is not None:
        way.add(step)
        step = parents[step]
    kept: set[str] = set()
    for node in line:  # parents come before their children
        parent = parents[node.turn]
        if node.turn in way or (parent in kept and (parent not in way or _beside(node, known[parent or ""]))):
            kept.add(node.turn)
    return kept


def _beside(node: Node, parent: Node) -> bool:
    """Whether a turn only completes its parent: a tool's result, or another line of the same reply."""
    return node.kinds == _RESULT or (node.message_id is not None and node.message_id == parent.message_id)


def replies(line: Sequence[Node]) -> list[list[Node]]:
    """The turns with lines of one reply joined: those in a row that share speaker and message id.

    Only in a row: behind some gateways all replies of a session carry the same message id.
    """
    groups: list[list[Node]] = []
    for node in line:
        last = groups[-1][-1] if groups else None
        if (
            last is not None
            and node.message_id is not None
            and node.message_id == last.message_id
            and node.role == last.role
        ):
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups
