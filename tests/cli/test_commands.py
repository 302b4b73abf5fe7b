"""Help, wrong command lines, damaged files; inspect, tokenize, bench."""

import csv
import io
import json
import os
import re
import unittest

from harness import CliTest, SHARED, winnow

COMMANDS = ["run", "chat", "perplexity", "bench", "inspect", "tokenize"]


class Help(CliTest):
    def test_overview_names_every_command(self):
        text = self.assert_done(winnow("--help")).text
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")
        self.assertEqual(text, winnow("help").text)

    def test_each_command_has_help_with_an_aligned_line_for_every_flag(self):
        for command in COMMANDS:
            text = self.assert_done(winnow(command, "--help")).text
            self.assertEqual(text, winnow("help", command).text)
            self.assertEqual(text, winnow(command, "-h").text)
            self.assertTrue(text.startswith(f"winnow {command} "))
            self.assertIn("-m, --model", text)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)

    def test_defaults_are_shown(self):
        text = winnow("run", "--help").text
        self.assertRegex(text, r"--top-k N .*\[40\]")
        self.assertRegex(text, r"--temp, --temperature N .*\[0\.8\]")
        self.assertRegex(text, r"-ctk, --cache-type-k TYPE .*\[f16\]")

    def test_version(self):
        self.assertRegex(self.assert_done(winnow("--version")).text, r"^winnow \d+\.\d+\.\d+\n")

    def test_no_arguments_is_misuse_and_shows_the_overview(self):
        outcome = winnow()
        self.assert_misused(outcome, "Commands:")


class Misuse(CliTest):
    def test_unknown_command_and_flag_suggest_the_nearest(self):
        self.assert_misused(winnow("rnu"), "rnu", "did you mean run?")
        self.assert_misused(winnow("run", "--tmep", "1"), "--tmep", "did you mean --temp?", "winnow run --help")
        self.assert_misused(winnow("run", "--cache-type-q", "f16"), "--cache-type-k")
        outcome = winnow("run", "--entirely-different")
        self.assert_misused(outcome, "--entirely-different")
        self.assertNotIn("did you mean", outcome.err)

    def test_values(self):
        self.assert_misused(winnow("run", "-n"), "-n", "needs a value")
        self.assert_misused(winnow("run", "-n", "many"), "-n", "many")
        self.assert_misused(winnow("run", "-c", "99999999999999999999"), "-c")
        self.assert_misused(winnow("run", "--temp", "nan"), "--temp", "nan")
        self.assert_misused(winnow("run", "--json=yes"), "--json", "takes no value")

    def test_values_out_of_range(self):
        base = ["run", "-m", self.model, "-p", "x"]
        self.assert_misused(winnow(*base, "-ctk", "q3_k"), "q3_k", "q8_0")
        self.assert_misused(winnow(*base, "-t", "0"), "-t")
        self.assert_misused(winnow(*base, "-t", "100000"), "-t", "100000")
        self.assert_misused(winnow(*base, "-c", "-1"), "-c")
        self.assert_misused(winnow(*base, "-ub", "0"), "-ub")
        self.assert_misused(winnow(*base, "-n", "-2"), "-n")
        self.assert_misused(winnow(*base, "--top-p", "1.5"), "top_p", "1.5", "0 to 1")
        self.assert_misused(winnow(*base, "-l", "99999999+1"), "99999999")
        self.assert_misused(winnow(*base, "-l", "hello"), "hello")

    def test_what_is_missing_or_too_much(self):
        self.assert_misused(winnow("run", "-p", "x"), "no model", "-m")
        self.assert_misused(winnow("inspect"), "no file")
        self.assert_misused(winnow("inspect", "a", "b"), "one file")
        self.assert_misused(winnow("run", "-m", self.model, "stray"), "stray")
        self.assert_misused(winnow("tokenize", "-m", self.model, "-p", "x", "-f", "y"), "-p", "-f")
        self.assert_misused(winnow("bench", "-m", self.model, "-p", "0", "-n", "0"), "nothing to measure")
        self.assert_misused(winnow("bench", "-m", self.model, "-o", "sql"), "sql", "jsonl")

    def test_flags_of_llama_cpp_are_never_silently_ignored(self):
        base = ["run", "-m", self.model, "-p", "x", "-n", "1"]
        for flags in (["-ngl", "99"], ["--mlock"], ["--no-mmap"], ["-fa", "off"], ["--keep", "4"], ["-tb", "2"]):
            outcome = self.assert_done(winnow(*base, *flags))
            self.assertIn("has no effect", outcome.err, flags)
        for flags in (["-fa"], ["-fa", "on"], ["--mmap"], ["-no-cnv"], ["--no-warmup"]):
            outcome = self.assert_done(winnow(*base, *flags))
            self.assertNotIn("warning", outcome.err, flags)
        for flags in (["--grammar", "x"], ["-hf", "a/b"], ["--mirostat", "2"], ["--context-shift"], ["-cnv"],
                      ["--rope-freq-base", "1"], ["--samplers", "top_k"]):
            self.assert_misused(winnow(*base, *flags), flags[0])


