"""Which sessions of a memory there are to review, how they stand, and what of them may be sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from memory_support import MODEL, Transcript, embed, rows_of, store, transcript

from funes_mcp import curation
from funes_mcp.curation import files
from funes_mcp.curation.decisions import Entry
from funes_mcp.curation.desk import Desk, open_desk
from funes_mcp.errors import AmbiguousSessionError, BadRequestError, FunesError, NotFoundError
from funes_mcp.home import FunesHome
from funes_mcp.memory.label import HubName
from funes_mcp.memory.reader import MemoryReader
from funes_mcp.memory.writer import MemoryWriter

NAME = HubName("ann/proj-memory")


def session(name: str, *words: str, repo: str | None = "ann/proj", started: int = 0, **more: object) -> Transcript:
    file = transcript(name, started)
    file.info = replace(file.info, repo=repo, **more)  # type: ignore[arg-type]
    for number, said in enumerate(words):
        file.say(f"{name}-{number}", said, role=("user", "assistant")[number % 2])
    return file


@pytest.fixture
def home(tmp_path: Path) -> FunesHome:
    return FunesHome(tmp_path / "home")


def desk(home: FunesHome, repository: str | None = "ann/proj") -> Desk:
    return open_desk(home, NAME.repo, repository, Path("/"), lambda: MemoryReader.open(home.memory))


def states(home: FunesHome) -> dict[str, str]:
    return {item.session.session: item.standing.state for item in desk(home).sessions()}


def sent(home: FunesHome) -> set[str]:
    """The words of every row that a push may send."""
    found = curation.selection(home, NAME)
    assert found is not None
    rows = rows_of(home.memory).values()
    chosen = {row.text for row in rows if found.lets_row(row)}
    turns = {row.text for row in rows if found.lets(row.session_id, [row.turn_uuid])}
    assert chosen <= turns
    return chosen


def test_only_what_was_included_is_sent(home: FunesHome) -> None:
    store(
        home.memory,
        session("aa", "the kiln is cold", "so it is"),
        session("bb", "private talk"),
        session("cc", "not looked at"),
        session("dd", "of another repository", repo="ann/other"),
        session("ee", "of none", repo=None),
    )
    assert curation.selection(home, NAME) is None
    assert states(home) == {"aa": "new", "bb": "new", "cc": "new"}
    desk(home).decide({"aa": "include", "bb": "exclude"})
    assert states(home) == {"cc": "new", "aa": "included", "bb": "excluded"}
    assert sent(home) == {"the kiln is cold", "so it is"}
    found = curation.selection(home, NAME)
    assert found is not None
    assert (found.waiting, found.included, found.excluded) == (1, 1, 1)
    assert found.lets("aa", ["aa-0", "else"]) == {"aa-0"}
    assert found.lets("dd", ["dd-0"]) == frozenset()
    assert curation.waiting(home) == [("ann/proj-memory", "ann/proj", 1)]
    desk(home).decide({"aa": None})
    assert states(home)["aa"] == "new"
    assert sent(home) == set()


@pytest.mark.parametrize(
    ("repo", "counts"),
    [
        ("Ann/Proj", True),
        ("ann/proj potters/proj", True),
        ("ann/projector", False),
        ("fann/proj", False),
        ("ann/proj2 x/ann/proj", False),
    ],
)
def test_a_repository_is_recognised_by_its_whole_name(home: FunesHome, repo: str, counts: bool) -> None:
    store(home.memory, session("aa", "word", repo=repo), session("bb", "else"))
    desk(home).decide({"bb": "include"})
    assert ("aa" in states(home)) == counts


def test_growth_waits_and_what_was_reviewed_goes_on_being_sent(home: FunesHome) -> None:
    file = session("aa", "one", "two")
    store(home.memory, file)
    desk(home).decide({"aa": "include"})
    file.say("aa-2", "three")
    store(home.memory, file)
    item = desk(home).sessions()[0]
    assert (item.standing.state, item.standing.growth) == ("grown", 1)
    assert [(x.prompt, x.fresh) for x in desk(home).preview(item.session)] == [("one", False), ("three", True)]
    assert sent(home) == {"one", "two"}
    desk(home).decide({"aa": "include"})
    assert states(home) == {"aa": "included"}
    assert sent(home) == {"one", "two", "three"}


@pytest.mark.parametrize("how", ["rewritten", "between", "gone", "more"])
def test_a_session_that_reads_differently_now_waits_as_a_whole(home: FunesHome, how: str) -> None:
    file = session("aa", "one", "two", "three")
    store(home.memory, file)
    desk(home).decide({"aa": "include"})
    other = session("aa", "one", "two" if how != "rewritten" else "other words", "three")
    if how == "between":
        other.say("aa-x", "said between")
        other.turns.insert(1, other.turns.pop())
        other.turns = [replace(turn, seq=seq) for seq, turn in enumerate(other.turns)]
    elif how == "gone":
        del other.turns[1]
    elif how == "more":
        longer = "much longer words " * 200
        block = replace(other.turns[1].blocks[0], text=longer)
        other.turns[1] = replace(other.turns[1], blocks=(block,))
    store(home.memory, other)
    assert states(home) == {"aa": "changed"}
    assert sent(home) == set()


def test_what_a_scrub_takes_out_does_not_undo_a_review(home: FunesHome) -> None:
    store(home.memory, session("aa", "the key is hunter2", "so it is"))
    desk(home).decide({"aa": "include"})
    with MemoryWriter.open(home.memory, MODEL) as writer:
        messages = {item.message: item.rows for part in writer.stored() for item in part}
        writer.rewrite(
            {no: [row._replace(text="the key is *") for row in rows] for no, rows in messages.items()}, embed
        )
    assert states(home) == {"aa": "included"}
    assert sent(home) == {"the key is *"}


def test_an_excluded_session_stays_excluded_when_it_grows(home: FunesHome) -> None:
    file = session("aa", "one")
    store(home.memory, file)
    desk(home).decide({"aa": "exclude"})
    file.say("aa-1", "two")
    store(home.memory, file)
    assert states(home) == {"aa": "excluded"}
    assert sent(home) == set()


def test_what_subagents_did_goes_with_the_session_that_sent_them(home: FunesHome) -> None:
    agent = session("agent-1", "look for it", "found", relation="subagent", parent_session_id="aa", agent_name="scout")
    deeper = session("agent-2", "deeper", relation="subagent", parent_session_id="agent-1")
    store(home.memory, session("aa", "one"), agent, deeper)
    table = desk(home)
    (item,) = table.sessions()
    assert [part.session for part in item.session.parts] == ["aa", "agent-1", "agent-2"]
    assert (item.session.turns, item.session.passages) == (4, 4)
    with pytest.raises(BadRequestError, match="goes with session aa"):
        table.session("agent-1")
    table.decide({"aa": "include"})
    assert sent(home) == {"one", "look for it", "found", "deeper"}
    agent.say("agent-1-2", "more of it")
    store(home.memory, agent, session("agent-3", "new", relation="subagent", parent_session_id="aa"))
    (item,) = desk(home).sessions()
    assert (item.standing.state, item.standing.growth) == ("grown", 2)
    assert sent(home) == {"one", "look for it", "found", "deeper"}
    desk(home).decide({"aa": "exclude"})
    assert sent(home) == set()


def test_subagents_that_sent_each_other_are_a_session(home: FunesHome) -> None:
    store(
        home.memory,
        session("aa", "one", relation="subagent", parent_session_id="bb"),
        session("bb", "two", relation="subagent", parent_session_id="aa"),
        session("cc", "three", relation="subagent", parent_session_id="gone"),
    )
    found = desk(home)
    assert {item.session.session for item in found.sessions()} >= {"cc"}
    assert sum(item.session.turns for item in found.sessions()) == 3


def test_a_subagent_alone_in_the_repository_is_reviewed_as_its_session(home: FunesHome) -> None:
    agent = session("agent-1", "look", relation="subagent", parent_session_id="aa")
    store(home.memory, session("aa", "elsewhere", repo=None, title="An errand"), agent)
    table = desk(home)
    assert table.heads([item.session for item in table.sessions()]) == {"aa": "An errand"}
    table.decide({"aa": "include"})
    assert sent(home) == {"look"}


def test_a_copy_goes_with_the_session_that_has_it_first(home: FunesHome) -> None:
    first = session("aa", "one", "two")
    second = transcript("bb", 5, fork=True)
    second.copy_from(first, 2)
    second.say("bb-2", "three")
    store(home.memory, first, second)
    table = desk(home)
    assert table.session("bb").copies == (("aa", 2),)
    table.decide({"bb": "include", "aa": "exclude"})
    assert sent(home) == {"three"}


def test_a_decision_by_hand_waits_for_the_review(home: FunesHome) -> None:
    store(home.memory, session("aa", "one"))
    path = files.save(home, NAME, "ann/proj", {"aa": Entry("include")}).path
    assert states(home) == {"aa": "new"}
    assert sent(home) == set()
    desk(home).decide({"aa": "exclude"})
    path.write_text(path.read_text().replace('"exclude"', '"include"'))
    assert states(home) == {"aa": "included"}
    assert sent(home) == {"one"}


def test_a_memory_marked_as_a_projects_gets_nothing_before_it_is_curated_here(home: FunesHome) -> None:
    store(home.memory, session("aa", "one"))
    found = curation.selection(home, NAME, project="Ann/Proj")
    assert found is not None
    assert (found.turns, found.waiting) == ({}, 1)
    desk(home).decide({"aa": "include"})
    found = curation.selection(home, NAME, project="Ann/Proj")
    assert found is not None
    assert found.lets("aa", ["aa-0"]) == {"aa-0"}
    with pytest.raises(FunesError, match="bob/other"):
        curation.selection(home, NAME, project="bob/other")
    found = curation.selection(home, NAME, project="a name and no repository")
    assert found is not None
    assert found.lets("aa", ["aa-0"]) == {"aa-0"}
    found = curation.selection(home, HubName("ann/elsewhere"), project="a name and no repository")
    assert found is not None
    assert (found.turns, found.waiting) == ({}, 0)


def test_nothing_can_be_sent_past_a_file_that_is_damaged(home: FunesHome) -> None:
    store(home.memory, session("aa", "one"))
    desk(home).decide({"aa": "include"})
    files.path_of(home, NAME).write_bytes(b"memory = \xff\n")
    for ask in (lambda: curation.selection(home, NAME), lambda: curation.waiting(home), lambda: desk(home)):
        with pytest.raises(FunesError, match=r"toml, line 1: .*no UTF-8"):
            ask()


def test_no_decisions_are_taken_when_one_of_them_is_not_clear(home: FunesHome) -> None:
    store(home.memory, session("aa1", "one"), session("aa2", "two"), session("dd", "else", repo="ann/other"))
    table = desk(home)
    assert table.session("aa1").session == "aa1"
    for prefix, error in (("aa", AmbiguousSessionError), ("dd", NotFoundError), ("", BadRequestError)):
        with pytest.raises(error):
            table.session(prefix)
    assert table.repositories() == ["ann/proj", "ann/other"]


@pytest.mark.parametrize("memory", ["local", "", "./here", "/tmp"])
def test_only_a_published_memory_is_curated(home: FunesHome, memory: str) -> None:
    with pytest.raises(BadRequestError):
        open_desk(home, memory, "ann/proj", Path("/"), lambda: MemoryReader.open(home.memory))


@pytest.mark.parametrize(
    ("urls", "repository"),
    [(["git@example.org:ann/proj.git"], "ann/proj"), (["git@x:a/b", "git@x:c/d"], None), ([], None)],
)
def test_the_repository_may_be_that_of_the_working_directory(
    home: FunesHome, tmp_path: Path, urls: list[str], repository: str | None
) -> None:
    store(home.memory, session("aa", "one"))
    here = tmp_path / "here"
    (here / ".git").mkdir(parents=True)
    (here / ".git" / "config").write_text("".join(f'[remote "r{n}"]\nurl = {url}\n' for n, url in enumerate(urls)))
    reader = lambda: MemoryReader.open(home.memory)  # noqa: E731
    if repository is None:
        with pytest.raises(BadRequestError):
            open_desk(home, NAME.repo, None, here, reader)
        return
    table = open_desk(home, NAME.repo, None, here, reader)
    assert table.repository == repository
    table.decide({})
    assert open_desk(home, NAME.repo, None, Path("/"), reader).repository == repository
    with pytest.raises(BadRequestError, match="gets sessions of ann/proj"):
        open_desk(home, NAME.repo, "ann/other", Path("/"), reader)


def test_a_preview_shows_what_was_typed_and_how_each_answer_begins(home: FunesHome) -> None:
    file = session("aa", "why is it cold " + "so very cold " * 200, "because")
    file.say("aa-2", "[tool_use] x", role="assistant", kind="tool_use")
    file.say("aa-3", "thanks \x1b[31m")
    store(home.memory, file)
    table = desk(home)
    shown = table.preview(table.session("aa"))
    assert [(x.prompt, x.answer) for x in shown] == [
        (("why is it cold " + "so very cold " * 200).strip(), "because"),
        ("thanks \x1b[31m", ""),
    ]
    assert shown[0].ts.startswith("2026-01-01T")
