"""Methods under winnow replay, against second implementations written from their algorithms."""

import math
import struct
import unittest

from recordings import HQ, LAYERS, N, PROMPT, Text
from replay_heads import MethodTest, best, cosine, least


def half(x):
    """As stored in 16 bits."""
    return struct.unpack("e", struct.pack("e", x))[0]


def h2o(head, size, sinks, recent):
    rows, _ = head.prompt_rows()
    sums = [sum(row[j] for row in rows) for j in range(PROMPT)]
    n_heavy = size - sinks - recent
    heavy = [sinks + j for j in best(sums[sinks:PROMPT - recent], n_heavy)]
    head.keep([*range(sinks), *heavy, *range(PROMPT - recent, PROMPT)], sums)
    for token in range(PROMPT, N):
        row = head.step(token)
        sums.append(0.0)
        for j, weight in enumerate(row):
            sums[j] += weight
        head.drop(least(sums, sinks, len(sums) - recent), sums)


def tova(heads, size):
    """All heads of a layer, which keep the same."""
    last = [head.prompt_rows()[0][-1] for head in heads]
    for head in heads:
        head.keep(best([sum(column) for column in zip(*last)], size))
    for token in range(PROMPT, N):
        rows = [head.step(token) for head in heads]
        victim = least([sum(column) for column in zip(*rows)], 0, size + 1)
        for head in heads:
            head.drop(victim)


def density(heads):
    """The mean variance of the column sums of a layer's query heads."""
    total = 0.0
    for head in heads:
        for rows in head.prompt_rows()[1]:
            sums = [sum(row[j] for row in rows) for j in range(PROMPT)]
            mean = sum(sums) / PROMPT
            total += sum((x - mean) ** 2 for x in sums) / (PROMPT - 1) / HQ
    return total


def flow(head, target, sources):
    """Entries given as (similarity, key, value) merge into one that stays."""
    whole = math.e + sum(math.exp(u) for u, _, _ in sources)
    def merged(own, others):
        return [(math.e * x + sum(math.exp(u) * other[i] for u, other in others)) / whole for i, x in enumerate(own)]
    head.keys[target], head.values[target] = (merged(head.keys[target], [(u, key) for u, key, _ in sources]),
                                              merged(head.values[target], [(u, value) for u, _, value in sources]))


