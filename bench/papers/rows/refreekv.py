"""ReFreeKV: Towards Threshold-Free KV Cache Compression."""
import math

from kept import kept, shares_kept
from readers import Reader, measured, several
from row import ALONE, FEW_NEEDLE, KLD, NEEDLE, OURS, Row, cache_bytes, difference, groups, in_mib, mean_and_error, number_of_samples, scores
from verdicts import IN_KIND, MEASURED, NOT, OPEN, nothing_lost, of_parts, of_signs, sign, within, yes_or_no

TITLE = "ReFreeKV"
INTRO = """
The paper runs Llama-3-8B, Mistral-7B and Qwen2.5 on 13 data sets. These rows run the bundled model (6.2 M parameters)
on codes hidden in books: is the answer that of the full cache, and how much was kept. As the model finds nearly every such code,
rows that compare variants also read plain text: the distance from the full cache's predictions (KLD) and what the text's own
tokens lose (both nats per token). Lossless means that the 95 % interval excludes a loss of one per cent: of the answers,
or 0.01 nats per token, one per cent of the perplexity. That no answer of 40 was lost does not exclude such a loss.
"""
LONG_KLD = KLD.replace("--lengths 1024", "--lengths 2048")  # half of a window is the prompt: the same length as the prompts of NEEDLE
FEW_LONG_KLD = LONG_KLD.replace("--samples 8", "--samples 4")
ALIKE = 0.1  # kept shares this close count as equal
FIXED = "streaming,h2o,snapkv,pyramidkv,cake --kv-ratio 0.9,0.5,0.2"
FIXED_TEXT = FIXED.replace("streaming", "streaming:positions=original")


def is_lossless(found, method, of_answers):
    *_, gain, error, n = found["numbers"][method]
    return nothing_lost(-gain, error, n, of_answers)


def lossless(method):
    return lambda found: is_lossless(found, method, of_answers=True)


def beats(best, *others):
    """Closer to the full cache with no more kept, or as close with less; if one is closer but keeps more, neither beats the other."""

    def verdict(found):
        words = {}
        for other in others:
            name = f"{best} against {other}"
            nearer, less = (sign(*found[what][name]) for what in ("differences", "less"))
            if not nearer and not less:
                words[name] = OPEN
            elif nearer * less < 0:
                words[name] = "open: " + ("nearer, but keeps more" if nearer > 0 else "keeps less, but is farther")
            else:
                how = ("nearer" if nearer > 0 else "farther" if nearer < 0 else "as near") + (", keeps " + ("less" if less > 0 else "more") if less else "")
                words[name] = f"{IN_KIND if nearer + less > 0 else NOT}: {how}"
        return of_parts(words) if len(words) > 1 else next(iter(words.values()))

    return verdict


def better_than(best, *others):
    """Closer to the full cache, whatever share is kept."""
    return lambda found: of_signs([sign(*found["differences"][f"{best} against {other}"]) for other in others])


def as_much_as(best, *others):
    def verdict(found):
        return of_signs([within(*found["less"][f"{best} against {other}"], ALIKE) for other in others])

    return verdict


def less_than_fixed(of_answers):
    def verdict(found):
        parts = {"lossless itself": is_lossless(found, "refreekv", of_answers)}
        for ratio in ("0.9", "0.5", "0.2"):
            signs = [-sign(*gain) for name, (_, _, _, *gain) in found["numbers"].items() if name.endswith(f"ratio {ratio}")]
            parts[f"others lose at {ratio}"] = of_signs(signs)
        return of_parts(parts)

    return verdict


def grows_as_threshold_falls(of_answers):
    def verdict(found):
        ways = [name for name in found["numbers"] if name != "full"]
        shares = [found["numbers"][way][0] for way in ways]
        return of_parts({"more kept the less may be lost": yes_or_no(shares == sorted(shares, reverse=True)),
                         "lossless at 1 %": is_lossless(found, "refreekv:threshold=0.01", of_answers)})  # fmt: skip

    return verdict


