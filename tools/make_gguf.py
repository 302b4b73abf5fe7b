#!/usr/bin/env python3
"""Writes GGUF model files with seeded random weights, for tests and benchmarks.

    make_gguf.py OUT.gguf architecture=qwen2 embedding=64 heads=4 kv_heads=2 qkv_bias=1 matrix_type=F16

Every field of Shape can be set on the command line. The scales make the model behave numerically
like a trained one: residuals of order 1, attention neither uniform nor one-hot, logits with a
standard deviation of a few units. With the same numpy, the same shape and seed give the same
bytes. Needs PyPI `gguf` and `numpy`.
"""

import dataclasses
import math
import sys
import zlib
from dataclasses import dataclass

import gguf
import numpy as np

ARCHITECTURES = ("llama", "qwen2", "qwen3", "falcon", "phi3")


@dataclass(frozen=True)
class Shape:
    """Options of a file. Zero: derived from the architecture or the other fields."""

    architecture: str = "llama"
    embedding: int = 32
    feed_forward: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 0  # 0: embedding / heads
    context: int = 256
    tied: bool = True  # no output matrix: the embedding is used
    qkv_bias: bool = False
    all_biases: bool = False  # adds biases to the attention output and the feed-forward matrices
    fused_qkv: bool = False
    two_norms: bool = False  # falcon: the 40B variant, whose attention has its own norm
    epsilon: float = 1e-5
    matrix_type: str = "F32"  # F32, F16, BF16; vectors are always F32

    rope_base: float = 10000.0
    rope_dims: int = 0  # 0: head_dim
    rope_scaling: str = ""  # linear, yarn, longrope
    rope_factor: float = 1.0
    rope_original_context: int = 0
    rope_attn_factor: float = 0.0  # longrope
    rope_freqs: bool = False  # Llama 3.1's frequency divisors, for rope_factor and rope_original_context
    sliding_window: int = 0

    tokenizer: str = "spm"  # spm, bpe
    pre_tokenizer: str = "gpt-2"  # of bpe
    vocabulary: int = 288

    @property
    def key_dim(self):
        return self.head_dim or self.embedding // self.heads


def random_tensor(seed, name, rows, cols, std):
    """Normal values that depend on the tensor's name, not on the order of the tensors."""
    rng = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    values = rng.standard_normal((rows, cols) if rows else cols, dtype=np.float32)
    values *= np.float32(std)
    return values


def llama3_frequency_factors(shape):
    """Llama 3.1's divisors: low frequencies by the factor, high ones by 1, a ramp between."""
    i = np.arange(shape.key_dim // 2, dtype=np.float64)
    wavelength = 2 * math.pi * shape.rope_base ** (2 * i / shape.key_dim)
    low, high = 1.0, 4.0
    turns = shape.rope_original_context / wavelength
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / shape.rope_factor + smooth)).astype(np.float32)


