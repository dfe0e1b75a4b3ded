"""Alignment and uniformity on the unit sphere, as defined by Wang and Isola for contrastive learning."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import (
    accumulator_dtype,
    asarray_like,
    blocks,
    carries_gradient,
    cast_result,
    check_points,
    check_real,
    detach,
    is_traced,
    itemsize,
    result_dtype,
    safe_sqrt,
    unit_rows,
)
from isoscope._core.errors import InputError, ParameterError, ShapeError
from isoscope._core.pairs import MAX_MEMORY, tile_rows
from isoscope._core.threads import map_in_threads

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def uniformity(X: Array, t: float = 2.0, *, max_memory: int = MAX_MEMORY) -> Array:
    """Return the uniformity of X, log mean exp(−t‖u−v‖²) over all pairs: lower means more evenly spread directions.

    The mean is exact, over all pairs of distinct rows. For t = 2 the value lies between −8 (two opposite vectors) and
    0 (all directions equal). A uniform distribution on a sphere of many dimensions gives about −4.

    Parameters
    ----------
    X : (n, d) array
        One row per vector; the function scales each to length 1. Zero vectors raise an error.
    t : float
        The scale of the Gaussian kernel: larger values give nearby pairs more weight.
    max_memory : int
        Memory in bytes for the tiles of pairs. With a gradient, all tiles are kept for the backward pass, so use
        batches.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> noise = np.random.default_rng(0).standard_normal((500, 384))
    >>> round(float(isoscope.uniformity(noise)), 2), round(float(isoscope.uniformity(noise + 3)), 2)
    (-3.98, -0.4)

    References
    ----------
    Wang and Isola, Understanding contrastive representation learning through alignment and uniformity, 2020.
    """
    if not 0 < check_real(t, "t") < math.inf:
        raise ParameterError(f"t is {t}: need a positive number")
    xp, X = check_points(X)
    n = X.shape[0]
    wide = accumulator_dtype(xp, X)
    U = _project_to_sphere(xp, X, result_dtype(xp, X), "X")
    parts = list(blocks(n, tile_rows(itemsize(xp, U.dtype), max_memory)))

    def log_sum(pair: tuple[slice, slice]) -> Array:
        """Return log Σ exp(−t‖u−v‖²) over a tile, excluding the diagonal and counting each pair in both orders."""
        a, b = pair
        exponents = 2 * t * (U[a, :] @ U[b, :].T - 1)
        if a == b:
            itself = asarray_like(xp, X, np.eye(a.stop - a.start, dtype=bool), xp.bool)
            exponents = xp.where(itself, xp.full_like(exponents, -xp.inf), exponents)
        highest = detach(xp.max(exponents))
        total = xp.sum(xp.exp(exponents - highest), dtype=wide)
        return xp.log(total) + xp.astype(highest, wide) + (0 if a == b else math.log(2))

    # a block of one row contains no pair
    pairs = [(a, b) for a, b in combinations_with_replacement(parts, 2) if a != b or a.stop - a.start > 1]
    logs = xp.stack(list(map(log_sum, pairs) if carries_gradient(X) else map_in_threads(log_sum, pairs, len(pairs))))
    highest = detach(xp.max(logs))
    return cast_result(xp, X, xp.log(xp.sum(xp.exp(logs - highest))) + highest - math.log(n * (n - 1)))


def alignment(X: Array, Y: Array, alpha: float = 2.0) -> Array:
    """Return the alignment of X and Y, the mean of ‖u−v‖^α over pairs of unit vectors: lower means closer pairs.

    Parameters
    ----------
    X, Y : (n, d) arrays
        Row i of X and row i of Y form a positive pair. Zero vectors raise an error.
    alpha : float
        The exponent α of the distance.

    Examples
    --------
    >>> import isoscope
    >>> float(isoscope.alignment([[1, 0], [0, 2]], [[3, 0], [0, -1]]))
    2.0

    References
    ----------
    Wang and Isola, Understanding contrastive representation learning through alignment and uniformity, 2020.
    """
    if not check_real(alpha, "alpha") > 0:
        raise ParameterError(f"alpha is {alpha}: need a positive number")
    xp, X = check_points(X, min_rows=1)
    other, Y = check_points(Y, min_rows=1, name="Y")
    if other is not xp:
        raise ParameterError(
            f"X is a {xp.__name__} array but Y is a {other.__name__} array: need arrays from the same library"
        )
    if X.shape != Y.shape:
        raise ShapeError(
            f"X has shape {tuple(X.shape)} but Y has shape {tuple(Y.shape)}: need one row of Y per row of X"
        )
    wide = accumulator_dtype(xp, X)
    step = _project_to_sphere(xp, X, wide, "X") - _project_to_sphere(xp, Y, wide, "Y")
    squared = xp.sum(step * step, axis=1)
    return cast_result(xp, X, xp.mean(squared if alpha == 2 else safe_sqrt(xp, squared) ** alpha))


def _project_to_sphere(xp: Any, X: Array, dtype: Any, name: str) -> Array:
    zero = 0 if is_traced(X) else int(xp.count_nonzero(xp.max(xp.abs(detach(X)), axis=1) == 0))
    if zero:
        raise InputError(f"{zero} of {X.shape[0]} rows of {name} are zero: they have no direction; drop them")
    return unit_rows(xp, X, dtype)
