"""`funes curate` as scripts use it: real processes over a real history."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from curation_support import History, stored, uuid

from funes_mcp.cli.app import run
from funes_mcp.home import FunesHome
from funes_mcp.service import IndexService

MEMORY = "ann/kiln-memory"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curation") / "home"
    home = FunesHome(folder / ".funes")
    stored(
        home, "Ann/Kiln", cold=["why is the kiln cold", "the element is broken"], glaze=["which glaze is it", "blue"]
    )
    stored(home, "ann/tide", tide=["high tide at nine", "yes"])
    return folder


class Ran:
    """What a command line did in this process, in a fresh copy of the home."""

    def __init__(self, indexed: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        shutil.copytree(indexed, home)
        self.files = home / ".funes" / "curation"
        self._capsys = capsys
        environ = {"HOME": str(home)}
        self._service = IndexService(FunesHome.from_environ(environ), environ)

    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]:
        assert run(["curate", MEMORY, *words], lambda: self._service) == code
        captured = self._capsys.readouterr()
        return captured.out, captured.err


@pytest.fixture
def curate(indexed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ran:
    return Ran(indexed, tmp_path / "home", capsys)


def listed(history: History) -> dict[str, str]:
    found = json.loads(history.run("curate", MEMORY, "ann/kiln", "--list", "--json").stdout)
    return {item["session"]: item["state"] for item in found["sessions"]}


def test_a_review_from_scripts(tmp_path: Path) -> None:
    history = History(tmp_path / "home")
    history.checkout("kiln", "git@example.org:Ann/Kiln.git")
    home = FunesHome(history.home / ".funes")
    words = ["why is the kiln \x1b[31mcold", "the element is broken"]
    stored(home, "Ann/Kiln", cold=words, glaze=["which glaze is it", "the blue one"])
    stored(home, "ann/tide", tide=["high tide at nine", "yes"])
    cold, glaze = uuid("cold"), uuid("glaze")
    done = history.run("curate", MEMORY, "ann/kiln", "--list")
    assert {line.split()[1] for line in done.stdout.splitlines()} == {cold, glaze}
    assert "why is the kiln ␛[31mcold" in done.stdout
    assert "not curated yet" in done.stderr
    assert not (history.home / ".funes" / "curation").exists()

    done = history.run("curate", MEMORY, "--include", cold[:6], cwd=history.home / "kiln")
    assert "Included 1 session." in done.stdout
    assert "From now on ann/kiln-memory gets reviewed sessions of Ann/Kiln only." in done.stdout
    assert f"`funes push {MEMORY}` sends what it lacks of 2 reviewed turns in 1 session." in done.stdout
    assert listed(history) == {cold: "included", glaze: "new"}

    stored(home, "Ann/Kiln", cold=[*words, "and now", "it is warm"])
    found = json.loads(history.run("curate", MEMORY, "--list", "--json").stdout)
    assert (cold, "grown", 2) in [(s["session"], s["state"], s["growth"]) for s in found["sessions"]]
    assert (found["waiting"], found["curated"], found["repository"]) == (2, True, "Ann/Kiln")

    done = history.run("curate", MEMORY, "--exclude", glaze, "--include-all", "--note", "not \x1b ours")
    assert "Included 1 session, excluded 1 session." in done.stdout
    assert "2 sessions of Ann/Kiln: 1 included, 1 excluded, 0 wait for review." in done.stdout
    (file,) = (history.home / ".funes" / "curation").glob("*.toml")
    assert file.read_text().count('note = "not ␛ ours"') == 2
    history.run("curate", MEMORY, "--reset", glaze)
    assert listed(history) == {cold: "included", glaze: "new"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--include", "nothing"], "No session of ann/kiln starts with 'nothing'"),
        (["--include", uuid("tide")], "No session of ann/kiln starts with"),
        (["--include", uuid("cold"), "--exclude", uuid("cold")[:9]], "named twice"),
        (["--include-all", "--exclude-all"], "contradict"),
        (["--list", "--include-all"], "--list changes nothing"),
        (["--note", "x"], "--note goes with decisions"),
        (["--json"], "--json goes with --list"),
        ([], "--list, then --include"),
    ],
)
def test_what_is_not_clear_changes_nothing(curate: Ran, words: list[str], said: str) -> None:
    out, err = curate("ann/kiln", *words, code=1 if "No session" in said else 2)
    assert said in err
    assert out == ""
    assert not curate.files.exists()


def test_a_damaged_file_stops_it_with_its_line(curate: Ran) -> None:
    curate("ann/kiln", "--include-all")
    (file,) = curate.files.glob("*.toml")
    file.write_text(file.read_text().replace('"include"', '"perhaps"', 1))
    assert f"{file}, line " in curate("--list", code=1)[1]


def test_without_sessions_it_says_which_there_are(curate: Ran) -> None:
    assert "The memory has sessions of Ann/Kiln, ann/tide" in curate("ann/kilm", "--list")[1]
