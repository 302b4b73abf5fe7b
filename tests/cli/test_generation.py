"""winnow run."""

import os
import pty
import re
import signal
import subprocess
import time
import unittest

from harness import CliTest, WINNOW, winnow

PROMPT = "Once upon a time"


class Run(CliTest):
    def run_model(self, *flags, prompt=PROMPT, **options):
        text = [] if prompt is None else ["-p", prompt]
        return winnow("run", "-m", self.model, *text, *flags, **options)

    def generate(self, *flags, **options):
        return self.assert_done(self.run_model("--temp", "0", "--json", *flags, **options)).json

    def test_prints_prompt_and_text_and_statistics_apart(self):
        outcome = self.assert_done(self.run_model("-n", "8", "--temp", "0"))
        found = self.generate("-n", "8")
        self.assertEqual(outcome.text, PROMPT + found["text"] + "\n")
        for part in ("load", "prefill", "first token", "decode", "tokens/s", "cache", "peak memory"):
            self.assertIn(part, outcome.err)
        self.assertNotIn("\033", outcome.err)

    def test_quiet_ways(self):
        outcome = self.assert_done(self.run_model("-n", "4", "--temp", "0", "--no-display-prompt", "--no-perf", "-q"))
        self.assertEqual(outcome.text, self.generate("-n", "4")["text"] + "\n")
        self.assertEqual(outcome.err, "")

    def test_json_has_the_promised_keys(self):
        found = self.generate("-n", "6", "--ignore-eos")
        self.assertEqual(list(found), ["text", "tokens", "prompt_tokens", "generated_tokens", "stop_reason", "timings",
                                       "cache_bytes", "cache_bytes_with_lists", "cache_bytes_full_f16", "cache_parts", "kv",
                                       "peak_rss_bytes"])
        self.assertEqual(list(found["timings"]), ["load_ms", "prefill_ms", "first_token_ms", "decode_ms",
                                                  "prefill_tokens_per_second", "decode_tokens_per_second"])
        self.assertEqual(found["stop_reason"], "limit")
        self.assertEqual(found["prompt_tokens"], 5)
        self.assertEqual(found["generated_tokens"], 6)
        self.assertEqual(len(found["tokens"]), 6)
        # The last token is not in the cache; a token takes 384 bytes in f16.
        self.assertEqual(found["cache_bytes"], (5 + 6 - 1) * 384)
        self.assertEqual(found["cache_bytes_with_lists"], found["cache_bytes"])  # nothing was evicted
        self.assertEqual(found["cache_bytes_full_f16"], found["cache_bytes"])
        self.assertEqual(found["cache_parts"], {"key_bytes": 1920, "value_bytes": 1920, "method_bytes": 0, "list_bytes": 0})
        self.assertGreater(found["peak_rss_bytes"], 1 << 20)

    def test_peak_memory_is_not_that_of_the_parent(self):
        alone = self.generate("-n", "2")["peak_rss_bytes"]
        large = bytearray(400 << 20)
        large[::4096] = b"x" * (len(large) // 4096)
        self.assertLess(self.generate("-n", "2")["peak_rss_bytes"], alone + (200 << 20))
        self.assertEqual(len(large), 400 << 20)

    def test_prompt_from_file_pipe_and_dash(self):
        expected = self.generate("-n", "5")["tokens"]
        path = self.file("prompt.txt", PROMPT + "\n")
        self.assertEqual(self.generate("-n", "5", "-f", path, prompt=None)["tokens"], expected)
        self.assertEqual(self.generate("-n", "5", prompt=None, stdin=PROMPT.encode())["tokens"], expected)
        self.assertEqual(self.generate("-n", "5", "-f", "-", prompt=None, stdin=PROMPT.encode())["tokens"], expected)

    def test_escapes(self):
        self.assertEqual(self.generate("-n", "1", prompt=r"a\nb\x41")["prompt_tokens"],
                         self.generate("-n", "1", prompt="a\nbA")["prompt_tokens"])
        self.assertGreater(self.generate("-n", "1", "--no-escape", prompt=r"a\nb\x41")["prompt_tokens"],
                           self.generate("-n", "1", prompt=r"a\nb\x41")["prompt_tokens"])

    def test_greedy_is_the_same_for_any_number_of_threads(self):
        prompt = "the old man saw a light in the water " * 12
        texts = [self.generate("-n", "60", "-t", n, "--ignore-eos", prompt=prompt)["tokens"] for n in (1, 2, 3)]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])

    def test_blocks_of_the_prompt_do_not_change_the_text(self):
        prompt = "the old man saw a light in the water " * 12
        whole = self.generate("-n", "20", "--ignore-eos", prompt=prompt)["tokens"]
        self.assertEqual(self.generate("-n", "20", "--ignore-eos", "-ub", "7", prompt=prompt)["tokens"], whole)

    def test_seeds(self):
        def sample(*flags):
            return self.assert_done(self.run_model("-n", "20", "--json", *flags)).json["tokens"]
        self.assertEqual(sample("-s", "7"), sample("-s", "7"))
        self.assertNotEqual(sample("-s", "7"), sample("-s", "8"))
        self.assertNotEqual(sample(), sample())
        self.assertEqual(sample("--top-k", "1"), self.generate("-n", "20")["tokens"])

    def test_every_cache_type(self):
        for keys in ("f32", "f16", "bf16", "q8_0", "q4_0"):
            for values in ("f32", "f16", "bf16", "q8_0", "q4_0"):
                found = self.generate("-n", "4", "--ignore-eos", "-ctk", keys, "-ctv", values)
                width = {"f32": 128, "f16": 64, "bf16": 64, "q8_0": 34, "q4_0": 18}
                self.assertEqual(found["cache_bytes"], 8 * 3 * (width[keys] + width[values]), (keys, values))

    def test_reference_backend_agrees(self):
        fast = self.generate("-n", "12", "--ignore-eos")["tokens"]
        self.assertEqual(self.generate("-n", "12", "--ignore-eos", "--cpu-target", "reference")["tokens"], fast)
        self.assert_failed(self.run_model("--cpu-target", "ABACUS"), "ABACUS")

    def test_stop_strings(self):
        text = self.generate("-n", "40", "--ignore-eos")["text"]
        middle = len(text) // 2
        stop = text[middle:middle + 5]  # spans several tokens
        found = self.generate("-n", "40", "--ignore-eos", "-r", stop, "-r", "never to be seen")
        self.assertEqual(found["stop_reason"], "stop_string")
        self.assertEqual(found["text"], text[:text.index(stop)])
        streamed = self.assert_done(self.run_model("-n", "40", "--ignore-eos", "--temp", "0", "-r", stop))
        self.assertEqual(streamed.text, PROMPT + text[:text.index(stop)] + "\n")

    def test_end_of_generation_and_bias(self):
        forced = self.generate("-n", "5", "-l", "2+1000")
        self.assertEqual((forced["stop_reason"], forced["tokens"], forced["text"]), ("eos", [2], ""))
        self.assertEqual(self.generate("-n", "5", "-l", "4+1000")["stop_reason"], "eos")  # <|im_end|>
        ignored = self.generate("-n", "5", "-l", "2+1000", "--ignore-eos")
        self.assertEqual(ignored["stop_reason"], "limit")
        first = self.generate("-n", "1")["tokens"][0]
        self.assertNotEqual(self.generate("-n", "1", "-l", f"{first}-inf")["tokens"][0], first)
        self.assertNotEqual(self.generate("-n", "1", "-l", f"{first}=false")["tokens"][0], first)

    def test_context_full(self):
        found = self.generate("-c", "20", "--ignore-eos")
        self.assertEqual(found["stop_reason"], "context")
        self.assertEqual(found["prompt_tokens"] + found["generated_tokens"], 21)  # the last one is not stored

    def test_prompt_longer_than_the_context_names_both_lengths(self):
        outcome = self.run_model("-c", "16", prompt="the" + " the" * 99)
        self.assert_failed(outcome, "101 tokens", "holds 16")
        self.assertEqual(outcome.out, b"")

    def test_prompt_of_exactly_the_context(self):
        found = self.generate("-c", "5", "--ignore-eos")
        self.assertEqual((found["stop_reason"], found["generated_tokens"]), ("context", 1))

    def test_a_full_context_and_a_prompt_beyond_it(self):
        full = self.assert_done(winnow("run", "-m", self.model, "-p", "the old man", "-c", "16", "--ignore-eos"))
        self.assertIn("the context of 16 tokens is full", full.err)
        self.assert_failed(winnow("run", "-m", self.model, "-p", "the old man " * 10, "-c", "16"), "the context holds 16", "-c 2",
                           "--prefill-chunk 512")
        self.assert_misused(winnow("run", "-m", self.model, "-p", "x", "--kv-method", "H2O"), "did you mean h2o?")

    def test_a_huge_text_is_refused_before_its_tokens_are_found(self):
        huge = self.file("huge.txt", "abcdefghij" * 1_000_000)
        for command in (["run"], ["chat", "-st"], ["compare", "-q", "Who?", "--kv-method", "h2o", "--kv-size", "64"]):
            found = winnow(command[0], "-m", self.model, "-f", huge, *command[1:])
            at_least = re.search(r"the text is at least (\d+) tokens", found.err)
            self.assertTrue(at_least and found.code == 1, found.err)
            self.assertGreater(int(at_least.group(1)), 10_000)  # computed from the bytes and the longest token

    def test_empty_prompt(self):
        self.assertEqual(self.generate("-n", "3", "--ignore-eos", prompt="")["prompt_tokens"], 1)  # BOS
        self.assert_failed(self.run_model("--no-bos", prompt=""), "empty")

    def test_no_tokens_wanted(self):
        found = self.generate("-n", "0")
        self.assertEqual((found["text"], found["tokens"], found["stop_reason"]), ("", [], "limit"))

    def test_invalid_utf8_in_gives_valid_utf8_out(self):
        path = self.file("bad.txt", b"the \xff\xfe\xe2\x96 house\0 \xf0\x9f")
        found = self.generate("-n", "30", "-f", path, prompt=None)  # .text decodes strictly
        self.assertEqual(found["stop_reason"] in ("limit", "eos"), True)
        for byte in (0xE2, 0xFF):  # generated bytes that are not valid UTF-8
            found = self.generate("-n", "3", "-l", f"{5 + byte}+1000")
            self.assertEqual(found["text"], "�" * 3)

    def test_a_character_made_of_byte_tokens_is_whole(self):
        # é is the bytes C3 A9. The presence penalty lowers C3 after its first use, so that A9
        # follows.
        outcome = self.run_model("-n", "2", "--temp", "0", "--no-display-prompt", "-l", f"{5 + 0xC3}+1000",
                                 "-l", f"{5 + 0xA9}+999", "--presence-penalty", "500")
        self.assertEqual(self.assert_done(outcome).text, "é\n")


