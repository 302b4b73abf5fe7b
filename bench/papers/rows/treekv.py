"""TreeKV: Smooth Key-Value Cache Compression with Tree Structures."""
import drift
from kept import by_place, place_text
from readers import compare, field, measured
from row import BOOKS, FEW_KLD, OURS, Row
from verdicts import apart, at_most, claims_hold, is_close, of_parts, of_signs, sign, yes_or_no

TITLE = "TreeKV"
INTRO = """
The paper runs Llama-2-7B on PG19 and OpenWebText2 and Llama-3.2-1B-Instruct on LongBench. These rows run the bundled model (6.2 M parameters, 4096 tokens of context) on books it was not trained on, at smaller sizes: they say whether an ordering holds,
not what a large model's number is. All methods of a stream have the paper's regions: 4 first entries, half of the budget recent.
"""
H2O = "h2o:sinks=4,recent=0.5,positions=reassigned"
TOVA = "tova:sinks=4,recent=0.5,positions=reassigned"
RIVALS = f"streaming,{H2O},{TOVA}"
SHORT = {H2O: "`h2o`", TOVA: "`tova`"}
SLIDING = "eval perplexity --data BOOKS --lengths 2048 --stride 1024 --samples 4 --chunks 2 --kv-size 256"
FEW = SLIDING.replace("--samples 4", "--samples 2")


STEP = "treekv:prefill=step"
LEFT = f"{STEP},select_left=true"


def wavelet(output):
    return dict(output["probes"][0]["last_quarter_over_first"])


def grows_most_at_high_frequencies(numbers):
    """D1 is the highest frequency, D5 the lowest."""
    values = [numbers[f"D{scale}"] for scale in range(1, 6)]
    return of_parts({"grows": yes_or_no(min(values) > 1), "more at higher frequencies": yes_or_no(values == sorted(values, reverse=True))})


def tova_is_better(found):
    """TreeKV beats StreamingLLM and H2O, TOVA beats TreeKV."""
    return (f"StreamingLLM and H2O {claims_hold([('treekv', 'streaming'), ('treekv', H2O)], lower=True)(found)}; "
            f"TOVA {claims_hold([(TOVA, 'treekv')], lower=True)(found)}")  # fmt: skip


def left_is_close(found):
    """The tree with and without scores is equally good, and H2O is worse than both (Figure 5)."""
    alike = {**found, "numbers": {name: value for name, value in found["numbers"].items() if name.partition(" ")[0] in ("full", STEP, LEFT)}}
    h2o = [sign(*d) for own in (STEP, LEFT) for d in apart(found, own, H2O, lower=True)]
    return of_parts({"close": is_close(STEP, lower=True)(alike), "H2O worse": of_signs(h2o)})


def tree_like(numbers):
    """TreeKV keeps something of every eighth and never less of a later one; of H2O's entries most are of the first half, of TOVA's of the last."""
    tree, heavy, last = numbers.values()
    rises = yes_or_no(tree["eighths"] == sorted(tree["eighths"]) and tree["eighths"][0] > 0)
    return of_parts({"TreeKV": rises, "H2O": of_signs([-at_most(*heavy["early"], 0.5)]), "TOVA": of_signs([at_most(*last["early"], 0.5)])})


