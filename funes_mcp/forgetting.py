"""`funes forget`: which sessions a request means, and what forgetting them comes to. Reads the catalog only."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from funes_mcp.errors import BadRequestError, NotFoundError
from funes_mcp.memory.catalog import Catalog
from funes_mcp.memory.tombstones import Tombstone
from funes_mcp.models import ForgetPlan, ForgetRequest, Forgotten
from funes_mcp.sessions import the_session
from funes_mcp.traces.model import SessionInfo


def plan(catalog: Catalog, request: ForgetRequest, now: datetime) -> ForgetPlan:
    """What a request comes to.

    Args:
        now: Aware; in its zone a date is taken.

    Raises:
        BadRequestError: Not exactly one thing is named, or the time cannot be read.
        NotFoundError: Nothing is meant.
        AmbiguousSessionError: Several sessions start so.
    """
    infos = catalog.standing_infos()
    meant = _meant(catalog, request, infos, now)
    # What a subagent did is part of what the session did.
    whole = _with_subagents(meant, infos)
    numbers = {no for name in whole if (no := catalog.find_session(name)) is not None}
    return ForgetPlan(
        sessions=tuple(sorted(whole)),
        subagents=len(whole - meant),
        chunks=catalog.pieces_in(numbers),
        copies=tuple(catalog.shared_with(numbers).items()),
        why=why(request, meant),
        transcripts=tuple(sorted({path for no in numbers for path in catalog.sources_of_session(no).values()})),
    )


def why(request: ForgetRequest, meant: Iterable[str] = ()) -> str:
    """What is kept on the tombstones: enough to take back what was forgotten together."""
    if request.project is not None:
        return f"project {request.project.strip()}"
    if request.before is not None:
        return f"before {request.before.strip()}"
    return f"session {next(iter(meant), request.session or '')}"


def choose(stones: Iterable[Tombstone], request: ForgetRequest) -> list[Forgotten]:
    """The tombstones that a request names: by a session's prefix, or by what was asked for when they were made."""
    found = []
    for stone in stones:
        if request.session is not None:
            prefix = request.session.strip()
            chosen = bool(prefix) and (stone.session.startswith(prefix) or stone.why.startswith(f"session {prefix}"))
        elif request.project is not None or request.before is not None:
            chosen = stone.why == why(request)
        else:
            chosen = True
        if chosen:
            found.append(Forgotten(stone.session, stone.at, stone.why))
    return sorted(found, key=lambda item: (item.at, item.session))


def _meant(catalog: Catalog, request: ForgetRequest, infos: list[tuple[str, SessionInfo]], now: datetime) -> set[str]:
    if sum(value is not None for value in (request.session, request.project, request.before)) != 1:
        raise BadRequestError(
            "Name one thing to forget.",
            "funes forget SESSION, funes forget --project P, or funes forget --before DATE.",
        )
    if request.session is not None:
        return {_session(catalog, request.session.strip())}
    if request.project is not None:
        if not request.project.strip():
            raise BadRequestError("The project is empty.")
        from funes_mcp.memory.chunk import munge
        from funes_mcp.memory.lexical import project_names, projects

        names = set(project_names(request.project.strip()))
        found = {name for name, info in infos if names & set(projects(info.repo or "", info.cwd, munge(info.cwd)))}
        if not found:
            raise NotFoundError(f"No session of project {request.project!r} is in the memory.")
        return found
    from funes_mcp.retrieval.when import parse_when

    limit = parse_when(request.before or "", now, "--before")
    found = {name for name, newest in catalog.newest_turns().items() if newest < limit}
    if not found:
        raise NotFoundError(f"No session in the memory ended before {request.before!r}.")
    return found


def _session(catalog: Catalog, prefix: str) -> str:
    hint = "`funes sessions` lists the ids."
    if not prefix:
        raise BadRequestError("The session is empty.", hint)
    return the_session(prefix, catalog.session_ids(prefix), hint=hint)


def _with_subagents(sessions: set[str], infos: list[tuple[str, SessionInfo]]) -> set[str]:
    whole = set(sessions)
    while True:
        more = {
            name
            for name, info in infos
            if info.relation == "subagent" and info.parent_session_id in whole and name not in whole
        }
        if not more:
            return whole
        whole |= more
