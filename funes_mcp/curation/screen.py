"""The screen on which sessions are reviewed. Pure: a state and a key give a state, a state and a size give lines.

Titles and prompts are other people's text as much as the person's: nothing of them reaches the terminal but
characters that it shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from funes_mcp import wording
from funes_mcp.curation.decisions import Choice
from funes_mcp.curation.desk import Exchange, Reviewable
from funes_mcp.curation.sessions import State
from funes_mcp.render import harmless

Mode = Literal["list", "filter", "preview", "help", "leave"]
Effect = Literal["save", "leave", "preview"]
Style = Literal["", "title", "dim", "at", "include", "exclude", "waits"]

#: A line on the screen: pieces of text with their styles.
Line = list[tuple[Style, str]]

#: Lines of a prompt and of an answer that the preview shows.
PROMPT_LINES: Final = 12
ANSWER_LINES: Final = 3

#: Stands in the preview above what came after the last review.
_FRESH: Final = "--- after the last review ---"

#: Names of subagents that the preview shows.
AGENTS: Final = 6

#: Characters of a filter.
_LONGEST_FILTER: Final = 60

#: Lines above the list and below it; and on a terminal of fewer lines than `_SMALL`.
_ABOVE: Final = 2
_BELOW: Final = 3
_SMALL: Final = 10

_CYCLE: Final[dict[Choice | None, Choice | None]] = {None: "include", "include": "exclude", "exclude": None}
_SPACE: Final = re.compile(r"[^\S\n]+")

_HELP: Final = """\
up, down, j, k     go to another session (also page up and down, home, end)
enter, right       read what was typed in it, and how the answers begin
space              include, exclude, undecided, in turn
i                  include it, as far as it goes now, and go on to the next
x                  exclude it, and go on to the next
u                  take back what was chosen here
a, n               include all that are listed; exclude all that are listed
/                  show only sessions with some words; escape shows all again
tab                show those that wait for review, or all
s                  save
q                  leave