def d2o(head, size, beta=0.5):
    sinks = 4
    recent = max(1, (size - sinks) // 4)
    rows, _ = head.prompt_rows()
    sums = [sum(row[j] for row in rows) for j in range(PROMPT)]
    tau = None
    if PROMPT > size:
        important = [sinks + j for j in best(sums[sinks:PROMPT - recent], size - sinks - recent)]
        stay = [*range(sinks), *important, *range(PROMPT - recent, PROMPT)]
        gone = [j for j in range(PROMPT) if j not in stay]
        found = []
        for i in gone:
            similarities = [cosine(head.keys[i], head.keys[j]) for j in stay]
            u = max(similarities)
            found.append((u, similarities.index(u), head.keys[i], head.values[i]))
        tau = sum(u for u, *_ in found) / len(found)
        head.keep(stay, sums)
        for target in range(size):
            sources = [(u, key, value) for u, into, key, value in found if into == target and u >= tau]
            if sources:
                flow(head, target, sources)
    for token in range(PROMPT, N):
        row = head.step(token)
        sums.append(0.0)
        for j, weight in enumerate(row):
            sums[j] += weight
        if len(sums) <= size:
            continue
        victim = least(sums, sinks, len(sums) - recent)
        key, value = head.keys[victim], head.values[victim]
        head.drop(victim, sums)
        similarities = [cosine(key, other) for other in head.keys]
        u = max(similarities)
        tau = u if tau is None else beta * u + (1 - beta) * tau
        if u >= tau:
            flow(head, similarities.index(u), [(u, key, value)])


def scaled(x, factor):
    return [factor * a for a in x]


class Ems:
    """Members of classes, then local tokens: dictionaries."""

    def __init__(self, head, budget, window, kernel, gamma, tau, score="both"):
        self.head, self.window, self.tau, self.score = head, window, tau, score
        self.n_classes = budget - window
        self.n_merged = int((gamma - 1) * budget)
        self.prefill(kernel)
        for token in range(PROMPT, N):
            self.step(token)

    def entry(self, token):
        key = self.head.key_of(token)
        return {"token": token, "key": key, "norm": math.sqrt(sum(x * x for x in key)), "all": 0.0, "past": 0.0, "now": 0.0,
                "class": None, "value": self.head.text.v[self.head.layer][self.head.g][token]}

    def scores(self, entries):
        if self.score != "both":
            return [e["all"] if self.score == "global" else e["past"] + e["now"] for e in entries]
        f = sum(e["past"] + e["now"] for e in entries) / sum(e["all"] for e in entries)
        return [max(f * e["all"], e["past"] + e["now"]) for e in entries]

    def similar(self, a, b):
        return cosine(a["direction"], b["direction"]) * cosine(a["value"], b["value"])

    @staticmethod
    def found(entry):
        entry["class"] = {"direction": scaled(entry["key"], 1 / entry["norm"]), "value": entry["value"]}

    def prefill(self, kernel):
        rows, _ = self.head.prompt_rows()
        entries = [self.entry(t) for t in range(PROMPT)]
        for j, e in enumerate(entries):
            e["all"] = sum(row[j] for row in rows)
            e["past"] = sum(row[j] for row in rows[PROMPT - self.window:])
        raw = self.scores(entries)[:PROMPT - self.window]
        reach = kernel // 2
        pooled = [sum(raw[max(0, j - reach):j + reach + 1]) / kernel for j in range(len(raw))]
        ranking = sorted(range(len(pooled)), key=lambda j: (-pooled[j], -j))
        founders = sorted(ranking[:self.n_classes])
        for j in founders:
            self.found(entries[j])
        members = {j: [j] for j in founders}
        for j in ranking[self.n_classes:self.n_classes + self.n_merged]:
            one = {"direction": entries[j]["key"], "value": entries[j]["value"]}
            similarity, _, target = max((self.similar(one, entries[y]["class"]), -y, y) for y in founders)
            if similarity >= self.tau:
                members[target].append(j)
        for founder, joined in members.items():
            shared = entries[founder]["class"]
            total = sum(entries[j]["past"] for j in joined)
            directions = [scaled(entries[j]["key"], entries[j]["past"] / total / entries[j]["norm"]) for j in joined]
            values = [scaled(entries[j]["value"], entries[j]["past"] / total) for j in joined]
            shared["direction"], shared["value"] = ([sum(x) for x in zip(*directions)], [sum(x) for x in zip(*values)])
            for j in joined:
                entries[j]["class"] = shared
                if len(joined) > 1:
                    entries[j]["norm"] = self.length(entries[j])
        for e in entries:
            e["past"] = half(e["past"])
        self.members = [e for e in entries[:PROMPT - self.window] if e["class"] is not None]
        self.local = entries[PROMPT - self.window:]
        self.counter = 0

    @staticmethod
    def length(entry):
        """Of the key of a member of a merged class: a half, and not 1, which marks rows that are keys."""
        return half(entry["norm"]) if half(entry["norm"]) != 1 else 1 + 2**-10

    def show(self):
        """What attention sees."""
        entries = self.members + self.local
        self.head.tokens = [e["token"] for e in entries]
        self.head.keys = [scaled(e["class"]["direction"], e["norm"]) if e["class"] else e["key"] for e in entries]
        self.head.values = [e["class"]["value"] if e["class"] else e["value"] for e in entries]

    def step(self, token):
        self.local.append(self.entry(token))
        self.show()
        rows = self.head.attended(token)
        entries = self.members + self.local
        for j, e in enumerate(entries):
            weight = self.head.reduced([row[j] for row in rows])
            e["all"] += weight
            e["now"] = half(e["now"] + weight)
        self.counter += 1
        if self.counter == self.window:
            self.counter = 0
            for e in entries:
                e["past"], e["now"] = e["now"], 0.0
        if len(self.local) > self.window:
            self.promote()
        self.show()

    def promote(self):
        promoted = self.local.pop(0)
        self.found(promoted)
        self.members.append(promoted)
        entries = self.members + self.local
        score = {id(e): s for e, s in zip(entries, self.scores(entries))}
        classes = []
        for e in self.members:
            if not any(e["class"] is c for c in classes):
                classes.append(e["class"])
        def of(c):
            return [e for e in self.members if e["class"] is c]
        if len(classes) > self.n_classes:
            x = min(classes, key=lambda c: max(score[id(e)] for e in of(c)))
            y = max((c for c in classes if c is not x), key=lambda c: self.similar(x, c))
            if self.similar(x, y) >= self.tau:
                weight_x, weight_y = (sum(e["past"] + e["now"] for e in of(c)) for c in (x, y))
                for name in ("direction", "value"):
                    y[name] = [(weight_x * a + weight_y * b) / (weight_x + weight_y) for a, b in zip(x[name], y[name])]
                for e in of(x) + of(y):
                    e["class"] = y
                    e["norm"] = self.length(e)
            else:
                self.members = [e for e in self.members if e["class"] is not x]
        if len(self.members) > self.n_classes + self.n_merged:
            droppable = [e for e in self.members if e is not promoted and len(of(e["class"])) > 1]
            victim = min(droppable, key=lambda e: score[id(e)])
            self.members = [e for e in self.members if e is not victim]


class SecondImplementations(MethodTest):
    def test_h2o(self):
        self.compare("h2o", 9, self.each(h2o, 9, 0, 4))
        self.compare("h2o:sinks=2,recent=3", 10, self.each(h2o, 10, 2, 3))
        self.compare("h2o:reduce=max", 9, self.each(h2o, 9, 0, 4), reduce="max")
        self.compare("h2o:sinks=2,recent=3,positions=reassigned", 10, self.each(h2o, 10, 2, 3), "reassigned")

    def test_tova(self):
        self.compare("tova", 9, lambda heads: tova(heads, 9))
        self.compare("tova:positions=reassigned", 9, lambda heads: tova(heads, 9), "reassigned")

    def test_d2o(self):
        self.compare("d2o:layer_policy=uniform", 10, self.each(d2o, 10))
        self.compare("d2o:layer_policy=uniform,reduce=max", 10, self.each(d2o, 10), reduce="max")
        # A gate between the densities of the two layers: one gets twice the budget.
        for pairing in ("norm", "neox"):
            text = Text(self.SEED, pairing)
            found = [density(self.heads(text, layer, "original")) for layer in range(LAYERS)]
            self.assertGreater(abs(found[0] - found[1]), 1e-3)
        gate = sum(found) / 2
        def gated(heads):
            for head in heads:
                d2o(head, 8 if density(heads) > gate else 16)
        self.compare(f"d2o:gate={gate}", 8, gated)

    def test_d2o_that_merges_before_rope(self):
        self.compare("d2o:layer_policy=uniform,positions=reassigned", 10, self.each(d2o, 10), "reassigned")

    def test_ems(self):
        for positions in ("reassigned", "original", "baked"):
            for tau in (0.2, -1.0):
                kept = {"reassigned": "reassigned", "original": "text", "baked": "baked"}[positions]
                self.compare(f"ems:window=4,kernel=3,gamma=1.5,tau={tau},positions={positions}", 10,
                             self.each(Ems, 10, 4, 3, 1.5, tau), kept)
        for score in ("global", "local"):
            self.compare(f"ems:window=4,kernel=3,gamma=1.5,tau=0.2,score={score}", 10,
                         self.each(Ems, 10, 4, 3, 1.5, 0.2, score), "reassigned")
        self.compare("ems:window=4,kernel=3,gamma=1.5,tau=0.2,reduce=max", 10, self.each(Ems, 10, 4, 3, 1.5, 0.2), "reassigned",
                     "max")


if __name__ == "__main__":
    unittest.main()
