"""Bring catalog and indexes in line with the table, whatever was cut off between them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from funes_mcp.memory import dense, derived, lexical
from funes_mcp.memory.catalog import Catalog, Message, Place, TurnFacts
from funes_mcp.memory.chunk import chunk_id
from funes_mcp.memory.model import Chunk
from funes_mcp.memory.plan import ids_of
from funes_mcp.memory.rows import alias, blocks_of, digest_of, in_block_order, kinds_of, message_of, shape_of
from funes_mcp.memory.stamp import STAMP, put_stamp
from funes_mcp.memory.stores import Stores
from funes_mcp.memory.table import ChunkTable, table_path, table_version
from funes_mcp.memory.times import millis
from funes_mcp.traces.model import SessionInfo


def repair_if_needed(catalog: Catalog, stores: Stores, folder: Path) -> list[str]:
    """Look at the stamps of the memory in `folder`, and mend what they say is behind the table, and what is damaged.

    Returns:
        Sentences about what was lost or damaged.
    """
    if stores.version is None:
        if not is_lost(catalog, folder):
            return []
        # Nothing in the catalog or the indexes is true any more.
        _start_over(catalog, folder)
        return ["The table of the memory was gone: the transcripts that are still there are all read again."]
    said = derived.discard_damaged(folder)
    if (
        said
        or catalog.get(STAMP) != str(stores.version)
        or derived.unfinished(folder)
        or not lexical.exists(folder / derived.LEXICAL)
        or dense.embedding_of(folder / derived.DENSE) != stores.embedding
    ):
        _repair(catalog, stores, folder)
    return said


def is_lost(catalog: Catalog, folder: Path) -> bool:
    """Whether the memory in `folder` had a table, which is gone."""
    return table_version(table_path(folder)) is None and catalog.get(STAMP) is not None


def is_in_line(catalog: Catalog | None, folder: Path) -> bool:
    """Whether catalog and indexes belong to the table as it is now, and are whole as far as a short look shows."""
    version = table_version(table_path(folder))
    return catalog is not None and catalog.get(STAMP) == str(version) and derived.sound(folder)


def _start_over(catalog: Catalog, folder: Path) -> None:
    for name in (derived.LEXICAL, derived.DENSE):
        shutil.rmtree(folder / name, ignore_errors=True)
    with catalog.transaction():
        catalog.clear()


def _repair(catalog: Catalog, stores: Stores, folder: Path) -> None:
    table = stores.table
    ids = table.ids()
    with catalog.transaction():
        listed: dict[str, int] = {}
        lost: list[int] = []
        for session_id, message in catalog.all_messages():
            names = [chunk_id(session_id, message.turn, b, p) for b, p in message.pieces()]
            if all(name in ids for name in names):
                listed.update(dict.fromkeys(names, message.no))
            else:
                lost.append(message.no)
        sightings = catalog.places_of_messages(lost)
        catalog.read_again({p.source for group in sightings.values() for p in group})
        catalog.remove_messages(lost)
        unknown = [name for name in ids if name not in listed]
        left = _entered(catalog, _import(catalog, table, unknown))
        if left:
            table.delete(sorted(left))
        derived.catch_up(table, folder)
        put_stamp(catalog, table)


def _import(catalog: Catalog, table: ChunkTable, names: Sequence[str]) -> dict[int, list[Chunk]]:
    """Make known, from the rows themselves, what the catalog does not know. Returns rows by message."""
    turns: dict[tuple[str, str], list[Chunk]] = {}
    for part in table.stream(names):
        for row in part:
            turns.setdefault((row.session_id, row.turn_uuid), []).append(row)
    started: dict[str, str] = {}
    for (session_id, _), rows in turns.items():
        stamps = [row.ts for row in rows if row.ts]
        if stamps:
            first = min(stamps, key=millis)
            if session_id not in started or millis(first) < millis(started[session_id]):
                started[session_id] = first
    found: dict[int, list[Chunk]] = {}
    for (session_id, turn), rows in turns.items():
        rows = in_block_order(rows)
        row = rows[0]
        message = message_of(row)
        source = catalog.source_no(row.source_path, row.harness, "", "")
        base, mark, _ = session_id.rpartition("~")
        if not mark or alias(base, row.source_path) != session_id:
            base = session_id
        if base != session_id:
            catalog.split(base)
        session = catalog.session_no(session_id, base)
        info = SessionInfo(
            session_id=base,
            harness=row.harness,
            cwd=row.cwd,
            repo=row.repo or None,
            branch=row.branch,
            commit=row.commit,
            parent_session_id=row.parent_session_id,
            agent_name=row.agent_name,
            started=started.get(session_id),
        )
        number = catalog.info_no(info)
        if not catalog.stands(session, source):
            catalog.stand(session, source, number, info.started or "", False)
        facts = TurnFacts(row.parent_uuid, row.ts, row.role, row.message_id, row.flags, kinds_of(rows))
        if catalog.place(session, turn, source) is None:
            catalog.save_places([Place(session, turn, source, message, row.seq, facts, number)])
        found.setdefault(message, []).extend(rows)
    return found


def _entered(catalog: Catalog, found: dict[int, list[Chunk]]) -> set[str]:
    """Enter imported messages as stored where their rows are. Returns ids of rows that are doubled.

    When a message turns out to be stored in two places, the better home keeps its rows.
    """
    stored = catalog.messages(found)
    places = catalog.places_of_messages(found)
    ranks = catalog.ranks({p.session for group in places.values() for p in group})
    paths = catalog.source_paths()
    infos = catalog.infos({p.info for group in places.values() for p in group})
    surplus: set[str] = set()
    for message, rows in found.items():
        homes: dict[tuple[str, str], list[Chunk]] = {}
        for row in rows:
            homes.setdefault((row.session_id, row.turn_uuid), []).append(row)
        before = stored.get(message)
        ranked = sorted(
            (p for p in places.get(message, []) if (ranks[p.session][2], p.turn) in homes),
            key=lambda p: (ranks[p.session], paths[p.source], p.seq, p.turn),
        )
        if not ranked:
            surplus.update(row.id for row in rows)
            continue
        home = ranked[0]
        session_id = ranks[home.session][2]
        if before is not None:
            old = ids_of(catalog, before)
            held = catalog.session_id(before.session)
            if (held, before.turn) == (session_id, home.turn):
                # The same place with pieces that the catalog does not list: keep what it lists.
                surplus.update(row.id for row in rows if row.id not in set(old.values()))
                continue
            if catalog.ranks([before.session])[before.session] < ranks[home.session]:
                surplus.update(row.id for row in rows)
                continue
            surplus.update(old.values())
        kept = homes[session_id, home.turn]
        surplus.update(row.id for row in rows if row not in kept)
        shape = shape_of(session_id, home, infos[home.info], paths[home.source])
        catalog.save_messages(
            [
                Message(
                    message, home.session, home.turn, home.seq, blocks_of(kept), digest_of(kept), shape, home.facts.ts
                )
            ]
        )
    return surplus
