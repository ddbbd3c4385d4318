"""Codex, asked for one answer: `exec`, ephemeral, sandboxed, with every tool, server, hook and program switched off.

Flags alone do not do it: for most of its models Codex takes the tools from its catalog of models and does not look at
the features. So it is given its own catalog with the tools taken out.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from funes_mcp.ask.environment import surroundings
from funes_mcp.ask.model import Desk, Prompt, Reader, Run, Said
from funes_mcp.ask.records import record_of

#: Features that offer tools, run programs or start servers. Releases that lack one say so and go on.
_FEATURES: Final = (
    "apps",
    "browser_use",
    "code_mode_host",
    "computer_use",
    "goals",
    "hooks",
    "image_generation",
    "in_app_browser",
    "memories",
    "multi_agent",
    "multi_agent_v2",
    "plugins",
    "shell_snapshot",
    "shell_tool",
    "skill_mcp_dependency_install",
    "sleep_tool",
    "tool_suggest",
    "unified_exec",
    "view_image",
)
_SETTINGS: Final = (
    'approval_policy="never"',
    'web_search="disabled"',
    "notify=[]",
    "project_doc_max_bytes=0",
    "check_for_update_on_startup=false",
    "skills.include_instructions=false",
    "tools.experimental_request_user_input.enabled=false",
    "tools.update_plan.enabled=false",
)
#: What a model's entry in the catalog says of tools, and what it says of none.
_NO_TOOLS: Final[Mapping[str, Any]] = {
    "apply_patch_tool_type": None,
    "experimental_supported_tools": [],
    "multi_agent_version": "disabled",
    "shell_type": "disabled",
    "supports_search_tool": False,
    "tool_mode": None,
}
#: What Codex tells programs that it starts of itself.
_OUTER: Final = ("CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_SANDBOX", "CODEX_CI", "CODEX_TURN")

#: Variables that hold a login.
_LOGINS: Final = ("CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "OPENAI_API_KEY")
#: Settings by which models are reached otherwise than with Codex's own login.
_OTHER_WAYS: Final = ("model_provider", "profile", "oss_provider", "openai_base_url")

#: Seconds that Codex's program may take for a question about itself.
_ASIDE_S: Final = 15.0


class CodexAsking:
    """See `AgentAsking`."""

    name = "codex"
    title = "Codex"
    command = "codex"
    install_hint = "npm install -g @openai/codex"
    login_hint = "Run `codex login`, then ask again."

    def refusal(self, desk: Desk) -> str:
        """`codex login status`, where Codex's own login is what counts. Without one it would try for minutes."""
        config = next(_configs(desk), {})
        by_login = not desk.extra and not any(name in config for name in _OTHER_WAYS)
        if not by_login or any(desk.environ.get(name, "").strip() for name in _LOGINS):
            return ""
        done = _aside(desk, ["login", "status"])
        if done is None or done.returncode == 0:
            return ""
        words = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace").splitlines()
        return next((word.strip() for word in words if "not logged in" in word.lower()), "")

    def run(self, desk: Desk, prompt: Prompt) -> Run:
        settings = [*_SETTINGS, *(f"features.{name}=false" for name in _FEATURES)]
        servers = {name for config in _configs(desk) for name in _servers(config)}
        settings += [f"mcp_servers.{name}.enabled=false" for name in sorted(servers)]
        remains: tuple[str, ...] = ()
        catalog = _catalog(desk)
        if catalog is None:
            remains = (
                "this release of Codex does not show its models, so that it may offer them tools; "
                "they can read but not write, and reach no network",
            )
        else:
            settings.append(f"model_catalog_json={json.dumps(str(catalog))}")
        flags = ["--ephemeral", "--skip-git-repo-check", "--sandbox", "read-only", "--color", "never", "--json"]
        for setting in settings:
            flags += ["-c", setting]
        return Run((desk.program, "exec", *desk.extra, *flags, "-"), prompt.text, {}, _OUTER, remains)

    def reader(self) -> Reader:
        return _Events()


def _aside(desk: Desk, words: Sequence[str]) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            [desk.program, *words],
            env=surroundings(desk.environ, {}, _OUTER),
            cwd=desk.scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASIDE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _catalog(desk: Desk) -> Path | None:
    """Codex's catalog of models without their tools, as a file; None when Codex does not show it."""
    done = _aside(desk, ["debug", "models"])
    if done is None or done.returncode != 0:
        return None
    try:
        catalog = without_tools(json.loads(done.stdout))
    except (ValueError, TypeError, KeyError):
        return None
    path = desk.scratch / "models.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(catalog), encoding="utf-8")
    return path


def without_tools(catalog: Any) -> Any:
    """A catalog whose models are given no tools. Raises `TypeError` or `KeyError` for what is no catalog."""
    return {**catalog, "models": [_toolless(model) for model in catalog["models"]]}


def _toolless(model: Mapping[str, Any]) -> dict[str, Any]:
    return {**model, **{name: value for name, value in _NO_TOOLS.items() if name in model}}


def _configs(desk: Desk) -> Iterator[Mapping[str, Any]]:
    """The user's settings, those of a profile that is asked for, and the machine's."""
    named = desk.environ.get("CODEX_HOME", "").strip()
    root = Path(named).expanduser() if named else desk.home / ".codex"
    paths = [root / "config.toml"]
    for flag, value in zip(desk.extra, desk.extra[1:], strict=False):
        if flag in ("-p", "--profile"):
            paths.append(root / f"{value}.config.toml")
    if os.name == "posix":
        paths.append(Path("/etc/codex/config.toml"))
    for path in paths:
        yield _toml(path)


def _toml(path: Path) -> Mapping[str, Any]:
    """A file's settings; none when there is none. Codex itself will say when it cannot be read."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(path.read_text(encoding="utf-8")).unwrap()
    except (OSError, UnicodeDecodeError, TOMLKitError):
        return {}


def _servers(config: Mapping[str, Any]) -> Iterator[str]:
    servers = config.get("mcp_servers")
    if isinstance(servers, Mapping):
        yield from servers


class _Events:
    """JSON events: a message is told when it is whole; the last one is the answer."""

    def __init__(self) -> None:
        self.said = Said()

    def line(self, line: str) -> str:
        record = record_of(line)
        kind, item, error = record.get("type"), record.get("item"), record.get("error")
        if kind == "item.completed" and isinstance(item, dict) and item.get("type") == "agent_message":
            text = item.get("text")
            if isinstance(text, str):
                gap = "\n\n" if self.said.text else ""
                self.said.text += gap + text
                return gap + text
        if kind == "turn.failed" and isinstance(error, dict):
            self.said.errors = [_plain(str(error.get("message", "")))]
        elif kind == "error" and not self.said.errors and record.get("message"):
            self.said.errors = [_plain(str(record["message"]))]
        elif kind == "turn.completed":  # what came before was overcome
            self.said.errors = []
        return ""


def _plain(message: str) -> str:
    """The sentence in an error that is a server's answer in JSON."""
    try:
        value = json.loads(message)
    except ValueError:
        return message
    while isinstance(value, dict):
        value = value.get("error", value.get("message"))
    return value if isinstance(value, str) and value else message


ASKING: Final = CodexAsking()
