"""Times and texts in every form that agents write."""

from __future__ import annotations

import base64
import random
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.traces import ours
from funes_mcp.traces.text import clean, compact_json, elide, munge, repo_of_remote, workdir_of
from funes_mcp.traces.time import to_rfc3339, to_unix_ms

NOW = "2024-12-03T14:00:01.000Z"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NOW, NOW),
        ("2024-12-03T14:00:01Z", NOW),
        ("2024-12-03 14:00:01", NOW),
        ("2024-12-03T22:00:01+08:00", NOW),
        ("2024-12-03T09:30:01.0009-0430", NOW),
        ("2024-12-03T14:00:01.123456789Z", "2024-12-03T14:00:01.123Z"),
        ("2024-12-03", "2024-12-03T00:00:00.000Z"),
        ("2024-02-29T10:00:00.000Z", "2024-02-29T10:00:00.000Z"),
        ("2023-02-29T10:00:00.000Z", None),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.000Z"),
        (1733234401, NOW),
        (1733234401.5, "2024-12-03T14:00:01.500Z"),
        (1733234401000, NOW),
        ("1733234401000", NOW),
        (1733234401000000, NOW),
        (1733234401000000000, NOW),
        ("9999-12-31T23:59:59Z", None),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00Z", None),
        (0, None),
        (-1, None),
        (True, None),
        (None, None),
        ("", None),
        ("yesterday", None),
        ("2024-13-01T00:00:00Z", None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        ({"t": 1}, None),
    ],
)
def test_times(value: Any, expected: str | None) -> None:
    assert to_rfc3339(value) == expected


@given(st.one_of(st.text(), st.floats(), st.integers(), st.datetimes().map(str)))
def test_any_time_is_one_form_or_none(value: Any) -> None:
    made = to_rfc3339(value)
    if made is not None:
        assert to_rfc3339(made) == made
        assert to_unix_ms(made) is not None


@given(st.text(alphabet=st.characters(codec=None)))
def test_cleaned_text_can_be_stored_and_keeps_its_length(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert "\0" not in cleaned
    assert len(cleaned) == len(text)


def _bytes(count: int) -> bytes:
    return random.Random(7).randbytes(count)


@pytest.mark.parametrize("around", ["{}", "before {} after", "x" * 5000 + " {}", '{{"data":"{}"}}'])
def test_payloads_are_left_out(around: str) -> None:
    piece = base64.b64encode(_bytes(6000)).decode()
    text, found = elide(around.format(piece))
    assert text == around.format(f"[base64: {len(piece)} characters left out]")
    assert found == 1
    wrapped = base64.encodebytes(_bytes(9000)).decode().strip()
    for lines in (wrapped, wrapped.replace("\n", "\r\n"), wrapped.replace("\n", "\\n")):
        text, found = elide(around.format(lines))
        assert "characters left out" in text
        assert (found, len(text) < len(around) + 60) == (1, True)


def test_data_uris_are_left_out_from_a_few_bytes_on() -> None:
    pixel = base64.b64encode(_bytes(90)).decode()
    text, found = elide(f"![x](data:image/png;base64,{pixel}) and data:text/plain;charset=utf-8;base64,{pixel}")
    assert text == (
        "![x](data:image/png;base64,[120 characters left out]) and "
        "data:text/plain;charset=utf-8;base64,[120 characters left out]"
    )
    assert found == 2


@pytest.mark.parametrize(
    "text",
    [
        "=" * 3000,
        "-" * 3000,
        "deadbeef" * 500,
        "a/long/path/" * 200,
        "word " * 2000,
        "0123456789" * 300,
        "漢字" * 2000,
        "ssh-rsa " + base64.b64encode(_bytes(400)).decode(),
        "-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(_bytes(1500)).decode() + "-----END CERTIFICATE-----",
        "see data:image/png;base64,iVBOR for an example",
    ],
)
def test_what_is_no_payload_stays(text: str) -> None:
    assert elide(text) == (text, 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": "é", "a": [1, None, True]}, '{"b":"é","a":[1,null,true]}'),
        ({"t": "\x1b\n\x7f\u2028"}, '{"t":"\\u001b\\n\x7f\u2028"}'),
        ({"n": 1e16, "m": 1.0, "t": "1e+16"}, '{"n":1e16,"m":1.0,"t":"1e+16"}'),
        ({"n": 10**40}, '{"n":' + str(10**40) + "}"),
        ({"t": "\ud83d"}, '{"t":"\ufffd"}'),
    ],
)
def test_arguments_as_compact_json(value: Any, expected: str) -> None:
    assert compact_json(value) == expected


@pytest.mark.parametrize(
    ("cwd", "expected"),
    [
        ("/home/u/llama.cpp é_x", "-home-u-llama-cpp---x"),
        (r"C:\Users\d\dev", "C--Users-d-dev"),
        ("  /a ", "-a"),
        ("/", None),
        ("", None),
    ],
)
def test_folders_munged(cwd: str, expected: str | None) -> None:
    assert munge(cwd) == expected


def test_a_transcript_without_a_folder_is_named_after_its_own() -> None:
    path = Path("/home/u/.claude/projects/-home-u-dev/s.jsonl")
    assert workdir_of("/home/u/other", path) == "-home-u-other"
    assert workdir_of(None, path) == "-home-u-dev"
    assert workdir_of("/", Path("/tmp/some-dir/s.jsonl")) == "some-dir"
    assert workdir_of(None, PureWindowsPath(r"C:\u\projects\C--u-dev\s.jsonl")) == "C--u-dev"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("git@github.com:ada/tidepool.git", "ada/tidepool"),
        ("https://github.com/ada/tidepool", "ada/tidepool"),
        ("https://user:secret@github.com/ada/tidepool.git/", "ada/tidepool"),
        ("ssh://git@host:2222/group/sub/tidepool.git", "sub/tidepool"),
        ("https://huggingface.co/datasets/ada/notes", "ada/notes"),
        ("https://host/only", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_repositories_of_remotes(url: str, expected: str | None) -> None:
    assert repo_of_remote(url) == expected


def test_our_own_questions_are_known_by_their_opening() -> None:
    assert ours.is_own_question(f"  {ours.ASK_OPENING} Why?")
    assert not ours.is_own_question(f"what does '{ours.ASK_OPENING}' mean?")
