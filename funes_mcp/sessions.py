"""Which session a person means by an id or the beginning of one."""

from __future__ import annotations

from collections.abc import Iterable

from funes_mcp.errors import AmbiguousSessionError, NotFoundError

#: Ids that an error names of those that fit.
_NAMED = 5


def the_session(prefix: str, ids: Iterable[str], *, of: str = "", hint: str = "", kept: str = "") -> str:
    """The one id that is `prefix` or, when none is, starts with it. White space around a prefix does not count.

    Args:
        ids: The ids there are, or those of them that start so.
        of: Where they are from, to be named in an error (`owner/name`).
        hint: Where ids are to be found; said when none fits.
        kept: What an error means for what was asked for (`Nothing was published.`).

    Raises:
        NotFoundError: None fits, or `prefix` is empty.
        AmbiguousSessionError: Several do.
    """
    wanted = prefix.strip()
    fits = sorted(name for name in ids if name.startswith(wanted)) if wanted else []
    if wanted in fits:
        return wanted
    place = f" of {of}" if of else ""
    if not fits:
        raise NotFoundError(f"No session{place} starts with {prefix!r}. {kept}".rstrip(), hint)
    if len(fits) > 1:
        some = ", ".join(fits[:_NAMED]) + (", …" if len(fits) > _NAMED else "") + (f". {kept}" if kept else "")
        raise AmbiguousSessionError(
            f"{len(fits)} sessions{place} start with {prefix!r}: {some}", "Give a longer prefix."
        )
    return fits[0]
