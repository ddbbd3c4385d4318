"""The review on a real pseudo-terminal: decisions are kept, and the terminal is given back, however it ends."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from curation_support import History, stored, uuid

from funes_mcp.home import FunesHome

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

import fcntl
import struct
import termios

MEMORY = "ann/kiln-memory"
LEFT = b"\x1b[?1049l"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(tmp_path_factory.mktemp("curation") / "home")
    stored(
        FunesHome(history.home / ".funes"),
        "ann/kiln",
        cold=["why is the kiln \x1b]0;owned\x07cold", "the element is broken"],
        glaze=["which glaze is it", "the blue one"],
    )
    return history


class Terminal:
    """`funes curate` on a terminal of 80 columns and 24 lines."""

    def __init__(self, history: History, home: Path, **environ: str) -> None:
        shutil.copytree(history.home / ".funes", home)
        self.home = home
        self.seen = b""
        self._master, self._slave = os.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "funes_mcp", "curate", MEMORY, "ann/kiln"],
            env={**history.environ, "FUNES_HOME": str(home), "PROMPT_TOOLKIT_NO_CPR": "1", **environ},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def until(self, text: str | bytes) -> None:
        """Wait until something was shown."""
        wanted = text.encode() if isinstance(text, str) else text
        deadline = time.monotonic() + 60
        while wanted not in self.seen:
            assert time.monotonic() < deadline, self.seen[-2000:]
            if select.select([self._master], [], [], 0.1)[0]:
                self.seen += os.read(self._master, 65536)
            elif self.process.poll() is not None:
                raise AssertionError(self.seen[-2000:])

    def type(self, keys: str, shows: str | bytes = b"") -> None:
        """Type, and wait for what that shows."""
        self.seen = b""
        os.write(self._master, keys.encode())
        self.until(shows)

    def resize(self, lines: int, columns: int) -> None:
        """Change the size of the terminal."""
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def ended(self) -> int:
        """Wait for the end; the terminal must be as it was."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self._master], [], [], 0.05)[0]:
                self.seen += os.read(self._master, 65536)
        while select.select([self._master], [], [], 0.05)[0]:
            self.seen += os.read(self._master, 65536)
        assert termios.tcgetattr(self._slave) == self.modes
        assert self.process.returncode is not None
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    @property
    def file(self) -> str:
        (path,) = (self.home / "curation").glob("*.toml")
        return path.read_text()


@pytest.fixture
def on_terminal(indexed: History, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(**environ: str) -> Terminal:
        opened.append(Terminal(indexed, tmp_path / "funes", **environ))
        opened[-1].until("Go on? [Y/n]")
        opened[-1].type("\r", "2 wait")
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_a_review(on_terminal: Callable[..., Terminal]) -> None:
    terminal = on_terminal()
    everything = terminal.seen
    terminal.type("/cold\r\r", "the element is broken")
    everything += terminal.seen
    terminal.resize(12, 60)
    terminal.type("i", "not saved")
    terminal.type("\x1b", "which glaze is")
    terminal.type("jxq", "2 decisions not saved")
    terminal.type("s", LEFT)
    assert terminal.ended() == 0
    assert "Included 1 session, excluded 1 session." in terminal.seen.decode()
    assert terminal.file.count('decision = "include"') == terminal.file.count('decision = "exclude"') == 1
    assert terminal.file.index(uuid("cold")) >= 0
    assert b"\x1b]0;owned" not in everything
    assert "why is the kiln ␛]0;owned␇cold" in everything.decode()
    assert b"\x1b[0;32" in everything or b"\x1b[33m" in everything or b"\x1b[0;33" in everything


@pytest.mark.parametrize(("how", "code"), [("\x03", 130), (signal.SIGTERM, 130), ("qd", 0)])
def test_what_was_not_saved_is_dropped(on_terminal: Callable[..., Terminal], how: str | int, code: int) -> None:
    terminal = on_terminal(NO_COLOR="1")
    assert b"\x1b[3" not in terminal.seen.replace(b"\x1b[39m", b"")
    terminal.type("i", "not saved")
    if isinstance(how, str):
        terminal.type(how, LEFT)
    else:
        terminal.process.send_signal(how)
        terminal.until(LEFT)
    assert terminal.ended() == code
    assert "decision =" not in terminal.file


def test_a_fault_gives_the_terminal_back(on_terminal: Callable[..., Terminal]) -> None:
    terminal = on_terminal()
    for path in (terminal.home / "memory").glob("catalog.db*"):
        path.unlink()
    (terminal.home / "memory" / "catalog.db").write_bytes(b"no database " * 99)
    terminal.type("\r", LEFT)
    assert terminal.ended() == 1
    assert b"catalog.db" in terminal.seen


def test_what_cannot_be_saved_is_said_on_the_screen(on_terminal: Callable[..., Terminal]) -> None:
    terminal = on_terminal()
    (path,) = (terminal.home / "curation").glob("*.toml")
    path.write_text("memory = \n")
    terminal.type("is", "Not saved")
    terminal.type("qd", LEFT)
    assert terminal.ended() == 0
    assert path.read_text() == "memory = \n"
