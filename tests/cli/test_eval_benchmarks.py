"""winnow eval: tasks on published data sets, and interrupted runs."""

import json
import os
import re
import signal
import subprocess
import time

from eval_case import EvalTest, lines, METHODS, shuffled, TEXT
from harness import WINNOW, winnow

LONGBENCH = """narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique gov_report qmsum multi_news trec triviaqa samsum
passage_count passage_retrieval_en lcc repobench-p""".split()


class Benchmarks(EvalTest):
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
        # Without the number tasks: this model's answers contain no number.
        scored = [name for name in LONGBENCH if not name.startswith("passage")]
        line = {name: answers[name].lstrip("\n").split("\n")[0] for name in scored}
        self.longbench(**{name: line[name] if name in ("lcc", "repobench-p") else line[name].strip() for name in scored})
        perfect = {g["group"]: g["full"] for g in self.evaluate("longbench", "-n", "8")["groups"]}
        self.longbench(**{name: shuffled(line[name]) for name in scored})
        wrong = {g["group"]: g["full"] for g in self.evaluate("longbench", "-n", "8")["groups"]}
        for name in scored:
            self.assertEqual(perfect[name], 100, name)
            self.assertLess(wrong[name], 95, name)
        # A row's score is the mean over its parts.
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
        self.assertEqual(one["mc1"] + two["mc1"], 1)  # the other answer is right in the second sample
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
        self.assertGreater(scores["bleu_max"], 0.8)  # the right answer in the data ends in a full stop
        self.assertEqual(scores["bleu_acc"], 1)
        self.assertEqual(perfect["rows"][0]["relative"], 100)  # relative to the first score of this part
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
                    self.assertEqual(sum(scores), 1)  # one of the two keys is likelier
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
        # One cache serves both turns; the second does not change the first.
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
        # Smaller caches allow more sequences: as many as in bench, which has a shorter table of
        # positions.
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
        # A truncated line loses its sample and nothing else.
        results.write_text(whole[:-40])
        repaired = self.evaluate("needle", *self.FLAGS, "--results", results)
        self.assertEqual([row["exact"] for row in repaired["rows"]], [row["exact"] for row in first["rows"]])
        self.assertEqual(len(results.read_text().splitlines()), 111)
        # Another method is added to the file; another text gives other results.
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
        again = self.evaluate("kld", *flags, "--cache-types", "q4_0", "--full-type", "f16", methods=["--kv-method", "streaming", "--kv-size", "20"])
        rows = [(row["method"], row["cache_types"]) for row in again["rows"]]
        self.assertEqual(rows, [("full", "f16"), ("full", "q4_0"), ("streaming", "q4_0")])
        self.assertEqual(again["rows"][1]["kld"], quantised["kld"])
        rows = self.evaluate("kld", *flags, "--cache-types", "q4_0,f16", "--full-type", "f16", methods=["--kv-method", "streaming", "--kv-size", "20"])["rows"]
        self.assertEqual([(row["method"], row["cache_types"]) for row in rows],
                         [("full", "f16"), ("full", "q4_0"), ("streaming", "q4_0"), ("streaming", "f16")])

    def start(self, results, *flags):
        return subprocess.Popen([WINNOW, "eval", "needle", "-m", self.model, "-t", "1", "--data", self.data, *METHODS, *flags,
                                 "--results", results], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_lines(self, results, n):
        deadline = time.monotonic() + 120  # far less on an idle machine
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
        self.assertIn("| full", out)  # shows the results so far
        n_first = len(results.read_text().splitlines())

        run = self.start(results, *flags)
        self.wait_for_lines(results, n_first + 3)
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        kept = results.read_text().splitlines()
        self.assertGreaterEqual(len(kept), n_first + 3)
        keys = [(line["sample"], line["method"], line["budget"]) for line in map(json.loads, kept)]
        self.assertEqual(len(keys), len(set(keys)))  # no duplicates

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
        # Such points are not results, and do not prevent results in the same file.
        again = self.assert_done(self.run_eval("perplexity", "--data", self.data, "--lengths", "64", "--chunks", "1", "--results",
                                               self.results, methods=[]))
        self.assertNotIn("results were in", again.err)
        self.assertLessEqual(again.err.count("are not results"), 1)  # the incomplete line
