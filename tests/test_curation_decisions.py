"""The file of decisions: what a person wrote stays, and what cannot be understood lets nothing out."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomlkit
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from funes_mcp.curation import files
from funes_mcp.curation.decisions import Entry, begun, edit, parse, reworded, title_of, without
from funes_mcp.curation.reviewed import Reviewed, StoredTurn, covered, reviewed
from funes_mcp.errors import FunesError, MemoryBusyError
from funes_mcp.home import FunesHome
from funes_mcp.memory.label import HubName
from funes_mcp.memory.lock import WriterLock

LABEL = "ann/kiln-memory"
BEGUN = begun(LABEL, "ann/kiln")
REVIEW = Reviewed(3, 5, "u3", "0123456789abcdef")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.one_of(st.uuids().map(str), texts.filter(bool))
entries = st.builds(
    Entry,
    choice=st.sampled_from([None, "include", "exclude"]),
    when=texts,
    reviewed=st.one_of(
        st.none(),
        st.builds(
            Reviewed,
            st.integers(0, 10**6),
            st.integers(0, 10**6),
            texts,
            st.integers(0, 2**64 - 1).map("{:016x}".format),
        ),
    ),
    title=texts,
    parent=texts,
)


@settings(max_examples=50)
@given(st.dictionaries(names, entries, max_size=4), st.dictionaries(names, entries, max_size=4))
def test_what_is_written_is_read_again(first: dict[str, Entry], second: dict[str, Entry]) -> None:
    text = edit(edit(BEGUN, first, "f"), second, "f")
    found = parse(text, "f")
    assert (found.memory, found.repository) == (LABEL, "ann/kiln")
    expected = {**first, **second}
    for name in first.keys() & second.keys():  # a title is not taken away
        if not second[name].title:
            expected[name] = Entry(
                second[name].choice,
                second[name].when,
                second[name].reviewed,
                first[name].title,
                "",
                second[name].parent,
            )
    assert found.entries == expected


@given(st.dictionaries(names, entries, max_size=4), st.sets(st.integers(0, 3)), st.booleans())
@settings(max_examples=50)
def test_sessions_and_titles_are_taken_out_and_nothing_else(
    first: dict[str, Entry], which: set[int], further: bool
) -> None:
    text = edit(BEGUN, first, "f") + ("\n[further]\nx = 1  # mine\n" if further else "")
    gone = {name for place, name in enumerate(first) if place in which}
    result = without(text, gone, "f")
    assert parse(result, "f").entries == {name: entry for name, entry in first.items() if name not in gone}
    assert ("x = 1  # mine" in result) == further
    result = reworded(text, str.upper, "f")
    assert {name: entry.title for name, entry in parse(result, "f").entries.items()} == {
        name: entry.title.upper() for name, entry in first.items()
    }
    assert without(text, {"nothing of it" * 3}, "f") == reworded(text, str, "f") == text


comments = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cs", "Cc", "Zl", "Zp"]))


@settings(max_examples=50)
@given(names, comments, comments, texts.filter(bool), texts, entries, st.booleans())
@example("a", "", "", "mine", "", Entry("include"), True)
def test_what_a_person_wrote_stays(
    name: str, above: str, beside: str, key: str, value: str, entry: Entry, quoted: bool
) -> None:
    assume(key not in {"title", "note", "parent", "decision", "when", "turns", "passages", "last_turn", "reviewed"})
    document = tomlkit.parse(BEGUN)
    document["mine"] = value
    text = (
        tomlkit.dumps(document)
        + f"\n# {above}\n[ sessions . {tomlkit.string(name).as_string()} ]  # {beside}\n"
        + f"decision = {'exclude'!r}   # {beside}\nnote = 'careful'\n"
        + tomlkit.dumps({key: value})
        + f"# {beside} end\n"
    )
    result = edit(text, {name: entry, f"{name}-other": Entry("exclude")}, "f")
    for comment in (f"# {above}\n", f"# {beside} end\n"):
        assert comment in result
    values = tomlkit.parse(result).unwrap()
    assert values["mine"] == value
    assert values["sessions"][name][key] == value
    assert parse(result, "f").entries[name].note == "careful"
    assert parse(result, "f").entries[name].choice == entry.choice


@pytest.mark.parametrize(
    "text",
    [
        BEGUN + "sessions.one.decision = 'exclude'\nsessions.one.mine = 1\n",
        BEGUN + "sessions = { one = { decision = 'exclude', mine = 1 } }\n",
        BEGUN + "[sessions]\none = { decision = 'exclude', mine = 1 }\n[further]\nx = 1\n",
        BEGUN + "[sessions.one]\ndecision = 'exclude'\nmine = 1\n[further]\nx = 1\n[sessions.two]\n",
        (BEGUN + "[sessions.one]\ndecision = 'exclude'\nmine = 1\n").replace("\n", "\r\n"),
        BEGUN + "[sessions.one]\ndecision = 'exclude'\nmine = 1",
    ],
)
def test_decisions_are_edited_however_they_are_written(text: str) -> None:
    result = edit(text, {"one": Entry("include", reviewed=REVIEW), "new": Entry("exclude")}, "f")
    found = parse(result, "f").entries
    assert (found["one"].choice, found["one"].reviewed, found["new"].choice) == ("include", REVIEW, "exclude")
    assert tomlkit.parse(result).unwrap()["sessions"]["one"]["mine"] == 1
    assert result.count("# `include` sends") == 1
    assert parse(without(result, {"one"}, "f"), "f").entries == {k: e for k, e in found.items() if k != "one"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BEGUN + "[sessions.one\n", 6),
        (BEGUN + "[sessions.one]\ndecision = 'maybe'\n", 7),
        (BEGUN + "[sessions.one]\nturns = 'many'\n", 7),
        (BEGUN + "[sessions.one]\nturns = true\n", 7),
        (BEGUN + "[sessions.one]\n\nreviewed = 'xyz'\n", 8),
        (BEGUN + "[sessions.one]\ntitle = 5\n", 7),
        (BEGUN + "[sessions]\none = 5\n", 7),
        (BEGUN + "[sessions.one]\ndecision = 'include'\n[sessions.one]\ndecision = 'exclude'\n", 9),
        (BEGUN + "[sessions.one]\ndecision = 'include'\ndecision = 'exclude'\n", 8),
        (BEGUN + "sessions = 5\n", 6),
        (BEGUN.replace('repository = "ann/kiln"', "repository = 'kiln'"), 5),
        (BEGUN.replace('memory = "ann/kiln-memory"', "memory = 5"), 4),
        ("", 1),
    ],
)
def test_a_damaged_file_is_an_error_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(FunesError, match=rf"f\.toml, line {line}: .* Nothing is published") as caught:
        parse(text, "f.toml")
    assert "\n" not in caught.value.message
    home = FunesHome(tmp_path)
    files.save(home, HubName(LABEL), "ann/kiln", {})
    files.path_of(home, HubName(LABEL)).write_text(text)
    with pytest.raises(FunesError, match="Nothing is published"):
        files.load(home, HubName(LABEL))
    with pytest.raises(FunesError):
        files.save(home, HubName(LABEL), "ann/kiln", {"one": Entry("include")})
    assert files.path_of(home, HubName(LABEL)).read_text() == text


@given(st.binary(max_size=60))
@example(b"\xff")
@example(b"[sessions.a]\nb = 2024-01-01\n")
def test_no_bytes_are_taken_for_decisions_that_they_are_not(data: bytes) -> None:
    try:
        text = data.decode()
        found = parse(BEGUN + text, "f")
    except (UnicodeDecodeError, FunesError):
        return
    assert found.repository == "ann/kiln"


def test_the_file_is_private_and_one_for_all_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = FunesHome(tmp_path / "home")
    path = files.save(home, HubName("Ann/Kiln-Memory"), "ann/kiln", {"one": Entry("include")}).path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {each.name for each in path.parent.iterdir()} == {path.name, "writer.lock"}
    monkeypatch.setattr(files, "PATIENCE_S", 0.0)
    with WriterLock(path.parent), pytest.raises(MemoryBusyError):
        files.save(home, HubName("ann/kiln-memory"), "ann/kiln", {"one": Entry("exclude")})
    for name in (HubName("ann/kiln-memory"), HubName("ann/kiln-memory", "wip"), HubName("ANN/KILN-MEMORY")):
        kept = files.load(home, name)
        assert kept is not None
        assert kept.path == path
    assert files.load(home, HubName("ann/kiln")) is None
    assert files.load(home, HubName("ann/kiln-memory-two")) is None
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    kept = files.load(home, HubName("ann/kiln-memory"))
    assert kept is not None
    assert kept.path == path


def test_a_file_for_another_memory_lets_nothing_out(tmp_path: Path) -> None:
    home = FunesHome(tmp_path)
    path = files.save(home, HubName("ann/kiln-memory"), "ann/kiln", {}).path
    path.write_text(begun("bob/other", "ann/kiln"))
    with pytest.raises(FunesError, match="bob/other"):
        files.load(home, HubName("ann/kiln-memory"))


def test_the_other_lines_of_a_long_file_stay_as_they_are() -> None:
    text = edit(BEGUN, {f"s{n}": Entry("include", "t", REVIEW, f"title {n}") for n in range(50)}, "f")
    result = edit(text, {"s7": Entry("exclude", "t", REVIEW)}, "f")
    assert [(a, b) for a, b in zip(text.splitlines(), result.splitlines(), strict=True) if a != b] == [
        ('decision = "include"', 'decision = "exclude"')
    ]


@given(texts)
@example("\x1b]0;owned\x07\n" + "x" * 300)
def test_titles_are_one_harmless_line(text: str) -> None:
    title = title_of(text)
    assert len(title) <= 100
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in title)


turns = st.lists(
    st.builds(StoredTurn, st.uuids().map(str), st.integers(-(2**63), 2**63 - 1), st.integers(1, 9)), max_size=6
)


@given(turns, turns)
def test_growth_leaves_what_was_reviewed(before: list[StoredTurn], after: list[StoredTurn]) -> None:
    assert covered(reviewed(before), before + after) == len(before)


@given(turns.filter(bool), turns, st.data())
def test_any_change_of_what_was_reviewed_is_seen(
    before: list[StoredTurn], after: list[StoredTurn], data: st.DataObject
) -> None:
    now = before + after
    at = data.draw(st.integers(0, len(before) - 1))
    turn = now[at]
    how = data.draw(st.sampled_from(["gone", "moved", "between", "rewritten", "renamed", "more"]))
    if how == "gone":
        del now[at]
    elif how == "moved":
        to = data.draw(st.integers(0, len(now) - 1).filter(lambda n: n != at)) if len(now) > 1 else at
        now.insert(to, now.pop(at))
        assume(to != at)
    elif how == "between":
        now.insert(at, StoredTurn("other", 1, 1))
    elif how == "rewritten":
        now[at] = StoredTurn(turn.turn, turn.message ^ 1, turn.passages)
    elif how == "renamed":
        now[at] = StoredTurn(turn.turn + "x", turn.message, turn.passages)
    else:
        now[at] = StoredTurn(turn.turn, turn.message, turn.passages + 1)
    assert covered(reviewed(before), now) is None


def test_a_credential_taken_out_later_does_not_undo_a_review() -> None:
    before = [StoredTurn("a", 1, 3), StoredTurn("b", 2, 4)]
    assert covered(reviewed(before), [StoredTurn("a", 1, 2), StoredTurn("b", 2, 4)]) == 2
