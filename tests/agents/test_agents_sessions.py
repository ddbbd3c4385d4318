"""What real agents do with sessions: resumed, forked, delegated and failed turns are stored once."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from agents.drivers import World, wait_for

pytestmark = pytest.mark.agents

#: How each agent goes on with its last session, and how it forks one; None where it has no such command.
RESUME: dict[str, Callable[[World], list[str]]] = {
    "claude": lambda here: ["--continue"],
    "codex": lambda here: ["resume", "--last"],
    "pi": lambda here: ["--continue"],
    "hermes": lambda here: ["--continue"],
}
FORK: dict[str, Callable[[World], list[str]]] = {
    "claude": lambda here: ["--continue", "--fork-session"],
    "codex": lambda here: ["fork", newest(here, ".codex/sessions/*/*/*/*.jsonl")[-36:]],
    "pi": lambda here: ["--fork", newest(here, ".pi/agent/sessions/*/*.jsonl")[-36:]],
}

#: The call by which a model delegates to a subagent, with the subagent's prompt in it.
DELEGATE = {
    "claude": '[[tool:^Agent$ {"description": "sub", "subagent_type": "general-purpose", '
    '"run_in_background": false, "prompt": "%s"}]]',
    "codex": '[[tool:spawn_agent$ {"message": "%s"}]][[tool:wait_agent$ {"targets": ["any"], "timeout_ms": 10000}]]',
    "hermes": '[[tool:^delegate_task$ {"goal": "%s"}]]',
}


def newest(here: World, pattern: str) -> str:
    """The stem of the newest transcript."""
    return max(here.home.glob(pattern), key=lambda path: path.stat().st_mtime).stem


def answered(here: World, answer: str) -> bool:
    """Whether Hermes has stored an assistant's message."""
    path = here.home / ".hermes/state.db"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as store:
        found = store.execute("SELECT 1 FROM messages WHERE role = 'assistant' AND content = ?", (answer,))
        return found.fetchone() is not None


def settled(here: World, since: float, event: str = "") -> None:
    """Wait until the hooks of a run have been worked off."""
    here.hook_done(event or here.TURN_HOOK, since)
    here.idle()


@pytest.mark.parametrize("name", list(RESUME))
def test_a_resumed_and_a_forked_session_are_stored_once(world: Callable[..., World], name: str) -> None:
    here = world(name)
    here.add()
    since = time.time()
    here.run("Remember the first numbat. [[text:Noted.]]")
    settled(here, since)
    assert len(here.said("first numbat")) == 1

    since = time.time()
    here.run("Remember the second numbat. [[text:Noted too.]]", *RESUME[name](here))
    settled(here, since)
    assert len(here.said("first numbat")) == 1
    assert len(here.said("second numbat")) == 1

    if name in FORK:
        since = time.time()
        here.run("Remember the third numbat. [[text:Noted three.]]", *FORK[name](here))
        settled(here, since)
        assert [len(here.said(f"{word} numbat")) for word in ("first", "second", "third")] == [1, 1, 1]
        assert here.said("third numbat")[0]["session_id"] != here.said("first numbat")[0]["session_id"]

    # Everything anew from the files gives the same: nothing depended on which hook came when.
    count = len(here.rows("numbat"))
    here.funes("index")
    assert len(here.rows("numbat")) == count


@pytest.mark.parametrize("name", list(DELEGATE))
def test_a_subagents_turns_are_stored_once_and_under_its_parent(world: Callable[..., World], name: str) -> None:
    here = world(name)
    here.add()
    if name == "hermes":
        # Its subagents run in the background, and one that is still at work when the run ends is cut short.
        here.model.hold = lambda request: wait_for(
            lambda: "dispatched" not in str(request.events[-1:]) or answered(here, "Nine bilbies."), 30.0
        )
    since = time.time()
    here.run(f"Delegate this. {DELEGATE[name] % 'Count the bilbies. [[text:Nine bilbies.]]'} [[text:It is done.]]")
    settled(here, since)
    assert wait_for(lambda: here.said("Count the bilbies")), here.worker_log()
    own = [row for row in here.said("Count the bilbies") if "Delegate this" not in row["text"]]
    assert len(own) == 1
    parent = here.said("Delegate this")
    assert len(parent) == 1
    answers = [row for row in here.rows("Nine bilbies") if row["role"] == "assistant" and row["block_type"] == "text"]
    assert len([row for row in answers if row["text"].strip() == "Nine bilbies."]) == 1


@pytest.mark.parametrize("name", list(RESUME))
def test_a_turn_that_ends_in_an_error_is_stored_once(world: Callable[..., World], name: str) -> None:
    here = world(name)
    here.add()
    since = time.time()
    here.run("The quoll question. [[fail:400]]", check=False)
    # Claude starts StopFailure instead of Stop, but does not wait for it when it is about to leave.
    settled(here, since, here.END_HOOK)
    wait_for(lambda: here.said("quoll question"), 5.0)
    assert len(here.said("quoll question")) == 1
    since = time.time()
    resume = [] if name == "hermes" else RESUME[name](here)  # Hermes joins the next prompt to the failed one
    here.run("The next question. [[text:A plain answer.]]", *resume)
    settled(here, since)
    assert len(here.said("quoll question")) == 1
    assert len(here.said("The next question")) == 1


def test_hooks_of_a_run_with_the_guard_index_nothing(world: Callable[..., World]) -> None:
    here = world("claude")
    here.add()
    here.environ["FUNES_NO_HOOKS"] = "1"
    here.run("Asked by funes itself. [[text:Answered.]]")
    time.sleep(1.0)
    assert here.health() == {}
