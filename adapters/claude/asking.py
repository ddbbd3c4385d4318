"""Claude Code, asked for one answer: print mode without tools, servers, hooks, settings of projects or a transcript.

Safe mode is switched on by its variable, which releases without it ignore; it leaves out hooks, plugins, skills and
instruction files, and keeps login and model.
"""

from __future__ import annotations

import subprocess
from typing import Any, Final

from funes_mcp.ask.environment import surroundings
from funes_mcp.ask.model import Desk, Prompt, Reader, Run, Said
from funes_mcp.ask.records import record_of

_FLAGS: Final = (
    "--tools",
    "",
    "--strict-mcp-config",
    "--no-session-persistence",
    "--settings",
    '{"disableAllHooks":true}',
    "--output-format",
    "stream-json",
    "--include-partial-messages",
    "--verbose",
)
_SAFE: Final = {"CLAUDE_CODE_SAFE_MODE": "1"}
#: What a session of Claude's tells its children; it would take itself for one of them.
_OUTER: Final = (
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_MESSAGING",
    "CLAUDE_PROJECT_DIR",
)

#: Seconds that the login may be looked up.
_STATUS_S: Final = 15.0


class ClaudeAsking:
    """See `AgentAsking`."""

    name = "claude"
    title = "Claude Code"
    command = "claude"
    install_hint = "npm install -g @anthropic-ai/claude-code"
    login_hint = "Run `claude auth login`, then ask again."

    def refusal(self, desk: Desk) -> str:
        """`claude auth status`, which knows every way of logging in. Flags of the user's may bring a login."""
        if desk.extra:
            return ""
        try:
            done = subprocess.run(
                [desk.program, "auth", "status", "--text"],
                env=surroundings(desk.environ, _SAFE, _OUTER),
                cwd=desk.scratch,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_STATUS_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        words = done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 1 else []
        return next((line.strip() for line in words if "not logged in" in line.lower()), "")

    def run(self, desk: Desk, prompt: Prompt) -> Run:
        argv = (desk.program, "-p", *desk.extra, "--system-prompt", prompt.system, *_FLAGS)
        return Run(argv, prompt.text, _SAFE, _OUTER)

    def reader(self) -> Reader:
        return _Stream()


class _Stream:
    """`stream-json`: parts of the text as events, and the whole of it in the result."""

    def __init__(self) -> None:
        self.said = Said()

    def line(self, line: str) -> str:
        record = record_of(line)
        kind = record.get("type")
        if kind == "stream_event":
            return self._event(record.get("event"))
        if kind == "result":
            return self._result(record)
        return ""

    def _event(self, event: Any) -> str:
        delta = event.get("delta") if isinstance(event, dict) else None
        if not isinstance(delta, dict) or delta.get("type") != "text_delta" or not isinstance(delta.get("text"), str):
            return ""
        self.said.text += delta["text"]
        text: str = delta["text"]
        return text

    def _result(self, record: dict[str, Any]) -> str:
        result = record.get("result")
        if record.get("is_error"):
            errors = record.get("errors")
            words = [result] if isinstance(result, str) and result else errors if isinstance(errors, list) else []
            self.said.errors += [str(word) for word in words] or [str(record.get("subtype", "error"))]
            return ""
        if isinstance(result, str) and not self.said.text:  # a release that sends no parts
            self.said.text = result
            return result
        return ""


ASKING: Final = ClaudeAsking()
