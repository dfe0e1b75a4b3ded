"""Measures of a task as one value per example, so that gains, intervals and nested selection are sums over examples.

A mean (nDCG, accuracy) has such values already. Spearman's correlation and the V-measure get the pseudo-values of the
infinitesimal jackknife: the score T of all m examples plus m·∂T/∂wᵢ, where wᵢ is the weight of example i. Their mean is
T, their variance divided by m estimates the variance of T (Jaeckel 1972; Efron 1982), and their mean over a subset is
the score of that subset to first order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Evidence:
    """The score of one candidate by one measure."""

    values: np.ndarray
    """One per example; their mean is the score."""
    repeats: np.ndarray | None = None
    """The score in each repetition, if the measure repeats a random procedure: clusterings, splits of coordinates."""


def spearman(a: np.ndarray, b: np.ndarray) -> Evidence:
    """Return Spearman's correlation of a and b as pseudo-values; ties share their mean rank.

    >>> values = spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])).values
    >>> round(float(values.mean()), 3)
    0.8
    """
    m = len(a)
    by_a, by_b = _RankedValues(a), _RankedValues(b)
    x, y = by_a.ranks - by_a.ranks.mean(), by_b.ranks - by_b.ranks.mean()
    xx, yy, xy = float(x @ x), float(y @ y), float(x @ y)
    if not xx * yy > 0:
        return Evidence(np.zeros(m))
    value = xy / np.sqrt(xx * yy)
    # one more example of this kind raises the rank of all examples above it
    of_xy = x * y + by_a.sums_above(y) + by_b.sums_above(x)
    of_xx, of_yy = x * x + 2 * by_a.sums_above(x), y * y + 2 * by_b.sums_above(y)
    slope = of_xy / np.sqrt(xx * yy) - value / 2 * (of_xx / xx + of_yy / yy)
    return Evidence(value + m * slope)


class _RankedValues:
    """Values in order, with their mid-ranks."""

    def __init__(self, values: np.ndarray):
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self.starts = np.flatnonzero(first)
        self.tie = np.empty(len(values), np.int64)  # each example's place among the distinct values
        self.tie[self.order] = np.cumsum(first) - 1
        counts = np.diff(np.append(self.starts, len(values)))
        self.ranks = (np.cumsum(counts) - counts / 2)[self.tie]

    def sums_above(self, of: np.ndarray) -> np.ndarray:
        """For each example, the sum of `of` over examples with a larger value, and half of it over equal ones."""
        tied = np.add.reduceat(of[self.order], self.starts)
        return np.asarray((tied.sum() - np.cumsum(tied) + tied / 2)[self.tie])


def v_measure(clusterings: np.ndarray, labels: np.ndarray) -> Evidence:
    """Return the chance-adjusted V-measure of clusterings (c, m) with the labels, averaged over the clusterings.

    Clusters of even sizes share more information with any labels by chance alone, which would favor repairs that even
    them out. The information expected by chance is subtracted; V is then the adjusted mutual information.
    """
    labels = np.unique(labels, return_inverse=True)[1]
    each = [_adjusted_v_measure(codes, labels) for codes in clusterings]
    return Evidence(np.mean(each, axis=0), np.mean(each, axis=1))


def _adjusted_v_measure(codes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    table = contingency_matrix(labels, codes, sparse=True).astype(np.int64)
    chance = float(expected_mutual_information(table, len(labels)))
    both, of_clusters, of_labels = (_entropy(each) for each in (codes * (labels.max() + 1) + labels, codes, labels))
    # V = (I − E)/(mean entropy − E), and I = H(clusters) + H(labels) − H(both)
    above, below = of_clusters + of_labels - both, (of_clusters + of_labels) / 2
    shared, most = float(above.mean()) - chance, float(below.mean()) - chance
    if most <= 1e-12:
        return np.ones(len(labels))  # one class and one cluster agree perfectly
    value = shared / most
    return np.asarray(value + ((above - above.mean()) - value * (below - below.mean())) / most)


def _entropy(codes: np.ndarray) -> np.ndarray:
    """Pseudo-values of the entropy of some codes: −ln(share of the example's code)."""
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    return np.asarray(-np.log(counts / len(codes))[inverse])
