"""Codex: an MCP server in `config.toml`, hooks in `hooks.json` (or in `config.toml`, where a user keeps theirs there).

Codex runs a hook only when the user trusts it, and says nothing when it does not. Trust is a hash under `hooks.state`
in `config.toml`, keyed by the hook's file, event and position.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from funes_mcp.wiring.document import look
from funes_mcp.wiring.files import ConfigText, Edit
from funes_mcp.wiring.hookgroups import add_groups, our_groups, remove_group
from funes_mcp.wiring.jsontext import JsonFormat
from funes_mcp.wiring.model import Before, Consent, Order, Place, Wired
from funes_mcp.wiring.program import FORWARDED, is_our_hook, memory_of_hook, memory_of_server
from funes_mcp.wiring.servers import drop_server, put_server
from funes_mcp.wiring.tomltext import TomlFormat

SERVER = "funes"
TRUST = "trust-hooks"

#: Seconds that Codex waits for each hook. It cuts SessionEnd to 3 and complains at every start when more is asked.
TIMEOUTS = {"SessionStart": 10, "Stop": 10, "SubagentStop": 10, "SessionEnd": 3}

#: What Codex takes for the time-out of a hook that names none.
_DEFAULT_TIMEOUT = 600

_JSON = JsonFormat()
_TOML = TomlFormat()

_REVIEW = (
    "Codex does not run the hooks until you trust them: start `codex` and choose to review the hooks, "
    "or run `funes add codex --trust-hooks`."
)


@dataclass(frozen=True, slots=True)
class _Files:
    """The two files, and which of them holds the hooks."""

    config: ConfigText
    hooks: ConfigText

    @property
    def apart(self) -> bool:
        return self.hooks is not self.config

    def edits(self) -> list[Edit]:
        return [self.hooks.edit(), self.config.edit()] if self.apart else [self.config.edit()]


class CodexWiring:
    """See `AgentWiring`."""

    name = "codex"
    title = "Codex"
    command = "codex"
    install_hint = "npm install -g @openai/codex"
    asks_version = False

    def root(self, environ: Mapping[str, str], home: Path) -> Path:
        """`CODEX_HOME`, else `~/.codex`."""
        named = environ.get("CODEX_HOME", "").strip()
        return Path(named).expanduser().absolute() if named else home / ".codex"

    def consents(self, place: Place) -> Sequence[Consent]:
        """Whether the hooks may be marked as trusted. `--yes` does not answer this."""
        return (
            Consent(
                TRUST,
                "Codex runs a hook only when you trust it. Trust funes's own four hooks now "
                "(they start `funes hook codex …` after a turn)?",
                default=False,
                covered_by_yes=False,
                flag="--trust-hooks",
                declined=_REVIEW,
            ),
        )

    def add(self, place: Place, order: Order) -> Sequence[Edit]:
        """Server and hooks; trust when it was given."""
        files = _load(place)
        entry: dict[str, Any] = {"command": order.program.server[0], "args": order.program.server[1:]}
        if order.program.home:
            entry["env"] = order.program.environment
        entry["env_vars"] = [name for name in FORWARDED if name not in order.program.environment]
        put_server(files.config, ["mcp_servers", SERVER], entry)
        handlers = {
            event: {"type": "command", "command": order.program.hook_line(self.name, event), "timeout": timeout}
            for event, timeout in TIMEOUTS.items()
        }
        if files.apart:  # ours may still stand in `config.toml`, from before the user had a `hooks.json`
            inline = _Files(files.config, files.config)
            for event, groups in our_groups(files.config.value, self.name).items():
                for group in reversed(groups):
                    self._forget_trust(place, inline, event, group, {}, {})
        places = add_groups(files.hooks, self.name, handlers)
        if TRUST in order.consents:
            for event, (group, slot) in places.items():
                key = _key(place, files.hooks.path, event, group, slot)
                digest = hook_hash(event, look(files.hooks.value, ["hooks", event, group]), slot)
                known = look(files.config.value, ["hooks", "state", key])
                if isinstance(known, dict):
                    files.config.put(["hooks", "state", key, "trusted_hash"], digest)
                else:
                    files.config.put(["hooks", "state", key], {"trusted_hash": digest})
        return files.edits()

    def remove(self, place: Place, before: Before) -> Sequence[Edit]:
        """Server, hooks and their trust. The user's hooks that move up keep theirs."""
        edits: list[Edit] = []
        for files in _all(place):
            old = {path: _old(path, files, before) for path in (files.config.path, files.hooks.path)}
            hooks_before = old[files.hooks.path]
            for event, groups in our_groups(files.hooks.value, self.name).items():
                for group in reversed(groups):
                    self._forget_trust(place, files, event, group, hooks_before, old[files.config.path])
            if not files.apart:
                drop_server(files.config, ["mcp_servers", SERVER], before)
            edits += [files.hooks.edit()] if files.apart else [files.config.edit()]
        return edits

    def _forget_trust(
        self, place: Place, files: _Files, event: str, group: int, hooks_before: Any, config_before: Any
    ) -> None:
        """Take one group out, and move the trust of what follows it to where it now is."""
        path = files.hooks.path
        groups = look(files.hooks.value, ["hooks", event])
        handlers = look(groups, [group, "hooks"])
        ours = [slot for slot, item in enumerate(handlers) if is_our_hook(look(item, ["command"]), self.name)]
        moves: list[tuple[str, str | None]] = [(_key(place, path, event, group, slot), None) for slot in ours]
        if len(ours) == len(handlers):
            for later in range(group + 1, len(groups)):
                for slot in range(len(look(groups, [later, "hooks"]) or [])):
                    moves.append((_key(place, path, event, later, slot), _key(place, path, event, later - 1, slot)))
        else:
            kept = [slot for slot in range(len(handlers)) if slot not in ours]
            for new, slot in enumerate(kept):
                if new != slot:
                    moves.append((_key(place, path, event, group, slot), _key(place, path, event, group, new)))
        remove_group(files.hooks, self.name, event, group, hooks_before)
        for source, target in moves:
            state = look(files.config.value, ["hooks", "state", source])
            if state is None:
                continue
            files.config.drop(["hooks", "state", source], config_before)
            if target is not None:
                files.config.put(["hooks", "state", target], state)

    def state(self, place: Place) -> Wired:
        """Whether server and hooks are there, and whether Codex will run them."""
        files = _load(place)
        server = look(files.config.value, ["mcp_servers", SERVER])
        groups = our_groups(files.hooks.value, self.name)
        notes = []
        if any(not self._trusted(place, files, event, positions[0]) for event, positions in groups.items()):
            notes.append(f"Codex's hooks are not trusted yet. {_REVIEW}")
        if look(server, ["enabled"]) is False:
            notes.append("the server `funes` is switched off in Codex's config.toml")
        lines = [
            look(handler, ["command"])
            for event, positions in groups.items()
            for handler in look(files.hooks.value, ["hooks", event, positions[0], "hooks"])
        ]
        publishes = next((memory_of_hook(line) for line in lines if is_our_hook(line, self.name)), "")
        return Wired(
            server is not None, tuple(groups), tuple(notes), memory_of_server(look(server, ["args"])), publishes
        )

    def advice(self, place: Place, order: Order) -> Sequence[str]:
        """Nothing beyond what the consent says."""
        return ()

    def _trusted(self, place: Place, files: _Files, event: str, group: int) -> bool:
        value = look(files.hooks.value, ["hooks", event, group])
        for slot, handler in enumerate(value["hooks"]):
            if is_our_hook(look(handler, ["command"]), self.name):
                key = _key(place, files.hooks.path, event, group, slot)
                state = look(files.config.value, ["hooks", "state", key])
                if look(state, ["trusted_hash"]) != hook_hash(event, value, slot) or look(state, ["enabled"]) is False:
                    return False
        return True


