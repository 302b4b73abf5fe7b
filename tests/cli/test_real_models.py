"""The two real models of ../shared/data/models: their published greedy text, and the figure of llama-perplexity."""

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
            expected = expected.split("</s>")[0].rstrip("\n")  # one of them goes on after its end
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


if __name__ == "__main__":
    unittest.main()
