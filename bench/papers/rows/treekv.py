"""TreeKV: Smooth Key-Value Cache Compression with Tree Structures."""
from row import FEW_KLD, IN_KIND, NOT, OURS, STREAM, Row, compare, field, measured

TITLE = "TreeKV"
INTRO = """
The paper runs Llama-2-7B on PG19 and OpenWebText2 and Llama-3.2-1B-Instruct on LongBench. Rows here run the model inside the
binary (6.2 M parameters, 4096 tokens of context) on books it was not trained on, at smaller sizes: they say whether an ordering holds,
not what a large model's number is. All methods of a stream have the paper's regions: 4 first entries, half of the budget recent.
"""
H2O = "h2o:sinks=4,recent=0.5,positions=reassigned"
TOVA = "tova:sinks=4,recent=0.5,positions=reassigned"
RIVALS = f"streaming,{H2O},{TOVA}"
SHORT = {H2O: "`h2o`", TOVA: "`tova`"}
SLIDING = "eval perplexity --data BOOKS --lengths 2048 --stride 1024 --samples 4 --chunks 2 --kv-size 256"
FEW = SLIDING.replace("--samples 4", "--samples 2")


def wavelet(output):
    probe = output["probes"][0]
    return {scale: value for scale, value in probe["last_quarter_over_first"].items()}


def eighths(output):
    """{method: entries kept of each eighth of the text, the mean over layers and heads}."""
    found = {}
    for method in output["probes"][0]["evicted_at"]:
        heads = [head for layer in method["layers"] for head in layer]
        counts = [0.0] * 8
        for head in heads:
            for token, evicted_at in enumerate(head):
                counts[token * 8 // len(head)] += (evicted_at == -1) / len(heads)
        found[method["method"]] = counts
    return found


def tova_is_better(outputs):
    """TreeKV beats StreamingLLM and H2O, TOVA beats TreeKV."""
    others, tova = (compare("nll", best="treekv", lower=True, over=over, short=SHORT, reverse=over == (TOVA,))(outputs)
                    for over in (("streaming", H2O), (TOVA,)))  # fmt: skip
    return {**others, "verdict": f"StreamingLLM and H2O {others['verdict']}; TOVA {tova['verdict']}",
            "differences": {**others["differences"], **{f"{name}, the other way round": d for name, d in tova["differences"].items()}}}  # fmt: skip


def tree_like(numbers):
    tree, heavy, last = numbers.values()
    rises = tree == sorted(tree) and tree[0] > 0
    return IN_KIND if rises and heavy[0] > heavy[-1] and sum(last[:4]) < sum(tree[:4]) else NOT


ROWS = [
    Row("sliding", "Tables 1, 2", "in sliding windows TreeKV predicts better than StreamingLLM, H2O and TOVA with the same regions",
        "PG19 at 8k: 6.88; StreamingLLM 7.19, H2O 7.08, TOVA 7.06", [f"{SLIDING} --kv-method {RIVALS},treekv"],
        compare("nll", best="treekv", lower=True, over=("streaming", *SHORT), short=SHORT),
        note="nats a token; windows of 2048 tokens, 256 entries, as the paper's 8k and 1024"),
    Row("sliding-4k", "Tables 1, 2", "within the trained length better than StreamingLLM and H2O; TOVA is better still", "PG19 at 4k: 7.02; StreamingLLM 7.19, H2O 7.06, TOVA 7.00",
        [f"eval perplexity --data BOOKS --lengths 4096 --stride 2048 --samples 2 --chunks 2 --kv-size 1024 --kv-method {RIVALS},treekv"],
        tova_is_better, note="the paper's cache and regions: of 1,024 entries 4 are the first, 508 recent and 512 chosen; StreamingLLM chooses none"),
    Row("sliding-16k", "Tables 1, 2", "the same at 16k, four times the trained length", "PG19: 6.91; StreamingLLM 7.19, H2O 7.25, TOVA 7.15",
        [f"eval perplexity --data BOOKS --lengths 16384 --stride 2048 -c 16384 --samples 8 --chunks 8 --kv-size 1024 --kv-method {RIVALS},treekv"],
        compare("nll", best="treekv", lower=True, over=("streaming", *SHORT), short=SHORT), hours=3),
    Row("stream", "Figure 4", "over 10 M tokens TOVA and H2O drift upwards, StreamingLLM is flat, TreeKV is flat and lowest", "no numbers printed",
        [f"eval perplexity --protocol stream --every 100000 --data BOOKS --kv-size 1024 --kv-method {RIVALS},treekv"],
        compare(STREAM, best="treekv", lower=True, over=("streaming", *SHORT), short=SHORT), hours=14),
    Row("select-left", "Figure 5", "keeping always the left of a pair is nearly as good: the tree matters more than the score", "the curves nearly coincide",
        [f"{SLIDING} --kv-method treekv:prefill=step,treekv:prefill=step,select_left=true"],
        compare("nll", best="treekv:prefill=step", lower=True, over=("treekv:prefill=step,select_left=true",), within=0.05),
        note="close is within 0.05 nats a token"),
    Row("criteria", "section 3 (importance score)", "the mean of attention beats the accumulated one and the one normalised by position", "no numbers printed",
        [f"{SLIDING} --kv-method treekv:prefill=step,treekv:prefill=step,criterion=accumulated,treekv:prefill=step,criterion=position"],
        compare("nll", best="treekv:prefill=step", lower=True)),
    Row("parameters", "block, prefill_sinks, reduce", OURS, "no numbers printed",
        [f"{FEW_KLD} --kv-ratio 0.125 --kv-method treekv," + ",".join(
            f"treekv:{p}" for p in ("block=8", "block=16", "block=64", "prefill_sinks=4", "reduce=max", "reduce=sum"))],
        measured(compare("kld", best="treekv", lower=True)), note="KL divergence from the full cache, nats a token: the first half of a text is a prompt, which goes by blocks"),
    Row("cycle", "Algorithm 1 (cycle)", "the pointer moves by two as printed, or by one", "no numbers printed",
        [f"{FEW} --kv-method treekv:prefill=step,treekv:prefill=step,cycle=literal"],
        compare("nll", best="treekv:prefill=step", lower=True), note="half as many windows; by one is a choice of ours"),
    Row("wavelet", "Figure 2", "details of attended values grow towards the end of the text", "grows at all five scales",
        ["probe wavelet -f BOOKS/bram-stoker_dracula.txt -n 1024 --samples 8"],
        field(wavelet, lambda n: "last quarter over first: " + ", ".join(f"{scale} {value:.1f}" for scale, value in n.items()),
              lambda n: IN_KIND if min(n.values()) > 1 else NOT)),
    Row("kept", "Figure 1", "TreeKV keeps the past thinly and the present densely; H2O keeps the beginning, TOVA the end", "a picture: 128 of 512",
        ["probe kept -f BOOKS/bram-stoker_dracula.txt -n 512 --samples 1 --prompt-tokens 16 --kv-size 128 "
         "--kv-method treekv:sinks=0,recent=0,h2o:recent=0,tova"],
        field(eighths, lambda n: "kept in each eighth of the text: " + "; ".join(f"`{m}` " + " ".join(f"{x:.0f}" for x in e) for m, e in n.items()),
              tree_like), note="a mean over all layers and heads; no entry is protected, as in the paper"),
    Row("longbench", "Table 3", "on LongBench with 2048 of 32k entries better than H2O and SnapKV", "31.70; H2O 30.23, SnapKV 31.50, full 32.86",
        cannot="needs a model that answers LongBench's questions; the model inside answers none"),
]  # fmt: skip
