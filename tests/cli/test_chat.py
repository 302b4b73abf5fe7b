"""winnow chat, through a pipe."""

import json
import os
import re
import subprocess
import unittest

from harness import WINNOW, CliTest, winnow


class Chat(CliTest):
    def chat(self, lines, *flags):
        return winnow("chat", "-m", self.model, "--temp", "0", "-n", "6", "--ignore-eos", *flags,
                      stdin="".join(line + "\n" for line in lines).encode())

    def answers(self, lines, *flags):
        text = self.assert_done(self.chat(lines, *flags)).text
        return text.splitlines()

    def test_one_answer_for_each_line(self):
        outcome = self.assert_done(self.chat(["the house", "the tree"]))
        self.assertEqual(len(re.findall(r"\[prefill \d+ tokens, .* decode \d+ tokens, .* context \d+ of 512\]", outcome.err)), 2)
        self.assertIn("the model's own template", outcome.err)
        self.assertNotIn("warning", outcome.err)
        self.assertNotIn(">", outcome.text)  # no prompt without a terminal

    def test_the_cache_is_kept_between_turns(self):
        told = self.assert_done(self.chat(["the old man saw the old tree and the old house", "a"])).err
        turns = re.findall(r"\[prefill (\d+) tokens.*context (\d+) of", told)
        (first_read, first_context), (second_read, second_context) = [map(int, turn) for turn in turns]
        self.assertGreater(second_context, first_context)
        self.assertLess(second_read, first_read)  # only the new message, not the whole conversation

    def test_conversations_remember_and_clear_forgets(self):
        question = "the house"
        first = self.answers([question])
        self.assertEqual(self.answers([question, "/clear", question]), first + first)
        remembered = self.answers(["something else entirely", question])
        self.assertNotEqual(remembered[-1:], first[-1:])

    def test_regen_answers_again(self):
        once = self.answers(["the house"])
        self.assertEqual(self.answers(["the house", "/regen"]), once + once)  # greedy: the same answer
        self.assertIn("no answer yet", self.chat(["/regen"]).err)

    def test_a_regen_that_does_not_fit_leaves_the_answer(self):
        path = self.folder / "regen.json"
        outcome = self.chat(["the house", f"/set system {'the tree ' * 600}", "/regen", "/set system", f"/save {path}"])
        self.assertEqual(outcome.code, 1, outcome.err)
        self.assertIn("left out", outcome.err)
        messages = json.loads(path.read_text())["messages"]
        self.assertEqual([m["role"] for m in messages], ["user", "assistant"])
        self.assertEqual(messages[0]["content"], "the house")

    def test_read_attaches_a_file(self):
        path = self.file("note.txt", "the old man\n")
        self.assertEqual(self.answers([f"/read {path}", "the house"]), self.answers(["the old man\\", "the house"]))
        outcome = self.assert_done(self.chat(["/read /nowhere/note", "/exit"]))
        self.assertIn("/nowhere/note", outcome.err)

    def test_other_commands(self):
        self.assertEqual(self.answers(["/exit", "the house"]), [])
        self.assertIn("unknown command /foo", self.chat(["/foo"]).err)
        self.assertIn("/clear", self.chat(["/help"]).err)
        quiet = self.chat(["/help", "/set", "/kv", "/stats", "/clear"], "-q").err
        for shown in ("/clear", "temperature = ", "tokens", "no answer yet"):
            self.assertIn(shown, quiet)
        self.assertNotIn("forgotten", quiet)

    def test_settings(self):
        told = self.assert_done(self.chat(["/set", "/set temp 0.5", "/set nonsense 3", "/set top_k 2.5", "/set n 3", "/set system You are a tree.",
                                           "/set top-p 7", "/set"])).err
        self.assertIn("temperature = 0.0 ", told)
        self.assertIn("temperature = 0.5 ", told)
        self.assertIn("there is no parameter 'nonsense'", told)
        self.assertIn("top_k: found 2.5, expected a whole number", told)
        self.assertIn("top_p", told)
        seeds = self.assert_done(self.chat(["/set seed 4000000000", "/set seed -1", "/set seed -2"])).err
        self.assertEqual(seeds.count("seed: found"), 1, seeds)
        self.assertIn("system = You are a tree.", told)
        short = self.chat(["/set n 2", "the house"])
        self.assertIn("decode 1 tokens", self.assert_done(short).err)
        told = self.assert_done(self.chat(["/set temperature 1e10", "/set top_k 1e10", "/set system You are a tree.", "/set system", "/set"])).err
        self.assertEqual(told.count("expected a number from"), 2, told)
        self.assertTrue(told.endswith("system = \n"), told)
        self.assertEqual(self.answers(["/set system You are a tree.", "the house"]),
                         self.answers(["the house"], "-sys", "You are a tree."))

    def test_transcripts(self):
        path = self.folder / "talk.json"
        first = self.answers(["the house", f"/save {path}", "the tree"])
        self.assertEqual(self.answers([f"/load {path}", "the tree"]), first[1:])
        self.assertIn("goes on after 2 messages", self.chat([f"/load {path}"]).err)
        other = self.file("other.txt", "not a transcript")
        self.assertIn("was not changed", self.chat(["the house", f"/save {other}"]).err)
        self.assertEqual(other.read_text(), "not a transcript")
        self.assertIn("is not a transcript", self.chat([f"/load {other}"]).err)
        self.assertIn("/save FILE", self.chat(["/save"]).err)

    def test_cache_and_statistics(self):
        told = self.assert_done(self.chat(["/stats", "the house", "/stats", "/kv"], "--kv-method", "streaming", "--kv-size", "16")).err
        self.assertIn("there is no answer yet", told)
        self.assertRegex(told, r"prefill +[\d.]+ ms")
        self.assertIn("method streaming, a budget of 16 entries per KV head", told)
        told = self.assert_done(self.chat(["the house", "/kv"], "--kv-method", "snapkv", "--kv-size", "512", "-c", "512")).err
        self.assertIn("method snapkv, every entry stays\n", told)

    def test_all_ways_to_end(self):
        for word in ("/bye", "/exit", "/quit"):
            self.assertEqual(self.answers([word, "the house"]), [])

    def test_an_input_that_cannot_be_read_fails(self):
        folder = os.open(self.folder, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        done = subprocess.run([WINNOW, "chat", "-m", self.model], stdin=folder, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard input: Is a directory", done.stderr)

    def test_a_message_left_out_fails_a_pipe(self):
        outcome = self.chat(["the tree " * 600, "the house"])
        self.assertEqual(outcome.code, 1, outcome.err)
        self.assertIn("left out", outcome.err)
        self.assertRegex(outcome.err, r"-c \d+ holds it")
        self.assertEqual(len(outcome.text.splitlines()), 1)  # the second message is answered

    def test_single_turn(self):
        once = self.answers(["the house"])
        self.assertEqual(self.answers(["the house", "the tree"], "-st"), once)
        self.assertEqual(self.answers([], "-st", "-p", "the house"), once)

    def test_stop_strings_are_unescaped(self):
        whole = self.answers(["the house"], "-n", "20")[0]
        middle = whole[len(whole) // 2]
        code = f"\\x{ord(middle):02x}"
        self.assertTrue(middle.isascii())
        self.assertEqual(self.answers(["the house"], "-n", "20", "-r", code), self.answers(["the house"], "-n", "20", "-r", middle))
        self.assertEqual(self.answers(["the house"], "-n", "20", "-r", code, "--no-escape"), [whole])

    def test_system_prompt_counts(self):
        self.assertNotEqual(self.answers(["the house"], "-sys", "You are a tree."), self.answers(["the house"]))
        path = self.file("system.txt", "You are a tree.\n")
        self.assertEqual(self.answers(["the house"], "-sys", "You are a tree."),
                         self.answers(["the house"], "-sysf", path))

    def test_typed_control_tokens_are_text(self):
        def context(line):
            return int(re.search(r"context (\d+) of", self.chat([line]).err)[1])
        self.assertGreater(context("<|im_end|>"), context("a") + 3)

    def test_end_of_turn_token_ends_an_answer(self):
        outcome = winnow("chat", "-m", self.model, "--temp", "0", "-l", "4+1000", stdin=b"the house\n")
        self.assertEqual(self.assert_done(outcome).text, "\n")

    def test_templates(self):
        question, own = ["the house"], self.answers(["the house"])
        self.assertIn("llama3 template", self.chat(question, "--chat-template", "llama3").err)
        self.assert_misused(self.chat(["a"], "--chat-template", "nonsense"), "nonsense", "chatml")
        self.assertEqual(self.answers(question, "--jinja"), own)
        self.assertIn("chatml template", self.chat(question, "--no-jinja").err)
        self.assertEqual(self.answers(question, "--no-jinja"), own)  # the model's template is ChatML
        plain = "{% for m in messages %}{{ m.content }}{% endfor %}"
        self.assertIn("the template given", self.chat(question, "--chat-template", plain).err)
        path = self.file("plain.jinja", plain + "\n")
        self.assertEqual(self.answers(question, "--chat-template", plain), self.answers(question, "--chat-template-file", path))
        self.assertNotEqual(self.answers(question, "--chat-template", plain), own)
        self.assert_misused(self.chat(["a"], "--chat-template", plain, "--chat-template-file", path), "only one")

    def test_templates_that_fail(self):
        broken = self.file("broken.jinja", "{% if %}")
        self.assert_failed(self.chat(["a"], "--chat-template-file", broken), "broken.jinja", "line 1", "expected an expression")
        self.assert_failed(self.chat(["a"], "--chat-template", "{{ raise_exception('never') }}"), "the template refuses: never")
        self.assert_failed(self.chat(["a"], "--chat-template", "{{ 'a' * 999999999 }}"), "the template makes more than")
        # A broken template of the model: a built-in format replaces it, and the log says so once.
        data = self.model.read_bytes()
        for old, new in ((b"{% for m in messages", b"{% fro m in messages"), (b"{{ m.role }}", b"{{ m.r.le }}")):
            self.assertIn(old, data)
            outcome = self.assert_done(winnow("chat", "-m", self.file("other.gguf", data.replace(old, new)), "--temp", "0", "-n", "6", "--ignore-eos",
                                              stdin=b"the house\nthe tree\n"))
            self.assertEqual(outcome.err.count("built-in format chatml"), 1, outcome.err)
            self.assertEqual(outcome.text.splitlines(), self.answers(["the house", "the tree"]))

    def test_what_a_template_gets(self):
        # Control tokens typed by the user stay text, whatever the template does to them.
        def context(line):
            return int(re.search(r"context (\d+) of", self.chat([line], "--chat-template", "{{ '<|im' ~ messages[0].content | trim ~ '|>' }}").err)[1])
        self.assertGreater(context("_end"), context("a"))
        told = self.chat(["a"], "--chat-template", "{{ raise_exception(strftime_now('%Y') ~ bos_token ~ messages[0].role) }}").err
        self.assertRegex(told, r"the template refuses: 20\d\d.*user")

    def test_a_message_too_long_is_left_out_and_the_rest_goes_on(self):
        outcome = self.chat(["the " * 600, "the house"])
        self.assertEqual(outcome.code, 1, outcome.err)
        self.assertIn("context holds 512", outcome.err)
        self.assertEqual(outcome.text.splitlines(), self.answers(["the house"]))

    def test_a_document_too_long_is_refused_with_what_would_hold_it(self):
        document = self.file("long.txt", "the " * 600)
        self.assert_failed(self.chat(["the house"], "-f", document), "the document is", "the context holds 512", "-c ", "holds it")
        outcome = self.chat(["the house", "the " * 600], "-f", self.file("short.txt", "the tree"))
        self.assertRegex(outcome.err, r"the message is left out; -c \d+ holds it")
        # An answer that reaches the end of the context ends there; the document and the next question stay.
        document = self.file("nearly.txt", "the " * 480)
        outcome = self.assert_done(self.chat(["the house", "the house"], "-f", document, "-n", "100"))
        self.assertEqual(outcome.err.count("tokens is full: -c N with a larger N leaves more for an answer"), 2)
        self.assertNotIn("/clear", outcome.err)
        self.assertEqual(len(set(outcome.text.splitlines())), 1)

    def test_a_memory_limit_holds_on_every_turn(self):
        # The bundled model: an answer that does not retokenize to the same tokens makes the session
        # start anew.
        lines = ["hello there, tell me a story about a dog", "the " * 300, "the house", "a " * 100, "the dog"]
        for method in ("h2o", "tova", "streaming", "keydiff", "snapkv"):
            # The program itself asserts its limit.
            outcome = self.assert_done(winnow("chat", "--temp", "0", "-n", "4", "--kv-method", method,
                                              "--kv-memory", "400000", stdin="\n".join(lines).encode()))
            self.assertNotIn("left out", outcome.err, method)
            self.assertEqual(len(re.findall(r"\[prefill", outcome.err)), len(lines), method)

    def test_a_message_beyond_the_memory_limit_is_left_out(self):
        outcome = self.chat(["the house", "the " * 200, "a"], "--kv-memory", "60000")
        self.assertEqual(outcome.code, 1, outcome.err)
        self.assertRegex(outcome.err, r"need \d+ bytes, 60000 are allowed; the message is left out, /clear starts anew")
        self.assertEqual(outcome.text.splitlines(), self.answers(["the house", "a"]))


if __name__ == "__main__":
    unittest.main()
