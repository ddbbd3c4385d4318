"""What an installation that is no checkout holds."""

from __future__ import annotations

from pathlib import Path

import tomlkit

ROOT = Path(__file__).resolve().parent.parent


def test_every_package_is_installed() -> None:
    setup = tomlkit.parse((ROOT / "pyproject.toml").read_text("utf-8")).unwrap()["tool"]["setuptools"]
    found = {
        ".".join([name, *file.parent.relative_to(ROOT / folder).parts])
        for name, folder in setup["package-dir"].items()
        for file in (ROOT / folder).rglob("__init__.py")
    }
    assert found == set(setup["packages"])
