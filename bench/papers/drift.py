"""A long stream: which method has the lowest loss, which methods drift, and the cost of a token."""
import math

from readers import Reader
from row import STREAM, difference, in_mib, key, label, mean_and_error, number_of_samples, scores, show
from verdicts import at_most, of_parts, of_signs, sign, yes_or_no

FLAT = 0.01  # a cache counts as flat if it grows by less than this share of its size
FLAT_LOSS = 0.01  # a loss counts as flat if it rises by less than this, in nats per token: 1 % of the perplexity


def measure(outputs):
    """`numbers`: {method: [mean loss, error, pieces, rise from the first half of the stream to the second, error]}. The two halves of the
    text differ, so rises are relative to StreamingLLM, except its own. `grown`: the relative growth of the cache from a tenth of the
    stream to its end. `stream`: run.py's measurements of each command."""
    found, sizes, grown, run = {}, {}, {}, {}
    for output in outputs:
        here = scores(output, STREAM)
        found.update(here)
        for way in here:
            run[key(way)] = output.get("measured", {})
            points = [p for s in output["samples"] for r in s["results"] if (r["method"], r["budget"]) == way for p in r["details"]["points"]]
            sizes[key(way)] = points[-1]["cache_bytes"]
            grown[key(way)] = points[-1]["cache_bytes"] / points[len(points) // 10]["cache_bytes"] - 1
    reference = next(values for way, values in found.items() if way[0] == "streaming")
    numbers = {}
    for way, values in found.items():
        of = values if way[0] == "streaming" else {at: value - reference[at] for at, value in values.items() if at in reference}
        in_order = [of[at] for at in sorted(of)]
        halves = [mean_and_error(in_order[:len(in_order) // 2]), mean_and_error(in_order[len(in_order) // 2:])]
        numbers[key(way)] = [*mean_and_error(values.values()), len(values), halves[1][0] - halves[0][0], math.hypot(halves[0][1], halves[1][1])]
    own = next(values for way, values in found.items() if way[0] == "treekv")
    differences = {}
    for way, values in found.items():
        if way[0] != "treekv":
            mean, error, n = difference(own, values)
            differences[f"treekv against {key(way)}"] = [-mean, error, n]
    return {"numbers": numbers, "differences": differences, "bytes": sizes, "grown": grown, "stream": run}


def reader(short, drifting):
    """`drifting`: the methods that the paper says drift upwards."""

    def text(found):
        lines = []
        for name, (mean, error, _, rise, rise_error) in found["numbers"].items():
            run = found["stream"].get(name, {})
            cost = ""
            if run:
                tokens = run["tokens"]
                cost = (f", {1e3 * run['seconds'] / tokens:.3f} ms a token, resident {run['resident_early_bytes'] / 2**20:.0f} MiB after a tenth, "
                        f"{run['resident_late_bytes'] / 2**20:.0f} at the end")  # fmt: skip
            lines.append(f"{label(name, short)} {show(mean, error, '.3f')}{in_mib(found['bytes'], name)}, rises by {show(rise, rise_error, '.4f')}{cost}")
        return "; ".join(lines) + number_of_samples(n for _, _, n, *_ in found["numbers"].values())

    def verdict(found):
        def rise(name):
            """The rise, its error, and the pieces of a half."""
            *_, n, mean, error = found["numbers"][name]
            return mean, error, n // 2

        by_method = {name.partition(" ")[0]: name for name in found["numbers"]}
        parts = {"TreeKV lowest": of_signs([sign(*d) for d in found["differences"].values()]),
                 "TOVA and H2O drift": of_signs([sign(*rise(by_method[m])) for m in drifting]),
                 "StreamingLLM and TreeKV flat": of_signs([at_most(*rise(by_method[m]), FLAT_LOSS) for m in ("streaming", "treekv")]),
                 "caches flat": yes_or_no(all(growth <= FLAT for growth in found["grown"].values()))}  # fmt: skip
        return of_parts(parts)

    return Reader(measure, text, verdict)
