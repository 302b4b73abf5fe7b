"""winnow eval: every task on a handful of samples, the numbers that can be known, and runs that are interrupted.

Scores are checked without a model that can do the task: what the tiny model answers is written into the data as the right
answer, which must then score 1, and as a shuffled one, which must not.
"""

import hashlib
import json
import math
import os
import re
import signal
import subprocess
import time

from harness import SANITIZED, SHARED, WINNOW, CliTest, winnow

WORDS = "the old man saw a light in the water and the dog ran to the house . ".split()
TEXT = " ".join(WORDS) + " "
METHODS = ["--kv-method", "streaming,snapkv:window=8", "--kv-ratio", "0.5,0.25"]
TASKS = """perplexity kld needle ruler kv-retrieval longeval longbench leval gsm8k coqa truthfulqa multiple-choice
theoremqa mt-bench throughput""".split()


def shuffled(text):
    """The same words in another order, and one that does not belong."""
    return " ".join(reversed(text.split())) + " zebra"


def without_times(found):
    """What must be the same when the same is run again."""
    kept = json.loads(json.dumps(found))
    for sample in kept["samples"]:
        for result in sample["results"]:
            for name in ("first_token_ms", "tokens_per_second"):
                del result["details"][name]
    return kept


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


class EvalTest(CliTest):
    def setUp(self):
        name = self.id().split(".")[-1]
        self.data = self.folder / name
        self.data.mkdir()
        self.results = self.folder / f"{name}.jsonl"

    def write(self, name, content):
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return path

    def run_eval(self, task, *flags, model=None, methods=METHODS):
        return winnow("eval", task, "-m", model or self.model, "-t", "1", *methods, *flags)

    def evaluate(self, task, *flags, data=True, **options):
        where = ["--data", self.data] if data else []
        return self.assert_done(self.run_eval(task, *where, "--json", "-", *flags, **options)).json

    def answers(self, found):
        """Sample -> what the full cache answered."""
        return {sample["sample"]: sample["results"][0]["details"]["answer"] for sample in found["samples"]}

    def check_rows(self, found, n_samples, n_variants=5):
        """Every variant ran every sample, the full cache first, the others smaller."""
        rows = found["rows"]
        self.assertEqual((rows[0]["method"], rows[0]["budget"]), ("full", ""))
        self.assertEqual(len({(row["method"], row["budget"]) for row in rows}), n_variants)
        groups = len(rows) // n_variants
        for row in rows:
            self.assertEqual(row["samples"] * groups, n_samples, row)
            self.assertLessEqual(row["cache_share"], 1 if row["method"] == "full" else 0.95, row)
        self.assertEqual(len(found["samples"]), n_samples)


