"""Methods with heads=query under winnow replay: the reference implementations, run for every query
head on its own."""

import unittest

from recordings import HQ, LAYERS, PROMPT, Text
from replay_heads import MethodTest, QueryHead
from test_replay_d2o import d2o
from test_replay_prompt import refreekv, snapkv


def pyramidkv(head, size, window, kernel, beta):
    """Two layers with linear budgets: the first has as much more as the last has less."""
    base = size - window
    low = base // beta
    high = min(2 * base - low, PROMPT - window)
    snapkv(head, window + (high if head.layer == 0 else 2 * base - high), window, "max", kernel)


class QueryHeads(MethodTest):
    def heads(self, text, layer, positions, reduce="mean"):
        return [QueryHead(text, layer, h, positions, reduce) for h in range(HQ)]

    def test_snapkv(self):
        self.compare("snapkv:window=4,kernel=3,heads=query", 10, self.each(snapkv, 10, 4, "max", 3))

    def test_pyramidkv(self):
        self.compare("pyramidkv:window=4,kernel=3,beta=4,heads=query", 12, self.each(pyramidkv, 12, 4, 3, 4))

    def test_d2o(self):
        self.compare("d2o:layer_policy=uniform,heads=query", 10, self.each(d2o, 10))
        self.compare("d2o:layer_policy=uniform,positions=reassigned,heads=query", 10, self.each(d2o, 10), "reassigned")

    def test_refreekv(self):
        spec = "refreekv:whole_layers=0,sinks=2,threshold=0.1,heads=query"
        self.compare(spec, 0, lambda heads: refreekv(heads, 0.1, 2))
        self.compare(f"{spec},per_head=true", 0, lambda heads: refreekv(heads, 0.1, 2, per_head=True))
        self.compare(f"{spec},per_head=true,ranking=attention", 0,
                     lambda heads: refreekv(heads, 0.1, 2, per_head=True, ranking="attention"))

    def test_query_heads_of_a_group_differ(self):
        text = Text(self.SEED, "neox")
        _, result = self.replay(self.record("text.safetensors", text), "snapkv:window=4,kernel=3,heads=query", "--size", "10")
        kept = {tuple(self.kept(result, layer, h)) for layer in range(LAYERS) for h in range(HQ)}
        self.assertGreater(len(kept), LAYERS * HQ // 2)


if __name__ == "__main__":
    unittest.main()
