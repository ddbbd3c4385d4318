"""How each agent is started for an answer, and what is made of its output, without the agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from funes_mcp.ask.environment import surroundings
from funes_mcp.ask.flow import find_asking
from funes_mcp.ask.model import Desk, Prompt, Run
from funes_mcp.errors import BadRequestError

PROMPT = Prompt("Be brief.", "Which port?")
AGENTS = ["claude", "codex", "pi", "hermes"]


def desk(folder: Path, *extra: str, **environ: str) -> Desk:
    return Desk(str(folder / "no-program"), environ, folder, folder, extra)


def run(agent: str, folder: Path, *extra: str, **environ: str) -> Run:
    return find_asking(agent).run(desk(folder, *extra, **environ), PROMPT)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_users_flags_come_before_those_that_switch_things_off(agent: str, tmp_path: Path) -> None:
    plain, with_flags = run(agent, tmp_path), run(agent, tmp_path, "--model", "tiny")
    at = with_flags.argv.index("--model")
    assert with_flags.argv[at + 1] == "tiny"
    assert with_flags.argv[:at] + with_flags.argv[at + 2 :] == plain.argv
    assert at <= 2


@pytest.mark.parametrize("agent", ["claude", "codex", "pi"])
def test_the_request_is_not_shown_in_the_list_of_processes(agent: str, tmp_path: Path) -> None:
    started = run(agent, tmp_path)
    assert started.stdin == PROMPT.text
    assert PROMPT.text not in started.argv


def test_our_hooks_are_told_to_do_nothing_and_an_outer_session_is_not_passed_on() -> None:
    outer = {"PATH": "/bin", "CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "x", "CLAUDE_CONFIG_DIR": "/c"}
    drops = find_asking("claude").run(desk(Path("/x")), PROMPT).drops
    assert surroundings(outer, {"A": "1"}, drops) == {
        "PATH": "/bin",
        "CLAUDE_CONFIG_DIR": "/c",
        "A": "1",
        "FUNES_NO_HOOKS": "1",
    }
    assert surroundings(outer, {}, ())["CLAUDECODE"] == "1"


def test_agents_are_found_by_the_names_that_people_type() -> None:
    assert find_asking("Claude-Code").name == find_asking("claude_code").name == "claude"
    with pytest.raises(BadRequestError, match="claude, codex, hermes, pi"):
        find_asking("emacs")


# Codex


def test_every_mcp_server_of_codex_is_switched_off(tmp_path: Path) -> None:
    folder = tmp_path / "its home"
    folder.mkdir()
    (folder / "config.toml").write_text('[mcp_servers.funes]\ncommand = "funes"\n[mcp_servers."a-b"]\nurl = "u"\n')
    (folder / "work.config.toml").write_text('[mcp_servers.work]\ncommand = "w"\n')
    argv = run("codex", tmp_path, "--profile", "work", CODEX_HOME=str(folder)).argv
    servers = [word for word in argv if word.startswith("mcp_servers.")]
    assert servers == [f"mcp_servers.{name}.enabled=false" for name in ("a-b", "funes", "work")]
    assert not [word for word in run("codex", tmp_path).argv if word.startswith("mcp_servers.")]


def test_codex_models_are_given_no_tools() -> None:
    from funes_adapters.codex.asking import without_tools

    model = {
        "slug": "gpt",
        "shell_type": "unified_exec",
        "apply_patch_tool_type": "freeform",
        "tool_mode": "code_mode_only",
        "multi_agent_version": "v2",
        "base_instructions": "…",
    }
    (changed,) = without_tools({"models": [model], "etag": "x"})["models"]
    assert changed == {
        "slug": "gpt",
        "shell_type": "disabled",
        "apply_patch_tool_type": None,
        "tool_mode": None,
        "multi_agent_version": "disabled",
        "base_instructions": "…",
    }


def test_a_codex_that_does_not_show_its_models_is_said_to_be_less_safe(tmp_path: Path) -> None:
    (note,) = run("codex", tmp_path).remains
    assert "may offer them tools" in note


# Output


def read(agent: str, *records: Any) -> tuple[str, str, list[str]]:
    reader = find_asking(agent).reader()
    shown = "".join(reader.line(r if isinstance(r, str) else json.dumps(r)) for r in records)
    return shown, reader.said.text, reader.said.errors


def claude_part(text: str) -> dict[str, Any]:
    return {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}},
    }


def pi_part(text: str) -> dict[str, Any]:
    return {"type": "message_update", "assistantMessageEvent": {"type": "text_delta", "delta": text}}


def pi_end(**more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": [{"type": "text", "text": "It is 8443."}], **more}
    return {"type": "message_end", "message": message}


def codex_message(text: str) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"type": "agent_message", "text": text}}


@pytest.mark.parametrize(
    ("agent", "records"),
    [
        ("claude", [claude_part("It is "), claude_part("8443."), {"type": "result", "result": "It is 8443."}]),
        ("claude", [{"type": "result", "is_error": False, "result": "It is 8443."}]),
        ("codex", [{"type": "thread.started"}, codex_message("It is 8443."), {"type": "turn.completed"}]),
        ("pi", [pi_part("It is "), pi_part("8443."), pi_end(), {"type": "agent_settled"}]),
        ("pi", [pi_end()]),
    ],
)
def test_an_answer_is_shown_once(agent: str, records: list[Any]) -> None:
    assert read(agent, "not json", 7, None, {"type": None}, *records) == ("It is 8443.", "It is 8443.", [])


def test_hermes_answer_is_what_it_prints() -> None:
    lines = ["  ⚠ a scanner is not available", "It is", "  ⚠ 8443."]
    assert read("hermes", *lines) == ("", "It is\n  ⚠ 8443.\n", [])


@pytest.mark.parametrize(
    ("agent", "records", "words"),
    [
        ("claude", [{"type": "result", "is_error": True, "result": "Not logged in"}], "Not logged in"),
        ("claude", [{"type": "result", "is_error": True, "subtype": "error_max_turns"}], "error_max_turns"),
        (
            "codex",
            [
                {"type": "error", "message": "again"},
                {"type": "turn.failed", "error": {"message": '{"error": {"message": "no credit"}}'}},
            ],
            "no credit",
        ),
        ("pi", [pi_end(stopReason="error", errorMessage="400 no credit")], "400 no credit"),
    ],
)
def test_an_agents_own_words_on_its_failure(agent: str, records: list[Any], words: str) -> None:
    assert read(agent, *records)[2] == [words]


def test_an_error_of_codex_that_was_overcome_is_none() -> None:
    records = [{"type": "error", "message": "reconnecting"}, codex_message("8443"), {"type": "turn.completed"}]
    assert read("codex", *records) == ("8443", "8443", [])
