"""Perplexity under a method: windows, and texts of any length."""

import unittest

from harness import CliTest, winnow

PROMPT = "the old man saw a light in the water and the dog ran to the house " * 8


class PerplexityUnderAMethod(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(PROMPT * 4)

    def score(self, *flags):
        return winnow("perplexity", "-m", self.model, "-f", self.text, *flags)

    def json(self, *flags):
        return self.assert_done(self.score("--json", *flags)).json

    def test_windows(self):
        full = self.json("-c", "64", "-ctk", "f32", "-ctv", "f32")
        roomy = self.json("-c", "64", "-ctk", "f32", "-ctv", "f32", "--kv-method", "h2o", "--kv-size", "64")
        self.assertEqual((full["method"], roomy["method"]), ("full", "h2o"))
        self.assertEqual(full["tokens_scored"], roomy["tokens_scored"])
        self.assertAlmostEqual(roomy["perplexity"] / full["perplexity"], 1, places=4)
        tight = self.json("-c", "64", "--kv-method", "h2o", "--kv-size", "8")
        self.assertGreater(abs(tight["perplexity"] / full["perplexity"] - 1), 1e-3)
        chunked = self.json("-c", "64", "--kv-method", "h2o", "--kv-size", "64", "--prefill-chunk", "16")
        self.assertAlmostEqual(chunked["perplexity"] / full["perplexity"], 1, places=2)

    def test_stream(self):
        text = self.assert_done(self.score("--stream", "--kv-method", "streaming", "--kv-size", "32", "--every", "100")).text
        lines = text.splitlines()
        found = self.json("--stream", "--kv-method", "streaming", "--kv-size", "32", "--every", "100")
        self.assertEqual(len(lines), len(found["points"]) + 2)
        self.assertEqual([p["tokens"] for p in found["points"][:3]], [100, 200, 300])
        self.assertEqual(found["points"][-1]["tokens"], found["tokens"])
        self.assertEqual(found["tokens_scored"], found["tokens"] - 1)
        self.assertEqual(found["kv"]["kept"], [32] * 3)
        self.assertEqual(len({p["cache_bytes"] for p in found["points"]}), 1)
        last = found["points"][-1]["nll"]
        self.assertAlmostEqual(found["nll"], last)
        # Chunks of one token are the decode step.
        ones = self.json("--stream", "--kv-method", "streaming", "--kv-size", "32", "--prefill-chunk", "1")
        self.assertAlmostEqual(ones["nll"], found["nll"], places=5)

    def test_stream_through_the_full_cache_is_the_ordinary_likelihood(self):
        one = self.json("--stream", "-ctk", "f32", "-ctv", "f32", "-c", "2000")
        chunks = self.json("--stream", "-ctk", "f32", "-ctv", "f32", "-c", "2000", "--prefill-chunk", "50")
        self.assertAlmostEqual(one["nll"], chunks["nll"], places=4)

    def test_a_stream_longer_than_the_context(self):
        outcome = self.score("--stream", "-c", "100")
        self.assert_failed(outcome, "more than 100", "reassign")
        self.assertGreater(self.json("--stream", "-c", "100", "--kv-method", "streaming", "--kv-size", "32")["tokens"], 200)

    def test_a_method_that_never_acts_is_warned_of(self):
        flags = ("--stream", "--kv-method", "snapkv:window=8,kernel=3", "--kv-size", "32", "-c", "2048")
        self.assertIn("compresses only prompts", self.assert_done(self.score(*flags)).err)
        for more in (["--prefill-chunk", "16"], ["--kv-decode", "h2o"]):
            self.assertNotIn("compresses only prompts", self.assert_done(self.score(*flags, *more)).err)

    def test_misuse(self):
        self.assert_misused(self.score("--stream", "--chunks", "2"), "--chunks")
        # A method that leaves out tokens of a prompt has no logits of all of them, but token by token nothing is left out.
        self.assert_failed(self.score("--stream", "--kv-method", "pyramidinfer", "--prefill-chunk", "8"), "only some tokens")
        self.assertGreater(self.json("--stream", "-c", "640", "--kv-method", "pyramidinfer", "--prefill-chunk", "1")["tokens"], 200)
        self.assert_misused(self.score("--stream", "--kv-method", "h2o", "--kv-ratio", "0.5"), "--kv-ratio")
        self.assert_misused(self.score("--stream", "--every", "0"), "--every")


if __name__ == "__main__":
    unittest.main()
