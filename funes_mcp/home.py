"""Where funes keeps its files, and how it makes them private."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FunesHome:
    """The paths under `$FUNES_HOME` (default `~/.funes`). Makes nothing until `ensure` is called."""

    root: Path

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> FunesHome:
        """`FUNES_HOME`, where blank means unset, else `.funes` in the user's home folder."""
        named = environ.get("FUNES_HOME", "").strip()
        if named:
            return cls(Path(named).expanduser().absolute())
        home = environ.get("HOME", "").strip()
        return cls((Path(home) if home else Path.home()).absolute() / ".funes")

    @property
    def memory(self) -> Path:
        """The local memory: `chunks.lance`, `lexical/`, `dense/`, `catalog.db` and the writer lock."""
        return self.root / "memory"

    @property
    def logs(self) -> Path:
        """Bounded logs of hooks and workers."""
        return self.root / "logs"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Everything under the home that funes alone writes into."""
        names = ("cache", "curation", "hooks", "models", "remotes", "wiring")
        return (self.memory, self.logs, *(self.root / name for name in names))

    def ensure(self) -> None:
        """Make the folders, readable by their owner only. Raises `OSError`."""
        for folder in (self.root, self.memory, self.logs):
            private_folder(folder)


def private_folder(path: Path) -> None:
    """Make a folder (and its parents) with mode 0700; one that exists keeps its mode. Raises `OSError`."""
    if not path.parent.exists():
        private_folder(path.parent)  # `parents=True` would make them with the mode of any other folder
    path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Write a file with mode 0600 in one step: readers see the old content or the new. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
