#!/usr/bin/env python3
"""Speed with compression: decode under a budget, prefill with taps, a long stream.

    measure.py [--winnow build/release/winnow] [--model FILE] [--rounds 3] [--depth 16384] [--prompt 8192] [--real-time]
               [--stream-model FILE --text FILE] [--out docs/benchmarks]

Decode: after a prompt of --depth tokens with --budget slots per KV head, time per token against decode with a full cache of
--budget tokens, measured by winnow_kv_decode_bench: the sessions of all methods alternate, one token each, so that disturbances of
the machine affect all of them alike. Prefill: a prompt of --prompt tokens against the same without compression. Every method's run
lies between two runs of its baseline; ratios are medians over the rounds.
Stream: `winnow perplexity --stream` over a text, time per token and memory along it, and the slopes. The default model is
the 135M shape with random weights of bench/llama_cpp. --out FOLDER writes kv-speed.md and .json there.
"""

import argparse
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The measured methods that hold a budget; refreekv, pyramidinfer and twilight find their own size or need none.
EVICT = ("local", "streaming", "lm-infinite", "h2o", "tova", "scissorhands", "roco", "snapkv", "pyramidkv", "cake", "adakv", "treekv", "hbw",
         "keydiff", "knorm", "random")  # fmt: skip
MERGE = ("cam", "d2o:layer_policy=uniform", "d2o", "ems")
DECODE = {**{method: 1.10 for method in EVICT}, **{method: 1.35 for method in MERGE}}
PREFILL = {"snapkv": 1.10, "hbw": 1.10, "treekv": 1.10, "tova": 1.10, "refreekv": 1.10, "h2o": 1.5, "d2o": 1.5, "ems": 1.5}
NO_BUDGET = {"refreekv"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--winnow", default=ROOT / "build/release/winnow", type=pathlib.Path)
    parser.add_argument("--model", type=pathlib.Path, help="default: smollm2-135m in Q8_0 of build/bench-models")
    parser.add_argument("--methods", nargs="*", help="only these")
    parser.add_argument("--parts", nargs="*", default=["decode", "prefill", "stream"])
    parser.add_argument("--rounds", type=int, default=3, help="of prefill")
    parser.add_argument("--budget", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=16384)
    parser.add_argument("--prompt", type=int, default=8192)
    parser.add_argument("--generate", type=int, default=256, help="tokens of decode, of each method")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--stream-model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, help="of the stream; without both the stream is left out")
    parser.add_argument("--stream-method", default="treekv")
    parser.add_argument("--real-time", action="store_true", help="real-time priority (needs root), for a machine that is not quiet")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


def output(args, *command):
    command = (["chrt", "--fifo", "1"] if args.real_time else []) + [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def run(args, *flags):
    return json.loads(output(args, args.winnow, *flags, "-t", args.threads))


def chosen(args, goals):
    return [m for m in goals if not args.methods or m in args.methods]


def decode(args):
    """{method: {ratio, ratios, milliseconds, base_milliseconds, goal}}; ratios: the quartiles."""
    bench = args.winnow.parent / "winnow_kv_decode_bench"
    printed = output(args, bench, args.model, args.depth, args.budget, args.generate, args.threads, *chosen(args, DECODE))
    rows = [[word.strip() for word in line.strip("|").split("|")] for line in printed.splitlines()[2:]]
    # method, entries, rows, merges per step, merges in the prompt, ms, ms with a full cache of the budget, ms with one of as many entries
    base = next(float(row[5]) for row in rows if row[0] == "`full`" and int(row[1]) == args.budget)
    found = {}
    for method, _, _, _, _, own, _, of_as_many in rows:
        if method == "`full`":
            continue
        ratio, _, quartiles = of_as_many.partition(" ")
        found[method.strip("`")] = {"ratio": float(ratio), "ratios": [float(x) for x in quartiles.strip("()").split(" to ")],
                                    "goal": DECODE[method.strip("`")], "milliseconds": float(own), "base_milliseconds": base}
    return found


def seconds_per_token(args, method):
    kv = ([] if method == "full" else ["--kv-method", method]) + ([] if method in ("full", *NO_BUDGET) else ["--kv-size", args.budget])
    (row,) = run(args, "bench", "-m", args.model, "-p", args.prompt, "-n", 0, "-r", 1, "--no-warmup", "-o", "json", *kv)
    return 1 / row["samples_ts"][0]


def prefill(args):
    """Like decode; each run lies between two without compression. ratios: of all rounds."""
    samples = {method: [] for method in chosen(args, PREFILL)}
    for _ in range(args.rounds):
        for method, pairs in samples.items():
            before, own, after = seconds_per_token(args, "full"), seconds_per_token(args, method), seconds_per_token(args, "full")
            pairs.append((own, (before + after) / 2))
            print(f"{method}: {own / pairs[-1][1]:.3f}", file=sys.stderr, flush=True)
    result = {}
    for method, pairs in samples.items():
        ratios = [own / other for own, other in pairs]
        result[method] = {"ratio": statistics.median(ratios), "ratios": sorted(ratios), "goal": PREFILL[method],
                          "milliseconds": 1e3 * statistics.median(own for own, _ in pairs),
                          "base_milliseconds": 1e3 * statistics.median(other for _, other in pairs)}  # fmt: skip
    return result


def slope(points, x, y):
    """Slope of the least-squares line."""
    xs, ys = [p[x] for p in points], [p[y] for p in points]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(xs, ys)) / sum((a - mean_x) ** 2 for a in xs)


