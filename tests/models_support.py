"""Tiny models that load as the real ones do, and a Hub on the loopback that gives them out."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from funes_mcp.inference.known import ModelFile, ModelSpec

COMMIT = "0123456789abcdef0123456789abcdef01234567"
EMBEDDER = "tiny/embedder"
RERANKER = "tiny/cross-encoder"

_SAID = (
    "the cache was dropped because streaming parser splits quoted newlines across buffers tide tables hour off since "
    "summer time adds station offset local colour blind chart palette which did we settle on why how fix upload test "
    "flaky retry passage question error code decision deploy rollback database index vector"
)
WORDS = _SAID.split()
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def vocabulary() -> list[str]:
    """Special tokens, some words, and every letter, so that no word is unknown."""
    return [*_SPECIAL, *dict.fromkeys(WORDS), *_LETTERS, *(f"##{c}" for c in _LETTERS)]


def tokenizer_files() -> dict[str, bytes]:
    """A BERT tokenizer as transformers would save it."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    vocab = {token: i for i, token in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))  # type: ignore[call-arg]
    tokenizer.normalizer = normalizers.BertNormalizer()  # type: ignore[assignment]
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # type: ignore[assignment]
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))  # type: ignore[assignment]
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return {
        "tokenizer.json": tokenizer.to_str().encode(),
        "tokenizer_config.json": json.dumps({"model_max_length": 512, "pad_token": "[PAD]"}).encode(),
        "special_tokens_map.json": json.dumps(special).encode(),
        "config.json": json.dumps({"pad_token_id": 0, "hidden_size": 16}).encode(),
    }


