"""winnow, this project's own method, from prompt to answer, against a reference implementation in
double precision: it reads the prompt and its replay, and follows docs/methods/winnow.md and
semantics.md in plain loops. winnow_test.cc tests the method alone; here the rows of the replay,
the output projection, the norms and the profile come from the engine."""

import json
import math
import os
import struct
import subprocess
import unittest

from harness import CliTest, winnow
from plain_llama import Entry, Llama, dot, times
from plain_winnow import curve_sizes, fill, solve

TEXT = "the old man saw a light in the water and the dog ran to the house where she had been with her friend upon a time " * 3
FIRST = "\n\nRepeat the previous context exactly.\n"
NEXT = "\n\nRepeat the part of the previous context exactly, starting with"


class Query:
    """A query of one query head in a row. `own`: the entries it sees besides the cache (a replay's
    tokens); n_unseen: how many of the newest entries it does not see."""

    def __init__(self, head, q, rho, own, n_unseen):
        self.head, self.q, self.rho, self.own, self.n_unseen = head, q, rho, own, n_unseen


class Head:
    """A KV head in a call, before and after the decision about it."""

    def __init__(self, model, layer, g, entries):
        self.model, self.layer, self.g, self.entries = model, layer, g, entries
        self.rows, self.scores = [], [0.0] * len(entries)

    def weights(self, query):
        """[entry], and the output."""
        n = len(self.entries) - query.n_unseen
        masses = [self.model.mass(query.q, e) for e in self.entries[:n]] + [0.0] * query.n_unseen
        own = [self.model.mass(query.q, e) for e in query.own]
        total = sum(masses) + sum(own)
        weights = [m / total for m in masses]
        out = [sum(w * e.value[d] for w, e in zip(weights, self.entries)) + sum(m * e.value[d] for m, e in zip(own, query.own)) / total
               for d in range(self.model.dim)]
        return weights, out, total

    def score(self, row):
        for query in row:
            self.scores = [max(a, b) for a, b in zip(self.scores, self.weights(query)[0])]

    def order(self, first, end):
        return sorted(range(first, end), key=lambda j: (-self.scores[j], -j))

    def curve(self, fixed, order):
        sizes = curve_sizes(len(order))
        errors = [0.0] * len(sizes)
        projections = {h: self.model.projection(self.layer, h) for h in {query.head for row in self.rows for query in row}}
        for query in (query for row in self.rows for query in row):
            mass, out, found = 0.0, [0.0] * self.model.dim, []
            seen = len(self.entries) - query.n_unseen
            ranked = [self.entries[j] for j in fixed if j < seen] + query.own + [None if j >= seen else self.entries[j] for j in order]
            for i, entry in enumerate(ranked):
                if entry is not None:
                    m = self.model.mass(query.q, entry)
                    mass += m
                    out = [a + m * b for a, b in zip(out, entry.value)]
                size = i + 1 - (len(ranked) - len(order))
                if size in sizes:
                    found.append([x / mass for x in out])
            for i, some in enumerate(found):
                missing = times(projections[query.head], [a - b for a, b in zip(found[-1], some)])
                errors[i] += dot(missing, missing) / query.rho ** 2
        return list(zip(sizes, errors))

    def shrink(self, stay, n_rest):
        self.n_before = len(self.entries)
        self.targets = [[self.weights(query) for query in row] for row in self.rows]
        gone = [j for j in range(self.n_before) if j not in stay]
        if len(gone) <= n_rest:
            return
        attended = [sum(target[0][j] for row in self.targets for target in row) for j in range(self.n_before)]
        left = {j: self.entries[j] for j in stay}
        for i in range(n_rest):
            run = gone[i * len(gone) // n_rest:(i + 1) * len(gone) // n_rest]
            mass = sum(attended[j] for j in run)
            mean = lambda part: [sum(attended[j] * getattr(self.entries[j], part)[d] for j in run) / mass for d in range(self.model.dim)]
            rest = Entry(self.entries[run[-1]].position, mean("key"), mean("value"))
            of_mean = sum(self.model.mass(query.q, rest) / target[2]
                          for row, targets in zip(self.rows, self.targets) for query, target in zip(row, targets))
            bias = max(-8.0, min(8.0, math.log(mass / of_mean)))
            rest.bias = struct.unpack("e", struct.pack("e", bias))[0]  # rounded as stored
            left[run[-1]] = rest
        self.entries[:] = [left[j] for j in sorted(left)]

    def equations(self, held_back):
        found = []
        for i, (row, targets) in enumerate(zip(self.rows, self.targets)):
            if (i % 4 == 3) != held_back:
                continue
            for query, target in zip(row, targets):
                weights, out, _ = self.weights(query)
                found.append(([w / query.rho for w in weights], [(a - b) / query.rho for a, b in zip(target[1], out)]))
        return found

    def refit(self):
        if len(self.entries) == self.n_before or len(self.rows) < 4:
            return False
        error = lambda: sum(dot(missing, missing) for _, missing in self.equations(True))
        used, before = self.equations(False), error()
        n = len(self.entries)
        ridge = sum(dot(weights, weights) for weights, _ in used) / len(used)
        columns = list(zip(*(weights for weights, _ in used)))
        products = [[dot(a, b) + (ridge if i == j else 0) for j, b in enumerate(columns)] for i, a in enumerate(columns)]
        step = solve(products, [[dot(column, part) for part in zip(*(missing for _, missing in used))] for column in columns])
        old = [entry.value for entry in self.entries]
        for entry, more in zip(self.entries, step):
            entry.value = [a + b for a, b in zip(entry.value, more)]
        if error() < before:
            return True
        for entry, value in zip(self.entries, old):
            entry.value = value
        return False


class WinnowTest(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run([os.environ["MAKE_TINY_MODEL"], cls.model, "f32"], check=True, capture_output=True)
        cls.llama = Llama(cls.model)

    def tokens(self, text, *flags):
        return winnow("tokenize", "-m", self.model, "-f", self.file("tokens.txt", text), "--json", *flags).json["tokens"]

    def replay(self, cache, heads, call, n_seen, chunk, n_rows):
        """Reads the call's tokens again, without BOS, in passes. All rows score, evenly spaced
        ones are kept."""
        first = 1 if n_seen == len(call) else 0
        passes = []
        for at in range(first, len(call), chunk):
            words = FIRST if at == first else NEXT
            repeated = call[max(first, at - 8):at]
            passes.append(self.tokens(words, "--no-bos") + repeated + call[at:at + chunk])
        n_all = sum(map(len, passes))
        for tokens in passes:
            scratch = [[list(entries) for entries in layer] for layer in cache]
            _, rows = self.llama.read(tokens, n_seen, scratch)
            n = min(len(tokens), max(1, math.floor(len(tokens) / n_all * n_rows + 0.5)))
            kept = {(2 * i + 1) * len(tokens) // (2 * n) for i in range(n)}
            for head in heads:
                own = scratch[head.layer][head.g][len(head.entries):]
                for i, row in enumerate(rows[head.layer]):
                    queries = [Query(h, row.queries[h], row.rho, own[:i + 1], 0) for h in self.query_heads(head.g)]
                    head.score(queries)
                    if i in kept:
                        head.rows.append(queries)

    def query_heads(self, g):
        return range(g * self.llama.group, (g + 1) * self.llama.group)

    def decide(self, cache, call, n_seen, rows, form):
        heads = [Head(self.llama, layer, g, cache[layer][g]) for layer in range(self.llama.n_layers) for g in range(self.llama.n_kv_heads)]
        size, n_heads, n = form["size"], len(heads), len(call)
        n_rest = max(1, math.floor(form["rest"] * size + 0.5)) if form["rest"] else 0
        n_recent = 0
        if form["queries"] == "replay":
            self.replay(cache, heads, call, n_seen, form["chunk"], form["rows"])
        else:
            n_recent = min(form["window"] if size > form["window"] else max(1, size // 2), size - n_rest, n)
            for head in heads:
                for i, row in enumerate(rows[head.layer][n - n_recent:]):
                    head.rows.append([Query(h, row.queries[h], row.rho, [], n_recent - 1 - i) for h in self.query_heads(head.g)])
                    head.score(head.rows[-1])
        n_held = sum(len(head.entries) - n for head in heads)
        total = (size - n_rest) * n_heads
        of_call = max(total * n // n_seen, n_recent * n_heads)
        n_old = min(total - of_call, n_held)
        n_new = total - n_old - n_recent * n_heads
        fixed, orders, curves = [], [], []
        for head in heads:
            end, n_before = len(head.entries) - n_recent, len(head.entries) - n
            fixed.append(head.order(0, n_before)[:n_before * n_old // n_held if n_held else 0] + list(range(end, len(head.entries))))
            orders.append(head.order(n_before, end))
            curves.append(self.profile_curve(form, head, len(orders[-1])) if form["allocation"] == "profile"
                          else head.curve(fixed[-1], orders[-1]))
        sizes = fill(curves, min(max(1, size // 10), n_new // n_heads), n_new)
        for head, stay, order, of_head in zip(heads, fixed, orders, sizes):
            head.shrink(set(stay + order[:of_head]), n_rest)
        return sum(head.refit() for head in heads)

    def profile_curve(self, form, head, n):
        lines = self.model.with_name(self.model.name + ".profile").read_text().splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith(form["queries"] + " "))
        errors = list(map(float, lines[at + 1 + head.layer * self.llama.n_kv_heads + head.g].split()))
        curve = {}
        for i in reversed(range(24)):
            size = math.floor(2 ** (-i / 3) * n + 0.5)
            if size > 1 and not curve:
                curve[1] = errors[-1]
            if size >= 1:
                curve.setdefault(size, errors[i])
        return sorted(curve.items())

    def log_probs(self, logits):
        top = max(logits)
        total = top + math.log(sum(math.exp(x - top) for x in logits))
        return [x - total for x in logits]

    def run_both(self, spec, size, *flags, chunks=10 ** 6, **form):
        form = {"queries": "replay", "allocation": "curves", "rest": 0.1, "rows": 64, "window": 32, "chunk": 512, "size": size} | form
        document, question = self.file("document.txt", TEXT), "who saw?"
        prompt = TEXT + "\n" + question
        flags = ("-m", self.model, "-ctk", "f32", "-ctv", "f32", "--kv-method", spec, "--kv-size", size, *flags)
        trace = self.folder / "trace.jsonl"
        self.assert_done(winnow("run", "-p", prompt, "--no-escape", "-n", "1", "--temp", "0", "--trace", trace, *flags))
        full, found = self.assert_done(winnow("compare", "-p", TEXT, "-q", question, "--raw", "-n", "8", "--json", *flags)).json["answers"]

        tokens = self.tokens(prompt)
        cache, whole, n_refitted = self.llama.new_cache(), self.llama.new_cache(), 0
        for at in range(0, len(tokens), chunks):
            call = tokens[at:at + chunks]
            logits, rows = self.llama.read(call, at, cache)
            if at + len(call) > size:
                n_refitted += self.decide(cache, call, at + len(call), rows, form)
        base, _ = self.llama.read(tokens, 0, whole)

        kept = {}
        for line in trace.read_text().splitlines():
            plan = json.loads(line)
            for g, head in enumerate(plan["heads"]):
                kept.setdefault((plan["layer"], g), set(range(len(tokens)))).difference_update(head["evicted"])
        expected = {(layer, g): {entry.position for entry in entries} for layer, heads in enumerate(cache) for g, entries in enumerate(heads)}
        self.assertEqual(kept, expected)
        self.assertGreater(len(set(map(len, expected.values()))), 1)  # heads differ

        # Biases and values affect the following tokens.
        klds = []
        for i, token in enumerate(full["tokens"]):
            p, q = self.log_probs(base), self.log_probs(logits)
            klds.append(sum(math.exp(a) * (a - b) for a, b in zip(p, q) if a >= -16))
            base, _ = self.llama.read([token], len(tokens) + i, whole)
            logits, _ = self.llama.read([token], len(tokens) + i, cache)
        self.assertEqual(found["compared_tokens"], len(klds))
        self.assertAlmostEqual(found["mean_kld"], sum(klds) / len(klds), delta=1e-4 * sum(klds) / len(klds) + 1e-6)
        self.assertGreater(sum(klds), 1e-3)
        return n_refitted

    def test_default_form(self):
        self.assertGreater(self.run_both("winnow", 12), 0)

    def test_evenly_spaced_rows_of_several_passes(self):
        self.run_both("winnow:chunk=64,rows=30", 19, chunk=64, rows=30)

    def test_later_calls(self):
        self.run_both("winnow:rows=24", 12, "--prefill-chunk", "50", chunks=50, rows=24)

    def test_window(self):
        self.run_both("winnow:queries=window,window=8", 16, queries="window", window=8)

    def test_profile(self):
        self.assert_done(winnow("calibrate", "-m", self.model, "-f", self.file("text.txt", TEXT * 5), "--prompts", "2", "--length", "64"))
        self.run_both("winnow:allocation=profile,rows=24", 12, allocation="profile", rows=24)
        self.run_both("winnow:allocation=profile,queries=window,window=8", 16, allocation="profile", queries="window", window=8)


if __name__ == "__main__":
    unittest.main()
