"""What a person wrote into `$FUNES_HOME/config.toml`. There need not be one.

    [[homes]]
    path = "/mnt/c/Users/ann"
    host = "windows"
    agents = ["claude", "codex"]    # all, unless named

Each entry is another home folder in which agents keep their sessions where they usually do: of the other side of
a machine with Windows and WSL, of another account, of a machine that was copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from funes_mcp.errors import FunesError
from funes_mcp.home import FunesHome

FILE: Final = "config.toml"


@dataclass(frozen=True, slots=True)
class OtherHome:
    """A further home folder.

    Attributes:
        host: How the person calls the machine or account.
        agents: Names of the agents to look for; empty for all.
    """

    path: Path
    host: str
    agents: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Config:
    """Everything in the file."""

    homes: tuple[OtherHome, ...] = ()


def load(home: FunesHome) -> Config:
    """The configuration; the usual one where there is no file.

    Raises:
        FunesError: The file cannot be read or understood.
    """
    path = home.root / FILE
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise FunesError(f"{path} cannot be read: {error}") from error
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        values: Mapping[str, Any] = tomlkit.parse(text).unwrap()
    except (TOMLKitError, ValueError) as error:
        raise FunesError(f"{path} is no TOML: {error}", "Correct it, or move it away.") from error
    return Config(_homes(values.get("homes", []), path))


def _homes(values: Any, path: Path) -> tuple[OtherHome, ...]:
    if not isinstance(values, list):
        raise _wrong(path)
    homes = []
    for value in values:
        folder = value.get("path") if isinstance(value, dict) else None
        agents = value.get("agents", []) if isinstance(value, dict) else None
        if not isinstance(folder, str) or not folder.strip() or not isinstance(agents, list):
            raise _wrong(path)
        place = Path(folder.strip()).expanduser()
        host = value.get("host")
        label = host.strip() if isinstance(host, str) and host.strip() else place.name
        homes.append(OtherHome(place, label, frozenset(str(agent).strip().lower() for agent in agents)))
    return tuple(homes)


def _wrong(path: Path) -> FunesError:
    return FunesError(
        f"{path}: `homes` is not a list of folders.",
        'Write each as:  [[homes]]  path = "/mnt/c/Users/ann"  host = "windows"',
    )
