#!/usr/bin/env python3
"""table.py --winnow BINARY --load BINARY --llama-server BINARY -m MODEL: one server under load as its users see it, winnow
compared with llama-server: same file, same threads, same client, alternately. Every row has a goal. --rows 1,4 measures some
rows; --scale 0.1 makes everything smaller (to test this program: the ratios are then meaningless)."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from conversations import hold
from servers import Client, Server

HERE = Path(__file__).resolve().parent
OTHER_MIB = 32  # resident memory that --memory-limit does not count: requests, responses, the allocator; as in tests/server/soak.py


class Measure:
    def __init__(self, args):
        self.args = args
        self.client = Client(args.load, vocabulary=args.vocabulary)
        self.rows = []
        command = [str(args.winnow), "inspect", str(args.model), "--json"]
        self.model = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    def size(self, n, least=1):
        return max(least, int(n * self.args.scale))

    def document(self, n, number=0):
        """n tokens, which differ for each number."""
        return [100 + (i + number) * (7919 + number) % (self.args.vocabulary - 100) for i in range(n)]

    def winnow(self, context, *flags):
        a = self.args
        return Server([a.winnow, "serve", "-m", a.model, "-t", a.threads, "-c", context, "--metrics", *flags],
                      a.out / "winnow.log")  # fmt: skip

    def llama(self, context, slots, *flags):
        """`context` is the context of one slot."""
        a = self.args
        # llama-server limits the context to the trained one.
        trained = max(context, self.model["hyperparameters"]["trained_context"])
        command = [a.llama_server, "-m", a.model, "-t", a.threads, "-tb", a.threads, "-c", context * slots, "-np", slots, "-fa", "on",
                   "-cb", "--override-kv", f"{self.model['architecture']}.context_length=int:{trained}", *flags]  # fmt: skip
        return Server(command, a.out / "llama-server.log")

    def by_turns(self, winnow, llama):
        """Medians of the results of both servers, measured alternately, several times."""
        ours, theirs = [], []
        for _ in range(self.args.rounds):
            for name, play, runs in (("winnow", winnow, ours), ("llama-server", llama, theirs)):
                runs.append(play())
                print(name, json.dumps(runs[-1]), file=sys.stderr, flush=True)
        return [{key: statistics.median(run[key] for run in runs) for key in runs[0] if key != "problem"}
                for runs in (ours, theirs)]  # fmt: skip

    def add(self, what, unit, ours, theirs, goal, reached):
        self.rows.append({"what": what, "unit": unit, "winnow": ours, "llama-server": theirs, "goal": goal, "reached": reached})
        print(self.line(self.rows[-1]), flush=True)

    def ratio(self, what, unit, ours, theirs, goal, at_least=True):
        """Adds a row whose goal is a ratio of winnow's figure to llama-server's."""
        found = ours / theirs if theirs else float("inf")
        sign = ">=" if at_least else "<="
        reached = found >= goal if at_least else found <= goal
        self.add(what, unit, ours, theirs, f"{sign} {goal}x, is {found:.2f}x", reached)

    @staticmethod
    def line(row):
        def cell(value):
            return "-" if value is None else f"{value:.4g}"

        return (f"| {row['what']} ({row['unit']}) | {cell(row['winnow'])} | {cell(row['llama-server'])} | {row['goal']} | "
                f"{'yes' if row['reached'] else 'no'} |")  # fmt: skip

    # --- the rows ---

    def throughput(self):
        clients, prompt, generate = self.size(32, 2), self.size(512, 16), self.size(128, 4)
        context = prompt + generate + 64
        load = {"clients": clients, "requests": 2 * clients, "prompt": prompt, "generate": generate}
        with self.winnow(context, "-np", clients) as ours, self.llama(context, clients) as theirs:
            a, b = self.by_turns(lambda: self.client.play(ours, **load), lambda: self.client.play(theirs, **load))
        self.ratio(f"{clients} clients, prompts of {prompt}, {generate} tokens each", "tokens/s", a["tokens_per_s"],
                   b["tokens_per_s"], 2.5)  # fmt: skip

    def long_decode(self):
        clients, prompt, kept, generate = self.size(32, 2), self.size(8192, 64), self.size(1024, 16), self.size(256, 16)
        context = prompt + generate + 64
        # All prompts are read first: otherwise the first clients would finish before the last prompts are read.
        load = {"clients": clients, "requests": clients, "prompt": prompt, "generate": generate, "read_first": 1}
        budget = {"kv_method": "snapkv", "kv_decode": "h2o", "kv_size": kept, "reuse_across_questions": True}
        with self.winnow(context, "-np", clients) as ours, self.llama(context, clients) as theirs:
            a, b = self.by_turns(lambda: self.client.play(ours, budget, **load), lambda: self.client.play(theirs, **load))
        what = f"{clients} clients with {prompt} tokens read, {kept} kept"
        self.ratio(what + ": decode", "tokens/s", a["decode_tokens_per_s"], b["decode_tokens_per_s"], 6)
        self.ratio(what + f": end to end, read and {generate} new", "tokens/s", a["tokens_per_s"], b["tokens_per_s"], 1.8)

    def capacity(self):
        """Conversations that run at once within a memory limit, the model not counted: each has read its prompt and generates."""
        prompt, kept, generate = self.size(self.args.held_prompt, 64), self.size(1024, 16), self.size(256, 16)
        limit = self.size(1 << 30)
        context = prompt + generate + 64
        slots = 16

        def body(number):
            return {"prompt": self.document(prompt, number), "n_predict": 100000, "ignore_eos": True, "stream": True,
                    "cache_prompt": False, "kv_method": "snapkv", "kv_decode": "h2o", "kv_size": kept}  # fmt: skip

        # Admitted conversations generate all the time. Gaps are long, so that the other prompts are read meanwhile.
        flags = (2 * prompt + 64, "-np", 512, "--max-token-gap", 2000)
        with self.winnow(*flags) as ours:
            beside = int(ours.metric("winnow_fixed_bytes") or 0)
        if beside == 0:
            raise SystemExit("/metrics of winnow has no winnow_fixed_bytes")
        with self.winnow(*flags, "--memory-limit", beside + limit) as ours:
            ours.post("/completion", {"prompt": self.document(kept // 2), "n_predict": 4, "cache_prompt": False})
            alone = ours.rss_mib()
            ours_n, together = hold(ours, body)
            counted = limit // int(ours.metric("winnow_max_sequence_bytes"))
        print(f"{ours_n} conversations are held, {counted} are counted from what one reserves; resident: {together:.0f} MiB, "
              f"{alone:.0f} MiB without them", file=sys.stderr, flush=True)  # fmt: skip
        self.add(f"{ours_n} conversations of {prompt} tokens, {kept} kept: memory that became resident", "MiB", together - alone, None,
                 f"<= {OTHER_MIB + (limit >> 20)} MiB", together - alone <= OTHER_MIB + (limit >> 20))  # fmt: skip
        for kind, goal in (("f16", 6), ("q8_0", 3)):
            with self.llama(context, 1, "-ctk", kind, "-ctv", kind) as one, self.llama(context, slots, "-ctk", kind, "-ctv", kind) as many:
                # Memory becomes resident when it is written: llama-server clears its cache, and so writes it, at the start.
                bytes_each = (many.rss_mib() - one.rss_mib()) * 2**20 / (slots - 1)
            self.ratio(f"conversations of {prompt} tokens within {limit >> 20} MiB, llama-server with {kind}", "conversations", ours_n,
                       limit // bytes_each, goal)  # fmt: skip

    def first_token(self):
        clients, prompt = self.size(8, 2), self.size(4096, 64)
        context = prompt + 128
        for n, how in ((1, "at once"), (4, "each four times")):
            load = {"clients": clients, "requests": n * clients, "prompt": prompt, "generate": self.size(32, 4)}
            with self.winnow(context, "-np", clients) as ours, self.llama(context, clients) as theirs:
                a, b = self.by_turns(lambda: self.client.play(ours, **load), lambda: self.client.play(theirs, **load))
            what = f"time to the first token, {clients} clients {how}, prompts of {prompt}"
            self.ratio(what + ", p50", "ms", a["first_p50_ms"], b["first_p50_ms"], 0.6, at_least=False)
            self.ratio(what + ", p99", "ms", a["first_p99_ms"], b["first_p99_ms"], 0.5, at_least=False)

    def gap(self):
        clients, prompt = 4, self.size(30000, 200)
        load = {"clients": clients + 1, "requests": clients, "prompt": 32, "generate": self.size(4000, 300), "long_prompt": prompt}
        context = prompt + 512
        with self.winnow(context, "-np", clients + 1) as ours, self.llama(context, clients + 1) as theirs:
            a, b = self.by_turns(lambda: self.client.play(ours, **load), lambda: self.client.play(theirs, **load))
        longest = a["gap_max_while_long_ms"]
        self.add(f"longest gap between tokens while {prompt} are read", "ms", longest, b["gap_max_while_long_ms"], "<= 250 ms",
                 0 < longest <= 250)  # fmt: skip

    def gap_of_methods(self):
        """The same while a method compresses the prompt: a decision is not interrupted within a layer."""
        clients, prompt, kept = 4, self.size(self.args.gap_prompt, 200), self.size(1024, 16)
        load = {"clients": clients + 1, "requests": clients, "prompt": 32, "generate": self.size(4000, 300), "long_prompt": prompt}
        for method in self.args.gap_methods.split(","):
            fields = {"kv_method": method, "kv_size": kept, "cache_prompt": False}
            # A replay takes positions after the prompt in the context.
            with self.winnow(2 * prompt + 4512, "-np", clients + 1) as ours:
                runs = [self.client.play(ours, fields, **load) for _ in range(self.args.rounds)]
            print(method, json.dumps(runs), file=sys.stderr, flush=True)
            longest = max(run["gap_max_while_long_ms"] for run in runs)
            self.add(f"longest gap between tokens while {prompt} are read and {method} keeps {kept}", "ms", longest, None, "<= 250 ms",
                     0 < longest <= 250)  # fmt: skip

    def one_client(self):
        generate = self.size(256, 16)
        a = self.args
        command = [a.winnow, "bench", "-m", a.model, "-t", a.threads, "-p", 0, "-n", generate, "-o", "json"]
        load = {"clients": 1, "requests": 3, "prompt": 16, "generate": generate}
        with self.winnow(generate + 128) as ours, self.llama(generate + 128, 1) as theirs:
            # Rates are between tokens: the prompt is not counted.
            served, other = self.by_turns(lambda: self.client.play(ours, **load), lambda: self.client.play(theirs, **load))
        text = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
        bench = statistics.median(row["avg_ts"] for row in json.loads(text))
        found = 1000 / served["gap_p50_ms"] / bench
        self.add("decode of one client over HTTP against `winnow bench`", "share", found, 1000 / other["gap_p50_ms"] / bench, ">= 0.97",
                 found >= 0.97)  # fmt: skip

    def idle(self):
        active, idle = self.size(64, 2), self.size(1000, 10)
        load = {"clients": active, "requests": active, "prompt": 32, "generate": self.size(64, 8)}
        with self.winnow(512, "-np", active) as ours:
            alone = self.client.play(ours, **load)
            before = ours.rss_mib()
            with_idle = self.client.play(ours, idle=idle, **load)
            more = ours.rss_mib() - before
        self.add(f"{idle} idle connections beside {active}: memory", "MiB", more, None, "< 64 MiB", more < 64)
        share = with_idle["tokens_per_s"] / alone["tokens_per_s"]
        self.add(f"{idle} idle connections beside {active}: speed", "share", share, None, ">= 0.95", share >= 0.95)

    def sessions(self):
        prompt, kept = self.size(8192, 64), self.size(1024, 16)
        with tempfile.TemporaryDirectory(dir=self.args.out) as folder, self.winnow(prompt + 512, "--session-path", folder) as ours:

            def timed(path, body):
                start = time.perf_counter()
                status, text = ours.post(path, body)
                if status != 200:
                    raise SystemExit(f"{path}: {status} {text}")
                return (time.perf_counter() - start) * 1000

            timed("/v1/sessions", {"id": "first", "prompt": self.document(prompt), "kv_method": "snapkv", "kv_size": kept})
            fork = statistics.median(timed("/v1/sessions/first/fork", {"id": f"fork-{i}"}) for i in range(5))
            timed("/v1/sessions/first/save", {"name": "saved"})
            restore = statistics.median(timed(f"/v1/sessions/back-{i}/restore", {"name": "saved"}) for i in range(5))
        what = f"a session of {prompt} tokens, {kept} kept: "
        self.add(what + "fork", "ms", fork, None, "<= 20 ms (1B)", fork <= 20)
        self.add(what + "restore from disk", "ms", restore, None, "<= 100 ms (1B)", restore <= 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--winnow", type=Path, required=True)
    parser.add_argument("--load", type=Path, required=True, help="winnow_server_load")
    parser.add_argument("--llama-server", type=Path, required=True, help="llama_server.sh prints one")
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="by turns; medians are shown")
    parser.add_argument("--vocabulary", type=int, default=30000, help="tokens are drawn below it")
    parser.add_argument("--held-prompt", type=int, default=8192, help="tokens that each conversation of row 3 has read")
    parser.add_argument("--gap-prompt", type=int, default=8192, help="tokens of the long prompt of row 9")
    parser.add_argument("--gap-methods", default="winnow,kvzip,attention-matching,snapkv", help="of row 9")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--rows", help="1,2,...: all")
    parser.add_argument("--out", type=Path, default=Path("build/bench/server"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    measure = Measure(args)
    rows = [measure.throughput, measure.long_decode, measure.capacity, measure.first_token, measure.gap, measure.one_client, measure.idle,
            measure.sessions, measure.gap_of_methods]  # fmt: skip
    wanted = [int(word) for word in args.rows.split(",")] if args.rows else range(1, len(rows) + 1)
    print("| what | winnow | llama-server | goal | reached |\n|---|---|---|---|---|")
    for number in wanted:
        rows[number - 1]()
    (args.out / "rows.json").write_text(json.dumps(measure.rows, indent=1))


if __name__ == "__main__":
    main()
