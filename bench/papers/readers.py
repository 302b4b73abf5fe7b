"""Readers: the numbers that a row extracts from outputs of winnow, and their wording on a page.

The line and the verdict are made from the numbers in the JSON, so that a page can be rewritten without the outputs.
"""
import dataclasses
import itertools
from collections.abc import Callable

from row import cache_bytes, difference, groups, in_mib, key, label, mean_and_error, number_of_samples, quotient, scores, show
from verdicts import MEASURED, claims_hold, faster_as_published, is_close


@dataclasses.dataclass
class Reader:
    measure: Callable  # outputs -> {"numbers": {...}} and other data for the line and the verdict
    text: Callable  # measured data -> the line
    verdict: Callable  # measured data -> the verdict

    def __call__(self, outputs):
        found = self.measure(outputs)
        return {**found, "ours": self.text(found), "verdict": self.verdict(found)}


def compare(score, best=None, claims=None, lower=False, form=".3f", scale=1, short=None, over=(), reverse=False, close=False,
            verdict=None):
    """Reads an evaluation: the means of all ways, and the difference of `best` from each other method at every budget that both have.

    The verdict is about `claims`, pairs of methods of which the first is claimed to be better. Without `claims` the claim is that `best` is
    better than each of `over` (all others except full, if empty); with `reverse`, that each of these is better than `best`; with `close`, that
    they are as good. `short`: {method: name on the page}. `verdict` replaces this verdict."""
    pairs = [(b, a) if reverse else (a, b) for a, b in claims or [(best, other) for other in over]]

    def measure(outputs):
        found, sizes = {}, {}
        for output in outputs:
            found.update(scores(output, score))
            sizes.update(cache_bytes(output))
        numbers = {key(way): [*mean_and_error(scale * v for v in values.values()), len(values)] for way, values in found.items()}
        methods = list(dict.fromkeys(method for method, _ in found))
        differences = {}
        # The pairs that the verdict is about first, in their order; the others once, so that no comparison on the same samples is unpaired.
        named = list(dict.fromkeys([(best, other) for other in methods if best and other != best] + pairs))
        for a, b in named + [(a, b) for a, b in itertools.combinations(methods, 2) if (a, b) not in named and (b, a) not in named]:
            for method, budget in found:
                if method != a:
                    continue
                for other, at in found:
                    if other != b or (at and budget and at != budget):
                        continue
                    mean, error, n = difference(found[a, budget], found[b, at])
                    differences[f"{a} against {b} {at or budget}".strip()] = [scale * (-mean if lower else mean), scale * error, n]
        return {"numbers": numbers, "differences": differences, "bytes": {key(way): size for way, size in sizes.items()}}

    def text(found):
        lines = [f"{label(name, short)} {show(mean, error, form)}{in_mib(found.get('bytes', {}), name)}"
                 for name, (mean, error, _) in found["numbers"].items()]  # fmt: skip
        return "; ".join(lines) + number_of_samples(n for _, _, n in found["numbers"].values())

    def judge(found):
        if best is None and not claims:
            return MEASURED
        if close:
            return is_close(best, lower)(found)
        others = dict.fromkeys(name.partition(" ")[0] for name in found["numbers"])
        every = [(best, other) for other in others if other not in ("full", best)]
        return claims_hold(pairs or ([(b, a) for a, b in every] if reverse else every), lower)(found)

    return Reader(measure, text, verdict or judge)


def measured(read):
    """The same reader without a verdict, for rows without a claim."""
    return dataclasses.replace(read, verdict=lambda found: MEASURED)


def several(parts):
    """One command per part. parts: {name in the JSON: (title on the page, its reader)}."""

    def of(found, name):
        return {what: values[name] for what, values in found.items() if isinstance(values, dict) and name in values}

    def measure(outputs):
        found = {}
        for number, (name, (_, read)) in enumerate(parts.items()):
            for what, values in read.measure(outputs[number:number + 1]).items():
                found.setdefault(what, {})[name] = values
        return found

    return Reader(measure, lambda found: ". ".join(f"{title}: {read.text(of(found, name))}" for name, (title, read) in parts.items()),
                  lambda found: "; ".join(titled_verdict(title, read.verdict(of(found, name))) for name, (title, read) in parts.items()))


def titled_verdict(title, verdict):
    return f"{title} ({verdict})" if "; " in verdict else f"{title} {verdict}"


def answers_and_distance(best=None, answers=None, distance=None, **how):
    """Codes found in texts, then the distance from the full cache's predictions; `answers` and `distance` are arguments for one of the two only."""
    return several({
        "exact": ("answers", compare("exact", best, scale=100, form=".1f", **{**how, **(answers or {})})),
        "kld": ("KLD", compare("kld", best, lower=True, **{**how, **(distance or {})}))})  # fmt: skip


def times_full(score, method, published, form=".2f"):
    """Reads a measurement of speed: for every group the ratio of `method`'s score to the full cache's, the number of sequences at once, and the
    bytes of each."""

    def measure(outputs):
        numbers, sequences, sizes = {}, {}, {}
        for output in outputs:
            for group in groups(output):
                found, at_once, size = scores(output, score, group), scores(output, "sequences", group), cache_bytes(output, group)
                full = mean_and_error(found["full", ""].values())
                for way, values in found.items():
                    name = key((group, way[1])) if way[0] == method else f"{group} full"
                    if way[0] == method:
                        numbers[name] = [*quotient(mean_and_error(values.values()), full), min(len(values), len(found["full", ""]))]
                    if way[0] in (method, "full"):
                        sequences[name] = mean_and_error(at_once[way].values())[0]
                        sizes[name] = size[way]
        return {"numbers": numbers, "sequences": sequences, "bytes": sizes}

    def at_once(found, name):
        if name not in found.get("sequences", {}):
            return ""
        return f"{found['sequences'][name]:.0f} sequences{in_mib(found['bytes'], name)}"

    def text(found):
        lines = []
        for name, (mean, error, _) in found["numbers"].items():
            own, full = at_once(found, name), at_once(found, f"{name.partition(' ')[0]} full")
            lines.append(f"{name}: {show(mean, error, form)} times" + (f", {own}, full {full}" if own else ""))
        return "; ".join(lines) + number_of_samples(n for _, _, n in found["numbers"].values())

    return Reader(measure, text, lambda found: faster_as_published(found, published))


def field(of, text, verdict):
    """Reads numbers from outputs: `of` returns a dict of them, `text` a line, `verdict` a verdict."""
    return Reader(lambda outputs: {"numbers": of(*outputs)}, lambda found: text(found["numbers"]), lambda found: verdict(found["numbers"]))
