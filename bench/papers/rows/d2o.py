"""D2O: Dynamic Discriminative Operations for Efficient Generative Inference of Large Language Models."""
import math

from row import FEW_KLD, GIVEN, IN_KIND, KLD, NEEDLE, NOT, OURS, STREAM, Row, compare, mean_and_error, measured, prefill_times, scores, times_full

TITLE = "D2O"
INTRO = """
The paper runs Llama, Falcon and Mistral models at 20 % of the prompt. Rows here run the model inside the binary (6.2 M parameters)
on books it was not trained on, at a fifth of the cache: the distance from the full cache's predictions (KL divergence, nats a token),
and codes hidden in the text. `total=true` makes all layers together hold the budget, so that methods are compared at equal bytes.
"""
D2O = "d2o:total=true,gate_scale=length"
SWEEP = f"{KLD} --kv-ratio 0.2"


def sweep(name, source, claim, number, variants, reverse=False, best=D2O, protocol=KLD, note=""):
    methods = [best] + [f"{best},{variant}" for variant in variants]
    read = compare("kld", best=best, lower=True, reverse=reverse)
    return Row(name, source, claim, number, [f"{protocol} --kv-ratio 0.2 --kv-method {','.join(methods)}"],
               measured(read) if claim in (GIVEN, OURS) else read, note=note)  # fmt: skip


def prefill_share(outputs):
    """What compressing a prompt adds to reading it, as a share of the run."""
    lines, numbers = [], {}
    for group, way, seconds, full in prefill_times(outputs[0]):
        total, _ = mean_and_error(scores(outputs[0], "total_s", group)[way].values())
        mean, error = (100 * x / total for x in (seconds[0] - full[0], math.hypot(seconds[1], full[1])))
        numbers[group] = [mean, error]
        lines.append(f"{group}: {mean:.2f} ± {error:.2f} %")
    return {"ours": "; ".join(lines), "verdict": IN_KIND if max(m for m, _ in numbers.values()) < 1 else NOT, "numbers": numbers}


ROWS = [
    Row("bytes", "Table 1, at equal bytes", "better than H2O, StreamingLLM and a local window", "Llama-3-8B, 20 %: 29.95; H2O 28.73, StreamingLLM 27.88, local 10.88",
        [f"{SWEEP} --kv-method {D2O},h2o,streaming:positions=original,local"], compare("kld", best=D2O, lower=True)),
    Row("published-gate", "Table 1", "the same with the paper's gate, which gives short prompts twice the budget", "as above",
        [f"{SWEEP} --kv-method d2o,h2o"], compare("kld", best="d2o", lower=True),
        note="not at equal bytes: the published gate finds every layer of prompts this short dense"),
    Row("policy", "Table 4 (layers)", "layers of different sizes beat layers alike", "CoQA 58.2 with, 55.9 without",
        [f"{SWEEP} --kv-method {D2O},d2o:layer_policy=uniform"], compare("kld", best=D2O, lower=True)),
    sweep("similarity", "Table 5 (what is compared)", "comparing keys beats comparing values, and both on their own", "CoQA K 58.2, V 54.7, both 53.6",
          ["similarity=values", "similarity=both"]),
    sweep("merge", "Table 6 (weights)", "weighted merging beats the plain mean", "CoQA 58.2 weighted, 56.2 mean", ["merge=average", "merge=code"]),
    sweep("ratio", "Table 7 (N:M)", "3:1 beats 1:1 and 1:3", "CoQA 58.2, 56.5, 55.4", ["important=1", "important=1,recent=3"]),
    sweep("sinks", "ours", "sparing the first tokens from merges helps (docs/study)", "not in the paper", ["into_sinks=false"], reverse=True),
    sweep("parameters", "gate, alpha, beta", GIVEN, "alpha 2 to 4, beta 0.5 to 0.9", [f"gate={g}" for g in (25, 50, 200)]
          + ["alpha=1.5", "alpha=3", "alpha=4", "beta=0.1", "beta=0.7", "beta=0.9"], protocol=FEW_KLD, note="on half the texts"),
    sweep("reduce", "reduce", OURS, "of the group nothing is said", ["reduce=max", "reduce=sum"], best="d2o:layer_policy=uniform", protocol=FEW_KLD,
          note="on half the texts; a gate needs sums of the mean, so layers are alike here"),
    Row("needle", "Table 2", "finds more than H2O and StreamingLLM", "50k: 88.67; H2O 79.84, StreamingLLM 58.64, SnapKV 83.55",
        [f"{NEEDLE} --kv-ratio 0.2 --kv-method {D2O},h2o,streaming,snapkv"], compare("exact", best=D2O, scale=100, form=".1f")),
    Row("stream", "Figure 6", "lowest loss of a stream beyond the trained length", "curves",
        ["eval perplexity --protocol stream --every 4096 --data BOOKS/mary-shelley_frankenstein.txt --kv-size 256 --kv-method "
         "d2o:layer_policy=uniform,positions=reassigned,h2o:sinks=4,positions=reassigned,streaming,local"],
        compare(STREAM, best="d2o:layer_policy=uniform,positions=reassigned", lower=True), hours=0.2,
        note="mean over pieces of 4,096 tokens of one book of 120,308"),
    Row("heads", "the authors' code", "every query head of a group keeps its own entries", "no number",
        [f"{SWEEP} --kv-method d2o:layer_policy=uniform,d2o:layer_policy=uniform,heads=query"],
        compare("kld", best="d2o:layer_policy=uniform,heads=query", lower=True), note="at the same number of entries a head, so at twice the bytes"),
    Row("throughput", "Table 3", "batch and tokens a second at a fixed memory", "2.30 to 3.00 times the full cache's",
        ["eval throughput --grid 256+1024,512+2048 --memory-limit 64M --runs 3 --kv-method d2o:total=true,gate_scale=length --kv-ratio 0.2"],
        times_full("tokens_per_second", D2O), hours=1, note="speed is measured only where nothing else runs"),
    Row("throughput-long", "Table 3, longer texts", "the same where more is generated", "2.75 and 3.00 times the full cache's",
        ["eval throughput --grid 1024+4096,2048+8192 -c 10240 --memory-limit 64M --runs 3 --kv-method d2o:total=true,gate_scale=length --kv-ratio 0.2"],
        times_full("tokens_per_second", D2O), hours=4, note="speed is measured only where nothing else runs"),
    Row("prefill", "Table 8", "compressing takes less than 1 % of a run", ".224 to .798 %",
        ["eval throughput --grid 256+512,512+1024,1024+2048 --runs 3 --kv-method d2o --kv-size 256"], prefill_share, hours=0.5, note="our prefill with compression less that without, over the whole run"),
    Row("longbench", "Tables 1, 9", "over 16 tasks above all baselines", "Llama-3-8B 29.95; full 30.88",
        cannot="needs a model that answers LongBench's questions; the model inside answers none"),
]  # fmt: skip
