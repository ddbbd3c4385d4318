"""`add` and `remove` on agents' files: nothing lost, nothing half-written, everything given back."""

from __future__ import annotations

import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from wiring_support import AGENTS, VARIABLES, Desk

from funes_mcp.errors import BadRequestError, FunesError
from funes_mcp.wiring import files
from funes_mcp.wiring.document import ConfigError
from funes_mcp.wiring.flow import find_wiring, wiring_notes
from funes_mcp.wiring.program import find_program, is_ephemeral, is_our_hook

#: A file of each agent, with the user's own settings in a layout of their own.
USERS: dict[str, dict[str, str]] = {
    "claude": {
        ".claude/settings.json": '{\r\n\t"model" : "opus",\r\n\t"hooks": '
        '{"Stop":[{"hooks":[{"type":"command","command":"mine"}]}]},'
        '\r\n\t"permissions": { "allow": ["Bash(ls:*)"], "deny": [] }, "x-unknown": {"é": null}\r\n}',
        ".claude.json": '{"numStartups":3,"mcpServers":{"other":{"command":"o","args":[]}},"projects":{"/p":{}}}',
    },
    "codex": {
        ".codex/config.toml": '# mine\nmodel = "m" # eol\n\n[mcp_servers.other]\ncommand = "o"\n\n'
        '[hooks.state."/elsewhere:stop:0:0"]\ntrusted_hash = "sha256:1"\n',
        ".codex/hooks.json": '{ "hooks": { "Stop": [ { "hooks": [ {"type":"command","command":"mine"} ] } ] } }\n',
    },
    "pi": {".pi/agent/mcp.json": '{\n "mcpServers": {\n  "other": {"command": "o"}\n }\n}\n'},
    "hermes": {
        ".hermes/config.yaml": "# mine\nmodel:\n    default: m   # eol\nmcp_servers:\n    other: {command: o}\nhooks:\n"
        "    post_llm_call:\n    -   command: mine\n        timeout: 3\n",
        ".hermes/shell-hooks-allowlist.json": '{"approvals": [{"event": "post_llm_call", "command": "mine"}]}',
    },
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path / "home ü")
    for agent in AGENTS:
        desk.install(agent)
        desk.root(agent)
        for name, text in USERS[agent].items():
            path = desk.home / name
            path.write_bytes(text.encode())
    return desk


def content(desk: Desk, agent: str) -> dict[str, Any]:
    """The parsed files of an agent."""
    found: dict[str, Any] = {}
    for name in (*USERS[agent], ".claude/settings.json"):
        path = desk.home / name
        if not path.exists():
            continue
        text = path.read_text()
        if name.endswith(".json"):
            found[name] = json.loads(text)
        elif name.endswith(".toml"):
            found[name] = tomlkit.parse(text).unwrap()
        else:
            found[name] = YAML(typ="safe").load(text)
    return found


@pytest.mark.parametrize("agent", AGENTS)
def test_ten_adds_are_one_and_remove_gives_the_bytes_back(desk: Desk, agent: str) -> None:
    before = desk.snapshot()
    desk.add(agent)
    once = desk.snapshot()
    assert once != before
    for _ in range(9):
        assert desk.add(agent).written == ()
    assert desk.snapshot() == once
    desk.remove(agent)
    assert desk.snapshot() == before
    assert not desk.funes_home.root.exists()
    assert desk.remove(agent).written == ()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_without_any_file_is_left_without_any(tmp_path: Path, agent: str) -> None:
    desk = Desk(tmp_path)
    desk.install(agent)
    outcome = desk.add(agent)
    assert any("has not been run yet" in note for note in outcome.notes)
    desk.remove(agent)
    assert desk.snapshot() == {}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bin"]