ROWS = [
    Row("sliding", "Tables 1, 2", "within the trained length, with an eighth of the entries, better than StreamingLLM and H2O; TOVA is better still",
        "no number: the paper keeps a quarter at the trained length (`sliding-4k`), an eighth beyond it", [f"{SLIDING} --kv-method {RIVALS},treekv"],
        compare("nll", best="treekv", lower=True, short=SHORT, verdict=tova_is_better),
        note="nats per token; windows of 2,048 tokens, half of the bundled model's trained length, and 256 entries. The paper's own case of an eighth is "
        "8k tokens, twice its trained length, where TreeKV has 6.88, StreamingLLM 7.19, H2O 7.08 and TOVA 7.06: this row says nothing about it, "
        "`sliding-16k` would"),
    Row("sliding-4k", "Tables 1, 2", "within the trained length better than StreamingLLM and H2O; TOVA is better still", "PG19 at 4k: 7.02; StreamingLLM 7.19, H2O 7.06, TOVA 7.00",
        [f"eval perplexity --data BOOKS --lengths 4096 --stride 2048 --samples 2 --chunks 2 --kv-size 1024 --kv-method {RIVALS},treekv"],
        compare("nll", best="treekv", lower=True, short=SHORT, verdict=tova_is_better), note="the paper's cache and regions: of 1,024 entries 4 are the first, 508 recent and 512 chosen; StreamingLLM chooses none"),
    Row("sliding-16k", "Tables 1, 2", "at 16k, four times the trained length, better than StreamingLLM, H2O and TOVA", "PG19: 6.91; StreamingLLM 7.19, H2O 7.25, TOVA 7.15",
        [f"eval perplexity --data BOOKS --lengths 16384 --stride 2048 -c 16384 --samples 8 --chunks 8 --kv-size 1024 --kv-method {RIVALS},treekv"],
        compare("nll", best="treekv", lower=True, over=("streaming", *SHORT), short=SHORT), hours=3),
    Row("web", "Table 2", "the same on pages of the web: within the trained length better than StreamingLLM and TOVA", "OpenWebText2 at 4k: 5.60; StreamingLLM 5.78, H2O 5.60, TOVA 5.62",
        [f"{SLIDING.replace('BOOKS', 'ESSAYS').replace('--samples 4', '--samples 12')} --kv-method {RIVALS},treekv"],
        compare("nll", best="treekv", lower=True, over=("streaming", TOVA), short=SHORT),
        note="OpenWebText2 is not here: Paul Graham's essays instead, those of 2,048 tokens or more, unlike what the bundled model has read; "
        "windows and entries as in `sliding`, where the paper's quarter is an eighth. H2O, as good as TreeKV in the paper, is not judged. "
        "The model follows such pages badly: in 6 of the 19 windows its full cache is 0.3 to 1.9 nats worse than StreamingLLM, which makes most of TreeKV's distance from the latter"),
    Row("stream", "Figure 4", "over 10 M tokens TOVA and H2O drift upwards, StreamingLLM is flat, TreeKV is flat and lowest", "no numbers printed",
        [f"eval perplexity --protocol stream --every 100000 --data BOOKS --kv-size 1024 --kv-method {method}" for method in ("streaming", H2O, TOVA, "treekv")],
        drift.reader(SHORT, (TOVA, H2O)), hours=10, timed=True,
        note="all books once through, about 12.6 M tokens, one method after the other, in pieces of 100,000 tokens; rises are from the first half to the "
        "second, those of StreamingLLM itself, of the others against it, as the text changes; resident memory is that of the whole process, its text and tokens included: what must stay flat is the cache"),
    Row("select-left", "Figure 5", "keeping always the left of a pair is nearly as good: the tree matters more than the score; H2O is worse", "the curves nearly coincide",
        [f"{SLIDING} --kv-method {STEP},{LEFT},{H2O}"], compare("nll", best=STEP, lower=True, short=SHORT, verdict=left_is_close),
        note="close is within a quarter of what both lose against the full cache, on average"),
    Row("criteria", "section 4.1 (importance score)", "the mean of attention beats the accumulated one and the one normalised by position", "no numbers printed",
        [f"{SLIDING} --kv-method treekv:prefill=step,treekv:prefill=step,criterion=accumulated,treekv:prefill=step,criterion=position"],
        compare("nll", best="treekv:prefill=step", lower=True)),
    Row("parameters", "block, prefill_sinks, reduce", OURS, "no numbers printed",
        [f"{FEW_KLD} --kv-ratio 0.125 --kv-method treekv," + ",".join(
            f"treekv:{p}" for p in ("block=8", "block=16", "block=64", "prefill_sinks=4", "reduce=max", "reduce=sum"))],
        measured(compare("kld", best="treekv", lower=True)), note="KL divergence from the full cache, nats per token: the first half of a text is a prompt, which goes by blocks"),
    Row("cycle", "Algorithm 1 (cycle)", "the pointer moves by two as printed, or by one", "no numbers printed",
        [f"{FEW} --kv-method treekv:prefill=step,treekv:prefill=step,cycle=literal"],
        compare("nll", best="treekv:prefill=step", lower=True), note="half as many windows; by one is a choice of ours"),
    Row("wavelet", "Figure 2", "details of attended values grow towards the end of the text, most at high frequencies", "grows at all five scales",
        ["probe wavelet -f BOOKS/bram-stoker_dracula.txt -n 1024 --samples 8"],
        field(wavelet, lambda n: "last quarter over first: " + ", ".join(f"{scale} {value:.1f}" for scale, value in n.items()) + "; 8 samples",
              grows_most_at_high_frequencies), note="D1 is the highest frequency"),
    Row("kept", "Figure 1", "TreeKV keeps the past thinly and the present densely; H2O keeps the beginning, TOVA the end", "a picture: 128 of 512",
        [f"probe kept -f BOOKS/{book}.txt -n 512 --samples 1 --prompt-tokens 16 --kv-size 128 --kv-method treekv:sinks=0,recent=0,h2o:recent=0,tova"
         for book in BOOKS],
        field(by_place, place_text, tree_like), note="a mean over all layers and heads, of the first tokens of eight books; no entry is protected, as in the paper"),
    Row("longbench", "Table 3", "on LongBench with 2048 of 32k entries better than H2O and SnapKV", "31.70; H2O 30.23, SnapKV 31.50, full 32.86",
        cannot="needs a model that answers LongBench's questions; the bundled model answers none"),
]  # fmt: skip
