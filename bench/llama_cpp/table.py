#!/usr/bin/env python3
"""The speed table: winnow against llama.cpp (same file, same threads, same cache types) and against the machine.

    table.py [--winnow build/release/winnow] [--quick] [--parts engine depth ...] [--shapes ...] [--types F16 ...] [--rounds 3]
             [--out FOLDER]

Both engines alternate, each in its own process; the results are medians. For every cell llama.cpp counts with the best of its
settings. Missing model files are made (make_shapes.py). The table goes to stdout as Markdown; --out also writes speed.md and
speed.json after every part, so that a stopped run loses only its current part (parts that are not run again stay).
--real-time runs both engines with real-time priority (needs root), for a machine that is not quiet.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from pathlib import Path

import table_parts
from engines import Engines, machine
from make_shapes import ROOT, SHAPES, TYPES


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", type=Path, default=ROOT / "build/release/winnow")
    parser.add_argument("--models", type=Path, default=ROOT / "build/bench-models", help="folder of the files")
    parser.add_argument("--parts", nargs="+", default=[p for p in table_parts.PARTS if p != "ik_llama"], choices=list(table_parts.PARTS), metavar="PART",
                        help=f"of {', '.join(table_parts.PARTS)}; all but ik_llama, whose library is compiled first")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES), help="of the parts engine and ik_llama")
    parser.add_argument("--types", nargs="+", default=list(TYPES), choices=TYPES, help="of the parts engine and ik_llama")
    parser.add_argument("--quick", action="store_true", help="the smallest shape, lower depths, fewer rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", type=int, default=2, help="threads")
    parser.add_argument("--real-time", action="store_true")
    parser.add_argument("--out", type=Path, help="folder of speed.md and speed.json")
    args = parser.parse_args()
    if not args.winnow.is_file():
        parser.error(f"--winnow {args.winnow}: no such file; `make build` makes build/release/winnow")
    return args


def number(x):
    return f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def samples(values):
    """Median and range."""
    if not values:
        return "–"
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"


def row(cell):
    rival = samples(cell["rival"]) + (f", {cell['rival_name']}" if cell["rival_name"] else "")
    limit = f"{100 * cell['limit']:.0f} %" if cell.get("limit") else ""
    goal, verdict = "", ""
    if cell["goal"] is not None:
        met = cell["score"] <= cell["goal"] if cell["lower"] else cell["score"] >= cell["goal"]
        goal, verdict = ("≤ " if cell["lower"] else "≥ ") + number(cell["goal"]), "" if met else " (missed)"
    return f"| {cell['name']} | {cell['unit']} | {samples(cell['winnow'])} | {rival} | **{cell['score']:.2f}**{verdict} | {goal} | {limit} |"


def markdown(result):
    about = result["about"]
    lines = ["# Speed", "",
             "Against llama.cpp at the best of its settings for the cell (flash attention on; off; off with keys in q8_0), named beside its figure, or against what",
             "the row names. Medians (lowest..highest). The result is a ratio, higher is better, except in rows with an upper bound. Limit: bytes of weights and cache that a",
             "token needs, times tokens per second, as a share of the memory bandwidth measured in the same run. Random weights at real shapes, f16 cache",
             "unless stated otherwise. Repeated by `make bench`.", "",
             f"- {about['date']}; {about['machine']}; {about['threads']} threads; memory read at {about['bandwidth']:.1f} GB/s"
             + ("; both engines at real-time priority, as others used the machine" if about["real_time"] else ""),
             f"- {about['winnow']}"]  # fmt: skip
    if "llama_cpp_version" in about:
        lines.append(f"- llama.cpp of llama-cpp-python {about['llama_cpp_version']}, built for this machine: {about['llama_cpp_system_info']}")
    lines.append("")
    for part, found in result["parts"].items():
        lines += [f"## {table_parts.PARTS[part].title}", "", table_parts.PARTS[part].text, "",
                  "| what | unit | winnow | against | result | goal | of the limit |", "|---|---|---|---|---|---|---|",
                  *map(row, found["cells"]), "", f"Load average {found['load']:.1f}, {found['seconds'] / 60:.1f} minutes.", ""]  # fmt: skip
    cells = [c for found in result["parts"].values() for c in found["cells"] if c["goal"] is not None]
    missed = [c for c in cells if (c["score"] > c["goal"] if c["lower"] else c["score"] < c["goal"])]
    lines.append(f"{len(cells) - len(missed)} of {len(cells)} goals reached.")
    return "\n".join(lines) + "\n"


def main():
    args = arguments()
    engines = Engines(args.winnow, args.models, args.t, args.real_time)
    result, file = {"parts": {}}, args.out / "speed.json" if args.out else None
    if file and file.exists():
        result = json.loads(file.read_text())
    result["about"] = {**result.get("about", {}), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
                       "machine": machine(), "winnow": engines.version(), "real_time": args.real_time,
                       "bandwidth": engines.bandwidth()}  # fmt: skip
    run = table_parts.Run(engines, args, result["about"]["bandwidth"])
    for name in [p for p in table_parts.PARTS if p in args.parts]:
        started = time.time()
        print(f"{name} ...", file=sys.stderr, flush=True)
        cells = table_parts.PARTS[name](run)
        result["parts"][name] = {"cells": cells, "load": os.getloadavg()[0], "seconds": time.time() - started}
        result["parts"] = {p: result["parts"][p] for p in table_parts.PARTS if p in result["parts"]}
        result["about"].update(engines.about)
        for cell in cells:
            print(row(cell), file=sys.stderr, flush=True)
        if file:
            args.out.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(result, indent=1) + "\n")
            (args.out / "speed.md").write_text(markdown(result))
    print(markdown(result), end="")


if __name__ == "__main__":
    main()
