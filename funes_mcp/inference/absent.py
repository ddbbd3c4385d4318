"""What to say when a name means no model on this machine that does what it was named for."""

from __future__ import annotations

from typing import Final

from funes_mcp.errors import BadRequestError, FunesError
from funes_mcp.inference.known import EMBEDDER, RERANKER, Kind, ModelSpec
from funes_mcp.inference.store import ModelMissingError

_WORDS: Final[dict[Kind, str]] = {"embedder": "model", "reranker": "cross-encoder"}


def absent(name: str, wanted: Kind, about: ModelSpec | None) -> FunesError:
    """Why there is no model of a kind under a name, and what to type instead.

    Args:
        about: The model of that name that is here, or that a pull brings; None: nothing goes by that name.
    """
    if about is None:
        return BadRequestError(
            f"There is no {_WORDS[wanted]} called {name!r}.",
            "`funes models` lists those that are here and the usual ones.",
        )
    if about.kind == wanted:
        return ModelMissingError(
            f"There is no {_WORDS[wanted]} {about.name} on this machine.",
            f"`funes models pull {about.name}` brings it.",
        )
    if wanted == "embedder":
        return BadRequestError(f"{about.name} reranks; it makes no vectors.", f"One that does: {EMBEDDER}.")
    return BadRequestError(f"{about.name} makes vectors; it does not rerank.", f"One that does: {RERANKER}.")
