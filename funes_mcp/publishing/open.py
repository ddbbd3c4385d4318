"""Everything a push needs, from a home and the label of a memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from funes_mcp.errors import BadRequestError
from funes_mcp.home import FunesHome
from funes_mcp.memory import label

if TYPE_CHECKING:
    from funes_mcp.deepmodels import DeepModels
    from funes_mcp.publishing.push import Publisher
    from funes_mcp.redaction import Redactor

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


def target(text: str) -> label.HubName:
    """The dataset, or branch of one, that a label names. Raises `BadRequestError` for any other memory."""
    name = label.parse(text)
    if isinstance(name, label.HubName):
        if _COMMIT.fullmatch(name.revision):
            raise BadRequestError(f"{name.label} is a commit, which cannot be written to.", to_branch(name))
        return name
    what = "The local memory" if name is None else f"{text!r}"
    raise BadRequestError(
        f"{what} is on this machine; what is published goes to a dataset on the Hub.", "funes push owner/name"
    )


def to_branch(name: label.HubName) -> str:
    """What to type instead of a push to a tag or commit."""
    at_branch = label.HubName(name.repo, "BRANCH").label
    return f"Push to a branch: `funes push {name.repo}` for the main one, `funes push {at_branch}` for another."


def folder_of(home: FunesHome, name: label.HubName) -> Path:
    """Where everything about a published memory is kept on this machine."""
    return home.root / "remotes" / name.slug


def publisher(home: FunesHome, memory: str, redactor: Redactor, models: DeepModels) -> Publisher:
    """What publishes the local memory to another one.

    Raises:
        BadRequestError: The label names no dataset.
        FunesError: What was decided of its sessions cannot be read.
    """
    name = target(memory)
    from funes_mcp.curation import selection
    from funes_mcp.hub.address import endpoint
    from funes_mcp.hub.datasets import DatasetRepo
    from funes_mcp.memory.remote import Mirror
    from funes_mcp.publishing.push import Publisher

    return Publisher(
        home.memory,
        folder_of(home, name),
        name,
        DatasetRepo(name.repo, name.revision),
        Mirror(home.root, name),
        redactor,
        lambda stamp: models.embedder_for(stamp, ours=False),
        endpoint=endpoint(),
        selection=selection(home, name),
        of_project=lambda project: selection(home, name, project),
    )
