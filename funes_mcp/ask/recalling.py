"""Recall as an agent would do it: an MCP client and the server, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from funes_mcp.ask.model import Recalled
from funes_mcp.ask.passages import parse
from funes_mcp.errors import FunesError
from funes_mcp.models import Service

#: Bytes of passages that an answer is made from.
PASSAGE_BYTES: Final = 24_000


def recall(service: Service, question: str, memory: str, k: int) -> Recalled:
    """The passages for a question.

    Raises:
        FunesError: As the service does; a failed search is never an empty one.
    """
    found = parse(asyncio.run(_call(service, {"query": question, "k": k, "memory": memory})))
    # That passages were cut to fit, and how to see more of them, is advice for who calls the tool by himself.
    return Recalled(found.passages, tuple(note for note in found.notes if "max_bytes" not in note))


async def _call(service: Service, arguments: Mapping[str, Any]) -> str:
    from mcp import Client

    from funes_mcp import server

    worker = server.Worker()
    failures: list[Exception] = []

    async def call(name: str, given: Mapping[str, Any]) -> str:
        try:
            return await worker.run(lambda: server.answer(service, name, given, "local"))
        except Exception as error:
            failures.append(error)
            raise error if isinstance(error, FunesError) else FunesError(str(error)) from error

    async with Client(server.build(call)) as client:
        result = await client.call_tool("recall", {**arguments, "max_bytes": PASSAGE_BYTES})
    if failures:
        raise failures[0]
    text = "".join(getattr(part, "text", "") for part in result.content)
    if result.is_error:
        raise FunesError(text)
    return text
