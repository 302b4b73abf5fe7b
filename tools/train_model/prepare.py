#!/usr/bin/env python3
"""Cleans the books, holds out the chapters and books named in the configuration, trains the
tokenizer on the rest and encodes both.

Writes into --out: tokenizer.json, train.npy and held.npy (uint16 ids), held.txt, data.json
(summary with headings and counts).
"""
import argparse
import collections
import json
import pathlib

import numpy as np

import books
import tokenizer
import wordings

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default=HERE / "configs/text.json", type=pathlib.Path)
    parser.add_argument("--books", help="folder of the books; default: the configuration's, from the repository's root")
    parser.add_argument("--clean-books", help="likewise, of the books in clean text")
    parser.add_argument("--out", default=ROOT / "build/train/data", type=pathlib.Path)
    args = parser.parse_args()
    config = json.loads(args.config.read_text())
    train, held = books.split(args.books or ROOT / config["books"], config["held_out_chapters"])
    if "clean_books" in config:
        more = books.split_books(args.clean_books or ROOT / config["clean_books"], config["held_out_books"])
        train, held = train + more[0], held + more[1]
    counts = collections.Counter(w for _, _, text in train for w in tokenizer.PIECE.findall(text))
    for text in wordings.vocabulary():  # count the tasks' words as if each occurred twenty times
        for w in tokenizer.PIECE.findall(text):
            counts[w] += 20
    merges = tokenizer.train(counts, config["vocab"] - 256 - len(tokenizer.SPECIAL))
    tok = tokenizer.Tokenizer(merges)
    assert len(tok.tokens) == config["vocab"] == len(set(tok.tokens))
    args.out.mkdir(parents=True, exist_ok=True)
    tok.save(args.out / "tokenizer.json")
    report = {"vocab": config["vocab"], "held_out": [f"{book}: {heading}" for book, heading, _ in held]}
    for name, parts in (("train", train), ("held", held)):
        ids = []
        for _, _, text in parts:
            ids += tok.encode(text)
        np.save(args.out / f"{name}.npy", np.array(ids, dtype=np.uint16))
        size = sum(len(text.encode()) for _, _, text in parts)
        report[name] = {"chapters": len(parts), "bytes": size, "tokens": len(ids), "bytes_per_token": size / len(ids)}
    (args.out / "held.txt").write_text("".join(text for _, _, text in held))
    (args.out / "data.json").write_text(json.dumps(report, indent=1))
    print(json.dumps({k: report[k] for k in ("vocab", "train", "held")}))


if __name__ == "__main__":
    main()
