"""HBW-KV: Training-Free Native Sparse Attention for KV Cache Compression."""
from row import FEW_KLD, FEW_NEEDLE, KLD, MEASURED, NEEDLE, OURS, Row, cache_bytes, compare, in_mib, number_of_samples, prefill_times, quotient, scores, times_full

TITLE = "HBW-KV"
INTRO = """
The paper runs LWM-Text-Chat-1M, LongChat-7B and Mistral-7B. Rows here run the model inside the binary (6.2 M parameters) on codes
hidden in books: the per cent of answers found with an eighth of the cache, and the distance from the full cache's predictions.
Votes are pooled as SnapKV pools them unless a row says otherwise.
"""
SWEEP = f"{NEEDLE} --kv-ratio 0.125"


def found(best="hbw"):
    return compare("exact", best=best, scale=100, form=".1f")


def answers_and_distance(outputs):
    answers, distance = found()(outputs[:1]), compare("kld", best="hbw", lower=True)(outputs[1:])
    return {"ours": f"answers: {answers['ours']}. KLD: {distance['ours']}", "verdict": MEASURED,
            "numbers": {"exact": answers["numbers"], "kld": distance["numbers"]},
            "differences": {"exact": answers["differences"], "kld": distance["differences"]}}  # fmt: skip


def added_to_prefill(outputs):
    """By how many per cent reading a prompt takes longer than without compression; of `full` the seconds."""
    lines, numbers = {}, {}
    for group, way, seconds, full in prefill_times(outputs[0]):
        n_runs = len(scores(outputs[0], "prefill_s", group)[way])
        ratio, error = quotient(seconds, full)
        numbers[f"{group} full"] = [*full, n_runs]
        numbers[" ".join(filter(None, (group, *way)))] = [100 * (ratio - 1), 100 * error, n_runs]
        sizes = cache_bytes(outputs[0], group)
        full_line = f"{group}: `full` {full[0]:.3f} ± {full[1]:.3f} s{in_mib(sizes, ('full', ''))}"
        lines.setdefault(group, [full_line]).append(f"`{way[0]}` {100 * (ratio - 1):+.1f} ± {100 * error:.1f} %{in_mib(sizes, way)}")
    ours = "; ".join(", ".join(line) for line in lines.values()) + number_of_samples(n for _, _, n in numbers.values())
    return {"ours": ours, "verdict": MEASURED, "numbers": numbers}


ROWS = [
    Row("snapkv", "Table 1", "better than SnapKV and H2O", "Mistral-7B, 1024: 98.3 % of full; SnapKV 96.9; at 4096 H2O 95.1",
        [f"{SWEEP} --kv-method hbw,snapkv,h2o"], found()),
    Row("distance", "Table 1", "the same in predictions of plain text", "no number", [f"{KLD} --kv-ratio 0.125 --kv-method hbw,snapkv"],
        compare("kld", best="hbw", lower=True), note="both grow while the second half of a window is read"),
    Row("parts", "Table 3 (2x2)", "blocks and rounds together beat either, and either beats none", "1024, single-document QA: 98.5; blocks 98.0, rounds 96.3, none 94.7",
        [f"{SWEEP} --kv-method hbw,hbw:rounds=1,hbw:block=1,hbw:block=1,rounds=1"], found()),
    Row("parts-no-pool", "Table 3, without pooling", "the same without pooling", "no number",
        [f"{SWEEP} --kv-method hbw:pool=none,hbw:pool=none,rounds=1,hbw:pool=none,block=1,hbw:pool=none,block=1,rounds=1"], found("hbw:pool=none")),
    Row("rounds", "section 4 (rounds)", "(1, 8) beats (8) alone and (1) alone", "96.3; (8) 85.9, (1) 94.7",
        [f"{SWEEP} --kv-method hbw,hbw:rounds=8,hbw:rounds=1,hbw:rounds=1/2/4/8"], found()),
    Row("representatives", "Table 2", "selecting the tokens of blocks beats one entry that stands for a block", "98.0; first 68.2, max 48.8, last 30.5, mean 14.2",
        [f"{SWEEP} --kv-method hbw:rounds=1," + ",".join(f"hbw:rounds=1,representative={r}" for r in ("first", "max", "last", "avg"))],
        found("hbw:rounds=1")),
    Row("block", "Figure 5", "c/32 is a good size", "T = c/32", [f"{SWEEP} --kv-method hbw,hbw:block=1,hbw:block=8,hbw:block=16"], found(),
        note="the budget is about 126 entries: c/32 is 3, c/8 is 16"),
    Row("parameters", "window, kernel, reduce; Equation 3 (softmax)", OURS, "window and pooling are not given; SnapKV's: 32, 7. Equation 3 prints a softmax of the prefix",
        [f"{protocol} --kv-ratio 0.125 --kv-method hbw," + ",".join(f"hbw:{p}" for p in (
            "window=8", "window=16", "window=64", "kernel=3", "kernel=15", "prefix_softmax=true", "reduce=max", "reduce=sum"))
         for protocol in (FEW_NEEDLE, FEW_KLD)], answers_and_distance, note="on half the texts"),
    Row("entropy", "Figure 3", "kept places are spread more evenly the more groups there are", "grows with every step",
        ["probe indices -f BOOKS/bram-stoker_dracula.txt -n 1024 --samples 8 --kv-size 128"],
        lambda outputs: {"ours": "; ".join(f"`{m['method']}` {m['entropy']:.2f}" for m in outputs[0]["probes"][0]["methods"]),
                         "verdict": "measured", "numbers": {m["method"]: m["entropy"] for m in outputs[0]["probes"][0]["methods"]}}),
    Row("needle-length", "Figure 4", "finds what the full cache finds", "2048 entries: 86.94; full 85.32, SnapKV 1 below",
        [f"{NEEDLE.replace('--lengths 1024', '--lengths 2048')} --kv-ratio 0.0625 --kv-method hbw,snapkv"], found(), hours=0.3),
    Row("prefill", "section 4.4 (after prefill)", "compresses after prefill: what that adds is not said", "no number",
        ["eval throughput --grid 2048+32,8192+32 -c 16384 --runs 5 --kv-method hbw,snapkv --kv-size 1024"], added_to_prefill,
        note="speed is measured only where nothing else runs"),
    Row("speed", "Table 4, Figure 7", "4 times the full cache's decoding speed at 32k tokens, 2048 entries", "20.66 tokens/s; full 5.74 (3.6 times); at 16k 2.2 times",
        ["eval throughput --grid 16384+128,32512+128 -c 32768 --runs 5 --kv-method hbw --kv-size 1024,2048,4096"],
        times_full("decode_tokens_per_second", "hbw"), hours=0.5, note="speed is measured only where nothing else runs"),
]  # fmt: skip
