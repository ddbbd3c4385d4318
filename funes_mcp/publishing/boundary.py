"""Publishing when a session begins or ends, with nobody to ask. Loads nothing heavy when there is nothing to send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from funes_mcp.errors import FunesError, NoMemoryError, PushBusyError
from funes_mcp.home import FunesHome
from funes_mcp.memory import label
from funes_mcp.memory.catalog import FILE, Catalog
from funes_mcp.models import PushReport, PushRequest
from funes_mcp.publishing import receipts

#: Seconds that all publishing behind a hook may take; then the process ends. What was sent before is not sent again.
MOST_S: Final = 900.0

#: Seconds after a failure in which it is not tried again.
PAUSE_S: Final = 60.0

#: So many passages are embedded anew at most, for a memory with another model.
MOST_EMBEDDED: Final = 2_000


def publish(home: FunesHome, memory: str, push: Callable[[PushRequest], PushReport]) -> str | None:
    """Publish what waits.

    Args:
        push: Does it; called only when there is something to send, as far as this machine knows.

    Returns:
        "" when it was done or there was nothing to do, else why it failed and what to type; None when it was not tried.
    """
    try:
        name = label.parse(memory)
        if not isinstance(name, label.HubName):
            return None
        folder = home.root / "remotes" / name.slug
        receipt = receipts.load(folder)
        if receipt is not None and receipt.failed and _seconds_since(receipt.failed) < PAUSE_S:
            return None
        if receipt is not None and receipt.pushed and not receipt.failed and not _waits(home, name, folder, receipt):
            return ""
        report = push(PushRequest(name.label, most=MOST_EMBEDDED))
    except (PushBusyError, NoMemoryError):
        return None
    except FunesError as error:
        return f"{error.message} {error.hint}".strip()
    if report.nothing_left:
        return f"all of it looks like credentials and is held back: `funes scrub`, then `funes push {memory}`"
    return ""


def _waits(home: FunesHome, name: label.HubName, folder: Path, receipt: receipts.Receipt) -> bool:
    if not (home.memory / FILE).exists():
        return False
    catalog = Catalog(home.memory, writable=False)
    try:
        behind = receipts.behind(receipts.load_sent(folder), catalog.session_marks())
    finally:
        catalog.close()
    return behind.waiting > 0 or (behind.left_out > 0 and _decided_since(home, name, receipt.pushed))


def _decided_since(home: FunesHome, name: label.HubName, when: str) -> bool:
    """Whether the person decided anew which sessions may go."""
    from funes_mcp.curation.files import path_of

    try:
        changed = path_of(home, name).stat().st_mtime
    except (OSError, FunesError):
        return False
    return datetime.now(timezone.utc).timestamp() - changed <= _seconds_since(when) + 1


def _seconds_since(when: str) -> float:
    try:
        then = datetime.fromisoformat(when.replace("Z", "+00:00"))
        return (datetime.now(timezone.utc) - then).total_seconds()
    except (ValueError, TypeError):
        return float("inf")
