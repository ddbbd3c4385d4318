"""What a text is found by, besides its plain words. Pure; the same rules make the index and read a question.

Plain words (letters and digits, lower case, English stems) are cut by the index's own analyzer. This module
adds what that analyzer cannot see: identifiers kept whole, the parts of camelCase names, and pairs of
characters for scripts that put no spaces between words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: Scripts written without spaces: Thai to Myanmar, Tibetan, Khmer; Hangul; kana; Han with its extensions.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff"
    "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}]+")

#: ASCII letters, digits and the marks that paths, modules, versions and options use; everything else is a space.
_NAME_BYTES: Final = (
    bytes(byte if chr(byte).isalnum() or chr(byte) in "_./\\:@+#~-" else 32 for byte in range(128)) + b" " * 128
)
_MARKS: Final = b"_./\\:@+#~-"
_OPTION: Final = b"--"
_PART_BYTES: Final = bytes(byte if byte < 128 and chr(byte).isalnum() else 32 for byte in range(256))

_PATH_MARKS: Final = re.compile(r"[/\\:@#~]+")
_LANGUAGE: Final = re.compile(r"[a-z](?:\+\+|#)")
_CAMEL_PART: Final = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]+", re.ASCII)
_WORD: Final = re.compile(r"[^\W_]+")
_ORDINAL: Final = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm)|[+-]?[\d.,:/-]+")
_INNER_CAPITAL: Final = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]{2}")
_HEX: Final = re.compile(r"[0-9a-f]{7,64}")

#: An identifier longer than this is data, not a name.
_LONGEST: Final = 160

#: A longer run of mixed case is an encoded payload.
_LONGEST_CAMEL: Final = 64

#: Tokens that `Names` keeps before it starts over.
_REMEMBERED: Final = 200_000

#: How many characters of a text are looked at for identifiers; a chunk is far shorter.
_LONGEST_TEXT: Final = 20_000

#: Words that carry no topic in a question. Dropped from questions only, never from what is stored.
# fmt: off
STOP_WORDS: Final = frozenset({
    "a", "about", "above", "after", "again", "against", "all", "also", "am", "an", "and", "any",
    "are", "aren", "as", "at", "be", "because", "been", "before", "being", "below", "between", "both",
    "but", "by", "can", "cannot", "could", "couldn", "d", "did", "didn", "do", "does", "doesn",
    "doing", "don", "down", "during", "each", "few", "for", "from", "further", "had", "hadn", "has",
    "hasn", "have", "haven", "having", "he", "her", "here", "hers", "herself", "him", "himself", "his",
    "how", "i", "if", "in", "into", "is", "isn", "it", "its", "itself", "just", "ll", "m", "me",
    "mightn", "more", "most", "mustn", "my", "myself", "no", "nor", "not", "now", "of", "off", "on",
    "once", "only", "or", "other", "our", "ours", "ourselves", "out", "over", "own", "please", "re",
    "s", "same", "shan", "she", "should", "shouldn", "so", "some", "such", "t", "than", "that", "the",
    "their", "theirs", "them", "themselves", "then", "there", "these", "they", "this", "those",
    "through", "to", "too", "under", "until", "up", "ve", "very", "was", "wasn", "we", "were", "weren",
    "what", "when", "where", "which", "while", "who", "whom", "whose", "why", "will", "with", "won",
    "would", "wouldn", "you", "your", "yours", "yourself", "yourselves",
})
# fmt: on


def has_unspaced(text: str) -> bool:
    """Whether a text holds characters of a script without spaces."""
    return not text.isascii() and _UNSPACED_RUN.search(text) is not None


def bigrams(text: str) -> list[str]:
    """Every two characters that stand beside each other in a run of such a script, and runs of one."""
    pairs: list[str] = []
    for run in _UNSPACED_RUN.findall(text):
        if len(run) == 1:
            pairs.append(run)
        else:
            pairs.extend(run[i : i + 2] for i in range(len(run) - 1))
    return pairs


def without_unspaced(text: str) -> str:
    """A text with such runs made a space, so that Latin words stuck to them stand alone."""
    return _UNSPACED_RUN.sub(" ", text)


class Names:
    """Finds the identifiers in texts. Keeps what it found out about tokens, as they recur: one a task."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._known: dict[bytes, tuple[tuple[str, ...], tuple[str, ...]] | tuple[()]] = {}

    def find(self, text: str) -> tuple[list[str], list[str]]:
        """The identifiers in a text, and the words inside its camelCase names; both lower-cased, each once.

        An identifier holds at least one mark between letters or digits, or letters and digits side by side
        (`E0277`). A path gives itself, itself without a line number, and each of its parts that is itself a
        compound name; a dotted name gives itself and its compound parts; an option of one word (`--chat`) gives
        itself with its dashes. Plain words are not given: the analyzer finds them. `parseHTMLText` gives the
        inner words `parse`, `html` and `text`.

        Works on bytes, where cutting a text at everything but the characters of names is one table look-up:
        this runs for every chunk that is stored.
        """
        known = self._known
        if len(known) > self._remembered:
            known.clear()
        cut = text[:_LONGEST_TEXT].encode("utf-8", "replace").translate(_NAME_BYTES)
        tokens = dict.fromkeys(cut.split())
        looked_up = list(map(known.get, tokens))
        if None in looked_up:
            for token in tokens:
                if token not in known:
                    known[token] = _token(token)
            looked_up = list(map(known.get, tokens))
        whole: dict[str, None] = {}
        inner: dict[str, None] = {}
        for found in filter(None, looked_up):
            for name in found[0]:
                whole[name] = None
            for name in found[1]:
                inner[name] = None
        return list(whole), list(inner)

    def joined(self, text: str) -> tuple[str, str]:
        """The same, each as the index takes it: joined by spaces."""
        whole, inner = self.find(text)
        return " ".join(whole), " ".join(inner)