An included session is published whole: the agent's words, its commands and what
they printed, and what its subagents did, not only what the preview shows. What
comes after its review waits until it is reviewed again. Publishing cannot be
taken back here: `exclude` keeps back what has not been published yet."""


@dataclass(frozen=True, slots=True)
class Row:
    """A session in the list.

    Attributes:
        saved: What is decided of it as it is now; None for one that waits.
        text: What the filter looks at, in lower case.
    """

    session: str
    title: str
    about: str
    state: State
    growth: int
    saved: Choice | None
    facts: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Screen:
    """Everything that the screen shows.

    Attributes:
        chosen: What was decided since the last save, by session; None takes a decision back.
        everything: Whether all sessions are listed, or only those that wait (and those chosen on this screen).
        kept: Sessions that stay listed until the list is changed, though they do not wait any more.
        at: Which of the listed sessions is looked at.
        top: The first that is on the screen; of the preview, its first line.
        exchanges: What the preview shows.
        message: What happened last.
    """

    memory: str
    repository: str
    rows: tuple[Row, ...]
    chosen: Mapping[str, Choice | None] = field(default_factory=dict)
    everything: bool = False
    kept: frozenset[str] = frozenset()
    words: str = ""
    at: int = 0
    top: int = 0
    scroll: int = 0
    mode: Mode = "list"
    exchanges: tuple[Exchange, ...] = ()
    message: str = ""

    @property
    def listed(self) -> list[Row]:
        """The sessions in the list."""
        wanted = self.words.lower().split()
        return [
            row
            for row in self.rows
            if (self.everything or row.saved is None or row.session in self.chosen or row.session in self.kept)
            and all(word in row.text for word in wanted)
        ]

    @property
    def row(self) -> Row | None:
        """The session that is looked at."""
        listed = self.listed
        return listed[min(self.at, len(listed) - 1)] if listed else None

    def choice(self, row: Row) -> Choice | None:
        """What is decided of a session, saved or not."""
        return self.chosen.get(row.session, row.saved)


def begin(memory: str, repository: str, items: Sequence[Reviewable], heads: Mapping[str, str]) -> Screen:
    """The screen as it is first shown; all sessions when none waits."""
    rows = rows_of(items, heads)
    return Screen(memory, repository, rows, everything=all(row.saved is not None for row in rows))


def saved(screen: Screen, items: Sequence[Reviewable], heads: Mapping[str, str], message: str) -> Screen:
    """The screen after what was chosen has been written down."""
    return replace(
        screen,
        rows=rows_of(items, heads, [row.session for row in screen.rows]),
        kept=screen.kept | frozenset(screen.chosen),
        chosen={},
        message=message,
    )


def rows_of(items: Sequence[Reviewable], heads: Mapping[str, str], order: Sequence[str] = ()) -> tuple[Row, ...]:
    """The rows of sessions, in a given order or their own."""
    rows = []
    for item in items:
        session, how = item.session, item.standing
        title = _one_line(heads.get(session.session, "")) or "(no words)"
        choice: Choice | None = None
        if how.state == "included":
            choice = "include"
        elif how.state == "excluded":
            choice = "exclude"
        facts = [
            f"{_one_line(session.session)}",
            f"{_one_line(session.harness)}  {_moment(session.began)} to {_moment(session.ended)}",
            f"{wording.count(session.turns, 'turn')}, {wording.count(session.passages, 'passage')}"
            + (f", with {wording.count(len(session.parts) - 1, 'subagent')}" if len(session.parts) > 1 else ""),
        ]
        agents = sorted({_one_line(part.agent) for part in session.parts[1:] if part.agent})
        if agents:
            facts.append(f"subagents: {', '.join(agents[:AGENTS])}{', …' if len(agents) > AGENTS else ''}")
        if session.elsewhere:
            facts.append(f"{wording.count(session.elsewhere, 'turn')} in other folders: never published here")
        facts += [
            f"{wording.count(count, 'message')} repeated of {_one_line(name)[:8]}: published with that one"
            for name, count in session.copies
        ]
        if how.state == "grown":
            facts.append(
                f"{wording.count(how.growth, 'turn')} came after its review; what was reviewed stays published"
            )
        elif how.state == "changed":
            facts.append("what was reviewed reads differently now")
        about = f"{_moment(session.ended):<16}  {_one_line(session.harness[:11]):<11}  {session.turns:>5,}"
        text = f"{title} {session.session} {session.harness} {session.ended[:10]}".lower()
        rows.append(Row(session.session, title, about, how.state, how.growth, choice, tuple(facts), text))
    if order:
        places = {name: place for place, name in enumerate(order)}
        rows.sort(key=lambda row: places.get(row.session, len(places)))
    return tuple(rows)


# -- keys ----------------------------------------------------------------------------------------------


def press(screen: Screen, key: str, height: int) -> tuple[Screen, Effect | None]:
    """What a key does.

    Args:
        key: A character, or `up`, `down`, `left`, `right`, `pageup`, `pagedown`, `home`, `end`, `enter`, `escape`,
            `tab`, `backspace`.
        height: Lines of the terminal.

    Returns:
        The new state; and what has to be done: `save` the choices, `leave`, or load the `preview` of the row.
    """
    screen = replace(screen, message="")
    if screen.mode == "filter":
        return _typed(screen, key), None
    if screen.mode == "help":
        return replace(screen, mode="list"), None
    if screen.mode == "leave":
        if key == "s":
            return replace(screen, mode="list"), "save"
        if key == "d":
            return replace(screen, chosen={}), "leave"
        return replace(screen, mode="list"), None
    if screen.mode == "preview":
        return _in_preview(screen, key, height)
    return _in_list(screen, key, height)


def _in_list(screen: Screen, key: str, height: int) -> tuple[Screen, Effect | None]:
    page = _room(height)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page}
    if key in steps:
        return _moved(screen, screen.at + steps[key], page), None
    if key in ("home", "g"):
        return _moved(screen, 0, page), None
    if key in ("end", "G"):
        return _moved(screen, len(screen.listed) - 1, page), None
    if key == "/":
        return replace(screen, mode="filter"), None
    if key == "escape" and screen.words:
        return _moved(replace(screen, words=""), 0, page), None
    if key == "tab":
        return _moved(replace(screen, everything=not screen.everything, kept=frozenset()), 0, page), None
    if key in ("enter", "right", "l") and screen.row is not None:
        return replace(screen, mode="preview", scroll=0, exchanges=()), "preview"
    if key in ("a", "n"):
        for row in screen.listed:
            screen = _choose(screen, row, "include" if key == "a" else "exclude")
        return screen, None
    return _common(screen, key, page)


def _in_preview(screen: Screen, key: str, height: int) -> tuple[Screen, Effect | None]:
    page = _room(height)
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page, "home": -(10**9), "g": -(10**9)}
    steps |= {"end": 10**9, "G": 10**9}
    if key in steps:
        return replace(screen, scroll=max(0, screen.scroll + steps[key])), None  # `lines` stops it at the end
    if key in ("escape", "left", "h", "q", "enter"):
        return replace(screen, mode="list", exchanges=()), None
    if key == "right":
        return screen, None
    return _common(screen, key, page)


def _common(screen: Screen, key: str, page: int) -> tuple[Screen, Effect | None]:
    row = screen.row
    if key == "s":
        return (screen, "save") if screen.chosen else (replace(screen, message="Nothing new to save."), None)
    if key == "q":
        return (replace(screen, mode="leave"), None) if screen.chosen else (screen, "leave")
    if key == "?":
        return replace(screen, mode="help"), None
    if row is None:
        return screen, None
    if key == " ":
        return _choose(screen, row, _CYCLE[screen.choice(row)]), None
    if key in ("i", "x"):
        screen = _choose(screen, row, "include" if key == "i" else "exclude")
        if screen.mode == "preview":
            return replace(screen, mode="list", exchanges=()), None
        return _moved(screen, screen.at + 1, page), None
    if key == "u":
        chosen = {name: choice for name, choice in screen.chosen.items() if name != row.session}
        return replace(screen, chosen=chosen, kept=screen.kept | {row.session}), None
    return screen, None


def _choose(screen: Screen, row: Row, choice: Choice | None) -> Screen:
    chosen = dict(screen.chosen)
    if choice == row.saved:
        chosen.pop(row.session, None)
    else:
        chosen[row.session] = choice
    return replace(screen, chosen=chosen, kept=screen.kept | {row.session})


def _typed(screen: Screen, key: str) -> Screen:
    if key == "enter":
        return replace(screen, mode="list")
    if key == "escape":
        return replace(screen, mode="list", words="", at=0, top=0)
    if key == "backspace":
        return replace(screen, words=screen.words[:-1], at=0, top=0)
    if len(key) == 1 and key.isprintable() and len(screen.words) < _LONGEST_FILTER:
        return replace(screen, words=screen.words + key, at=0, top=0)
    return screen


def _moved(screen: Screen, at: int, page: int) -> Screen:
    at = max(0, min(at, len(screen.listed) - 1))
    top = min(screen.top, at)
    return replace(screen, at=at, top=max(top, at - page + 1))


# -- lines ---------------------------------------------------------------------------------------------


def lines(screen: Screen, width: int, height: int) -> list[Line]:
    """What is shown on a terminal of this size: exactly `height` lines, none wider than `width` columns."""
    if screen.mode == "help":
        body: list[Line] = [[("", line)] for line in _HELP.splitlines()]
        body = [[("title", "Keys")], [], *body]
        return _fitted(body, [[("dim", "any key: back")]], width, height)
    room = _room(height)
    if screen.mode == "preview" and screen.row is not None:
        body = _preview(screen, width)
        scroll = max(0, min(screen.scroll, len(body) - room))
        place = f"  lines {scroll + 1}-{min(len(body), scroll + room)} of {len(body)}" if len(body) > room else ""
        head: Line = [("title", screen.row.title)]
        return _fitted(
            [head, *_beside([], height), *body[scroll : scroll + room]], _footer(screen, place), width, height
        )
    listed = screen.listed
    at = min(screen.at, len(listed) - 1)
    top = max(0, min(screen.top, at, max(0, len(listed) - room)), at - room + 1)
    what = "all sessions" if screen.everything else "waiting for review"
    found = f"{len(listed):,} of {len(screen.rows):,}"
    head = [("title", f"{screen.repository} → {screen.memory}"), ("dim", f"   {what}: {found}")]
    rows = [_listed(screen, row, top + n == at, width) for n, row in enumerate(listed[top : top + room])]
    if not rows:
        rows = [[("dim", "Nothing to show. tab: all sessions" if not screen.words else "No session has these words.")]]
    second: Line = [("dim", f"      {'last turn':<16}  {'agent':<11}  turns")]
    if screen.mode == "filter" or screen.words:
        second = [("", f"/{screen.words}" + ("_" if screen.mode == "filter" else ""))]
    return _fitted([head, *_beside(second, height), *rows], _footer(screen, ""), width, height)


def _room(height: int) -> int:
    """Lines of the list or of the preview."""
    return max(1, height - (_ABOVE + _BELOW if height >= _SMALL else 2))


def _beside(second: Line, height: int) -> list[Line]:
    """The second line, where there is room for one."""
    return [second] if height >= _SMALL else []


def at_growth(screen: Screen, width: int) -> Screen:
    """The preview scrolled to what came after the last review, if anything did."""
    body = _preview(screen, width)
    return replace(screen, scroll=next((at for at, line in enumerate(body) if line == [("waits", _FRESH)]), 0))


def scroll_of(screen: Screen, width: int, height: int) -> Screen:
    """The state with a preview that is not scrolled past its end."""
    if screen.mode != "preview":
        return screen
    room = _room(height)
    return replace(screen, scroll=max(0, min(screen.scroll, len(_preview(screen, width)) - room)))


def _listed(screen: Screen, row: Row, here: bool, width: int) -> Line:
    choice = screen.choice(row)
    mark = {"include": "[+]", "exclude": "[-]", None: "[ ]"}[choice]
    style: Style = choice or "waits"
    unsaved = "*" if row.session in screen.chosen else " "
    again = f" (+{row.growth:,})" if row.state == "grown" else " (changed)" if row.state == "changed" else ""
    text = f" {row.about}{again}  {row.title}"
    pointer = ">" if here else " "
    return [("at" if here else "", pointer), (style, mark), ("", unsaved), ("at" if here else "", text)]


def _footer(screen: Screen, place: str) -> list[Line]:
    if screen.mode == "leave":
        count = wording.count(len(screen.chosen), "decision")
        return [[("title", f"{count} not saved.")], [("", "s: save and leave   d: discard   any other key: go on")], []]
    choices = [screen.choice(row) for row in screen.rows]
    counts = (
        f"{choices.count('include'):,} included, {choices.count('exclude'):,} excluded, {choices.count(None):,} wait"
    )
    unsaved = f"   {len(screen.chosen):,} not saved" if screen.chosen else ""
    if screen.mode == "filter":
        keys = "type words; enter: keep   escape: show all"
    elif screen.mode == "preview":
        keys = "i include  x exclude  space change  j/k scroll  escape back  ? help"
    else:
        keys = "space change  i include  x exclude  enter preview  / filter  s save  q leave  ?"
    return [
        [("", screen.message)],
        [("", counts), ("waits", unsaved), ("dim", place)],
        [("dim", keys)],
    ]


def _preview(screen: Screen, width: int) -> list[Line]:
    row = screen.row
    if row is None:
        return []
    choice = screen.choice(row)
    state = {"include": "included", "exclude": "excluded", None: "waits for review"}[choice]
    body: list[Line] = [[("dim", fact)] for fact in row.facts]
    body += [[(choice or "waits", state)], []]
    if not screen.exchanges:
        body.append([("dim", "Nobody typed anything in this session.")])
    fresh = False
    for exchange in screen.exchanges:
        if exchange.fresh and not fresh:
            body.append([("waits", _FRESH)])
        fresh = exchange.fresh
        body.append([("dim", _moment(exchange.ts))])
        body += _quoted(exchange.prompt, "> ", "title", PROMPT_LINES, width)
        if exchange.answer:
            body += _quoted(exchange.answer, "  ", "", ANSWER_LINES, width)
        body.append([])
    return body


def _quoted(text: str, prefix: str, style: Style, most: int, width: int) -> list[Line]:
    """The beginning of a text, wrapped."""
    found: list[Line] = []
    room = max(10, width - len(prefix) - 1)
    # Of a long text only so much can be shown; the rest is not looked at.
    head = text[: (most + 2) * room * 2]
    wrapped = [part for line in head.splitlines() for part in _wrapped(_one_line(line), room)]
    for line in wrapped[:most]:
        found.append([("dim", prefix), (style, line)])
    if len(wrapped) > most or len(head) < len(text):
        found.append([("dim", f"{prefix}…")])
    return found


def _wrapped(line: str, room: int) -> list[str]:
    if not line:
        return [""]
    parts = []
    while line:
        end = _fits(line, room)
        if end < len(line):
            space = line.rfind(" ", room // 2, end + 1)
            end = space if space > 0 else end
        parts.append(line[:end].rstrip())
        line = line[end:].lstrip(" ")
    return parts


def _fitted(body: Sequence[Line], footer: Sequence[Line], width: int, height: int) -> list[Line]:
    if height < _SMALL:
        footer = footer[:1] if footer[0] and footer[0][0][1] else footer[1:2] or footer[:1]
    shown = [list(line) for line in body[: max(0, height - len(footer))]]
    shown += [[] for _ in range(height - len(footer) - len(shown))]
    return [_cut(line, width) for line in [*shown, *footer]][:height]


def _cut(line: Line, width: int) -> Line:
    left = width
    found: Line = []
    for style, text in line:
        end = _fits(text, left)
        if end < len(text):
            end = _fits(text, max(0, left - 1))
            found.append((style, text[:end] + ("…" if left > 0 else "")))
            return found
        found.append((style, text))
        left -= _width(text)
    return found


def _fits(text: str, room: int) -> int:
    """How many of a text's characters have room in so many columns."""
    if text.isascii():
        return min(len(text), max(0, room))
    measure = _measure()
    used = 0
    for place, character in enumerate(text):
        used += measure(character)
        if used > room:
            return place
    return len(text)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    measure = _measure()
    return sum(measure(character) for character in text)


def _measure() -> Callable[[str], int]:
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth


def _one_line(text: str) -> str:
    return harmless(_SPACE.sub(" ", text.replace("\n", " ")))


def _moment(ts: str) -> str:
    return _one_line(ts[:16].replace("T", " "))
