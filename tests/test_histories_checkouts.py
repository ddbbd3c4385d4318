"""Sessions of one repository are found together, in whichever of its worktrees they were held."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_support import rows_of, store, transcript

from funes_mcp.traces.checkout import Checkouts, _remotes

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
        (["/srv/git/kiln.git"], None),
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
