"""Distances between two sets of logits [n, vocabulary]."""

import numpy as np


def relative_error(logits, expected):
    """Norm of the difference / norm of the expected logits (Euclidean), all positions together."""
    return float(np.linalg.norm(logits.astype(np.float64) - expected) / np.linalg.norm(expected.astype(np.float64)))


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def mean_kld(logits, expected):
    """Mean over the positions of KL(expected || logits), in nats."""
    p, q = log_softmax(expected), log_softmax(logits)
    return float((np.exp(p) * (p - q)).sum(axis=1).mean())


def max_difference(logits, expected):
    return float(np.abs(logits.astype(np.float64) - expected).max())
