#!/usr/bin/env python3
"""Speed of winnow against llama.cpp: same file, same threads, same cache types, interleaved.

    compare.py [--winnow build/release/winnow] [--quick] [--shapes ...] [--types ...] [--depth 0] [--rounds 5]

Every round runs both engines once on a file, each in its own process (load, warm-up, one sample of each test), and
the order turns round every time, so that what disturbs the machine disturbs both. Reported are medians over the
rounds. llama.cpp runs with flash attention on and off; the faster of the two counts, test by test. Missing model
files are made (make_shapes.py). The table goes to stdout; --out FOLDER also writes engine-vs-llama-cpp.md and .json
there. --real-time puts both engines under real-time priority (needs root), for a machine that is not quiet.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from make_shapes import ROOT, SHAPES, TYPES, make

HERE = Path(__file__).resolve().parent
GOAL = 0.8  # of llama.cpp's speed


def run_json(command, args):
    if args.real_time:
        command = ["chrt", "--fifo", "1", *command]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def flags_of(args, path):
    return ["-m", path, "-p", args.p, "-n", args.n, "-d", args.depth, "-t", args.t, "-ctk", args.ctk, "-ctv", args.ctv]


def run_winnow(args, path):
    """{test: tokens per second}"""
    rows = run_json([args.winnow, "bench", *flags_of(args, path), "-r", 1, "-o", "json"], args)
    return {("pp" if row["n_prompt"] else "tg"): row["samples_ts"][0] for row in rows}


def run_llama(args, path):
    """({test: {flash attention: tokens per second}}, about the library)"""
    found = run_json([sys.executable, HERE / "llama_bench.py", *flags_of(args, path)], args)
    rates = {"pp": {}, "tg": {}}
    for test in found.pop("tests"):
        rates[test["test"][:2]][test["flash_attention"]] = test["samples_ts"][0]
    return rates, found


def measure(args, shape, kind):
    """One file, all rounds: the samples of both engines."""
    path = make(args.models, shape, kind)
    winnow, llama = {"pp": [], "tg": []}, {"pp": {}, "tg": {}}
    about = {}
    for round_number in range(args.rounds):
        engines = ["winnow", "llama.cpp"]
        for engine in engines[:: 1 if round_number % 2 == 0 else -1]:
            if engine == "winnow":
                for test, rate in run_winnow(args, path).items():
                    winnow[test].append(rate)
            else:
                rates, about = run_llama(args, path)
                for test, by_setting in rates.items():
                    for setting, rate in by_setting.items():
                        llama[test].setdefault(setting, []).append(rate)
    cell = {"shape": shape, "weights": kind, "file_bytes": path.stat().st_size, "load_average": os.getloadavg()[0]}
    for test in ("pp", "tg"):
        best = max(llama[test], key=lambda setting: statistics.median(llama[test][setting]))
        ours, theirs = statistics.median(winnow[test]), statistics.median(llama[test][best])
        cell[test] = {
            "winnow": winnow[test], "llama_cpp": llama[test], "flash_attention": best,
            "winnow_median": ours, "llama_cpp_median": theirs, "ratio": ours / theirs,
        }  # fmt: skip
    return cell, about


def machine():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())  # fmt: skip
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return f"{model}, {os.cpu_count()} cores visible, {memory:.0f} GiB, Linux {platform.release()}"


def winnow_version(args):
    version = subprocess.run([args.winnow, "--version"], capture_output=True, text=True).stdout.strip().splitlines()
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return f"{version[0] if version else 'winnow'}, commit {commit.stdout.strip() or 'unknown'}"


def rate(samples):
    """Median and the range of the others around it."""
    digits = 1 if statistics.median(samples) < 100 else 0
    return f"{statistics.median(samples):.{digits}f} ({min(samples):.{digits}f}..{max(samples):.{digits}f})"


def row(cell):
    parts = [cell["shape"], cell["weights"]]
    for test in ("pp", "tg"):
        values = cell[test]
        setting = values["flash_attention"]
        parts += [rate(values["winnow"]), f"{rate(values['llama_cpp'][setting])}, fa {setting}",
                  f"**{values['ratio']:.2f}**"]  # fmt: skip
    return "| " + " | ".join(parts) + " |"


def report(result):
    setting = result["setting"]
    pp, tg = f"pp{setting['p']}", f"tg{setting['n']}"
    ratios = [cell[test]["ratio"] for cell in result["cells"] for test in ("pp", "tg")]
    lines = [
        "# Speed of winnow against llama.cpp",
        "",
        f"Prefill of {setting['p']} tokens ({pp}) and decode of {setting['n']} ({tg}) with {setting['depth']} tokens in the "
        "cache before; tokens per second, median",
        f"(lowest..highest) of {setting['rounds']} rounds in which the engines took turns, each in its own process. "
        f"{setting['t']} threads, K cache {setting['ctk']}, V cache {setting['ctv']}, micro-batch 512.",
        "llama.cpp's column is the faster of flash attention (fa) on and off. Ratios above 1: winnow is faster. Random "
        "weights at real shapes, quantised by llama.cpp.",
        "",
        f"- date: {result['date']}",
        f"- machine: {result['machine']}; load average while measuring "
        f"{min(c['load_average'] for c in result['cells']):.1f} to {max(c['load_average'] for c in result['cells']):.1f}"
        + ("; both engines at real-time priority, as others used the machine" if setting["real_time"] else ""),
        f"- {result['winnow']}",
        f"- llama.cpp of llama-cpp-python {result['llama_cpp']['version']}, built for this machine: "
        f"{result['llama_cpp']['system_info']}",
        f"- command: `{result['command']}`",
        "",
        f"| shape | weights | winnow {pp} | llama.cpp {pp} | ratio | winnow {tg} | llama.cpp {tg} | ratio |",
        "|---|---|---|---|---|---|---|---|",
        *[row(cell) for cell in result["cells"]],
        "",
        f"Lowest ratio {min(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}; "
        f"{sum(r >= GOAL for r in ratios)} of {len(ratios)} at or above the goal of {GOAL}.",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", type=Path, default=ROOT / "build" / "release" / "winnow")
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "bench-models", help="folder of the files")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--quick", action="store_true", help="the smallest shape only, 3 rounds")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache before each test")
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=64)
    parser.add_argument("-t", type=int, default=2)
    parser.add_argument("-ctk", default="f16")
    parser.add_argument("-ctv", default="f16")
    parser.add_argument("--real-time", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.quick:
        args.shapes, args.rounds = "smollm2-135m", 3
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(), "winnow": winnow_version(args),
        "command": " ".join(["bench/llama_cpp/compare.py", *sys.argv[1:]]),
        "setting": {k: v for k, v in vars(args).items() if k in
                    ("p", "n", "t", "ctk", "ctv", "depth", "rounds", "real_time")},
        "cells": [],
    }  # fmt: skip
    for shape in args.shapes.split(","):
        for kind in args.types.split(","):
            cell, result["llama_cpp"] = measure(args, shape, kind)
            result["cells"].append(cell)
            print(row(cell), file=sys.stderr, flush=True)
    text = report(result)
    print(text, end="")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "engine-vs-llama-cpp.md").write_text(text)
        (args.out / "engine-vs-llama-cpp.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
