"""bench/papers: every row of a paper's page can be run or says why not, and the pages match the
results."""

import argparse
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


def load_rows(paper):
    return importlib.import_module(f"rows.{paper}").ROWS


def fake_output(score, **ways):
    """An evaluation: {method: scores by sample}."""
    n = len(next(iter(ways.values())))
    return {"samples": [{"sample": i, "group": "g", "results": [
        {"method": way, "budget": "", "scores": {score: values[i]}, "cache_bytes": 3 << 19} for way, values in ways.items()]}
        for i in range(n)]}  # fmt: skip


def find_row(paper, name):
    return next(row for row in load_rows(paper) if row.name == name)


def find_verdict(paper, name, numbers, **more):
    return find_row(paper, name).read.verdict({"numbers": numbers, **more})


class Readers(unittest.TestCase):
    def test_a_share_is_that_of_the_prompt(self):
        row = find_row("refreekv", "shares")
        needle = fake_output("exact", full=[1, 1], refreekv=[1, 1])
        plain = fake_output("kld", full=[0, 0], refreekv=[0.1, 0.1])
        for i, share in enumerate((0.2, 0.4)):
            for output, n_prompt in ((needle, 1000), (plain, 1025)):
                for result in output["samples"][i]["results"]:
                    result["kept"] = n_prompt * (share if result["method"] == "refreekv" else 1)
        found = row.read([needle, plain])
        for task in ("needle", "plain text"):
            mean, _, least, most, n, *_ = found["numbers"][task]
            for number, expected in ((mean, 0.3), (least, 0.2), (most, 0.4), (n, 2)):
                self.assertAlmostEqual(number, expected)
        self.assertEqual(found["verdict"], "measured")
        self.assertIn("n = 2", found["ours"])

    def test_prompts_of_both_tasks_are_as_long(self):
        row = find_row("refreekv", "shares")
        needle, window = (int(shlex.split(c)[shlex.split(c).index("--lengths") + 1]) for c in row.commands)
        self.assertEqual(needle, window // 2)

    def test_noise_does_not_help_a_claim(self):
        retrieves = importlib.import_module("rows.ems").retrieves("ems:x=1", 0.5)
        full = [1] * 8
        for own, verdict in (([1] * 8, "reproduced in kind"), ([0] * 8, "not reproduced"), ([1, 0] * 4, "open: within the error"),
                             ([1, 0, 0, 0] * 2, "open: within the error")):
            # The first method has the same name with a further parameter.
            output = fake_output("exact", **{"full": full, "ems:x=1,y=1": full, "ems:x=1": own})
            self.assertEqual(retrieves([output])["verdict"], verdict, own)

    def test_errors_of_both_prefills_count(self):
        output = fake_output("prefill_s", full=[0.9, 1.1], hbw=[1.2, 1.2], d2o=[1.2, 1.2])
        found = importlib.import_module("rows.hbw").added_to_prefill([output])
        self.assertAlmostEqual(found["numbers"]["g full"][0], 1)
        mean, error, n = found["numbers"]["g hbw"]
        self.assertAlmostEqual(mean, 20)
        self.assertAlmostEqual(error, 12)  # 1.2 times the full cache's 10 %
        self.assertEqual(n, 2)
        self.assertIn("`full` 1.000 ± 0.100 s (1.50 MiB)", found["ours"])

    def test_prefill_is_judged_as_in_the_paper(self):
        """The whole time to read the prompt counts; the time of compressing is shown beside it."""
        output = fake_output("prefill_s", full=[0.9, 1.1], d2o=[1.2, 1.2])
        for sample in output["samples"]:
            for result in sample["results"]:
                result["scores"]["total_s"] = 10
        found = find_row("d2o", "prefill").read([output])
        for number, expected in zip(found["numbers"]["g"], (12, 0, 2, 1, 2)):
            self.assertAlmostEqual(number, expected)
        self.assertIn("less than 1 %: not reproduced", found["verdict"])

    def test_tova_is_judged(self):
        treekv, row = importlib.import_module("rows.treekv"), find_row("treekv", "sliding-4k")
        own = [1.0, 1.1, 1.2]
        for tova, verdict in ((-0.1, "reproduced in kind"), (0.1, "not reproduced")):
            found = row.read([fake_output("nll", **{
                "full": own, "streaming": [x + 1 for x in own], treekv.H2O: [x + 1 for x in own], treekv.TOVA: [x + tova for x in own],
                "treekv": own})])  # fmt: skip
            self.assertEqual(found["verdict"], f"StreamingLLM and H2O reproduced in kind; TOVA {verdict}")

    def test_a_stream_that_drifts_is_seen(self):
        treekv, row = importlib.import_module("rows.treekv"), find_row("treekv", "stream")
        outputs = []
        for method, drift, level in (("streaming", 0, 1), (treekv.H2O, 0.01, 1.1), (treekv.TOVA, 0.01, 1.1), ("treekv", 0, 0.9)):
            noise = (0.001, -0.001, 0.002, -0.002)
            points = [{"tokens": 100 * i, "recent_nll": level + drift * i + noise[i % 4], "cache_bytes": 5 << 20} for i in range(20)]
            outputs.append({"samples": [{"sample": "s", "group": "g", "results": [{
                "method": method, "budget": "size 1024", "scores": {"nll": 1}, "details": {"tokens": 2000, "points": points}}]}],
                "measured": {"seconds": 4, "tokens": 2000, "resident_early_bytes": 50 << 20, "resident_late_bytes": 50 << 20}})  # fmt: skip
        found = row.read(outputs)
        self.assertEqual(found["verdict"], "reproduced in kind")
        self.assertIn("2.000 ms a token, resident 50 MiB after a tenth, 50 at the end", found["ours"])
        outputs[0]["samples"][0]["results"][0]["details"]["points"][-1]["cache_bytes"] = 6 << 20
        self.assertIn("caches flat: not reproduced", row.read(outputs)["verdict"])

    def test_speed_is_held_against_the_papers(self):
        for ratio, verdict in ((2.5, "reproduced in kind"), (1.2, "not reproduced"), (0.9, "not reproduced (not shown to be faster than the full cache in 1)")):
            self.assertEqual(find_verdict("d2o", "throughput", {"256+1024 ratio 1.0": [ratio, 0.01, 3]}), verdict)

    def test_every_half_of_a_claim_is_judged(self):
        full, hbw, snapkv = [97.5, 2.5, 40], [37.5, 7.8, 40], [17.5, 6.1, 40]
        self.assertEqual(find_verdict("hbw", "needle-length", {"full": full, "hbw ratio 0.0625": hbw, "snapkv ratio 0.0625": snapkv},
                                    differences={"hbw against snapkv ratio 0.0625": [20, 8.2, 40]}),
                         "as the full cache: not reproduced; above snapkv: reproduced in kind")
        groups = {f"{2**i} groups": entropy for i, entropy in enumerate((1.0, 1.5, 1.4))}
        self.assertEqual(find_verdict("hbw", "entropy", groups), "not reproduced")
        self.assertEqual(find_verdict("hbw", "entropy", {**groups, "4 groups": 1.6, "snapkv": 9.0}), "reproduced in kind")
        self.assertEqual(find_verdict("treekv", "wavelet", dict(zip(("D1", "D2", "D3", "D4", "D5"), (2, 3, 4, 5, 6)))),
                         "grows: reproduced in kind; more at higher frequencies: not reproduced")

    def test_close_is_measured_by_what_is_lost(self):
        ems = find_row("ems", "position").read
        for other, verdict in ((0.21, "reproduced in kind"), (0.13, "not reproduced")):
            outputs = [fake_output("exact", full=[1, 1], **{"ems": [0.5, 0.5], "ems:positions=original": [0.5, 0.5]}),
                       fake_output("kld", full=[0, 0], **{"ems": [0.2, 0.2], "ems:positions=original": [other, other]})]  # fmt: skip
            self.assertEqual(ems(outputs)["verdict"], f"answers reproduced in kind; KLD {verdict}")

    def test_methods_that_answer_nothing_are_not_close(self):
        outputs = [fake_output("exact", full=[1, 1], **{"ems": [0, 0], "ems:positions=original": [0, 0]}),
                   fake_output("kld", full=[0, 0], **{"ems": [0.2, 0.2], "ems:positions=original": [0.2, 0.2]})]  # fmt: skip
        self.assertIn("answers open: nearly all is lost", find_row("ems", "position").read(outputs)["verdict"])

    def test_few_samples_need_a_larger_difference(self):
        verdicts = importlib.import_module("verdicts")
        for n, t in ((2, 12.706), (3, 4.303), (5, 2.776), (16, 2.131), (40, 2.023)):
            self.assertAlmostEqual(verdicts.half_width(n), t, places=3)
        self.assertEqual([verdicts.sign(0.25, 0.1, n) for n in (1, 4, 16)], [0, 0, 1])

    def test_no_difference_seen_is_not_nothing_lost(self):
        verdicts = importlib.import_module("verdicts")
        for loss, error, n, of_answers, verdict in ((0, 0, 40, True, "open: a loss of up to 9 points is not excluded"), (0, 0, 1000, True, "reproduced in kind"),
                                                    (0.005, 0.001, 16, False, "reproduced in kind"), (0.1, 0.01, 16, False, "not reproduced"),
                                                    (0.005, 0.003, 16, False, "open: a loss of up to 0.011 nats is not excluded")):  # fmt: skip
            self.assertEqual(verdicts.nothing_lost(loss, error, n, of_answers), verdict)

    def test_the_error_of_the_full_caches_speed_counts(self):
        read = find_row("d2o", "throughput").read
        output = fake_output("tokens_per_second", **{"full": [9, 10, 11], "d2o:total=true,gate_scale=length": [20, 20, 20]})
        for sample in output["samples"]:
            for result in sample["results"]:
                result["scores"]["sequences"] = 1
        mean, error, n = read([output])["numbers"]["g"]
        self.assertAlmostEqual(mean, 2)
        self.assertAlmostEqual(error, 2 * 0.1 / 3**0.5)
        self.assertEqual(n, 3)

    def test_budgets_of_one_method_are_paired(self):
        output = {"samples": [{"sample": i, "group": "g", "results": [
            {"method": "ems", "budget": budget, "scores": {"exact": i % 4 + more}, "cache_bytes": 1} for budget, more in (("a", 0), ("b", 0.1 + 0.01 * (i % 2)))]
            + [{"method": "full", "budget": "", "scores": {"exact": 9}, "cache_bytes": 1}]} for i in range(16)]}  # fmt: skip
        self.assertEqual(find_row("ems", "budgets").read([output])["verdict"], "grows with the budget: reproduced in kind")

    def test_the_best_block_may_be_the_same_everywhere(self):
        row, hbw = find_row("hbw", "block"), importlib.import_module("rows.hbw")
        for best, verdict in ((dict.fromkeys(hbw.BUDGETS, 8), "the best size grows: open: within the error"),
                              (dict(zip(hbw.BUDGETS, (2, 4, 8))), "reproduced in kind; as good as the best"),
                              (dict(zip(hbw.BUDGETS, (8, 4, 2))), "the best size grows: not reproduced")):  # fmt: skip
            output = {"samples": [{"sample": i, "group": "g", "results": [
                {"method": f"hbw:block={size}", "budget": f"size {budget}", "scores": {"exact": 1 if size == best[budget] else 0.1 + 0.01 * (i % 2)}}
                for budget in hbw.BUDGETS for size in hbw.SIZES]} for i in range(8)]}  # fmt: skip
            self.assertIn(verdict, row.read([output])["verdict"])

    def test_keeping_more_does_not_win(self):
        row = find_row("refreekv", "ranking")
        outputs = []
        for score, own in (("exact", (1, 1)), ("kld", (0.01, 0.02))):
            output = fake_output(score, full=[1, 1] if score == "exact" else [0, 0], refreekv=own, **{"refreekv:ranking=attention": [own[0] * 2, own[1] * 2 - 0.001]})
            for sample in output["samples"]:
                for result in sample["results"]:
                    result["kept"] = {"full": 100, "refreekv": 50}.get(result["method"], 40)
                    result["scores"]["nll"] = 1
            outputs.append(output)
        outputs[1]["samples"][0]["results"][2]["scores"]["kld"] += 0.009  # both differences change alike
        self.assertIn("plain text open: nearer, but keeps more", row.read(outputs)["verdict"])

    def test_texts_say_how_many_samples_and_bytes(self):
        read = importlib.import_module("readers").compare("exact", best="ems")
        self.assertEqual(read([fake_output("exact", full=[1, 1], ems=[1, 1])])["ours"],
                         "`full` 1.000 ± 0.000 (1.50 MiB); `ems` 1.000 ± 0.000 (1.50 MiB); n = 2")


class Papers(CliTest):
    def test_every_row_runs_or_says_why_not(self):
        for paper in PAPERS:
            rows = load_rows(paper)
            self.assertEqual(len({row.name for row in rows}), len(rows))
            for row in rows:
                with self.subTest(paper=paper, row=row.name):
                    self.assertTrue(row.source and row.claim and row.number)
                    self.assertNotEqual(bool(row.commands), bool(row.cannot))
                    self.assertEqual(bool(row.commands), row.read is not None)

    def test_methods_of_the_commands_are_there(self):
        """All methods parse: an evaluation without data names the first unknown method."""
        for paper in PAPERS:
            for row in load_rows(paper):
                for command in row.commands:
                    words = shlex.split(command)
                    if "--kv-method" not in words:
                        continue
                    with self.subTest(paper=paper, row=row.name):
                        methods = words[words.index("--kv-method") + 1]
                        outcome = winnow("eval", "kld", "--data", self.folder / "none", "--kv-method", methods, "--kv-size", "600")
                        self.assertNotIn("--kv-method", outcome.err)
                        self.assertIn("none", outcome.err)

    def test_all_fits_into_a_day(self):
        run = importlib.import_module("run")
        self.assertLessEqual(sum(run.row_hours(row) for paper in PAPERS for row in load_rows(paper)), 24)

    def test_what_a_command_takes_is_measured(self):
        status, measured = importlib.import_module("watch").watch([sys.executable, "-c", "import time; time.sleep(0.1)"])
        self.assertEqual(status, 0)
        self.assertGreaterEqual(measured["seconds"], 0.1)
        self.assertGreater(measured["resident_late_bytes"], 0)
        self.assertNotEqual(importlib.import_module("watch").watch([sys.executable, "-c", "raise SystemExit(3)"])[0], 0)

    def test_a_build_of_another_history_is_known(self):
        run = importlib.import_module("run")
        for build in ("0.1.0", "0.1.0+b994be2", "0.1.0+1e60d35-dirty"):
            self.assertFalse(run.is_in_repository(build), build)

    def test_rows_run_again_where_they_must(self):
        run, row = importlib.import_module("run"), find_row("ems", "tau")
        args = argparse.Namespace(long=False, read=False, again=False, build="new")
        found = {"commands": row.commands, "winnow": "old"}
        self.assertFalse(run.is_wanted(args, row, {"tau": found}))
        self.assertTrue(run.is_wanted(args, row, {}))
        self.assertTrue(run.is_wanted(args, row, {"tau": {**found, "commands": ["another"]}}))
        self.assertTrue(run.is_wanted(args, row, {"tau": {**found, "unknown_commit": True}}))
        args.again = True
        self.assertTrue(run.is_wanted(args, row, {"tau": found}))
        self.assertFalse(run.is_wanted(args, row, {"tau": {**found, "winnow": "new"}}))

    def test_beds_run_short_rows_only(self):
        for paper in PAPERS:
            for row in load_rows(paper):
                if row.on_beds:
                    self.assertFalse(row.hours or row.timed, row.name)

    def test_rows_that_a_bed_has_not_run_are_named(self):
        page, rows = importlib.import_module("page"), [row for row in load_rows("treekv") if row.on_beds]
        self.assertIn("sliding", [row.name for row in rows])
        sliding = find_row("treekv", "sliding")
        result = {"commands": sliding.commands, **sliding.read([fake_output("nll", full=[1, 1], **{method: [1, 1] for method in (
            "streaming", "treekv", *importlib.import_module("rows.treekv").SHORT)})])}  # fmt: skip
        last = page.beds_table(rows, {"bundled": {}, "bed-q": {"sliding": result}})[-1]
        self.assertIn("bed-q has not run `sliding-4k`", last)
        self.assertIn("bed-l has not run any of these rows", last)

    def test_a_result_of_another_command_is_not_shown(self):
        page, row = importlib.import_module("page"), find_row("ems", "tau")
        results = {"tau": {"commands": ["eval needle"], "numbers": {}}}
        self.assertEqual(page.ours(row, results), "not run yet")
        self.assertEqual(page.verdict(row, results), "not run yet with this command")

    def test_pages_are_those_of_what_was_found(self):
        page = importlib.import_module("page")
        for paper in PAPERS:
            with self.subTest(paper=paper), tempfile.TemporaryDirectory() as folder:
                found = json.loads((ROOT / f"docs/papers/{paper}.json").read_text())
                for results in found.values():
                    for row in load_rows(paper):
                        if result := page.current(row, results):
                            self.assertEqual((result["ours"], result["verdict"]), (row.read.text(result), row.read.verdict(result)), row.name)
                again = pathlib.Path(folder) / f"{paper}.md"
                page.write_page(again, importlib.import_module(f"rows.{paper}"), found)
                self.assertEqual(again.read_text(), (ROOT / f"docs/papers/{paper}.md").read_text())


if __name__ == "__main__":
    unittest.main()
