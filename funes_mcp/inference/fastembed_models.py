"""ONNX models through fastembed: a deeper embedder, and a cross-encoder. The one place that imports either library.

Nothing is imported before a model is used, and a model is only ever read from the folder it is stored in: loading
one never goes to the network. Both libraries are large (about a second to import).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from funes_mcp.inference.known import ModelSpec, prefixes, usual_files
from funes_mcp.inference.protocols import Reranker
from funes_mcp.inference.store import ModelBrokenError, ModelStore, Stored
from funes_mcp.inference.words import tokens

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Of a passage so many characters are looked at: more than 512 tokens in any language.
_MAX_CHARS: Final = 4_096

#: Characters of a batch, padding included, and texts in it: keeps what the attention needs below 100 MB.
_BATCH_CHARS: Final = 16_384
_BATCH: Final = 32

#: Tokens that the cross-encoder reads for one question, all pairs together; see docs/models.md for what they cost.
TOKEN_BUDGET: Final = 1_280

#: Characters of the part of a passage that is read, and how far apart the parts that are compared begin.
WINDOW_CHARS: Final = 420
_STRIDE: Final = 210
_QUERY_CHARS: Final = 480

#: The first stage is certain when its first passage has all the question's words and no other comes near.
CERTAIN: Final = 0.97
MARGIN: Final = 0.12

#: Logits are divided by this before they become a share: MS MARCO cross-encoders answer between -11 and 11, and a
#: plain sigmoid would make everything that is not plainly an answer the same.
TEMPERATURE: Final = 3.0


def threads() -> int:
    """How many threads a model may use: two, and one on a machine with a single core."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    return max(1, min(2, cores))


