#!/usr/bin/env python3
"""Measures a finished GGUF with the winnow binary: recall by length and depth, tasks, bits per
byte.

Writes JSON lines to --out, one per document or window. Results already there are not measured
again, so an interrupted run can be continued. `--flags` are passed to winnow (a compression
method, for example) and the results named `--label`. model_card.py makes the tables.
"""
import argparse
import json
import math
import pathlib
import shlex
import struct
import subprocess
import tempfile

import numpy as np

import documents
import tasks
import tokenizer

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TASKS = ["multi_needle", "multi_value", "key_value", "two_hop", "two_hop_named", "few_shot", "count", "copy", "dialogue"]

# Tasks that are variants of another task. multi_needle: twelve facts and four questions, of which
# one is measured, after the questions and answers before it.
TASK_OPTIONS = {"two_hop": ("two_hop", {"chain": False}), "two_hop_named": ("two_hop", {"chain": True}),
                "multi_needle": ("needle", {"n_facts": 12, "n_questions": 4})}  # fmt: skip


class Winnow:
    def __init__(self, args):
        self.binary, self.model, self.flags = str(args.winnow), str(args.model), shlex.split(args.flags)
        self.threads = ["-t", str(args.threads)]
        self.folder = tempfile.TemporaryDirectory()
        self.text = pathlib.Path(self.folder.name) / "prompt.txt"

    def call(self, command, text, *flags):
        self.text.write_bytes(text + b"\n")  # winnow drops a file's final newline
        done = subprocess.run([self.binary, command, "-m", self.model, "-f", str(self.text), *self.threads, *flags,
                               *self.flags, "--json"], capture_output=True)
        if done.returncode:
            raise SystemExit(f"winnow {command}: exit code {done.returncode}: {done.stderr.decode()[-400:]}")
        return json.loads(done.stdout)

    def answer(self, text, tokens):
        return self.call("run", text, "-n", str(tokens), "--temp", "0", "--no-display-prompt")

    def logits(self, text, window):
        """(ids given to the model, float32 logits [n, vocab]) of a text that is one window."""
        out = pathlib.Path(self.folder.name) / "logits.safetensors"
        self.call("perplexity", text, "-c", str(window), "--save-logits", str(out))
        data = out.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + size])

        def tensor(name, kind):
            begin, end = (8 + size + x for x in header[name]["data_offsets"])
            return np.frombuffer(data[begin:end], kind).reshape(header[name]["shape"])
        return tensor("tokens", np.int32), tensor("logits", np.float32)


def decode_text(tok, ids):
    """The text to give an engine: without the first <|endoftext|>, with chat marks written out."""
    return b"".join(tokenizer.SPECIAL[i].encode() if i < len(tokenizer.SPECIAL) else tok.bytes[i] for i in ids[1:])


def prompts(args, tok, corpus):
    """(key, ids of the prompt, expected text, depth) for everything that is answered."""
    for held in (False, True):
        sampler = tasks.Sampler(tok, corpus, held, plain=1.0)
        for length in args.lengths:
            for n in range(10 * args.documents):
                piece = sampler.needle_at(("measure", "needle", held, length, n), length - 16, (n % 10 + 0.5) / 10)
                a = piece.answers[0]
                yield (("needle", held, length, n), piece.ids[:a.start], tok.decode(piece.ids[a.start:a.end]), n % 10)
        for task in TASKS:
            for length in args.task_lengths:
                found = n = 0
                while found < args.task_documents:
                    rng = tasks.generator("measure", task, held, length, n)
                    maker, options = TASK_OPTIONS.get(task, (task, {}))
                    piece = sampler.makers[maker](rng, length - 40, **options)
                    n += 1
                    if piece is None or not piece.answers:
                        continue
                    a = rng.choice(piece.answers)
                    found += 1
                    yield ((task, held, length, found), piece.ids[:a.start], tok.decode(piece.ids[a.start:a.end]), None)


