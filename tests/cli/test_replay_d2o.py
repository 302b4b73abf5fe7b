"""D2O under winnow replay, against a reference implementation written from the paper and
docs/methods/semantics.md#d2o."""

import math
import unittest
from statistics import mean, variance

from recordings import LAYERS, N, PROMPT, Text
from replay_heads import MethodTest, best, cosine, least


def count_recent(size, sinks):
    return max(1, (size - sinks) // 4)


def half(size, sinks):
    """recent=0.5 includes the sinks."""
    return max(0, size // 2 - sinks)


class D2o:
    """One KV head: the attention its entries received, and the thresholds of merging."""

    def __init__(self, head, sinks=4, recent=count_recent, beta=0.5, merge="exp", similarity="keys", into_sinks=True):
        self.head, self.sinks, self.recent, self.beta, self.merge = head, sinks, recent, beta, merge
        self.into_sinks = into_sinks
        both = [head.keys, head.values]
        # The vectors that are compared, and those that are merged then.
        self.kinds = {"keys": [(head.keys, both)], "values": [(head.values, both)],
                      "both": [(head.keys, [head.keys]), (head.values, [head.values])]}[similarity]
        self.taus = [None] * len(self.kinds)
        self.sums = []

    def add(self, rows):
        for row in rows:
            self.sums += [0.0] * (len(row) - len(self.sums))
            for rank, weight in enumerate(row):
                self.sums[rank] += weight

    def compress_prompt(self, size):
        """1.3.2: evicts all victims at once."""
        n = len(self.sums)
        if n <= size:
            return
        recent = self.recent(size, self.sinks)
        important = best(self.sums[self.sinks:n - recent], size - self.sinks - recent)
        stay = {*range(self.sinks), *(self.sinks + j for j in important), *range(n - recent, n)}
        self.evict([rank for rank in range(n) if rank not in stay])

    def compress(self, size):
        """1.3.3, repeated until the size is reached."""
        while len(self.sums) > size:
            self.evict([least(self.sums, self.sinks, len(self.sums) - self.recent(size, self.sinks))])

    def evict(self, gone):
        stay = [rank for rank in range(len(self.sums)) if rank not in gone]
        targets = [rank for rank in stay if self.into_sinks or rank >= self.sinks]
        merged = []  # (vectors, rank, vector)
        for kind, (compared, merging) in enumerate(self.kinds):
            nearest = {}  # evicted rank: (similarity, target)
            for rank in gone:
                similarities = [cosine(compared[rank], compared[target]) for target in targets]
                nearest[rank] = max(similarities), targets[similarities.index(max(similarities))]
            mean = sum(u for u, _ in nearest.values()) / len(gone)
            before = self.taus[kind]
            tau = self.taus[kind] = mean if before is None else self.beta * mean + (1 - self.beta) * before
            for target in targets:
                sources = [(nearest[rank][0], rank) for rank in gone if nearest[rank][1] == target and nearest[rank][0] >= tau]
                if sources:
                    merged += [(vectors, target, self.mixed(vectors, target, sources)) for vectors in merging]
        for vectors, rank, vector in merged:
            vectors[rank] = vector
        self.head.keep(stay, self.sums)

    def mixed(self, vectors, target, sources):
        own, terms = {"exp": (math.e, [(math.exp(u), math.exp(u)) for u, _ in sources]),
                      "code": (1, [(u, 1) for u, _ in sources]),
                      "average": (1, [(1, 1) for _ in sources])}[self.merge]
        whole = own + sum(share for _, share in terms)
        return [(own * x + sum(weight * vectors[rank][i] for (weight, _), (_, rank) in zip(terms, sources))) / whole
                for i, x in enumerate(vectors[target])]

    def generate(self, size):
        for token in range(PROMPT, N):
            self.add([self.head.step(token)])
            if size is not None:
                self.compress(size)


def d2o(head, size, **options):
    """A whole prompt. Without a size the layer keeps everything."""
    one = D2o(head, **options)
    one.add(head.prompt_rows()[0])
    if size is not None:
        one.compress_prompt(size)
    one.generate(size)


def d2o_in_chunks(heads, chunk, layer_size, **options):
    """All heads of a layer, whose size may change between chunks: layer_size(columns of the query
    heads, tokens read)."""
    for head in heads:
        head.start()
    ones = [D2o(head, **options) for head in heads]
    while heads[0].n_read < PROMPT:
        first = heads[0].n_read == 0
        columns = []
        for one in ones:
            one.add(one.head.read(min(chunk, PROMPT - one.head.n_read)))
            for h in range(len(one.head.query_heads())):
                columns.append([sum(row[h][j] for row in one.head.rows_read if j < len(row[h])) for j in range(len(one.sums))])
        size = layer_size(columns, heads[0].n_read)
        for one in ones:
            if first:
                one.compress_prompt(size)
            else:
                one.compress(size)
    for one in ones:
        one.generate(size)


def variances(heads):
    """Variances of the column sums, [query head] of a layer."""
    return [variance([sum(row[j] for row in rows) for j in range(PROMPT)])
            for head in heads for rows in head.prompt_rows()[1]]


class D2oReplay(MethodTest):
    def densities(self, text):
        return [mean(variances(self.heads(text, layer, "original"))) for layer in range(LAYERS)]

    def gate(self, factor=1):
        """A threshold between the densities of the two layers."""
        found = [factor * x for x in self.densities(Text(self.SEED, "norm"))]
        self.assertGreater(abs(found[0] - found[1]), 1e-3 * factor)
        return mean(found)

    def test_the_whole_prompt(self):
        uniform = "d2o:layer_policy=uniform"
        self.compare(uniform, 10, self.each(d2o, 10))
        self.compare(f"{uniform},reduce=max", 10, self.each(d2o, 10), reduce="max")
        # Merging before RoPE.
        self.compare(f"{uniform},positions=reassigned", 10, self.each(d2o, 10), "reassigned")

    def test_how_entries_merge(self):
        for name, values in (("merge", ("code", "average")), ("similarity", ("values", "both")), ("beta", (0, 0.9))):
            for value in values:
                self.compare(f"d2o:layer_policy=uniform,{name}={value}", 10, self.each(over(d2o, **{name: value}), 10))
        self.compare("d2o:layer_policy=uniform,into_sinks=false", 10, self.each(over(d2o, into_sinks=False), 10))

    def test_chunks(self):
        for chunk in (1, 2, 5, 11, 13, PROMPT):
            for positions in ("original", "reassigned"):
                self.compare(f"d2o:layer_policy=uniform,positions={positions}", 10,
                             lambda heads: d2o_in_chunks(heads, chunk, lambda columns, n: 10), positions,
                             flags=("--prefill-chunk", chunk))

    def test_regions(self):
        """Recent entries as a count or as a share of the budget that includes the sinks."""
        for spec, recent in (("sinks=2,recent=0.5", 3), ("sinks=2,important=0,recent=5", 5), ("sinks=2,important=1,recent=1", 4)):
            for chunk in (5, PROMPT):
                self.compare(f"d2o:layer_policy=uniform,{spec}", 10, lambda heads: d2o_in_chunks(
                    heads, chunk, lambda columns, n: 10, sinks=2, recent=lambda size, sinks: recent), flags=("--prefill-chunk", chunk))

    def test_one_chunk_is_the_whole_prompt(self):
        self.compare("d2o:layer_policy=uniform", 10, self.each(d2o, 10), flags=("--prefill-chunk", 100))
        self.compare("d2o:layer_policy=uniform", 10, lambda heads: d2o_in_chunks(heads, PROMPT, lambda columns, n: 10))

    def test_a_gate_between_the_layers(self):
        gate = self.gate()
        for size in (8, 14):  # twice 14 exceeds the prompt
            for spec, options in (("", {}), (",recent=0.5", {"recent": half})):
                def gated(heads):
                    for head in heads:
                        d2o(head, size if mean(variances(heads)) > gate else min(PROMPT, 2 * size), **options)
                self.compare(f"d2o:gate={gate}{spec}", size, gated)

    def test_a_gate_in_chunks(self):
        """The density is that of the longest chunk so far. With chunks of 7 tokens the last one
        has one token."""
        for chunk, size in ((6, 7), (9, 7), (12, 7), (7, 12)):
            found = []  # densities of all chunks
            def sized(gate):
                longest, density = 0, 0.0
                def layer_size(columns, n_seen):
                    nonlocal longest, density
                    n_new = n_seen - (n_seen - 1) // chunk * chunk
                    if n_new >= longest:
                        longest, density = n_new, mean([variance(x) for x in columns])
                        found.append(density)
                    return size if density > gate else max(size, min(n_seen, 2 * size))
                return layer_size
            for layer in range(LAYERS):
                d2o_in_chunks(self.heads(Text(self.SEED, "norm"), layer, "original"), chunk, sized(0))
            gate = mean(sorted(found)[len(found) // 2 - 1:len(found) // 2 + 1])
            for one in (gate, 1000):  # some layers dense, or all
                self.compare(f"d2o:gate={one}", size, lambda heads: d2o_in_chunks(heads, chunk, sized(one)),
                             flags=("--prefill-chunk", chunk))

    def test_a_gate_scaled_by_the_length(self):
        factor = 1000 / PROMPT
        gate = self.gate(factor)
        def gated(heads):
            for head in heads:
                d2o(head, 8 if mean(variances(heads)) * factor > gate else 16)
        self.compare(f"d2o:gate_scale=length,gate={gate}", 8, gated)

    def test_layers_that_hold_the_total(self):
        between = self.gate()
        for size, alpha, gate in ((12, 2, between), (13, 1.7, between), (18, 2, between), (12, 1.4, 1000), (13, 1.7, 1000),
                                  (12, 2, 0), (24, 2, between), (12, 1.4, between)):
            def shared(heads):
                dense = [x <= gate for x in self.densities(heads[0].text)]
                # By bisection: the largest S such that the sum over layers of min(n, alpha S), or
                # S, is within the total.
                low, high = 0.0, float(PROMPT)
                for _ in range(100):
                    middle = (low + high) / 2
                    total = sum(min(PROMPT, alpha * middle) if one else middle for one in dense)
                    low, high = (middle, high) if total <= size * LAYERS + 1e-9 else (low, middle)
                own = min(PROMPT, alpha * low) if dense[heads[0].layer] else low
                for head in heads:
                    d2o(head, math.floor(own + 1e-6) if PROMPT > size else size, **options)
            for spec, options in (("", {}), (",sinks=2,recent=0.5", {"sinks": 2, "recent": half})):
                self.compare(f"d2o:total=true,gate={gate},alpha={alpha}{spec}", size, shared)


class D2oSoftmaxReplay(MethodTest):
    LAYERS = 6  # the first two and the last keep everything

    def test_layers_by_a_softmax(self):
        def spread(heads):
            found = variances(heads)
            return mean([(x - min(found)) / (max(found) - min(found) + 1e-6) for x in found])
        for size in (10, 14):
            sizes = set()
            def shared(heads):
                text, layer = heads[0].text, heads[0].layer
                found = [math.exp(-spread(self.heads(text, one, "original"))) for one in range(self.LAYERS)]
                ratio = found[layer] / sum(found) * self.LAYERS * size / PROMPT
                own = max(6, math.floor(min(1.0, max(0.01, ratio)) * PROMPT))
                exempt = layer < 2 or layer == self.LAYERS - 1
                sizes.add(None if exempt else own)
                for head in heads:
                    d2o(head, None if exempt else own)
            self.compare("d2o:layer_policy=softmax", size, shared)
            self.assertGreater(len(sizes), 2)


def over(run, **options):
    return lambda *arguments: run(*arguments, **options)


if __name__ == "__main__":
    unittest.main()