class Interrupt(CliTest):
    """The reference backend and a long context are slow enough to be interrupted."""

    def start(self, *flags):
        process = subprocess.Popen(
            [WINNOW, "run", "-m", self.model, "-p", PROMPT, "-c", "200000", "--ignore-eos", "--temp", "0",
             "--cpu-target", "reference", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def test_stops_with_statistics_and_130(self):
        process = self.start()
        self.assertEqual(process.stdout.read(len(PROMPT) + 20)[:len(PROMPT)], PROMPT.encode())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        out.decode("utf-8")
        self.assertTrue(out.endswith(b"\n"))
        self.assertIn(b"tokens/s", err)

    def test_json_says_cancelled(self):
        process = self.start("--json")
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b'"stop_reason":"cancelled"', out)


class Terminal(CliTest):
    """On a pseudo-terminal."""

    def output(self, *arguments, env=None):
        leader, follower = pty.openpty()
        with subprocess.Popen([WINNOW, *map(str, arguments)], stdin=follower, stdout=follower, stderr=follower,
                              env={**os.environ, **(env or {})}) as process:
            os.close(follower)
            chunks = []
            while True:
                try:
                    chunk = os.read(leader, 4096)
                except OSError:
                    break
                if not chunk:
                    break
                chunks.append(chunk)
            os.close(leader)
            return process.wait(), b"".join(chunks).decode()

    def test_colour_only_there_and_not_with_no_color(self):
        environment = {"NO_COLOR": ""}
        code, text = self.output("run", "--bad", env=environment)
        self.assertEqual(code, 2)
        self.assertIn("\033[31m", text)
        self.assertNotIn("\033[", self.output("run", "--bad", env={"NO_COLOR": "1"})[1])
        flags = ["run", "-m", self.model, "-p", PROMPT, "-n", "1", "-co"]
        self.assertIn(f"\033[33m{PROMPT}\033[0m", self.output(*flags, env=environment)[1])
        self.assertNotIn("\033[", self.output(*flags, env={"NO_COLOR": "1"})[1])

    def test_no_prompt_on_a_terminal_is_told_at_once(self):
        code, text = self.output("run", "-m", self.model)
        self.assertNotEqual(code, 0)
        self.assertRegex(text, "no text: give it with -p TEXT")


class OneMessage(CliTest):
    """run with llama-cli's flags for a conversation: -sys, --jinja, --chat-template."""

    def run_once(self, *flags):
        return self.assert_done(winnow("run", "-m", self.model, "-p", "the house", "--temp", "0", "-n", "6", "--ignore-eos", *flags)).text.strip()

    def test_as_chat_writes_it(self):
        def chat(*flags):
            return self.assert_done(winnow("chat", "-m", self.model, "-st", "-p", "the house", "--temp", "0", "-n", "6", "--ignore-eos", *flags)).text.strip()
        self.assertEqual(self.run_once("--jinja"), chat())
        self.assertEqual(self.run_once("-sys", "You are a tree."), chat("-sys", "You are a tree."))
        self.assertEqual(self.run_once("--chat-template", "llama3"), chat("--chat-template", "llama3"))
        path = self.file("t.jinja", "{{ messages[-1].content }}")
        self.assertEqual(self.run_once("--chat-template-file", path), chat("--chat-template-file", path))
        self.assertNotEqual(self.run_once("-sys", "You are a tree."), self.run_once("--jinja"))

    def test_without_them_it_is_a_text(self):
        self.assertTrue(self.run_once().startswith("the house"))
        note = "text   is continued as it is; --jinja makes it a message"
        self.assertIn(note, self.assert_done(winnow("run", "-p", "the house", "-n", "1")).err)  # the bundled model
        self.assertNotIn(note, self.assert_done(winnow("run", "-p", "the house", "-n", "1", "--jinja")).err)
        self.assertNotIn(note, self.assert_done(winnow("run", "-m", self.model, "-p", "the house", "-n", "1",
                                                       "--chat-template", "chatml")).err)

    def test_flags_that_do_not_go_together(self):
        self.assert_misused(winnow("run", "-m", self.model, "-p", "a", "--chat-template", "nonsense"), "nonsense", "chatml")
        self.assert_misused(winnow("run", "-m", self.model, "-p", "a", "-sys", "x", "-sysf", "y"), "only one of -sys")


if __name__ == "__main__":
    unittest.main()
