#!/usr/bin/env python3
"""Writes the study's documents: held-out book text with the tasks of tools/train_model, in the form `winnow eval ruler` reads.

    build/train/venv/bin/python bench/study/make_data.py --out build/study

Makes OUT/tasks/LENGTH/TASK.jsonl (index, input, outputs, length, depth), OUT/held.txt, the chapters nothing was trained on, and
OUT/stream.txt, their beginning. Drawn from seeds: the same files every time. Needs what tools/train_model/prepare.py makes.
"""
import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/train_model"))
import tasks  # noqa: E402
import tokenizer  # noqa: E402

TASKS = ["needle", "key_value", "multi_value", "two_hop_named", "few_shot"]


def documents(sampler, task, length, count):
    """(ids of the prompt, ids of the answer, depth in hundredths) of `count` documents."""
    found = n = 0
    while found < count:
        place = ("study", task, length, n)
        n += 1
        if task == "needle":
            depth = (found % 10 + 0.5) / 10
            piece = sampler.needle_at(place, length - 16, depth)
        else:
            options = {"chain": True} if task == "two_hop_named" else {}
            depth = None
            piece = sampler.makers[task.removesuffix("_named")](tasks.generator(*place), length - 40, **options)
        if piece is None or not piece.answers:
            continue
        answer = piece.answers[-1] if task == "few_shot" else piece.answers[0]  # the label that has most before it
        found += 1
        yield piece.ids[1:answer.start], piece.ids[answer.start:answer.end], depth  # an engine adds the first id


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/study")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/train/data")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--documents", type=int, default=20, help="of each task; --needles of needles")
    parser.add_argument("--needles", type=int, default=80)
    parser.add_argument("--stream-bytes", type=int, help="of the same chapters in OUT/stream.txt; all of them without it")
    args = parser.parse_args()
    tok = tokenizer.Tokenizer.load(args.data / "tokenizer.json")
    sampler = tasks.Sampler(tok, tasks.Corpus(np.load(args.data / "held.npy"), tok), plain=1.0)
    folder = args.out / "tasks" / str(args.length)
    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        count = args.needles if task == "needle" else args.documents
        with open(folder / f"{task}.jsonl", "w") as file:
            for index, (prompt, answer, depth) in enumerate(documents(sampler, task, args.length, count)):
                answer = tok.decode(answer).strip()
                row = {"index": index, "input": tok.decode(prompt), "length": len(prompt) + 1,
                       "outputs": answer.split(", ") if task == "multi_value" else [answer]}
                if depth is not None:
                    row["depth"] = round(depth, 2)
                file.write(json.dumps(row) + "\n")
    shutil.copy(args.data / "held.txt", args.out / "held.txt")
    (args.out / "stream.txt").write_text((args.data / "held.txt").read_text()[:args.stream_bytes])


if __name__ == "__main__":
    main()
