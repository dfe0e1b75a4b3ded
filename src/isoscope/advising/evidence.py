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

    def value(self) -> float:
        """The measure of the examples as they are."""

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The measure of each draw."""


@dataclass(frozen=True)
class Means:
    """A measure that is the mean of one number for each example."""

    values: np.ndarray

    def value(self) -> float:
        """The mean."""
        return float(self.values.mean())

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The mean of each draw."""
        return np.asarray(weights @ self.values / weights.sum(axis=1))


class RankCorrelation:
    """Spearman's correlation of two rankings; equal values share their mean rank."""

    def __init__(self, a: np.ndarray, b: np.ndarray):
        self.a, self.b, self.size = _Ranking(a), _Ranking(b), len(a)

    def value(self) -> float:
        """The correlation."""
        return float(self.resampled(np.ones((1, self.size)))[0])

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
    """V-measure of clusterings with the labels, adjusted for chance; the mean over several clusterings of the examples.

    Clusters of even sizes share more with any labels by mere chance, and a repair that evens them out would seem to
    help. What chance gives is taken off, as of all examples: V is then the adjusted mutual information.

    A clustering has luck of its own with its start: a draw draws the clusterings again as well as the examples.
    """

    def __init__(self, clusterings: np.ndarray, labels: np.ndarray, seed: int = 0):
        self.clusterings, self.labels = clusterings, np.unique(labels, return_inverse=True)[1]
        self.by_chance = [_shared_by_chance(codes, self.labels) for codes in clusterings]
        self.rng = np.random.default_rng(seed)

    def value(self) -> float:
        """The mean over the clusterings."""
        return float(self._of_each(np.ones((1, len(self.labels)))).mean())

    def resampled(self, weights: np.ndarray) -> np.ndarray:
        """The mean of each draw."""
        found = self._of_each(weights)
        count = len(found)
        luck = self.rng.multinomial(count, np.full(count, 1 / count), size=len(weights))
        return np.asarray((found * luck.T).sum(axis=0) / count)

    def _of_each(self, weights: np.ndarray) -> np.ndarray:
        """(clusterings, draws)."""
        each = zip(self.clusterings, self.by_chance, strict=True)
        return np.asarray([self._of_one(codes, chance, weights) for codes, chance in each])

    def _of_one(self, codes: np.ndarray, by_chance: float, weights: np.ndarray) -> np.ndarray:
        _, cells = np.unique(codes * (self.labels.max() + 1) + self.labels, return_inverse=True)
        h_both, h_clusters, h_labels = (_entropies(of, weights) for of in (cells, codes, self.labels))
        # V = I/(mean of H(labels) and H(clusters)); one class and one cluster agree perfectly
        shared, most = h_clusters + h_labels - h_both - by_chance, (h_clusters + h_labels) / 2 - by_chance
        return np.asarray(np.where(most > 1e-12, shared / np.where(most > 1e-12, most, 1), 1.0))


def _shared_by_chance(codes: np.ndarray, labels: np.ndarray) -> float:
    """The mutual information that random labels of the same numbers would have with the clusters."""
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

    table = contingency_matrix(labels, codes, sparse=True).astype(np.int64)
    return float(expected_mutual_information(table, len(labels)))


def _entropies(codes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    m = len(codes)
    membership = csr_array((np.ones(m), codes, np.arange(m + 1)), shape=(m, int(codes.max()) + 1))
    shares = (membership.T @ weights.T) / weights.sum(axis=1)
    return np.asarray(-(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=0))


def draws(groups: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """How often each example is in each of `count` draws with replacement of whole groups of examples."""
    m = int(groups.max()) + 1
    return rng.multinomial(m, np.full(m, 1 / m), size=count).astype(np.float64)[:, groups]
