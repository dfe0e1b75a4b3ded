"""The centered scatter matrix of a dataset, its traces and its eigenvalues, computed without overflow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from array_api_compat import is_numpy_array

from isoscope._core import formulas
from isoscope._core.arrays import (
    TILE_BYTES,
    accumulator_dtype,
    blocks,
    check_finite,
    detach,
    is_traced,
    result_dtype,
    tiles,
    to_float,
    zeros,
)
from isoscope._core.errors import InputError
from isoscope._core.formulas import Moments
from isoscope._core.threads import map_in_threads, single_threaded_product, thread_count

if TYPE_CHECKING:
    from isoscope._core.arrays import Array

_TILE_BYTES = TILE_BYTES // 4  # a tile of NumPy rows, which fits in the cache
_SMALL_PRODUCT = 2**18, 2**26  # multiplications: BLAS starts threads above the first, which pay off above the second

CONSTANT_MESSAGE = "all {n} rows of X are equal: they have no variance"
"""The error message for rows that are all equal."""


class CenteredSums(NamedTuple):
    """The scatter matrix W of the centered rows y, and tr W, tr(W²) and Σ‖y‖⁴; the mean is pivot + drift."""

    pivot: Array
    drift: Array
    trace: Array
    trace_squared: Array
    quartic: Array | None
    matrix: Array  # W, or the Gram matrix YYᵀ if it is smaller: both traces are the same
    rows: Array | None = None  # Y itself, if matrix is the Gram matrix


def scale_free_sums(xp: Any, X: Array, *, wide: bool) -> tuple[Array, CenteredSums]:
    """Return X, rescaled if its squares would overflow or underflow, and its sums, for scores that ignore scale.

    Raises a `MissingValueError` if X is not finite, so that callers need not read X once more to check it.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sums = centered_sums(xp, X, wide=wide)
    if is_traced(X):
        return X, sums
    low, high = (1e-140, 1e140) if wide or X.dtype == xp.float64 else (1e-30, 1e37)
    if not low < to_float(sums.trace) < high:
        check_finite(xp, X)
        X = rescale(xp, X, X - X[:1, :])
        sums = centered_sums(xp, X, wide=wide)
        check_variance(sums.trace, X.shape[0])
    return X, sums


def rescale(xp: Any, X: Array, by: Array) -> Array:
    """If the largest value of `by` is extreme, multiply X by a power of two that would scale this value to about 1."""
    exponent = 0 if is_traced(X) else _exponent(xp, by)
    return X if -50 < exponent < 50 else xp.astype(X, result_dtype(xp, X)) * _power_of_two(xp, X, exponent)


