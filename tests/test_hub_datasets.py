"""Dataset repositories through the unmodified library, against a Hub on the loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import READER, STRANGER, WRITER, LoopbackHub

from funes_mcp.hub.datasets import DatasetRepo, RepoFile, is_plain
from funes_mcp.hub.errors import (
    HubConflictError,
    HubDeniedError,
    HubError,
    HubRepoMissingError,
    HubRevisionMissingError,
    HubUnreachableError,
)

LARGE = b"0123456789abcdef" * 4096
NAME = "acme/memory"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        hub.settle(monkeypatch, tmp_path)
        yield hub


@pytest.fixture
def repo(hub: LoopbackHub) -> DatasetRepo:
    return DatasetRepo(NAME)


def test_what_is_committed_is_listed_fetched_and_read(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path) -> None:
    repo.create(private=True)
    first = repo.head()
    assert first.private
    (tmp_path / "data.lance").write_bytes(LARGE)
    seen: list[tuple[int, int]] = []
    add = {"chunks.lance/data/0.lance": tmp_path / "data.lance", "README.md": b"# A memory\n", "chunks.lance/a": b"a"}
    made = repo.commit(first.commit, add, [], "First", told=lambda more, total: seen.append((more, total)))
    assert repo.head().commit == made
    assert sum(more for more, _ in seen) == sum(hub.repos[NAME].files[path].__len__() for path in add)
    files = {file.path: file for file in repo.files(made, "chunks.lance")}
    assert sorted(files) == ["chunks.lance/a", "chunks.lance/data/0.lance"]
    assert {file.path: (file.size, len(file.oid)) for file in files.values()} == {
        "chunks.lance/a": (1, 40),
        "chunks.lance/data/0.lance": (len(LARGE), 64),
    }
    came: list[int] = []
    at = repo.fetch(made, files["chunks.lance/data/0.lance"], told=lambda more, total: came.append(more))
    assert (at.read_bytes(), sum(came)) == (LARGE, len(LARGE))
    assert at.is_relative_to(tmp_path / "hf" / "hub")
    assert repo.read(made, "README.md", 1000) == b"# A memory\n"
    assert repo.read(made, "no.md", 1000) is None
    assert repo.files(made, "nothing") == []
    # A later commit has the same content: not a byte of it is asked for again.
    later = repo.commit(made, {"more": b"more"}, ["chunks.lance/a"], "Second")
    asked = len(hub.asked)
    again = repo.fetch(later, files["chunks.lance/data/0.lance"])
    assert (again.read_bytes(), again.resolve(), len(hub.asked)) == (LARGE, at.resolve(), asked)
    assert "chunks.lance/a" not in hub.repos[NAME].files


def test_a_commit_needs_the_head_it_was_made_for(hub: LoopbackHub, repo: DatasetRepo) -> None:
    parent = hub.add(NAME, {"a": b"1"}).id
    hub.before_commit = lambda name: (setattr(hub, "before_commit", None), hub.add(name, {"b": b"2"}))[0]
    with pytest.raises(HubConflictError, match=r"acme/memory at 127\.0\.0\.1:\d+ has changed meanwhile"):
        repo.commit(parent, {"a": b"3"}, [], "Mine")
    assert hub.repos[NAME].files["a"] == b"1"
    with pytest.raises(HubConflictError, match="exists at"):
        repo.create(private=True)


def test_who_may_not_is_told_so(hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    head = hub.add(NAME, {"a": b"1"}, private=True).id
    monkeypatch.setenv("HF_TOKEN", READER)
    assert repo.head().commit == head
    with pytest.raises(HubDeniedError, match="does not let this token"):
        repo.commit(head, {"a": b"2"}, [], "Mine")
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    with pytest.raises(HubRepoMissingError, match="your token may not see it"):
        repo.head()
    monkeypatch.setenv("HF_TOKEN", "hf_notAToken")
    with pytest.raises(HubDeniedError, match="refuses the token") as caught:
        repo.head()
    assert "notAToken" not in str(caught.value)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubRepoMissingError, match=r"no token is set\.\n.*HF_TOKEN"):
        repo.head()
    monkeypatch.setenv("HF_TOKEN", WRITER)
    with pytest.raises(HubRevisionMissingError):
        DatasetRepo(NAME, "nowhere").head()


def test_a_cut_commit_may_have_landed(hub: LoopbackHub, repo: DatasetRepo) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    hub.fail("landed", "cut")
    with pytest.raises(HubUnreachableError) as caught:
        repo.commit(head, {"a": b"2"}, [], "Mine")
    assert caught.value.uncertain
    assert (hub.repos[NAME].files["a"], hub.count("commit")) == (b"2", 1)


def test_a_damaged_file_does_not_stay(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path) -> None:
    head = hub.add(NAME, {"d.lance": LARGE}).id
    file = RepoFile("d.lance", len(LARGE), "0" * 64)
    with pytest.raises(HubError, match="came damaged"):
        repo.fetch(head, file)
    assert not [p for p in (tmp_path / "hf" / "hub").rglob("*lance*") if p.exists()]
    assert not list((tmp_path / "hf" / "hub").rglob("blobs/*"))


def test_offline_is_said(hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubUnreachableError, match="HF_HUB_OFFLINE is set"):
        repo.head()
    assert not hub.asked


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "../a", "a/../b", "a\\b", ".git/config", "a/.b", "a\nb", "a\x1b[2J", "a" * 401, "a/"]
)
def test_paths_that_are_not_plain(path: str) -> None:
    assert not is_plain(path)
    assert is_plain("chunks.lance/_versions/18446744073709551614.manifest")
