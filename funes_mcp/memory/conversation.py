"""The order in which the turns of a session were said. Pure.

A transcript is a list of lines, but what it records is a tree: a person goes back and asks again, and both
ways stay in the file. Reading on from a turn means to follow its branch, not the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ABANDONED: Final = "abandoned branch"
_RESULT: Final = "tool_result"


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


def ordered(nodes: Sequence[Node], turn: str) -> tuple[list[Node], set[str]]:
    """The turns of the branch in which `turn` stands, in order, and the ids of all abandoned turns.

    Args:
        nodes: All turns of the session, each id once.
        turn: Id of one of them.
    """
    line = sorted(nodes, key=lambda node: (node.seq, node.turn))
    known = {node.turn: node for node in line}
    parents: dict[str, str | None] = {}
    children: dict[str, list[Node]] = {}
    before: Node | None = None
    for node in line:
        parent = known.get(node.parent) if node.parent is not None else None
        if parent is None or (parent.seq, parent.turn) >= (node.seq, node.turn):
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
