"""The list of record types in the documentation names every type that the parsers know."""

from __future__ import annotations

from pathlib import Path

from funes_adapters.claude import kinds as claude
from funes_adapters.codex import kinds as codex
from funes_adapters.pi import parse as pi

LIST = (Path(__file__).parent.parent / "docs" / "record-types.md").read_text("utf-8")


def test_every_type_is_listed() -> None:
    known = [
        *claude.TYPES,
        *(f"system/{name}" for name in claude.SYSTEM),
        *(f"attachment/{name}" for name in claude.ATTACHMENTS),
        *codex.NOISE,
        *codex.NOISE_ITEMS,
        *pi._NOISE,
    ]
    assert [name for name in known if f"`{name}`" not in LIST] == []
