"""What there is to review: the sessions of one repository in a memory, and how each stands to what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from funes_mcp.curation.decisions import Decisions, Entry
from funes_mcp.curation.reviewed import Reviewed, StoredTurn, covered, reviewed
from funes_mcp.memory.catalog import Catalog, StoredMessage
from funes_mcp.traces.model import SessionInfo

State = Literal["new", "grown", "changed", "included", "excluded"]

#: States of sessions that wait for review.
PENDING: Final[frozenset[State]] = frozenset({"new", "grown", "changed"})

#: Flags of turns that nobody typed.
_NOT_TYPED: Final = frozenset({"summary", "error"})


@dataclass(frozen=True, slots=True)
class Part:
    """What is stored of one session (or one session of a subagent) in the repository, in conversation order.

    Attributes:
        no: Its number in the catalog.
        agent: Name of the subagent, or "".
        typed: Ids of the turns that the person typed.
    """

    session: str
    no: int
    agent: str
    turns: tuple[StoredTurn, ...]
    typed: tuple[str, ...] = ()

    @property
    def passages(self) -> int:
        """How many rows there are."""
        return sum(turn.passages for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Session:
    """A session that may be published: one decision.

    Attributes:
        session: Its id.
        title: The agent's or the person's name for it, or "".
        began, ended: RFC 3339 UTC of its first and last dated turn in the repository, or "".
        parts: The session itself, then those of its subagents. The first has no turns when only a subagent worked
            in the repository.
        elsewhere: How many turns were held in other folders; they are never published here.
        copies: `(session, messages)`: what the session repeats of others, which goes with their decisions.
    """

    session: str
    title: str
    harness: str
    began: str
    ended: str
    parts: tuple[Part, ...]
    elsewhere: int = 0
    copies: tuple[tuple[str, int], ...] = ()

    @property
    def turns(self) -> int:
        """How many turns there are, those of subagents too."""
        return sum(len(part.turns) for part in self.parts)

    @property
    def passages(self) -> int:
        """How many rows there are, those of subagents too."""
        return sum(part.passages for part in self.parts)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a session stands.

    Attributes:
        state: `new`: nothing was decided, or not how much was looked at. `grown`: included, and longer since.
            `changed`: included, and what was reviewed reads differently now.
        ships: The turns that a push may send, by session.
        growth: How many turns came after the review.
    """

    state: State
    ships: Mapping[str, frozenset[str]]
    growth: int = 0

    @property
    def pending(self) -> bool:
        """Whether it waits for review."""
        return self.state in PENDING


def find(catalog: Catalog, repository: str) -> list[Session]:
    """The sessions with something in a checkout of `owner/name`, latest first."""
    ours = catalog.infos_of_repository(repository)
    numbers = catalog.sessions_with(ours)
    if not numbers:
        return []
    names = {no: catalog.session_id(no) for no in numbers}
    infos: dict[str, list[SessionInfo]] = {}
    for name, info in catalog.standing_infos():
        infos.setdefault(name, []).append(info)
    families: dict[str, list[tuple[int, list[StoredMessage], int]]] = {}
    stored = catalog.stored_in(numbers)
    for no, name in names.items():
        items = [item for item in stored.get(no, []) if item.info in ours]
        if items:
            families.setdefault(_root(name, infos), []).append((no, items, len(stored[no]) - len(items)))
    copies = catalog.copied_into(numbers)
    found = []
    for root, group in families.items():
        parts = []
        for no, items, _ in group:
            about = infos.get(names[no], [])
            agent = next((info.agent_name for info in about if info.agent_name), "") if names[no] != root else ""
            parts.append(_part(names[no], no, agent, items))
        parts.sort(key=lambda part: (part.session != root, part.session))
        if parts[0].session != root:
            parts.insert(0, Part(root, catalog.find_session(root) or 0, "", ()))
        times = sorted(item.message.ts for _, items, _ in group for item in items if item.message.ts)
        about = infos.get(root, [])
        repeats: Counter[str] = Counter()
        for no, _, _ in group:
            repeats.update(copies.get(no, {}))
        found.append(
            Session(
                root,
                next((info.title for info in about if info.title), ""),
                next((info.harness for info in about), "") or _harness(infos, parts),
                times[0] if times else "",
                times[-1] if times else "",
                tuple(parts),
                sum(elsewhere for _, _, elsewhere in group),
                tuple(sorted(repeats.items())),
            )
        )
    found.sort(key=lambda session: session.session)
    found.sort(key=lambda session: session.ended, reverse=True)
    return found


def standing(session: Session, decisions: Decisions) -> Standing:
    """How a session stands to what was decided."""
    entry = decisions.entries.get(session.session)
    if entry is None or entry.choice is None:
        return Standing("new", {})
    if entry.choice == "exclude":
        return Standing("excluded", {})
    ships: dict[str, frozenset[str]] = {}
    growth = 0
    for place, part in enumerate(session.parts):
        review = _review_of(part, entry, decisions) if place else entry.reviewed
        if review is None:
            if not place:
                return Standing("new", {})  # written by hand: nobody can tell what was looked at
            growth += len(part.turns)
            continue
        count = covered(review, part.turns)
        if count is None:
            return Standing("changed", {})
        ships[part.session] = frozenset(turn.turn for turn in part.turns[:count])
        growth += len(part.turns) - count
    return Standing("grown" if growth else "included", ships, growth)


def entries_for(session: Session, choice: Literal["include", "exclude"] | None, when: str) -> dict[str, Entry]:
    """What is written of a session, and of those of its subagents, when it was reviewed as it is.

    Args:
        choice: None takes the decision back.
        when: RFC 3339 UTC.
    """
    from funes_mcp.curation.decisions import title_of

    entries: dict[str, Entry] = {}
    for part in session.parts:
        own = part.session == session.session
        entries[part.session] = Entry(
            choice if own else None,
            when if own and choice is not None else "",
            None if choice is None else reviewed(part.turns),
            title_of(session.title if own else part.agent),
            parent="" if own else session.session,
        )
    return entries


def _review_of(part: Part, root: Entry, decisions: Decisions) -> Reviewed | None:
    entry = decisions.entries.get(part.session)
    return None if entry is None or not entry.parent else entry.reviewed


def _part(name: str, no: int, agent: str, items: Iterable[StoredMessage]) -> Part:
    turns = []
    typed = []
    for item in items:
        message = item.message
        turns.append(StoredTurn(message.turn, message.no, message.rows))
        if item.role == "user" and "text" in item.kinds.split() and not _NOT_TYPED & set(item.flags.split()):
            typed.append(message.turn)
    return Part(name, no, agent, tuple(turns), tuple(typed))


def _root(name: str, infos: Mapping[str, list[SessionInfo]]) -> str:
    """The session in whose service a session was held: itself, or that of whoever sent the subagent."""
    seen = {name}
    while True:
        parents = (
            info.parent_session_id
            for info in infos.get(name, [])
            if info.relation == "subagent" and info.parent_session_id
        )
        parent = next(parents, None)
        if parent is None or parent in seen or parent not in infos:
            return name
        seen.add(parent)
        name = parent


def _harness(infos: Mapping[str, list[SessionInfo]], parts: Iterable[Part]) -> str:
    return next((info.harness for part in parts for info in infos.get(part.session, [])), "")
