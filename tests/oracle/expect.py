#!/usr/bin/env python3
"""Computes the logits that the oracle test expects, with llama.cpp, and writes them beside the models.

    expect.py [FOLDER]     default: data beside this script; needs the files of make_models.py

For each case NAME.safetensors with
  tokens  [n] int32             BOS (if the tokenizer is SentencePiece) and random tokens
  exact   [n, vocabulary] f32   logits of llama.cpp on the same weights widened to F32: no rounding of activations
  same    [n, vocabulary] f32   logits of llama.cpp on the file itself (quantised cases only: there both engines round
                                activations to 8 bits, each in its own way)
The metadata has strings: model, architecture, weights, variant, context, check (relative or kld), and the distance of
llama.cpp on the file from llama.cpp on the widened weights (relative_error, kld, max_difference), which is the
oracle's own rounding. Prints these distances; see README.md.
"""

import hashlib
import json
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

from llama_oracle import Oracle, dequantize
from make_models import CASES, HERE, SEED
from metrics import max_difference, mean_kld, relative_error

TOKENS = 24


def make_tokens(case):
    rng = np.random.Generator(np.random.PCG64([SEED, case.shape.vocabulary]))
    tokens = rng.integers(3, case.shape.vocabulary - 1, TOKENS, dtype=np.int32)
    if case.shape.tokenizer == "spm":
        tokens[0] = 1
    return tokens


def save_safetensors(path, tensors, metadata):
    """Writes reproducible bytes, which PyPI's safetensors does not: it orders the metadata at random."""
    header, start = {"__metadata__": metadata}, 0
    for name, values in tensors.items():
        kind = {"float32": "F32", "int32": "I32"}[values.dtype.name]
        header[name] = {"dtype": kind, "shape": values.shape, "data_offsets": [start, start + values.nbytes]}
        start += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in tensors.values()))


def expect(case, folder):
    model, tokens = folder / case.model, make_tokens(case)
    with tempfile.TemporaryDirectory() as scratch:
        wide = Path(scratch) / "f32.gguf"
        dequantize(model, wide)
        with Oracle(wide, case.context) as oracle:
            exact = oracle.logits(tokens)
    with Oracle(model, case.context) as oracle:
        same = oracle.logits(tokens)
    own = {
        "relative_error": relative_error(same, exact),
        "kld": mean_kld(same, exact),
        "max_difference": max_difference(same, exact),
    }
    tensors = {"tokens": tokens, "exact": exact}
    if not case.exact_weights:
        tensors["same"] = same
    metadata = {
        "model": case.model, "architecture": case.shape.architecture, "weights": case.weights,
        "variant": case.variant, "context": str(case.context),
        "check": "relative" if case.exact_weights else "kld",
    } | {key: f"{value:.3e}" for key, value in own.items()}  # fmt: skip
    save_safetensors(folder / f"{case.name}.safetensors", tensors, metadata)
    print(f"{case.name:32} spread of logits {exact.std():5.2f}  llama.cpp's own rounding: relative error "
          f"{own['relative_error']:.1e}, KLD {own['kld']:.1e}", flush=True)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "data"
    for case in CASES:
        expect(case, folder)
    files = sorted(p for p in folder.iterdir() if p.suffix in (".gguf", ".safetensors"))
    sums = "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in files)
    (folder / "SHA256SUMS").write_text(sums)


if __name__ == "__main__":
    main()
