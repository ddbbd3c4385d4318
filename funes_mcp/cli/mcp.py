"""`funes mcp`: the server. The program's entry starts it without coming here; this is its help."""

from __future__ import annotations

import os

import click

from funes_mcp.models import Service


@click.command("mcp", epilog="Agents start it: funes add claude, or see examples/agent-configs.")
@click.argument("memory", default="local")
@click.option("--rerank", default="auto", metavar="auto|off|NAME", help="Who orders the first few; see `funes recall`.")
def command(memory: str, rerank: str) -> int:
    """Serve recall, get and status to an agent over stdin and stdout (MCP).

    MEMORY is the memory meant when a call names none; the local one unless named. It may be a dataset on the Hub
    (owner/name), which is fetched in the background. Ends when stdin closes.
    """
    from funes_mcp import handshake

    def open_service() -> Service:
        from funes_mcp.home import FunesHome
        from funes_mcp.service import IndexService

        return IndexService(FunesHome.from_environ(os.environ), os.environ, rerank=rerank)

    return handshake.main([memory], open_service)
