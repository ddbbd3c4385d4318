"""What a mirror holds, as `state.json` tells it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from funes_mcp.hub.datasets import RepoFile
    from funes_mcp.memory.foreign_index import Indexed

FILE: Final = "state.json"

#: Raised whenever the file, or what is refused of a row, changes: mirrors of another version are made again.
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Account:
    """What the indexes hold.

    Attributes:
        commit: They say what the memory said there.
        at: When that was fetched, RFC 3339 UTC.
        stamps: The files of the table that they were made of; see `State.stamps`.
        rows: Rows that are indexed.
        refused: `(why, how many)` of those that are not.
        lacking: Columns that the table has not.
    """

    commit: str
    at: str
    stamps: tuple[str, ...]
    rows: int
    refused: tuple[tuple[str, int], ...]
    lacking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """What is here of a published memory.

    Attributes:
        commit: The commit that `table/` shows.
        private: Whether the repository is.
        fetched_at: When it was fetched, RFC 3339 UTC.
        files: Everything under `chunks.lance` at that commit.
        parts: The files of the table's newest version, as paths within its folder, the manifest last; none when the
            repository has no table.
        rows: How many rows that version has.
        with_indexes: Whether the files of Lance's own indexes are here, too.
        indexed: What the indexes hold; None when there are none.
    """

    commit: str
    private: bool
    fetched_at: str
    files: tuple[RepoFile, ...]
    parts: tuple[str, ...] = ()
    rows: int = 0
    with_indexes: bool = False
    indexed: Account | None = None

    @property
    def is_indexed(self) -> bool:
        """Whether the indexes say what the table says."""
        return self.indexed is not None and self.indexed.commit == self.commit

    @property
    def stamps(self) -> tuple[str, ...]:
        """The parts, each with what tells its content from any other: `data/x.lance@<oid>`."""
        oids = {file.path.partition("/")[2]: file.oid for file in self.files}
        return tuple(f"{part}@{oids.get(part, '')}" for part in self.parts)

    def account(self, result: Indexed) -> Account:
        """What the indexes hold, after the table was indexed."""
        return Account(self.commit, self.fetched_at, self.stamps, result.rows, result.refused, result.lacking)

    def as_json(self) -> bytes:
        """What `load` reads."""
        data: dict[str, Any] = {
            "version": VERSION,
            "commit": self.commit,
            "private": self.private,
            "fetched_at": self.fetched_at,
            "files": [[file.path, file.size, file.oid] for file in self.files],
            "parts": self.parts,
            "rows": self.rows,
            "with_indexes": self.with_indexes,
        }
        if self.indexed is not None:
            data["indexed"] = {
                "commit": self.indexed.commit,
                "at": self.indexed.at,
                "stamps": self.indexed.stamps,
                "rows": self.indexed.rows,
                "refused": self.indexed.refused,
                "lacking": self.indexed.lacking,
            }
        return json.dumps(data).encode()


def load(folder: Path) -> State | None:
    """The state of the mirror in a folder; None when there is none that can be read."""
    try:
        data = json.loads((folder / FILE).read_bytes())
        if data["version"] != VERSION:
            return None
        from funes_mcp.hub.datasets import RepoFile

        held = data.get("indexed")
        return State(
            str(data["commit"]),
            bool(data["private"]),
            str(data["fetched_at"]),
            tuple(RepoFile(str(path), int(size), str(oid)) for path, size, oid in data["files"]),
            tuple(map(str, data["parts"])),
            int(data["rows"]),
            bool(data["with_indexes"]),
            None if held is None else _account(held),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _account(held: dict[str, Any]) -> Account:
    refused = tuple((str(why), int(count)) for why, count in held["refused"])
    lacking = tuple(map(str, held["lacking"]))
    stamps = tuple(map(str, held["stamps"]))
    return Account(str(held["commit"]), str(held["at"]), stamps, int(held["rows"]), refused, lacking)
