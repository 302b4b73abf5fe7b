#!/usr/bin/env python3
"""Times llama.cpp (PyPI llama-cpp-python, low-level API) the way its own benchmarks do; one JSON object on stdout.

    llama_bench.py -m MODEL [-p 512] [-n 64] [-d 0,4096] [-B 32] [-t 2] [-s on,off,off-kq8] [-r 1]
    llama_bench.py -m MODEL --load

Per setting (see SETTINGS): a warm-up, then -r samples of each test at each depth. Only the llama_decode calls and the wait
for their result are timed: no tokenising, no sampling. Micro-batch 512, batch 2048, random tokens, as in llama-bench. A depth
is a multiple of 512: its cells are one state of 512 tokens, restored repeatedly and assigned to one sequence, because reading
such a long prompt would take minutes and the content of cells does not change the speed. With -B the tests are the steps of
that many sequences, each with its own cells of -d tokens. --load: seconds from the start of loading to the logits of a first
token after a prompt of five, and peak resident memory.
"""

import argparse
import ctypes
import json
import random
import sys
import time

STATE = 512  # tokens of the state that depths are built from
CACHE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 8, "bf16": 30}
SETTINGS = {  # flash attention; type of keys as in -ctk, or None
    "on": (1, None),
    "off": (0, None),
    "off-kq8": (0, "q8_0"),  # quantised values are refused without flash attention
}


def load_library():
    import llama_cpp

    @llama_cpp.llama_log_callback
    def quiet(level, text, _):
        if level == 4:  # GGML_LOG_LEVEL_ERROR
            sys.stderr.write(text.decode(errors="replace"))

    llama_cpp.llama_backend_init()
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    load_library.kept = quiet  # llama.cpp does not hold a reference
    return llama_cpp


