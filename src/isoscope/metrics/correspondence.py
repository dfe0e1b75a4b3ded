"""The agreement of two spaces with the same rows: CKA, Procrustes distance and mutual nearest neighbors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import check_integer, check_points, to_numpy, unit_rows
from isoscope._core.errors import InputError, ParameterError, ShapeError
from isoscope._core.pairs import nearest_neighbors

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope._core.types import Metric


def cka(X: Array, Y: Array, *, unbiased: bool = True) -> Array:
    """Return the linear CKA of two spaces with the same rows: 0 if they are unrelated, 1 up to a rotation and a factor.

    Parameters
    ----------
    X, Y : (n, d) and (n, e) arrays
        The vectors of the same n rows in both spaces.
    unbiased : bool
        Whether to remove the bias, which is large for fewer rows than dimensions (Song et al. 2012). The estimate can
        then be slightly negative for unrelated spaces.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.metrics import cka
    >>> X, Y = np.random.default_rng(0).standard_normal((2, 200, 16))
    >>> round(float(cka(X, 3 * X[:, ::-1] + 1)), 3), abs(float(cka(X, Y))) < 0.1
    (1.0, True)

    References
    ----------
    Kornblith, Norouzi, Lee and Hinton (2019), Similarity of neural network representations revisited.
    """
    xp, X, Y = _check_pair(X, Y, 4)
    X, Y = _center(xp, X), _center(xp, Y)
    inner, own, other = (_hsic(xp, a, b, unbiased) for a, b in ((X, Y), (X, X), (Y, Y)))
    if not (float(own) > 0 and float(other) > 0):
        raise InputError("all rows of X or of Y are equal: need rows that differ")
    return inner / xp.sqrt(own * other)


def _hsic(xp: Any, X: Array, Y: Array, unbiased: bool) -> Array:
    """Return the Hilbert–Schmidt independence criterion of centered rows, up to a factor that depends only on n."""
    product = xp.sum((X.T @ Y) ** 2)
    if not unbiased:
        return product
    n = X.shape[0]
    a, b = xp.sum(X * X, axis=1), xp.sum(Y * Y, axis=1)  # the diagonals of the Gram matrices, which are left out
    total = xp.sum(a) * xp.sum(b) / ((n - 1) * (n - 2))
    return product - xp.sum(a * b) + total - 2 * xp.sum(a * b) / (n - 2)


def procrustes_distance(X: Array, Y: Array) -> Array:
    """Return the Procrustes distance: the share of Y that no rotation, shift and scaling of X explains, from 0 to 1.

    Parameters
    ----------
    X, Y : (n, d) and (n, e) arrays
        The vectors of the same n rows in both spaces. With fewer rows than dimensions, the distance is too small,
        because the rotation fits noise.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.metrics import procrustes_distance
    >>> X = np.random.default_rng(0).standard_normal((200, 16))
    >>> round(float(procrustes_distance(X, 3 * X[:, ::-1] + 1)), 6)
    0.0

    References
    ----------
    Gower (1975), Generalized Procrustes analysis.
    """
    xp, X, Y = _check_pair(X, Y, 2)
    X, Y = _center(xp, X), _center(xp, Y)
    scale = xp.sum(X * X) * xp.sum(Y * Y)
    if not float(scale) > 0:
        raise InputError("all rows of X or of Y are equal: need rows that differ")
    nuclear = xp.sum(xp.linalg.svdvals(X.T @ Y))
    distance = 1 - nuclear**2 / scale
    return xp.where(distance > 0, distance, xp.zeros_like(distance))


def mutual_knn(X: Array, Y: Array, k: int = 10, *, metric: Metric = "cosine", per_point: bool = False) -> Any:
    """Return the mean share of the k nearest neighbors that the rows have in common in two spaces.

    Parameters
    ----------
    X, Y : (n, d) and (n, e) arrays
        The vectors of the same n rows in both spaces.
    k : int
        The number of neighbors.
    metric : {"cosine", "euclidean"}
        How rows are compared.
    per_point : bool
        Whether to return the share of each row instead of the mean.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.metrics import mutual_knn
    >>> X = np.random.default_rng(0).standard_normal((200, 16))
    >>> float(mutual_knn(X, X[:, ::-1]))
    1.0

    References
    ----------
    Huh, Cheung, Wang and Isola (2024), The Platonic representation hypothesis.
    """
    _, X, Y = _check_pair(X, Y, 3)
    if metric not in ("cosine", "euclidean"):
        raise ParameterError(f'metric is {metric!r}: need "cosine" or "euclidean"')
    if not 1 <= check_integer(k, "k") < X.shape[0]:
        raise ParameterError(f"k is {k}: need 1 ≤ k < {X.shape[0]}, the number of rows")
    lists = []
    for rows in (to_numpy(X), to_numpy(Y)):
        rows = rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float32)
        lists.append(nearest_neighbors(unit_rows(np, rows, rows.dtype) if metric == "cosine" else rows, k)[1])
    shares = (lists[0][:, :, None] == lists[1][:, None, :]).sum(axis=(1, 2)) / k
    return shares if per_point else np.float64(shares.mean())


def _check_pair(X: Any, Y: Any, min_rows: int) -> tuple[Any, Array, Array]:
    xp, X = check_points(X, min_rows=min_rows, min_dims=1)
    _, Y = check_points(Y, min_rows=min_rows, min_dims=1, name="Y")
    if X.shape[0] != Y.shape[0]:
        raise ShapeError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}: need the same rows in both")
    return xp, X, Y


def _center(xp: Any, X: Array) -> Array:
    """Return the rows minus their mean, in at least single precision, scaled so that squares do not overflow."""
    if str(X.dtype).endswith("float16"):
        X = xp.astype(X, xp.float32)
    X = X - xp.mean(X, axis=0)
    largest = xp.max(xp.abs(X))
    return X / xp.where(largest > 0, largest, xp.ones_like(largest))
