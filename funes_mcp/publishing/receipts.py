"""What this machine knows of the memories that it publishes to, so that `status` need not ask anybody.

Beside each mirror lie two small files: `receipt.json`, and `sent.json` with a mark for each session, which changes with
whatever is stored of the session (see `Catalog.session_marks`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from funes_mcp.home import private_folder, write_private

RECEIPT: Final = "receipt.json"
_SENT: Final = "sent.json"

#: What became of a session at the last push: all of it is there; some of it is held back; some of it waits for vectors
#: or did not fit into one push; the person has not let it out.
THERE, HELD, WAITS, LEFT_OUT = "there", "held", "waits", "left out"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A memory on the Hub that this machine publishes to.

    Attributes:
        label: As a person names it. `endpoint` is the address of its Hub.
        agreed: Whether a person said that this machine's sessions go there, also where nothing of them is there yet.
        public: Whether it was public when the person said so.
        made: Whether this machine made it.
        pushed: When the last push ended that sent or had nothing to send, RFC 3339; "" before the first.
        commit: Of that push.
        rows: Rows of ours that were there then, and `sent` how many of them the last sending push sent.
        held: Rows that were held back, by kind of credential.
        failed: When a push last failed since, and `reason` why; "" when none did.
    """

    label: str
    endpoint: str = ""
    agreed: bool = False
    public: bool = False
    made: bool = False
    pushed: str = ""
    commit: str = ""
    rows: int = 0
    sent: int = 0
    held_rows: int = 0
    held: dict[str, int] = field(default_factory=dict)
    failed: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a session at the last push, and its mark before it.

    Attributes:
        some: Whether anything of it is there.
    """

    mark: int
    state: str
    some: bool


@dataclass(frozen=True, slots=True)
class Behind:
    """How a published memory stands to the local one.

    Attributes:
        waiting: Sessions with something to send.
        held: Sessions of which something is held back, unchanged since.
        left_out: Sessions that the person has not let out, unchanged since.
    """

    waiting: int = 0
    held: int = 0
    left_out: int = 0


def load(folder: Path) -> Receipt | None:
    """The receipt in a mirror's folder; None when there is none that can be read."""
    try:
        value = json.loads((folder / RECEIPT).read_bytes())
        known = {item.name: type(getattr(_EMPTY, item.name)) for item in fields(Receipt)}
        return Receipt(**{k: v for k, v in value.items() if k in known and type(v) is known[k]})
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def save(folder: Path, receipt: Receipt) -> None:
    """Write a receipt. Raises `OSError`."""
    private_folder(folder)
    write_private(folder / RECEIPT, json.dumps(asdict(receipt), indent=1).encode())


def load_sent(folder: Path) -> dict[str, Sent]:
    """The sessions of the last push; empty when that is not known."""
    try:
        value = json.loads((folder / _SENT).read_bytes())
        return {str(name): _sent(*item) for name, item in value.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _sent(mark: int, state: str, some: int | None = None) -> Sent:
    if some is None:  # as an older version wrote it
        some = state in (THERE, HELD)
    return Sent(int(mark), str(state), bool(some))


def save_sent(folder: Path, sent: Mapping[str, Sent]) -> None:
    """Write down the sessions of a push. Raises `OSError`."""
    private_folder(folder)
    value = {name: [item.mark, item.state, int(item.some)] for name, item in sent.items()}
    write_private(folder / _SENT, json.dumps(value, separators=(",", ":")).encode())


def behind(sent: Mapping[str, Sent], marks: Mapping[str, int]) -> Behind:
    """Compare what was sent with what is stored now (`Catalog.session_marks`)."""
    waiting = held = left_out = 0
    for name, mark in marks.items():
        last = sent.get(name)
        if last is None or last.mark != mark or last.state == WAITS:
            waiting += 1
        elif last.state == HELD:
            held += 1
        elif last.state == LEFT_OUT:
            left_out += 1
    return Behind(waiting, held, left_out)


def after(marks: Mapping[str, int], states: Mapping[str, str], some: Collection[str]) -> dict[str, Sent]:
    """The sessions after a push: those that `states` does not name are there, and something of those in `some`."""
    return {name: Sent(mark, states.get(name, THERE), name in some) for name, mark in marks.items()}


def holding(remotes: Path, sessions: Collection[str]) -> Iterable[tuple[Receipt, int]]:
    """The memories with something of some sessions, as of this machine's last push there, and of how many of them."""
    for folder, receipt in all_receipts(remotes):
        sent = load_sent(folder)
        if held := sum(name in sent and sent[name].some for name in sessions):
            yield receipt, held


def failed(receipt: Receipt, reason: str) -> Receipt:
    """The receipt after a push that failed."""
    return replace(receipt, failed=now(), reason=reason.splitlines()[0][:300] if reason else "")


def now() -> str:
    """RFC 3339, UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def all_receipts(remotes: Path) -> Iterable[tuple[Path, Receipt]]:
    """Every receipt below the folder of mirrors, by folder."""
    with suppress(OSError):
        for name in sorted(os.listdir(remotes)):
            receipt = load(remotes / name)
            if receipt is not None:
                yield remotes / name, receipt


_EMPTY: Any = Receipt("")
