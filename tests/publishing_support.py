"""A dataset that is a folder, for tests of publishing that need no Hub, and small memories to publish."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memory_support import MODEL, Transcript, embed, put

from funes_mcp.hub.datasets import RepoFile, RepoHead
from funes_mcp.hub.errors import HubConflictError, HubRepoMissingError, HubUnreachableError
from funes_mcp.inference.protocols import Embedder
from funes_mcp.memory.label import HubName
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.publishing.plan import Selection
from funes_mcp.publishing.push import Publisher, Silent
from funes_mcp.redaction.model import Finding

if TYPE_CHECKING:
    from funes_mcp.memory.remote import Step

NAME = HubName("ann/memory")


@dataclass
class Dataset:
    """A dataset as its commits; each is all files by path. No commit: there is no such dataset."""

    commits: list[dict[str, bytes]] = field(default_factory=list)
    private: bool = True
    before_commit: list[Callable[[], None]] = field(default_factory=list)
    lose_answer: int = 0
    drop_commit: int = 0
    messages: list[str] = field(default_factory=list)

    def id(self, number: int) -> str:
        return hashlib.sha1(str(number).encode()).hexdigest()

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[-1]


@dataclass(frozen=True)
class Found:
    commit: str
    table: Path | None
    files: tuple[RepoFile, ...]
    private: bool


@dataclass
class FakeRepo:
    """See `hub.datasets.DatasetRepo`."""

    data: Dataset

    def head(self, patience: float = 10.0) -> RepoHead:
        if not self.data.commits:
            raise HubRepoMissingError("There is no ann/memory.")
        return RepoHead(self.data.id(len(self.data.commits)), self.data.private)

    def may_write(self) -> bool:
        return True

    def read(self, commit: str, path: str, most: int) -> bytes | None:
        return self.data.files.get(path)

    def create(self, *, private: bool) -> None:
        assert private
        if self.data.commits:
            raise HubConflictError("ann/memory exists meanwhile.")
        self.data.commits.append({".gitattributes": b""})

    def commit(
        self,
        parent: str | None,
        add: Mapping[str, Path | bytes],
        delete: Sequence[str],
        message: str,
        told: Callable[[int, int], None] | None = None,
    ) -> str:
        if self.data.before_commit:
            self.data.before_commit.pop(0)()
        if parent != self.head().commit:
            raise HubConflictError("ann/memory has changed meanwhile.")
        if self.data.drop_commit:
            self.data.drop_commit -= 1
            raise HubUnreachableError("The connection broke off.", uncertain=True)
        files = dict(self.data.files)
        for path in delete:
            del files[path]
        for path, content in add.items():
            files[path] = content if isinstance(content, bytes) else content.read_bytes()
        self.data.commits.append(files)
        self.data.messages.append(message)
        if self.data.lose_answer:
            self.data.lose_answer -= 1
            raise HubUnreachableError("The connection broke off.", uncertain=True)
        return self.head().commit


@dataclass
class FakeMirror:
    """See `memory.remote.Mirror`: the newest manifest, and no indexes unless they are asked for."""

    data: Dataset
    folder: Path

    def alone(self) -> nullcontext[None]:
        return nullcontext()

    def fetch(
        self, told: Callable[[Step], None] | None = None, *, patience: float = 10.0, indexes: bool = False
    ) -> Found:
        number = len(self.data.commits)
        if not number:
            raise HubRepoMissingError("There is no ann/memory.")
        files = self.data.files
        root = self.folder / f"at-{number}-{indexes}"
        manifests = sorted(path for path in files if path.startswith("chunks.lance/_versions/") and "hint" not in path)
        for path, content in files.items():
            wanted = path.startswith(("chunks.lance/data/", "chunks.lance/_deletions/")) or path in manifests[:1]
            if wanted or (indexes and path.startswith("chunks.lance/_indices/")):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
        listed = tuple(RepoFile(p, len(c), "0" * 40) for p, c in files.items() if p.startswith("chunks.lance/"))
        return Found(self.data.id(number), root if manifests else None, listed, self.data.private)


class Finds:
    """A search that finds the word `hunter2`, and can be made to fail."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.failure: Exception | None = None

    def scan(self, text: str, *, timeout: float | None = None) -> list[Finding]:
        if self.failure is not None:
            raise self.failure
        self.texts.append(text)
        at = text.find("hunter2")
        return [Finding("password", at, at + 7, "test")] if at >= 0 else []


class Answers(Silent):
    """Somebody who gives the same answer to every question."""

    def __init__(self, answer: bool | None = True) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[str] = []

    def agrees(self, question: str) -> bool | None:
        self.asked.append(question)
        return self.answer


@dataclass
class Machine:
    """A machine with a memory, and what publishes it to a dataset."""

    root: Path
    data: Dataset
    finds: Finds = field(default_factory=Finds)
    models: dict[str, Embedder] = field(default_factory=dict)
    selection: Selection | None = None
    waits: list[float] = field(default_factory=list)

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def folder(self) -> Path:
        return self.root / "remotes" / NAME.slug

    def store(self, *files: Transcript, filled: bool = True, model: Embedding = MODEL) -> None:
        with MemoryWriter.open(self.memory, model) as writer:
            for file in files:
                put(writer, file)
            writer.commit(embed if filled else None)

    def publisher(self) -> Publisher:
        def embedder_for(stamp: Embedding) -> tuple[Embedder | None, str]:
            found = self.models.get(stamp.model)
            return (found, "") if found is not None else (None, f"{stamp.model} is not here")

        return Publisher(
            self.memory,
            self.folder,
            NAME,
            FakeRepo(self.data),
            FakeMirror(self.data, self.root / "mirror"),
            self.finds,
            embedder_for,
            selection=self.selection,
            pause=self.waits.append,
        )


def table_at(data: Dataset, folder: Path, number: int = -1) -> Path:
    """A commit's table written to a folder, all files as they are in the repository. Returns that folder."""
    for path, content in data.commits[number].items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder
