#!/usr/bin/env python3
"""Which of the papers' orderings hold: method against method on the same documents, windows and stretches of text.

    python3 bench/study/orderings.py --samples docs/study/samples.json --out docs/study/orderings.md

Reads the scores of every sample that run.py wrote. A difference is the mean over pairs with its standard error; "yes" is more than two of
these in favour, "no" more than two against, "open" what lies between.
"""
import argparse
import json
import math
import pathlib
import statistics

SHARES = ["0.5", "0.25", "0.125", "0.0625"]
# (claim, method, the one it is said to be better than). A method with a factor: at that part of the other's share. The published gate of D2O gives
# every layer of prompts of this length twice the budget, so half the share takes the bytes of the other method.
ANSWERS = [("D2O at half the share (equal bytes) over H2O", ("d2o", 0.5), "h2o"),
           ("HBW over SnapKV", "hbw", "snapkv"), ("HBW without pooling over SnapKV", "hbw:pool=none", "snapkv"), ("EMS over SnapKV", "ems", "snapkv"),
           ("EMS over H2O", "ems", "h2o"), ("TreeKV over StreamingLLM", "treekv", "streaming"), ("TreeKV over H2O", "treekv", "h2o"),
           ("TreeKV over TOVA", "treekv", "tova"), ("SnapKV over StreamingLLM", "snapkv", "streaming"),
           ("every method over chance: StreamingLLM over random", "streaming", "random"), ("H2O over random", "h2o", "random"),
           ("sparing the sinks in D2O", "d2o:into_sinks=false", "d2o"),
           ("D2O, sinks spared, at half the share (equal bytes) over H2O", ("d2o:into_sinks=false", 0.5), "h2o"),
           ("PyramidKV over SnapKV", "pyramidkv", "snapkv"), ("Ada-KV over SnapKV", "adakv", "snapkv"), ("CAKE over SnapKV", "cake", "snapkv")]  # fmt: skip
# Compress the prompt only: in the second half of a window their cache grows, that of others does not.
GROWS = {"snapkv", "pyramidkv", "pyramidinfer", "cake", "adakv", "twilight", "hbw", "hbw:pool=none", "refreekv"}
STREAMS = [("TreeKV over StreamingLLM", "treekv", "streaming"), ("TreeKV over H2O", "treekv", "h2o:sinks=4,recent=0.5,positions=reassigned"),
           ("TreeKV over TOVA", "treekv", "tova:sinks=4,recent=0.5,positions=reassigned"), ("TreeKV over the local window", "treekv", "local"),
           ("TreeKV over always keeping the left", "treekv", "treekv:select_left=true")]  # fmt: skip


def paired(a, b, better=1):
    """(mean of better * (a - b), standard error, pairs) over the keys both have."""
    differences = [better * (a[k] - b[k]) for k in a if k in b]
    if len(differences) < 2:
        return None
    return statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(differences)), len(differences)


def verdict(found, form="{:+.3f}"):
    if found is None:
        return ""
    mean, error, _ = found
    word = "open"
    if abs(mean) > 2 * error and mean != 0:
        word = "yes" if mean > 0 else "**no**"
    return f"{word} ({form.format(mean)} ± {form.format(error).lstrip('+')})"


def scores(part, score, tasks=None):
    """{(method, budget): {sample: score}} of the f16 cache."""
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
    rows = []
    for claim, own, other in claims:
        method, factor = own if isinstance(own, tuple) else (own, 1)
        pairs = [(measured.get((method, f"ratio {float(s) * factor:g}"), {}), measured.get((other, f"ratio {s}"), {})) for s in SHARES]
        cells = [verdict(paired(a, b, better), form) for a, b in pairs]
        if any(cells):
            rows.append([claim, *cells])
    return table(["claim", "1/2", "1/4", "1/8", "1/16"], rows)


def adaptive(part):
    """Entries that refreekv keeps, as a share of the prompt, and right answers, by task."""
    rows = []
    by_task = {}
    ways = [(method, types) for method, _, types in part["ways"]]
    own, full = ways.index(("refreekv", "f16")), ways.index(("full", "f16"))
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
            'Pairs are the same document, window or stretch of 5,000 tokens under two methods; "yes": better by more than two standard errors, "no": worse by',
            "as much, open: neither. In brackets the mean difference, positive in favour of the claim, and its standard error.", ""]  # fmt: skip
    if "recall" in parts:
        text += ["## Answers (all tasks), share of right ones", "", by_share(ANSWERS, scores(parts["recall"], "score"), 1, "{:+.3f}")]
        text += ["## Needles alone", "", by_share(ANSWERS, scores(parts["recall"], "score", {"needle"}), 1, "{:+.3f}")]
        text += ["## How much refreekv keeps", "", adaptive(parts["recall"])]
    if "kld" in parts:
        alike = [c for c in ANSWERS if (c[1] in GROWS) == (c[2] in GROWS)]
        text += ["## KL divergence from the full cache, nats per token", "",
                 "Only pairs that both hold the budget, or both grow, while the second half of a window is read.", "",
                 by_share(alike, scores(parts["kld"], "kld"), -1, "{:+.4f}")]  # fmt: skip
    if "stream" in parts:
        lines = stretches(parts["stream"])
        sizes = sorted({budget for _, budget in lines if budget}, key=lambda b: int(b.split()[1]))
        rows = [[claim, *(verdict(paired(lines.get((own, s), {}), lines.get((other, s), {}), -1), "{:+.4f}") for s in sizes)] for claim, own, other in STREAMS]
        text += ["## A stream of all held-out text, nats per token", "", table(["claim", *sizes], rows)]
    done = "\n".join(text)
    print(done)
    if args.out:
        args.out.write_text(done)


if __name__ == "__main__":
    main()
