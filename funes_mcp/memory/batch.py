"""What transcripts said since the last commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from funes_mcp.memory.catalog import TurnFacts
from funes_mcp.memory.rows import Content
from funes_mcp.traces.model import Cursor, SessionInfo, Source, Tally


@dataclass(frozen=True, slots=True)
class Put:
    """A turn as it was put, until the next commit."""

    message: int
    seq: int
    facts: TurnFacts
    info: SessionInfo


@dataclass(slots=True)
class Batch:
    """Everything that was put since the last commit, by path of the source."""

    sources: dict[str, Source] = field(default_factory=dict)
    puts: dict[str, dict[tuple[str, str], Put]] = field(default_factory=dict)
    infos: dict[tuple[str, str], SessionInfo] = field(default_factory=dict)
    contents: dict[int, Content] = field(default_factory=dict)
    seen: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    told: dict[str, set[str]] = field(default_factory=dict)
    finished: dict[str, tuple[Cursor, Tally]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    chunks: int = 0
    known: int = 0
    copied: int = 0

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self.puts or self.finished or self.failed or self.infos)
