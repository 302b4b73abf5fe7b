"""The compressed cache on the command line: flags, methods, trace, bench, chat on a document,
compare."""

import json
import re
import unittest

from harness import CliTest, winnow

PROMPT = "the old man saw a light in the water and the dog ran to the house " * 8
SIZE = 40


def methods():
    return winnow("methods", "--json").json


class Kv(CliTest):
    def run_model(self, *flags, prompt=PROMPT):
        return winnow("run", "-m", self.model, "-p", prompt, "--temp", "0", "--json", "--ignore-eos", *flags)

    def generate(self, *flags, **options):
        return self.assert_done(self.run_model(*flags, **options)).json

    def test_every_method_holds_its_budget(self):
        for method in methods():
            name = method["name"]
            with self.subTest(method=name):
                size = max(SIZE, method["min_budget"])
                budget = ["--kv-size", size] if method["needs_budget"] else []
                found = self.generate("-n", "6", "--kv-method", name, *budget)
                kv = found["kv"]
                seen = found["prompt_tokens"] + 5  # the last token is not in the cache
                self.assertEqual(list(kv)[:3], ["method", "seen", "kept"])
                self.assertEqual((kv["method"], kv["seen"]), (name, seen))
                self.assertEqual(len(kv["kept"]), 3)
                grows = 0 if method["evicts_in_decode"] else 5
                if method["needs_budget"]:
                    self.assertEqual(kv["budget"], size)
                    self.assertLessEqual(found["cache_bytes"], found["cache_bytes_full_f16"])
                if method["needs_budget"]:
                    # Rows per KV head: merged entries share theirs. d2o's dense layers have twice the budget.
                    stored = found["cache_parts"]["key_bytes"] + found["cache_parts"]["value_bytes"]
                    most = size if method["holds_budget"] else 2 * size
                    self.assertLessEqual(stored * seen / found["cache_bytes_full_f16"], most + grows)

    def test_a_prompt_within_the_budget_is_untouched(self):
        prompt = "the old man saw a light"
        full = self.generate("-n", "5", prompt=prompt)
        self.assertEqual(full["kv"]["method"], "full")
        self.assertEqual(full["kv"]["kept"], [full["kv"]["seen"]] * 3)
        for method in methods():
            if not method["needs_budget"]:
                continue
            with self.subTest(method=method["name"]):
                found = self.generate("-n", "5", "--kv-method", method["name"], "--kv-size", "200", prompt=prompt)
                self.assertEqual(found["tokens"], full["tokens"])

    def test_a_prompt_that_does_not_fit_is_not_shown(self):
        outcome = winnow("run", "-m", self.model, "-p", PROMPT * 2, "-c", "128", "--kv-method", "treekv", "--kv-size", "64")
        self.assert_failed(outcome, "128 tokens at once, texts of any length", "with --prefill-chunk they are taken in parts")
        self.assertEqual(outcome.out.strip(), b"")

    def test_ratio_and_memory(self):
        full = self.generate("-n", "1")
        n_prompt = full["prompt_tokens"]
        found = self.generate("-n", "1", "--kv-method", "snapkv:window=8", "--kv-ratio", "0.25")
        self.assertEqual(found["kv"]["budget"], n_prompt // 4)
        self.assertEqual(found["kv"]["kept"], [n_prompt // 4] * 3)
        limit = full["cache_bytes_full_f16"] * 2 // 3
        found = self.generate("-n", "1", "--kv-method", "streaming", "--kv-memory", limit)
        self.assertLessEqual(found["cache_bytes"], limit)
        self.assertGreater(found["kv"]["budget"], 8)
        self.assertLess(found["kv"]["budget"], n_prompt)
        self.assert_failed(self.run_model("--kv-method", "streaming", "--kv-memory", "4k"), "bytes", "4096")
        self.assert_failed(self.run_model("--kv-memory", "4k"), "4096")  # holds for the full cache too
        # A budget below what a method must protect is rejected, not raised.
        self.assert_failed(self.run_model("--kv-method", "random", "--kv-ratio", "0.01"), f"0.01 of {n_prompt} tokens is",
                           "random needs at least 21")
        self.assertEqual(self.generate("-n", "1", "--kv-memory", "1G")["tokens"], full["tokens"])

    def test_another_method_while_generating(self):
        grown = self.generate("-n", "21", "--kv-method", "snapkv:window=8", "--kv-size", SIZE)
        self.assertEqual(grown["kv"]["kept"], [SIZE + 20] * 3)
        held = self.generate("-n", "21", "--kv-method", "snapkv:window=8", "--kv-size", SIZE, "--kv-decode", "h2o")
        self.assertEqual(held["kv"]["method"], "snapkv:window=8, then h2o")
        self.assertEqual(held["kv"]["kept"], [SIZE] * 3)

    def test_a_size_that_was_found_is_held_while_generating(self):
        # 2 of 3 layers keep everything, the last one keeps what it needs.
        for limit in [], ["--kv-size", 60]:
            with self.subTest(limit=limit):
                flags = ["--kv-method", "refreekv:threshold=0.3", "--kv-decode", "h2o", *limit]
                after_prompt = self.generate("-n", "1", *flags)
                self.assertLess(after_prompt["kv"]["kept"][2], after_prompt["kv"]["seen"])
                self.assertEqual(self.generate("-n", "20", *flags)["kv"]["kept"], after_prompt["kv"]["kept"])

    def test_chunks_of_the_prompt(self):
        found = self.generate("-n", "1", "--kv-method", "h2o", "--kv-size", SIZE, "--prefill-chunk", "16")
        self.assertEqual(found["kv"]["kept"], [SIZE] * 3)
        # With the full cache chunks only change the order of the work.
        self.assertEqual(self.generate("-n", "8", "--prefill-chunk", "16")["tokens"], self.generate("-n", "8")["tokens"])

    def test_trace_accounts_for_every_eviction(self):
        path = self.folder / "trace.jsonl"
        found = self.generate("-n", "9", "--kv-method", "d2o", "--kv-size", SIZE, "--trace", path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertTrue(lines)
        seen = found["kv"]["seen"]
        left = {}
        merged = 0
        for line in lines:
            self.assertIn(line["phase"], ("prefill", "decode"))
            self.assertLessEqual(line["step"], seen)
            for head, plan in enumerate(line["heads"]):
                entries = left.setdefault((line["layer"], head), set(range(seen)))
                self.assertTrue(entries.issuperset(plan["evicted"]))
                entries.difference_update(plan["evicted"])
                present = {p for p in entries if p < line["step"]}
                self.assertEqual(plan["kept"], len(present))
                for merge in plan.get("merged", []):
                    merged += 1
                    self.assertIn(merge["into"], present)
                    self.assertEqual(len(merge["from"]), len(merge["key_weights"]))
                    self.assertEqual(len(merge["from"]), len(merge["value_weights"]))
        self.assertGreater(merged, 0)
        kept = [[len(left[layer, head]) for head in range(len(left) // 3)] for layer in range(3)]
        self.assertEqual([sum(k) / len(k) for k in kept], found["kv"]["kept"])
        self.assert_failed(self.run_model("--kv-method", "h2o", "--kv-size", SIZE, "--trace", "/nowhere/x"), "/nowhere/x")

    def test_a_budget_is_searched_for_a_quality(self):
        prompt = " ".join(PROMPT for _ in range(2))
        flags = ["run", "-m", self.model, "-p", prompt, "-n", "2", "--temp", "0"]
        full = json.loads(self.assert_done(winnow(*flags, "--json")).out)
        self.assertGreater(full["prompt_tokens"], 300)
        kept = {}
        for method in "winnow", "snapkv":
            for target in "1e-9", "50":
                outcome = self.assert_done(winnow(*flags, "--json", "--kv-method", method, "--kv-quality", target))
                found = json.loads(outcome.out)
                quality = found["kv"]["quality"]
                kept[target] = found["cache_bytes"]
                if quality["tokens"]:
                    self.assertLessEqual(quality["kl"] + 1.64 * quality["standard_error"], float(target))
                    self.assertLess(quality["share"], 1)
                else:
                    self.assertEqual((quality["share"], found["tokens"]), (1, full["tokens"]))
            self.assertLess(kept["50"], kept["1e-9"] / 10)
            outcome = self.assert_done(winnow(*flags, "--kv-method", method, "--kv-quality", "50"))
            self.assertIn(f"method {method}, KL divergence up to 50 nats", outcome.err)
            self.assertRegex(outcome.err, r"KL divergence about [0-9.]+ \+- [0-9.]+ nats per token \([0-9]+ compared, 99 % below [0-9.]+\)")

    def test_a_size_that_was_found_may_be_more_than_the_budget(self):
        limited = ["-n", "3", "--kv-method", "refreekv:threshold=0.0001", "--kv-size", "20"]
        self.assertTrue(self.generate(*limited)["kv"]["limited_by_budget"])
        shown = winnow("run", "-m", self.model, "-p", PROMPT, *limited)
        self.assertIn("limited by the budget of 20", self.assert_done(shown).err)
        for free in (limited[:-2], ["-n", "3", "--kv-method", "refreekv:threshold=0.9,whole_layers=0", "--kv-size", "140"],
                     ["-n", "3", "--kv-method", "snapkv", "--kv-size", "20"]):
            self.assertNotIn("limited_by_budget", self.generate(*free)["kv"])

    def test_statistics_for_people(self):
        outcome = self.assert_done(winnow("run", "-m", self.model, "-p", PROMPT, "-n", "2", "--kv-method",
                                          "streaming", "--kv-size", SIZE))
        self.assertRegex(outcome.err, rf"cache .* tokens, {SIZE} of them kept \(streaming\); with lists: .*; full f16: ")
        self.assertIn(f"method streaming, {SIZE} entries per KV head", outcome.err)

    def test_misuse_says_the_bounds(self):
        def misused(flags, *parts):
            self.assert_misused(self.run_model(*flags.split()), *parts)
        misused("--kv-method snapvk --kv-size 9", "no method 'snapvk'", "did you mean snapkv?", "streaming")
        misused("--kv-method snapkv:widow=3 --kv-size 9", "no parameter 'widow'", "window")
        misused("--kv-method snapkv:window=0 --kv-size 9", "window", "found '0'", "1 to")
        misused("--kv-method snapkv", "--kv-size", "--kv-ratio", "--kv-memory")
        misused("--kv-method snapkv --kv-size 9 --kv-ratio 0.5", "only one of")
        misused("--kv-method snapkv --kv-size 9 --kv-quality 0.5", "only one of", "--kv-quality")
        misused("--kv-method snapkv --kv-quality 0", "found '0'", "more than 0")
        misused("--kv-method twilight --kv-quality 0.1", "--kv-quality", "chooses its own size")
        misused("--kv-quality 0.1", "name a method")
        misused("--kv-method h2o:sinks=4,recent=8 --kv-size 12", "found 12", "13 or more")
        misused("--kv-size 9", "name a method")
        misused("--kv-method snapkv --kv-ratio 1.5", "at most 1")
        misused("--kv-method snapkv --kv-size 0", "1 or more")
        misused("--kv-method snapkv --kv-memory lots", "256M")
        misused("--kv-method snapkv --kv-memory -5k", "256M")
        misused("--kv-method snapkv --kv-size 9 --kv-decode full", "does not evict")
        misused("--kv-method snapkv --kv-size 9 --kv-decode streaming", "positions", "original", "reassigned")
        misused("--prefill-chunk 0", "1 or more")

    def test_strict_about_the_trained_context(self):
        trained = winnow("inspect", self.model, "--json").json["hyperparameters"]["trained_context"]
        prompt = "the old man " * trained
        flags = ["-n", "1", "-c", str(8 * trained)]
        outcome = self.run_model(*flags, prompt=prompt)
        self.assert_done(outcome)
        self.assertIn("trained", outcome.err)
        self.assert_failed(self.run_model(*flags, "--strict", prompt=prompt), "--strict", str(trained))
        self.assert_done(self.run_model(*flags, "--strict", "--kv-method", "streaming", "--kv-size", "64",
                                        prompt=prompt))
        text = self.file("long.txt", prompt)
        n = 2 * trained
        for command in (["chat", "-f", text, "-p", "who?", "-st", "--chat-template", "chatml"], ["chat", "-p", prompt, "-st",
                        "--chat-template", "chatml"], ["bench", "-p", n, "-n", "0", "-r", "1"],
                        ["probe", "density", "-f", text, "-n", n, "--samples", "1"]):
            with self.subTest(command=command[0]):
                more = [] if command[0] == "bench" else ["-c", str(8 * trained), "-q"]
                self.assert_failed(winnow(*command, *more, "-m", self.model, "--strict"), "--strict", str(trained))


class Methods(CliTest):
    def test_list_and_one(self):
        listed = self.assert_done(winnow("methods")).text
        found = methods()
        names = [m["name"] for m in found]
        for name in ("full", "local", "streaming", "lm-infinite", "h2o", "tova", "scissorhands", "roco", "cam", "snapkv",
                     "pyramidkv", "pyramidinfer", "cake", "adakv", "twilight", "treekv", "refreekv", "d2o", "hbw", "ems",
                     "custom"):
            self.assertIn(name, names)
            self.assertRegex(listed, rf"(?m)^\| {name} ")
        self.assertRegex(listed, r"\| snapkv +\| .* \| \d+ or more +\| SnapKV, arXiv:2404.14469")
        one = self.assert_done(winnow("methods", "snapkv")).text
        for part in ("arXiv:2404.14469", "window=32", "the last 32 rows", "grows while generating", "original", "needed"):
            self.assertIn(part, one)
        self.assertEqual(winnow("methods", "snapkv", "--json").json, found[names.index("snapkv")])
        self.assert_misused(winnow("methods", "snapvk"), "did you mean snapkv?")

    def test_defaults_can_be_written_out(self):
        for method in methods():
            spec = ",".join(f"{p['name']}={p['default']}" for p in method["parameters"])
            budget = ["--kv-size", max(SIZE, method["min_budget"])] if method["needs_budget"] else []
            self.assert_done(winnow("run", "-m", self.model, "-p", PROMPT, "-n", "1", "-q", "--kv-method",
                                    method["name"] + (":" + spec if spec else ""), *budget))


class Bench(CliTest):
    def test_methods_are_one_more_dimension(self):
        flags = ["-m", self.model, "-p", "0", "-n", "4", "-r", "2", "-d", "100"]
        found = self.assert_done(winnow("bench", *flags, "--kv-method", "full,snapkv:window=8,kernel=3,streaming",
                                        "--kv-size", "32", "-o", "json")).json
        self.assertEqual([row["kv_method"] for row in found], ["full", "snapkv:window=8,kernel=3", "streaming"])
        self.assertEqual([row["kv_kept"] for row in found], [104, 36, 32])  # snapkv grows in decode
        full, snapkv, streaming = (row["kv_bytes"] for row in found)
        self.assertEqual([full * 36, full * 32], [snapkv * 104, streaming * 104])
        table = self.assert_done(winnow("bench", *flags, "--kv-method", "streaming", "--kv-size", "32")).text
        self.assertRegex(table, r"\| kv +\|")
        self.assert_misused(winnow("bench", *flags, "--kv-method", "full,streaming"), "streaming needs a budget")


class ChatOnADocument(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = cls.folder / "document.txt"
        cls.document.write_text("\n  " + PROMPT + "\n\n")

    def ask(self, questions, *flags):
        return self.assert_done(winnow("chat", "-m", self.model, "-f", self.document, "--temp", "0", "-n", "8", "--no-perf",
                                       "--chat-template", "chatml", *flags, stdin="\n".join(questions).encode()))

    def test_every_question_starts_from_the_same_cache(self):
        for flags in ([], ["--kv-method", "h2o", "--kv-size", SIZE], ["--kv-method", "ems", "--kv-size", SIZE]):
            one = self.ask(["who saw the water?"], *flags).text
            other = self.ask(["where is the dog?"], *flags).text
            both = self.ask(["who saw the water?", "where is the dog?", "who saw the water?"], *flags).text
            self.assertEqual(both, one + other + one)

    def test_says_what_was_kept_and_who_needs_the_question(self):
        outcome = self.ask(["who?"], "--kv-method", "snapkv", "--kv-size", SIZE)
        self.assertIn("before it knows a question", outcome.err)
        self.assertRegex(outcome.err, r"document \d+ tokens, cache .* of ")
        outcome = self.ask(["who?"], "--kv-method", "streaming", "--kv-size", SIZE)
        self.assertNotIn("before it knows a question", outcome.err)

    def test_empty_document(self):
        path = self.file("empty.txt", " \n")
        self.assert_failed(winnow("chat", "-m", self.model, "-f", path, "-q", "--chat-template", "chatml"),
                           "document is empty")


class Compare(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.document = cls.folder / "document.txt"
        cls.document.write_text(PROMPT)

    def compare(self, *flags):
        return winnow("compare", "-m", self.model, "-f", self.document, "-q", "who saw?", "-n", "8", *flags)

    def test_side_by_side(self):
        found = self.assert_done(self.compare("--kv-method", "snapkv:window=8,kernel=3,streaming", "--kv-method",
                                              "refreekv", "--kv-size", SIZE, "--json")).json
        answers = found["answers"]
        self.assertEqual([a["method"] for a in answers], ["full", "snapkv:window=8,kernel=3", "streaming", "refreekv"])
        full = answers[0]
        self.assertEqual(full["kept"], found["prompt_tokens"])
        self.assertNotIn("mean_kld", full)
        for answer in answers[1:]:
            self.assertEqual(answer["seen"], found["prompt_tokens"])
            self.assertGreater(answer["mean_kld"], 0)
            self.assertGreaterEqual(answer["max_kld"], answer["mean_kld"])
            self.assertEqual(answer["compared_tokens"], len(full["tokens"]))
            self.assertGreater(answer["first_token_ms"], 0)
        self.assertEqual([a["kept"] for a in answers[1:3]], [SIZE] * 2)

    def test_what_the_bytes_are(self):
        flags = ("--kv-method", "winnow", "--kv-size", "16", "-ctk", "q8_0", "-ctv", "f16", "--json")
        run = winnow("run", "-m", self.model, "-p", PROMPT, "-n", "1", "--temp", "0", *flags)
        for found in (self.assert_done(self.compare(*flags)).json["answers"][1], self.assert_done(run).json):
            parts = found["cache_parts"]
            n = parts["key_bytes"] // 34  # 32 numbers of q8_0
            self.assertTrue(3 * 15 <= n <= 3 * 16, n)
            # One bias per entry.
            self.assertEqual(parts | {"list_bytes": 0}, {"key_bytes": 34 * n, "value_bytes": 64 * n, "method_bytes": 2 * n, "list_bytes": 0})
            self.assertEqual(100 * n, found["cache_bytes"])
            self.assertEqual(100 * n + parts["list_bytes"], found["cache_bytes_with_lists"])

    def test_a_method_that_finds_its_size_heeds_a_limit_in_bytes(self):
        # With this threshold the method keeps nearly everything.
        flags = ("--kv-method", "refreekv:threshold=0", "--json")
        found = self.assert_done(self.compare(*flags)).json
        full, free = found["answers"]
        self.assertEqual(free["cache_bytes"], full["cache_bytes"])
        n_prompt = found["prompt_tokens"]
        limit = full["cache_bytes"] // n_prompt * (256 + n_prompt // 2)  # 256 tokens are reserved for decode
        full, limited = self.assert_done(self.compare(*flags, "--kv-memory", limit)).json["answers"]
        self.assertLess(limited["cache_bytes"], free["cache_bytes"])
        self.assertEqual(full["cache_bytes"], free["cache_bytes"])

    def test_a_large_budget_changes_nothing(self):
        answers = self.assert_done(self.compare("--kv-method", "h2o,treekv", "--kv-size", "1000", "--json")).json["answers"]
        for answer in answers[1:]:
            self.assertEqual(answer["tokens"], answers[0]["tokens"])
            self.assertLess(abs(answer["mean_kld"]), 1e-6)
            self.assertEqual(answer["same_top_rate"], 1)

    def test_commas_of_parameters_and_parts_separate_no_methods(self):
        custom = "custom:score=window(8,kernel=3),select=topk,sinks=2"
        answers = self.assert_done(self.compare("--kv-method", f"{custom},streaming:sinks=2", "--kv-size", SIZE,
                                                "--json")).json["answers"]
        self.assertEqual([a["method"] for a in answers[1:]], [custom, "streaming:sinks=2"])

    def test_table(self):
        text = self.assert_done(self.compare("--kv-method", "streaming", "--kv-size", SIZE)).text
        for part in ("first token ms", "tokens/s", "KLD", "same top"):
            self.assertIn(part, text)
        quiet = self.assert_done(self.compare("--kv-method", "streaming", "--kv-size", SIZE, "--quiet"))
        self.assertEqual(quiet.err, "")
        self.assertTrue(re.search(r"(?m)^full: ", text) and re.search(r"(?m)^streaming: ", text))

    def test_misuse(self):
        self.assert_misused(self.compare("--kv-size", SIZE), "--kv-method")
        self.assert_misused(self.compare("--kv-method", "snapkv"), "snapkv needs a budget")
        self.assert_misused(self.compare("--kv-method", "snapkv,,h2o", "--kv-size", SIZE), "empty method")
        self.assert_misused(self.compare("--kv-method", "snapkv,nonsense", "--kv-size", SIZE), "no method 'nonsense'")


if __name__ == "__main__":
    unittest.main()
