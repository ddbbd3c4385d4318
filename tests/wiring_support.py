"""A user's home with agents that were run, for the tests of the wiring."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from funes_mcp.home import FunesHome
from funes_mcp.wiring.flow import Outcome, Wirer, find_wiring
from funes_mcp.wiring.program import Program

AGENTS = ("claude", "codex", "pi", "hermes")
ROOTS = {"claude": ".claude", "codex": ".codex", "pi": ".pi/agent", "hermes": ".hermes"}
VARIABLES = {
    "claude": "CLAUDE_CONFIG_DIR",
    "codex": "CODEX_HOME",
    "pi": "PI_CODING_AGENT_DIR",
    "hermes": "HERMES_HOME",
}


@dataclass
class Desk:
    """A home folder, the agents' programs on PATH, and the wirer."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ("/opt/fu nes/bin/funes",)

    def __post_init__(self) -> None:
        programs = self.home / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        self.environ = {"HOME": str(self.home), "PATH": f"{programs}{os.pathsep}/usr/bin:/bin", **self.environ}

    def install(self, agent: str, version: str = "1.6.0") -> None:
        script = self.home / "bin" / agent
        script.write_text(f"#!/bin/sh\necho {version}\n")
        script.chmod(0o755)

    def root(self, agent: str) -> Path:
        named = self.environ.get(VARIABLES[agent])
        root = Path(named) if named else self.home / ROOTS[agent]
        root.mkdir(parents=True, exist_ok=True)
        return root

    @property
    def funes_home(self) -> FunesHome:
        return FunesHome.from_environ(self.environ)

    @property
    def wirer(self) -> Wirer:
        return Wirer(self.funes_home, self.environ, self.home)

    def add(self, agent: str, consents: Iterable[str] = ("allow-tools", "trust-hooks"), memory: str = "") -> Outcome:
        wiring = find_wiring(agent)
        program = Program(self.argv, home=self.environ.get("FUNES_HOME", ""), memory=memory)
        return self.wirer.add(wiring, program, set(consents), self.wirer.presence(wiring))

    def remove(self, agent: str) -> Outcome:
        return self.wirer.remove(find_wiring(agent))

    def snapshot(self) -> dict[str, bytes]:
        """Every file of the user's; ours are left out."""
        ours = self.funes_home.root
        return {
            str(path.relative_to(self.home)): path.read_bytes()
            for path in sorted(self.home.rglob("*"))
            if path.is_file() and not path.is_relative_to(ours) and path.parent.name != "bin"
        }
