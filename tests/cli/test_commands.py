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
    def test_flags_without_a_command_run(self):
        flags = ["-m", self.model, "-p", "the house", "-n", "3", "--temp", "0", "--no-perf"]
        self.assertEqual(self.assert_done(winnow(*flags)).text, self.assert_done(winnow("run", *flags)).text)

    def test_what_others_type(self):
        """Arguments for llama.cpp or Ollama work, or the error says what does."""
        for name in ("pull", "list"):
            self.assert_misused(winnow(name, "some-model"), "-m", "GGUF")
        run = ["run", "-m", self.model, "-p", "the house", "-n", "1"]
        for flags in (["-st"], ["-mli"], ["-cnv"]):
            self.assert_misused(winnow(*run, *flags), "winnow chat")
        self.assert_misused(winnow(*run, "-md", "draft.gguf"), "speculative")
        for mode in ("on", "off", "auto"):
            coloured = self.assert_done(winnow(*run, "--color", mode)).out
            self.assertEqual(b"\033[33m" in coloured, mode == "on", mode)
        self.assertIn("tokenize", self.assert_done(winnow(*run, "--verbose-prompt")).err)
        self.assert_misused(winnow("perplexity", "-m", self.model, "--ppl-stride", "8"), "sliding")
        bench = ["bench", "-m", self.model, "-p", "8", "-n", "2", "-r", "1", "-o", "json"]
        for flags in (["-mmp", "0"], ["-fa", "0,1"], ["-nkvo", "0"], ["--delay", "1"]):
            self.assertIn("no effect", self.assert_done(winnow(*bench, *flags)).err, flags)
        self.assert_misused(winnow(*bench, "-oe", "md"), "-o FORMAT")
        tokens = ["tokenize", "-m", self.model, "--ids"]
        self.assertEqual(self.assert_done(winnow(*tokens, "--stdin", stdin=b"the house")).text,
                         self.assert_done(winnow(*tokens, "-p", "the house")).text)

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
        self.assert_misused(winnow("run", "--color=blue"), "--color", "'blue'", "auto")
        self.assert_done(winnow("run", "-m", self.model, "-p", "x", "-n", "1", "--color=off"))
        self.assert_misused(winnow("serve", "-m", self.model, "--api-key", ""), "--api-key", "no key")
        self.assert_misused(winnow("serve", "-m", self.model, "--timeout", "9999999999"), "--timeout", "9999999999")

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
        for flags in (["--grammar", "x", "-j", "{}"], ["-hf", "a/b"], ["--mirostat", "2"], ["--context-shift"], ["-cnv"],
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

    def test_bytes_of_a_file_do_not_reach_the_terminal(self):
        escape = b"\x1b[31m\xff"
        whole = self.model.read_bytes()
        named = self.file("named.gguf", whole.replace(b"random weights", escape + b"_weights"))
        self.assertNotEqual(named.read_bytes(), whole)
        run = self.assert_done(winnow("run", "-m", named, "-p", "x", "-n", "1"))
        self.assertIn("model  \\x1b[31m\\xff_weights: ", run.err)
        inspect = self.assert_done(winnow("inspect", named))
        other = self.file("other.gguf", whole.replace(b"llama", escape[:5], 1))
        unknown = winnow("run", "-m", other, "-p", "x")
        self.assert_failed(unknown, "'\\x1b[31m' is not supported")
        for text in (run.err, inspect.text, inspect.err, unknown.err):
            self.assertNotIn("\x1b", text)


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
        # 3 layers, 1 KV head with 32 numbers of keys and 32 of values.
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

    def test_batches(self):
        flags = ["bench", "-m", self.model, "-p", "8,4", "-n", "3", "-r", "2", "-t", "2", "-B", "1,5"]
        results = self.assert_done(winnow(*flags, "-o", "json")).json
        # Prompt and generation form one test, as in llama-batched-bench.
        self.assertEqual([(r["n_prompt"], r["n_gen"], r["n_sequences"]) for r in results],
                         [(8, 3, 1), (8, 3, 5), (4, 3, 1), (4, 3, 5)])
        for r in results:
            n = r["n_sequences"]
            self.assertAlmostEqual(r["samples_ts"][0], n * (r["n_prompt"] + 3) * 1e9 / r["samples_ns"][0])
            self.assertAlmostEqual(r["avg_ns"] / 1e9, (n * r["n_prompt"] / r["pp_ts"] + 3 * n / r["tg_ts"]), delta=0.5)
            self.assertGreaterEqual(r["step_ms_max"], r["step_ms"])
            self.assertGreater(r["memory_bytes"], r["model_size"] + r["kv_bytes"])
            self.assertEqual(r["kv_bytes"], n * results[0]["kv_bytes"] * (r["n_prompt"] + 3) // 11)
            self.assertEqual(r["kv_kept"], r["n_prompt"] + 3)
        text = self.assert_done(winnow(*flags)).text
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
        self.assertEqual(lines[0][-5:], ["test", "B", "t/s", "tg t/s", "ms/step"])
        self.assertEqual([line[-5:-3] for line in lines[2:]],
                         [["pp8+tg3", "1"], ["pp8+tg3", "5"], ["pp4+tg3", "1"], ["pp4+tg3", "5"]])
        # A test may lack a phase; its results are then null.
        prompts, steps = (winnow("bench", "-m", self.model, *one, "-r", "1", "-B", "3", "-d", "6", "-o", "json").json[0]
                          for one in (["-p", "4", "-n", "0"], ["-p", "0", "-n", "2"]))
        self.assertEqual((prompts["tg_ts"], prompts["step_ms"], steps["pp_ts"]), (None, None, None))
        self.assertEqual(steps["kv_kept"], 8)

    def test_batches_under_methods(self):
        results = self.assert_done(winnow("bench", "-m", self.model, "-p", "40", "-n", "6", "-r", "1", "-B", "4", "-o", "json",
                                          "--kv-method", "full,snapkv:window=8,h2o", "--kv-size", "16")).json
        self.assertEqual([r["kv_kept"] for r in results], [46, 22, 16])
        for r in results:
            self.assertGreaterEqual(r["memory_bytes"], r["model_size"] + r["kv_bytes"])

    def test_memory_limit_chooses_the_largest_batch(self):
        flags = ["bench", "-m", self.model, "-p", "40", "-n", "6", "-r", "1", "-o", "json"]
        three, four = (winnow(*flags, "-B", n).json[0]["memory_bytes"] for n in ("3", "4"))
        for limit, n in ((three, 3), (four - 1, 3), (four, 4)):
            result = self.assert_done(winnow(*flags, "--memory-limit", limit)).json[0]
            self.assertEqual((result["n_sequences"], result["memory_bytes"]), (n, three if n == 3 else four))
        both = self.assert_done(winnow(*flags, "--memory-limit", four, "--kv-method", "full,streaming", "--kv-size", "8")).json
        self.assertGreater(both[1]["n_sequences"], both[0]["n_sequences"])
        text = self.assert_done(winnow(*flags[:-2], "--memory-limit", four)).text
        self.assertIn("memory", text.splitlines()[0])
        planned = self.assert_done(winnow(*flags, "--memory-limit", four, "--dry-run")).json[0]
        self.assertEqual((planned["n_sequences"], planned["memory_bytes"]), (4, four))
        self.assertNotIn("avg_ts", planned)
        one = winnow(*flags, "-B", "1").json[0]["memory_bytes"]
        self.assert_failed(winnow(*flags, "--memory-limit", one - 1), "40+6", str(one), str(one - 1))

    def test_lengths_beyond_the_largest_context(self):
        bench = ["bench", "-m", self.model, "--no-warmup", "-r", "1", "--dry-run"]
        longest, huge = 2**31 - 1, 2**63 - 1
        for flag in ("-p", "-n", "-d"):
            for n in (-1, longest + 1, huge):
                self.assert_misused(winnow(*bench, flag, n), f"flag {flag}: found {n}, expected 0 to {longest}")
        for n in (-1, huge):
            for pair in (f"{n},1", f"1,{n}"):
                self.assert_misused(winnow(*bench, "-pg", pair), f"flag -pg: found {n}, expected 0 to {longest}")
        self.assert_misused(winnow(*bench, "-p", huge, "-n", "0", "-d", "1"), f"flag -p: found {huge}")
        self.assert_misused(winnow(*bench, "-p", longest, "-n", "0", "-d", "1"), f"found {longest + 1} tokens", f"at most {longest}")
        for n in (2**20 + 1, huge):
            self.assert_misused(winnow(*bench, "-B", n), f"flag -B: found {n}, expected 1 to {2**20}")
        f32 = ["-ctk", "f32", "-ctv", "f32"]  # 768 bytes per token
        self.assert_failed(winnow(*bench, *f32, "-B", 2**20, "-p", longest - 1, "-n", "1"), "2^60 bytes")
        planned = self.assert_done(winnow(*bench, "-B", 2**20, "-p", "8", "-n", "2", "-o", "json")).json[0]
        self.assertGreater(planned["memory_bytes"], 2**20 * 10 * 384)  # of f16 keys and values

    def test_wrong_batches(self):
        for n in ("0", "-1", "x", "1.5"):
            self.assert_misused(winnow("bench", "-m", self.model, "-B", n), "-B", n)
        self.assert_misused(winnow("bench", "-m", self.model, "-B", "2", "--memory-limit", "1G"), "--memory-limit", "-B")
        self.assert_misused(winnow("bench", "-m", self.model, "-d", "8", "--memory-limit", "1G"), "-d")
        self.assert_misused(winnow("bench", "-m", self.model, "--memory-limit", "0"), "--memory-limit")
        self.assert_misused(winnow("bench", "-m", self.model, "-B", "2", "-p", "0", "-n", "0"), "nothing to measure")
        self.assert_misused(winnow("bench", "-m", self.model, "-B", "2", "--trace", "x"), "--trace")


if __name__ == "__main__":
    unittest.main()
