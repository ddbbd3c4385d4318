"""What a person types to name a memory."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from funes_mcp.errors import BadRequestError

#: The memory under `$FUNES_HOME`.
LOCAL: Final = "local"

_MAIN: Final = "main"
_SCHEME: Final = "hf://"
_KIND: Final = "datasets/"

#: Names that the Hub keeps for its own addresses; nobody's account is called so.
_RESERVED: Final = frozenset({"datasets", "models", "spaces", "buckets", "kernels", "collections", "papers"})

# As the Hub allows them: up to 96 characters, no `--` and no `..`, letters and digits at both ends.
_PART: Final = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_REVISION: Final = re.compile(r"(?!.*(?:\.\.|//))[A-Za-z0-9_][A-Za-z0-9._/-]{0,198}")
_LOGIN: Final = re.compile(r"//[^/@\s]*@")
_DRIVE: Final = re.compile(r"[A-Za-z]:[/\\]|\\\\")

_EXAMPLES: Final = (
    "A memory is `local`, a folder (`./memory`, `/srv/memory`), or a dataset on the Hub (`owner/name`, "
    "`hf://datasets/owner/name@branch`, or the address of its page)."
)


@dataclass(frozen=True, slots=True)
class HubName:
    """A memory on the Hub: a dataset, `owner/name`, at a branch, tag or commit."""

    repo: str
    revision: str = _MAIN

    @property
    def label(self) -> str:
        """How it is called in what we print; `parse` gives the same name for it."""
        return self.repo if self.revision == _MAIN else f"{_SCHEME}{_KIND}{self.repo}@{self.revision}"

    @property
    def slug(self) -> str:
        """A folder's name for it, which no other repository, revision or Hub (`HF_ENDPOINT`) shares."""
        from funes_mcp.hub.files import endpoint

        whole = "\n".join((endpoint(), self.repo, self.revision))
        return f"{self.repo.replace('/', '--')}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def parse(label: str) -> Path | HubName | None:
    """What a label means: None for the local memory, a folder (absolute, it need not exist), or a name on the Hub.

    `owner/name` always means the Hub; a folder of that name is `./owner/name`. The address of a dataset's page means
    the dataset where the page is one of the Hub in use, also at a revision (`/tree/…`).

    Raises:
        BadRequestError: It is none of these; the hint gives examples.
    """
    text = label.strip()
    if text in ("", LOCAL):
        return None
    if text.startswith(_SCHEME):
        return _on_hub(label, text.removeprefix(_SCHEME).removeprefix(_KIND))
    if text in (".", "..") or text.startswith(("/", "./", "../", "~", ".\\", "..\\")) or _DRIVE.match(text):
        if "\0" in text:
            raise _refused(label)
        try:
            return Path(text).expanduser().absolute()
        except RuntimeError as error:  # `~nobody`
            raise BadRequestError(f"There is no home folder for {text[:80]!r}.", _EXAMPLES) from error
    if text.startswith(("https://", "http://")):
        return _on_hub(label, _of_page(label, text))
    if "@" in text:
        name = _on_hub(label, text)
        raise _refused(label, f"Write it as `{name.label}`. ")
    return _on_hub(label, text)


def _of_page(label: str, address: str) -> str:
    """`owner/name`, or `owner/name@revision`, of the address of a dataset's page."""
    from funes_mcp.hub.address import endpoint, host

    pages = f"{endpoint()}/{_KIND}"
    repo, tree, revision = address.partition("?")[0].partition("#")[0].removeprefix(pages).partition("/tree/")
    revision = revision.rstrip("/")
    # A slash in a revision's name is written otherwise in an address; what follows one here is a folder.
    if not address.startswith(pages) or (tree and not revision) or "/" in revision:
        raise _refused(label, f"An address means a memory when it is that of a dataset's page at {host()}. ")
    return f"{repo.rstrip('/')}@{unquote(revision)}" if tree else repo.rstrip("/")


def _on_hub(label: str, text: str) -> HubName:
    repo, at, revision = text.partition("@")
    owner, slash, name = repo.partition("/")
    good = slash and _PART.fullmatch(owner) and _PART.fullmatch(name) and owner.lower() not in _RESERVED
    if not good or name.lower().endswith(".git") or (at and not _REVISION.fullmatch(revision)):
        raise _refused(label)
    return HubName(repo, revision or _MAIN)


def _refused(label: str, instead: str = "") -> BadRequestError:
    shown = _LOGIN.sub("//", label.strip())
    return BadRequestError(f"{shown[:120]!r} names no memory.", f"{instead}{_EXAMPLES}")
