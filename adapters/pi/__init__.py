"""pi: its sessions on disk: trees of entries, a file each."""

from __future__ import annotations

from typing import Final

from funes_mcp.traces.adapter import TraceAdapter
from funes_mcp.traces.lazy import LazyAdapter

ADAPTER: Final[TraceAdapter] = LazyAdapter("pi", "pi", "funes_adapters.pi.sessions")