class FastEmbedEmbedder:
    """`Embedder` on a stored model. Safe to share between threads; nothing is loaded before first use or `load`.

    Args:
        workers: Threads of the model; by default `threads()`.
    """

    def __init__(self, store: ModelStore, stored: Stored, workers: int | None = None) -> None:
        self._store = store
        self._stored = stored
        self._workers = workers
        self._lock = threading.Lock()
        self._model: Any = None

    @property
    def name(self) -> str:
        """Stamp of the vectors."""
        return self._stored.spec.name

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self._stored.spec.dim

    @property
    def revision(self) -> str:
        """The commit that the model was taken from."""
        return self._stored.spec.revision

    def load(self) -> None:
        """Load the model and try it.

        Raises:
            ModelBrokenError: Its files are damaged, or it gives vectors of another width.
        """
        with self._lock:
            self._loaded()

    def embed_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See `Embedder.embed_passages`. Of a text the first 512 tokens count. Texts of a batch are padded to the
        longest, which changes a vector by no more than rounding."""
        prefix = self._stored.spec.passage
        return self._embed([prefix + text if prefix else text for text in texts], [bool(tokens(t)) for t in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """See `Embedder.embed_query`; the instruction that the model wants before a question is put there."""
        row: NDArray[np.float32] = self._embed([self._stored.spec.query + text], [bool(tokens(text))])[0]
        return row

    def _embed(self, texts: Sequence[str], worded: Sequence[bool]) -> NDArray[np.float32]:
        import numpy as np

        out = np.zeros((len(texts), self.dim), np.float32)
        clean = [_clean(text) for text in texts]
        order = sorted((i for i, has in enumerate(worded) if has), key=lambda i: len(clean[i]))
        with self._lock:
            model = self._loaded()
            for group in _batches(order, [len(text) for text in clean]):
                out[group] = _vectors(model, [clean[i] for i in group])
        norms = np.linalg.norm(out, axis=1, keepdims=True)
        sound = np.isfinite(norms) & (norms > 0)
        return np.where(sound, out / np.where(sound, norms, 1), 0).astype(np.float32)

    def _loaded(self) -> Any:
        if self._model is None:
            self._store.check(self._stored)
            spec = self._stored.spec
            try:
                model = _text_embedding(self._stored, self._workers or threads())
                width = _vectors(model, ["a passage"]).shape[1]
            except Exception as error:
                raise _unusable(spec.name, error) from error
            if width != spec.dim:
                raise ModelBrokenError(
                    f"The model {spec.name} gives vectors of {width} numbers, not of {spec.dim}.",
                    f"`funes models pull {spec.name}` brings the right one.",
                )
            self._model = model
        return self._model


class CrossEncoderReranker:
    """`Reranker` that reads the question and a part of a passage together. Safe to share between threads.

    Reading everything would take seconds, so a first reranker, which is cheap, says which passages are worth it and
    which part of each: the part in which it finds most of the question. Passages are expected in the order of the
    search so far, best first. When both agree beyond doubt on the first one, nothing is read.

    Args:
        first: Decides what is read, and stands in for what is not.
        budget: Tokens to read for one question.
    """

    def __init__(
        self,
        store: ModelStore,
        stored: Stored,
        first: Reranker,
        budget: int = TOKEN_BUDGET,
        workers: int | None = None,
    ) -> None:
        self._store = store
        self._stored = stored
        self._first = first
        self._budget = budget
        self._workers = workers
        self._lock = threading.Lock()
        self._model: Any = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self._stored.spec.name

    def load(self) -> None:
        """Load the model and try it. Raises `ModelBrokenError` when its files are damaged."""
        with self._lock:
            self._loaded()

    def scores(self, query: str, passages: Sequence[str]) -> NDArray[np.float32]:
        """See `Reranker.scores`: in [0, 1]. Passages that were not read come after all that were, in the first
        reranker's order; when nothing needs to be read the scores are the first reranker's."""
        import numpy as np

        first = self._first.scores(query, passages)
        if len(passages) < 2 or not tokens(query) or is_certain(first):
            return first
        asked = _clean(query[:_QUERY_CHARS])
        with self._lock:
            model = self._loaded()
            places, pairs = self._chosen(model, asked, query, passages, first)
            read = np.array(_logits(model, pairs), np.float32)
        if not np.isfinite(read).all():
            return first
        shares = (1.0 / (1.0 + np.exp(-np.clip(read / TEMPERATURE, -30, 30)))).astype(np.float32)
        out = np.clip(first, 0, 1) * shares.min()
        out[places] = shares
        return np.asarray(out, np.float32)

    def _chosen(
        self, model: Any, asked: str, query: str, passages: Sequence[str], first: NDArray[np.float32]
    ) -> tuple[list[int], list[tuple[str, str]]]:
        """The passages to read, and of each the part to read, within the budget; at least one."""
        places: list[int] = []
        pairs: list[tuple[str, str]] = []
        left = self._budget
        for group in _groups(reading_order(first), 8):
            parts = self._parts(query, [passages[place] for place in group])
            for place, part in zip(group, parts, strict=True):
                pair = (asked, _clean(part))
                left -= int(model.token_count([pair]))
                if left < 0 and places:
                    return places, pairs
                places.append(place)
                pairs.append(pair)
        return places, pairs

    def _parts(self, query: str, passages: Sequence[str]) -> list[str]:
        """Of each passage the window in which the first reranker finds most of the question."""
        cut = [windows(passage[:_MAX_CHARS]) for passage in passages]
        scores = self._first.scores(query, [part for parts in cut for part in parts])
        best = []
        start = 0
        for parts in cut:
            own = scores[start : start + len(parts)]
            best.append(parts[int(own.argmax())])
            start += len(parts)
        return best

    def _loaded(self) -> Any:
        if self._model is None:
            self._store.check(self._stored)
            try:
                model = _text_cross_encoder(self._stored, self._workers or threads())
                _logits(model, [("a question", "a passage")])
            except Exception as error:
                raise _unusable(self.name, error) from error
            self._model = model
        return self._model


def is_certain(first: NDArray[np.float32]) -> bool:
    """Whether scores leave no doubt that the first passage is the best one."""
    return len(first) > 1 and bool(first[0] >= CERTAIN and first[0] - first[1:].max() >= MARGIN)


def reading_order(first: NDArray[np.float32]) -> list[int]:
    """Places in the order in which they are worth reading: by their place and by their rank in `first` together."""
    import numpy as np

    ranks = np.empty(len(first), np.intp)
    ranks[np.argsort(-first, kind="stable")] = np.arange(len(first))
    return np.argsort(ranks + np.arange(len(first)), kind="stable").tolist()  # type: ignore[no-any-return]


def windows(text: str, size: int = WINDOW_CHARS, stride: int = _STRIDE) -> list[str]:
    """Overlapping parts of a text, beginning and ending where words do; the text itself when it is short.

    Together they cover the text.
    """
    if len(text) <= size + stride // 2:
        return [text]
    parts = []
    start = 0
    while True:
        end = min(start + size, len(text))
        if end < len(text):
            gap = max(text.rfind(" ", start + size // 2, end), text.rfind("\n", start + size // 2, end))
            end = gap if gap > 0 else end
        parts.append(text[start:end])
        if end == len(text):
            return parts
        following = min(start + stride, end)
        gap = text.find(" ", following, end)
        start = gap + 1 if gap >= 0 else following


def described(name: str) -> ModelSpec | None:
    """A model that fastembed knows, embedder or cross-encoder, at whatever revision the Hub has now."""
    from fastembed import TextEmbedding
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    wanted = name.strip().lower()
    for kind, listed in (("embedder", TextEmbedding), ("reranker", TextCrossEncoder)):
        for about in listed.list_supported_models():
            if str(about["model"]).lower() == wanted and about["sources"].get("hf"):
                full = str(about["model"])
                query, passage = prefixes(full) if kind == "embedder" else ("", "")
                extra = tuple(str(path) for path in about.get("additional_files") or ())
                return ModelSpec(
                    name=full,
                    kind="embedder" if kind == "embedder" else "reranker",
                    repo=str(about["sources"]["hf"]),
                    revision="main",
                    file=str(about["model_file"]),
                    files=usual_files(str(about["model_file"]), extra),
                    dim=int(about.get("dim") or 0),
                    query=query,
                    passage=passage,
                    megabytes=1000 * float(about.get("size_in_GB") or 0),
                    license=str(about.get("license") or ""),
                    extra=extra,
                )
    return None


def _vectors(model: Any, texts: list[str]) -> NDArray[np.float32]:
    import numpy as np

    return np.asarray(list(model.embed(texts, batch_size=len(texts))), np.float32)


def _logits(model: Any, pairs: list[tuple[str, str]]) -> list[float]:
    """One number a pair. Pairs of like length are read together, so that little of what is read is padding."""
    order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][1]))
    out = [0.0] * len(pairs)
    for group in _groups(order, 8):
        for place, value in zip(group, model.rerank_pairs([pairs[i] for i in group], batch_size=8), strict=True):
            out[place] = float(value)
    return out


def _text_embedding(stored: Stored, workers: int) -> Any:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import PoolingType

    spec = stored.spec
    pooling = PoolingType.MEAN if spec.pooling == "mean" else PoolingType.CLS
    return _opened(TextEmbedding, stored, workers, pooling=pooling, normalization=True, dim=spec.dim)


def _text_cross_encoder(stored: Stored, workers: int) -> Any:
    from fastembed.rerank.cross_encoder import TextCrossEncoder

    return _opened(TextCrossEncoder, stored, workers)


def _opened(library: Any, stored: Stored, workers: int, **about: Any) -> Any:
    """The model, made known to fastembed first where that does not know it, or with another graph.

    Args:
        about: What fastembed wants to know of a model of this kind beside its files.
    """
    from fastembed.common.model_description import ModelSource

    spec = stored.spec
    name = spec.name
    if not _lists(library, spec):
        name = f"funes/{spec.name}@{spec.revision}"
        if not any(known["model"] == name for known in library.list_supported_models()):
            library.add_custom_model(
                model=name,
                sources=ModelSource(hf=spec.repo),
                model_file=spec.file,
                additional_files=list(spec.extra),
                **about,
            )
    return library(name, **_local(stored, workers))


def _lists(library: Any, spec: ModelSpec) -> bool:
    """Whether fastembed knows the model with the same graph; a later release may have moved on to another."""
    return any(
        about["model"] == spec.name and about["model_file"] == spec.file for about in library.list_supported_models()
    )


def _local(stored: Stored, workers: int) -> dict[str, Any]:
    """Arguments with which fastembed takes the files as they are and asks nobody."""
    _quiet()
    return {
        "cache_dir": str(stored.folder),
        "specific_model_path": str(stored.folder),
        "local_files_only": True,
        "threads": workers,
        "providers": ["CPUExecutionProvider"],
        "enable_cpu_mem_arena": False,
    }


def _quiet() -> None:
    """No telemetry (the runtime has some on Windows), and no word below a warning."""
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    onnxruntime.disable_telemetry_events()
    onnxruntime.set_default_logger_severity(3)


def _clean(text: str) -> str:
    """A text that a tokenizer takes: not too long, and without halves of characters."""
    return text[:_MAX_CHARS].encode("utf-8", "replace").decode()


def _batches(order: Iterable[int], lengths: Sequence[int]) -> Iterable[list[int]]:
    """Places in groups that are small enough when every text is padded to the longest, the last of a group."""
    group: list[int] = []
    for place in order:
        if group and (len(group) >= _BATCH or (len(group) + 1) * lengths[place] > _BATCH_CHARS):
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _groups(order: Sequence[int], size: int) -> Iterable[list[int]]:
    for start in range(0, len(order), size):
        yield list(order[start : start + size])


def _unusable(name: str, error: Exception) -> ModelBrokenError:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return ModelBrokenError(
        f"The model {name} cannot be loaded: {reason}", f"`funes models pull {name}` brings it again."
    )
