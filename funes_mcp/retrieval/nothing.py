"""Why a search found nothing, for the one who asked: an answer without passages must not leave them guessing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from funes_mcp.memory import terms
from funes_mcp.memory.model import Filter
from funes_mcp.memory.reader import MemoryReader

#: Characters of what was typed for a filter that are repeated.
_SHOWN = 60


def reason(reader: MemoryReader, question: str, where: Filter, typed: Mapping[str, str | None], *, judged: bool) -> str:
    """A sentence, or "" when there is nothing to say beyond the judgement of what was found.

    Args:
        typed: By the names of `Filter`'s fields, what the person wrote.
        judged: Whether passages were found, and none of them was relevant enough.
    """
    if not reader.chunks:
        return "the memory holds no passages yet" if reader.is_empty else "the word index holds none of the passages"
    if not judged and where != Filter() and not reader.any_pass(where):
        return _excluded(reader, where, typed)
    if not has_words(question):
        return "there are no words in the question to look for"
    return "" if judged else "no passage has a word of the question" + (" and passes the filter" * (where != Filter()))


def has_words(question: str) -> bool:
    """Whether there is anything in a question that can be looked for: not so in an emoji or an arrow."""
    return bool(terms.question_words(question)) or terms.has_unspaced(question)


def _excluded(reader: MemoryReader, where: Filter, typed: Mapping[str, str | None]) -> str:
    """Which of the filters leave nothing to search."""
    given = {f.name: getattr(where, f.name) for f in fields(where) if getattr(where, f.name) is not None}
    alone = [name for name, value in given.items() if not reader.any_pass(replace(Filter(), **{name: value}))]
    shown = ", ".join(_shown(name, typed.get(name) or str(given[name])) for name in alone or given)
    if len(alone) > 1:
        return f"each of these filters leaves no passage: {shown}"
    return f"{'the filter leaves' if len(alone or given) == 1 else 'these filters together leave'} no passage: {shown}"


def _shown(name: str, value: str) -> str:
    value = value.strip()
    words = name.removesuffix("_id").replace("_", " ")
    return f"{words} {value if len(value) <= _SHOWN else value[:_SHOWN] + '…'}"
