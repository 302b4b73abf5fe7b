"""`winnow compare --hide-question`: a document is compressed before the questions are known."""
import unittest
from pathlib import Path

from harness import CliTest, winnow

HARBOUR = Path(__file__).resolve().parents[2] / "examples/documents/harbour.txt"
QUESTIONS = {"What is the secret code of the red lantern?": "48213", "What is the locker number of the silver compass?": "7350",
             "What is the birthday of the old bridge?": "14 June"}  # fmt: skip
TEXT = "the old man saw a tree by the river and the boat was gone before the night came back to the house"


def asked(questions, answers=()):
    return [word for question in questions for word in ("-q", question)] + [word for answer in answers for word in ("-a", answer)]


class TheModelInside(CliTest):
    def test_winnow_answers_what_it_had_not_heard(self):
        flags = ("-f", HARBOUR, "--hide-question", *asked(QUESTIONS, QUESTIONS.values()), "--kv-method", "winnow,snapkv", "--equal-bytes", "0.0625",
                 "-ctk", "q8_0", "-ctv", "q4_0", "-n", "12")  # fmt: skip
        found = self.assert_done(winnow("compare", *flags, "--json")).json
        full, ours, snapkv = found["caches"]
        for cache in (full, ours):
            self.assertEqual([answer["question"] for answer in cache["answers"]], list(QUESTIONS))
            self.assertEqual([answer["right"] for answer in cache["answers"]], [True] * 3, cache["answers"])
        self.assertFalse(all(answer["right"] for answer in snapkv["answers"]))
        for cache in (ours, snapkv):
            self.assertLessEqual(cache["cache_bytes_with_lists"], cache["cache_bytes_full_f16"] / 16)
            self.assertEqual(cache["compared_tokens"], sum(len(answer["tokens"]) for answer in full["answers"]))
            of_answers = sum(answer["mean_kld"] * answer["compared_tokens"] for answer in cache["answers"])
            self.assertAlmostEqual(cache["mean_kld"], of_answers / cache["compared_tokens"], places=9)
        page = self.folder / "hidden.html"
        outcome = self.assert_done(winnow("compare", *flags, "--report", page))
        self.assertRegex(outcome.text, r"(?m)^\| winnow +\| 3 of 3 ")
        for question, answer in QUESTIONS.items():
            self.assertIn(question, outcome.text)
            self.assertRegex(outcome.text, rf"(?m)^  winnow: +{answer}$")
        html = page.read_text(encoding="utf-8")
        for part in ("3 questions about one document", "Before the questions.", *QUESTIONS, "read ms"):
            self.assertIn(part, html)

    def test_the_full_cache_answers_as_a_chat_on_the_document_does(self):
        chat = self.assert_done(winnow("chat", "-f", HARBOUR, "-q", "--temp", "0", "-n", "12", stdin="\n".join(QUESTIONS).encode()))
        found = self.assert_done(winnow("compare", "-f", HARBOUR, "--hide-question", *asked(QUESTIONS), "--kv-method", "streaming", "--kv-size", "64",
                                        "-n", "12", "--json")).json  # fmt: skip
        self.assertEqual([answer["answer"] for answer in found["caches"][0]["answers"]], chat.text.splitlines())


    def test_a_chat_on_a_compressed_document_understands_its_questions(self):
        # A question is a prompt of its own in chat: it must not be compressed like the document.
        for method in ("winnow", "kvzip"):
            chat = self.assert_done(winnow("chat", "-f", HARBOUR, "-q", "--temp", "0", "-n", "12", "--kv-method", method, "--kv-ratio", "0.1",
                                           stdin="\n".join(QUESTIONS).encode()))  # fmt: skip
            self.assertEqual(chat.text.splitlines(), list(QUESTIONS.values()), method)


class HiddenQuestions(CliTest):
    def compare(self, *flags, questions=("who saw it?", "where was the boat?"), size="24"):
        return winnow("compare", "-m", self.model, "-p", TEXT, *asked(questions), "--hide-question", "-n", "6", "--kv-method", "h2o,keydiff",
                      "--kv-size", size, *flags)  # fmt: skip

    def caches(self, *flags, **more):
        return self.assert_done(self.compare("--json", *flags, **more)).json["caches"]

    def test_each_question_is_about_the_document_alone(self):
        together = self.caches()
        for i, question in enumerate(("who saw it?", "where was the boat?")):
            for all_of_it, alone in zip(together, self.caches(questions=(question,))):
                for key in ("kept", "cache_bytes", "cache_bytes_with_lists"):
                    self.assertEqual(all_of_it[key], alone[key])
                for key in set(alone["answers"][0]) - {"first_token_ms", "tokens_per_second"}:
                    self.assertEqual(all_of_it["answers"][i][key], alone["answers"][0][key], (all_of_it["method"], key))

    def test_what_is_kept_does_not_depend_on_what_is_asked(self):
        first, second = (self.caches(questions=(question,)) for question in ("who?", "a house by the river, a tree, a boat, a night?"))
        for a, b in zip(first, second):
            self.assertEqual([a[key] for key in ("seen", "kept", "cache_bytes")], [b[key] for key in ("seen", "kept", "cache_bytes")])

    def test_a_large_budget_changes_nothing(self):
        full, *others = self.caches(size="1000")
        for cache in others:
            self.assertLess(abs(cache["mean_kld"]), 1e-6)
            self.assertEqual([answer["tokens"] for answer in cache["answers"]], [answer["tokens"] for answer in full["answers"]])

    def test_without_right_answers_the_table_counts_those_of_the_full_cache(self):
        self.assertRegex(self.assert_done(self.compare(size="1000")).text, r"(?m)^\| h2o +\| 2 of 2 ")

    def test_misuse(self):
        m = ("compare", "-m", self.model, "-p", TEXT, "--kv-method", "h2o", "--kv-size", "24")
        self.assert_misused(winnow(*m, "--hide-question"), "flag --hide-question: give the questions with -q")
        self.assert_misused(winnow(*m, "-q", "a", "-q", "b"), "found 2 questions, expected one; with --hide-question")
        self.assert_misused(winnow(*m, "-q", "a", "-q", "b", "--hide-question", "-a", "c"), "found 1 answers, expected 2")
        self.assert_misused(winnow(*m, "-q", "a", "-a", ""), "the right answer is empty")
        self.assert_failed(winnow(*m, "--hide-question", "-q", "the " * 400, "-c", "128"), "128")


if __name__ == "__main__":
    unittest.main()
