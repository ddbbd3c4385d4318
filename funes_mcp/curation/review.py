"""The review on a terminal: keys in, lines out, around the pure `screen`."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from funes_mcp.curation import screen as view
from funes_mcp.curation.desk import Desk
from funes_mcp.curation.screen import Effect
from funes_mcp.errors import FunesError

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

_KEYS: Final = {
    "up": "up",
    "down": "down",
    "left": "left",
    "right": "right",
    "pageup": "pageup",
    "pagedown": "pagedown",
    "home": "home",
    "end": "end",
    "c-m": "enter",
    "c-j": "enter",
    "escape": "escape",
    "c-i": "tab",
    "c-h": "backspace",
    "c-n": "down",
    "c-p": "up",
}

_STYLES: Final = {
    "title": "bold",
    "dim": "ansibrightblack",
    "at": "reverse",
    "include": "ansigreen",
    "exclude": "ansired",
    "waits": "ansiyellow",
}

#: Seconds after which an escape is that key, and not the beginning of another one's code.
_ESCAPE_S: Final = 0.05


def review(desk: Desk, *, colours: bool, source: Input | None = None, target: Output | None = None) -> Counter[str]:
    """Let a person decide. The terminal is as before when this returns or raises.

    Args:
        colours: Whether to use any.
        source, target: Instead of the terminal.

    Returns:
        How many sessions were included, excluded or put back, as `Desk.decide` counts.

    Raises:
        KeyboardInterrupt: Ctrl-C; what was not saved is dropped.
    """
    return _Review(desk).run(colours, source, target)


class _Review:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._done: Counter[str] = Counter()
        items = desk.sessions()
        self._heads = desk.heads([item.session for item in items])
        self._screen = view.begin(desk.memory, desk.repository, items, self._heads)

    def run(self, colours: bool, source: Input | None, target: Output | None) -> Counter[str]:
        from prompt_toolkit.application import Application
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.keys import Keys
        from prompt_toolkit.layout import FormattedTextControl, Layout, Window
        from prompt_toolkit.output import ColorDepth
        from prompt_toolkit.styles import Style

        bindings = KeyBindings()
        window = Window(FormattedTextControl(lambda: self._text(app), show_cursor=False), always_hide_cursor=True)
        app: Application[None] = Application(
            layout=Layout(window),
            key_bindings=bindings,
            style=Style.from_dict(_STYLES if colours else {"title": "bold", "at": "reverse"}),
            color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
            full_screen=True,
            input=source,
            output=target,
        )
        app.ttimeoutlen = app.timeoutlen = _ESCAPE_S

        def guarded(act: Callable[[KeyPressEvent], None]) -> Callable[[KeyPressEvent], None]:
            # What a handler raises would be shown on the screen; it must end it, and go on to the caller.
            def handler(event: KeyPressEvent) -> None:
                try:
                    act(event)
                except BaseException as error:
                    _end(app, error)

            return handler

        def pressing(key: str) -> Callable[[KeyPressEvent], None]:
            return guarded(lambda event: self._press(app, key))

        for name, key in _KEYS.items():
            bindings.add(name)(pressing(key))
        bindings.add(Keys.Any)(guarded(lambda event: self._press(app, event.data)))
        bindings.add(Keys.BracketedPaste)(guarded(lambda event: self._paste(app, event.data)))
        bindings.add("c-c")(guarded(lambda event: _end(app, KeyboardInterrupt())))
        bindings.add("c-z")(guarded(lambda event: app.suspend_to_background()))
        bindings.add("c-l")(guarded(lambda event: app.renderer.clear()))
        app.run(pre_run=lambda: _on_signals(app))
        return self._done

    def _text(self, app: Application[None]) -> StyleAndTextTuples:
        try:
            size = app.output.get_size()
            found: list[tuple[str, str]] = []
            for line in view.lines(self._screen, size.columns, size.rows):
                if found:
                    found.append(("", "\n"))
                found += [(f"class:{style}" if style else "", text) for style, text in line]
            return cast("StyleAndTextTuples", found)
        except Exception as error:
            _end(app, error)
            return []

    def _press(self, app: Application[None], key: str) -> None:
        size = app.output.get_size()
        leaving = self._screen.mode == "leave"
        self._screen, effect = view.press(self._screen, key, size.rows)
        self._act(app, effect, leaving)
        if effect == "preview":
            self._screen = view.at_growth(self._screen, size.columns)
        self._screen = view.scroll_of(self._screen, size.columns, size.rows)

    def _act(self, app: Application[None], effect: Effect | None, leaving: bool) -> None:
        row = self._screen.row
        if effect == "preview" and row is not None:
            self._screen = replace(self._screen, exchanges=tuple(self._desk.preview(self._desk.session(row.session))))
        elif effect == "save":
            try:
                done = self._desk.decide(dict(self._screen.chosen))
            except FunesError as error:
                self._screen = replace(self._screen, message=f"Not saved: {error.message}")
                return
            self._done.update(done)
            self._screen = view.saved(self._screen, self._desk.sessions(), self._heads, "Saved.")
            if leaving:
                app.exit()
        elif effect == "leave":
            app.exit()

    def _paste(self, app: Application[None], text: str) -> None:
        if self._screen.mode == "filter":
            for character in text:
                self._press(app, character)


def _end(app: Application[Any], error: BaseException) -> None:
    with suppress(Exception):  # it is ending already
        app.exit(exception=error)


def _on_signals(app: Application[Any]) -> None:
    """Give the terminal back also to who ends the program from outside."""
    loop = asyncio.get_running_loop()
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None:
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, lambda: _end(app, KeyboardInterrupt()))
