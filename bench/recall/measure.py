#!/usr/bin/env python3
"""Needle recall and distance from the full cache of every method, on a small model whose answers depend on its cache.

Documents of book text hide four codes; the question at the end asks for one of them. `winnow compare` answers it with the
full cache and with each method at the same number of entries, in one process. Writes Markdown and JSON to --out.

    bench/recall/measure.py --model recall-probe-f16.gguf --text heldout.txt --out docs/benchmarks
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADJECTIVES = """red black white blue green dark bright old new young great little small large long short high low golden
silver wooden broken empty heavy cold warm quiet strange happy sad rich poor wild gentle hidden ancient foreign
royal""".split()
NOUNS = """lantern house door horse table letter window garden river bridge castle tower ship boat road church chair book
box ring sword gun bell clock hat coat glass bottle lamp candle mountain forest field island harbour village city street
room kitchen soldier captain officer doctor prince princess king queen lady merchant servant sailor whale dog cat bird
fish tree flower stone""".split()
# Methods that decide while the document is read have no window; the other methods see the question.
METHODS = """local streaming lm-infinite h2o tova scissorhands roco cam snapkv pyramidkv cake adakv hbw treekv
treekv:prefill=step d2o ems ems:positions=baked keydiff knorm refreekv twilight pyramidinfer""".split()


def document(rng, sentences, n_characters, depth):
    """(text, question, answer) with four needles; the question asks for the one at `depth` of the text."""
    pairs = rng.sample([(a, n) for a in ADJECTIVES for n in NOUNS], 4)
    codes = [f"{rng.randrange(100000):05d}" for _ in pairs]
    start = rng.randrange(len(sentences) - 400)
    text, size = [], 0
    while size < n_characters:
        text.append(sentences[start])
        size += len(text[-1]) + 1
        start = (start + 1) % len(sentences)
    places = [depth] + [rng.random() for _ in pairs[1:]]
    for (adjective, noun), code, place in sorted(zip(pairs, codes, places), key=lambda x: -x[2]):
        text.insert(round(place * (len(text) - 1)), f"The secret code of the {adjective} {noun} is {code}.")
    adjective, noun = pairs[0]
    return " ".join(text), f"Question: What is the secret code of the {adjective} {noun}? Answer:", codes[0]


def split_sentences(text):
    for line in text.splitlines():
        for piece in line.replace("! ", "!\0").replace("? ", "?\0").replace(". ", ".\0").split("\0"):
            if 20 < len(piece) < 400:
                yield piece.strip()


def count_tokens(binary, model, text):
    done = subprocess.run([binary, "tokenize", "-m", model, "-p", text, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"winnow tokenize failed: {done.stderr.strip()}")
    return len(json.loads(done.stdout)["tokens"])


def make_document(arguments, sentences, number, depth):
    """A document of about arguments.tokens tokens: the number of characters per token differs between books."""
    n_characters = arguments.tokens * 3.5
    for _ in range(2):
        rng = random.Random(arguments.seed * 1000 + number)
        found = document(rng, sentences, n_characters, depth)
        n_characters *= arguments.tokens / count_tokens(arguments.winnow, arguments.model, found[0])
    return document(random.Random(arguments.seed * 1000 + number), sentences, n_characters, depth)


def compare(binary, model, text, question, methods, share):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([binary, "compare", "-m", model, "-f", file.name, "--question", question, "--raw",
                               "-n", "8",
                               "--kv-method", ",".join(methods), "--kv-ratio", str(share), "--json"],
                              capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"winnow compare failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default=str(ROOT / "build/release/winnow"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True, help="book text the model has not seen")
    parser.add_argument("--tokens", type=int, default=1800, help="length of the documents, about")
    parser.add_argument("--documents", type=int, default=40)
    parser.add_argument("--shares", default="0.5,0.25,0.125")
    parser.add_argument("--methods", default=None, help="separated by spaces")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=None, help="folder; default: only print")
    arguments = parser.parse_args()

    methods = arguments.methods.split() if arguments.methods else METHODS
    sentences = list(split_sentences(pathlib.Path(arguments.text).read_text(encoding="utf-8")))
    shares = [float(x) for x in arguments.shares.split(",")]
    results = {}
    for number in range(arguments.documents):
        depth = (number % 10 + 0.5) / 10
        text, question, answer = make_document(arguments, sentences, number, depth)
        for share in shares:
            found = compare(arguments.winnow, arguments.model, text, question, methods, share)
            for run in found["answers"]:
                cell = results.setdefault(run["method"], {}).setdefault(share, [])
                cell.append({"right": answer in run["answer"], "depth": depth, "kld": run.get("mean_kld"),
                             "cache_bytes": run["cache_bytes"], "cache_bytes_with_lists": run["cache_bytes_with_lists"],
                             "cache_bytes_full_f16": run["cache_bytes_full_f16"],
                             "prompt_tokens": found["prompt_tokens"]})
        print(f"\r{number + 1} of {arguments.documents} documents", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    head = "| method |" + "".join(f" recall 1/{1 / s:g} | KLD 1/{1 / s:g} | bytes 1/{1 / s:g} |" for s in shares)
    lines = [head, "| --- |" + " ---: | ---: | ---: |" * len(shares)]
    for method, cells in results.items():
        line = f"| `{method}` |"
        for share in shares:
            runs = cells[share]
            recall = statistics.mean(run["right"] for run in runs)
            klds = [run["kld"] for run in runs if run["kld"] is not None]
            size = statistics.mean(run["cache_bytes_with_lists"] / run["cache_bytes_full_f16"] for run in runs)
            line += f" {recall:.3f} | {statistics.mean(klds):.4f} |" if klds else f" {recall:.3f} | |"
            line += f" {size:.3f} |"
        lines.append(line)
    table = "\n".join(lines) + "\n"
    print(table)
    if arguments.out:
        out = pathlib.Path(arguments.out)
        out.mkdir(parents=True, exist_ok=True)
        lengths = [run["prompt_tokens"] for run in next(iter(results.values()))[shares[0]]]
        text = pathlib.Path(arguments.text).name
        (out / "recall.md").write_text(
            "# Recall and distance from the full cache, by method\n\n"
            f"Model `{pathlib.Path(arguments.model).name}`, {arguments.documents} documents of {min(lengths)} to "
            f"{max(lengths)} tokens from `{text}` with four five-digit codes, one asked for at the end, at ten depths. Every "
            "method gets the same share of the prompt as entries per KV head; the prompt, question included, is compressed "
            "at its end. Recall: exact match of the code. KLD: mean over the full cache's answer. bytes: the cache after "
            "the answer, the method's state included, as a share of the full cache's. Made by `bench/recall/measure.py`.\n\n"
            + table, encoding="utf-8")
        lines = [f" {json.dumps(method)}: {json.dumps(cells)}" for method, cells in results.items()]  # one method per line
        (out / "recall.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
