"""winnow perplexity: windows, comparisons, and, with a compression method, windows and texts of
any length."""

import math
import re
import struct
import unittest

from harness import CliTest, read_safetensors, winnow

TEXT = "Once upon a time there was a little girl named Lily. She loved to play with the old man. " * 12

PROSE = "the old man saw a light in the water and the dog ran to the house "

class Perplexity(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(TEXT)

    def score(self, *flags):
        return winnow("perplexity", "-m", self.model, *flags)

    def json(self, *flags):
        return self.assert_done(self.score("-f", self.text, "-c", "64", "--json", *flags)).json

    def test_running_and_final_estimate(self):
        text = self.assert_done(self.score("-f", self.text, "-c", "64")).text
        windows = self.json()["windows"]
        self.assertGreater(windows, 2)
        running = re.findall(r"\[(\d+)\](\d+\.\d{4}),", text)
        self.assertEqual([int(n) for n, _ in running], list(range(1, windows + 1)))
        final = re.search(r"^Final estimate: PPL = (\d+\.\d{4}) \+/- (\d+\.\d{5})$", text, re.M)
        self.assertEqual(final[1], running[-1][1])
        self.assertAlmostEqual(float(final[1]), self.json()["perplexity"], places=3)
        self.assertAlmostEqual(float(final[2]), self.json()["standard_error"], places=4)

    def test_counts(self):
        found = self.json("--chunks", "2")
        self.assertEqual((found["windows"], found["window"], found["tokens_scored"]), (2, 64, 2 * 31))

    def test_saved_logits_give_the_same_perplexity(self):
        path = self.folder / "logits.safetensors"
        found = self.json("--save-logits", path, "--chunks", "2")
        tensors = read_safetensors(path)
        dtype, shape, tokens = tensors["tokens"]
        self.assertEqual((dtype, shape), ("I32", [128]))
        self.assertEqual((tokens[0], tokens[64]), (1, 1))  # each window begins with BOS
        dtype, (n, vocabulary), logits = tensors["logits"]
        self.assertEqual((dtype, n), ("F32", 128))
        nll = []
        for window in (0, 64):
            for row in range(window + 32, window + 63):
                values = logits[row * vocabulary:(row + 1) * vocabulary]
                top = max(values)
                nll.append(top + math.log(sum(math.exp(v - top) for v in values)) - values[tokens[row + 1]])
        self.assertAlmostEqual(math.exp(sum(nll) / len(nll)) / found["perplexity"], 1, places=9)

    def test_against_itself_nothing_differs(self):
        base = self.folder / "base.kld"
        saved = self.json("--kl-base", base)
        compared = self.assert_done(self.score("--kl", base, "--json")).json
        self.assertEqual(compared["perplexity"], saved["perplexity"])
        comparison = compared["comparison"]
        self.assertLess(abs(comparison["mean_kld"]), 1e-5)  # the file has a resolution of 16/65535
        self.assertAlmostEqual(comparison["perplexity_ratio"], 1, places=4)
        self.assertEqual(comparison["same_top_rate"], 1)
        text = self.assert_done(self.score("--kl-divergence", "--kl-divergence-base", base)).text
        for part in ("PPL ratio", "mean KLD", "KLD 99 %", "KLD median", "same top token", "100.000"):
            self.assertIn(part, text)

    def test_a_coarser_cache_differs_a_little(self):
        base = self.folder / "f32.kld"
        self.json("--kl-base", base, "-ctk", "f32", "-ctv", "f32")
        def kld(kind):
            return self.assert_done(self.score("--kl", base, "--json", "-ctk", kind, "-ctv", kind)).json[
                "comparison"]["mean_kld"]
        self.assertLess(kld("f16"), kld("q8_0"))
        self.assertLess(kld("q8_0"), kld("q4_0"))
        self.assertLess(kld("q4_0"), 0.5)

    def test_base_file_problems(self):
        base = self.folder / "other.kld"
        self.json("--kl-base", base)
        data = base.read_bytes()
        cut = self.file("cut.kld", data[:-10])
        self.assert_failed(self.score("--kl", cut), "cut.kld", "truncated")
        self.assert_failed(self.score("--kl", self.model), "not a file of log-probabilities")
        self.assert_failed(self.score("--kl", "/nowhere"), "/nowhere")
        self.assert_failed(self.score("--kl", base, "-c", "32"), "windows of 64 tokens", "-c says 32")
        foreign = self.file("foreign.kld", data[:12] + struct.pack("<i", 8) + data[16:])
        self.assert_failed(self.score("--kl", foreign), "not of the length its header says")

    def test_line_ends_of_windows(self):
        lines = TEXT.replace(". ", ".\n")
        plain, windows = self.file("unix.txt", lines), self.file("windows.txt", lines.replace("\n", "\r\n"))
        score = lambda *flags: self.score("-c", "64", "--json", *flags)
        want = self.assert_done(score("-f", plain))
        found = self.assert_done(score("-f", windows))
        self.assertEqual(found.json["perplexity"], want.json["perplexity"])
        self.assertEqual(found.err.count("Windows line endings"), 1)
        self.assertNotIn("Windows line endings", want.err)
        marked = self.file("marked.txt", "\ufeff" + lines)
        found = self.assert_done(score("-f", marked))
        self.assertEqual(found.json["perplexity"], want.json["perplexity"])
        self.assertIn("marked.txt begins with a byte order mark", found.err)
        self.assertNotEqual(self.assert_done(score("-f", marked, "--raw-text")).json["perplexity"], want.json["perplexity"])
        raw = self.assert_done(score("-f", windows, "--raw-text"))
        self.assertNotEqual(raw.json["perplexity"], want.json["perplexity"])
        self.assertNotIn("Windows line endings", raw.err)
        self.assertNotIn("zero bytes", want.err)
        self.assertIn("binary.txt contains zero bytes", self.assert_done(score("-f", self.file("binary.txt", lines + "\0"))).err)
        # Line ends are converted in a pipe, but not on the command line.
        self.assertEqual(self.assert_done(winnow("perplexity", "-m", self.model, "-c", "64", "--json",
                                                 stdin=windows.read_bytes())).json["perplexity"], want.json["perplexity"])

    def test_worse_than_guessing_is_called_so(self):
        # A random model predicts nonsense with confidence.
        for flags in (["-c", "64"], ["--stream"]):
            outcome = self.assert_done(self.score("-f", self.text, *flags))
            self.assertIn("worse than guessing", outcome.err)

    def test_text_shorter_than_a_window_is_scored_whole_with_a_warning(self):
        outcome = self.assert_done(self.score("-p", "Once upon a time there was a girl", "--json"))
        self.assertEqual(outcome.json["windows"], 1)
        self.assertIn("only", outcome.err)
        self.assert_failed(self.score("-p", "a"), "expected at least 4")

    def test_a_context_that_is_given_counts(self):
        # Also if it equals the default.
        text = self.file("long.txt", TEXT * (1 + 4000 // len(TEXT)))
        self.assert_failed(self.score("-f", text, "--stream", "-c", "512"), "512")
        base = self.folder / "base"
        self.assert_done(self.score("-f", self.text, "-c", "64", "--kl-base", base))
        self.assert_failed(self.score("--kl", base, "-c", "512"), "windows of 64", "-c says 512")

    def test_misuse(self):
        self.assert_misused(self.score("-f", self.text, "--kl", "x"), "-f")
        self.assert_misused(self.score("-f", self.text, "--kl-divergence"), "--kl-base")
        self.assert_misused(self.score("-f", self.text, "--chunks", "0"), "--chunks")
        self.assert_failed(self.score("-f", self.text, "-c", "2"), "window of 2")
        self.assert_failed(self.score("-f", self.text, "--save-logits", "/nowhere/x"), "/nowhere/x")


class PerplexityUnderAMethod(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(PROSE * 32)

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
        # Chunks of one token equal decode steps.
        ones = self.json("--stream", "--kv-method", "streaming", "--kv-size", "32", "--prefill-chunk", "1")
        self.assertAlmostEqual(ones["nll"], found["nll"], places=5)

    def test_stream_through_the_full_cache_is_the_ordinary_likelihood(self):
        one = self.json("--stream", "-ctk", "f32", "-ctv", "f32", "-c", "2000")
        chunks = self.json("--stream", "-ctk", "f32", "-ctv", "f32", "-c", "2000", "--prefill-chunk", "50")
        self.assertAlmostEqual(one["nll"], chunks["nll"], places=4)

    def test_a_stream_longer_than_the_context(self):
        outcome = self.score("--stream", "-c", "100")
        self.assert_failed(outcome, "more than 100", "these methods have no limit: local, streaming")
        self.assertGreater(self.json("--stream", "-c", "100", "--kv-method", "streaming", "--kv-size", "32")["tokens"], 200)

    def test_a_method_that_never_acts_is_warned_of(self):
        flags = ("--stream", "--kv-method", "snapkv:window=8,kernel=3", "--kv-size", "32", "-c", "2048")
        self.assertIn("compresses only prompts", self.assert_done(self.score(*flags)).err)
        for more in (["--prefill-chunk", "16"], ["--kv-decode", "h2o"]):
            self.assertNotIn("compresses only prompts", self.assert_done(self.score(*flags, *more)).err)

    def test_misuse(self):
        self.assert_misused(self.score("--stream", "--chunks", "2"), "--chunks")
        # Such a method has no logits for the tokens it leaves out of a prompt; token by token it
        # leaves out none.
        self.assert_failed(self.score("--stream", "--kv-method", "pyramidinfer", "--prefill-chunk", "8"), "only some tokens")
        self.assertGreater(self.json("--stream", "-c", "640", "--kv-method", "pyramidinfer", "--prefill-chunk", "1")["tokens"], 200)
        self.assert_misused(self.score("--stream", "--kv-method", "h2o", "--kv-ratio", "0.5"), "--kv-ratio")
        self.assert_misused(self.score("--stream", "--every", "0"), "--every")


if __name__ == "__main__":
    unittest.main()
