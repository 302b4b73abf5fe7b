"""The bundled model, and the document of `make demo`."""

import hashlib
import pathlib
import unittest

from harness import SHARED, CliTest, winnow

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/winnow-s-Q8_0.gguf"
DOCUMENT = ROOT / "examples/documents/harbour.txt"
FACTS = {
    "What is the secret code of the red lantern?": "48213",
    "What is the password of Clara Winter?": "thunder",
    "What is the locker number of the silver compass?": "7350",
    "What is the home town of Felix Marsh?": "Vienna",
    "What is the birthday of the old bridge?": "14 June",
}


class Bundled(CliTest):
    def ask(self, question, *flags):
        """The bundled model's answer to a question about the document, in the plain form."""
        prompt = f"{DOCUMENT.read_text(encoding='utf-8').strip()}\n\nQuestion: {question}\nAnswer:"
        return self.assert_done(winnow("run", "-f", self.file("prompt.txt", prompt), "-n", "16", "--temp", "0", "--json", *flags)).json

    def test_used_without_a_model_and_said_so(self):
        outcome = self.assert_done(winnow("run", "-p", "The old man", "-n", "4", "--temp", "0"))
        self.assertIn("part of winnow", outcome.err)
        self.assertIn("-m FILE", outcome.err)
        named = self.assert_done(winnow("run", "-m", "bundled", "-p", "The old man", "-n", "4", "--temp", "0", "-q"))
        self.assertEqual(named.out, outcome.out)
        self.assertEqual(named.err, "")
        for command in (["inspect"], ["tokenize", "-p", "x"]):
            self.assertIn("part of winnow", self.assert_done(winnow(*command)).err, command)

    def test_is_the_file_of_the_repository(self):
        of_file = self.assert_done(winnow("inspect", MODEL, "--json")).json
        bundled = self.assert_done(winnow("inspect", "bundled", "--json")).json
        self.assertEqual({**of_file, "file": None}, {**bundled, "file": None})
        text = self.file("text.txt", "It was a large house with a green door. " * 40)
        found = self.assert_done(winnow("eval", "kld", "--data", text, "--lengths", "128", "--chunks", "1", "--json", "-")).json
        self.assertEqual(found["model"]["hash"], "sha256:" + hashlib.sha256(MODEL.read_bytes()).hexdigest())

    def test_a_file_of_that_name_is_reached_by_its_path(self):
        self.file("bundled", MODEL.read_bytes()[:100])
        self.assert_failed(winnow("inspect", self.folder / "bundled"), "bundled")

    def test_answers_from_the_document(self):
        found = {question: self.ask(question) for question in FACTS}
        self.assertGreater(min(answer["prompt_tokens"] for answer in found.values()), 1500)
        right = [question for question, answer in found.items() if FACTS[question] in answer["text"]]
        self.assertGreaterEqual(len(right), 4, {q: a["text"] for q, a in found.items()})

    def test_a_recent_window_forgets(self):
        right = [question for question, fact in FACTS.items()
                 if fact in self.ask(question, "--kv-method", "streaming", "--kv-ratio", "0.0625")["text"]]
        self.assertLessEqual(len(right), 1, right)


class TreeKvInParts(CliTest):
    """The tree continues from chunk to chunk of a prompt
    (docs/methods/treekv.md#chunks-and-turns)."""

    BOOK = SHARED / "more_books/bram-stoker_dracula.txt"

    def kept_per_sixth(self, method, chunk):
        """Tokens kept in each sixth of 1800, the mean over layers and heads."""
        flags = ["--prefill-chunk", chunk] if chunk else []
        found = self.assert_done(winnow("probe", "kept", "-f", self.BOOK, "-n", "1800", "--samples", "1", "--prompt-tokens", "1800",
                                        "--kv-size", "512", "--kv-method", method, *flags, "--json", "-")).json
        heads = [head for layer in found["probes"][0]["evicted_at"][0]["layers"] for head in layer]
        return [sum(evicted_at == -1 for head in heads for evicted_at in head[i * 300:(i + 1) * 300]) / len(heads) for i in range(6)]

    def test_chunks_keep_the_same_tree(self):
        if not self.BOOK.exists():
            self.skipTest("skipped: no ../shared/data/more_books")
        # Without votes only the pairs decide: chunks must not change them.
        whole = self.kept_per_sixth("treekv:select_left=true", None)
        for chunk in (64, 256):
            self.assertEqual(self.kept_per_sixth("treekv:select_left=true", chunk), whole, chunk)
        # The votes differ slightly. Blocks of 8 are fine enough to bound this; 15 blocks of 32 are
        # not.
        whole = self.kept_per_sixth("treekv:block=8", None)
        for chunk in (64, 256):
            for sixth, (part, all_at_once) in enumerate(zip(self.kept_per_sixth("treekv:block=8", chunk), whole)):
                self.assertLess(abs(part - all_at_once), 0.25 * all_at_once, (chunk, sixth))


if __name__ == "__main__":
    unittest.main()
