"""From a question to ranked passages: candidates, fusion, reranking, sessions, dates, relevance, fold, neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from funes_mcp.inference.protocols import Embedder, Reranker
from funes_mcp.memory.model import Chunk, Filter, Passage
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.times import UNDATED
from funes_mcp.models import Hit, Neighbor
from funes_mcp.retrieval import period, rank, relevance
from funes_mcp.retrieval.rank import Weights

if TYPE_CHECKING:
    from funes_mcp.inference.maxsim import Interaction

#: How many passages each leg (words, vectors) brings for each one that the reranker reads.
LEG_FACTOR = 4

#: Passages of a session that share so much of their words (Jaccard) are shown once.
ALIKE = 0.9

#: Characters of a neighbouring turn that are shown beside a hit.
NEIGHBOR_CHARS = 160


#: Texts that differ more in length than this are not compared.
_AS_LONG = 0.8
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a memory, with all names resolved.

    Attributes:
        text: As typed.
        where: Which chunks may answer.
        k, candidates, neighbors, half_life: See `models.RecallRequest`.
        now: Unix milliseconds.
        least: The relevance that the best passage must have, or None for `relevance.FLOOR`; when it is given, every
            passage must have it.
    """

    text: str
    where: Filter
    k: int
    candidates: int
    neighbors: int
    half_life: float
    now: int
    least: float | None = None