def _table(dim: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((len(vocabulary()), dim)).astype(np.float32)
    table[:5] *= 0.05  # a text is about its words
    return table


def _inputs() -> list[Any]:
    from onnx import TensorProto, helper

    return [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]


def _saved(nodes: list[Any], output: Any, constants: dict[str, Any]) -> bytes:
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        nodes, "tiny", _inputs(), [output], [numpy_helper.from_array(value, name) for name, value in constants.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def embedder_graph(dim: int = 16, seed: int = 1) -> bytes:
    """Token vectors, of which each position's output is the mean: (batch, sequence, dim)."""
    from onnx import TensorProto, helper

    node = helper.make_node
    nodes = [
        node("Gather", ["table", "input_ids"], ["tokens"]),
        node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "two"], ["mask3"]),
        node("Mul", ["tokens", "mask3"], ["seen"]),
        node("ReduceSum", ["seen", "one"], ["sum"], keepdims=1),
        node("Mul", ["tokens", "zero"], ["nothing"]),
        node("Add", ["nothing", "sum"], ["last_hidden_state"]),
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", dim])
    constants = {
        "table": _table(dim, seed),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "zero": np.array(0, np.float32),
    }
    return _saved(nodes, output, constants)


def reranker_graph() -> bytes:
    """How many of a question's tokens a passage has, less four: (batch, 1)."""
    from onnx import TensorProto, helper

    node = helper.make_node
    nodes = [
        node("Gather", ["table", "input_ids"], ["tokens"]),
        node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        node("Cast", ["token_type_ids"], ["type"], to=TensorProto.FLOAT),
        node("Mul", ["type", "mask"], ["passage"]),
        node("Sub", ["mask", "passage"], ["question"]),
        node("Unsqueeze", ["passage", "two"], ["passage3"]),
        node("Unsqueeze", ["question", "two"], ["question3"]),
        node("Mul", ["tokens", "passage3"], ["p"]),
        node("Mul", ["tokens", "question3"], ["q"]),
        node("ReduceSum", ["p", "one"], ["ps"], keepdims=0),
        node("ReduceSum", ["q", "one"], ["qs"], keepdims=0),
        node("Mul", ["ps", "qs"], ["both"]),
        node("ReduceSum", ["both", "one"], ["dot"], keepdims=1),
        node("Mul", ["dot", "scale"], ["scaled"]),
        node("Sub", ["scaled", "shift"], ["logits"]),
    ]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
    constants = {
        "table": np.diag(np.arange(len(vocabulary())) >= len(_SPECIAL)).astype(np.float32),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "scale": np.array(1, np.float32),
        "shift": np.array(4, np.float32),
    }
    return _saved(nodes, output, constants)


def spec_of(
    name: str,
    kind: str,
    files: dict[str, bytes],
    graph: str,
    dim: int = 0,
    *,
    pinned: bool = True,
    revision: str = COMMIT,
) -> ModelSpec:
    """The entry that the package's table would have for such files."""
    return ModelSpec(
        name=name,
        kind="reranker" if kind == "reranker" else "embedder",
        repo=name,
        revision=revision,
        file=graph,
        files=tuple(ModelFile(p, hashlib.sha256(data).hexdigest() if pinned else "") for p, data in files.items()),
        dim=dim,
        query="why " if kind == "embedder" else "",
        pooling="cls",
        megabytes=0.1,
    )


def tiny_embedder(dim: int = 16, seed: int = 1) -> tuple[ModelSpec, dict[str, bytes]]:
    """An embedder's entry and files."""
    files = {**tokenizer_files(), "model.onnx": embedder_graph(dim, seed)}
    return spec_of(EMBEDDER, "embedder", files, "model.onnx", dim), files


def tiny_reranker() -> tuple[ModelSpec, dict[str, bytes]]:
    """A cross-encoder's entry and files."""
    files = {**tokenizer_files(), "onnx/model.onnx": reranker_graph()}
    return spec_of(RERANKER, "reranker", files, "onnx/model.onnx"), files


def written(files: dict[str, bytes], folder: Path) -> Path:
    """The files in a folder, as a person would carry them on a stick."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


@dataclass
class Hub:
    """A Hub with some repositories, whose large files lie at another host, as the real one's do.

    Attributes:
        repos: Files by repository.
        refuse: Status to answer with, by path of a file (or "" for all).
        cut: After how many bytes the connection is cut, by path: for each request the next number, then no more.
        asked: `(method, path, range)` of every request.
    """

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refuse: dict[str, int] = field(default_factory=dict)
    cut: dict[str, list[int]] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    commit: str = COMMIT

    def __enter__(self) -> Hub:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                hub._answer(self, body=False)

            def do_GET(self) -> None:
                hub._answer(self, body=True)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.port = self._server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def ranges(self, path: str) -> Sequence[str]:
        """The ranges that were asked for of a file's content, "" for all of it."""
        return [asked for method, at, asked in self.asked if method == "GET" and at.endswith(path)]

    def _answer(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = handler.path.split("?")[0]
        self.asked.append((handler.command, path, handler.headers.get("Range", "")))
        large = re.fullmatch(r"/large/(.+?)/at/(.+)", path)
        small = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        match = large or small
        repo, name = (match[1], match[match.re.groups]) if match else ("", "")
        status = self.refuse.get(name) or self.refuse.get("")
        if status is None and repo not in self.repos:
            status = 401  # as the Hub does, which does not say what is private
            code = "RepoNotFound"
        elif status is None and small and small[2] not in ("main", self.commit):
            status, code = 404, "RevisionNotFound"
        elif status is None and name not in self.repos[repo]:
            status, code = 404, "EntryNotFound"
        else:
            code = ""
        if status is not None:
            self._send(handler, status, {"X-Error-Code": code} if code else {}, b"", body)
            return
        data = self.repos[repo][name]
        if small and name.endswith(".onnx"):
            digest = hashlib.sha256(data).hexdigest()
            headers = {
                "Location": f"http://localhost:{self.port}/large/{repo}/at/{name}",
                "X-Linked-Etag": f'"{digest}"',
                "X-Linked-Size": str(len(data)),
                "X-Repo-Commit": self.commit,
            }
            self._send(handler, 302, headers, b"", body)
            return
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        headers = {"ETag": f'"{blob}"', "X-Repo-Commit": self.commit, "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        cut = self.cut.get(name, [])
        self._send(handler, 206 if wanted else 200, headers, data[start:], body, cut.pop(0) if body and cut else None)

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        data: bytes,
        body: bool,
        cut: int | None = None,
    ) -> None:
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if body:
            handler.wfile.write(data if cut is None else data[:cut])
        if cut is not None:
            handler.wfile.flush()
            handler.close_connection = True