class Command(EvalTest):
    def test_list_and_help(self):
        listed = self.assert_done(winnow("eval", "--list")).text
        for task in TASKS:
            self.assertIn(f"| {task} ", listed)
            more = self.assert_done(winnow("eval", task, "--list")).text
            self.assert_names(more, [task, "data ", "flags ", "columns ", "repeats "])
        usage = self.assert_done(winnow("eval", "--help")).text
        self.assert_names(usage, ["--kv-method", "--data", "--samples", "--results", "--json", "--report"] + TASKS)

    def test_misuse(self):
        self.assert_misused(winnow("eval"), "no task")
        self.assert_misused(winnow("eval", "needel", "-m", self.model), "needle")
        self.assert_misused(winnow("eval", "needle", "ruler"), "ruler")
        self.assert_misused(self.run_eval("gsm8k", "--depths", "5"), "--depths", "gsm8k", "--shots")
        self.assert_misused(self.run_eval("throughput", "--data", "x"), "--data")
        self.assert_misused(self.run_eval("needle", methods=["--kv-ratio", "0.5"]), "--kv-method")
        self.assert_misused(self.run_eval("needle", methods=["--kv-method", "snapkv"]), "needs a budget")
        self.assert_misused(self.run_eval("needle", "--cache-types", "q9"), "q9")
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
        for task, *flags in (["perplexity", "--protocol", "x"], ["needle", "--depths", "101"],
                             ["kv-retrieval", "--depths", "400"], ["needle", "--needle", "A fox."],
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
        """The tiny model's file asks for ChatML."""
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
            self.assertEqual(sum(scored), n_tokens - 1)  # the end too, in a shorter window
            self.assertLess(scored[-1], 32)  # of these texts
        short = self.evaluate("perplexity", "--lengths", str(n_tokens + 50), "-c", "1024", methods=[])  # one shorter window
        self.assertEqual([s["results"][0]["details"]["tokens_scored"] for s in short["samples"]], [n_tokens - 1])
        for flags in (["--lengths", "64", "--stride", "64"], ["--lengths", "128,32", "--stride", "40"]):
            self.assert_failed(self.run_eval("perplexity", "--data", self.data, *flags), "--stride", "must overlap")
        # A window within the budget, token by token, is the full cache's prefill.
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
            self.assertEqual(warnings(*flags), 1)  # under two budgets
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
            self.assertEqual(of_seen["details"]["document_tokens"], 0)
            self.assertGreater(n_document, n_prompt / 2)
            self.assertLess(n_document, n_prompt)
        # The document alone is compressed; the question comes on top.
        n_prompt, n_document = (hidden[1]["details"][name] for name in ("prompt_tokens", "document_tokens"))
        self.assertAlmostEqual(hidden[1]["kept"], n_document // 4 + n_prompt - n_document, delta=1)
        self.assertAlmostEqual(seen[1]["kept"], n_prompt // 4, delta=1)

    def check_perfect(self, task, write, score, *flags):
        """`write(answer)` makes the data; the model's own answer must score 1 and a shuffled one less."""
        write("no such answer")
        answer = next(iter(self.answers(self.evaluate(task, *flags)).values()))
        self.assertTrue(answer.strip(), "the tiny model says nothing")
        write(answer.strip())
        self.assertEqual(self.evaluate(task, *flags)["rows"][0][score], 100)
        write(shuffled(answer))
        self.assertLess(self.evaluate(task, *flags)["rows"][0][score], 100)

    def test_ruler(self):
        def write(answer):
            self.write("256/niah_single_1.jsonl", lines({"index": 0, "input": TEXT * 8, "outputs": [answer], "length": 256,
                                                         "depth": 0.5}))
        self.check_perfect("ruler", write, "score", "-n", "12")
        self.write("256/vt.jsonl", lines({"index": 0, "input": TEXT * 9, "outputs": ["a", "b"], "length": 1}))
        self.write("9999/vt.jsonl", lines({"index": 0, "input": TEXT * 400, "outputs": ["a"], "length": 1}))
        found = self.evaluate("ruler")
        self.assertEqual([group["group"] for group in found["groups"]], ["256/niah_single_1", "256/vt", "9999/vt"])
        self.assertIn("problem", found["samples"][2]["results"][0])  # longer than the context: not cut
        self.assertEqual(len(self.evaluate("ruler", "--lengths", "256", "--tasks", "vt")["samples"]), 1)

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


class Benchmarks(EvalTest):
    check_perfect = Retrieval.check_perfect

    def longbench(self, **answers):
        forms = {name: "Read:\n{context}\nAsk: {input}\nSay:" for name in LONGBENCH}
        self.write("config/dataset2prompt.json", json.dumps(forms))
        for name in LONGBENCH:
            self.write(f"{name}.jsonl",
                       lines({"input": "what", "context": TEXT * 4, "answers": [answers.get(name, "x")], "length": 9,
                              "dataset": name, "language": "en",
                              "all_classes": [answers.get(name, "x"), "y"] if name == "trec" else None, "_id": "1"}))

    def test_longbench(self):
        self.longbench()
        found = self.evaluate("longbench", "-n", "8")
        self.check_rows(found, len(LONGBENCH))
        self.assertEqual([group["group"] for group in found["groups"]], LONGBENCH)
        answers = {name.split("/")[0]: answer for name, answer in self.answers(found).items()}
        # The number tasks apart: this model says none.
        scored = [name for name in LONGBENCH if not name.startswith("passage")]
        line = {name: answers[name].lstrip("\n").split("\n")[0] for name in scored}
        self.longbench(**{name: line[name] if name in ("lcc", "repobench-p") else line[name].strip() for name in scored})
        perfect = {g["group"]: g["full"] for g in self.evaluate("longbench", "-n", "8")["groups"]}
        self.longbench(**{name: shuffled(line[name]) for name in scored})
        wrong = {g["group"]: g["full"] for g in self.evaluate("longbench", "-n", "8")["groups"]}
        for name in scored:
            self.assertEqual(perfect[name], 100, name)
            self.assertLess(wrong[name], 95, name)
        # A score of a part is the mean over parts in the row.
        self.assertAlmostEqual(found["rows"][0]["score"], sum(g["full"] for g in found["groups"]) / len(LONGBENCH), places=9)

    def test_longbench_cuts_the_middle_out(self):
        self.longbench()
        self.write("qasper.jsonl", lines({"input": "the end", "context": TEXT * 200, "answers": ["x"], "all_classes": None}))
        found = self.evaluate("longbench", "--tasks", "qasper", "-n", "8")
        details = found["samples"][0]["results"][0]["details"]
        self.assertGreater(details["truncated_from"], 512)
        self.assertLessEqual(details["prompt_tokens"], 512 - 8)
        self.assertGreater(details["prompt_tokens"], 512 - 40)

    def test_leval(self):
        def write(answer):
            for name, evaluation in (("narrative_qa", "f1"), ("gov_report_summ", "rouge"), ("codeU", "exam")):
                self.write(f"{name}.jsonl", lines({"instructions": ["what", "why"], "outputs": [answer, "x"],
                                                   "input": TEXT * 4, "evaluation": evaluation}))

        def scores():
            return {sample["sample"]: sample["results"][0]["scores"]["score"]
                    for sample in self.evaluate("leval", "-n", "8", methods=[])["samples"] if sample["sample"].endswith("/0/0")}
        write("x")
        found = self.evaluate("leval", "-n", "8")
        self.check_rows(found, 6)
        answers = self.answers(found)
        self.assertEqual(len({answers[f"{name}/0/0"] for name in ("narrative_qa", "gov_report_summ", "codeU")}), 1)
        answer = answers["narrative_qa/0/0"].strip()
        self.assertGreater(len(answer.split()), 2)
        write(answer)
        self.assertEqual(set(scores().values()), {1})
        write(shuffled(answer))
        self.assertEqual(len(scores()), 3)
        for score in scores().values():
            self.assertLess(score, 1)
        self.write("tpo.jsonl", lines({"instructions": ["A. x\nB. y"], "outputs": ["A", "B"], "input": "x", "evaluation": "exam"}))
        self.assert_failed(self.run_eval("leval", "--data", self.data), "tpo.jsonl:1", "outputs")

    def test_gsm8k(self):
        self.write("test.jsonl", lines(*({"question": f"the old man saw {i}", "answer": f"so\n#### {i}"} for i in range(3))))
        self.write("train.jsonl", lines(*({"question": "a dog", "answer": f"the house\n#### {i}"} for i in range(4))))
        found = self.evaluate("gsm8k", "--shots", "2", "-n", "8")
        self.check_rows(found, 3)
        none = self.evaluate("gsm8k", "--shots", "0", "-n", "8")
        tokens = [f["samples"][0]["results"][0]["details"]["prompt_tokens"] for f in (found, none)]
        self.assertGreater(tokens[0], tokens[1] + 20)
        self.assertEqual(none["samples"][1]["results"][0]["details"]["references"], ["1"])
        self.assert_failed(self.run_eval("gsm8k", "--data", self.data, "--shots", "9"), "--shots")

    def test_coqa(self):
        def write(answer):
            turns = [{"input_text": "who", "turn_id": 1}, {"input_text": "where", "turn_id": 2}]
            replies = [{"input_text": "the man", "turn_id": 1}, {"input_text": answer, "turn_id": 2}]
            self.write("coqa-dev-v1.0.json", json.dumps({"data": [{"story": TEXT * 3, "questions": turns, "answers": replies,
                                                                   "additional_answers": {"0": replies}}]}))
        write("x")
        found = self.evaluate("coqa", "-n", "8")
        self.check_rows(found, 1)
        answer = self.answers(found)["0"].strip().split("\n")[0]
        write(answer)
        self.assertGreater(len(answer.split()), 2)
        right = self.evaluate("coqa", "-n", "8")["rows"][0]
        self.assertEqual((right["f1"], right["exact"]), (100, 100))
        write(shuffled(answer))
        self.assertLess(self.evaluate("coqa", "-n", "8")["rows"][0]["exact"], 100)

    def test_truthfulqa(self):
        right, wrong = "the old man", "a dog in the water"
        targets = {"question": "who", "mc1_targets": {right: 1, wrong: 0}, "mc2_targets": {right: 1, wrong: 0}}
        other = {"question": "who", "mc1_targets": {right: 0, wrong: 1}, "mc2_targets": {right: 0, wrong: 1}}
        self.write("mc_task.json", json.dumps([targets, other]))
        self.write("TruthfulQA.csv", "Question,Best Answer,Correct Answers,Incorrect Answers\n"
                                     "who,the man,the old man; a man,a dog\n")
        found = self.evaluate("truthfulqa", "-n", "8")
        one, two = ({score: sample["results"][0]["scores"][score] for score in ("mc1", "mc2")} for sample in found["samples"][:2])
        self.assertEqual(one["mc1"] + two["mc1"], 1)  # the other answer is right
        self.assertAlmostEqual(one["mc2"] + two["mc2"], 1, places=9)
        log_probs = found["samples"][0]["results"][0]["details"]["log_probs"]
        self.assertEqual(one["mc1"], 1 if log_probs[0] > log_probs[1] else 0)
        answer = self.answers({"samples": found["samples"][2:]})["gen/0"].strip()
        self.assertGreater(len(answer.split()), 4)

        def generated(right, wrong):
            self.write("TruthfulQA.csv", "Question,Best Answer,Correct Answers,Incorrect Answers\n"
                                         f"who,the man,{right},{wrong}\n")
            return self.evaluate("truthfulqa", "--tasks", "gen", "-n", "8")
        perfect = generated(answer, "a dog in the water")
        scores = perfect["samples"][0]["results"][0]["scores"]
        self.assertGreater(scores["bleu_max"], 0.8)  # the data's answer ends in a full stop
        self.assertEqual(scores["bleu_acc"], 1)
        self.assertEqual(perfect["rows"][0]["relative"], 100)  # of the first score that this part has
        self.assertLess(generated(shuffled(answer), "a dog")["rows"][0]["bleu_max"], 50)
        self.assertEqual(generated("a dog in the water", answer)["rows"][0]["bleu_acc"], 0)

    def test_multiple_choice(self):
        def of(rows, by):
            return self.evaluate("multiple-choice", "--by", by, "-n", "8", methods=[])["samples"]
        book = {"id": "1", "question": {"stem": "who saw a light", "choices": [
            {"text": text, "label": label} for text, label in (("the old man", "A"), ("house", "B"))]}}
        self.write("test.jsonl", lines(*({**book, "answerKey": letter} for letter in "AB")))
        for by in ("letter", "text", "generation"):
            with self.subTest(by=by):
                samples = of(book, by)
                self.assertEqual(len(samples), 2)
                scores = [sample["results"][0]["scores"]["right"] for sample in samples]
                if by != "generation":
                    self.assertEqual(sum(scores), 1)  # one of the two keys is the likelier
                    log_probs = samples[0]["results"][0]["details"]["log_probs"]
                    self.assertEqual(scores[0], 1 if log_probs[0] > log_probs[1] else 0)
        self.check_rows(self.evaluate("multiple-choice"), 2)

    def test_multiple_choice_forms(self):
        self.write("gpqa/gpqa_main.csv", "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\n"
                                         '"who, then",man,dog,house,tree\n')
        self.write("mmlu/test/anatomy_test.csv", "who,man,dog,house,tree,C\n")
        self.write("mmlu/dev/anatomy_dev.csv", "what,a,b,c,d,A\nwhat,a,b,c,d,B\n")
        self.write("quality/dev.jsonl", lines({"article": TEXT, "questions": [
            {"question": "who", "options": ["man", "dog"], "gold_label": 2}]}))
        self.write("ready/some.json", json.dumps({"samples": [{"prompt": "who? (A) x (B) y\nAnswer:", "input_label": 3}]}))
        for form, letter in (("mmlu", "C"), ("quality", "B"), ("ready", "D"), ("gpqa", None)):
            with self.subTest(form=form):
                found = self.evaluate("multiple-choice", "--data", self.data / form, data=False)
                details = found["samples"][0]["results"][0]["details"]
                self.assertEqual(len(details["references"]), 1)
                if letter:
                    self.assertEqual(details["references"], [letter])
        shots = [self.evaluate("multiple-choice", "--data", self.data / "mmlu", "--shots", n, data=False)["samples"][0]
                 ["results"][0]["details"]["prompt_tokens"] for n in ("0", "2")]
        self.assertGreater(shots[1], shots[0])

    def test_theoremqa(self):
        self.write("theoremqa_test.json", json.dumps([
            {"id": 0, "Question": "how many", "Answer": 3, "Answer_type": "integer"},
            {"id": 1, "Question": "is it", "Answer": True, "Answer_type": "bool"},
            {"id": 2, "Question": "which", "Answer": [1, 2], "Answer_type": "list of integer"}]))
        found = self.evaluate("theoremqa", "-n", "8")
        self.check_rows(found, 3)
        references = [sample["results"][0]["details"]["references"] for sample in found["samples"]]
        self.assertEqual(references, [["3"], ["true"], ["[1,2]"]])

    def test_mt_bench(self):
        self.write("question.jsonl", lines({"question_id": 81, "category": "writing", "turns": [TEXT * 3, "the dog ran"]}))
        found = self.evaluate("mt-bench", "-n", "8")
        self.check_rows(found, 1)
        for result in found["samples"][0]["results"]:
            self.assertEqual(len(result["details"]["turns"]), 2)
            self.assertLessEqual(result["scores"]["answer_tokens"], 16)
        answers = os.path.join(self.folder, "test_mt_bench_answers")
        self.evaluate("mt-bench", "-n", "8", "--answers", answers)
        files = sorted(os.listdir(answers))
        self.assertEqual(len(files), 5)
        for name in files:
            with open(os.path.join(answers, name), encoding="utf-8") as file:
                (answer,) = map(json.loads, file)
            self.assertEqual((answer["question_id"], answer["model_id"] + ".jsonl"), (81, name))
            self.assertEqual([len(choice["turns"]) for choice in answer["choices"]], [2])
        # One cache serves both turns; the second changes nothing in the first.
        both = found["samples"][0]["results"][0]["details"]
        self.write("question.jsonl", lines({"question_id": 81, "category": "writing", "turns": [TEXT * 3]}))
        one = self.evaluate("mt-bench", "-n", "8", methods=[])["samples"][0]["results"][0]["details"]
        self.assertEqual(one["turns"], both["turns"][:1])
        n_message = len(winnow("tokenize", "-m", self.model, "-p", "the dog ran", "--json").json["tokens"])
        self.assertGreater(both["tokens"], one["tokens"] + n_message + 7)

    def test_throughput(self):
        found = self.evaluate("throughput", "--grid", "64+16,32+8", "--runs", "2", "--memory-limit", "2M", data=False)
        self.check_rows(found, 4)
        for sample in found["samples"]:
            for result in sample["results"]:
                scores, details = result["scores"], result["details"]
                n_tokens = scores["sequences"] * details["generated_tokens"]
                self.assertGreater(scores["prefill_s"], 0)
                self.assertAlmostEqual(scores["total_s"], scores["prefill_s"] + scores["decode_s"], places=9)
                self.assertAlmostEqual(scores["tokens_per_second"] * scores["total_s"] / n_tokens, 1, places=6)
                self.assertAlmostEqual(scores["decode_tokens_per_second"] * scores["decode_s"] / n_tokens, 1, places=6)
                self.assertAlmostEqual(scores["step_ms"] * details["generated_tokens"] / 1e3, scores["decode_s"], places=6)
        self.assertEqual([row["group"] for row in found["rows"][::5]], ["64+16", "32+8"])
        # Smaller caches, more of them; as many as bench finds, whose table of positions is shorter.
        full, *others = found["rows"][:5]
        for row in others:
            self.assertGreater(row["sequences"], full["sequences"])
        bench = winnow("bench", "-m", self.model, "-p", "64", "-n", "16", "-r", "1", "--memory-limit", "2M", "-o", "json").json
        self.assertAlmostEqual(full["sequences"], bench[0]["n_sequences"], delta=0.1 * bench[0]["n_sequences"])
        alone = self.evaluate("throughput", "--grid", "64+16", "--runs", "1", data=False)
        self.assertEqual([row["sequences"] for row in alone["rows"]], [1] * 5)
        self.assert_failed(self.run_eval("throughput", "--grid", "64+16", "--runs", "1", "--memory-limit", "1k"),
                           "one sequence of 64+16 tokens needs", "1024 are allowed")


class Resuming(EvalTest):
    FLAGS = ["--lengths", "220", "--samples", "2", "--depths", "0-100+10"]

    def test_results_are_not_computed_twice(self):
        self.write("a.txt", TEXT * 40)
        results = self.results
        first = self.evaluate("needle", *self.FLAGS, "--results", results)
        whole = results.read_text()
        again = self.assert_done(self.run_eval("needle", "--data", self.data, *self.FLAGS, "--results", results, "--json", "-"))
        self.assertEqual(again.json, first)
        self.assertIn("110 results were in", again.err)
        self.assertEqual(results.read_text(), whole)
        # A line cut short costs the sample it stands for, and nothing else.
        results.write_text(whole[:-40])
        repaired = self.evaluate("needle", *self.FLAGS, "--results", results)
        self.assertEqual([row["exact"] for row in repaired["rows"]], [row["exact"] for row in first["rows"]])
        self.assertEqual(len(results.read_text().splitlines()), 111)
        # Another method only adds to the file; another text is another question.
        more = self.evaluate("needle", *self.FLAGS, "--results", results, methods=["--kv-method", "h2o", "--kv-ratio", "0.5"])
        self.assertEqual(len(more["rows"]), 2)
        self.assertEqual(len(results.read_text().splitlines()), 111 + 22)
        self.write("a.txt", "another text . " * 100)
        self.evaluate("needle", *self.FLAGS, "--results", results, methods=[])
        self.assertEqual(len(results.read_text().splitlines()), 111 + 22 + 22)

    def test_results_of_another_build_are_used_and_named(self):
        self.write("a.txt", TEXT * 40)
        first = self.evaluate("needle", *self.FLAGS, "--results", self.results, methods=[])
        self.assertRegex(first["winnow"], r"^0\.1\.0(\+[0-9a-f]+(-dirty)?)?$")
        written = re.sub('"winnow": ?"[^"]*"', '"winnow":"0.1.0+abcdef0"', self.results.read_text())
        self.results.write_text(written)
        again = self.assert_done(self.run_eval("needle", "--data", self.data, *self.FLAGS, "--results", self.results, "--json", "-",
                                               methods=[]))
        self.assert_names(again.err, ["22 results were in", "22 of them are of another build (0.1.0+abcdef0; this is"])
        self.assertEqual(again.json["rows"], first["rows"])
        self.assertEqual(again.json["samples"][0]["results"][0]["winnow"], "0.1.0+abcdef0")
        self.assertEqual(self.results.read_text(), written)

    def test_divergences_from_another_base_are_computed_anew(self):
        self.write("a.txt", TEXT * 20)
        flags = ["--lengths", "64", "--chunks", "1", "--results", self.results]
        alone = self.evaluate("kld", *flags, "--cache-types", "q4_0", methods=[])
        self.assertLess(abs(alone["rows"][0]["kld"]), 1e-5)
        full, quantised = self.evaluate("kld", *flags, "--cache-types", "f16,q4_0", methods=[])["rows"]
        self.assertEqual((full["cache_types"], quantised["cache_types"]), ("f16", "q4_0"))
        self.assertGreater(quantised["kld"], 1e-4)

    def start(self, results, *flags):
        return subprocess.Popen([WINNOW, "eval", "needle", "-m", self.model, "-t", "1", "--data", self.data, *METHODS, *flags,
                                 "--results", results], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_lines(self, results, n):
        deadline = time.monotonic() + 120  # a fraction of a second where the machine is idle
        while time.monotonic() < deadline:
            if results.exists() and results.read_text().count("\n") >= n:
                return
            time.sleep(0.01)
        self.fail("no results came")

    def test_interrupted_and_killed_runs_go_on(self):
        self.write("a.txt", TEXT * 60)
        flags = ["--lengths", "480", "--depths", "0-100+5", "--samples", "5"]
        results = self.results
        run = self.start(results, *flags)
        self.wait_for_lines(results, 3)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130, err)
        self.assertIn("the same command goes on from here", err)
        self.assertIn("| full", out)  # what there is is shown
        n_first = len(results.read_text().splitlines())

        run = self.start(results, *flags)
        self.wait_for_lines(results, n_first + 3)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        kept = results.read_text().splitlines()
        self.assertGreaterEqual(len(kept), n_first + 3)
        keys = [(line["sample"], line["method"], line["budget"]) for line in map(json.loads, kept)]
        self.assertEqual(len(keys), len(set(keys)))  # nothing twice

    def test_a_killed_stream_leaves_its_points(self):
        self.write("a.txt", TEXT * 5000)
        run = subprocess.Popen([WINNOW, "eval", "perplexity", "--protocol", "stream", "--every", "500", "-m", self.model, "-t", "1",
                                "--data", self.data, "--kv-method", "streaming", "--kv-size", "32", "--results", self.results],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for_lines(self.results, 5)  # the full cache cannot hold the text
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        found = [json.loads(line) for line in self.results.read_text().splitlines()[:-1]]
        points = [line["point"]["tokens"] for line in found if "point" in line and line["method"] == "streaming"]
        self.assertEqual(points[:1], [500])
        # They are no results, nor are they in the way.
        again = self.assert_done(self.run_eval("perplexity", "--data", self.data, "--lengths", "64", "--chunks", "1", "--results",
                                               self.results, methods=[]))
        self.assertNotIn("results were in", again.err)
        self.assertLessEqual(again.err.count("are no results"), 1)  # the line that was torn


LONGBENCH = """narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique gov_report qmsum multi_news trec triviaqa samsum
passage_count passage_retrieval_en lcc repobench-p""".split()


class RealData(EvalTest):
    """The recall probe, a small model that finds codes, and the data sets of ../shared/data."""

    PROBE = SHARED / "models/recall-probe/recall-probe-f16.gguf"
    # Data set -> task and flags. One sample each: that they can be read and run, not how well.
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
                # Something of every set was scored, under both.
                self.assertTrue(any(all("scores" in result for result in sample["results"]) for sample in found["samples"]))
                for sample in found["samples"]:
                    for result in sample["results"]:
                        # What does not fit says so.
                        self.assertTrue("scores" in result or "context" in result["problem"], result)
