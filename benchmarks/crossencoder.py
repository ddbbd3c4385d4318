"""A cross-encoder of the usual one's shape with random weights, to measure what reading with it costs.

Its files are those that `funes models pull --from` takes. The tokenizer has the vocabulary of the bundled model, which
is BERT's, so that texts become about as many tokens as they do for the real model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

#: A cross-encoder that fastembed lists and funes does not pin, so that a folder's files are taken for it.
NAME = "Xenova/ms-marco-MiniLM-L-12-v2"

LAYERS, WIDTH, HEADS, INNER, POSITIONS = 6, 384, 12, 1_536, 512
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write(folder: Path) -> Path:
    """Write the model's files into a folder, 80 MB; what is there already is left as it is."""
    graph = folder / "onnx" / "model.onnx"
    if graph.exists():
        return folder
    graph.parent.mkdir(parents=True, exist_ok=True)
    tokenizer, size = _tokenizer()
    (folder / "tokenizer.json").write_text(tokenizer)
    config = {"model_max_length": POSITIONS, "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0, "hidden_size": WIDTH}))
    graph.write_bytes(_Graph(size).saved())
    return folder


def _tokenizer() -> tuple[str, int]:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    from funes_mcp.inference import bundle

    vocabulary = list(dict.fromkeys([*SPECIAL, *bundle.load().pieces]))
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer.to_str(), len(vocabulary)


class _Graph:
    """BERT as it is exported: embeddings, layers of attention and two matrices, and one number from the first token."""

    def __init__(self, vocabulary: int) -> None:
        self._rng = np.random.default_rng(5)
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {
            "none": np.array([-1], np.int64),
            "one": np.array([1], np.int64),
            "two": np.array([2], np.int64),
            "zero": np.array(0, np.int64),
            "one0": np.array(1, np.int64),
            "unit": np.array(1.0, np.float32),
            "far": np.array(-10_000.0, np.float32),
            "half": np.array(0.5, np.float32),
            "root": np.array(2.0**0.5, np.float32),
            "scale": np.array((WIDTH / HEADS) ** 0.5, np.float32),
            "apart": np.array([0, 0, HEADS, WIDTH // HEADS], np.int64),
            "joined": np.array([0, 0, WIDTH], np.int64),
        }
        self._ids(vocabulary)

    def saved(self) -> bytes:
        """The model as a file."""
        from onnx import TensorProto, helper, numpy_helper

        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ]
        output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])
        constants = [numpy_helper.from_array(value, name) for name, value in self._constants.items()]
        graph = helper.make_graph(self._nodes, "random", inputs, [output], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return bytes(model.SerializeToString())

    def _do(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self._nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def _random(self, name: str, *shape: int) -> str:
        self._constants[name] = (self._rng.standard_normal(shape) * 0.05).astype(np.float32)
        return name

    def _linear(self, given: str, name: str, inputs: int, outputs: int) -> str:
        product = self._do("MatMul", [given, self._random(f"{name}.w", inputs, outputs)], f"{name}.product")
        return self._do("Add", [product, self._random(f"{name}.b", outputs)], f"{name}.out")

    def _normal(self, given: str, name: str) -> str:
        self._constants[f"{name}.gain"] = np.ones(WIDTH, np.float32)
        inputs = [given, f"{name}.gain", self._random(f"{name}.shift", WIDTH)]
        return self._do("LayerNormalization", inputs, f"{name}.normal", axis=-1, epsilon=1e-12)

    def _ids(self, vocabulary: int) -> None:
        words = self._do("Gather", [self._random("words", vocabulary, WIDTH), "input_ids"], "of_words")
        kinds = self._do("Gather", [self._random("kinds", 2, WIDTH), "token_type_ids"], "of_kinds")
        shape = self._do("Shape", ["input_ids"], "shape")
        length = self._do("Gather", [shape, "one0"], "length")
        places = self._do("Range", ["zero", length, "one0"], "places")
        where = self._do("Gather", [self._random("positions", POSITIONS, WIDTH), places], "of_places")
        both = self._do("Add", [words, kinds], "both")
        state = self._normal(self._do("Add", [both, where], "embedded"), "first")
        floats = self._do("Cast", ["attention_mask"], "mask", to=1)
        wide = self._do("Unsqueeze", [self._do("Unsqueeze", [floats, "one"], "mask3"), "two"], "mask4")
        hidden = self._do("Mul", [self._do("Sub", ["unit", wide], "absent"), "far"], "hidden")
        for number in range(LAYERS):
            state = self._layer(state, hidden, f"l{number}")
        first = self._do("Gather", [state, "zero"], "head", axis=1)
        pooled = self._do("Tanh", [self._linear(first, "pool", WIDTH, WIDTH)], "pooled")
        product = self._do("MatMul", [pooled, self._random("verdict.w", WIDTH, 1)], "verdict")
        self._do("Add", [product, self._random("verdict.b", 1)], "logits")

    def _layer(self, state: str, hidden: str, name: str) -> str:
        heads = {}
        for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            flat = self._linear(state, f"{name}.{part}", WIDTH, WIDTH)
            apart = self._do("Reshape", [flat, "apart"], f"{name}.{part}.apart")
            heads[part] = self._do("Transpose", [apart], f"{name}.{part}.heads", perm=order)
        raw = self._do("MatMul", [heads["q"], heads["k"]], f"{name}.raw")
        scaled = self._do("Add", [self._do("Div", [raw, "scale"], f"{name}.scaled"), hidden], f"{name}.masked")
        shares = self._do("Softmax", [scaled], f"{name}.shares", axis=-1)
        mixed = self._do("MatMul", [shares, heads["v"]], f"{name}.mixed")
        back = self._do("Transpose", [mixed], f"{name}.back", perm=[0, 2, 1, 3])
        joined = self._do("Reshape", [back, "joined"], f"{name}.joined")
        told = self._do("Add", [self._linear(joined, f"{name}.o", WIDTH, WIDTH), state], f"{name}.told")
        told = self._normal(told, f"{name}.a")
        inner = self._linear(told, f"{name}.in", WIDTH, INNER)
        error = self._do("Erf", [self._do("Div", [inner, "root"], f"{name}.e0")], f"{name}.e1")
        gate = self._do("Mul", [inner, self._do("Add", [error, "unit"], f"{name}.e2")], f"{name}.e3")
        curved = self._do("Mul", [gate, "half"], f"{name}.gelu")
        out = self._do("Add", [self._linear(curved, f"{name}.out", INNER, WIDTH), told], f"{name}.sum")
        return self._normal(out, f"{name}.b")
