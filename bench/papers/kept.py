"""The kept share of a text, and where kept entries are: for rows about positions and about sizes that a method finds itself."""
import statistics

from readers import Reader
from row import cache_bytes, difference, in_mib, key, label, mean_and_error, number_of_samples, scores, show


def by_eighths(output):
    """{method: kept entries in each eighth of the text, as the mean over layers and heads}."""
    found = {}
    for method in output["probes"][0]["evicted_at"]:
        heads = [head for layer in method["layers"] for head in layer]
        counts = [0.0] * 8
        for head in heads:
            for token, evicted_at in enumerate(head):
                counts[token * 8 // len(head)] += (evicted_at == -1) / len(heads)
        found[method["method"]] = counts
    return found


def by_place(*outputs):
    """{method: {"eighths": mean number of kept entries in each eighth of a text, "early": [share in the first half, its error, texts]}}."""
    found = {}
    for output in outputs:
        for method, counts in by_eighths(output).items():
            found.setdefault(method, []).append(counts)
    return {method: {"eighths": [statistics.mean(eighth) for eighth in zip(*texts)],
                     "early": [*mean_and_error(sum(counts[:4]) / sum(counts) for counts in texts), len(texts)]}
            for method, texts in found.items()}  # fmt: skip


def place_text(numbers):
    lines = [f"`{method}` {' '.join(f'{x:.0f}' for x in at['eighths'])}, {show(100 * at['early'][0], 100 * at['early'][1], '.0f')} % in the first half"
             for method, at in numbers.items()]  # fmt: skip
    return "kept in each eighth of the text: " + "; ".join(lines) + number_of_samples(at["early"][2] for at in numbers.values())


def shares_kept(output):
    """{way: {sample: kept share of its prompt}}; the full cache keeps all of it."""
    found = {}
    for sample in output["samples"]:
        whole = next(result.get("kept") for result in sample["results"] if result["method"] == "full")
        for result in sample["results"]:
            if "kept" in result and whole:
                found.setdefault((result["method"], result["budget"]), {})[sample["sample"]] = result["kept"] / whole
    return found


def kept(score, verdict, best=None, loss_in=None):
    """Reads the kept share and its cost: {way: [share kept, its error, score, difference from the full cache, its error, samples]}; a negative
    difference is a loss. `loss_in`: the score whose loss is measured, if not `score`. `best`: the method whose differences from each other way
    are reported, in score and in share."""
    lower = score != "exact"

    def measure(outputs):
        numbers, sizes, by_way, shares = {}, {}, {}, {}
        for output in outputs:
            found, lost = scores(output, score), scores(output, loss_in or score)
            shares.update(shares_kept(output))
            sizes.update({key(way): size for way, size in cache_bytes(output).items()})
            for way, values in found.items():
                loss, error, n = difference(lost[way], lost["full", ""])
                numbers[key(way)] = [*mean_and_error(shares[way].values()), mean_and_error(values.values())[0], -loss if lower else loss, error, n]
            by_way.update(found)
        differences, less = {}, {}
        if best:
            for way, values in by_way.items():
                if way[0] not in (best, "full"):
                    mean, error, n = difference(by_way[best, ""], values)
                    differences[f"{best} against {key(way)}"] = [-mean if lower else mean, error, n]
                    mean, error, n = difference(shares[way], shares[best, ""])
                    less[f"{best} against {key(way)}"] = [mean, error, n]
        return {"numbers": numbers, "differences": differences, "less": less, "bytes": sizes}

    def text(found):
        lines = []
        for name, (share, share_error, value, loss, error, _) in found["numbers"].items():
            result = f"answers {100 * value:.0f} %" if score == "exact" else f"KLD {value:.4f}, {-loss:+.4f} ± {error:.4f} in loss"
            lines.append(f"{label(name)} keeps {100 * share:.1f} ± {100 * share_error:.1f} %{in_mib(found.get('bytes', {}), name)}, {result}")
        return "; ".join(lines) + number_of_samples(n for *_, n in found["numbers"].values())

    return Reader(measure, text, verdict)
