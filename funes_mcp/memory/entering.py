"""Enter into the catalog what transcripts said: which sources, sessions and places there are."""

from __future__ import annotations

from collections.abc import Callable

from funes_mcp.memory.batch import Batch
from funes_mcp.memory.catalog import Catalog, Place, safe_text
from funes_mcp.memory.rows import alias


def enter(
    catalog: Catalog, batch: Batch, is_forgotten: Callable[[str, str], bool]
) -> tuple[set[int], dict[int, list[Place]]]:
    """Write what was put into the catalog.

    Args:
        is_forgotten: Whether a session, in the source at a path, was forgotten.

    Returns:
        The messages that may have to be stored differently; and all places of those that are new.
    """
    affected: set[int] = set(batch.contents)
    numbers = {
        path: catalog.source_no(path, source.harness, safe_text(str(source.root)), source.kind)
        for path, source in batch.sources.items()
    }
    for (path, session_id), info in batch.infos.items():
        if is_forgotten(session_id, path):
            batch.forgotten.add(path)
            continue
        session = _session(catalog, session_id, path)
        fork = info.relation == "fork"
        if catalog.stand(session, numbers[path], catalog.info_no(info), info.started or "", fork):
            affected.update(catalog.shared_messages(session))
    split = {session_id for _, session_id in batch.infos if len(set(catalog.started_by(session_id).values())) > 1}
    sighted = catalog.sighted({put.message for puts in batch.puts.values() for put in puts.values()})
    fresh: dict[int, list[Place]] = {}
    earlier = {path for path in batch.finished if path in batch.seen and catalog.gave(numbers[path])}
    infos: dict[int, int] = {}
    taken: dict[int, bool] = {}
    touched: set[int] = set()
    for path, puts in batch.puts.items():
        source = numbers[path]
        sessions: dict[str, int] = {}
        changed: list[Place] = []
        for (session_id, turn), put in puts.items():
            if session_id not in sessions:
                sessions[session_id] = _session(catalog, session_id, path)
                taken[sessions[session_id]] = catalog.occupied(sessions[session_id])
            if id(put.info) not in infos:
                infos[id(put.info)] = catalog.info_no(put.info)
            session = sessions[session_id]
            place = Place(session, turn, source, put.message, put.seq, put.facts, infos[id(put.info)])
            known = False
            for other in catalog.places_at(session, turn) if taken[session] else ():
                if other.source != source:
                    if other.message != put.message:
                        split.add(session_id)
                elif other == place:
                    known = True
                elif other.message != put.message:
                    affected.add(other.message)
            if not known:
                changed.append(place)
                affected.add(put.message)
                if put.message not in sighted:
                    fresh.setdefault(put.message, []).append(place)
        catalog.save_places(changed)
        touched.update(sessions.values())
    for path in earlier:
        seen = batch.seen[path]
        gone = [
            place
            for place in catalog.places_of_source(numbers[path])
            if (catalog.base(place.session), place.turn) not in seen
            and (not batch.sources[path].many or catalog.base(place.session) in batch.told[path])
        ]
        affected.update(place.message for place in gone)
        touched.update(place.session for place in gone)
        catalog.remove_places(gone)
    for base in split:
        catalog.split(base)
    for base in split | {session_id for puts in batch.puts.values() for session_id, _ in puts}:
        if catalog.is_split(base):
            affected.update(_resplit(catalog, base))
            fresh = {}
    for messages in catalog.remembered(touched).values():
        affected.update(messages)
    return affected, fresh


def _session(catalog: Catalog, session_id: str, path: str) -> int:
    """The number of the session that a transcript's session id means in the source at `path`."""
    if catalog.is_split(session_id):
        paths = [other for other, _ in catalog.sources_of_base(session_id)]
        if any(other < path for other in paths):
            return catalog.session_no(alias(session_id, path), session_id)
    return catalog.session_no(session_id)


def _resplit(catalog: Catalog, base: str) -> set[int]:
    """Move what stands under a session id that unrelated sources share to where it belongs."""
    affected: set[int] = set()
    for rank, (path, source) in enumerate(catalog.sources_of_base(base)):
        target = catalog.session_no(alias(base, path) if rank else base, base)
        affected.update(catalog.move(base, source, target))
    return affected
