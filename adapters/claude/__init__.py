"""Claude Code: its sessions on disk: transcripts, those of subagents, and prompts of sessions that are gone."""

from __future__ import annotations

from typing import Final

from funes_mcp.traces.adapter import TraceAdapter
from funes_mcp.traces.lazy import LazyAdapter

ADAPTER: Final[TraceAdapter] = LazyAdapter("claude", "claude_code", "funes_adapters.claude.sessions")
