"""What `add` changed: enough to give the user's files back byte for byte."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from funes_mcp.home import FunesHome, private_folder, write_private
from funes_mcp.wiring.files import Edit


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """One file.

    Attributes:
        path: The file.
        existed: Whether it was there before funes came.
        copy: The name of the copy of what it held then, "" when it did not exist.
        after: SHA-256 of what `add` left, "" when that is not the end of the story.
        exact: Whether `copy` may be put back when the file still is what `add` left: false when the user changed it
            between two adds, or when something of ours was in it already.
    """

    path: Path
    existed: bool
    copy: str
    after: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """One agent's folder, wired.

    Attributes:
        agent: The agent.
        root: Its folder.
        from_environ: Whether an environment variable named that folder.
        files: What was edited.
        folders: Folders that were made, outermost first.
    """

    agent: str
    root: Path
    from_environ: bool
    files: tuple[FileReceipt, ...] = ()
    folders: tuple[Path, ...] = field(default=())


class Receipts:
    """The receipts under `$FUNES_HOME/wiring`, one folder for each agent's folder that was wired."""

    def __init__(self, home: FunesHome) -> None:
        self._folder = home.root / "wiring"

    def all(self, agent: str) -> list[Receipt]:
        """The receipts of an agent. Unreadable ones are passed over."""
        found = []
        for path in sorted(self._folder.glob(f"{agent}-*/receipt.json")):
            with suppress(OSError, ValueError, KeyError, TypeError):
                found.append(_from_json(json.loads(path.read_bytes())))
        return found

    def find(self, agent: str, root: Path) -> Receipt | None:
        """The receipt of one folder."""
        return next((receipt for receipt in self.all(agent) if receipt.root == root), None)

    def kit(self, agent: str, root: Path) -> Path:
        """The folder for files of ours that the agent reads in place."""
        return self._of(agent, root) / "kit"

    def before(self, receipt: Receipt) -> dict[Path, bytes | None]:
        """What the files held before funes came; those whose copy is gone are left out."""
        found: dict[Path, bytes | None] = {}
        for item in receipt.files:
            if not item.existed:
                found[item.path] = None
                continue
            with suppress(OSError):
                found[item.path] = (self._of(receipt.agent, receipt.root) / item.copy).read_bytes()
        return found

    def record(self, receipt: Receipt, edits: Sequence[Edit], tainted: Iterable[Path]) -> Receipt:
        """Note what is about to be written, and copy each file once. Raises `OSError`.

        Args:
            receipt: What is known so far.
            edits: All edits of this `add`, also those that change nothing.
            tainted: Files that hold something of ours although no receipt says so.
        """
        folder = self._of(receipt.agent, receipt.root)
        known = {item.path: item for item in receipt.files}
        dirty = set(tainted)
        for edit in edits:
            if not edit.shared:
                continue
            old = known.get(edit.path)
            after = _digest(edit.after)
            if old is None:
                if not edit.changes:
                    continue
                name = f"{len(known)}-{edit.path.name}"
                if edit.before is not None:
                    private_folder(folder)
                    write_private(folder / name, edit.before)
                known[edit.path] = FileReceipt(
                    edit.path,
                    edit.before is not None,
                    name if edit.before is not None else "",
                    after,
                    edit.path not in dirty,
                )
                continue
            untouched = _digest(edit.before) == old.after or (edit.before is None and not old.existed)
            known[edit.path] = replace(old, after=after, exact=old.exact and untouched)
        return replace(receipt, files=tuple(known.values()))

    def save(self, receipt: Receipt) -> None:
        """Write a receipt. Raises `OSError`."""
        folder = self._of(receipt.agent, receipt.root)
        private_folder(folder)
        write_private(folder / "receipt.json", json.dumps(_to_json(receipt), indent=1).encode())

    def drop(self, agent: str, root: Path) -> None:
        """Forget a folder: the receipt, the copies and the kit."""
        shutil.rmtree(self._of(agent, root), ignore_errors=True)
        with suppress(OSError):  # each only when nothing else is in it
            self._folder.rmdir()
            self._folder.parent.rmdir()

    def _of(self, agent: str, root: Path) -> Path:
        return self._folder / f"{agent}-{hashlib.sha256(str(root).encode('utf-8', 'surrogateescape')).hexdigest()[:12]}"


def _digest(data: bytes | None) -> str:
    return hashlib.sha256(data).hexdigest() if data is not None else ""


def restored(edit: Edit, receipt: FileReceipt | None, before: dict[Path, bytes | None]) -> Edit:
    """The edit that gives a file back as it was, where it still is what `add` left; else the edit itself.

    A file that `add` made and that would be left without content goes altogether.
    """
    if receipt is None or not edit.shared or edit.before is None or edit.path not in before:
        return edit
    if receipt.exact and _digest(edit.before) == receipt.after:
        return replace(edit, after=before[edit.path])
    if not receipt.existed and edit.after is not None and edit.after.strip() in (b"", b"{}"):
        return replace(edit, after=None)
    return edit


def _to_json(receipt: Receipt) -> dict[str, object]:
    return {
        "agent": receipt.agent,
        "root": str(receipt.root),
        "from_environ": receipt.from_environ,
        "folders": [str(folder) for folder in receipt.folders],
        "files": [
            {"path": str(f.path), "existed": f.existed, "copy": f.copy, "after": f.after, "exact": f.exact}
            for f in receipt.files
        ],
    }


def _from_json(value: dict[str, object]) -> Receipt:
    files = value["files"]
    folders = value["folders"]
    assert isinstance(files, list)
    assert isinstance(folders, list)
    return Receipt(
        agent=str(value["agent"]),
        root=Path(str(value["root"])),
        from_environ=bool(value["from_environ"]),
        files=tuple(
            FileReceipt(Path(f["path"]), bool(f["existed"]), str(f["copy"]), str(f["after"]), bool(f["exact"]))
            for f in files
        ),
        folders=tuple(Path(str(folder)) for folder in folders),
    )
