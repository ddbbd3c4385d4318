"""Hermes: server and hooks in `config.yaml`, the hooks' approval in `shell-hooks-allowlist.json`.

Hermes runs a shell hook only when event and command stand in the allowlist. It splits the command without a shell and
gives servers a filtered environment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from funes_mcp.wiring.document import look
from funes_mcp.wiring.files import ConfigText, Edit
from funes_mcp.wiring.jsontext import JsonFormat
from funes_mcp.wiring.model import Before, Consent, Order, Place, Wired
from funes_mcp.wiring.program import is_our_hook, memory_of_hook, memory_of_server
from funes_mcp.wiring.servers import drop_server, put_server
from funes_mcp.wiring.yamltext import YamlFormat

SERVER = "funes"

#: `post_llm_call` ends a turn, `on_session_finalize` the session. `on_session_start` fires for new sessions only.
EVENTS = ("on_session_start", "post_llm_call", "subagent_stop", "on_session_finalize")
TIMEOUT_S = 10

_JSON = JsonFormat()
_YAML = YamlFormat()


class HermesWiring:
    """See `AgentWiring`."""

    name = "hermes"
    title = "Hermes"
    command = "hermes"
    install_hint = "pip install 'hermes-agent[mcp]'"
    asks_version = False

    def root(self, environ: Mapping[str, str], home: Path) -> Path:
        """`HERMES_HOME`, else `~/.hermes`."""
        named = environ.get("HERMES_HOME", "").strip()
        return Path(named).expanduser().absolute() if named else home / ".hermes"

    def consents(self, place: Place) -> Sequence[Consent]:
        """None: the allowlist entries are for exactly the commands that the user asked for."""
        return ()

    def add(self, place: Place, order: Order) -> Sequence[Edit]:
        """Server, hooks and their approval."""
        config = ConfigText.load(place.root / "config.yaml", _YAML)
        allowlist = ConfigText.load(place.root / "shell-hooks-allowlist.json", _JSON)
        put_server(
            config,
            ["mcp_servers", SERVER],
            {
                "command": order.program.server[0],
                "args": order.program.server[1:],
                "env": {**order.program.forwarded, **order.program.environment},
                "enabled": True,
            },
        )
        for event in EVENTS:
            line = order.program.hook_line(self.name, event)
            known = _ours(look(config.value, ["hooks", event]), self.name)
            if not known:
                config.append(["hooks", event], {"command": line, "timeout": TIMEOUT_S})
            elif look(config.value, ["hooks", event, known[0], "command"]) != line:
                config.put(["hooks", event, known[0], "command"], line)
        approvals = look(allowlist.value, ["approvals"])
        wanted = {event: order.program.hook_line(self.name, event) for event in EVENTS}
        for index in reversed(_ours(approvals, self.name)):
            item = look(approvals, [index])
            if wanted.get(str(item.get("event"))) != item.get("command"):
                allowlist.drop(["approvals", index], {"approvals": []})
        for event, line in wanted.items():
            approvals = look(allowlist.value, ["approvals"]) or []
            if not any(look(item, ["event"]) == event and look(item, ["command"]) == line for item in approvals):
                allowlist.append(["approvals"], {"event": event, "command": line})
        return (allowlist.edit(), config.edit())

    def remove(self, place: Place, before: Before) -> Sequence[Edit]:
        """All of it out again."""
        config = ConfigText.load(place.root / "config.yaml", _YAML)
        allowlist = ConfigText.load(place.root / "shell-hooks-allowlist.json", _JSON)
        old = _old(config, before)
        drop_server(config, ["mcp_servers", SERVER], before)
        hooks = look(config.value, ["hooks"])
        for event in list(hooks) if isinstance(hooks, dict) else ():
            for index in reversed(_ours(look(config.value, ["hooks", event]), self.name)):
                config.drop(["hooks", event, index], old)
        for index in reversed(_ours(look(allowlist.value, ["approvals"]), self.name)):
            allowlist.drop(["approvals", index], _old(allowlist, before))
        return (config.edit(), allowlist.edit())

    def state(self, place: Place) -> Wired:
        """Whether server and hooks are there, and whether Hermes will run them."""
        config = ConfigText.load(place.root / "config.yaml", _YAML)
        allowlist = ConfigText.load(place.root / "shell-hooks-allowlist.json", _JSON)
        hooks = look(config.value, ["hooks"])
        approved = {(look(i, ["event"]), look(i, ["command"])) for i in look(allowlist.value, ["approvals"]) or []}
        found = []
        notes = []
        publishes = ""
        for event in hooks if isinstance(hooks, dict) else ():
            for index in _ours(hooks[event], self.name):
                found.append(str(event))
                publishes = publishes or memory_of_hook(hooks[event][index]["command"])
                if (event, hooks[event][index]["command"]) not in approved:
                    notes.append(f"Hermes's hook {event} is not in its allowlist; run `funes add hermes` again")
        server = look(config.value, ["mcp_servers", SERVER])
        if look(server, ["enabled"]) is False:
            notes.append("the server `funes` is switched off in Hermes's config.yaml")
        return Wired(
            server is not None, tuple(found), tuple(notes), memory_of_server(look(server, ["args"])), publishes
        )

    def advice(self, place: Place, order: Order) -> Sequence[str]:
        """Nothing."""
        return ()


def _ours(items: Any, agent: str) -> list[int]:
    """Positions of our hooks in a list of them."""
    if not isinstance(items, list):
        return []
    return [index for index, item in enumerate(items) if is_our_hook(look(item, ["command"]), agent)]


def _old(config: ConfigText, before: Before) -> Any:
    raw = before.get(config.path)
    return ConfigText(config.path, config.fmt, raw).value if raw is not None else {}


WIRING = HermesWiring()
