#!/usr/bin/env python3
"""Prints a model's card as Markdown from measurements and logs. All figures come from these files.

Missing ones appear as "not measured".
"""
import argparse
import collections
import json
import pathlib

import model

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NONE = "not measured"


def percent(rows):
    return f"{100 * sum(r['right'] for r in rows) / len(rows):.1f}" if rows else NONE


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, r)) + " |" for r in rows])


def recall(results, held):
    cells = collections.defaultdict(list)
    for r in results:
        if r["key"][0] == "needle" and r["key"][1] == held:
            cells[r["key"][2], r["depth"]].append(r)
    lengths = sorted({n for n, _ in cells})
    rows = [[n, *[percent(cells[n, d]) for d in range(10)], percent([r for d in range(10) for r in cells[n, d]]),
             min(len(cells[n, d]) for d in range(10))] for n in lengths]
    return table(["tokens", *[f"{(d + 0.5) / 10:.2f}" for d in range(10)], "mean", "documents per cell"], rows) if rows else NONE


def task_table(results):
    cells = collections.defaultdict(list)
    for r in results:
        name, held, length, _ = r["key"]
        if name not in ("needle", "text", "quote"):
            cells[name, length, held].append(r)
    rows = [[name, n, percent(cells[name, n, False]), percent(cells[name, n, True]), len(cells[name, n, False])]
            + ([f"{100 * sum(r['found'] for r in cells[name, n, False]) / len(cells[name, n, False]):.1f}"] if name == "multi_value" else [""])
            for name, n in sorted({(name, n) for name, n, _ in cells})]
    return table(["task", "tokens at most", "right, %", "held-out wordings, %", "documents", "single values, %"], rows) if rows else NONE


def bits(results, name, marked, held=None):
    rows = [r for r in results if r["key"][0] == name and held in (None, r["key"][1])]
    if not rows:
        return NONE
    prefix = "marked_" if marked else ""
    return f"{sum(r[prefix + 'bits'] for r in rows) / sum(r[prefix + 'bytes'] for r in rows):.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=pathlib.Path, help="what measure.py wrote")
    parser.add_argument("--config", default=HERE / "configs/s.json", type=pathlib.Path)
    parser.add_argument("--data", default=ROOT / "build/train/data", type=pathlib.Path)
    parser.add_argument("--log", type=pathlib.Path, help="default: build/train/NAME/log.jsonl")
    args = parser.parse_args()
    config, data = json.loads(args.config.read_text()), json.loads((args.data / "data.json").read_text())
    shape = model.Shape(**config["shape"])
    log = [json.loads(x) for x in (args.log or ROOT / "build/train" / config["name"] / "log.jsonl").read_text().splitlines()]
    by_label = collections.defaultdict(list)
    for line in args.results.read_text().splitlines():
        r = json.loads(line)
        by_label[r["label"]].append(r)
    full = by_label["full"]
    last, start = log[-1], next(x for x in log if x["kind"] == "start")
    print(f"## winnow-{config['name']}\n")
    print(f"Architecture {shape.architecture}, {start['parameters']:,} parameters: {shape.layers} layers of {shape.dim}, {shape.heads} query heads and "
          f"{shape.kv_heads} KV heads of {shape.head_dim}, SwiGLU {shape.ffn}, vocabulary {shape.vocab}, tied embeddings, RoPE base "
          f"{shape.theta:g}, context {shape.context}. Licence: Apache-2.0.\n")
    print(f"Training: {last['tokens']:,} tokens in {last['seconds'] / 3600:.2f} h ({start['products']}), seed {config['seed']}. Text: "
          f"{data['train']['chapters']} chapters of public-domain books ({data['train']['bytes']:,} bytes, {data['train']['tokens']:,} "
          f"tokens); held out: {data['held']['chapters']} whole chapters ({data['held']['bytes']:,} bytes):\n")
    by_book = collections.Counter(h.split(":")[0] for h in data["held_out"])  # a whole book counts as all its chapters
    print("\n".join(f"- {book}: {n} {'chapter' if n == 1 else 'chapters'}" for book, n in by_book.items()) + "\n")
    print("### Measured by winnow, full cache, greedy\n\nNeedle recall, % by depth, four facts in held-out text, one asked for; words and wordings as in training:\n")
    print(recall(full, False) + "\n\nThe same with keys and wordings not seen in training:\n\n" + recall(full, True))
    print("\nTasks:\n\n" + task_table(full) + "\n\nBits per byte:\n")
    labels = [x for x in dict.fromkeys(("full", *sorted(by_label))) if x in by_label]
    print(table(["cache", "held-out text", "with quoted passages", "the quotes alone", "quotes, held-out wordings"],
                [[x, bits(by_label[x], "text", False), bits(by_label[x], "quote", False), bits(by_label[x], "quote", True, False),
                  bits(by_label[x], "quote", True, True)] for x in labels]))
    for label in labels[1:]:
        if any(r["key"][0] == "needle" for r in by_label[label]):
            print(f"\nNeedle recall with `{by_label[label][0]['flags']}`:\n\n" + recall(by_label[label], False))


if __name__ == "__main__":
    main()
