#!/usr/bin/env python3
"""Makes the model files of the oracle test: small random models, one per architecture variant and weight type.

    make_models.py [FOLDER]     default: data beside this script

CASES below lists the test's cases; expect.py adds the expected logits. See README.md.
"""

import dataclasses
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))
from llama_oracle import quantize  # noqa: E402
from make_gguf import Shape, write_model  # noqa: E402

SEED = 20260721


@dataclass(frozen=True)
class Case:
    """One comparison: a model file, opened with a context of `context` positions."""

    name: str  # also the name of the expected logits
    shape: Shape
    weights: str  # F32, F16, BF16: written by make_gguf; others quantised by llama.cpp
    mixture: bool = False  # `weights` names a mixture of tensor types
    context: int = 256
    variant: str = ""  # what distinguishes it, for the table

    @property
    def model(self):
        """Name of the model file, which cases that differ only in their context share."""
        return self.name.removesuffix(".long").removesuffix(".short") + ".gguf"

    @property
    def exact_weights(self):
        return self.weights in ("F32", "F16", "BF16")


LLAMA = Shape(head_dim=16, heads=2, kv_heads=1, feed_forward=48, context=512)
PHI3 = dataclasses.replace(LLAMA, architecture="phi3", heads=4, kv_heads=2, head_dim=8)
FALCON = dataclasses.replace(LLAMA, architecture="falcon", heads=4, head_dim=8, feed_forward=128,
                             tokenizer="bpe", pre_tokenizer="falcon")
PHI3_LONG = dataclasses.replace(PHI3, heads=2, kv_heads=2, head_dim=16, rope_scaling="longrope", rope_factor=8.0,
                                rope_original_context=256, rope_attn_factor=1.19)


def variant(base, **changes):
    return dataclasses.replace(base, **changes)


def architecture_cases():
    """Every architecture variant that the engine supports, in F32 and in F16."""
    shapes = {
        "llama-gqa": ("GQA, tied output", LLAMA, 256),
        "llama-rope-freqs": ("`rope_freqs` (Llama 3.1)",
                             variant(LLAMA, rope_freqs=True, rope_factor=8.0, rope_original_context=16), 256),
        "llama-linear": ("linear RoPE scaling", variant(LLAMA, rope_scaling="linear", rope_factor=4.0), 256),
        "llama-yarn": ("YaRN RoPE scaling",
                       variant(LLAMA, rope_scaling="yarn", rope_factor=4.0, rope_original_context=64), 256),
        "llama-mha-untied": ("MHA, own output matrix", variant(LLAMA, heads=4, kv_heads=4, head_dim=0, tied=False),
                             256),
        "llama-bias": ("biases everywhere", variant(LLAMA, heads=4, kv_heads=2, head_dim=0, all_biases=True), 256),
        "llama-key-length": ("head width not E / heads, byte-level BPE",
                             variant(LLAMA, heads=3, head_dim=24, tokenizer="bpe", pre_tokenizer="llama-bpe",
                                     rope_base=500000.0), 256),
        "qwen2": ("QKV bias", variant(LLAMA, architecture="qwen2", heads=4, kv_heads=2, head_dim=0, qkv_bias=True,
                                      tokenizer="bpe", pre_tokenizer="qwen2", rope_base=1e6), 256),
        "qwen3": ("Q and K norms, head width not E / heads",
                  variant(LLAMA, architecture="qwen3", heads=3, head_dim=24, tokenizer="bpe", pre_tokenizer="qwen2",
                          rope_base=1e6), 256),
        "falcon-7b": ("multi-query, one norm", FALCON, 256),
        "falcon-40b": ("GQA, two norms, own output matrix", variant(FALCON, kv_heads=2, two_norms=True, tied=False),
                       256),
        "phi3": ("fused QKV and gate; `sliding_window` 8 in the file", variant(PHI3, sliding_window=8), 256),
        "phi3-partial-rope": ("half of each head rotates", variant(PHI3, heads=2, head_dim=16, rope_dims=8), 256),
        "phi3-longrope.short": ("short RoPE factors", PHI3_LONG, 256),
        "phi3-longrope.long": ("long RoPE factors", PHI3_LONG, 512),
    }
    for name, (text, shape, context) in shapes.items():
        for weights in ("F32", "F16"):
            stem, dot, suffix = name.partition(".")
            yield Case(f"{stem}-{weights}{dot}{suffix}", variant(shape, matrix_type=weights), weights,
                       context=context, variant=text)


def type_cases():
    """Every weight type with a llama shape; K types need row lengths that are multiples of 256."""
    narrow = variant(LLAMA, embedding=64, heads=2, kv_heads=1, head_dim=32, feed_forward=96)
    wide = variant(LLAMA, embedding=256, heads=4, kv_heads=1, head_dim=64, feed_forward=256, layers=1)
    yield Case("llama-gqa-BF16", variant(LLAMA, matrix_type="BF16"), "BF16", variant="GQA, tied output")
    for weights in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL"):
        yield Case(f"llama-64-{weights}", narrow, weights, variant="width 64, all matrices")
    for weights in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"):
        yield Case(f"llama-256-{weights}", wide, weights, variant="width 256, all matrices")
    for weights in ("Q4_K_M", "Q5_K_M", "Q3_K_M", "Q2_K"):
        yield Case(f"llama-256-mix-{weights}", wide, weights, mixture=True, variant="width 256, mixture")
        yield Case(f"llama-64-mix-{weights}", narrow, weights, mixture=True, variant="width 64, fallback types")


CASES = [*architecture_cases(), *type_cases()]


def make_model(case, folder):
    target = folder / case.model
    if case.exact_weights:
        write_model(target, case.shape, SEED)
        return
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "f32.gguf"
        write_model(source, case.shape, SEED)
        quantize(source, target, case.weights, pure=not case.mixture)


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        make_model(case, folder)
        print(case.model, (folder / case.model).stat().st_size)


if __name__ == "__main__":
    main()
