"""What passes between the steps of `funes ask`, and what an agent's folder has to offer for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Passage:
    """A recalled passage.

    Attributes:
        tag: What an answer cites it by, `<session>.<number>`; the session's part is a prefix of `session`.
        session, turn, memory: What `get` needs to open it.
        ts: When it was said, RFC 3339 or `no date`.
        harness, where, block_type: Of which agent, in which project and session, and what it is.
        text: The passage as recall shows it, with what is known of it and its neighbours.
    """

    tag: str
    session: str
    turn: str
    memory: str
    ts: str
    harness: str
    where: str
    block_type: str
    text: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """What recall brought: passages, best first, and its notes."""

    passages: tuple[Passage, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the agent is asked: a short role for agents that take one, and the whole request."""

    system: str
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What an answer cites, looked up among the passages that it was given.

    Attributes:
        declined: The answer says that the passages do not answer.
        sources: The cited passages, in the order in which they are first cited.
        unknown: Cited ids that stand for no passage.
        unsourced: Beginnings of paragraphs that cite nothing.
    """

    declined: bool
    sources: tuple[Passage, ...]
    unknown: tuple[str, ...]
    unsourced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Desk:
    """Where and with what an agent is run.

    Attributes:
        program: The agent's program, absolute.
        environ: The environment of `funes ask`.
        home: The user's home folder.
        scratch: A folder that exists for this run only, readable by the user alone.
        extra: Flags of the user's for the agent.
    """

    program: str
    environ: Mapping[str, str]
    home: Path
    scratch: Path
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """How an agent is started for one turn.

    Attributes:
        argv: The command line. Flags that switch things off come behind the user's own, so that they win.
        stdin: What is written to its standard input; "" for nothing.
        sets: Variables of its environment.
        drops: Beginnings of the names of variables that it must not see.
        remains: Sentences about what could not be switched off.
    """

    argv: tuple[str, ...]
    stdin: str = ""
    sets: Mapping[str, str] = field(default_factory=dict)
    drops: Sequence[str] = ()
    remains: tuple[str, ...] = ()


@dataclass(slots=True)
class Said:
    """What an agent has told so far.

    Attributes:
        text: The answer.
        errors: Its own words on what went wrong.
    """

    text: str = ""
    errors: list[str] = field(default_factory=list)


class Reader(Protocol):
    """Makes an answer of an agent's output. One serves one run.

    Attributes:
        said: What came so far. An agent that repeats its answer whole at the end replaces it.
    """

    said: Said

    def line(self, line: str) -> str:
        """Take one line of standard output; what of the answer is new, to be shown at once."""
        ...


class AgentAsking(Protocol):
    """How one agent is run for a single turn: no tools, no MCP servers, no hooks, no saved session.

    Attributes:
        name: What is typed (`claude`).
        title: What people call it (`Claude Code`).
        command: Its program (`claude`).
        install_hint: How it is installed, one line.
        login_hint: How one logs in, one line.
    """

    name: str
    title: str
    command: str
    install_hint: str
    login_hint: str

    def refusal(self, desk: Desk) -> str:
        """The agent's own words when it says that nobody is logged in; "" when it does not say so.

        May run the agent's program, but not a model.
        """
        ...

    def run(self, desk: Desk, prompt: Prompt) -> Run:
        """How to start it. May write into the scratch folder, and nowhere else."""
        ...

    def reader(self) -> Reader:
        """A fresh reader of its output."""
        ...
