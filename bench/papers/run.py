#!/usr/bin/env python3
"""Repeats the tables and figures of a paper, as far as one machine and small models can, and writes its page.

    python3 bench/papers/run.py --paper ems                        # its short rows that have no results yet
    python3 bench/papers/run.py --paper ems --rows tau,gamma       # these
    python3 bench/papers/run.py --paper all --long                 # the long ones, too
    python3 bench/papers/run.py --paper all --page                 # runs nothing: writes the pages from known results
    python3 bench/papers/run.py --paper all --hours                # runs nothing: prints how long all rows take

The rows are defined in bench/papers/rows/PAPER.py: the claim, the paper's number, the command, and how its output is read. All rows run on the
bundled model; short rows about answers and predictions also run on the test beds (models/beds), or on the models that --model names.

A row with a result in OUT/PAPER.json for the same commands is not run again. With --again, rows measured by another build are run again; rows of a
build whose commit is not in this repository always are. `winnow eval` resumes where it was stopped (WORK/results-BUILD.jsonl), except in rows whose
time and memory are measured. Writes OUT/PAPER.json (results by model) and OUT/PAPER.md (the page) after every row.
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
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(ROOT / "bench")]
from binary import read_build  # noqa: E402
from page import BUNDLED, current, write_page  # noqa: E402
from row import BED_NAMES, SHORT_HOURS  # noqa: E402
from watch import watch  # noqa: E402

PAPERS = ["treekv", "refreekv", "d2o", "hbw", "ems"]
BEDS = {bed: ROOT / f"models/beds/winnow-{bed}-Q8_0.gguf" for bed in BED_NAMES}


def load_rows(paper):
    return importlib.import_module(f"rows.{paper}").ROWS


def row_hours(row, n_beds=len(BEDS)):
    """Hours on two cores, for all models."""
    return (row.hours or SHORT_HOURS) * (1 + (n_beds if row.on_beds else 0)) if row.commands else 0


def is_in_repository(build):
    """Whether a build's commit is in this repository's history; a build with uncommitted changes is not."""
    commit = build.partition("+")[2]
    return bool(commit) and not commit.endswith("-dirty") and not subprocess.run(
        ["git", "-C", str(ROOT), "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True, check=False).returncode


def output_files(args, paper, row, model):
    there = "" if model == BUNDLED else f"{model}-"
    return [args.work / f"{there}{paper}-{row.name}-{number}.json" for number in range(len(row.commands))]


def run_row(args, paper, row, model, file):
    """The parsed outputs of a row's commands. Exits if one of them fails."""
    found = []
    for out, text in zip(output_files(args, paper, row, model), row.commands):
        if args.read:
            found.append(json.loads(out.read_text()))
            continue
        words = [word.replace("BOOKS", str(args.books)).replace("ESSAYS", str(args.essays)) for word in shlex.split(text)]
        command = [str(args.winnow), *words, "-m", str(file), "-t", str(args.threads), "--json", str(out)]
        if row.timed and out.exists() and same_run(out, args.build, text):
            found.append(json.loads(out.read_text()))
            continue
        if words[0] == "eval" and not row.timed:
            command += ["--results", str(args.work / f"results-{args.build.replace('+', '-')}.jsonl")]
        print("$ " + shlex.join(command), file=sys.stderr, flush=True)
        status, measured = watch(command)
        if status:
            sys.exit(f"{paper}: row '{row.name}' failed on {model}; what is finished is kept, the same command goes on")
        output = json.loads(out.read_text())
        if row.timed:
            output["measured"] = {**measured, "tokens": count_tokens(output), "command": text}
            save(out, output)
        found.append(output)
    return found


def same_run(out, build, command):
    output = json.loads(out.read_text())
    return output.get("winnow") == build and output.get("measured", {}).get("command") == command


def count_tokens(output):
    return sum(result["details"]["tokens"] for sample in output["samples"] for result in sample["results"] if "scores" in result)


def facts(output):
    """The provenance of a number: build, machine, model."""
    known = output.get("facts", output)
    return {"winnow": known.get("winnow"), "machine": known.get("machine"), "model": known.get("model")}


def save(path, data):
    new = path.with_suffix(".new")
    new.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(new, path)


