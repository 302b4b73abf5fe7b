#!/usr/bin/env python3
"""Which of the papers' orderings hold: method against method on the same documents, windows and stretches of text: at equal bytes, streams at
equal entries.

    python3 bench/study/orderings.py --samples docs/study/samples.json --out docs/study/orderings.md

Reads the scores of every sample that run.py wrote. A difference is the mean over pairs with its 95 % confidence interval (Student's t). "yes" means
significantly in favour and "no" significantly against, by a randomization test of the paired differences at 5 % over all cells of a table (Holm);
"open" means neither.
"""
import argparse
import json
import math
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import student  # noqa: E402

SHARES = ["0.5", "0.25", "0.125", "0.0625", "0.03125"]
N_FLIPS = 20000  # random sign flips of the differences
# (claim, method, the method it is claimed to be better than)
ANSWERS = [("D2O over H2O", "d2o", "h2o"),
           ("HBW over SnapKV", "hbw", "snapkv"), ("HBW without pooling over SnapKV", "hbw:pool=none", "snapkv"), ("EMS over SnapKV", "ems", "snapkv"),
           ("EMS over H2O", "ems", "h2o"), ("TreeKV over StreamingLLM", "treekv", "streaming"), ("TreeKV over H2O", "treekv", "h2o"),
           ("TreeKV over TOVA", "treekv", "tova"), ("SnapKV over StreamingLLM", "snapkv", "streaming"),
           ("every method over chance: StreamingLLM over random", "streaming", "random"), ("H2O over random", "h2o", "random"),
           ("sparing the sinks in D2O", "d2o:into_sinks=false", "d2o"),
           ("D2O, sinks spared, over H2O", "d2o:into_sinks=false", "h2o"),
           ("PyramidKV over SnapKV", "pyramidkv", "snapkv"), ("Ada-KV over SnapKV", "adakv", "snapkv"), ("CAKE over SnapKV", "cake", "snapkv")]  # fmt: skip
# These compress only the prompt: in the second half of a window their cache grows, unlike that of the other methods.
GROWS = {"snapkv", "pyramidkv", "pyramidinfer", "cake", "adakv", "twilight", "hbw", "hbw:pool=none", "refreekv"}
STREAMS = [("TreeKV over StreamingLLM", "treekv", "streaming"), ("TreeKV over H2O", "treekv", "h2o:sinks=4,recent=0.5,positions=reassigned"),
           ("TreeKV over TOVA", "treekv", "tova:sinks=4,recent=0.5,positions=reassigned"), ("TreeKV over the local window", "treekv", "local"),
           ("TreeKV over always keeping the left", "treekv", "treekv:select_left=true")]  # fmt: skip


def paired(a, b, better=1):
    """better * (a - b) for every key that both have."""
    return [better * (a[k] - b[k]) for k in a if k in b]


def chance(differences):
    """Two-sided p-value of the mean if both signs of every difference were equally likely. Up to 14 pairs: over all signs. More pairs: over a random
    sample of signs, or Hoeffding's bound if that is smaller, because a sample alone could not pass Holm's correction over a thousand comparisons."""
    wanted, n = abs(sum(differences)) - 1e-12, len(differences)
    if n <= 14:
        sums = [sum(d if bits >> i & 1 else -d for i, d in enumerate(differences)) for bits in range(1 << n)]
        return sum(abs(s) >= wanted for s in sums) / len(sums)
    rng, changed = random.Random(0), [d for d in differences if d]
    hits = sum(abs(sum(d if rng.getrandbits(1) else -d for d in changed)) >= wanted for _ in range(N_FLIPS))
    squares = sum(d * d for d in changed)
    bound = 2 * math.exp(-wanted * wanted / (2 * squares)) if wanted > 0 else 1.0
    return min((hits + 1) / (N_FLIPS + 1), bound)


def holm(p_values):
    """Whether each p-value is significant at 5 % over all of them."""
    found, order = [False] * len(p_values), sorted(range(len(p_values)), key=lambda i: p_values[i])
    for rank, i in enumerate(order):
        if p_values[i] > 0.05 / (len(order) - rank):
            break
        found[i] = True
    return found


def half_width(differences):
    """Half the width of the 95 % confidence interval of the mean."""
    n = len(differences)
    return student.half_width(n) * statistics.stdev(differences) / math.sqrt(n)


def verdicts(cells, form):
    """The texts of table cells, given the paired differences of each cell; a cell with fewer than 5 pairs stays empty."""
    told = [(row, column) for row, line in enumerate(cells) for column, found in enumerate(line) if len(found) >= 5]
    significant = dict(zip(told, holm([chance(cells[row][column]) for row, column in told])))
    texts = [[""] * len(line) for line in cells]
    for row, column in told:
        found = cells[row][column]
        mean, around = statistics.mean(found), half_width(found)
        word = "open" if not significant[row, column] else "yes" if mean > 0 else "**no**"
        texts[row][column] = f"{word} ({form.format(mean)}, {form.format(mean - around)} to {form.format(mean + around)})"
    return texts


