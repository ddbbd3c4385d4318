"""Publishing to a dataset: what is sent, what is asked, and what happens when something comes between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_support import MODEL, Transcript, embed, transcript
from publishing_support import NAME, Answers, Dataset, Machine, table_at

from funes_mcp.curation import Selection
from funes_mcp.errors import (
    AmbiguousSessionError,
    FunesError,
    NoMemoryError,
    NotFoundError,
    PushBusyError,
    PushRefusedError,
)
from funes_mcp.hub.errors import HubConflictError, HubRepoMissingError, HubUnreachableError
from funes_mcp.memory.label import HubName
from funes_mcp.memory.lock import WriterLock
from funes_mcp.memory.model import CONTRACT_COLUMNS, Embedding
from funes_mcp.memory.table import ChunkTable
from funes_mcp.models import PushReport, PushRequest
from funes_mcp.publishing import receipts, stage, vectors
from funes_mcp.redaction import ScannerError

PUSH = PushRequest(NAME.label)


@pytest.fixture
def data() -> Dataset:
    return Dataset()


@pytest.fixture
def ann(tmp_path: Path, data: Dataset) -> Machine:
    return Machine(tmp_path / "ann", data)


@pytest.fixture
def bob(tmp_path: Path, data: Dataset) -> Machine:
    return Machine(tmp_path / "bob", data)


def session(name: str, *texts: str) -> Transcript:
    made = transcript(name)
    for number, text in enumerate(texts):
        made.say(f"{name}-{number}", text)
    return made


def push(machine: Machine, request: PushRequest = PUSH, answer: bool | None = True) -> PushReport:
    return machine.publisher().push(request, Answers(answer))


def published(data: Dataset, folder: Path) -> dict[str, str]:
    """Every row by id; an id that is there twice fails."""
    rows = [row for part in ChunkTable.open(table_at(data, folder)).stream() for row in part]
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.text for row in rows}


def texts(data: Dataset, folder: Path) -> list[str]:
    return sorted(published(data, folder).values())


def receipt(machine: Machine) -> receipts.Receipt:
    found = receipts.load(machine.folder)
    assert found is not None
    return found


def test_the_first_push_makes_a_private_dataset_after_asking(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "first words", "second words"))
    talk = Answers()
    report = ann.publisher().push(PUSH, talk)
    assert talk.asked == ["Create the private dataset ann/memory?"]
    assert (report.created, report.sent, report.sessions, report.public) == (True, 2, 1, False)
    assert report.commit == data.id(2)
    assert texts(data, tmp_path / "t") == ["first words", "second words"]
    assert "| Passages | 2 |" in data.files["README.md"].decode()
    assert "Claude Code (2)" in data.files["README.md"].decode()
    assert receipt(ann).rows == 2
    assert receipt(ann).agreed
    assert not (ann.folder / "stage").exists()


def test_what_is_sent_is_what_is_stored_bit_for_bit(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "first words", "second words"))
    push(ann)
    mine, theirs = ChunkTable.open(ann.memory), ChunkTable.open(table_at(data, tmp_path / "t"))
    assert theirs.columns == mine.columns
    assert theirs.columns[: len(CONTRACT_COLUMNS)] == list(CONTRACT_COLUMNS)
    assert theirs.embedding == mine.embedding == MODEL
    assert [row for part in theirs.stream() for row in part] == [row for part in mine.stream() for row in part]
    [(names, vectors)] = list(theirs.vectors())
    own = {name: row for ids, rows in mine.vectors() for name, row in zip(ids, rows, strict=True)}
    for name, vector in zip(names, vectors, strict=True):
        assert vector.tobytes() == own[name].tobytes()


def test_only_new_rows_go_in_one_version_and_only_new_files(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    one = session("one", "first words")
    ann.store(one)
    push(ann)
    before = dict(data.files)
    one.say("one-1", "later words")
    ann.store(one, session("two", "other words"))
    report = push(ann)
    assert (report.sent, report.sessions, report.joined) == (2, 2, False)
    new = {path for path in data.files if path not in before}
    assert sorted(path.split("/")[1] for path in new) == ["_transactions", "_versions", "data"]
    assert {path for path in before if data.files.get(path) != before[path]} == {"README.md"}
    assert ChunkTable.open(table_at(data, tmp_path / "t")).version == 2
    assert texts(data, tmp_path / "u") == ["first words", "later words", "other words"]


def test_nothing_new_makes_no_commit(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "first words"))
    push(ann)
    count = len(data.commits)
    talk = Answers()
    report = ann.publisher().push(PUSH, talk)
    assert (report.sent, report.commit, report.held, talk.asked) == (0, "", 0, [])
    assert len(data.commits) == count


def test_two_machines_share_a_memory(ann: Machine, bob: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "words of ann"), session("both", "seen by both"))
    bob.store(session("two", "words of bob"), session("both", "seen by both"))
    push(ann)
    assert push(bob).sent == 1
    assert texts(data, tmp_path / "t") == ["seen by both", "words of ann", "words of bob"]
    assert push(ann).sent == 0


def test_a_push_that_was_overtaken_looks_again(ann: Machine, bob: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("both", "seen by both"))
    push(ann)
    ann.store(session("both", "seen by both"), session("one", "words of ann"), session("also", "of each"))
    bob.store(session("both", "seen by both"), session("two", "words of bob"), session("also", "of each"))
    data.before_commit = [lambda: push(bob) and None]
    report = push(ann)
    assert report.attempts == 2
    assert report.sent == 1
    assert ann.finds.texts.count("words of ann") == 1  # searched once, whatever the number of tries
    assert texts(data, tmp_path / "t") == ["of each", "seen by both", "words of ann", "words of bob"]


def test_a_push_that_is_always_overtaken_says_so(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "words"))
    push(ann)
    ann.store(session("two", "more"))
    before = dict(data.files)
    data.before_commit = [lambda: data.commits.append(dict(data.files))] * 10
    with pytest.raises(HubConflictError, match="6 times"):
        push(ann)
    assert data.files == before
    assert "6 times" in receipt(ann).reason
    data.before_commit.clear()
    assert push(ann).sent == 1
    assert receipt(ann).failed == ""


def test_a_commit_whose_answer_was_lost_is_not_repeated(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "words"))
    data.lose_answer = 1
    report = push(ann)
    assert (report.sent, report.attempts) == (1, 2)
    assert len(data.commits) == 2
    assert texts(data, tmp_path / "t") == ["words"]
    assert push(ann).sent == 0


def test_a_commit_that_did_not_arrive_is_repeated(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "words"))
    data.drop_commit = 2
    assert push(ann).attempts == 3
    assert texts(data, tmp_path / "t") == ["words"]


def test_when_no_commit_is_answered_it_is_said_what_is_not_known(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "words"))
    data.drop_commit = 10
    with pytest.raises(HubUnreachableError, match="is not known"):
        push(ann)
    data.drop_commit = 0
    assert push(ann).sent == 1


# -- the gate ------------------------------------------------------------------------------------------


def test_what_looks_like_a_credential_stays_and_the_rest_goes(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "plain words", "the password is hunter2"), session("two", "other words"))
    report = push(ann)
    assert (report.sent, report.sessions, report.held, report.nothing_left) == (2, 2, 1, False)
    assert dict(report.kinds) == {"password": 1}
    assert report.held_sessions == ("one",)
    assert texts(data, tmp_path / "t") == ["other words", "plain words"]
    assert (receipt(ann).held_rows, receipt(ann).held) == (1, {"password": 1})
    assert receipts.load_sent(ann.folder)["one"].state == receipts.HELD
    again = push(ann)
    assert (again.sent, again.held, again.nothing_left) == (0, 1, True)


def test_the_whole_block_is_held_back(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "word " * 400 + "hunter2 " + "word " * 400, "plain words"))
    report = push(ann)
    assert report.held > 2
    assert texts(data, tmp_path / "t") == ["plain words"]


def test_when_all_is_held_back_no_dataset_is_made(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "the password is hunter2"))
    report = push(ann)
    assert report.nothing_left
    assert data.commits == []


def test_a_search_that_fails_lets_nothing_out(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "plain words"))
    ann.finds.failure = ScannerError("the rules cannot be loaded")
    with pytest.raises(ScannerError):
        push(ann)
    assert data.commits == []
    assert "rules" in receipt(ann).reason


def test_the_identity_of_a_message_with_a_mark_stays(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "it was [REDACTED:password] then", "plain words"))
    push(ann)
    rows = {row.text: row for part in ChunkTable.open(table_at(data, tmp_path / "t")).stream() for row in part}
    assert rows["it was [REDACTED:password] then"].identity == ""
    assert rows["plain words"].identity != ""


# -- what is chosen ------------------------------------------------------------------------------------


def test_rows_without_a_vector_wait_with_their_message(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "first words"))
    ann.store(session("two", "second words"), filled=False)
    report = push(ann)
    assert (report.sent, report.unfilled) == (1, 1)
    assert receipts.load_sent(ann.folder)["two"].state == receipts.WAITS
    assert texts(data, tmp_path / "t") == ["first words"]


def test_named_sessions_alone_go(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "first words"), session("two", "second words"))
    assert push(ann, PushRequest(NAME.label, sessions=("two",))).sent == 1
    assert texts(data, tmp_path / "t") == ["second words"]
    assert receipts.load_sent(ann.folder)["one"].state == receipts.WAITS
    with pytest.raises(NotFoundError, match="'three'"):
        push(ann, PushRequest(NAME.label, sessions=("two", "three")))


def test_a_named_session_may_be_given_by_its_beginning(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "first words"), session("onset", "second words"), session("two", "third words"))
    with pytest.raises(AmbiguousSessionError, match="one, onset"):
        push(ann, PushRequest(NAME.label, sessions=("on",)))
    with pytest.raises(NotFoundError):
        push(ann, PushRequest(NAME.label, sessions=("",)))
    assert push(ann, PushRequest(NAME.label, sessions=("one", "tw"))).sent == 2
    assert texts(data, tmp_path / "t") == ["first words", "third words"]


def test_sessions_that_nobody_let_out_stay(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    ann.store(session("one", "first words"), session("two", "second words", "third words"))
    ann.selection = Selection("ann/proj", {"one": frozenset({"one-0"}), "two": frozenset({"two-1"})}, waiting=1)
    report = push(ann)
    assert (report.sent, report.left_out) == (2, 1)
    assert texts(data, tmp_path / "t") == ["first words", "third words"]
    sent = receipts.load_sent(ann.folder)
    assert (sent["one"].state, sent["two"].state) == (receipts.THERE, receipts.LEFT_OUT)


def test_a_dry_run_changes_nothing(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "plain words", "hunter2 is the password"))
    talk = Answers()
    report = ann.publisher().push(PushRequest(NAME.label, dry=True), talk)
    assert (report.sent, report.held, report.commit, talk.asked) == (1, 1, "", [])
    assert data.commits == []
    assert receipts.load(ann.folder) is None


def test_without_a_memory_there_is_nothing_to_publish(ann: Machine) -> None:
    with pytest.raises(NoMemoryError):
        push(ann)


# -- what is asked -------------------------------------------------------------------------------------


def test_nobody_there_to_ask_means_no(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "words"))
    with pytest.raises(PushRefusedError, match="Create the private dataset") as caught:
        push(ann, answer=None)
    assert caught.value.exit_code == 2
    assert "--yes" in caught.value.hint
    assert data.commits == []
    with pytest.raises(PushRefusedError):
        push(ann, answer=False)
    assert push(ann, PushRequest(NAME.label, yes=True), None).created


def test_a_memory_with_nothing_of_this_machine_asks_first(ann: Machine, bob: Machine, data: Dataset) -> None:
    ann.store(session("one", "words of ann"))
    bob.store(session("two", "words of bob"))
    push(ann)
    with pytest.raises(PushRefusedError, match="none of them from this machine"):
        push(bob, answer=None)
    assert push(bob, PushRequest(NAME.label, yes=True), None).sent == 1
    bob.store(session("three", "more words"))
    assert push(bob, answer=None).sent == 1  # it was asked once


def test_to_have_a_dataset_made_is_not_to_agree_to_somebody_elses(ann: Machine, bob: Machine, data: Dataset) -> None:
    ann.store(session("one", "words of ann"))
    bob.store(session("two", "words of bob"))
    talk = Answers()
    publisher = ann.publisher()
    agrees = talk.agrees

    def slowly(question: str) -> bool | None:
        if not data.commits:
            push(bob)
            return agrees(question)
        return None

    talk.agrees = slowly  # type: ignore[method-assign]
    with pytest.raises(PushRefusedError, match="none of them from this machine"):
        publisher.push(PUSH, talk)


def test_a_memory_that_was_replaced_by_another_asks_again(ann: Machine, bob: Machine, data: Dataset) -> None:
    ann.store(session("one", "words of ann"))
    push(ann)
    data.commits.clear()
    bob.store(session("two", "words of bob"))
    push(bob)
    with pytest.raises(PushRefusedError, match="none of them from this machine"):
        push(ann, answer=None)


def test_a_public_memory_is_warned_of_and_asked_about(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "words"))
    push(ann)
    data.private = False
    ann.store(session("two", "more words"))
    with pytest.raises(PushRefusedError):
        push(ann, answer=None)
    talk = Answers()
    assert ann.publisher().push(PUSH, talk).public
    assert talk.said == ["ann/memory is public: everybody can read what is published there."]
    assert talk.asked == ["Publish 1 session of this machine there?"]
    ann.store(session("three", "even more"))
    assert push(ann, answer=None).sent == 1


def test_somebody_elses_dataset_without_a_memory_asks_first(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "words"))
    data.commits.append({"train.parquet": b"", "README.md": b"# Mine\n"})
    with pytest.raises(PushRefusedError, match="holds no memory"):
        push(ann, answer=None)
    push(ann)
    assert data.files["README.md"] == b"# Mine\n"
    assert "train.parquet" in data.files


def test_a_dataset_that_was_emptied_asks_again(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "some words"))
    push(ann)
    data.commits.append({})
    with pytest.raises(PushRefusedError, match="holds no memory"):
        push(ann, PushRequest(NAME.label, yes=False), None)
    assert push(ann).sent == 1


def test_no_dataset_is_made_for_a_branch(ann: Machine, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    ann.store(session("one", "some words"))
    publisher = ann.publisher()
    monkeypatch.setattr(publisher, "_name", HubName(NAME.repo, "br"))
    for dry in (True, False):
        with pytest.raises(HubRepoMissingError) as told:
            publisher.push(PushRequest("x", yes=True, dry=dry), Answers(None))
        assert told.value.hint == f"Make the dataset first: funes push {NAME.repo}"
    assert data.commits == []


def test_a_dataset_that_was_just_made_is_not_asked_about_again(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "words"))
    data.drop_commit = 10
    with pytest.raises(HubUnreachableError):
        push(ann)
    assert len(data.commits) == 1
    data.drop_commit = 0
    assert push(ann, answer=None).sent == 1


# -- other memories ------------------------------------------------------------------------------------


class Other:
    """Another model: a bit for each letter."""

    name = "other-model"
    dim = 26

    def embed_passages(self, texts: Any) -> Any:
        rows = [[float(letter in text) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
        return np.array(rows, np.float32)

    def embed_query(self, text: str) -> Any:
        return self.embed_passages([text])[0]


def test_another_model_makes_the_vectors_anew(ann: Machine, bob: Machine, data: Dataset, tmp_path: Path) -> None:
    other = Other()
    bob.store(session("two", "words of bob"), filled=False, model=Embedding(other.name, other.dim))
    with pytest.raises(FunesError) as caught:  # nothing of bob's has a vector
        push(bob), push(ann)
    assert isinstance(caught.value, NoMemoryError)
    table = ChunkTable.open(bob.memory)
    rows = [row for part in table.stream() for row in part]
    table.upsert(rows, list(other.embed_passages([row.text for row in rows])))
    push(bob)
    ann.store(session("one", "first words"))
    ann.store(session("three", "no vector yet"), filled=False)
    with pytest.raises(FunesError, match="made by other-model") as caught:
        push(ann)
    assert "funes models pull other-model" in caught.value.hint
    ann.models = {other.name: other}
    report = push(ann)
    assert (report.sent, report.embedded, report.unfilled) == (2, 2, 0)
    theirs = ChunkTable.open(table_at(data, tmp_path / "t"))
    assert theirs.embedding == Embedding("other-model", 26)
    found = {name: row for ids, vectors in theirs.vectors() for name, row in zip(ids, vectors, strict=True)}
    for name, text in published(data, tmp_path / "u").items():
        assert found[name].tolist() == other.embed_passages([text])[0].tolist()


def test_only_so_many_are_embedded_anew(ann: Machine, bob: Machine, data: Dataset) -> None:
    other = Other()
    bob.store(session("two", "words of bob"), model=Embedding("test-model", 16))
    push(bob)
    ann.models = {"test-model": _Same()}
    ann.store(*[session(f"s{n}", f"words {n}") for n in range(4)], filled=False, model=Embedding(other.name, other.dim))
    report = push(ann, PushRequest(NAME.label, most=3))
    assert (report.sent, report.later) == (3, 1)
    assert sorted(item.state for item in receipts.load_sent(ann.folder).values()) == ["there"] * 3 + ["waits"]
    assert push(ann, PushRequest(NAME.label, most=3)).sent == 1


class _Same(Other):
    name = "test-model"
    dim = 16

    def embed_passages(self, texts: Any) -> Any:
        return embed(list(texts))


class _Breaks(_Same):
    """Ends after some texts."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.made: list[str] = []

    def embed_passages(self, texts: Any) -> Any:
        if len(self.made) + len(texts) > self.after:
            raise FunesError("cut off")
        self.made += texts
        return super().embed_passages(texts)


