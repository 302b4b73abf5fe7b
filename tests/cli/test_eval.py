"""winnow eval: every task on a few samples, values that are known, and interrupted runs.

Scores need no model that can do the task: the tiny model's answer is written into the data as the
right answer, which must score 1, and in shuffled form, which must not.
"""

import hashlib
import json
import math

from eval_case import EvalTest, lines, shuffled, TASKS, TEXT, without_times
from harness import SANITIZED, SHARED, winnow


class Command(EvalTest):
    def test_list_and_help(self):
        listed = self.assert_done(winnow("eval", "--list")).text
        for task in TASKS:
            self.assertIn(f"| {task} ", listed)
            more = self.assert_done(winnow("eval", task, "--list")).text
            self.assert_names(more, [task, "data ", "flags ", "columns ", "repeats "])
        usage = self.assert_done(winnow("eval", "--help")).text
        self.assert_names(usage, ["--kv-method", "--data", "--samples", "--results", "--json", "--report", "--hide-question",
                                  "(gsm8k, multiple-choice)"] + TASKS)
        own = self.assert_done(winnow("eval", "gsm8k", "--help")).text
        self.assert_names(own, ["--data", "--shots", "-n, --predict, --n-predict N", "--kv-method"])
        for flag in ("--needle", "--depths", "--grid"):
            self.assertNotIn(flag + " ", own)

    def test_misuse(self):
        self.assert_misused(winnow("eval"), "no task")
        self.assert_misused(winnow("eval", "needel", "-m", self.model), "needle")
        self.assert_misused(winnow("eval", "needle", "ruler"), "ruler")
        self.assert_misused(self.run_eval("gsm8k", "--depths", "5"), "--depths", "gsm8k", "--shots")
        self.assert_misused(self.run_eval("throughput", "--data", "x"), "--data")
        self.assert_misused(self.run_eval("needle", methods=["--kv-ratio", "0.5"]), "--kv-method")
        self.assert_misused(self.run_eval("needle", methods=["--kv-method", "snapkv"]), "needs a budget")
        self.assert_misused(self.run_eval("needle", "--cache-types", "q9"), "--cache-types", "q9")
        self.assert_misused(self.run_eval("needle", "--full-type", "q9"), "--full-type", "q9")
        self.assert_misused(self.run_eval("needle", "--kv-ratio", "1.5"), "1.5")
        self.assert_misused(self.run_eval("throughput", "--grid", "12"), "12")
        self.assert_misused(self.run_eval("needle", "--raw", "--chat-template", "llama3"), "--raw")

    def test_missing_files_are_named_with_their_format(self):
        for task in TASKS:
            if task == "throughput":
                continue
            with self.subTest(task=task):
                self.assert_failed(self.run_eval(task), "--data")
                self.assert_failed(self.run_eval(task, "--data", self.data), self.data)
                self.assert_failed(self.run_eval(task, "--data", self.data / "none"), "none")
        self.assert_failed(self.run_eval("longbench", "--data", self.data), "dataset2prompt.json")
        self.write("test.jsonl", lines({"question": "x"}))
        self.assert_failed(self.run_eval("gsm8k", "--data", self.data), "test.jsonl:1", "answer", "expected a text")

    def test_wrong_options_name_the_flag(self):
        self.write("a.txt", TEXT * 4)
        for task, *flags in (["perplexity", "--protocol", "x"], ["perplexity", "--every", "0"],
                             ["multiple-choice", "--by", "x"]):
            self.assert_misused(self.run_eval(task, "--data", self.data, *flags), flags[0])
        for task, *flags in (["needle", "--depths", "101"], ["kv-retrieval", "--depths", "400"], ["needle", "--needle", "A fox."],
                             ["needle", "--needles", "3"], ["perplexity", "--lengths", "3"]):
            self.assert_failed(self.run_eval(task, "--data", self.data, *flags), flags[0])

    def test_every_method_and_budget_and_type(self):
        self.write("a.txt", TEXT * 20)
        found = self.evaluate("kld", "--lengths", "64", "--chunks", "1", "--cache-types", "f16,q8_0/q4_0",
                              methods=["--kv-method", "custom:score=window(8,kernel=3),select=topk,sinks=2,h2o:recent=4",
                                       "--kv-method", "refreekv", "--kv-size", "20", "--kv-memory", "64k"])
        self.assertEqual([(row["method"].split(":")[0], row["budget"], row["cache_types"]) for row in found["rows"]],
                         [(method, budget, types) for types in ("f16", "q8_0/q4_0")
                          for method, budget in (("full", ""), ("custom", "size 20"), ("custom", "memory 65536"),
                                                 ("h2o", "size 20"), ("h2o", "memory 65536"), ("refreekv", ""))])
        full, quantised = (row for row in found["rows"] if row["method"] == "full")
        self.assertLess(quantised["cache_bytes"], full["cache_bytes"])
        self.assertGreater(quantised["kld"], full["kld"])
        h2o = found["rows"][3]
        self.assertEqual(h2o["method"], "h2o:recent=4")
        self.assertRegex(h2o["configuration"], "^h2o:.*sinks=")
        self.assertIn("recent=4", h2o["configuration"])

    def test_results_say_where_they_come_from(self):
        self.write("a.txt", TEXT * 20)
        results = self.results
        found = self.evaluate("kld", "--lengths", "64", "--chunks", "1", "--results", results)
        self.assertEqual(found["model"]["hash"], "sha256:" + hashlib.sha256(self.model.read_bytes()).hexdigest())
        self.assertEqual(found["model"]["file"], "tiny.gguf")
        self.assertTrue(found["winnow"])
        self.assertIn("cores", found["machine"])
        written = [json.loads(line) for line in results.read_text().splitlines()]
        self.assertEqual(len(written), 5)
        for line in written:
            self.assertEqual(line["model_hash"], found["model"]["hash"])
            self.assertEqual(line["model"]["file"], "tiny.gguf")
            self.assertEqual(line["machine"], found["machine"])
            self.assert_names(list(line), ["version", "method", "configuration", "budget", "cache_types", "cache_bytes", "cache_bytes_with_lists",
                                            "cache_bytes_full_f16", "kept", "scores"])

    def test_report(self):
        self.write("a.txt", TEXT * 40)
        page = self.folder / "needle-page.html"
        self.assert_done(self.run_eval("needle", "--data", self.data, "--lengths", "200", "--depths", "0,100", "--report", page))
        html = page.read_text(encoding="utf-8")
        self.assert_names(html, ["needle", "snapkv:window=8", "depth"])

    def test_chat_template(self):
        """The tiny model's file has a ChatML template."""
        self.write("a.txt", TEXT * 40)
        found = [self.evaluate("needle", "--lengths", "200", "--depths", "50", *more)["samples"][0]["results"][0]["details"]
                 for more in ([], ["--chat-template", "chatml"], ["--raw"], ["--raw", "--form", "{question} {document}"])]
        self.assertTrue(all(details["prompt_tokens"] + 50 <= 200 for details in found))
        answers = [details["answer"] for details in found]
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(len(set(answers)), 3)


