"""How this installation of funes is started by other programs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from funes_mcp.hooks import NAME_OF_PROGRAM

#: What a server needs of the user's environment: where the agents keep their sessions, where the Hub's files are,
#: and how it is reached. Agents that filter the environment are told these names.
FORWARDED = (
    "FUNES_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "PI_CODING_AGENT_DIR",
    "PI_CODING_AGENT_SESSION_DIR",
    "HERMES_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "HF_TOKEN",
)


@dataclass(frozen=True, slots=True)
class Program:
    """What is written into an agent's configuration to start funes.

    Attributes:
        argv: The program and its first arguments; the program is an absolute path.
        home: `FUNES_HOME` when it was set, absolute; "" for the default.
        memory: The memory the agent is bound to; "" for the local one.
        publishes: Whether hooks publish to that memory; else the agent only reads it.
        forwarded: Those of `FORWARDED` that were set, for an agent that filters the environment and takes values
            only. Never a token: these are written to a file.
    """

    argv: tuple[str, ...]
    home: str = ""
    memory: str = ""
    forwarded: Mapping[str, str] = field(default_factory=dict)
    publishes: bool = True

    @property
    def server(self) -> list[str]:
        """The command line of the MCP server."""
        return [*self.argv, "mcp", *([self.memory] if self.memory else [])]

    @property
    def environment(self) -> dict[str, str]:
        """What the server needs in its environment."""
        return {"FUNES_HOME": self.home} if self.home else {}

    def hook(self, agent: str, event: str) -> list[str]:
        """The command line of a hook."""
        options = []
        if self.home:
            options += ["--home", self.home]
        if self.memory and self.publishes:
            options += ["--memory", self.memory]
        return [*self.argv, "hook", agent, event, *options]

    def hook_line(self, agent: str, event: str) -> str:
        """The same as one line for a shell."""
        return shlex.join(self.hook(agent, event))


def forwarded(environ: Mapping[str, str]) -> dict[str, str]:
    """The values for `Program.forwarded`."""
    found = {name: environ.get(name, "").strip() for name in FORWARDED if name not in ("FUNES_HOME", "HF_TOKEN")}
    return {name: value for name, value in found.items() if value}


def find_program(environ: Mapping[str, str], argv0: str | None = None) -> tuple[str, ...]:
    """The absolute command of this installation.

    The script that is running, when it is `funes`; else the one beside this Python; else the one on `PATH` when it
    is this installation's; else this Python with `-m funes_mcp`. Links are not followed: a tool manager's link outlives
    the folder it points to.
    """
    started = sys.argv[0] if argv0 is None else argv0
    beside = Path(sys.executable).parent
    candidates = [started, str(beside / "funes"), shutil.which("funes", path=environ.get("PATH")) or ""]
    for candidate in candidates:
        path = Path(candidate)
        if not candidate or path.stem != "funes" or (os.sep not in candidate and candidate == started):
            continue
        path = Path(os.path.abspath(path))
        if path.is_file() and os.access(path, os.X_OK) and _same_installation(path):
            return (str(path),)
    safe = ("-P",) if sys.version_info >= (3, 11) else ()  # modules in the working folder must not be found first
    return (sys.executable, *safe, "-m", "funes_mcp")


def _same_installation(path: Path) -> bool:
    """Whether a script starts this Python, by its first lines (or its place beside this Python)."""
    if Path(os.path.realpath(path)).parent == Path(sys.executable).parent:
        return True
    try:
        head = path.read_bytes()[:512].decode("utf-8", "replace")
    except OSError:
        return False
    return sys.executable in head or str(Path(sys.prefix) / "bin") in head


def is_ephemeral(argv: Sequence[str]) -> bool:
    """Whether a command lives in a cache that its tool clears (`uvx`, `pipx run`)."""
    return bool(re.search(r"[/\\](?:\.?cache[/\\](?:uv|pipx)|uv[/\\]cache|archive-v\d+)[/\\]", argv[0]))


def memory_of_hook(command: object) -> str:
    """The memory that a hook of ours publishes to; "" for none."""
    return _option(_words(command), "--memory")


def memory_of_server(arguments: object) -> str:
    """The memory that our server reads, by its arguments; "" for the local one."""
    words = [str(word) for word in arguments] if isinstance(arguments, list) else []
    after = words[words.index("mcp") + 1 :] if "mcp" in words else []
    return after[0] if after and not after[0].startswith("-") and after[0] != "local" else ""


def _option(words: Sequence[str], name: str) -> str:
    return words[words.index(name) + 1] if name in words[:-1] else ""


def _words(command: object) -> list[str]:
    try:
        return shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return []


def is_our_hook(command: object, agent: str) -> bool:
    """Whether a command line is a hook that funes wrote for an agent, from whatever installation."""
    words = _words(command)
    for start in range(len(words) - 2):
        if words[start : start + 2] == ["hook", agent]:
            program = words[:start]
            return program[-2:] == ["-m", "funes_mcp"] or (
                len(program) == 1 and Path(program[0]).stem == NAME_OF_PROGRAM
            )
    return False
