"""The bundled data on the bundled model: the first evaluation a new user runs."""

import re
import unittest

from harness import CliTest, winnow

KINDS = ["needle", "key-value", "two-hop", "few-shot", "dialogue"]


class Recall(CliTest):
    def evaluate(self, *flags):
        return self.assert_done(winnow("eval", *flags, "--json", "-")).json

    def test_the_model_inside_answers(self):
        found = self.evaluate("recall", "--samples", "6", "--lengths", "512", "--kv-method", "streaming", "--kv-ratio", "0.1")
        full = {group["group"]: group["full"] for group in found["groups"]}
        self.assertEqual(list(full), KINDS)
        for kind, score in full.items():
            self.assertGreater(score, 30, full)
        self.assertGreater(found["rows"][0]["exact"], 60, full)
        self.assertLess(found["rows"][1]["exact"], found["rows"][0]["exact"] - 20)  # a recent window loses answers
        self.assertEqual(found["rows"][0]["samples"], 30)

    def test_the_same_for_a_seed(self):
        def answers(*flags):
            found = self.evaluate("recall", "--samples", "2", "--lengths", "300", "--tasks", "needle,dialogue", *flags)
            return [sample["results"][0]["details"]["references"] for sample in found["samples"]]
        self.assertEqual(answers(), answers())
        self.assertNotEqual(answers(), answers("--seed", "1"))
        self.assertEqual(len(answers("--data", "builtin")), 4)

    def test_depths_and_lengths_are_a_grid(self):
        found = self.evaluate("recall", "--samples", "1", "--lengths", "300,400", "--depths", "0,100", "--tasks", "needle")
        self.assertEqual([sample["group"] for sample in found["samples"]],
                         ["needle/300/0%", "needle/300/100%", "needle/400/0%", "needle/400/100%"])
        for sample in found["samples"]:
            n = sample["results"][0]["details"]["prompt_tokens"]
            self.assertTrue(0.8 * sample["length"] < n <= sample["length"], (n, sample["length"]))

    def test_texts_for_other_tasks(self):
        needle = self.evaluate("needle", "--data", "builtin", "--lengths", "400", "--depths", "0-100+25", "-n", "8")
        self.assertGreater(needle["rows"][0]["exact"], 50)
        self.assertIn("secret code", needle["samples"][0]["results"][0]["details"]["prompt_end"])
        kld = self.evaluate("kld", "--data", "builtin", "--lengths", "256", "--chunks", "1", "--kv-method", "streaming", "--kv-ratio", "0.25")
        self.assertGreater(kld["rows"][1]["kld"], 0)

    def test_misuse(self):
        self.assert_failed(winnow("eval", "recall", "--data", "somewhere"), "--data", "builtin")
        self.assert_failed(winnow("eval", "recall", "--lengths", "40"), "no sample could be run")
        self.assertIn("builtin", winnow("eval", "needle").err)

    def test_tables_have_errors_and_notes(self):
        text = self.assert_done(winnow("eval", "recall", "--samples", "3", "--lengths", "300", "--tasks", "needle")).text
        self.assertRegex(text, r"\d ± \d")
        self.assertIn("standard error of the mean", text)
        hopeless = self.assert_done(winnow("eval", "needle", "--data", "builtin", "--needle", "The moon is made of cheese.", "--question",
                                           "What is the moon made of?", "--answer", "quantum electrodynamics", "--lengths", "300",
                                           "--depths", "0,50")).text
        self.assertIn("The full cache scores 0 here", hopeless)

    def test_every_cell_of_the_page_has_its_samples(self):
        page = self.folder / "recall.html"
        self.assert_done(winnow("eval", "recall", "--samples", "2", "--lengths", "300", "--kv-method", "streaming,h2o:recent=200", "--kv-ratio",
                                "0.5,0.1", "--report", page))
        html = page.read_text()
        links = set(re.findall(r'href="#(v\d+g\d+)"', html))
        folds = set(re.findall(r'<summary id="(v\d+g\d+)"', html))
        self.assertTrue(links)
        self.assertLessEqual(links, folds)
        self.assertEqual(len(folds), 5 * 5)
        self.assertIn("end of the prompt", html)
        self.assertIn("could not be run", html)
        self.assertNotIn("Decoding speed against depth", html)


if __name__ == "__main__":
    unittest.main()
