"""Which repository a working directory is a checkout of, found out without running git.

Worktrees of one repository lie in different folders and share its remotes: those are what brings their sessions
together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from funes_mcp.traces.text import clean, repo_of_remote

#: Bytes of a file of git's that are read; a configuration is a few hundred.
_CAP: Final = 256 * 1024
_SECTION: Final = re.compile(r'\s*\[\s*([\w.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_VALUE: Final = re.compile(r"\s*(push)?url\s*=\s*(.*)", re.IGNORECASE)


#: Where programs put worktrees inside of the checkout that they are of. They are often gone when a session is read.
_INNER: Final = re.compile(r"(.+?)/\.(?:claude/)?worktrees/[^/]+(?:/|\Z)")


@dataclass(frozen=True, slots=True)
class _Place:
    """What a folder is.

    Attributes:
        there: Whether it exists.
        root: The checkout in which it lies, or None.
        repo: See `Checkouts.repo_at`.
    """

    there: bool = False
    root: Path | None = None
    repo: str | None = None


class Checkouts:
    """Looks working directories up, each once."""

    def __init__(self) -> None:
        self._found: dict[str, _Place] = {}

    def repo_at(self, cwd: str) -> str | None:
        """`owner/name` of each remote of the checkout that `cwd` lies in, sorted, each once, space-joined.

        None when the folder is gone, is in no checkout, or has no remote that names an owner. A worktree that is gone
        belongs to the checkout inside of which it was. Never raises.
        """
        return self._at(cwd).repo

    def elsewhere(self, cwd: str, home: str | None, repo: str | None) -> str | None:
        """The repository of a turn that was said in another folder than its session began in.

        Args:
            cwd: The turn's folder.
            home: The session's.
            repo: The session's repository, as `repo_at` gives it.

        Returns:
            None when it is the session's; else as `repo_at`, and "" when there is none or it is not known: what cannot
            be told to belong to a repository does not.
        """
        here, there = self._at(cwd), self._at(home) if home else _Place()
        if here.repo is not None or here.root is not None:
            same = here.root is not None and here.root == there.root
            return None if same or (here.repo is not None and here.repo == repo) else here.repo or ""
        if here.there and there.root is not None:
            return ""  # it left the checkout
        return None if home and _below(cwd, home) else ""

    def _at(self, cwd: str) -> _Place:
        if cwd not in self._found:
            try:
                self._found[cwd] = _place(Path(cwd))
            except (OSError, ValueError, RuntimeError):
                self._found[cwd] = _Place()
        return self._found[cwd]


def _place(cwd: Path) -> _Place:
    if not cwd.is_absolute():
        return _Place()
    if not cwd.is_dir():
        inner = _INNER.match(cwd.as_posix())
        outer = _place(Path(inner[1])) if inner is not None else _Place()
        return replace(outer, there=False)
    real = cwd.resolve()  # as git does: a link into a checkout is in it
    for folder in (real, *real.parents):
        git = folder / ".git"
        if git.exists():
            names = {name for url in _remotes(_common(git)) if (name := repo_of_remote(url)) and " " not in name}
            return _Place(True, folder, " ".join(sorted(names)) or None)
    return _Place(True)


def _below(path: str, folder: str) -> bool:
    """Whether a path, that need not exist any more, lies in a folder."""
    parts = path.replace("\\", "/").rstrip("/").split("/")
    outer = folder.replace("\\", "/").rstrip("/").split("/")
    return parts[: len(outer)] == outer and ".." not in parts


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
