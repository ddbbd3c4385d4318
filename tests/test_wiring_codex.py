"""Codex's hooks: where they are written, and their trust."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from funes_adapters.codex.wiring import hook_hash
from wiring_support import Desk

from funes_mcp.wiring.flow import find_wiring


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.install("codex")
    desk.root("codex")
    return desk


def config(desk: Desk) -> dict[str, Any]:
    return dict(tomlkit.parse((desk.home / ".codex/config.toml").read_text()).unwrap())


def test_the_hash_is_the_one_that_codex_lists() -> None:
    # Recorded from `hooks/list` of Codex 0.171's app server.
    stop = {"hooks": [{"type": "command", "command": "/opt/hook.sh codex Stop", "timeout": 10}]}
    assert hook_hash("Stop", stop) == "sha256:32897df51d8a3e8538fec06308a60eca972ab685665262443fd8b7bc685346de"
    end = {"hooks": [{"type": "command", "command": "/opt/hook.sh codex SessionEnd", "timeout": 3}]}
    assert hook_hash("SessionEnd", end) == "sha256:10983bacc41f175efda2a58e0f627550e4804b43e1051a6149be893eef1f8162"
    longer = {"hooks": [{**end["hooks"][0], "timeout": 30}]}
    assert hook_hash("SessionEnd", longer) == hook_hash("SessionEnd", end)


def test_no_trust_without_consent_and_the_way_to_it_is_told(desk: Desk) -> None:
    outcome = desk.add("codex", consents=())
    assert "hooks" not in config(desk)
    assert any("--trust-hooks" in note for note in outcome.notes)
    assert any("not trusted" in note for note in desk.wirer.state(find_wiring("codex")).notes)


def test_ours_come_last_and_only_ours_are_trusted(desk: Desk) -> None:
    path = desk.home / ".codex/hooks.json"
    path.write_text(json.dumps({"hooks": {"Stop": [{"matcher": "x", "hooks": [{"type": "command", "command": "u"}]}]}}))
    desk.add("codex")
    groups = json.loads(path.read_text())["hooks"]["Stop"]
    assert [group["hooks"][0]["command"] for group in groups] == ["u", "'/opt/fu nes/bin/funes' hook codex Stop"]
    assert sorted(config(desk)["hooks"]["state"]) == [
        f"{path}:session_end:0:0",
        f"{path}:session_start:0:0",
        f"{path}:stop:1:0",
        f"{path}:subagent_stop:0:0",
    ]
    assert json.loads(path.read_text())["hooks"]["SessionEnd"][0]["hooks"][0]["timeout"] == 3


def test_hooks_behind_ours_keep_their_trust_when_ours_go(desk: Desk) -> None:
    path = desk.home / ".codex/hooks.json"
    desk.add("codex")
    value = json.loads(path.read_text())
    value["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "theirs"}]})
    path.write_text(json.dumps(value))
    toml = desk.home / ".codex/config.toml"
    toml.write_text(toml.read_text() + f'\n[hooks.state."{path}:stop:1:0"]\ntrusted_hash = "sha256:theirs"\n')
    desk.remove("codex")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}}
    assert config(desk) == {"hooks": {"state": {f"{path}:stop:0:0": {"trusted_hash": "sha256:theirs"}}}}


def test_hooks_go_where_the_user_keeps_theirs(desk: Desk) -> None:
    toml = desk.home / ".codex/config.toml"
    text = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "u" # theirs\n'
    toml.write_text(text)
    desk.add("codex")
    assert not (desk.home / ".codex/hooks.json").exists()
    assert toml.read_text().startswith(text)
    assert config(desk)["hooks"]["Stop"][0]["hooks"][0]["command"] == "u"
    assert f"{toml}:stop:1:0" in config(desk)["hooks"]["state"]
    once = toml.read_bytes()
    desk.add("codex")
    assert toml.read_bytes() == once
    toml.write_text(toml.read_text() + "# later\n")
    desk.remove("codex")
    left = tomlkit.parse(toml.read_text()).unwrap()
    assert left == tomlkit.parse(text).unwrap()
    assert "# later" in toml.read_text()


def test_trust_follows_a_named_home_through_its_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    desk = Desk(tmp_path / "home", environ={"CODEX_HOME": str(link)})
    desk.install("codex")
    desk.add("codex")
    state = tomlkit.parse((real / "config.toml").read_text()).unwrap()["hooks"]["state"]
    assert f"{real}/hooks.json:stop:0:0" in state
    desk.remove("codex")
    assert [p.name for p in real.iterdir()] == []


def test_a_hook_that_the_user_switched_off_stays_off(desk: Desk) -> None:
    desk.add("codex")
    toml = desk.home / ".codex/config.toml"
    doc = tomlkit.parse(toml.read_text())
    key = f"{desk.home}/.codex/hooks.json:stop:0:0"
    doc["hooks"]["state"][key]["enabled"] = False  # type: ignore[index]
    toml.write_text(tomlkit.dumps(doc))
    desk.add("codex")
    assert config(desk)["hooks"]["state"][key]["enabled"] is False


def test_hooks_move_when_the_user_starts_a_file_of_their_own(desk: Desk) -> None:
    toml = desk.home / ".codex/config.toml"
    toml.write_text('[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "u"\n')
    desk.add("codex")
    path = desk.home / ".codex/hooks.json"
    path.write_text('{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "v"}]}]}}')
    desk.add("codex")
    assert "funes' hook" not in toml.read_text()
    assert path.read_text().count(" hook codex Stop") == 1
    assert {key.rsplit(":", 3)[0] for key in config(desk)["hooks"]["state"]} == {str(path)}
    desk.remove("codex")
    assert config(desk) == {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "u"}]}]}}
    assert json.loads(path.read_text())["hooks"] == {"Stop": [{"hooks": [{"type": "command", "command": "v"}]}]}
