"""bench/method: the choice on development documents, and the tables of results."""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

from harness import WINNOW, CliTest, winnow

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/method"))
import judge  # noqa: E402
import kept_results  # noqa: E402
import parts  # noqa: E402
import protocol  # noqa: E402
import tables  # noqa: E402


class Choices(unittest.TestCase):
    def test_storage_of_the_best_mean(self):
        answers = {("a", "f16"): [0.9, 0.2], ("a", "q8_0"): [0.8, 0.4], ("a", "q8_0/q4_0"): [0.0, 0.0]}
        self.assertEqual(judge.best_storage(answers, "a", 1), "q8_0")
        # Arithmetic means are 0.55 and 0.60, geometric ones 0.32 and 0.20.
        divergences = {("a", "f16"): [1.0, 0.1], ("a", "q8_0"): [1.19, 0.03]}
        self.assertEqual(judge.best_storage(divergences, "a", -1), "q8_0")

    def test_storages_are_compared_where_all_fit(self):
        means = {("a", "f16"): [None, 0.5], ("a", "q8_0"): [0.9, 0.4], ("a", "q8_0/q4_0"): [None, None]}
        self.assertEqual(judge.best_storage(means, "a", 1), "f16")
        self.assertEqual(judge.best_storage({}, "a", 1), "q8_0/q4_0")

    def test_left_out_is_who_is_worse_everywhere_but_the_nearest(self):
        setup = protocol.Track("kld", -1, 1000, 2, "", ("0.5",), ("0.5",), ("near", "far", "once", "absent"), own="own")
        storages = dict.fromkeys((setup.own, *setup.rivals), "f16")
        means = {("own", "f16"): [1, 1], ("near", "f16"): [2.5, 2.5], ("far", "f16"): [3, 9], ("once", "f16"): [1.5, 9]}
        self.assertEqual(judge.hopeless(setup, means, storages), ["far"])

    def test_shares_of_bytes(self):
        args = argparse.Namespace(winnow=WINNOW)
        flag, numbers = parts.budgets(args, "bundled", "streams", protocol.STREAM.shares)
        self.assertEqual(flag, "--kv-memory")
        found = [parts.requested_share(args, "bundled", {"budget": f"memory {number}"}) for number in numbers.split(",")]
        self.assertEqual(found, list(protocol.STREAM.shares))
        self.assertEqual(parts.requested_share(args, "bundled", {"budget": "equal bytes 0.25"}), "0.25")
        self.assertEqual(parts.requested_share(args, "bundled", {"budget": ""}), "")


