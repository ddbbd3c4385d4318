"""Credentials that the structure around them gives away: URLs, headers, cookies, commands, manifests, key files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from funes_mcp.redaction.named import BLANK, QUOTE, decoded, is_basic
from funes_mcp.redaction.spans import BY_STRUCTURE, Span
from funes_mcp.redaction.tokens import starts_value
from funes_mcp.redaction.values import is_hex, is_passphrase, is_password, is_standin, is_token, is_uuid, looks_random

#: Where a command may begin: not inside a word, unless that is an escaped line end.
_EDGE: Final = rb"(?:(?<![\w-])|(?<=\\[nrt]))"


@cache
def _url() -> re.Pattern[bytes]:
    return re.compile(
        rb":(?:\\?/){2}(?P<user>[^\s:/@\"'`<>\\?#]{0,200})"
        rb"(?::(?P<password>[^\s@\"'`<>\\]{1,300}?(?:@[^\s@\"'`<>\\/:.]{0,60}?)?))?@(?=[\w.\[{$%-]|\\u)"
    )


def find_in_urls(text: bytes) -> Iterator[Span]:
    """Passwords, and tokens in the place of a user's name, in `scheme://user:password@host`."""
    for match in _url().finditer(text):
        if not text[match.start() - 1 : match.start()].isalnum():
            continue
        password, user = match["password"], match["user"]
        if password is not None:
            slash = password.find(b"/")
            if slash >= 0 and password[:slash].isdigit():  # host:port/path@…
                continue
            if len(password) >= 5 and password != user and not is_standin(password):
                if len(password) >= 6 or not password.isalpha():
                    yield Span(*match.span("password"), "url-password", BY_STRUCTURE)
                continue
        if len(user) >= 20 and looks_random(user, 16) and not is_standin(user) and not is_uuid(user):
            yield Span(*match.span("user"), "url-token", BY_STRUCTURE)


@cache
def _credentials() -> re.Pattern[bytes]:
    return re.compile(rb"(?:[ \t]{1,4}|%20|\+)([a-z0-9._~+/=-]{12,4096})")


def find_bearers(text: bytes, low: bytes) -> Iterator[Span]:
    """`Bearer` and `Basic` with what follows them, wherever they stand."""
    for word in (b"bearer", b"basic"):
        at = low.find(word)
        while at >= 0:
            at += len(word)
            match = _credentials().match(low, at)
            if match is not None:
                start, end = match.span(1)
                value = text[start:end].rstrip(b".")
                if is_token(value, least=16) if word == b"bearer" else is_basic(value):
                    yield Span(start, start + len(value), "authorization", BY_STRUCTURE)
            at = low.find(word, at)


@cache
def _cookies() -> re.Pattern[bytes]:
    return re.compile(
        rb"(?:"
        + _EDGE
        + rb"(?:set-)?cookie"
        + QUOTE
        + rb"?"
        + BLANK
        + rb"{0,4}[:=,]"
        + BLANK
        + rb"{0,4}(?:"
        + QUOTE
        + rb")?"
        rb"|(?:--cookie|\s-b)[ =]{0,3}[\"']?)(?P<v>[^\r\n\"'`]{12,4096})"
    )


@cache
def _cookie_pair() -> re.Pattern[bytes]:
    return re.compile(rb"(?P<name>[\w.$-]{1,80})=(?P<v>[^;\s,\\]{12,4096})")


@cache
def _cookie_jar() -> re.Pattern[bytes]:
    tab = rb"(?:\t|\\{1,4}t)"
    return re.compile(
        rb"(?:true|false)" + tab + rb"/[^\s\\]{0,80}" + tab + rb"(?:true|false)" + tab + rb"\d{1,12}" + tab
        + rb"[\w.-]{1,80}" + tab + rb"(?P<v>[^\s\\]{12,4096})"
    )  # fmt: skip


def find_cookies(text: bytes, low: bytes) -> Iterator[Span]:
    """Values of cookies that are long enough to be a session's: in headers, commands, and cookie jars."""
    for match in _cookies().finditer(low):
        for pair in _cookie_pair().finditer(low, *match.span("v")):
            start, end = pair.span("v")
            value = text[start:end]
            telling = any(w in pair["name"] for w in (b"sess", b"sid", b"auth", b"token", b"jwt", b"remember"))
            if is_token(value, least=12 if telling else 20, uuid=telling, digest=telling):
                yield Span(start, end, "cookie", BY_STRUCTURE)
    for match in _cookie_jar().finditer(low):
        start, end = match.span("v")
        if is_token(text[start:end], least=16, uuid=True):
            yield Span(start, end, "cookie", BY_STRUCTURE)


_BLANKS: Final = BLANK + rb"{1,4}"
_BARE_ARGUMENT: Final = rb"[^\s\"'`\\;|&]{6,200}"

