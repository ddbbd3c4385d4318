"""What stands beside the table can be damaged, cut off or not writable: it is made again, or read as it is."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from histories_support import claude_file, index, service
from memory_support import MODEL, embed, put, store, transcript

from funes_mcp.errors import DerivedDamagedError, FunesError, MemoryBusyError
from funes_mcp.memory import derived, lexical
from funes_mcp.memory.catalog import FILE, Catalog, identity
from funes_mcp.memory.lock import WriterLock
from funes_mcp.memory.mending import damage_in
from funes_mcp.memory.model import Filter
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.models import GetRequest, RecallRequest
from funes_mcp.retrieval import nothing

Harm = Callable[[Path], object]


def garbage(path: Path) -> None:
    path.write_bytes(b"\xde\xad" * (1 + path.stat().st_size // 2))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def inside(path: Path) -> None:
    """Other bytes in the middle, between a beginning and an end that are whole."""
    data = path.read_bytes()
    path.write_bytes(data[:10] + bytes(byte ^ 0xFF for byte in data[10:200]) + data[200:])


def lost_position(path: Path) -> None:
    manifest = json.loads(path.read_bytes())
    manifest["segments"][0]["dead"] = [10_000]
    path.write_text(json.dumps(manifest))


HARMS: list[tuple[str, Harm]] = [
    ("lexical/version", garbage),
    ("lexical/meta.json", garbage),
    ("lexical/.managed.json", cut),
    ("lexical/*.term", garbage),
    ("lexical/*.idx", cut),
    ("lexical/*.pos", Path.unlink),
    ("lexical/*.store", inside),
    ("dense/manifest.json", garbage),
    ("dense/manifest.json", lost_position),
    ("dense/*.seg", garbage),
    ("dense/*.seg", cut),
    ("dense/*.seg", Path.unlink),
]


def harmed(folder: Path, name: str, harm: Harm) -> None:
    (path,) = folder.glob(name)
    harm(path)


def home(tmp_path: Path) -> Path:
    """The folder of a memory of one session with two turns."""
    claude_file(tmp_path, "one", "alpha zanzibar", "beta zanzibar")
    assert index(tmp_path).chunks_stored == 2
    return tmp_path / ".funes" / "memory"


def fall_behind(folder: Path) -> None:
    """Leave the catalog and the indexes at an earlier version of the table."""
    base = sqlite3.connect(folder / FILE)
    with base:
        base.execute("update meta set value = '0' where name = 'table_version'")
    base.close()


def answers(tmp_path: Path) -> tuple[str, ...]:
    """Asserts that all can be read; what is said with it."""
    memory = service(tmp_path)
    answer = memory.recall(RecallRequest("zanzibar"))
    assert {hit.chunk.text for hit in answer.hits} == {"alpha zanzibar", "beta zanzibar"}
    assert memory.get(GetRequest("one", "one-0", 0)).found
    assert memory.status().chunks == memory.status().embedded == 2
    return answer.notes


@pytest.mark.parametrize(("name", "harm"), HARMS)
def test_a_damaged_index_is_made_again_by_a_reader_which_says_so_once(tmp_path: Path, name: str, harm: Harm) -> None:
    harmed(home(tmp_path), name, harm)
    assert "index was damaged" in answers(tmp_path)[0]
    assert answers(tmp_path) == ()
    assert index(tmp_path).notes == []


@pytest.mark.parametrize(("name", "harm"), [pair for pair in HARMS if pair[1] is not inside])
def test_a_damaged_index_is_made_again_by_a_pass_with_nothing_to_read(tmp_path: Path, name: str, harm: Harm) -> None:
    folder = home(tmp_path)
    harmed(folder, name, harm)
    report = index(tmp_path)
    assert report.sources["claude_code"].unchanged == 1
    assert ["index was damaged" in note for note in report.notes] == [True]
    assert derived.sound(folder)
    assert answers(tmp_path) == ()


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("lexical", "lexical.LexicalWriter.add"),
        ("dense", "dense.DenseWriter.add"),
        ("dense", "dense.DenseWriter.commit"),
    ],
)
def test_the_making_of_an_index_that_was_cut_off_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str, old: bool
) -> None:
    folder = home(tmp_path)
    if old and name == "lexical":
        (folder / "lexical/version").write_text("3")
    else:
        shutil.rmtree(folder / name)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"funes_mcp.memory.{where}", killed)
        with pytest.raises(KeyboardInterrupt):
            MemoryReader.open(folder)
    assert derived.unfinished(folder)
    assert answers(tmp_path) == ()
    assert derived.sound(folder)
    assert not derived.unfinished(folder)


@pytest.mark.parametrize("name", ["lexical/*.store", "lexical/*.fast"])
def test_damage_that_shows_in_the_middle_of_a_pass_is_mended_in_it(tmp_path: Path, name: str) -> None:
    folder = home(tmp_path)
    harmed(folder, name, inside)
    claude_file(tmp_path, "one", "alpha zanzibar", "beta zanzibar", "gamma zanzibar", when=None)
    report = index(tmp_path)
    assert report.chunks_stored == 1
    assert ["index was damaged" in note for note in report.notes] == [True]
    assert len(service(tmp_path).recall(RecallRequest("zanzibar")).hits) == 3


@pytest.mark.parametrize(("name", "harm"), [("lexical/*.store", inside), ("lexical/*.fast", inside)])
def test_damage_that_shows_while_a_server_runs_is_mended(tmp_path: Path, name: str, harm: Harm) -> None:
    folder = home(tmp_path)
    memory = service(tmp_path)
    memory.recall(RecallRequest("unrelated"))
    (path,) = folder.glob(name)
    changed = tmp_path / "changed"
    shutil.copy(path, changed)
    harm(changed)
    with path.open("r+b") as file:  # in place: the server has it mapped
        file.write(changed.read_bytes())
    answer = memory.recall(RecallRequest("zanzibar"))
    assert len(answer.hits) == 2


def test_an_index_that_cannot_be_made_again_is_told_of_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home(tmp_path)
    harmed(folder, "lexical/version", garbage)

    def refused(*_: object) -> bool:
        raise OSError(30, "Read-only file system", str(folder))

    monkeypatch.setattr(WriterLock, "acquire", refused)
    with pytest.raises(FunesError, match="cannot be made again: Read-only file system") as raised:
        service(tmp_path).recall(RecallRequest("zanzibar"))
    assert "writable" in raised.value.hint


def empty(path: Path) -> None:
    path.write_bytes(b"")


def of_another_version(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("pragma user_version = 77")


def torn_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xde\xad" * ((len(data) - 4096) // 2)
    path.write_bytes(data)


def without_tables(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("drop table meta")


CATALOGS = [empty, garbage, of_another_version, torn_pages, without_tables, Path.unlink]


@pytest.mark.parametrize("harm", CATALOGS)
@pytest.mark.parametrize("first", ["index", "status", "recall", "behind"])
def test_a_damaged_catalog_is_made_again_whoever_meets_it(tmp_path: Path, first: str, harm: Harm) -> None:
    folder = home(tmp_path)
    harm(folder / FILE)
    memory = service(tmp_path)
    if first == "index":
        assert index(tmp_path).failures == []
    elif first == "status":
        assert memory.status().chunks == 2
    elif first == "behind" and harm in (torn_pages, without_tables):
        pytest.skip("found out when it is read, not when it is opened")
    elif first == "behind":
        memory.behind(0)
    answers(tmp_path)
    assert index(tmp_path).failures == []
    assert index(tmp_path).sources["claude_code"].unchanged == 1
    answers(tmp_path)


@pytest.mark.parametrize("harm", [empty, garbage])
def test_a_catalog_without_a_table_is_begun_anew(tmp_path: Path, harm: Harm) -> None:
    claude_file(tmp_path, "one", "alpha zanzibar", "beta zanzibar")
    folder = tmp_path / ".funes" / "memory"
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(b"something else")
    harm(folder / FILE)
    assert not service(tmp_path).status().exists
    assert index(tmp_path).chunks_stored == 2
    answers(tmp_path)


def test_a_catalog_that_cannot_be_got_at_is_not_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = transcript("one")
    file.say("u1", "words")
    store(tmp_path, file)

    def full(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "_prepare", full)
        with pytest.raises(FunesError, match="the disk is full") as raised:
            MemoryWriter.open(tmp_path, MODEL)
        assert not isinstance(raised.value, DerivedDamagedError)
    assert list(tmp_path.glob("*.damaged")) == []
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        assert (writer.mended, len(writer.catalog.sources())) == ([], 1)


@pytest.mark.parametrize("lost", ["chunks.lance", "chunks.lance/_versions"])
def test_a_memory_whose_table_is_gone_is_read_anew(tmp_path: Path, lost: str) -> None:
    folder = home(tmp_path)
    shutil.rmtree(folder / lost)
    memory = service(tmp_path)
    assert (memory.status().exists, memory.status().pending) == (False, 1)
    assert list(memory.behind(0)) == ["claude"]
    report = index(tmp_path)
    assert (report.chunks_stored, report.sources["claude_code"].read) == (2, 1)
    assert ["table of the memory was gone" in note for note in report.notes] == [True]
    answers(tmp_path)


def test_a_memory_whose_table_lost_its_rows_is_read_anew(tmp_path: Path) -> None:
    from funes_mcp.memory.table import ChunkTable

    folder = home(tmp_path)
    table = ChunkTable.open(folder)
    table.delete(sorted(table.ids()))
    report = index(tmp_path)
    assert report.chunks_stored == 2
    answers(tmp_path)


def test_a_source_without_words_is_not_taken_for_one_of_a_lost_table(tmp_path: Path) -> None:
    claude_file(tmp_path, "one", "  ")
    index(tmp_path)
    assert index(tmp_path).sources["claude_code"].unchanged == 1


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes and lock files as on a file system that cannot be written to, which also root would notice."""
    opened = lexical.LexicalReader._opened

    def refused(*_: object) -> bool:
        raise OSError(30, "Read-only file system", "writer.lock")

    def open_index(self: lexical.LexicalReader, folder: Path) -> object:
        if folder.name == derived.LEXICAL:
            raise ValueError("Failed to acquire Lockfile: IoError(ReadOnlyFilesystem)")
        return opened(self, folder)

    monkeypatch.setattr(WriterLock, "acquire", refused)
    monkeypatch.setattr(lexical.LexicalReader, "_opened", open_index)


