"""Real agents bound to a published memory: what one machine said is recalled on another, and its answer comes back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import WRITER, LoopbackHub

from agents.drivers import FUNES, World, remembered_session, wait_for

pytestmark = pytest.mark.agents

MEMORY = "acme/funes-memory"
PASSAGE = "We settled on zstd level 7 for the zebra archive, because level 9 doubled the build."


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub() as made:
        yield made


class OtherMachine:
    """A home without agents, which has one session and publishes it."""

    def __init__(self, hub: LoopbackHub, home: Path) -> None:
        home.mkdir()
        self.environ = {**hub.environ(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        transcript = remembered_session(home, "Which compression does the zebra archive get?", PASSAGE)
        self.funes("index", str(transcript))

    def funes(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(FUNES), *arguments],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.mark.parametrize("name", ["claude", "codex", "pi", "hermes"])
def test_bound_to_a_published_memory(world: Callable[..., World], hub: LoopbackHub, name: str, tmp_path: Path) -> None:
    other = OtherMachine(hub, tmp_path / "other")
    other.funes("push", MEMORY, "--yes")

    here = world(name)
    cache = here.folder / "hf"
    cache.mkdir()
    (cache / "token").write_text(WRITER)  # as `hf auth login` leaves it: no agent writes it into a file of its own
    here.environ |= {
        key: value
        for key, value in hub.environ(here.home).items()
        if key in ("HF_ENDPOINT", "HF_HUB_DISABLE_TELEMETRY", "NO_PROXY")
    } | {"HF_HOME": str(cache)}
    if here.with_rules is not None:
        here.with_rules(here.root)
    here.funes("add", name, MEMORY, "--yes", "--trust-hooks")

    # The agent recalls, on its first turn, what was said on the other machine.
    sent = here.run(
        'What did we choose for the zebra archive? [[tool:recall$ {"query": "zebra archive compression"}]]'
        "[[text:Quokkas were told about it.]]"
    )
    results = [text for kind, text in sent[-1].events if kind == "result"]
    assert results, "the model was given no result"
    assert PASSAGE in results[-1]
    assert f"--memory {MEMORY}" in results[-1]

    # When its session is over, what was said here is published, and is recalled there.
    here.idle()
    assert wait_for(lambda: "Quokkas were told about it." in other.funes("recall", "Quokkas told", "--memory", MEMORY))
    status = here.funes("status")
    assert MEMORY in status
    here.idle()

    # Taken out, nothing is published any more.
    here.funes("remove", name)
    commits = len(hub.repos[MEMORY].history())
    here.run("Anything left? [[text:Nothing is left.]]")
    here.idle()
    assert len(hub.repos[MEMORY].history()) == commits