def rescale_both(xp: Any, X: Array, S: Array) -> tuple[Array, Array]:
    """Rescale X and a covariance by the same power of two, so that fourth powers of X stay in range."""
    exponent = max(_exponent(xp, X - X[:1, :]), _exponent(xp, xp.linalg.diagonal(S)) // 2)
    if -25 < exponent < 25:
        return X, S
    unit = _power_of_two(xp, X, exponent)
    return xp.astype(X, result_dtype(xp, X)) * unit, S * unit * unit


def _exponent(xp: Any, X: Array) -> int:
    """Return the binary exponent of the largest absolute value, or −1000 if all values are zero."""
    largest = to_float(xp.max(xp.abs(X)))
    return math.frexp(largest)[1] if largest > 0 else -1000


def _power_of_two(xp: Any, X: Array, exponent: int) -> float:
    """Return 2^−exponent, limited to the range of X's precision."""
    most = 1000 if result_dtype(xp, X) == xp.float64 else 120
    return float(2.0 ** min(most, max(-most, -exponent)))


def centered_sums(xp: Any, X: Array, *, wide: bool) -> CenteredSums:
    """Return the sums of the centered rows, in one pass over tiles of X.

    A pivot is subtracted first, so that a large mean costs no precision. With `wide`, products are computed in float64
    and Σ‖y‖⁴ is included. Otherwise each tile is multiplied in X's own precision and the products are summed in
    float64, which is twice as fast; the relative error is about 1e-6 for float32.
    """
    n, d = X.shape
    sums = accumulator_dtype(xp, X)
    dtype = sums if wide else result_dtype(xp, X)
    if n <= d:
        pivot = xp.astype(detach(X[0, :]), dtype, copy=False)
        y = xp.astype(X, dtype, copy=False) - pivot
        drift = xp.mean(y, axis=0)
        if is_numpy_array(X):
            y -= drift  # a new array of this size costs more than the subtraction
        else:
            y = y - drift
        with single_threaded_product() if _SMALL_PRODUCT[0] < n * n * d < _SMALL_PRODUCT[1] else nullcontext():
            matrix = xp.astype(y @ y.T, sums, copy=False)
        r = xp.linalg.diagonal(matrix)
        return CenteredSums(pivot, drift, xp.sum(r), _sum_of_squares(xp, matrix), xp.sum(r * r), matrix, y)

    pivot = central_point(xp, X, dtype)

    def tile_sums(part: slice) -> tuple[Array, Array, Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):  # threads do not inherit the caller's setting
            y = xp.astype(X[part, :], dtype, copy=False) - pivot
            total = xp.astype(xp.sum(y, axis=0), sums, copy=False)
            if not wide:
                return y.T @ y, total, 0.0, 0.0
            r = xp.sum(y * y, axis=1)
            return y.T @ y, total, r @ y, xp.sum(r * r)

    matrix = zeros(xp, X, (d, d))
    total = cubic = zeros(xp, X, (d,))
    quartic = zeros(xp, X, ())
    found: Iterator[tuple[Array, Array, Array, Array]] = map(tile_sums, tiles(X, itemsize=8 if wide else 4))
    if is_numpy_array(X):
        count = len(list(tiles(X, nbytes=_TILE_BYTES, itemsize=8 if wide else 4)))
        if count > 1:
            count += -count % thread_count()  # each thread gets as many tiles as the others
        parts = list(blocks(n, -(-n // count)))
        found = map_in_threads(tile_sums, parts, count) if count > 1 else map(tile_sums, parts)
    for product, *others in found:
        if is_numpy_array(X):
            matrix += product
        else:
            matrix = matrix + xp.astype(product, sums, copy=False)
        total, cubic, quartic = (sum_ + more for sum_, more in zip((total, cubic, quartic), others, strict=True))
    drift = total / n
    if wide:
        about_mean = Moments(total, matrix, cubic, quartic).shift_rows(xp, n, -drift)
        matrix, quartic = about_mean.scatter, about_mean.quartic
    else:
        matrix = matrix - n * (drift[:, None] * drift[None, :])
    trace = xp.sum(xp.linalg.diagonal(matrix))
    return CenteredSums(pivot, drift, trace, _sum_of_squares(xp, matrix), quartic if wide else None, matrix)


def _sum_of_squares(xp: Any, matrix: Array) -> Array:
    """Return ‖matrix‖²; for NumPy, without a temporary array, whose memory the system may clear again in each call."""
    return np.einsum("ij,ij->", matrix, matrix) if is_numpy_array(matrix) else xp.sum(matrix * matrix)


def central_point(xp: Any, X: Array, dtype: Any) -> Array:
    """Return a point near the mean, computed from a few hundred rows. If all rows are equal, it equals them exactly.

    Any point gives correct sums, so it carries no gradient.
    """
    few = xp.astype(detach(X[:: max(1, X.shape[0] // 512), :]), accumulator_dtype(xp, X))
    return xp.astype(few[0, :] + xp.mean(few - few[0, :], axis=0), dtype)


def leave_one_out(xp: Any, X: Array, sums: CenteredSums) -> formulas.LeaveOneOutSums:
    """Return the sums that leave out each row in turn, for the jackknife."""
    n, d = X.shape
    wide = accumulator_dtype(xp, X)

    def rows(part: slice) -> Array:
        return xp.astype(X[part, :], wide) - sums.pivot - sums.drift

    cubic = zeros(xp, X, (d,))
    for part in tiles(X):
        y = rows(part)
        cubic = cubic + xp.sum(xp.sum(y * y, axis=1)[:, None] * y, axis=0)
    r, q, s = [], [], []
    for part in tiles(X):
        y = rows(part)
        r.append(xp.sum(y * y, axis=1))
        # yᵀWy; with the Gram matrix, this is the sum of squares of the row
        q.append(xp.sum(sums.matrix[part, :] ** 2, axis=1) if n <= d else xp.sum((y @ sums.matrix) * y, axis=1))
        s.append(y @ cubic)
    return formulas.leave_one_out(
        n, sums.trace, sums.trace_squared, sums.quartic, xp.concat(r), xp.concat(q), xp.concat(s)
    )


def eigenvalues(xp: Any, X: Array, center: bool, *, scale_free: bool = False) -> Array:
    """Return the eigenvalues of the smaller of XXᵀ and XᵀX, largest first; negative rounding errors become 0.

    With `scale_free`, X may be rescaled if its squares would overflow or underflow. Use this for shares, in which the
    scale cancels.
    """
    if not center and not is_traced(X):
        far = _far_spectrum(xp, X)
        if far is not None:
            return far
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = _moment(xp, X, center)
    if scale_free and not is_traced(X) and not 1e-140 < to_float(xp.sum(xp.linalg.diagonal(matrix))) < 1e140:
        matrix = _moment(xp, rescale(xp, X, X - X[:1, :] if center else X), center)
    if not is_traced(X) and not math.isfinite(to_float(xp.sum(xp.linalg.diagonal(matrix)))):
        raise InputError("the squares of X overflow: rescale X to smaller values")
    values = xp.flip(xp.linalg.eigvalsh(matrix), axis=0)
    return xp.where(values > 0, values, xp.zeros_like(values))


def _far_spectrum(xp: Any, X: Array) -> Array | None:
    """Return the uncentered spectrum if a large mean would make all values but the first imprecise, else None."""
    n, d = X.shape
    few = xp.astype(detach(X[:: max(1, n // 512), :]), accumulator_dtype(xp, X))
    middle = xp.mean(few, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = to_float(xp.sum((few - middle) ** 2)) / few.shape[0]
        if not to_float(xp.sum(middle * middle)) > formulas.FAR_MEAN / 4 * spread:  # a few rows rule it out
            return None
        sums = centered_sums(xp, X, wide=True)
        mean = sums.pivot + sums.drift
        trace, square = to_float(sums.trace), n * to_float(xp.sum(mean * mean))
    if not (trace > 1e-140 and formulas.FAR_MEAN * trace < square < 1e140):
        return None
    if sums.rows is None:
        return formulas.spectrum_about_far_mean(xp, sums.matrix, n, mean)
    values = formulas.spectrum_about_far_mean(xp, sums.rows.T @ sums.rows, n, mean)
    return values[: min(n, d)]


def _moment(xp: Any, X: Array, center: bool) -> Array:
    """Return the smaller of XXᵀ and XᵀX in float64, for X either centered or unchanged."""
    n, d = X.shape
    if n <= d and not center:
        wide = xp.astype(X, accumulator_dtype(xp, X), copy=False)
        return wide @ wide.T
    sums = centered_sums(xp, X, wide=True)
    mean = sums.pivot + sums.drift
    return sums.matrix if center else sums.matrix + n * (mean[:, None] * mean[None, :])


def check_variance(trace: Array, n: int) -> None:
    """Raise an `InputError` if the rows have no variance."""
    if not is_traced(trace) and not to_float(trace) > 0:
        raise InputError(CONSTANT_MESSAGE.format(n=n))
