"""winnow probe, compare --report, and the recordings for replay."""

import base64
import csv
import json
import re
import unittest
import xml.etree.ElementTree as ElementTree
import zlib

from harness import CliTest, read_safetensors, winnow

TEXT = "".join(f"The {word} came to the house on the hill and said nothing at all. "
               for word in "cat dog fox hen owl pig rat cow ant bee elk gnu yak emu ape".split() * 4)
SMALL = ["-n", "96", "--samples", "2"]


def page_data(html, kind):
    """The data that the page passes to its script."""
    found = re.findall(rf'<script type="application/json" class="{kind}">(.*?)</script>', html, re.S)
    return [json.loads(text) for text in found]


def expand_states(runs):
    """"3k2e" -> "kkkee"."""
    return "".join(int(n) * state for n, state in re.findall(r"(\d+)(\D)", runs))


class TextTest(CliTest):
    """Runs on a text of several hundred tokens."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(TEXT, encoding="utf-8")

    def probe(self, *arguments):
        return self.assert_done(winnow("probe", *arguments, "-m", self.model, "-f", self.text))


class ProbeTest(TextTest):
    def test_list(self):
        listed = self.assert_done(winnow("probe", "--list")).text
        for name in ("wavelet", "density", "sparsity", "kept", "indices", "budget", "origin", "retrieval"):
            self.assertIn(f"| {name} ", listed)

    def test_all_with_page_and_numbers(self):
        page = self.folder / "all.html"
        outcome = self.probe("all", "--samples", "2", "-n", "128", "--json", "-", "--report", page)
        probes = {probe["probe"]: probe for probe in outcome.json["probes"]}
        self.assertEqual(len(probes), 8)
        self.assertEqual(set(probes["wavelet"]["last_quarter_over_first"]), {"D1", "D2", "D3", "D4", "D5"})
        self.assertTrue(all(v > 0 for v in probes["density"]["column_sum_variance"]))
        for head in probes["sparsity"]["heads"]:
            self.assertTrue(0 <= head["sparsity"] < 1 and 0 <= head["redundancy"] < 1, head)
        for method in probes["indices"]["methods"]:
            self.assertTrue(0 < method["entropy"] <= probes["indices"]["most_entropy"] + 1e-9, method)
        # The smaller the allowed loss, the more is kept; the first two layers keep everything.
        means = [method["mean"] for method in probes["budget"]["methods"]]
        self.assertEqual(means, sorted(means, reverse=True))
        self.assertEqual([m["layers"][:2] for m in probes["budget"]["methods"]], [[1, 1]] * 4)

        html = page.read_text(encoding="utf-8")
        for name in ("wavelet", "density", "attention-maps", "sparsity", "similarity", "kept-over-time",
                     "kept-per-head", "kept-text", "indices", "entropy", "entropy-by-groups", "budget", "retrieval"):
            self.assertIn(f'id="{name}"', html)
            svg = (self.folder / "all" / f"{name}.svg").read_text(encoding="utf-8")
            ElementTree.fromstring(svg)  # well-formed
            json.loads((self.folder / "all" / f"{name}.json").read_text(encoding="utf-8"))
            with open(self.folder / "all" / f"{name}.csv", encoding="utf-8", newline="") as file:
                self.assertGreater(len(list(csv.reader(file))), 1)
        self.assertNotRegex(html, r'(?:src|href)="(?!data:|#)')  # no external resources
        self.assert_pictures_are_valid(html)

    def assert_pictures_are_valid(self, html):
        pictures = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", html)
        self.assertTrue(pictures)
        for picture in pictures:
            data = base64.b64decode(picture)
            self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
            width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
            at, pixels = 8, b""
            while at < len(data):
                n = int.from_bytes(data[at:at + 4], "big")
                self.assertEqual(zlib.crc32(data[at + 4:at + 8 + n]), int.from_bytes(data[at + 8 + n:at + 12 + n], "big"))
                if data[at + 4:at + 8] == b"IDAT":
                    pixels = zlib.decompress(data[at + 8:at + 8 + n])
                at += 12 + n
            self.assertEqual(len(pixels), (width + 1) * height)

    def test_one_head_of_the_model_inside_retrieves(self):
        outcome = self.assert_done(winnow("probe", "retrieval", "-f", self.text, "-n", "200", "--samples", "3", "--json", "-"))
        found = outcome.json["probes"][0]
        self.assertEqual((found["questions"], len(found["heads"])), (12, 28))
        self.assertGreater(found["right"], 0.7)
        retrieving = [head for head in found["heads"] if head["added_loss"] > 0.1]
        self.assertEqual([(head["layer"], head["kv_head"]) for head in retrieving], [(1, 0)])  # planted before training
        self.assertEqual(found["retrieval_heads"], 1)
        self.assertGreater(retrieving[0]["added_loss"], 1)
        self.assertLess(retrieving[0]["right"], 0.2)

    def test_retrieval_wants_text(self):
        marks = self.folder / "marks.txt"
        marks.write_text("<|im_start|>" * 100, encoding="utf-8")
        outcome = winnow("probe", "retrieval", "-f", marks, "-n", "50", "--samples", "1")
        self.assertEqual(outcome.code, 1)
        self.assertIn("50 tokens decodes to an empty text", outcome.err)

    def test_kept_says_what_the_cache_holds(self):
        page = self.folder / "kept.html"
        outcome = self.probe("kept", *SMALL, "--prompt-tokens", "64", "--kv-method", "streaming:sinks=4,full",
                             "--kv-size", "16", "--json", "-", "--report", page)
        streaming, full = outcome.json["probes"][0]["methods"]
        self.assertEqual(set(streaming["kept"]), {16})
        self.assertEqual(set(full["kept"]), {96})
        views = page_data(page.read_text(encoding="utf-8"), "states")[0]
        for heads in views[0]["states"]:
            for runs in heads:  # four sinks, twelve recent tokens
                self.assertEqual(expand_states(runs), "kkkk" + 80 * "e" + 12 * "k")
        for heads in views[1]["states"]:
            for runs in heads:
                self.assertEqual(runs, "96k")
        # Evicted at the end of the prompt, or when the token left the recent window.
        gone = [-1 if i < 4 or i >= 84 else max(64, i + 13) for i in range(96)]
        streaming, full = outcome.json["probes"][0]["evicted_at"]
        self.assertEqual(streaming["method"], "streaming:sinks=4")
        self.assertEqual(streaming["layers"], views[0]["evicted_at"])
        for heads in streaming["layers"]:
            for head in heads:
                self.assertEqual(head, gone)
        self.assertEqual({at for heads in full["layers"] for head in heads for at in head}, {-1})
        self.assertIn('data-prompt="64"', page.read_text(encoding="utf-8"))
        self.assertNotIn("evicted_at", self.probe("kept", *SMALL, "--kv-method", "streaming").text)

    def test_tokens_that_were_never_computed_are_not_kept(self):
        page = self.folder / "dropped.html"
        outcome = self.probe("kept", *SMALL, "--prompt-tokens", "80", "--kv-method", "pyramidinfer:least=0.3,min_context=16",
                             "--json", "-", "--report", page)
        kept = outcome.json["probes"][0]["methods"][0]["kept"]
        states = page_data(page.read_text(encoding="utf-8"), "states")[0][0]["states"]
        self.assertLess(kept[-1], 60)
        for entries, heads in zip(kept, states):
            self.assertEqual(sum(expand_states(runs).count("k") for runs in heads), entries * len(heads))

    def test_text_is_never_markup(self):
        page = self.folder / "hostile.html"
        hostile = "<script>alert(1)</script><img src=x onerror=alert(1)> & \"'" * 20
        self.assert_done(winnow("probe", "kept", "-m", self.model, "-p", hostile, "-n", "64", "--samples", "1",
                                "--kv-method", "streaming", "--kv-size", "16", "--report", page))
        html = page.read_text(encoding="utf-8")
        self.assertEqual(html.count("<script>"), 1)
        self.assertNotIn("<img", html)
        ElementTree.fromstring((self.folder / "hostile/kept-text.svg").read_text(encoding="utf-8"))

    def test_misuse(self):
        self.assert_misused(winnow("probe"), "no probe")
        self.assert_misused(winnow("probe", "wavelets"), "did you mean wavelet")
        self.assert_misused(winnow("probe", "wavelet", "--kv-method", "h2o"), "full cache")
        self.assert_misused(winnow("probe", "kept", "--prompt-tokens", "900"), "a sample has 512")
        self.assert_misused(winnow("probe", "--dump-qkv", "f", "--report", "g"), "recording only")
        self.assert_failed(winnow("probe", "density", "-m", self.model, "-p", "short"), "the text has", "needs 512")
        self.assert_failed(winnow("probe", "wavelet", "-m", self.model, "-f", self.text, "-n", "64"), "expected 128")


class RecordingTest(TextTest):
    """A replay of a recorded run keeps the same entries as the run."""

    def kept_by_run(self, method, *flags):
        page = self.folder / "run.html"
        self.probe("kept", "--kv-method", method, *flags, "--report", page)
        views = page_data(page.read_text(encoding="utf-8"), "states")[0]
        return [[[i for i, state in enumerate(expand_states(runs)) if state == "k"] for runs in heads]
                for heads in views[0]["states"]]

    def kept_by_replay(self, recording, method, *flags):
        out = self.folder / "replayed.safetensors"
        self.assert_done(winnow("replay", "--method", method, "--in", recording, "--out", out, *flags))
        tensors = read_safetensors(out)
        layers = []
        while f"layers.{len(layers)}.kept" in tensors:
            name = f"layers.{len(layers)}."
            _, (n_heads, most), kept = tensors[name + "kept"]
            counts = tensors[name + "count"][2]
            layers.append([sorted(kept[head * most:head * most + counts[head]]) for head in range(n_heads)])
        return layers

    # In a cache of floats, like that of replay.
    EXACT = ["-n", "160", "--samples", "1", "-ctk", "f32", "-ctv", "f32"]

    def test_of_a_prompt_any_method(self):
        recording = self.folder / "prompt.safetensors"
        self.probe(*self.EXACT, "--dump-qkv", recording)
        for method in ("snapkv:window=8", "treekv:sinks=2,recent=4", "hbw:window=8", "d2o"):
            with self.subTest(method):
                budget = ["--kv-size", "64"]
                run = self.kept_by_run(method, *self.EXACT, "--prompt-tokens", "160", *budget)
                self.assertEqual(self.kept_by_replay(recording, method, *budget), run)
                self.assertTrue(any(len(head) < 160 for layer in run for head in layer))

    def test_of_decoding_the_method_it_was_recorded_under(self):
        for method in ("h2o", "tova"):
            with self.subTest(method):
                recording = self.folder / "decode.safetensors"
                flags = [*self.EXACT, "--prompt-tokens", "48", "--kv-size", "24"]
                self.probe(*flags, "--kv-method", method, "--dump-qkv", recording)
                run = self.kept_by_run(method, *flags)
                self.assertEqual(self.kept_by_replay(recording, method, "--kv-size", "24"), run)
                self.assertTrue(all(len(head) == 24 for layer in run for head in layer))

    def test_what_cannot_be_recorded(self):
        outcome = winnow("probe", "--dump-qkv", self.folder / "x", "-m", self.model, "-f", self.text, *self.EXACT,
                         "--prompt-tokens", "96", "--kv-method", "treekv:sinks=2,recent=4", "--kv-size", "64")
        self.assert_failed(outcome, "store keys before RoPE cannot be recorded")


class CompareReportTest(TextTest):
    def test_page(self):
        page = self.folder / "compare.html"
        outcome = self.assert_done(winnow(
            "compare", "-m", self.model, "-p", TEXT[:700], "-q", "Who <b>came</b>?", "--raw", "-n", "4", "--kv-method",
            "streaming:sinks=4,h2o", "--kv-size", "32", "--report", page))
        self.assertIn("| streaming", outcome.text)
        html = page.read_text(encoding="utf-8")
        self.assertIn("<h1>Who &lt;b&gt;came&lt;/b&gt;?</h1>", html)
        views = page_data(html, "states")[0]
        with open(self.folder / "compare/answers.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        best = sorted(rows[1:], key=lambda row: (row["same"] != "yes", float(row["KLD"])))
        self.assertEqual([view["name"] for view in views], [row["method"] for row in best])
        self.assertNotIn("speed", html.split("<script>")[0])
        for view in views:
            for heads in view["states"]:
                for runs in heads:
                    self.assertEqual(expand_states(runs).count("k"), 32)
        for name in ("memory", "kld", "kept-text"):
            ElementTree.fromstring((self.folder / "compare" / f"{name}.svg").read_text(encoding="utf-8"))
        self.assertEqual(len(rows), 3)


if __name__ == "__main__":
    unittest.main()
