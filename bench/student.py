"""Confidence intervals of means."""
import functools
import math


@functools.cache
def half_width(n):
    """Half the width of a 95 % confidence interval of a mean, in standard errors: Student's t for n samples."""
    if n < 2:
        return math.inf

    def inside(t):
        """The probability of -t to t [Abramowitz and Stegun 26.7.3, 26.7.4]."""
        angle, freedom = math.atan(t / math.sqrt(n - 1)), n - 1
        sine, cosine = math.sin(angle), math.cos(angle)
        odd = freedom % 2
        term, total = (cosine if odd else 1.0), 0.0
        for k in range(1, freedom // 2 + 1):
            total += term
            term *= cosine**2 * (2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k))
        return 2 / math.pi * (angle + sine * total) if odd else sine * total

    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < 0.95 else (low, middle)
    return high
