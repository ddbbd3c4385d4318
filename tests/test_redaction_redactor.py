"""What the redactor promises whatever the text: it never fails, repeats itself, and says when it is not sure."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secrets_corpus import KINDS, cases, draw, lookalikes, redactor_of

from funes_mcp.redaction import Redactor, ScannerError

HEX = "0123456789abcdef"
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


@pytest.fixture(scope="module")
def redactor(request: pytest.FixtureRequest) -> Redactor:
    return redactor_of(request.config)


def token(seed: int = 0) -> str:
    """A GitHub token that never was one."""
    return "gh" + "p_" + draw(random.Random(seed), LETTERS, 36)


def password(seed: int = 0) -> str:
    return draw(random.Random(seed), LETTERS, 9) + "#7" + draw(random.Random(seed + 1), LETTERS, 4)


def test_importing_it_loads_no_scanner() -> None:
    code = "import sys, funes_mcp.redaction; print([m for m in sys.modules if 'kingfisher' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_text_without_credentials_is_given_back_as_it_is(redactor: Redactor) -> None:
    text = "Nothing in here but words, a path /srv/shop/app.py:41 and 12 numbers. " * 9
    result = redactor.redact(text)
    assert result.text is text
    assert not result.counts


def test_only_the_value_goes(redactor: Redactor) -> None:
    result = redactor.redact(f"export GITHUB_TOKEN={token()} # for the release job")
    assert result.text == "export GITHUB_TOKEN=[REDACTED:github-token] # for the release job"
    assert dict(result.counts) == {"github-token": 1}


def test_every_place_of_a_value_goes_once_it_is_known(redactor: Redactor) -> None:
    value = draw(random.Random(5), LETTERS, 24)
    text = f"client_secret = '{value}'\nI put {value} into the vault, ({value})."
    result = redactor.redact(text)
    assert value not in result.text
    assert result.counts["secret"] == 3


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_value_behind_an_escaped_line_end_is_found(redactor: Redactor, depth: int) -> None:
    end = "\\" * (2**depth - 1) + "n"
    result = redactor.redact(f"[tool_use Write] first{end}{token()}{end}last")
    assert result.text == f"[tool_use Write] first{end}[REDACTED:github-token]{end}last"


@pytest.mark.parametrize("symbol", list("+/$!@#%^&*=?~"))
def test_a_password_may_hold_any_symbol(redactor: Redactor, symbol: str) -> None:
    value = f"aB3x9{symbol}Q7z{symbol}k2W"
    for text in (f'password = "{value}"', f"DB_PASSWORD={value}", f'{{"password":"{value}"}}'):
        assert value not in redactor.redact(text).text


def test_a_quote_inside_a_password_does_not_end_it(redactor: Redactor) -> None:
    result = redactor.redact(r'{"password":"aB3\"x9Q7z\"k2W","user":"ada"}')
    assert result.text == '{"password":"[REDACTED:password]","user":"ada"}'


def test_a_commit_id_stays_next_to_a_token(redactor: Redactor) -> None:
    commit = draw(random.Random(1), HEX, 40)
    text = redactor.redact(f"commit {commit}\nGITHUB_TOKEN={token()}\n").text
    assert commit in text
    assert token() not in text


def test_a_private_key_without_its_first_line_is_found(redactor: Redactor) -> None:
    rng = random.Random(2)
    body = "\n".join(draw(rng, LETTERS + "+/", 64) for _ in range(8))
    end = "-----END RSA PRIVATE " + "KEY-----"
    result = redactor.redact(f"tail of the file:\n{body}\n{end}\nbye")
    assert result.text == f"tail of the file:\n[REDACTED:private-key]\n{end}\nbye"


def test_a_certificate_stays(redactor: Redactor) -> None:
    rng = random.Random(3)
    body = "\n".join(draw(rng, LETTERS + "+/", 64) for _ in range(8))
    text = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----"
    assert redactor.redact(text).text == text


def test_the_same_text_gives_the_same_answer(redactor: Redactor) -> None:
    text = f"a {token(1)} b password='{password()}' c {token(2)}"
    assert redactor.redact(text) == redactor.redact(text)
    assert redactor.scan(text) == redactor.scan(text)


def test_findings_are_counted_in_characters(redactor: Redactor) -> None:
    text = f"日本語 🙂 é: {token()} und der Rest"
    (finding,) = redactor.scan(text)
    assert text[finding.start : finding.end] == token()
    assert finding.kind == "github-token"


def test_what_was_found_without_the_library_is_confirmed_only_where_the_library_changes_nothing(
    redactor: Redactor,
) -> None:
    alone = Redactor(library=False)
    changed = 0
    texts = [case.text for case in cases()][::5] + [text for _, text in lookalikes()][::5]
    for text in [*texts, "", "short", "\ud800 no secret in here"]:
        found = redactor.provisional(text)
        assert found == alone.redact(text)
        same = redactor.redact(text) == found
        assert redactor.confirms(text, found) == same
        changed += not same
    assert changed


def test_what_cannot_be_searched_is_not_confirmed(redactor: Redactor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    assert redactor._library is not None
    monkeypatch.setattr(redactor._library, "find", fail)
    text = "nothing but words in here"
    assert not redactor.confirms(text, redactor.provisional(text))
    monkeypatch.undo()
    assert redactor.confirms(text, redactor.provisional(text))


def test_rules_that_load_in_a_thread_are_waited_for() -> None:
    redactor = Redactor(library=False)
    assert not redactor.loading
    redactor.warm_apart()
    assert redactor.redact(f"key {token()}").counts["github-token"] == 1


def test_our_own_detectors_go_on_when_the_library_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kingfisher_sdk", None)
    redactor = Redactor()
    assert redactor.redact(f"key {token()}").counts["github-token"] == 1
    assert redactor.failure is not None
    with pytest.raises(ScannerError):
        redactor.scan("anything at all")


def test_the_gate_is_never_sure_without_the_library() -> None:
    with pytest.raises(ScannerError):
        Redactor(library=False).scan("nothing to see")


def test_the_gate_does_not_wait_for_ever(redactor: Redactor) -> None:
    with pytest.raises(ScannerError):
        redactor.scan("password and token " * 40_000, timeout=1e-9)


def test_a_fault_of_ours_keeps_the_block_back(redactor: Redactor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_data: bytes) -> list[object]:
        raise RecursionError

    monkeypatch.setattr("funes_mcp.redaction.redactor.own_findings", fail)
    result = redactor.redact("password and more")
    assert result.text == "[REDACTED:unsearched-block]"
    assert dict(result.counts) == {"unsearched-block": 1}


FRAGMENTS = st.sampled_from(
    [
        *("password", "token=", "secret: ", "api_key", "pass", "value", "--password ", "is ", "Bearer ", "Cookie: "),
        *("://", "@", ":", '"', "'", "\\", "\\n", '\\"', "=", " ", "\n", "(", ")", ",", "%3D"),
        *("-----BEGIN PRIVATE " + "KEY-----", "-----END PRIVATE " + "KEY-----", "AK" + "IA", "sk" + "-", "eyJ", "$2b$"),
        *("curl -u ", "mysql -p", "machine a password ", "kind: Secret", "data:", "[REDACTED:", "[REDACTED:token]"),
        *("é", "日本", "🙂", "\ud800", "\x00"),
    ]
)
NOISE = st.text(st.characters(codec=None), max_size=12)
VALUES = st.builds(lambda kind, seed: kind.make(random.Random(seed)), st.sampled_from(KINDS), st.integers(0, 9))
TEXTS = st.lists(st.one_of(FRAGMENTS, NOISE, VALUES), max_size=30).map("".join)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_whatever_the_text_nothing_fails_and_one_pass_is_enough(redactor: Redactor, text: str) -> None:
    once = redactor.redact(text)
    assert "unsearched-block" not in once.counts
    assert redactor.redact(once.text).text == once.text
    for finding in redactor.scan(text):
        assert 0 <= finding.start < finding.end <= len(text)


@pytest.mark.parametrize(
    "piece", ["a", "\\", '"', "token ", "://", "-----BEGIN PRIVATE " + "KEY-----", "aB3", "\n", "cookie: a=b; "]
)
def test_a_long_block_of_one_thing_is_read_to_its_end(redactor: Redactor, piece: str) -> None:
    text = piece * (300_000 // len(piece)) + f"\n{token()}\n"
    assert token() not in redactor.redact(text).text


def test_compiled_rules_are_kept_where_asked(tmp_path: Path, redactor: Redactor) -> None:
    assert redactor.failure is None
    assert redactor.compiled
    unused = Redactor(tmp_path / "unused")
    assert unused.failure is None
    assert not unused.compiled
    assert not (tmp_path / "unused").exists()
    assert Redactor(library=False).compiled


def test_tokens_without_a_gap_between_them_all_go(redactor: Redactor) -> None:
    rng = random.Random(4)
    glued = "".join("key" + "-" + draw(rng, HEX, 32) for _ in range(40))
    result = redactor.redact(f"a {glued} b")
    assert result.counts["mailgun-key"] == 40
    assert redactor.redact(result.text).text == result.text


def test_a_value_that_is_cut_inside_a_character_loses_the_whole_character(redactor: Redactor) -> None:
    for shift in range(4):
        text = f"password is {'a' * shift}{token(6)}1#{'𐀀' * 200}"
        result = redactor.redact(text)
        assert "unsearched-block" not in result.counts
        assert token(6) not in result.text
