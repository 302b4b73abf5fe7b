#!/usr/bin/env python3
"""Perplexity as llama.cpp's perplexity tool defines it, computed with llama-cpp-python.

    perplexity.py MODEL TEXT [-c 512] [--chunks N] [--cache f16|f32]

The whole file is tokenised once, BOS first if the model adds one, and cut into windows of -c tokens; the rest is
dropped. Each window is computed from an empty cache, with its first token REPLACED by BOS (if the model adds one). The
predictions made at positions c/2 .. c-2 of each window are scored, c - 1 - c/2 of them. The perplexity is exp of the
mean negative log-likelihood over all windows; its error is sqrt((E[x^2] - E[x]^2) / (count - 1)) times the perplexity.
"""

import argparse
import math

import llama_cpp
import numpy as np

from llama_oracle import F16, F32, Oracle
from metrics import log_softmax


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("-c", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=-1)
    parser.add_argument("--cache", choices=("f16", "f32"), default="f16")
    args = parser.parse_args()
    losses = []
    with Oracle(args.model, args.c, {"f16": F16, "f32": F32}[args.cache]) as oracle, open(args.text, "rb") as file:
        tokens = oracle.tokenize(file.read())
        windows = len(tokens) // args.c
        if args.chunks >= 0:
            windows = min(windows, args.chunks)
        for w in range(windows):
            window = tokens[w * args.c : (w + 1) * args.c]
            if llama_cpp.llama_vocab_get_add_bos(oracle.vocab):
                window[0] = llama_cpp.llama_vocab_bos(oracle.vocab)
            rows = np.arange(args.c // 2, args.c - 1)
            logits = oracle.logits(window)[rows]
            losses.append(-log_softmax(logits)[np.arange(len(rows)), np.array(window)[rows + 1]])
    losses = np.concatenate(losses)
    mean = losses.mean()
    error = math.exp(mean) * math.sqrt(((losses**2).mean() - mean**2) / (len(losses) - 1))
    print(f"{len(tokens)} tokens, {windows} windows of {args.c}, {len(losses)} scored")
    print(f"PPL = {math.exp(mean):.4f} +/- {error:.5f}")


if __name__ == "__main__":
    main()
