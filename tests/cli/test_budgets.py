"""Several budgets in one command line, and methods at equal bytes."""

import json
import unittest

from harness import CliTest, winnow

TEXT = "the old man saw the old tree and the old house. a young man saw the red tree in the water. " * 8
METHODS = "snapkv:window=8,h2o:recent=4,ems,d2o"


class Budgets(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.txt"
        cls.text.write_text(TEXT)

    def compare(self, *flags):
        return winnow("compare", "-m", self.model, "-f", self.text, "-q", "Who saw the tree?", "-n", "4", *flags)

    def shares(self, answers):
        return {(a["method"], a["budget"]): a["cache_bytes_with_lists"] / a["cache_bytes_full_f16"] for a in answers}

    def test_compare_takes_lists(self):
        found = self.assert_done(self.compare("--kv-method", "streaming,twilight", "--kv-ratio", "0.5,0.25", "--json")).json["answers"]
        self.assertEqual([(a["method"], a["budget"]) for a in found],
                         [("full", ""), ("streaming", "ratio 0.5"), ("streaming", "ratio 0.25"), ("twilight", "")])
        self.assertLess(found[2]["kept"], found[1]["kept"])
        table = self.assert_done(self.compare("--kv-method", "streaming", "--kv-ratio", "0.5,0.25")).text
        self.assertIn("streaming ratio 0.25:", table)
        self.assertIn("Times are of one run", table)
        one = self.assert_done(self.compare("--kv-method", "streaming", "--kv-ratio", "0.5")).text
        self.assertNotIn("budget", one)

    def test_compare_at_equal_bytes(self):
        found = self.assert_done(self.compare("--kv-method", METHODS, "--equal-bytes", "0.5", "--json")).json["answers"]
        same_size = self.assert_done(self.compare("--kv-method", METHODS, "--kv-ratio", "0.5", "--json")).json["answers"]
        at_bytes, at_size = self.shares(found[1:]), self.shares(same_size[1:])
        self.assertGreater(max(at_size.values()) / min(at_size.values()), 1.2, at_size)  # sizes are not bytes
        for method, share in at_bytes.items():
            self.assertLessEqual(share, 0.5025, method)
            self.assertGreater(share, 0.47, method)

    def test_what_exceeds_is_marked(self):
        text = self.assert_done(self.compare("--kv-method", "h2o:recent=60,streaming", "--equal-bytes", "0.1")).text
        marked = [line.split()[1] for line in text.splitlines() if "% (over)" in line]
        self.assertEqual(marked, ["h2o:recent=60"], text)  # keeps at least 61 of 242 entries
        self.assertIn("cannot keep less", text)

    def test_expected_answers_are_marked(self):
        full = self.assert_done(self.compare("--kv-method", "streaming", "--kv-size", "16", "--json")).json["answers"][0]["answer"]
        word = full.split()[0]
        outcome = self.assert_done(self.compare("--kv-method", "streaming", "--kv-size", "16", "-a", word))
        self.assertRegex(outcome.text, r"\| full +\| yes")
        wrong = self.assert_done(self.compare("--kv-method", "streaming", "--kv-size", "16", "-a", "elephant")).text
        self.assertEqual(wrong.count("[not elephant]"), 2)

    def test_bench_takes_lists_and_equal_bytes(self):
        flags = ["bench", "-m", self.model, "-p", "128", "-n", "0", "-r", "1", "-o", "json"]
        rows = self.assert_done(winnow(*flags, "--kv-method", "full,streaming", "--kv-ratio", "0.5,0.25")).json
        self.assertEqual([(r["kv_method"], r["kv_budget"]) for r in rows],
                         [("full", ""), ("streaming", "ratio 0.5"), ("streaming", "ratio 0.25")])
        rows = self.assert_done(winnow(*flags, "--kv-method", "full," + METHODS, "--equal-bytes", "0.5")).json
        for row in rows[1:]:
            share = row["kv_bytes_with_lists"] / row["kv_bytes_full_f16"]
            self.assertTrue(0.45 < share <= 0.5025, row)
        self.assert_misused(winnow("bench", "-m", self.model, "-p", "0", "-n", "8", "--kv-method", "streaming", "--equal-bytes", "0.5"),
                            "--equal-bytes", "prompt")
        self.assert_misused(winnow("bench", "-m", self.model, "-p", "64", "-n", "8", "--kv-method", "streaming", "--kv-ratio", "0.5"),
                            "--kv-ratio", "tg8", "-d N")
        self.assert_misused(winnow(*flags, "-B", "2", "--kv-method", "streaming", "--equal-bytes", "0.5"), "--equal-bytes")

    def test_probe_takes_lists_and_equal_bytes(self):
        flags = ["probe", "kept", "-m", self.model, "-f", self.text, "-n", "128", "--samples", "1", "--json", "-"]
        found = self.assert_done(winnow(*flags, "--kv-method", "streaming", "--kv-ratio", "0.5,0.25")).json["probes"][0]
        names = json.dumps(found)
        self.assertIn("streaming ratio 0.5", names)
        self.assertIn("streaming ratio 0.25", names)
        self.assert_done(winnow(*flags, "--kv-method", "streaming,ems", "--equal-bytes", "0.5"))

    def test_eval_at_equal_bytes(self):
        data = self.file("data.txt", TEXT * 3)
        flags = ["eval", "perplexity", "-m", self.model, "--data", data, "--lengths", "256", "--chunks", "1"]
        self.assert_misused(winnow(*flags, "--kv-method", "streaming", "--equal-bytes", "0.5"), "--equal-bytes", "--protocol halves")
        flags = ["eval", "needle", "-m", self.model, "--data", data, "--needle", "code", "--lengths", "300", "--depths", "0,50", "--json", "-"]
        rows = self.assert_done(winnow(*flags, "--kv-method", METHODS, "--equal-bytes", "0.5,0.7")).json["rows"]
        self.assertEqual(len(rows), 9)
        for row in rows[1:]:
            asked = float(row["budget"].split()[-1])
            self.assertTrue(0.9 * asked < row["cache_share"] <= 1.005 * asked, row)

    def test_equal_bytes_are_a_size(self):
        """The result equals that of a size set directly, and has nearly as many bytes as the
        largest size that fits."""
        data = self.file("data.txt", TEXT * 3)
        tasks = [["needle", "--data", data, "--needle", "code", "--lengths", "300", "--depths", "50"],
                 ["needle", "--data", data, "--needle", "code", "--lengths", "300", "--depths", "50", "--hide-question"],
                 ["kld", "--data", data, "--lengths", "256", "--chunks", "1"]]
        outcome = lambda result: [result[what] for what in ("scores", "kept", "cache_bytes_with_lists")] + [result["details"].get("answer")]
        for task in tasks:
            others = ("ems", "d2o:total=true", "cake", "kvzip", "winnow:generated=leave,recent=4") if task[0] == "kld" else ()
            for method in ("snapkv:window=8", "winnow", *others):
                with self.subTest(task=task, method=method):
                    flags = ["eval", *task, "-m", self.model, "--kv-method", method, "--json", "-"]
                    found = self.assert_done(winnow(*flags, "--equal-bytes", "0.3")).json["samples"][0]["results"][1]
                    sizes = self.assert_done(winnow(*flags, "--kv-size", ",".join(map(str, range(16, 100))))).json["samples"][0]["results"][1:]
                    fits = [r for r in sizes if r["cache_bytes_with_lists"] <= 0.3 * r["cache_bytes_full_f16"]]
                    self.assertIn(outcome(found), map(outcome, fits))
                    self.assertGreater(found["cache_bytes_with_lists"], 0.96 * max(r["cache_bytes_with_lists"] for r in fits))

    def test_shares_that_come_after_each_other_change_nothing(self):
        """A method that learns the same for all budgets reads a prompt once for all shares, but
        never shares this across methods or cache types."""
        data = self.file("data.txt", TEXT * 3)
        outcome = lambda result: {what: result[what] for what in ("method", "budget", "cache_types", "scores", "kept", "cache_bytes_with_lists")}
        flags = ["eval", "kld", "-m", self.model, "--data", data, "--lengths", "256", "--chunks", "1", "--full-type", "f16", "--json", "-"]

        def results(methods, types, shares):
            run = winnow(*flags, "--kv-method", methods, "--cache-types", types, "--equal-bytes", shares)
            return [outcome(r) for r in self.assert_done(run).json["samples"][0]["results"] if r["method"] != "full"]

        alone = [results(method, types, share)[0] for types in ("f16", "q8_0") for method in ("winnow", "kvzip", "snapkv", "winnow:rest=0")
                 for share in ("0.5", "0.125", "0.25")]  # fmt: skip
        self.assertEqual(results("winnow,kvzip,snapkv,winnow:rest=0", "f16,q8_0", "0.5,0.125,0.25"), alone)

    def test_one_budget_at_a_time_elsewhere(self):
        self.assert_misused(winnow("run", "-m", self.model, "-p", "a", "--kv-method", "streaming", "--equal-bytes", "0.5"), "--equal-bytes")
        self.assert_misused(self.compare("--kv-method", "streaming", "--equal-bytes", "2"), "more than 0 and at most 1")


if __name__ == "__main__":
    unittest.main()
