"""HBW-KV: Training-Free Native Sparse Attention for KV Cache Compression."""
from readers import Reader, answers_and_distance, compare, field, measured, times_full
from row import (ALONE, FEW_KLD, FEW_NEEDLE, KLD, NEEDLE, OURS, Row, cache_bytes, in_mib, key, number_of_samples, prefill_times, quotient,
                 scores)  # fmt: skip
from verdicts import IN_KIND, MEASURED, NOT, OPEN, apart, claims_hold, nothing_lost, of_parts, of_signs, sign, yes_or_no

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
    """No fewer right answers than under the full cache, and more than under another method."""

    def verdict(found):
        gain, error, n = next(apart(found, best, "full"))
        return of_parts({"as the full cache": nothing_lost(-gain / 100, error / 100, n, of_answers=True),
                         f"above {other}": of_signs([sign(*d) for d in apart(found, best, other)])})  # fmt: skip

    return verdict


SIZES = (1, 2, 4, 8, 16)  # tokens of a block
BUDGETS = (64, 128, 256)


def blocks_by_budget(found):
    """Blocks beat tokens; T = c/32 is the best size; the best size grows with the budget."""
    ways = {budget: {size: found["numbers"][f"hbw:block={size} size {budget}"][0] for size in SIZES} for budget in BUDGETS}

    def against(budget, a, b):
        name, reverse = f"hbw:block={a} against hbw:block={b} size {budget}", f"hbw:block={b} against hbw:block={a} size {budget}"
        if name in found["differences"]:
            return sign(*found["differences"][name])
        mean, error, n = found["differences"][reverse]
        return -sign(mean, error, n)

    tokens = [against(budget, budget // 32, 1) for budget in BUDGETS]
    others = [against(budget, budget // 32, size) for budget in BUDGETS for size in SIZES if size not in (1, budget // 32)]
    best = {}  # the sizes that are as good as the best, within the error
    for budget, means in ways.items():
        top = max(means, key=means.get)
        best[budget] = [size for size in SIZES if size == top or not against(budget, top, size)]
    first, last = best[BUDGETS[0]], best[BUDGETS[-1]]
    grows = IN_KIND if max(first) < min(last) else NOT if min(first) > max(last) else OPEN
    return of_parts({"c/32 beats single tokens": of_signs(tokens), "and other sizes": of_signs(others), "the best size grows": grows}) + (
        "; as good as the best, within the error: " + ", ".join(f"{'/'.join(map(str, sizes))} at {budget} entries" for budget, sizes in best.items()))


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
    Row("block", "Figure 5", "blocks beat single tokens, and the best size is c/32: it grows with the budget", "512: 16, 1024: 32, 2048: 64; at 512 95.1 against 91.1 % of full",
        [f"{NEEDLE} --kv-size {','.join(map(str, BUDGETS))} --kv-method {','.join(f'hbw:block={size}' for size in SIZES)}"],
        answers(None, claims=[(f"hbw:block={a}", f"hbw:block={b}") for i, a in enumerate(SIZES) for b in SIZES[i + 1:]], verdict=blocks_by_budget),
        note="c/32 is 2, 4 and 8 here; the sentence that holds a code is as long whatever the budget"),
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
    Row("prefill", "section 4.5 (after prefill)", "compresses after prefill: what that adds is not said", "no number",
        ["eval throughput --grid 2048+32,8192+32 -c 16384 --runs 5 --kv-method hbw,snapkv --kv-size 1024"], added_to_prefill,
        note="measured beside other programs of lower priority, hence these errors: they do not tell what is added"),
    Row("speed", "Table 4, Figure 7", "4 times the full cache's decoding speed at 32k tokens with 1,024 entries", "22.48 tokens/s; full 5.74 (3.9 times); 2,048 entries 3.6, 4,096 3.0; at 16k 2.3, 2.2, 1.7",
        ["eval throughput --grid 16384+128,32512+128 -c 32768 --runs 5 --kv-method hbw --kv-size 1024,2048,4096"],
        times_full("decode_tokens_per_second", "hbw", PUBLISHED), hours=0.5,
        note=f"'in kind' is at least half of the paper's gain in every cell; of one sequence; {ALONE}"),
]  # fmt: skip
