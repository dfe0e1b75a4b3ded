"""The quantities by which Mickus et al. argue that isotropy and clusters pull apart, in O(n·d) and not O(n²).

Each is to be *maximised* in the paper. Pairwise squared distances are traces of scatters, so sums over the rows of each
label are all they need.
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
from isoscope._core.errors import InputError
from isoscope._core.pairs import MAX_MEMORY
from isoscope.metrics.clusters import distance_sums
from isoscope.metrics.spectra import unchecked_participation_ratio

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def isotropy_objective(X: Any, *, cosine: bool = False) -> Array:
    """O_I: the sum of squared distances of all ordered pairs, which isotropy is said to ask for (equation 2).

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    cosine : bool
        Give the first line of the equation, cos(1, V) = √(PR/d) with V the variances along the principal axes. The
        paper drops its denominator to reach the sum; only the cosine is free of scale.

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


def silhouette_objective(X: Any, labels: Any) -> Array:
    """O_S: squared distances between labels less those inside, over all ordered pairs (equation 1).

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
    found = encode_labels(labels, X.shape[0])
    counts, means, within, _ = _label_moments(xp, X, found)
    mean = xp.sum(counts[:, None] * means, axis=0) / X.shape[0]
    trace = xp.sum(within + counts * xp.sum((means - mean) ** 2, axis=1))
    return cast_result(xp, X, formulas.silhouette_objective(xp, X.shape[0], trace, counts, within))


def classifier_objective(X: Any, labels: Any, class_vectors: Any) -> Array:
    """O_C: how much each row agrees with its own class vector and disagrees with the others (equation 3).

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    labels : (n,) labels
        Each row's class.
    class_vectors : (k, d) array
        One row for each class, in the sorted order of the labels: a linear head's weights.

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
    found = encode_labels(labels, X.shape[0])
    other, C = check_points(class_vectors, min_rows=1, name="class_vectors")
    if tuple(C.shape) != (len(found.names), X.shape[1]):
        raise InputError(
            f"class_vectors has shape {tuple(C.shape)}: labels has {len(found.names)} different values and X "
            f"{X.shape[1]} columns, need ({len(found.names)}, {X.shape[1]})"
        )
    if other is not xp:
        C = asarray_like(xp, X, to_numpy(C), accumulator_dtype(xp, X))
    counts, means, _, first = _label_moments(xp, X, found)
    value = formulas.classifier_objective(xp, counts[:, None] * (means + first), xp.astype(C, accumulator_dtype(xp, X)))
    return cast_result(xp, X, value)


def triplet_objective(X: Any, labels: Any, *, squared: bool = True, max_memory: int = MAX_MEMORY) -> Array:
    """O_T: a bound on the triplet loss, distances weighted by how many triplets hold them (equation 5).

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    labels : (n,) labels
        Each row's class.
    squared : bool
        True takes squared distances, as equation 1 does for the silhouette: O(n·d). False takes the distances that
        equation 5 prints: all pairs, in tiles.
    max_memory : int
        Bytes for those tiles.

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
    found = encode_labels(labels, n)
    if squared:
        counts, means, within, _ = _label_moments(xp, X, found)
        return cast_result(xp, X, formulas.triplet_objective(xp, n, means, counts, within))
    sums = distance_sums(xp, X, found, max_memory)
    size = found.counts[found.codes][:, None]
    own = np.arange(len(found.names))[None, :] == found.codes[:, None]
    return cast_result(xp, X, xp.sum(sums * asarray_like(xp, X, np.where(own, size - n, size - 1), sums.dtype)))


def _label_moments(xp: Any, X: Array, found: Groups) -> tuple[Array, Array, Array, Array]:
    """For each label its count, its mean less the first row, its tr W; and the first row.

    Two passes about that row, so that a large mean does not eat the digits.
    """
    wide = accumulator_dtype(xp, X)
    k = len(found.names)
    counts = asarray_like(xp, X, found.counts, wide)
    first = xp.astype(X[0, :], wide)
    sums = zeros(xp, X, (k, X.shape[1]))
    within = zeros(xp, X, (k,))

    def member(part: slice) -> Array:
        return asarray_like(xp, X, np.arange(k)[:, None] == found.codes[part][None, :], wide)

    for part in tiles(X):
        sums = sums + member(part) @ (xp.astype(X[part, :], wide) - first)
    means = sums / counts[:, None]
    for part in tiles(X):
        chosen = take(xp, means, found.codes[part])
        step = xp.astype(X[part, :], wide) - first - chosen
        within = within + member(part) @ xp.sum(step * step, axis=1)
    return counts, means, within, first
