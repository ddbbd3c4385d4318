"""How text is cut into words: what a question and a passage must agree on to meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from funes_mcp.inference import bundle
from funes_mcp.inference.words import is_opaque, parts, split, token_bytes, tokens


def words(text: str) -> list[str]:
    return [word for token in tokens(text) for word in parts(token)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't panic!", ["don", "t", "panic"]),
        ("CommandStatusErr", ["command", "status", "err"]),
        ("target_ref", ["target", "ref"]),
        ("target-ref", ["target", "ref"]),
        ("HTTPServer_v2", ["http", "server", "v2"]),
        ("two URLs", ["two", "urls"]),
        ("MAX_SIZE", ["max", "size"]),
        ("__init__", ["init"]),
        ("utf8 sha256 42", ["utf8", "sha256", "42"]),
        ("日本語のtext", ["日", "本", "語", "のtext"]),
        ("Café cafe\u0301", ["cafe", "cafe"]),
        ("Grüße Ärger_Maß", ["gruße", "arger", "maß"]),
        ("naïve über", ["naive", "uber"]),
        ("", []),
        (" \t\n?!… 🎉", []),
        ("_ ___", []),
    ],
)
def test_words_are_those_a_reader_sees(text: str, expected: list[str]) -> None:
    assert words(text) == expected


MIXED = st.one_of(st.sampled_from("aB_9 =<>`.\n\x1c\u0338\u0301\u2014é日\ud800"), st.characters())


@given(st.text(alphabet=MIXED, max_size=40))
def test_the_fast_way_cuts_as_the_slow_one(text: str) -> None:
    assert [token.decode() for token in token_bytes(text)] == tokens(text)


def test_noise_gives_no_words() -> None:
    assert words("x" * 129) == []
    assert words("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ") == []
    assert words("isOKToDoIt") == ["is", "ok", "to", "do", "it"]
    assert len(words("word_" * 25)) == 16


@pytest.mark.parametrize("word", ["b2f87a4e", "53aa51172d142c89", "20260613101500", "y" * 41])
def test_a_hash_is_only_itself(word: str) -> None:
    assert is_opaque(word)


@pytest.mark.parametrize("word", ["defaced", "facade", "404", "sha256", "v2", "1984"])
def test_a_word_is_not_a_hash(word: str) -> None:
    assert not is_opaque(word)


def test_pieces_are_those_of_the_reference_tokenizer() -> None:
    """Against Hugging Face's WordPiece with the same vocabulary, on words that BERT knows and does not."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece

    pieces = bundle.load().pieces
    reference = Tokenizer(WordPiece(pieces, unk_token="[UNK]", max_input_chars_per_word=100))
    for word in ["streaming", "tokenizer", "refactored", "syncable", "xylophonist", "kubernetes", "gitproto", "v054"]:
        assert split(word, pieces) == reference.encode(word).ids


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=16))
def test_any_word_is_split_as_by_the_reference(word: str) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece

    pieces = bundle.load().pieces
    reference = Tokenizer(WordPiece(pieces, unk_token="[UNK]", max_input_chars_per_word=100))
    assert split(word, pieces) == reference.encode(word).ids


@given(st.text())
def test_any_text_is_cut_without_error(text: str) -> None:
    for word in words(text):
        assert word
        assert word == word.lower()
        is_opaque(word)
        split(word, bundle.load().pieces)


def test_lone_surrogates_are_passed_over() -> None:
    assert words("a\ud800b \udfff") == ["a", "b"]
