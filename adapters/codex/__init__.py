"""Codex: its sessions on disk: rollout files, plain or compressed, current or archived."""

from __future__ import annotations

from typing import Final

from funes_mcp.traces.adapter import TraceAdapter
from funes_mcp.traces.lazy import LazyAdapter

ADAPTER: Final[TraceAdapter] = LazyAdapter("codex", "codex", "funes_adapters.codex.sessions")
