#!/usr/bin/env python3
"""Holds a GGUF against reference.npz of export.py, read by llama.cpp (PyPI llama-cpp-python): tokens, logits, answers.

Exit code 1 where the tokens of a text differ, a greedy answer differs, or the logits of any prompt are off by more
than --tolerance (norm of the difference over the norm of the logits, both without their mean).
"""
import argparse
import pathlib
import sys

import llama_cpp
import numpy as np


def split(flat, sizes):
    return np.split(flat, np.cumsum(sizes)[:-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("--reference", type=pathlib.Path, help="default: reference.npz beside the GGUF")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    ref = np.load(args.reference or args.gguf.parent / "reference.npz")
    llm = llama_cpp.Llama(str(args.gguf), n_ctx=0, n_threads=args.threads, n_threads_batch=args.threads, logits_all=False,
                          type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, verbose=False)
    failures = []
    got = llm.tokenize(str(ref["text"]).encode(), add_bos=True, special=False)
    if got != ref["text_ids"].tolist():
        at = next((i for i, (a, b) in enumerate(zip(got, ref["text_ids"])) if a != b), min(len(got), len(ref["text_ids"])))
        failures.append(f"tokens differ from place {at} on")
    print(f"tokens of the text: {len(got)}, same: {not failures}")
    worst, same = 0.0, 0
    prompts, answers = split(ref["prompts"], ref["prompt_sizes"]), split(ref["answers"], ref["answer_sizes"])
    for n, (ids, wanted, answer) in enumerate(zip(prompts, ref["logits"], answers)):
        llm.reset()
        llm.eval(ids.tolist())
        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llm.ctx, -1), (llm.n_vocab(),)).copy()
        wanted, centred = wanted - wanted.mean(), logits - logits.mean()
        error = float(np.linalg.norm(centred - wanted) / np.linalg.norm(wanted))
        worst = max(worst, error)
        made = []
        for _ in range(len(answer)):
            made.append(int(logits.argmax()))
            llm.eval([made[-1]])
            logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(llm.ctx, -1), (llm.n_vocab(),)).copy()
        same += made == answer.tolist()
        if made != answer.tolist():
            failures.append(f"prompt {n}: greedy answer {made}, the training program's {answer.tolist()}")
    print(f"logits of {len(prompts)} prompts: worst relative error {worst:.2e}; same greedy answer {same} of {len(prompts)}")
    if worst > args.tolerance:
        failures.append(f"logits: worst relative error {worst:.2e}, allowed {args.tolerance:.0e}")
    for line in failures:
        print("FAILED:", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
