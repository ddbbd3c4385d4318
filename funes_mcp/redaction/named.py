"""Values that are credentials because of the name beside them: assignments, flags, headers, URLs, files of keys.

Patterns read text as it is stored, where quotes and line ends may be escaped once or more, so every quote may
have backslashes before it and every blank may be an escape. Patterns run on a copy in lower case of the same
length; values are taken from the text itself.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from funes_mcp.redaction.spans import BY_NAME, Span
from funes_mcp.redaction.tokens import starts_value
from funes_mcp.redaction.values import (
    is_code,
    is_hex,
    is_identifier,
    is_passphrase,
    is_password,
    is_plain_word_password,
    is_standin,
    is_token,
    looks_random,
)

#: A blank, or a line end or tab that is escaped.
BLANK: Final = rb"(?:\s|\\{1,4}[nrt])"
#: A quote of any kind, escaped any number of times.
QUOTE: Final = rb"\\{0,7}[\"'`]"

_KEY_BYTES: Final = b"abcdefghijklmnopqrstuvwxyz0123456789_.-$"
_NAME_LENGTH: Final = 64

#: What may stand before `key` to make it a key that opens something.
_OPENERS: Final = (
    b"api", b"access", b"secret", b"private", b"signing", b"signature", b"encryption", b"encrypt", b"auth", b"account",
    b"master", b"service", b"deploy", b"license", b"storage", b"subscription", b"admin", b"session", b"webhook",
    b"hmac", b"jwt", b"app", b"application", b"client", b"consumer", b"sharedaccess", b"ssh", b"write", b"root",
    b"security", b"functions", b"host", b"ingest", b"management", b"cookie", b"crypt", b"personal", b"developer",
)  # fmt: skip

#: Names that hold one of the words but name no credential.
_HARMLESS: Final = re.compile(
    rb"public|publish|next_?token|sync_?token|primary|foreign|partition|sort_?key|cache|page|contin|pagina|cursor|idempot|dedup|max_|min_|num_"
    rb"|total|count|_?id$|usage|pad_|eos|bos|unk_|mask|stop|special|fingerprint|checksum|etag|cancel|symbol|keyboard"
    rb"|hotkey|shortcut|placeholder|author(?!iz)|keywords?|lookup|tokenizer|bypass|compass|surpass|monkey|turkey|hash$"
    rb"|anti_?forgery|translation|i18n|label|error|message|regex|pattern|field|selector|class"
)

_SESSION_COOKIE: Final = re.compile(rb"jsessionid|phpsessid|asp\.net_sessionid|connect\.sid")

#: What stands before an assignment that begins a line of an environment file or a shell command.
_SURE_PLACES: Final = re.compile(
    rb"(?:\A|[\n;&|({]|\\{1,4}[nrt])[\s+>-]*(?:(?:\d+[\s:|]|\xe2\x86\x92)\s*)?"
    rb"(?:(?:export|set|setx|env|declare\s+-x|-e|--env)\s+)?(?:[a-z_]\w*=\S*\s+)*\Z"
)

#: The words that are looked for, and the family each belongs to.
_WORDS: Final = (
    (b"pass", "pass"),
    (b"pwd", "pass"),
    (b"secret", "secret"),
    (b"token", "token"),
    (b"key", "key"),
    (b"auth", "auth"),
    (b"sess", "session"),
)


#: The word for a password in other scripts, where upper and lower case are not told apart by `bytes.lower`.
_FOREIGN_WORDS: Final = tuple(
    (word.encode(), "pass")
    for word in ("contraseña", "пароль", "Пароль", "密码", "密碼", "パスワード", "비밀번호", "contrasenya", "mật khẩu")
)


@cache
def _rest(flags: bool) -> re.Pattern[bytes]:
    """What follows a word of `_WORDS` up to the value: the rest of the name, and an operator.

    With `flags` a blank is an operator, too; without, only before a literal, as SQL has it.
    """
    more = rb"(?P<more>w(?:or)?[dt]|phrase|code|in|out|orization|entication|ion[_.-]?(?:id)?|[_.-]?id|[_-]?data)?"
    suffix = (
        rb"s?(?:[_-]?(?:base|value|plain|plaintext|string|prod|dev|staging|stage|live|base64|b64|raw|old|new|\d{1,2}))?"
    )
    closing = rb"(?:\\{0,7}[\"'`\]*]){0,4}(?:" + BLANK + rb"?\[[^\]\n\\]{0,24}\])?"
    operator = (
        rb"(?P<op>[ \t]{0,8}(?:=>|:=|\?=|\+=|={1,3}|!==?|:(?!:)|\xef\xbc\x9a|<<<|->)(?:[ \t]|\\{1,4}t){0,8}"
        rb"|,?(?:"
        + BLANK
        + rb"|[+>]|\d{1,5}(?=\s|\xe2)|\xe2\x86\x92){1,40}(?:"
        + QUOTE
        + rb")?value(?:"
        + QUOTE
        + rb")?[ \t]{0,4}[:=][ \t]{0,4}"
        rb"|,(?:" + QUOTE + rb")value(?:" + QUOTE + rb"):[ \t]{0,4}"
        rb"|,[ \t]{0,4}(?=\\{0,7}[\"'`])|\((?=[\"'`]|\\{1,7}[\"'`])|>(?=[^\s<>&])|[ \t]{0,3}\|[ \t]{0,3}"
        rb"|[ \t]{1,4}(?:is|was|to|as)(?:[ \t]now)?(?:[ \t]set to)?:?[ \t]{1,4}"
        + (rb"|[ \t]{1,3})" if flags else rb"|[ \t](?=[\"']|\\{1,7}[\"']))")
    )
    return re.compile(more + rb"(?P<suffix>" + suffix + rb")" + closing + operator)


@cache
def _quoted() -> re.Pattern[bytes]:
    return re.compile(rb"(?:[bBfFrRuU]{1,2}(?=\\{0,7}[\"']))?(\\{0,7})([\"'`])")


@cache
def _bare() -> re.Pattern[bytes]:
    return re.compile(rb"(?:[^\s\"'`<>\\]|\\(?![nrtbfu\"'`\\/\s])){1,512}")


@cache
def _scheme() -> re.Pattern[bytes]:
    return re.compile(rb"(?:bearer|basic|token|apikey|api-key|bot|digest|negotiate|splunk|key|genie ?key)[ \t]+")


#: The longest literal that is looked at, in bytes.
_LONGEST_LITERAL: Final = 2048
_LINE_END: Final = re.compile(rb"\n|\\+n")
_CLOSES: Final = re.compile(rb"(\\{0,7}[\"'`])")


def quoted_value(text: bytes, at: int) -> tuple[int, int, int] | None:
    """The literal that begins with a quote at `at`: start and end of its content, and the end behind it.

    The literal ends at the same quote escaped as often as the first one; a quote escaped more often belongs
    to the content, and one that is escaped less often, or a line end, closes what the literal stands in.
    """
    opening = _quoted().match(text, at)
    if opening is None:
        return None
    depth, quote = len(opening[1]), opening[2]
    start = at = opening.end()
    line_end = _LINE_END.search(text, start, start + _LONGEST_LITERAL)
    stop = line_end.start() if line_end is not None else min(len(text), start + _LONGEST_LITERAL)
    while True:
        found = text.find(quote, at, stop)
        if found < 0:
            closing = _CLOSES.match(text, line_end.end()) if line_end is not None else None
            if closing is not None and closing[0] == opening[1] + quote:  # a literal that ends with a line end
                return start, stop, closing.end()
            return start, stop, stop
        back = found
        while back > start and text[back - 1] == 92:
            back -= 1
        if found - back <= depth:
            return start, back, found + 1
        at = found + 1


def find_named(text: bytes, low: bytes, runs: Sequence[tuple[int, int]]) -> Iterator[Span]:
    """Every value that its name makes a credential.

    Args:
        low: The text in lower case (ASCII only).
        runs: What `tokens.runs_of` found; only such values are looked for in sentences.
    """
    rest = _rest(b" -" in low)
    for word, family in _WORDS if low.isascii() else _WORDS + _FOREIGN_WORDS:
        at = low.find(word)
        while at >= 0:
            after = at + len(word)
            if family == "auth" and low.startswith(b"or", after) and not low.startswith(b"oriz", after):  # author
                at = low.find(word, after)
                continue
            match = rest.match(low, after)
            span = None
            if match is not None:
                span = _assigned(text, low, at, word, family, match)
            if span is None and (family == "pass" or _run_near(runs, after)):
                span = _told(text, low, at, word, family)
            if span is not None:
                yield span
            at = low.find(word, after)


def _name_start(low: bytes, at: int) -> int:
    left = low[max(0, at - _NAME_LENGTH) : at]
    start = at - (len(left) - len(left.rstrip(_KEY_BYTES)))
    # an escaped line end in front of a name is no part of it
    if start < at and start > 0 and low[start - 1] == 92 and low[start] in b"nrt":
        start += 1
    return start


def _assigned(text: bytes, low: bytes, at: int, word: bytes, family: str, match: re.Match[bytes]) -> Span | None:
    begin = _name_start(low, at)
    before = low[begin:at]
    operator = match["op"]
    op = operator.strip()
    flag = False
    if not op:  # a blank: the value of a flag, or a literal as SQL has it
        flag = before[:1] == b"-"
        if not flag and (family != "pass" or text[match.end() : match.end() + 1] not in (b'"', b"'", b"\\")):
            return None
    more = match["more"] or b""
    end_of_name = match.end("more") if more else at + len(word)
    name = low[begin:end_of_name]
    if _in_an_arn(low, begin) or (_HARMLESS.search(name) and not _SESSION_COOKIE.match(name)):
        return None
    if family == "session" and not more and word == b"sess":
        return None
    if more in (b"in", b"out", b"code", b"phrase") and family != "pass":
        return None
    upper = text[begin:end_of_name].isupper()
    if word + more in (b"pass", b"auth", b"pwd", b"passin", b"passout"):
        camel = text[at : at + 1].isupper() and not upper
        if before and before[-1:] not in b"_.-$" and not camel:
            return None
    opener = False
    if family == "key":
        stem = before.rstrip(b"_-.")
        if not before and low[max(0, at - 1) : at] == b" ":
            stem = low[max(0, at - 24) : at].rstrip(b" ")
        opener = stem.endswith(_OPENERS) or stem.endswith(b"shared access") or more.endswith(b"data")
        query = not before and low[begin - 1 : begin] in (b"?", b"&")
        if not opener and not query and not (upper and before.endswith(b"_")):
            return None
    start = match.end()
    value = quoted_value(text, start)
    quoted = value is not None
    if value is None:
        bare = _bare().match(text, start)
        if bare is None:
            return None
        start, end = bare.span()
    else:
        start, end, behind = value
        if _joins(text[start:end], closed=behind > end):
            return None
    scheme = _scheme().match(low, start, end if quoted else start + 16)
    if scheme is not None:
        start = scheme.end()
        if not quoted:
            bare = _bare().match(text, start)
            if bare is None:
                return None
            end = bare.end()
    env = flag
    if word == b"pass" and not more and (op == b"(" or (not before and not quoted and op not in (b"=", b""))):
        return None
    if low[begin - 2 : begin] == b"::" and is_hex(text[start:end]):  # the name of a type, and its digest
        return None
    if not quoted:
        query = begin > 0 and low[begin - 1] in b"?&"
        tight = operator in (b"=", b"?=", b":=", b"+=") and not query
        plain = text[end - 1 : end] not in (b",", b")") and not is_code(text[start:end])
        env = flag or (tight and (upper or before[:2] == b"--" or (plain and _in_a_sure_place(low, begin))))
        end = _end_of_bare(text, start, end, query=query, env=env, op=op, fragment=family != "pass")
    found = text[start:end]
    if found.startswith(b"pass:"):
        start, found = start + 5, found[5:]
    found = found.rstrip(b"\\")
    end = start + len(found)
    if len(found) < 6 or (flag and found[:1] == b"-"):
        return None
    prose = op[:2] in (b"is", b"wa", b"to", b"as")
    if not _believed(found, family, name, sure=(quoted or env) and not prose, env=env, opener=opener):
        return None
    return Span(start, end, _kind(family, name, more), BY_NAME)


def _in_an_arn(low: bytes, begin: int) -> bool:
    return low[begin - 1 : begin] == b":" and b"arn:" in low[max(0, begin - 100) : begin]


def _joins(value: bytes, *, closed: bool) -> bool:
    """Whether what looks like a literal is the code between two: `"password=" + x + "&"`."""
    if not closed:
        return not is_token(value, least=16)
    return value[:1] in b" +.,)" and value[-1:] in b" +.,("


def _in_a_sure_place(low: bytes, begin: int) -> bool:
    return _SURE_PLACES.search(low, max(0, begin - 120), begin) is not None


def _end_of_bare(text: bytes, start: int, end: int, *, query: bool, env: bool, op: bytes, fragment: bool) -> int:
    value = text[start:end]
    stops = (b"&#" if fragment else b"&") if query else b"" if env else b";,"
    cut = min((i for i in (value.find(bytes([c])) for c in stops) if i >= 0), default=len(value))
    if env and b";" in value and value.count(b"=") and b";" in value.split(b"=", 1)[0]:
        cut = value.find(b";")
    value = value[:cut]
    if op == b"|":
        value = value.rstrip(b"|")
    return start + len(value.rstrip(b")]},;:." if not env else b";"))


def _believed(value: bytes, family: str, name: bytes, *, sure: bool, env: bool, opener: bool) -> bool:
    if not sure and is_code(value):
        return False
    if family == "pass":
        if is_password(value, sure=sure):
            return sure or not is_identifier(value) or looks_random(value, 8)
        return sure and (is_passphrase(value) or (env and is_plain_word_password(value)))
    if family == "session":
        return is_token(value, least=16)
    if family == "key":
        return is_token(value, least=16, uuid=opener, digest=opener)
    if family == "secret":
        if is_token(value, least=12, uuid=True):
            return True
        return sure and is_password(value, sure=True) and not is_identifier(value)
    if family == "auth":
        header = b"authoriz" in name
        return is_basic(value) or is_token(value, least=16, uuid=header, digest=header)
    strict = any(word in name for word in (b"access", b"auth", b"api", b"bearer", b"refresh", b"secret", b"bot"))
    return is_token(value, least=12 if strict and sure else 16, uuid=strict)


def is_basic(value: bytes) -> bool:
    """Whether the value is `user:password` in base64, and the password no stand-in."""
    content = decoded(value)
    if content is None or b":" not in content:
        return False
    password = content.split(b":", 1)[1]
    return len(password) >= 4 and not is_standin(password)


def decoded(value: bytes) -> bytes | None:
    if len(value) < 8 or len(value) > 4096:
        return None
    try:
        return b64decode(value + b"=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _kind(family: str, name: bytes, more: bytes) -> str:
    if family == "pass":
        return "passphrase" if more == b"phrase" else "password"
    if family == "key":
        if b"private" in name or more:
            return "private-key"
        return "access-key" if b"access" in name else "api-key" if b"api" in name else "key"
    return {"auth": "authorization", "session": "session-id"}.get(family, family)


@cache
def _words_after() -> re.Pattern[bytes]:
    return re.compile(rb"[^\s\"'`<>\\]{10,512}")


_DIGIT: Final = re.compile(rb"[0-9]")

#: How far behind a word its value may stand in a sentence, in bytes.
_REACH: Final = 200
_WHOLE: Final = re.compile(rb"(?:w(?:or)?[dt]|phrase|code|e)?s?(?![a-z])")
_NAMED_ID: Final = re.compile(rb"\b(?:id|ids|guid|uuid|sha|hash|commit|digest|thumbprint|version)\b")

#: What may stand between a word for a credential and its value in a sentence.
_BETWEEN: Final = re.compile(rb"[a-z]{0,8}[\\\"'`*]{0,4}[\w\s.,'*`\x80-\xff:=()>-]{0,90}[\\\"'`*]{0,6}")


def _run_near(runs: Sequence[tuple[int, int]], after: int) -> bool:
    """Whether a run of `runs` begins soon behind `after`."""
    nearest = bisect_left(runs, (after, 0))
    return nearest < len(runs) and runs[nearest][0] < after + _REACH


def _told(text: bytes, low: bytes, at: int, word: bytes, family: str) -> Span | None:
    """A value that looks drawn by lot, soon after a word for a credential, on the same line."""
    after = at + len(word)
    if _DIGIT.search(text, after, after + _REACH) is None or low[at - 1 : at].isalnum():
        return None
    if _WHOLE.match(low, after) is None or (word == b"pass" and low[at - 1 : at] == b"-"):  # passage, multi-pass
        return None
    begin = _name_start(low, at)
    if _HARMLESS.search(low, begin, at + len(word)) or _in_an_arn(low, begin):
        return None
    if family == "key" and not low[max(0, at - 24) : at].rstrip(b" -_").endswith(_OPENERS):
        return None
    if family in ("session", "auth"):
        return None
    ends = (low.find(end, after, after + _REACH) for end in (b"\n", b"\\n"))
    limit = min((end for end in ends if end >= 0), default=after + _REACH)
    for match in _words_after().finditer(text, after, limit):
        start = match.start()
        value = match[0].rstrip(b".,;:!?)]}*")
        if not _BETWEEN.fullmatch(low, after, start) or _NAMED_ID.search(low, after, start):
            return None
        if not starts_value(text, start) or is_code(value) or is_hex(value) or value[:1] == b"-":
            continue
        if family == "pass":
            drawn = len(value) <= 64 and is_password(value, sure=False) and looks_random(value, 9)
            good = drawn and _DIGIT.search(value) is not None
        else:
            good = len(value) >= 20 and is_token(value, least=20, digest=False) and value[:1] != b"/"
        if good:
            kind = "password" if family == "pass" else "token"
            return Span(start, start + len(value), kind, BY_NAME)
    return None
