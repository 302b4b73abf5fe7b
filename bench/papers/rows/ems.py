"""EMS: Adaptive Evict-Then-Merge Strategy for Head-wise KV Cache Compression Based on Global-Local Importance."""
from row import FEW_KLD, FEW_NEEDLE, GIVEN, IN_KIND, KLD, NEEDLE, NOT, OPEN, STREAM, Row, compare, difference, field, mean_and_error, measured, scores, times_full

TITLE = "EMS"
INTRO = """
The paper runs Llama-2-7B, Llama-3-8B, LongChat-7B and Mistral-7B on LongBench with 256 entries. Rows here run the model inside the
binary (6.2 M parameters) on codes hidden in books (per cent of answers found with an eighth of the cache) and on its predictions of
plain text (KL divergence from the full cache, nats a token). EMS keeps 16 bytes of state an entry; `needle-bytes` says what that is.
"""
SWEEP = f"{NEEDLE} --kv-ratio 0.125"
PLAIN = f"{KLD} --kv-ratio 0.125"


def both(name, source, claim, number, variants, note="", protocols=(SWEEP, PLAIN), **how):
    """Answers and predictions of variants, against the defaults."""
    methods = ",".join(["ems"] + [f"ems:{variant}" for variant in variants])
    answers, distance = compare("exact", best="ems", scale=100, form=".1f", **how), compare("kld", best="ems", lower=True, **how)

    def read(outputs):
        a, d = answers(outputs[:1]), distance(outputs[1:])
        return {"ours": f"answers: {a['ours']}. KLD: {d['ours']}", "verdict": f"answers {a['verdict']}; KLD {d['verdict']}",
                "numbers": {"exact": a["numbers"], "kld": d["numbers"]}, "differences": {"exact": a["differences"], "kld": d["differences"]}}

    return Row(name, source, claim, number, [f"{protocol} --kv-method {methods}" for protocol in protocols], measured(read) if claim == GIVEN else read, note=note)


def redundancy(output):
    heads = output["probes"][0]["heads"]
    return {name: list(mean_and_error(head[name] for head in heads)) for name in ("sparsity", "redundancy")}


def origin(output):
    return {f"{b['kept']} of {b['of']}": [b["global"], b["local"]] for b in output["probes"][0]["budgets"]}


EVEN = 0.1  # shares this near to a half count as even


def more_global_where_more_is_kept(numbers):
    few, many = ([g / (g + l) for g, l in numbers.values()])
    return IN_KIND if many > few and abs(few - 0.5) <= EVEN else NOT


def retrieves(best, share):
    """Whether `best` finds more or less than such a share of what the full cache finds, by two standard errors."""
    read = compare("exact", best=best, scale=100, form=".1f")

    def read_with_verdict(outputs):
        result, found = read(outputs), scores(outputs[0], "exact")
        wanted = {sample: share * exact for sample, exact in found["full", ""].items()}
        own = next(values for (method, _), values in found.items() if method == best)
        mean, error, n = difference(own, wanted)
        result["differences"][f"{best} against {100 * share:.0f} % of full"] = [100 * mean, 100 * error, n]
        return {**result, "verdict": OPEN if abs(mean) <= 2 * error else IN_KIND if mean > 0 else NOT}

    return read_with_verdict


