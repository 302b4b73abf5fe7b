"""ReFreeKV: Towards Threshold-Free KV Cache Compression."""
from row import FEW_NEEDLE, IN_KIND, KLD, MEASURED, NEEDLE, NOT, OPEN, OURS, Row, cache_bytes, difference, field, in_mib, mean_and_error, number_of_samples, scores

TITLE = "ReFreeKV"
INTRO = """
The paper runs Llama-3-8B, Mistral-7B and Qwen2.5 on 13 data sets. Rows here run the model inside the binary (6.2 M parameters)
on codes hidden in books: is the answer that of the full cache, and how much was kept.
"""


LONG_KLD = KLD.replace("--lengths 1024", "--lengths 2048")  # half of a window is the prompt: as long as those of NEEDLE


def share_kept(result):
    """Of the prompt. `kept` also counts what is read of a window after it, which stays: the first scored row is the prompt's last."""
    details = result["details"]
    n_later = details.get("tokens_scored", 1) - 1
    return (result["kept"] - n_later) / (details["prompt_tokens"] if "prompt_tokens" in details else details["tokens"] - n_later)


def shares_kept(output):
    """{way: [share kept of each prompt]}."""
    found = {}
    for sample in output["samples"]:
        for result in sample["results"]:
            if "kept" in result:
                found.setdefault((result["method"], result["budget"]), []).append(share_kept(result))
    return found


def kept(*outputs):
    """{method: [share kept, its error, answers found, loss against the full cache, its error]}."""
    found = {}
    for output in outputs:
        exact = scores(output, "exact")
        full = exact["full", ""]
        shares = shares_kept(output)
        for way, values in exact.items():
            loss, error, _ = difference(values, full)
            found[" ".join(filter(None, way))] = [*mean_and_error(shares[way]), mean_and_error(values.values())[0], loss, error]
    return found


def lines(numbers):
    return "; ".join(f"`{way}` keeps {100 * share:.1f} ± {100 * error:.1f} %, answers {100 * exact:.0f} %"
                     for way, (share, error, exact, _, _) in numbers.items())  # fmt: skip


def lossless(method):
    def verdict(numbers):
        _, _, _, loss, error = numbers[method]
        return IN_KIND if loss >= -2 * error else NOT
    return verdict


def beats(best, other):
    """More answers, or as many with less."""

    def verdict(numbers):
        (share, _, exact, _, _), (other_share, _, other_exact, _, _) = numbers[best], numbers[other]
        if exact != other_exact:
            return IN_KIND if exact > other_exact else NOT
        return f"{IN_KIND}: as many answers with less" if share < other_share else f"{NOT}: as many answers with more"

    return verdict


def less_than_fixed(numbers):
    _, _, _, loss, error = numbers["refreekv"]
    fixed = [n for way, n in numbers.items() if "ratio" in way]
    if loss < -2 * error:
        return NOT
    return IN_KIND if all(n[3] < -2 * n[4] for n in fixed) else OPEN


def sweep(name, source, claim, number, methods, verdict):
    return Row(name, source, claim, number, [f"{NEEDLE} --kv-method {','.join(methods)}"], field(kept, lines, verdict))


def grows_as_threshold_falls(numbers):
    shares = [numbers[way][0] for way in numbers if way != "full"]
    return IN_KIND if shares == sorted(shares, reverse=True) else NOT


def shares(outputs):
    """What is kept of each task's prompts, and what that costs: {task: [mean share, error, least, most, prompts, loss, error]}."""
    numbers, lines = {}, []
    for name, score, output in zip(("needle", "plain text"), ("exact", "kld"), outputs):
        way = ("refreekv", "")
        found = shares_kept(output)[way]
        of = scores(output, score)
        loss, loss_error, _ = difference(of[way], of["full", ""])
        mean, error = mean_and_error(found)
        numbers[name] = [mean, error, min(found), max(found), len(found), loss, loss_error]
        lost = f"{100 * loss:+.0f} ± {100 * loss_error:.0f} points" if score == "exact" else f"KLD {loss:.4f} ± {loss_error:.4f}"
        lines.append(f"{name}: keeps {100 * mean:.1f} ± {100 * error:.1f} %, {100 * min(found):.1f} to {100 * max(found):.1f} by prompt"
                     f"{in_mib(cache_bytes(output), way)}; {lost}{number_of_samples([len(found)])}")
    return {"ours": ". ".join(lines), "verdict": MEASURED, "numbers": numbers}


def fastest(outputs):
    """Seconds of reading and generating, by method, for every grid cell."""
    numbers, wins, n = {}, 0, 0
    for group in dict.fromkeys(sample["group"] for sample in outputs[0]["samples"]):
        seconds = {}
        for output in outputs:
            for (method, _), runs in scores(output, "total_s", group).items():
                seconds[method] = mean_and_error(runs.values())
        numbers[group] = seconds
        rivals = [method for method in seconds if method not in ("full", "refreekv")]
        wins += sum(seconds["refreekv"][0] < seconds[rival][0] for rival in rivals)
        n += len(rivals)
    text = "; ".join(f"{group}: " + ", ".join(f"`{m}` {s:.2f} ± {e:.2f} s" for m, (s, e) in cell.items()) for group, cell in numbers.items())
    return {"ours": text, "verdict": f"fastest in {wins} of {n}: {IN_KIND if 2 * wins > n else NOT}", "numbers": numbers}


ROWS = [
    sweep("lossless", "main table", "answers as the full cache does at a budget it finds itself", "+0.12 % over full at 63.68 % of the cache",
          ["refreekv"], lossless("refreekv")),
    Row("fixed", "main table", "fixed budgets of 50 and 20 % lose where it does not", "GSM8K at 50 %: SnapKV 17 % of the full score",
        [f"{NEEDLE} --kv-method streaming,h2o,snapkv --kv-ratio 0.5,0.2", f"{NEEDLE} --kv-method refreekv"], field(kept, lines, less_than_fixed)),
    sweep("threshold", "ablation of T", "the less may be lost, the more is kept; 1 % is lossless", "T = 0.1 to 5 %",
          [f"refreekv:threshold={t}" for t in ("0.001", "0.005", "0.01", "0.02", "0.05")], grows_as_threshold_falls),
    sweep("queries", "ablation of k", "the last row suffices; 10 % of the rows are worse", "NarrativeQA 23.44 at 48.7 % (k = 1); 9.74 (k = 10 %)",
          ["refreekv"] + [f"refreekv:queries_share={s}" for s in ("0.01", "0.05", "0.1")], beats("refreekv", "refreekv:queries_share=0.1")),
    sweep("ranking", "ablation of ranking", "ranking by place beats ranking by attention", "NarrativeQA 23.44 at 48.7 %; 21.44 at 48.7 % by attention",
          ["refreekv", "refreekv:ranking=attention"],
          beats("refreekv", "refreekv:ranking=attention")),
    sweep("layers", "whole first layers", "two whole layers are needed", "2",
          [f"refreekv:whole_layers={n}" for n in (0, 1, 2, 4)],
          lambda n: IN_KIND if n["refreekv:whole_layers=2"][3] > n["refreekv:whole_layers=0"][3] else OPEN
          if n["refreekv:whole_layers=0"][3] >= -2 * n["refreekv:whole_layers=0"][4] else NOT),
    sweep("metric", "Equation (norm)", "the norm of the last row stands for that of the whole matrix", "the same method in O(n)",
          ["refreekv", "refreekv:metric=matrix"],
          lambda n: IN_KIND if abs(n["refreekv"][0] - n["refreekv:metric=matrix"][0]) < 0.1 else f"{NOT}: one keeps far more than the other"),
    Row("parameters", "sinks, queries, include_first", OURS, "sinks 4, 1 query; the paper's norms hold the first tokens, the code's do not",
        [f"{FEW_NEEDLE} --kv-method refreekv," + ",".join(f"refreekv:{p}" for p in ("sinks=0", "sinks=1", "sinks=16", "queries=4", "queries=16", "include_first=true"))],
        field(kept, lines, lambda n: MEASURED), note="on half the texts"),
    Row("heads", "the authors' code", "every query head of a group keeps its own entries; the length is the layer's", "no number",
        [f"{NEEDLE} --kv-method refreekv:per_head=true,refreekv:per_head=true,heads=query"], field(kept, lines, lambda n: "measured")),
    Row("latency", "end-to-end latency", "fastest in 8 of 12 comparisons with baselines at 50 %", "8 of 12",
        ["eval throughput --grid 2048+256,3072+512 --runs 5 --kv-method streaming,h2o,snapkv --kv-ratio 0.5",
         "eval throughput --grid 2048+256,3072+512 --runs 5 --kv-method refreekv"],
        fastest, hours=0.2, note="speed is measured only where nothing else runs"),
    Row("shares", "main table (budgets)", "the share kept follows the task and the input", "about 15 % of summaries, above 90 % of mathematics",
        [f"{NEEDLE} --kv-method refreekv", f"{LONG_KLD} --kv-method refreekv"], shares,
        note="codes in books against the books themselves, prompts of about 1,000 tokens; KLD is the distance from the full cache's predictions, "
        "nats a token; the cache of plain text also holds what is read after the prompt"),
    Row("tasks", "main table", "keeps about 15 % on summaries and above 90 % on mathematics", "13 data sets",
        cannot="needs a model that solves these tasks; the share kept by the model inside says nothing about them"),
]  # fmt: skip
