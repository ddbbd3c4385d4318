"""Which rows a push may send to a curated memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from funes_mcp.curation.decisions import Decisions
    from funes_mcp.home import FunesHome
    from funes_mcp.memory.label import HubName


class Row(Protocol):
    """What it takes to know whether a row may be sent: a `Chunk`, or less."""

    @property
    def session_id(self) -> str: ...

    @property
    def turn_uuid(self) -> str: ...

    @property
    def repo(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Selection:
    """What may be sent to a curated memory, as the local one is now.

    Attributes:
        repository: `owner/name`.
        turns: Ids of the turns that may be sent, by session id. Nothing else may.
        waiting: How many sessions wait for review.
        included, excluded: How many sessions were decided on so; those that have grown since are among `waiting`.
    """

    repository: str
    turns: Mapping[str, frozenset[str]]
    waiting: int = 0
    included: int = 0
    excluded: int = 0

    def lets(self, session_id: str, turn_uuids: Collection[str]) -> frozenset[str]:
        """Those of some turns of a session that may be sent."""
        return self.turns.get(session_id, frozenset()) & frozenset(turn_uuids)

    def lets_row(self, row: Row) -> bool:
        """Whether a row may be sent: its turn may, and the row itself is of the repository."""
        return (
            row.turn_uuid in self.turns.get(row.session_id, ()) and self.repository.lower() in row.repo.lower().split()
        )


def selection(home: FunesHome, name: HubName, project: str | None = None) -> Selection | None:
    """What may be sent to a memory; None when it is not curated, and so gets everything.

    Args:
        project: What the published memory itself is marked as being of, if it is: a repository, or any name. Then
            it is curated also where nothing was decided on this machine yet, and gets nothing.

    Raises:
        FunesError: What was decided, or the local memory, cannot be read. Then nothing may be sent.
    """
    from funes_mcp.curation import files
    from funes_mcp.curation.decisions import Decisions, is_repository, same
    from funes_mcp.errors import FunesError
    from funes_mcp.render import harmless

    kept = files.load(home, name)
    if kept is None:
        return None if project is None else _selection(home, Decisions(name.repo, project))
    if project is not None and is_repository(project) and not same(project, kept.decisions.repository):
        raise FunesError(
            f"{name.label} is a memory of {harmless(project)}, and {kept.path} says that it gets sessions of "
            f"{kept.decisions.repository}.",
            "Correct the line `repository`, or publish to another memory.",
        )
    return _selection(home, kept.decisions)


def waiting(home: FunesHome) -> list[tuple[str, str, int]]:
    """`(memory, repository, sessions that wait for review)` of each curated memory. No network, nothing heavy.

    Raises:
        FunesError: A file, or the local memory, cannot be read.
    """
    from funes_mcp.curation import files

    return [
        (kept.decisions.memory, kept.decisions.repository, _selection(home, kept.decisions).waiting)
        for kept in files.every(home)
    ]


def trouble(home: FunesHome) -> str:
    """Why nothing can be published to some memory, or "": what was decided for it cannot be read."""
    from funes_mcp.curation import files
    from funes_mcp.errors import FunesError

    try:
        files.every(home)
    except FunesError as error:
        return error.message
    return ""


def _selection(home: FunesHome, decisions: Decisions) -> Selection:
    from funes_mcp.curation.sessions import find, standing
    from funes_mcp.memory.catalog import FILE, Catalog

    if not (home.memory / FILE).exists():
        return Selection(decisions.repository, {})
    catalog = Catalog(home.memory, writable=False)
    try:
        sessions = find(catalog, decisions.repository)
    finally:
        catalog.close()
    turns: dict[str, frozenset[str]] = {}
    states = []
    for session in sessions:
        how = standing(session, decisions)
        turns.update(how.ships)
        states.append(how)
    return Selection(
        decisions.repository,
        turns,
        waiting=sum(how.pending for how in states),
        included=sum(how.state in ("included", "grown", "changed") for how in states),
        excluded=sum(how.state == "excluded" for how in states),
    )
