"""D2O: Dynamic Discriminative Operations for Efficient Generative Inference of Large Language Models."""
import math

from readers import Reader, compare, field, measured, times_full
from row import (ALONE, FEW_KLD, GIVEN, KLD, NEEDLE, OURS, STREAM, Row, mean_and_error, number_of_samples, prefill_times, quotient, scores,
                 show)  # fmt: skip
from verdicts import at_most, claims_hold, of_parts, of_signs, ours, sign, yes_or_no

TITLE = "D2O"
INTRO = """
The paper runs Llama, Falcon and Mistral models at 20 % of the prompt. These rows run the bundled model (6.2 M parameters)
on books it was not trained on, at a fifth of the cache: the distance from the full cache's predictions (KL divergence, nats per token),
and codes hidden in the text. `total=true` makes all layers together hold the budget, so that methods are compared at equal entries;
`bytes` and `policy` compare them at equal bytes.
"""
D2O = "d2o:total=true,gate_scale=length"
SPARED = f"{D2O},into_sinks=false"
SWEEP = f"{KLD} --kv-ratio 0.2"
BYTES = f"{KLD} --equal-bytes 0.2"
PUBLISHED = {"256+1024": 2.30, "512+2048": 2.41, "1024+4096": 2.75, "2048+8192": 3.00}  # Table 3: tokens per second, as a multiple of the full model's
SMALL = 1  # largest share of a run that reading the prompt takes, in per cent (Table 8)


def sweep(name, source, claim, number, variants, best=D2O, protocol=KLD, note="", over=(), verdict=None):
    methods = [best] + [f"{best},{variant}" for variant in variants]
    read = compare("kld", best=best, lower=True, over=tuple(f"{best},{variant}" for variant in over), verdict=verdict)
    return Row(name, source, claim, number, [f"{protocol} --kv-ratio 0.2 --kv-method {','.join(methods)}"],
               measured(read) if claim in (GIVEN, OURS) else read, note=note)  # fmt: skip


def measure_prefill(outputs):
    """{group: [share of the run for reading and compressing a prompt, its error, share that compression adds, its error, runs]}, shares in
    per cent."""
    numbers = {}
    for group, way, seconds, full in prefill_times(outputs[0]):
        runs = scores(outputs[0], "total_s", group)[way].values()
        total = mean_and_error(runs)
        added = seconds[0] - full[0], math.hypot(seconds[1], full[1])
        numbers[group] = [*(100 * x for share in (seconds, added) for x in quotient(share, total)), len(runs)]
    return {"numbers": numbers}


def prefill_text(found):
    lines = [f"{group}: {show(share, error, '.2f')} %, of which compressing {show(added, added_error, '.2f')} %"
             for group, (share, error, added, added_error, _) in found["numbers"].items()]  # fmt: skip
    return "; ".join(lines) + number_of_samples(n for *_, n in found["numbers"].values())


def prefill_verdict(found):
    shares = [(share, error, n) for share, error, _, _, n in found["numbers"].values()]
    falls = [sign(a[0] - b[0], math.hypot(a[1], b[1]), min(a[2], b[2])) for a, b in zip(shares, shares[1:])]
    return of_parts({f"less than {SMALL} %": of_signs([at_most(*share, SMALL) for share in shares]), "falling": of_signs(falls)})


def deeper_is_sparser(variances):
    """In the paper shallow layers are dense (small variance) and deep ones sparse: compares the last half with the first."""
    values = list(variances.values())
    half = len(values) // 2
    return yes_or_no(sum(values[-half:]) > sum(values[:half]))


