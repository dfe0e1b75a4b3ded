"""NumPy versions of the kernels that audits use, for inputs so small that compiling the kernels would take longer.

Each function has the name, arguments and results of the compiled one in `kernels`. Callers choose a version by the size
of their input only, so results do not depend on what the process computed before.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from isoscope._core.arrays import blocks

MAX_ROWS = 4096
"""The largest number of rows whose pairs are compared without compiled kernels."""
MAX_VALUES = 3 * 2**20
"""The largest number of values that are summed without compiled kernels: less than a batch of a large source."""
_CACHED_VALUES = 2**16  # values of a few rows whose copies in float64 stay in the cache

_MAX_CLOSE_PAIRS = 16  # per row of a tile; more of them are measured by the compiled kernel
_GATHERED_VALUES = 2**17  # values that are gathered at the same time, which fit in the cache


def pair_kernels(n: int) -> Any:
    """Return the module whose kernels compare the pairs of n rows: this one, or `kernels`."""
    return _kernels(compiled=n > MAX_ROWS)


def sum_kernels(size: int) -> Any:
    """Return the module whose kernels sum this number of values: this one, or `kernels`."""
    return _kernels(compiled=size > MAX_VALUES)


def _kernels(*, compiled: bool) -> Any:
    return import_module("isoscope._core.kernels" if compiled else __name__)


def products_to_squared_distances(
    products: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    left_norms: np.ndarray,
    right_norms: np.ndarray,
    near: float,
) -> None:
    """Convert a tile of inner products into squared distances, in place; measure close pairs by difference."""
    sizes = left_norms[:, None] + right_norms
    squared = sizes - 2 * products
    sizes *= near
    rows, columns = np.nonzero(squared <= sizes)
    if len(rows) > _MAX_CLOSE_PAIRS * len(products):
        _kernels(compiled=True).products_to_squared_distances(products, left, right, left_norms, right_norms, near)
        return
    products[:] = squared
    for part in blocks(len(rows), max(1, _GATHERED_VALUES // left.shape[1])):
        products[rows[part], columns[part]] = _squared_lengths(left[rows[part]] - right[columns[part]])


def _squared_lengths(steps: np.ndarray) -> np.ndarray:
    wide = steps.astype(np.float64, copy=False)
    return np.asarray(np.einsum("...j,...j->...", wide, wide))


def keep_nearest(
    squared: np.ndarray,
    own: np.ndarray,
    first_column: int,
    k: int,
    distances: np.ndarray,
    indices: np.ndarray,
    *_: np.ndarray,
) -> None:
    """Update each row's list of its k nearest points with the points in a tile's columns; row i is point own[i].

    Unlike the compiled kernel, it needs neither counts nor limits, because each list is reduced to its k nearest points
    after each tile.
    """
    at = own - first_column
    inside = np.flatnonzero((at >= 0) & (at < squared.shape[1]))
    if len(inside):
        squared = squared.copy()
        squared[inside, at[inside]] = np.inf
    _keep(squared, first_column, distances[:, :k], indices[:, :k])


def keep_nearest_of_both(
    squared: np.ndarray,
    first_row: int,
    first_column: int,
    k: int,
    *lists: np.ndarray,
) -> None:
    """Update the lists of a tile's rows with its columns, and those of its columns with its rows."""
    half = len(lists) // 2
    for values, first, (distances, indices, *_) in (
        (squared, first_column, lists[:half]),
        (squared.T, first_row, lists[half:]),
    ):
        _keep(values, first, distances[:, :k], indices[:, :k])


def _keep(values: np.ndarray, first: int, distances: np.ndarray, indices: np.ndarray) -> None:
    """Merge new values into the k smallest `distances` of each row; among ties, keep those with the lowest index."""
    k = distances.shape[1]
    numbers = np.broadcast_to(np.arange(first, first + values.shape[1]), values.shape)
    values, numbers = np.concatenate([distances, values], axis=1), np.concatenate([indices, numbers], axis=1)
    at = smallest(values, k, numbers)
    distances[:], indices[:] = np.take_along_axis(values, at, axis=1), np.take_along_axis(numbers, at, axis=1)


def smallest(values: np.ndarray, k: int, numbers: np.ndarray | None = None) -> np.ndarray:
    """Return the positions of the k smallest values in each row; of equal values, those with the lowest `numbers`.

    >>> smallest(np.asarray([[2.0, 1.0, 1.0, 0.0]]), 2).tolist()
    [[1, 3]]
    """
    kept = values <= np.partition(values, k - 1, axis=1)[:, k - 1 : k]
    tied = np.flatnonzero(np.count_nonzero(kept, axis=1) > k)
    if len(tied):
        among = np.broadcast_to(np.arange(values.shape[1]), values.shape) if numbers is None else numbers
        order = np.lexsort((among[tied], values[tied]))[:, :k]
        kept[tied] = False
        kept[tied[:, None], order] = True
    return np.nonzero(kept)[1].reshape(len(values), k)