def sweep(name, source, claim, number, methods, verdict, best=None, note="", text_verdict=None):
    """A row on answers and on plain text; `text_verdict` is the verdict on the latter, if it is another."""
    read = several({"exact": ("answers", kept("exact", verdict, best)), "kld": ("plain text", kept("kld", text_verdict or verdict, best, "nll"))})
    few = claim == OURS
    return Row(name, source, claim, number, [f"{protocol} --kv-method {','.join(methods)}" for protocol in
                                             ((FEW_NEEDLE, FEW_LONG_KLD) if few else (NEEDLE, LONG_KLD))],
               measured(read) if few else read, note=note)  # fmt: skip


def measure_shares(outputs):
    """The kept share of each task's prompts, and its cost: {task: [mean share, error, minimum, maximum, prompts, loss, error]}."""
    numbers, sizes = {}, {}
    for name, score, output in zip(("needle", "plain text"), ("exact", "kld"), outputs):
        way = ("refreekv", "")
        found = shares_kept(output)[way].values()
        of = scores(output, score)
        loss, loss_error, _ = difference(of[way], of["full", ""])
        mean, error = mean_and_error(found)
        numbers[name] = [mean, error, min(found), max(found), len(found), loss, loss_error]
        sizes.update({name: size for at, size in cache_bytes(output).items() if at == way})
    return {"numbers": numbers, "bytes": sizes}


def shares_text(found):
    lines = []
    for name, (mean, error, least, most, n, loss, loss_error) in found["numbers"].items():
        lost = f"{100 * loss:+.0f} ± {100 * loss_error:.0f} points" if name == "needle" else f"KLD {loss:.4f} ± {loss_error:.4f}"
        lines.append(f"{name}: keeps {100 * mean:.1f} ± {100 * error:.1f} %, {100 * least:.1f} to {100 * most:.1f} by prompt"
                     f"{in_mib(found.get('bytes', {}), name)}; {lost}{number_of_samples([n])}")  # fmt: skip
    return ". ".join(lines)


def measure_latency(outputs):
    """Seconds for reading and generating: {grid cell: {method: [mean, error, runs]}}."""
    numbers = {}
    for output in outputs:
        for group in groups(output):
            for (method, _), runs in scores(output, "total_s", group).items():
                numbers.setdefault(group, {})[method] = [*mean_and_error(runs.values()), len(runs)]
    return {"numbers": numbers}


def latency_text(found):
    lines = [f"{group}: " + ", ".join(f"`{m}` {s:.2f} ± {e:.2f} s" for m, (s, e, _) in cell.items()) for group, cell in found["numbers"].items()]
    return "; ".join(lines) + number_of_samples(n for cell in found["numbers"].values() for *_, n in cell.values())


def fastest(found):
    """Faster than each baseline in each cell, by the 95 % interval."""
    signs = []
    for cell in found["numbers"].values():
        own, own_error, own_n = cell["refreekv"]
        signs += [sign(seconds - own, math.hypot(error, own_error), min(n, own_n)) for m, (seconds, error, n) in cell.items()
                  if m not in ("full", "refreekv")]  # fmt: skip
    wins = sum(s > 0 for s in signs)
    return f"fastest in {wins} of {len(signs)}: {yes_or_no(3 * wins >= 2 * len(signs))}"


