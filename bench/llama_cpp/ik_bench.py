#!/usr/bin/env python3
"""Times ik_llama.cpp, which ik_llama.sh makes, like llama_bench.py with an empty cache; one JSON object on stdout.

    ik_bench.py -m MODEL [-p 512] [-n 64] [-t 2] [-s on,repacked]

Settings: flash attention is on in both; `repacked` also lets it rearrange the weights when it loads them.
"""

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "build/ik-llama"
SETTINGS = {"on": False, "repacked": True}


def measure(lib, model, args, setting):
    """Both tests after a warm-up; tokens/s. Tokens are random, as in llama-bench."""
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = args.p + args.n + 512, 2048, 512
    params.n_threads = params.n_threads_batch = args.t
    params.flash_attn = True
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError("ik_llama.cpp refused the context")
    n_words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def decode(n, n_tokens):
        """Seconds of n calls with n_tokens each, one after the other in the cache."""
        batch = lib.llama_batch_init(n_tokens, 0, 1)
        batch.n_tokens, seconds = n_tokens, 0.0
        for call in range(n):
            for i in range(n_tokens):
                batch.token[i], batch.pos[i] = random.randrange(n_words), call * n_tokens + i
                batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, i == n_tokens - 1
            started = time.perf_counter()
            if lib.llama_decode(context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            lib.llama_get_logits_ith(context, -1)
            seconds += time.perf_counter() - started
        lib.llama_batch_free(batch)
        lib.llama_kv_cache_clear(context)
        return seconds

    decode(1, 32)
    decode(1, 1)
    rates = {"pp": args.p / decode(1, args.p), "tg": args.n / decode(args.n, 1)}
    lib.llama_free(context)
    return [{"test": test, "n": n, "depth": 0, "setting": setting, "samples_ts": [rates[test]]} for test, n in (("pp", args.p), ("tg", args.n))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True)
    for flag, default in (("-p", 512), ("-n", 64), ("-t", 2)):
        parser.add_argument(flag, type=int, default=default)
    parser.add_argument("-s", default=",".join(SETTINGS), help=f"settings, of {', '.join(SETTINGS)}")
    args = parser.parse_args()
    if unknown := [setting for setting in args.s.split(",") if setting not in SETTINGS]:
        parser.error(f"-s: found '{unknown[0]}', expected some of {', '.join(SETTINGS)}")
    if not (FOLDER / "complete").exists():
        parser.error(f"{FOLDER} is missing: bench/llama_cpp/ik_llama.sh makes it")

    os.environ["IK_LLAMA_CPP_LIB_PATH"] = str(FOLDER / "build/src/libllama.so")
    sys.path.insert(0, str(FOLDER))
    from ik_llama_cpp import _ctypes_api as lib  # its low-level API; the package exports none

    lib.llama_backend_init()
    tests = []
    for setting in args.s.split(","):
        params = lib.llama_model_default_params()
        params.use_mmap = not SETTINGS[setting]  # repacking writes to the weights
        params.repack_tensors = SETTINGS[setting]
        model = lib.llama_model_load_from_file(args.m.encode(), params)
        if not model:
            raise SystemExit(f"ik_llama.cpp cannot load {args.m}")
        tests += measure(lib, model, args, setting)
        lib.llama_free_model(model)
    json.dump({"tests": tests}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
