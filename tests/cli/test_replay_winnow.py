"""winnow, this project's own method, under winnow replay, against a reference implementation
written from docs/methods/winnow.md. The prompt's last rows are the reference, because a recording
has no replay of its prompt."""

import math
import struct
import unittest

from plain_winnow import curve_sizes, fill, solve
from recordings import DIM, GROUP, HKV, LAYERS, N, PROMPT, Text, mix
from replay_heads import MethodTest

WINDOW = 4


def logits(query, keys, biases):
    return [sum(a * b for a, b in zip(query, key)) / math.sqrt(DIM) + bias for key, bias in zip(keys, biases)]


def softmax(scores):
    top = max(scores)
    weights = [math.exp(x - top) for x in scores]
    return [w / sum(weights) for w in weights]


class OneHead:
    """A KV head: entries in text order, and the prompt's last rows over them."""

    def __init__(self, text, layer, g, rows):
        self.text, self.layer, self.g = text, layer, g
        self.positions = list(range(PROMPT))
        self.keys = [text.k[layer][g][t] for t in range(PROMPT)]
        self.values = [text.v[layer][g][t] for t in range(PROMPT)]
        self.biases = [0.0] * PROMPT
        self.rows = [(t, text.q[layer][h][t]) for t in rows for h in self.query_heads()]
        self.weights = [softmax(logits(q, self.keys[:t + 1], self.biases)) + [0.0] * (PROMPT - 1 - t) for t, q in self.rows]
        self.targets = [mix(w, self.values) for w in self.weights]
        self.scores = [max(w[j] for w in self.weights) for j in range(PROMPT)]

    def query_heads(self):
        return range(self.g * GROUP, (self.g + 1) * GROUP)

    def order(self, n_recent):
        return sorted(range(PROMPT - n_recent), key=lambda j: (-self.scores[j], -j))

    def curve(self, n_recent):
        order, fixed = self.order(n_recent), list(range(PROMPT - n_recent, PROMPT))
        points = []
        for size in curve_sizes(len(order)):
            kept = fixed + order[:size]
            error = 0.0
            for weights, target in zip(self.weights, self.targets):
                mass = sum(weights[j] for j in kept)
                out = [sum(weights[j] * self.values[j][i] for j in kept) / mass for i in range(DIM)]
                error += sum((a - b) ** 2 for a, b in zip(target, out))
            points.append((size, error))
        return points

    def shrink(self, size, n_recent, n_rest):
        keep = set(self.order(n_recent)[:size]) | set(range(PROMPT - n_recent, PROMPT))
        gone = [j for j in range(PROMPT) if j not in keep]
        rest = {}
        if len(gone) <= n_rest:
            gone = []
        for i in range(n_rest if gone else 0):
            run = gone[i * len(gone) // n_rest:(i + 1) * len(gone) // n_rest]
            shares = [sum(w[j] for w in self.weights) for j in run]
            mass = sum(shares)
            shares = [x / mass for x in shares]
            key = [sum(s * self.keys[j][d] for s, j in zip(shares, run)) for d in range(DIM)]
            value = [sum(s * self.values[j][d] for s, j in zip(shares, run)) for d in range(DIM)]
            # Mass of the mean key, relative to that of all entries visible to the row.
            of_mean = 0.0
            for t, q in self.rows:
                scores = logits(q, self.keys[:t + 1], self.biases)
                top = max(scores)
                of_mean += math.exp(logits(q, [key], [0.0])[0] - top) / sum(math.exp(x - top) for x in scores)
            bias = max(-8.0, min(8.0, math.log(mass / of_mean)))
            rest[run[-1]] = (key, value, struct.unpack("e", struct.pack("e", bias))[0])  # rounded as stored
        stay = [j for j in range(PROMPT) if j not in gone or j in rest]
        n_before = PROMPT
        for j, (key, value, bias) in rest.items():
            self.keys[j], self.values[j], self.biases[j] = key, value, bias
        for name in ("positions", "keys", "values", "biases"):
            whole = getattr(self, name)
            setattr(self, name, [whole[j] for j in stay])
        # The newest entries are invisible to a row.
        self.visible = [len(stay) - (n_before - (t + 1)) for t, _ in self.rows]

    def equations(self, values, held_back):
        found = []
        for i, ((_, q), target, n) in enumerate(zip(self.rows, self.targets, self.visible)):
            if (i // GROUP % 4 == 3) != held_back:
                continue
            weights = softmax(logits(q, self.keys[:n], self.biases)) + [0.0] * (len(self.keys) - n)
            out = [sum(w * v[d] for w, v in zip(weights, values)) for d in range(DIM)]
            found.append((weights, [a - b for a, b in zip(target, out)]))
        return found

    def refit(self):
        def error(values):
            return sum(x * x for _, residual in self.equations(values, True) for x in residual)
        used = self.equations(self.values, False)
        n = len(used)
        products = [[sum(a * b for a, b in zip(used[i][0], used[j][0])) for j in range(n)] for i in range(n)]
        ridge = sum(products[i][i] for i in range(n)) / n
        for i in range(n):
            products[i][i] += ridge
        solution = solve(products, [list(residual) for _, residual in used])
        fitted = [[v + sum(used[i][0][j] * solution[i][d] for i in range(n)) for d, v in enumerate(value)]
                  for j, value in enumerate(self.values)]
        if error(fitted) < error(self.values):
            self.values = fitted

    def generate(self):
        outputs = {h: [] for h in self.query_heads()}
        for token in range(PROMPT, N):
            self.keys.append(self.text.k[self.layer][self.g][token])
            self.values.append(self.text.v[self.layer][self.g][token])
            self.biases.append(0.0)
            self.positions.append(token)
            for h in self.query_heads():
                weights = softmax(logits(self.text.q[self.layer][h][token], self.keys, self.biases))
                outputs[h].append(mix(weights, self.values))
        return outputs


def shares(size, share_of_rest):
    n_heads = LAYERS * HKV
    n_rest = max(1, math.floor(share_of_rest * size + 0.5)) if share_of_rest > 0 else 0
    window = max(1, size // 2) if size <= WINDOW else WINDOW
    n_recent = min(window, size - n_rest)
    n_new = (size - n_rest - n_recent) * n_heads
    return n_rest, n_recent, n_new, min(max(1, size // 10), n_new // n_heads), window


class WinnowTest(MethodTest):
    def run_both(self, size, allocation="curves", rest=0.0, refit=False):
        n_rest, n_recent, n_new, floor, window = shares(size, rest)
        spec = f"winnow:queries=window,window={WINDOW},allocation={allocation},rest={rest:g},refit={str(refit).lower()}"
        for pairing in ("norm", "neox"):
            text = Text(self.SEED, pairing)
            path = self.record("text.safetensors", text)
            _, result = self.replay(path, spec, "--size", str(size))
            heads = [OneHead(text, layer, g, range(PROMPT - window, PROMPT)) for layer in range(LAYERS) for g in range(HKV)]
            if allocation == "curves":
                sizes = fill([head.curve(n_recent) for head in heads], floor, n_new)
            elif allocation == "uniform":
                sizes = [n_new // len(heads)] * len(heads)
            else:
                sizes = [floor] * len(heads)
                others = [(-head.scores[j], -j, i) for i, head in enumerate(heads) for j in head.order(n_recent)[floor:]]
                for _, _, i in sorted(others)[:n_new - floor * len(heads)]:
                    sizes[i] += 1
            self.assertLessEqual(sum(sizes), n_new)
            for head, of_head in zip(heads, sizes):
                head.shrink(of_head, n_recent, n_rest)
                if refit and len(head.positions) < PROMPT:
                    head.refit()
                outputs = head.generate()
                found = self.rows(result, f"layers.{head.layer}.out")
                with self.subTest(spec=spec, size=size, pairing=pairing, layer=head.layer, head=head.g):
                    self.assertEqual(self.kept(result, head.layer, head.g), head.positions)
                    keys = self.rows(result, f"layers.{head.layer}.k")[head.g]
                    values = self.rows(result, f"layers.{head.layer}.v")[head.g]
                    for rank, (key, value) in enumerate(zip(head.keys, head.values)):
                        self.assert_close(keys[rank], key)
                        self.assert_close(values[rank], value)
                    for h in head.query_heads():
                        for step, expected in enumerate(outputs[h]):
                            self.assert_close(found[h][step], expected)

    def test_curves(self):
        for size in (5, 8, 13):
            self.run_both(size)

    def test_other_allocations(self):
        for allocation in ("uniform", "top-k"):
            self.run_both(8, allocation)

    def test_rest_rows(self):
        for size in (3, 8, 13):
            self.run_both(size, rest=0.25)

    def test_refit(self):
        self.run_both(8, refit=True)
        self.run_both(10, rest=0.1, refit=True)


if __name__ == "__main__":
    unittest.main()
