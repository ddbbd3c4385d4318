"""A memory and the model that made its vectors: missing, broken, changed, and moved to while it answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from models_support import EMBEDDER, RERANKER, spec_of, tiny_embedder, tiny_reranker, written

from funes_mcp.deepmodels import DeepModels
from funes_mcp.errors import BadRequestError, FunesError, ModelMismatchError, NoMemoryError
from funes_mcp.home import FunesHome
from funes_mcp.inference.fastembed_models import FastEmbedEmbedder
from funes_mcp.inference.known import EMBEDDER as USUAL_EMBEDDER
from funes_mcp.inference.known import RERANKER as USUAL_RERANKER
from funes_mcp.inference.store import ModelBrokenError, ModelMissingError
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.stamp import stamp_of
from funes_mcp.memory.table import ChunkTable
from funes_mcp.memory.upgrade import Plan, SideVectors
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.models import ForgetRequest, IndexRequest, RecallRequest
from funes_mcp.redaction import Redactor
from funes_mcp.service import IndexService

SAYINGS = (
    "why was the cache dropped",
    "because the streaming parser splits quoted newlines across buffers",
    "the tide tables were an hour off since summer time",
    "how did we fix the flaky upload test",
    "the chart palette is colour blind",
    "which database index did we settle on",
)


def talk(home: Path, name: str, sayings: Sequence[str] = SAYINGS) -> None:
    """A transcript of Claude Code's in which those things are said."""
    folder = home / ".claude" / "projects" / "-home-ann-proj"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "type": "user" if at % 2 == 0 else "assistant",
            "uuid": f"{name}-{at}",
            "parentUuid": f"{name}-{at - 1}" if at else None,
            "sessionId": name,
            "cwd": "/home/ann/proj",
            "timestamp": f"2026-05-01T10:{at // 60:02d}:{at % 60:02d}.000Z",
            "message": {"role": "user" if at % 2 == 0 else "assistant", "content": saying},
        }
        for at, saying in enumerate(sayings)
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    talk(tmp_path, "one")
    return tmp_path


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny models are ones that a pull brings."""
    specs = (tiny_embedder()[0], tiny_reranker()[0])
    monkeypatch.setattr("funes_mcp.inference.known.known.__defaults__", (specs,))


def service(home: Path, **more: Any) -> IndexService:
    made = IndexService(FunesHome(home / ".funes"), {"HOME": str(home)}, lock_wait=0.0, **more)
    made.__dict__["_redactor"] = Redactor(library=False)
    return made


def bring(home: Path, models: DeepModels, *, dim: int = 16, seed: int = 1, reranker: bool = False) -> None:
    """Have tiny models on the machine."""
    made = tiny_reranker() if reranker else tiny_embedder(dim, seed)
    models.store.pull(made[0], written(made[1], home / f"stick{dim}{seed}{reranker}"))


def answers(one: IndexService, query: str = "quoted newlines in the streaming parser", **more: Any) -> list[str]:
    return [hit.chunk.text for hit in one.recall(RecallRequest(query, **more)).hits]


def notes(one: IndexService) -> str:
    return " | ".join(one.recall(RecallRequest("cache")).notes)


def stamp(home: Path) -> tuple[str, int]:
    found = stamp_of(home / ".funes" / "memory")
    assert found is not None
    return found.model, found.width


def vectors(home: Path) -> dict[str, Any]:
    table = ChunkTable.open(home / ".funes" / "memory")
    return {name: row for ids, matrix in table.vectors() for name, row in zip(ids, matrix, strict=True)}


def right(home: Path, one: IndexService) -> None:
    """Every vector is the model's of its text, in the table and where it is searched."""
    memory = home / ".funes" / "memory"
    stored = one.models.store.get(EMBEDDER)
    assert stored is not None
    texts = {row.id: row.text for part in ChunkTable.open(memory).stream() for row in part}
    found = vectors(home)
    assert found.keys() == texts.keys()
    wanted = FastEmbedEmbedder(one.models.store, stored).embed_passages(list(texts.values()))
    for name, vector in zip(texts, wanted, strict=True):
        assert found[name] == pytest.approx(vector, abs=1e-5)
    reader = one._reader("local")
    searched = reader.vectors([int(name, 16) for name in texts])
    assert searched == pytest.approx(wanted, abs=0.02)


