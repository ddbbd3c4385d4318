"""Hermes, asked for one answer: a quiet chat of one turn.

Hermes' flag for safe mode leaves out the user's configuration, and with it the model; its variable alone leaves out
servers, plugins and shell hooks. `context_engine` is the one toolset without a tool. Hermes cannot be kept from
writing the session into its database: it is marked as a tool's, which Hermes does not list, and is known by its
opening and not indexed. The prompt has to be an argument, since Hermes reads none from its standard input.
"""

from __future__ import annotations

from typing import Final

from funes_mcp.ask.model import Desk, Prompt, Reader, Run, Said

_FLAGS: Final = ("-Q", "--source", "tool", "--max-turns", "1", "-t", "context_engine")
_SETS: Final = {"HERMES_SAFE_MODE": "1", "HERMES_IGNORE_RULES": "1"}
_OUTER: Final = ("HERMES_KANBAN", "HERMES_SESSION_", "HERMES_YOLO_MODE", "HERMES_ACCEPT_HOOKS")


class HermesAsking:
    """See `AgentAsking`."""

    name = "hermes"
    title = "Hermes"
    command = "hermes"
    install_hint = "pip install 'hermes-agent[mcp]'"
    login_hint = "Run `hermes setup`, then ask again."

    def refusal(self, desk: Desk) -> str:
        """Nothing: Hermes looks for its login itself, before it reaches for a model, and says so."""
        return ""

    def run(self, desk: Desk, prompt: Prompt) -> Run:
        return Run((desk.program, "chat", *desk.extra, *_FLAGS, "-q", prompt.text), "", _SETS, _OUTER)

    def reader(self) -> Reader:
        return _Plain()


class _Plain:
    """Quiet mode: the answer, whole, when it is finished."""

    def __init__(self) -> None:
        self.said = Said()

    def line(self, line: str) -> str:
        if not self.said.text and line.startswith("  ⚠ "):
            return ""  # a warning about Hermes' own set-up
        self.said.text += line + "\n"
        return ""  # what looks like an answer is an error when the exit code says so


ASKING: Final = HermesAsking()