def chosen_models(args):
    """{name: file}: the bundled model and the test beds whose files exist, or the models named by --model."""
    if not args.model:
        return {BUNDLED: BUNDLED, **{name: file for name, file in BEDS.items() if file.exists()}}
    models = {}
    for text in args.model:
        name, _, file = text.partition("=")
        if name != BUNDLED and not pathlib.Path(file).is_file():
            sys.exit(f"--model {text}: expected {BUNDLED}, or NAME=FILE and a file that is there")
        models[name] = file or name
    return models


def is_wanted(args, row, results):
    """Whether a row is to be run (or read again) on a model with these known results."""
    if not row.commands or (row.hours and not args.long and not args.read):
        return False
    result = current(row, results)
    return args.read or not result or bool(result.get("unknown_commit")) or (args.again and result["winnow"] != args.build)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", required=True, choices=[*PAPERS, "all"])
    parser.add_argument("--rows", help="only these, by name, separated by commas")
    parser.add_argument("--again", action="store_true", help="run rows that another build found, too")
    parser.add_argument("--long", action="store_true", help="also rows that take long")
    parser.add_argument("--read", action="store_true", help="run nothing, read the outputs in WORK again")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    parser.add_argument("--hours", action="store_true", help="run nothing, say how long rows take")
    parser.add_argument("--winnow", type=pathlib.Path, default=ROOT / "build/release/winnow")
    parser.add_argument("--any-build", action="store_true", help="also a binary whose commit is not in this repository")
    parser.add_argument("--model", action="append", metavar="NAME=FILE",
                        help=f"'{BUNDLED}', or a test bed: a name and its file; can be repeated [{BUNDLED} and those in models/beds]")
    parser.add_argument("--books", type=pathlib.Path, default=ROOT.parent / "shared/data/more_books",
                        help="text that the model was not trained on")
    parser.add_argument("--essays", type=pathlib.Path, default=ROOT.parent / "shared/data/paul_graham_essays", help="pages of the web")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/papers")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/papers")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    papers = PAPERS if args.paper == "all" else [args.paper]
    for paper in papers:
        names = [row.name for row in load_rows(paper)]
        for name in args.rows.split(",") if args.rows and args.paper != "all" else []:
            if name not in names:
                sys.exit(f"{paper}: no row '{name}'; there are {', '.join(names)}")
    if args.hours:
        for paper in papers:
            print(f"{paper}: {sum(map(row_hours, load_rows(paper))):.1f} hours")
        print(f"all of these: {sum(row_hours(row) for paper in papers for row in load_rows(paper)):.1f} hours")
        return
    if not args.page and not args.read:
        if not args.winnow.exists():
            sys.exit(f"{args.winnow}: not there; build it, or name one with --winnow")
        for name, folder in (("--books", args.books), ("--essays", args.essays)):
            if not folder.exists():
                sys.exit(f"{folder}: not there; name a folder of texts with {name}")
        args.build = read_build(args.winnow)
        if not args.any_build and not is_in_repository(args.build):
            sys.exit(f"{args.winnow}: made from {args.build}, which nobody finds in this repository; commit and build again, or --any-build")
        args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    for paper in papers:
        run_paper(args, paper)


def run_paper(args, paper):
    module, path = importlib.import_module(f"rows.{paper}"), args.out / f"{paper}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for model, file in {} if args.page else chosen_models(args).items():
        for row in module.ROWS:
            results = found.setdefault(model, {})
            if (args.rows and row.name not in args.rows.split(",")) or (model != BUNDLED and not row.on_beds) or not is_wanted(args, row, results):
                continue
            if args.read and not all(out.exists() for out in output_files(args, paper, row, model)):
                continue
            outputs = run_row(args, paper, row, model, file)
            result = {**row.read(outputs), "commands": row.commands, **facts(outputs[0])}
            if not is_in_repository(result["winnow"]):
                result["unknown_commit"] = True
            results[row.name] = result
            save(path, found)
            write_page(args.out / f"{paper}.md", module, found)
    say_again(module.ROWS, found)
    save(path, found)
    write_page(args.out / f"{paper}.md", module, found)


def say_again(rows, found):
    """Updates the lines and verdicts of known results to the current wording of the rows; the numbers stay."""
    for results in found.values():
        for row in rows:
            if result := current(row, results):
                result["ours"], result["verdict"] = row.read.text(result), row.read.verdict(result)


if __name__ == "__main__":
    main()
