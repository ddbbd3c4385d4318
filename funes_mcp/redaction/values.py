"""Is this value a credential, a placeholder, a word, or code? Pure; works on UTF-8 bytes.

What is random is told from what is written by people with two measures: how often the kind of character
changes (lower case, capital, digit), and how many letter pairs are pairs that English words are made of.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Final

_SEGMENT: Final = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LETTERS: Final = re.compile(rb"[A-Z]?[a-z]{2,}|[A-Z]{3,}")
_UUID: Final = re.compile(rb"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HEX: Final = re.compile(rb"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")
_DIGEST: Final = re.compile(rb"(?i:sha|md)[-_]?(?:1|5|224|256|384|512)[-:=][A-Za-z0-9+/=_-]+")
_TIME: Final = re.compile(rb"t?\d{4}-\d\d-\d\d(?:[T _-][\d:.,-]+)?(?:Z|[+-]\d\d:?\d\d)?")
_VARIABLE: Final = re.compile(
    rb"\$\{[^}]*\}?|\$\(.*|\$[A-Za-z_]\w*|\$\d|\{\{.*|\{[\w.: ]*\}|%[A-Za-z_]\w*%|%\(?\w*\)?[sdrf]|<[^>]*>?|\[[^\]]*\]?"
    rb"|#\{.*|@[\w.]+@|__\w+__|!\w+ .*|&\w+|\*\w+",
    re.DOTALL,
)
_INTERPOLATED: Final = re.compile(
    rb"\$\{|\{\{|#\{|\$\(|\{[A-Za-z_][\w.\[\]'\"()!:]*\}|\[REDACTED|<[A-Za-z][\w -]*>|\[a-z|\(\?"
)
_STANDIN: Final = re.compile(
    rb"(?i)x{4,}|\*{3,}|\.{3}|\xe2\x80\xa6|\xe2\x80\xa2{2,}|_{6,}|-{6,}|your[-_ ]|[-_ ]your|\byour|my[-_](?:secret|key"
    rb"|token|api|pass)"
    rb"|example|placeholder|change[-_ ]?me|change[-_]?this|replace[-_ ]|redacted|[-_]here\b|insert[-_ ]|dummy|sample"
    rb"|not[-_ ]?a?[-_ ]?real|not[-_ ]a[-_ ]|(?<![a-z])(?:fake|todo)(?![a-z])|deadbeef"
    rb"|(?:0123|1234)56789|abcdefgh|(.)\1{7,}"
)
_CODE: Final = re.compile(
    rb"!?(?:await |new |typeof |not )?[A-Za-z_$][\w$]{0,80}\s?(?:\.\s?[A-Za-z_$(]|\[|\(|::|->|\?\.|\?\?|\|\||&&|!=|==)"
)
_IDENTIFIER: Final = re.compile(rb"[A-Za-z_$][A-Za-z0-9_$]*\Z")
_FILE: Final = re.compile(rb"[\w.@~-]*(?:/[\w.@~-]+)+\.[A-Za-z]{1,5}\d?")
#: Three or more words in lower case, joined: `utf8_general_ci`, `us-east-1-backup`.
_DASHED: Final = re.compile(rb"(?:[a-z]+\d{0,2}[_-]){2,}(?:[a-z]+\d{0,4}|\d{1,4})")
_REFERENCE: Final = re.compile(rb"(?:arn:|op://|vault:|sm://|gs://|s3://|file:|env:|data:|ref\+|ssm:|secretref:)", re.I)
_REAL_SYMBOL: Final = re.compile(rb"[!@#$%^&*+=?~|;,{}()\[\]<>\x80-\xff]")

_COMMON_PAIRS: Final = frozenset(
    zip(
        *[
            iter(
                b"thheineranrendonenatouedhatooritishiesngvestartesemelealnteacorotiriioicneralidecemomurctetsiecelasll"
                b"masegetausshchtrpekeeypawordowappiacutlalodacanososhoeeaiemigiradamabielyayagevotulunmonanidipoprplbl"
                b"brclcrcuupubueimilidiffiforckexepopobodogoolosqurutrsascspsusytsttytuucumviwawewiwhyewsdbhasshixouse"
                b"rsvemakoknirrssiggiiabtbodyfeeffugugruelleprenmusuitusbegamboabajoshmi"
            )
        ]
        * 2,
        strict=False,
    )
)

#: Words that people write where a credential would stand. A value made of nothing else is no credential.
_DUMMIES: Final = frozenset(
    b"""password passwd passphrase passcode pass pwd secret secrets token tokens key keys apikey api auth test tests
    testing tester example sample demo dummy fake mock mocked stub fixture changeme change changed your my me admin
    administrator root user username users guest default foo bar baz qux quux hello world abc xyz qwerty letmein
    hunter postgres postgresql mysql mariadb mongo mongodb redis rabbitmq placeholder redacted here insert
    replace todo none null nil true false undefined string str value val values dev local localhost development prod
    production staging stage super supersecret invalid wrong correct incorrect bad good new old valid expired some this
    is an the real not bearer basic digest secure insecure safe simple strong weak long short very public private
    client server service app application session cookie access refresh login signin signup credential credentials
    encrypted decrypted hashed hash bytes text plain plaintext number int integer bool boolean object array list dict
    any unknown optional required empty missing set unset get env environ environment config settings var variable
    vars param params arg args name id ids type header headers file path url uri host port data json xml yaml toml base
    sha md hs rs aes rsa utf oauth openai anthropic github gitlab google azure aws slack stripe docker npm pypi hf
    one two three first second another other same different temp tmp random generated signing signature jwt sk pk ghp
    live xoxb s3cr3t ssw rd ssword for from with in on of to or and if
    secretkey mysecret mytoken mypassword testpass testtoken testkey testsecret supersecretkey only dont use do
    alice bob charlie carol dave eve john jane doe acme corp company org com net io repo project model input output
    prompt message messages content role system assistant max min total count usage next previous page cursor""".split()
)
_DUMMY_RUN: Final = re.compile(
    rb"(?:super|my|your|test|the|a|new|old|some|this|is|secret|pass|password|word|token|key|api|user|admin|example"
    rb"|fake|dummy|change|me|value|string|dev|prod|local|client|access|auth|db|app|very|long|not|real|please|enter"
    rb"|here|jwt|session|signing|in|for|only|production|do|use)+"
)
#: Digits and signs that people write for letters: `s3cret`, `p@ssw0rd`.
_LEET: Final = bytes.maketrans(b"013457@$!", b"oleastasi")
_SEQUENCES: Final = (
    b"abcdefghijklmnopqrstuvwxyz abcdefabcdef 01234567890123456789 98765432109876543210 qwertyuiop asdfghjkl"
)


def is_uuid(value: bytes) -> bool:
    """Whether the whole value is a UUID."""
    return 34 < len(value) < 40 and _UUID.fullmatch(value.strip(b"(){}")) is not None


def is_hex(value: bytes) -> bool:
    """Whether the whole value is hexadecimal in one case, as digests and commit ids are."""
    return _HEX.fullmatch(value) is not None


def _is_dummy_segment(segment: bytes) -> bool:
    word = segment.lower()
    if word in _DUMMIES:
        return True
    if len(word) >= 3 and (word in _SEQUENCES or len(set(word)) == 1):
        return True
    return len(word) >= 6 and _DUMMY_RUN.fullmatch(word) is not None


@lru_cache(maxsize=4096)
def substance(value: bytes) -> int:
    """How many letters and digits are left when the words people use as stand-ins are taken out."""
    return sum(len(s) for s in _SEGMENT.findall(value) if not _is_dummy_segment(s))


def is_standin(value: bytes) -> bool:
    """Whether the value is a placeholder, a variable, a template, or made of stand-in words only."""
    if _VARIABLE.fullmatch(value) or _INTERPOLATED.search(value) or _STANDIN.search(value):
        return True
    return substance(value) < 5 or substance(value.lower().translate(_LEET)) < 5


def classes(value: bytes) -> int:
    """How many of lower case, capitals, digits and real symbols (not `-_.`) occur."""
    lower, upper = value.lower(), value.upper()
    digit = any(48 <= c <= 57 for c in value)
    return (value != upper) + (value != lower) + digit + (_REAL_SYMBOL.search(value) is not None)


def _pair_share(value: bytes) -> tuple[int, float]:
    pairs = common = 0
    for word in _LETTERS.findall(value):
        low = word.lower()
        pairs += len(low) - 1
        common += sum(pair in _COMMON_PAIRS for pair in pairwise(low))
    return pairs, (common / pairs if pairs else 0.0)


@lru_cache(maxsize=4096)
def looks_random(value: bytes, least: int = 10) -> bool:
    """Whether at least `least` letters and digits of it look drawn by lot and not written by a person."""
    segments = _SEGMENT.findall(value)
    size = sum(map(len, segments))
    if size < least or substance(value) < min(least, 8) or len(set(value)) < 6:
        return False
    if _TIME.fullmatch(value) or _DASHED.fullmatch(value):
        return False
    mean = size / len(segments)
    pairs, share = _pair_share(value)
    digits = any(s.isdigit() for s in segments)
    if size >= 16 and is_hex(value):
        return digits and sum(c >= 65 for c in value) >= 3
    if size >= 20 and digits and mean <= 2.7 and not value.islower():
        return True
    mixed = digits or not (value.islower() or value.isupper())
    if mixed and mean <= 2.3 and (pairs < 8 or share < 0.6):
        return True
    if mixed and mean <= (3.4 if digits else 2.6) and (pairs < 4 or share < 0.5):
        return True
    return pairs >= 8 and share < 0.36 and (digits or size >= 14)


def is_code(value: bytes) -> bool:
    """Whether an unquoted value is an expression: a call, an attribute, an index."""
    return _CODE.match(value) is not None


def is_reference(value: bytes) -> bool:
    """Whether the value names where a credential is kept (a path, a URL, an ARN), or is a digest that says so."""
    if _REFERENCE.match(value) or _DIGEST.match(value) or b"://" in value:
        return True
    if _FILE.fullmatch(value):
        return True
    return value[:1] in b"/~." and value.count(b"/") >= 1 and not looks_random(value, 20)


def is_token(value: bytes, *, least: int = 16, uuid: bool = False, digest: bool = True) -> bool:
    """Whether a value beside a name like `token` or `api_key` is one.

    Args:
        least: The shortest length that is believed.
        uuid: Whether a UUID counts.
        digest: Whether pure hexadecimal as long as a digest counts.
    """
    if not least <= len(value) <= 4096 or b" " in value or is_standin(value) or is_reference(value):
        return False
    if is_uuid(value):
        return uuid
    if not digest and is_hex(value) and len(value) in (32, 40, 56, 64, 96, 128):
        return False
    return looks_random(value, min(least, 12))


def is_password(value: bytes, *, sure: bool) -> bool:
    """Whether a value beside a name like `password` is one.

    Args:
        sure: The value is a literal for certain: quoted, or in an environment file or a shell assignment.
            Anywhere else it may just as well be a word or a name.
    """
    if not 6 <= len(value) <= 256 or is_standin(value) or is_reference(value) or is_uuid(value):
        return False
    if value.count(b" ") >= 2 or value[-1:] == b":" or _TIME.fullmatch(value):
        return False
    kinds = classes(value)
    letters = sum(c in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" for c in value)
    digits = sum(48 <= c <= 57 for c in value)
    symbol = _REAL_SYMBOL.search(value) is not None
    size = len(value)
    if letters == 0:
        return False
    if size >= 8 and looks_random(value, 8):
        return True
    if not sure:
        return size >= 8 and digits > 0 and symbol and not _CODE.search(value) and b" " not in value
    if b" " in value:
        return False
    if kinds >= 3:
        return size >= 8 or (size >= 6 and kinds == 4)
    if kinds == 2:
        return size >= 8 and (digits >= 2 or symbol)
    return False


def is_plain_word_password(value: bytes) -> bool:
    """Whether letters alone, in a place where only a password can stand, are one: long and no stand-in."""
    return len(value) >= 9 and value.isalpha() and not is_standin(value) and substance(value) >= 8


def is_passphrase(value: bytes) -> bool:
    """Whether a value is four or more lower-case words joined by dashes, none of them a stand-in."""
    words = value.split(b"-")
    return (
        len(words) >= 4
        and all(3 <= len(w) <= 12 and w.isalpha() and w.islower() for w in words)
        and not any(_is_dummy_segment(w) for w in words)
    )


def is_identifier(value: bytes) -> bool:
    """Whether the value could be a name in a program."""
    return _IDENTIFIER.match(value) is not None
