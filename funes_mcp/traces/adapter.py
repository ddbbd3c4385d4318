"""What an agent's adapter must offer to have its sessions read. Wiring an agent is `wiring.py`'s business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from funes_mcp.traces.model import Cursor, Event, Root, Source, Tally


class SourceReader(Protocol):
    """Reads one source from a cursor on. Iterate it once, to the end; then ask for the rest.

    A reader never raises for what is in the file: broken input costs that record and is counted. It raises
    `OSError` when the source itself cannot be read.

    A `SessionInfo` comes before the first `Turn` of its session; later ones replace it.
    """

    tally: Tally

    #: True when this reading starts at the beginning (no cursor, or the file was rewritten, or the source
    #: is always read whole): its turns replace all that the source gave before.
    whole: bool

    def __iter__(self) -> Iterator[Event]: ...

    def cursor(self) -> Cursor:
        """Where the next reading starts. Valid after the iteration has ended."""
        ...


class TraceAdapter(Protocol):
    """One agent's sessions on disk.

    Attributes:
        name: What is typed on the command line (`claude`).
        harness: What is stored (`claude_code`).
    """

    name: str
    harness: str

    def roots(self, environ: Mapping[str, str], home: Path) -> list[Root]:
        """The places to look, honouring the agent's environment variables (blank means unset)."""
        ...

    def sources(self, root: Root, tally: Tally) -> Iterator[Source]:
        """Everything under a root that may be a transcript; only `stat`s. What is passed over is counted."""
        ...

    def claims(self, path: Path, head: bytes) -> bool:
        """Whether a file that starts with `head` (up to 64 KiB, not empty) is a transcript of this agent."""
        ...

    def source_at(self, path: Path) -> Source | None:
        """The source that a single file is, outside the agent's own folders; None if it is not one."""
        ...

    def read(self, source: Source, cursor: Cursor | None) -> SourceReader:
        """A reader of one source, going on from `cursor` when it still fits. Raises `OSError`."""
        ...
