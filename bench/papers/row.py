"""A row of a paper's page, and how outputs of winnow become its numbers.

A difference is paired: over the same samples, with the standard error of its mean. It decides where it is more than two of these.
"""
import dataclasses
import math
import statistics
from collections.abc import Callable

KLD = "eval kld --data BOOKS --lengths 1024 --samples 8 --chunks 2"
NEEDLE = "eval needle --data BOOKS --needle code --lengths 1024 --depths 5-95+10 --samples 4"
# The same on fewer texts, for parameters about which a paper claims nothing.
FEW_KLD = KLD.replace("--samples 8", "--samples 4")
FEW_NEEDLE = NEEDLE.replace("--samples 4", "--samples 2")
OURS = "not in the paper: choice of ours"
GIVEN = "values are given, not compared"

IN_KIND = "reproduced in kind"
NOT = "not reproduced"
OPEN = "open: within two standard errors"
MEASURED = "measured"


@dataclasses.dataclass
class Row:
    name: str
    source: str  # table or figure
    claim: str
    number: str  # the paper's
    commands: list[str] = dataclasses.field(default_factory=list)  # without `winnow`, -m, -t and --json
    read: Callable | None = None  # outputs -> {"ours": text, "verdict": text, "numbers": ...}
    cannot: str = ""  # why it cannot be run here
    hours: float = 0  # of two cores, where it takes long
    note: str = ""


STREAM = "recent_nll"  # score of a stream: its pieces (--every) are the samples


def scores(output, score, group=None):
    """{way: {sample: score}} of an evaluation, or of one group of its samples; a way is a method and its budget."""
    found = {}
    for sample in output["samples"]:
        if group is not None and sample["group"] != group:
            continue
        for result in sample["results"]:
            if score == STREAM and "scores" in result:
                way = (result["method"], result["budget"])
                for point in result["details"]["points"]:
                    found.setdefault(way, {})[sample["sample"], point["tokens"]] = point[STREAM]
            elif score in result.get("scores", {}):
                way = (result["method"], result["budget"])
                found.setdefault(way, {})[sample["sample"]] = result["scores"][score]
    return found


def mean_and_error(values):
    values = list(values)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else float("nan")
    return statistics.mean(values), error


def difference(a, b):
    """(mean, standard error, pairs) of a - b over the samples both have."""
    pairs = [a[key] - b[key] for key in a if key in b]
    return (*mean_and_error(pairs), len(pairs))


def cache_bytes(output, group=None):
    """{way: bytes of keys, values and state, the mean over the samples}, where they were measured."""
    found = {}
    for sample in output["samples"]:
        for result in sample["results"] if group in (None, sample["group"]) else []:
            if "cache_bytes" in result:
                found.setdefault((result["method"], result["budget"]), []).append(result["cache_bytes"])
    return {way: statistics.mean(sizes) for way, sizes in found.items()}


def quotient(a, b):
    """(a / b, its standard error) of two means with their errors, from different samples."""
    ratio = a[0] / b[0]
    return ratio, math.hypot(a[1], ratio * b[1]) / b[0]


def prefill_times(output):
    """(group, way, seconds of its prefills, those of the full cache's; a mean and its error each) of a measurement of speed."""
    for group in dict.fromkeys(sample["group"] for sample in output["samples"]):
        found = {way: mean_and_error(runs.values()) for way, runs in scores(output, "prefill_s", group).items()}
        for way, seconds in found.items():
            if way[0] != "full":
                yield group, way, seconds, found["full", ""]


def show(value, error, form):
    return f"{value:{form}} ± {error:{form}}"


def label(way):
    method, budget = way
    return f"`{method}`" + (f" {budget}" if budget else "")


def in_mib(sizes, way):
    return f" ({sizes[way] / 2**20:.2f} MiB)" if way in sizes else ""


def number_of_samples(counts):
    """"; n = 40", or from the least to the most."""
    counts = sorted(set(counts))
    return f"; n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")


def compare(score, best=None, lower=False, form=".3f", scale=1, short=None, over=(), reverse=False, within=None):
    """Reads an evaluation: the means of all ways, and whether `best` beats each of `over` (all others but full, if empty), at
    every budget that both have. `short`: {method: name on the page}. `reverse`: the claim is that the others beat it; `within`: that
    they are as close as that."""

    def read(outputs):
        found, sizes = {}, {}
        for output in outputs:
            found.update(scores(output, score))
            sizes.update(cache_bytes(output))
        lines, numbers, signs = [], {}, []
        for way, values in found.items():
            mean, error = mean_and_error(scale * v for v in values.values())
            numbers[" ".join(filter(None, way))] = [mean, error, len(values)]
            name = f"{short[way[0]]}" + (f" ({way[1]})" if way[1] else "") if short and way[0] in short else label(way)
            lines.append(f"{name} {show(mean, error, form)}{in_mib(sizes, way)}")
        differences = {}
        for method, budget in found:
            if best is None or method in ("full", best) or (over and method not in over):
                continue
            if (best, budget) not in found:
                continue
            mean, error, n = difference(found[best, budget], found[method, budget])
            better = -mean if lower != reverse else mean
            differences[f"{best} against {method} {budget}".strip()] = [scale * better, scale * error, n]
            if within is not None:
                signs.append(1 if abs(mean) <= within else -1)
                continue
            signs.append(0 if abs(mean) <= 2 * error or mean == 0 else math.copysign(1, better))
        verdict = MEASURED if best is None else "open: nothing was run to compare"
        if signs:
            verdict = IN_KIND if min(signs) > 0 else NOT if max(signs) < 0 else OPEN
            if min(signs) < 0 < max(signs) or (min(signs) <= 0 < max(signs)):
                n_better, n_worse = sum(s > 0 for s in signs), sum(s < 0 for s in signs)
                verdict = f"in part: better than {n_better}, worse than {n_worse} of {len(signs)}"
            elif min(signs) < 0 and max(signs) == 0:
                verdict = f"{NOT}: worse than {sum(s < 0 for s in signs)} of {len(signs)}, better than none"
        ours = "; ".join(lines) + number_of_samples(len(values) for values in found.values())
        return {"ours": ours, "verdict": verdict, "numbers": numbers, "differences": differences}

    return read


def measured(read):
    """The same without a verdict: there is no claim."""
    return lambda outputs: {**read(outputs), "verdict": MEASURED}


def times_full(score, method, form=".2f"):
    """Reads a measurement of speed: for every group, how many times the full cache's the score of `method` is."""

    def read(outputs):
        lines, numbers = [], {}
        for output in outputs:
            for group in dict.fromkeys(sample["group"] for sample in output["samples"]):
                found = scores(output, score, group)
                full, _ = mean_and_error(found["full", ""].values())
                for way, values in found.items():
                    if way[0] != method:
                        continue
                    mean, error = mean_and_error(value / full for value in values.values())
                    numbers[f"{group} {way[1]}".strip()] = [mean, error, len(values)]
                    lines.append(f"{group} {way[1]}: {show(mean, error, form)} times")
        smallest = min(mean for mean, _, _ in numbers.values())
        return {"ours": "; ".join(lines), "verdict": IN_KIND if smallest > 1 else NOT, "numbers": numbers}

    return read


def field(of, text, verdict):
    """Reads numbers out of one output: `of` gives a dict of them, `text` a line, `verdict` a word."""

    def read(outputs):
        numbers = of(*outputs)
        return {"ours": text(numbers), "verdict": verdict(numbers), "numbers": numbers}

    return read