ROWS = [
    Row("lossless", "main table", "answers as the full cache does at a budget it finds itself", "+0.12 % over full at 63.68 % of the cache",
        [f"{NEEDLE} --kv-method refreekv"], kept("exact", lossless("refreekv"))),
    Row("fixed", "main table", "fixed budgets of 90, 50 and 20 % lose where it does not", "GSM8K at 50 %: SnapKV 17 % of the full score; at 90 % H2O, StreamingLLM and SnapKV still lose",
        [f"{NEEDLE} --kv-method {FIXED}", f"{NEEDLE} --kv-method refreekv"], kept("exact", less_than_fixed(of_answers=True))),
    Row("fixed-text", "main table", "the same on plain text", "as above",
        [f"{LONG_KLD} --kv-method {FIXED_TEXT}", f"{LONG_KLD} --kv-method refreekv"], kept("kld", less_than_fixed(of_answers=False), loss_in="nll"),
        note="StreamingLLM and H2O hold their budget while the second half of a window is read; the others grow. StreamingLLM keeps the text's positions "
        "here. By default it reassigns them, and then a single window, the second of Les Miserables, decides: there the bundled model's full cache has a "
        "loss of 6.12 nats per token (in the other 15 windows 4.47 to 4.93), and reassigned positions 4.74 to 4.89"),
    sweep("twilight", "comparison with Twilight", "better than Twilight", "4 of 5 data sets; Llama-3-8B GSM8K 76.50, full 75.28",
          ["refreekv", "twilight"], better_than("refreekv", "twilight"), "refreekv", note="Twilight evicts nothing and reads less"),
    sweep("threshold", "ablation of T", "the less may be lost, the more is kept; 1 % is lossless", "T = 0.1 to 5 %",
          [f"refreekv:threshold={t}" for t in ("0.001", "0.005", "0.01", "0.02", "0.05")], grows_as_threshold_falls(of_answers=True),
          text_verdict=grows_as_threshold_falls(of_answers=False)),
    sweep("queries", "ablation of k", "the last row suffices; 10 % of the rows are worse", "NarrativeQA 23.44 at 48.7 % (k = 1); 9.74 (k = 10 %)",
          ["refreekv"] + [f"refreekv:queries_share={s}" for s in ("0.01", "0.05", "0.1")], beats("refreekv", "refreekv:queries_share=0.1"), "refreekv"),
    sweep("ranking", "ablation of ranking", "ranking by place beats ranking by attention", "NarrativeQA 23.44 at 48.7 %; 21.44 at 48.7 % by attention",
          ["refreekv", "refreekv:ranking=attention"], beats("refreekv", "refreekv:ranking=attention"), "refreekv"),
    sweep("layers", "whole first layers", "two whole layers are needed", "2", [f"refreekv:whole_layers={n}" for n in (0, 1, 2, 4)],
          better_than("refreekv:whole_layers=2", "refreekv:whole_layers=0", "refreekv:whole_layers=1"), "refreekv:whole_layers=2"),
    sweep("metric", "Equation (norm)", "the norm of the last row stands for that of the whole matrix", "the same method in O(n)",
          ["refreekv", "refreekv:metric=matrix", "refreekv:metric=matrix,include_first=true"],
          as_much_as("refreekv", "refreekv:metric=matrix", "refreekv:metric=matrix,include_first=true"), "refreekv",
          note="the verdict is on how much is kept: within 10 points; the paper's norms hold the first tokens, the code's do not (`include_first`)"),
    sweep("parameters", "sinks, queries, include_first", OURS, "sinks 4, 1 query; the paper's norms hold the first tokens, the code's do not",
          ["refreekv"] + [f"refreekv:{p}" for p in ("sinks=0", "sinks=1", "sinks=16", "queries=4", "queries=16", "include_first=true")],
          lambda found: MEASURED, "refreekv", note="on half the texts"),
    Row("heads", "the authors' code", "every query head keeps its own entries", "no number",
        [f"{NEEDLE} --kv-method refreekv:per_head=true,refreekv:per_head=true,heads=query"], kept("exact", lambda found: MEASURED),
        note="the code finds one length for all heads of a layer, with which all heads keep the same entries; here each finds its own (`per_head`)"),
    Row("latency", "end-to-end latency", "fastest in 8 of 12 comparisons with baselines at 50 %", "8 of 12",
        ["eval throughput --grid 2048+256,3072+512 --runs 5 --kv-method streaming,h2o,snapkv --kv-ratio 0.5",
         "eval throughput --grid 2048+256,3072+512 --runs 5 --kv-method refreekv"],
        Reader(measure_latency, latency_text, fastest), hours=0.2, note=f"'in kind' is two of three, as in the paper; {ALONE}"),
    Row("shares", "main table (budgets)", "the share kept follows the task and the input", "about 15 % of summaries, above 90 % of mathematics",
        [f"{NEEDLE} --kv-method refreekv", f"{LONG_KLD} --kv-method refreekv"], Reader(measure_shares, shares_text, lambda found: MEASURED),
        note="codes in books against the books themselves, prompts of about 1,000 tokens; KLD is the distance from the full cache's predictions, "
        "nats per token; bytes are those after the prompt"),
    Row("tasks", "main table", "keeps about 15 % on summaries and above 90 % on mathematics", "13 data sets",
        cannot="needs a model that solves these tasks; the share kept by the bundled model says nothing about them"),
]  # fmt: skip
