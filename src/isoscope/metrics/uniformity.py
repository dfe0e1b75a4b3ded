"""Wang and Isola's two numbers for contrastive spaces: positives close, everything else spread over the sphere."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import Any

from isoscope.arrays import (
    Array,
    accumulator,
    blocks,
    carries_gradient,
    detached,
    is_traced,
    itemsize,
    points,
    precision,
    result,
    safe_sqrt,
    unit_rows,
    zeros,
)
from isoscope.errors import InputError
from isoscope.pairs import MAX_MEMORY, in_threads, tile_rows


def uniformity(X: Any, t: float = 2.0, *, max_memory: int = MAX_MEMORY) -> Array:
    """How evenly the directions of X cover the sphere: log of the mean of exp(−t‖u−v‖²) over pairs; lower is more even.

    Over all pairs of different rows, exactly. For t = 2 it lies between −8, which no cloud reaches, and 0, where all
    directions are one; a uniform sphere of many dimensions gives about −4.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector; scaled to length 1 here. Zero vectors are refused.
    t : float
        How local the measure is.
    max_memory : int
        Bytes for the tiles of pairs. With a gradient the tiles are kept for it: use batches then.

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
    if not 0 < t <= 300:
        raise InputError(f"t is {t}: need a number above 0 and at most 300")
    xp, X = points(X)
    n = X.shape[0]
    wide = accumulator(xp, X)
    U = _sphere(xp, X, wide if t > 20 else precision(xp, X), "X")  # exp(2t) must fit
    parts = list(blocks(n, tile_rows(itemsize(xp, U.dtype), max_memory)))

    def part(pair: tuple[slice, slice]) -> Array:
        a, b = pair
        cosines = U[a, :] @ U[b, :].T
        weights = xp.sum(xp.exp(2 * t * cosines), dtype=wide)
        if a != b:
            return 2 * weights
        return weights - xp.sum(xp.exp(2 * t * xp.linalg.diagonal(cosines)), dtype=wide)

    pairs = list(combinations_with_replacement(parts, 2))
    total = zeros(xp, X, ())
    for weights in map(part, pairs) if carries_gradient(X) else in_threads(part, pairs, len(pairs)):
        total = total + weights
    return result(xp, X, xp.log(total) - 2 * t - math.log(n * (n - 1)))


def alignment(X: Any, Y: Any, alpha: float = 2.0) -> Array:
    """How close each row of X is to its partner in Y on the sphere: the mean of ‖u−v‖^α; lower is closer.

    Parameters
    ----------
    X, Y : (n, d) arrays
        Row i of X and row i of Y are a pair that should agree. Zero vectors are refused.
    alpha : float
        The power of the distance.

    Examples
    --------
    >>> import isoscope
    >>> float(isoscope.alignment([[1, 0], [0, 2]], [[3, 0], [0, -1]]))
    2.0

    References
    ----------
    Wang and Isola, Understanding contrastive representation learning through alignment and uniformity, 2020.
    """
    if not alpha > 0:
        raise InputError(f"alpha is {alpha}: need a power above 0")
    xp, X = points(X, min_rows=1)
    other, Y = points(Y, min_rows=1, name="Y")
    if other is not xp:
        raise InputError(f"X is an array of {xp.__name__} and Y of {other.__name__}: need the same library")
    if X.shape != Y.shape:
        raise InputError(f"X has shape {tuple(X.shape)} and Y {tuple(Y.shape)}: need a partner for each row")
    wide = accumulator(xp, X)
    step = _sphere(xp, X, wide, "X") - _sphere(xp, Y, wide, "Y")
    squared = xp.sum(step * step, axis=1)
    return result(xp, X, xp.mean(squared if alpha == 2 else safe_sqrt(xp, squared) ** alpha))


def _sphere(xp: Any, X: Array, dtype: Any, name: str) -> Array:
    zero = 0 if is_traced(X) else int(xp.count_nonzero(xp.max(xp.abs(detached(X)), axis=1) == 0))
    if zero:
        raise InputError(f"{name} has {zero} of {X.shape[0]} rows that are zero: they have no direction, drop them")
    return unit_rows(xp, xp.astype(X, dtype))
