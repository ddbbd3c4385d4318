"""pi: an MCP server in `mcp.json` where pi speaks MCP itself, and an extension for the events.

The extension is one file that pi finds by its place. On a pi without MCP (before 1.0) it brings the tools too.
"""

from __future__ import annotations

import json
import re
import shlex
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

SERVER = "funes"
EVENTS = ("session_start", "agent_settled", "session_shutdown")

_DESCRIPTION = "Memory of past coding-agent sessions on this machine, word for word"
_JSON = JsonFormat()
_MARK = "// written by `funes add pi`"


class PiWiring:
    """See `AgentWiring`."""

    name = "pi"
    title = "pi"
    command = "pi"
    install_hint = "npm install -g @earendil-works/pi-coding-agent"
    asks_version = True

    def root(self, environ: Mapping[str, str], home: Path) -> Path:
        """`PI_CODING_AGENT_DIR`, else `~/.pi/agent`."""
        named = environ.get("PI_CODING_AGENT_DIR", "").strip()
        return Path(named).expanduser().absolute() if named else home / ".pi" / "agent"

    def consents(self, place: Place) -> Sequence[Consent]:
        """None: pi asks for no permission."""
        return ()

    def add(self, place: Place, order: Order) -> Sequence[Edit]:
        """Extension, and the server where pi reads one."""
        edits = []
        config = ConfigText.load(place.root / "mcp.json", _JSON)
        native = speaks_mcp(order.presence.version) or has(config.value, ["mcpServers", SERVER])
        if native:
            put_server(
                config,
                ["mcpServers", SERVER],
                {
                    "command": order.program.server[0],
                    "args": order.program.server[1:],
                    "env": order.program.environment,
                    "exposure": "direct",
                    "description": _DESCRIPTION,
                },
            )
            edits.append(config.edit())
        path = _extension(place)
        edits.append(
            Edit(path, read_config(path), extension_source(order.program, in_file=native).encode(), shared=False)
        )
        return edits

    def remove(self, place: Place, before: Before) -> Sequence[Edit]:
        """Both out again."""
        config = ConfigText.load(place.root / "mcp.json", _JSON)
        drop_server(config, ["mcpServers", SERVER], before)
        path = _extension(place)
        raw = read_config(path)
        mine = raw is not None and _MARK.encode() in raw[:400]
        return (config.edit(), Edit(path, raw, None if mine else raw, shared=False))

    def state(self, place: Place) -> Wired:
        """Whether server and extension are there."""
        server = look(ConfigText.load(place.root / "mcp.json", _JSON).value, ["mcpServers", SERVER])
        source = read_config(_extension(place))
        hooked = source is not None
        notes = []
        if look(server, ["enabled"]) is False:
            notes.append("the server `funes` is switched off in pi's mcp.json")
        elif server is not None and look(server, ["exposure"]) != "direct":
            notes.append('pi\'s mcp.json has no `"exposure": "direct"` for `funes`: the model does not see its tools')
        arguments = look(server, ["args"]) if server is not None else _listed(source, "server")
        options = _listed(source, "options")
        return Wired(
            server is not None or hooked,
            EVENTS if hooked else (),
            tuple(notes),
            memory_of_server(arguments),
            memory_of_hook(shlex.join(options)),
        )

    def advice(self, place: Place, order: Order) -> Sequence[str]:
        """When it takes effect, and what else of that name is there."""
        notes = ["A session of pi that is open now sees funes after `/reload`."]
        packages = look(ConfigText.load(place.root / "settings.json", _JSON).value, ["packages"])
        for other in packages if isinstance(packages, list) else ():
            if isinstance(other, str) and "funes" in other:
                notes.append(f"The package {other} may bring tools of the same name; `pi remove {other}` takes it out.")
        return notes


def _listed(source: bytes | None, name: str) -> list[str]:
    """A list of words that the extension was written with."""
    match = re.search(rf"^const {name}: string\[\] = (\[.*\]);$", (source or b"").decode("utf-8", "replace"), re.M)
    try:
        value = json.loads(match[1]) if match else []
    except ValueError:
        return []
    return [str(word) for word in value]


def _extension(place: Place) -> Path:
    return place.root / "extensions" / "funes.ts"


def speaks_mcp(version: str) -> bool:
    """Whether a pi of this version reads `mcp.json`. One whose version is not known is taken for a current one."""
    match = re.match(r"(\d+)\.", version.strip())
    return match is None or int(match[1]) >= 1


def extension_source(program: Program, in_file: bool) -> str:
    """The extension with this installation's command lines in it.

    Args:
        in_file: Whether the server stands in `mcp.json`; else the extension registers it where pi speaks MCP.
    """
    template = (files("funes_adapters.pi") / "data" / "funes.ts").read_text("utf-8")
    values: dict[str, Any] = {
        "SERVER": program.server,
        "HOOK": program.argv,
        "HOOK_OPTIONS": program.hook("pi", "")[len(program.argv) + 3 :],
        "ENVIRONMENT": program.environment,
        "IN_FILE": in_file,
    }
    for name, value in values.items():
        template = template.replace(f"/*{name}*/", json.dumps(value, ensure_ascii=True))
    return template


WIRING = PiWiring()
