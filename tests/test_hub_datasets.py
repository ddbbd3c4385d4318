"""Dataset repositories through the unmodified library, against a Hub on the loopback."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import zstandard
from hub_server import READER, STRANGER, WRITER, LoopbackHub

from funes_mcp.hub import datasets, limits
from funes_mcp.hub.cache import is_content
from funes_mcp.hub.datasets import DatasetRepo, RepoFile, is_plain
from funes_mcp.hub.errors import (
    HubConflictError,
    HubDeniedError,
    HubError,
    HubFileMissingError,
    HubRepoMissingError,
    HubRevisionMissingError,
    HubUnreachableError,
    told,
    words,
)
from funes_mcp.hub.streams import Body, Meter, bar

LARGE = b"0123456789abcdef" * 4096
NAME = "acme/memory"
DATA = "chunks.lance/data/0.lance"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        hub.settle(monkeypatch, tmp_path)
        yield hub


@pytest.fixture
def repo(hub: LoopbackHub) -> DatasetRepo:
    return DatasetRepo(NAME)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the library would have waited."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def cache(tmp_path: Path) -> Path:
    return tmp_path / "hf" / "hub" / "datasets--acme--memory"


def file_of(repo: DatasetRepo, commit: str, path: str = DATA) -> RepoFile:
    return next(file for file in repo.files(commit, path.split("/")[0]) if file.path == path)


# What works


def test_what_is_committed_is_listed_fetched_and_read(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path) -> None:
    repo.create(private=True)
    first = repo.head()
    assert first.private
    (tmp_path / "data.lance").write_bytes(LARGE)
    seen: list[tuple[int, int]] = []
    add: dict[str, Path | bytes] = {
        DATA: tmp_path / "data.lance",
        "README.md": b"# A memory\n",
        "chunks.lance/a": b"a",
        "chunks.lance/empty": b"",
    }
    made = repo.commit(first.commit, add, [], "First", told=lambda more, total: seen.append((more, total)))
    assert repo.head().commit == made
    assert sum(more for more, _ in seen) == len(LARGE) + 11 + 1
    files = {file.path: file for file in repo.files(made, "chunks.lance")}
    assert {path: (file.size, len(file.oid)) for path, file in files.items()} == {
        "chunks.lance/a": (1, 40),
        "chunks.lance/empty": (0, 40),
        DATA: (len(LARGE), 64),
    }
    came: list[int] = []
    at = repo.fetch(made, files[DATA], told=lambda more, total: came.append(more))
    assert (at.read_bytes(), sum(came)) == (LARGE, len(LARGE))
    assert at == cache(tmp_path) / "snapshots" / made / DATA
    assert repo.fetch(made, files["chunks.lance/empty"]).read_bytes() == b""
    assert repo.read(made, "README.md", 1000) == b"# A memory\n"
    assert repo.read(made, "no.md", 1000) is None
    with pytest.raises(HubError, match="has 11 bytes, which is more than is read"):
        repo.read(made, "README.md", 10)
    assert repo.files(made, "nothing") == []
    assert hub.repos[NAME].history()[0].message == "First"


def test_what_is_in_the_cache_is_not_asked_for_again(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path) -> None:
    first = hub.add(NAME, {DATA: LARGE, "small": b"s"}).id
    file = file_of(repo, first)
    at = repo.fetch(first, file)
    later = repo.commit(first, {"more": b"more"}, ["small"], "Second")
    asked = len(hub.asked)
    again = repo.fetch(later, file)
    assert (again.read_bytes(), again.resolve()) == (LARGE, at.resolve())
    assert again == cache(tmp_path) / "snapshots" / later / DATA
    assert len(hub.asked) == asked
    assert sorted(hub.repos[NAME].files) == [".gitattributes", DATA, "more"]


def test_a_listing_comes_in_pages(hub: LoopbackHub, repo: DatasetRepo) -> None:
    paths = [f"chunks.lance/data/{i}.lance" for i in range(10)]
    head = hub.add(NAME, dict.fromkeys(paths, b"x")).id
    assert [file.path for file in repo.files(head, "chunks.lance")] == paths
    assert hub.count("tree") == 4


def test_a_large_file_known_to_the_hub_is_not_sent_again(hub: LoopbackHub, repo: DatasetRepo) -> None:
    head = hub.add(NAME, {"a.lance": LARGE}).id
    seen: list[int] = []
    made = repo.commit(head, {"b.lance": LARGE}, [], "Copy", told=lambda more, total: seen.append(more))
    assert (hub.count("upload"), sum(seen)) == (0, len(LARGE))
    assert repo.commit(made, {"b.lance": LARGE}, [], "Nothing new") == made


def test_a_branch_with_a_slash(hub: LoopbackHub) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    other = hub.add(NAME, {"b": b"2"}, branch="team/x").id
    repo = DatasetRepo(NAME, "team/x")
    assert repo.head().commit == other
    made = repo.commit(other, {"c": b"3"}, [], "There")
    assert (hub.repos[NAME].head("team/x").id, hub.repos[NAME].head().id) == (made, head)


def test_a_renamed_repository_is_followed(hub: LoopbackHub, repo: DatasetRepo) -> None:
    head = hub.add("acme/new-name", {DATA: LARGE}, private=True).id
    hub.renamed[NAME] = "acme/new-name"
    assert repo.head().commit == head
    assert repo.fetch(head, file_of(repo, head)).read_bytes() == LARGE
    assert repo.commit(head, {"a": b"1"}, [], "Followed") == hub.repos["acme/new-name"].head().id


# Two at once


def test_a_commit_needs_the_head_it_was_made_for(hub: LoopbackHub, repo: DatasetRepo) -> None:
    parent = hub.add(NAME, {"a": b"1"}).id
    hub.before_commit = lambda name: void(hub.add(name, {"b": b"2"}))
    with pytest.raises(HubConflictError, match=r"acme/memory at 127\.0\.0\.1:\d+ has changed meanwhile"):
        repo.commit(parent, {"a": b"3"}, [], "Mine")
    assert hub.repos[NAME].files["a"] == b"1"
    with pytest.raises(HubConflictError, match="exists at"):
        repo.create(private=True)


def test_of_two_commits_at_once_one_lands(hub: LoopbackHub) -> None:
    parent = hub.add(NAME, {"a": b"0"}).id
    together = threading.Barrier(2)
    arrived = hub.arrived
    hub.arrived = lambda name: (together.wait(10), arrived(name))[1]  # type: ignore[method-assign]
    ends: list[str] = []

    def push(mine: bytes) -> None:
        try:
            ends.append(DatasetRepo(NAME).commit(parent, {"a": mine}, [], "Mine"))
        except HubConflictError:
            ends.append("conflict")

    threads = [threading.Thread(target=push, args=(mine,)) for mine in (b"1", b"2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == sorted(["conflict", hub.repos[NAME].head().id])
    assert len(hub.repos[NAME].history()) == 3


# Who may


def test_who_may_not_is_told_so(hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    head = hub.add(NAME, {"a": b"1"}, private=True).id
    monkeypatch.setenv("HF_TOKEN", READER)
    assert repo.head().commit == head
    with pytest.raises(HubDeniedError, match="does not let this token do that with acme/memory"):
        repo.commit(head, {"a": b"2"}, [], "Mine")
    with pytest.raises(HubDeniedError, match="does not let this token"):
        DatasetRepo("acme/other").create(private=True)
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
    with pytest.raises(HubRepoMissingError):
        repo.fetch(head, RepoFile("a", 1, "0" * 40))
    hub.repos[NAME].private = False
    assert not repo.head().private
    with pytest.raises(HubDeniedError, match=r"wants a token for acme/memory\.\nSet HF_TOKEN"):
        repo.commit(head, {"a": b"2"}, [], "Mine")
    monkeypatch.setenv("HF_TOKEN", WRITER)
    with pytest.raises(HubRevisionMissingError, match="acme/memory@nowhere"):
        DatasetRepo(NAME, "nowhere").head()


def test_a_gated_repository_is_named_so(hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    hub.repos[NAME].gated = True
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    with pytest.raises(HubDeniedError, match="gives acme/memory to known accounts only"):
        repo.files(head, "a")


@pytest.mark.parametrize("token", ["hf_é", "hf_a\x00b"])
def test_a_token_that_is_none_is_not_repeated(
    hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    from huggingface_hub.utils import _headers

    monkeypatch.setattr(_headers, "get_token", lambda: token)
    with pytest.raises(HubDeniedError, match="characters that no token has") as caught:
        repo.head()
    assert token not in str(caught.value)


def test_a_token_stays_at_its_hub(hub: LoopbackHub, repo: DatasetRepo) -> None:
    head = hub.add(NAME, {DATA: LARGE}, private=True).id
    repo.fetch(head, file_of(repo, head))
    repo.commit(head, {"b.lance": LARGE[1:]}, [], "Mine")
    elsewhere = f"{hub.large_url}/api/datasets/{NAME}/tree/{head}/x?cursor=1"
    link = {"Link": f'<{elsewhere}>; rel="next"', "Content-Type": "application/json"}
    hub.fail("tree", 200, headers=link, body=b"[]")
    with pytest.raises(HubRepoMissingError):
        repo.files(head, "x")
    other = [one for one in hub.asked if one.host == "localhost"]
    assert [one.stage for one in other] == ["content", "upload", "tree"]
    assert not [one for one in other if "authorization" in one.headers]
    assert all("authorization" in one.headers for one in hub.asked if one not in other)


# What a server answers


def by_stage(hub: LoopbackHub, repo: DatasetRepo) -> dict[str, Callable[[], object]]:
    """What is done to come to each stage."""
    head = hub.add(NAME, {DATA: LARGE, "README.md": b"# It\n"}).id
    file = file_of(repo, head)

    def commit() -> str:
        return repo.commit(head, {"README.md": b"# My\n", "b.lance": os.urandom(100)}, [], "Mine")

    return {
        "info": repo.head,
        "tree": lambda: repo.files(head, "chunks.lance"),
        "paths": lambda: repo.read(head, "README.md", 1000),
        "resolve": lambda: repo.fetch(head, file),
        "content": lambda: repo.fetch(head, file),
        "create": lambda: DatasetRepo(NAME).create(private=True),
        "yaml": commit,
        "preupload": commit,
        "batch": commit,
        "upload": commit,
        "verify": commit,
        "commit": commit,
        "landed": commit,
    }


STAGES = ("info", "tree", "paths", "resolve", "content", "create", "preupload", "batch", "upload", "verify", "commit")
KINDS: dict[int, type[HubError]] = {
    400: HubError,
    401: HubDeniedError,
    403: HubDeniedError,
    409: HubConflictError,
    412: HubConflictError,
    429: HubUnreachableError,
    500: HubUnreachableError,
    502: HubUnreachableError,
    503: HubUnreachableError,
}


@pytest.mark.parametrize("stage", STAGES)
def test_every_refusal_is_a_sentence(
    hub: LoopbackHub, repo: DatasetRepo, waits: list[float], tmp_path: Path, stage: str
) -> None:
    do = by_stage(hub, repo)[stage]
    for status, kind in KINDS.items():
        body = b"<html><body>Traceback https://x.example/?sig=1 \x1b[2J</body></html>"
        hub.fail(stage, status, 100, body=body, headers={"Content-Type": "text/html"})
        with pytest.raises(HubError) as caught:
            do()
        hub.calm()
        error = caught.value
        assert type(error) is kind, (status, error)
        assert getattr(error, "uncertain", False) == (stage == "commit" and status >= 500)
        assert NAME in error.message
        assert f"127.0.0.1:{hub.port}" in error.message
        assert re.fullmatch(r"[^\n]{20,300}", error.message)
        assert not re.search(r"hf_|https?:|Traceback|Error|[\x00-\x1f]", error.message)
    do() if stage != "create" else None


def test_a_refusal_without_a_code_is_understood(hub: LoopbackHub, repo: DatasetRepo) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    hub.fail("tree", 404)
    assert repo.files(head, "chunks.lance") == []
    hub.fail("info", 404)
    with pytest.raises(HubRepoMissingError):
        repo.head()
    hub.fail("verify", 404)
    with pytest.raises(HubError, match="answered 404") as caught:
        repo.commit(head, {"b.lance": b"b"}, [], "Mine")
    assert not isinstance(caught.value, HubRepoMissingError)
    with pytest.raises(HubFileMissingError):
        repo.commit(head, {}, ["no"], "Mine")
    with pytest.raises(HubFileMissingError):
        repo.fetch(head, RepoFile("no", 1, "0" * 40))


@pytest.mark.parametrize("body", [b"<html>Please log in</html>", b"[]", b"{}", b'{"id": 1, "sha": "../x"}', b"null"])
def test_an_answer_that_is_none(hub: LoopbackHub, repo: DatasetRepo, body: bytes) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    for stage in ("info", "tree", "paths", "preupload", "commit"):
        hub.fail(stage, 200, body=body, headers={"Content-Type": "application/json"})
    with pytest.raises(HubError, match=r"127\.0\.0\.1:\d+ (did not answer|does not say)"):
        repo.head()
    if body not in (b"[]", b"{}"):  # no files
        with pytest.raises(HubUnreachableError):
            repo.files(head, "a")
        with pytest.raises(HubUnreachableError):
            repo.read(head, "a", 10)
    with pytest.raises(HubUnreachableError) as caught:
        repo.commit(head, {"a": b"2"}, [], "Mine")
    assert not caught.value.uncertain
    with pytest.raises(HubUnreachableError) as caught:
        repo.commit(head, {"a": b"2"}, [], "Mine")
    assert caught.value.uncertain


def test_waits_are_short_but_told_in_full(hub: LoopbackHub, repo: DatasetRepo, waits: list[float]) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    for headers in ({"Retry-After": "9999"}, {"RateLimit": '"api";r=0;t=9999'}):
        hub.fail("preupload", 429, 100, headers=headers)
        with pytest.raises(HubUnreachableError, match=r"too many requests.*\nTry again in 9999 s\."):
            repo.commit(head, {"a": b"2"}, [], "Mine")
        hub.calm()
    assert len(waits) == 10
    assert max(waits) <= 21
    hub.fail("info", 429, headers={"Retry-After": "9999"})
    with pytest.raises(HubUnreachableError, match="too many requests"):
        repo.head()
    assert len(waits) == 10


# Connections that break


@pytest.mark.parametrize("after", [0, 1, 20_000])
def test_a_cut_upload_is_sent_again_and_counted_once(
    hub: LoopbackHub, repo: DatasetRepo, waits: list[float], after: int
) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    hub.fail("upload", "cut", 2, after=after)
    seen: list[int] = []
    repo.commit(head, {DATA: LARGE}, [], "Mine", told=lambda more, total: seen.append(more))
    assert (hub.repos[NAME].files[DATA], sum(seen), min(seen) > 0) == (LARGE, len(LARGE), True)
    assert hub.count("upload") == 3


@pytest.mark.parametrize("stage", ["info", "paths", "create", "yaml", "preupload", "batch", "upload", "verify"])
def test_a_connection_that_breaks_before_a_commit(
    hub: LoopbackHub, repo: DatasetRepo, waits: list[float], stage: str
) -> None:
    do = by_stage(hub, repo)[stage]
    before = hub.repos[NAME].head()
    hub.fail(stage, "cut", 100, after=3)
    with pytest.raises(HubUnreachableError, match="broke off the connection") as caught:
        do()
    assert not caught.value.uncertain
    assert hub.repos[NAME].head() == before
    hub.calm()
    if stage != "create":
        do()


@pytest.mark.parametrize(("stage", "after", "landed"), [("commit", 0, 0), ("commit", 30, 0), ("landed", 0, 1)])
def test_a_cut_commit_may_have_landed(
    hub: LoopbackHub, repo: DatasetRepo, waits: list[float], stage: str, after: int, landed: int
) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    hub.fail(stage, "cut", 100, after=after)
    with pytest.raises(HubUnreachableError) as caught:
        repo.commit(head, {"a": b"2"}, [], "Mine")
    assert caught.value.uncertain
    assert (len(hub.repos[NAME].history()) - 2, hub.count("commit")) == (landed, 1)


def test_a_cut_download_is_taken_up(hub: LoopbackHub, repo: DatasetRepo, waits: list[float]) -> None:
    head = hub.add(NAME, {DATA: LARGE, "small": b"s" * 1000}).id
    hub.fail("content", "cut", after=24_576)
    seen: list[int] = []
    at = repo.fetch(head, file_of(repo, head), told=lambda more, total: seen.append(more))
    assert (at.read_bytes(), sum(seen)) == (LARGE, len(LARGE))
    assert [one.headers.get("range") for one in hub.asked if one.stage == "content"] == [None, "bytes=24576-"]
    hub.fail("resolve", "cut", after=10, method="GET")
    assert repo.read(head, "small", 1000) == b"s" * 1000


def test_a_fetch_that_fails_leaves_nothing(
    hub: LoopbackHub, repo: DatasetRepo, waits: list[float], tmp_path: Path
) -> None:
    head = hub.add(NAME, {DATA: LARGE}).id
    file = file_of(repo, head)
    for stage in ("resolve", "content"):
        hub.fail(stage, "cut", 100)
        with pytest.raises(HubUnreachableError, match="broke off"):
            repo.fetch(head, file)
        hub.calm()
    assert not [path for path in cache(tmp_path).rglob("*") if path.is_file()]


def test_patience_ends(hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    hub.fail("info", "stall")
    with pytest.raises(HubUnreachableError, match="did not answer"):
        repo.head(patience=0.1)
    monkeypatch.setattr(datasets, "_LISTING", 0.1)
    hub.fail("tree", "stall")
    with pytest.raises(HubUnreachableError, match="did not answer"):
        repo.files(head, "chunks.lance")
    monkeypatch.setattr(limits, "_WRITE", 0.1)
    hub.fail("landed", "stall")
    with pytest.raises(HubUnreachableError, match="did not answer in time") as caught:
        repo.commit(head, {"a": b"2"}, [], "Mine")
    assert caught.value.uncertain
    assert hub.repos[NAME].files["a"] == b"2"


def test_a_name_that_is_looked_up_for_ever(
    hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60))
    with pytest.raises(HubUnreachableError, match=r"hub\.example did not answer about acme/memory within"):
        repo.head(patience=0.1)
    over.set()


@pytest.mark.parametrize(
    ("endpoint", "sentence"),
    [
        ("http://127.0.0.1:9", r"127\.0\.0\.1:9 could not be reached \(.*refused\): acme/memory"),
        ("http://me:secret@127.0.0.1:9/hub", r"^127\.0\.0\.1:9 could not be reached"),
        ("ftp://127.0.0.1:9", "not an address that can be reached"),
        ("http://[", r"^http://\[ "),
        ("nothing", "not an address that can be reached"),
    ],
)
def test_an_address_where_no_hub_is(
    hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch, endpoint: str, sentence: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(HubError, match=sentence) as caught:
        repo.head()
    assert "secret" not in str(caught.value)


def test_offline_is_said(hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubUnreachableError, match=r"HF_HUB_OFFLINE is set, so acme/memory is not asked for"):
        repo.head()
    assert not hub.asked


# What is not to be trusted


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "a//b",
        "../a",
        "a/../b",
        "a\\b",
        ".git/config",
        "a/.b",
        "a\nb",
        "a\x1b[2J",
        "a\u202eb",
        "a" * 256,
        "é" * 128,
        "/".join(["a" * 100] * 4),
        "a/",
    ],
)
def test_paths_that_are_not_plain(path: str) -> None:
    assert not is_plain(path)


def test_hostile_paths_are_left_out(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path) -> None:
    hostile = ["chunks.lance/../../up", "chunks.lance/a\\b", "chunks.lance/\x1b[2J", "chunks.lance/.hidden/x"]
    good = "chunks.lance/_versions/18446744073709551614.manifest"
    head = hub.add(NAME, dict.fromkeys([*hostile, good, "chunks.lance/.gitattributes"], b"x")).id
    assert [file.path for file in repo.files(head, "chunks.lance")] == ["chunks.lance/.gitattributes", good]
    assert repo.dropped == 4
    for path in hostile:
        with pytest.raises(HubError, match="cannot be used here"):
            repo.fetch(head, RepoFile(path, 1, "0" * 40))
        with pytest.raises(HubError, match="cannot be a path"):
            repo.commit(head, {path: b"x"}, [], "Mine")
    with pytest.raises(HubError, match="is not the id of a commit"):
        repo.fetch("../../../../up", RepoFile("a", 1, "0" * 40))
    with pytest.raises(HubError, match="cannot be used here"):
        repo.fetch(head, RepoFile("a", 1, "../../../../up"))
    assert not (tmp_path / "up").exists()


def test_too_many_files_are_not_listed(hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    head = hub.add(NAME, {f"chunks.lance/{i}": b"x" for i in range(8)}).id
    monkeypatch.setattr(datasets, "_MOST_FILES", 7)
    with pytest.raises(HubError, match=r"more than 7 files in chunks\.lance: it is no memory"):
        repo.files(head, "chunks.lance")


def test_what_another_thread_just_fetched_stays(
    hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head = hub.add(NAME, {DATA: LARGE}).id
    file = file_of(repo, head)
    blob = cache(tmp_path) / "blobs" / file.oid

    def looked(path: Path, size: int, oid: str) -> bool | None:
        found = is_content(path, size, oid)
        if path == blob and found is None:  # and now it is there
            blob.parent.mkdir(parents=True)
            blob.write_bytes(LARGE)
        return found

    monkeypatch.setattr(datasets, "is_content", looked)
    assert repo.fetch(head, file).read_bytes() == LARGE
    assert hub.count("content") == 0


@pytest.mark.parametrize(
    ("endpoint", "url", "stays"),
    [
        ("https://hub.example", "https://hub.example:443/x", True),
        ("https://hub.example:443", "https://hub.example/x", True),
        ("https://Hub.Example/path", "https://hub.example/other", True),
        ("http://hub.example", "https://hub.example/x", True),
        ("https://hub.example", "http://hub.example/x", False),
        ("https://hub.example", "https://hub.example:8443/x", False),
        ("https://hub.example", "https://huggingface.co/x", False),
        ("https://hub.example", "https://hub.example.org/x", False),
        ("https://münchen.example", "https://xn--mnchen-3ya.example/x", True),
    ],
)
def test_where_a_token_goes(monkeypatch: pytest.MonkeyPatch, endpoint: str, url: str, stays: bool) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    request = httpx.Request("GET", url, headers={"Authorization": "Bearer x"})
    limits.before(request)
    assert ("authorization" in request.headers) is stays
    assert set(request.extensions["timeout"]) == {"connect", "pool", "write", "read"}


@pytest.mark.parametrize("name", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
def test_headers_do_not_lead_out_of_the_cache(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path, name: str) -> None:
    head = hub.add(NAME, {"a": b"evil"}).id
    headers = {"ETag": '"abc"', "X-Repo-Commit": head, "Content-Length": "4", name: '"../../../../evil"'}
    hub.fail("resolve", 200, headers=headers, method="HEAD")
    with pytest.raises(HubError, match="in a way that cannot be used here"):
        repo.fetch(head, RepoFile("a", 4, "0" * 40))
    assert not list(tmp_path.rglob("*evil*"))


def test_a_damaged_file_does_not_stay(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path) -> None:
    head = hub.add(NAME, {DATA: LARGE, "small": b"right"}).id
    file = file_of(repo, head)
    hub.fail("content", 200, body=LARGE[::-1], headers={"Content-Length": str(len(LARGE))})
    with pytest.raises(HubError, match=r"0\.lance of acme/memory came damaged from 127.*\nIt was not kept"):
        repo.fetch(head, file)
    hub.fail("resolve", 200, body=b"wrong", method="GET")
    with pytest.raises(HubError, match="small of acme/memory came damaged"):
        repo.read(head, "small", 10)
    assert not [path for path in cache(tmp_path).rglob("*") if path.is_file() and path.name != ".gitattributes"]
    at = repo.fetch(head, file)
    at.resolve().chmod(0o600)
    at.resolve().write_bytes(LARGE[::-1])  # damaged where it lies
    assert repo.fetch(head, file).read_bytes() == LARGE


def test_a_cache_that_cannot_be_written(
    hub: LoopbackHub, repo: DatasetRepo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head = hub.add(NAME, {DATA: LARGE}).id
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "file"))
    with pytest.raises(HubError, match=r"A file .*file.* could not be used for acme/memory: Not a directory"):
        repo.fetch(head, file_of(repo, head))


def test_a_file_that_vanishes_on_the_way(hub: LoopbackHub, repo: DatasetRepo, tmp_path: Path) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    with pytest.raises(HubError, match=r"A file .*no\.lance could not be used for acme/memory: No such file"):
        repo.commit(head, {"x.lance": tmp_path / "no.lance"}, [], "Mine")
    assert hub.repos[NAME].head().id == head


# Small parts


def test_a_growing_file_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcdef")
    seen: list[tuple[int, int]] = []
    meter = Meter(lambda more, total: seen.append((more, total)))
    body = Body(path, meter)
    assert body.read() == b"abcdef"
    body.seek(0)
    meter.start(6)
    path.write_bytes(b"abcdefgh")
    assert (body.read(2), body.tell(), body.read(100), body.read(1)) == (b"ab", 2, b"cdef", b"")
    assert (body.seek(0), body.seek(-1, os.SEEK_END), body.read(), body.seek(-2, os.SEEK_CUR)) == (0, 5, b"f", 4)
    assert seen == [(2, 6), (4, 6)]
    path.write_bytes(b"")
    assert body.read() == b""


def test_progress_of_content_in_chunks_is_told_once() -> None:
    from huggingface_hub.utils._xet_progress_reporting import XetDownloadProgressReporter

    seen: list[tuple[int, int]] = []
    shown = bar(lambda more, total: seen.append((more, total)), 30)
    report = SimpleNamespace(
        total_bytes_completed=10,
        total_transfer_bytes_completed=5,
        total_bytes_completion_rate=1.0,
        total_transfer_bytes_completion_rate=None,
        total_bytes=30,
    )
    with XetDownloadProgressReporter(reconstruction_desc="x", total=30, log_level=30, tqdm_class=shown) as reporter:
        reporter.update_progress(report)
        report.total_bytes_completed = 30
        reporter.update_progress(report)
    assert seen == [(10, 30), (20, 30)]


def test_words_of_others_are_short_and_hold_no_secret() -> None:
    said = words("a\nb\x1b[2J Bearer hf_abc see https://x.example/?X-Amz-Signature=1 hf_secretToken " + "long " * 99)
    assert said.startswith("a b [2J … see … … long")
    assert len(said) == 200
    error = HubConflictError("It moved.")
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = error
    assert told(wrapped, NAME) is error
    assert "acme/memory" in str(told(RecursionError(), NAME))
    chunks = told(
        RuntimeError("Task error: CAS Client Error: error sending request for url (http://cas.example/1)"), NAME
    )
    assert "HF_HUB_DISABLE_XET=1" in chunks.hint
    assert "cas.example" not in chunks.message
    assert "No space left" in str(told(OSError(28, "No space left on device"), NAME))


# A process of its own

_SCRIPT = """
import sys
from funes_mcp.hub.datasets import DatasetRepo
from funes_mcp.hub.errors import HubError
repo = DatasetRepo("acme/memory")
try:
    head = repo.head().commit
    repo.commit(head, {"chunks.lance/x.lance": b"x" * 20000}, [], "From a process")
    file, = repo.files(repo.head().commit, "chunks.lance")
    repo.fetch(repo.head().commit, file)
