"""Verdicts: the words for what the numbers of a row show about a claim, at two standard errors."""
import math

IN_KIND = "reproduced in kind"
NOT = "not reproduced"
OPEN = "open: within two standard errors"
MEASURED = "measured"
CLOSE = 0.25  # close means: within this share of the mean loss of the row's methods against the full cache


def sign(mean, error):
    """The sign of the mean, or 0 if it is within two standard errors (a single sample always is)."""
    return 0 if mean == 0 or math.isnan(error) or abs(mean) <= 2 * error else math.copysign(1, mean)


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
    """Yields (mean, error) by which `a` is better than `b`, at every budget that both have. Paired if the difference is stored; else from the two
    means as independent."""
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
            if there := kept.get(f"{a} against {b} {at}".strip()):
                yield there[0], there[1]
            elif there := kept.get(f"{b} against {a} {at}".strip()):
                yield -there[0], there[1]
            else:
                mean = own[0] - numbers[0]
                yield -mean if lower else mean, math.hypot(own[1], numbers[1])


def claims_hold(claims, lower=False):
    """A verdict function for claims [(a, b)]: a is better than b."""
    return lambda found: of_signs([sign(*d) for a, b in claims for d in apart(found, a, b, lower)])


def is_close(best, lower=False):
    """A verdict function: all other methods are close to `best`, within CLOSE of the row's mean loss, errors included."""

    def verdict(found):
        numbers = found["numbers"]
        losses = [abs(value[0] - numbers["full"][0]) for name, value in numbers.items() if name != "full"]
        tolerance = CLOSE * sum(losses) / len(losses)
        methods = dict.fromkeys(name.partition(" ")[0] for name in numbers)
        signs = []
        for mean, error in (d for m in methods if m not in ("full", best) for d in apart(found, best, m, lower)):
            signs.append(1 if abs(mean) + 2 * error <= tolerance else -1 if abs(mean) - 2 * error > tolerance else 0)
        return of_signs(signs)

    return verdict


def faster_as_published(found, published):
    """Compares with the paper's ratios, {group and budget, or group: times the full cache's}: reproduced in kind is at least half of the paper's gain,
    by two standard errors. A cell that the paper lacks is compared with the paper's smallest ratio."""
    signs = []
    for name, (mean, error, *_) in found["numbers"].items():
        ratio = published.get(name) or published.get(name.partition(" ")[0]) or min(published.values())
        wanted = 1 + (ratio - 1) / 2
        signs.append(1 if mean - 2 * error >= wanted else -1 if mean + 2 * error < wanted else 0)
    slower = sum(mean <= 1 for mean, *_ in found["numbers"].values())
    return of_signs(signs) + (f" (no faster than the full cache in {slower})" if slower else "")
