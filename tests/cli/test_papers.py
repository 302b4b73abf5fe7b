"""bench/papers: every row of a paper's page can be run or says why not, and the pages are those of what was found."""

import importlib
import json
import pathlib
import shlex
import sys
import tempfile
import unittest

from harness import CliTest, winnow

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/papers"))
PAPERS = ["treekv", "refreekv", "d2o", "hbw", "ems"]


def rows_of(paper):
    return importlib.import_module(f"rows.{paper}").ROWS


def output_of(score, **ways):
    """An evaluation: {method: scores by sample}."""
    n = len(next(iter(ways.values())))
    return {"samples": [{"sample": i, "group": "g", "results": [
        {"method": way, "budget": "", "scores": {score: values[i]}, "cache_bytes": 3 << 19} for way, values in ways.items()]}
        for i in range(n)]}  # fmt: skip


class Readers(unittest.TestCase):
    def test_a_share_is_that_of_the_prompt(self):
        """Half a window is the prompt; the other half is read token by token and stays."""
        row = next(row for row in rows_of("refreekv") if row.name == "shares")
        window = {"tokens": 2047, "tokens_scored": 1023}  # a prompt of 1025 tokens, and 1022
        needle = output_of("exact", full=[1, 1], refreekv=[1, 1])
        plain = output_of("kld", full=[0, 0], refreekv=[0.1, 0.1])
        for i, share in enumerate((0.2, 0.4)):
            for output, details, n_prompt, n_later in ((needle, {"prompt_tokens": 1000}, 1000, 0), (plain, window, 1025, 1022)):
                for result in output["samples"][i]["results"]:
                    result["kept"] = n_later + n_prompt * (share if result["method"] == "refreekv" else 1)
                    result["details"] = details
        found = row.read([needle, plain])
        for task in ("needle", "plain text"):
            mean, _, least, most, n, *_ = found["numbers"][task]
            for number, expected in ((mean, 0.3), (least, 0.2), (most, 0.4), (n, 2)):
                self.assertAlmostEqual(number, expected)
        self.assertEqual(found["verdict"], "measured")
        self.assertIn("n = 2", found["ours"])

    def test_prompts_of_both_tasks_are_as_long(self):
        row = next(row for row in rows_of("refreekv") if row.name == "shares")
        needle, window = (int(shlex.split(c)[shlex.split(c).index("--lengths") + 1]) for c in row.commands)
        self.assertEqual(needle, window // 2)

    def test_noise_does_not_help_a_claim(self):
        retrieves = importlib.import_module("rows.ems").retrieves("ems:x=1", 0.5)
        full = [1] * 8
        for own, verdict in (([1] * 8, "reproduced in kind"), ([0] * 8, "not reproduced"), ([1, 0] * 4, "open: within two standard errors"),
                             ([1, 0, 0, 0] * 2, "open: within two standard errors")):
            # The first has the same name and more.
            output = output_of("exact", **{"full": full, "ems:x=1,y=1": full, "ems:x=1": own})
            self.assertEqual(retrieves([output])["verdict"], verdict, own)

    def test_errors_of_both_prefills_count(self):
        output = output_of("prefill_s", full=[0.9, 1.1], hbw=[1.2, 1.2], d2o=[1.2, 1.2])
        found = importlib.import_module("rows.hbw").added_to_prefill([output])
        self.assertAlmostEqual(found["numbers"]["g full"][0], 1)
        mean, error, n = found["numbers"]["g hbw"]
        self.assertAlmostEqual(mean, 20)
        self.assertAlmostEqual(error, 12)  # 1.2 times the 10 % of the full cache's
        self.assertEqual(n, 2)
        self.assertIn("`full` 1.000 ± 0.100 s (1.50 MiB)", found["ours"])
        output = output_of("prefill_s", full=[0.9, 1.1], d2o=[1.2, 1.2])
        for sample in output["samples"]:
            for result in sample["results"]:
                result["scores"]["total_s"] = 10
        mean, error = importlib.import_module("rows.d2o").prefill_share([output])["numbers"]["g"]
        self.assertAlmostEqual(mean, 2)
        self.assertAlmostEqual(error, 1)

    def test_tova_is_judged(self):
        treekv = importlib.import_module("rows.treekv")
        own = [1.0, 1.1, 1.2]
        for tova, verdict in ((-0.1, "reproduced in kind"), (0.1, "not reproduced")):
            found = treekv.tova_is_better([output_of("nll", **{
                "full": own, "streaming": [x + 1 for x in own], treekv.H2O: [x + 1 for x in own], treekv.TOVA: [x + tova for x in own],
                "treekv": own})])  # fmt: skip
            self.assertEqual(found["verdict"], f"StreamingLLM and H2O reproduced in kind; TOVA {verdict}")

    def test_texts_say_how_many_samples_and_bytes(self):
        read = importlib.import_module("row").compare("exact", best="ems")
        self.assertEqual(read([output_of("exact", full=[1, 1], ems=[1, 1])])["ours"],
                         "`full` 1.000 ± 0.000 (1.50 MiB); `ems` 1.000 ± 0.000 (1.50 MiB); n = 2")


class Papers(CliTest):
    def test_every_row_runs_or_says_why_not(self):
        for paper in PAPERS:
            rows = rows_of(paper)
            self.assertEqual(len({row.name for row in rows}), len(rows))
            for row in rows:
                with self.subTest(paper=paper, row=row.name):
                    self.assertTrue(row.source and row.claim and row.number)
                    self.assertNotEqual(bool(row.commands), bool(row.cannot))
                    self.assertEqual(bool(row.commands), row.read is not None)

    def test_methods_of_the_commands_are_there(self):
        """Each is parsed: an evaluation of nothing names the first that is not known."""
        for paper in PAPERS:
            for row in rows_of(paper):
                for command in row.commands:
                    words = shlex.split(command)
                    if "--kv-method" not in words:
                        continue
                    with self.subTest(paper=paper, row=row.name):
                        methods = words[words.index("--kv-method") + 1]
                        outcome = winnow("eval", "kld", "--data", self.folder / "none", "--kv-method", methods, "--kv-size", "600")
                        self.assertNotIn("--kv-method", outcome.err)
                        self.assertIn("none", outcome.err)

    def test_pages_are_those_of_what_was_found(self):
        page = importlib.import_module("page")
        for paper in PAPERS:
            with self.subTest(paper=paper), tempfile.TemporaryDirectory() as folder:
                found = json.loads((ROOT / f"docs/papers/{paper}.json").read_text())
                again = pathlib.Path(folder) / f"{paper}.md"
                page.write_page(again, importlib.import_module(f"rows.{paper}"), found)
                self.assertEqual(again.read_text(), (ROOT / f"docs/papers/{paper}.md").read_text())


if __name__ == "__main__":
    unittest.main()