def stream(args):
    found = run(args, "perplexity", "-m", args.stream_model, "-f", args.text, "--stream", "--kv-method", args.stream_method,
                "--kv-size", args.budget, "--prefill-chunk", 64, "--every", 4096, "--json")  # fmt: skip
    points = found["points"]
    speeds = [{"tokens": p["tokens"], "microseconds": 1e6 / p["tokens_per_second"]} for p in points]
    return {"tokens": found["tokens"], "points": points, "speeds": speeds,
            "microseconds_per_token": statistics.median(s["microseconds"] for s in speeds),
            "microseconds_per_100k": 1e5 * slope(speeds, "tokens", "microseconds"),
            "resident_bytes_per_100k": 1e5 * slope(points[1:], "tokens", "resident_bytes"),
            "cache_bytes": [min(p["cache_bytes"] for p in points), max(p["cache_bytes"] for p in points)],
            "cache_bytes_with_lists": [min(p["cache_bytes_with_lists"] for p in points), max(p["cache_bytes_with_lists"] for p in points)]}  # fmt: skip


def table(title, rows, spread):
    lines = [f"## {title}", "", f"| method | ms per token | without | ratio (median) | {spread} | goal |", "|---|---|---|---|---|---|"]
    for method, r in rows.items():
        ratios = ", ".join(f"{x:.2f}" for x in r["ratios"])
        mark = f"**{r['ratio']:.2f}**" if r["ratio"] <= r["goal"] else f"{r['ratio']:.2f} (missed)"
        lines.append(f"| `{method}` | {r['milliseconds']:.3g} | {r['base_milliseconds']:.3g} | {mark} | {ratios} | {r['goal']:.2f} |")
    return lines + [""]


def markdown(args, result):
    about = result["about"]
    lines = ["# Speed with compression", "",
             f"{about['date']}, {about['machine']}, {args.threads} threads{', real-time priority on a machine in use' if args.real_time else ''}; "
             f"{args.model.name}, f16 cache; winnow {about['version']}. Repeated by `bench/kv_speed/measure.py`.", ""]  # fmt: skip
    if "decode" in result:
        lines += table(f"Decode after {args.depth} tokens, budget {args.budget}, against a full cache of {args.budget} tokens", result["decode"], "quartiles")
        lines += ["`d2o` gives layers with dense attention twice the budget, and with random weights every layer's is; `layer_policy=uniform` gives "
                  "each the budget. `refreekv` finds its size itself and decodes as a full cache of that size does.", ""]  # fmt: skip
    if "prefill" in result:
        lines += table(f"Prefill of {args.prompt} tokens, budget {args.budget}, against no compression", result["prefill"], "all rounds")
    if "stream" in result:
        s = result["stream"]
        lines += [f"## A stream of {s['tokens']} tokens", "",
                  f"`perplexity --stream` with {args.stream_method}, budget {args.budget}, model {args.stream_model.name}: {s['microseconds_per_token']:.0f} microseconds per token, "
                  f"slope {s['microseconds_per_100k']:+.1f} microseconds per 100,000 tokens; cache {s['cache_bytes'][0]} to {s['cache_bytes'][1]} bytes, "
                  f"{s['cache_bytes_with_lists'][0]} to {s['cache_bytes_with_lists'][1]} with lists; resident memory "
                  f"{s['resident_bytes_per_100k'] / 1024:+.0f} KiB per 100,000 tokens (the tokens themselves take 391).", ""]  # fmt: skip
    return "\n".join(lines)


def main():
    args = arguments()
    if not args.model:
        args.model = ROOT / "build/bench-models/smollm2-135m-Q8_0.gguf"
        if not args.model.exists():
            raise SystemExit(f"no {args.model}: make it with bench/llama_cpp/make_shapes.py, or give --model")
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    version = subprocess.run([args.winnow, "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    result = {"about": {"date": datetime.date.today().isoformat(), "machine": cpu, "version": version.removeprefix("winnow ").strip()}}
    if "decode" in args.parts:
        result["decode"] = decode(args)
    if "prefill" in args.parts:
        result["prefill"] = prefill(args)
    if "stream" in args.parts and args.stream_model and args.text:
        result["stream"] = stream(args)
    text = markdown(args, result)
    print(text)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "kv-speed.md").write_text(text)
        (args.out / "kv-speed.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
