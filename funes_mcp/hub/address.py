"""Which Hub is spoken to, read from the environment at each call."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import urlsplit

_TRUE: Final = ("1", "ON", "YES", "TRUE")


def endpoint() -> str:
    """The address of the Hub in use, without a slash at its end."""
    return (os.environ.get("HF_ENDPOINT", "").strip() or "https://huggingface.co").rstrip("/")


def host() -> str:
    """The host (and port) of the Hub in use, as it is shown to a person: never with a name and password in it."""
    try:
        named = urlsplit(endpoint()).netloc
    except ValueError:  # half of an address
        named = ""
    return (named or endpoint()).rpartition("@")[2]


def offline() -> bool:
    """Whether `HF_HUB_OFFLINE` forbids every request."""
    return os.environ.get("HF_HUB_OFFLINE", "").strip().upper() in _TRUE
