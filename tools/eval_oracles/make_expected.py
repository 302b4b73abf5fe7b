#!/usr/bin/env python3
"""Writes src/eval/metrics/expected_scores.json: what the published scorers say about made-up answers.

The unit tests hold winnow's metrics to it. ROUGE-L, ROUGE-1, edit similarity and BLEU come from the packages that the
papers' evaluations use; the other rules are restated here from their definitions, in a few lines each.

    python3 -m venv build/eval-oracles && build/eval-oracles/bin/pip install -r tools/eval_oracles/requirements.txt
    build/eval-oracles/bin/python tools/eval_oracles/make_expected.py
"""
import collections
import json
import pathlib
import random
import re
import string

import rouge
import sacrebleu
from fuzzywuzzy import fuzz
from rouge_score import rouge_scorer

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/eval/metrics/expected_scores.json"
WORDS = """the a an old captain of ship was said to be very kind and his crew sailed from London in 1843 with twelve
barrels; he wrote letters home every Sunday, "dear friends", about storms, whales (white ones), and the price of rope: $3.50
per yard. Nobody answered! Was it the weather? The lighthouse-keeper's daughter knew better: 7,500 letters never left.
naïve café Übermut Éclair № 5 — “quoted” … 東京 x_y C++ #tag rock&roll 50% of""".split()
CODE = ["    return value", "for i in range(10):", "    if e.text == language:", "const auto found = all.find(name);",
        "x = y  # a comment", "// nothing here", "```python", "print('hello')", "", "    self.assertEqual(a, b)",
        "public static void main(String[] args) {", "}", "int länge = größe;", "let s = `template`;"]
CLASSES = ["Food", "Date", "Order, rank", "Speed", "Other entity", "Other number", "Individual", "Title of a person",
           "Description of a person", "Group or organization of person", "Color", "Number of something", "Weight"]
FIXED = [("", ""), ("", "x"), ("x", ""), ("the", "a"), ("The cat.", "a cat"), ("cat", "cat"), (".", "."), ("a. b. c", "c. b. a"),
         (" . ", "x"), ("one two three", "three two one"), ("A  B\tC\n", "a b c"), ("\u00a0x\u2003y", "x y"),
         ("ÉCLAIR", "éclair"), ("don't", "dont"), ("it's (very) good!", "its very good"), ("3.5", "35"), ("x.", "x")]


def pairs(rng, n):
    """Answers and references that share much, little or nothing."""
    found = list(FIXED)
    while len(found) < n:
        reference = rng.choices(WORDS, k=rng.randrange(1, 40))
        answer = list(reference)
        for _ in range(rng.randrange(0, 25)):
            kind = rng.randrange(3)
            at = rng.randrange(len(answer) + 1)
            if kind == 0 and answer:
                answer.pop(at % len(answer))
            elif kind == 1:
                answer.insert(at, rng.choice(WORDS))
            else:
                end = rng.randrange(at, len(answer) + 1)
                answer[at:end] = reversed(answer[at:end])
        found.append((" ".join(answer), " ".join(reference)))
    return found


def normalise(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def qa_f1(answer, reference):
    answer, reference = normalise(answer).split(), normalise(reference).split()
    same = sum((collections.Counter(answer) & collections.Counter(reference)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(answer), same / len(reference)
    return 2 * precision * recall / (precision + recall)


def rouge_l(answer, reference):
    try:
        return rouge.Rouge().get_scores([answer], [reference], avg=True)["rouge-l"]["f"]
    except ValueError:  # an empty text
        return 0.0


def class_match(answer, reference, classes):
    found = [name for name in classes if name in answer]
    found = [name for name in found if not (name in reference and name != reference)]
    return 1.0 / len(found) if reference in found else 0.0


def number_match(answer, number):
    numbers = re.findall(r"\d+", answer)
    return 0.0 if not numbers else sum(n == str(number) for n in numbers) / len(numbers)


def first_code_line(completion):
    for line in completion.lstrip("\n").split("\n"):
        if "`" not in line and "#" not in line and "//" not in line:
            return line
    return ""


def gsm8k_strict(text):
    match = re.search(r"#### (\-?[0-9\.\,]+)", text)
    return re.sub(r"[$,]|\.$", "", match.group(1)) if match else ""


def bleu(answer, reference):
    return sacrebleu.corpus_bleu([answer], [[reference]], smooth_method="exp", smooth_value=0.0, force=False,
                                 lowercase=False, tokenize="intl", use_effective_order=False).score


def main():
    rng = random.Random(5)
    rouge_1 = rouge_scorer.RougeScorer(["rouge1"], use_stemmer=False)
    texts = []
    for answer, reference in pairs(rng, 80):
        texts.append({"answer": answer, "reference": reference, "normalised": normalise(answer),
                      "qa_f1": qa_f1(answer, reference), "exact": float(normalise(answer) == normalise(reference)),
                      "rouge_l": rouge_l(answer, reference),
                      "rouge_1": rouge_1.score(reference, answer)["rouge1"].fmeasure,
                      "edit": fuzz.ratio(answer, reference) / 100, "bleu": bleu(answer, reference)})
    codes = []
    for _ in range(60):
        completion = "\n" * rng.randrange(3) + "\n".join(rng.choices(CODE, k=rng.randrange(0, 4)))
        reference = rng.choice(CODE)
        line = first_code_line(completion)
        codes.append({"completion": completion, "line": line, "reference": reference,
                      "edit": fuzz.ratio(line, reference) / 100})
    classes = []
    for _ in range(60):
        answer = ", or ".join(rng.choices(CLASSES + ["nothing", "food"], k=rng.randrange(0, 4)))
        reference = rng.choice(CLASSES)
        classes.append({"answer": answer, "reference": reference, "score": class_match(answer, reference, CLASSES)})
    numbers = []
    for _ in range(60):
        number = rng.randrange(1, 31)
        answer = " ".join(rng.choices(["Paragraph", "is", "no. 7", "12", str(number), "3.5", "x2", "-4", "1,234", "٣"],
                                      k=rng.randrange(0, 6)))
        numbers.append({"answer": answer, "number": str(number), "score": number_match(answer, number)})
    hashes = []
    for _ in range(50):
        number = rng.choice(["18", "-5", "1,234", "3.50", "72.", "$9", "0", "12,", ""])
        text = rng.choice(["He has 3.\n#### ", "#### ", "so 5\n####", "answer: ", "####  ", "a #### b #### "]) + number
        hashes.append({"text": text, "number": gsm8k_strict(text)})
    expected = {"texts": texts, "codes": codes, "classes": CLASSES, "class_matches": classes, "numbers": numbers,
                "hashes": hashes}
    lists = [f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]"
             for name, cases in expected.items()]  # a case per line
    OUT.write_text("{\n" + ",\n".join(lists) + "\n}\n", encoding="utf-8")
    print(f"{OUT}: " + ", ".join(f"{len(value)} {name}" for name, value in expected.items()))


if __name__ == "__main__":
    main()