class BadFiles(CliTest):
    def test_missing_file_and_folder(self):
        for command in (["run", "-p", "x"], ["inspect"], ["tokenize", "-p", "x"], ["bench"]):
            outcome = winnow(*command, "-m", "/nowhere/model.gguf")
            self.assert_failed(outcome, "/nowhere/model.gguf")
            self.assertEqual(outcome.err.count("/nowhere/model.gguf"), 1, outcome.err)
        self.assert_failed(winnow("inspect", self.folder), self.folder)
        self.assert_failed(winnow("run", "-m", self.model, "-f", "/nowhere/prompt"), "/nowhere/prompt")

    def test_truncated_anywhere(self):
        data = self.model.read_bytes()
        for n in (0, 3, 10, 100, 5000, len(data) // 2, len(data) - 1):
            path = self.file("truncated.gguf", data[:n])
            self.assert_failed(winnow("run", "-m", path, "-p", "x"), path)
            self.assert_failed(winnow("inspect", path), "truncated.gguf")

    def test_not_gguf(self):
        path = self.file("text.gguf", "This is no model. " * 20)
        self.assert_failed(winnow("inspect", path), "text.gguf")

    def test_unknown_architecture_is_named_with_the_known_ones(self):
        path = self.file("unknown.gguf", self.model.read_bytes().replace(b"llama", b"zebra"))
        self.assert_failed(winnow("run", "-m", path, "-p", "x"), "zebra", "llama", "qwen2")
        outcome = self.assert_done(winnow("inspect", path))
        self.assertIn("zebra", outcome.text)
        self.assertIn("cannot be run", outcome.err)


class Inspect(CliTest):
    def test_text(self):
        text = self.assert_done(winnow("inspect", self.model)).text
        for part in ("llama", "random weights", "512 tokens", "F16", "F32", "q4_0", "general.architecture"):
            self.assertIn(part, text)
        self.assertNotIn("blk.0.attn_q.weight", text)
        self.assertIn("blk.0.attn_q.weight", winnow("inspect", self.model, "--tensors").text)

    def test_json(self):
        found = self.assert_done(winnow("inspect", self.model, "--json")).json
        self.assertEqual(found["architecture"], "llama")
        self.assertEqual(found["hyperparameters"]["n_layers"], 3)
        self.assertEqual(found["metadata"]["llama.block_count"], "3")
        # 3 layers, 1 KV head of 32 keys and 32 values.
        self.assertEqual(found["cache_bytes_per_1k_tokens"],
                         {"f32": 768000, "f16": 384000, "bf16": 384000, "q8_0": 204000, "q4_0": 108000})
        self.assertEqual(sum(t["elements"] for t in found["types"]), found["n_parameters"])
        self.assertNotIn("tensors", found)
        with_tensors = winnow("inspect", self.model, "--json", "--tensors").json
        self.assertEqual(len(with_tensors["tensors"]), sum(t["tensors"] for t in found["types"]))

    def test_vocabulary_only(self):
        path = SHARED / "tokenizers/ggml-vocab-qwen2.gguf"
        if not path.exists():
            self.skipTest("skipped: no ../shared/data/tokenizers")
        outcome = self.assert_done(winnow("inspect", path))
        self.assertIn("vocabulary only", outcome.text)
        self.assertEqual(outcome.err, "")
        self.assertEqual(self.assert_done(winnow("inspect", path, "--json")).json["tokenizer"]["model"], "gpt2")


class Tokenize(CliTest):
    def tokens(self, *flags, **options):
        return self.assert_done(winnow("tokenize", "-m", self.model, "--json", *flags, **options)).json["tokens"]

    def test_json_is_one_object(self):
        found = winnow("tokenize", "-m", self.model, "-p", "the house", "--json").json
        self.assertEqual(list(found), ["tokens"])
        self.assertEqual(len(found["tokens"]), 3)
        self.assertEqual(found["tokens"][0], 1)

    def test_text_shows_a_piece_a_line(self):
        text = winnow("tokenize", "-m", self.model, "-p", "the house\n").text
        lines = text.splitlines()
        self.assertEqual([line.split(" -> ")[1] for line in lines], ["'<s>'", "' the'", "' house'", "'\\n'"])
        ids = winnow("tokenize", "-m", self.model, "-p", "the house\n", "--ids").text
        self.assertEqual(json.loads(ids), [int(line.split(" -> ")[0]) for line in lines])

    def test_file_bytes_are_exact(self):
        for content in (b"the house\n", b"the house\r\n\n", b"a\0b", b"\xff\xfe bad \xe2\x96", b""):
            path = self.file("text", content)
            self.assertEqual(self.tokens("-f", path), self.tokens("-f", "-", stdin=content))
            self.assertEqual(self.tokens("-f", path), self.tokens(stdin=content))
        self.assertEqual(self.tokens("-f", self.file("text", "x\n"))[-1], 5 + 10)  # the byte \n
        self.assertNotEqual(self.tokens("-f", self.file("text", "x\n")), self.tokens("-p", "x"))

    def test_flags(self):
        self.assertEqual(self.tokens("-p", "the", "--no-bos"), self.tokens("-p", "the")[1:])
        self.assertIn(4, self.tokens("-p", "the<|im_end|>"))
        self.assertNotIn(4, self.tokens("-p", "the<|im_end|>", "--no-parse-special"))

    def test_backslashes_are_left_alone(self):
        self.assertNotEqual(self.tokens("-p", r"\n"), self.tokens("-p", "\n"))


class Bench(CliTest):
    FLAGS = ["-p", "8", "-n", "2", "-r", "2", "-t", "1"]

    def test_markdown(self):
        text = self.assert_done(winnow("bench", "-m", self.model, *self.FLAGS, "-d", "0,16", "-pg", "4,2")).text
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
        self.assertEqual(lines[0], ["model", "size", "params", "backend", "threads", "test", "t/s"])
        tests = [line[-2] for line in lines[2:]]
        self.assertEqual(tests, ["pp8", "tg2", "pp4+tg2", "pp8 @ d16", "tg2 @ d16", "pp4+tg2 @ d16"])
        for line in lines[2:]:
            self.assertRegex(line[-1], r"^\d+\.\d\d ± \d+\.\d\d$")

    def test_json_and_lines_and_csv_agree_on_the_fields(self):
        flags = ["bench", "-m", self.model, *self.FLAGS, "-ctk", "f16,q8_0"]
        results = self.assert_done(winnow(*flags, "-o", "json")).json
        self.assertEqual(len(results), 4)
        for result in results:
            self.assertEqual(len(result["samples_ns"]), 2)
            n = result["n_prompt"] + result["n_gen"]
            self.assertAlmostEqual(result["samples_ts"][0], n * 1e9 / result["samples_ns"][0])
            self.assertEqual(result["avg_ns"], sum(result["samples_ns"]) // 2)
            self.assertEqual(result["n_threads"], 1)
        self.assertEqual([r["type_k"] for r in results], ["f16", "f16", "q8_0", "q8_0"])
        lines = [json.loads(line) for line in winnow(*flags, "-o", "jsonl").text.splitlines()]
        rows = list(csv.DictReader(io.StringIO(winnow(*flags, "-o", "csv").text)))
        self.assertEqual(len(lines), 4)
        self.assertEqual(len(rows), 4)
        self.assertEqual(list(lines[0]), list(results[0]))
        self.assertEqual(list(rows[0]), list(results[0]))

    def test_lists_and_ranges(self):
        results = winnow("bench", "-m", self.model, "-p", "2-8*2", "-n", "0", "-r", "1", "-t", "1,2", "-o", "json").json
        self.assertEqual([(r["n_threads"], r["n_prompt"]) for r in results],
                         [(t, p) for t in (1, 2) for p in (2, 4, 8)])
        self.assert_misused(winnow("bench", "-m", self.model, "-p", "8-2"), "8-2")
        self.assert_misused(winnow("bench", "-m", self.model, "-p", "1,,2"), "-p")


if __name__ == "__main__":
    unittest.main()
