#!/usr/bin/env python3
"""Writes the study's documents: held-out book text with the tasks of tools/train_model, in the form `winnow eval ruler` reads.

    build/train/venv/bin/python bench/study/make_data.py --out build/study

Writes OUT/tasks/LENGTH/TASK.jsonl with the first question of every document, OUT/hidden/LENGTH/TASK.jsonl with several questions about
each of the same documents, OUT/held.txt, the chapters that no model was trained on, and OUT/stream.txt, their beginning. Drawn from seeds:
the same files every time. Needs the output of tools/train_model/prepare.py.
"""
import argparse
import json
import pathlib
import shutil
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/train_model"))
import documents  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402

TASKS = ["needle", "key_value", "multi_value", "two_hop_named", "few_shot"]
MARK = "\n\nQuestion: "
N_HIDDEN = 3  # questions about a document that is read before them


def asked(piece, task, n):
    """The answers of a document's first n questions; for few_shot only the last one, which has the most examples before it."""
    return piece.answers[-1:] if task == "few_shot" else piece.answers[:n]


def pieces(sampler, task, length, count, seed="study", shortest=0):
    """(document with questions and answers, depth as a fraction or None) of `count` documents of at most `length` ids, with at least `shortest`
    ids before the first answer."""
    found = n = 0
    while found < count:
        place = (seed, task, length, n)
        n += 1
        if task == "needle":
            depth = (found % 10 + 0.5) / 10
            piece = sampler.needle_at(place, length - 16, depth, N_HIDDEN)
        else:
            options = {"chain": True} if task == "two_hop_named" else {}
            depth = None
            piece = sampler.makers[task.removesuffix("_named")](tasks.generator(*place), length - 40, **options)
        if piece is None or not piece.answers or asked(piece, task, 1)[0].start < shortest:
            continue
        found += 1
        yield piece, depth


def rows(tok, task, found, n_questions):
    """One line for each of a document's first n_questions questions."""
    for index, (piece, depth) in enumerate(found):
        answers = asked(piece, task, n_questions)
        text = tok.decode(piece.ids[1:answers[0].start])  # the engine adds the first id
        document = text.partition(MARK)[0]
        for answer in answers:
            said = tok.decode(piece.ids[answer.start:answer.end]).strip()
            line = {"index": index, "input": document, "outputs": said.split(", ") if task == "multi_value" else [said]}
            if task != "few_shot":  # its examples are questions too
                line["question"] = MARK + tok.decode(piece.ids[1:answer.start]).rpartition(MARK)[2]
            if depth is not None and answer is answers[0]:
                line["depth"] = round(depth, 2)
            yield line


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/study")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/train/data")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--documents", type=int, default=100, help="of each task")
    parser.add_argument("--stream-bytes", type=int, help="of the same chapters in OUT/stream.txt; all of them without it")
    args = parser.parse_args()
    tok = tokenizer.Tokenizer.load(args.data / "tokenizer.json")
    sampler = tasks.Sampler(tok, documents.Corpus(np.load(args.data / "held.npy"), tok), plain=1.0)
    for task in TASKS:
        found = list(pieces(sampler, task, args.length, args.documents))
        write(args.out / "tasks" / str(args.length) / f"{task}.jsonl", rows(tok, task, found, 1))
        if task != "few_shot":
            write(args.out / "hidden" / str(args.length) / f"{task}.jsonl", rows(tok, task, found, N_HIDDEN))
    shutil.copy(args.data / "held.txt", args.out / "held.txt")
    (args.out / "stream.txt").write_text((args.data / "held.txt").read_text()[:args.stream_bytes])


if __name__ == "__main__":
    main()
