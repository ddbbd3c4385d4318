"""Models on their way from the Hub or from a stick, and what is kept of them when something goes wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from models_support import COMMIT, EMBEDDER, RERANKER, Hub, spec_of, tiny_embedder, tiny_reranker, written

from funes_mcp.errors import FunesError
from funes_mcp.hub.files import HubError, answers
from funes_mcp.inference.known import KNOWN, ModelFile, known, prefixes
from funes_mcp.inference.store import ModelBrokenError, ModelStore

SPEC, FILES = tiny_embedder(64)
#: Where a connection is cut: after some of the pieces in which a download is written.
CUT = 3 << 13


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub({EMBEDDER: FILES, RERANKER: tiny_reranker()[1]}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        yield hub


@pytest.fixture
def cut(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Where connections are cut, with a library that does not wait."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return hub.cut


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models")


def test_a_pinned_model_is_fetched_and_checked(hub: Hub, store: ModelStore) -> None:
    told: dict[str, int] = {}
    stored = store.pull(SPEC, told=lambda path, more, size: told.__setitem__(path, told.get(path, 0) + more))
    assert stored == store.get(EMBEDDER)
    assert (stored.checked, stored.spec.revision, stored.spec.dim) == ("package", COMMIT, 64)
    assert told == {path: len(data) for path, data in FILES.items()}
    assert {p.stat().st_mode & 0o777 for p in stored.folder.iterdir()} == {0o600}
    store.check(stored, whole=True)


def test_what_the_hub_names_is_compared_where_nothing_is_pinned(hub: Hub, store: ModelStore) -> None:
    spec = spec_of(EMBEDDER, "embedder", FILES, "model.onnx", 64, pinned=False, revision="main")
    stored = store.pull(replace(spec, files=(*spec.files, ModelFile("vocab.txt", needed=False))))
    assert (stored.checked, stored.spec.revision) == ("hub", COMMIT)
    assert all(len(file.sha256) == 64 for file in stored.spec.files)
    assert [file.path for file in stored.spec.files] == list(FILES)


def test_a_cut_connection_is_taken_up_where_it_broke(hub: Hub, store: ModelStore, cut: dict[str, list[int]]) -> None:
    cut["model.onnx"] = [CUT]
    store.pull(SPEC)
    assert hub.ranges("model.onnx") == ["", f"bytes={CUT}-"]


def test_a_connection_that_is_cut_each_time_brings_the_file_all_the_same(
    hub: Hub, store: ModelStore, cut: dict[str, list[int]]
) -> None:
    graph = bytes(100_000) * 3  # more pieces than the library tries again when nothing comes
    cut["model.onnx"] = [CUT] * 20
    hub.repos[EMBEDDER] = {**FILES, "model.onnx": graph}
    store.pull(spec_of(EMBEDDER, "embedder", hub.repos[EMBEDDER], "model.onnx", 64))
    assert hub.ranges("model.onnx")[1:] == [f"bytes={at}-" for at in range(CUT, len(graph), CUT)]


def test_what_came_before_ctrl_c_is_kept(hub: Hub, store: ModelStore) -> None:
    came: list[int] = []

    def stop(path: str, more: int, size: int) -> None:
        came.append(more if path == "model.onnx" else 0)
        if sum(came) > CUT:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.pull(SPEC, told=stop)
    store.pull(SPEC)
    assert hub.ranges("model.onnx") == ["", f"bytes={CUT}-"]


def test_of_a_damaged_model_only_what_is_damaged_is_fetched(hub: Hub, store: ModelStore) -> None:
    graph = store.pull(SPEC).folder / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"\xff")
    hub.asked.clear()
    store.check(store.pull(SPEC), whole=True)
    assert [(path, asked) for method, path, asked in hub.asked if method == "GET"] == [
        (f"/large/{EMBEDDER}/at/model.onnx", "")
    ]


def test_what_the_hub_has_anew_is_fetched(hub: Hub, store: ModelStore) -> None:
    spec = spec_of(EMBEDDER, "embedder", FILES, "model.onnx", 64, pinned=False, revision="main")
    store.pull(spec)
    hub.repos[EMBEDDER] = {**FILES, "model.onnx": b"another"}
    stored = store.pull(spec)
    assert (stored.folder / "model.onnx").read_bytes() == b"another"
    store.check(stored, whole=True)


def test_other_files_of_a_model_that_is_not_pinned_are_another_revision(store: ModelStore, tmp_path: Path) -> None:
    spec = spec_of(EMBEDDER, "embedder", FILES, "model.onnx", 64, pinned=False, revision="main")
    one = written(FILES, tmp_path / "one")
    other = written({**FILES, "model.onnx": b"another"}, tmp_path / "other")
    first, again, second = (store.pull(spec, folder).spec.revision for folder in (one, one, other))
    assert first == again != second
    assert first.startswith("files-")


def test_a_pull_that_failed_is_taken_up_by_the_next(hub: Hub, store: ModelStore, cut: dict[str, list[int]]) -> None:
    cut["model.onnx"] = [CUT, *[0] * 20]
    with pytest.raises(HubError, match=r"could not be fetched.*\n.*what has come is kept"):
        store.pull(SPEC)
    assert store.get(EMBEDDER) is None
    cut.clear()
    hub.asked.clear()
    told: list[int] = []
    store.pull(SPEC, told=lambda path, more, size: told.append(more) if path == "model.onnx" else None)
    assert hub.ranges("model.onnx") == [f"bytes={CUT}-"]
    assert hub.ranges("tokenizer.json") == []
    assert told[0] == CUT
    assert sum(told) == len(FILES["model.onnx"])


def test_a_file_that_came_damaged_is_not_taken(hub: Hub, store: ModelStore) -> None:
    spec = replace(SPEC, files=tuple(replace(f, sha256="0" * 64) if f.path == "model.onnx" else f for f in SPEC.files))
    with pytest.raises(ModelBrokenError, match="not the file that this release of funes was made for"):
        store.pull(spec)
    assert store.get(EMBEDDER) is None


@pytest.mark.parametrize(
    ("refuse", "sentence"),
    [
        ({"": 401}, "answered 401|no repository tiny/embedder at"),
        ({"": 403}, "answered 403"),
        ({"model.onnx": 500}, "answered 500 when asked for model.onnx"),
    ],
)
def test_a_refusal_is_told_in_a_sentence(hub: Hub, store: ModelStore, refuse: dict[str, int], sentence: str) -> None:
    hub.refuse.update(refuse)
    with pytest.raises(HubError, match=sentence):
        store.pull(SPEC)


def test_what_does_not_exist_is_told_in_a_sentence(hub: Hub, store: ModelStore) -> None:
    with pytest.raises(HubError, match=r"no repository no/such at http://127.0.0.1:\d+, or it is not public"):
        store.pull(replace(SPEC, repo="no/such"))
    with pytest.raises(HubError, match=r"has no revision f{40}"):
        store.pull(replace(SPEC, revision="f" * 40))
    with pytest.raises(HubError, match=r"has no file more\.bin"):
        store.pull(replace(SPEC, files=(ModelFile("more.bin"),)))


def test_without_the_network_it_says_so(store: ModelStore, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(EMBEDDER, "config.json", COMMIT)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not answers(EMBEDDER, "config.json", COMMIT)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        store.pull(SPEC)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert not answers(EMBEDDER, "config.json", COMMIT)
    with pytest.raises(HubError, match=r"could not be fetched from http://127\.0\.0\.1:9"):
        store.pull(SPEC)


@pytest.mark.parametrize("layout", ["{path}", "{name}", "embedder/{path}", "models--tiny--embedder/snapshots/x/{path}"])
def test_a_folder_will_do(store: ModelStore, tmp_path: Path, layout: str) -> None:
    stick = written({layout.format(path=p, name=Path(p).name): data for p, data in FILES.items()}, tmp_path / "stick")
    stored = store.pull(SPEC, stick)
    assert stored.checked == "package"
    store.check(stored, whole=True)


def test_a_damaged_or_wrong_file_in_a_folder_is_refused(store: ModelStore, tmp_path: Path) -> None:
    stick = written(FILES, tmp_path / "stick")
    (stick / "model.onnx").write_bytes(FILES["model.onnx"][:-1])
    with pytest.raises(ModelBrokenError, match="damaged or of another revision"):
        store.pull(SPEC, stick)
    (stick / "model.onnx").unlink()
    with pytest.raises(FunesError, match=r"has no model\.onnx of tiny/embedder"):
        store.pull(SPEC, stick)
    with pytest.raises(FunesError, match="There is no folder"):
        store.pull(SPEC, tmp_path / "nowhere")
    assert store.all() == []


def test_damage_after_the_fact_is_found(store: ModelStore, tmp_path: Path) -> None:
    stored = store.pull(SPEC, written(FILES, tmp_path / "stick"))
    graph = stored.folder / "model.onnx"
    graph.write_bytes(FILES["model.onnx"][:-1] + b"\xff")
    with pytest.raises(ModelBrokenError, match=r"model\.onnx is damaged.\n`funes models pull tiny/embedder`"):
        store.check(stored)
    graph.unlink()
    with pytest.raises(ModelBrokenError, match=r"model\.onnx is missing"):
        store.check(stored)
    (stored.folder / "funes-model.json").write_text("{")
    assert store.get(EMBEDDER) is None


def test_a_folder_that_was_copied_is_as_good(store: ModelStore, tmp_path: Path) -> None:
    stored = store.pull(SPEC, written(FILES, tmp_path / "stick"))
    for path in stored.folder.iterdir():
        path.touch()
    store.check(stored)


def test_no_name_leads_out_of_the_folder(store: ModelStore) -> None:
    for name in ("../x", "a/../../b", "", "c:\\x"):
        with pytest.raises(FunesError):
            store.get(name)


def test_the_usual_models_are_pinned() -> None:
    assert all(spec.pinned and len(spec.revision) == 40 for spec in KNOWN)
    embedder = known("baai/BGE-small-en-v1.5")
    assert embedder is not None
    assert (embedder.dim, embedder.passage) == (384, "")
    assert embedder.query == "Represent this sentence for searching relevant passages: "
    assert prefixes("intfloat/multilingual-e5-large") == ("query: ", "passage: ")
    assert prefixes("sentence-transformers/all-MiniLM-L6-v2") == ("", "")
