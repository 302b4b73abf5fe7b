#!/usr/bin/env python3
"""Times llama.cpp (PyPI llama-cpp-python, low-level API) the way its llama-bench does; one JSON object on stdout.

    llama_bench.py -m MODEL [-p 512] [-n 64] [-d 0] [-t 2] [-ctk f16] [-ctv f16] [-fa on,off] [-r 1]

Per flash-attention setting: a warm-up, then -r samples of each test. Timed are only the llama_decode calls and the
wait for their result: no tokenising, no sampling. Micro-batch 512, batch 2048, random tokens, as llama-bench.
"""

import argparse
import ctypes
import json
import random
import sys
import time

import llama_cpp

CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}


@llama_cpp.llama_log_callback
def _quiet(level, text, _):
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        sys.stderr.write(text.decode(errors="replace"))


class Bench:
    """One context of one model."""

    def __init__(self, model, args, flash_attention):
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = args.d + args.p + args.n
        params.n_batch, params.n_ubatch = 2048, 512
        params.n_threads = params.n_threads_batch = args.t
        params.type_k, params.type_v = CACHE_TYPES[args.ctk], CACHE_TYPES[args.ctv]
        params.flash_attn_type = 1 if flash_attention == "on" else 0
        params.no_perf = True
        self.context = llama_cpp.llama_init_from_model(model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp refused the context (flash attention {flash_attention})")
        self.memory = llama_cpp.llama_get_memory(self.context)

    def close(self):
        llama_cpp.llama_free(self.context)

    def tokens(self, n):
        return [random.randrange(self.vocabulary) for _ in range(n)]

    def decode(self, tokens):
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")

    def fill(self, n):
        """An empty cache, then n tokens."""
        llama_cpp.llama_memory_clear(self.memory, True)
        for start in range(0, n, 2048):
            self.decode(self.tokens(min(2048, n - start)))
        llama_cpp.llama_synchronize(self.context)

    def prefill(self, n, depth):
        self.fill(depth)
        tokens = self.tokens(n)
        started = time.perf_counter()
        for start in range(0, n, 2048):
            self.decode(tokens[start : start + 2048])
        llama_cpp.llama_synchronize(self.context)
        return n / (time.perf_counter() - started)

    def generate(self, n, depth):
        self.fill(depth)
        tokens = self.tokens(n)
        started = time.perf_counter()
        for token in tokens:
            self.decode([token])
            llama_cpp.llama_synchronize(self.context)
        return n / (time.perf_counter() - started)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True)
    for flag, default in (("-p", 512), ("-n", 64), ("-d", 0), ("-t", 2), ("-r", 1)):
        parser.add_argument(flag, type=int, default=default)
    parser.add_argument("-ctk", default="f16", choices=CACHE_TYPES)
    parser.add_argument("-ctv", default="f16", choices=CACHE_TYPES)
    parser.add_argument("-fa", default="on,off")
    args = parser.parse_args()

    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
    model = llama_cpp.llama_model_load_from_file(args.m.encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {args.m}")
    result = {
        "version": llama_cpp.__version__,
        "system_info": llama_cpp.llama_print_system_info().decode().strip(" |"),
        "tests": [],
    }
    for setting in args.fa.split(","):
        bench = Bench(model, args, setting)
        if args.p:
            bench.prefill(args.p, 0)
        bench.generate(1, 0)
        for kind, n, run in (("pp", args.p, bench.prefill), ("tg", args.n, bench.generate)):
            if n:
                samples = [run(n, args.d) for _ in range(args.r)]
                result["tests"].append({"test": f"{kind}{n}", "flash_attention": setting, "samples_ts": samples})
        bench.close()
    json.dump(result, sys.stdout)
    print()


if __name__ == "__main__":
    main()
