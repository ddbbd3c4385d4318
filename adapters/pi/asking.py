"""pi, asked for one answer: print mode without tools, extensions, servers, skills, instruction files or a session.

`--no-extensions` takes the built-in extension for MCP servers with it, and `--no-mcp` is unknown to releases before
it: so it is not given.
"""

from __future__ import annotations

from typing import Any, Final

from funes_mcp.ask.model import Desk, Prompt, Reader, Run, Said
from funes_mcp.ask.records import record_of

_FLAGS: Final = (
    "--mode",
    "json",
    "--no-session",
    "--no-tools",
    "--no-extensions",
    "--no-skills",
    "--no-prompt-templates",
    "--no-context-files",
    "--no-themes",
)


class PiAsking:
    """See `AgentAsking`."""

    name = "pi"
    title = "pi"
    command = "pi"
    install_hint = "npm install -g @earendil-works/pi-coding-agent"
    login_hint = "Start `pi` and use /login, then ask again."

    def refusal(self, desk: Desk) -> str:
        """Nothing: pi looks for its login itself, before it reaches for a model, and says so."""
        return ""

    def run(self, desk: Desk, prompt: Prompt) -> Run:
        argv = (desk.program, "-p", *desk.extra, "--system-prompt", prompt.system, *_FLAGS)
        return Run(argv, prompt.text, {"PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"})

    def reader(self) -> Reader:
        return _Stream()


class _Stream:
    """JSON mode: parts of the text in `message_update`, the whole of it in `message_end`."""

    def __init__(self) -> None:
        self.said = Said()

    def line(self, line: str) -> str:
        record = record_of(line)
        if record.get("type") == "message_update":
            event = record.get("assistantMessageEvent")
            delta = event.get("delta") if isinstance(event, dict) and event.get("type") == "text_delta" else None
            return self._more(delta) if isinstance(delta, str) else ""
        message = record.get("message")
        if record.get("type") == "message_end" and isinstance(message, dict) and message.get("role") == "assistant":
            return self._ended(message)
        return ""

    def _more(self, text: str) -> str:
        self.said.text += text
        return text

    def _ended(self, message: dict[str, Any]) -> str:
        if message.get("stopReason") in ("error", "aborted"):  # pi's exit code is 0 all the same
            self.said.errors.append(str(message.get("errorMessage") or message["stopReason"]))
            return ""
        content = message.get("content")
        parts = [p.get("text") for p in content if isinstance(p, dict)] if isinstance(content, list) else []
        whole = "".join(part for part in parts if isinstance(part, str))
        return "" if self.said.text else self._more(whole)


ASKING: Final = PiAsking()