class LateInteraction(Reranker, Protocol):
    """A reranker that compares words with words, on a scale that is the same for all questions."""

    def interact(self, query: str, passages: Sequence[str]) -> Interaction: ...


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to.

    Attributes:
        hits: Best first.
        refused: The relevance of the best passage when that was too low for any to be returned, else None.
    """

    hits: tuple[Hit, ...]
    refused: float | None = None


def search(
    reader: MemoryReader,
    embedder: Embedder | None,
    reranker: Reranker | None,
    question: Question,
    weights: Weights | None = None,
    *,
    late: LateInteraction | None = None,
) -> Found:
    """The passages that answer best, best first; none when neither words nor vectors find anything that is near.

    Without an embedder the words decide alone, without a reranker the first stage does.

    Args:
        late: Judges how relevant the hits are. Without it shared words alone do.

    Raises:
        FunesError: When a leg of the search fails; a failed search is never an empty answer.
    """
    weights = weights or Weights()
    stretches, topic = period.named(question.text, datetime.fromtimestamp(question.now / 1000).astimezone())
    keys, first, prior = _candidates(reader, embedder, question, stretches, weights)
    passages = reader.passages(keys)
    if len(passages) != len(keys):  # a writer removed rows in between
        here = {passage.chunk.key for passage in passages}
        left = [key in here for key in keys]
        keys, first, prior = [key for key in keys if key in here], first[left], prior[left]
    if not keys:
        return Found(())
    texts = [_in_context(passage) for passage in passages]
    interaction = None if late is None else late.interact(topic, texts)
    if reranker is None:
        scores = first
    elif interaction is not None and reranker is late:
        scores = rank.blend(first, interaction.scores, weights.rerank)
    else:
        scores = rank.blend(first, reranker.scores(question.text, texts), weights.rerank)
    scores = scores * prior
    meta = reader.meta(keys)
    covered = None if interaction is None or reranker is None else _coverage(interaction, prior)
    lead = rank.as_lead(meta.block_type, weights.summaries)
    scores = rank.by_session(scores, meta.session, weights.decay, weights.coverage, covered, lead)
    fresh = rank.recency(meta.ts, question.now, question.half_life, UNDATED)
    scores = rank.boosted(scores, fresh, weights.recency)
    best = _fold(passages, rank.ordered(scores, meta.ts, keys), question.k)
    shown = [passages[one.place] for one in best]
    met = None if interaction is None else interaction.scores[[one.place for one in best]].tolist()
    judged = relevance.of(reader.evidence(topic, shown), met)
    floor = relevance.FLOOR if question.least is None else question.least
    if max(judged, default=0.0) < floor:
        return Found((), max(judged, default=0.0))
    return Found(
        tuple(
            Hit(
                chunk=passages[one.place].chunk,
                score=min(1.0, max(0.0, float(scores[one.place]))),
                neighbors=_neighbors(reader, passages[one.place].chunk, question.neighbors),
                also_in=reader.also_in(passages[one.place].chunk),
                folded=one.reply,
                alike=one.alike,
                relevance=relevant,
            )
            for one, relevant in zip(best, judged, strict=True)
            if question.least is None or relevant >= question.least
        )
    )


def _candidates(
    reader: MemoryReader,
    embedder: Embedder | None,
    question: Question,
    stretches: tuple[period.Stretch, ...],
    weights: Weights,
) -> tuple[list[int], rank.Scores, rank.Scores]:
    """The union of both legs, cut to what is reranked: keys, fused scores, and what these are to be multiplied by.

    Fused is the weighted sum of the legs' normalised scores. The factors are those of the passages' kinds, of the
    identifiers that they hold exactly, and of the days that the question names.
    """
    import numpy as np

    depth = max(question.candidates, question.k)
    words = {s.key: s.score for s in reader.lexical(question.text, question.where, depth * LEG_FACTOR)}
    for found in reader.lexical(question.text, question.where, depth, exactly=True):
        words.setdefault(found.key, found.score)
    vector = embedder.embed_query(question.text) if embedder is not None else None
    if vector is None or not vector.any():
        keys = list(words)
        scores = rank.by_greatest(np.fromiter(words.values(), np.float32, len(words)))
    else:
        near = reader.dense(vector, question.where, depth * LEG_FACTOR)
        keys = list(words) + [s.key for s in near if s.key not in words]
        lexical = rank.by_greatest(np.array([words.get(key, 0.0) for key in keys], np.float32))
        cosine = reader.vectors(keys) @ vector if keys else np.zeros(0, np.float32)
        share = weights.vectors / (1.0 + weights.vectors)
        scores = rank.blend(lexical, rank.unit_range(cosine), share)
    meta = reader.meta(keys)
    prior = rank.by_type(meta.block_type, weights.tools)
    held = reader.held(question.text, keys)
    if held.any():
        prior = rank.boosted(rank.blend(prior, np.ones_like(prior), held), held, weights.named)
    if stretches:
        prior = rank.boosted(prior, period.closeness(meta.ts, stretches), weights.dated)
    top = rank.ordered(scores * prior, meta.ts, keys)[:depth]
    return [keys[i] for i in top], scores[top], prior[top]


def _coverage(interaction: Interaction, prior: rank.Scores) -> Callable[[list[int]], float]:
    """How much of the question some passages meet between them, lowered or raised as the first of them is."""
    return lambda places: interaction.covered(places) * float(prior[places[0]])


def _in_context(passage: Passage) -> str:
    """What the reranker reads. What was said is read with its neighbours, as it often answers or is answered."""
    if passage.chunk.block_type in ("tool_use", "tool_result"):
        return passage.chunk.text
    return f"{passage.chunk.text}\n{passage.before}\n{passage.after}"


@dataclass(slots=True)
class _Kept:
    """A passage of the answer: its place among the candidates, and how many others it stands for."""

    place: int
    text: str
    reply: int = 0
    alike: int = 0


def _fold(passages: Sequence[Passage], order: Sequence[int], k: int) -> list[_Kept]:
    """The first `k` passages, without further chunks of the same reply and near-copies in the same session."""
    kept: list[_Kept] = []
    replies: dict[tuple[str, str], _Kept] = {}
    sessions: dict[str, list[_Kept]] = {}
    for place in order:
        chunk = passages[place].chunk
        reply = (chunk.session_id, chunk.message_id or chunk.turn_uuid)
        if reply in replies:
            replies[reply].reply += 1
            continue
        near = sessions.setdefault(chunk.session_id, [])
        twin = next((one for one in near if _alike(one.text, chunk.text)), None)
        if twin is not None:
            twin.alike += 1
        elif len(kept) < k:
            replies[reply] = _Kept(place, chunk.text)
            kept.append(replies[reply])
            near.append(replies[reply])
    return kept


def _alike(one: str, other: str) -> bool:
    """Whether two texts have nearly the same words."""
    if min(len(one), len(other)) < _AS_LONG * max(len(one), len(other)):
        return False
    ours, theirs = set(_WORD.findall(one.lower())), set(_WORD.findall(other.lower()))
    return len(ours & theirs) >= ALIKE * len(ours | theirs)


def _neighbors(reader: MemoryReader, chunk: Chunk, count: int) -> tuple[Neighbor, ...]:
    """The turns beside a hit, in short, in the order of the conversation."""
    if count <= 0:
        return ()
    before, after = reader.beside(chunk, count)
    return tuple(
        Neighbor(n.role, n.block_type, n.seq, " ".join(n.text.split())[:NEIGHBOR_CHARS]) for n in (*before, *after)
    )