@pytest.mark.parametrize("agent", AGENTS)
def test_what_the_user_changed_between_add_and_remove_stays(desk: Desk, agent: str) -> None:
    before = content(desk, agent)
    desk.add(agent)
    for name in USERS[agent]:
        path = desk.home / name
        if name.endswith(".json"):
            path.write_text(json.dumps({**json.loads(path.read_text()), "later": [1]}, indent=7))
        else:
            path.write_text(f"{'later = [1]' if name.endswith('toml') else 'later: [1]'}\n" + path.read_text())
    desk.remove(agent)
    after = content(desk, agent)
    for name in USERS[agent]:
        assert after[name] == {**before[name], "later": [1]}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_second_add_after_a_change_does_not_lose_the_change(desk: Desk, agent: str) -> None:
    before = content(desk, agent)
    desk.add(agent)
    name = next(iter(USERS[agent]))
    path = desk.home / name
    text = path.read_text()
    path.write_text(text + ("\n# later\n" if not name.endswith(".json") else "\n\n"))
    desk.argv = ("/moved/funes",)
    assert desk.add(agent).written
    desk.remove(agent)
    assert content(desk, agent) == before
    assert path.read_text().endswith("# later\n" if not name.endswith(".json") else "\n\n")


@pytest.mark.parametrize("agent", AGENTS)
def test_remove_without_a_receipt_takes_only_ours(desk: Desk, agent: str) -> None:
    import shutil

    before = content(desk, agent)
    desk.add(agent)
    shutil.rmtree(desk.funes_home.root)
    desk.remove(agent)
    assert content(desk, agent) == before
    # … and one who adds again after the receipts were lost is not given ours back
    desk.add(agent)
    shutil.rmtree(desk.funes_home.root)
    desk.add(agent)
    desk.remove(agent)
    assert content(desk, agent) == before


@pytest.mark.parametrize("agent", AGENTS)
def test_a_new_installation_takes_the_place_of_the_old(desk: Desk, agent: str) -> None:
    desk.add(agent)
    desk.argv = ("/usr/bin/python3", "-m", "funes_mcp")
    desk.add(agent)
    texts = b"".join(desk.snapshot().values())
    assert b"fu nes" not in texts
    assert b"funes_mcp" in texts
    desk.remove(agent)
    assert b"funes" not in b"".join(desk.snapshot().values())


@pytest.mark.parametrize(
    ("agent", "name", "broken", "where"),
    [
        ("claude", ".claude/settings.json", '{\n "a": 1\n "b": 2}', "line 3"),
        ("claude", ".claude.json", '{"mcpServers": [1]}', "mcpServers"),
        ("codex", ".codex/config.toml", "a = 1\nb = = 1\n", "line 2"),
        ("codex", ".codex/hooks.json", "{}{}", "line 1"),
        ("codex", ".codex/hooks.json", '{"hooks": {"Stop": {"hooks": []}}}', "hooks.Stop"),
        ("pi", ".pi/agent/mcp.json", "nonsense", "line 1"),
        ("pi", ".pi/agent/mcp.json", "[]", "top level"),
        ("hermes", ".hermes/config.yaml", "a: 1\nb: [1\nc: }\n", "line"),
        ("hermes", ".hermes/config.yaml", "- a\n- b\n", "top level"),
        ("hermes", ".hermes/shell-hooks-allowlist.json", '{"approvals": {}}', "approvals"),
    ],
)
def test_a_broken_file_is_named_and_nothing_is_changed(
    desk: Desk, agent: str, name: str, broken: str, where: str
) -> None:
    (desk.home / name).write_text(broken)
    before = desk.snapshot()
    with pytest.raises(ConfigError) as caught:
        desk.add(agent)
    assert str(desk.home / name) in caught.value.message
    assert where in caught.value.message
    assert "Nothing was changed" in caught.value.message
    assert desk.snapshot() == before
    assert not desk.funes_home.root.exists()


def test_not_utf8_is_refused_and_a_mark_at_the_start_is_kept(desk: Desk) -> None:
    path = desk.home / ".pi/agent/mcp.json"
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigError, match="UTF-8"):
        desk.add("pi")
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    desk.add("pi")
    assert path.read_bytes().startswith(b'\xef\xbb\xbf{"a": 1')
    assert path.read_bytes().count(b"\xef\xbb\xbf") == 1