def test_vectors_that_were_made_are_kept_until_they_have_arrived(
    ann: Machine, bob: Machine, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob.store(session("bobs", "words of bob"), model=Embedding("test-model", 16))
    push(bob)
    ann.store(*[session(f"s{n}", f"words {n}") for n in range(5)], filled=False, model=Embedding("other-model", 26))
    monkeypatch.setattr(vectors, "_AT_ONCE", 2)
    first = _Breaks(after=4)
    ann.models = {"test-model": first}
    with pytest.raises(FunesError, match="cut off"):
        push(ann)
    kept = ann.folder / vectors.FILE
    assert kept.stat().st_mode & 0o777 == 0o600
    with kept.open("r+b") as file:  # a kill leaves half of one, and a page that was lost another
        file.truncate(kept.stat().st_size - 1)
        file.seek(16 + 20)
        file.write(b"\1\1\1\1")
    second = _Breaks(after=99)
    ann.models = {"test-model": second}
    data.drop_commit = 1  # so that everything is looked at and written again
    assert push(ann).sent == 5
    assert len(second.made) == 3
    assert set(first.made[1:3]).isdisjoint(second.made)
    assert not kept.exists()
    theirs = ChunkTable.open(table_at(data, tmp_path / "t"))
    found = {name: row for ids, rows in theirs.vectors() for name, row in zip(ids, rows, strict=True)}
    for name, text in published(data, tmp_path / "u").items():
        assert found[name].tolist() == embed([text])[0].tolist()


def test_kept_vectors_go_with_what_is_forgotten_and_with_another_model(ann: Machine, tmp_path: Path) -> None:
    kept = ann.folder / vectors.FILE
    for embedder in (Other(), _Same(), Other()):
        store = vectors.KeptVectors(kept, embedder)
        assert store.embed_passages(["a", "b", "a"]).shape == (3, embedder.dim)
        store.close()
        assert kept.stat().st_size in (16 + n * (20 + 4 * embedder.dim) for n in (2, 3))
    stage.sweep(ann.root / "remotes")
    assert not kept.exists()
    (tmp_path / "file").write_text("")
    nowhere = vectors.KeptVectors(tmp_path / "file" / "x", Other())
    assert nowhere.embed_passages(["b"])[0].tolist() == Other().embed_passages(["b"])[0].tolist()


def test_a_table_with_fewer_columns_keeps_them(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    import lancedb
    import pyarrow as pa

    columns = [name for name in CONTRACT_COLUMNS if name not in ("harness", "repo")]
    kinds = {"seq": pa.int64(), "block_idx": pa.int64(), "split_idx": pa.int64(), "vector": pa.list_(pa.float32(), 16)}
    schema = pa.schema([(name, kinds.get(name, pa.utf8())) for name in columns], {"embedding_model": "test-model"})
    lancedb.connect(tmp_path / "rust").create_table("chunks", schema=schema)
    data.commits.append(
        {str(p.relative_to(tmp_path / "rust")): p.read_bytes() for p in (tmp_path / "rust").rglob("*") if p.is_file()}
    )
    ann.store(session("one", "first words"))
    push(ann)
    theirs = ChunkTable.open(table_at(data, tmp_path / "t"))
    assert theirs.columns == columns
    [[row]] = list(theirs.stream())
    assert (row.text, row.session_id, row.repo) == ("first words", "one", "")


# -- files ---------------------------------------------------------------------------------------------


def test_many_small_files_are_joined_in_the_same_commit(
    ann: Machine, data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "MOST_FILES", 3)
    for number in range(4):
        ann.store(session(f"s{number}", f"words {number}"))
        report = push(ann)
    assert report.joined
    kinds = [path.split("/")[1] for path in data.files if path.startswith("chunks.lance/")]
    assert (kinds.count("data"), kinds.count("_versions")) == (1, 1)
    assert texts(data, tmp_path / "t") == [f"words {n}" for n in range(4)]
    assert len(data.commits) == 5
    ann.store(session("s4", "words 4"))
    assert not push(ann).joined
    assert len(texts(data, tmp_path / "u")) == 5


def test_joining_can_be_asked_for(ann: Machine, data: Dataset, tmp_path: Path) -> None:
    for number in range(2):
        ann.store(session(f"s{number}", f"words {number}"))
        push(ann)
    report = push(ann, PushRequest(NAME.label, compact=True))
    assert (report.joined, report.sent) == (True, 0)
    assert sum("/data/" in path for path in data.files) == 1
    assert len(texts(data, tmp_path / "t")) == 2


def test_indexes_of_the_table_stay_valid_and_are_brought_up_to_date_on_demand(
    ann: Machine, data: Dataset, tmp_path: Path
) -> None:
    import lancedb

    ann.store(session("one", "first words"))
    push(ann)
    root = table_at(data, tmp_path / "rust")
    table = lancedb.connect(root).open_table("chunks")
    table.create_index("text", config=lancedb.index.FTS())
    data.commits.append({str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()})

    def found(folder: Path, word: str) -> int:
        opened = lancedb.connect(table_at(data, folder)).open_table("chunks")
        return len(opened.search(word, query_type="fts").limit(5).to_list())

    ann.store(session("two", "later sentence"))
    assert not push(ann).joined
    assert (found(tmp_path / "t", "first"), found(tmp_path / "t", "later")) == (1, 1)
    assert ChunkTable.open(tmp_path / "t").indexes() == {"text_idx": 1}
    assert push(ann, PushRequest(NAME.label, compact=True)).joined
    assert (found(tmp_path / "u", "first"), found(tmp_path / "u", "later")) == (1, 1)
    assert ChunkTable.open(tmp_path / "u").indexes() == {"text_idx": 0}


def test_when_joining_pays() -> None:
    assert not stage.wants_joining(64, 10, [])
    assert stage.wants_joining(65, 10, [])
    assert not stage.wants_joining(1, 1_000_000, [20_000])
    assert stage.wants_joining(1, 50_000, [0, 20_000])


def test_one_push_at_a_time_and_leftovers_go(ann: Machine, data: Dataset) -> None:
    ann.store(session("one", "words"))
    lock = WriterLock(ann.folder / stage.LOCK)
    assert lock.acquire()
    left = ann.folder / "stage" / "ours" / "left"
    left.parent.mkdir(parents=True)
    left.write_text("over")
    stage.sweep(ann.root / "remotes")
    assert left.exists()  # a push is under way
    with pytest.raises(PushBusyError):
        push(ann)
    lock.release()
    stage.sweep(ann.root / "remotes")
    assert not (ann.folder / "stage").exists()
    assert push(ann).sent == 1


def test_everything_on_disk_is_private(ann: Machine) -> None:
    ann.store(session("one", "words"))
    push(ann)
    for path in (ann.folder / "receipt.json", ann.folder / "sent.json"):
        assert path.stat().st_mode & 0o777 == 0o600
        json.loads(path.read_bytes())
    assert ann.folder.stat().st_mode & 0o777 == 0o700