class Bench:
    """One context of one model."""

    def __init__(self, lib, model, args, setting, n_context, n_sequences=1):
        self.lib, self.filled, self.state, self.n_sequences = lib, 0, None, n_sequences
        self.vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        flash_attention, key_type = SETTINGS[setting]
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_context, 2048, 512
        # A depth is filled through a second sequence, which requires unified cells.
        params.n_seq_max, params.kv_unified = (n_sequences, False) if n_sequences > 1 else (2, True)
        params.n_threads = params.n_threads_batch = args.t
        params.type_k, params.type_v = CACHE_TYPES[key_type or args.ctk], CACHE_TYPES[args.ctv]
        params.flash_attn_type = flash_attention
        params.no_perf = True
        self.context = lib.llama_init_from_model(model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp refused the context (setting {setting})")
        self.memory = lib.llama_get_memory(self.context)

    def close(self):
        self.lib.llama_free(self.context)

    def tokens(self, n):
        return [random.randrange(self.vocabulary) for _ in range(n)]

    def decode(self, tokens):
        array = (self.lib.llama_token * len(tokens))(*tokens)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(array, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")

    def read(self, tokens):
        for start in range(0, len(tokens), 2048):
            self.decode(tokens[start : start + 2048])
        self.lib.llama_synchronize(self.context)

    def take_state(self):
        self.lib.llama_memory_clear(self.memory, True)
        self.read(self.tokens(STATE))
        size = self.lib.llama_state_seq_get_size(self.context, 0)
        self.state = (ctypes.c_uint8 * size)()
        if self.lib.llama_state_seq_get_data(self.context, self.state, size, 0) != size:
            raise RuntimeError("llama_state_seq_get_data failed")
        self.lib.llama_memory_clear(self.memory, True)
        self.filled = 0

    def restore(self, sequence):
        if self.lib.llama_state_seq_set_data(self.context, self.state, len(self.state), sequence) == 0:
            raise RuntimeError("llama_state_seq_set_data failed")

    def fill(self, depth):
        """Fills sequence 0 with exactly `depth` tokens."""
        if depth == 0 or self.filled > depth:
            self.lib.llama_memory_clear(self.memory, True)
            self.filled = 0
        if depth == 0:
            return
        if not self.state:
            self.take_state()
        if self.filled:  # tokens of later measurements come after all restored positions
            self.lib.llama_memory_seq_rm(self.memory, 0, STATE, -1)
        while self.filled < depth:
            self.restore(1)
            self.lib.llama_memory_seq_cp(self.memory, 1, 0, -1, -1)
            self.lib.llama_memory_seq_rm(self.memory, 1, -1, -1)
            self.filled += STATE

    def prefill(self, n, depth):
        self.fill(depth)
        tokens = self.tokens(n)
        started = time.perf_counter()
        self.read(tokens)
        return n / (time.perf_counter() - started)

    def generate(self, n, depth):
        self.fill(depth)
        tokens = self.tokens(n)
        started = time.perf_counter()
        for token in tokens:
            self.decode([token])
            self.lib.llama_synchronize(self.context)
        return n / (time.perf_counter() - started)

    def generate_batch(self, n, depth):
        """Tokens of all sequences per second."""
        self.take_state()
        for sequence in range(self.n_sequences):
            for _ in range(depth // STATE):
                self.restore(sequence)
        batch = self.lib.llama_batch_init(self.n_sequences, 0, 1)
        batch.n_tokens = self.n_sequences
        started = time.perf_counter()
        for step in range(n):
            for i, token in enumerate(self.tokens(self.n_sequences)):
                batch.token[i], batch.pos[i], batch.logits[i] = token, STATE + step, 1
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, i
            if self.lib.llama_decode(self.context, batch) != 0:
                raise RuntimeError("llama_decode failed")
            self.lib.llama_synchronize(self.context)
        rate = n * self.n_sequences / (time.perf_counter() - started)
        self.lib.llama_batch_free(batch)
        return rate


def open_model(lib, path):
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {path}")
    return model


def peak_resident_kib():
    """Of this process alone: ru_maxrss survives exec, so it could be that of a larger process that started this one."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def measure_load(args):
    """Excludes the interpreter and its modules from the time, and from the memory as far as it was measured before loading."""
    lib = load_library()
    before = peak_resident_kib()
    started = time.perf_counter()
    bench = Bench(lib, open_model(lib, args.m), args, "on", 512)
    bench.read(bench.tokens(5))
    lib.llama_get_logits_ith(bench.context, -1)
    seconds = time.perf_counter() - started
    peak = peak_resident_kib()
    return {"seconds": seconds, "resident_mib": (peak - before) / 1024, "version": lib.__version__}


def measure(args):
    lib = load_library()
    model = open_model(lib, args.m)
    depths = [int(d) for d in args.d.split(",")]
    if any(d % STATE for d in depths):
        raise SystemExit(f"-d {args.d}: depths must be multiples of {STATE}")
    tests = []
    for setting in args.s.split(","):
        room = max(depths) + max(args.p, args.n) + STATE
        bench = Bench(lib, model, args, setting, room * args.B, args.B)
        if args.B == 1:
            bench.read(bench.tokens(32))
            bench.generate(1, 0)
        for depth in depths:
            kinds = [("tg", args.n, bench.generate_batch)] if args.B > 1 else [("pp", args.p, bench.prefill), ("tg", args.n, bench.generate)]
            for kind, n, run in kinds:
                if n:
                    samples = [run(n, depth) for _ in range(args.r)]
                    tests.append({"test": kind, "n": n, "depth": depth, "setting": setting, "samples_ts": samples})
        bench.close()
    return {"version": lib.__version__, "system_info": lib.llama_print_system_info().decode().strip(" |"), "tests": tests}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True)
    for flag, default in (("-p", 512), ("-n", 64), ("-t", 2), ("-r", 1), ("-B", 1)):
        parser.add_argument(flag, type=int, default=default)
    parser.add_argument("-d", default="0", help="depths, separated by commas")
    parser.add_argument("-ctk", default="f16", choices=CACHE_TYPES)
    parser.add_argument("-ctv", default="f16", choices=CACHE_TYPES)
    parser.add_argument("-s", default="on,off", help=f"settings, of {', '.join(SETTINGS)}")
    parser.add_argument("--load", action="store_true")
    args = parser.parse_args()
    json.dump(measure_load(args) if args.load else measure(args), sys.stdout)
    print()


if __name__ == "__main__":
    main()