ROWS = [
    Row("longbench", "Table 1", "with 256 entries above StreamingLLM, H2O and SnapKV", "Llama-2-7B 31.34; H2O 30.23, SnapKV 30.57, full 33.27",
        cannot="needs a model that answers LongBench's questions; the model inside answers none"),
    Row("needle", "Table 2, Figure 6", "finds more than H2O and SnapKV", "256 of 32k: .896; SnapKV .893, H2O .335",
        [f"{SWEEP} --kv-method ems,snapkv,h2o,streaming"], compare("exact", best="ems", scale=100, form=".1f"),
        note="at an eighth of the entries; EMS shows attention up to four times as many"),
    Row("needle-bytes", "Table 2, at equal bytes", "the same at the same bytes", "no number",
        [f"{NEEDLE} --kv-memory 900K --kv-method ems,snapkv:window=16,h2o,streaming"], compare("exact", best="ems", scale=100, form=".1f"),
        note="a limit on keys, values and state at any moment; the prompt of a layer counts too"),
    Row("needle-below-2", "abstract, Figure 6", "95 % of the answers with less than 2 % of the text", "512 of 32k: .959; SnapKV .956, H2O .384",
        [f"{FEW_NEEDLE.replace('--lengths 1024', '--lengths 3072')} --kv-ratio 0.019 --kv-method ems:window=16,tau=0.55,snapkv:window=16,h2o,streaming"],
        retrieves("ems:window=16,tau=0.55", 0.95), note="58 of 3,072 entries; window and threshold are those of the paper's needle test"),
    both("score", "Table 4 (score)", "global and local attention together beat either", "31.34; global 28.81, local 31.06", ["score=global", "score=local"]),
    both("evict-only", "Table 4 (merging)", "merging beats evicting only", "31.34; evict only 30.82", ["gamma=1"]),
    both("tau", "Table 6 (threshold)", "0.6 is best", "0: 29.68, .3: 30.25, .5: 30.93, .6: 31.34, .7: 31.25, .9: 31.13, 1: 30.82",
         [f"tau={t}" for t in ("0", "0.3", "0.5", "0.7", "0.9", "1")]),
    both("gamma", "Table 7 (magnification)", "4 is best", "1..8: 30.05 30.88 31.00 31.34 31.34 31.25 31.04 30.92", [f"gamma={g}" for g in (1, 2, 3, 6, 8)]),
    both("similarity", "Table 8 (similarity)", "keys and values together beat either", "31.34; keys 31.18, values 31.26", ["similarity=key", "similarity=value"]),
    both("protection", "section 4.2 (protection)", "sparing the most significant entries from merges helps", "how many is not said", ["n_protect=4", "n_protect=16", "n_protect=64"],
         note="the default is 0, the number of the paper's perplexity run (appendix C)", reverse=True),
    both("position", "Table 1 (w. and w.o. position)", "with and without positions are close", "Llama-2 30.93, 31.34; Mistral 34.66, 33.93",
         ["positions=original", "positions=baked"], note="close is within 10 points and 0.1 nats", within=0.1),
    both("window", "settings", "local windows of 32 (LongBench) and 16 (needle)", "32, 16", ["window=16", "window=8"]),
    both("parameters", "settings (kernel); reduce", GIVEN, "kernel 7; of the group nothing is said", ["kernel=1", "kernel=3", "kernel=15", "reduce=max", "reduce=sum"],
         protocols=(f"{FEW_NEEDLE} --kv-ratio 0.125", f"{FEW_KLD} --kv-ratio 0.125"), note="on half the texts"),
    Row("budgets", "Tables 5, 9 (budgets)", "better with every larger budget", "128..1024: 29.41 31.34 32.26 32.71 33.00",
        [f"{NEEDLE} --kv-size 64,128,256,512 --kv-method ems"], compare("exact", scale=100, form=".1f")),
    Row("perplexity", "Figure 5", "lowest perplexity over ten times the trained length, at 2, 5 and 10 % of it", "82, 205, 410 entries; 40,960 tokens",
        ["eval perplexity --protocol stream --every 4096 --data BOOKS/mary-shelley_frankenstein.txt --kv-size 82,205,410 --kv-method "
         "ems,h2o:positions=reassigned,streaming,local"], compare(STREAM, best="ems", lower=True), hours=0.5,
        note="mean over pieces of 4,096 tokens of one book of 120,308, 29 times the trained length"),
    Row("redundancy", "Figure 3", "heads are sparse and redundant, and differ in it", "a picture", ["probe sparsity -f BOOKS/bram-stoker_dracula.txt -n 1024 --samples 8"],
        field(redundancy, lambda n: "; ".join(f"{name} {m:.2f} ± {e:.2f} (over heads)" for name, (m, e) in n.items()),
              lambda n: IN_KIND if min(n["sparsity"][0], n["redundancy"][0]) > 0.1 else NOT)),
    Row("origin", "Figure 7", "as many entries from either score where few are kept, more from the global one where many are",
        "256 of 4096: 1:1; 1024 of 4096: 7:3", ["probe origin -f BOOKS/bram-stoker_dracula.txt -n 2048 --samples 8"],
        field(origin, lambda n: "; ".join(f"{kept}: {g / (g + l):.2f} global" for kept, (g, l) in n.items()), more_global_where_more_is_kept),
        note="of the entries besides the local tokens themselves; more come from the global score where more is kept, as in the paper, but not half where few are"),
    Row("batch", "Table 3", "3.85 to 6.74 times the full cache's throughput at a fixed memory", "40.4 tokens/s; full 10.3 (128+4096)",
        ["eval throughput --grid 128+2048,2048+2048 --memory-limit 64M --runs 3 --kv-method ems --kv-size 256"], times_full("tokens_per_second", "ems"), hours=2, note="speed is measured only where nothing else runs"),
]  # fmt: skip
