"""The published memories that this machine has to do with, told without asking anybody."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from funes_mcp.curation import waiting
from funes_mcp.errors import FunesError
from funes_mcp.home import FunesHome
from funes_mcp.hub.address import endpoint
from funes_mcp.memory import label
from funes_mcp.models import BoundMemory, PublishedCopy
from funes_mcp.publishing import receipts


def bound_memories(
    home: FunesHome, bindings: Iterable[tuple[str, str, str]], marks: Callable[[], Mapping[str, int]]
) -> tuple[BoundMemory, ...]:
    """What is known of each memory that an agent is bound to, that this machine published to, or that is curated.

    Where nothing ever arrived, a push was perhaps only mistyped: that is no memory to tell of for ever.

    Args:
        bindings: Name of an agent, label of the memory it reads, label of the one its hooks publish to ("" for none).
        marks: Gives `Catalog.session_marks`; called at most once.
    """
    reading: dict[str, list[str]] = {}
    publishing: dict[str, list[str]] = {}
    folders: dict[str, Path] = {}
    for agent, reads, publishes in bindings:
        for text, agents in ((reads, reading), (publishes, publishing)):
            name = _hub(text)
            if name is not None:
                agents.setdefault(name.label, []).append(agent)
                folders.setdefault(name.label, home.root / "remotes" / name.slug)
    for folder, receipt in receipts.all_receipts(home.root / "remotes"):
        name = _hub(receipt.label)
        if name is not None and name.slug == folder.name and (receipt.rows or receipt.sent):
            folders.setdefault(name.label, folder)
    reviews: dict[str, int] = {}
    with suppress(FunesError):  # told by `trouble`
        known = {text.lower() for text in folders}
        for memory, _, count in waiting(home):
            reviews[memory.lower()] = count
            name = _hub(memory)
            if name is not None and memory.lower() not in known:
                folders[name.label] = home.root / "remotes" / name.slug
    if not folders:
        return ()
    now = marks()
    return tuple(
        replace(
            _bound(name, folder, tuple(reading.get(name, ())), tuple(publishing.get(name, ())), now),
            left_out=reviews.get(name.lower(), 0),
        )
        for name, folder in sorted(folders.items())
    )


def published_copies(home: FunesHome, sessions: Collection[str]) -> tuple[PublishedCopy, ...]:
    """Where something of some sessions was published by this machine, on whatever Hub."""
    found = []
    for receipt, held in receipts.holding(home.root / "remotes", sessions):
        name = _hub(receipt.label)
        if name is not None:
            page = f"{receipt.endpoint or endpoint()}/datasets/{name.repo}/settings"
            found.append(PublishedCopy(receipt.label, page, held))
    return tuple(found)


def _bound(
    name: str, folder: Path, agents: tuple[str, ...], publishing: tuple[str, ...], marks: Mapping[str, int]
) -> BoundMemory:
    receipt = receipts.load(folder) or receipts.Receipt(name)
    sent = receipts.load_sent(folder) if receipt.pushed else {}
    behind = receipts.behind(sent, marks)
    return BoundMemory(
        name,
        agents,
        publishing,
        known=bool(receipt.pushed),
        pushed=receipt.pushed,
        commit=receipt.commit,
        rows=receipt.rows,
        sessions=sum(item.some for item in sent.values()),
        waiting=behind.waiting,
        held_rows=receipt.held_rows if behind.held else 0,
        held=receipt.held if behind.held else {},
        failed=receipt.failed,
        reason=receipt.reason,
    )


def _hub(text: str) -> label.HubName | None:
    try:
        name = label.parse(text)
    except FunesError:
        return None
    return name if isinstance(name, label.HubName) else None
