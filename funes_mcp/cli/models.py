"""`funes models`: which models are here, fetch more, move the memory to another."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click

from funes_mcp.cli import deeper, terminal
from funes_mcp.deepmodels import DeepModels, MemoryState, ModelState
from funes_mcp.memory.derived import NO_MODEL
from funes_mcp.memory.model import Embedding
from funes_mcp.models import Service
from funes_mcp.render import harmless, size_text

T = TypeVar("T")


@click.group(
    "models",
    invoke_without_command=True,
    epilog="""\b
Examples:
  funes models
  funes models pull
  funes models pull --from /media/stick/models
  funes models use BAAI/bge-small-en-v1.5
  funes models use bundled
""",
)
@click.option("--verify", is_flag=True, help="Compare every byte of every model with its checksum.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_context
def command(context: click.Context, verify: bool, as_json: bool) -> int:
    """Show the models that are on this machine, and which one each memory is stamped with."""
    if context.invoked_subcommand is not None:
        return 0
    models = _models(context)
    states, memory, copies = models.states(whole=verify), models.memory_state(), models.copies()
    if as_json:
        value = {
            "models": [asdict(s) for s in states],
            "memory": asdict(memory) if memory else None,
            "copies": [{"name": name, **asdict(stamp)} for name, stamp in copies],
        }
        terminal.out(json.dumps(value, ensure_ascii=False) + "\n")
    else:
        terminal.out(_listed(states, memory, copies))
    return 1 if any(state.state == "broken" for state in states) else 0


@command.command("pull")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--from", "source", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="A folder with the files."
)
@click.pass_context
def pull(context: click.Context, names: tuple[str, ...], source: Path | None) -> int:
    """Fetch models from the Hub (HF_ENDPOINT), or take them out of a folder.

    Without NAME: the two that funes is made for, at pinned revisions. Others are fastembed's text embeddings and
    cross-encoders. A pull that was cut off goes on where it stopped, and of a model that is damaged only what is
    damaged is fetched again.
    """
    models = _models(context)
    for name in names:
        deeper.pull(models, name, source)
    if not names:
        deeper.complete(models, source)
        terminal.say("The usual models are here.")
    return 0


@command.command("use")
@click.argument("name")
@click.pass_context
def use(context: click.Context, name: str) -> int:
    """Move the memory to a model: embed everything that is stored again.

    The memory answers as before until that is done. Ctrl-C keeps what was done; the same command goes on from there.
    `bundled` is the model that came with funes.
    """
    models = _models(context)
    full = models.named(name)
    with deeper.embedding(full) as told:
        done = models.use(name, told)
    if done.left:
        terminal.say(f"{done.left:,} passages came in meanwhile; they follow behind the scenes.")
    moved = "The memory has moved to" if done.switched else "The memory is stamped with"
    terminal.out(f"{moved} {full} ({done.embedded:,} passages embedded)\n")
    return 0


def _models(context: click.Context) -> DeepModels:
    open_service: Callable[[], Service] = context.obj
    return open_service().models


def _listed(states: list[ModelState], memory: MemoryState | None, copies: list[tuple[str, Embedding]]) -> str:
    lines = []
    for state in states:
        facts: list[str] = [state.state]
        if state.dim:
            facts.append(f"{state.dim} numbers")
        if state.bytes:
            facts.append(size_text(state.bytes))
        if state.revision:
            facts.append(f"revision {state.revision[:12]}")
        if state.state == "here":
            facts.append("not compared with any checksum" if state.checked == "nothing" else "checksums right")
        lines.append(f"{state.kind:8}  {state.name}  {', '.join(facts)}")
        if state.problem:
            lines.append(f"          {state.problem}")
    if memory is None:
        lines.append("memory    there is none yet")
    else:
        home = os.path.expanduser("~")
        path = memory.path.replace(home, "~", 1) if memory.path.startswith(home + os.sep) else memory.path
        vectors = "all" if memory.embedded == memory.chunks else f"{memory.embedded:,} of {memory.chunks:,}"
        lines.append(f"memory    {path}  {memory.model or 'no model'}, {memory.width} numbers, {vectors} passages")
        if memory.moving_to:
            lines.append(f"          on the way to {memory.moving_to}: {memory.moved:,} of {memory.chunks:,} passages")
    for name, stamp in copies:
        model = "no vectors that can be used" if stamp.model == NO_MODEL else f"{stamp.model}, {stamp.width} numbers"
        lines.append(f"copy      {name}  {model}")
    missing = [state.name for state in states if state.state == "not here"]
    if missing:
        lines.append("`funes models pull` fetches what is not here.")
    return "\n".join(harmless(line) for line in lines) + "\n"
