"""What a Hub answers when it does not give what was asked for, as kinds to decide on and sentences to read.

No sentence holds an address of a file, a header or a token: addresses of large files are signed, and libraries quote
headers that they cannot send.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from funes_mcp.errors import FunesError
from funes_mcp.hub.address import host

if TYPE_CHECKING:
    from httpx import HTTPError, Request, Response
    from huggingface_hub.errors import HfHubHTTPError

#: What of a server's or library's own words is shown, in characters.
_MOST_WORDS: Final = 200
_SECRET: Final = re.compile(r"\bhf_\w+|(?i:\bbearer\s+\S+)|https?://\S+")
#: How long until a limit is lifted, in the header `RateLimit`: `"api";r=0;t=55`.
SECONDS: Final = re.compile(r"\bt\s*=\s*(\d{1,9})")
#: Requests about a repository as a whole: answered with 404, it is the repository that is not there.
_REPO: Final = re.compile(r"/api/datasets/[^/]+/[^/]+(?:/(?:revision|preupload|commit|auth-check)\b.*)?$")
#: The words of the other library that fetches content in chunks, from hosts of its own; its errors have no type.
_XET: Final = re.compile(r"\b(?:CAS Client|[Xx]et)\b")
_LOG_IN: Final = "Set HF_TOKEN, or run `hf auth login`."


class HubError(FunesError):
    """The Hub did not give what was asked for."""


class HubUnreachableError(HubError):
    """No answer that means anything: no network or name, a time limit, the offline switch, 429, 5xx.

    Attributes:
        uncertain: A commit had been sent when the connection failed, so it may have landed.
    """

    def __init__(self, message: str, hint: str = "", *, uncertain: bool = False) -> None:
        super().__init__(message, hint)
        self.uncertain = uncertain


class HubDeniedError(HubError):
    """The Hub refuses the token, or what the token may do."""


class HubRepoMissingError(HubError):
    """There is no such repository, or it is private and the token may not see it: Hubs do not say which."""


class HubRevisionMissingError(HubError):
    """The repository has no such branch or commit."""


class HubFileMissingError(HubError):
    """The repository has no such file at that revision."""


class HubConflictError(HubError):
    """Somebody else was faster: the head has moved, or the repository exists meanwhile."""


def told(error: BaseException, what: str) -> HubError:
    """Any error of `huggingface_hub` or below it as a sentence; a `HubError` is given back as it is.

    Args:
        what: The memory or repository that was spoken about.
    """
    import httpx
    from huggingface_hub import errors

    for cause in _causes(error):
        if isinstance(cause, HubError):
            return cause
        if isinstance(cause, errors.HfHubHTTPError):
            return _answered(cause, what)
        if isinstance(cause, errors.OfflineModeIsEnabled):
            return offline_error(what)
        if isinstance(cause, httpx.HTTPError):
            return _not_answered(cause, what)
        if isinstance(cause, httpx.InvalidURL):
            return HubError(f"{host()} is not an address that can be reached.", "Correct HF_ENDPOINT.")
        if isinstance(cause, UnicodeEncodeError):
            return HubDeniedError("The token of the Hub holds characters that no token has.", _LOG_IN)
        if isinstance(cause, errors.HFValidationError):
            return HubError(f"{what} is no name that a repository can have.", "Write it as owner/name.")
        if isinstance(cause, OSError) and cause.errno is not None:
            place = "" if cause.filename is None else f" {cause.filename}"
            return HubError(f"A file{place} could not be used for {what}: {cause.strerror}.")
    reason = words(str(error)) or type(error).__name__
    if _XET.search(reason) or type(error).__module__.startswith("hf_xet"):
        return HubUnreachableError(
            f"The store where {host()} keeps large files of {what} could not be reached ({reason}).",
            "Try again, or set HF_HUB_DISABLE_XET=1 to fetch them from the Hub itself.",
        )
    return HubUnreachableError(
        f"{host()} did not answer about {what} as a Hub does ({reason}).",
        "Check HF_ENDPOINT and what stands between, and try again.",
    )


def offline_error(what: str) -> HubUnreachableError:
    """The offline switch is set."""
    return HubUnreachableError(
        f"HF_HUB_OFFLINE is set, so {what} is not asked for at {host()}.", "Unset HF_HUB_OFFLINE and try again."
    )


def slow_error(what: str, patience: float) -> HubUnreachableError:
    """Nothing came within `patience` seconds."""
    return HubUnreachableError(
        f"{host()} did not answer about {what} within {patience:.0f} s.", "Check the connection and try again."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, the outermost first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def _answered(error: HfHubHTTPError, what: str) -> HubError:
    """An answer with a status of 400 or more."""
    from huggingface_hub import errors

    response = error.response
    status = response.status_code
    request = response.request
    message = words(error.server_message or response.headers.get("X-Error-Message", ""))
    said = f" ({message})" if message else ""
    if isinstance(error, errors.RevisionNotFoundError):
        return HubRevisionMissingError(f"{what} has no such revision at {host()}.", "Check the name after the @.")
    if isinstance(error, errors.EntryNotFoundError):
        return HubFileMissingError(f"{what} has no such file at {host()}.")
    if isinstance(error, errors.GatedRepoError):
        return HubDeniedError(f"{host()} gives {what} to known accounts only.", f"Ask there for access. {_LOG_IN}")
    if isinstance(error, errors.DisabledRepoError):
        return HubDeniedError(f"{what} has been disabled at {host()}.", "Its owner can say why.")
    missing = isinstance(error, errors.RepositoryNotFoundError)
    if status == 401 and not (missing and request.method in ("GET", "HEAD")):
        if _has_token(request):
            return HubDeniedError(f"{host()} refuses the token that is set{said}, asked about {what}.", _LOG_IN)
        return HubDeniedError(f"{host()} wants a token for {what}.", _LOG_IN)
    if missing or (status == 404 and _REPO.search(request.url.path)):
        if _has_token(request):
            why, hint = "or it is private and your token may not see it", "Check its name and the token in HF_TOKEN."
        else:
            why, hint = "or it is private and no token is set", f"Check its name. {_LOG_IN}"
        return HubRepoMissingError(f"There is no {what} at {host()}, {why}.", hint)
    if status == 404 and "/tree/" in request.url.path:
        return HubFileMissingError(f"{what} has no such folder at {host()}.")
    if status in (402, 403):
        may = "read it" if request.method in ("GET", "HEAD") else "write there"
        return HubDeniedError(
            f"{host()} does not let {'this token' if _has_token(request) else 'you'} do that with {what}{said}.",
            f"Set HF_TOKEN to one that may {may}, or run `hf auth login`.",
        )
    if status == 409 and request.url.path.endswith("/api/repos/create"):
        return HubConflictError(f"{what} exists at {host()} meanwhile.", "Do the same again.")
    if status in (409, 412):
        return HubConflictError(f"{what} at {host()} has changed meanwhile{said}.", "Do the same again.")
    if status == 429:
        wait = asked_wait(response)
        return HubUnreachableError(
            f"{host()} has had too many requests from here, and refused one about {what}.",
            f"Try again in {wait} s." if wait else "Try again in some minutes.",
        )
    if status >= 500 or status == 408:
        return HubUnreachableError(
            f"{host()} answered {status} when asked about {what}{said}.",
            "Try again later.",
            uncertain=is_commit(request),
        )
    return HubError(f"{host()} answered {status} when asked about {what}{said}.")


def _not_answered(error: HTTPError, what: str) -> HubError:
    """No answer, or the half of one."""
    import httpx

    try:
        sent = is_commit(error.request)
    except RuntimeError:  # httpx does not know the request
        sent = False
    uncertain = sent and not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    if isinstance(error, httpx.LocalProtocolError) and "header" in str(error):
        return HubDeniedError("The token of the Hub holds characters that no token has.", _LOG_IN)
    if isinstance(error, httpx.UnsupportedProtocol):
        return HubError(f"{host()} is not an address that can be reached.", "Correct HF_ENDPOINT.")
    hint = "Check the connection and try again."
    if isinstance(error, httpx.ProxyError):
        how, hint = "could not be reached through the proxy", "Check HTTPS_PROXY and NO_PROXY."
    elif isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        how = "could not be reached"
    elif isinstance(error, httpx.TimeoutException):
        how = "did not answer in time"
    else:
        how = "broke off the connection"
    reason = words(str(error)) or type(error).__name__
    return HubUnreachableError(f"{host()} {how} ({reason}): {what}.", hint, uncertain=uncertain)


def is_commit(request: Request) -> bool:
    """Whether a request would make a commit."""
    return request.method == "POST" and "/commit/" in urlsplit(str(request.url)).path


def _has_token(request: Request) -> bool:
    return "authorization" in request.headers


def asked_wait(response: Response) -> int:
    """Seconds to wait that a server named, 0 when it named none."""
    if isinstance(kept := response.extensions.get("asked_wait"), int):
        return kept
    named = response.headers.get("Retry-After", "")
    if named.isdigit():
        return int(named[:9])
    match = SECONDS.search(response.headers.get("RateLimit", ""))
    return int(match[1]) if match else 0


def words(text: str) -> str:
    """Somebody else's words in one short line, without addresses and tokens."""
    line = " ".join(_SECRET.sub("…", "".join(c if c.isprintable() else " " for c in text)).split())
    return line if len(line) <= _MOST_WORDS else line[: _MOST_WORDS - 1] + "…"
