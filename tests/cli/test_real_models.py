"""The two real models of ../shared/data/models: their published greedy texts, and
llama-perplexity's figure."""

import unittest

from harness import CliTest, SHARED, winnow

MODELS = {"stories260K": 6.0481, "tiny1m": 4.3111}


class RealModels(CliTest):
    def path(self, name):
        path = SHARED / f"models/{name}/{name}-f32.gguf"
        if not path.exists():
            self.skipTest(f"skipped: no {path}")
        return path

    def test_greedy_text(self):
        for name in MODELS:
            path = self.path(name)
            expected = (path.parent / "greedy_256_once_upon_a_time.txt").read_text()
            expected = expected.split("</s>")[0].rstrip("\n")  # one of them continues after the end token
            for threads in ("1", "2"):
                found = self.assert_done(winnow("run", "-m", path, "-p", "Once upon a time", "--temp", "0", "-n", "255",
                                                "-ctk", "f32", "-ctv", "f32", "-t", threads))
                self.assertEqual(found.text[:len(expected)], expected, name)
                self.assertLessEqual(len(found.text) - len(expected), 6, name)

    def test_perplexity(self):
        path = self.path("stories260K")
        text = SHARED / "tinystories/tinystories_sample.txt"
        found = self.assert_done(winnow("perplexity", "-m", path, "-f", text, "-c", "256", "--json")).json
        self.assertLess(abs(found["perplexity"] / MODELS["stories260K"] - 1), 5e-4)


class RecallProbe(CliTest):
    """A model trained to find codes in long texts: eviction shows in its answers."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.probe = SHARED / "models/recall-probe/recall-probe-f16.gguf"
        if not cls.probe.exists():
            raise unittest.SkipTest(f"skipped: no {cls.probe}")
        text = (cls.probe.parent / "heldout.txt").read_text()
        hay = " ".join(text[20000:23600].split())
        cut = hay.index(". ", len(hay) // 4) + 1
        cls.document = cls.folder / "haystack.txt"
        cls.document.write_text(hay[:cut] + " The secret code of the old bridge is 48152." + hay[cut:])
        cls.question = "Question: What is the secret code of the old bridge? Answer:"

    def test_compare_finds_the_needle_where_it_was_kept(self):
        found = self.assert_done(winnow("compare", "-m", self.probe, "-f", self.document, "-q", self.question, "-n", "6",
                                        "--kv-method", "snapkv,h2o,streaming", "--kv-size", "256", "--json")).json
        self.assertGreater(found["prompt_tokens"], 900)
        full, snapkv, h2o, streaming = found["answers"]
        for answer in (full, snapkv):
            self.assertIn("48152", answer["answer"], answer["method"])
        self.assertNotIn("48152", streaming["answer"])
        self.assertLess(snapkv["mean_kld"], streaming["mean_kld"])
        for answer in (snapkv, h2o, streaming):
            self.assertEqual(answer["kept"], 256)
            self.assertLess(answer["cache_bytes"], full["cache_bytes"] / 3)

    def test_chat_asks_the_same_document_twice(self):
        outcome = self.assert_done(winnow("chat", "-m", self.probe, "-f", self.document, "--chat-template", "chatml", "-n", "4",
                                          "--temp", "0", "--kv-method", "keydiff", "--kv-ratio", "0.5",
                                          stdin=b"Who?\nWho?\n"))
        first, second = outcome.text.splitlines()
        self.assertEqual(first, second)
        self.assertIn("document", outcome.err)

    def test_a_stream_is_constant_in_memory(self):
        text = self.probe.parent / "heldout.txt"
        short = self.folder / "short.txt"
        short.write_text(text.read_text()[:60000])
        found = self.assert_done(winnow("perplexity", "-m", self.probe, "-f", short, "--stream", "--kv-method", "treekv",
                                        "--kv-size", "256", "--prefill-chunk", "64", "--every", "2000", "--json")).json
        points = found["points"]
        self.assertGreater(found["tokens"], 12000)  # six times the trained context
        self.assertLess(max(p["cache_bytes"] for p in points), points[0]["cache_bytes"] * 1.01)
        self.assertLess(points[-1]["resident_bytes"] - points[1]["resident_bytes"], 2 << 20)
        self.assertLess(found["perplexity"], 60)


if __name__ == "__main__":
    unittest.main()
