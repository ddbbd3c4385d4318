"""Wiring an agent and taking it out: the one place where the edits of an agent's files are carried out."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from funes_mcp import discovery
from funes_mcp.errors import FunesError
from funes_mcp.home import FunesHome
from funes_mcp.wiring.document import ConfigError
from funes_mcp.wiring.files import Edit, FileChanged, commit
from funes_mcp.wiring.model import AgentWiring, Consent, Order, Place, Presence, Wired
from funes_mcp.wiring.program import Program
from funes_mcp.wiring.receipts import Receipt, Receipts, restored

#: How often an edit is worked out anew when the agent writes to its files meanwhile.
_TRIES = 3

#: Seconds that an agent's program may take to tell its version.
_VERSION_S = 15.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done: the files that were written, and sentences for the person."""

    written: tuple[Path, ...]
    notes: tuple[str, ...] = ()


def wirings() -> dict[str, AgentWiring]:
    """The agents that can be wired, by name: the module `wiring` beside each installed adapter.

    One that cannot be imported is left out; `find_wiring` says why.
    """
    found: dict[str, AgentWiring] = {}
    for name, module in discovery.modules_beside("wiring").items():
        with suppress(Exception):
            found[name] = import_module(module).WIRING
    return found


def find_wiring(agent: str) -> AgentWiring:
    """The wiring of an agent as typed (`claude_code` means `claude`). Raises `BadRequestError`, `FunesError`."""
    wiring: AgentWiring = discovery.find_beside(agent, "wiring", "WIRING", "wired")
    return wiring


class Wirer:
    """Wires agents for one user.

    Args:
        home: Ours.
        environ: The environment.
        user_home: The user's home folder.
    """

    def __init__(self, home: FunesHome, environ: Mapping[str, str], user_home: Path) -> None:
        self._environ = environ
        self._user_home = user_home
        self._receipts = Receipts(home)

    def place(self, wiring: AgentWiring) -> Place:
        """Where an agent is wired by default."""
        root = wiring.root(self._environ, self._user_home)
        return Place(self._environ, self._user_home, root, self._receipts.kit(wiring.name, root))

    def presence(self, wiring: AgentWiring) -> Presence:
        """Whether an agent is here."""
        program = shutil.which(wiring.command, path=self._environ.get("PATH")) or ""
        version = _version(program, self._environ) if program and wiring.asks_version else ""
        return Presence(program, version, self.place(wiring).root.is_dir())

    def consents(self, wiring: AgentWiring) -> Sequence[Consent]:
        """What to ask before `add`."""
        return wiring.consents(self.place(wiring))

    def add(self, wiring: AgentWiring, program: Program, consents: Collection[str], presence: Presence) -> Outcome:
        """Wire an agent. All files are written or none.

        Raises:
            FunesError: when the agent is not here, or a file cannot be read, edited or written.
        """
        if not presence.program and not presence.used:
            raise FunesError(
                f"{wiring.title} is not here: there is no `{wiring.command}` on PATH and no folder "
                f"{self.place(wiring).root}. Nothing was changed.",
                f"Install it ({wiring.install_hint}), then run `funes add {wiring.name}` again.",
            )
        place = self.place(wiring)
        order = Order(program, frozenset(consents), presence)
        replaced: list[str] = []
        written = _persist(lambda: self._add(wiring, place, order, replaced))
        notes = list(replaced)
        notes += [c.declined for c in wiring.consents(place) if c.key not in consents and c.declined]
        if presence.used and not presence.program:
            notes.append(
                f"There is no `{wiring.command}` on PATH; {place.root} is there, so funes was wired all the same."
            )
        elif not presence.used:
            notes.append(f"{wiring.title} has not been run yet; funes waits for it.")
        return Outcome(tuple(written), (*notes, *wiring.advice(place, order)))

    def _add(self, wiring: AgentWiring, place: Place, order: Order, notes: list[str]) -> list[Path]:
        edits = wiring.add(place, order)
        notes[:] = [edit.note for edit in edits if edit.changes and edit.note]
        known = self._receipts.find(wiring.name, place.root)
        receipt = known or Receipt(wiring.name, place.root, place.root != wiring.root({}, place.home))
        # What is ours although no receipt says so (an earlier home was deleted) must not come back with `remove`.
        covered = {item.path for item in receipt.files}
        ours = {e.path for e in wiring.remove(place, {}) if e.changes and e.shared} - covered
        try:
            receipt = self._receipts.record(receipt, edits, ours)
            self._receipts.save(receipt)
        except OSError as error:
            raise ConfigError(
                f"{error.filename or 'The funes home'} cannot be written: {error.strerror}. Nothing was changed."
            ) from None
        try:
            made = commit(edits)
        except (ConfigError, FileChanged):
            if known is None:
                self._receipts.drop(wiring.name, place.root)
            else:
                self._receipts.save(known)
            raise
        outside = [folder for folder in made if not folder.is_relative_to(place.kit.parent)]
        if outside:
            self._receipts.save(replace(receipt, folders=(*receipt.folders, *outside)))
        return [edit.path for edit in edits if edit.changes]

    def remove(self, wiring: AgentWiring) -> Outcome:
        """Take funes out of every folder of an agent that it was wired into. Raises `FunesError`."""
        places = [self.place(wiring)]
        for receipt in self._receipts.all(wiring.name):
            if receipt.root != places[0].root:
                places.append(self._place_of(wiring, receipt))
        written: list[Path] = []
        for place in places:
            written += _persist(lambda place=place: self._remove(wiring, place))  # type: ignore[misc]
        return Outcome(tuple(written))

    def _place_of(self, wiring: AgentWiring, receipt: Receipt) -> Place:
        """The place of an earlier `add` with another environment."""
        environ = dict(self._environ)
        for name in _ROOT_VARIABLES:
            if wiring.root({name: "/nowhere"}, self._user_home) != wiring.root({}, self._user_home):
                environ.pop(name, None)
                if receipt.from_environ:
                    environ[name] = str(receipt.root)
        return Place(environ, self._user_home, receipt.root, self._receipts.kit(wiring.name, receipt.root))

    def _remove(self, wiring: AgentWiring, place: Place) -> list[Path]:
        receipt = self._receipts.find(wiring.name, place.root)
        before = self._receipts.before(receipt) if receipt else {}
        by_path = {item.path: item for item in receipt.files} if receipt else {}
        edits: list[Edit] = []
        for edit in wiring.remove(place, before):
            if edit.changes:
                edits.append(restored(edit, by_path.get(edit.path), before))
        commit(edits)
        self._receipts.drop(wiring.name, place.root)
        for folder in reversed(receipt.folders if receipt else ()):
            with suppress(OSError):
                folder.rmdir()
        return [edit.path for edit in edits]

    def state(self, wiring: AgentWiring) -> Wired:
        """How an agent stands. Raises `ConfigError` for files that cannot be read."""
        return wiring.state(self.place(wiring))


