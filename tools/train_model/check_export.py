#!/usr/bin/env python3
"""Compares a GGUF with reference.npz of export.py: tokens of a text, logits and greedy answers of
20 prompts.

Runs llama.cpp (PyPI llama-cpp-python), or winnow with --winnow. Exit code 1 if tokens or an answer
differ, or if the relative error of a prompt's logits (norm of the difference over the norm of the
logits) exceeds --tolerance.
"""
import argparse
import pathlib
import sys

import numpy as np


class LlamaCpp:
    def __init__(self, args):
        import llama_cpp
        self.api = llama_cpp
        f32 = llama_cpp.GGML_TYPE_F32
        self.llm = llama_cpp.Llama(str(args.gguf), n_ctx=0, n_threads=args.threads, n_threads_batch=args.threads, type_k=f32,
                                   type_v=f32, verbose=False)

    def tokens(self, text):
        return self.llm.tokenize(text.encode(), add_bos=True, special=False)

    def prompt(self, ids, _text, answer_size):
        self.llm.reset()
        self.llm.eval(ids.tolist())
        logits, made = self._logits(), []
        while len(made) < answer_size:
            made.append(int((self._logits() if made else logits).argmax()))
            self.llm.eval([made[-1]])
        return logits, made

    def _logits(self):
        pointer = self.api.llama_get_logits_ith(self.llm.ctx, -1)
        return np.ctypeslib.as_array(pointer, (self.llm.n_vocab(),)).copy()


class Winnow:
    def __init__(self, args):
        import measure
        self.call = measure.Winnow(argparse.Namespace(winnow=args.winnow, model=args.gguf, flags="-ctk f32 -ctv f32",
                                                      threads=args.threads))

    def tokens(self, text):
        return self.call.logits(text.encode(), 4096)[0].tolist()

    def prompt(self, ids, text, answer_size):
        fed, logits = self.call.logits(text.encode(), len(ids))
        if fed.tolist() != ids.tolist():
            raise SystemExit("winnow makes other tokens of a prompt than the training program")
        return logits[-1], self.call.answer(text.encode(), answer_size)["tokens"]


def same_answer(made, wanted, ends=(0, 2)):
    """Equal up to the token that ends the answer, which an engine may leave out."""
    wanted = wanted.tolist()
    return made == wanted or (wanted[-1] in ends and made == wanted[:-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("gguf", type=pathlib.Path)
    parser.add_argument("--reference", type=pathlib.Path, help="default: reference.npz beside the GGUF")
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--winnow", type=pathlib.Path, help="the winnow binary; without it llama.cpp reads")
    args = parser.parse_args()
    ref = np.load(args.reference or args.gguf.parent / "reference.npz")
    reader, failures = Winnow(args) if args.winnow else LlamaCpp(args), []
    got, wanted = reader.tokens(str(ref["text"])), ref["text_ids"].tolist()
    if got != wanted[:len(got)] or len(got) < min(4096, len(wanted)):
        failures.append("tokens of the text differ")
    print(f"tokens of the text: {len(got)} compared, same: {not failures}")
    errors, same = [], 0
    prompts = np.split(ref["prompts"], np.cumsum(ref["prompt_sizes"])[:-1])
    answers = np.split(ref["answers"], np.cumsum(ref["answer_sizes"])[:-1])
    for n, (ids, text, expected, answer) in enumerate(zip(prompts, ref["texts"], ref["logits"], answers)):
        logits, made = reader.prompt(ids, str(text), len(answer))
        errors.append(float(np.linalg.norm(logits - expected) / np.linalg.norm(expected)))
        same += same_answer(made, answer)
        if not same_answer(made, answer):
            failures.append(f"prompt {n}: greedy answer {made}, the training program's {answer.tolist()}")
    print(f"logits of {len(prompts)} prompts: relative error median {np.median(errors):.2e}, worst {max(errors):.2e}; same "
          f"greedy answer {same} of {len(prompts)}")
    if max(errors) > args.tolerance:
        failures.append(f"logits: worst relative error {max(errors):.2e}, allowed {args.tolerance:.0e}")
    for line in failures:
        print("FAILED:", line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
