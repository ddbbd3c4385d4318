"""Everything that has to hold before a change lands: lint, types, tests, and the real agents.

python scripts/check.py            all of it
python scripts/check.py --fast     without the agents
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"funes_mcp": "funes_mcp", "funes_adapters": "adapters"}


def run(title: str, *command: str, **environ: str) -> None:
    """Run a step, and leave with its exit code when it fails."""
    print(f"== {title}", flush=True)
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}).returncode
    if code:
        raise SystemExit(f"{title} failed ({code})")


def types() -> None:
    """mypy has to see the folder `adapters` under the name it is installed as."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in PACKAGES.items():
            Path(folder, name).symlink_to(ROOT / source, target_is_directory=True)
        arguments = [part for name in PACKAGES for part in ("-p", name)]
        run("types", sys.executable, "-m", "mypy", "--strict", *arguments, MYPYPATH=folder)


def main() -> None:
    fast = "--fast" in sys.argv[1:]
    run("lint", sys.executable, "-m", "ruff", "check", ".")
    run("format", sys.executable, "-m", "ruff", "format", "--check", ".")
    types()
    run("tests", sys.executable, "-m", "pytest", "-n", "2", "-m", "not agents")
    if not fast:
        run("agents", sys.executable, "-m", "pytest", "-n", "0", "-m", "agents")


if __name__ == "__main__":
    main()