class Texts(EvalTest):
    def test_kld_of_the_full_cache_is_nothing(self):
        self.write("a.txt", TEXT * 60)
        found = self.evaluate("kld", "--lengths", "200", "--chunks", "2")
        self.check_rows(found, 2)
        full = found["rows"][0]
        self.assertLess(abs(full["kld"]), 1e-5)
        self.assertEqual(full["same_top"], 100)
        for row in found["rows"][1:]:
            self.assertGreater(row["kld"], 1e-4, row)
        everything = self.evaluate("kld", "--lengths", "200", "--chunks", "1", methods=["--kv-method", "h2o", "--kv-size", "200"])
        self.assertLess(abs(everything["rows"][1]["kld"]), 1e-5)


    def test_kld_reads_the_second_half_as_it_is_generated(self):
        """A method that evicts during decode loses as much as token by token, for any chunk."""
        self.write("a.txt", TEXT * 60)
        methods = ["--kv-method", "snapkv:window=8,h2o,tova,winnow:generated=leave,twilight", "--kv-size", "24"]
        flags = ["--lengths", "200", "--chunks", "1"]
        at_once = self.evaluate("kld", *flags, methods=methods)["samples"][0]["results"]
        by_token = self.evaluate("perplexity", "--protocol", "halves", *flags, methods=methods)["samples"][0]["results"]
        for one, other in zip(at_once, by_token, strict=True):
            self.assertAlmostEqual(one["scores"]["nll"], other["scores"]["nll"], places=3, msg=one["method"])

    def test_bytes_are_those_after_the_first_half(self):
        """snapkv keeps all entries after the prompt; at the end of a window more than half would
        be kept."""
        self.write("a.txt", TEXT * 60)
        for task in (["kld"], ["perplexity", "--protocol", "halves"]):
            with self.subTest(task=task):
                found = self.evaluate(*task, "--lengths", "200", "--chunks", "2", methods=["--kv-method", "snapkv,streaming", "--equal-bytes", "0.5"])
                for sample in found["samples"]:
                    for one in sample["results"][1:]:
                        share = one["cache_bytes_with_lists"] / one["cache_bytes_full_f16"]
                        self.assertTrue(0.4 < share <= 0.5, one)
                        self.assertTrue(30 < one["kept"] <= 50, one)

    def test_halves_are_what_the_command_perplexity_measures(self):
        text = TEXT * 60
        self.write("a.txt", text)
        found = self.evaluate("perplexity", "--protocol", "halves", "--lengths", "128")
        for row, flags in zip(found["rows"], ([], ["--kv-method", "streaming", "--kv-ratio", "0.5"])):
            known = self.assert_done(winnow("perplexity", "-m", self.model, "-p", text, "-c", "128", "--json", *flags)).json
            self.assertAlmostEqual(row["perplexity"], known["perplexity"], places=5)

    def test_sliding_windows_score_every_token_once(self):
        text = TEXT * 30
        self.write("a.txt", text)
        n_tokens = len(winnow("tokenize", "-m", self.model, "-p", text, "--json").json["tokens"])
        found = self.evaluate("perplexity", "--lengths", "64,128", "--stride", "32", methods=["--kv-method", "streaming",
                                                                                               "--kv-size", "24"])
        for length in (64, 128):
            samples = [s for s in found["samples"] if s["length"] == length]
            scored = [s["results"][0]["details"]["tokens_scored"] for s in samples]
            self.assertEqual(scored[:-1], [length - 1] + [32] * (len(samples) - 2))
            self.assertEqual(sum(scored), n_tokens - 1)  # includes the end, in a shorter window
            self.assertLess(scored[-1], 32)  # for these texts
        short = self.evaluate("perplexity", "--lengths", str(n_tokens + 50), "-c", "1024", methods=[])  # one shorter window
        self.assertEqual([s["results"][0]["details"]["tokens_scored"] for s in short["samples"]], [n_tokens - 1])
        for flags in (["--lengths", "64", "--stride", "64"], ["--lengths", "128,32", "--stride", "40"]):
            self.assert_failed(self.run_eval("perplexity", "--data", self.data, *flags), "--stride", "must overlap")
        # A window within the budget, read token by token, equals the full cache's prefill.
        same = self.evaluate("perplexity", "--lengths", "64", methods=["--kv-method", "streaming", "--kv-size", "64"])
        self.assertAlmostEqual(same["rows"][0]["nll"], same["rows"][1]["nll"], places=4)
        self.assertAlmostEqual(math.exp(same["rows"][0]["nll"]), same["rows"][0]["perplexity"], places=6)

    def test_methods_that_never_act_are_named(self):
        self.write("a.txt", TEXT * 12)

        def warnings(*flags):
            outcome = self.assert_done(self.run_eval("perplexity", "--data", self.data, "--lengths", "64", "--chunks", "1", *flags,
                                                     methods=["--kv-method", "snapkv:window=8", "--kv-size", "16,32"]))
            return outcome.err.count("snapkv:window=8 compresses only prompts")
        for flags in ([], ["--protocol", "stream"]):
            self.assertEqual(warnings(*flags), 1)  # once, although there are two budgets
        for flags in (["--protocol", "halves"], ["--prefill-chunk", "16"], ["--kv-decode", "h2o"]):
            self.assertEqual(warnings(*flags), 0)

    def test_stream_has_a_curve(self):
        self.write("a.txt", TEXT * 12)
        self.write("b.jsonl", lines({"text": TEXT * 12}))
        found = self.evaluate("perplexity", "--protocol", "stream", "--every", "100",
                              methods=["--kv-method", "streaming", "--kv-size", "32"])
        for result in found["samples"][0]["results"]:
            points = result["details"]["points"]
            self.assertGreaterEqual(len(points), 3)
            self.assertAlmostEqual(points[-1]["nll"], result["scores"]["nll"], places=9)
        self.assertLess(found["rows"][1]["cache_share"], 0.2)
        whole = self.assert_done(winnow("perplexity", "--stream", "-m", self.model, "-p", TEXT * 24, "--json",
                                        "--kv-method", "streaming", "--kv-size", "32")).json
        streaming = found["samples"][0]["results"][1]
        self.assertEqual(streaming["details"]["tokens"], whole["tokens"])
        self.assertAlmostEqual(streaming["scores"]["nll"], whole["nll"], places=9)
        long = self.evaluate("perplexity", "--protocol", "stream", "--lengths", "100",
                             methods=["--kv-method", "streaming", "--kv-size", "32"])
        self.assertEqual(long["samples"][0]["results"][0]["details"]["tokens"], 100)

    def test_samples_are_texts_chosen_by_the_seed(self):
        for i in range(6):
            self.write(f"{i}.txt", TEXT * 12)
        names = []
        for seed in ("1", "1", "2"):
            found = self.evaluate("kld", "--lengths", "64", "--chunks", "1", "--samples", "3", "--seed", seed, methods=[])
            names.append([sample["text"] for sample in found["samples"]])
        self.assertEqual(len(names[0]), 3)
        self.assertEqual(names[0], names[1])
        self.assertNotEqual(names[0], names[2])


