"""Methods that only evict, under winnow replay: what attention then computes follows from their
decisions, whatever the positions, the chunks and the instruction set."""

import unittest

from recordings import GROUP, HQ, LAYERS, N, PROMPT, Text, attend, mix
from replay_heads import MethodTest, QueryHead


class Evictions(MethodTest):
    def test_positions(self):
        for spec, size in (("h2o", 9), ("h2o:sinks=2,recent=3", 10), ("tova", 9), ("streaming:sinks=2", 10), ("treekv:block=3,recent=3", 14)):
            for positions in ("original", "reassigned"):
                self.follow(f"{spec}{',' if ':' in spec else ':'}positions={positions}", size, positions)
        self.follow("local", 9, "reassigned")

    def test_blocks_that_go_as_a_whole(self):
        for parameters in ("window=4", "window=4,block=3,rounds=1/2/2"):
            self.follow(f"hbw:{parameters}", 13)

    def test_chunks(self):
        for chunk in (1, 2, 5, 11, PROMPT):
            for positions in ("original", "reassigned"):
                for spec, size in (("treekv:sinks=1,recent=3,block=3", 12), ("h2o:sinks=2,recent=3", 10)):
                    self.follow(f"{spec},positions={positions}", size, positions, ("--prefill-chunk", chunk))

    def test_plain_loops_in_place_of_instruction_sets(self):
        self.follow("streaming:sinks=2", 10, "reassigned", ("--cpu-target", "reference"))
        self.follow("h2o", 9, flags=("--cpu-target", "reference"))


class QueryHeadEvictions(MethodTest):
    """heads=query: every query head has entries of its own."""

    def heads(self, text, layer, positions, reduce="mean"):
        return [QueryHead(text, layer, h, positions, reduce) for h in range(HQ)]

    def test_entries_of_their_own(self):
        for positions in ("original", "reassigned"):
            self.follow(f"h2o:sinks=2,recent=3,heads=query,positions={positions}", 10, positions)
            self.follow(f"streaming:sinks=2,heads=query,positions={positions}", 9, positions)


class Selection(MethodTest):
    def test_twilight_with_a_small_share(self):
        """Of a layer that is not dense every query head reads the most attended entry alone."""
        text = Text(self.SEED, "neox")
        _, result = self.replay(self.record("text.safetensors", text), "twilight:p=0.01,dense_layers=1")
        for layer in range(LAYERS):
            outputs = self.rows(result, f"layers.{layer}.out")
            for h in range(HQ):
                self.assertEqual(self.kept(result, layer, h // GROUP), list(range(N)))
                for token in range(PROMPT, N):
                    weights = attend(text.q[layer][h][token], text.k[layer][h // GROUP][:token + 1])
                    values = text.v[layer][h // GROUP]
                    expected = mix(weights, values) if layer == 0 else values[weights.index(max(weights))]
                    self.assert_close(outputs[h][token - PROMPT], expected)


if __name__ == "__main__":
    unittest.main()
