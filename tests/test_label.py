"""Names of memories."""

from __future__ import annotations

from pathlib import Path

import pytest

from funes_mcp.errors import BadRequestError
from funes_mcp.memory.label import HubName, parse


@pytest.mark.parametrize("label", ["", "local", " local "])
def test_the_local_memory(label: str) -> None:
    assert parse(label) is None


@pytest.mark.parametrize("label", ["/srv/memory", "./owner/name", "../x", ".", "~/memory", "C:\\memory"])
def test_folders_are_absolute_paths(label: str) -> None:
    found = parse(label)
    assert isinstance(found, Path)
    assert found.is_absolute()


def test_a_folder_of_the_same_name_does_not_capture_a_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme" / "x" / "chunks.lance" / "_versions").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse("acme/x") == HubName("acme/x")
    assert parse("./acme/x") == tmp_path / "acme" / "x"


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("acme/x", HubName("acme/x")),
        ("hf://acme/x", HubName("acme/x")),
        ("hf://datasets/acme/x", HubName("acme/x")),
        ("hf://datasets/acme/x@main", HubName("acme/x")),
        ("hf://acme/My_mem.v2-b@refs/pr/1", HubName("acme/My_mem.v2-b", "refs/pr/1")),
        ("https://hub.example/datasets/acme/x", HubName("acme/x")),
        ("https://hub.example/datasets/acme/x/?row=1#top", HubName("acme/x")),
        ("https://hub.example/datasets/acme/x/tree/main", HubName("acme/x")),
        ("https://hub.example/datasets/acme/x/tree/refs%2Fpr%2F1/", HubName("acme/x", "refs/pr/1")),
    ],
)
def test_names_on_the_hub(label: str, name: HubName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    assert parse(label) == name
    assert parse(name.label) == name


@pytest.mark.parametrize(
    "label",
    [
        "acme",
        "acme/",
        "/acme/x\0",
        "acme/x/y",
        "acme/..",
        "acme/x@v1",
        "acme/x;rm",
        "acme/x\nlocal",
        "acme/x\u202e",
        "-a/b",
        "a--b/c",
        "datasets/x",
        "hf://datasets/x",
        "hf://models/acme/x",
        "hf://acme/x@",
        "hf://acme/x@../y",
        "https://huggingface.co/acme/x",
        "https://hf.co/datasets/acme/x",
        "https://huggingface.co/datasets/acme/x/blob/main/README.md",
        "https://huggingface.co/datasets/acme/x/tree/main/chunks.lance",
        "https://huggingface.co/datasets/acme/x/tree/",
        "https://huggingface.co/datasets/acme/x/tree/..%2Fy",
        "https://huggingface.co/datasets/../x",
        "https://huggingface.co.example/datasets/acme/x",
        "acme/x.git",
        f"acme/{'x' * 97}",
    ],
)
def test_what_names_nothing_is_refused_with_examples(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    with pytest.raises(BadRequestError) as refused:
        parse(label)
    assert "`owner/name`" in refused.value.hint


def test_a_revision_is_refused_with_the_form_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    with pytest.raises(BadRequestError) as refused:
        parse("acme/x@v1")
    assert "`hf://datasets/acme/x@v1`" in refused.value.hint
    with pytest.raises(BadRequestError) as refused:
        parse("https://elsewhere.example/datasets/acme/x")
    assert "a dataset's page at huggingface.co" in refused.value.hint


def test_slugs_are_apart_for_repositories_revisions_and_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    here = {HubName("a/b").slug, HubName("a/b", "v1").slug, HubName("a-/b").slug, HubName("A/b").slug}
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:2")
    slugs = here | {HubName("a/b").slug}
    assert len(slugs) == 5
    assert all(set(slug) <= set("aAbv1-0123456789cdef") for slug in slugs)
    assert HubName("a/b").slug.startswith("a--b-")


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(BadRequestError) as refused:
        parse("https://ann:hunter2@huggingface.co/datasets/a/b")
    assert "hunter2" not in str(refused.value)
