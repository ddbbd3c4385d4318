"""Write `funes_mcp/data/handshake.json`: what the MCP SDK answers to `initialize` and `tools/list`.

Run after a change to the tools, the instructions, the version or the SDK: python scripts/write_handshake.py
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import funes_mcp
from funes_mcp.server import handshake_data


def main() -> None:
    target = Path(funes_mcp.__file__).parent / "data" / "handshake.json"
    data = asyncio.run(handshake_data())
    target.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", newline="\n")
    print(f"wrote {target}")


if __name__ == "__main__":
    main()