class ModelWriter:
    """Writes one file."""

    def __init__(self, path, shape, seed):
        self.shape, self.seed = shape, seed
        self.writer = gguf.GGUFWriter(path, shape.architecture)

    def matrix(self, name, rows, cols, gain=1.0, std=None):
        """NAME.weight [cols in, rows out]: unit input gives output of standard deviation `gain`."""
        full = name + ".weight"
        values = random_tensor(self.seed, full, rows, cols, std or gain / math.sqrt(cols))
        kind = self.shape.matrix_type
        if kind == "F16":
            self.writer.add_tensor(full, values.astype(np.float16))
        elif kind == "BF16":
            data = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
            self.writer.add_tensor(full, data, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            # The F32 version of an F16 file holds the same numbers.
            self.writer.add_tensor(full, values.astype(np.float16).astype(np.float32))

    def vector(self, full, n, mean, std):
        self.writer.add_tensor(full, mean + random_tensor(self.seed, full, 0, n, std))

    def norm(self, name, n, bias=False):
        self.vector(name + ".weight", n, 1.0, 0.15)
        if bias:
            self.vector(name + ".bias", n, 0.0, 0.15)

    def linear(self, name, rows, cols, gain=1.0, bias=False):
        self.matrix(name, rows, cols, gain)
        if bias:
            self.vector(name + ".bias", rows, 0.0, 0.3)

    def tensors(self):
        s, w = self.shape, self.writer
        falcon = s.architecture == "falcon"
        # A tied embedding is also the output matrix, which needs small values; the first norm
        # compensates.
        self.matrix("token_embd", s.vocabulary, s.embedding, gain=1.2, std=None if s.tied else 1.0)
        if not s.tied:
            self.matrix("output", s.vocabulary, s.embedding, gain=1.2)
        self.norm("output_norm", s.embedding, bias=falcon)
        pairs = (s.rope_dims or s.key_dim) // 2
        if s.rope_freqs:
            w.add_tensor("rope_freqs.weight", llama3_frequency_factors(s))
        if s.rope_scaling == "longrope":
            ramp = np.arange(pairs, dtype=np.float32) / max(1, pairs - 1)
            w.add_tensor("rope_factors_long.weight", 1 + (s.rope_factor - 1) * ramp**2)
            w.add_tensor("rope_factors_short.weight", 1 + np.float32(0.2) * ramp)
        for layer in range(s.layers):
            self.layer(f"blk.{layer}.")

    def layer(self, prefix):
        s = self.shape
        q_rows, kv_rows = s.heads * s.key_dim, s.kv_heads * s.key_dim
        falcon, phi3 = s.architecture == "falcon", s.architecture == "phi3"
        bias = s.all_biases
        self.norm(prefix + "attn_norm", s.embedding, bias=falcon)
        if s.two_norms:
            self.norm(prefix + "attn_norm_2", s.embedding, bias=True)
        if s.fused_qkv or falcon or phi3:
            self.linear(prefix + "attn_qkv", q_rows + 2 * kv_rows, s.embedding, 1.0, bias)
        else:
            for part, rows, gain in (("q", q_rows, 1.0), ("k", kv_rows, 1.0), ("v", kv_rows, 1.0)):
                self.linear(prefix + "attn_" + part, rows, s.embedding, gain, bias or s.qkv_bias)
        if s.architecture == "qwen3":
            self.norm(prefix + "attn_q_norm", s.key_dim)
            self.norm(prefix + "attn_k_norm", s.key_dim)
        self.linear(prefix + "attn_output", s.embedding, q_rows, 0.4, bias)
        if not falcon:
            self.norm(prefix + "ffn_norm", s.embedding)
        if phi3:
            self.linear(prefix + "ffn_up", 2 * s.feed_forward, s.embedding, 1.0, bias)
        else:
            if not falcon:
                self.linear(prefix + "ffn_gate", s.feed_forward, s.embedding, 1.0, bias)
            self.linear(prefix + "ffn_up", s.feed_forward, s.embedding, 1.0, bias)
        self.linear(prefix + "ffn_down", s.embedding, s.feed_forward, 0.5, bias)

    def metadata(self):
        s, w, arch = self.shape, self.writer, self.shape.architecture
        w.add_name(f"random weights, seed {self.seed}")  # llama.cpp expects more tokens if the name contains "phi3"
        w.add_quantization_version(2)
        w.add_file_type({"F32": 0, "F16": 1, "BF16": 32}[s.matrix_type])
        w.add_context_length(s.context)
        w.add_embedding_length(s.embedding)
        w.add_block_count(s.layers)
        w.add_feed_forward_length(s.feed_forward)
        w.add_head_count(s.heads)
        w.add_head_count_kv(s.kv_heads)
        if s.head_dim:
            w.add_key_length(s.head_dim)
            w.add_value_length(s.head_dim)
        if arch == "falcon":
            w.add_layer_norm_eps(s.epsilon)
        else:
            w.add_layer_norm_rms_eps(s.epsilon)
        w.add_rope_dimension_count(s.rope_dims or s.key_dim)
        w.add_rope_freq_base(s.rope_base)
        if s.rope_scaling:
            if s.rope_scaling != "longrope":
                w.add_rope_scaling_type(gguf.RopeScalingType(s.rope_scaling))
                w.add_rope_scaling_factor(s.rope_factor)
            if s.rope_original_context:
                w.add_rope_scaling_orig_ctx_len(s.rope_original_context)
            if s.rope_attn_factor:
                w.add_rope_scaling_attn_factors(s.rope_attn_factor)
        if s.sliding_window:
            w.add_sliding_window(s.sliding_window)

    def vocabulary(self):
        if self.shape.tokenizer == "spm":
            self.spm_vocabulary()
        else:
            self.bpe_vocabulary()

    def spm_vocabulary(self):
        """unk, bos, eos, the 256 bytes, and pieces of letters in order of their scores."""
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
        types = [2, 3, 3] + [6] * 256
        pieces = [*"▁etaoinshrdlu", "▁t", "he", "▁a", "in", "▁the", "er", "▁s", "on", "▁th", "an"]
        pieces += [c for c in "bcdfghjkmpqvwxyz.,'\n" if c not in pieces]
        pieces += random_strings(self.seed, "aeinorst", len(pieces), self.shape.vocabulary)
        pieces = pieces[: self.shape.vocabulary - len(tokens)]
        w = self.writer
        w.add_tokenizer_model("llama")
        w.add_token_list(tokens + pieces)
        w.add_token_scores([0.0] * len(tokens) + [-float(i + 1) for i in range(len(pieces))])
        w.add_token_types(types + [1] * len(pieces))
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        w.add_unk_token_id(0)
        w.add_add_bos_token(True)

    def bpe_vocabulary(self):
        """The 256 bytes in GPT-2's byte alphabet, random merges of pieces, and a final end-of-text
        token."""
        pieces = list(gpt2_bytes())
        merges, known = [], set(pieces)
        letters = [c for c in "etaoinshrdlucmfwygpbvkxqjzETAOINSHRDLU.,'"]
        heads = ["Ġ" + c for c in letters[:26]]
        for c in letters[:26]:
            merges.append(f"Ġ {c}")
        grown = letters + heads
        known.update(heads)
        pieces += heads
        rng = np.random.Generator(np.random.PCG64([self.seed, zlib.crc32(b"merges")]))
        while len(pieces) < self.shape.vocabulary - 1:
            for left, right in rng.random((4096, 2)):
                # Squaring favours early pieces, so that short tokens are the most common parts.
                a, b = grown[int(left**2 * len(grown))], grown[int(right**2 * len(grown))]
                if b[0] == "Ġ" or len(a) + len(b) > 14 or a + b in known:
                    continue
                known.add(a + b)
                grown.append(a + b)
                pieces.append(a + b)
                merges.append(f"{a} {b}")
                if len(pieces) == self.shape.vocabulary - 1:
                    break
        pieces = pieces[: self.shape.vocabulary - 1]
        w, end = self.writer, self.shape.vocabulary - 1
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(self.shape.pre_tokenizer)
        w.add_token_list(pieces + ["<|endoftext|>"])
        w.add_token_types([1] * end + [3])
        w.add_token_merges(merges[: end - 256])
        w.add_bos_token_id(end)
        w.add_eos_token_id(end)
        w.add_add_bos_token(False)

    def write(self):
        self.metadata()
        self.vocabulary()
        self.tensors()
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def gpt2_bytes():
    """The characters that represent the bytes 0..255 in GPT-2's vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(spare)) for b in range(256)]


def random_strings(seed, alphabet, taken, n):
    rng = np.random.Generator(np.random.PCG64([seed, taken]))
    strings = {}
    while len(strings) < n:
        length = rng.integers(3, 7)
        strings["".join(alphabet[i] for i in rng.integers(0, len(alphabet), length))] = True
    return list(strings)


def write_model(path, shape, seed=1):
    if shape.architecture not in ARCHITECTURES:
        raise ValueError(f"architecture {shape.architecture} unknown; there are {', '.join(ARCHITECTURES)}")
    ModelWriter(str(path), shape, seed).write()


def parse_field(field, text):
    if field.type in (bool, "bool"):
        return text.lower() in ("1", "true", "yes")
    kinds = {"int": int, "float": float, "str": str}
    return kinds[getattr(field.type, "__name__", field.type)](text)


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        print("Fields: " + ", ".join(f"{f.name}={f.default}" for f in dataclasses.fields(Shape)) + ", seed=1")
        return 0 if arguments else 2
    fields = {f.name: f for f in dataclasses.fields(Shape)}
    values, seed = {}, 1
    for word in arguments[1:]:
        name, equals, text = word.partition("=")
        if name == "seed":
            seed = int(text)
        elif not equals or name not in fields:
            print(f"make_gguf: {word!r}: expected FIELD=VALUE, fields are {', '.join(fields)}, seed", file=sys.stderr)
            return 2
        else:
            values[name] = parse_field(fields[name], text)
    write_model(arguments[0], Shape(**values), seed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
