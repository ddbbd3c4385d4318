"""`funes curate`: which sessions the published memory of a project gets."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from funes_mcp import render, wording
from funes_mcp.cli import terminal
from funes_mcp.errors import BadRequestError
from funes_mcp.models import Service

if TYPE_CHECKING:
    from funes_mcp.curation.decisions import Choice
    from funes_mcp.curation.desk import Desk, Reviewable


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session in `--list --json`."""

    session: str
    state: str
    title: str
    harness: str
    began: str
    ended: str
    turns: int
    passages: int
    growth: int
    subagents: tuple[str, ...]
    elsewhere: int


@dataclass(frozen=True, slots=True)
class CurationView:
    """What `--list --json` prints.

    Attributes:
        curated: Whether decisions are kept; until then a push sends everything.
    """

    memory: str
    repository: str
    file: str
    curated: bool
    waiting: int
    sessions: tuple[SessionView, ...]


@click.command(
    "curate",
    epilog="""\b
Examples:
  funes curate ann/kiln-memory ann/kiln
  funes curate ann/kiln-memory --list
  funes curate ann/kiln-memory --include e81f7132 --exclude 019dfead
""",
)
@click.argument("memory")
@click.argument("repository", required=False)
@click.option("--include", "include", multiple=True, metavar="ID", help="Publish a session as it is now. Repeatable.")
@click.option("--exclude", "exclude", multiple=True, metavar="ID", help="Never publish a session. Repeatable.")
@click.option("--reset", "reset", multiple=True, metavar="ID", help="Take a decision back. Repeatable.")
@click.option("--note", metavar="TEXT", default="", help="Write this beside each decision, for the next reader.")
@click.option("--include-all", is_flag=True, help="Include all that wait for review and are not named.")
@click.option("--exclude-all", is_flag=True, help="Exclude all that wait for review and are not named.")
@click.option("--list", "listing", is_flag=True, help="List the sessions and how they stand; change nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --list: one JSON object instead of text.")
@click.pass_obj
def command(
    open_service: Callable[[], Service],
    memory: str,
    repository: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    reset: tuple[str, ...],
    note: str,
    include_all: bool,
    exclude_all: bool,
    listing: bool,
    as_json: bool,
) -> int:
    """Choose which sessions the published MEMORY of a project gets: reviewed ones of REPOSITORY (owner/name) only.

    Sessions belong to the repository that their folder's git remotes name. Without options the review is a screen on
    the terminal. IDs may be unique prefixes. A session that goes on after its review waits again; what was reviewed
    of it stays published. REPOSITORY may be left out once it is known, or inside a checkout of it.
    """
    named = bool(include or exclude or reset or include_all or exclude_all)
    if include_all and exclude_all:
        raise BadRequestError("--include-all and --exclude-all contradict each other.", "Give one of them.")
    if listing and named:
        raise BadRequestError("--list changes nothing.", "Decide first, then list.")
    if note and not named:
        raise BadRequestError("--note goes with decisions.", f"funes curate {memory} --exclude ID --note TEXT")
    if as_json and not listing:
        raise BadRequestError("--json goes with --list.", f"funes curate {memory} --list --json")
    desk = open_service().curation(memory, repository, Path.cwd())
    if listing:
        terminal.out(_json(desk) if as_json else _lines(desk))
        if not as_json:
            terminal.say(_summary(desk))
        return 0
    if named:
        everything: Choice | None = "include" if include_all else "exclude" if exclude_all else None
        fresh = desk.fresh
        done = desk.decide(_choices(desk, include, exclude, reset, everything), note)
        terminal.out(_decided(desk, done, fresh))
        return 0
    return _reviewed(desk, memory)


def _reviewed(desk: Desk, memory: str) -> int:
    """Review on the terminal."""
    screens = terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stdout)
    if not screens or os.environ.get("TERM", "" if os.name == "nt" else "dumb") == "dumb":
        raise BadRequestError(
            "The review needs a terminal.",
            f"For scripts: funes curate {memory} --list, then --include ID and --exclude ID, or --include-all.",
        )
    if not desk.sessions():
        terminal.say(_summary(desk))
    fresh = desk.fresh
    if fresh:
        terminal.say(
            f"So far a push sends {desk.memory} everything. From now on it would get reviewed sessions of "
            f"{desk.repository} only. What it has already stays there."
        )
        if not click.confirm("Go on?", default=True, err=True):
            terminal.say("Nothing was changed.")
            return 1
        desk.decide({})
    if not desk.sessions():
        return 0
    from funes_mcp.curation.review import review

    done = review(desk, colours=terminal.colours(sys.stdout))
    terminal.out(_decided(desk, done, fresh))
    return 0


