#!/usr/bin/env python3
"""Repeats the tables and figures of a paper, as far as one machine and small models can, and writes its page.

    python3 bench/papers/run.py --paper ems                        # all of its rows that have a command
    python3 bench/papers/run.py --paper ems --rows tau,gamma       # these
    python3 bench/papers/run.py --paper all --page                 # runs nothing: pages of what was found

The rows stand in bench/papers/rows/PAPER.py: the claim, the paper's number, the command, how its output is read. A row that is
in OUT/PAPER.json is not run again unless --again says so; `winnow eval` itself goes on where it was stopped (WORK/results.jsonl).
Writes OUT/PAPER.json (what was found) and OUT/PAPER.md (the page), after every row.
"""
import argparse
import importlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from page import write_page  # noqa: E402

PAPERS = ["treekv", "refreekv", "d2o", "hbw", "ems"]


def outputs_of(args, paper, row):
    return [args.work / f"{paper}-{row.name}-{number}.json" for number in range(len(row.commands))]


def run_row(args, paper, row):
    """The parsed outputs of a row's commands. Error: one of them failed."""
    found = []
    for out, text in zip(outputs_of(args, paper, row), row.commands):
        if args.read:
            found.append(json.loads(out.read_text()))
            continue
        words = [word.replace("BOOKS", str(args.books)) for word in shlex.split(text)]
        command = [str(args.winnow), *words, "-m", args.model, "-t", str(args.threads), "--json", str(out)]
        if words[0] == "eval":
            command += ["--results", str(args.work / "results.jsonl")]
        print("$ " + shlex.join(command), file=sys.stderr, flush=True)
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            sys.exit(f"{paper}: row '{row.name}' failed; what is finished is kept, the same command goes on")
        found.append(json.loads(out.read_text()))
    return found


def facts(output):
    """Who found a number: build, machine, model."""
    known = output.get("facts", output)
    return {"winnow": known.get("winnow"), "machine": known.get("machine"), "model": known.get("model")}


def save(path, data):
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(new, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", required=True, choices=[*PAPERS, "all"])
    parser.add_argument("--rows", help="only these, by name, separated by commas")
    parser.add_argument("--again", action="store_true", help="run rows that were found, too")
    parser.add_argument("--long", action="store_true", help="also rows that take hours")
    parser.add_argument("--read", action="store_true", help="run nothing, read the outputs in WORK again")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    parser.add_argument("--winnow", type=pathlib.Path, default=ROOT / "build/release/winnow")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--books", type=pathlib.Path, default=ROOT.parent / "shared/data/more_books",
                        help="text that the model was not trained on")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/papers")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/papers")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    if not args.page and not args.read and not args.winnow.exists():
        sys.exit(f"{args.winnow}: not there; build it, or name one with --winnow")
    if not args.page and not args.read and not args.books.exists():
        sys.exit(f"{args.books}: not there; name a folder of texts with --books")
    args.out.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    for paper in PAPERS if args.paper == "all" else [args.paper]:
        module = importlib.import_module(f"rows.{paper}")
        names = [row.name for row in module.ROWS]
        wanted = args.rows.split(",") if args.rows else names
        for name in wanted:
            if name not in names and args.paper != "all":
                sys.exit(f"{paper}: no row '{name}'; there are {', '.join(names)}")
        path = args.out / f"{paper}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        for row in module.ROWS:
            skipped = row.name not in wanted or not row.commands or (row.hours and not args.long)
            if args.page or skipped or (row.name in found and not args.again and not args.read):
                continue
            if args.read and not all(out.exists() for out in outputs_of(args, paper, row)):
                continue
            outputs = run_row(args, paper, row)
            found[row.name] = {**row.read(outputs), "commands": row.commands, **facts(outputs[0])}
            save(path, found)
            write_page(args.out / f"{paper}.md", module, found)
        save(path, found)
        write_page(args.out / f"{paper}.md", module, found)


if __name__ == "__main__":
    main()