class InventedResults(unittest.TestCase):
    """Of a judgement of one model and two tracks."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="winnow-judge-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.args = argparse.Namespace(phase="judgement", data=self.folder, winnow=WINNOW, tracks=["text", "streams"], models=["bundled"])
        (self.folder / "judgement").mkdir()
        storages = {track: {share: {} for share in setup.shares} for track, setup in protocol.TRACKS.items()}
        storages["text"]["0.25"] = {"winnow": "q8_0", "kvzip": "q8_0", "snapkv": "q8_0", "cake": "q8_0"}
        storages["streams"]["0.25"] = {"winnow:generated=leave": "q8_0", "streaming": "q8_0"}
        left_out = {track: dict.fromkeys(shares, []) for track, shares in storages.items()}
        left_out["text"]["0.25"] = ["cake"]
        frozen = self.folder / "frozen.json"
        frozen.write_text(json.dumps({"storage": storages, "left out": left_out}))
        for module in (parts, tables):
            patch = unittest.mock.patch.object(module, "FROZEN", frozen)
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, track, part, score, budget, **scores_of):
        """scores_of: by method and document. A pair is a score and the bytes of the cache; bytes
        with lists are a tenth more."""
        samples = []
        for i in range(len(next(iter(scores_of.values())))):
            results = []
            for method, scores in scores_of.items():
                value, n_bytes = scores[i] if isinstance(scores[i], tuple) else (scores[i], 200)
                results.append({"method": method, "budget": "" if method == "full" else budget, "cache_types": "f16" if method == "full" else "q8_0",
                                "scores": {score: value}, "cache_bytes": n_bytes, "cache_bytes_with_lists": n_bytes * 1.1,
                                "cache_bytes_full_f16": 1000})  # fmt: skip
            samples.append({"sample": i, "results": results})
        path = self.folder / "judgement" / f"bundled-{track}-{part}.json"
        path.write_text(json.dumps({"finished": True, "winnow": "1", "samples": samples}))


class Tables(InventedResults):
    def test_differences_are_paired_and_in_favour_of_the_smaller_divergence(self):
        self.write("text", "q8_0-0.25", "kld", "equal bytes 0.25", full=[0] * 8, winnow=[0.001 * i for i in range(8)],
                   kvzip=[0.001 * i + 0.002 + 0.0001 * (i % 2) for i in range(8)], snapkv=[(0.5, 900 if i == 3 else 200) for i in range(8)])  # fmt: skip
        text = tables.make_tables(self.args)
        self.assertIn("| text | bundled | 1/4 | `kvzip q8_0` | +2.05 ± 0.0", text)
        self.assertIn("| better |", text)
        self.assertIn("- text, bundled, 1/4: `snapkv` in q8_0: its cache fits, without an error, in 7 of 8 documents", text)
        self.assertNotIn("`snapkv q8_0`", text)
        self.assertIn("bed-q-text-q8_0-0.25", parts.unfinished(self.args))
        self.assertNotIn("bundled-text-q8_0-0.25", parts.unfinished(self.args))
        self.assertIn("**Not the whole evaluation**: 24 of ", text)
        self.assertIn("text, 1/4 (measured at 1/4): `cake`", text)
        self.assertIn("8, 0 of 8 | 0.6", text)

    def test_a_model_counts_for_questions_of_which_it_answers_nine_tenths(self):
        frozen = json.loads(parts.FROZEN.read_text())
        frozen["storage"]["hidden"]["0.25"] = {"winnow": "q8_0", "kvzip": "q8_0"}
        parts.FROZEN.write_text(json.dumps(frozen))
        self.args.tracks = ["hidden"]
        for full, counts in (([1.0] * 18 + [0.0] * 2, True), ([1.0] * 17 + [0.0] * 3, False)):
            self.write("hidden", "q8_0-0.25", "score", "equal bytes 0.25", full=full, winnow=[1.0] * 20, kvzip=[0.0] * 20)
            text = tables.make_tables(self.args)
            self.assertEqual("not counted, because the full cache answers less than 90 %" in text, not counts)
            row = next(line for line in text.splitlines() if line.startswith("| hidden | bundled | 1/4 | `kvzip q8_0` | +100.0"))
            self.assertEqual(row.endswith("| better |"), counts, row)

    def test_what_has_only_begun_is_left_out(self):
        many, few = {"a": dict.fromkeys(range(20), 1.0)}, {"b": dict.fromkeys(range(18), 1.0), "c": dict.fromkeys(range(5), 1.0)}
        found = parts.common(many | few)
        self.assertEqual({key: len(scores) for key, scores in found.items()}, {"a": 18, "b": 18})

    def test_lists_come_on_top_of_the_limit_of_a_stream(self):
        memory = parts.budgets(self.args, "bundled", "streams", ["0.25"])[1]
        self.write("streams", "q8_0-0.25", "nll", f"memory {memory}", full=[3.0] * 6,
                   **{"winnow:generated=leave": [(3.1 + 0.01 * i, 240) for i in range(6)], "streaming": [(3.0 + 0.011 * i, 240) for i in range(6)]})  # fmt: skip
        text = tables.make_tables(self.args)
        self.assertIn("6 documents; thousandths of a nat per token; full cache 3000.0 ± 0.0.", text)
        self.assertIn("| streams | bundled | 1/4 | `streaming q8_0` | -97.5 ± ", text)
        self.assertIn("| **worse** |", text)


class KeptResults(InventedResults):
    def setUp(self):
        super().setUp()
        frozen = json.loads(parts.FROZEN.read_text()) | {"build": "0.1.0+abc"}
        parts.FROZEN.write_text(json.dumps(frozen))
        for name, value in (("FROZEN", parts.FROZEN), ("KEPT", self.folder / "results")):
            patch = unittest.mock.patch.object(kept_results, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.results = self.folder / "judgement/bundled-text-q8_0-0.25.jsonl"
        self.text = self.folder / "judgement/text.jsonl"
        self.text.write_text('{"text": "A window."}\n')
        self.lines = [self.line(sample) for sample in range(4)]

    @staticmethod
    def line(sample, build="0.1.0+abc"):
        return json.dumps({"sample": sample, "method": "winnow", "fingerprint": "f", "winnow": build}) + "\n"

    def keep(self):
        return kept_results.keep(self.args, judge.all_parts(self.args))

    def restore(self):
        kept_results.restore(self.args, judge.all_parts(self.args))
        return self.results.read_text().splitlines(keepends=True)

    def test_they_go_on_in_another_folder(self):
        self.results.write_text("".join(self.lines[:3]) + self.lines[3][:9])
        self.assertEqual(self.keep(), 3)
        self.results.unlink()
        self.assertEqual(self.restore(), self.lines[:3])

    def test_those_of_two_machines_are_joined(self):
        self.results.write_text("".join(self.lines[:3]))
        self.keep()
        self.results.write_text(self.lines[3] + self.lines[0])
        self.assertEqual(sorted(self.restore()), self.lines)
        self.results.write_text(self.lines[3])
        self.assertEqual(self.keep(), 4)
        self.results.write_text("")
        self.assertEqual(sorted(self.restore()), self.lines)

    def test_hashes_of_documents_are_joined(self):
        generated = self.folder / "judgement/generated-bundled.jsonl"
        generated.write_text("{}\n")
        self.keep()
        generated.unlink()
        self.keep()
        self.assertEqual(sorted(kept_results.kept_hashes()), ["generated-bundled.jsonl", "text.jsonl"])

    def test_generated_texts_go_on_where_the_model_would_write_others(self):
        with unittest.mock.patch.object(parts, "continuation", lambda args, model, prompt, seed: f" and more\u2026 {seed}"):
            written = parts.generated(self.args, "bundled", kept_results.check_document).read_bytes()
        self.keep()
        for path in self.folder.glob("judgement/*-bundled.json*"):
            path.unlink()
        with unittest.mock.patch.object(parts, "continuation", lambda *_: " and something else"):
            with self.assertRaisesRegex(SystemExit, "generated-bundled.jsonl is not the file that the results"):
                parts.generated(self.args, "bundled", kept_results.check_document)
            parts.continuations_file(self.args, "bundled").write_text('[" of another machine"]')
            kept_results.restore(self.args, judge.all_parts(self.args))
            self.assertEqual(parts.generated(self.args, "bundled", kept_results.check_document).read_bytes(), written)

    def test_those_of_another_build_or_document_are_refused(self):
        self.results.write_text(self.line(0, "0.1.0+other"))
        with self.assertRaisesRegex(SystemExit, r"found results of 0.1.0\+other, expected those of 0.1.0\+abc"):
            self.keep()
        self.results.write_text(self.lines[0])
        self.keep()
        kept_results.check_documents(self.args)
        self.text.write_text('{"text": "Another window."}\n')
        with self.assertRaisesRegex(SystemExit, "text.jsonl is not the file that the results"):
            kept_results.check_documents(self.args)

    def test_a_part_with_results_of_another_build_is_refused(self):
        output = {"winnow": "0.1.0+abc", "samples": [{"results": [{}, {"winnow": "0.1.0+abc"}]}]}
        kept_results.check_builds(output, "a part")
        output["samples"][0]["results"].append({"winnow": "0.1.0+other"})
        with self.assertRaisesRegex(SystemExit, r"a part: found results of 0.1.0\+other"):
            kept_results.check_builds(output, "a part")

    def test_the_binary_is_that_of_the_frozen_commit(self):
        parts.FROZEN.write_text(json.dumps({"build": kept_results.read_build(WINNOW)}))
        kept_results.check_binary(self.args)
        parts.FROZEN.write_text(json.dumps({"build": "0.1.0+other"}))
        with self.assertRaisesRegex(SystemExit, r"expected 0.1.0\+other, which `build` makes"):
            kept_results.check_binary(self.args)


class Idle(unittest.TestCase):
    def test_several_parts_give_way(self):
        policy = "import os, pathlib; print(os.sched_getscheduler(0) == os.SCHED_IDLE, pathlib.Path('/proc/self/autogroup').read_text().strip())"
        for _ in range(3):  # right after each other
            done = subprocess.run([sys.executable, "-c", policy], start_new_session=True, preexec_fn=judge.give_way, stdout=subprocess.PIPE, text=True, check=False)
            if pathlib.Path("/proc/self/autogroup").exists():
                self.assertRegex(done.stdout, r"True .*nice 19")


class Methods(CliTest):
    def test_every_method_of_the_protocol_runs(self):
        data = self.file("text.txt", "An old grey fox sat on a wall. " * 40)
        for setup in (protocol.ANSWERS, protocol.DIVERGENCE, protocol.STREAM):
            methods = [setup.own, *setup.ingredients, *setup.rivals]
            methods = [method for method in methods if "profile" not in method]
            out = self.assert_done(winnow("eval", "kld", "-m", self.model, "--data", data, "--lengths", "256", "--chunks", "1", "-t", "1",
                                          "--kv-method", ",".join(methods), "--kv-size", "100", "--json", "-"))  # fmt: skip
            rows = json.loads(out.out)["rows"]
            self.assertEqual([row["method"] for row in rows], ["full", *methods])
            self.assertTrue(all(math.isfinite(row["kld"]) for row in rows), rows)


if __name__ == "__main__":
    unittest.main()
