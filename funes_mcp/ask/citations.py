"""What an answer cites, against the passages it was given. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from funes_mcp.ask.model import Checked, Passage
from funes_mcp.ask.prompt import DECLINED

#: Square brackets that could hold citations: no link's text, no index into an array, no footnote's colon.
_BRACKETS: Final = re.compile(r"(?<![\w\]!])\[([^\[\]\n]{1,400})\](?![(:])|(?<=\])\[([^\[\]\n]{1,400})\](?![(:])")
_ITEM: Final = re.compile(r"[\s,;]+(?:and\s+)?")
#: An id with a passage's number, or one that looks like a session's: eight hex digits or more, a time.
_NUMBERED: Final = re.compile(r"(?P<name>[0-9A-Za-z][\w:-]{5,120})\.(?P<number>\d{1,3})")
_IDLIKE: Final = re.compile(r"[0-9a-f]{8}[0-9a-f-]*|\d{4}-\d\d-\d\dT[\w-]+|\d{8}_\d{6}\w*")
_UUID: Final = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)

_FENCE: Final = re.compile(r"^ {0,3}(?:```|~~~).*?(?:^ {0,3}(?:```|~~~)[^\S\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_PARAGRAPH: Final = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+•]|\d{1,3}[.)])\s)")
#: Shorter paragraphs are headings and the like.
_CLAIM_CHARS: Final = 40
_SHOWN_CHARS: Final = 60


def check(answer: str, passages: Sequence[Passage]) -> Checked:
    """Look up all citations of an answer.

    A citation is a passage's tag, `[session.number]`, or the beginning of a session's id, which stands for all
    passages of that session. Whole session ids in running text are looked at as well; those that some passage
    mentions are no citations.
    """
    sources: dict[str, Passage] = {}
    unknown: dict[str, None] = {}
    prose = _FENCE.sub("", answer)
    for cited in _cited(prose):
        known = _passages_of(cited, passages)
        if known is None:
            continue
        if not known:
            unknown[cited] = None
        sources |= {passage.tag: passage for passage in known}
    bare = _BRACKETS.sub("", prose)
    for match in _UUID.finditer(bare):
        cited = match.group()
        known = [p for p in passages if p.session == cited.lower()]
        sources |= {passage.tag: passage for passage in known}
        if not known and not any(cited in p.text or cited == p.turn for p in passages):
            unknown[cited] = None
    declined = is_declined(answer)
    return Checked(
        declined=declined,
        sources=tuple(sources.values()),
        unknown=tuple(unknown),
        unsourced=() if declined else tuple(_unsourced(prose, passages)),
    )


def is_declined(answer: str) -> bool:
    """Whether an answer begins by saying that the passages do not answer."""
    plain = re.sub(r"[*_`\"'“”>#]", "", answer).strip().lower()
    return plain.startswith(DECLINED.lower().rstrip("."))


def _cited(text: str) -> Iterator[str]:
    for match in _BRACKETS.finditer(text):
        for item in _ITEM.split((match[1] or match[2]).strip()):
            yield item.strip("`*")


def _passages_of(cited: str, passages: Sequence[Passage]) -> list[Passage] | None:
    """The passages that a citation means: none when it is wrong, None when it is no citation at all."""
    for passage in passages:
        if cited == passage.tag:
            return [passage]
    names = {passage.session: passage.tag.rpartition(".")[0] for passage in passages}
    session = [p for p in passages if len(cited) >= len(names[p.session]) and p.session.startswith(cited)]
    if session:
        return session
    numbered = _NUMBERED.fullmatch(cited)
    if numbered:
        number = int(numbered["number"])
        whole = [p for at, p in enumerate(passages, 1) if at == number and p.session.startswith(numbered["name"])]
        # Only what looks like an id is a wrong citation; `[example.1]` may be a file.
        return whole or ([] if _IDLIKE.fullmatch(numbered["name"]) or numbered["name"] in names.values() else None)
    return [] if _IDLIKE.fullmatch(cited) else None


def _unsourced(text: str, passages: Sequence[Passage]) -> Iterator[str]:
    """Beginnings of paragraphs and list items that make a claim and cite no passage."""
    for part in _PARAGRAPH.split(text):
        plain = " ".join(part.split())
        if len(plain) < _CLAIM_CHARS or plain.startswith("#") or plain.endswith(":"):
            continue
        if not any(_passages_of(cited, passages) for cited in _cited(plain)):
            yield plain if len(plain) <= _SHOWN_CHARS else plain[:_SHOWN_CHARS].rstrip() + " …"