def score(tok, winnow, ids, marked):
    """Bits and bytes of all ids and of the marked ones. The ids start with <|endoftext|> and form
    one window."""
    fed, logits = winnow.logits(decode_text(tok, ids), len(ids))
    if fed.tolist() != list(ids):
        raise SystemExit("winnow makes other tokens of a text than the training program")
    top = logits.max(-1, keepdims=True)
    log_sum = top[:, 0] + np.log(np.exp(logits - top).sum(-1))
    nll = (log_sum[:-1] - logits[np.arange(len(ids) - 1), ids[1:]]) / math.log(2)
    sizes = np.array([len(tok.bytes[i]) for i in ids[1:]])
    chosen = np.zeros(len(nll), bool)
    for start, end in marked:
        chosen[start - 1:end - 1] = True
    return {"bits": float(nll.sum()), "bytes": int(sizes.sum()), "marked_bits": float(nll[chosen].sum()),
            "marked_bytes": int(sizes[chosen].sum())}


def windows(args, tok, corpus):
    """(key, ids, marked ranges): held-out text, fully marked, and text with quoted passages."""
    ends, n, start = corpus.ends, 0, int(corpus.ends[0])
    while start + args.window <= len(corpus.ids) and n < args.windows:
        stop = int(ends[np.searchsorted(ends, start + args.window - 1, "right") - 1])
        yield ("text", False, args.window, n), [tokenizer.END, *corpus.ids[start:stop].tolist()], []
        start, n = stop, n + 1
    for held in (False, True):
        sampler = tasks.Sampler(tok, corpus, held)
        for n in range(args.quote_windows):
            piece = sampler.task_quote(tasks.generator("measure", "quote", held, n), args.window)
            marked = [(a.start - tasks.QUOTE_FREE, a.end) for a in piece.answers]
            stop = max(end for _, end in marked)
            yield ("quote", held, args.window, n), piece.ids[:stop], marked


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--winnow", default=ROOT / "build/release/winnow", type=pathlib.Path)
    parser.add_argument("--data", default=ROOT / "build/train/data", type=pathlib.Path)
    parser.add_argument("--label", default="full")
    parser.add_argument("--flags", default="", help="further flags of winnow, as one string")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="*", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--documents", type=int, default=40, help="per length and depth")
    parser.add_argument("--task-lengths", type=int, nargs="*", default=[1024, 2048])
    parser.add_argument("--task-documents", type=int, default=100)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--quote-windows", type=int, default=20)
    args = parser.parse_args()
    tok = tokenizer.Tokenizer.load(args.data / "tokenizer.json")
    corpus = documents.Corpus(np.load(args.data / "held.npy"), tok)
    done = set()
    if args.out.exists():
        done = {(r["label"], *r["key"]) for r in map(json.loads, args.out.read_text().splitlines())}
    winnow = Winnow(args)
    with open(args.out, "a") as out:
        def put(key, **fields):
            out.write(json.dumps({"label": args.label, "flags": args.flags, "model": args.model.name, "key": key, **fields}) + "\n")
            out.flush()

        for key, ids, wanted, depth in prompts(args, tok, corpus):
            if (args.label, *key) in done:
                continue
            got = winnow.answer(decode_text(tok, ids), len(tok.encode(wanted)) + 8)
            if got["prompt_tokens"] != len(ids):
                raise SystemExit(f"{key}: winnow counts {got['prompt_tokens']} tokens, the training program {len(ids)}")
            said = got["text"].split("\n")[0].strip()
            parts = wanted.strip().split(", ")
            put(key, depth=depth, right=said == wanted.strip(), found=sum(p in said.split(", ") for p in parts) / len(parts),
                wanted=wanted.strip(), said=said)
        for key, ids, marked in windows(args, tok, corpus):
            if (args.label, *key) not in done:
                put(key, **score(tok, winnow, ids, marked))


if __name__ == "__main__":
    main()
