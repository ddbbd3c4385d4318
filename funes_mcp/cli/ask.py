"""`funes ask`: one answer from the memory, by an agent."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import click

from funes_mcp import render
from funes_mcp.ask import flow
from funes_mcp.ask.model import Passage
from funes_mcp.catchup import CatchUp
from funes_mcp.cli import progress, terminal
from funes_mcp.cli.recall import MEMORY_HELP, QuestionCommand
from funes_mcp.errors import BadRequestError
from funes_mcp.home import FunesHome
from funes_mcp.models import Service


@click.command(
    "ask",
    cls=QuestionCommand,
    epilog="""\b
Examples:
  funes ask claude "why did we drop the streaming parser?"
  funes ask codex "which port does the staging proxy use?" --json
  funes ask pi how did we fix the flaky upload test --agent-args "--model sonnet"
\b
Exit codes: 0 answered (or the agent says that the passages do not answer), 1 an error, 2 wrong usage,
3 nothing relevant was recalled and no agent was started, 130 interrupted.
""",
)
@click.argument("agent")
@click.argument("question", nargs=-1, required=True)
@click.option("--memory", default="local", metavar="LABEL", help=MEMORY_HELP)
@click.option("-k", default=8, show_default=True, type=click.IntRange(1, 100), help="How many passages.")
@click.option("--agent-args", multiple=True, metavar="FLAGS", help="Flags for the agent's program, as one word.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_obj
def command(
    open_service: Callable[[], Service],
    agent: str,
    question: tuple[str, ...],
    memory: str,
    k: int,
    agent_args: tuple[str, ...],
    as_json: bool,
) -> None:
    """Have AGENT (claude, codex, pi or hermes) answer QUESTION from the memory, and name its sources.

    The agent is given the recalled passages as quotes, for a single turn: it has no tools, starts no MCP servers
    and runs no hooks. `-` reads the question from stdin.
    """
    text = " ".join(question)
    if question == ("-",):
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise BadRequestError("The question is empty.", 'Ask something: funes ask claude "why did we ..."')
    asking = flow.find_asking(agent)
    asked = flow.Asked(text.strip(), memory, k, _words(agent_args))
    flow.find_program(asking, os.environ)  # before anything that takes time
    service = open_service()
    CatchUp(FunesHome.from_environ(os.environ), service).run()
    view = _View(streams=not as_json)
    try:
        with progress.fetching(service, memory):
            answer = flow.ask(service, asking, asked, os.environ, _home(), view)
    except flow.NothingRelevantError as error:
        if as_json:
            terminal.out(render.to_json({"answered": False, "agent": asking.name, "asked": False}) + "\n")
        raise error
    finally:
        view.done()
    if as_json:
        terminal.out(render.to_json(_as_json(asking.name, asked, answer)) + "\n")
        return
    terminal.out(_sources(answer.checked.sources))
    if sys.stdout is not None:
        sys.stdout.flush()
    terminal.notes(remarks(answer))
    if answer.checked.declined:
        terminal.say(flow.what_to_try(asked.question, memory))


class _View(flow.Watcher):
    """Progress on stderr for a person who looks at it, the answer on stdout as it comes."""

    def __init__(self, streams: bool) -> None:
        self._streams = streams
        self._shows = terminal.is_terminal(sys.stderr)
        self._line_open = False

    def step(self, text: str) -> None:
        if self._shows:
            terminal.say(f"{text} …")

    def note(self, text: str) -> None:
        terminal.notes([text])

    def told(self, text: str) -> None:
        if self._streams and text:
            terminal.out(text)
            if sys.stdout is not None:
                sys.stdout.flush()
            self._line_open = not text.endswith("\n")

    def done(self) -> None:
        """End the last line."""
        if self._line_open:
            terminal.out("\n")
            self._line_open = False


def _words(agent_args: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(word for text in agent_args for word in shlex.split(text))
    except ValueError as error:
        raise BadRequestError(f"--agent-args cannot be split into words: {error}.") from None


def _home() -> Path:
    named = os.environ.get("HOME", "").strip()
    return Path(named) if named else Path.home()


def _sources(passages: tuple[Passage, ...]) -> str:
    """The passages that an answer cites, each with the command that opens it."""
    if not passages:
        return ""
    lines = ["", terminal.heading("Sources")]
    for passage in passages:
        lines += [f"[{passage.tag}] {passage.ts} {passage.harness} {passage.where}", f"  {get_command(passage)}"]
    return "\n".join(lines) + "\n"


def get_command(passage: Passage) -> str:
    """The command that opens a passage."""
    memory = "" if passage.memory == "local" else f" --memory {render.label(passage.memory)}"
    return f"funes get {shlex.quote(passage.session)} {shlex.quote(passage.turn)}{memory}"


def remarks(answer: flow.Answer) -> list[str]:
    """What a reader should know of an answer."""
    checked = answer.checked
    notes = []
    if checked.unknown:
        listed = ", ".join(checked.unknown[:8])
        notes.append(f"the answer cites what it was not given: {listed}. Do not rely on those claims")
    if not checked.declined and not checked.sources:
        notes.append("the answer names no passage as its source: do not rely on it")
    elif checked.unsourced:
        listed = "; ".join(f"“{text}”" for text in checked.unsourced[:3])
        notes.append(f"without a source: {listed}")
    return notes


def _as_json(agent: str, asked: flow.Asked, answer: flow.Answer) -> dict[str, object]:
    checked = answer.checked
    cited = {passage.tag for passage in checked.sources}
    return {
        "answered": not checked.declined,
        "agent": agent,
        "asked": True,
        "question": asked.question,
        "memory": asked.memory,
        "answer": answer.text,
        "sources": [{**_passage(p), "get": get_command(p)} for p in checked.sources],
        "unknown_citations": checked.unknown,
        "unsourced": checked.unsourced,
        "passages": [{**_passage(p), "cited": p.tag in cited} for p in answer.recalled.passages],
        "notes": [*answer.recalled.notes, *answer.notes],
    }


def _passage(passage: Passage) -> dict[str, str]:
    return {
        "tag": passage.tag,
        "session": passage.session,
        "turn": passage.turn,
        "memory": passage.memory,
        "ts": passage.ts,
        "harness": passage.harness,
    }
