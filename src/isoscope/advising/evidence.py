"""What a repair got on held-out examples, kept so that the examples can be drawn again: a bootstrap costs sums alone.

`weights` are (draws, examples): how often each example is in each draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array


class Evidence(Protocol):
    """A measure on the examples of one fold."""

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The measure of each draw."""


@dataclass(frozen=True)
class Means:
    """A measure that is the mean of one number for each example."""

    values: np.ndarray

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The mean of each draw."""
        return np.asarray(weights @ self.values / weights.sum(axis=1))


class RankCorrelation:
    """Spearman's correlation of two rankings; equal values share their mean rank."""

    def __init__(self, a: np.ndarray, b: np.ndarray):
        self.a, self.b = _Ranking(a), _Ranking(b)

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The correlation of each draw, 0 where one side does not vary."""
        total = weights.sum(axis=1, keepdims=True)
        x, y = self.a.ranks(weights), self.b.ranks(weights)
        x -= (weights * x).sum(axis=1, keepdims=True) / total
        y -= (weights * y).sum(axis=1, keepdims=True) / total
        weighted = weights * x
        xy, xx = (weighted * y).sum(axis=1), (weighted * x).sum(axis=1)
        yy = np.einsum("ij,ij,ij->i", weights, y, y)
        return np.asarray(xy / np.sqrt(np.where(xx * yy > 0, xx * yy, np.inf)))


class _Ranking:
    """Values sorted once, so that the ranks of a draw are running sums of its weights."""

    def __init__(self, values: np.ndarray):
        self.order = np.argsort(values, kind="stable")
        ordered = values[self.order]
        new = np.concatenate([[True], ordered[1:] != ordered[:-1]])
        self.starts = np.flatnonzero(new)
        self.place = np.empty(len(values), np.int64)  # of each example's value among the different ones
        self.place[self.order] = np.cumsum(new) - 1

    def ranks(self, weights: np.ndarray) -> np.ndarray:
        tied = np.add.reduceat(weights[:, self.order], self.starts, axis=1)
        middle = np.cumsum(tied, axis=1) - tied / 2
        return np.asarray(middle[:, self.place])


class Agreement:
    """V-measure of clusterings with the labels, the mean over several clusterings of the same examples."""

    def __init__(self, clusterings: np.ndarray, labels: np.ndarray):
        self.clusterings, self.labels = clusterings, labels

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The mean V-measure of each draw."""
        return np.asarray(np.mean([self._of_one(codes, weights) for codes in self.clusterings], axis=0))

    def _of_one(self, codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        _, cells = np.unique(codes * (self.labels.max() + 1) + self.labels, return_inverse=True)
        h_both, h_clusters, h_labels = (_entropies(of, weights) for of in (cells, codes, self.labels))
        # V = 2·I/(H(labels) + H(clusters)); one class and one cluster agree perfectly
        both = h_clusters + h_labels
        return np.asarray(np.where(both > 0, 2 * (both - h_both) / np.where(both > 0, both, 1), 1.0))


def _entropies(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    m = len(codes)
    membership = csr_array((np.ones(m), codes, np.arange(m + 1)), shape=(m, int(codes.max()) + 1))
    shares = (membership.T @ weights.T) / weights.sum(axis=1)
    return np.asarray(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=0))


def draws(groups: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """How often each example is in each of `count` draws with replacement of whole groups of examples."""
    m = int(groups.max()) + 1
    return rng.multinomial(m, np.full(m, 1 / m), size=count).astype(np.float64)[:, groups]