def _load(place: Place) -> _Files:
    """Both files, the hooks where they belong: Codex warns at each start when both files define hooks."""
    config = ConfigText.load(place.root / "config.toml", _TOML)
    hooks = ConfigText.load(place.root / "hooks.json", _JSON)
    inline = look(config.value, ["hooks"])
    events = [key for key in inline if key != "state"] if isinstance(inline, dict) else []
    use_config = bool(events) and not look(hooks.value, ["hooks"])
    return _Files(config, config if use_config else hooks)


def _all(place: Place) -> list[_Files]:
    """Both places that can hold our hooks; the second carries the edits of `config.toml`."""
    config = ConfigText.load(place.root / "config.toml", _TOML)
    return [_Files(config, ConfigText.load(place.root / "hooks.json", _JSON)), _Files(config, config)]


def _old(path: Path, files: _Files, before: Before) -> Any:
    raw = before.get(path)
    fmt = files.config.fmt if path == files.config.path else files.hooks.fmt
    return ConfigText(path, fmt, raw).value if raw is not None else {}


def _snake(event: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()


def _key(place: Place, path: Path, event: str, group: int, slot: int) -> str:
    """How Codex names a hook. It resolves links in `CODEX_HOME` when that is set, and not in `~/.codex`."""
    folder = Path(os.path.realpath(place.root)) if place.environ.get("CODEX_HOME", "").strip() else place.root
    return f"{folder / path.name}:{_snake(event)}:{group}:{slot}"


def hook_hash(event: str, group: Mapping[str, Any], slot: int = 0) -> str:
    """The hash by which Codex knows a trusted hook.

    SHA-256 over compact JSON with sorted keys of what the hook is, as Codex 0.171 computes it (found by comparing
    with the `currentHash` that its app server lists).
    """
    handler = group["hooks"][slot]
    timeout = max(int(handler.get("timeout") or _DEFAULT_TIMEOUT), 1)
    identity: dict[str, Any] = {
        "event_name": _snake(event),
        "hooks": [
            {
                "type": "command",
                "command": handler["command"],
                "timeout": min(timeout, 3) if event == "SessionEnd" else timeout,
                "async": bool(handler.get("async", False)),
            }
        ],
    }
    if handler.get("statusMessage") is not None:
        identity["hooks"][0]["statusMessage"] = handler["statusMessage"]
    if group.get("matcher") is not None:
        identity["matcher"] = group["matcher"]
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


WIRING = CodexWiring()
