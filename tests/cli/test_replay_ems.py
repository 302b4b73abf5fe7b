"""EMS under winnow replay, against a reference implementation written from the paper and
docs/methods/semantics.md#ems."""

import math
import struct
import unittest

from recordings import N, PROMPT
from replay_heads import MethodTest, cosine


def half(x):
    """Rounded to 16 bits, as stored."""
    return struct.unpack("e", struct.pack("e", x))[0]


def scaled(x, factor):
    return [factor * a for a in x]


class Ems:
    """Sinks, members of classes, then local tokens, as dictionaries."""

    def __init__(self, head, budget, window, kernel, gamma, tau, score="both", chunk=PROMPT, n_protect=0, similarity="both",
                 sinks=0, recent=0):
        self.head, self.budget, self.window, self.tau = head, budget, window, tau
        self.score, self.n_protect, self.compared = score, n_protect, similarity
        self.n_sinks, self.n_local = sinks, max(window, recent)
        self.n_classes = budget - self.n_sinks - self.n_local
        self.n_merged = int((gamma - 1) * budget + 1e-9)
        self.sinks, self.members, self.local, self.counter = [], [], [], 0
        for first in range(0, PROMPT, chunk):
            tokens = range(first, min(first + chunk, PROMPT))
            if first == 0 and len(tokens) > 1:
                self.prompt(tokens, kernel)
            else:
                self.later_chunk(tokens)
        for token in range(PROMPT, N):
            self.step(token)

    def entry(self, token):
        key = self.head.stored_key(token)
        return {"token": token, "key": key, "norm": math.sqrt(sum(x * x for x in key)), "all": 0.0, "past": 0.0, "now": 0.0,
                "class": None, "value": self.head.text.v[self.head.layer][self.head.g][token]}

    def scores(self, entries):
        if self.score != "both":
            return [e["all"] if self.score == "global" else e["past"] + e["now"] for e in entries]
        f = sum(e["past"] + e["now"] for e in entries) / sum(e["all"] for e in entries)
        return [max(f * e["all"], e["past"] + e["now"]) for e in entries]

    def similar(self, a, b):
        keys, values = cosine(a["direction"], b["direction"]), cosine(a["value"], b["value"])
        return {"key": keys, "value": values, "both": keys * values}[self.compared]

    @staticmethod
    def found(entry):
        entry["class"] = {"direction": scaled(entry["key"], 1 / entry["norm"]), "value": entry["value"]}

    def prompt(self, tokens, kernel):
        """1.5.2, for a whole prompt or its first chunk."""
        rows = []
        entries = [self.entry(t) for t in tokens]
        for token in tokens:
            self.local = entries[:token + 1]
            rows.append(self.seen(token))
        for row in rows:
            for e, weight in zip(entries, row):
                e["all"] += weight
        for row in rows[-self.window:]:
            for e, weight in zip(entries, row):
                e["past"] += weight
        n_old = max(0, len(entries) - self.n_local)
        if len(entries) <= self.budget:  # each entry is its own class
            for e in entries[self.n_sinks:n_old]:
                self.found(e)
        else:
            self.compress(entries, n_old, kernel)
        for e in entries:
            e["past"] = half(e["past"])
        self.sinks = entries[:min(n_old, self.n_sinks)]
        self.members = [e for e in entries[self.n_sinks:n_old] if e["class"] is not None]
        self.local = entries[n_old:]

    def compress(self, entries, n_old, kernel):
        raw = self.scores(entries)[:n_old]
        reach = kernel // 2
        pooled = [sum(raw[max(0, j - reach):j + reach + 1]) / kernel for j in range(len(raw))]
        ranking = sorted(range(self.n_sinks, len(pooled)), key=lambda j: (-pooled[j], -j))
        founders = ranking[:self.n_classes]
        for j in founders:
            self.found(entries[j])
        members = {j: [j] for j in founders}
        for j in ranking[self.n_classes:self.n_classes + self.n_merged]:
            one = {"direction": entries[j]["key"], "value": entries[j]["value"]}
            found = [(self.similar(one, entries[y]["class"]), -y, y) for y in founders[self.n_protect:]]
            if found and max(found)[0] >= self.tau:
                members[max(found)[2]].append(j)
        for founder, joined in members.items():
            shared = entries[founder]["class"]
            total = sum(entries[j]["past"] for j in joined)
            directions = [scaled(entries[j]["key"], entries[j]["past"] / total / entries[j]["norm"]) for j in joined]
            values = [scaled(entries[j]["value"], entries[j]["past"] / total) for j in joined]
            shared["direction"], shared["value"] = ([sum(x) for x in zip(*directions)], [sum(x) for x in zip(*values)])
            for j in joined:
                entries[j]["class"] = shared
                if len(joined) > 1:
                    entries[j]["norm"] = half(entries[j]["norm"])

    def entries(self):
        return self.sinks + self.members + self.local

    def show(self):
        """Sets the entries visible to attention."""
        entries = self.entries()
        self.head.tokens = [e["token"] for e in entries]
        self.head.keys = [scaled(e["class"]["direction"], e["norm"]) if e["class"] else e["key"] for e in entries]
        self.head.values = [e["class"]["value"] if e["class"] else e["value"] for e in entries]

    def seen(self, token):
        """A prompt token's row over the current entries."""
        self.show()
        return [self.head.reduced(list(column)) for column in zip(*self.head.weights(token))]

    def later_chunk(self, tokens):
        """Adds the chunk's rows to the accumulators; then promotes local tokens, oldest first."""
        rows = []
        for token in tokens:
            self.local.append(self.entry(token))
            rows.append(self.seen(token))
        self.add(rows)
        while len(self.local) > self.n_local:
            self.promote()
        self.show()

    def step(self, token):
        self.local.append(self.entry(token))
        self.show()
        rows = self.head.attended(token)
        self.add([[self.head.reduced(list(column)) for column in zip(*rows)]])
        if len(self.local) > self.n_local:
            self.promote()
        self.show()

    def add(self, rows):
        """Adds rows of attention, split at the ends of windows: stored sums are rounded once per
        part."""
        entries = self.entries()
        while rows:
            part, rows = rows[:self.window - self.counter], rows[self.window - self.counter:]
            for j, e in enumerate(entries):
                received = sum(row[j] for row in part if j < len(row))
                e["all"] += received
                e["now"] = half(e["now"] + received)
            self.counter += len(part)
            if self.counter == self.window:
                self.counter = 0
                for e in entries:
                    e["past"], e["now"] = e["now"], 0.0

    def promote(self):
        promoted = self.local.pop(0)
        if len(self.sinks) < self.n_sinks:
            self.sinks.append(promoted)
            return
        self.found(promoted)
        self.members.append(promoted)
        entries = self.entries()
        score = {id(e): s for e, s in zip(entries, self.scores(entries))}
        classes = []
        for e in self.members:
            if not any(e["class"] is c for c in classes):
                classes.append(e["class"])
        def of(c):
            return [e for e in self.members if e["class"] is c]
        if len(classes) > self.n_classes:
            ranking = sorted(classes, key=lambda c: max(score[id(e)] for e in of(c)))
            x, others = ranking[0], [c for c in classes if any(c is one for one in ranking[1:len(ranking) - self.n_protect])]
            y = max(others, key=lambda c: self.similar(x, c), default=None)
            if y is not None and self.n_merged and self.similar(x, y) >= self.tau:
                weight_x, weight_y = (sum(e["past"] + e["now"] for e in of(c)) for c in (x, y))
                for name in ("direction", "value"):
                    y[name] = [(weight_x * a + weight_y * b) / (weight_x + weight_y) for a, b in zip(x[name], y[name])]
                for e in of(x) + of(y):
                    e["class"] = y
                    e["norm"] = half(e["norm"])
            else:
                self.members = [e for e in self.members if e["class"] is not x]
        if len(self.members) > self.n_classes + self.n_merged:
            droppable = [e for e in self.members if e is not promoted and len(of(e["class"])) > 1]
            victim = min(droppable, key=lambda e: score[id(e)])
            self.members = [e for e in self.members if e is not victim]


