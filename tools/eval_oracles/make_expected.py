#!/usr/bin/env python3
"""Writes src/eval/metrics/expected/*.json: the published scorers' results for invented answers, one
file per kind of score.

Unit tests compare winnow's metrics with them. ROUGE-L, ROUGE-1, edit similarity and BLEU come from
the packages that the papers' evaluations use; the other rules are reimplemented here from their
definitions, in a few lines each.

    python3 -m venv build/eval-oracles && build/eval-oracles/bin/pip install -r tools/eval_oracles/requirements.txt
    build/eval-oracles/bin/python tools/eval_oracles/make_expected.py
"""
import collections
import json
import math
import pathlib
import random
import re
import string

import rouge
import sacrebleu
from fuzzywuzzy import fuzz
from rouge_score import rouge_scorer

OUT = pathlib.Path(__file__).resolve().parents[2] / "src/eval/metrics/expected"
WORDS = """the a an old captain of ship was said to be very kind and his crew sailed from London in 1843 with twelve
barrels; he wrote letters home every Sunday, "dear friends", about storms, whales (white ones), and the price of rope: $3.50
per yard. Nobody answered! Was it the weather? The lighthouse-keeper's daughter knew better: 7,500 letters never left.
naïve café Übermut Éclair № 5 — “quoted” … 東京 x_y C++ #tag rock&roll 50% of""".split()
CODE = ["    return value", "for i in range(10):", "    if e.text == language:", "const auto found = all.find(name);",
        "x = y  # a comment", "// nothing here", "```python", "print('hello')", "", "    self.assertEqual(a, b)",
        "public static void main(String[] args) {", "}", "int länge = größe;", "let s = `template`;"]
CLASSES = ["Food", "Date", "Order, rank", "Speed", "Other entity", "Other number", "Individual", "Title of a person",
           "Description of a person", "Group or organization of person", "Color", "Number of something", "Weight"]
# Words that do not identify a needle.
COMMON = set("""and are as at be by for from has in is it its of on that this thing to was were will with""".split())
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


def found_cases(rng):
    """RULER's string_match_all and string_match_part, and the share of a needle's words (ours)."""
    cases = []
    for _ in range(60):
        references = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 3))) for _ in range(rng.randrange(1, 5))]
        said = [text.upper() if rng.random() < 0.3 else text for text in references if rng.random() < 0.6]
        answer = " ".join(rng.choices(WORDS, k=rng.randrange(0, 6)) + rng.sample(said, len(said)))
        hits = [reference.lower() in answer.lower() for reference in references]
        needle = " ".join(references)
        words = set(normalise(needle).split()) - COMMON
        cases.append({"answer": answer, "references": references, "all": sum(hits) / len(hits), "part": float(any(hits)),
                      "key_words": len(words & set(normalise(answer).split())) / len(words) if words else 0.0})
    return cases


def number_cases(rng):
    """Texts that were built with a known last number."""
    cases = [{"text": text, "number": ""} for text in ("", "none", "x.", "$", "-")]
    while len(cases) < 60:
        written, number = rng.choice([(lambda n: (str(n), str(n)))(rng.randrange(0, 2000)),
                                      (lambda n: (f"-{n}", f"-{n}"))(rng.randrange(1, 99)),
                                      (lambda n: (f"{n:,}", str(n)))(rng.randrange(1000, 9999999)),
                                      (lambda n: (f"${n}.50", f"{n}.50"))(rng.randrange(1, 999)),
                                      (lambda n: (f"${n:,}", str(n)))(rng.randrange(1, 99999))])
        before = rng.choice(["", "First 12, then 7.5: ", "#### 3\n", "It is 1,000 or ", "So ", "x = "])
        after = rng.choice(["", ".", " dollars.", "!", "\nThat is all.", ", of course", "%"])
        cases.append({"text": before + written + after, "number": number})
    return cases