def neighbor_distances(X: np.ndarray, rows: np.ndarray, distances: np.ndarray, indices: np.ndarray) -> None:
    """Compute the squared distances from the given rows to their neighbors, from coordinate differences."""
    for part in blocks(len(rows), max(1, _GATHERED_VALUES // (indices.shape[1] * X.shape[1]))):
        steps = X[indices[part]]
        steps -= X[rows[part], None]
        distances[part] = _squared_lengths(steps)


def count_shared_neighbors(
    products: np.ndarray,
    own: np.ndarray,
    k: int,
    query_means: np.ndarray,
    row_means: np.ndarray,
    halves: np.ndarray,
    inverse_lengths: np.ndarray,
    shared: np.ndarray,
) -> None:
    """Count the rows that two lists of the k best rows share: by cosine, inner product and Euclidean distance."""
    inner = products.astype(np.float64)
    euclidean = halves - inner
    inner += row_means
    cosine = -(inner + query_means[:, None]) * inverse_lengths
    lists = []
    for scores in (cosine, -inner, euclidean):
        scores[np.arange(len(own)), own] = np.inf
        lists.append(smallest(scores, k))
    for at, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
        shared[:, at] += (lists[a][:, :, None] == lists[b][:, None]).sum(axis=(1, 2))


def prim_tree(
    squared: np.ndarray,
    edges: np.ndarray,
    weights: np.ndarray,
    key: np.ndarray,
    parent: np.ndarray,
    inside: np.ndarray,
) -> None:
    """Compute the minimum spanning tree of a complete graph, by Prim's algorithm."""
    outside, closer = ~inside, np.empty_like(inside)
    current = 0
    for step in range(len(squared) - 1):
        outside[current] = False
        key[current] = np.inf
        row = squared[current]
        np.less(row, key, out=closer)
        closer &= outside
        np.copyto(key, row, where=closer)
        np.copyto(parent, current, where=closer)
        current = int(key.argmin())
        edges[step], weights[step] = (parent[current], current), key[current]


def count_cosines(
    bits: np.ndarray,
    shift: int,
    first: int,
    diagonal: bool,
    counts: np.ndarray,
    marks: np.ndarray,
    squared: np.ndarray,
    limits: np.ndarray,
    beyond: np.ndarray,
) -> None:
    """Count the squared distances of a tile in the bins of a `CosineHistogram`."""
    if diagonal:
        above = np.triu(np.ones(squared.shape, bool), 1)
        bits, squared = bits[above], squared[above]
    at = np.clip((bits >> shift) - first, 0, len(counts) - 1).ravel()
    counts += np.bincount(at, minlength=len(counts))
    mark = marks[at]
    some = np.flatnonzero(mark < len(limits))
    mark = mark[some]
    beyond += np.bincount(mark[squared.ravel()[some] > limits[mark]], minlength=len(beyond))


def add_row_sums(
    X: np.ndarray,
    pivot: np.ndarray,
    keys: np.ndarray,
    centered: np.ndarray,
    norms: np.ndarray,
    squares: np.ndarray,
    hashes: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Center and hash the rows x of a tile, and add them to the rows Σy, Σy², Σ‖y‖²y, Σu and Σu² of `sums`."""
    for part in blocks(len(X), max(1, _CACHED_VALUES // X.shape[1])):
        _add_few_row_sums(X[part], pivot, keys, centered[part], norms[part], squares[part], hashes[part], sums)


def _add_few_row_sums(
    X: np.ndarray,
    pivot: np.ndarray,
    keys: np.ndarray,
    centered: np.ndarray,
    norms: np.ndarray,
    squares: np.ndarray,
    hashes: np.ndarray,
    sums: np.ndarray,
) -> None:
    wide = X + np.zeros(1)  # float64; −0 becomes 0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sizes = np.einsum("ij,ij->i", wide, wide)
        missing = np.zeros(len(X), bool)
        unsure = np.flatnonzero(~(sizes < 1e280))
        missing[unsure] = ~np.isfinite(wide[unsure]).all(axis=1)
        y = wide - pivot
        if missing.any():
            wide[missing], y[missing], sizes[missing] = 0, 0, np.nan
        centered[:] = y
        np.sqrt(sizes, out=norms)
        np.einsum("ij,ij->i", y, y, out=squares)
        sums[0] += y.sum(axis=0)
        sums[2] += squares @ y
        y *= y
        sums[1] += y.sum(axis=0)
        factors = np.where((norms > 1e-140) & (norms < 1e140), 1 / norms, 0)
        np.multiply(wide, factors[:, None], out=y)
        sums[3] += y.sum(axis=0)
        y *= y
        sums[4] += y.sum(axis=0)
    hashes[:] = _hash_words(wide.view(np.uint64), keys)
    hashes[missing] = 0


def _hash_words(words: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return a hash of each row of 64-bit words, which are overwritten."""
    words ^= words >> np.uint64(32)
    words *= keys
    words ^= words >> np.uint64(32)
    words *= np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(29)
    codes = words.sum(axis=1)
    codes ^= codes >> np.uint64(30)
    codes *= np.uint64(0xBF58476D1CE4E5B9)
    codes ^= codes >> np.uint64(27)
    codes *= np.uint64(0x94D049BB133111EB)
    return np.asarray(codes ^ (codes >> np.uint64(31)))