#: Commands and files that give a password in a way of their own: what a text must hold for it (the first part
#: is looked for once for all), and the pattern. The group is the password.
_FLAGS: Final[tuple[tuple[bytes, bytes, bytes], ...]] = (
    (b" -u", b"curl", rb"curl\b[^\n]{0,400}?\s-u[ =]?[\"'\\]{0,3}[^\s:\"'\\]{1,100}:(@)"),
    (b"-user", b"curl", rb"curl\b[^\n]{0,400}?\s--(?:proxy-)?user[ =]?[\"'\\]{0,3}[^\s:\"'\\]{1,100}:(@)"),
    (b" -p", b"mysql", rb"mysql(?:dump|admin|import)?\b[^\n]{0,300}?\s-p[\"'\\]{0,3}(@)"),
    (b" -p", b"mariadb", rb"mariadb(?:-dump)?\b[^\n]{0,300}?\s-p[\"'\\]{0,3}(@)"),
    (b" -p", b"sshpass", rb"sshpass\s+-p\s?[\"'\\]{0,3}(@)"),
    (b" -p", b" login", rb"(?:docker|podman|registry|oc|skopeo|acr)\s+login\b[^\n]{0,300}?\s-p\s+[\"'\\]{0,3}(@)"),
    (b" -a ", b"redis-cli", rb"redis-cli\b[^\n]{0,300}?\s-a\s+[\"'\\]{0,3}(@)"),
    (b" -n ", b"ssh-keygen", rb"ssh-keygen\b[^\n]{0,300}?\s-n\s+[\"'\\]{0,3}(@)"),
    (b" -s", b"sudo -s", rb"echo\s+(?:-n\s+)?[\"'\\]{0,3}(@)[\"'\\]{0,3}\s*\|\s*sudo\s+-s"),
)  # fmt: skip
_PASSES: Final[tuple[tuple[bytes, bytes, bytes], ...]] = (
    (b"pass", b"-stdin", rb"echo\s+(?:-n\s+)?[\"'\\]{0,3}(@)[\"'\\]{0,3}\s*\|[^\n|]{0,80}--password-stdin"),
    (b"pass", b"chpasswd", rb"(?:echo\s+|printf\s+|<<<\s*)[\"'\\]{0,3}\w+:(@)"),
    (b"pass", b"htpasswd", rb"htpasswd\s+-\w*b\w*\s+(?:\S+\s+)?\S+\s+[\"'\\]{0,3}(@)"),
    (
        b"pass",
        b"machine",
        rb"machine" + _BLANKS + rb"\S{1,200}?" + _BLANKS + rb"(?:login" + _BLANKS + rb"\S{1,200}?" + _BLANKS
        + rb")?password" + _BLANKS + rb"(@)",
    ),
)  # fmt: skip
_OTHERS: Final[tuple[tuple[bytes, bytes, bytes], ...]] = (
    (b"identified", b"by", rb"identified\s+(?:with\s+\S+\s+)?by\s+\\{0,3}[\"']([^\"'\\\n]{6,200})"),
    (b":5432:", b":", rb":5432:[\w*-]{1,64}:[\w.*@-]{1,64}:(@)(?=\s|\\+n|\Z)"),
    (b"auth=(", b",", rb"auth=\(\s*[\"'\\]{1,4}[^\"'\\\n]{1,80}[\"'\\]{1,4}\s*,\s*[\"'\\]{1,4}(@)"),
)  # fmt: skip

_Commands = tuple[tuple[bytes, tuple[tuple[bytes, re.Pattern[bytes]], ...]], ...]


@cache
def _commands(table: tuple[tuple[bytes, bytes, bytes], ...]) -> _Commands:
    hints: dict[bytes, list[tuple[bytes, re.Pattern[bytes]]]] = {}
    for first, second, pattern in table:
        whole = pattern.replace(b"(@)", b"(" + _BARE_ARGUMENT + b")")
        hints.setdefault(first, []).append((second, re.compile(whole)))
    return tuple((first, tuple(patterns)) for first, patterns in hints.items())


def find_in_commands(text: bytes, low: bytes) -> Iterator[Span]:
    """Passwords given to commands, in `.netrc` and in `.pgpass`."""
    if b" -" in low:
        yield from _in_commands(text, low, _commands(_FLAGS))
    if b"pass" in low:
        yield from _in_commands(text, low, _commands(_PASSES))
    yield from _in_commands(text, low, _commands(_OTHERS))


def _in_commands(text: bytes, low: bytes, commands: _Commands) -> Iterator[Span]:
    for first, patterns in commands:
        if first not in low:
            continue
        for second, pattern in patterns:
            if second not in low:
                continue
            for match in pattern.finditer(low):
                start, end = match.span(1)
                value = text[start:end].rstrip(b")}],")
                if match[0][:1].isalpha() and not starts_value(text, match.start()):
                    continue
                if is_password(value, sure=True) or is_token(value, least=12, uuid=True) or is_passphrase(value):
                    yield Span(start, start + len(value), "password", BY_STRUCTURE)