# The form in which a replay keeps keys, by `positions`.
KEPT = {"reassigned": "reassigned", "original": "text", "baked": "baked"}


class EmsReplay(MethodTest):
    SPEC = "ems:window=4,kernel=3,gamma=1.5"

    def ems(self, tau, **options):
        return self.each(lambda head: Ems(head, 10, 4, 3, 1.5, tau, **options))

    def test_the_whole_prompt(self):
        for positions, kept in KEPT.items():
            for tau in (0.2, -1.0):
                self.compare(f"{self.SPEC},tau={tau},positions={positions}", 10, self.ems(tau), kept)
        self.compare(f"{self.SPEC},tau=0.2,reduce=max", 10, self.ems(0.2), "reassigned", "max")

    def test_ablations(self):
        for score in ("global", "local"):
            self.compare(f"{self.SPEC},tau=0.2,score={score}", 10, self.ems(0.2, score=score), "reassigned")
        for similarity in ("key", "value"):
            self.compare(f"{self.SPEC},tau=0.2,similarity={similarity}", 10, self.ems(0.2, similarity=similarity), "reassigned")
        for n_protect in (2, 6):
            self.compare(f"{self.SPEC},tau=-1,n_protect={n_protect}", 10, self.ems(-1, n_protect=n_protect), "reassigned")

    def test_chunks(self):
        """Chunks shorter than window and budget, and longer than both; windows end inside chunks.
        """
        for chunk in (1, 2, 3, 5, 7, 9, 12):
            for positions, kept in KEPT.items():
                self.compare(f"{self.SPEC},tau=0.2,positions={positions}", 10, self.ems(0.2, chunk=chunk), kept,
                             flags=("--prefill-chunk", chunk))
        self.compare(f"{self.SPEC},tau=-1", 10, self.ems(-1, chunk=6), "reassigned", flags=("--prefill-chunk", 6))

    def test_regions(self):
        """Sinks and recent tokens have their own rows, whatever their similarity and attention."""
        for sinks, recent in ((2, 0), (0, 6), (2, 5)):
            for tau in (0.2, -1):
                for chunk in (1, 2, 7, PROMPT):
                    self.compare(f"{self.SPEC},tau={tau},sinks={sinks},recent={recent}", 11,
                                 self.each(lambda head: Ems(head, 11, 4, 3, 1.5, tau, chunk=chunk, sinks=sinks, recent=recent)),
                                 "reassigned", flags=("--prefill-chunk", chunk))
        # A share includes the sinks: 2 and 5 of 14.
        self.compare(f"{self.SPEC},tau=0.2,sinks=2,recent=0.5", 14,
                     self.each(lambda head: Ems(head, 14, 4, 3, 1.5, 0.2, sinks=2, recent=5)), "reassigned")

    def test_one_chunk_is_the_whole_prompt(self):
        self.compare(f"{self.SPEC},tau=0.2", 10, self.ems(0.2), "reassigned", flags=("--prefill-chunk", 100))


if __name__ == "__main__":
    unittest.main()
