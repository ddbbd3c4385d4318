"""Claude Code: its sessions on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from funes_mcp.traces.adapter import SourceReader, TraceAdapter
from funes_mcp.traces.model import Cursor, Root, Source, Tally


class ClaudeAdapter:
    """The sessions of Claude Code: transcripts, those of subagents, and prompts of sessions that are gone."""

    name = "claude"
    harness = "claude_code"

    def roots(self, environ: Mapping[str, str], home: Path) -> list[Root]:
        from funes_adapters.claude import sessions

        return sessions.roots(environ, home)

    def sources(self, root: Root, tally: Tally) -> Iterator[Source]:
        from funes_adapters.claude import sessions

        return sessions.sources(root, tally)

    def claims(self, path: Path, head: bytes) -> bool:
        from funes_adapters.claude import sessions

        return sessions.claims(path, head)

    def source_at(self, path: Path) -> Source | None:
        from funes_adapters.claude import sessions

        return sessions.source_at(path)

    def read(self, source: Source, cursor: Cursor | None) -> SourceReader:
        from funes_adapters.claude import sessions

        return sessions.reader(source, cursor)

    def deleted_after(self, root: Root) -> float | None:
        """Days after which Claude Code deletes what is under a root; None when it does not."""
        from funes_adapters.claude import sessions

        return sessions.deleted_after(root)


ADAPTER: Final[TraceAdapter] = ClaudeAdapter()
