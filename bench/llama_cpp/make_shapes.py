#!/usr/bin/env python3
"""Makes model files of real shapes with random weights, for speed comparisons: speed does not depend on the values.

    make_shapes.py [--out build/bench-models] [--shapes smollm2-135m,qwen2.5-0.5b,llama-3.2-1b]
                   [--types F16,BF16,Q8_0,Q4_0,Q4_K_M]

Writes OUT/SHAPE-TYPE.gguf: the F16 file with tools/make_gguf.py, the others from it with llama.cpp's own quantiser,
so that the mixture of tensor types is the one users have. Files that exist are kept. Needs requirements.txt of
tests/oracle, about 12 GiB of disk and 5 GiB of memory.
"""

import argparse
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "oracle")]
from llama_oracle import quantize  # noqa: E402
from make_gguf import Shape, write_model  # noqa: E402

SHAPES = {
    "smollm2-135m": Shape(
        architecture="llama", embedding=576, feed_forward=1536, layers=30, heads=9, kv_heads=3, context=8192,
        rope_base=100000.0, tokenizer="bpe", pre_tokenizer="smollm", vocabulary=49152, matrix_type="F16"),
    "qwen2.5-0.5b": Shape(
        architecture="qwen2", embedding=896, feed_forward=4864, layers=24, heads=14, kv_heads=2, context=32768,
        qkv_bias=True, epsilon=1e-6, rope_base=1000000.0, tokenizer="bpe", pre_tokenizer="qwen2",
        vocabulary=151936, matrix_type="F16"),
    "llama-3.2-1b": Shape(
        architecture="llama", embedding=2048, feed_forward=8192, layers=16, heads=32, kv_heads=8, head_dim=64,
        context=131072, rope_base=500000.0, rope_freqs=True, rope_factor=32.0, rope_original_context=8192,
        tokenizer="bpe", pre_tokenizer="llama-bpe", vocabulary=128256, matrix_type="F16"),
}
TYPES = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_K_M")


def model_path(folder, shape, kind):
    return Path(folder) / f"{shape}-{kind}.gguf"


def make(folder, shape, kind):
    """The file's path; the file is made if absent. It is written under another name first, so that an existing file is complete."""
    path = model_path(folder, shape, kind)
    if path.exists():
        return path
    started, partial = time.time(), path.with_suffix(f".{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "F16":
        write_model(partial, SHAPES[shape])
    else:
        quantize(make(folder, shape, "F16"), partial, kind)
    partial.rename(path)
    print(f"{path} {path.stat().st_size / 2**20:.1f} MiB, {time.time() - started:.0f} s", flush=True)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=ROOT / "build" / "bench-models")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--types", default=",".join(TYPES))
    args = parser.parse_args()
    for shape in args.shapes.split(","):
        for kind in args.types.split(","):
            make(args.out, shape, kind)


if __name__ == "__main__":
    main()