except HubError as error:
    sys.exit(str(error))
"""


def test_a_process_needs_its_environment_only(hub: LoopbackHub, tmp_path: Path) -> None:
    hub.add(NAME, {"a": b"1"}, private=True)
    hub.fail("preupload", "cut")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=hub.environ(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (cache(tmp_path) / "blobs").is_dir()
    assert hub.repos[NAME].files["chunks.lance/x.lance"] == b"x" * 20000
    offline = {**hub.environ(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", _SCRIPT], env=offline, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (1, ["Unset HF_HUB_OFFLINE and try again."])


def test_the_hub_remembers_what_reached_it(hub: LoopbackHub, repo: DatasetRepo) -> None:
    head = hub.add(NAME, {"a": b"1"}).id
    hub.fail("commit", 500)
    with pytest.raises(HubUnreachableError):
        repo.commit(head, {"b": b"in a small file", "c.lance": b"in a large file"}, [], "in a message")
    assert all(hub.saw(text) for text in (b"in a small file", b"in a large file", b"in a message"))
    assert not hub.saw(b"planted")
    with suppress(HubUnreachableError):
        repo.commit(head, {"d.lance": b"before" + zstandard.compress(b"in a table" * 9) + b"after"}, [], "Packed")
    assert hub.saw(b"tablein")


def void(_: object) -> None:
    """A hook gives nothing."""
