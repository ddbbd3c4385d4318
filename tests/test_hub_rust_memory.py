"""What another program publishes, as the tests plant it: the shape that reading and pushing are tested with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import LoopbackHub
from rust_memory import COLUMNS, MODEL, WIDTH, plant, rust_rows

from funes_mcp.memory.chunk import chunk_id


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub() as hub:
        hub.settle(monkeypatch, tmp_path)
        yield hub


def test_a_planted_memory_is_as_the_other_program_leaves_it(hub: LoopbackHub, tmp_path: Path) -> None:
    import lancedb
    import pyarrow as pa

    rows = rust_rows(264)
    head = plant(hub, "acme/rust", tmp_path / "built", rows)
    assert sum(path.startswith("chunks.lance/data/") for path in head.tree) == 3
    assert sum(path.startswith("chunks.lance/_versions/") for path in head.tree) > 5
    table = lancedb.connect(str(hub.written("acme/rust", tmp_path / "copy"))).open_table("chunks")
    assert tuple(table.schema.names) == COLUMNS
    assert table.schema.field("vector").type == pa.list_(pa.float32(), WIDTH)
    assert table.schema.metadata == {b"embedding_model": MODEL.encode()}
    assert sorted(index.name for index in table.list_indices()) == ["text_idx", "vector_idx"]
    found = table.to_arrow().select(["id", "text", "parent_uuid"]).to_pylist()
    assert [row["id"] for row in found] == [row.id for row in rows]
    assert rows[1].id == chunk_id(rows[1].session, rows[1].turn, 0, 0)
    assert len({row["text"] for row in found}) == len(rows)


def test_an_older_one_lacks_columns(hub: LoopbackHub, tmp_path: Path) -> None:
    import lancedb

    plant(hub, "acme/old", tmp_path / "built", fragments=1, indexes=False, without=("repo", "harness"))
    table = lancedb.connect(str(hub.written("acme/old", tmp_path / "copy"))).open_table("chunks")
    assert tuple(table.schema.names) == COLUMNS[:-2]