def _choices(
    desk: Desk, include: tuple[str, ...], exclude: tuple[str, ...], reset: tuple[str, ...], everything: Choice | None
) -> dict[str, Choice | None]:
    """What is asked for, by full id; found out before anything is written."""
    choices: dict[str, Choice | None] = {}
    asked: list[tuple[str, Choice | None]] = [(name, "include") for name in include]
    asked += [(name, "exclude") for name in exclude]
    asked += [(name, None) for name in reset]
    for prefix, choice in asked:
        name = desk.session(prefix).session
        if choices.setdefault(name, choice) != choice:
            raise BadRequestError(f"Session {render.harmless(name)} is named twice, with different decisions.")
    if everything is not None:
        for item in desk.sessions():
            if item.standing.pending:
                choices.setdefault(item.session.session, everything)
    return choices


def _decided(desk: Desk, done: Counter[str], fresh: bool) -> str:
    words = [
        f"{word} {wording.count(done[key], 'session')}"
        for key, word in (("include", "included"), ("exclude", "excluded"), ("reset", "took back the decision on"))
        if done[key]
    ]
    first = f"{', '.join(words)}.".capitalize() if words else "Nothing was decided."
    lines = [first]
    if fresh:
        lines.append(f"From now on {desk.memory} gets reviewed sessions of {desk.repository} only.")
    lines += [_summary(desk), f"Decisions: {desk.path}"]
    return "\n".join(lines) + "\n"


def _summary(desk: Desk) -> str:
    """How the sessions stand, and what the next push sends."""
    items = desk.sessions()
    states = Counter(item.standing.state for item in items)
    waiting = sum(item.standing.pending for item in items)
    ready = [item for item in items if item.standing.ships]
    turns = sum(len(turns) for item in ready for turns in item.standing.ships.values())
    counts = f"{states['included']:,} included, {states['excluded']:,} excluded, {waiting:,} wait for review"
    if states["grown"] or states["changed"]:
        counts += f" ({states['grown'] + states['changed']:,} again, as they went on)"
    lines = [f"{wording.count(len(items), 'session')} of {desk.repository}: {counts}."]
    if not items:
        names = desk.repositories()
        lines.append(f"The memory has sessions of {', '.join(names)}." if names else "No session has a repository.")
    if desk.fresh:
        lines.append(f"{desk.memory} is not curated yet: a push sends it everything.")
    elif ready:
        lines.append(
            f"`funes push {desk.memory}` sends what it lacks of {wording.count(turns, 'reviewed turn')} in "
            f"{wording.count(len(ready), 'session')}."
        )
    else:
        lines.append(f"`funes push {desk.memory}` sends nothing so far.")
    return "\n".join(lines)


def _lines(desk: Desk) -> str:
    items = desk.sessions()
    heads = desk.heads([item.session for item in items])
    width = max((len(item.session.session) for item in items), default=0)
    return "".join(
        f"{item.standing.state:<8}  {_word(item.session.session):<{width}}  {_word(item.session.ended[:10]):<10}  "
        f"{_word(item.session.harness):<11}  {wording.count(item.session.turns, 'turn'):>11}"
        f"{_growth(item)}  {heads.get(item.session.session, '')}".rstrip()
        + "\n"
        for item in items
    )


def _word(text: str) -> str:
    return render.harmless("_".join(text.split()))


def _growth(item: Reviewable) -> str:
    return f" ({item.standing.growth:,} new)" if item.standing.state == "grown" else ""


def _json(desk: Desk) -> str:
    items = desk.sessions()
    heads = desk.heads([item.session for item in items])
    views = tuple(
        SessionView(
            item.session.session,
            item.standing.state,
            heads.get(item.session.session, ""),
            item.session.harness,
            item.session.began,
            item.session.ended,
            item.session.turns,
            item.session.passages,
            item.standing.growth,
            tuple(part.session for part in item.session.parts[1:]),
            item.session.elsewhere,
        )
        for item in items
    )
    waiting = sum(item.standing.pending for item in items)
    view = CurationView(desk.memory, desk.repository, str(desk.path), not desk.fresh, waiting, views)
    return render.to_json(view) + "\n"