class ResultsBesideTexts(EvalTest):
    def test_results_are_not_data(self):
        self.write("a.txt", TEXT * 20)
        flags = ["--lengths", "64", "--chunks", "1", "--results", self.data / "results.jsonl"]
        first = self.evaluate("kld", *flags)
        again = self.evaluate("kld", *flags)
        self.assertEqual(again["samples"], first["samples"])


class Retrieval(EvalTest):
    def test_needle(self):
        self.write("a.txt", TEXT * 40)
        found = self.evaluate("needle", "--lengths", "200,300,9999", "--depths", "0,50,100")
        self.assertEqual(found["rows"][0]["samples"], 6)
        for sample in found["samples"]:
            for result in sample["results"]:
                if sample["length"] == 9999:
                    self.assertIn("context", result["problem"])
                else:
                    prompt = result["details"]["prompt_tokens"]
                    self.assertLessEqual(prompt + 50, sample["length"])
                    self.assertGreater(prompt + 50, sample["length"] - 40)
        own = ["--needle", "The house is TALL.", "--question", "How is the house?"]
        answer = self.answers(self.evaluate("needle", "--lengths", "200", "--depths", "50", *own, "--answer", "x"))["200/50%/0"]
        for text, score in ((answer.strip(), 100), (shuffled(answer), 0)):
            again = self.evaluate("needle", "--lengths", "200", "--depths", "50", *own, "--answer", text)
            self.assertEqual(again["rows"][0]["exact"], score)

    def test_needle_in_a_text_shorter_than_the_answer(self):
        self.write("a.txt", TEXT * 60)
        outcome = winnow("eval", "needle", "-m", self.model, "-t", "1", "--data", self.data, "--lengths", "0,20",
                         "--depths", "50", timeout=60)
        self.assert_failed(outcome, "--lengths: a text of 0 tokens has no room for an answer of 50", "no sample")

    def test_needle_codes(self):
        self.write("a.txt", TEXT * 60)
        flags = ["--needle", "code", "--needles", "3", "--lengths", "300", "--depths", "50", "--samples", "2"]
        found = self.evaluate("needle", *flags)
        self.check_rows(found, 2)
        codes = [sample["results"][0]["details"]["references"][0] for sample in found["samples"]]
        self.assertTrue(all(len(code) == 5 and code.isdigit() for code in codes))
        self.assertNotEqual(codes[0], codes[1])
        again = self.evaluate("needle", *flags)
        self.assertEqual(without_times(again), without_times(found))
        other = self.evaluate("needle", *flags, "--seed", "1")
        self.assertNotEqual([sample["results"][0]["details"]["references"][0] for sample in other["samples"]], codes)

    def test_needle_with_the_question_hidden(self):
        self.write("a.txt", TEXT * 60)
        flags = ["--needle", "code", "--lengths", "300", "--depths", "50"]
        methods = ["--kv-method", "snapkv:window=4", "--kv-ratio", "0.25"]
        seen, hidden = (self.evaluate("needle", *flags, *more, methods=methods)["samples"][0]["results"]
                        for more in ([], ["--hide-question"]))
        for of_seen, of_hidden in zip(seen, hidden, strict=True):
            n_prompt, n_document = of_hidden["details"]["prompt_tokens"], of_hidden["details"]["document_tokens"]
            self.assertEqual(of_seen["details"]["prompt_tokens"], n_prompt)
            self.assertGreater(n_document, n_prompt / 2)
            self.assertLess(n_document, n_prompt)
        # With --hide-question the budget is a share of the document alone.
        self.assertAlmostEqual(hidden[1]["kept"], n_document // 4, delta=1)
        self.assertAlmostEqual(seen[1]["kept"], n_prompt // 4, delta=1)

    def test_ruler(self):
        def write(answer):
            self.write("256/niah_single_1.jsonl", lines({"index": 0, "input": TEXT * 8, "outputs": [answer], "length": 256,
                                                         "depth": 0.5}))
        self.check_perfect("ruler", write, "score", "-n", "12")
        self.write("256/vt.jsonl", lines({"index": 0, "input": TEXT * 9, "outputs": ["a", "b"], "length": 1}))
        self.write("9999/vt.jsonl", lines({"index": 0, "input": TEXT * 400, "outputs": ["a"], "length": 1}))
        found = self.evaluate("ruler")
        self.assertEqual([group["group"] for group in found["groups"]], ["256/niah_single_1", "256/vt", "9999/vt"])
        self.assertIn("problem", found["samples"][2]["results"][0])  # longer than the context: not truncated
        self.assertEqual(len(self.evaluate("ruler", "--lengths", "256", "--tasks", "vt")["samples"]), 1)

    def test_ruler_with_questions_hidden(self):
        methods = ["--kv-method", "snapkv:window=4", "--kv-ratio", "0.25"]

        def row(text, thing, n_words):
            return {"index": 0, "input": text, "question": f"\n\nWhere was the red {thing}?" + " And when?" * n_words, "outputs": [thing], "length": 1}
        self.write("vt.jsonl", lines(*(row(TEXT * 8, thing, n) for n, thing in enumerate(("door", "house", "ship"))), row(TEXT * 6, "door", 0)))
        together = self.evaluate("ruler", "--hide-question", methods=methods)["samples"]
        self.assertEqual([sample["results"][0]["details"]["questions"] for sample in together], [3, 1])
        apart = []  # each as the only one about its document
        for n, thing in enumerate(("door", "house", "ship")):
            self.write("vt.jsonl", lines(row(TEXT * 8, thing, n)))
            apart.append(self.evaluate("ruler", "--hide-question", methods=methods)["samples"][0]["results"])
        for way in (0, 1):
            of_all = together[0]["results"][way]
            n_prompt, n_document = (of_all["details"][name] for name in ("prompt_tokens", "document_tokens"))
            self.assertTrue(n_prompt / 2 < n_document < n_prompt)
            self.assertAlmostEqual(of_all["kept"], n_document // (4 if way else 1), delta=1)
            self.assertEqual(of_all["details"]["answer"], " | ".join(results[way]["details"]["answer"] for results in apart))
            self.assertAlmostEqual(of_all["scores"]["score"], sum(results[way]["scores"]["score"] for results in apart) / 3)
            self.assertEqual(of_all["details"]["references"], ["door", "house", "ship"])
        seen = self.evaluate("ruler", methods=methods)["samples"][0]["results"][1]
        self.assertAlmostEqual(seen["kept"], seen["details"]["prompt_tokens"] // 4, delta=1)
        self.write("vt.jsonl", lines({"index": 0, "input": TEXT * 8, "outputs": ["a"], "length": 1}))
        self.assert_failed(self.run_eval("ruler", "--data", self.data, "--hide-question"), "vt.jsonl:1", "'question'")

    def test_kv_retrieval(self):
        pairs = [[f"key{i}", f"value{i}"] for i in range(8)]

        def write(answer):
            self.write("kv-retrieval-8_keys.jsonl",
                       lines({"ordered_kv_records": pairs[:3] + [["k", answer]] + pairs[4:], "key": "k", "value": "?"}))
        write("x")
        found = self.evaluate("kv-retrieval", "--depths", "0,50,100", "-n", "8")
        self.check_rows(found, 3)
        self.assertEqual([sample["depth"] for sample in found["samples"]], [0, 50, 100])
        answer = self.answers(self.evaluate("kv-retrieval", "-n", "8"))["kv-retrieval-8_keys.jsonl/0"].strip()
        record = {"ordered_kv_records": pairs[:3] + [["k", "x"]] + pairs[4:], "key": "k"}
        for value, score in ((answer, 100), (shuffled(answer), 0)):
            self.write("kv-retrieval-8_keys.jsonl", lines({**record, "value": value}))
            self.assertEqual(self.evaluate("kv-retrieval", "-n", "8")["rows"][0]["found"], score)
        self.assert_failed(self.run_eval("kv-retrieval", "--data", self.data, "--lengths", "75"), "kv-retrieval-N_keys")

    def test_longeval(self):
        def write(answer):
            self.write("5_topics.jsonl", lines({"prompt": TEXT * 5, "topics": [answer, "other"]}))
        self.check_perfect("longeval", write, "right", "-n", "8")
        self.write("200_lines.jsonl", lines({"prompt": TEXT * 3, "expected_number": 17, "correct_line": ""}))
        found = self.evaluate("longeval", "-n", "4")
        self.assertEqual({group["group"] for group in found["groups"]}, {"200 lines", "5 topics"})


class RealData(EvalTest):
    """The recall probe, a small model that finds codes, and the data sets of ../shared/data."""

    PROBE = SHARED / "models/recall-probe/recall-probe-f16.gguf"
    # Data set -> task and flags. One sample each, to check that they can be read and run.
    SETS = {"longbench": ["longbench", "--tasks", "qasper,trec,samsum,passage_count,lcc", "-n", "8"],
            "ruler_generated": ["ruler", "--lengths", "1024", "--tasks", "niah_single_1,vt", "-n", "8"],
            "kv_retrieval": ["kv-retrieval", "--lengths", "75", "-n", "8", "-c", "8192"],
            "longeval_lines": ["longeval", "--lengths", "200", "-n", "8", "-c", "8192"],
            "longeval_topics": ["longeval", "--lengths", "5", "-n", "8", "-c", "8192"],
            "leval": ["leval", "--tasks", "tpo,gsm100", "-n", "8"],
            "gsm8k": ["gsm8k", "--shots", "2", "-n", "8"],
            "truthfulqa": ["truthfulqa", "-n", "8"],
            "mmlu_sample": ["multiple-choice", "--tasks", "anatomy"],
            "mt_bench": ["mt-bench", "-n", "8"],
            "books": ["perplexity", "--protocol", "halves", "--chunks", "1", "--lengths", "256"]}

    def setUp(self):
        super().setUp()
        if SANITIZED:
            self.skipTest("skipped: minutes under sanitizers")
        if not self.PROBE.exists():
            self.skipTest(f"skipped: {self.PROBE} is absent")

    def test_the_probe_finds_codes_with_the_cache_it_needs(self):
        found = self.evaluate("needle", "--data", self.PROBE.parent / "heldout.txt", "--needle", "code", "--lengths", "512",
                              "--depths", "10,40,70", "--samples", "2", data=False, model=self.PROBE,
                              methods=["--kv-method", "keydiff,streaming", "--kv-ratio", "0.25"])
        full, keydiff, streaming = (row["exact"] for row in found["rows"])
        self.assertEqual(full, 100)
        self.assertGreater(keydiff, streaming)

    def test_every_data_set_can_be_read(self):
        for folder, (task, *flags) in self.SETS.items():
            with self.subTest(folder=folder):
                if not (SHARED / folder).exists():
                    self.skipTest(f"skipped: {SHARED / folder} is absent")
                found = self.evaluate(task, "--data", SHARED / folder, "--samples", "1", *flags, data=False, model=self.PROBE,
                                      methods=["--kv-method", "streaming", "--kv-ratio", "0.25"])
                # Some sample of every set was scored under both variants.
                self.assertTrue(any(all("scores" in result for result in sample["results"]) for sample in found["samples"]))
                for sample in found["samples"]:
                    for result in sample["results"]:
                        # A sample that does not fit has an error.
                        self.assertTrue("scores" in result or "context" in result["problem"], result)
