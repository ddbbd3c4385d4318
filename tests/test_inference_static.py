"""The bundled embedder: what the memory relies on, whatever the text."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from funes_mcp.inference import bundle, static
from funes_mcp.inference.protocols import Embedder
from funes_mcp.inference.static import StaticEmbedder
from funes_mcp.inference.table import WordTable
from funes_mcp.inference.words import is_opaque, parts, tokens

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=300)


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def test_it_is_an_embedder_with_a_stamp(embedder: StaticEmbedder) -> None:
    as_protocol: Embedder = embedder
    assert as_protocol.name.startswith("funes/static-minilm-")
    assert as_protocol.embed_query("hello").shape == (as_protocol.dim,)


def test_near_meanings_are_near(embedder: StaticEmbedder) -> None:
    query = embedder.embed_query("fix the failing tests")
    near, far = embedder.embed_passages(["Repaired a broken unit test", "The recipe needs two cups of flour"])
    assert query @ near > query @ far + 0.1


def test_an_identifier_is_near_its_words(embedder: StaticEmbedder) -> None:
    spaced, camel, snake = embedder.embed_passages(
        ["command status error", "CommandStatusError", "command_status_error"]
    )
    assert spaced @ camel == pytest.approx(1, abs=1e-5)
    assert spaced @ snake == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("text", ["", " ", "?!", "🎉", "\ud800", "x" * 1000, "b2f87a4e"])
def test_a_text_without_words_is_zero(embedder: StaticEmbedder, text: str) -> None:
    assert not embedder.embed_query(text).any()


@pytest.mark.parametrize("text", ["a", "7", "日本語", "e\u0301", "\ud800 word", "nul \x00", "слово", "a b " * 5000])
def test_a_text_with_words_has_unit_length(embedder: StaticEmbedder, text: str) -> None:
    assert np.linalg.norm(embedder.embed_query(text)) == pytest.approx(1, abs=1e-5)


def test_no_texts_give_no_rows(embedder: StaticEmbedder) -> None:
    assert embedder.embed_passages([]).shape == (0, embedder.dim)


@given(st.lists(ANY_TEXT, max_size=8))
def test_any_text_gives_a_unit_row_or_zeros(texts: list[str]) -> None:
    rows = StaticEmbedder().embed_passages(texts)
    assert rows.dtype == np.float32
    assert rows.shape == (len(texts), bundle.load().dim)
    norms = np.linalg.norm(rows, axis=1)
    assert np.all((norms == 0) | (np.abs(norms - 1) < 1e-4))


@settings(deadline=None)
@given(st.lists(ANY_TEXT, max_size=6), st.lists(ANY_TEXT, max_size=6))
def test_a_vector_depends_on_its_text_alone(before: list[str], texts: list[str]) -> None:
    """An incremental run must store the bytes that a full run would, whatever was embedded before or beside."""
    used = StaticEmbedder()
    used.embed_passages(before)
    together = used.embed_passages(texts)
    for text, row in zip(texts, together, strict=True):
        assert StaticEmbedder().embed_query(text).tobytes() == row.tobytes()


def test_forgetting_words_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"word number {i} beside another{i} thing, seen in pull request {i * 7}" for i in range(300)]
    expected = StaticEmbedder().embed_passages(texts)
    monkeypatch.setattr(static, "_TABLE_ROWS", 50)
    assert StaticEmbedder().embed_passages(texts).tobytes() == expected.tobytes()


@given(st.lists(st.text(alphabet="ab AB_9é日.", max_size=30), max_size=6), st.booleans())
def test_words_are_counted_text_by_text_in_the_order_in_which_they_stand(texts: list[str], opaque: bool) -> None:
    table = WordTable(bundle.load(), capacity=1000, opaque=opaque)
    table.count(["b 9 warm"])  # rows of its own, so that order by row is another than by place
    counted = table.count(texts)
    found = [[w for token in tokens(text) for w in parts(token) if opaque or not is_opaque(w)] for text in texts]
    rows = {word: table.count([word]).rows[0] for words in found for word in words}
    start = 0
    for words, size in zip(found, counted.sizes, strict=True):
        expected = Counter(rows[word] for word in words)
        span = slice(start, start + size)
        assert list(zip(counted.rows[span], counted.counts[span], strict=True)) == list(expected.items())
        start += size
    assert start == len(counted.rows)


def test_ideographs_are_looked_up_one_by_one() -> None:
    table = WordTable(bundle.load(), capacity=1000)
    table.count(["流式解析器在缓冲区之间拆分了换行符", "我们放弃了流式解析器"])
    before = len(table._tokens), table._filled
    table.count(["解析器放弃了缓冲区", "流式换行符"])
    assert (len(table._tokens), table._filled) == before


def test_memory_stays_bounded() -> None:
    table = WordTable(bundle.load(), capacity=100)
    for i in range(3000):
        if table.full:
            table.reset()
        table.count([f"alpha{i} beta{i}"])
        table.settle()
    assert len(table.vectors) <= 1200


def test_threads_may_share_it(embedder: StaticEmbedder) -> None:
    from concurrent.futures import ThreadPoolExecutor

    texts = [[f"thread {i} says word{i} and word{i + j}" for j in range(40)] for i in range(8)]
    expected = [embedder.embed_passages(batch).tobytes() for batch in texts]
    shared = StaticEmbedder()
    with ThreadPoolExecutor(4) as pool:
        assert [rows.tobytes() for rows in pool.map(shared.embed_passages, texts)] == expected


def test_importing_loads_nothing_heavy() -> None:
    """`funes mcp` must answer its handshake before any of these is imported."""
    code = (
        "import sys; import funes_mcp.inference.static as s, funes_mcp.inference.maxsim as m, "
        "funes_mcp.inference.protocols; s.StaticEmbedder(); m.MaxSimReranker(); s.StaticEmbedder().name; "
        "print([n for n in ('numpy', 'tokenizers', 'onnxruntime', 'fastembed') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_embedding_needs_numpy_alone() -> None:
    code = (
        "import sys; from funes_mcp.inference.static import StaticEmbedder; StaticEmbedder().embed_query('hi'); "
        "print([n for n in ('tokenizers', 'onnxruntime', 'fastembed', 'torch') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_model_is_small_and_says_where_it_is_from() -> None:
    folder = Path(bundle.__file__).parent / "data"
    assert sum(f.stat().st_size for f in folder.iterdir()) < 10_000_000
    card = (folder / "card.json").read_text("utf-8")
    assert "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db" in card
    assert "Apache-2.0" in card


def test_a_broken_model_is_named(tmp_path: Path) -> None:
    for file in (Path(bundle.__file__).parent / "data").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "vocab.txt").write_text("only\ntwo", "utf-8")
    with pytest.raises(ValueError, match="broken"):
        StaticEmbedder(tmp_path).embed_query("hi")
