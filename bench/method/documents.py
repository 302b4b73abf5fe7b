#!/usr/bin/env python3
"""Writes the documents on which methods are evaluated: text of books that no test bed was trained on, with tasks that the beds can answer.

    build/train/venv/bin/python bench/method/documents.py --out build/judge/development --seed development --books BOOK... --documents 10

Writes OUT/seen/TASK.jsonl with the first question of every document, OUT/hidden/TASK.jsonl with all of its questions,
OUT/seen-needle and OUT/hidden-needle with three times as many needles, for models that can answer only needles, and
OUT/text.jsonl, windows of plain text. Everything is drawn from --seed: the same files every time. Needs the tokenizer of
the beds (tools/train_model/prepare.py --config tools/train_model/configs/bed-text.json), only to measure lengths: all
models read the same text.
"""
import argparse
import json
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/study"), str(ROOT / "tools/train_model")]
import books  # noqa: E402
import documents as model_documents  # noqa: E402
import make_data  # noqa: E402
import tasks  # noqa: E402
import tokenizer  # noqa: E402

# Both beds answer these to 90 % with the full cache (models/beds/README.md). few_shot has no questions that could be asked later.
HIDDEN = ["needle", "key_value", "two_hop_named"]
SEEN = [*HIDDEN, "few_shot"]
LENGTH = 1024  # maximum tokens of a document, its questions included
SHORTEST = 768  # at 1/32 of a shorter document hardly any entries remain
WINDOW = 2048  # tokens of a window of plain text


def read_chapters(folder, names):
    """Texts of whole books, given by file name without extension."""
    return [text for _, _, text in books.split_books(folder, [name + ".txt" for name in names])[1]]


def windows(corpus, tok, seed, count):
    """Windows of at least WINDOW tokens under every model's tokenizer, each beginning with a sentence; they do not overlap."""
    length, starts = WINDOW + WINDOW // 2, []
    for i in range(count):
        drawn = tasks.generator(seed, "text", i)
        start = corpus.start(drawn, length)
        while any(abs(start - other) < length for other in starts):
            start = corpus.start(drawn, length)
        starts.append(start)
        yield {"text": tok.decode(corpus.ids[start:start + length].tolist())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", required=True, help="any text")
    parser.add_argument("--books", nargs="+", required=True, help="files of --folder without .txt")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "../shared/data/more_books")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "build/train/bed-data/tokenizer.json")
    parser.add_argument("--documents", type=int, default=100, help="of each task, and windows of plain text")
    args = parser.parse_args()
    tok = tokenizer.Tokenizer.load(args.tokenizer)
    ids = [i for text in read_chapters(args.folder, args.books) for i in tok.encode(text)]
    corpus = model_documents.Corpus(np.array(ids), tok)
    sampler = tasks.Sampler(tok, corpus, plain=1.0)

    def write(task, count, ending):
        found = list(make_data.pieces(sampler, task, LENGTH, count, seed=args.seed + ending, shortest=SHORTEST))
        make_data.write(args.out / ("seen" + ending) / f"{task}.jsonl", make_data.rows(tok, task, found, 1))
        if task in HIDDEN:
            make_data.write(args.out / ("hidden" + ending) / f"{task}.jsonl", make_data.rows(tok, task, found, make_data.N_HIDDEN))

    for task in SEEN:
        write(task, args.documents, "")
    write("needle", 3 * args.documents, "-needle")
    make_data.write(args.out / "text.jsonl", windows(corpus, tok, args.seed, args.documents))
    (args.out / "made.json").write_text(json.dumps({"seed": args.seed, "books": args.books, "documents": args.documents}) + "\n")


if __name__ == "__main__":
    main()
