"""LanceDB is loaded without a client that nothing here calls."""

from __future__ import annotations

import subprocess
import sys


def test_the_client_of_a_table_service_is_imported_only_when_asked_for() -> None:
    code = (
        "import sys\n"
        "from funes_mcp.memory import lance\n"
        "assert lance.load() is sys.modules['lancedb']\n"
        "client = 'lance_namespace_urllib3_client'\n"
        "assert client in sys.modules and client + '.api' not in sys.modules\n"
        "from lance_namespace_urllib3_client import TableApi\n"
        "assert TableApi is sys.modules[client + '.api.table_api'].TableApi\n"
        "from lance_namespace_urllib3_client import TableApi as again\n"
        "assert again is TableApi\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