@cache
def _kubernetes() -> re.Pattern[bytes]:
    return re.compile(rb"kind" + QUOTE + rb"?:[ \t]*(?:" + QUOTE + rb")?secret\b(?!\w)")


@cache
def _kubernetes_data() -> re.Pattern[bytes]:
    return re.compile(_EDGE + rb"(?:data|stringdata)(?:" + QUOTE + rb")?:[ \t]*\{?(?=" + BLANK + rb"|\\{0,7}\")")


@cache
def _kubernetes_pair() -> re.Pattern[bytes]:
    between = rb"(?:" + BLANK + rb"|[,+|>]|\d{1,5}(?=\s)|\d{0,5}\xe2\x86\x92)*"
    quote = rb"(?:" + QUOTE + rb")?"
    return re.compile(
        between
        + quote
        + rb"[a-z_][\w.-]{0,100}"
        + quote
        + rb":[ \t]*"
        + quote
        + rb"(?P<v>[^\s\"'`\\{},]{1,4096})"
        + quote
    )


def find_in_kubernetes(text: bytes, low: bytes) -> Iterator[Span]:
    """Values under `data` and `stringData` of a Kubernetes secret."""
    done = 0
    for secret in _kubernetes().finditer(low):
        if secret.end() + 1500 < done:  # well within what was just looked at
            continue
        area = (max(0, secret.start() - 2000), min(len(low), secret.end() + 2000))
        done = area[1]
        for data in _kubernetes_data().finditer(low, *area):
            at = data.end()
            while (pair := _kubernetes_pair().match(low, at, area[1])) is not None:
                at = pair.end()
                start, end = pair.span("v")
                value = text[start:end]
                content = decoded(value)
                plain = content if content is not None and content.isascii() else value
                if pair[0].lstrip().startswith((b"kind", b"apiversion", b"type", b"metadata", b"name")):
                    break
                if len(value) >= 8 and not is_standin(plain) and not plain.isdigit():
                    yield Span(start, end, "kubernetes-secret", BY_STRUCTURE)


@cache
def _jwk() -> re.Pattern[bytes]:
    return re.compile(rb"\\{0,7}\"(?:d|p|q|dp|dq|qi|k)\\{0,7}\"\s*:\s*\\{0,7}\"(?P<v>[A-Za-z0-9_-]{20,1400})\\{0,7}\"")


@cache
def _encoded_key() -> re.Pattern[bytes]:
    return re.compile(rb"LS0tLS1CRUdJTi[A-Za-z0-9+/]{40,20000}={0,2}")


@cache
def _mnemonic() -> re.Pattern[bytes]:
    return re.compile(
        rb"(?:mnemonic|seed[ _-]?(?:phrase|words)|recovery[ _-]?phrase|secret[ _-]?phrase)[\"'`*]{0,3}"
        rb"(?:[ \t]+is)?[:=\s\"'`\\]{1,8}(?P<v>(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8})"
    )


def find_encoded_keys(text: bytes, low: bytes) -> Iterator[Span]:
    """Private keys in other clothes: base64 of PEM, and JSON web keys."""
    if b"LS0tLS1CRUdJTi" in text:
        for match in _encoded_key().finditer(text):
            head = decoded(match[0][:96]) or b""
            if b"PRIVATE KEY" in head:
                yield Span(*match.span(), "private-key", BY_STRUCTURE)
    if b'"kty' in low or b'kty\\"' in low:
        for match in _jwk().finditer(text):
            if looks_random(match["v"], 16):
                yield Span(*match.span("v"), "private-key", BY_STRUCTURE)


def find_seed_phrases(low: bytes) -> Iterator[Span]:
    """The twelve to twenty-four words that a wallet is made from."""
    for match in _mnemonic().finditer(low):
        if len(set(match["v"].split())) >= 9:
            yield Span(*match.span("v"), "seed-phrase", BY_STRUCTURE)


@cache
def _aws_id() -> re.Pattern[bytes]:
    return re.compile(rb"(?:AKIA|ASIA)[A-Z2-7]{16}")


@cache
def _forty() -> re.Pattern[bytes]:
    return re.compile(rb"(?<![A-Za-z0-9/+=_.-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_.-])")


def find_aws_secrets(text: bytes) -> Iterator[Span]:
    """Forty characters of base64 close to an AWS access key id: its secret."""
    for match in _aws_id().finditer(text):
        for secret in _forty().finditer(text, max(0, match.start() - 300), match.end() + 300):
            value = secret[0]
            if not is_hex(value) and looks_random(value, 24) and not is_standin(value):
                yield Span(*secret.span(), "aws-secret-key", BY_STRUCTURE)
