"""The models that are on this machine: a folder each, with a record of what it has to hold."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from funes_mcp.errors import FunesError
from funes_mcp.home import private_folder, write_private
from funes_mcp.hub.files import HubFileMissingError, fetch, sha256_of
from funes_mcp.inference.known import ModelFile, ModelSpec

_RECORD: Final = "funes-model.json"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")

#: By what a model's files were checked when they came: checksums in this package, the Hub's, or none.
Checked = Literal["package", "hub", "nothing"]

#: Told the file, how many more bytes have come, and how many it has (0: unknown).
Told = Callable[[str, int, int], None]


class ModelBrokenError(FunesError):
    """A model's files are not those that its record names."""


class ModelMissingError(FunesError):
    """A model is not on this machine."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A model on this machine.

    Attributes:
        spec: With the commit it was taken from, or a digest of its files where that is not known, and the checksum of
            every file.
        sizes: Bytes of each file, in the order of `spec.files`.
        stamps: Nanoseconds of their last change when they were last compared with their checksums.
    """

    spec: ModelSpec
    folder: Path
    sizes: tuple[int, ...]
    stamps: tuple[int, ...]
    checked: Checked

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(self.sizes)


class ModelStore:
    """The models under a folder, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, name: str) -> Stored | None:
        """The model's record; None when it is not here. Looks at no other file."""
        folder = self._folder(name)
        try:
            value = json.loads((folder / _RECORD).read_bytes())
            files = value["files"]
            spec = ModelSpec(
                name=str(value["name"]),
                kind="reranker" if value["kind"] == "reranker" else "embedder",
                repo=str(value["repo"]),
                revision=str(value["revision"]),
                file=str(value["file"]),
                files=tuple(ModelFile(str(f["path"]), str(f["sha256"])) for f in files),
                dim=int(value["dim"]),
                query=str(value["query"]),
                passage=str(value["passage"]),
                pooling=value["pooling"] if value["pooling"] in ("cls", "mean") else "library",
                license=str(value.get("license", "")),
                extra=tuple(str(path) for path in value.get("extra", [])),
            )
            sizes, stamps = tuple(int(f["size"]) for f in files), tuple(int(f["stamp"]) for f in files)
            checked: Checked = value["checked"] if value["checked"] in ("package", "hub") else "nothing"
            return Stored(spec, folder, sizes, stamps, checked)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def all(self) -> list[Stored]:
        """Every model that is here, by name."""
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return []
        found = [self.get(name.replace("--", "/", 1)) for name in names if not name.startswith(".")]
        return [stored for stored in found if stored is not None]

    def check(self, stored: Stored, *, whole: bool = False) -> None:
        """Compare a model's files with its record.

        A file that has its size and was not changed since it was last compared is taken for whole; with `whole`
        every byte is read.

        Raises:
            ModelBrokenError: One is missing or another.
        """
        for file, size, stamp in zip(stored.spec.files, stored.sizes, stored.stamps, strict=True):
            path = stored.folder / file.path
            try:
                stat = path.stat()
                sound = stat.st_size == size and (
                    (not whole and stat.st_mtime_ns == stamp) or sha256_of(path) == file.sha256
                )
            except OSError:
                raise _broken(stored.spec.name, f"{file.path} is missing") from None
            if not sound:
                raise _broken(stored.spec.name, f"{file.path} is damaged")

    def pull(self, spec: ModelSpec, source: Path | None = None, told: Told | None = None) -> Stored:
        """Bring a model here: from the Hub, or from a folder that holds its files. One that is here is replaced.

        Files that are here, undamaged and what the Hub has are not fetched again.

        Args:
            source: A folder with the files at their paths in the repository, or all side by side.
            told: Told how far the files are.

        Raises:
            FunesError: It cannot be had, in a sentence. What has come of it is kept for the next try.
        """
        private_folder(self.folder)
        with self._alone(spec.name):
            stage = self.folder / f".{_safe(spec.name)}.part"
            if source is not None:
                shutil.rmtree(stage, ignore_errors=True)
            private_folder(stage)
            try:
                if source is None:
                    self._offer(spec.name, stage)
                    spec, checked = _from_hub(spec, stage, told)
                else:
                    spec, checked = _from_folder(spec, source, stage, told)
            except OSError as error:
                raise FunesError(f"{spec.name} could not be stored: {error.strerror or error}") from error
            return self._install(_told_apart(spec, self.get(spec.name)), stage, checked)

    def remove(self, name: str) -> None:
        """Delete a model's files, and what an unfinished pull left of them."""
        shutil.rmtree(self._folder(name), ignore_errors=True)
        shutil.rmtree(self.folder / f".{_safe(name)}.part", ignore_errors=True)

    def _offer(self, name: str, stage: Path) -> None:
        """Put the undamaged files of the model that is here where a fetch looks for what it has already."""
        stored = self.get(name)
        for file in stored.spec.files if stored is not None else ():
            here, there = self._folder(name) / file.path, stage / file.path
            with suppress(OSError):  # where there are no links, the file is fetched
                if not there.exists() and sha256_of(here) == file.sha256:
                    private_folder(there.parent)
                    os.link(here, there)

    def _install(self, spec: ModelSpec, stage: Path, checked: Checked) -> Stored:
        for path in stage.rglob("*"):  # parts of an older revision, which nobody will go on with
            if path.is_file() and path.relative_to(stage).as_posix() not in {file.path for file in spec.files}:
                path.unlink()
        stats = [(stage / file.path).stat() for file in spec.files]
        files = [
            {"path": file.path, "sha256": file.sha256, "size": stat.st_size, "stamp": stat.st_mtime_ns}
            for file, stat in zip(spec.files, stats, strict=True)
        ]
        record = {
            "name": spec.name,
            "kind": spec.kind,
            "repo": spec.repo,
            "revision": spec.revision,
            "file": spec.file,
            "files": files,
            "dim": spec.dim,
            "query": spec.query,
            "passage": spec.passage,
            "pooling": spec.pooling,
            "license": spec.license,
            "extra": list(spec.extra),
            "checked": checked,
        }
        write_private(stage / _RECORD, json.dumps(record, indent=1).encode())
        folder = self._folder(spec.name)
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.rename(folder, old)
        os.rename(stage, folder)
        shutil.rmtree(old, ignore_errors=True)
        stored = self.get(spec.name)
        assert stored is not None
        return stored

    def _folder(self, name: str) -> Path:
        return self.folder / _safe(name)

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """One pull of a model at a time; the lock ends with the process."""
        try:
            import fcntl
        except ImportError:  # Windows: two pulls at once waste a download
            yield
            return
        descriptor = os.open(self.folder / f".{_safe(name)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise FunesError(f"{name} is being fetched by another process.", "Wait for it.") from None
        try:
            yield
        finally:
            os.close(descriptor)


def _from_hub(spec: ModelSpec, stage: Path, told: Told | None) -> tuple[ModelSpec, Checked]:
    """Fetch all files of one commit."""
    revision = spec.revision
    files: list[ModelFile] = []
    named = True
    for file in spec.files:
        try:
            got = fetch(
                spec.repo,
                file.path,
                revision,
                stage / file.path,
                None if told is None else lambda more, size, path=file.path: told(path, more, size),  # type: ignore[misc]
            )
        except HubFileMissingError:
            if file.needed:
                raise
            continue
        if file.sha256 and got.sha256 != file.sha256:
            (stage / file.path).unlink()
            raise ModelBrokenError(
                f"{file.path} of {spec.repo} is not the file that this release of funes was made for: "
                f"its SHA-256 is {got.sha256[:16]}…, not {file.sha256[:16]}…",
                "Nothing was changed. A newer release of funes may know it.",
            )
        revision = got.revision
        named = named and (bool(file.sha256) or got.verified)
        files.append(ModelFile(file.path, got.sha256))
    checked: Checked = "package" if spec.pinned else "hub" if named else "nothing"
    return replace(spec, revision=revision, files=tuple(files)), checked


def _from_folder(spec: ModelSpec, source: Path, stage: Path, told: Told | None) -> tuple[ModelSpec, Checked]:
    """Copy all files out of a folder."""
    if not source.is_dir():
        raise FunesError(f"There is no folder {source}.")
    files: list[ModelFile] = []
    for file in spec.files:
        found = _found(spec, source, file.path)
        if found is None:
            if file.needed:
                raise FunesError(
                    f"{source} has no {file.path} of {spec.name}.",
                    f"It is at {spec.repo}, revision {spec.revision}, on the Hub.",
                )
            continue
        private_folder((stage / file.path).parent)
        shutil.copyfile(found, stage / file.path)
        os.chmod(stage / file.path, 0o600)
        digest, size = sha256_of(stage / file.path), found.stat().st_size
        if file.sha256 and digest != file.sha256:
            raise ModelBrokenError(f"{found} is damaged or of another revision: its checksum is not {spec.name}'s.")
        if told is not None:
            told(file.path, size, size)
        files.append(ModelFile(file.path, digest))
    return replace(spec, files=tuple(files)), "package" if spec.pinned else "nothing"


def _told_apart(spec: ModelSpec, before: Stored | None) -> ModelSpec:
    """The model with a revision that other files would not have.

    A commit is one. The name of a branch is none, and files out of a folder may be of any commit, so a digest of
    them takes its place; but files that are here already keep the revision that memories were made with.
    """
    if _COMMIT.fullmatch(spec.revision):
        return spec
    if before is not None and before.spec.files == spec.files:
        return replace(spec, revision=before.spec.revision)
    lines = "".join(f"{file.sha256} {file.path}\n" for file in spec.files)
    return replace(spec, revision=f"files-{hashlib.sha256(lines.encode()).hexdigest()[:16]}")


def _found(spec: ModelSpec, source: Path, path: str) -> Path | None:
    """Where a file is in a folder that a person filled: at its path, beside the others, or in the Hub's cache."""
    roots = [source, source / spec.repo.split("/")[-1], source / _safe(spec.name), source / _safe(spec.repo)]
    cache = source / f"models--{spec.repo.replace('/', '--')}" / "snapshots"
    with suppress(OSError):
        roots.extend(sorted(cache.iterdir(), key=lambda folder: folder.name != spec.revision))
    for root in roots:
        for candidate in (root / path, root / Path(path).name):
            if candidate.is_file():
                return candidate
    return None


def _safe(name: str) -> str:
    parts = [part for part in name.strip().split("/") if part]
    if not parts or any(part.startswith(".") or "\\" in part or ":" in part or "\0" in part for part in parts):
        raise FunesError(f"{name!r} is no name of a model.", "Names look like BAAI/bge-small-en-v1.5.")
    return "--".join(parts)


def _broken(name: str, what: str) -> ModelBrokenError:
    return ModelBrokenError(f"The model {name} is broken: {what}.", f"`funes models pull {name}` brings it again.")
