"""Base class and helpers of the tests of winnow eval."""

import json

from harness import CliTest, winnow

WORDS = "the old man saw a light in the water and the dog ran to the house . ".split()
TEXT = " ".join(WORDS) + " "
METHODS = ["--kv-method", "streaming,snapkv:window=8", "--kv-ratio", "0.5,0.25"]
TASKS = """perplexity kld needle ruler kv-retrieval longeval longbench leval gsm8k coqa truthfulqa multiple-choice
theoremqa mt-bench throughput""".split()


def shuffled(text):
    """The same words in another order, and an extra one."""
    return " ".join(reversed(text.split())) + " zebra"


def without_times(found):
    """The results without what may differ between runs."""
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
        """Sample -> the full cache's answer."""
        return {sample["sample"]: sample["results"][0]["details"]["answer"] for sample in found["samples"]}

    def check_rows(self, found, n_samples, n_variants=5):
        """Every variant ran every sample; the full cache is first, and the others are smaller."""
        rows = found["rows"]
        self.assertEqual((rows[0]["method"], rows[0]["budget"]), ("full", ""))
        self.assertEqual(len({(row["method"], row["budget"]) for row in rows}), n_variants)
        groups = len(rows) // n_variants
        for row in rows:
            self.assertEqual(row["samples"] * groups, n_samples, row)
            self.assertLessEqual(row["cache_share"], 1 if row["method"] == "full" else 0.95, row)
        self.assertEqual(len(found["samples"]), n_samples)

    def check_perfect(self, task, write, score, *flags):
        """`write(answer)` makes the data. The model's own answer must score 1 and a shuffled one
        less."""
        write("no such answer")
        answer = next(iter(self.answers(self.evaluate(task, *flags)).values()))
        self.assertTrue(answer.strip(), "the tiny model says nothing")
        write(answer.strip())
        self.assertEqual(self.evaluate(task, *flags)["rows"][0][score], 100)
        write(shuffled(answer))
        self.assertLess(self.evaluate(task, *flags)["rows"][0][score], 100)
