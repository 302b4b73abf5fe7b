"""Verdicts: the words for what the numbers of a row show about a claim, by 95 % confidence intervals."""
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from student import half_width  # noqa: E402

IN_KIND = "reproduced in kind"
NOT = "not reproduced"
OPEN = "open: within the error"
MEASURED = "measured"
CLOSE = 0.25  # close means: within this share of the mean loss of the row's methods against the full cache
LOSSLESS = 0.01  # nothing is lost: fewer than this share of all questions, or less than this of perplexity (nats per token)


def sign(mean, error, n):
    """The sign of the mean of n samples, or 0 if its 95 % confidence interval holds 0 (that of a single sample always does)."""
    return 0 if mean == 0 or math.isnan(error) or abs(mean) <= half_width(n) * error else math.copysign(1, mean)


def at_most(mean, error, n, limit):
    """Whether a mean is at most a limit: 1 if its interval is below, -1 if it is above, else 0."""
    return -sign(mean - limit, error, n)


def loss_limit(loss, error, n, of_answers):
    """The largest loss that n samples do not exclude, at 95 %. Of answers at least that which n equal pairs do not exclude [Clopper and Pearson]."""
    if math.isnan(error):
        return math.inf
    around = half_width(n) * error
    return loss + (max(around, 1 - 0.025 ** (1 / n)) if of_answers else around)


def nothing_lost(loss, error, n, of_answers):
    """The verdict on a claim that nothing is lost, with the margin LOSSLESS: answers as a share, or nats per token."""
    limit = loss_limit(loss, error, n, of_answers)
    if limit <= LOSSLESS:
        return IN_KIND
    if sign(loss - LOSSLESS, error, n) > 0:
        return NOT
    points = f"{100 * limit:.0f}"
    shown = f"{points} point{'s' if points != '1' else ''}" if of_answers else f"{limit:.3f} nats"
    return f"open: a loss of up to {shown} is not excluded"


def ours(verdict):
    """A verdict on a claim that is ours and not the paper's."""
    words = {IN_KIND: "holds", NOT: "does not hold"}
    return lambda found: f"not in the paper; {words.get(verdict(found), verdict(found))} here"


def of_signs(signs):
    """The verdict on a claim of several comparisons. signs: 1 where it holds, -1 where the opposite holds, 0 where it is open."""
    n, holds, fails = len(signs), sum(s > 0 for s in signs), sum(s < 0 for s in signs)
    if not n:
        return "open: nothing was run to compare"
    if holds == n:
        return IN_KIND
    if holds:
        return f"in part: holds in {holds}, fails in {fails} of {n}"
    if fails == n:
        return NOT
    return f"{NOT}: fails in {fails} of {n}, holds in none" if fails else OPEN


def of_parts(parts):
    """{part of a claim: verdict} as a line; a single verdict if all parts agree."""
    if len(set(parts.values())) == 1 and next(iter(parts.values())) in (IN_KIND, NOT, OPEN):
        return next(iter(parts.values()))
    return "; ".join(f"{name}: {verdict}" for name, verdict in parts.items())


def yes_or_no(holds):
    return IN_KIND if holds else NOT


def apart(found, a, b, lower=False):
    """Yields (mean, error, samples) by which `a` is better than `b`, at every budget that both have. Paired if the difference is stored; else from
    the two means as independent."""
    ways = {tuple(name.partition(" ")[::2]): numbers for name, numbers in found["numbers"].items()}
    kept = found.get("differences") or {}
    for (method, budget), own in ways.items():
        if method != a:
            continue
        other = ways.get((b, budget)) or ways.get((b, ""))
        if other is None:
            if budget:
                continue
            matches = [(at, numbers) for (name, at), numbers in ways.items() if name == b]
        else:
            matches = [(budget, other)]
        for at, numbers in matches:
            if there := kept.get(f"{a} against {b} {at or budget}".strip()):
                yield there
            elif there := kept.get(f"{b} against {a} {at or budget}".strip()):
                yield -there[0], *there[1:]
            else:
                mean = own[0] - numbers[0]
                yield -mean if lower else mean, math.hypot(own[1], numbers[1]), min(own[2], numbers[2])


def claims_hold(claims, lower=False):
    """A verdict function for claims [(a, b)]: a is better than b."""
    return lambda found: of_signs([sign(*d) for a, b in claims for d in apart(found, a, b, lower)])


def within(mean, error, n, tolerance):
    """1 if the whole 95 % interval of a difference is within a tolerance of 0, -1 if all of it is outside, else 0."""
    around = half_width(n) * error
    return 1 if abs(mean) + around <= tolerance else -1 if abs(mean) - around > tolerance else 0


def is_close(best, lower=False):
    """A verdict function: all other methods are close to `best`, within CLOSE of the row's mean loss, errors included. Where answers are compared
    and a method has fewer right ones than this tolerance, nothing could differ by more."""

    def verdict(found):
        numbers = found["numbers"]
        losses = [abs(value[0] - numbers["full"][0]) for name, value in numbers.items() if name != "full"]
        tolerance = CLOSE * sum(losses) / len(losses)
        if not lower and min(value[0] for value in numbers.values()) <= tolerance:
            return "open: nearly all is lost, too little is left to differ"
        methods = dict.fromkeys(name.partition(" ")[0] for name in numbers)
        signs = []
        for difference in (d for m in methods if m not in ("full", best) for d in apart(found, best, m, lower)):
            signs.append(within(*difference, tolerance))
        return of_signs(signs)

    return verdict


def faster_as_published(found, published):
    """Compares with the paper's ratios, {group and budget, or group: times the full cache's}: reproduced in kind is at least half of the paper's
    gain, by the 95 % interval. A cell that the paper lacks is compared with the paper's smallest ratio."""
    signs = []
    for name, (mean, error, n, *_) in found["numbers"].items():
        ratio = published.get(name) or published.get(name.partition(" ")[0]) or min(published.values())
        signs.append(sign(mean - 1 - (ratio - 1) / 2, error, n))
    slower = sum(sign(mean - 1, error, n) <= 0 for mean, error, n, *_ in found["numbers"].values())
    return of_signs(signs) + (f" (not shown to be faster than the full cache in {slower})" if slower else "")
