"""What a memory says of itself as a whole.

Which model made its vectors, which version of its table everything beside the table belongs to, and whether something
is still to be erased from its files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from funes_mcp.errors import ModelMismatchError
from funes_mcp.memory.catalog import Catalog
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.table import ChunkTable, table_path, table_version

#: The fact in the catalog that says which table version everything else belongs to.
STAMP: Final = "table_version"

#: The facts that say which model made the vectors, and at which revision.
MODEL: Final = "model"
REVISION: Final = "model_revision"

#: The fact that says that what was removed is still in files of the memory.
ERASE: Final = "to_erase"


def put_stamp(catalog: Catalog, table: ChunkTable) -> None:
    """Say in the catalog that it and the indexes belong to the table as it is now, and its model."""
    catalog.put(STAMP, str(table.version))
    catalog.put(MODEL, json.dumps([table.embedding.model, table.embedding.width]))


def check_model(catalog: Catalog, folder: Path, embedding: Embedding) -> None:
    """Raises `ModelMismatchError` when the memory in `folder` is stamped with another model."""
    known = _told(catalog, table_version(table_path(folder)))
    if known is not None and known != embedding:
        raise ModelMismatchError(
            f"This memory's vectors were made by {known.model}, not by {embedding.model}.",
            "See `funes models`.",
        )


def stamp_of(folder: Path) -> Embedding | None:
    """Which model made the vectors of the memory in `folder`; None when there is no memory.

    Asks the catalog, and the table only where that is behind. Raises `MemoryDamagedError`.
    """
    version = table_version(table_path(folder))
    if version is None:
        return None
    catalog = Catalog.found(folder)
    if catalog is not None:
        try:
            known = _told(catalog, version)
            if known is not None:
                return known
        finally:
            catalog.close()
    return ChunkTable.open(folder).embedding


def _told(catalog: Catalog, version: int | None) -> Embedding | None:
    """What the catalog says of a table at this version; None when it is behind.

    Then the table decides: a writer may have been killed between its stamp and the catalog's.
    """
    model = catalog.get(MODEL)
    if model is None or catalog.get(STAMP) != str(version):
        return None
    name, width = json.loads(model)
    return Embedding(str(name), int(width))


def erasure_waits(folder: Path) -> bool:
    """Whether files of the memory in `folder` still hold what was removed from it."""
    catalog = Catalog.found(folder)
    if catalog is None:
        return False
    try:
        return catalog.get(ERASE) is not None
    finally:
        catalog.close()
