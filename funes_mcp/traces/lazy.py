"""An adapter whose modules are imported when they are first needed: listing the agents must cost nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from funes_mcp.traces.adapter import SourceReader
from funes_mcp.traces.model import Cursor, Root, Source, Tally


class Sessions(Protocol):
    """What the module `sessions` of an agent's folder offers: see `TraceAdapter`, which has `reader` as `read`."""

    def roots(self, environ: Mapping[str, str], home: Path) -> list[Root]: ...

    def sources(self, root: Root, tally: Tally) -> Iterator[Source]: ...

    def claims(self, path: Path, head: bytes) -> bool: ...

    def source_at(self, path: Path) -> Source | None: ...

    def reader(self, source: Source, cursor: Cursor | None) -> SourceReader: ...


class LazyAdapter:
    """A `TraceAdapter` over a module.

    Args:
        name: What is typed on the command line.
        harness: What is stored.
        module: The full name of a module that is a `Sessions`. It may also have `deleted_after(root)`: days after
            which the agent deletes what is under a root, None when it does not.
    """

    def __init__(self, name: str, harness: str, module: str) -> None:
        self.name = name
        self.harness = harness
        self._module = module

    @property
    def _sessions(self) -> Sessions:
        return cast(Sessions, import_module(self._module))

    def roots(self, environ: Mapping[str, str], home: Path) -> list[Root]:
        return self._sessions.roots(environ, home)

    def sources(self, root: Root, tally: Tally) -> Iterator[Source]:
        return self._sessions.sources(root, tally)

    def claims(self, path: Path, head: bytes) -> bool:
        return self._sessions.claims(path, head)

    def source_at(self, path: Path) -> Source | None:
        return self._sessions.source_at(path)

    def read(self, source: Source, cursor: Cursor | None) -> SourceReader:
        return self._sessions.reader(source, cursor)

    def deleted_after(self, root: Root) -> float | None:
        """Days after which the agent deletes what is under a root; None when it does not."""
        found = getattr(self._sessions, "deleted_after", None)
        return cast("float | None", found(root)) if found is not None else None
