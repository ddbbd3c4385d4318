"""Cuts text into the words whose meanings are added up: BERT's words, with identifiers taken apart.

BERT's pre-tokeniser splits at white space and punctuation, lower-cases, strips accents, and makes a word of every
CJK character. The same is done here with one regular expression, several times faster than a full tokeniser, and
`CommandStatusErr` or `target_ref` become their parts, which BERT's pieces would cut at random places.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# The blocks that BERT treats as ideographs (google-research/bert, tokenization.py, _is_chinese_char).
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f"
_ASCII_TOKEN = re.compile(r"[A-Za-z0-9_]+")
_TOKEN = re.compile(f"[{_CJK}]|[^\\W{_CJK}]+")
_PART = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+")
_OPAQUE = re.compile(r"(?=.*[0-9])[0-9a-f]{7,}|.{41,}", re.DOTALL)
_SHORTEST_OPAQUE = 7
# What no ASCII token holds is a space; what is not ASCII stays, to be looked at by itself: where ASCII alone shows that
# a token ends, it ends in any text.
_ROUGH: Final = bytes(b if b >= 128 or chr(b).isalnum() or b == ord("_") else 32 for b in range(256))
_MAX_TOKEN = 128
_MAX_PARTS = 16
_SHREDDED = 16
_MAX_PIECES = 16


def tokens(text: str) -> list[str]:
    """Runs of letters, digits and underscores, as written; each CJK ideograph alone. Order and repeats are kept."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text)
    # Composed first: a combining accent is no word character and would cut the word in two.
    return _TOKEN.findall(unicodedata.normalize("NFC", text))


def token_bytes(text: str) -> list[bytes]:
    """The tokens of a text in UTF-8, as `tokens` gives them; of ASCII several times faster."""
    rough = text.encode("utf-8", "surrogatepass").translate(_ROUGH).split()
    if text.isascii():
        return rough
    found: list[bytes] = []
    for piece in rough:
        if piece.isascii():
            found.append(piece)
        else:
            found += [token.encode() for token in tokens(piece.decode("utf-8", "surrogatepass"))]
    return found


def parts(token: str) -> tuple[str, ...]:
    """The words within a token, lower-cased and without accents.

    `CommandStatusErr` gives command, status, err; `HTTPServer_v2` gives http, server, v2. A token of more than
    128 characters is no identifier and gives nothing, nor does a longish one whose parts are
    shreds of a few characters (base64, random ids). Of more than 16 parts only the first 16 count.
    """
    if len(token) > _MAX_TOKEN:
        return ()
    if token.isascii():
        if token.islower() and "_" not in token:
            return (token,)
        found = _PART.findall(token)
        if len(token) >= _SHREDDED and len(token) < 3.5 * len(found):
            return ()
        return tuple([part.lower() for part in found[:_MAX_PARTS]])
    return tuple(
        bare
        for piece in token.split("_")[:_MAX_PARTS]
        if (bare := "".join(c for c in unicodedata.normalize("NFD", piece.lower()) if unicodedata.category(c) != "Mn"))
    )


def is_opaque(word: str) -> bool:
    """Whether a word has no meaning beyond being itself: a hash, a long number, a run of over 40 characters."""
    return len(word) >= _SHORTEST_OPAQUE and _OPAQUE.fullmatch(word) is not None


def split(word: str, pieces: dict[str, int]) -> list[int]:
    """A word's pieces by greedy longest match, as BERT's WordPiece; a character it does not know is passed over."""
    whole = pieces.get(word)
    if whole is not None:
        return [whole]
    ids: list[int] = []
    start = 0
    while start < len(word) and len(ids) < _MAX_PIECES:
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in pieces:
                ids.append(pieces[piece])
                start = end
                break
        else:
            start += 1
    return ids
