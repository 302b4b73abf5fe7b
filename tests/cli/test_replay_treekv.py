"""TreeKV under winnow replay, against a reference implementation written from the paper and
docs/methods/semantics.md#treekv."""

import unittest

from recordings import N, PROMPT
from replay_heads import MethodTest

SINKS, RECENT = 1, 3  # during decode


class Attention:
    """The attention that a head's entries received so far."""

    def __init__(self, criterion):
        self.criterion, self.sums, self.counts = criterion, [], []

    def add(self, rows):
        for row in rows:
            factor = len(row) if self.criterion == "position" else 1
            self.sums += [0.0] * (len(row) - len(self.sums))
            self.counts += [0] * (len(row) - len(self.counts))
            for rank, weight in enumerate(row):
                self.sums[rank] += weight * factor
                self.counts[rank] += 1

    def of(self, rank):
        return self.sums[rank] if self.criterion == "accumulated" else self.sums[rank] / self.counts[rank]


def generate(head, attention, size):
    """1.1.1: evicts one of two neighbouring entries."""
    middle, pointer = size - SINKS - RECENT, 0
    for token in range(PROMPT, N):
        attention.add([head.step(token)])
        if len(head.tokens) <= size:
            continue
        left = SINKS + pointer
        goes = left + 1 if attention.of(left) > attention.of(left + 1) else left
        head.drop(goes, attention.sums, attention.counts)
        pointer = (pointer + 1) % middle


def whole(head, size, block, criterion="mean"):
    """1.1.2: the whole prompt at once."""
    rows = head.prompt_rows()[0]
    n_prefix = PROMPT - block
    attention = Attention(criterion)
    attention.add([row[:i + 1] for i, row in enumerate(rows)][n_prefix:])
    blocks = [list(range(i, min(i + block, n_prefix))) for i in range(0, n_prefix, block)]
    means = [sum(attention.of(j) for j in tokens) / len(tokens) for tokens in blocks]
    n_kept = (size - block) // block
    kept, pointer = [], 0
    for arriving in range(len(blocks)):
        kept.append(arriving)
        if len(kept) > n_kept:
            del kept[pointer + (1 if means[kept[pointer]] > means[kept[pointer + 1]] else 0)]
            pointer = (pointer + 1) % n_kept
    ranks = [j for i in kept for j in blocks[i]] + list(range(n_prefix, PROMPT))
    head.keep(ranks, attention.sums, attention.counts)
    generate(head, attention, size)


def chunks(head, size, block, chunk, sinks=0, criterion="mean"):
    """0.10: the list of blocks is kept from chunk to chunk."""
    head.start()
    attention = Attention(criterion)
    listed, gone, pointer, n_left = [], set(), 0, sinks
    n_listed = (size - sinks - block) // block

    def ranks(i):
        """Ranks of a block's entries outside the window."""
        return [rank for rank, token in enumerate(head.tokens) if sinks <= token < n_left and (token - sinks) // block == i]

    def remove(i):
        gone.add(i)
        for rank in reversed(ranks(i)):
            head.drop(rank, attention.sums, attention.counts)

    def mean(i):
        return sum(attention.of(rank) for rank in ranks(i)) / len(ranks(i))

    while head.n_read < PROMPT:
        rows = head.read(min(chunk, PROMPT - head.n_read))
        attention.add(rows[max(0, len(rows) - block):])
        if len(head.tokens) <= size:
            continue
        leaving = range(n_left, head.n_read - block)
        n_left = max(n_left, head.n_read - block)
        for i in gone & {(token - sinks) // block for token in leaving}:
            remove(i)
        for i in sorted({(token - sinks) // block for token in leaving} - gone - set(listed)):
            listed.append(i)
            if len(listed) > n_listed:
                victim = pointer + (1 if mean(listed[pointer]) > mean(listed[pointer + 1]) else 0)
                remove(listed.pop(victim))
                pointer = (pointer + 1) % n_listed
    generate(head, attention, size)


class TreeKv(MethodTest):
    def spec(self, **parameters):
        parameters = {"sinks": SINKS, "recent": RECENT, **parameters}
        return "treekv:" + ",".join(f"{key}={value}" for key, value in parameters.items())

    def test_the_whole_prompt(self):
        for positions in ("reassigned", "original"):
            for criterion in ("mean", "accumulated", "position"):
                self.compare(self.spec(block=3, positions=positions, criterion=criterion), 14,
                             self.each(whole, 14, 3, criterion), positions)

    def test_chunks(self):
        for chunk in (1, 2, 3, 5, 7, 11, PROMPT):
            for positions in ("reassigned", "original"):
                self.compare(self.spec(block=3, positions=positions), 12, self.each(chunks, 12, 3, chunk), positions,
                             flags=("--prefill-chunk", chunk))
        self.compare(self.spec(block=2, prefill_sinks=2), 11, self.each(chunks, 11, 2, 5, 2), "reassigned",
                     flags=("--prefill-chunk", 5))
        for criterion in ("accumulated", "position"):
            self.compare(self.spec(block=3, criterion=criterion), 12, self.each(chunks, 12, 3, 4, 0, criterion), "reassigned",
                         flags=("--prefill-chunk", 4))

    def test_one_chunk_is_the_whole_prompt(self):
        self.compare(self.spec(block=3), 14, self.each(whole, 14, 3), "reassigned", flags=("--prefill-chunk", 100))
        self.compare(self.spec(block=3), 14, self.each(chunks, 14, 3, PROMPT), "reassigned")

    def test_small_budgets_have_small_blocks(self):
        self.compare(self.spec(block=32), 12, self.each(whole, 12, 3), "reassigned")


if __name__ == "__main__":
    unittest.main()
