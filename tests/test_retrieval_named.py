"""Questions with identifiers find the passages that hold these exactly, whatever else is like the question."""

from __future__ import annotations

import pytest
from memory_support import put, transcript

from funes_mcp.home import FunesHome
from funes_mcp.inference.static import StaticEmbedder
from funes_mcp.memory.model import Embedding
from funes_mcp.memory.writer import MemoryWriter
from funes_mcp.models import RecallRequest
from funes_mcp.service import IndexService

#: What holds each identifier. Everything else in the memory is about the same words.
HOLDS = {
    "is_repository_shallow": "if (is_repository_shallow(the_repository)) die(NULL);",
    "RepositoryShallowGuard": "class RepositoryShallowGuard { }",
    "E37839": "see docs E37839 for more",
    "--if-present": "npm run build --if-present",
    "--shallow": "git fetch --shallow origin",
    "src/shallow/repository.c": "M src/shallow/repository.c",
    "shallow.repository.file": "git config shallow.repository.file",
    "9fceb02d": "9fceb02d fetch less",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> IndexService:
    home = FunesHome(tmp_path_factory.mktemp("home"))
    files = []
    for number in range(20):
        said = transcript(f"s-{number}", number)
        for at in range(6):
            said.say(
                f"u{number}-{at}",
                f"The repository is shallow when depth {number} is given: is the shallow repository file present, "
                f"and what did we find out about shallow repositories in build {at}? Run the fetch, guard the file.",
            )
        files.append(said)
    outputs = transcript("s-tools", 60)
    for number, text in enumerate(HOLDS.values()):
        outputs.say(f"t{number}", "output\n" * 40 + text, kind="tool_result", role="tool")
    embedder = StaticEmbedder()
    with MemoryWriter.open(home.memory, Embedding(embedder.name, embedder.dim)) as writer:
        for file in (*files, outputs):
            put(writer, file)
        writer.commit(embedder.embed_passages)
    return IndexService(home, {"HOME": str(home.root)})


@pytest.mark.parametrize("question", ["{}", "what did we find out about {}?", "where is {} in the shallow repository"])
@pytest.mark.parametrize("name", HOLDS)
def test_what_holds_an_identifier_comes_first(service: IndexService, name: str, question: str) -> None:
    hits = service.recall(RecallRequest(question.format(name))).hits
    assert HOLDS[name] in hits[0].chunk.text
    assert hits[0].relevance >= 0.9


def test_a_question_without_identifiers_is_answered_by_what_was_said(service: IndexService) -> None:
    hits = service.recall(RecallRequest("when is the repository shallow")).hits
    assert all(hit.chunk.block_type == "text" for hit in hits[:5])


def test_filters_hold_for_identifiers_too(service: IndexService) -> None:
    hits = service.recall(RecallRequest("is_repository_shallow", block_type="text")).hits
    assert all(hit.chunk.block_type == "text" for hit in hits)
