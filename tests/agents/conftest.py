"""Worlds for the tests with real agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mock_llm import Model

from agents.drivers import WORLDS, World


@pytest.fixture
def world(tmp_path: Path, with_rules: Callable[[Path], None]) -> Iterator[Callable[..., World]]:
    """Makes a world for an agent, by name."""
    models: list[Model] = []

    def make(name: str, package: str = "") -> World:
        model = Model().__enter__()
        models.append(model)
        made = WORLDS[name](tmp_path, model, name, package)
        made.with_rules = with_rules
        return made

    yield make
    for model in models:
        model.__exit__()
