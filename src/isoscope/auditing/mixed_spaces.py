"""Detect rows of another space inside one source, such as an index that holds vectors of two models.

Topics of one model differ in their means, but they vary along similar directions. The directions of two models have
nothing in common. The rows are therefore split into small clusters, and the covariances within the clusters are
compared: clusters whose covariances are as unrelated as those of randomly rotated spaces belong to different spaces.
Models with a common ancestor share some directions. They are recognized by a gap that topics of one model do not have:
along one direction, the rows of each space are close together compared with the distance of the two spaces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isoscope._core.arrays import nonzero_rows, tiles, unit_rows
from isoscope.metrics.clusters import kmeans_plus_plus

MIXED_ROWS = 2_000
"""The number of rows that are examined."""
MIN_MIXED_ROWS = 200
"""The smallest number of rows that can be examined."""
MIN_MIXED_DIMENSIONS = 8
"""The smallest number of dimensions in which covariances can be compared."""
MAX_ALIGNMENT, MAX_EXCESS, MAX_MEAN_COSINE = 0.03, 0.1, 0.25
"""The largest alignment of covariances, their largest excess over random orientation, and the largest cosine of the
means of two unrelated spaces; topics of one model exceed at least one of them. docs/same.md has the measurements."""
MIN_GAP, MAX_RELATED_ALIGNMENT, MAX_RELATED_COSINE = 0.8, 0.3, 0.55
"""The smallest gap between related spaces, the largest alignment of their covariances, and the largest cosine of their
means."""
MIN_SHARE = 0.03
"""The smallest share of the rows that is recognized as another space; a narrow topic can look the same."""

_ROWS_PER_CLUSTER, _CLUSTERS = 40, (8, 48)
_ITERATIONS = 10
_LEAST_ROWS = 12  # of a cluster whose covariance is used to find the two spaces
_LEAST_PART_ROWS = 6  # of the part of a cluster that belongs to one space
_LEAST_SPACE_ROWS = 16
_LEAST_STRUCTURE = 0.2  # the excess over random orientation of covariances within one space
_REFINEMENTS = 3
_RIDGE = 0.005  # penalty of the separating direction, relative to the mean variance
_SMALLEST_NORM = 0.3  # relative to the median; noise makes small clusters look isotropic


@dataclass(frozen=True)
class MixedSpaces:
    """Whether rows come from two spaces, and which of them belong to the smaller one."""

    rows: int
    """The number of rows that were examined."""
    is_mixed: bool
    other: np.ndarray
    """The positions of the rows of the smaller space among the examined rows; empty if there is one space."""
    alignment: float
    """The correlation of the covariances of the two most different parts: 0 for random orientation, 1 if equal."""
    excess: float
    """Their inner product, relative to random orientation, minus 1."""
    mean_cosine: float
    """The cosine of the means of the two parts."""
    gap: float
    """The gap between the parts along the direction that separates them, relative to the distance of their means."""

    @property
    def share(self) -> float:
        """The share of the rows that belong to the smaller space."""
        return len(self.other) / self.rows if self.rows else 0.0


def find_mixed_spaces(vectors: np.ndarray, seed: int) -> MixedSpaces | None:
    """Return whether the rows come from two spaces; None if there are too few rows or dimensions to tell.

    Only directions are compared. The memory is proportional to the square of the number of rows, which should be at
    most `MIXED_ROWS`.
    """
    usable = np.flatnonzero(nonzero_rows(vectors))
    n, d = len(usable), vectors.shape[1]
    if n < MIN_MIXED_ROWS or d < MIN_MIXED_DIMENSIONS:
        return None
    units = np.asarray(unit_rows(np, vectors[usable].astype(np.float32), np.float32))
    k = int(np.clip(n // _ROWS_PER_CLUSTER, *_CLUSTERS))
    codes = _cluster(units, k, np.random.default_rng(seed))
    one = MixedSpaces(len(vectors), False, np.zeros(0, np.int64), 1.0, np.inf, 1.0, 0.0)
    if _means_are_connected(units, codes):
        return one
    sides = _split(units, codes, k)
    if sides is None:
        return one
    found = _compare_sides(units, codes, sides, k)
    if found is None:
        return one
    alignment, excess, cosine, structure = found
    gap = _gap(units, sides, np.random.default_rng((seed, 1)))
    unrelated = alignment < MAX_ALIGNMENT and excess < MAX_EXCESS and cosine < MAX_MEAN_COSINE
    related = gap > MIN_GAP and alignment < MAX_RELATED_ALIGNMENT and cosine < MAX_RELATED_COSINE
    share = min(float(sides.mean()), 1 - float(sides.mean()))
    is_mixed = (unrelated or related) and structure > _LEAST_STRUCTURE and share > MIN_SHARE
    smaller = sides if 2 * sides.sum() <= n else ~sides
    other = usable[smaller] if is_mixed else np.zeros(0, np.int64)
    return MixedSpaces(len(vectors), is_mixed, other, alignment, excess, cosine, gap)


def assign_spaces(vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return whether each row belongs to the second of two spaces, given the positions of rows of both.

    A row belongs to the space of its nearest neighbor among these rows.
    """
    known = np.asarray(unit_rows(np, vectors[np.concatenate([first, second])].astype(np.float32), np.float32))
    belongs = np.zeros(len(vectors), bool)
    for part in tiles(vectors):
        rows = np.asarray(unit_rows(np, vectors[part].astype(np.float32), np.float32))
        belongs[part] = np.argmax(rows @ known.T, axis=1) >= len(first)
    belongs[first], belongs[second] = False, True
    return np.asarray(belongs & nonzero_rows(vectors))


