"""A llama model in doubles, token by token, as reference for the binary's forward pass where a
method needs all of it. Reads f32 weights only."""

import math
import struct
from operator import mul


def read_gguf(path):
    """The metadata, and [rows of numbers] of each tensor."""
    data = path.read_bytes()
    at = 0

    def take(form):
        nonlocal at
        found = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return found[0] if len(found) == 1 else found

    def text():
        return take(f"{take('Q')}s").decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            of, n = take("IQ")
            return [value(of) for _ in range(n)]
        return take("BbHhIif?"[kind] if kind < 8 else {10: "Q", 11: "q", 12: "d"}[kind])

    assert data[:4] == b"GGUF"
    at = 4
    _, n_tensors, n_values = take("IQQ")
    metadata = {}
    for _ in range(n_values):
        key = text()
        metadata[key] = value(take("I"))
    places = []
    for _ in range(n_tensors):
        name = text()
        shape = [take("Q") for _ in range(take("I"))]
        kind, offset = take("IQ")
        assert kind == 0, f"{name} is not f32"
        places.append((name, shape, offset))
    begin = -(-at // 32) * 32
    tensors = {}
    for name, shape, offset in places:
        cols = shape[0]
        rows = math.prod(shape[1:])
        numbers = struct.unpack_from(f"<{cols * rows}f", data, begin + offset)
        tensors[name] = [numbers[i * cols:(i + 1) * cols] for i in range(rows)]
    return metadata, tensors


def dot(a, b):
    return sum(map(mul, a, b))


def times(matrix, vector):
    return [dot(row, vector) for row in matrix]


class Entry:
    def __init__(self, position, key, value, bias=0.0):
        self.position, self.key, self.value, self.bias = position, key, value, bias


class Row:
    """Values of one token of a call in one layer."""

    def __init__(self, stream, queries):
        self.rho = math.sqrt(dot(stream, stream))
        self.queries = queries  # [query head]


class Llama:
    def __init__(self, path):
        metadata, self.tensors = read_gguf(path)
        number = lambda key, default=None: metadata.get("llama." + key, default)
        self.n_layers, self.n_heads = number("block_count"), number("attention.head_count")
        self.n_kv_heads = number("attention.head_count_kv")
        self.group = self.n_heads // self.n_kv_heads
        self.dim = number("embedding_length") // self.n_heads
        self.epsilon = number("attention.layer_norm_rms_epsilon")
        self.base = number("rope.freq_base", 10000.0)

    def new_cache(self):
        """[layer][kv_head][entry]"""
        return [[[] for _ in range(self.n_kv_heads)] for _ in range(self.n_layers)]

    def norm(self, x, name):
        scale = 1 / math.sqrt(dot(x, x) / len(x) + self.epsilon)
        return [a * b * scale for a, b in zip(x, self.tensors[name][0])]

    def rotated(self, x, position):
        out = []
        for i in range(0, self.dim, 2):
            angle = position * self.base ** (-i / self.dim)
            a, b = x[i], x[i + 1]
            out += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
        return out

    def split_heads(self, x, n, position=None):
        parts = [x[i * self.dim:(i + 1) * self.dim] for i in range(n)]
        return parts if position is None else [self.rotated(part, position) for part in parts]

    def mass(self, query, entry):
        return math.exp(dot(query, entry.key) / math.sqrt(self.dim) + entry.bias)

    def projection(self, layer, q_head):
        """The columns of the output projection for a query head."""
        return [row[q_head * self.dim:(q_head + 1) * self.dim] for row in self.tensors[f"blk.{layer}.attn_output.weight"]]

    def read(self, tokens, first_position, cache):
        """Appends the tokens' entries; returns the last token's logits, and rows [layer][token]."""
        streams = [list(self.tensors["token_embd.weight"][token]) for token in tokens]
        rows = []
        for layer, entries in enumerate(cache):
            weight = lambda part: self.tensors[f"blk.{layer}.{part}.weight"]
            rows.append([])
            for i, x in enumerate(streams):
                position = first_position + i
                normed = self.norm(x, f"blk.{layer}.attn_norm.weight")
                keys = self.split_heads(times(weight("attn_k"), normed), self.n_kv_heads, position)
                values = self.split_heads(times(weight("attn_v"), normed), self.n_kv_heads)
                for of_head, key, value in zip(entries, keys, values):
                    of_head.append(Entry(position, key, value))
                queries = self.split_heads(times(weight("attn_q"), normed), self.n_heads, position)
                rows[-1].append(Row(x, queries))
                out = []
                for head, query in enumerate(queries):
                    of_head = entries[head // self.group]
                    masses = [self.mass(query, entry) for entry in of_head]
                    out += [sum(m * e.value[d] for m, e in zip(masses, of_head)) / sum(masses) for d in range(self.dim)]
                x = [a + b for a, b in zip(x, times(weight("attn_output"), out))]
                normed = self.norm(x, f"blk.{layer}.ffn_norm.weight")
                gate, up = times(weight("ffn_gate"), normed), times(weight("ffn_up"), normed)
                inner = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]
                streams[i] = [a + b for a, b in zip(x, times(weight("ffn_down"), inner))]
        return times(self.tensors["output.weight"], self.norm(streams[-1], "output_norm.weight")), rows