def names(text: str) -> tuple[list[str], list[str]]:
    """`Names.find` for a single text."""
    return Names().find(text)


def identifiers(question: str) -> list[str]:
    """The identifiers in a question that can only mean themselves, lower-cased; none in plain speech.

    Hyphenated words (`well-known`) are ones only as options (`--dry-run`) or with a digit; names in camel case are.
    """
    found: dict[str, None] = {}
    for name in names(question)[0]:
        plain = name.replace("-", "").isalpha() and not name.startswith("--")
        if (not plain or f"--{name}" in question.lower()) and not _ORDINAL.fullmatch(name):
            found[name] = None
    for word in _WORD.findall(question):
        if _INNER_CAPITAL.search(word) or is_hex(word):
            found[word.lower()] = None
    return list(found)


def abbreviates(digest: str, words: Iterable[str]) -> bool:
    """Whether one of some words is a longer form of a digest, or a shorter one of seven or more digits."""
    return any(word.startswith(digest) or (digest.startswith(word) and is_hex(word)) for word in words)


def _token(token: bytes) -> tuple[tuple[str, ...], tuple[str, ...]] | tuple[()]:
    """The identifiers and inner words of one token; nothing for a plain word."""
    if token.isdigit() or (token.isalpha() and (token.islower() or token.isupper() or token.istitle())):
        return ()
    whole: dict[str, None] = {}
    inner: dict[str, None] = {}
    name = token.strip(_MARKS)
    if token[-1:] in b"+#":
        language = token.decode("ascii").lower().lstrip("-./:")
        if _LANGUAGE.fullmatch(language):
            whole[language] = None
    if name and len(name) <= _LONGEST:
        lowered = name.lower()
        if token.startswith(_OPTION) and name.isalpha():
            whole[(_OPTION + lowered).decode("ascii")] = None
        if not name.isalnum() or _is_code(lowered):
            _whole_and_parts(lowered.decode("ascii"), whole)
        if name != lowered:
            for part in name.translate(_PART_BYTES).split():
                if not (part.islower() or part.isupper() or part.istitle()):
                    _camel(part.decode("ascii"), inner)
    return (tuple(whole), tuple(inner)) if whole or inner else ()


def _is_code(name: bytes) -> bool:
    """Whether letters and digits stand together: an error code, a version, a digest."""
    return not name.isalpha() and not name.isdigit()


def _camel(name: str, inner: dict[str, None]) -> None:
    if len(name) > _LONGEST_CAMEL:
        return
    found = _CAMEL_PART.findall(name)
    if len(found) > 1:
        for part in found:
            if len(part) > 1:
                inner[part.lower()] = None


def _whole_and_parts(name: str, seen: dict[str, None]) -> None:
    seen[name] = None
    parts = _PATH_MARKS.split(name)
    if len(parts) > 1:
        if parts[-1].isdigit():
            shorter = name[: -len(parts[-1])].rstrip(":#@~")
            while shorter and shorter[-1] not in "/\\" and not shorter[-1].isalnum():
                shorter = shorter[:-1]
            if _is_compound(shorter):
                seen[shorter] = None
        for part in parts:
            if _is_compound(part):
                seen[part] = None
                _dotted(part, seen)
    else:
        _dotted(name, seen)


def _dotted(name: str, seen: dict[str, None]) -> None:
    if "." in name:
        for part in name.split("."):
            if _is_compound(part):
                seen[part] = None


def _is_compound(name: str) -> bool:
    return "_" in name or "-" in name or "." in name or "/" in name


def question_words(text: str) -> list[str]:
    """The words of a question, lower-cased, each once: without stop words unless nothing else is there."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))
    return [word for word in words if word not in STOP_WORDS] or words


def is_hex(word: str) -> bool:
    """Whether a word looks like a (shortened) digest: seven or more hex digits, with a digit among them."""
    return _HEX.fullmatch(word) is not None and any(c.isdigit() for c in word)