def _cluster(units: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Return the cluster of each row after a few iterations of k-means; the clusters need not be optimal."""
    rows = units - units.mean(axis=0)
    centers = rows[kmeans_plus_plus(rows, k, rng)]
    codes = np.zeros(len(rows), np.int64)
    for _ in range(_ITERATIONS):
        codes = np.argmin(np.einsum("ij,ij->i", centers, centers) / 2 - rows @ centers.T, axis=1)
        counts = np.bincount(codes, minlength=k)
        sums = _members(codes, k).T @ rows
        centers = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers).astype(np.float32)
    return codes


def _members(codes: np.ndarray, k: int) -> np.ndarray:
    """Return the (n, k) matrix with a 1 for the cluster of each row."""
    members = np.zeros((len(codes), k), np.float32)
    members[np.arange(len(codes)), codes] = 1
    return members


def _means_are_connected(units: np.ndarray, codes: np.ndarray) -> bool:
    """Return whether the means of all clusters share a direction, as those of an anisotropic space do.

    Then there is one space, and nothing else needs to be computed.
    """
    from scipy.sparse.csgraph import connected_components

    counts = np.bincount(codes)
    large = np.flatnonzero(counts >= _LEAST_ROWS)
    means = (_members(codes, len(counts)).T @ units)[large]
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    # twice the limit: the mean of a mixed cluster lies between the means of two spaces
    return int(connected_components(means @ means.T > 2 * MAX_MEAN_COSINE)[0]) == 1


class _Covariances:
    """The covariances within clusters, divided by their traces, through their inner products."""

    def __init__(self, units: np.ndarray, codes: np.ndarray, k: int) -> None:
        members = _members(codes, k)
        self.counts = members.sum(axis=0).astype(np.float64)
        n = np.maximum(self.counts, 4)
        residuals = units - ((members.T @ units) / np.maximum(self.counts, 1)[:, None].astype(np.float32))[codes]
        products = residuals @ residuals.T
        squares = np.diag(products).astype(np.float64)
        np.square(products, out=products)
        inner = (members.T @ (products @ members)).astype(np.float64) / np.outer(n - 1, n - 1)
        trace, quartic = members.T @ squares / (n - 1), members.T @ squares**2 / (n - 1)
        own, c = np.diag(inner), (n - 1) / (n * (n - 2) * (n - 3))
        # the unbiased traces of `_core.formulas.unbiased_traces`, for all clusters at once
        trace_squared = c * ((n - 1) * (n - 2) * own + trace**2 - n * quartic)
        squared_trace = c * (2 * own + (n**2 - 3 * n + 1) * trace**2 - n * quartic)
        self.usable = trace > 1e-6
        scale = np.where(self.usable, trace, 1.0)
        self.inner = inner / np.outer(scale, scale)
        np.fill_diagonal(self.inner, trace_squared / np.where(self.usable, np.maximum(squared_trace, 1e-12), 1.0))

    def mean_inner(self, a: np.ndarray, b: np.ndarray) -> float:
        """Return the inner product of the mean covariances of two sets of clusters, weighted by their rows."""
        weights = np.outer(self.counts * a, self.counts * b)
        return float((weights * self.inner).sum() / weights.sum())


def _split(units: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray | None:
    """Return the most likely side of each row; None if the rows cannot be split.

    The clusters are merged by the similarity of their covariances until two groups remain. Then each row moves to the
    group with which its squared cosines are larger.
    """
    from scipy.cluster.hierarchy import fcluster, linkage

    d = units.shape[1]
    covariances = _Covariances(units, codes, k)
    large = np.flatnonzero((covariances.counts >= _LEAST_ROWS) & covariances.usable)
    if len(large) < 3:
        return None
    excess = covariances.inner[np.ix_(large, large)] - 1 / d
    norms = np.diag(excess)
    if not np.median(norms) > 0:
        return None
    norms = np.sqrt(np.maximum(norms, _SMALLEST_NORM * np.median(norms)))
    distances = 1 - np.clip(excess / np.outer(norms, norms), -1, 1)
    groups = fcluster(linkage(distances[np.triu_indices(len(large), 1)], "average"), 2, "maxclust")
    if len(np.unique(groups)) < 2:
        return None
    group = np.zeros(k, np.int64)
    group[large] = groups
    first, second = group[codes] == 1, group[codes] == 2
    squares = units @ units.T
    np.square(squares, out=squares)
    for _ in range(_REFINEMENTS):
        if min(first.sum(), second.sum()) < _LEAST_SPACE_ROWS:
            return None
        own = [_mean_squares(squares, side) - 1 / d for side in (first, second)]
        typical = [max(float(np.median(each[side])), 1e-9) for each, side in zip(own, (first, second), strict=True)]
        second = own[0] / typical[0] < own[1] / typical[1]
        first = ~second
    return second if min(first.sum(), second.sum()) >= _LEAST_SPACE_ROWS else None


def _mean_squares(squares: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return the mean squared cosine of each row with the other rows of a side."""
    return np.asarray((squares @ side.astype(np.float32) - side) / (side.sum() - side))


def _compare_sides(
    units: np.ndarray, codes: np.ndarray, sides: np.ndarray, k: int
) -> tuple[float, float, float, float] | None:
    """Return the alignment, the excess, the cosine of the means, and the least excess within a side."""
    d = units.shape[1]
    parts = 2 * codes + sides
    covariances = _Covariances(units, parts, 2 * k)
    usable = (covariances.counts >= _LEAST_PART_ROWS) & covariances.usable
    first, second = usable & (np.arange(2 * k) % 2 == 0), usable & (np.arange(2 * k) % 2 == 1)
    if not first.any() or not second.any():
        return None
    across, *within = (
        d * covariances.mean_inner(a, b) - 1 for a, b in ((first, second), (first, first), (second, second))
    )
    alignment = across / float(np.sqrt(max(within[0], 1e-9) * max(within[1], 1e-9)))
    means = [units[side].mean(axis=0, dtype=np.float64) for side in (~sides, sides)]
    lengths = float(np.linalg.norm(means[0]) * np.linalg.norm(means[1]))
    cosine = float(means[0] @ means[1]) / lengths if lengths > 0 else 0.0
    return alignment, across, cosine, min(within)


def _gap(units: np.ndarray, sides: np.ndarray, rng: np.random.Generator) -> float:
    """Return the gap between two sides on held-out rows, along the direction that separates the other rows best.

    The gap is the distance from the 99th percentile of one side to the 1st percentile of the other, relative to the
    distance of their means; it is negative if the sides overlap.
    """
    fitted = np.zeros(len(units), bool)
    for side in (sides, ~sides):
        rows = rng.permutation(np.flatnonzero(side))
        fitted[rows[: len(rows) // 2]] = True
    X, side = units[fitted].astype(np.float64), sides[fitted]
    weights = np.where(side, 0.5 / side.sum(), 0.5 / (~side).sum())  # both sides count the same
    center = weights @ X
    X -= center
    second_moment = X.T @ (X * weights[:, None])
    penalty = _RIDGE * float(np.mean(np.einsum("ij,ij->i", X, X))) * 2 / X.shape[1]
    second_moment[np.diag_indices_from(second_moment)] += max(penalty, 1e-12)
    direction = np.linalg.solve(second_moment, X.T @ (weights * np.where(side, 1.0, -1.0)))
    scores, side = (units[~fitted] - center) @ direction, sides[~fitted]
    high, low = scores[side], scores[~side]
    distance = float(high.mean() - low.mean())
    return float(np.quantile(high, 0.01) - np.quantile(low, 0.99)) / distance if distance > 0 else 0.0
