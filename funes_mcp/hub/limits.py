"""What `huggingface_hub` is held to in this process.

The library has no time limit of its own for most requests, waits as long as a server asks, names files after
headers, lets a token follow to the hosts that it knows, and gathers much before it writes any. Its one client is the
place where all requests pass.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from funes_mcp.hub.address import endpoint, host
from funes_mcp.hub.errors import SECONDS, HubError, asked_wait

if TYPE_CHECKING:
    import httpx

#: Seconds for the parts of a request where the caller names none. A commit of many files takes the Hub a while.
_CONNECT: Final = 10.0
_READ: Final = 20.0
_WRITE: Final = 120.0
#: The longest wait between two tries, in seconds, whatever a server asks for: `told` still says what it asked for.
_MOST_WAIT: Final = 20
#: Bytes of a download that are written together. The library gathers ten million first and loses them when the
#: connection is cut, so that a file never comes over a line that does not last as long.
_PIECE: Final = 1 << 13

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
#: The library makes names of files from these: nothing that climbs.
_ETAG: Final = re.compile(r'(?:W/)?"?[A-Za-z0-9][A-Za-z0-9._-]{0,199}"?')


@cache
def prepare() -> None:
    """Set the limits, and keep the library from writing to the terminal. Once in a process."""
    import logging

    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def client() -> httpx.Client:
        made = default_client_factory()
        hooks = made.event_hooks
        made.event_hooks = {"request": [*hooks["request"], before], "response": [*hooks["response"], after]}
        return made

    set_client_factory(client)
    constants.DOWNLOAD_CHUNK_SIZE = _PIECE
    if not {"HF_DEBUG", "HF_HUB_VERBOSITY"} & os.environ.keys():
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)


def before(request: httpx.Request) -> None:
    """A time limit where the library has set none, and a token for its own Hub only."""
    limits = dict(request.extensions.get("timeout") or {})
    read = _READ if request.method in ("GET", "HEAD") else _WRITE
    for part, seconds in {"connect": _CONNECT, "pool": _CONNECT, "write": _WRITE, "read": read}.items():
        # Where a file's headers are asked for again, the library waits a minute for each of six answers.
        if limits.get(part) is None or (request.method == "HEAD" and limits[part] > seconds):
            limits[part] = seconds
    request.extensions["timeout"] = limits
    if "authorization" in request.headers and not _is_hub(request.url):
        del request.headers["authorization"]


def after(response: httpx.Response) -> None:
    """Refuse headers that would lead out of the cache, and shorten the waits that a server asks for."""
    headers = response.headers
    if response.request.method == "HEAD" and response.status_code < 400:
        if (commit := headers.get("X-Repo-Commit")) is not None and not _COMMIT.fullmatch(commit):
            raise HubError(f"{host()} names a commit in a way that cannot be used here.")
        for name in ("X-Linked-Etag", "ETag"):
            if (etag := headers.get(name)) is not None and not _ETAG.fullmatch(etag):
                raise HubError(f"{host()} names a file in a way that cannot be used here.")
    if response.status_code in (429, 503):
        if (wait := asked_wait(response)) > _MOST_WAIT:
            response.extensions["asked_wait"] = wait
        if headers.get("Retry-After", "").isdigit():
            headers["Retry-After"] = str(min(int(headers["Retry-After"]), _MOST_WAIT))
        if "RateLimit" in headers:
            headers["RateLimit"] = SECONDS.sub(lambda m: f"t={min(int(m[1]), _MOST_WAIT)}", headers["RateLimit"])


def _is_hub(url: httpx.URL) -> bool:
    """Whether an address is on the Hub in use: the same host and port, over the same protocol or a safer one."""
    hub = type(url)(endpoint())
    if url.scheme == hub.scheme:
        return (url.host, url.port) == (hub.host, hub.port)
    return (url.scheme, hub.scheme) == ("https", "http") and url.host == hub.host
