"""Reviewing the sessions of one repository for one published memory: what there is, and what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.curation import files
from funes_mcp.curation.decisions import Choice, Decisions, Entry, is_repository, same, title_of
from funes_mcp.curation.sessions import Session, Standing, entries_for, find, standing
from funes_mcp.errors import BadRequestError, NoMemoryError
from funes_mcp.home import FunesHome
from funes_mcp.memory import label
from funes_mcp.memory.catalog import FILE, Catalog
from funes_mcp.memory.chunk import chunk_id, stitch
from funes_mcp.memory.label import HubName
from funes_mcp.render import harmless
from funes_mcp.sessions import the_session

if TYPE_CHECKING:
    from funes_mcp.memory.reader import MemoryReader

#: How many repositories are named to somebody who asked for one without sessions.
SUGGESTED: Final = 8


@dataclass(frozen=True, slots=True)
class Exchange:
    """Something the person typed, and the beginning of what the agent said to it ("" when nothing).

    Attributes:
        fresh: Whether it came after the last review of a session that is included.
    """

    ts: str
    prompt: str
    answer: str
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Reviewable:
    """A session with how it stands."""

    session: Session
    standing: Standing


class Desk:
    """See the module. Use `open_desk`.

    Attributes:
        fresh: Whether nothing was ever decided for the memory: so far a push sends it everything.
    """

    def __init__(self, home: FunesHome, name: HubName, repository: str, reader: Callable[[], MemoryReader]) -> None:
        self._home = home
        self._name = name
        self._open_reader = reader
        self.repository = repository
        kept = files.load(home, name)
        self.fresh = kept is None
        self.path = files.path_of(home, name)
        self._decisions = Decisions(name.repo, repository) if kept is None else kept.decisions
        catalog = Catalog(home.memory, writable=False)
        try:
            self._sessions = find(catalog, repository)
        finally:
            catalog.close()

    @property
    def memory(self) -> str:
        """Label of the published memory."""
        return self._name.label

    def repositories(self) -> list[str]:
        """Names of all repositories of which the local memory has sessions, a few of the most frequent first."""
        catalog = Catalog(self._home.memory, writable=False)
        try:
            counts = Counter(name for _, info in catalog.standing_infos() for name in (info.repo or "").split())
        finally:
            catalog.close()
        return [harmless(name) for name, _ in counts.most_common(SUGGESTED)]

    def sessions(self) -> list[Reviewable]:
        """All sessions: those that wait first, each group latest first."""
        found = [Reviewable(session, standing(session, self._decisions)) for session in self._sessions]
        return sorted(found, key=lambda item: not item.standing.pending)

    def session(self, prefix: str) -> Session:
        """The session with this id, or whose id alone starts so.

        Raises:
            BadRequestError: The prefix is empty, or a subagent's.
            NotFoundError, AmbiguousSessionError: No session, or several.
        """
        prefix = prefix.strip()
        if not prefix:
            raise BadRequestError("A session's id is empty.", f"`funes curate {self.memory} --list` lists them.")
        known = {session.session: session for session in self._sessions}
        if not any(name.startswith(prefix) for name in known):
            for session in self._sessions:
                if any(part.session.startswith(prefix) for part in session.parts[1:]):
                    raise BadRequestError(
                        f"{prefix!r} is a subagent's session: it goes with session {session.session}, "
                        "which started it.",
                        "Decide on that one. Nothing was changed.",
                    )
        hint = f"`funes curate {self.memory} {self.repository} --list` lists them."
        return known[the_session(prefix, known, of=self.repository, hint=hint, kept="Nothing was changed.")]

    def decide(self, choices: Mapping[str, Choice | None], note: str = "") -> Counter[str]:
        """Write decisions down, each for its session as it is in this review; also when there are none.

        Args:
            choices: By full id; None takes a decision back.
            note: The person's, kept beside each; "" leaves those that are there.

        Returns:
            How many sessions were included, excluded or put back (`include`, `exclude`, `reset`).

        Raises:
            FunesError: They could not be written; nothing was changed.
        """
        when = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        by_id = {session.session: session for session in self._sessions}
        heads = self.heads([by_id[name] for name in choices])
        entries: dict[str, Entry] = {}
        done: Counter[str] = Counter()
        for name, choice in choices.items():
            session = by_id[name]
            done[choice or "reset"] += 1
            known = {part.session for part in session.parts if part.session in self._decisions.entries}
            for part, entry in entries_for(session, choice, when).items():
                if choice is not None or part in known:
                    own = part == name
                    title = entry.title or (heads.get(name, "") if own else "")
                    entries[part] = replace(entry, title=title, note=title_of(note) if own else "")
        kept = files.save(self._home, self._name, self.repository, entries)
        self._decisions, self.path, self.fresh = kept.decisions, kept.path, False
        return done

    def heads(self, sessions: Sequence[Session]) -> dict[str, str]:
        """What to call each session: its title, else the first thing that the person typed in it."""
        heads = {session.session: session.title for session in sessions if session.title}
        untitled = {s.session: s.parts[0] for s in sessions if not s.title and s.parts[0].typed}
        if untitled:
            keys = {}
            for name, part in untitled.items():
                keys[name] = int(chunk_id(part.session, part.typed[0], 0, 0), 16)
            reader = self._open_reader()
            rows = {row.key: row for row in reader.rows(list(keys.values()))}
            for name, key in keys.items():
                if key in rows:
                    heads[name] = rows[key].text
                else:  # its first block is an image, say
                    shown = self.preview(next(s for s in sessions if s.session == name), most=1)
                    heads[name] = shown[0].prompt if shown else ""
        return {name: title_of(head) for name, head in heads.items()}

    def preview(self, session: Session, most: int | None = None) -> list[Exchange]:
        """What the person typed in a session, and the beginning of each answer. Word for word: not harmless.

        Args:
            most: At most this many.
        """
        part = session.parts[0]
        typed = set(part.typed)
        how = standing(session, self._decisions)
        looked_at = how.ships.get(part.session, frozenset()) if how.state == "grown" else frozenset(typed)
        catalog = Catalog(self._home.memory, writable=False)
        try:
            stored = {item.message.turn: item for item in catalog.stored_in([part.no]).get(part.no, [])}
        finally:
            catalog.close()
        asked: list[tuple[str, list[str]]] = []
        answers: dict[str, list[str]] = {}
        for turn in part.turns:
            item = stored.get(turn.turn)
            if item is None:
                continue
            ids = [chunk_id(part.session, turn.turn, block, piece) for block, piece in item.message.pieces()]
            if turn.turn in typed:
                if most is not None and len(asked) == most:
                    break
                asked.append((turn.turn, ids))
            elif asked and item.role == "assistant" and "text" in item.kinds.split():
                answers.setdefault(asked[-1][0], ids)
        wanted = [name for _, ids in asked for name in ids] + [name for ids in answers.values() for name in ids]
        rows = {row.id: row for row in self._open_reader().rows([int(name, 16) for name in wanted])}

        def words(ids: Sequence[str]) -> str:
            blocks: dict[int, list[str]] = {}
            for name in ids:
                row = rows.get(name)
                if row is not None and row.block_type == "text":
                    blocks.setdefault(row.block_idx, []).append(row.text)
            return "\n".join(stitch(pieces) for pieces in blocks.values())

        return [
            Exchange(stored[turn].message.ts, words(ids), words(answers.get(turn, ())), turn not in looked_at)
            for turn, ids in asked
        ]


def open_desk(
    home: FunesHome, memory: str, repository: str | None, here: Path, reader: Callable[[], MemoryReader]
) -> Desk:
    """Get ready to review.

    Args:
        memory: Label of the published memory.
        repository: `owner/name`; None for that in the file, else that of the checkout in which `here` lies.
        reader: Opens the local memory, when passages have to be shown.

    Raises:
        BadRequestError: The memory is not on the Hub, or no single repository is meant.
        NoMemoryError: There is no local memory.
        FunesError: The file of decisions cannot be understood.
    """
    name = label.parse(memory)
    if not isinstance(name, HubName):
        raise BadRequestError(
            f"{memory or label.LOCAL} is not published, so there is nothing to curate.",
            "Name a dataset on the Hub: funes curate OWNER/DATASET OWNER/REPOSITORY",
        )
    if repository is not None and not is_repository(repository):
        raise BadRequestError(f"{repository!r} names no repository.", "Give it as owner/name.")
    kept = files.load(home, name)
    if kept is None:
        repository = repository or _of_checkout(here, name)
    elif repository is None or same(repository, kept.decisions.repository):
        repository = kept.decisions.repository
    else:
        raise BadRequestError(
            f"{name.label} gets sessions of {kept.decisions.repository}, not of {repository}; nothing was changed.",
            f"A memory has one repository. To change it, edit {kept.path}.",
        )
    if not (home.memory / FILE).exists():
        raise NoMemoryError
    return Desk(home, name, repository, reader)


def _of_checkout(here: Path, name: HubName) -> str:
    from funes_mcp.traces.checkout import Checkouts

    found = (Checkouts().repo_at(str(here)) or "").split()
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequestError(
            f"This checkout has remotes of several repositories: {', '.join(found)}.",
            f"Name one: funes curate {name.label} {found[0]}",
        )
    raise BadRequestError(
        f"It is not said yet of which repository {name.label} gets sessions, and this folder is no checkout of one.",
        f"Name it: funes curate {name.label} OWNER/NAME",
    )
