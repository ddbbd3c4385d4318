"""What a curated memory gets, from the review to the Hub: real processes and a Hub on the loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from curation_support import History, stored, uuid
from hub_server import LoopbackHub

from funes_mcp.home import FunesHome
from funes_mcp.memory.table import ChunkTable

MEMORY = "team/kiln"


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        yield hub


def machine(hub: LoopbackHub, home: Path, with_rules: Callable[[Path], None]) -> History:
    history = History(home)
    history.environ |= {
        name: value for name, value in hub.environ(home).items() if name.startswith(("HF_", "NO_PROXY"))
    }
    with_rules(home / ".funes")
    return history


def published(hub: LoopbackHub, folder: Path) -> set[str]:
    table = ChunkTable.open(hub.written(MEMORY, folder))
    assert table.project.lower() == "ann/kiln"
    return {row.text for part in table.stream() for row in part}


def test_only_what_was_reviewed_reaches_the_hub(
    hub: LoopbackHub, tmp_path: Path, with_rules: Callable[[Path], None]
) -> None:
    ann = machine(hub, tmp_path / "ann", with_rules)
    kiln = ann.checkout("kiln", "git@example.org:Ann/Kiln.git")
    tide = ann.checkout("tide", "https://example.org/ann/tide")
    ann.say("cold", kiln, "why is the kiln cold", "the element is broken")
    ann.say("cold", tide, "said by the sea meanwhile", "answered by the sea")
    ann.say("private", kiln, "something private", "kept private")
    ann.say("later", kiln, "nobody looked at this", "nor at this")
    ann.say("tide", tide, "high tide at nine", "yes it is")
    ann.run("index", "--yes")
    ann.run("curate", MEMORY, "ann/kiln", "--include", uuid("cold"), "--exclude", uuid("private"))
    ann.say("cold", kiln, "and after the review", "it went on")
    ann.run("index", "--yes")
    done = ann.run("push", MEMORY, "--yes")
    assert "2 passages of 1 session published" in done.stdout
    assert "2 sessions wait for your review" in done.stdout
    assert published(hub, tmp_path / "one") == {"why is the kiln cold", "the element is broken"}
    assert not hub.saw(b"after the review")

    ann.run("curate", MEMORY, "--include", uuid("cold"))
    ann.run("push", MEMORY)
    expected = {"why is the kiln cold", "the element is broken", "and after the review", "it went on"}
    assert published(hub, tmp_path / "two") == expected

    for words in ("something private", "kept private", "nobody looked", "by the sea", "high tide"):
        assert not hub.saw(words.encode())

    bob = machine(hub, tmp_path / "bob", with_rules)
    stored(FunesHome(bob.home / ".funes"), "ann/kiln", other=["what bob said", "and heard"])
    done = bob.run("push", MEMORY, "--yes")
    assert "1 session waits for your review" in done.stdout
    assert f"`funes curate {MEMORY} ann/kiln`" in done.stderr.lower()
    assert not hub.saw(b"what bob said")


def test_a_damaged_file_of_decisions_lets_nothing_out(
    hub: LoopbackHub, tmp_path: Path, with_rules: Callable[[Path], None]
) -> None:
    ann = machine(hub, tmp_path / "ann", with_rules)
    stored(FunesHome(ann.home / ".funes"), "ann/kiln", cold=["why is the kiln cold", "it is broken"])
    ann.run("curate", MEMORY, "ann/kiln", "--reset", uuid("cold"))
    assert f"1 session waits for your review: `funes curate {MEMORY}`" in ann.run("status").stdout
    (file,) = (ann.home / ".funes" / "curation").glob("*.toml")
    file.write_text(file.read_text() + "[sessions.x\n")
    done = ann.run("push", MEMORY, "--yes", code=1)
    assert f"{file}, line " in done.stderr
    assert hub.asked == []
    assert f"note: {file}, line " in ann.run("status").stdout
