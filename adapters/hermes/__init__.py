"""Hermes: its sessions on disk, out of its `state.db` and the older files beside it."""

from __future__ import annotations

from typing import Final

from funes_mcp.traces.adapter import TraceAdapter
from funes_mcp.traces.lazy import LazyAdapter

ADAPTER: Final[TraceAdapter] = LazyAdapter("hermes", "hermes", "funes_adapters.hermes.sessions")
