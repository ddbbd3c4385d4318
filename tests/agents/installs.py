"""The agents' programs at pinned versions, installed once into a cache folder with npm and pip."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import platformdirs

NPM = {
    "node": "node@22",  # pi 1.6 needs Node 22
    "claude": "@anthropic-ai/claude-code@2.1.332",
    "codex": "@openai/codex@0.171.0",
    "pi": "@earendil-works/pi-coding-agent@1.6.0",
    "pi-old": "@mariozechner/pi-coding-agent@0.73.1",
}
HERMES = "hermes-agent[mcp]==0.19.0"


def cache() -> Path:
    """`FUNES_AGENTS_CACHE`, else a folder in the user's cache."""
    named = os.environ.get("FUNES_AGENTS_CACHE", "").strip()
    return Path(named) if named else Path(platformdirs.user_cache_dir("funes-mcp-tests")) / "agents"


def programs(name: str) -> Path:
    """The folder with an agent's program in it; the agent is installed when it is not."""
    if name == "hermes":
        return _once("hermes", HERMES, _install_hermes) / "bin"
    folder = _once(name, NPM[name], lambda target: _install_npm(NPM[name], target))
    return folder / "node_modules" / (Path("node/bin") if name == "node" else Path(".bin"))


def _once(name: str, what: str, install: object) -> Path:
    root = cache()
    root.mkdir(parents=True, exist_ok=True)
    target = root / f"{name}-{what.rsplit('@', 1)[-1].rsplit('==', 1)[-1]}"
    done = target / ".installed"
    with (root / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes install one after the other
        if not done.exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            install(target)  # type: ignore[operator]
            done.touch()
    return target


def _install_npm(package: str, target: Path) -> None:
    if shutil.which("npm") is None:
        raise RuntimeError("npm is needed to install the agents")
    (target / "package.json").write_text('{"private": true}')
    _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", package], target)


def _install_hermes(target: Path) -> None:
    _run([sys.executable, "-m", "venv", str(target)], target)
    _run([str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", HERMES], target)


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
