"""The review screen: what keys do, and that what is shown fits and holds nothing a terminal would obey."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from funes_mcp.curation.desk import Exchange, Reviewable
from funes_mcp.curation.reviewed import StoredTurn
from funes_mcp.curation.screen import Screen, at_growth, begin, lines, press, saved, scroll_of
from funes_mcp.curation.sessions import Part, Session, Standing, State


def item(name: str, state: State = "new", turns: int = 2) -> Reviewable:
    parts = (Part(name, 1, "", tuple(StoredTurn(f"u{n}", n, 1) for n in range(turns))),)
    session = Session(name, "", "codex", "2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", parts)
    return Reviewable(session, Standing(state, {}, 3 if state == "grown" else 0))


ITEMS = [item("s0"), item("s1", "grown"), item("s2"), item("s3", "included"), item("s4", "excluded")]
HEADS = {f"s{n}": f"title {n}" for n in range(5)}


@pytest.fixture
def start() -> Screen:
    return begin("ann/kiln-memory", "ann/kiln", ITEMS, HEADS)


def pressed(screen: Screen, *keys: str, height: int = 24) -> tuple[Screen, list[str]]:
    effects = []
    for key in keys:
        screen, effect = press(screen, key, height)
        effects += [effect] if effect else []
    return screen, effects


def shown(screen: Screen, width: int = 80, height: int = 24) -> list[str]:
    return ["".join(text for _, text in line) for line in lines(screen, width, height)]


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        ("i", {"s0": "include"}),
        ("ix", {"s0": "include", "s1": "exclude"}),
        (" ", {"s0": "include"}),
        ("  ", {"s0": "exclude"}),
        ("   ", {}),
        ("jji", {"s2": "include"}),
        ("jki", {"s0": "include"}),
        ("a", {"s0": "include", "s1": "include", "s2": "include"}),
        ("n", {"s0": "exclude", "s1": "exclude", "s2": "exclude"}),
        ("iku", {}),
        (["down", "i"], {"s1": "include"}),
        (["end", "x"], {"s2": "exclude"}),
        (["tab", "end", " "], {"s4": None}),
        (["tab", "end", "i"], {"s4": "include"}),
        (["tab", "end", "x"], {}),
        (["tab", "a"], {"s0": "include", "s1": "include", "s2": "include", "s4": "include"}),
        (["/", "s", "2", "enter", "a"], {"s2": "include"}),
        (["/", "s", "2", "x", "backspace", "enter", "x"], {"s2": "exclude"}),
        (["/", "z", "enter", "a", "i", " ", "enter"], {}),
        (["/", "z", "escape", "i"], {"s0": "include"}),
    ],
)
def test_keys_choose(start: Screen, keys: list[str], chosen: dict[str, str | None]) -> None:
    assert pressed(start, *keys)[0].chosen == chosen


def test_a_session_that_is_decided_on_stays_where_it_is_until_the_list_changes(start: Screen) -> None:
    screen, effects = pressed(start, "i", "s")
    assert effects == ["save"]
    after = [item("s1", "grown"), item("s2"), item("s0", "included"), item("s3", "included"), item("s4", "excluded")]
    screen = saved(screen, after, HEADS, "Saved.")
    assert [row.session for row in screen.listed] == ["s0", "s1", "s2"]
    assert "Saved." in shown(screen)[-3]
    assert screen.chosen == {}
    screen, _ = pressed(screen, "tab", "tab")
    assert [row.session for row in screen.listed] == ["s1", "s2"]


def test_leaving_asks_only_for_what_is_not_saved(start: Screen) -> None:
    assert pressed(start, "q")[1] == ["leave"]
    screen, effects = pressed(start, "i", "q")
    assert effects == []
    assert "1 decision not saved." in shown(screen)[-3]
    assert pressed(screen, "d")[1] == ["leave"]
    assert pressed(screen, "d")[0].chosen == {}
    assert pressed(screen, "s")[1] == ["save"]
    again, effects = pressed(screen, "j")
    assert (again.mode, effects, again.chosen) == ("list", [], {"s0": "include"})
    assert "Nothing new to save." in shown(pressed(start, "s")[0])[-3]


def test_the_preview_shows_what_was_typed(start: Screen) -> None:
    screen, effects = pressed(start, "j", "enter")
    assert effects == ["preview"]
    exchanges = [Exchange("2026-01-01T10:00:00.000Z", "why\nis it " + "cold " * 500, "because\n" * 30)]
    screen = replace(screen, exchanges=tuple(exchanges) * 3)
    text = shown(screen)
    assert text[0] == "title 1"
    assert "3 turns came after its review; what was reviewed stays published" in text
    assert any(line.startswith("> why") for line in text)
    assert "lines 1-19 of " in text[-2]
    below, _ = pressed(screen, "end")
    below = scroll_of(below, 80, 24)
    assert any("because" in line for line in shown(below))
    assert shown(pressed(below, "k")[0]) != shown(below)
    back, _ = pressed(below, "i")
    assert (back.mode, back.chosen, back.at) == ("list", {"s1": "include"}, 1)
    assert pressed(below, "escape")[0].mode == "list"


def test_the_preview_of_a_session_that_went_on_begins_with_what_is_new(start: Screen) -> None:
    screen, _ = pressed(start, "j", "enter")
    exchanges = [Exchange("", f"prompt {n}\n\n\n", "answer", fresh=n >= 8) for n in range(10)]
    screen = scroll_of(at_growth(replace(screen, exchanges=tuple(exchanges)), 80), 80, 12)
    text = shown(screen, height=12)
    assert "--- after the last review ---" in text[:4]
    assert "> prompt 8" in text
    assert "--- after" not in "".join(shown(replace(screen, exchanges=tuple(exchanges[:8])), height=200))


def test_all_are_shown_when_none_waits() -> None:
    screen = begin("a/b", "c/d", [item("s3", "included")], HEADS)
    assert [row.session for row in screen.listed] == ["s3"]
    assert pressed(screen, "tab", "i", "enter", " ")[0].chosen == {}


def test_a_long_list_scrolls_with_the_place_that_is_looked_at() -> None:
    many = begin(
        "a/b", "c/d", [item(f"n{n:03}") for n in range(200)], {f"n{n:03}": f"title {n:03}" for n in range(200)}
    )
    for keys in (["end"], ["pagedown"] * 20, ["j"] * 50, ["end", "pageup", "k"], ["end", "home"]):
        screen, _ = pressed(many, *keys)
        (here,) = (line for line in shown(screen) if line.startswith(">"))
        assert screen.row is not None
        assert screen.row.title in here


KEYS = st.sampled_from(
    [*"jkixuan/s?q lhgGzd2", "up", "down", "left", "right", "pageup", "pagedown", "home", "end", "enter", "escape",
     "tab", "backspace"]
)  # fmt: skip


@given(
    st.lists(KEYS, max_size=25),
    st.text(max_size=40),
    st.integers(1, 130),
    st.integers(1, 40),
)
@example(["enter"], "\x1b[2J\x07\u202e宽宽宽", 20, 10)
@example([], "宽" * 60, 37, 24)
@example(["enter"], "\n", 20, 8)
def test_what_is_shown_always_fits_and_is_harmless(keys: list[str], words: str, width: int, height: int) -> None:
    screen = begin("a/b", "c/d", [*ITEMS, item(words or "x")], {**HEADS, words or "x": words, "s1": words})
    screen, _ = pressed(screen, *keys, height=height)
    screen = replace(screen, exchanges=(Exchange(words, words * 30, words),), message=words[:0])
    screen = scroll_of(screen, width, height)
    found = shown(screen, width, height)
    assert len(found) == height
    for line in found:
        assert sum(get_cwidth(c) for c in line) <= width
        assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0x202A <= ord(c) <= 0x202E for c in line)
    assert len(screen.listed) == 0 or screen.at >= 0
