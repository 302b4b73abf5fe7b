"""Recordings of random numbers, and plain loops in double precision for the reference
implementations."""

import json
import math
import random
import struct

from harness import CliTest, read_safetensors, winnow

LAYERS, HQ, HKV, N, PROMPT, DIM, THETA = 2, 4, 2, 30, 22, 8, 100.0
GROUP = HQ // HKV


def write_safetensors(path, tensors, metadata):
    """Name -> (shape, list of floats)."""
    header, data = {"__metadata__": metadata}, b""
    for name, (shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rotate(x, position, pairing):
    out = list(x)
    for i in range(DIM // 2):
        a, b = (2 * i, 2 * i + 1) if pairing == "norm" else (i, i + DIM // 2)
        angle = position * THETA ** (-2 * i / DIM)
        out[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        out[b] = x[a] * math.sin(angle) + x[b] * math.cos(angle)
    return out


def attend(query, keys):
    """Softmax weights of one query over the keys."""
    logits = [sum(a * b for a, b in zip(query, key)) / math.sqrt(DIM) for key in keys]
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    total = sum(weights)
    return [w / total for w in weights]


def mix(weights, values):
    return [sum(w * v[i] for w, v in zip(weights, values)) for i in range(DIM)]


class Text:
    """Random queries, keys and values: [layer][head][token][dim]."""

    def __init__(self, seed, pairing, layers=LAYERS):
        draw = random.Random(seed)
        def heads(n):
            return [[[[struct.unpack("f", struct.pack("f", draw.gauss(0, 1)))[0] for _ in range(DIM)]
                      for _ in range(N)] for _ in range(n)] for _ in range(layers)]
        self.pairing = pairing
        self.q_pre, self.k_pre, self.v = heads(HQ), heads(HKV), heads(HKV)
        def rotated(x):
            return [[[rotate(row, t, pairing) for t, row in enumerate(head)] for head in layer] for layer in x]
        self.q, self.k = rotated(self.q_pre), rotated(self.k_pre)

    def tensors(self):
        found = {}
        for name in ("q", "k", "v", "q_pre", "k_pre"):
            for layer, heads in enumerate(getattr(self, name)):
                found[f"layers.{layer}.{name}"] = ([len(heads), N, DIM], [x for h in heads for row in h for x in row])
        return found

    def metadata(self):
        return {"n_prompt": str(PROMPT), "rope_theta": str(THETA), "rope_type": self.pairing}


class ReplayTest(CliTest):
    def record(self, name, text, **changes):
        path = self.folder / name
        write_safetensors(path, text.tensors(), {**text.metadata(), **changes})
        return path

    def replay(self, path, method, *flags):
        out = self.folder / "result.safetensors"
        found = self.assert_done(winnow("replay", "--method", method, "--in", path, "--out", out, "--json", *flags)).json
        return found, read_safetensors(out)

    def kept(self, result, layer, head):
        _, (_, most), values = result[f"layers.{layer}.kept"]
        count = result[f"layers.{layer}.count"][2][head]
        row = values[head * most:(head + 1) * most]
        self.assertEqual(set(row[count:]) - {-1}, set())
        return list(row[:count])

    def rows(self, result, name):
        _, shape, values = result[name]
        self.assertEqual(shape[2], DIM)
        flat = [values[i:i + DIM] for i in range(0, len(values), DIM)]
        return [flat[i:i + shape[1]] for i in range(0, len(flat), shape[1])]

    def assert_close(self, found, expected):
        for a, b in zip(found, expected, strict=True):
            self.assertAlmostEqual(a, b, delta=1e-4)