def scores(part, score, tasks=None):
    """{(method, budget): {sample: score}} for f16 caches."""
    out = {}
    for sample in part["samples"]:
        if tasks and sample["task"] not in tasks:
            continue
        for (method, budget, types), value in zip(part["ways"], sample.get(score, [])):
            if types == "f16" and value is not None:
                out.setdefault((method, budget), {})[sample["sample"]] = value
    return out


def stretches(part):
    """{(method, budget): {place in the text: mean negative log likelihood of that stretch}}."""
    out = {}
    for sample in part["samples"]:
        for (method, budget, _), points in zip(part["ways"], sample.get("points", [])):
            before_n, before_sum = 0, 0.0
            line = out.setdefault((method, budget), {})
            for tokens, nll in points:
                line[sample["sample"], tokens] = (nll * tokens - before_sum) / (tokens - before_n)
                before_n, before_sum = tokens, nll * tokens
    return out


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def by_share(claims, measured, better, form):
    cells = [[paired(measured.get((own, f"equal bytes {s}"), {}), measured.get((other, f"equal bytes {s}"), {}), better) for s in SHARES]
             for _, own, other in claims]
    rows = [[claim, *line] for (claim, *_), line in zip(claims, verdicts(cells, form)) if any(line)]
    return table(["claim", "1/2", "1/4", "1/8", "1/16", "1/32"], rows)


def adaptive(part):
    """The share of the prompt's entries that refreekv keeps, and its right answers, by task."""
    rows = []
    by_task = {}
    ways = [tuple(way) for way in part["ways"]]
    own, full = ways.index(("refreekv", "", "f16")), ways.index(("full", "", "f16"))
    for sample in part["samples"]:
        kept, score = sample["kept"], sample["score"]
        by_task.setdefault(sample["task"], []).append((kept[own] / kept[full], score[own], score[full]))
    for task, cells in sorted(by_task.items(), key=lambda item: -statistics.mean(c[0] for c in item[1])):
        kept, own, full = (statistics.mean(c[i] for c in cells) for i in range(3))
        error = statistics.stdev(c[0] for c in cells) / math.sqrt(len(cells)) if len(cells) > 1 else 0
        rows.append([task, f"{kept:.3f} ± {error:.3f}", f"{own:.2f}", f"{full:.2f}", str(len(cells))])
    return table(["task", "kept", "right", "right with the full cache", "documents"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", required=True, type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    parts = json.loads(args.samples.read_text())
    text = ["# Which orderings hold", "",
            "Pairs are the same document or window under two methods at equal bytes, lists included, or the same stretch of 5,000 tokens at equal entries;",
            'documents too short for what a method must keep are left out. "yes": better, "no": worse,',
            "significantly at 5 % over all cells of a table (randomization test of the paired differences, Holm's correction); open: neither. In brackets",
            "the mean difference, positive in favour of the claim, and its 95 % confidence interval.", ""]  # fmt: skip
    if "recall" in parts:
        text += ["## Answers (all tasks), share of right ones", "", by_share(ANSWERS, scores(parts["recall"], "score"), 1, "{:+.3f}")]
        text += ["## Needles alone", "", by_share(ANSWERS, scores(parts["recall"], "score", {"needle"}), 1, "{:+.3f}")]
    if "hidden" in parts:
        text += ["## Answers (all tasks), the document compressed before its questions", "", by_share(ANSWERS, scores(parts["hidden"], "score"), 1, "{:+.3f}")]
    if "own-size" in parts:
        text += ["## How much refreekv keeps", "", adaptive(parts["own-size"])]
    if "kld" in parts:
        alike = [c for c in ANSWERS if (c[1] in GROWS) == (c[2] in GROWS)]
        text += ["## KL divergence from the full cache, nats per token", "",
                 "Only pairs that both hold the budget, or both grow, while the second half of a window is read.", "",
                 by_share(alike, scores(parts["kld"], "kld"), -1, "{:+.4f}")]  # fmt: skip
    if "stream" in parts:
        lines = stretches(parts["stream"])
        sizes = sorted({budget for _, budget in lines if budget}, key=lambda b: int(b.split()[1]))
        cells = [[paired(lines.get((own, s), {}), lines.get((other, s), {}), -1) for s in sizes] for _, own, other in STREAMS]
        rows = [[claim, *line] for (claim, *_), line in zip(STREAMS, verdicts(cells, "{:+.4f}"))]
        text += ["## A stream of all held-out text, nats per token", "", table(["claim", *sizes], rows)]
    done = "\n".join(text)
    print(done)
    if args.out:
        args.out.write_text(done)


if __name__ == "__main__":
    main()
