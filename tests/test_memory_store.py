"""A memory as a whole: what is stored of which transcripts, whatever is read in which order and however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from memory_support import (
    MODEL,
    Transcript,
    embed,
    put,
    rows_of,
    source_of,
    store,
    transcript,
    vectors_of,
    words_of,
)

from funes_mcp.errors import FunesError, MemoryDamagedError, ModelMismatchError, NoMemoryError
from funes_mcp.memory import derived
from funes_mcp.memory.chunk import chunk_id, chunks_of
from funes_mcp.memory.conversation import ABANDONED
from funes_mcp.memory.model import CONTRACT_COLUMNS, OWN_COLUMNS, Embedding, Filter, Sighting
from funes_mcp.memory.reader import MemoryReader, build_read_index
from funes_mcp.memory.rows import alias
from funes_mcp.memory.table import ChunkTable, table_path, table_version
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.traces.model import Block, Cursor, Tally, Turn

ANY = Filter()


def texts_found(folder: Path, question: str, where: Filter = ANY) -> list[str]:
    reader = MemoryReader.open(folder)
    try:
        return [row.text for row in reader.rows([hit.key for hit in reader.lexical(question, where, 10)])]
    finally:
        reader.close()


def test_no_memory_is_said_without_loading_anything(tmp_path: Path) -> None:
    with pytest.raises(NoMemoryError, match="funes index"):
        MemoryReader.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_reading_loads_neither_lancedb_nor_arrow(tmp_path: Path) -> None:
    file = transcript("one")
    file.say("u1", "we dropped the streaming parser")
    store(tmp_path, file)
    code = (
        "import sys; from pathlib import Path\n"
        "from funes_mcp.memory.reader import MemoryReader; from funes_mcp.memory.model import Filter\n"
        "r = MemoryReader.open(Path(sys.argv[1])); assert r.rows([h.key for h in r.lexical('parser', Filter(), 5)])\n"
        "assert r.turns('one', 'u1', 3)\n"
        "assert not {'lancedb', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)


def test_the_table_has_the_contract_s_columns_first_and_names_its_model(tmp_path: Path) -> None:
    file = transcript("one")
    file.say("u1", "hello")
    store(tmp_path, file)
    table = ChunkTable.open(tmp_path)
    assert table.columns == [*CONTRACT_COLUMNS, *OWN_COLUMNS]
    assert table.embedding == MODEL
    assert list(rows_of(tmp_path)) == [chunk_id("one", "u1", 0, 0)]
    with pytest.raises(ModelMismatchError, match="test-model"):
        MemoryWriter.open(tmp_path, Embedding("another", 16))


def test_everything_made_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "memory"
    file = transcript("one")
    file.say("u1", "hello")
    store(folder, file)
    for path in [folder, *folder.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_copied_message_is_stored_once_under_the_session_that_had_it_first(tmp_path: Path) -> None:
    first, second = transcript("z-first", 0), transcript("a-second", 60)
    for number in range(3):
        first.say(f"u{number}", f"message number {number} of the talk")
    second.copy_from(first, 3)
    second.say("u3", "and one more")
    store(tmp_path, second)
    assert {row.session_id for row in rows_of(tmp_path).values()} == {"a-second"}
    done = store(tmp_path, first)
    assert (done.stored, done.copied, done.embedded) == (0, 3, 0)
    rows = rows_of(tmp_path)
    assert sorted((row.session_id, row.turn_uuid) for row in rows.values()) == [
        ("a-second", "u3"),
        ("z-first", "u0"),
        ("z-first", "u1"),
        ("z-first", "u2"),
    ]
    assert all(row.id == chunk_id(row.session_id, row.turn_uuid, 0, 0) for row in rows.values())
    assert set(vectors_of(tmp_path)) == set(rows)
    reader = MemoryReader.open(tmp_path)
    (row,) = [row for row in rows.values() if row.turn_uuid == "u1"]
    assert reader.also_in(row) == (Sighting("a-second", 1),)
    for session in ("z-first", "a-second"):
        turns = reader.turns(session, "u1", 1)
        assert turns is not None
        assert [turn.turn_uuid for turn in turns] == ["u0", "u1", "u2"]
    assert reader.turns("z-first", "u3", 1) is None
    assert reader.sessions("a") == ["a-second"]


def test_a_session_marked_as_a_fork_is_never_the_home(tmp_path: Path) -> None:
    fork, parent = transcript("fork", 0, fork=True), transcript("parent", 30)
    parent.say("u1", "said once")
    fork.copy_from(parent, 1)
    store(tmp_path, fork, parent)
    assert [row.session_id for row in rows_of(tmp_path).values()] == ["parent"]


def test_a_message_taken_out_of_its_home_lives_on_in_the_copy(tmp_path: Path) -> None:
    first, second = transcript("first", 0), transcript("second", 60, cwd="/elsewhere")
    first.say("u1", "said in both")
    first.say("u2", "said in the first only")
    second.copy_from(first, 1)
    store(tmp_path, first, second)
    first.turns, first.rewritten = [replace(first.turns[1], seq=0)], True
    assert store(tmp_path, first).embedded == 0
    rows = {row.text: row for row in rows_of(tmp_path).values()}
    copy = rows["said in both"]
    assert (copy.session_id, copy.workdir, copy.source_path) == ("second", "-elsewhere", second.path)
    assert rows["said in the first only"].seq == 0
    assert len(vectors_of(tmp_path)) == 2


def test_unrelated_transcripts_with_the_same_ids_do_not_erase_each_other(tmp_path: Path) -> None:
    alpha, beta = (
        transcript("session-1", path="/t/alpha/session-1.jsonl"),
        transcript("session-1", path="/t/beta/session-1.jsonl"),
    )
    for file, word in ((alpha, "apples"), (beta, "bananas")):
        file.say("u1", f"we talk of {word}")
        file.say("u2", f"and more {word}")
    for order, folder in (((alpha, beta), tmp_path / "1"), ((beta, alpha), tmp_path / "2")):
        for file in order:
            file.read, file.rewritten = 0, True
            store(folder, file)
        kept = {(row.session_id, row.turn_uuid, row.text) for row in rows_of(folder).values()}
        other = alias("session-1", beta.path)
        assert kept == {
            ("session-1", "u1", "we talk of apples"),
            ("session-1", "u2", "and more apples"),
            (other, "u1", "we talk of bananas"),
            (other, "u2", "and more bananas"),
        }
    beta.say("u3", "bananas again")
    store(tmp_path / "2", beta)
    turns = MemoryReader.open(tmp_path / "2").turns(other, "u3", 5)
    assert turns is not None
    assert [turn.turn_uuid for turn in turns] == ["u1", "u2", "u3"]


def test_snapshots_of_a_session_are_one_session(tmp_path: Path) -> None:
    early = transcript("s", path="/t/a/s.jsonl")
    early.say("u1", "one")
    early.say("u2", "two")
    late = transcript("s", path="/t/b/s.jsonl")
    late.copy_from(early, 2)
    late.say("u3", "three")
    store(tmp_path, late, early)
    assert sorted(row.text for row in rows_of(tmp_path).values()) == ["one", "three", "two"]
    assert MemoryReader.open(tmp_path).sessions() == ["s"]


def test_a_second_pass_stores_and_embeds_nothing(tmp_path: Path) -> None:
    file = transcript("one")
    file.say("u1", "hello there")
    store(tmp_path, file)
    version = table_version(table_path(tmp_path))
    file.rewritten = True
    done = store(tmp_path, file)
    assert (done.stored, done.changed, done.removed, done.embedded, done.known) == (0, 0, 0, 0, 1)
    assert table_version(table_path(tmp_path)) == version
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        assert writer.unchanged(source_of(file))
        file.say("u2", "more")
        assert not writer.unchanged(source_of(file))
        cursor = writer.cursor_of(source_of(file))
        assert cursor is not None
        assert cursor.offset == 1


def test_a_message_that_changed_is_replaced(tmp_path: Path) -> None:
    file = transcript("one")
    file.say("u1", "the first wording")
    file.say("u2", "unchanged beside it")
    store(tmp_path, file)
    file.turns[0] = replace(file.turns[0], blocks=(Block("text", "the second wording", 0),))
    file.rewritten = True
    store(tmp_path, file)
    assert sorted(row.text for row in rows_of(tmp_path).values()) == ["the second wording", "unchanged beside it"]
    assert texts_found(tmp_path, "first") == []
    assert "the second wording" in texts_found(tmp_path, "second")


def test_a_deleted_transcript_keeps_its_rows_even_when_everything_derived_is_lost(tmp_path: Path) -> None:
    gone, kept = transcript("gone", 0), transcript("kept", 60)
    gone.say("u1", "precious knowledge")
    kept.copy_from(gone, 1)
    kept.say("u2", "newer words")
    store(tmp_path, gone, kept)
    before = rows_of(tmp_path)
    for name in (derived.LEXICAL, derived.DENSE):
        shutil.rmtree(tmp_path / name)
    (tmp_path / "catalog.db").unlink()
    kept.read, kept.rewritten = 0, True
    done = store(tmp_path, kept)
    assert (done.stored, done.embedded, done.removed) == (0, 0, 0)
    assert rows_of(tmp_path) == before
    assert texts_found(tmp_path, "precious") == ["precious knowledge"]
    turns = MemoryReader.open(tmp_path).turns("kept", "u1", 1)
    assert turns is not None
    assert [turn.turn_uuid for turn in turns] == ["u1", "u2"]


@pytest.mark.parametrize("lost", [derived.LEXICAL, derived.DENSE, "catalog.db"])
def test_derived_files_can_be_deleted_at_any_time(tmp_path: Path, lost: str) -> None:
    file = transcript("one")
    for number in range(5):
        file.say(f"u{number}", f"passage {number} about parser{number}")
    store(tmp_path, file)
    words = words_of(tmp_path, [f"parser{n}" for n in range(5)])
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert texts_found(tmp_path, "parser3")[0] == "passage 3 about parser3"
    reader = MemoryReader.open(tmp_path)
    assert reader.counts.chunks == reader.counts.embedded == 5
    assert reader.turns("one", "u2", 1) is not None
    assert words_of(tmp_path, [f"parser{n}" for n in range(5)]) == words


def test_rows_that_another_program_added_are_caught_up(tmp_path: Path) -> None:
    file = transcript("one")
    file.say("u1", "mine")
    store(tmp_path, file)
    other = transcript("two")
    turn = other.say("v1", "added by somebody else")
    ChunkTable.open(tmp_path).append(chunks_of(turn, other.info, other.path), [None])
    assert texts_found(tmp_path, "somebody") == ["added by somebody else"]
    assert MemoryReader.open(tmp_path).counts.embedded == 1


def test_a_table_without_our_columns_is_read_and_taken_over(tmp_path: Path) -> None:
    import lancedb
    import pyarrow as pa

    kinds = {"seq": pa.int64(), "block_idx": pa.int64(), "split_idx": pa.int64(), "vector": pa.list_(pa.float32(), 16)}
    names = [name for name in CONTRACT_COLUMNS if name not in ("harness", "repo")]
    schema = pa.schema(
        [pa.field(name, kinds.get(name, pa.utf8())) for name in names], metadata={"embedding_model": "test-model"}
    )
    file = transcript("one")
    file.say("u1", "from the other program")
    (chunk,) = chunks_of(file.turns[0], file.info, file.path)
    row = {name: getattr(chunk, name, None) for name in names} | {"vector": embed([chunk.text])[0].tolist()}
    lancedb.connect(str(tmp_path)).create_table("chunks", pa.Table.from_pylist([row], schema=schema))
    assert texts_found(tmp_path, "program") == ["from the other program"]
    file.say("u2", "and ours")
    file.rewritten = True
    store(tmp_path, file)
    rows = rows_of(tmp_path)
    assert sorted((row.text, row.harness) for row in rows.values()) == [
        ("and ours", "claude_code"),
        ("from the other program", "claude_code"),
    ]
    assert set(vectors_of(tmp_path)) == set(rows)


def test_a_downloaded_memory_is_searched_through_indexes_beside_it(tmp_path: Path) -> None:
    file = transcript("one")
    for number in range(4):
        file.say(f"u{number}", f"remote passage {number}")
    store(tmp_path / "origin", file)
    shutil.copytree(tmp_path / "origin" / "chunks.lance", tmp_path / "cache" / "chunks.lance")
    build_read_index(tmp_path / "cache", tmp_path / "index")
    reader = MemoryReader.open(tmp_path / "index", "org/memory", table=tmp_path / "cache")
    assert reader.counts.chunks == reader.counts.embedded == 4
    assert reader.embedding == MODEL
    turns = reader.turns("one", "u2", 1)
    assert turns is not None
    assert [turn.blocks for turn in turns] == [("remote passage 1",), ("remote passage 2",), ("remote passage 3",)]
    assert reader.sessions("o") == ["one"]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["chunks.lance"]
    with pytest.raises(NoMemoryError):
        MemoryReader.open(tmp_path / "index", "x", table=tmp_path / "nothing")


def test_a_folder_that_is_no_table_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "chunks.lance" / "_versions").mkdir(parents=True)
    (tmp_path / "chunks.lance" / "_versions" / "1.manifest").write_bytes(b"rubbish")
    with pytest.raises(MemoryDamagedError):
        MemoryReader.open(tmp_path)


def test_words_first_vectors_later(tmp_path: Path) -> None:
    file = transcript("one")
    for number in range(5):
        file.say(f"u{number}", f"passage {number}")
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        put(writer, file)
        assert writer.commit(None).embedded == 0
        assert texts_found(tmp_path, "passage")
        reader = MemoryReader.open(tmp_path)
        assert reader.counts.embedded == 0
        assert reader.dense(embed(["passage 4"])[0], ANY, 3) == []
        assert writer.backfill(embed, 2) == 2
        assert reader.refresh()
        assert [row.text for row in reader.rows([reader.dense(embed(["passage 4"])[0], ANY, 3)[0].key])] == [
            "passage 4"
        ]
        assert writer.backfill(embed, 10) == 3
        assert writer.backfill(embed, 10) == 0
    assert len(vectors_of(tmp_path)) == 5


def test_an_open_reader_sees_what_is_committed(tmp_path: Path) -> None:
    file = transcript("one")
    file.say("u1", "alpha words")
    store(tmp_path, file)
    reader = MemoryReader.open(tmp_path)
    assert not reader.refresh()
    file.say("u2", "beta words")
    store(tmp_path, file)
    assert reader.lexical("beta", ANY, 5) == [] or reader.refresh()
    assert reader.refresh() in (True, False)
    assert len(reader.lexical("words", ANY, 5)) == 2
    assert reader.turns("one", "u2", 1) is not None


def test_forgotten_sessions_stay_forgotten(tmp_path: Path) -> None:
    first, second = transcript("first", 0), transcript("second", 60)
    first.say("u1", "shared words")
    first.say("u2", "private words")
    second.copy_from(first, 1)
    store(tmp_path, first, second)
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        assert writer.forget(["first"]) == 1
    assert [(row.text, row.session_id) for row in rows_of(tmp_path).values()] == [("shared words", "second")]
    assert texts_found(tmp_path, "private") == []
    (tmp_path / "catalog.db").unlink()
    first.rewritten = True
    store(tmp_path, first)
    assert [row.session_id for row in rows_of(tmp_path).values()] == ["second"]


def test_thinking_that_is_stored_is_not_lost_by_a_pass_without_it(tmp_path: Path) -> None:
    file = transcript("one")
    file.turns.append(
        Turn(
            "one",
            "u1",
            None,
            0,
            None,
            "assistant",
            (Block("thinking", "deep thought", 0), Block("text", "answer", 1)),
            "u1",
        )
    )
    store(tmp_path, file)
    file.rewritten = True
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        put(writer, file, thinking=False)
        writer.commit(embed)
    assert sorted(row.text for row in rows_of(tmp_path).values()) == ["answer", "deep thought"]


def test_lines_of_a_reply_and_abandoned_branches(tmp_path: Path) -> None:
    file = transcript("one")
    file.say("p", "question")
    file.say("a", "thought", kind="thinking", role="assistant", message_id="m", parent="p")
    file.say("b", "answer " * 400, role="assistant", message_id="m", parent="a")
    file.say("q", "another way", parent="p")
    file.say("r", "another answer", role="assistant", parent="q")
    store(tmp_path, file)
    reader = MemoryReader.open(tmp_path)
    turns = reader.turns("one", "b", 5)
    assert turns is not None
    assert [(turn.turn_uuid, turn.marks) for turn in turns] == [("p", ()), ("b", (ABANDONED,))]
    assert turns[1].blocks == ("thought", ("answer " * 400).strip())
    (hit, *_) = [row for row in rows_of(tmp_path).values() if row.turn_uuid == "q"]
    before, after = reader.beside(hit, 1)
    assert [row.turn_uuid for row in before + after] == ["a", "r"]


def test_filters_restrict_both_searches(tmp_path: Path) -> None:
    one, two = transcript("one", cwd="/home/ann/alpha"), transcript("two", cwd="/home/ann/Beta")
    one.say("u1", "shared word here")
    two.say("u2", "shared word there", kind="tool_result")
    store(tmp_path, one, two)
    reader = MemoryReader.open(tmp_path)
    day = 1767225600000
    for where, expected in (
        (Filter(), {"one", "two"}),
        (Filter(session_id="two"), {"two"}),
        (Filter(block_type="text"), {"one"}),
        (Filter(project="beta"), {"two"}),
        (Filter(project="/home/ann/alpha/"), {"one"}),
        (Filter(project="ann/proj"), {"one", "two"}),
        (Filter(project="proj", harness="codex"), set()),
        (Filter(since=day, until=day + 1), {"one", "two"}),
        (Filter(since=day + 1), set()),
        (Filter(until=day), set()),
    ):
        words = {row.session_id for row in reader.rows([h.key for h in reader.lexical("shared", where, 9)])}
        dense = {row.session_id for row in reader.rows([h.key for h in reader.dense(embed(["x"])[0], where, 9)])}
        assert (words, dense) == (expected, expected), where


@pytest.mark.parametrize(
    "question",
    [
        "what's the C++ flag -O2?",
        "AND OR NOT (",
        '"unbalanced',
        "foo:bar^3 ~ * [a TO b]",
        "C",
        "",
        " ",
        "x" * 10_000,
        "why " * 3000,
        "🎉🎉",
        "日本語 중국",
        "\x00\n\t\\",
        "/",
        "a_b" * 500,
    ],
)
def test_any_question_is_answered(tmp_path_factory: pytest.TempPathFactory, question: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any-question"
    if not folder.exists():
        file = transcript("one")
        file.say("u1", "compile with the C++ flag -O2 and see")
        store(folder, file)
    reader = MemoryReader.open(folder)
    assert len(reader.lexical(question, ANY, 5)) in (0, 1)
    if "C++" in question:
        assert reader.lexical(question, ANY, 5)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("error E0277 in the trait", "E0277"),
        ("bump x/net for CVE-2026-25680", "cve-2026-25680"),
        ("see src/foo_bar.rs:12 for it", "foo_bar.rs"),
        ("see src/foo_bar.rs:12 for it", "src/foo_bar.rs"),
        ("at 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", "53aa5117"),
        ("at 53aa5117", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
        ("重跑gen-itgc后", "itgc"),
        ("重跑gen-itgc后", "重跑"),
        ("call parseHTMLText first", "parse the html"),
        ("Überlauf im Speicher", "überlauf"),
        ("Привет мир", "привет"),
    ],
)
def test_exact_things_are_found(tmp_path_factory: pytest.TempPathFactory, text: str, question: str) -> None:
    folder = tmp_path_factory.mktemp("exact")
    file = transcript("one")
    file.say("u1", text)
    file.say("u2", "something else altogether " * 100)
    store(folder, file)
    assert texts_found(folder, question)[0] == text


def test_equal_scores_are_ordered_by_time_and_then_by_key(tmp_path: Path) -> None:
    files = []
    for number in range(6):
        file = transcript(f"s{number}")
        file.say(f"u{number}", "the very same words")
        files.append(file)
    store(tmp_path, *files)
    reader = MemoryReader.open(tmp_path)
    keys = [hit.key for hit in reader.lexical("very same words", ANY, 4)]
    assert keys == sorted(keys)
    assert keys == [hit.key for hit in reader.lexical("very same words", ANY, 6)][:4]


def test_many_vectors_are_searched_by_their_signs_first(tmp_path: Path) -> None:
    from funes_mcp.memory.dense import DenseReader, DenseWriter

    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((24_000, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    info = transcript("s").info
    (template,) = chunks_of(Turn("s", "u", None, 0, None, "user", (Block("text", "x", 0),), "i"), info, "/t")
    chunks = [template._replace(id=f"{number:016x}") for number in range(len(vectors))]
    writer = DenseWriter(tmp_path, Embedding("m", 64))
    for start in range(0, 24_000, 3_000):
        writer.add(chunks[start : start + 3_000], vectors[start : start + 3_000])
        writer.commit()
    writer.delete(range(100))
    writer.commit()
    reader = DenseReader(tmp_path)
    assert reader.size == 23_900
    assert len(list(tmp_path.glob("*.seg"))) < 8
    hits = 0
    for number in range(100, 120):
        found = [scored.key for scored, _ in reader.search(vectors[number], ANY, 10)]
        assert found[0] == number
        exact = np.argsort(-(vectors[100:] @ vectors[number]))[:10] + 100
        hits += len(set(found) & set(exact.tolist()))
    assert hits >= 150
    assert np.allclose(reader.vectors([105, 5])[0], vectors[105], atol=0.01)
    assert not reader.vectors([5]).any()


WORDS = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "haven"]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_reading_in_any_slices_and_order_gives_the_same_memory(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sliced, fresh = tmp_path_factory.mktemp("sliced"), tmp_path_factory.mktemp("fresh")
    files: list[Transcript] = []
    spoken = 0

    def say(file: Transcript) -> None:
        nonlocal spoken
        word = data.draw(st.sampled_from(WORDS))
        size = data.draw(st.sampled_from([1, 1, 400]))
        file.say(f"u{spoken}", f"{word} {word}{spoken} " * size)
        spoken += 1

    with MemoryWriter.open(sliced, MODEL) as writer:
        for _ in range(data.draw(st.integers(3, 9))):
            action = data.draw(st.sampled_from(["new", "append", "append", "copy", "rewrite", "snapshot"]))
            if action == "new" or not files:
                files.append(transcript(f"s{len(files)}", data.draw(st.integers(0, 99))))
                say(files[-1])
            file = data.draw(st.sampled_from(files))
            if action == "append":
                for _ in range(data.draw(st.integers(1, 3))):
                    say(file)
            elif action in ("copy", "snapshot"):
                if action == "copy":
                    other = transcript(f"s{len(files)}", data.draw(st.integers(0, 99)), fork=data.draw(st.booleans()))
                else:
                    other = replace(file, path=f"/t/{len(files)}/s.jsonl", turns=[], read=0, rewritten=True)
                other.copy_from(file, data.draw(st.integers(1, max(1, len(file.turns)))))
                files.append(other)
                say(other)
            elif action == "rewrite" and file.turns:
                kept = [turn for turn in file.turns if data.draw(st.booleans())]
                file.turns = [replace(turn, seq=seq) for seq, turn in enumerate(kept)]
                file.rewritten = True
            if data.draw(st.booleans()):
                for file in data.draw(st.permutations(files)):
                    put(writer, file)
                writer.commit(embed, background=data.draw(st.booleans()))
        for file in files:
            put(writer, file, commit_every=data.draw(st.sampled_from([0, 2])))
        writer.commit(embed)
    assume(any(file.turns for file in files))  # of nothing no table is made, and none can be compared
    with MemoryWriter.open(fresh, MODEL) as writer:
        for file in data.draw(st.permutations(files)):
            file.rewritten = True
            put(writer, file)
        writer.commit(embed)
    assert rows_of(sliced) == rows_of(fresh)
    assert vectors_of(sliced) == vectors_of(fresh)
    assert set(vectors_of(fresh)) == set(rows_of(fresh))
    words = WORDS + [f"{word}{number}" for word in WORDS for number in range(spoken)]
    assert words_of(sliced, words) == words_of(fresh, words)
    one, two = MemoryReader.open(sliced), MemoryReader.open(fresh)
    assert one.counts == two.counts
    assert one.sessions() == two.sessions()
    for row in rows_of(fresh).values():
        assert one.also_in(row) == two.also_in(row)
        assert one.turns(row.session_id, row.turn_uuid, 2) == two.turns(row.session_id, row.turn_uuid, 2)


KILLED = """
import os, sys
sys.path[:0] = [sys.argv[2]]
from pathlib import Path
from memory_support import *
from funes_mcp.memory import dense, lexical, table, catalog
step = sys.argv[3]
def die(*args, **more): os.kill(os.getpid(), 9)
first, second = transcript("first", 0), transcript("second", 60)
for n in range(4): first.say(f"u{n}", f"passage {n} of first")
second.copy_from(first, 2); second.say("v", "words of second"); second.say("w", "last words")
folder = Path(sys.argv[1])
store(folder, second)
place, name = {
    "before the table": (table.ChunkTable, "upsert"), "between row changes": (table.ChunkTable, "delete"),
    "before the words": (lexical.LexicalWriter, "commit"), "before the vectors": (dense.DenseWriter, "commit"),
    "before the catalog": (catalog.Catalog, "save_source"), "never": (catalog.Catalog, "nothing"),
}[step]
setattr(place, name, die)
store(folder, first)
"""


@pytest.mark.parametrize(
    "step",
    [
        "before the table",
        "between row changes",
        "before the words",
        "before the vectors",
        "before the catalog",
        "never",
    ],
)
def test_a_kill_at_any_moment_is_repaired_by_the_next_pass(tmp_path: Path, step: str) -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), here, step], timeout=120, check=False)
    assert done.returncode == (0 if step == "never" else -signal.SIGKILL)
    assert "words of second" in texts_found(tmp_path, "words of second")
    first, second = transcript("first", 0), transcript("second", 60)
    for number in range(4):
        first.say(f"u{number}", f"passage {number} of first")
    second.copy_from(first, 2)
    second.say("v", "words of second")
    second.say("w", "last words")
    store(tmp_path, first, second)
    fresh = tmp_path / "fresh"
    for file in (first, second):
        file.rewritten = True
    store(fresh, first, second)
    assert rows_of(tmp_path) == rows_of(fresh)
    assert vectors_of(tmp_path) == vectors_of(fresh)
    words = ["passag", "first", "word", "second", "last", "1", "3"]
    assert words_of(tmp_path, words) == words_of(fresh, words)
    assert MemoryReader.open(tmp_path).counts == MemoryReader.open(fresh).counts


def test_a_failed_write_says_so_and_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = transcript("one")
    file.say("u1", "safe words")
    store(tmp_path, file)
    file.say("u2", "unlucky words")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, MemoryWriter.open(tmp_path, MODEL) as writer:
        patch.setattr(ChunkTable, "_arrow", lambda *_: None)
        patch.setattr("lancedb.table.LanceTable.add", full)
        read = file.read
        put(writer, file)
        with pytest.raises(FunesError, match="disk is full"):
            writer.commit(embed)
        with pytest.raises(FunesError, match="open it again"):
            writer.commit(embed)
    assert texts_found(tmp_path, "words") == ["safe words"]
    file.read = read
    store(tmp_path, file)
    assert sorted(texts_found(tmp_path, "words")) == ["safe words", "unlucky words"]


def test_a_commit_in_the_background_is_counted_once_and_its_failure_is_told(tmp_path: Path) -> None:
    one, two = transcript("one"), transcript("two", 60)
    one.say("u1", "first words")
    two.copy_from(one, 1)
    two.say("u2", "second words")
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        put(writer, one)
        assert writer.commit(embed, background=True).stored == 0
        put(writer, two)
        done = [writer.commit(embed, background=True), writer.commit(embed)]
        assert [each.stored for each in done] == [1, 1]
        assert sum(each.copied for each in done) == 1

        def broken(texts: list[str]) -> np.ndarray:
            raise FunesError("the model broke")

        two.say("u3", "third words")
        put(writer, two)
        writer.commit(broken, background=True)
        with pytest.raises(FunesError, match="the model broke"):
            writer.commit(embed)
        with pytest.raises(FunesError, match="open it again"):
            writer.commit(embed)
    assert sorted(row.text for row in rows_of(tmp_path).values()) == ["first words", "second words"]


def test_identifiers_that_come_with_a_turn_are_those_it_is_found_by(tmp_path: Path) -> None:
    one = transcript("one")
    turn = one.say("u1", "see src/parse_args.py")
    other = one.say("u2", "and lib/write_file.py")
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        writer.begin(source_of(one), whole=True)
        writer.put_session(one.info)
        for each, names in ((turn, [("given_name", "")]), (other, [])):
            writer.put_turn(each, chunks_of(each, one.info, one.path), names)
        writer.commit(embed)
    assert texts_found(tmp_path, "given_name") == [turn.blocks[0].text]
    assert texts_found(tmp_path, "lib/write_file.py")[0] == other.blocks[0].text


def test_a_source_that_is_read_twice_before_a_commit_says_what_it_said_last(tmp_path: Path) -> None:
    first, again = transcript("one"), transcript("one")
    first.say("u1", "said at first", identity="x")
    first.say("u2", "gone by then", identity="y")
    again.say("u1", "said in the end", identity="z")
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        put(writer, first)
        put(writer, again)
        writer.commit(embed)
        put(writer, first)
        writer.commit(embed)
        put(writer, again)
        put(writer, first)
        put(writer, again)
        writer.commit(embed)
    rows = [row for part in ChunkTable.open(tmp_path).stream() for row in part]
    assert [(row.turn_uuid, row.text) for row in rows] == [("u1", "said in the end")]


def test_turns_that_were_announced_are_looked_up_once_and_vectors_stay_with_their_rows(tmp_path: Path) -> None:
    file, other = transcript("one"), transcript("two")
    turns = [file.say("u1", "the first words"), file.say("u2", "other words", identity="same")]
    turns.append(file.say("u3", "other words, said anew", identity="same"))
    long = other.say("v1", "a long text " * 300)
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        for _ in range(2):
            writer.begin(source_of(file), whole=True)
            writer.put_session(file.info)
            chunks = [chunks_of(turn, file.info, file.path) for turn in turns]
            writer.expect(chunks)
            for turn, own in zip(turns, chunks, strict=True):
                given = None if turn is turns[0] else embed([chunk.text for chunk in own])
                stored = writer.put_turn(turn, own, (), given)
                if stored and given is None:
                    writer.put_vectors_of(own, embed([chunk.text for chunk in own]))
            writer.finish(source_of(file), Cursor(3, "d"), Tally())
            writer.commit(None, background=True)
            writer.begin(source_of(other), whole=True)
            writer.put_session(other.info)
            own = chunks_of(long, other.info, other.path)
            writer.expect([own])
            writer.put_turn(long, own, (), embed([chunk.text for chunk in own]))
            writer.finish(source_of(other), Cursor(1, "d"), Tally())
        writer.commit(None)
    table = ChunkTable.open(tmp_path)
    rows = {row.id: row.text for part in table.stream() for row in part}
    vectors = {name: vector for ids, matrix in table.vectors() for name, vector in zip(ids, matrix, strict=True)}
    assert len(rows) == len(vectors) == len(turns) + len(own)
    for name, text in rows.items():
        assert (vectors[name] == embed([text])[0]).all()


def test_many_small_appends_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("funes_mcp.memory.table._FRAGMENTS", 10)
    file = transcript("one")
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        for number in range(12):
            file.say(f"u{number}", f"passage {number}")
            put(writer, file)
            writer.commit(embed)
        assert writer.maintain()
        assert not writer.maintain()
    assert len(list((tmp_path / "chunks.lance" / "data").iterdir())) == 1
    assert len(rows_of(tmp_path)) == 12
    reader = MemoryReader.open(tmp_path)
    assert reader.counts.chunks == reader.counts.embedded == 12
    assert os.listdir(tmp_path / "dense")


def test_long_texts_are_compressed_together_also_in_a_table_that_was_made_without(tmp_path: Path) -> None:
    import lancedb
    import pyarrow as pa

    words = [blake2b(bytes([number]), digest_size=5).hexdigest() for number in range(60)]
    texts = [" ".join([str(row), *words[row % 60 :], *words[: row % 60]]) for row in range(300)]
    file = transcript("one")
    for row, text in enumerate(texts):
        file.say(f"u{row}", text)
    store(tmp_path, file)
    other = tmp_path / "other"
    rows = lancedb.connect(str(tmp_path)).open_table("chunks").search().limit(1_000).to_arrow()
    plain = pa.schema([column.remove_metadata() for column in rows.schema], metadata=rows.schema.metadata)
    lancedb.connect(str(other)).create_table("chunks", rows.cast(plain), schema=plain)
    before = _data_bytes(other)
    assert _data_bytes(tmp_path) < 0.5 * before
    assert rows_of(other) == rows_of(tmp_path)
    ChunkTable.open(other).rewrite()
    assert rows_of(other) == rows_of(tmp_path)
    assert vectors_of(other) == vectors_of(tmp_path)
    assert ChunkTable.open(other).embedding == MODEL
    assert _data_bytes(other) < 0.5 * before


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_a_table_of_an_older_format_is_written_anew_in_it(tmp_path: Path, version: str) -> None:
    import lancedb
    import pyarrow as pa

    file = transcript("one")
    file.say("u1", "hello")
    store(tmp_path, file)
    rows = lancedb.connect(str(tmp_path)).open_table("chunks").search().limit(10).to_arrow()
    plain = pa.schema([column.remove_metadata() for column in rows.schema], metadata=rows.schema.metadata)
    long = rows.set_column(1, "text", [["".join(map(chr, range(0x100, 0x9000)))]]).cast(plain)
    other = tmp_path / "other"
    options = {"new_table_data_storage_version": version}
    lancedb.connect(str(other), storage_options=options).create_table("chunks", long, schema=plain)
    before = rows_of(other)
    ChunkTable.open(other).rewrite()
    assert rows_of(other) == before


def _data_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (table_path(folder) / "data").iterdir())


def test_a_reader_keeps_the_dictionary_of_the_index_that_it_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("funes_mcp.memory.packing._SAMPLES", 20)
    monkeypatch.setattr("funes_mcp.memory.packing._DICTIONARY_SIZE", 2_000)
    words = [blake2b(bytes([number]), digest_size=5).hexdigest() for number in range(200)]
    file = transcript("one")
    for row in range(100):
        file.say(f"u{row}", " ".join([f"row{row}", *words[row : row + 60]]))
    store(tmp_path, file)
    dictionary = tmp_path / derived.LEXICAL / "rows.dict"
    before = dictionary.read_bytes()
    reader = MemoryReader.open(tmp_path)
    assert texts_of(reader, "row7") == [file.turns[7].blocks[0].text]
    for row in range(100, 140):
        file.say(f"u{row}", " ".join([f"row{row}", *words[row - 40 : row + 60]]))
    file.rewritten = False
    store(tmp_path, file)
    derived.rebuild_words(ChunkTable.open(tmp_path), tmp_path / derived.LEXICAL)
    assert dictionary.read_bytes() != before
    assert texts_of(reader, "row9") == [file.turns[9].blocks[0].text]
    reader.refresh()
    assert texts_of(reader, "row11") == [file.turns[11].blocks[0].text]
    assert texts_of(reader, "row139") == [file.turns[139].blocks[0].text]
    reader.close()


def texts_of(reader: MemoryReader, question: str) -> list[str]:
    return [row.text for row in reader.rows([hit.key for hit in reader.lexical(question, ANY, 1)])]