ROWS = [
    Row("bytes", "Table 1, at equal bytes", "better than H2O, RoCo, StreamingLLM and a local window", "Llama-3-8B, 20 %: 29.95; H2O 28.73, RoCo 27.48, StreamingLLM 27.88, local 10.88",
        [f"{BYTES} --kv-method {D2O},h2o,roco,streaming:positions=original,local"], compare("kld", best=D2O, lower=True)),
    Row("published-gate", "Table 1", "the same with the paper's gate, which gives short prompts twice the budget", "as above",
        [f"{SWEEP} --kv-method d2o,h2o"], compare("kld", best="d2o", lower=True),
        note="not at equal bytes: the published gate finds every layer of prompts this short dense"),
    Row("reasoning", "Figure 5", "on CoQA, GSM8K and TruthfulQA above all baselines at 20 to 80 %", "curves",
        cannot="needs a model that solves these tasks; the bundled model solves none"),
    Row("density", "Figures 1, 4", "attention of shallow layers is dense, that of deep ones sparse: its variance grows with depth", "maps and curves",
        ["probe density -f BOOKS/bram-stoker_dracula.txt -n 1024 --samples 8"],
        field(lambda output: {f"layer {i}": v for i, v in enumerate(output["probes"][0]["column_sum_variance"])},
              lambda n: "variance of the column sums by layer: " + " ".join(f"{v:.1f}" for v in n.values()), deeper_is_sparser),
        note="a mean over 8 samples; verdict: the last half of the layers compared with the first"),
    Row("policy", "Table 4 (layers)", "layers of different sizes beat layers alike", "CoQA 58.2 with, 55.9 without",
        [f"{BYTES} --kv-method {D2O},d2o:layer_policy=softmax,d2o:layer_policy=uniform"],
        compare("kld", best=D2O, lower=True, over=("d2o:layer_policy=uniform",)),
        note="`softmax`, the sizes of the authors' code, is not judged: three layers stay whole, so that it takes more bytes than were asked for"),
    sweep("similarity", "Table 5 (what is compared)", "comparing keys beats comparing values, and both on their own", "CoQA K 58.2, V 54.7, both 53.6",
          ["similarity=values", "similarity=both"]),
    sweep("merge", "Table 6 (weights)", "weighted merging beats the plain mean", "CoQA 58.2 weighted, 56.2 mean", ["merge=average", "merge=code"],
          over=("merge=average",), note="`merge=code`, the weights of the authors' code, is not judged"),
    sweep("ratio", "Table 7 (N:M)", "3:1 beats 1:1 and 1:3", "CoQA 58.2, 56.5, 55.4", ["important=1", "important=1,recent=3"]),
    sweep("sinks", "none: a claim of docs/study", "sparing the first tokens from merges helps", "not in the paper", ["into_sinks=false"],
          verdict=ours(claims_hold([(SPARED, D2O)], lower=True))),
    sweep("parameters", "gate, alpha, beta", GIVEN, "alpha 2 to 4, beta 0.5 to 0.9", [f"gate={g}" for g in (25, 50, 200)]
          + ["alpha=1.5", "alpha=3", "alpha=4", "beta=0.1", "beta=0.7", "beta=0.9"], protocol=FEW_KLD, note="on half the texts"),
    sweep("reduce", "reduce", OURS, "of the group nothing is said", ["reduce=max", "reduce=sum"], best="d2o:layer_policy=uniform", protocol=FEW_KLD,
          note="on half the texts; a gate needs sums of the mean, so layers are alike here"),
    Row("needle", "Table 2, Figure 8", "finds more than H2O, StreamingLLM and SnapKV", "50k: 88.67; H2O 79.84, StreamingLLM 58.64, SnapKV 83.55",
        [f"{NEEDLE} --kv-ratio 0.2 --kv-method {D2O},h2o,streaming,snapkv"], compare("exact", best=D2O, scale=100, form=".1f")),
    Row("stream", "Figure 6", "lowest loss of a stream beyond the trained length", "curves",
        ["eval perplexity --protocol stream --every 4096 --data BOOKS/mary-shelley_frankenstein.txt --kv-size 256 --kv-method "
         "d2o:layer_policy=uniform,positions=reassigned,h2o:sinks=4,positions=reassigned,streaming,local"],
        compare(STREAM, best="d2o:layer_policy=uniform,positions=reassigned", lower=True), hours=0.2,
        note="mean over pieces of 4,096 tokens of one book of 120,308"),
    Row("dialogue", "Figure 7", "keeps long dialogues coherent where H2O and StreamingLLM do not", "samples of MT-bench",
        cannot="the paper shows answers, which people judge; the bundled model answers no MT-bench question (`winnow eval mt-bench` writes such answers out)"),
    Row("heads", "the authors' code", "every query head of a group keeps its own entries", "no number",
        [f"{SWEEP} --kv-method d2o:layer_policy=uniform,d2o:layer_policy=uniform,heads=query"],
        compare("kld", best="d2o:layer_policy=uniform,heads=query", lower=True), note="at the same number of entries a head, so at twice the bytes"),
    Row("throughput", "Table 3", "batch and tokens a second at a fixed memory, with as many entries as the prompt has tokens", "2.30 and 2.41 times the full cache's; 4 times the batch",
        [f"eval throughput --grid 256+1024,512+2048 --memory-limit 64M --runs 3 --kv-method {D2O} --kv-ratio 1"],
        times_full("tokens_per_second", D2O, PUBLISHED), hours=0.2, note=f"'in kind' is at least half of the paper's gain; {ALONE}"),
    Row("throughput-long", "Table 3, longer texts", "the same where more is generated", "2.75 and 3.00 times the full cache's; 4 times the batch",
        [f"eval throughput --grid 1024+4096,2048+8192 -c 10240 --memory-limit 64M --runs 3 --kv-method {D2O} --kv-ratio 1"],
        times_full("tokens_per_second", D2O, PUBLISHED), hours=1, note=f"'in kind' is at least half of the paper's gain; {ALONE}"),
    Row("prefill", "Table 8", "reading and compressing the prompt takes less than 1 % of a run, the less the longer the run", ".798, .420, .271 and .224 %",
        ["eval throughput --grid 256+512,512+1024,1024+2048,2048+4096 -c 8192 --runs 3 --kv-method d2o --kv-size 256"],
        Reader(measure_prefill, prefill_text, prefill_verdict), hours=0.2,
        note="as the paper: the whole reading of the prompt over the whole run; beside it what compressing adds, against the full cache's reading. "
        f"On processors reading costs more beside writing than on the paper's GPU; {ALONE}"),
    Row("longbench", "Tables 1, 9", "over 16 tasks above all baselines", "Llama-3-8B 29.95; full 30.88",
        cannot="needs a model that answers LongBench's questions; the bundled model answers none"),
]  # fmt: skip