def test_a_memory_that_cannot_be_written_to_is_read(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    home(tmp_path)
    request.getfixturevalue("read_only")
    assert answers(tmp_path) == ()
    report = service(tmp_path).doctor()
    assert report.problems == 0
    assert any("nothing can be written" in finding.message for finding in report.findings)
    assert sum(harness.chunks for harness in report.harnesses) == 2


def test_a_memory_that_cannot_be_brought_up_to_date_is_read_as_it_is(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = home(tmp_path)
    fall_behind(folder)
    request.getfixturevalue("read_only")
    memory = service(tmp_path)
    for _ in range(2):  # it goes on to be so
        answer = memory.recall(RecallRequest("zanzibar"))
        assert len(answer.hits) == 2
        assert answer.notes[0].startswith("The memory could not be brought up to date: Read-only file system.")
    assert any("up to date" in note for note in memory.status().notes)


def test_a_reader_of_linked_files_sees_what_others_commit(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    file = transcript("one")
    file.say("u1", "first words")
    store(tmp_path, file)
    with MemoryWriter.open(tmp_path, MODEL) as writer:
        request.getfixturevalue("read_only")
        reader = MemoryReader.open(tmp_path)
        assert reader.chunks == 1
        file.say("u2", "second words")
        put(writer, file)
        writer._stores._words = None
        writer.commit(embed)
    assert reader.refresh()
    assert len(reader.lexical("words", Filter(), 10)) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("left", [False, True], ids=["clean", "with a log that was left"])
def test_a_folder_without_the_right_to_write_is_read(tmp_path: Path, left: bool) -> None:
    folder = home(tmp_path)
    if left:
        (folder / f"{FILE}-wal").touch()
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o500)
    try:
        assert answers(tmp_path) == ()
    finally:
        for path in folders:
            path.chmod(0o700)


def test_doctor_finds_damage_that_no_search_has_met(tmp_path: Path) -> None:
    folder = home(tmp_path)
    (path,) = folder.glob("lexical/*.fieldnorm")
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.write_bytes(data)
    found = [finding for finding in service(tmp_path).doctor().findings if finding.about == "words"]
    assert [finding.state for finding in found] == ["problem", "ok"]
    assert f"{path.name} is not what was written" in found[0].message


def test_a_busy_writer_is_told_of_where_an_index_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from funes_mcp.memory import reader

    folder = home(tmp_path)
    harmed(folder, "lexical/version", garbage)
    monkeypatch.setattr(reader, "_PATIENCE", 0.1)
    with WriterLock(folder), pytest.raises(MemoryBusyError, match="being built"):
        MemoryReader.open(folder)


def torn_in_place(path: Path) -> None:
    """The same file for who has it open, with pages that are none."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xde\xad" * ((path.stat().st_size - 4096) // 2))


def test_a_catalog_that_another_process_has_mended_is_left_to_it(tmp_path: Path) -> None:
    folder = home(tmp_path)
    open_before = MemoryReader.open(folder)
    damage = damage_in(sqlite3.DatabaseError("malformed"), folder, open_before.opened)
    assert damage is not None
    torn_in_place(folder / FILE)
    assert index(tmp_path).failures == []
    mended, kept = identity(folder), (folder / f"{FILE}.damaged").read_bytes()
    reader = MemoryReader.open(folder, damaged=damage)
    assert (reader.news(), reader.sessions()) == ((), ["one"])
    assert (identity(folder), (folder / f"{FILE}.damaged").read_bytes()) == (mended, kept)


def test_a_catalog_that_nobody_has_mended_is_put_aside(tmp_path: Path) -> None:
    folder = home(tmp_path)
    damage = damage_in(sqlite3.DatabaseError("malformed"), folder, MemoryReader.open(folder).opened)
    assert "catalog was damaged" in MemoryReader.open(folder, damaged=damage).news()[0]


@pytest.mark.parametrize("name", [derived.LEXICAL, derived.DENSE])
def test_an_index_that_another_process_has_mended_is_not_made_again(tmp_path: Path, name: str) -> None:
    folder = home(tmp_path)
    shutil.rmtree(folder / name)
    damage = DerivedDamagedError(folder / name, "it is gone")
    news = [MemoryReader.open(folder, damaged=damage).news() for _ in range(2)]
    assert [len(said) for said in news] == [1, 0]


@pytest.mark.parametrize("name", [derived.LEXICAL, derived.DENSE])
def test_damage_that_no_look_at_the_files_finds_is_mended(tmp_path: Path, name: str) -> None:
    folder = home(tmp_path)
    damage = damage_in(DerivedDamagedError(folder / name, "a row"), folder, MemoryReader.open(folder).opened)
    assert "index was damaged" in MemoryReader.open(folder, damaged=damage).news()[0]


def test_vectors_that_another_process_is_making_again_are_waited_for(tmp_path: Path) -> None:
    folder = home(tmp_path)
    memory = service(tmp_path)
    memory.recall(RecallRequest("zanzibar"))
    shutil.move(folder / derived.DENSE, tmp_path / "made")
    lock = WriterLock(folder)
    assert lock.acquire()

    def finish() -> None:
        shutil.move(tmp_path / "made", folder / derived.DENSE)
        os.utime(folder / derived.DENSE / "manifest.json")
        lock.release()

    other = threading.Timer(0.3, finish)
    other.start()
    answer = memory.recall(RecallRequest("zanzibar"))
    other.join()
    assert (len(answer.hits), answer.notes) == (2, ())


def test_a_server_reads_the_catalog_that_took_the_place_of_its_own(tmp_path: Path) -> None:
    folder = home(tmp_path)
    memory = service(tmp_path)
    assert memory.sessions() == ["one"]
    garbage(folder / FILE)
    claude_file(tmp_path, "two", "gamma zanzibar")
    index(tmp_path)
    assert memory.sessions() == ["one", "two"]
    assert memory.get(GetRequest("two", "two-0", 0)).found


def test_a_catalog_that_is_not_filled_yet_takes_no_place(tmp_path: Path) -> None:
    folder = home(tmp_path)
    reader = MemoryReader.open(folder)
    os.replace(folder / FILE, folder / f"{FILE}.damaged")
    Catalog(folder).close()
    assert not reader.refresh()
    assert reader.sessions() == ["one"]


def test_a_memory_with_an_empty_word_index_is_not_called_empty(tmp_path: Path) -> None:
    folder = home(tmp_path)
    writer = lexical.LexicalWriter(folder / derived.LEXICAL, bulk=False)
    writer.delete(lexical.LexicalReader(folder / derived.LEXICAL).keys())
    writer.commit()
    writer.close()
    reader = MemoryReader.open(folder)
    said = nothing.reason(reader, "zanzibar", Filter(), {}, judged=False)
    assert said == "the word index holds none of the passages"


@pytest.mark.parametrize("by_another", [True, False])
def test_a_memory_that_was_behind_is_so_no_longer_when_it_could_be_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_another: bool
) -> None:
    from funes_mcp.memory import reader

    folder = home(tmp_path)
    fall_behind(folder)
    memory = service(tmp_path)

    def full(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(WriterLock, "acquire", full)
        assert "No space left" in memory.recall(RecallRequest("zanzibar")).notes[0]
        assert "No space left" in memory.recall(RecallRequest("zanzibar")).notes[0]
    if by_another:
        index(tmp_path)
    else:
        monkeypatch.setattr(reader, "_TRY_EVERY", 0.0)
    assert memory.recall(RecallRequest("zanzibar")).notes == ()
