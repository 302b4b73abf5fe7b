"""Steps of winnow (docs/methods/winnow.md, semantics.md) for its reference implementation,
test_winnow.py."""

import math


def curve_sizes(n):
    sizes = list(range(1, min(8, n) + 1))
    i = 1
    while sizes[-1] < n:
        sizes.append(min(n, math.floor(8 * 2 ** (i / 3) + 0.5)))
        i += 1
    return sizes


def hull(points):
    found = []
    for point in points:
        while len(found) >= 2:
            (x0, y0), (x1, y1) = found[-2:]
            if (y1 - y0) * (point[0] - x0) < (point[1] - y0) * (x1 - x0):
                break
            found.pop()
        found.append(point)
    return found


def solve(a, b):
    """Gaussian elimination with pivoting; b has several columns."""
    n = len(a)
    rows = [a[i] + b[i] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(n):
            if r != i and rows[r][i] != 0:
                factor = rows[r][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i])]
    return [row[n:] for row in rows]


def fill(curves, floor, total):
    sizes = [min(floor, curve[-1][0]) for curve in curves]
    segments = []
    for head, curve in enumerate(curves):
        points = hull([point for point in curve if point[0] >= max(1, sizes[head])])
        if sizes[head] == 0:
            segments.append((-math.inf, head, 0, 1))
        for i, ((x0, y0), (x1, y1)) in enumerate(zip(points, points[1:])):
            segments.append(((y1 - y0) / (x1 - x0), head, i + 1, x1 - x0))
    left = total - sum(sizes)
    for _, head, _, n in sorted(segments):
        taken = min(n, left)
        sizes[head] += taken
        left -= taken
    return sizes
