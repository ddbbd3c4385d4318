"""What an agent's wiring must offer, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from funes_mcp.wiring.files import Edit
from funes_mcp.wiring.program import Program


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent is wired.

    Attributes:
        environ: The environment; the agents' own variables are honoured, blank means unset.
        home: The user's home folder.
        root: The agent's own folder.
        kit: A folder of ours for files the agent reads in place (a plugin).
    """

    environ: Mapping[str, str]
    home: Path
    root: Path
    kit: Path


@dataclass(frozen=True, slots=True)
class Presence:
    """Whether an agent is here.

    Attributes:
        program: The path of its program, "" when it is not on `PATH`.
        version: What the program says of itself, "" when not asked or not answered.
        used: Whether its folder exists, so that it ran at least once.
    """

    program: str
    version: str = ""
    used: bool = False


@dataclass(frozen=True, slots=True)
class Consent:
    """Something that is only done when the person says so.

    Attributes:
        key: Its name in `Order.consents`.
        question: What is asked, a yes-or-no question.
        default: The answer of an empty line.
        covered_by_yes: Whether `--yes` answers it too.
        flag: The option that answers yes, "" when there is none.
        declined: What to tell a person who said no or could not be asked.
    """

    key: str
    question: str
    default: bool
    covered_by_yes: bool
    flag: str = ""
    declined: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """What `add` is to write."""

    program: Program
    consents: frozenset[str] = frozenset()
    presence: Presence = field(default_factory=lambda: Presence(""))


@dataclass(frozen=True, slots=True)
class Wired:
    """How an agent stands.

    Attributes:
        server: Whether our MCP server is registered.
        hooks: The events that are hooked.
        notes: Sentences about what keeps it from working.
        memory: The memory that our server reads; "" for the local one.
        publishes: The memory that hooks publish to when sessions begin and end; "" for none.
    """

    server: bool
    hooks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    memory: str = ""
    publishes: str = ""


#: The bytes that files had before funes came, by path; None for a file that was not there.
Before = Mapping[Path, bytes | None]


class AgentWiring(Protocol):
    """One agent's configuration. Methods read files and work out edits; nothing is written by them.

    Attributes:
        name: What is typed (`claude`).
        title: What people call it (`Claude Code`).
        command: Its program (`claude`).
        install_hint: How it is installed, one line.
        asks_version: Whether what is written depends on the program's version.
    """

    name: str
    title: str
    command: str
    install_hint: str
    asks_version: bool

    def root(self, environ: Mapping[str, str], home: Path) -> Path:
        """The agent's own folder."""
        ...

    def consents(self, place: Place) -> Sequence[Consent]:
        """What to ask before `add`."""
        ...

    def add(self, place: Place, order: Order) -> Sequence[Edit]:
        """The edits that wire funes in. Doing them twice is doing them once. Raises `ConfigError`."""
        ...

    def remove(self, place: Place, before: Before) -> Sequence[Edit]:
        """The edits that take funes out and nothing else. Raises `ConfigError`."""
        ...

    def state(self, place: Place) -> Wired:
        """How things stand. Raises `ConfigError` for files that cannot be read."""
        ...

    def advice(self, place: Place, order: Order) -> Sequence[str]:
        """Sentences for the person after `add`."""
        ...
