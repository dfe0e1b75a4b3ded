"""Find outliers: rows that differ from their own nearest neighbors far more than other rows differ from theirs."""

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
    "score: Mahalanobis distance between a row and the mean of its 10 nearest rows (near-duplicates excluded), to the "
    "power of 2/3; p-value: exponential tail, estimated from the scores between the 75% and the 97.5% quantile; outlier: "
    "false discovery rate of 5%"
)
"""The rule in words, for the metadata of a table."""

_RIDGE = 0.01  # added to each variance, as a share of the mean variance
_TRIMMED = 0.05  # share of rows with the largest scores that do not count for the covariance
_TAIL, _CENSORED = 0.75, 0.975  # quantiles between which the tail is estimated; outliers lie above
_MAX_LEVERAGE = 0.999


@dataclass(frozen=True)
class OutlierModel:
    """The covariance of the differences between rows and their neighbors, and the tail of their scores."""

    axes: np.ndarray
    """(d, d): the principal axes, divided by the standard deviations."""
    rows: int
    """The number of rows from which the covariance was estimated."""
    start: float
    """The 75% quantile of the scores."""
    scale: float
    """The mean of the exponential tail above it."""

    def scores(self, differences: np.ndarray, *, fitted: np.ndarray | None = None) -> np.ndarray:
        """Return the score of each row, given its difference from the mean of its neighbors.

        `fitted` marks the rows from which the covariance was estimated; they are scored as if they had been left out.
        """
        leverages = np.square(differences @ self.axes).sum(axis=1)
        if fitted is not None:
            leverages = np.where(fitted, leverages / (1 - np.minimum(leverages, _MAX_LEVERAGE)), leverages)
        return np.cbrt(self.rows * leverages)

    def p_values(self, scores: np.ndarray) -> np.ndarray:
        """Return the probability that an ordinary row has at least this score."""
        return np.asarray((1 - _TAIL) * np.exp(-np.maximum(scores - self.start, 0) / self.scale)) + np.where(
            scores > self.start, 0.0, _TAIL
        )


def find_outliers(p_values: np.ndarray) -> np.ndarray:
    """Return which rows are outliers at a false discovery rate of 5%; rows without a p-value (NaN) are not."""
    known = np.isfinite(p_values)
    if not known.any():
        return known
    return np.asarray(known & (np.where(known, p_values, 1.0) <= discovery_threshold(p_values[known], FALSE_DISCOVERY_RATE)))


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
    apart = distances > near
    apart[~apart.any(axis=1)] = True
    order = np.argsort(~apart, axis=1, kind="stable")[:, :k]
    chosen, counts = np.take_along_axis(positions, order, axis=1), np.minimum(apart.sum(axis=1), k)
    total = np.zeros(rows.shape)
    for place in range(k):
        some = counts > place
        total[some] += searched[chosen[some, place]]
    return rows - total / counts[:, None]


def fit_outliers(
    searched: np.ndarray, distances: np.ndarray, positions: np.ndarray, near: float
) -> tuple[OutlierModel, np.ndarray, np.ndarray] | None:
    """Return the model of ordinary rows, the rows that it was estimated from, and the scores of all searched rows.

    The covariance is estimated twice. The second time, the 5% of rows with the largest scores are left out, so that
    outliers do not widen it. Returns None for fewer than 100 rows, or if all rows are equal to their neighbors.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope._core.pairs import nearest_neighbors
    >>> X = np.random.default_rng(0).standard_normal((500, 16)) * np.arange(1, 17)
    >>> X[7] = 100
    >>> model, fitted, scores = fit_outliers(X, *nearest_neighbors(X, 20), near=0.0)
    >>> np.flatnonzero(find_outliers(model.p_values(scores))).tolist()
    [7]
    """
    n, d = searched.shape
    if n < MIN_OUTLIER_ROWS:
        return None

    def parts() -> Iterator[tuple[slice, np.ndarray]]:
        for part in blocks(n, max(1, TILE_BYTES // (8 * d))):
            yield part, neighbor_differences(searched[part], searched, distances[part], positions[part], near)

    fitted = np.ones(n, bool)
    scores = np.zeros(n)
    model = None
    for trimmed in (_TRIMMED, 0.0):
        model = _fit_covariance(parts, fitted, d)
        if model is None:
            return None
        for part, differences in parts():
            scores[part] = model.scores(differences, fitted=fitted[part])
        if trimmed:
            fitted = scores <= np.quantile(scores, 1 - trimmed)
    start, end = np.quantile(scores, [_TAIL, _CENSORED])
    above = scores[scores > start]
    scale = float((np.minimum(above, end) - start).sum()) / max(int((above <= end).sum()), 1)
    if model is None or not scale > 0:
        return None
    return OutlierModel(model.axes, model.rows, float(start), scale), fitted, scores


def _fit_covariance(
    parts: Callable[[], Iterator[tuple[slice, np.ndarray]]], fitted: np.ndarray, d: int
) -> OutlierModel | None:
    """Return a model with the covariance of the fitted rows, and without a tail; None if it is 0."""
    scatter = np.zeros((d, d))
    for part, differences in parts():
        kept = differences[fitted[part]]
        scatter += kept.T @ kept
    values, vectors = np.linalg.eigh(scatter)
    values = np.maximum(values, 0)
    if not values.sum() > 0:
        return None
    return OutlierModel(vectors / np.sqrt(values + _RIDGE * values.mean()), int(fitted.sum()), 0.0, 1.0)
