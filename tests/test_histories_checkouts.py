"""Sessions of one repository are found together, in whichever of its worktrees they were held."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_support import MODEL, rows_of, store, transcript

from funes_mcp.discovery import load_adapters, sources_at
from funes_mcp.indexing import Pass
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.models import IndexReport, SourceCounts
from funes_mcp.reading import How, Work
from funes_mcp.reading import read as read_sources
from funes_mcp.traces.checkout import Checkouts, _remotes
from funes_mcp.traces.model import Tally

CONFIG = '[core]\n\tbare = false\n[remote "origin"]\n\turl = {}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'


def clone(folder: Path, *urls: str) -> Path:
    git = folder / ".git"
    git.mkdir(parents=True)
    (git / "config").write_text("".join(CONFIG.format(url) for url in urls))
    return folder


@pytest.mark.parametrize(
    ("urls", "repo"),
    [
        (["git@example.org:ann/Kiln.git"], "ann/Kiln"),
        (["https://example.org/ann/kiln", "https://example.org/potters/kiln.git"], "ann/kiln potters/kiln"),
        (['"ssh://git@example.org:22/ann/kiln.git" # mine', "git@example.org:ann/kiln.git"], "ann/kiln"),
        (["https://ann:token@git.corp.example:8443/scm/ann/kiln.git/"], "ann/kiln"),
        (["ssh://git@git.corp.example:7999/ann/kiln.git"], "ann/kiln"),
        (["org-4711@example.org:ann/kiln.git"], "ann/kiln"),
        (["https://example.org/group/sub/kiln.git"], "sub/kiln"),
        (["/srv/git/kiln.git"], None),
        (["file:///srv/git/kiln.git"], None),
        (["C:/git/ann/kiln"], None),
        (["../ann/kiln"], None),
        ([], None),
    ],
)
def test_remotes_name_the_repository(tmp_path: Path, urls: list[str], repo: str | None) -> None:
    inner = clone(tmp_path / "kiln", *urls) / "src" / "deep"
    inner.mkdir(parents=True)
    assert Checkouts().repo_at(str(inner)) == repo
    assert Checkouts().repo_at(str(tmp_path / "kiln")) == repo


def test_a_worktree_is_of_the_repository_that_it_was_made_from(tmp_path: Path) -> None:
    main = clone(tmp_path / "kiln", "git@example.org:ann/kiln.git")
    private = main / ".git" / "worktrees" / "fix"
    private.mkdir(parents=True)
    (private / "commondir").write_text("../..\n")
    tree = tmp_path / "elsewhere" / "fix"
    tree.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {private}\n")
    assert Checkouts().repo_at(str(tree)) == "ann/kiln"
    module = main / "vendored"
    module.mkdir()
    (module / ".git").write_text("gitdir: ../.git/modules/vendored\n")
    (main / ".git" / "modules" / "vendored").mkdir(parents=True)
    (main / ".git" / "modules" / "vendored" / "config").write_text(CONFIG.format("https://example.org/clay/glaze"))
    assert Checkouts().repo_at(str(module)) == "clay/glaze"


def test_a_worktree_inside_of_its_checkout_is_recognised_when_it_is_gone(tmp_path: Path) -> None:
    main = clone(tmp_path / "kiln", "git@example.org:ann/kiln.git")
    for gone in (".claude/worktrees/fix", ".worktrees/fix/src"):
        assert Checkouts().repo_at(str(main / gone)) == "ann/kiln"
    assert Checkouts().repo_at(str(main / "gone")) is None
    assert Checkouts().repo_at(str(tmp_path / "nothing" / ".worktrees" / "fix")) is None


def test_a_link_into_a_checkout_is_in_it(tmp_path: Path) -> None:
    (clone(tmp_path / "kiln", "git@example.org:ann/kiln.git") / "src").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kiln" / "src")
    assert Checkouts().repo_at(str(tmp_path / "link")) == "ann/kiln"


@pytest.mark.parametrize(
    ("cwd", "repo"),
    [
        ("kiln", None),
        ("kiln/src", None),
        ("kiln/gone/for/good", None),
        ("worktree", None),
        ("tide", "ann/tide"),
        ("tide/gone", ""),
        ("nameless", ""),
        ("plain", ""),
        (".", ""),
        ("gone", ""),
        ("kilns", ""),
        ("kiln/../gone", ""),
    ],
)
def test_a_turn_belongs_to_the_folder_in_which_it_was_said(tmp_path: Path, cwd: str, repo: str | None) -> None:
    kiln = clone(tmp_path / "kiln", "git@example.org:ann/kiln.git")
    (kiln / "src").mkdir()
    clone(tmp_path / "worktree", "git@example.org:ann/kiln.git")
    clone(tmp_path / "tide", "git@example.org:ann/tide.git")
    clone(tmp_path / "nameless")
    (tmp_path / "plain").mkdir()
    folder = f"{tmp_path}/{cwd}" if cwd != "." else str(tmp_path)
    assert Checkouts().elsewhere(folder, str(kiln), "ann/kiln") == repo


@pytest.mark.parametrize(
    ("cwd", "repo"),
    [("/gone/kiln/src", None), ("/gone/kiln", None), ("/gone", ""), ("/gone/kiln-two", ""), ("/gone/kiln/../x", "")],
)
def test_of_a_checkout_that_is_gone_its_folders_still_are(cwd: str, repo: str | None) -> None:
    assert Checkouts().elsewhere(cwd, "/gone/kiln", "ann/kiln") == repo


def test_a_session_that_moves_on_to_another_repository_is_split_by_its_turns(tmp_path: Path) -> None:
    kiln = clone(tmp_path / "kiln", "git@example.org:ann/kiln.git")
    tide = clone(tmp_path / "tide", "git@example.org:ann/tide.git")
    home = tmp_path / "memory"
    file = tmp_path / "projects" / "p" / "0b1f5a8e-1d4f-4c8e-9a43-6a4c2f1e7d01.jsonl"
    file.parent.mkdir(parents=True)

    def say(*lines: tuple[Path, str]) -> None:
        with file.open("a") as out:
            for cwd, text in lines:
                message = {"role": "user", "content": text}
                uuid = f"0b1f5a8e-1d4f-4c8e-9a43-{abs(hash(text)) % 10**12:012}"
                out.write(json.dumps({"type": "user", "uuid": uuid, "cwd": str(cwd), "message": message}) + "\n")

    def read() -> dict[str, str]:
        (work,) = [Work(a, s) for a, s in sources_at(load_adapters()[0], file, Tally())]
        with MemoryWriter.open(home, MODEL) as writer:
            cursor = writer.cursor_of(work.source)
            messages = read_sources([replace(work, cursor=cursor)], How())
            Pass(writer, None, IndexReport(sources={"claude_code": SourceCounts()})).run([work], messages)
        return {row.text: row.repo for row in rows_of(home).values()}

    say((kiln, "in the kiln"), (tide, "by the sea"), (kiln, "at the kiln again"))
    expected = {"in the kiln": "ann/kiln", "by the sea": "ann/tide", "at the kiln again": "ann/kiln"}
    assert read() == expected
    say((tide, "the sea again"), (tmp_path, "on the way"))
    expected |= {"the sea again": "ann/tide", "on the way": ""}
    assert read() == expected
    shutil.rmtree(tide)
    file.write_text(file.read_text().replace("on the way", "underway"))  # rewritten: all is read again
    del expected["on the way"]
    assert read() == {**expected, "underway": ""}
    shutil.rmtree(kiln)
    say((kiln, "cold"))
    assert read() == {**expected, "underway": "", "cold": "ann/kiln"}


@pytest.mark.parametrize("cwd", ["", "relative", "C:\\work\\kiln", "/nowhere/at/all", "/with\0nul", "/" + "x" * 5000])
def test_a_folder_that_is_not_there_has_no_repository(cwd: str) -> None:
    assert Checkouts().repo_at(cwd) is None


@given(st.binary(max_size=200))
def test_no_configuration_raises(tmp_path_factory: pytest.TempPathFactory, config: bytes) -> None:
    folder = tmp_path_factory.mktemp("git")
    (folder / "config").write_bytes(b'[remote "x"]\nurl =' + config)
    _remotes(folder)


def test_the_repository_stays_known_when_the_worktree_is_gone(tmp_path: Path) -> None:
    file = transcript("one", cwd="/gone/worktree")
    file.info = replace(file.info, repo="ann/kiln")
    file.say("u1", "said while it was there")
    store(tmp_path, file)
    file.info = replace(file.info, repo=None)
    file.say("u2", "read when it was gone")
    store(tmp_path, file)
    file.rewritten = True
    store(tmp_path, file)
    assert {row.repo for row in rows_of(tmp_path).values()} == {"ann/kiln"}


def test_each_folder_is_looked_up_once(tmp_path: Path) -> None:
    checkouts = Checkouts()
    folder = clone(tmp_path / "kiln", "git@example.org:ann/kiln.git")
    assert checkouts.repo_at(str(folder)) == "ann/kiln"
    shutil.rmtree(folder)
    assert checkouts.repo_at(str(folder)) == "ann/kiln"
