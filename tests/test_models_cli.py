"""`funes models` and the offer after an index, as a person meets them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from models_support import EMBEDDER, RERANKER, Hub, tiny_embedder, tiny_reranker, written
from test_models_memory import SAYINGS, service, talk

from funes_mcp.cli import terminal
from funes_mcp.cli.app import run

NAMES = ("funes_mcp.deepmodels", "funes_mcp.inference.known")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home where the tiny models are the usual ones."""
    specs = (tiny_embedder()[0], tiny_reranker()[0])
    for module in NAMES:
        monkeypatch.setattr(f"{module}.KNOWN", specs)
        monkeypatch.setattr(f"{module}.EMBEDDER", EMBEDDER)
        monkeypatch.setattr(f"{module}.RERANKER", RERANKER)
    monkeypatch.setattr("funes_mcp.inference.known.known.__defaults__", (specs,))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FUNES_HOME", str(tmp_path / ".funes"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    talk(tmp_path, "one")
    return tmp_path


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub({EMBEDDER: tiny_embedder()[1], RERANKER: tiny_reranker()[1]}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The workers that were started, none of which runs."""
    started: list[Any] = []
    monkeypatch.setattr("funes_mcp.catchup.start_worker", started.append)
    return started


def funes(home: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run(words, lambda: service(home))
    return (code, *capsys.readouterr())


def answer(monkeypatch: pytest.MonkeyPatch, yes: bool) -> list[str]:
    """Sit at a terminal and say yes, or no, to everything; the questions."""
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return yes

    monkeypatch.setattr(terminal, "is_terminal", lambda stream: stream is not None)
    monkeypatch.setattr(click, "confirm", confirm)
    return asked


def test_pull_list_and_use(home: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = funes(home, capsys, "models")
    assert code == 0
    assert "embedder  funes/static-minilm-256-v1  bundled, 256 numbers" in out
    assert f"embedder  {EMBEDDER}  not here" in out
    assert "memory    there is none yet" in out
    code, out, err = funes(home, capsys, "models", "pull")
    assert (code, out) == (0, "")
    assert f"{EMBEDDER}: 0.0 MB, checksums as this release of funes names them" in err
    assert "The usual models are here." in err
    funes(home, capsys, "index", "--models", "no")
    code, out, _ = funes(home, capsys, "models", "use", EMBEDDER)
    assert (code, out) == (0, f"The memory has moved to {EMBEDDER} ({len(SAYINGS)} passages embedded)\n")
    listed = json.loads(funes(home, capsys, "models", "--json", "--verify")[1])
    assert listed["memory"]["model"] == EMBEDDER
    assert {model["state"] for model in listed["models"]} == {"bundled", "here"}
    (home / ".funes/models/tiny--embedder/model.onnx").write_bytes(b"")
    code, out, _ = funes(home, capsys, "models")
    assert code == 1
    assert "model.onnx is damaged" in out


def test_pull_mends_what_is_damaged(home: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    funes(home, capsys, "models", "pull")
    graph = home / ".funes/models/tiny--embedder/model.onnx"
    stat = graph.stat()
    graph.write_bytes(graph.read_bytes()[:-1] + b"\xff")
    os.utime(graph, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # nothing but the checksum tells
    code, _, err = funes(home, capsys, "models", "pull")
    assert code == 0
    assert f"The model {EMBEDDER} is broken: model.onnx is damaged. It is brought again." in err
    assert RERANKER not in err
    assert "The usual models are here." in err
    assert funes(home, capsys, "models", "--verify")[0] == 0
    hub.asked.clear()
    assert funes(home, capsys, "models", "pull")[2] == "The usual models are here.\n"
    assert hub.asked == []


def test_pull_says_when_what_is_damaged_cannot_be_had(
    home: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    funes(home, capsys, "models", "pull")
    (home / ".funes/models/tiny--embedder/model.onnx").write_bytes(b"x")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    code, _, err = funes(home, capsys, "models", "pull")
    assert code == 1
    assert "could not be fetched from http://127.0.0.1:9" in err
    assert "The usual models are here." not in err


def test_yes_moves_no_memory_to_a_damaged_model(
    home: Path,
    hub: Hub,
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    funes(home, capsys, "models", "pull")
    (home / ".funes/models/tiny--embedder/model.onnx").write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        for words, said in ((["--models", "yes"], "could not be fetched"), ([], "model.onnx is damaged")):
            code, _, err = funes(home, capsys, "index", *words)
            assert code == 0
            assert said in err
            assert "The memory works with the bundled model meanwhile." in err
            assert "moves to" not in err
    assert started == []
    assert f"The memory moves to {EMBEDDER} behind the scenes" in funes(home, capsys, "index", "--models", "yes")[2]
    assert service(home).deepen().switched


def test_a_stick_will_do(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tiny_embedder()[1], home / "stick/tiny--embedder")
    written(tiny_reranker()[1], home / "stick/tiny--cross-encoder")
    code, _, err = funes(home, capsys, "models", "pull", "--from", str(home / "stick"))
    assert code == 0
    assert "checksums as this release of funes names them" in err
    code, _, err = funes(home, capsys, "models", "pull", "no/such", "--from", str(home / "stick"))
    assert code == 2
    assert "fastembed has no model 'no/such'" in err


def test_off_a_terminal_nothing_is_asked_or_fetched(
    home: Path, hub: Hub, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = funes(home, capsys, "index")
    assert code == 0
    assert hub.asked == started == []
    assert "model" not in err


def test_yes_fetches_and_moves_the_memory_behind_the_scenes(
    home: Path, hub: Hub, started: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = funes(home, capsys, "index", "--models", "yes")
    assert code == 0
    assert f"The memory moves to {EMBEDDER} behind the scenes" in err
    assert len(started) == 1
    assert service(home).deepen().switched


def test_a_person_is_asked_once(
    home: Path,
    hub: Hub,
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = answer(monkeypatch, False)
    for _ in range(2):
        assert funes(home, capsys, "index")[0] == 0
    assert len(asked) == 1
    assert f"Fetch deeper models ({EMBEDDER} and {RERANKER}, 0 MB, from {hub.endpoint})?" in asked[0]
    assert started == []
    answer(monkeypatch, True)
    (home / ".funes/models/.declined").unlink()
    assert funes(home, capsys, "index")[0] == 0
    assert service(home).models.missing() == []
    assert len(started) == 1


def test_when_the_hub_is_away_it_is_said_once_and_the_index_is_fine(
    home: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = funes(home, capsys, "index", "--models", "yes")
    assert code == 0
    assert "could not be fetched from http://127.0.0.1:9" in err
    assert "The memory works with the bundled model meanwhile." in err
    asked = answer(monkeypatch, True)
    said = [funes(home, capsys, "index")[2] for _ in range(2)]
    assert ["does not answer" in text for text in said] == [True, False]
    assert asked == started == []


@pytest.mark.parametrize(("words", "offline"), [(["--models", "no"], ""), ([], "1")])
def test_who_forbids_it_is_not_looked_for_a_hub_and_hears_nothing_of_it(
    home: Path,
    hub: Hub,
    started: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    offline: str,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    asked = answer(monkeypatch, True)
    code, _, err = funes(home, capsys, "index", *words)
    assert code == 0
    assert hub.asked == asked == started == []
    assert "does not answer" not in err
