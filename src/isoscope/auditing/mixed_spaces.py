"""Detect rows of another space inside one source, such as an index that holds vectors of two models.

Two signs are examined:

- A gap. The two spaces lie apart: along one direction, the rows of each space are close together compared with their
  distance. The direction is found by projection pursuit and checked on held-out rows. Topics of one model lie apart
  less clearly.
- Covariances. Topics of one model vary along similar directions; the directions of two unrelated models have nothing in
  common. The rows are split into small clusters, and the covariances within the clusters are compared. This finds
  spaces with the same mean, such as one with reordered coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from isoscope._core.arrays import nonzero_rows, tiles, unit_rows
from isoscope._core.threads import single_threaded_blas
from isoscope.auditing.separation import held_out_gap, separate_rows, separating_direction
from isoscope.metrics.clusters import kmeans_plus_plus

MIXED_ROWS = 2_000
"""The number of rows that are examined."""
MIN_MIXED_ROWS = 200
"""The smallest number of rows that can be examined."""
MIN_MIXED_DIMENSIONS = 8
"""The smallest number of dimensions in which covariances can be compared."""
MAX_ALIGNMENT, MAX_EXCESS, MAX_MEAN_COSINE = 0.03, 0.1, 0.25
"""The largest absolute values of two unrelated spaces: the alignment of their covariances, its excess over random
orientation, and the cosine of their means. Topics of one model exceed at least one of them. docs/same.md has the
measurements."""
CLEAR_GAP, LEAST_WIDTH = 0.81, 0.2
"""The gap that topics of one model do not reach, and the least variance of the smaller space relative to the larger
one. Near-duplicates vary less than that."""
MIN_GAP, MIN_ALIGNMENT, MIN_WIDTH = 0.71, 0.12, 0.3
"""The same for related spaces. A smaller gap is enough if the covariances of both are aligned, unlike those of two
distant topics, and if the smaller space is too wide to be a narrow topic."""
CENTERED_PARTS = (
    "two groups of rows vary in unrelated directions and have opposite means, so they can be two spaces or distant "
    "topics of centered vectors"
)
"""Why it can be undecided whether there are two spaces."""
MIN_SHARE = 0.03
"""The smallest share of the rows that is recognized as another space; a narrow topic can look the same."""

_ROWS_PER_CLUSTER, _CLUSTERS = 40, (8, 48)
_ITERATIONS = 10
_LEAST_ROWS = 12  # of a cluster whose covariance is used to find the two spaces
_LEAST_PART_ROWS = 6  # of the part of a cluster that belongs to one space
_LEAST_SPACE_ROWS = 16
_LEAST_STRUCTURE = 0.2  # the excess over random orientation of covariances within one space
_LEAST_COMMON_STRUCTURE = 0.45  # the same for different clusters of one space: models have 0.7 or more, noise up to 0.3
_REFINEMENTS = 3
_SIMILAR_GAP = 1.5  # the share of the distance that is no gap, relative to that of another gap of similar size
_SMALLEST_NORM = 0.3  # relative to the median; noise makes small clusters look isotropic


Sign = Literal["gap", "covariances"]
"""What distinguishes two parts of the rows."""


@dataclass(frozen=True)
class MixedSpaces:
    """Whether rows come from two spaces, and which of them belong to the smaller one."""

    rows: int
    """The number of rows that were examined."""
    is_mixed: bool
    other: np.ndarray
    """The positions of the rows of the smaller space among the examined rows; empty if there is one space."""
    sign: Sign
    """What distinguishes the two parts that were compared."""
    gap: float
    """The gap between the parts along the direction that separates them, relative to the distance of their means."""
    alignment: float
    """The correlation of their covariances: 0 for random orientation, 1 if equal."""
    mean_cosine: float
    """The cosine of their means."""
    width: float
    """The variance of the smaller part, relative to the larger one."""
    is_undecided: bool = False
    """Whether the covariances differ as those of two spaces do, but the means are opposite, as in centered vectors:
    distant topics of one space then cannot be told from two spaces."""
    excess: float = np.inf
    """The inner product of the covariances within clusters, relative to random orientation, minus 1; for the sign
    "covariances"."""

    @property
    def measurements(self) -> dict[str, float]:
        """The measurements of the two parts by name."""
        numbers = {
            "gap": self.gap,
            "alignment": self.alignment,
            "cosine_of_means": self.mean_cosine,
            "width": self.width,
        }
        return numbers if np.isinf(self.excess) else {**numbers, "excess": self.excess}

    @property
    def share(self) -> float:
        """The share of the rows that belong to the smaller space."""
        return len(self.other) / self.rows if self.rows else 0.0


def find_mixed_spaces(vectors: np.ndarray, seed: int) -> MixedSpaces | None:
    """Return whether the rows come from two spaces; None if there are too few rows or dimensions to decide.

    Only directions are compared. The memory is proportional to the square of the number of rows, which should be at
    most `MIXED_ROWS`.
    """
    usable = np.flatnonzero(nonzero_rows(vectors))
    n, d = len(usable), vectors.shape[1]
    if n < MIN_MIXED_ROWS or d < MIN_MIXED_DIMENSIONS:
        return None
    with single_threaded_blas():  # many small products
        found = _examine(_to_units(vectors[usable]), seed)
    other = usable[found.other] if found.is_mixed else np.zeros(0, np.int64)
    return replace(found, rows=len(vectors), other=other)


def _examine(units: np.ndarray, seed: int) -> MixedSpaces:
    """Return whether unit vectors come from two spaces."""
    found = _look_for_gap(units, seed)
    if found.is_mixed:
        inner = _look_for_gap(np.delete(units, found.other, axis=0), seed)
        # rows with several gaps of similar size are clusters
        if inner.is_mixed and 1 - inner.gap < _SIMILAR_GAP * (1 - found.gap):
            found = replace(found, is_mixed=False)
    return found if found.is_mixed else _compare_covariances(units, seed) or found


def assign_spaces(vectors: np.ndarray, first: np.ndarray, second: np.ndarray, sign: Sign) -> np.ndarray:
    """Return whether each row belongs to the second of two spaces, given the positions of rows of both.

    A row belongs to the space on its side of the gap; without a gap, to the space of its nearest neighbor among these
    rows.
    """
    known = _to_units(vectors[np.concatenate([first, second])])
    if sign == "gap":
        direction, middle = separating_direction(known, np.arange(len(known)) >= len(first))
    belongs = np.zeros(len(vectors), bool)
    for part in tiles(vectors):
        rows = _to_units(vectors[part])
        if sign == "gap":
            belongs[part] = rows @ direction > middle
        else:
            belongs[part] = np.argmax(rows @ known.T, axis=1) >= len(first)
    belongs[first], belongs[second] = False, True
    return np.asarray(belongs & nonzero_rows(vectors))


def _to_units(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(unit_rows(np, vectors.astype(np.float32), np.float32))


def _look_for_gap(units: np.ndarray, seed: int) -> MixedSpaces:
    """Return the two parts with the largest gap between them, and whether they are two spaces."""
    n = len(units)
    least = max(_LEAST_SPACE_ROWS, int(np.ceil(MIN_SHARE * n)))
    none = MixedSpaces(n, False, np.zeros(0, np.int64), "gap", 0.0, 1.0, 1.0, 1.0)
    if n < 2 * least:
        return none
    gap, parts = separate_rows(units, least, np.random.default_rng((seed, 2)))
    none = replace(none, gap=gap)
    if gap < MIN_GAP or not least <= parts.sum():
        return none
    gap = min(gap, held_out_gap(units, parts, np.random.default_rng((seed, 1))))
    variances = [float(np.var(units[part], axis=0, ddof=1).sum()) for part in (parts, ~parts)]
    width = variances[0] / max(variances[1], 1e-12)
    alignment, structure = _align_parts(units, parts)
    clear = gap > CLEAR_GAP and width > LEAST_WIDTH
    related = gap > MIN_GAP and width > MIN_WIDTH and alignment > MIN_ALIGNMENT
    is_mixed = structure > _LEAST_STRUCTURE and (clear or related)
    return MixedSpaces(n, is_mixed, np.flatnonzero(parts), "gap", gap, alignment, _mean_cosine(units, parts), width)


def _align_parts(units: np.ndarray, parts: np.ndarray) -> tuple[float, float]:
    """Return the correlation of the covariances of two parts, and the least excess within a part.

    Both exclude the part that random orientation explains. The excess is 0 for a round cluster, but not for a space.
    """
    d = units.shape[1]
    first, second = (units[part] - units[part].mean(axis=0) for part in (parts, ~parts))
    across = d * _inner(first, second) - 1
    within = [d * _inner(part, part) - 1 for part in (first, second)]
    return float(across / np.sqrt(max(within[0], 1e-9) * max(within[1], 1e-9))), min(within)


def _inner(X: np.ndarray, Y: np.ndarray) -> float:
    """Return the inner product of two covariances scaled to trace 1, without the products of a row with itself."""
    squares = np.square(X @ Y.T)
    lengths = [np.einsum("ij,ij->i", rows, rows) for rows in (X, Y)]
    total = float(squares.sum(dtype=np.float64))
    traces = float(lengths[0].sum(dtype=np.float64)) * float(lengths[1].sum(dtype=np.float64))
    if X is Y:
        total = (total - float(np.trace(squares))) * len(X) / (len(X) - 1)
    return total / max(traces, 1e-30)


def _mean_cosine(units: np.ndarray, parts: np.ndarray) -> float:
    """Return the cosine of the means of two parts."""
    first, second = (units[part].mean(axis=0, dtype=np.float64) for part in (~parts, parts))
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if lengths > 0 else 0.0


def _compare_covariances(units: np.ndarray, seed: int) -> MixedSpaces | None:
    """Return the two parts whose covariances differ most, if they are two spaces; otherwise None."""
    n = len(units)
    k = int(np.clip(n // _ROWS_PER_CLUSTER, *_CLUSTERS))
    codes = _cluster(units, k, np.random.default_rng(seed))
    if _means_are_connected(units, codes):
        return None
    sides = _split(units, codes, k)
    compared = None if sides is None else _compare_sides(units, codes, sides, k)
    if sides is None or compared is None:
        return None
    alignment, excess, structure = compared
    cosine = _mean_cosine(units, sides)
    smaller = sides if 2 * sides.sum() <= n else ~sides
    unrelated = abs(alignment) < MAX_ALIGNMENT and abs(excess) < MAX_EXCESS and cosine < MAX_MEAN_COSINE
    is_undecided = cosine <= -MAX_MEAN_COSINE  # centered vectors: any two parts have opposite means
    if not unrelated or structure <= _LEAST_COMMON_STRUCTURE or smaller.mean() <= MIN_SHARE:
        return None
    gap = held_out_gap(units, smaller, np.random.default_rng((seed, 1)))
    variances = [float(np.var(units[part], axis=0, ddof=1).sum()) for part in (smaller, ~smaller)]
    width = variances[0] / max(variances[1], 1e-12)
    return MixedSpaces(
        n,
        not is_undecided,
        np.flatnonzero(smaller),
        "covariances",
        gap,
        alignment,
        cosine,
        width,
        is_undecided=is_undecided,
        excess=excess,
    )


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
    counts = np.bincount(codes)
    large = np.flatnonzero(counts >= _LEAST_ROWS)
    means = (_members(codes, len(counts)).T @ units)[large]
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    # twice the limit: the mean of a mixed cluster lies between the means of two spaces
    linked = means @ means.T > 2 * MAX_MEAN_COSINE
    reached = np.arange(len(means)) == 0
    for _ in large:
        reached |= linked[reached].any(axis=0)
    return bool(len(large) and reached.all())


class _Covariances:
    """The covariances within clusters, scaled to trace 1 and represented by their inner products."""

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

    def mean_inner(self, a: np.ndarray, b: np.ndarray, *, distinct: bool = False) -> float:
        """Return the inner product of the mean covariances of two sets of clusters, weighted by their rows.

        If `distinct` is set, products of a cluster with itself are left out.
        """
        weights = np.outer(self.counts * a, self.counts * b)
        if distinct:
            np.fill_diagonal(weights, 0)
        return float((weights * self.inner).sum() / weights.sum())


def _split(units: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray | None:
    """Return the most likely side of each row; None if the rows cannot be split.

    The clusters are merged by the similarity of their covariances until two groups remain. Then each row moves to the
    group with which its squared cosines are larger.
    """
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
    group = np.zeros(k, np.int64)
    group[large] = np.where(_merge_into_two(distances), 2, 1)
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


def _merge_into_two(distances: np.ndarray) -> np.ndarray:
    """Return whether each item belongs to the second of two groups, by average linkage.

    Importing scipy.cluster would take longer than the other steps of this module.
    """
    between = distances.astype(np.float64)
    np.fill_diagonal(between, np.inf)
    sizes, groups = np.ones(len(between)), np.arange(len(between))
    for _ in range(len(between) - 2):
        a, b = sorted(divmod(int(between.argmin()), len(between)))
        between[a] = between[:, a] = (sizes[a] * between[a] + sizes[b] * between[b]) / (sizes[a] + sizes[b])
        between[b] = between[:, b] = between[a, a] = np.inf
        sizes[a] += sizes[b]
        groups[groups == b] = a
    return np.asarray(groups != groups[0])


def _mean_squares(squares: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return the mean squared cosine of each row with the other rows of a side."""
    return np.asarray((squares @ side.astype(np.float32) - side) / (side.sum() - side))


def _compare_sides(
    units: np.ndarray, codes: np.ndarray, sides: np.ndarray, k: int
) -> tuple[float, float, float] | None:
    """Return the alignment, the excess, and the least excess of different clusters within a side.

    Without this least excess, clusters that have nothing in common would look like two spaces.
    """
    d = units.shape[1]
    parts = 2 * codes + sides
    covariances = _Covariances(units, parts, 2 * k)
    usable = (covariances.counts >= _LEAST_PART_ROWS) & covariances.usable
    both = usable & (np.arange(2 * k) % 2 == 0), usable & (np.arange(2 * k) % 2 == 1)
    several = [side for side in both if side.sum() > 1]
    if not all(side.any() for side in both) or not several:
        return None
    across = d * covariances.mean_inner(*both) - 1
    within = [d * covariances.mean_inner(side, side) - 1 for side in both]
    alignment = across / float(np.sqrt(max(within[0], 1e-9) * max(within[1], 1e-9)))
    structure = min(d * covariances.mean_inner(side, side, distinct=True) - 1 for side in several)
    return alignment, across, structure
