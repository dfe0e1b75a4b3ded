"""Find outliers: rows that are unusual both compared with all rows and compared with their own nearest neighbors.

Two differences are measured for each row: from the mean of its nearest rows, and from the mean of all rows. A row at
the edge of the data is far from its neighbors, but not from the mean; a row of a small topic is far from the mean, but
not from its neighbors. An outlier is unusual in both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from isoscope._core.arrays import TILE_BYTES, blocks
from isoscope.auditing.nulls import discovery_threshold

OUTLIER_NEIGHBORS = 10
"""The number of neighbors with which a row is compared."""
FALSE_DISCOVERY_RATE = 0.05
"""The expected share of ordinary rows among the outliers (Benjamini and Hochberg, 1995)."""
MIN_OUTLIER_ROWS = 100
"""The smallest number of rows from which the distribution of scores is estimated."""
OUTLIER_RULE = (
    "Two Mahalanobis distances of a row are compared with those of the other rows: its distance from the mean of its "
    "10 nearest rows (near-duplicates excluded), and its distance from the mean of all rows. Each p-value assumes an "
    "exponential tail of the distance to the power of 2/3, estimated between the 75% and 97.5% quantiles. "
    "outlier_score is −log10 of the larger p-value. Among the outliers, the expected share of ordinary rows (the false "
    "discovery rate) is at most 5%."
)
"""A description of the rule, for the metadata of a table."""

_RIDGE = 0.01  # added to each variance, as a share of the mean variance
_TRIMMED = 0.05  # share of rows with the largest distances that do not count for the covariance
_TAIL, _CENSORED = 0.75, 0.975  # quantiles between which the tail is estimated; outliers lie above
_MAX_LEVERAGE = 0.999

_Parts = Callable[[], Iterator[tuple[slice, np.ndarray]]]


@dataclass(frozen=True)
class DistanceModel:
    """The covariance of the differences of ordinary rows, and the tail of their Mahalanobis distances."""

    axes: np.ndarray
    """(d, d): the principal axes of the differences, divided by the roots of the sums of squares along them."""
    rows: int
    """The number of rows from which the covariance was estimated."""
    start: float = 0.0
    """The 75% quantile of the distances."""
    scale: float = 1.0
    """The mean of the exponential tail above it."""

    def distances(self, differences: np.ndarray, fitted: np.ndarray | None = None) -> np.ndarray:
        """Return the Mahalanobis distance of each difference, to the power of 2/3.

        The cube root of a squared distance is nearly normal for Gaussian data (Wilson and Hilferty, 1931). `fitted`
        marks the rows from which the covariance was estimated; they are measured leave-one-out.
        """
        leverages = np.square(differences @ self.axes).sum(axis=1)
        if fitted is not None:
            leverages = np.where(fitted, leverages / (1 - np.minimum(leverages, _MAX_LEVERAGE)), leverages)
        return np.asarray(np.cbrt(self.rows * leverages))

    def p_values(self, distances: np.ndarray) -> np.ndarray:
        """Return the probability that an ordinary row has at least this distance; 1 below the 75% quantile."""
        tail = (1 - _TAIL) * np.exp(-np.maximum(distances - self.start, 0) / self.scale)
        return np.asarray(np.where(distances > self.start, tail, 1.0))


@dataclass(frozen=True)
class OutlierModel:
    """The model of ordinary rows, compared with their neighbors and with the mean of all rows."""

    center: np.ndarray
    from_neighbors: DistanceModel
    from_center: DistanceModel

    def p_values(self, rows: np.ndarray, differences: np.ndarray) -> np.ndarray:
        """Return the p-values of rows that were not used to fit the model, given their `neighbor_differences`."""
        near = self.from_neighbors.p_values(self.from_neighbors.distances(differences))
        far = self.from_center.p_values(self.from_center.distances(rows - self.center))
        return np.asarray(np.maximum(near, far))


def find_outliers(p_values: np.ndarray) -> np.ndarray:
    """Return which rows are outliers at a false discovery rate of 5%; rows without a p-value (NaN) are not."""
    known = np.isfinite(p_values)
    if not known.any():
        return np.asarray(known)
    return np.asarray(
        known & (np.where(known, p_values, 1.0) <= discovery_threshold(p_values[known], FALSE_DISCOVERY_RATE))
    )


def neighbor_differences(
    rows: np.ndarray, searched: np.ndarray, distances: np.ndarray, positions: np.ndarray, near: float
) -> np.ndarray:
    """Return the difference between each row and the mean of its nearest rows, in float64.

    Rows within the distance `near` are left out, so that copies of an outlier do not hide it. If all neighbors are that
    near, they are used.

    Parameters
    ----------
    rows : (m, d) array
        The rows.
    searched : (n, d) array
        The rows among which neighbors were searched.
    distances, positions : (m, k) arrays
        The distances of the nearest rows, nearest first, and their positions in `searched`.
    near : float
        The distance up to which a neighbor counts as a near-duplicate.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.asarray([[0.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> neighbor_differences(X[:1], X, np.asarray([[0.0, 2.0, 2.0]]), np.asarray([[1, 2, 3]]), near=0.1)
    array([[-1., -1.]])
    """
    k = min(OUTLIER_NEIGHBORS, distances.shape[1])
    chosen, counts = positions[:, :k].copy(), np.full(len(rows), k)
    close = np.flatnonzero(distances[:, 0] <= near)
    apart = distances[close] > near
    apart[~apart.any(axis=1)] = True
    order = np.argsort(~apart, axis=1, kind="stable")[:, :k]
    chosen[close], counts[close] = np.take_along_axis(positions[close], order, axis=1), np.minimum(apart.sum(axis=1), k)
    total = np.zeros(rows.shape)
    for place in range(k):
        some = counts > place
        total[some] += searched[chosen[some, place]]
    return np.asarray(rows - total / counts[:, None])


def fit_outliers(
    searched: np.ndarray, distances: np.ndarray, positions: np.ndarray, near: float
) -> tuple[OutlierModel, np.ndarray] | None:
    """Return the model of ordinary rows, and the leave-one-out p-value of each searched row.

    Each covariance is estimated twice. The second time, the 5% of rows with the largest distances are left out, so that
    outliers do not widen it. Returns None for fewer than 100 rows, or if all rows are equal to their neighbors.

    Parameters
    ----------
    searched : (n, d) array
        The rows.
    distances, positions : (n, k) arrays
        The distances and positions of the nearest rows of each row, nearest first.
    near : float
        The distance up to which a neighbor counts as a near-duplicate.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope._core.pairs import nearest_neighbors
    >>> X = np.random.default_rng(0).standard_normal((500, 16)) * np.arange(1, 17)
    >>> X[7] = 100
    >>> model, p_values = fit_outliers(X, *nearest_neighbors(X, 20), near=0.0)
    >>> np.flatnonzero(find_outliers(p_values)).tolist()
    [7]
    """
    n, d = searched.shape
    if n < MIN_OUTLIER_ROWS:
        return None
    center = searched.mean(axis=0, dtype=np.float64)
    tiles = list(blocks(n, max(1, TILE_BYTES // (8 * d))))

    def from_neighbors() -> Iterator[tuple[slice, np.ndarray]]:
        for part in tiles:
            yield part, neighbor_differences(searched[part], searched, distances[part], positions[part], near)

    def from_center() -> Iterator[tuple[slice, np.ndarray]]:
        for part in tiles:
            yield part, searched[part] - center

    local, whole = (_fit_distances(parts, n, d) for parts in (from_neighbors, from_center))
    if local is None or whole is None:
        return None
    return OutlierModel(center, local[0], whole[0]), np.maximum(local[1], whole[1])


def _fit_distances(parts: _Parts, n: int, d: int) -> tuple[DistanceModel, np.ndarray] | None:
    """Return the model of the differences, and the p-value of each row; None if the differences do not vary."""
    fitted, found = np.ones(n, bool), np.zeros(n)
    for trimmed in (_TRIMMED, 0.0):
        scatter = np.zeros((d, d))
        for part, differences in parts():
            kept = differences[fitted[part]]
            scatter += kept.T @ kept
        values, vectors = np.linalg.eigh(scatter)
        values = np.maximum(values, 0)
        if not values.sum() > 0:
            return None
        model = DistanceModel(vectors / np.sqrt(values + _RIDGE * values.mean()), int(fitted.sum()))
        for part, differences in parts():
            found[part] = model.distances(differences, fitted[part])
        if trimmed:
            fitted = found <= np.quantile(found, 1 - trimmed)
    start, end = np.quantile(found, [_TAIL, _CENSORED])
    above = found[found > start]
    scale = float((np.minimum(above, end) - start).sum()) / max(int((above <= end).sum()), 1)
    if not scale > 0:
        return None
    model = DistanceModel(model.axes, model.rows, float(start), scale)
    return model, model.p_values(found)
