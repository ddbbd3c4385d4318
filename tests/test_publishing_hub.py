"""Publishing through the whole transport: the Hub refuses, breaks off or is overtaken at every stage."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hub_server import LoopbackHub
from memory_support import MODEL, Transcript, embed, put, transcript
from publishing_support import Answers, Finds
from rust_memory import COLUMNS, WIDTH, made_up_vectors, plant, rust_card, rust_rows
from rust_memory import MODEL as SMALL

from funes_mcp.hub.datasets import DatasetRepo
from funes_mcp.hub.errors import HubError
from funes_mcp.inference.protocols import Embedder
from funes_mcp.memory.label import HubName
from funes_mcp.memory.model import Embedding, Filter
from funes_mcp.memory.remote import Mirror, folder_of
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.models import PushReport, PushRequest
from funes_mcp.publishing.push import Publisher

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = HubName("acme/memory")
REPO = NAME.repo


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with LoopbackHub() as hub:
        hub.settle(monkeypatch, tmp_path)
        yield hub


class Small:
    """Stands for bge-small."""

    name, dim, texts = SMALL, WIDTH, 0

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += len(texts)
        return made_up_vectors(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return made_up_vectors([text])[0]


class Machine:
    """A machine with a memory; the cache of fetched files is shared by all that are in one test."""

    def __init__(self, root: Path, models: dict[str, Embedder] | None = None) -> None:
        self.root = root
        self.models = models or {}

    def store(self, *files: Transcript) -> None:
        with MemoryWriter.open(self.root / "memory", MODEL) as writer:
            for file in files:
                put(writer, file)
            writer.commit(embed)

    def push(self) -> PushReport:
        def embedder_for(stamp: Embedding) -> tuple[Embedder | None, str]:
            found = self.models.get(stamp.model)
            return found, "" if found is not None else f"{stamp.model} is not here"

        publisher = Publisher(
            self.root / "memory",
            folder_of(self.root, NAME),
            NAME,
            DatasetRepo(REPO),
            Mirror(self.root, NAME),
            Finds(),
            embedder_for,
            pause=lambda seconds: None,
        )
        return publisher.push(PushRequest(NAME.label), Answers(True))


def session(name: str, turns: int = 4) -> Transcript:
    file = transcript(name)
    for i in range(turns):
        file.say(f"{name}-{i}", f"Turn {i} of {name}: the offsets are in UTC.")
    return file


def published(hub: LoopbackHub, folder: Path) -> list[str]:
    """The ids that whoever reads the published memory finds now; none when there is no table."""
    import lancedb

    if REPO not in hub.repos or not any(path.startswith("chunks.lance/") for path in hub.repos[REPO].files):
        return []
    table = lancedb.connect(str(hub.written(REPO, folder))).open_table("chunks")
    return sorted(map(str, table.to_arrow()["id"].to_pylist()))


def test_a_hub_that_refuses_anywhere_has_the_memory_whole(hub: LoopbackHub, tmp_path: Path) -> None:
    ann, bob = Machine(tmp_path / "ann"), Machine(tmp_path / "bob")
    ann.store(session("one"))
    bob.store(session("two"))
    hows = cycle(("cut", 429, 503))
    for stage in ("create", "yaml", "preupload", "batch", "upload", "verify", "commit"):
        hub.fail(stage, next(hows), 1000)
        with pytest.raises(HubError):
            ann.push()
        hub.calm()
        assert published(hub, tmp_path / "x") == [], stage
    assert ann.push().sent == 4
    shutil.rmtree(tmp_path / "hf")  # bob has not got what ann published
    for stage in ("info", "tree", "resolve", "content", "upload", "commit"):
        hub.fail(stage, next(hows), 1000)
        with pytest.raises(HubError):
            bob.push()
        hub.calm()
        assert len(published(hub, tmp_path / f"bob-{stage}")) == 4, stage
    assert bob.push().sent == 4
    found = published(hub, tmp_path / "end")
    assert (len(found), len(set(found))) == (8, 8)
    assert ann.push().sent == 0


def test_one_who_is_overtaken_or_not_answered_sends_everything_once(hub: LoopbackHub, tmp_path: Path) -> None:
    ann, bob = Machine(tmp_path / "ann"), Machine(tmp_path / "bob")
    ann.store(session("one"))
    hub.fail("landed", "cut")
    report = ann.push()
    assert (report.sent, report.attempts, hub.count("commit")) == (4, 2, 1)
    ann.store(session("three"))
    bob.store(session("two"))
    hub.before_commit = lambda _: overtaken(hub, ann)
    hub.fail("landed", 502)
    report = bob.push()
    assert (report.sent, report.commit) == (4, hub.repos[REPO].head().id)
    found = published(hub, tmp_path / "end")
    assert (len(found), len(set(found))) == (12, 12)
    messages = [commit.message for commit in hub.repos[REPO].history()]
    assert messages == [*["Add 4 passages of 1 session"] * 3, "initial commit"]


def overtaken(hub: LoopbackHub, other: Machine) -> None:
    hub.before_commit = None
    other.push()


# Another program's memory


def test_a_memory_of_the_other_program_is_added_to_and_stays_its_own(hub: LoopbackHub, tmp_path: Path) -> None:
    import lancedb

    rows = rust_rows(264)
    before = plant(hub, REPO, tmp_path / "built", rows)
    ann = Machine(tmp_path / "ann", {SMALL: Small()})
    ann.store(session("one"))
    report = ann.push()
    assert (report.sent, report.embedded) == (4, 4)
    after = hub.repos[REPO].head()
    assert after.parent == before.id
    assert set(before.tree) <= set(after.tree), "nothing of it is taken away"
    assert all(after.tree[path] == blob for path, blob in before.tree.items() if path != "README.md")
    card = after.tree["README.md"].data
    assert card.startswith(rust_card(REPO, 264).split(b"<!-- funes:stats -->")[0])
    assert card.endswith(b"After the numbers.\n")
    assert b"268" in card
    table = lancedb.connect(str(hub.written(REPO, tmp_path / "copy"))).open_table("chunks")
    assert tuple(table.schema.names) == COLUMNS
    assert table.schema.metadata == {b"embedding_model": SMALL.encode()}
    assert sorted(index.name for index in table.list_indices()) == ["text_idx", "vector_idx"]
    # What it searches with: its indexes for what they cover, and row by row what is new.
    text = "Turn 2 of one: the offsets are in UTC."
    near = table.search(made_up_vectors([text])[0], vector_column_name="vector").limit(1).to_list()[0]
    assert (near["text"], near["session_id"], near["harness"]) == (text, "one", "claude_code")
    assert table.search("palette", query_type="fts").limit(1).to_list()
    assert len({row for row in table.to_arrow()["id"].to_pylist()}) == 268
    # And the other way about: its passages are read here beside ours.
    mirror = Mirror(tmp_path / "bob", NAME)
    mirror.fetch()
    mirror.index()
    reader = mirror.reader()
    assert (reader.chunks, reader.embedding) == (268, Embedding(SMALL, WIDTH))
    found = {chunk.text for chunk in reader.rows([hit.key for hit in reader.lexical("offsets UTC", Filter(), 300)])}
    assert {text, rows[1].text} <= found
    reader.close()


@pytest.mark.parametrize("without", [("repo",), ("repo", "harness")])
def test_an_older_memory_of_the_other_program_is_added_to(
    hub: LoopbackHub, tmp_path: Path, without: tuple[str, ...]
) -> None:
    import lancedb

    plant(hub, REPO, tmp_path / "built", fragments=1, indexes=False, without=without)
    ann = Machine(tmp_path / "ann", {SMALL: Small()})
    ann.store(session("one"))
    assert ann.push().sent == 4
    table = lancedb.connect(str(hub.written(REPO, tmp_path / "copy"))).open_table("chunks")
    assert table.schema.names == [name for name in COLUMNS if name not in without]
    assert len(set(table.to_arrow()["id"].to_pylist())) == 16
    assert ann.push().sent == 0
