"""The steps of `funes ask`, and everything that may stop it before an agent is started."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from funes_mcp import discovery, wording
from funes_mcp.ask import child, citations, prompt
from funes_mcp.ask.environment import surroundings
from funes_mcp.ask.model import AgentAsking, Checked, Desk, Recalled
from funes_mcp.ask.recalling import recall
from funes_mcp.errors import FunesError
from funes_mcp.models import Service
from funes_mcp.render import harmless

#: Lines of a failed agent's own words that are shown.
SHOWN_LINES = 12


class NothingRelevantError(FunesError):
    """No passage was recalled; no agent was started."""

    exit_code = 3


class NotLoggedInError(FunesError):
    """The agent says that nobody is logged in; no model was asked."""


class AgentFailedError(FunesError):
    """The agent's program failed.

    Args:
        code: Its exit code; negative for a signal.
    """

    def __init__(self, message: str, hint: str, code: int) -> None:
        super().__init__(message, hint)
        self.code = code


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, checked.

    Attributes:
        k: How many passages to recall.
        extra: Flags for the agent's program.
    """

    question: str
    memory: str = "local"
    k: int = 8
    extra: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it."""

    text: str
    checked: Checked
    recalled: Recalled
    notes: tuple[str, ...] = ()


class Watcher:
    """Told how an ask goes on; does nothing."""

    def step(self, text: str) -> None:
        """What is being done now, a few words."""

    def note(self, text: str) -> None:
        """A sentence that came with the passages or the run."""

    def told(self, text: str) -> None:
        """A further part of the answer."""


def find_asking(agent: str) -> AgentAsking:
    """How an agent as typed is asked (`claude_code` means `claude`). Raises `BadRequestError`, `FunesError`."""
    asking: AgentAsking = discovery.find_beside(agent, "asking", "ASKING", "asked")
    return asking


def find_program(asking: AgentAsking, environ: Mapping[str, str]) -> str:
    """The agent's program. Raises `FunesError` when it is not installed."""
    program = shutil.which(asking.command, path=environ.get("PATH"))
    if program is None:
        raise FunesError(
            f"{asking.title} is not here: there is no `{asking.command}` on PATH.",
            f"Install it ({asking.install_hint}), or ask another agent.",
        )
    return os.path.abspath(program)


def ask(
    service: Service,
    asking: AgentAsking,
    asked: Asked,
    environ: Mapping[str, str],
    home: Path,
    watcher: Watcher | None = None,
) -> Answer:
    """Recall, have the agent answer, and check what it cites.

    Args:
        home: The user's home folder.

    Raises:
        NothingRelevantError: Before any agent is started.
        NotLoggedInError, AgentFailedError, FunesError: See there; the service's own errors come through.
        KeyboardInterrupt: The agent and its children have ended by then.
    """
    watcher = watcher or Watcher()
    program = find_program(asking, environ)
    watcher.step("recalling")
    recalled = recall(service, asked.question, asked.memory, asked.k)
    for note in recalled.notes:
        watcher.note(note)
    if not recalled.passages:
        raise NothingRelevantError(
            "Nothing relevant was recalled, so no agent was asked.", what_to_try(asked.question, asked.memory)
        )
    with tempfile.TemporaryDirectory(prefix="funes-ask-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        desk = Desk(program, environ, home, scratch, asked.extra)
        refusal = asking.refusal(desk)
        if refusal:
            raise NotLoggedInError(f"{asking.title} says: {harmless(refusal)}", asking.login_hint)
        request = prompt.build(asked.question, recalled.passages)
        run = asking.run(desk, request)
        for note in run.remains:
            watcher.note(note)
        watcher.step(f"asking {asking.title} about {wording.count(len(recalled.passages), 'passage')}")
        text = _run(asking, run.argv, run.stdin, surroundings(environ, run.sets, run.drops), scratch, watcher)
    return Answer(text, citations.check(text, recalled.passages), recalled, run.remains)


def _run(
    asking: AgentAsking, argv: Sequence[str], stdin: str, environ: Mapping[str, str], scratch: Path, watcher: Watcher
) -> str:
    reader = asking.reader()
    last: list[str] = []
    shown = ""
    held = ""

    def tell(new: str) -> None:
        nonlocal shown, held
        shown += new
        new = held + new
        held = "\r" if new.endswith("\r") else ""  # until it is known whether a newline follows
        new = new.removesuffix("\r") if held else new
        if new:
            watcher.told(harmless(new))

    def line(text: str) -> None:
        last.append(text)
        del last[: -child.KEPT_LINES]
        tell(reader.line(text))

    folder = scratch / "empty"  # no project's files and settings are near
    folder.mkdir(mode=0o700)
    try:
        ended = child.run(argv, stdin, environ, folder, line)
    except OSError as error:
        raise FunesError(f"{argv[0]} cannot be started: {error.strerror or error}.") from None
    said = reader.said
    if ended.code != 0 or not said.text.strip() or said.errors:
        raise _failure(asking, ended, said.errors, last)
    if not shown:
        tell(said.text.strip())
    return harmless(said.text).strip()


def _failure(asking: AgentAsking, ended: child.Ended, errors: Sequence[str], output: Sequence[str]) -> AgentFailedError:
    """The agent's own words: those on errors, else the last lines of what it wrote that are no records."""
    words = [word for text in errors for word in text.splitlines()]
    words = words or [*(line for line in output if not line.lstrip().startswith("{")), *ended.errors]
    shown = [harmless(word)[:500] for word in words if word.strip()][-SHOWN_LINES:]
    if ended.code > 0:
        how = f"ended with exit code {ended.code}"
    elif ended.code < 0:
        how = f"was ended by {_signal_name(-ended.code)}"
    else:
        how = "reported an error" if errors else "gave no answer"
    last = ":\n" + "\n".join(f"  {word}" for word in shown) if shown else " and said nothing."
    return AgentFailedError(f"{asking.title} {how}{last}", "", ended.code)


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def what_to_try(question: str, memory: str) -> str:
    """What to do when the memory holds no answer."""
    import shlex

    word = max(question.split(), key=len, default="word")[:40]
    other = "" if memory in ("", "local") else f" --memory {shlex.quote(memory)}"
    return (
        "Try other words, such as a name, a path or an error text that stood there; "
        f"`funes recall -k 20 {shlex.quote(word)}{other}` shows what there is; "
        f"{'`funes index` reads what is new' if not other else 'another `--memory` may hold it'}."
    )
