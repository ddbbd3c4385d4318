"""`funes recall`: find passages."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from typing import Final

import click

from funes_mcp import render
from funes_mcp.catchup import CatchUp
from funes_mcp.cli import progress, terminal
from funes_mcp.errors import BadRequestError
from funes_mcp.home import FunesHome
from funes_mcp.models import RecallRequest, Service
from funes_mcp.traces.model import BLOCK_TYPES

#: What `--memory` takes.
MEMORY_HELP: Final = (
    "Another memory than the local one: a dataset on the Hub (owner/name), or a folder (./memory). "
    "A published memory is fetched first, as far as it is not here."
)


class QuestionCommand(click.Command):
    """A command whose words are a question: one that begins with a dash (`-O2 or -O3?`) is still a word.

    Unknown options that look like nothing else (`--neigbors`) are refused as usual.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name: not (option.is_flag or option.count)
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
            for name in option.opts
        }
        options: list[str] = []
        words: list[str] = []
        rest = iter(args)
        for arg in rest:
            if arg == "--":
                words.extend(rest)
            elif arg in takes_value:
                options.append(arg)
                if takes_value[arg]:
                    options.extend(value for value in [next(rest, None)] if value is not None)
            elif re.match(r"--[a-z-]+(=|$)", arg) or re.fullmatch(r"-k=?\d+", arg):
                options.append(arg.replace("-k=", "-k"))
            else:
                words.append(arg)
        return super().parse_args(ctx, [*options, "--", *words])


def _a_number(_ctx: click.Context, _param: click.Parameter, value: float | None) -> float | None:
    """Click's ranges let through what compares with nothing."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number.")
    return value


@click.command(
    "recall",
    cls=QuestionCommand,
    epilog="""\b
Examples:
  funes recall why did we drop the streaming parser
  funes recall "error E0308" --type tool_result --since 30d
  git log -1 --format=%s | funes recall - --project owner/name
  funes recall how is staging deployed --memory acme/memory
""",
)
@click.argument("query", nargs=-1, required=True)
@click.option("-k", default=8, show_default=True, type=click.IntRange(1), help="How many passages.")
@click.option(
    "--candidates", default=50, show_default=True, type=click.IntRange(1), help="How many passages are reranked."
)
@click.option(
    "--neighbors", default=1, show_default=True, type=click.IntRange(0), help="Turns shown beside each; 0 for none."
)
@click.option(
    "--half-life",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Days in which recency halves; it decides near-ties only. 0 for no recency.",
)
@click.option("--type", "block_type", metavar="TYPE", help=f"Only one kind: {', '.join(BLOCK_TYPES)}.")
@click.option("--harness", metavar="NAME", help="Only one agent: claude, codex, pi or hermes.")
@click.option("--project", metavar="NAME", help="Only a repository (owner/name) or folder.")
@click.option("--since", metavar="WHEN", help="Only newer than a date or an age (7d, 3w).")
@click.option("--until", metavar="WHEN", help="Only older than a date or an age.")
@click.option("--session", metavar="ID", help="Only one session; the beginning of its id will do.")
@click.option(
    "--min-relevance",
    type=click.FloatRange(0, 1),
    callback=_a_number,
    help="Only passages at least so relevant, 0 to 1; 0 shows the nearest ones even when nothing seems relevant.",
)
@click.option("--memory", default="local", metavar="LABEL", help=MEMORY_HELP)
@click.option(
    "--rerank",
    default="",
    metavar="auto|off|NAME",
    help="Who orders the first few: the cross-encoder where it is here (auto), nobody, maxsim, or a cross-encoder.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.pass_obj
def command(
    open_service: Callable[[], Service],
    query: tuple[str, ...],
    k: int,
    candidates: int,
    neighbors: int,
    half_life: float,
    block_type: str | None,
    harness: str | None,
    project: str | None,
    since: str | None,
    until: str | None,
    session: str | None,
    min_relevance: float | None,
    memory: str,
    rerank: str,
    as_json: bool,
) -> None:
    """Find passages of past sessions, word for word, best first.

    QUERY is a question in plain words; quotes are not needed. Exact names, paths and error texts help.
    `-` reads it from stdin.
    """
    text = " ".join(query)
    if query == ("-",):
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise BadRequestError("The question is empty.", 'Ask something: funes recall "why did we ..."')
    service = open_service()
    CatchUp(FunesHome.from_environ(os.environ), service).run()
    request = RecallRequest(
        query=text.strip(),
        k=k,
        candidates=candidates,
        neighbors=neighbors,
        half_life=half_life,
        block_type=block_type,
        harness=harness,
        project=project,
        session=session,
        since=since,
        until=until,
        memory=memory,
        min_relevance=min_relevance,
        rerank=rerank,
    )
    with progress.fetching(service, memory):
        answer = service.recall(request)
    if as_json:
        terminal.out(render.to_json(answer) + "\n")
        return
    terminal.notes(answer.notes)
    terminal.out(
        render.render_recall(
            answer, answer.memory or memory, ascii_arrow=terminal.lacks_arrow(), heading=terminal.heading
        )
    )
