"""Reading and replacing configuration files: all of a set or none, in one step each, links and modes kept."""

from __future__ import annotations

import codecs
import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from funes_mcp.home import private_folder
from funes_mcp.wiring.document import BrokenText, ConfigError, Format, Keys, UnsafeEdit, WrongShape, prune

T = TypeVar("T")

_NOTHING_CHANGED = "Nothing was changed."


@dataclass(frozen=True, slots=True)
class Edit:
    """What a file holds now and is to hold. None stands for "no such file".

    Attributes:
        shared: True for a file that is the user's (or the agent's) and only edited here; False for one that is
            wholly ours.
        note: What the person should know of the edit; "" for nothing.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    shared: bool = True
    note: str = ""

    @property
    def changes(self) -> bool:
        """Whether anything is to be written."""
        return self.before != self.after


class FileChanged(Exception):
    """A file is no longer what it was when its edit was worked out."""


def read_config(path: Path) -> bytes | None:
    """The bytes of a file, None when there is none (or a link to nothing).

    Raises:
        ConfigError: for a folder, a device or a file that may not be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ConfigError(f"{path} is a folder, but a file is expected there. {_NOTHING_CHANGED}")
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{path} is not an ordinary file. {_NOTHING_CHANGED}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise ConfigError(f"{path.parent} is not a folder. {_NOTHING_CHANGED}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}. {_NOTHING_CHANGED}") from None


class ConfigText:
    """A configuration under edit: its text in one format, with errors that name the file and the place.

    Args:
        path: The file; it need not exist.
        fmt: How it is written.
        raw: Its bytes, None when there is no file.

    Attributes:
        note: What the person should be told when the edit is carried out.
    """

    def __init__(self, path: Path, fmt: Format, raw: bytes | None) -> None:
        self.path = path
        self.fmt = fmt
        self.raw = raw
        self.note = ""
        data = raw or b""
        self._bom = data.startswith(codecs.BOM_UTF8)
        try:
            self.text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise ConfigError(f"{path}, line {line}: not UTF-8 text. {_NOTHING_CHANGED}") from None
        self.value = self._guard(lambda: fmt.parse(self.text))

    @classmethod
    def load(cls, path: Path, fmt: Format) -> ConfigText:
        """Read and parse a file. Raises `ConfigError`."""
        return cls(path, fmt, read_config(path))

    def put(self, keys: Keys, value: object) -> None:
        """See `Format.put`. Raises `ConfigError`."""
        self._replace(self._guard(lambda: self.fmt.put(self.text, keys, value)))

    def append(self, keys: Keys, value: object) -> None:
        """See `Format.append`. Raises `ConfigError`."""
        self._replace(self._guard(lambda: self.fmt.append(self.text, keys, value)))

    def drop(self, keys: Keys, before: object = None) -> None:
        """Take out what is at a path, then tables left empty that `before` did not have. Raises `ConfigError`."""
        text = self._guard(lambda: self.fmt.drop(self.text, keys))
        if text != self.text:
            self._replace(self._guard(lambda: prune(self.fmt, text, keys[:-1], before)))

    def edit(self) -> Edit:
        """What is to be written. A file that is not there and would be empty stays absent."""
        if self.raw is None and not self.text:
            return Edit(self.path, None, None)
        data = self.text.encode()
        return Edit(self.path, self.raw, codecs.BOM_UTF8 + data if self._bom else data, note=self.note)

    def _replace(self, text: str) -> None:
        if text != self.text:
            self.text = text
            self.value = self.fmt.parse(text)

    def _guard(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except BrokenText as error:
            where = f", line {error.line}, column {error.column}" if error.line else ""
            raise ConfigError(
                f"{self.path}{where}: not valid {self.fmt.name} ({error.reason}). {_NOTHING_CHANGED}",
                "Mend the file and run the command again.",
            ) from None
        except WrongShape as error:
            raise ConfigError(
                f"{self.path}: {error.where} is not {error.wanted}, so nothing can be added there. {_NOTHING_CHANGED}"
            ) from None
        except UnsafeEdit:
            raise ConfigError(
                f"{self.path} is written in a way that cannot be edited without touching other settings. "
                f"{_NOTHING_CHANGED}",
                "The lines to add are shown by the files in `examples/agent-configs`.",
            ) from None


def commit(edits: Sequence[Edit]) -> list[Path]:
    """Write all edits or none. Returns the folders that had to be made.

    Raises:
        ConfigError: when something cannot be written; what was written before it is put back.
        FileChanged: when a file is not what its edit was made from.
    """
    todo = [edit for edit in edits if edit.changes]
    for edit in todo:
        _check_writable(edit)
    done: list[Edit] = []
    made: list[Path] = []
    try:
        for edit in todo:
            if read_config(edit.path) != edit.before:
                raise FileChanged(str(edit.path))
            made += _replace_file(edit)
            done.append(edit)
    except (OSError, FileChanged) as error:
        for edit in reversed(done):
            with contextlib.suppress(OSError):
                _replace_file(Edit(edit.path, edit.after, edit.before, edit.shared))
        for folder in reversed(made):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, FileChanged):
            raise
        raise ConfigError(
            f"{error.filename or todo[len(done)].path} cannot be written: {error.strerror}. {_NOTHING_CHANGED}"
        ) from None
    return made


def _check_writable(edit: Edit) -> None:
    target = Path(os.path.realpath(edit.path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ConfigError(f"{edit.path} cannot be read: {error.strerror}. {_NOTHING_CHANGED}") from None
    else:
        # The mode is looked at too: replacing a file needs no right to write to it, and root may always.
        if not mode & 0o222 or not os.access(target, os.W_OK):
            raise ConfigError(f"{edit.path} is read-only. {_NOTHING_CHANGED}")
    folder = target.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder. {_NOTHING_CHANGED}")
    if not folder.stat().st_mode & 0o222 or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"The folder {folder} is read-only. {_NOTHING_CHANGED}")


def _replace_file(edit: Edit) -> list[Path]:
    """Write one file in one step; returns the folders made. Raises `OSError`."""
    target = Path(os.path.realpath(edit.path))  # the file behind a link is replaced, the link stays
    if edit.after is None:
        target.unlink(missing_ok=True)
        return []
    made: list[Path] = []
    folder = target.parent
    while not folder.exists():
        made.append(folder)
        folder = folder.parent
    private_folder(target.parent)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        old = target.stat()
    except FileNotFoundError:
        old = None
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(edit.after)
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            os.chmod(temporary, stat.S_IMODE(old.st_mode))
            if hasattr(os, "chown") and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                with contextlib.suppress(OSError):
                    os.chown(temporary, old.st_uid, old.st_gid)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return list(reversed(made))
