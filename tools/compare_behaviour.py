#!/usr/bin/env python3
"""Checks that two builds of winnow behave alike, bit for bit, after a change that must not alter
results.

    tools/compare_behaviour.py OLD_BINARY NEW_BINARY --text FILE [--tokens 12] [--quick] [-m MODEL]

Runs both on the same text: every method that the old build lists, cache types, chunks of the
prompt, row blocks, thread counts and pairs of methods. Compares generated tokens, bytes of the
cache, every plan (--trace), the logits of a perplexity window (--save-logits), the numbers of a
streamed text, and error messages. Prints the differences; exits 1 if there are any. --quick: one
run of each command per method, and the full cache under everything else.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

SIZE = ["--kv-size", "96"]
# Methods that need other arguments than a budget.
ARGUMENTS = {
    "full": [], "twilight": [], "refreekv": [],
    "pyramidinfer": [],
}
SPECS = {
    "pyramidinfer": "pyramidinfer:min_context=32,block=16",
    "custom": "custom:score=heavy,budget=competing,merge=spread,recent=8,when=step",
}
# Fields of --json that vary between runs: times and memory of the process.
VARYING = {"timings", "seconds", "peak_rss_bytes", "load_ms", "tokens_per_second", "resident_bytes"}


def methods(binary):
    lines = subprocess.run([binary, "methods"], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.strip("| ").split()[0] for line in lines[:lines.index("")]]
    return [row for row in rows if row != "method" and not row.startswith("-")]


def method_arguments(name):
    return ["--kv-method", SPECS.get(name, name)] + ARGUMENTS.get(name, SIZE)


def variations(quick, names):
    """Arguments for how the cache is kept and how its text is computed."""
    base = ["-t", "2"]
    for name in names:
        yield method_arguments(name) + base
    if quick:
        for name in ("full", "h2o", "snapkv", "streaming"):
            yield method_arguments(name) + ["-t", "3", "-ub", "40", "-ctk", "q8_0", "-ctv", "q8_0", "--prefill-chunk", "100"]
        return
    for name in names:
        method = method_arguments(name)
        for threads in ("1", "3"):
            yield method + ["-t", threads]
        for rows in ("1", "13", "64"):
            yield method + base + ["-ub", rows]
        for chunk in ("1", "50", "128"):
            yield method + base + ["--prefill-chunk", chunk]
        for kind in ("f32", "bf16", "q8_0", "q4_0"):
            yield method + base + ["-ctk", kind, "-ctv", kind]
        yield ["--kv-method", SPECS.get(name, name), "--kv-ratio", "0.3"] + base
        yield ["--kv-method", SPECS.get(name, name), "--kv-memory", "1M"] + base
        yield method + base + ["--cpu-target", "reference"]
        for decode in ("h2o", "streaming", "tova"):
            yield method + base + ["--kv-decode", decode]


def strip(value):
    if isinstance(value, dict):
        return {key: strip(part) for key, part in value.items() if key not in VARYING}
    if isinstance(value, list):
        return [strip(part) for part in value]
    return value


def outcome(binary, arguments, files, model):
    """The results of a command, with its output files replaced by their hashes."""
    with tempfile.TemporaryDirectory() as folder:
        for option in files:
            arguments = arguments + [option, str(pathlib.Path(folder) / option.strip("-"))]
        result = subprocess.run([binary] + arguments + model, capture_output=True, text=True, check=False)
        try:
            answer = strip(json.loads(result.stdout))
        except json.JSONDecodeError:
            answer = result.stdout
        found = {"exit": result.returncode, "answer": answer}
        if result.returncode != 0:
            found["message"] = result.stderr.replace(folder, "")
        for path in sorted(pathlib.Path(folder).iterdir()):
            found[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--text", required=True)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-m", "--model")
    options = parser.parse_args()
    model = ["-m", options.model] if options.model else []

    text = ["-f", options.text, "--json", "-q"]
    commands = [
        (["run", "-n", str(options.tokens), "--temp", "0", "--ignore-eos"] + text, ["--trace"]),
        (["perplexity", "-c", "192", "--chunks", "1"] + text, ["--save-logits"]),
    ]
    names = methods(options.old)
    lost = [name for name in names if name not in methods(options.new)]
    if lost:
        print(f"methods: the new build has no {', '.join(lost)}")
        return 1
    n_runs = n_failing = n_other = 0
    stream = ["perplexity", "--stream"] + text
    cases = [(command + case, files) for case in variations(options.quick, names) for command, files in commands]
    cases += [(stream + method_arguments(name) + ["-t", "2", "--prefill-chunk", chunk], [])
              for name in names for chunk in (("16",) if options.quick else ("1", "16", "100"))]
    for arguments, files in cases:
        n_runs += 1
        old = outcome(options.old, arguments, files, model)
        new = outcome(options.new, arguments, files, model)
        n_failing += old["exit"] != 0
        if old == new:
            continue
        n_other += 1
        parts = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        print(f"differs in {', '.join(parts)}: winnow {' '.join(arguments)}")
        for key in ("exit", "message", "answer"):
            if key in parts:
                print(f"  old {key}: {str(old.get(key))[:300]}\n  new {key}: {str(new.get(key))[:300]}")
    print(f"{n_runs} commands ({n_failing} refused by the old build), {n_other} differ")
    return 1 if n_other else 0


if __name__ == "__main__":
    sys.exit(main())
