"""--session of winnow run and chat: a text that one command reads and later ones continue."""

import re
import signal
import subprocess
import time
import unittest

from harness import WINNOW, CliTest, winnow

DOCUMENT = "the old man saw the old tree and the old house in the water of the light. " * 12


class SessionTest(CliTest):
    def setUp(self):
        self.session = self.folder / f"{self.id()}.session"

    def run_text(self, *flags, session=True):
        return winnow("run", "-m", self.model, "--temp", "0", "-n", "6", "--ignore-eos", "--no-display-prompt",
                      *(["--session", self.session] if session else []), *flags)

    def text(self, *flags, session=True):
        return self.assert_done(self.run_text(*flags, session=session)).text

    def chat(self, lines, *flags, session=True):
        return winnow("chat", "-m", self.model, "--temp", "0", "-n", "6", "--ignore-eos",
                      *(["--session", self.session] if session else []), *flags,
                      stdin="".join(line + "\n" for line in lines).encode())

    def answers(self, lines, *flags, session=True):
        return self.assert_done(self.chat(lines, *flags, session=session)).text.splitlines()


class Run(SessionTest):
    def test_the_prompt_is_read_once(self):
        for kv in ([], ["--kv-method", "snapkv", "--kv-size", "60"], ["--kv-method", "ems", "--kv-size", "60", "-ctk", "f32"]):
            with self.subTest(kv=kv):
                self.session.unlink(missing_ok=True)
                once = self.text("-p", DOCUMENT, *kv)
                written = self.session.read_bytes()
                again = self.assert_done(self.run_text("-p", DOCUMENT))  # with the saved flags of the cache
                self.assertEqual(again.text, once)
                self.assertRegex(again.err, r"prefill +\S+ ms +0 tokens.* re-used")
                self.assertEqual(self.session.read_bytes(), written)  # unchanged

    def test_a_longer_prompt_goes_on_from_it(self):
        kv = ["--kv-method", "streaming", "--kv-size", "40"]
        self.text("-p", DOCUMENT, *kv)
        more = DOCUMENT + " the house"
        n = re.search(r"prefill +\S+ ms +(\d+) tokens.* (\d+) re-used", self.assert_done(self.run_text("-p", more)).err)
        self.assertLess(int(n[1]), 10)
        self.assertGreater(int(n[2]), 100)

    def test_another_prompt_follows_its_text(self):
        self.text("-p", DOCUMENT)
        told = self.assert_done(self.run_text("-p", " a tree"))
        self.assertIn("follows", told.err)
        n = re.search(r"prefill +\S+ ms +(\d+) tokens.* (\d+) re-used", told.err)
        self.assertLess(int(n[1]), 10)
        self.assertGreater(int(n[2]), 100)
        self.assertNotEqual(told.text, self.text("-p", " a tree", session=False))

    def test_all_saves_the_answer_too(self):
        done = self.assert_done(self.run_text("-p", DOCUMENT, "--session-all"))
        first = done.text
        n_prompt = int(re.search(r"prefill +\S+ ms +(\d+) tokens", done.err)[1])
        told = self.assert_done(self.run_text("-p", "a", "--session-read-only")).err
        self.assertIn(f"goes on after {n_prompt + 6} tokens", told)  # includes the last token of the answer
        second = self.text("-p", "the", "--session-all")
        self.assertNotEqual(first, second)
        told = self.assert_done(self.run_text("-p", "a", "--session-read-only")).err
        self.assertRegex(told, r"goes on after \d+ tokens")

    def test_all_goes_on_after_what_was_shown(self):
        """Not after a stop string, which was not shown: if it begins at a token, the same tokens
        follow."""
        whole = self.text("-p", DOCUMENT, session=False).removesuffix("\n")
        n_same = 0
        for first in range(1, len(whole) - 3):
            stop = whole[first:first + 3]
            shown = self.text("-p", DOCUMENT, "--session-all", "-r", stop).removesuffix("\n")
            self.assertEqual(shown, whole[:whole.index(stop)])
            n_same += self.text("-p", "", "--session-read-only").startswith(whole[len(shown):])
            self.session.unlink()
        self.assertGreaterEqual(n_same, 2)

    def test_all_with_a_method_says_that_a_stop_string_stays(self):
        kv = ["--kv-method", "h2o", "--kv-size", "60"]
        whole = self.text("-p", DOCUMENT, *kv, session=False)
        told = self.assert_done(self.run_text("-p", DOCUMENT, *kv, "--session-all", "-r", whole.removesuffix("\n")[1:])).err
        self.assertIn("cannot come back", told)

    def test_all_writes_the_prompt_before_it_answers(self):
        with subprocess.Popen([WINNOW, "run", "-m", self.model, "--session", self.session, "--session-all", "-p", DOCUMENT, "-n", "-1",
                               "-c", "100000", "--ignore-eos", "--no-display-prompt"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as process:
            process.stdout.read(1)
            process.kill()
        self.assertRegex(self.assert_done(self.run_text("-p", "a", "--session-read-only")).err, r"goes on after \d+ tokens")

    def test_all_leaves_what_belongs_to_a_chat(self):
        self.answers(["the old man"])
        written = self.session.read_bytes()
        self.assert_failed(self.run_text("-p", "a", "--session-all"), "winnow chat", "--session-read-only")
        self.assertEqual(self.session.read_bytes(), written)
        self.text("-p", "a", "--session-read-only")

    def test_a_chat_leaves_what_belongs_to_run(self):
        self.text("-p", DOCUMENT)
        written = self.session.read_bytes()
        self.assert_failed(self.chat(["the house"]), "winnow run", "--session-read-only")
        self.assertEqual(self.session.read_bytes(), written)
        self.answers(["the house"], "--session-read-only")
        self.assertEqual(self.session.read_bytes(), written)

    def test_flags_that_are_given_must_be_the_same(self):
        self.text("-p", DOCUMENT, "-ctk", "f32", "--kv-method", "h2o", "--kv-size", "60")
        self.text("-p", DOCUMENT)
        self.assert_failed(self.run_text("-p", DOCUMENT, "-ctk", "f16"), "F32 keys", "F16 keys")
        self.assert_failed(self.run_text("-p", DOCUMENT, "--kv-method", "full"), "h2o")

    def test_read_only(self):
        self.assertEqual(self.run_text("-p", "a", "--session-read-only").code, 1)
        self.assert_misused(self.run_text("-p", "a", "--session-read-only", session=False), "--session FILE")
        self.assert_misused(self.run_text("-p", "a", "--session-all", "--session-read-only"), "only one")

    def test_no_other_output_takes_its_place(self):
        self.text("-p", DOCUMENT, "--kv-method", "tova", "--kv-size", "50")
        written = self.session.read_bytes()
        for flags in ([], ["--session-read-only"]):
            self.assert_misused(self.run_text("-p", "a", "--trace", self.session, *flags), "--session", "--trace")
            self.assertEqual(self.session.read_bytes(), written)

    def test_what_differs_is_named(self):
        self.text("-p", DOCUMENT, "--kv-method", "tova", "--kv-size", "50")
        for flags, parts in ((["--kv-method", "h2o", "--kv-size", "50"], ["method tova", "method h2o"]),
                             (["--kv-method", "tova", "--kv-size", "51"], ["50 slots", "51 slots"]),
                             (["-ctk", "q8_0"], ["F16 keys", "Q8_0 keys"])):
            told = self.run_text("-p", "a", *flags)
            self.assertEqual(told.code, 1)
            for part in parts:
                self.assertIn(part, told.err)

    def test_damaged_files_are_refused_and_kept(self):
        self.text("-p", DOCUMENT)
        whole = self.session.read_bytes()
        for n in (0, 10, 100, len(whole) // 2, len(whole) - 1):
            self.session.write_bytes(whole[:n])
            told = self.run_text("-p", "a")
            self.assertEqual(told.code, 1, n)
            self.assertIn(str(self.session), told.err)
            self.assertEqual(self.session.read_bytes(), whole[:n])

    def test_an_interrupted_prompt_is_not_saved(self):
        long = self.file("long.txt", DOCUMENT * 3)
        process = subprocess.Popen([WINNOW, "run", "-m", self.model, "-c", "100000", "-f", long, "--session", self.session,
                                    "-t", "1", "-ub", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        if self.session.exists():  # the session was saved before the signal
            self.assertRegex(self.assert_done(self.run_text("-p", "a")).err, "goes on after")

    def test_killed_while_saving_it_is_the_old_one_or_the_new_one(self):
        self.text("-p", "the old man")
        old = self.session.read_bytes()
        for delay in (0.01, 0.02, 0.03, 0.05, 0.08):
            process = subprocess.Popen([WINNOW, "run", "-m", self.model, "-p", DOCUMENT, "--session", self.session, "--temp", "0",
                                        "--session-all", "-n", "4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(delay)
            process.kill()
            process.communicate(timeout=60)
            if self.session.read_bytes() != old:
                break
        self.assert_done(self.run_text("-p", "a"))


class Chat(SessionTest):
    def test_a_conversation_goes_on(self):
        whole = self.answers(["the house", "the tree"], session=False)
        first = self.answers(["the house"])
        second = self.assert_done(self.chat(["the tree"]))
        self.assertEqual(first + second.text.splitlines(), whole)
        read = int(re.search(r"\[prefill (\d+) tokens", second.err)[1])
        self.assertLess(read, 40)  # only the new message

    def test_a_system_prompt_belongs_to_it(self):
        self.answers(["the house"], "-sys", "You are a tree.")
        self.answers(["the house"], "-sys", "You are a tree.")
        told = self.chat(["the house"], "-sys", "You are a house.")
        self.assertEqual(told.code, 1)
        self.assertIn("system prompt", told.err)

    def test_a_document_is_read_once(self):
        document = self.file("document.txt", DOCUMENT)
        other = self.file("other.txt", DOCUMENT + "more")
        kv = ["--kv-method", "h2o", "--kv-ratio", "0.25"]
        questions = ["the house", "a tree"]
        whole = self.answers(questions, "-f", document, *kv, session=False)
        self.assertEqual(self.answers(questions[:1], "-f", document, *kv), whole[:1])
        written = self.session.read_bytes()
        for flags in ([], ["-f", document]):
            told = self.assert_done(self.chat(questions, *flags))
            self.assertEqual(told.text.splitlines(), whole)
            self.assertIn("goes on after", told.err)
        self.assertEqual(self.session.read_bytes(), written)
        told = self.chat(questions, "-f", other)
        self.assertEqual(told.code, 1)
        self.assertIn("another document", told.err)
        # The questions must use the document's template.
        for template in ("llama3", "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}"):
            self.assert_failed(self.chat(questions, "--chat-template", template), "another chat template")

    def test_a_message_that_fails_is_not_part_of_it(self):
        refuses = "{% for m in messages %}{% if m.content == 'no' %}{{ raise_exception('never') }}{% endif %}<{{ m.role }}> {{ m.content }}\n{% endfor %}"
        self.answers(["the house"], "--chat-template", refuses)
        self.assert_failed(self.chat(["no"], "--chat-template", refuses), "never")
        self.answers(["the tree"], "--chat-template", refuses)

    def test_save_and_read_only(self):
        self.assertIn("nowhere to save", self.chat(["/save"], session=False).err)
        self.answers(["the house", "/save"])
        before = self.session.read_bytes()
        self.answers(["the tree"], "--session-read-only")
        self.assertEqual(self.session.read_bytes(), before)



if __name__ == "__main__":
    unittest.main()
