"""The deeper models themselves, on tiny graphs that load as the real ones do."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models_support import tiny_embedder, tiny_reranker, written

from funes_mcp.inference.fastembed_models import (
    CrossEncoderReranker,
    FastEmbedEmbedder,
    described,
    is_certain,
    reading_order,
    windows,
)
from funes_mcp.inference.store import ModelBrokenError, ModelStore, Stored


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ModelStore:
    folder = tmp_path_factory.mktemp("models")
    store = ModelStore(folder / "here")
    for at, (spec, files) in enumerate((tiny_embedder(), tiny_reranker())):
        store.pull(spec, written(files, folder / str(at)))
    return store


def stored(store: ModelStore, name: str) -> Stored:
    found = store.get(f"tiny/{name}")
    assert found is not None
    return found


class Counting:
    """A first reranker that counts shared words."""

    name = "counting"

    def __init__(self) -> None:
        self.read: list[str] = []

    def scores(self, query: str, passages: Sequence[str]) -> Any:
        self.read.extend(passages)
        asked = set(query.split())
        return np.array([len(asked & set(p.split())) / len(asked) for p in passages], np.float32)


def test_vectors_are_of_unit_length_and_do_not_depend_on_their_company(store: ModelStore) -> None:
    embedder = FastEmbedEmbedder(store, stored(store, "embedder"))
    texts = ["the cache was dropped", "", "tide tables " * 300, "why\ud800 retry", "?!", "palette"]
    together = embedder.embed_passages(texts)
    assert together.shape == (6, 16)
    assert together.dtype == np.float32
    assert np.linalg.norm(together, axis=1) == pytest.approx([1, 0, 1, 1, 0, 1], abs=1e-5)
    for text, vector in zip(texts, together, strict=True):
        assert embedder.embed_passages([text])[0] == pytest.approx(vector, abs=1e-5)
    assert embedder.embed_passages([]).shape == (0, 16)


def test_a_question_gets_the_models_instruction_and_a_passage_does_not(store: ModelStore) -> None:
    embedder = FastEmbedEmbedder(store, stored(store, "embedder"))
    assert embedder.embed_query("cache") == pytest.approx(embedder.embed_passages(["why cache"])[0], abs=1e-5)
    assert not embedder.embed_query("...").any()


def test_loading_asks_nobody(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object, **__: object) -> None:
        raise AssertionError("went to the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    FastEmbedEmbedder(store, stored(store, "embedder")).load()
    CrossEncoderReranker(store, stored(store, "cross-encoder"), Counting()).load()


def test_nothing_reaches_stdout(store: ModelStore, capfd: pytest.CaptureFixture[str]) -> None:
    FastEmbedEmbedder(store, stored(store, "embedder")).embed_query("cache")
    CrossEncoderReranker(store, stored(store, "cross-encoder"), Counting()).scores("why", ["cache", "why"])
    assert capfd.readouterr().out == ""


def test_a_model_of_another_width_is_refused(store: ModelStore) -> None:
    right = stored(store, "embedder")
    wrong = replace(right, spec=replace(right.spec, dim=384))
    with pytest.raises(ModelBrokenError, match="gives vectors of 16 numbers, not of 384"):
        FastEmbedEmbedder(store, wrong).load()


def test_a_damaged_model_is_told_in_a_sentence(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models")
    spec, files = tiny_embedder()
    files = {**files, "model.onnx": b"no graph"}
    spec = replace(spec, name="tiny/damaged", files=tuple(replace(file, sha256="") for file in spec.files))
    found = store.pull(spec, written(files, tmp_path / "stick"))
    with pytest.raises(ModelBrokenError, match="tiny/damaged cannot be loaded"):
        FastEmbedEmbedder(store, found).load()


def test_the_part_of_a_passage_that_answers_is_read(store: ModelStore) -> None:
    far = "tide tables " * 150 + "the streaming parser splits quoted newlines " + "palette chart " * 60
    passages = ["summer time offset", far, "upload test flaky"]
    first = Counting()
    reranker = CrossEncoderReranker(store, stored(store, "cross-encoder"), first)
    scores = reranker.scores("why streaming parser quoted newlines", passages)
    assert scores.dtype == np.float32
    assert int(scores.argmax()) == 1
    assert ((scores >= 0) & (scores <= 1)).all()


def test_no_more_is_read_than_the_budget_allows(store: ModelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    import funes_mcp.inference.fastembed_models as module

    read: list[tuple[str, str]] = []
    logits = module._logits
    monkeypatch.setattr(module, "_logits", lambda model, pairs: read.extend(pairs) or logits(model, pairs))
    reranker = CrossEncoderReranker(store, stored(store, "cross-encoder"), Counting(), budget=200)
    reranker.load()
    read.clear()
    passages = [f"the cache was dropped because {word} " * 8 for word in ("tide", "chart", "retry", "code")] * 10
    scores = reranker.scores("why was the cache dropped", passages)
    tokens = sum(reranker._model.token_count([pair]) for pair in read)
    assert 0 < tokens <= 200
    unread = scores[len(read) :]
    assert unread.max() <= scores[: len(read)].min()


def test_when_the_first_stage_is_certain_nothing_is_read(store: ModelStore) -> None:
    first = Counting()
    reranker = CrossEncoderReranker(store, stored(store, "cross-encoder"), first)
    scores = reranker.scores("cache dropped", ["the cache was dropped", "cache", "palette"])
    assert reranker._model is None
    assert scores.tolist() == [1.0, 0.5, 0.0]
    assert is_certain(np.array([0.99, 0.5], np.float32))
    assert not is_certain(np.array([0.99, 0.98], np.float32))
    assert not is_certain(np.array([0.5, 0.99], np.float32))


def test_both_orders_have_a_say_in_what_is_read_first() -> None:
    assert reading_order(np.array([0.1, 0.9, 0.5], np.float32)) == [1, 0, 2]
    assert reading_order(np.zeros(0, np.float32)) == []


@given(st.text(alphabet="ab \n", max_size=3000), st.integers(20, 500), st.integers(5, 250))
def test_windows_cover_the_text(text: str, size: int, stride: int) -> None:
    parts = windows(text, size, min(stride, size))
    at = 0
    for part in parts:
        start = text.find(part, max(0, at - size))
        assert start >= 0
        at = max(at, start + len(part))
    assert all(len(part) <= size + stride // 2 for part in parts)
    assert "".join(parts).count("a") >= text.count("a")


def test_models_that_fastembed_knows_are_found_by_name() -> None:
    reranker = described("jinaai/JINA-reranker-v1-tiny-en")
    assert reranker is not None
    assert (reranker.kind, reranker.name, reranker.pinned) == ("reranker", "jinaai/jina-reranker-v1-tiny-en", False)
    embedder = described("BAAI/bge-small-en-v1.5")
    assert embedder is not None
    assert (embedder.kind, embedder.dim, embedder.repo) == ("embedder", 384, "Qdrant/bge-small-en-v1.5-onnx-Q")
    assert described("no/such-model") is None
