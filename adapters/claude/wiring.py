"""Claude Code: an MCP server in `.claude.json`, hooks through a plugin that is read in place.

The plugin lives in a folder of ours. Two keys of `settings.json` make Claude load it: the folder as a marketplace, and
the plugin as enabled. Claude needs no command for that, and finds it at its next start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from funes_mcp.wiring.document import has, look
from funes_mcp.wiring.files import ConfigText, Edit, read_config
from funes_mcp.wiring.jsontext import JsonFormat
from funes_mcp.wiring.model import Before, Consent, Order, Place, Wired
from funes_mcp.wiring.program import Program, memory_of_hook, memory_of_server
from funes_mcp.wiring.servers import drop_server, put_server

PLUGIN = "funes"
MARKETPLACE = "funes-mcp"
SERVER = "funes"

#: SessionStart catches up; the others end a turn (StopFailure fires instead of Stop after an API error), a
#: subagent or the session.
EVENTS = ("SessionStart", "Stop", "StopFailure", "SubagentStop", "SessionEnd")

#: Our tools only read, so they may be allowed for good. In `-p` runs a tool that is not allowed is refused.
TOOLS = ("mcp__funes__recall", "mcp__funes__get", "mcp__funes__status")

ALLOW = "allow-tools"
_JSON = JsonFormat()
_PLUGIN_KEY = f"{PLUGIN}@{MARKETPLACE}"


class ClaudeWiring:
    """See `AgentWiring`."""

    name = "claude"
    title = "Claude Code"
    command = "claude"
    install_hint = "npm install -g @anthropic-ai/claude-code"
    asks_version = False

    def root(self, environ: Mapping[str, str], home: Path) -> Path:
        """`CLAUDE_CONFIG_DIR`, else `~/.claude`."""
        named = environ.get("CLAUDE_CONFIG_DIR", "").strip()
        return Path(named).expanduser().absolute() if named else home / ".claude"

    def consents(self, place: Place) -> Sequence[Consent]:
        """Whether our read-only tools may be called without asking each time."""
        return (
            Consent(
                ALLOW,
                "Let Claude Code call funes's tools (they only read) without asking each time?",
                default=True,
                covered_by_yes=True,
                declined="Claude Code will ask before it calls a tool of funes; `claude -p` needs "
                "`--allowedTools mcp__funes__recall`.",
            ),
        )

    def add(self, place: Place, order: Order) -> Sequence[Edit]:
        """Server, plugin, and the permission when it was given."""
        state = ConfigText.load(self._state_file(place), _JSON)
        put_server(
            state,
            ["mcpServers", SERVER],
            {
                "type": "stdio",
                "command": order.program.server[0],
                "args": order.program.server[1:],
                "env": order.program.environment,
            },
        )
        settings = ConfigText.load(place.root / "settings.json", _JSON)
        settings.put(
            ["extraKnownMarketplaces", MARKETPLACE],
            {"source": {"source": "directory", "path": str(place.kit)}},
        )
        settings.put(["enabledPlugins", _PLUGIN_KEY], True)
        if ALLOW in order.consents:
            allowed = look(settings.value, ["permissions", "allow"])
            for tool in TOOLS:
                if not isinstance(allowed, list) or not {tool, "mcp__funes"} & {str(rule) for rule in allowed}:
                    settings.append(["permissions", "allow"], tool)
        return [*self._kit(place, order.program), settings.edit(), state.edit()]

    def remove(self, place: Place, before: Before) -> Sequence[Edit]:
        """Both files back, the plugin's folder gone, and what Claude itself noted about the plugin."""
        edits: list[Edit] = []
        state = ConfigText.load(self._state_file(place), _JSON)
        drop_server(state, ["mcpServers", SERVER], before)
        edits.append(state.edit())

        settings = ConfigText.load(place.root / "settings.json", _JSON)
        old = _old(settings.path, before)
        for keys in (["extraKnownMarketplaces", MARKETPLACE], ["enabledPlugins", _PLUGIN_KEY]):
            if not has(old, keys):
                settings.drop(keys, old)
        kept = look(old, ["permissions", "allow"]) or []
        allowed = look(settings.value, ["permissions", "allow"])
        for index in reversed(range(len(allowed) if isinstance(allowed, list) else 0)):
            if allowed[index] in TOOLS and allowed[index] not in kept:
                settings.drop(["permissions", "allow", index], old)
        edits.append(settings.edit())

        for name, keys in (
            ("known_marketplaces.json", [MARKETPLACE]),
            ("installed_plugins.json", ["plugins", _PLUGIN_KEY]),
        ):
            notes = ConfigText.load(place.root / "plugins" / name, _JSON)
            if has(notes.value, keys):
                notes.drop(keys, {"plugins": {}})
                edits.append(notes.edit())
        edits += [Edit(path, read_config(path), None, shared=False) for path in self._kit_files(place)]
        return edits

    def state(self, place: Place) -> Wired:
        """Whether server and plugin are there."""
        server = look(ConfigText.load(self._state_file(place), _JSON).value, ["mcpServers", SERVER])
        settings = ConfigText.load(place.root / "settings.json", _JSON).value
        enabled = look(settings, ["enabledPlugins", _PLUGIN_KEY]) is True
        path = look(settings, ["extraKnownMarketplaces", MARKETPLACE, "source", "path"])
        notes = []
        hooked = enabled and isinstance(path, str)
        if hooked and not (Path(str(path)) / PLUGIN / "hooks" / "hooks.json").is_file():
            hooked = False
            notes.append(f"the plugin's folder {path} is gone; run `funes add claude` again")
        if look(settings, ["disableAllHooks"]) is True:
            notes.append("`disableAllHooks` is set in Claude's settings: no hook runs")
        publishes = ""
        if hooked:
            kit = ConfigText.load(Path(str(path)) / PLUGIN / "hooks" / "hooks.json", _JSON).value
            publishes = memory_of_hook(look(kit, ["hooks", "SessionEnd", 0, "hooks", 0, "command"]))
        memory = memory_of_server(look(server, ["args"]))
        return Wired(server is not None, EVENTS if hooked else (), tuple(notes), memory, publishes)

    def advice(self, place: Place, order: Order) -> Sequence[str]:
        """When it takes effect, and what else of that name is there."""
        notes = ["Sessions of Claude Code that are open now see funes after a restart."]
        plugins = look(ConfigText.load(place.root / "settings.json", _JSON).value, ["enabledPlugins"])
        for other in plugins if isinstance(plugins, dict) else ():
            if other.startswith(f"{PLUGIN}@") and other != _PLUGIN_KEY and plugins[other]:
                notes.append(f"Another plugin `{other}` is on; `claude plugin uninstall {other}` takes it out.")
        return notes

    @staticmethod
    def _state_file(place: Place) -> Path:
        if place.environ.get("CLAUDE_CONFIG_DIR", "").strip():
            return place.root / ".claude.json"
        return place.home / ".claude.json"

    def _kit_files(self, place: Place) -> list[Path]:
        return [
            place.kit / ".claude-plugin" / "marketplace.json",
            place.kit / PLUGIN / ".claude-plugin" / "plugin.json",
            place.kit / PLUGIN / "hooks" / "hooks.json",
        ]

    def _kit(self, place: Place, program: Program) -> list[Edit]:
        hooks: dict[str, Any] = {
            event: [{"hooks": [{"type": "command", "command": program.hook_line(self.name, event), "timeout": 10}]}]
            for event in EVENTS
        }
        data = files("funes_adapters.claude") / "data"
        contents = [
            (data / "marketplace.json").read_bytes(),
            (data / "plugin.json").read_bytes(),
            json.dumps({"hooks": hooks}, indent=2, ensure_ascii=False).encode() + b"\n",
        ]
        return [
            Edit(path, read_config(path), content, shared=False)
            for path, content in zip(self._kit_files(place), contents, strict=True)
        ]


def _old(path: Path, before: Before) -> Any:
    """What a file held before funes came, as values; empty when not known."""
    raw = before.get(path)
    return ConfigText(path, _JSON, raw).value if raw is not None else {}


WIRING = ClaudeWiring()
