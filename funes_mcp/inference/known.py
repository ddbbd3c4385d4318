"""The models that funes knows by heart: where they are, at which revision, with which checksums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["embedder", "reranker"]
Pooling = Literal["cls", "mean", "library"]

#: What a BERT tokenizer needs beside the graph. Files that some repositories lack are not needed.
TOKENIZER: Final = ("tokenizer.json", "tokenizer_config.json")
EXTRAS: Final = ("config.json", "special_tokens_map.json")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of a model.

    Attributes:
        sha256: What it must be; "" when that is not known here and the Hub's own checksum has to do.
        needed: Whether the model is of no use without it.
    """

    path: str
    sha256: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Where a model is and how it is used.

    Attributes:
        name: What people type, and the stamp of a memory's vectors.
        repo, revision: On the Hub. A revision that is no commit is resolved when the model is fetched.
        file: The ONNX graph, among `files`.
        dim: Width of an embedder's vectors; 0 for a reranker.
        query, passage: Put before a question, and before a stored passage.
        pooling: How token vectors become one; `library` leaves that to fastembed, which knows the model.
        megabytes: Size of the download, for the person who is asked.
    """

    name: str
    kind: Kind
    repo: str
    revision: str
    file: str
    files: tuple[ModelFile, ...]
    dim: int = 0
    query: str = ""
    passage: str = ""
    pooling: Pooling = "library"
    megabytes: float = 0.0
    license: str = ""
    extra: tuple[str, ...] = field(default=())

    @property
    def pinned(self) -> bool:
        """Whether the revision and the graph's checksum are known beforehand."""
        return any(file.path == self.file and file.sha256 for file in self.files)


EMBEDDER: Final = "BAAI/bge-small-en-v1.5"
RERANKER: Final = "Xenova/ms-marco-MiniLM-L-6-v2"

#: BAAI's instruction for questions; passages get none (model card of bge-small-en-v1.5).
_BGE_QUERY: Final = "Represent this sentence for searching relevant passages: "

#: Revisions and checksums as published by projects that ship these files; the Hub's own checksums are compared, too.
KNOWN: Final = (
    ModelSpec(
        name=EMBEDDER,
        kind="embedder",
        repo="Qdrant/bge-small-en-v1.5-onnx-Q",
        revision="52398278842ec682c6f32300af41344b1c0b0bb2",
        file="model_optimized.onnx",
        files=(
            ModelFile("config.json", "13582bcf2effc85b7bf3d3f5532e686bc1c9ce86bb009d10f0ec33cbe92299dd"),
            ModelFile("special_tokens_map.json", "5d5b662e421ea9fac075174bb0688ee0d9431699900b90662acd44b2a350503a"),
            ModelFile("tokenizer_config.json", "0b29c7bfc889e53b36d9dd3e686dd4300f6525110eaa98c76a5dafceb2029f53"),
            ModelFile("tokenizer.json", "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"),
            ModelFile("model_optimized.onnx", "51f1bd0addd6e859e42c2c8021a5e5461385bb676a649f4b269aa445449f2431"),
        ),
        dim=384,
        query=_BGE_QUERY,
        pooling="cls",
        megabytes=67,
        license="MIT",
    ),
    ModelSpec(
        name=RERANKER,
        kind="reranker",
        repo="Xenova/ms-marco-MiniLM-L-6-v2",
        revision="a09144355adeed5f58c8ed011d209bf8ee5a1fec",
        file="onnx/model.onnx",
        files=(
            ModelFile("config.json", "d827779a72d27ae68cf878a6fc2e954542663fe21ca515d9f4783fc96be2d37e"),
            ModelFile("special_tokens_map.json", needed=False),
            ModelFile("tokenizer_config.json", "0b29c7bfc889e53b36d9dd3e686dd4300f6525110eaa98c76a5dafceb2029f53"),
            ModelFile("tokenizer.json", "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"),
            ModelFile("onnx/model.onnx", "c623d0bcb99f4622beb413eaef00cfbe5db20df9f1dd982da4b4f26022881870"),
        ),
        megabytes=91,
        license="Apache-2.0",
    ),
)


def known(name: str, specs: Iterable[ModelSpec] = KNOWN) -> ModelSpec | None:
    """The model of that name, in whatever case it was typed."""
    wanted = name.strip().lower()
    return next((spec for spec in specs if spec.name.lower() == wanted), None)


def usual_files(graph: str, extra: Iterable[str] = ()) -> tuple[ModelFile, ...]:
    """The files of a model of which only the graph's path is known."""
    return (
        *(ModelFile(path, needed=False) for path in EXTRAS),
        *(ModelFile(path) for path in TOKENIZER),
        *(ModelFile(path) for path in extra),
        ModelFile(graph),
    )


def prefixes(name: str) -> tuple[str, str]:
    """What stands before a question and before a passage, by the model cards of the families that want it."""
    lower = name.lower()
    if "bge" in lower and "-en" in lower:
        return _BGE_QUERY, ""
    if "arctic-embed" in lower or "mxbai-embed" in lower:
        return _BGE_QUERY, ""
    if "e5" in lower.split("/")[-1].split("-"):
        return "query: ", "passage: "
    if "nomic-embed" in lower:
        return "search_query: ", "search_document: "
    return "", ""
