"""Which memory an agent is bound to by `funes add`, and whether this machine publishes to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from funes_mcp.cli import terminal
from funes_mcp.cli.push import summary, talking
from funes_mcp.errors import FunesError, NoMemoryError
from funes_mcp.hub.errors import HubUnreachableError
from funes_mcp.memory import label
from funes_mcp.models import PushRequest, Service, Target


@dataclass(frozen=True, slots=True)
class Binding:
    """A memory for an agent.

    Attributes:
        memory: Its label as it is written into the agent's configuration, "" for the local one.
        publishes: Whether this machine publishes to it.
        exists: Whether it is there; one that could not be reached may be made by a push that a person types.
        notes: Sentences for the person.
    """

    memory: str = ""
    publishes: bool = False
    exists: bool = False
    notes: tuple[str, ...] = ()


def bind(typed: str, title: str, open_service: Callable[[], Service], yes: bool) -> Binding:
    """Look at the memory that was named, ask what has to be asked, and have a dataset made that is agreed to.

    Before anything is written for the agent: that the token may not make the dataset is only known by trying.

    Args:
        title: What people call the agent.
        yes: Every question is answered with yes.

    Raises:
        BadRequestError: That is no label of a memory.
        FunesError: It cannot be read; or it is not there and was not made.
    """
    name = label.parse(typed)
    if name is None:
        return Binding()
    if isinstance(name, Path):
        return Binding(str(name))
    if name.revision != "main":
        return Binding(name.label, notes=(f"{title} only reads {name.label}: nothing is published to a revision.",))
    service = open_service()
    with talking() as talk:
        target = service.look_at(name.label, talk)
    return _bound(target, title, service, yes)


def _bound(target: Target, title: str, service: Service, yes: bool) -> Binding:
    name = target.label
    later = f"`funes push {name}` publishes this machine's sessions there."
    if target.state == "there" and not target.writable:
        return Binding(
            name, notes=(f"Your token may not write to {name}: {title} reads it, and nothing is published.",)
        )
    if target.state == "there" and not target.private:
        terminal.say(f"warning: {name} is public: everybody can read what is published there.")
    question = _question(target, title)
    if question and not (yes or _ask(question, default=target.private)):
        if target.state == "missing":  # there is nothing to read either
            raise FunesError(
                f"{target.trouble} It was not made, and {title} was not changed.",
                "`funes add` with --yes makes it; without a memory it gives the agent the local one.",
            )
        return Binding(
            name,
            notes=(
                f"{title} reads {name}; this machine's sessions are not published there. "
                f"`funes add` with --yes, or again in a terminal, changes that.",
            ),
        )
    notes: tuple[str, ...] = ()
    if target.state == "unreachable":
        notes = (f"{target.trouble} {title} is bound to {name} all the same. Still to be done: {later}",)
        if not question:
            return Binding(name, publishes=True, notes=notes)
    if target.state == "missing":
        notes = (f"The private dataset was made: {_made(name, title, service)}",)
    else:
        service.agree(name, public=not target.private)
    return Binding(name, publishes=True, exists=target.state != "unreachable", notes=notes)


def _made(name: str, title: str, service: Service) -> str:
    """The page of the dataset, which is there then."""
    try:
        return service.create(name)
    except FunesError as error:
        raise FunesError(
            f"{error.message} {title} was not changed.", error.hint or "Run `funes add` again, or name another dataset."
        ) from error


def _question(target: Target, title: str) -> str:
    """What has to be asked before this machine publishes there; "" for nothing."""
    when = f"now and whenever a session of {title} begins or ends"
    if target.state == "missing":
        return f"Create the private dataset {target.label} and publish this machine's sessions there, {when}?"
    if target.state == "unreachable":
        return f"{target.label} cannot be reached now. Publish this machine's sessions there once it can?"
    if target.agreed or (target.shared and target.private):
        return ""
    if target.passages is None:
        what = f"{target.label} exists and holds no memory."
    elif target.shared:
        what = f"{target.label} holds sessions of this machine already."
    else:
        what = f"{target.label} holds {target.passages:,} passages, none of them from this machine."
    return f"{what} Publish this machine's sessions there, {when}?"


def first_push(service: Service, binding: Binding) -> int:
    """Publish what is indexed; the exit code. What fails is said, and left for the next push."""
    try:
        with talking() as talk:
            report = service.push(PushRequest(binding.memory, yes=True), talk)
    except NoMemoryError:
        then = "sessions are published as they end" if binding.exists else f"run `funes push {binding.memory}` later"
        terminal.notes([f"There is nothing to publish to {binding.memory} yet; {then}."])
        return 0
    except HubUnreachableError as error:
        terminal.notes([f"{error.message} Nothing was published yet: run `funes push {binding.memory}`."])
        return 0
    except FunesError as error:
        terminal.complain(error.message, error.hint)
        terminal.notes(
            [
                f"The agent is bound to {binding.memory} all the same: `funes push {binding.memory}` tries again, "
                "`funes add` with `local` unbinds it."
            ]
        )
        return error.exit_code
    terminal.out(summary(report))
    return 0


def _ask(question: str, *, default: bool) -> bool:
    if not (terminal.is_terminal(sys.stdin) and terminal.is_terminal(sys.stderr)):
        return False
    return click.confirm(question, default=default, err=True)
