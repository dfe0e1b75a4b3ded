"""The objectives that Mickus et al. use to argue that isotropy and clusters conflict.

The paper *maximizes* each of them. Sums of squared distances over pairs are traces of scatter matrices, so sums over
the rows of each label suffice: the cost is O(n·d), not O(n²).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import (
    Groups,
    accumulator_dtype,
    asarray_like,
    cast_result,
    check_points,
    encode_labels,
    take,
    tiles,
    to_numpy,
    zeros,
)
from isoscope._core.errors import ShapeError
from isoscope._core.pairs import MAX_MEMORY
from isoscope.metrics.clusters import distance_sums
from isoscope.metrics.spectra import unchecked_participation_ratio

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def isotropy_objective(X: Array, *, cosine: bool = False) -> Array:
    """Return O_I, the sum of squared distances over all ordered pairs of rows (equation 2).

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    cosine : bool
        Return the first line of the equation instead: cos(1, V) = √(PR/d), where V contains the variances along the
        principal axes. The paper drops the denominator to get the sum. Only the cosine is independent of scale.

    Examples
    --------
    >>> import isoscope
    >>> float(isoscope.metrics.isotropy_objective([[0, 0], [3, 4]]))
    50.0

    References
    ----------
    Mickus et al., Isotropy, clusters, and classifiers, 2024.
    """
    xp, X = check_points(X)
    if cosine:
        return cast_result(xp, X, xp.sqrt(unchecked_participation_ratio(xp, X) / X.shape[1]))
    n = X.shape[0]
    _, _, within, _ = _label_moments(xp, X, Groups(np.zeros(n, np.int64), np.zeros(1), np.array([n])))
    return cast_result(xp, X, formulas.isotropy_objective(n, xp.sum(within)))


def silhouette_objective(X: Array, labels: Array) -> Array:
    """Return O_S, the squared distances between labels minus those within labels, over all ordered pairs (equation 1).

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    labels : (n,) labels
        The class of each row.

    Examples
    --------
    >>> import isoscope
    >>> float(isoscope.metrics.silhouette_objective([[0, 0], [0, 1], [3, 0]], ["a", "a", "b"]))
    36.0

    References
    ----------
    Mickus et al., Isotropy, clusters, and classifiers, 2024.
    """
    xp, X = check_points(X)
    groups = encode_labels(labels, X.shape[0])
    counts, means, within, _ = _label_moments(xp, X, groups)
    mean = xp.sum(counts[:, None] * means, axis=0) / X.shape[0]
    trace = xp.sum(within + counts * xp.sum((means - mean) ** 2, axis=1))
    return cast_result(xp, X, formulas.silhouette_objective(xp, X.shape[0], trace, counts, within))


def classifier_objective(X: Array, labels: Array, class_vectors: Array) -> Array:
    """Return O_C, the inner products of rows with their own class vector minus those with the others (equation 3).

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    labels : (n,) labels
        The class of each row.
    class_vectors : (k, d) array
        One row per class, in the sorted order of the labels, such as the weights of a linear classifier.

    Examples
    --------
    >>> import isoscope
    >>> float(isoscope.metrics.classifier_objective([[2, 0], [0, 1]], [0, 1], [[1, 0], [0, 1]]))
    3.0

    References
    ----------
    Mickus et al., Isotropy, clusters, and classifiers, 2024.
    """
    xp, X = check_points(X)
    groups = encode_labels(labels, X.shape[0])
    other, C = check_points(class_vectors, min_rows=1, name="class_vectors")
    if tuple(C.shape) != (len(groups.names), X.shape[1]):
        raise ShapeError(
            f"class_vectors has shape {tuple(C.shape)}: labels has {len(groups.names)} distinct values and X has "
            f"{X.shape[1]} columns, so the shape must be ({len(groups.names)}, {X.shape[1]})"
        )
    if other is not xp:
        C = asarray_like(xp, X, to_numpy(C), accumulator_dtype(xp, X))
    counts, means, _, first = _label_moments(xp, X, groups)
    value = formulas.classifier_objective(xp, counts[:, None] * (means + first), xp.astype(C, accumulator_dtype(xp, X)))
    return cast_result(xp, X, value)


def triplet_objective(X: Array, labels: Array, *, squared: bool = True, max_memory: int = MAX_MEMORY) -> Array:
    """Return O_T, a bound on the triplet loss: distances weighted by the number of triplets they occur in (equation 5).

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    labels : (n,) labels
        The class of each row.
    squared : bool
        True uses squared distances, as equation 1 does, at a cost of O(n·d). False uses the distances printed in
        equation 5, over all pairs.
    max_memory : int
        Memory in bytes for the tiles of pairs.

    Examples
    --------
    >>> import isoscope
    >>> float(isoscope.metrics.triplet_objective([[0, 0], [0, 1], [3, 0]], ["a", "a", "b"]))
    17.0

    References
    ----------
    Mickus et al., Isotropy, clusters, and classifiers, 2024, appendix B.
    """
    xp, X = check_points(X)
    n = X.shape[0]
    groups = encode_labels(labels, n)
    if squared:
        counts, means, within, _ = _label_moments(xp, X, groups)
        return cast_result(xp, X, formulas.triplet_objective(xp, n, means, counts, within))
    sums = distance_sums(xp, X, groups, max_memory)
    size = groups.counts[groups.codes][:, None]
    own = np.arange(len(groups.names))[None, :] == groups.codes[:, None]
    return cast_result(xp, X, xp.sum(sums * asarray_like(xp, X, np.where(own, size - n, size - 1), sums.dtype)))


def _label_moments(xp: Any, X: Array, groups: Groups) -> tuple[Array, Array, Array, Array]:
    """Return the count, the mean minus the first row, and the trace tr W of each label; also return the first row.

    The two passes subtract the first row, so that a large mean costs no precision.
    """
    wide = accumulator_dtype(xp, X)
    k = len(groups.names)
    counts = asarray_like(xp, X, groups.counts, wide)
    first = xp.astype(X[0, :], wide)
    sums = zeros(xp, X, (k, X.shape[1]))
    within = zeros(xp, X, (k,))

    def member(part: slice) -> Array:
        return asarray_like(xp, X, np.arange(k)[:, None] == groups.codes[part][None, :], wide)

    for part in tiles(X):
        sums = sums + member(part) @ (xp.astype(X[part, :], wide) - first)
    means = sums / counts[:, None]
    for part in tiles(X):
        chosen = take(xp, means, groups.codes[part])
        step = xp.astype(X[part, :], wide) - first - chosen
        within = within + member(part) @ xp.sum(step * step, axis=1)
    return counts, means, within, first
