"""Compare what should be stored of messages with what is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from funes_mcp.memory import catalog as book
from funes_mcp.memory.catalog import Catalog, Message, Place
from funes_mcp.memory.chunk import chunk_id
from funes_mcp.memory.model import Chunk
from funes_mcp.memory.rows import Content, at_home, blocks_of, is_at_home, shape_of

#: The flag of turns from a prompt history.
HISTORY: Final = "history"


@dataclass(slots=True)
class Plan:
    """What a commit has to change.

    Attributes:
        rows: Rows to write, new or in place of others; `owner` is the message of each.
        names: See `Entry.names`, of those rows for which they are known.
        keys: Of the rows of each message that came with rows, in order.
        old: For each message that changes, the rows that are stored of it: `(block, piece)` to id.
        messages: What is stored afterwards.
        gone: Messages of which nothing is left.
        before, after: For each session whose rows change, the keys of its rows in order.
        again: Sources to be read from their beginning, because the text of a message is not at hand.
    """

    rows: dict[str, Chunk] = field(default_factory=dict)
    owner: dict[str, int] = field(default_factory=dict)
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    keys: dict[int, list[int]] = field(default_factory=dict)
    old: dict[int, dict[tuple[int, int], str]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    before: dict[int, list[int]] = field(default_factory=dict)
    after: dict[int, list[int]] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)

    @property
    def removed(self) -> set[str]:
        """Ids of the rows that go without others in their place."""
        return {name for ids in self.old.values() for name in ids.values()} - self.rows.keys()


def planned(
    catalog: Catalog,
    affected: Iterable[int],
    contents: dict[int, Content],
    fresh: dict[int, list[Place]],
    stored_rows: Callable[[Sequence[str]], dict[str, Chunk]],
) -> Plan:
    """Compare what should be stored of each message with what is, and enter that into the catalog.

    Args:
        affected: The messages to look at.
        contents: The rows of those that came with rows.
        fresh: All places of those that were in no place before.
        stored_rows: Gives rows by their ids.
    """
    wanted = sorted(affected)
    places = catalog.places_of_messages(message for message in wanted if message not in fresh)
    places.update(fresh)
    stored = catalog.messages(message for message in wanted if message not in fresh)
    ranks = catalog.ranks({place.session for group in places.values() for place in group})
    paths = catalog.source_paths()
    infos = catalog.infos({place.info for group in places.values() for place in group})
    places = _without_remembered(catalog, places)
    plan = Plan()
    homes: dict[int, Place] = {}
    for message in wanted:
        before = stored.get(message)
        group = places.get(message)
        if not group:
            if before is not None:
                plan.gone.append(message)
                plan.old[message] = ids_of(catalog, before)
            continue
        if len(group) == 1:
            home = group[0]
        else:
            home = min(group, key=lambda p: (ranks[p.session], paths[p.source], p.seq, p.turn))
        given = contents.get(message)
        if given is not None:
            content, blocks = given.digest, blocks_of(given.chunks)
        elif before is not None:
            content, blocks = before.content, before.blocks
        else:  # its rows were lost, or it was not stored for the sake of what is no longer there
            plan.again.update(place.source for place in group)
            continue
        shape = shape_of(ranks[home.session][2], home, infos[home.info], paths[home.source])
        if before is not None:
            if (before.content, before.shape) == (content, shape):
                continue
            plan.old[message] = ids_of(catalog, before)
        homes[message] = home
        plan.messages.append(Message(message, home.session, home.turn, home.seq, blocks, content, shape, home.facts.ts))
    unread = [name for m in homes if m not in contents for name in plan.old[m].values()]
    rows = stored_rows(unread)
    for message, home in homes.items():
        given = contents.get(message)
        if given is not None:
            chunks = given.chunks
        else:
            chunks = [rows[name] for name in plan.old[message].values() if name in rows]
        names = () if given is None else given.names
        session_id, info, path = ranks[home.session][2], infos[home.info], paths[home.source]
        for place, chunk in enumerate(chunks):
            row = chunk
            if not is_at_home(chunk, session_id, home, info, path):
                row = at_home(chunk, session_id, home, info, path, message)
            plan.rows[row.id] = row
            plan.owner[row.id] = message
            if names:
                plan.names[row.id] = names[place]
            if given is not None:
                plan.keys.setdefault(message, []).append(row.key)
    sessions = {m.session for m in plan.messages} | {stored[m].session for m in plan.old}
    plan.before = {session: _ordered(catalog, session, {}) for session in sessions}
    catalog.remove_messages(plan.gone)
    catalog.save_messages(plan.messages)
    plan.after = {session: _ordered(catalog, session, plan.keys) for session in sessions}
    return plan


def _without_remembered(catalog: Catalog, places: dict[int, list[Place]]) -> dict[int, list[Place]]:
    """The places without those that a prompt history gives of sessions with a transcript."""
    remembered = {place.session for group in places.values() for place in group if HISTORY in place.facts.flags.split()}
    if not remembered:
        return places
    transcribed = catalog.transcribed(remembered)
    return {
        message: [p for p in group if p.session not in transcribed or HISTORY not in p.facts.flags.split()]
        for message, group in places.items()
    }


def ids_of(catalog: Catalog, message: Message) -> dict[tuple[int, int], str]:
    """The ids of a message's rows by `(block, piece)`, in order."""
    session_id = catalog.session_id(message.session)
    return {(block, piece): chunk_id(session_id, message.turn, block, piece) for block, piece in message.pieces()}


def _ordered(catalog: Catalog, session: int, known: Mapping[int, list[int]]) -> list[int]:
    """Keys of the rows stored under a session, in order.

    Args:
        known: The keys of all rows of some messages.
    """
    session_id = catalog.session_id(session)
    keys: list[int] = []
    for message, turn, blocks in catalog.turns_of_session(session):
        keys += known.get(message) or [int(chunk_id(session_id, turn, b, p), 16) for b, p in book.pieces_of(blocks)]
    return keys
