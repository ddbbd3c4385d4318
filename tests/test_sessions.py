"""Which session a person means."""

from __future__ import annotations

import pytest

from funes_mcp.errors import AmbiguousSessionError, NotFoundError
from funes_mcp.sessions import the_session

IDS = ["ab", "abc", "abd", "b-1", "b-2", "b-3", "b-4", "b-5", "b-6"]


@pytest.mark.parametrize(("prefix", "meant"), [("ab", "ab"), ("abd", "abd"), (" abc\n", "abc"), ("b-6", "b-6")])
def test_an_id_or_the_only_beginning_of_one_names_a_session(prefix: str, meant: str) -> None:
    assert the_session(prefix, IDS) == meant


@pytest.mark.parametrize("prefix", ["", "  ", "x", "abcd"])
def test_no_session_is_named_by_nothing_or_by_what_fits_none(prefix: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        the_session(prefix, IDS, of="ann/kiln", hint="Look there.", kept="Nothing was published.")
    assert str(caught.value) == f"No session of ann/kiln starts with {prefix!r}. Nothing was published.\nLook there."


def test_several_that_fit_are_named() -> None:
    with pytest.raises(AmbiguousSessionError) as caught:
        the_session("b", IDS)
    assert str(caught.value) == "6 sessions start with 'b': b-1, b-2, b-3, b-4, b-5, …\nGive a longer prefix."
