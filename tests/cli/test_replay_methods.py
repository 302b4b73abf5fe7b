"""Methods under winnow replay, against reference implementations written from their algorithms."""

import unittest

from recordings import N, PROMPT
from replay_heads import MethodTest, best, least


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
    """All heads of a layer, which keep the same tokens."""
    last = [head.prompt_rows()[0][-1] for head in heads]
    for head in heads:
        head.keep(best([sum(column) for column in zip(*last)], size))
    for token in range(PROMPT, N):
        rows = [head.step(token) for head in heads]
        victim = least([sum(column) for column in zip(*rows)], 0, size + 1)
        for head in heads:
            head.drop(victim)


class SecondImplementations(MethodTest):
    def test_h2o(self):
        self.compare("h2o", 9, self.each(h2o, 9, 0, 4))
        self.compare("h2o:sinks=2,recent=3", 10, self.each(h2o, 10, 2, 3))
        self.compare("h2o:reduce=max", 9, self.each(h2o, 9, 0, 4), reduce="max")
        self.compare("h2o:sinks=2,recent=3,positions=reassigned", 10, self.each(h2o, 10, 2, 3), "reassigned")

    def test_tova(self):
        self.compare("tova", 9, lambda heads: tova(heads, 9))
        self.compare("tova:positions=reassigned", 9, lambda heads: tova(heads, 9), "reassigned")


if __name__ == "__main__":
    unittest.main()
