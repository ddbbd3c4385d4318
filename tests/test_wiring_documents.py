"""Edits of JSON, TOML and YAML texts leave everything else as it was."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from funes_mcp.wiring.document import BrokenText, UnsafeEdit, WrongShape, append_value, put_value
from funes_mcp.wiring.jsontext import JsonFormat
from funes_mcp.wiring.tomltext import TomlFormat
from funes_mcp.wiring.yamltext import YamlFormat

JSON, TOML, YAML_ = JsonFormat(), TomlFormat(), YamlFormat()
SERVER = {"command": "/opt/a b/funes", "args": ["mcp"], "env": {"FUNES_HOME": "/h/é"}}
HOOK = {"hooks": [{"type": "command", "command": "'/opt/a b/funes' hook codex Stop", "timeout": 10}]}

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
scalars = st.one_of(st.booleans(), st.integers(-999, 999), words, st.just(""))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
documents = st.dictionaries(
    st.one_of(words, st.just("mcp_servers")),
    st.one_of(values, st.dictionaries(words, values, min_size=1, max_size=3)),
    max_size=4,
).filter(lambda d: isinstance(d.get("mcp_servers", {}), dict) and "funes" not in d.get("mcp_servers", {}))
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def yaml_text(value: Any, flow: bool) -> str:
    yaml = YAML(pure=True)
    yaml.default_flow_style = flow
    out = io.StringIO()
    yaml.dump(value, out)
    return out.getvalue()


@quick
@given(documents, st.sampled_from([None, 1, 2, 4, "\t"]), st.booleans())
def test_json_put_and_drop_is_nothing_done(document: dict[str, Any], indent: Any, crlf: bool) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False) + "\n"
    text = text.replace("\n", "\r\n") if crlf else text
    added = JSON.put(text, ["mcp_servers", "funes"], SERVER)
    assert JSON.parse(added) == put_value(document, ["mcp_servers", "funes"], SERVER)
    assert list(JSON.parse(added))[: len(document)] == list(document)
    assert JSON.put(added, ["mcp_servers", "funes"], SERVER) == added
    back = JSON.drop(added, ["mcp_servers", "funes"])
    if document.get("mcp_servers"):
        assert back == text
    elif "mcp_servers" not in document:
        back = JSON.drop(back, ["mcp_servers"])
        assert back == text if document else JSON.parse(back) == {}


@quick
@given(documents)
def test_toml_put_and_drop_is_nothing_done(document: dict[str, Any]) -> None:
    text = "# the user's\n" + tomlkit.dumps(document)
    try:
        if TOML.parse(text) != document:
            return
    except BrokenText:
        return  # tomlkit wrote what it cannot read
    added = TOML.put(text, ["mcp_servers", "funes"], SERVER)
    assert TOML.parse(added)["mcp_servers"]["funes"] == SERVER
    assert added.startswith(text) or "mcp_servers" in document
    assert TOML.put(added, ["mcp_servers", "funes"], SERVER) == added
    assert TOML.drop(added, ["mcp_servers", "funes"]) == text or "mcp_servers" in document


@quick
@given(documents, st.booleans())
def test_yaml_put_and_drop_is_nothing_done(document: dict[str, Any], flow: bool) -> None:
    text = "# the user's\n" + yaml_text(document, flow)
    try:
        if YAML_.parse(text) != document:
            return
    except (BrokenText, WrongShape):
        return
    added = YAML_.put(text, ["mcp_servers", "funes"], SERVER)
    assert YAML_.parse(added) == put_value(document, ["mcp_servers", "funes"], SERVER)
    assert "# the user's" in added
    assert YAML_.put(added, ["mcp_servers", "funes"], SERVER) == added
    back = YAML_.drop(added, ["mcp_servers", "funes"])
    assert YAML_.parse(back) == {**document, "mcp_servers": document.get("mcp_servers") or {}} or YAML_.parse(back) == {
        **document,
        "mcp_servers": None,
    }


@pytest.mark.parametrize(
    "text",
    [
        '{\n    "a": 1, // no comment in JSON\n}',
        "{",
        '{"a": [1, 2',
        '{"a": 1} x',
    ],
)
def test_json_that_does_not_parse_says_where(text: str) -> None:
    with pytest.raises(BrokenText) as caught:
        JSON.put(text, ["a", "b"], 1)
    assert caught.value.line >= 1


def test_toml_and_yaml_that_do_not_parse_say_where() -> None:
    with pytest.raises(BrokenText) as toml:
        TOML.put("a = 1\nb = = 2\n", ["c"], 1)
    assert toml.value.line == 2
    with pytest.raises(BrokenText) as yaml:
        YAML_.put("a: 1\nb: [1, 2\nc: 3\n", ["d"], 1)
    assert yaml.value.line >= 2


@pytest.mark.parametrize("fmt", [JSON, YAML_])
def test_a_null_gives_way_and_a_list_does_not(fmt: Any) -> None:
    null = '{"hooks": null, "z": 1}' if fmt is JSON else "hooks:\nz: 1\n"
    assert fmt.parse(fmt.append(null, ["hooks", "Stop"], HOOK)) == {"hooks": {"Stop": [HOOK]}, "z": 1}
    other = '{"hooks": [1]}' if fmt is JSON else "hooks: [1]\n"
    with pytest.raises(WrongShape, match="hooks"):
        fmt.append(other, ["hooks", "Stop"], HOOK)


def test_json_keeps_layout_order_and_the_last_of_two_equal_keys() -> None:
    text = '{ "b": {"x":1 },\n\t"a" : [ ],"mcpServers":{"old":{}} ,\n"mcpServers": {\n\t\t"k": {"command": "c"}\n\t}\n}'
    added = JSON.put(text, ["mcpServers", "funes"], {"command": "f"})
    assert added == text.replace(
        '{"command": "c"}\n', '{"command": "c"},\n\t\t"funes": {\n\t\t\t\t"command": "f"\n\t\t}\n'
    )
    assert JSON.drop(added, ["mcpServers", "funes"]) == text


def test_json_drops_from_the_middle_and_replaces_in_place() -> None:
    text = '{"a": [1, {"b": 2}, 3], "c": 4}'
    assert JSON.drop(text, ["a", 1]) == '{"a": [1, 3], "c": 4}'
    assert JSON.drop(text, ["a"]) == '{"c": 4}'
    assert JSON.put(text, ["a", 1, "b"], "é") == '{"a": [1, {"b": "é"}, 3], "c": 4}'


def test_toml_tables_go_to_the_end_and_comments_stay() -> None:
    text = '# top\nmodel = "m" # why\n\n[mcp_servers.other] # theirs\ncommand = "x"\n'
    added = TOML.put(text, ["mcp_servers", "funes"], SERVER)
    assert added.startswith(text)
    assert TOML.drop(added, ["mcp_servers", "funes"]) == text


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { other = { command = "x" } } # inline\nz = 1\n',
        'mcp_servers.other.command = "x" # dotted\n',
        '[mcp_servers]\n[mcp_servers.other]\ncommand = "x"\n\n[z]\na = 1 # last\n',
        '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ncommand = "u" # theirs\n',
        'hooks.Stop = [ { hooks = [ { command = "u" } ] } ] # theirs\n',
    ],
)
def test_toml_in_other_clothes(text: str) -> None:
    added = TOML.put(text, ["mcp_servers", "funes"], SERVER)
    added = TOML.append(added, ["hooks", "Stop"], HOOK)
    old = TOML.parse(text)
    assert TOML.parse(added) == append_value(put_value(old, ["mcp_servers", "funes"], SERVER), ["hooks", "Stop"], HOOK)
    assert [line for line in text.splitlines() if "#" in line and line.split("#")[1] not in added] == []
    count = len(TOML.parse(added)["hooks"]["Stop"])
    back = TOML.drop(TOML.drop(added, ["hooks", "Stop", count - 1]), ["mcp_servers", "funes"])
    assert TOML.parse(back).get("mcp_servers", {}) == old.get("mcp_servers", {})
    assert TOML.parse(back).get("hooks", {}).get("Stop", []) == old.get("hooks", {}).get("Stop", [])


def test_yaml_keeps_every_line_in_block_style() -> None:
    text = (
        "# head\nmodel:\n  default: m   # eol\n\nhooks:   # mine\n    post_llm_call:\n        - command: 'x y'\n"
        "          timeout: 5   # s\n    # trailing\n\nnote: |\n  a\n  b\n\n# tail\n"
    )
    added = YAML_.append(text, ["hooks", "post_llm_call"], {"command": "f", "timeout": 10})
    added = YAML_.put(added, ["mcp_servers", "funes"], SERVER)
    assert [line for line in text.splitlines() if line not in added.splitlines()] == []
    back = YAML_.drop(YAML_.drop(added, ["hooks", "post_llm_call", 1]), ["mcp_servers"])
    assert back == text


@pytest.mark.parametrize("ending", ["", "\n", "\n\n"])
def test_yaml_block_scalar_at_the_end(ending: str) -> None:
    text = "a: 1\nb: |\n  x\n  y" + ending
    added = YAML_.put(text, ["mcp_servers", "funes"], SERVER)
    assert YAML_.parse(added)["b"].rstrip() == "x\ny"
    assert YAML_.parse(added)["mcp_servers"] == {"funes": SERVER}


@pytest.mark.parametrize(
    "text", ["mcp_servers: {}\nz: 1 # c\n", "mcp_servers: {a: {command: x}} # c\n", "{}", "---\na: 1 # c\n"]
)
def test_yaml_in_other_clothes(text: str) -> None:
    added = YAML_.put(text, ["mcp_servers", "funes"], SERVER)
    assert YAML_.parse(added) == put_value(YAML_.parse(text), ["mcp_servers", "funes"], SERVER)
    assert added.count("# c") == text.count("# c")


def test_an_edit_that_would_change_something_else_is_refused() -> None:
    # An anchor that is used elsewhere: dropping it would break the alias.
    text = "mcp_servers:\n  funes: &f\n    command: x\nother: *f\n"
    try:
        result = YAML_.drop(text, ["mcp_servers", "funes"])
    except UnsafeEdit:
        return
    assert YAML_.parse(result)["other"] == {"command": "x"}