def math_cases(rng):
    """TheoremQA: answers built right or wrong. Floats and lists of them may be 4 % off, integers
    not at all."""
    cases = []
    forms = ["The answer is {}.", "so the answer is {}", "Answer: {}", "We compute 7 and 8.\n{}", "the answer is 3? No: the answer is {}"]
    while len(cases) < 75:
        kind = ("integer", "float", "bool", "option", "list of integer")[len(cases) % 5]
        right = rng.random() < 0.5
        if kind == "integer":
            value = rng.randrange(-50, 5000)
            reference, said = str(value), str(value if right else value + rng.choice([-1, 1]))
        elif kind == "float":
            value = round(rng.uniform(0.1, 400), 2)
            said = f"{value * (1 + rng.choice([-1, 1]) * (rng.uniform(0, 0.035) if right else rng.uniform(0.05, 0.9))):.6f}"
            reference = str(value)
        elif kind == "bool":
            value = rng.random() < 0.5
            reference = "true" if value else "false"
            said = rng.choice(["true", "Yes", "True"] if value == right else ["false", "no", "False"])
        elif kind == "option":
            value = rng.choice("abcd")
            reference = value
            said = rng.choice(["({})", "{}"]).format(value if right else rng.choice([c for c in "abcd" if c != value]))
        else:
            values = rng.sample(range(1, 30), rng.randrange(2, 4))
            reference = json.dumps(values)
            said = ", ".join(map(str, values if right else reversed(values)))
            said = f"[{said}]"
        cases.append({"answer": rng.choice(forms).format(said), "reference": reference, "type": kind, "right": right})
    return cases


def letter_cases(rng):
    """Answers that were built to name known options."""
    cases = [{"answer": answer, "letters": ""} for answer in ("", "none of them", "42", "I do not know", "\n")]
    while len(cases) < 60:
        letters = sorted(rng.sample("ABCD", rng.choice([1, 1, 1, 2, 3])))
        one = letters[0]
        if len(letters) == 1:
            form = rng.choice(["{}", " {}", "({})", "{}.", "({}) the ship", "The answer is {}.", "Answer: {}", "answer is ({}) because it is late",
                               "{}\n\nQuestion: who?", "The old man said ({}).", "Option {}", "{}) the ship"])
            answer = form.format(one)
        else:
            answer = rng.choice(["{}", "Answer: {}", "The answers are {}"]).format(rng.choice(["", ", ", " and ", " & "]).join(letters))
        cases.append({"answer": answer, "letters": "".join(letters)})
    return cases


def choice_cases(rng):
    """TruthfulQA's MC1 and MC2 from log probabilities."""
    cases = []
    for _ in range(60):
        n = rng.randrange(2, 9)
        right = [True] + [rng.random() < 0.4 for _ in range(n - 1)]
        rng.shuffle(right)
        log_probs = [round(rng.uniform(-90, -1), 6) for _ in range(n)]
        shift = max(log_probs)
        weights = [math.exp(x - shift) for x in log_probs]
        cases.append({"log_probs": log_probs, "right": [int(yes) for yes in right], "mc1": float(right[log_probs.index(shift)]),
                      "mc2": sum(w for w, yes in zip(weights, right) if yes) / sum(weights)})
    return cases


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
    for _ in range(80):
        reference = rng.choice(CLASSES)
        named = rng.choices(CLASSES + ["nothing", "food"], k=rng.randrange(0, 3)) + [reference] * (rng.random() < 0.7)
        answer = ", or ".join(rng.sample(named, len(named)))
        classes.append({"answer": answer, "reference": reference, "score": class_match(answer, reference, CLASSES)})
    numbers = []
    for _ in range(80):
        number = rng.randrange(1, 31)
        answer = " ".join(rng.choices(["Paragraph", "is", "no. 7", "12", str(number), str(number), f"({number})", "3.5", "x2", "-4",
                                       "1,234", "٣"], k=rng.randrange(0, 6)))
        numbers.append({"answer": answer, "number": str(number), "score": number_match(answer, number)})
    hashes = []
    for _ in range(50):
        number = rng.choice(["18", "-5", "1,234", "3.50", "72.", "$9", "0", "12,", ""])
        text = rng.choice(["He has 3.\n#### ", "#### ", "so 5\n####", "answer: ", "####  ", "a #### b #### "]) + number
        hashes.append({"text": text, "number": gsm8k_strict(text)})
    expected = {"texts": texts, "codes": codes, "class_matches": classes, "numbers": numbers, "hashes": hashes,
                "found": found_cases(rng), "last_numbers": number_cases(rng), "math_answers": math_cases(rng),
                "letters": letter_cases(rng), "choices": choice_cases(rng)}
    OUT.mkdir(exist_ok=True)
    for name, cases in expected.items():
        lists = {name: cases, "classes": CLASSES} if name == "class_matches" else {name: cases}
        lines = [f"{json.dumps(key)}: [\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in values) + "\n]"
                 for key, values in lists.items()]  # one case per line
        (OUT / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{OUT}: " + ", ".join(f"{len(value)} {name}" for name, value in expected.items()))


if __name__ == "__main__":
    main()
