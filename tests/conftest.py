"""What holds for all tests: hypothesis never judges by the clock, and CI draws the same examples every time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "funes",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("funes")


@pytest.fixture(scope="session")
def with_rules(pytestconfig: pytest.Config) -> Callable[[Path], None]:
    """Puts the compiled rules of the search for credentials into a funes home, which saves it some seconds."""
    from funes_mcp.redaction import Redactor

    kept = getattr(pytestconfig, "cache", None)
    cache = None if kept is None else kept.mkdir("secret-rules")
    if cache is not None and not any(cache.iterdir()):
        Redactor(cache).warm()

    def put(root: Path) -> None:
        if cache is not None:
            for folder in (root, root / "cache", root / "cache" / "rules"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for rules in cache.iterdir():
                shutil.copyfile(rules, root / "cache" / "rules" / rules.name)
                (root / "cache" / "rules" / rules.name).chmod(0o600)

    return put
