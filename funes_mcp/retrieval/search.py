"""From a question to ranked passages: candidates, fusion, reranking, recency, fold, neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from funes_mcp.memory.model import Chunk, Filter, Passage
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.times import UNDATED
from funes_mcp.models import Hit, Neighbor
from funes_mcp.retrieval import rank
from funes_mcp.retrieval.rank import Weights

if TYPE_CHECKING:
    from funes_mcp.inference.protocols import Embedder, Reranker

#: How many passages each leg (words, vectors) brings for each one that the reranker reads.
LEG_FACTOR = 4

#: Characters of a neighbouring turn that are shown beside a hit.
NEIGHBOR_CHARS = 160


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a memory, with all names resolved.

    Attributes:
        text: As typed.
        where: Which chunks may answer.
        k, candidates, neighbors, half_life: See `models.RecallRequest`.
        now: Unix milliseconds.
    """

    text: str
    where: Filter
    k: int
    candidates: int
    neighbors: int
    half_life: float
    now: int


def search(
    reader: MemoryReader,
    embedder: Embedder | None,
    reranker: Reranker | None,
    question: Question,
    weights: Weights | None = None,
) -> tuple[Hit, ...]:
    """The passages that answer best, best first; none when neither words nor vectors find anything.

    Without an embedder the words decide alone, without a reranker the first stage does.

    Raises:
        FunesError: When a leg of the search fails; a failed search is never an empty answer.
    """
    weights = weights or Weights()
    keys, scores = _candidates(reader, embedder, question, weights)
    if not keys:
        return ()
    passages = reader.passages(keys)
    chunks = [passage.chunk for passage in passages]
    if len(chunks) != len(keys):  # a writer removed rows in between
        here = {chunk.key for chunk in chunks}
        scores = scores[[key in here for key in keys]]
        keys = [chunk.key for chunk in chunks]
        if not keys:
            return ()
    if reranker is not None and len(keys) > 1:
        texts = [_in_context(passage) for passage in passages]
        scores = rank.blend(scores, reranker.scores(question.text, texts), weights.rerank)
    meta = reader.meta(keys)
    scores = rank.by_type(scores, meta.block_type, weights.tools)
    scores = rank.by_session(scores, meta.session, weights.decay)
    fresh = rank.recency(meta.ts, question.now, question.half_life, UNDATED)
    scores = rank.boosted(scores, fresh, weights.recency)
    best = _fold([chunks[i] for i in rank.ordered(scores, meta.ts, keys)], question.k)
    by_key = {key: float(score) for key, score in zip(keys, scores.tolist(), strict=True)}
    return tuple(
        Hit(
            chunk=chunk,
            score=min(1.0, max(0.0, by_key[chunk.key])),
            neighbors=_neighbors(reader, chunk, question.neighbors),
            also_in=reader.also_in(chunk),
            folded=folded,
        )
        for chunk, folded in best
    )


def _candidates(
    reader: MemoryReader, embedder: Embedder | None, question: Question, weights: Weights
) -> tuple[list[int], rank.Scores]:
    """The union of both legs, scored by the weighted sum of their normalised scores, cut to what is reranked."""
    import numpy as np

    depth = max(question.candidates, question.k)
    words = {s.key: s.score for s in reader.lexical(question.text, question.where, depth * LEG_FACTOR)}
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
    scores = rank.by_type(scores, meta.block_type, weights.tools)
    top = rank.ordered(scores, meta.ts, keys)[:depth]
    return [keys[i] for i in top], scores[top]


def _in_context(passage: Passage) -> str:
    """What the reranker reads. What was said is read with its neighbours, as it often answers or is answered."""
    if passage.chunk.block_type in ("tool_use", "tool_result"):
        return passage.chunk.text
    return f"{passage.chunk.text}\n{passage.before}\n{passage.after}"


def _fold(chunks: Sequence[Chunk], k: int) -> list[tuple[Chunk, int]]:
    """The first `k` replies, each by its best chunk, with the number of its other chunks among the candidates."""
    best: dict[tuple[str, str], Chunk] = {}
    others: dict[tuple[str, str], int] = {}
    for chunk in chunks:
        reply = (chunk.session_id, chunk.message_id or chunk.turn_uuid)
        if reply in best:
            others[reply] += 1
        else:
            best[reply], others[reply] = chunk, 0
    return [(chunk, others[reply]) for reply, chunk in list(best.items())[:k]]


def _neighbors(reader: MemoryReader, chunk: Chunk, count: int) -> tuple[Neighbor, ...]:
    """The turns beside a hit, in short, in the order of the conversation."""
    if count <= 0:
        return ()
    before, after = reader.beside(chunk, count)
    return tuple(
        Neighbor(n.role, n.block_type, n.seq, " ".join(n.text.split())[:NEIGHBOR_CHARS]) for n in (*before, *after)
    )
