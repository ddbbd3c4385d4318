"""Which repository a working directory is a checkout of, found out without running git.

Worktrees of one repository lie in different folders and share its remotes: those are what brings their sessions
together.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from funes_mcp.traces.text import clean, repo_of_remote

#: Bytes of a file of git's that are read; a configuration is a few hundred.
_CAP: Final = 256 * 1024
_SECTION: Final = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_VALUE: Final = re.compile(r"\s*(push)?url\s*=\s*(.*)", re.IGNORECASE)


class Checkouts:
    """Looks working directories up, each once."""

    def __init__(self) -> None:
        self._found: dict[str, str | None] = {}

    def repo_at(self, cwd: str) -> str | None:
        """`owner/name` of each remote of the checkout that `cwd` lies in, sorted, each once, space-joined.

        None when the folder is gone, is in no checkout, or has no remote that names an owner. Never raises.
        """
        if cwd not in self._found:
            try:
                self._found[cwd] = _repo_at(Path(cwd))
            except (OSError, ValueError, RuntimeError):
                self._found[cwd] = None
        return self._found[cwd]


def _repo_at(cwd: Path) -> str | None:
    if not cwd.is_absolute() or not cwd.is_dir():
        return None
    for folder in (cwd, *cwd.parents):
        git = folder / ".git"
        if git.exists():
            names = {name for url in _remotes(_common(git)) if (name := repo_of_remote(url)) and " " not in name}
            return " ".join(sorted(names)) or None
    return None


def _common(git: Path) -> Path:
    """The folder with the configuration: of a worktree or submodule `.git` is a file that leads there."""
    if git.is_dir():
        return git
    _, found, target = _read(git).partition("gitdir:")
    if not found:
        return git
    private = (git.parent / target.strip()).resolve()
    common = _read(private / "commondir").strip()
    return (private / common).resolve() if common else private


def _remotes(folder: Path) -> list[str]:
    urls: list[str] = []
    within = False
    for line in _read(folder / "config").splitlines():
        section = _SECTION.match(line)
        if section is not None:
            within = section[1].lower() == "remote" and section[2] is not None
            line = line[section.end() :]
        value = _VALUE.match(line) if within else None
        if value is not None:
            urls.append(value[2].partition(" #")[0].partition(" ;")[0].strip().strip('"'))
    return urls


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return clean(file.read(_CAP).decode("utf-8", "replace"))
    except OSError:
        return ""