@pytest.mark.parametrize("agent", AGENTS)
def test_a_folder_or_a_read_only_file_in_its_place(desk: Desk, agent: str) -> None:
    path = desk.home / list(USERS[agent])[-1]
    path.chmod(0o444)
    before = desk.snapshot()
    with pytest.raises(ConfigError, match="read-only"):
        desk.add(agent)
    assert desk.snapshot() == before
    path.chmod(0o644)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        desk.add(agent)
    path.rmdir()
    path.parent.chmod(0o555)
    try:
        with pytest.raises(ConfigError, match="read-only"):
            desk.add(agent)
    finally:
        path.parent.chmod(0o755)


def test_the_agents_folder_is_a_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.install("codex")
    (tmp_path / ".codex").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        desk.add("codex")


def test_a_write_that_fails_half_way_is_taken_back(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    before = desk.snapshot()
    real = os.replace
    calls: list[str] = []

    def replace(source: Any, target: Any) -> None:
        calls.append(str(target))
        if str(target).endswith("config.yaml"):
            raise OSError(28, "No space left on device", str(target))
        real(source, target)

    monkeypatch.setattr(files.os, "replace", replace)
    with pytest.raises(ConfigError, match="No space left"):
        desk.add("hermes")
    assert any(call.endswith("allowlist.json") for call in calls)
    assert desk.snapshot() == before
    assert list(desk.home.rglob("*.tmp")) == []


def test_a_file_that_the_agent_writes_meanwhile_is_not_overwritten(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = desk.home / ".claude.json"
    real = files._check_writable
    changed: list[int] = []

    def check(edit: files.Edit) -> None:
        if edit.path == path and not changed:
            changed.append(1)
            path.write_text(path.read_text().replace('"numStartups":3', '"numStartups":4'))
        real(edit)

    monkeypatch.setattr(files, "_check_writable", check)
    desk.add("claude")
    value = json.loads(path.read_text())
    assert value["numStartups"] == 4
    assert "funes" in value["mcpServers"]
    monkeypatch.undo()
    desk.remove("claude")
    assert json.loads(path.read_text())["mcpServers"] == {"other": {"command": "o", "args": []}}


@pytest.mark.parametrize("agent", AGENTS)
def test_links_and_modes_are_kept(desk: Desk, tmp_path: Path, agent: str) -> None:
    dotfiles = tmp_path / "dotfiles"
    dotfiles.mkdir()
    for name in USERS[agent]:
        path = desk.home / name
        real = dotfiles / path.name
        path.rename(real)
        real.chmod(0o640)
        path.symlink_to(real)
    desk.add(agent)
    for name in USERS[agent]:
        path = desk.home / name
        assert path.is_symlink()
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert b"funes" in path.read_bytes()
    desk.remove(agent)
    assert all((desk.home / name).is_symlink() for name in USERS[agent])
    assert all((desk.home / name).read_bytes() == text.encode() for name, text in USERS[agent].items())


def test_what_we_make_is_private(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for agent in AGENTS:
        desk.install(agent)
        desk.add(agent)
    for path in tmp_path.rglob("*"):
        if "bin" not in path.parts and path != tmp_path:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_that_is_not_here(tmp_path: Path, agent: str) -> None:
    desk = Desk(tmp_path)
    with pytest.raises(FunesError) as caught:
        desk.add(agent)
    assert f"no `{agent}` on PATH" in caught.value.message
    assert "Nothing was changed" in caught.value.message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bin"]
    desk.root(agent)  # its folder is there: it is started by some other way
    assert any("wired all the same" in note for note in desk.add(agent).notes)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_agents_own_variable_is_honoured_and_remembered(tmp_path: Path, agent: str) -> None:
    named = tmp_path / "else where"
    desk = Desk(tmp_path / "home", environ={VARIABLES[agent]: str(named)})
    desk.install(agent)
    desk.root(agent)
    desk.add(agent)
    assert any(named.rglob("*"))
    assert not (desk.home / ".claude.json").exists()
    del desk.environ[VARIABLES[agent]]
    desk.remove(agent)
    assert not [path for path in named.rglob("*") if path.is_file()]


def test_the_funes_home_reaches_hooks_and_servers(tmp_path: Path) -> None:
    ours = tmp_path / "ours and more"
    for agent in AGENTS:
        desk = Desk(tmp_path / agent, environ={"FUNES_HOME": str(ours)})
        desk.install(agent)
        desk.root(agent)
        desk.add(agent, memory="acme/memory")
        texts = {name: data.decode() for name, data in desk.snapshot().items()}
        assert any(str(ours) in text and "acme/memory" in text for text in texts.values())
    hooks = json.loads((tmp_path / "codex/.codex/hooks.json").read_text())
    line = hooks["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert shlex.split(line) == [
        "/opt/fu nes/bin/funes", "hook", "codex", "Stop", "--home", str(ours), "--memory", "acme/memory",
    ]  # fmt: skip


def test_a_server_of_the_same_name_that_is_not_ours_comes_back(desk: Desk) -> None:
    path = desk.home / ".pi/agent/mcp.json"
    path.write_text('{"mcpServers": {"funes": {"url": "https://example.com"}}}')
    assert any("another MCP server named `funes`" in note for note in desk.add("pi").notes)
    assert "url" not in path.read_text()
    assert not any("another MCP server" in note for note in desk.add("pi").notes)
    path.write_text(path.read_text() + "\n")
    desk.remove("pi")
    assert json.loads(path.read_text()) == {"mcpServers": {"funes": {"url": "https://example.com"}}}


def test_what_the_user_added_to_our_server_stays(desk: Desk) -> None:
    path = desk.home / ".codex/config.toml"
    desk.add("codex")
    doc = tomlkit.parse(path.read_text())
    doc["mcp_servers"]["funes"]["startup_timeout_sec"] = 20  # type: ignore[index]
    path.write_text(tomlkit.dumps(doc))
    desk.argv = ("/moved/funes",)
    desk.add("codex")
    server = tomlkit.parse(path.read_text()).unwrap()["mcp_servers"]["funes"]
    assert server["startup_timeout_sec"] == 20
    assert server["command"] == "/moved/funes"


def test_claude_permissions_only_with_consent(desk: Desk) -> None:
    desk.add("claude", consents=())
    settings = json.loads((desk.home / ".claude/settings.json").read_text())
    assert settings["permissions"]["allow"] == ["Bash(ls:*)"]
    outcome = desk.add("claude")
    settings = json.loads((desk.home / ".claude/settings.json").read_text())
    assert settings["permissions"]["allow"] == [
        "Bash(ls:*)", "mcp__funes__recall", "mcp__funes__get", "mcp__funes__status",
    ]  # fmt: skip
    assert not any("--allowedTools" in note for note in outcome.notes)


def test_claude_forgets_the_marketplace_that_it_noted(desk: Desk) -> None:
    desk.add("claude")
    noted = desk.home / ".claude/plugins/known_marketplaces.json"
    noted.parent.mkdir()
    noted.write_text('{"funes-mcp": {"installLocation": "x"}, "theirs": {}}')
    desk.remove("claude")
    assert json.loads(noted.read_text()) == {"theirs": {}}


def test_pi_without_mcp_gets_the_extension_alone(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.install("pi", "0.73.1")
    desk.root("pi")
    desk.add("pi")
    assert list(desk.snapshot()) == [".pi/agent/extensions/funes.ts"]
    assert b"inFile: boolean = false" in desk.snapshot()[".pi/agent/extensions/funes.ts"]
    desk.remove("pi")
    assert desk.snapshot() == {}


def test_states(desk: Desk) -> None:
    for agent in AGENTS:
        wiring = find_wiring(agent)
        assert desk.wirer.state(wiring).server is False
        desk.add(agent, consents=())
        state = desk.wirer.state(wiring)
        assert state.server
        assert state.hooks
        assert bool(state.notes) == (agent == "codex")
    desk.add("codex")
    assert desk.wirer.state(find_wiring("codex")).notes == ()


def test_an_unknown_agent() -> None:
    with pytest.raises(BadRequestError, match="vim"):
        find_wiring("vim")
    assert find_wiring("claude_code").name == "claude"


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("/usr/bin/funes hook codex Stop", True),
        ("'/a b/ü/funes' hook codex Stop --home '/x y'", True),
        ("/v/bin/python -P -m funes_mcp hook codex Stop", True),
        ("/usr/bin/funes hook claude Stop", False),
        ("echo funes hook codex Stop", False),
        ("my-funes hook codex Stop", False),
        ("funes recall x", False),
        ("echo 'unclosed", False),
        (None, False),
    ],
)
def test_our_hooks_are_known_by_their_command(line: object, ours: bool) -> None:
    assert is_our_hook(line, "codex") is ours


def test_the_command_is_absolute_and_of_this_installation(tmp_path: Path) -> None:
    import sys

    other = tmp_path / "funes"
    other.write_text("#!/other/python\n")
    other.chmod(0o755)
    found = find_program({"PATH": str(tmp_path)}, argv0=str(other))
    assert found[0] != str(other)
    assert os.path.isabs(found[0])
    other.write_text(f"#!{sys.executable}\n")
    assert find_program({}, argv0=str(other)) == (str(other),)
    assert is_ephemeral(["/home/u/.cache/uv/archive-v0/x/bin/funes"])
    assert not is_ephemeral(["/home/u/.local/bin/funes"])


def test_other_packages_of_the_same_name_are_pointed_out(desk: Desk) -> None:
    (desk.home / ".claude/settings.json").write_text('{"enabledPlugins": {"funes@elsewhere": true, "x@y": true}}')
    assert any("funes@elsewhere" in note for note in desk.add("claude").notes)
    (desk.home / ".pi/agent/settings.json").write_text('{"packages": ["../../funes-pi", "npm:other"]}')
    assert any("funes-pi" in note for note in desk.add("pi").notes)


def test_status_says_which_wiring_does_not_work(desk: Desk) -> None:
    def notes() -> tuple[str, ...]:
        return wiring_notes(desk.funes_home, desk.environ, desk.home)

    assert notes() == ()
    desk.add("codex", consents=())
    assert any("not trusted" in note for note in notes())
    (desk.home / ".hermes/config.yaml").write_text("a: [")
    assert any(note.startswith("Hermes: ") and "config.yaml" in note for note in notes())


keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), keys),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=st.dictionaries(keys, json_values, max_size=3),
    indent=st.sampled_from([None, 2, "\t"]),
    bom=st.booleans(),
    crlf=st.booleans(),
    hooks=st.sampled_from([None, {}, {"Stop": [{"hooks": [{"type": "command", "command": "u"}]}]}]),
)
def test_any_json_comes_back_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any], indent: Any, bom: bool, crlf: bool, hooks: Any
) -> None:
    desk = Desk(tmp_path_factory.mktemp("desk"))
    desk.install("codex")
    desk.install("claude")
    text = json.dumps({**content, **({"hooks": hooks} if hooks is not None else {})}, indent=indent, ensure_ascii=False)
    data = (b"\xef\xbb\xbf" if bom else b"") + (text.replace("\n", "\r\n") if crlf else text).encode()
    reserved = {"hooks", "permissions", "enabledPlugins", "extraKnownMarketplaces", "mcpServers"}
    if reserved & set(content):
        return
    for path in (desk.root("codex") / "hooks.json", desk.root("claude") / "settings.json", desk.home / ".claude.json"):
        path.write_bytes(data)
    before = desk.snapshot()
    for agent in ("codex", "claude"):
        desk.add(agent)
        desk.add(agent)
    for name in (".codex/hooks.json", ".claude/settings.json", ".claude.json"):
        added = json.loads((desk.home / name).read_text("utf-8-sig"))
        assert {key: added[key] for key in content} == content
    for agent in ("codex", "claude"):
        desk.remove(agent)
    assert desk.snapshot() == before