def wiring_notes(home: FunesHome, environ: Mapping[str, str], user_home: Path) -> tuple[str, ...]:
    """Sentences about wired agents whose hooks or tools do not work (hooks not trusted, a server switched off).

    For `status`. Never raises: a file that cannot be read is a sentence too.
    """
    notes = []
    wirer = Wirer(home, environ, user_home)
    for wiring in wirings().values():
        try:
            state = wirer.state(wiring)
        except FunesError as error:
            notes.append(f"{wiring.title}: {error.message.removesuffix(' Nothing was changed.')}")
            continue
        if state.server or state.hooks:
            notes += [f"{wiring.title}: {note}" for note in state.notes]
            if not state.hooks:
                notes.append(f"{wiring.title}: no hook of funes is set; run `funes add {wiring.name}` again")
    return tuple(notes)


def bindings(home: FunesHome, environ: Mapping[str, str], user_home: Path) -> list[tuple[str, str, str]]:
    """Each wired agent with the memory it reads and the one its hooks publish to, "" for the local one and for none.

    Never raises: an agent whose files cannot be read is left out (see `wiring_notes`).
    """
    found = []
    wirer = Wirer(home, environ, user_home)
    for name, wiring in wirings().items():
        with suppress(FunesError):
            state = wirer.state(wiring)
            if state.server or state.hooks:
                found.append((name, state.memory, state.publishes))
    return found


#: The variables that name an agent's folder.
_ROOT_VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "HERMES_HOME")


def _persist(step: Callable[[], list[Path]]) -> list[Path]:
    for _ in range(_TRIES):
        try:
            return step()
        except FileChanged as error:
            changed = str(error)
    raise ConfigError(f"{changed} keeps changing. Nothing was changed.", "Close the agent and try again.")


def _version(program: str, environ: Mapping[str, str]) -> str:
    """What a program says to `--version`, its last word; "" when it says nothing."""
    try:
        done = subprocess.run(
            [program, "--version"],
            env={**environ, "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = done.stdout.decode("utf-8", "replace").split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "") if done.returncode == 0 else ""