def test_a_memory_moves_to_another_model_and_back(home: Path) -> None:
    one = service(home)
    one.index(IndexRequest())
    before = answers(one)
    bring(home, one.models)
    columns = ChunkTable.open(home / ".funes" / "memory").columns
    done = one.models.use(EMBEDDER)
    assert (done.switched, done.embedded, done.left) == (True, len(SAYINGS), 0)
    assert stamp(home) == (EMBEDDER, 16)
    assert ChunkTable.open(home / ".funes" / "memory").columns == columns
    right(home, one)
    assert SAYINGS[1] in answers(one)[:3]
    assert notes(one) == ""
    assert one.models.moving() is None
    one.models.use("bundled")
    assert stamp(home) == (one.models.bundled.name, one.models.bundled.dim)
    assert answers(service(home)) == before


def test_it_answers_as_before_until_the_switch_and_goes_on_after_a_stop(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = service(home)
    one.index(IndexRequest())
    before = answers(one)
    bring(home, one.models)
    embed = FastEmbedEmbedder.embed_passages
    calls: list[int] = []

    def dies(self: FastEmbedEmbedder, texts: Sequence[str]) -> Any:
        calls.append(len(texts))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return embed(self, texts)

    monkeypatch.setattr("funes_mcp.deepmodels._LEAST", 2)
    monkeypatch.setattr("funes_mcp.deepmodels._STEP_S", 0.0)
    monkeypatch.setattr(FastEmbedEmbedder, "embed_passages", dies)
    with pytest.raises(KeyboardInterrupt):
        one.models.use(EMBEDDER)
    assert one.models.moving() == (EMBEDDER, 2)
    assert answers(one) == before
    assert stamp(home)[0] == one.models.bundled.name
    assert "2 of 6 passages are embedded with it" in " ".join(one.status().notes)
    again = service(home)
    talk(home, "two", ["the deploy code was an error", "rollback"])
    again.index(IndexRequest())
    assert "the deploy code was an error" in answers(again, "deploy error")
    done = again.models.use(EMBEDDER)
    assert (done.embedded, done.switched) == (6, True)
    right(home, again)
    assert SAYINGS[1] in answers(one)[:3]  # a server that was open all the time


def test_the_newest_come_first_and_a_turn_takes_a_bounded_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = service(home)
    one.index(IndexRequest())
    bring(home, one.models)
    monkeypatch.setattr("funes_mcp.deepmodels._LEAST", 1)
    memory = home / ".funes" / "memory"
    SideVectors(memory).begin(Plan(Embedding(EMBEDDER, 16), one.models.store.all()[0].spec.revision))
    seen: list[str] = []
    clock = iter(range(1000))
    monkeypatch.setattr("funes_mcp.deepmodels.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    embed = FastEmbedEmbedder.embed_passages
    monkeypatch.setattr(
        FastEmbedEmbedder, "embed_passages", lambda self, texts: seen.extend(texts) or embed(self, texts)
    )
    done = one.deepen(6.0)
    assert not done.switched
    assert 0 < done.embedded < len(SAYINGS)
    assert done.left == len(SAYINGS) - done.embedded
    assert seen == list(reversed(SAYINGS))[: done.embedded]
    while not one.deepen(6.0).switched:
        pass
    assert stamp(home) == (EMBEDDER, 16)


def test_killed_between_the_table_and_all_that_follows(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = service(home)
    one.index(IndexRequest())
    before = answers(one)
    bring(home, one.models)

    def dies(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("funes_mcp.memory.derived.catch_up_vectors", dies)
        with pytest.raises(KeyboardInterrupt):
            one.models.use(EMBEDDER)
    assert answers(one) == before
    assert stamp(home) == (EMBEDDER, 16)
    again = service(home)
    assert SAYINGS[1] in answers(again)[:3]
    assert again.models.use(EMBEDDER).left == 0
    right(home, again)
    talk(home, "two", ["the deploy code was an error"])
    again.index(IndexRequest())
    assert again.deepen(None).embedded == 1
    right(home, again)


def test_with_a_slow_model_words_are_complete_at_once_and_vectors_follow(home: Path) -> None:
    one = service(home)
    bring(home, one.models)
    report = one.index(IndexRequest(model="TINY/embedder"))
    assert (report.chunks_stored, report.embedded) == (len(SAYINGS), 0)
    assert stamp(home) == (EMBEDDER, 16)
    assert SAYINGS[1] in answers(one)[:3]
    assert "0 of 6 passages have vectors; words find the rest" in notes(one)
    assert "0 of 6 passages have vectors; words find the rest" in " ".join(one.status().notes)
    assert one.models.work_waits()
    assert one.deepen().embedded == 6
    assert not one.models.work_waits()
    assert notes(one) == ""
    right(home, one)
    talk(home, "one", [*SAYINGS, "retry the deploy"])
    assert one.index(IndexRequest()).chunks_stored == 1
    assert "6 of 7" in notes(one)
    assert one.deepen().embedded == 1
    right(home, one)


def test_a_model_that_is_not_here_leaves_the_words(home: Path, listed: None) -> None:
    one = service(home)
    with pytest.raises(ModelMissingError, match="funes models pull tiny/embedder"):
        one.index(IndexRequest(model=EMBEDDER))
    bring(home, one.models)
    one.index(IndexRequest(model=EMBEDDER))
    one.deepen()
    one.models.store.remove(EMBEDDER)
    assert SAYINGS[1] in answers(one)[:3]
    assert "tiny/embedder's, which is not here: words alone decide" in notes(one)
    assert "tiny/embedder's, which is not here: words alone decide" in " | ".join(one.status().notes)
    assert "tiny/embedder's, which is not here" in " | ".join(
        finding.message for finding in one.doctor().findings if finding.state == "problem"
    )
    talk(home, "two", ["the deploy code was an error"])
    assert service(home).index(IndexRequest()).chunks_stored == 1
    assert answers(one, "deploy error")[0] == "the deploy code was an error"
    assert "not here" in one.deepen().note
    for _ in range(2):  # with nothing to do, and with something
        with pytest.raises(ModelMismatchError, match="funes models use"):
            one.index(IndexRequest(model="bundled"))
        talk(home, "three", ["decision"])


@pytest.mark.parametrize(("dim", "seed", "said"), [(24, 1, "have 16 numbers"), (16, 7, "")])
def test_a_model_of_another_width_or_revision_is_not_used(home: Path, dim: int, seed: int, said: str) -> None:
    one = service(home)
    bring(home, one.models)
    one.index(IndexRequest(model=EMBEDDER))
    one.deepen()
    spec, files = tiny_embedder(dim, seed)
    spec = spec if said else replace(spec, revision="f" * 40)
    one.models.store.pull(spec, written(files, home / "other"))
    assert SAYINGS[1] in answers(one)[:3]
    assert (said or "another revision of tiny/embedder") in notes(one)
    assert "words alone decide (`funes models use tiny/embedder` embeds it again)" in notes(one)
    assert one.models.use(EMBEDDER).switched
    assert notes(one) == ""
    right(home, one)


def from_folder(home: Path, models: DeepModels, seed: int) -> str:
    """Bring the embedder out of a folder as one of which no commit is known; its revision."""
    _, files = tiny_embedder(16, seed)
    spec = spec_of(EMBEDDER, "embedder", files, "model.onnx", 16, pinned=False, revision="main")
    return models.store.pull(spec, written(files, home / f"folder{seed}")).spec.revision


def test_vectors_of_other_files_under_the_same_name_are_not_mixed(home: Path) -> None:
    one = service(home)
    from_folder(home, one.models, 1)
    one.index(IndexRequest(model=EMBEDDER))
    one.deepen()
    before = vectors(home)
    from_folder(home, one.models, 2)
    talk(home, "two", ["the deploy code was an error"])
    one.index(IndexRequest())
    assert "another revision of tiny/embedder" in one.deepen().note
    assert "another revision of tiny/embedder" in notes(one)
    assert vectors(home).keys() == before.keys()
    assert one.models.use(EMBEDDER).switched
    assert notes(one) == ""
    right(home, one)


def test_a_revision_that_is_the_name_of_a_branch_goes_on(home: Path) -> None:
    one = service(home)
    from_folder(home, one.models, 1)
    record = home / ".funes/models/tiny--embedder/funes-model.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "revision": "main"}))  # as it was written once
    one.index(IndexRequest(model=EMBEDDER))
    one.deepen()
    assert notes(one) == ""
    assert from_folder(home, one.models, 1) == "main"
    assert notes(one) == ""
    from_folder(home, one.models, 2)
    assert "another revision of tiny/embedder" in notes(one)


def test_a_broken_model_leaves_the_words_until_it_is_brought_again(home: Path) -> None:
    one = service(home)
    bring(home, one.models)
    one.index(IndexRequest(model=EMBEDDER))
    one.deepen()
    stored = one.models.store.get(EMBEDDER)
    assert stored is not None
    (stored.folder / "model.onnx").write_bytes(b"x")
    two = service(home)
    assert SAYINGS[1] in answers(two)[:3]
    assert "model.onnx is damaged" in notes(two)
    assert "Words alone decide" in notes(two)
    with pytest.raises(FunesError, match="damaged"):
        two.models.use(EMBEDDER)
    bring(home, two.models)
    assert notes(two) == ""


def test_a_model_that_cannot_be_used_does_not_set_the_memory_on_its_way(home: Path) -> None:
    one = service(home)
    one.index(IndexRequest())
    spec, files = tiny_embedder(16)
    one.models.store.pull(replace(spec, dim=24), written(files, home / "other"))
    with pytest.raises(FunesError, match=r"gives vectors of 16 numbers, not of 24 .* The memory stays as it is"):
        one.models.use(EMBEDDER)
    assert one.models.moving() is None
    assert not one.models.work_waits()


def test_what_is_forgotten_on_the_way_leaves_no_vector(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = service(home)
    talk(home, "two", ["the deploy code was an error", "rollback"])
    one.index(IndexRequest())
    bring(home, one.models)
    memory = home / ".funes" / "memory"
    monkeypatch.setattr("funes_mcp.deepmodels.DeepModels._switch", lambda *_: False)
    one.models.deepen()
    with pytest.raises(FunesError, match="writing"):
        one.models.use(EMBEDDER)
    assert SideVectors(memory).done == 8
    one.forget(one.plan_forgetting(ForgetRequest("two")))
    assert SideVectors(memory).done == len(SideVectors(memory).keys()) == 6
    monkeypatch.undo()
    assert one.models.use(EMBEDDER).switched
    right(home, one)


def test_what_comes_in_during_a_move_follows_behind_the_scenes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = service(home)
    one.index(IndexRequest())
    bring(home, one.models)
    embed = FastEmbedEmbedder.embed_passages
    late = ["the deploy code was an error", "rollback"]

    def meanwhile(self: FastEmbedEmbedder, texts: Sequence[str]) -> Any:
        monkeypatch.setattr(FastEmbedEmbedder, "embed_passages", embed)
        talk(home, "two", late)
        service(home).index(IndexRequest())
        return embed(self, texts)

    monkeypatch.setattr(FastEmbedEmbedder, "embed_passages", meanwhile)
    done = one.models.use(EMBEDDER)
    assert (done.switched, done.left) == (True, 0)
    assert stamp(home) == (EMBEDDER, 16)
    right(home, one)
    assert late[0] in answers(one, "deploy error")


@pytest.mark.parametrize("asked", [EMBEDDER, "bundled"])
def test_while_a_process_embeds_no_other_changes_what_it_is_at(home: Path, asked: str) -> None:
    one = service(home)
    one.index(IndexRequest())
    bring(home, one.models)
    side = SideVectors(home / ".funes" / "memory")
    plan = Plan(Embedding("ann/another", 24), "r")
    side.begin(plan)
    side.put([1, 2], ["a", "b"], np.ones((2, 24), np.float32))
    with one.models._alone(), pytest.raises(FunesError, match="Nothing was changed"):
        service(home).models.use(asked)
    assert (side.plan(), side.done) == (plan, 2)
    assert not (home / ".funes" / "models" / ".chosen").exists()
    one.models.use(asked)
    assert side.plan() is None
    assert side.done == 0
    if asked == EMBEDDER:
        right(home, one)


def test_a_session_is_forgotten_while_vectors_are_still_to_come(home: Path) -> None:
    one = service(home)
    bring(home, one.models)
    one.index(IndexRequest(model=EMBEDDER))
    one.deepen()
    talk(home, "two", ["the deploy code was an error", "rollback"])
    talk(home, "three", ["the quay was painted"])
    one.index(IndexRequest())
    assert one.forget(one.plan_forgetting(ForgetRequest("two"))) == 2
    memory = home / ".funes" / "memory"
    assert not any(b"rollback" in path.read_bytes() for path in memory.rglob("*") if path.is_file())
    assert sum(ChunkTable.open(memory).ids().values()) == len(SAYINGS)
    one.deepen()
    right(home, one)


def test_damaged_side_files_are_made_again(home: Path) -> None:
    one = service(home)
    one.index(IndexRequest())
    side = SideVectors(home / ".funes" / "memory")
    side.begin(Plan(Embedding(EMBEDDER, 16), "r"))
    side.put([1, 2], ["a", "b"], np.ones((2, 16), np.float32))
    found = side.load()
    assert found(f"{1:016x}", "a") is not None
    assert found(f"{1:016x}", "changed") is None
    assert found(f"{3:016x}", "a") is None
    (path,) = side.folder.glob("*.vec")
    path.write_bytes(path.read_bytes()[:100])
    assert side.keys() == set()
    side.begin(Plan(Embedding(EMBEDDER, 16), "another"))
    assert side.done == 0


def test_the_usual_model_is_adopted_unless_another_was_chosen(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("funes_mcp.deepmodels.EMBEDDER", EMBEDDER)
    one = service(home)
    one.index(IndexRequest())
    assert not one.models.adopt()
    bring(home, one.models)
    assert one.models.adopt()
    assert one.models.moving() == (EMBEDDER, 0)
    one.models.use("bundled")
    assert one.models.moving() is None
    assert not one.models.adopt()


def test_no_memory_sets_out_for_a_model_that_is_damaged(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("funes_mcp.deepmodels.EMBEDDER", EMBEDDER)
    one = service(home)
    one.index(IndexRequest())
    bring(home, one.models)
    graph = home / ".funes/models/tiny--embedder/model.onnx"
    sound = graph.read_bytes()
    graph.write_bytes(b"x")
    with pytest.raises(ModelBrokenError):
        one.models.adopt()
    assert one.models.moving() is None
    graph.write_bytes(sound)
    assert one.models.adopt()
    graph.write_bytes(b"x")
    with pytest.raises(ModelBrokenError):  # on its way already
        one.models.adopt()
    one.models.store.remove(EMBEDDER)
    with pytest.raises(FunesError, match="tiny/embedder"):
        one.models.adopt()


@pytest.mark.parametrize("named", ["nonsense", "no/such"])
def test_a_name_that_means_no_model_is_not_to_be_pulled(home: Path, named: str) -> None:
    one = service(home)
    one.index(IndexRequest())
    with pytest.raises(BadRequestError, match=rf"no model called '{named}'.\n`funes models` lists"):
        one.models.use(named)
    with pytest.raises(BadRequestError, match=rf"no model called '{named}'.\n`funes models` lists"):
        one.index(IndexRequest(model=named))
    with pytest.raises(BadRequestError, match=rf"no cross-encoder called '{named}'.\n`funes models` lists"):
        answers(one, rerank=named)


def test_a_model_of_the_other_kind_is_called_so(home: Path) -> None:
    one = service(home)
    one.index(IndexRequest())
    bring(home, one.models)
    for embedder in (EMBEDDER, USUAL_EMBEDDER):  # one that is here, one that is not
        with pytest.raises(BadRequestError, match=f"{embedder} makes vectors; it does not rerank"):
            answers(one, rerank=embedder)
    bring(home, one.models, reranker=True)
    for reranker in (RERANKER, USUAL_RERANKER):
        with pytest.raises(BadRequestError, match=f"{reranker} reranks; it makes no vectors"):
            one.models.use(reranker)
        with pytest.raises(BadRequestError, match=f"{reranker} reranks; it makes no vectors"):
            one.index(IndexRequest(model=reranker))


def test_what_a_pull_brings_is_to_be_pulled(home: Path) -> None:
    one = service(home)
    one.index(IndexRequest())
    for name in (USUAL_EMBEDDER, "sentence-transformers/all-MiniLM-L6-v2"):
        with pytest.raises(ModelMissingError, match=f"funes models pull {name}"):
            one.models.use(name)
        with pytest.raises(ModelMissingError, match=f"funes models pull {name}"):
            one.index(IndexRequest(model=name))


@pytest.mark.parametrize("named", [RERANKER, EMBEDDER, "nonsense", "../up"])
def test_a_server_goes_on_without_its_cross_encoder(home: Path, named: str) -> None:
    one = service(home)
    one.index(IndexRequest())
    bring(home, one.models)
    server = service(home, rerank=named)
    assert answers(server) == answers(one, rerank="maxsim")
    assert notes(server) == (
        f"there is no cross-encoder {named} here: MaxSim orders the hits (`funes models` lists what is here)"
    )


def test_a_damaged_cross_encoder_leaves_maxsim(home: Path) -> None:
    one = service(home, rerank=RERANKER)
    one.index(IndexRequest())
    bring(home, one.models, reranker=True)
    (home / ".funes/models/tiny--cross-encoder/onnx/model.onnx").write_bytes(b"x")
    assert answers(one) == answers(one, rerank="maxsim")
    assert "model.onnx is damaged" in notes(one)
    assert "MaxSim orders the hits" in notes(one)


def test_the_cross_encoder_orders_what_was_found(home: Path, listed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    one = service(home)
    one.index(IndexRequest())
    with pytest.raises(ModelMissingError, match="funes models pull tiny/cross-encoder"):
        answers(one, rerank=RERANKER)
    plain = answers(one)
    assert answers(one, rerank="maxsim") == plain
    bring(home, one.models, reranker=True)
    read: list[str] = []
    import funes_mcp.inference.fastembed_models as module

    logits = module._logits
    monkeypatch.setattr(
        module, "_logits", lambda model, pairs: read.extend(pair[1] for pair in pairs) or logits(model, pairs)
    )
    question = "how did the streaming parser test go"
    assert answers(one, question, rerank="off")
    assert read == []
    assert answers(one, question, rerank=RERANKER)
    assert read
    assert answers(service(home, rerank=RERANKER), question) == answers(one, question, rerank=RERANKER)
    monkeypatch.setattr("funes_mcp.deepmodels.RERANKER", RERANKER)
    assert answers(one, question) == answers(one, question, rerank=RERANKER)


def test_a_server_answers_before_its_models_are_loaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    first = service(home)
    bring(home, first.models)
    bring(home, first.models, reranker=True)
    first.index(IndexRequest(model=EMBEDDER))
    first.deepen()
    monkeypatch.setattr("funes_mcp.deepmodels.RERANKER", RERANKER)
    go, load = Event(), FastEmbedEmbedder.load
    monkeypatch.setattr(FastEmbedEmbedder, "load", lambda self: (go.wait(20), load(self))[1])
    one = service(home)
    one.warm()
    assert SAYINGS[1] in answers(one)[:3]
    assert "tiny/embedder is still being loaded. Words alone decide" in notes(one)
    go.set()
    for _ in range(400):
        if not one.models._loading:
            break
        Event().wait(0.02)
    assert notes(one) == ""
    assert one.models.reranker_for("auto")[0].name == RERANKER  # type: ignore[union-attr]


def test_without_a_memory_there_is_nothing_to_move(tmp_path: Path) -> None:
    one = service(tmp_path)
    assert stamp_of(tmp_path) is None
    with pytest.raises(NoMemoryError):
        one.models.use("bundled")
    assert not one.models.work_waits()


def test_a_writer_may_not_mix_models(home: Path) -> None:
    one = service(home)
    one.index(IndexRequest())
    with pytest.raises(ModelMismatchError):
        MemoryWriter.open(home / ".funes" / "memory", Embedding(EMBEDDER, 16))
