"""HBW-KV: Training-Free Native Sparse Attention for KV Cache Compression."""
from readers import Reader, answers_and_distance, compare, field, measured, times_full
from row import (ALONE, FEW_KLD, FEW_NEEDLE, KLD, NEEDLE, OURS, Row, cache_bytes, in_mib, key, number_of_samples, prefill_times, quotient,
                 scores)  # fmt: skip
from verdicts import MEASURED, apart, claims_hold, of_parts, of_signs, sign, yes_or_no

TITLE = "HBW-KV"
INTRO = """
The paper runs LWM-Text-Chat-1M, LongChat-7B and Mistral-7B. These rows run the bundled model (6.2 M parameters) on codes
hidden in books: the per cent of answers found with an eighth of the cache, and the distance from the full cache's predictions.
Votes are pooled as SnapKV pools them unless a row says otherwise.
"""
SWEEP = f"{NEEDLE} --kv-ratio 0.125"
# Table 4: tokens per second, as a multiple of the full cache's, by context and entries.
PUBLISHED = {"16384+128 size 1024": 2.28, "16384+128 size 2048": 2.17, "16384+128 size 4096": 1.73,
             "32512+128 size 1024": 3.92, "32512+128 size 2048": 3.60, "32512+128 size 4096": 2.98}  # fmt: skip


def answers(best="hbw", **how):
    return compare("exact", best=best, scale=100, form=".1f", **how)


def two_by_two(best, blocks, rounds, neither):
    """Table 3: blocks, rounds, both, neither."""
    parts = {"together beat either": [(best, blocks), (best, rounds)], "blocks beat none": [(blocks, neither)], "rounds beat none": [(rounds, neither)]}
    return answers(best, claims=[pair for pairs in parts.values() for pair in pairs],
                   verdict=lambda found: of_parts({name: claims_hold(pairs)(found) for name, pairs in parts.items()}))  # fmt: skip


def as_full_and_above(best, other):
    """At least as many right answers as the full cache, and more than another method."""
    return lambda found: of_parts({
        "as the full cache": yes_or_no(all(mean >= -2 * error for mean, error in apart(found, best, "full"))),
        f"above {other}": of_signs([sign(*d) for d in apart(found, best, other)])})  # fmt: skip


def measure_prefill(outputs):
    """The per cent by which reading a prompt takes longer than without compression; for `full` the seconds."""
    numbers, sizes = {}, {}
    for group, way, seconds, full in prefill_times(outputs[0]):
        n_runs = len(scores(outputs[0], "prefill_s", group)[way])
        ratio, error = quotient(seconds, full)
        numbers[f"{group} full"] = [*full, n_runs]
        numbers[key((group, *way))] = [100 * (ratio - 1), 100 * error, n_runs]
        sizes.update({key((group, *one)): size for one, size in cache_bytes(outputs[0], group).items()})
    return {"numbers": numbers, "bytes": sizes}


def prefill_text(found):
    lines = {}
    for name, (mean, error, _) in found["numbers"].items():
        group, method, *_ = name.split(" ")
        size = in_mib(found.get("bytes", {}), name)
        lines.setdefault(group, []).append(f"`full` {mean:.3f} ± {error:.3f} s{size}" if method == "full" else f"`{method}` {mean:+.1f} ± {error:.1f} %{size}")
    return "; ".join(f"{group}: {', '.join(line)}" for group, line in lines.items()) + number_of_samples(n for *_, n in found["numbers"].values())


added_to_prefill = Reader(measure_prefill, prefill_text, lambda found: MEASURED)


def entropies(output):
    """The entropy of the kept positions, by the number of groups (1, 2, 4, ...); then that of the other methods."""
    probe = output["probes"][0]
    by_groups = {f"{2**i} groups": entropy for i, entropy in enumerate(probe["hbw_entropy_by_groups"])}
    return {**by_groups, **{m["method"]: m["entropy"] for m in probe["methods"]}}


def grows_with_groups(numbers):
    found = [entropy for name, entropy in numbers.items() if name.endswith(" groups")]
    return yes_or_no(all(a < b for a, b in zip(found, found[1:])))


