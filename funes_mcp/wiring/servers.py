"""The entry of our MCP server in an agent's list of servers."""

from __future__ import annotations

from typing import Any

from funes_mcp.wiring.document import Keys, has, look
from funes_mcp.wiring.files import ConfigText
from funes_mcp.wiring.model import Before


def put_server(config: ConfigText, keys: Keys, entry: dict[str, Any]) -> None:
    """Write our entry. Keys of it that only the user set (a time-out, a switch) stay. Raises `ConfigError`."""
    known = look(config.value, keys)
    if isinstance(known, dict) and is_ours(known):
        entry = {**{key: value for key, value in known.items() if key not in _OURS}, **entry}
        entry = {**{key: entry[key] for key in known if key in entry}, **entry}
        environment = {**_table(known.get("env")), **_table(entry.get("env"))}
        if "FUNES_HOME" not in _table(entry.get("env")):
            environment.pop("FUNES_HOME", None)
        if environment:
            entry["env"] = environment
    elif known is not None:
        config.note = (
            f"{config.path} had another MCP server named `{keys[-1]}`, which funes now stands in place of; "
            "`funes remove` puts it back."
        )
    entry = {key: value for key, value in entry.items() if not (key == "env" and not value)}
    config.put(keys, entry)


def drop_server(config: ConfigText, keys: Keys, before: Before) -> None:
    """Take our entry out; one of the same name that stood there before funes came is put back."""
    old: Any = {}
    raw = before.get(config.path)
    if raw is not None:
        old = ConfigText(config.path, config.fmt, raw).value
    if not has(config.value, keys):
        return
    if has(old, keys) and not is_ours(look(old, keys)):
        config.put(keys, look(old, keys))
    else:
        config.drop(keys, old)


#: The keys of an entry that say how the server is started.
_OURS = ("type", "command", "args", "env", "env_vars", "url")


def is_ours(entry: Any) -> bool:
    """Whether an entry starts a funes server (of whatever installation)."""
    arguments = look(entry, ["args"])
    words = [str(word) for word in arguments] if isinstance(arguments, list) else []
    command = str(look(entry, ["command"]) or "")
    named = command.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe") == "funes"
    if "-m" in words:
        return words[words.index("-m") :][:3] == ["-m", "funes_mcp", "mcp"]
    return named and words[:1] == ["mcp"]


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
