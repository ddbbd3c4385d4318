"""Text as it may be stored: no lone surrogates, no NUL, no images; and names derived from paths and URLs."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, Final

import orjson

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_NOT_ALPHANUMERIC: Final = re.compile("[^A-Za-z0-9]")

#: Base64 in one piece is left out from this length on. Keys, tokens and certificates are shorter.
BASE64_RUN: Final = 1024
_DATA_URI: Final = re.compile(r"(data:[\w.+/-]{1,100}(?:;[\w.=-]{1,60}){0,4};base64,)([A-Za-z0-9+/=_-]{64,})")
_ONE_PIECE: Final = re.compile(rf"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{BASE64_RUN},}}={{0,2}}")
#: Base64 wrapped as `base64` and MIME wrap it. 64 full lines: a private key has at most 52.
_WRAPPED: Final = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{60,76}(?:\r?\n|\\r\\n|\\n)){64,}(?:[A-Za-z0-9+/]{1,76}={0,2})?"
)
#: Every how many characters a text is looked at to find out cheaply that it holds no long run. Short enough
#: to meet any run 32 characters before its end, and prime, so that it cannot meet line ends only.
_PROBE_STEP: Final = 953
_PROBE: Final = re.compile(r"[A-Za-z0-9+/_=-]{32}|[A-Za-z0-9+/]{1,32}(?:\r?\n|\\r\\n|\\n)[A-Za-z0-9+/]{32}")


def clean(text: str) -> str:
    """The text with lone surrogates and NUL replaced by U+FFFD. Keeps its length."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
    return text


def clean_tree(value: Any) -> Any:
    """A JSON value with `clean` applied to every string in it, keys included."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_tree(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean_tree(item) for key, item in value.items()}
    return value


def elide(text: str) -> tuple[str, int]:
    """The text without image and other base64 payloads, and how many were left out.

    A visible marker says how many characters stood there. Left out are `data:…;base64,` URIs from 64
    characters of payload on, unbroken base64 from `BASE64_RUN` characters on, and base64 wrapped over 64
    lines or more. Words, digests, hexadecimal dumps, keys and tokens of ordinary length stay.
    """
    found = 0

    def uri(match: re.Match[str]) -> str:
        nonlocal found
        found += 1
        return f"{match[1]}[{len(match[2])} characters left out]"

    def piece(match: re.Match[str]) -> str:
        nonlocal found
        run = match[0]
        if not _looks_random(run):
            return run
        found += 1
        return f"[base64: {len(run)} characters left out]"

    if ";base64," in text:
        text = _DATA_URI.sub(uri, text)
    if len(text) >= BASE64_RUN and _may_hold_a_run(text):
        text = _ONE_PIECE.sub(piece, text)
        text = _WRAPPED.sub(piece, text)
    return text, found


def _may_hold_a_run(text: str) -> bool:
    match = _PROBE.match
    return any(match(text, at) for at in range(0, len(text), _PROBE_STEP))


def _looks_random(run: str) -> bool:
    """Whether a run is encoded bytes and not a ruler, a hexadecimal dump or one long word."""
    sample = run[:1024]
    return (
        len(set(sample)) >= 24
        and any(c.isupper() for c in sample)
        and any(c.islower() for c in sample)
        and any(c.isdigit() for c in sample)
    )


_EXPONENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(\de)\+(\d)')


def compact_json(value: Any) -> str:
    """A value as compact JSON: keys in source order, literal UTF-8, control characters as `\\u00xx`.

    Numbers look as Rust's serde_json prints them (`1e16`, not `1e+16`).
    """
    try:
        text = orjson.dumps(value).decode()
        return _EXPONENT.sub(lambda m: m[1] + m[2] if m[1] else m[0], text) if "e+" in text else text
    except (TypeError, ValueError, RecursionError):
        import json

        try:
            return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        except (TypeError, ValueError, RecursionError):
            return "{}"


def munge(cwd: str) -> str | None:
    """A working directory as the `workdir` column names it: everything outside `[A-Za-z0-9]` becomes `-`.

    None when nothing but dashes is left.
    """
    munged = _NOT_ALPHANUMERIC.sub("-", cwd.strip())
    return munged if munged.strip("-") else None


def workdir_of(cwd: str | None, path: PurePath) -> str:
    """The `workdir` column of a transcript: its recorded directory munged, else named after its folder.

    The fallback is the part of `path` behind a folder called `projects`, else the name of its folder.
    """
    munged = munge(cwd) if cwd else None
    if munged:
        return munged
    parts = path.parts
    if "projects" in parts[:-1]:
        return parts[parts.index("projects") + 1]
    return path.parent.name


def repo_of_remote(url: str) -> str | None:
    """`owner/name` of a git remote: the last two parts of its path, without `.git`. None if it has no two.

    Reads `https://host/owner/name`, `ssh://git@host:22/owner/name.git` and `git@host:owner/name.git`. A folder on this
    machine (`file:///srv/git/name`, `C:/git/name`) is nobody's.
    """
    trimmed = url.strip().rstrip("/").removesuffix(".git")
    scheme, found, rest = trimmed.partition("://")
    if found:
        host, found, path = rest.partition("/")
    else:
        host, found, path = scheme.partition(":")
        host = "" if len(host) == 1 else host  # a drive
    if not host:
        return None
    parts = [part for part in path.split("/") if part] if found else []
    return "/".join(parts[-2:]) if len(parts) >= 2 else None