NO_POOL = "hbw:pool=none"
ROWS = [
    Row("snapkv", "Table 1", "better than SnapKV and H2O", "Mistral-7B, 1024: 98.3 % of full; SnapKV 96.9; at 4096 H2O 95.1",
        [f"{SWEEP} --kv-method hbw,snapkv,h2o"], answers()),
    Row("distance", "Table 1", "the same in predictions of plain text", "no number", [f"{KLD} --kv-ratio 0.125 --kv-method hbw,snapkv"],
        compare("kld", best="hbw", lower=True), note="both grow while the second half of a window is read"),
    Row("longbench", "Table 1, Figure 6", "on LongBench's 16 tasks better than SnapKV and H2O", "Mistral-7B, 1024: 98.3 % of full; SnapKV 96.9",
        cannot="needs a model that answers LongBench's questions; the bundled model answers none"),
    Row("parts", "Table 3 (2x2)", "blocks and rounds together beat either, and either beats none", "1024, single-document QA: 98.5; blocks 98.0, rounds 96.3, none 94.7",
        [f"{SWEEP} --kv-method hbw,hbw:rounds=1,hbw:block=1,hbw:block=1,rounds=1"],
        two_by_two("hbw", "hbw:rounds=1", "hbw:block=1", "hbw:block=1,rounds=1")),
    Row("parts-no-pool", "Table 3, without pooling", "the same without pooling", "no number",
        [f"{SWEEP} --kv-method {NO_POOL},{NO_POOL},rounds=1,{NO_POOL},block=1,{NO_POOL},block=1,rounds=1"],
        two_by_two(NO_POOL, f"{NO_POOL},rounds=1", f"{NO_POOL},block=1", f"{NO_POOL},block=1,rounds=1")),
    Row("rounds", "Table 2 (rounds, T = 1)", "(1, 8) beats (8) alone and (1) alone", "96.3; (8) 85.9, (1) 94.7",
        [f"{SWEEP} --kv-method hbw:block=1,hbw:block=1,rounds=8,hbw:block=1,rounds=1,hbw:block=1,rounds=1/2/4/8"],
        answers("hbw:block=1", over=("hbw:block=1,rounds=8", "hbw:block=1,rounds=1")), note="single tokens, as in the paper (4.4.2); rounds 1, 2, 4, 8 are ours"),
    Row("representatives", "Table 2", "selecting single tokens beats one entry that stands for a block", "96.3, in one round 94.7; first 68.2, max 48.8, last 30.5, mean 14.2",
        [f"{SWEEP} --kv-method hbw:block=1,hbw:block=1,rounds=1," + ",".join(f"hbw:rounds=1,representative={r}" for r in ("first", "max", "last", "avg"))],
        answers("hbw:block=1", claims=[(tokens, f"hbw:rounds=1,representative={r}") for tokens in ("hbw:block=1", "hbw:block=1,rounds=1")
                                       for r in ("first", "max", "last", "avg")])),
    Row("block", "Figure 5", "c/32 is a good size", "T = c/32", [f"{SWEEP} --kv-method hbw,hbw:block=1,hbw:block=8,hbw:block=16"], answers(),
        note="the budget is about 126 entries: c/32 is 3, c/8 is 16"),
    Row("parameters", "window, kernel, reduce; Equation 3 (softmax)", OURS, "window and pooling are not given; SnapKV's: 32, 7. Equation 3 prints a softmax of the prefix",
        [f"{protocol} --kv-ratio 0.125 --kv-method hbw," + ",".join(f"hbw:{p}" for p in (
            "window=8", "window=16", "window=64", "kernel=3", "kernel=15", "prefix_softmax=true", "reduce=max", "reduce=sum"))
         for protocol in (FEW_NEEDLE, FEW_KLD)], measured(answers_and_distance("hbw")), note="on half the texts"),
    Row("entropy", "Figure 3", "kept places are spread more evenly the more groups there are", "grows with every step",
        ["probe indices -f BOOKS/bram-stoker_dracula.txt -n 1024 --samples 8 --kv-size 128"],
        field(entropies, lambda n: "; ".join(f"{name} {entropy:.2f}" if name.endswith(" groups") else f"`{name}` {entropy:.2f}" for name, entropy in n.items()),
              grows_with_groups), note="groups of one selection, without rounds before it; the methods as they are by default; 8 samples"),
    Row("needle-length", "Figure 4", "finds what the full cache finds; SnapKV less", "2048 entries: 86.94; full 85.32, SnapKV 1 below",
        [f"{NEEDLE.replace('--lengths 1024', '--lengths 2048')} --kv-ratio 0.0625 --kv-method hbw,snapkv"],
        answers(verdict=as_full_and_above("hbw", "snapkv"))),
    Row("prefill", "section 4.4 (after prefill)", "compresses after prefill: what that adds is not said", "no number",
        ["eval throughput --grid 2048+32,8192+32 -c 16384 --runs 5 --kv-method hbw,snapkv --kv-size 1024"], added_to_prefill, note=ALONE),
    Row("speed", "Table 4, Figure 7", "4 times the full cache's decoding speed at 32k tokens, 2048 entries", "20.66 tokens/s; full 5.74 (3.6 times); at 16k 2.2 times",
        ["eval throughput --grid 16384+128,32512+128 -c 32768 --runs 5 --kv-method hbw --kv-size 1024,2048,4096"],
        times_full("decode_tokens_per_second", "hbw", PUBLISHED), hours=0.5,
        note=f"'in kind' is at least half of the paper's gain in every cell; of one sequence; {ALONE}"),
]  # fmt: skip
