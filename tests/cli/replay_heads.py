"""Parts of the methods' reference implementations, and their comparison with winnow replay."""

import json
import math

from recordings import GROUP, HKV, LAYERS, N, PROMPT, ReplayTest, Text, attend, mix, rotate


def best(scores, n):
    """Ranks of the n largest scores, ascending; the newer first among equals."""
    return sorted(sorted(range(len(scores)), key=lambda j: (scores[j], j))[len(scores) - n:]) if n > 0 else []


def cosine(a, b):
    lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b)) / lengths if lengths > 0 else 0.0


class Head:
    """One KV head of one layer: its entries in text order, and attention over them."""

    def __init__(self, text, layer, g, positions="original", reduce="mean"):
        self.text, self.layer, self.g, self.positions = text, layer, g, positions
        self.kv = g  # index of the head whose keys and values it has
        self.reduced = max if reduce == "max" else lambda weights: sum(weights) / GROUP
        self.tokens = list(range(PROMPT))
        self.values = [text.v[layer][self.kv][t] for t in self.tokens]
        self.keys = [self.stored_key(t) for t in self.tokens]
        self.outputs = {h: [] for h in self.query_heads()}

    def query_heads(self):
        return range(self.g * GROUP, (self.g + 1) * GROUP)

    def stored_key(self, token):
        stored = self.text.k if self.positions in ("original", "baked") else self.text.k_pre
        return stored[self.layer][self.kv][token]

    def start(self):
        """Empties the head, for a prompt that comes in chunks."""
        self.tokens, self.keys, self.values, self.n_read = [], [], [], 0

    def prompt_rows(self):
        """[query][token], reduced over the group, and the same per query head."""
        text, layer = self.text, self.layer
        heads = [[attend(text.q[layer][h][i], text.k[layer][self.kv][:i + 1]) + [0.0] * (PROMPT - 1 - i)
                  for i in range(PROMPT)] for h in self.query_heads()]
        return [[self.reduced([head[i][j] for head in heads]) for j in range(PROMPT)] for i in range(PROMPT)], heads

    def keep(self, ranks, *lists):
        for one in (self.tokens, self.keys, self.values, *lists):
            one[:] = [one[rank] for rank in ranks]

    def drop(self, rank, *lists):
        for one in (self.tokens, self.keys, self.values, *lists):
            del one[rank]

    def read(self, n):
        """Reads the next n tokens of the prompt after the kept entries: [query][rank], over the
        entries visible to it."""
        rows = []
        self.rows_read = []  # the same per query head: [query][head][rank]
        for token in range(self.n_read, self.n_read + n):
            self.append(token)
            self.rows_read.append(self.weights(token))
            rows.append([self.reduced([row[j] for row in self.rows_read[-1]]) for j in range(len(self.keys))])
        self.n_read += n
        return rows

    def append(self, token):
        self.tokens.append(token)
        self.keys.append(self.stored_key(token))
        self.values.append(self.text.v[self.layer][self.kv][token])

    def place(self, rank):
        return rank if self.positions == "reassigned" else self.tokens[rank]

    def weights(self, token):
        """Rows of the newest token over all entries, per query head."""
        turned, pairing = self.positions not in ("original", "baked"), self.text.pairing
        keys = [rotate(key, self.place(rank), pairing) for rank, key in enumerate(self.keys)] if turned else self.keys
        rows = []
        for h in self.query_heads():
            query = self.text.q[self.layer][h][token]
            if turned:
                query = rotate(self.text.q_pre[self.layer][h][token], self.place(len(keys) - 1), pairing)
            rows.append(attend(query, keys))
        return rows

    def attended(self, token):
        """The same for a generated token; records the outputs."""
        rows = self.weights(token)
        for h, row in zip(self.query_heads(), rows):
            self.outputs[h].append(mix(row, self.values))
        return rows

    def step(self, token):
        self.append(token)
        rows = self.attended(token)
        return [self.reduced([row[j] for row in rows]) for j in range(len(self.tokens))]


class QueryHead(Head):
    """One query head of one layer with its own entries (heads=query)."""

    def __init__(self, text, layer, h, positions="original", reduce="mean"):
        super().__init__(text, layer, h // GROUP, positions, reduce)
        self.g = h
        self.reduced = sum
        self.outputs = {h: []}

    def query_heads(self):
        return [self.g]


def least(scores, begin, end):
    return min(range(begin, end), key=lambda j: (scores[j], j))


class MethodTest(ReplayTest):
    SEED = 20
    LAYERS = LAYERS

    def heads(self, text, layer, positions, reduce="mean"):
        return [Head(text, layer, g, positions, reduce) for g in range(HKV)]

    def compare(self, spec, size, run, positions="original", reduce="mean", flags=()):
        """`run` processes the heads of a layer. Size 0: the method finds its own."""
        for pairing in ("norm", "neox"):
            text = Text(self.SEED, pairing, self.LAYERS)
            path = self.record("text.safetensors", text)
            _, result = self.replay(path, spec, *(["--size", str(size)] if size else []), *flags)
            for layer in range(self.LAYERS):
                heads = self.heads(text, layer, positions, reduce)
                run(heads)
                self.assert_agree(result, heads, spec=spec, flags=flags, pairing=pairing)

    def follow(self, spec, size, positions="original", flags=()):
        """Attention's outputs, and what is stored, follow from the decisions in the trace. Which
        entries a method evicts is tested in C++ (NAME_test.cc)."""
        for pairing in ("norm", "neox"):
            text = Text(self.SEED, pairing, self.LAYERS)
            path, trace = self.record("text.safetensors", text), self.folder / "trace.jsonl"
            _, result = self.replay(path, spec, "--size", str(size), "--trace", trace, *flags)
            gone = {}  # (layer, head, token): tokens seen when it was evicted
            for plan in map(json.loads, trace.read_text().splitlines()):
                for g, head in enumerate(plan["heads"]):
                    gone.update({(plan["layer"], g, token): plan["step"] for token in head["evicted"]})
            for layer in range(self.LAYERS):
                heads = self.heads(text, layer, positions)
                for head in heads:
                    def stay(n_seen):
                        return [rank for rank, token in enumerate(head.tokens) if gone.get((layer, head.g, token), N + 1) > n_seen]
                    head.keep(stay(PROMPT))
                    self.assertLess(len(head.tokens), PROMPT)
                    for token in range(PROMPT, N):
                        head.step(token)
                        head.keep(stay(token + 1))
                self.assert_agree(result, heads, spec=spec, flags=flags, pairing=pairing)

    def assert_agree(self, result, heads, **case):
        layer = heads[0].layer
        outputs = self.rows(result, f"layers.{layer}.out")
        for head in heads:
            with self.subTest(layer=layer, head=head.g, **case):
                self.assertEqual(self.kept(result, layer, head.g), head.tokens)
                for h in head.query_heads():
                    for step, expected in enumerate(head.outputs[h]):
                        self.assert_close(outputs[h][step], expected)
                self.assert_stored(result, head)

    def assert_stored(self, result, head):
        keys = self.rows(result, f"layers.{head.layer}.k")[head.g]
        values = self.rows(result, f"layers.{head.layer}.v")[head.g]
        for rank, (key, value) in enumerate(zip(head.keys, head.values)):
            self.assert_close(keys[rank], key)
            self.assert_close(values[rank], value)

    @staticmethod
    def each(run, *parameters):
        def over(heads):
            for head in heads:
                run(head, *parameters)
        return over
