"""`funes mcp`: the server. The program's entry starts it without coming here; this is its help."""

from __future__ import annotations

import click


@click.command("mcp", epilog="Agents start it: funes add claude, or see examples/agent-configs.")
@click.argument("memory", default="local")
def command(memory: str) -> int:
    """Serve recall, get and status to an agent over stdin and stdout (MCP).

    MEMORY is the memory meant when a call names none; the local one unless named. Ends when stdin closes.
    """
    from funes_mcp import handshake

    return handshake.main([memory])
