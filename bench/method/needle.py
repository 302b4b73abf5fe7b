#!/usr/bin/env python3
"""Needles at equal bytes: methods with the same storage types, with the question seen when the document is compressed, and hidden.

    python3 bench/method/needle.py --data FOLDER --out build/method      # texts the model was not trained on

Bytes are those of the live entries and of the lists of slots and positions, as a share of the full f16 cache. A first run measures
a method's bytes per entry, from which the number of entries for a share follows. Prints a Markdown table with standard errors;
keeps the results of `winnow eval` in --out, and resumes from them.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

METHODS = ("winnow", "snapkv", "cake")
SHARES = (8, 16, 32)


def evaluate(args, name, flags):
    path = args.out / f"{name}.json"
    if not path.exists():
        command = [args.winnow, "eval", "needle", "--data", args.data, "--needle", "code", "--lengths", str(args.length), "--depths", "5-95+10",
                   "--samples", str(args.documents // 10), "--seed", str(args.seed), "--threads", str(args.threads), *flags, "--json", path]
        command += ["--results", args.out / "results.jsonl"]  # the full cache is measured once
        if args.model:
            command += ["-m", args.model]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return json.loads(path.read_text())


def storage(args):
    return ["-ctk", args.key_type, "-ctv", args.value_type]


def bytes_per_entry(args, method):
    """Bytes with lists per kept entry over all layers and heads, from a run that kept a quarter of the cache."""
    found = evaluate(args, f"{file_name(method)}-probe", ["--kv-method", method, "--kv-ratio", "0.25", *storage(args)])
    result = found["samples"][0]["results"][-1]
    return result["cache_bytes_with_lists"] / result["kept"], result["cache_bytes_full_f16"]


def file_name(method):
    return method.replace(":", "-").replace(",", "-").replace("=", "_")


def column(found, which):
    """Score and share of the bytes for every sample under one variant."""
    results = [sample["results"][which] for sample in found["samples"]]
    problems = {result["problem"] for result in results if "problem" in result}
    if problems:
        sys.exit(f"needle.py: {problems}")
    return ([result["scores"]["exact"] for result in results],
            [result["cache_bytes_with_lists"] / result["cache_bytes_full_f16"] for result in results])


def percent(values):
    mean = sum(values) / len(values)
    error = math.sqrt(sum((x - mean) ** 2 for x in values) / (len(values) - 1) / len(values))
    return f"{100 * mean:.0f} +- {100 * error:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default="build/release/winnow")
    parser.add_argument("--model", help="default: the one inside the binary")
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--length", type=int, default=1800, help="tokens of prompt and answer")
    parser.add_argument("--documents", type=int, default=50)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--key-type", default="q8_0")
    parser.add_argument("--value-type", default="q4_0")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    print("| question | method | bytes | exact, % | better or worse than the full cache, documents |")
    print("| --- | --- | --- | --- | --- |")
    for question, flags in (("seen", []), ("hidden", ["--hide-question"])):
        full = None
        for method in args.methods:
            per_entry, full_bytes = bytes_per_entry(args, method)
            for share in SHARES:
                # From the bytes per entry of the first run: the share of the prompt whose entries take this share of the full cache's bytes.
                prompt = full_bytes / share / per_entry
                ratio = prompt / count_tokens(args, method)
                found = evaluate(args, f"{file_name(method)}-{question}-{share}",
                                 ["--kv-method", method, "--kv-ratio", f"{ratio:.4f}", *storage(args), *flags])
                if full is None:
                    full, _ = column(found, 0)
                    print(f"| {question} | full, f16 | 1 | {percent(full)} | |")
                scores, shares = column(found, -1)
                better = sum(a > b for a, b in zip(scores, full))
                worse = sum(a < b for a, b in zip(scores, full))
                print(f"| {question} | {method} | {sum(shares) / len(shares):.4f} | {percent(scores)} | +{better} -{worse} |", flush=True)


def count_tokens(args, method):
    found = evaluate(args, f"{file_name(method)}-probe", [])
    return found["samples"][0]["results"][-1]["details"]["prompt_tokens"]


if __name__ == "__main__":
    main()
