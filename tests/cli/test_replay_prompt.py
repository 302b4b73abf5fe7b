"""Methods that compress prompts under winnow replay, against reference implementations written
from their algorithms."""

import math
import unittest

from recordings import N, PROMPT, Text
from replay_heads import MethodTest, best


def pooled(scores, pool, kernel):
    half = kernel // 2
    windows = [scores[max(0, j - half):j + half + 1] for j in range(len(scores))]
    if pool == "none":
        return scores
    return [max(window) if pool == "max" else sum(window) / kernel for window in windows]


def votes(head, window, prefix_softmax):
    """Attention of the prompt's last queries to each token before them, reduced over the group."""
    n_prefix = PROMPT - window
    rows, heads = head.prompt_rows()
    total = [0.0] * n_prefix
    for i in range(n_prefix, PROMPT):
        if prefix_softmax:
            own = [[weight / sum(one[i][:n_prefix]) for weight in one[i][:n_prefix]] for one in heads]
            row = [head.reduced(list(column)) for column in zip(*own)]
        else:
            row = rows[i]
        total = [a + b for a, b in zip(total, row)]
    return total


def generate(head):
    for token in range(PROMPT, N):
        head.step(token)


def snapkv(head, size, window, pool="max", kernel=7, prefix_softmax=False):
    scores = pooled(votes(head, window, prefix_softmax), pool, kernel)
    head.keep([*best(scores, size - window), *range(PROMPT - window, PROMPT)])
    generate(head)


def last_mean(head, n_rows):
    """[query head][token]: the mean over those of the last rows that see the token."""
    return [[sum(row[j] for row in rows[PROMPT - n_rows:]) / min(n_rows, PROMPT - j) for j in range(PROMPT)]
            for rows in head.prompt_rows()[1]]


def norms(head, n_rows, matrix):
    """[query head][token]: squares whose sum is the squared norm."""
    if matrix:
        return [[sum(row[j] ** 2 for row in rows) for j in range(PROMPT)] for rows in head.prompt_rows()[1]]
    return [[x ** 2 for x in one] for one in last_mean(head, n_rows)]


def refreekv(heads, threshold, sinks, n_rows=1, matrix=False, per_head=False, include_first=False, ranking="recency"):
    """All heads of a layer."""
    for together in [[head] for head in heads] if per_head else [heads]:
        squares = [one for head in together for one in norms(head, n_rows, matrix)]
        order = list(range(PROMPT - 1, sinks - 1, -1))  # in the order of keeping
        if ranking == "attention":
            attended = [sum(column) for column in zip(*(one for head in together for one in last_mean(head, n_rows)))]
            order.sort(key=lambda j: (-attended[j], -j))

        def norm(r):
            first = [sum(one[:sinks]) if include_first else 0.0 for one in squares]
            return sum(math.sqrt(f + sum(one[j] for j in order[:r])) for f, one in zip(first, squares))

        r = next(r for r in range(1, PROMPT) if 1 - norm(r) / norm(PROMPT - sinks) <= threshold)
        for head in together:
            head.keep([*range(sinks), *sorted(order[:r])])
    for head in heads:
        generate(head)


class PromptMethods(MethodTest):
    def test_snapkv(self):
        self.compare("snapkv:window=4,kernel=3", 10, self.each(snapkv, 10, 4, "max", 3))
        self.compare("snapkv:window=4,kernel=5,pool=average,reduce=max", 10, self.each(snapkv, 10, 4, "average", 5), reduce="max")

    def test_votes_normalised_over_the_prefix(self):
        for reduce in ("mean", "max"):
            self.compare(f"snapkv:window=4,kernel=3,prefix_softmax=true,reduce={reduce}", 10,
                         self.each(snapkv, 10, 4, "max", 3, True), reduce=reduce)

    def test_hbw_of_single_tokens_in_one_round_is_snapkv(self):
        path = self.record("text.safetensors", Text(self.SEED, "neox"))
        for parameters in ("window=4", "window=4,pool=average,kernel=5", "window=4,prefix_softmax=true"):
            _, snapkv_result = self.replay(path, f"snapkv:{parameters}", "--size", "12")
            _, hbw_result = self.replay(path, f"hbw:block=1,rounds=1,{parameters}", "--size", "12")
            self.assertEqual(hbw_result, snapkv_result)

    def test_refreekv(self):
        for threshold in (0, 0.01, 0.05, 0.1, 0.3, 0.7, 1):
            spec = f"refreekv:whole_layers=0,sinks=2,threshold={threshold}"
            def over(**options):
                return lambda heads: refreekv(heads, threshold, 2, **options)
            for n_rows in (1, 2, 5, 64):
                self.compare(f"{spec},queries={n_rows}", 0, over(n_rows=min(n_rows, PROMPT)))
            self.compare(f"{spec},queries_share=0.5,per_head=true", 0, over(n_rows=PROMPT // 2, per_head=True))
            self.compare(f"{spec},metric=matrix", 0, over(matrix=True))
            self.compare(f"{spec},metric=matrix,include_first=true", 0, over(matrix=True, include_first=True))

    def test_refreekv_that_ranks_by_attention(self):
        for threshold in (0.05, 0.3):
            spec = f"refreekv:whole_layers=0,sinks=2,ranking=attention,threshold={threshold}"
            def over(**options):
                return lambda heads: refreekv(heads, threshold, 2, ranking="attention", **options)
            self.compare(spec, 0, over())
            self.compare(f"{spec},queries=5", 0, over(n_rows=5))
            self.compare(f"{spec},per_head=true", 0, over(per_head=True))
            self.compare(f"{spec},queries_share=0.5,per_head=true", 0, over(n_rows=PROMPT // 2, per_head=True))
            self.compare(f"{spec},metric=matrix", 0, over(matrix=True))
            self.compare(f"{spec},include_first=true", 0, over(include_first=True))


if __name__ == "__main__":
    unittest.main()
