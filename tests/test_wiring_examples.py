"""The ready configurations in `examples/agent-configs`: each parses, and the server it names starts and answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from ruamel.yaml import YAML
from wiring_support import Desk

FOLDER = Path(__file__).parent.parent / "examples" / "agent-configs"

#: Where each file keeps the server.
SERVERS: dict[str, tuple[str, ...]] = {
    "claude.json": ("mcpServers", "funes"),
    "codex-config.toml": ("mcp_servers", "funes"),
    "pi-mcp.json": ("mcpServers", "funes"),
    "hermes-config.yaml": ("mcp_servers", "funes"),
    "cursor-mcp.json": ("mcpServers", "funes"),
    "vscode-mcp.json": ("servers", "funes"),
    "zed-settings.json": ("context_servers", "funes"),
    "gemini-settings.json": ("mcpServers", "funes"),
    "opencode.json": ("mcp", "funes"),
    "opencode-v2.json": ("mcp", "servers", "funes"),
    "claude_desktop_config.json": ("mcpServers", "funes"),
}


def parse(path: Path) -> dict[str, Any]:
    text = path.read_text("utf-8")
    if path.suffix == ".toml":
        return dict(tomlkit.parse(text).unwrap())
    value: dict[str, Any] = YAML(typ="safe").load(text) if path.suffix == ".yaml" else json.loads(text)
    return value


def server(name: str) -> list[str]:
    value = parse(FOLDER / name)
    for key in SERVERS[name]:
        value = value[key]
    command = value["command"]
    return list(command) if isinstance(command, list) else [command, *value["args"]]


def commands(value: Any) -> list[str]:
    """Every hook's command in a configuration."""
    if isinstance(value, dict):
        own = [value["command"]] if isinstance(value.get("command"), str) else []
        return own + [line for item in value.values() for line in commands(item)]
    return [line for item in value for line in commands(item)] if isinstance(value, list) else []


def test_every_file_is_checked_and_listed() -> None:
    names = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    others = {"claude-settings.json", "codex-hooks.json", "hermes-shell-hooks-allowlist.json"}
    assert names == set(SERVERS) | others
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert [name for name in sorted(names) if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_the_server_that_it_names_starts(name: str, tmp_path: Path) -> None:
    argv = server(name)
    assert argv == ["funes", "mcp"]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    done = subprocess.run(
        argv,
        input=json.dumps(hello) + "\n",
        env={"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    answer = json.loads(done.stdout.splitlines()[0])
    assert answer["result"]["serverInfo"]["name"] == "funes"


def test_the_four_agents_files_are_what_add_writes(tmp_path: Path) -> None:
    desk = Desk(tmp_path, argv=("funes",))
    for agent in ("claude", "codex", "pi", "hermes"):
        desk.install(agent)
        desk.root(agent)
        desk.add(agent)
    written = {name: tmp_path / path for name, path in {
        "claude.json": ".claude.json",
        "codex-hooks.json": ".codex/hooks.json",
        "pi-mcp.json": ".pi/agent/mcp.json",
        "hermes-config.yaml": ".hermes/config.yaml",
        "hermes-shell-hooks-allowlist.json": ".hermes/shell-hooks-allowlist.json",
    }.items()}  # fmt: skip
    for name, path in written.items():
        assert parse(FOLDER / name) == parse(path), name
    codex = parse(tmp_path / ".codex/config.toml")
    del codex["hooks"]  # trust is no example
    assert parse(FOLDER / "codex-config.toml") == codex
    settings = parse(FOLDER / "claude-settings.json")
    assert settings["permissions"] == parse(tmp_path / ".claude/settings.json")["permissions"]
    [plugin] = tmp_path.glob(".funes/wiring/claude-*/kit/funes/hooks/hooks.json")
    assert settings["hooks"] == parse(plugin)["hooks"]


@pytest.mark.parametrize("name", ["claude-settings.json", "codex-hooks.json", "hermes-config.yaml"])
def test_every_hook_that_it_names_runs_in_silence(name: str, tmp_path: Path) -> None:
    lines = [line for line in commands(parse(FOLDER / name)) if " hook " in line]
    assert lines
    for line in lines:
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            input=b"{}",
            env={
                "HOME": str(tmp_path),
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin",
                "FUNES_NO_HOOKS": "1",
            },
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
