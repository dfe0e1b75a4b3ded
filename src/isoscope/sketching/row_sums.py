"""The sums over the rows of one chunk, computed tile by tile.

All sums are float64. The matrix Σyyᵀ takes nearly all of the time. For float32 rows, its products are computed in
float32 if that is precise enough, because float64 products take twice as long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isoscope._core.array_kernels import sum_kernels
from isoscope._core.arrays import TILE_BYTES, blocks

LEAST_EIGENVALUE = 1e-3
"""The smallest eigenvalue of the scaled scatter matrix for which float32 products are precise enough."""

_TILE_BYTES = TILE_BYTES // 4  # the size of a tile of float64 rows, which fits in the cache
_RANGE = 2.0**-100, 2.0**120  # sums of squares whose float32 products neither underflow nor overflow


class RowSums(NamedTuple):
    """The sums over the finite rows x of a chunk, with y = x − pivot and u = x/‖x‖."""

    pivot: np.ndarray
    total: np.ndarray
    """Σy."""
    moment: np.ndarray
    """Σyyᵀ."""
    cubic: np.ndarray
    """Σ‖y‖²y."""
    quartic: float
    """Σ‖y‖⁴."""
    unit_sum: np.ndarray
    unit_squares: np.ndarray
    norms: np.ndarray
    """‖x‖ for each row; NaN if the row is not finite."""
    hashes: np.ndarray
    """A hash of each row; 0 if the row is not finite."""

    @classmethod
    def of(cls, X: np.ndarray) -> RowSums:
        """Return the sums over the rows of a float32 or float64 array."""
        add_row_sums = sum_kernels(X.size).add_row_sums
        n, d = X.shape
        pivot, keys, sums = _pivot(X), _hash_keys(d), np.zeros((5, d))
        norms, squares, hashes = np.empty(n), np.empty(n), np.empty(n, np.uint64)
        moment = np.zeros((d, d))
        buffer = np.empty((min(n, _tile_rows(d)), d), X.dtype)
        for part in blocks(n, _tile_rows(d)):
            rows = np.ascontiguousarray(X[part])
            centered = buffer[: len(rows)]
            add_row_sums(rows, pivot, keys, centered, norms[part], squares[part], hashes[part], sums)
            _add_extreme_rows(rows, norms[part], sums[3:])
            if n > 2 * d or X.dtype == np.float64:
                _add_products(moment, centered)
        total, column_squares, cubic, unit_sum, unit_squares = sums
        if X.dtype == np.float32:
            np.fill_diagonal(moment, column_squares)
            if n <= 2 * d or not _is_well_conditioned(moment, total, int((~np.isnan(norms)).sum())):
                moment[:] = 0
                for part in blocks(n, _tile_rows(d)):
                    _add_products(moment, X[part][~np.isnan(norms[part])] - pivot)
        with np.errstate(over="ignore", invalid="ignore"):
            quartic = float(np.sum(squares * squares))
        return cls(pivot, total, moment, cubic, quartic, unit_sum, unit_squares, norms, hashes)


def hash_rows(X: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each row, as in the counts of copies; rows with NaN or infinity have the hash 0.

    >>> first, second, third = hash_rows(np.asarray([[1.0, 0.0], [1.0, -0.0], [2.0, 0.0]])).tolist()
    >>> first == second, first == third
    (True, False)
    """
    add_row_sums = sum_kernels(X.size).add_row_sums
    n, d = X.shape
    hashes, keys, zeros, sums = np.empty(n, np.uint64), _hash_keys(d), np.zeros(d), np.zeros((5, d))
    for part in blocks(n, _tile_rows(d)):
        rows = np.ascontiguousarray(X[part])
        m = len(rows)
        add_row_sums(rows, zeros, keys, np.empty_like(rows), np.empty(m), np.empty(m), hashes[part], sums)
    return hashes


def _add_products(moment: np.ndarray, centered: np.ndarray) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        moment += centered.T @ centered


def _add_extreme_rows(X: np.ndarray, norms: np.ndarray, unit_sums: np.ndarray) -> None:
    """Compute the norms of finite rows whose squares overflow or underflow; add their unit vectors to Σu and Σu²."""
    extreme = np.flatnonzero((norms <= 1e-140) | (norms >= 1e140))
    if not len(extreme):
        return
    rows = X[extreme].astype(np.float64)
    largest = np.abs(rows).max(axis=1)
    nonzero = largest > 0
    extreme, rows, exponents = extreme[nonzero], rows[nonzero], np.frexp(largest[nonzero])[1]
    rows = np.ldexp(rows, -exponents[:, None])
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    with np.errstate(over="ignore", under="ignore"):
        norms[extreme] = np.ldexp(lengths, exponents)
    units = rows / lengths[:, None]
    unit_sums += units.sum(axis=0), (units * units).sum(axis=0)


def _is_well_conditioned(moment: np.ndarray, total: np.ndarray, n: int) -> bool:
    """Return whether a matrix of float32 products is precise enough, given its exact diagonal.

    Rounding changes Σyᵢyⱼ by about 1e-7·√(Σyᵢ²·Σyⱼ²). Let R be the scatter matrix W about the mean, with entry i, j
    divided by √(Σyᵢ²·Σyⱼ²). The rounding errors change R by a matrix of norm below 1e-6 (observed). If no eigenvalue of
    R is below `LEAST_EIGENVALUE`, the relative error of vᵀWv, the variance along v, is below 1e-3 for every v.
    """
    squares = np.diagonal(moment)
    varying = squares > 0  # a constant column has y = 0 exactly
    squares = squares[varying]
    if not len(squares):
        return True
    if not _RANGE[0] * n < squares.min() <= squares.max() < _RANGE[1]:
        return False
    scatter = (moment - np.outer(total, total / n))[varying][:, varying]
    scale = 1 / np.sqrt(squares)
    try:
        np.linalg.cholesky(scatter * scale * scale[:, None] - LEAST_EIGENVALUE * np.eye(len(scale)))
    except np.linalg.LinAlgError:
        return False
    return True


def _hash_keys(d: int) -> np.ndarray:
    return np.random.default_rng(0x150C09E).integers(0, 2**64, d, np.uint64) | np.uint64(1)


def _tile_rows(d: int) -> int:
    return max(1, _TILE_BYTES // (8 * d))


def _pivot(X: np.ndarray) -> np.ndarray:
    """Return a point near the chunk's mean, computed from its first rows; it is exact if these rows are equal."""
    few = X[:256].astype(np.float64)
    few = few[np.isfinite(few).all(axis=1)]
    if not len(few):
        return np.zeros(X.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        pivot = few[0] + (few - few[0]).mean(axis=0)
    return np.where(np.isfinite(pivot), pivot, 0.0)  # a sum may overflow
