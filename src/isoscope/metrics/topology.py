"""The 0-dimensional persistence barcode of a dataset, and its entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from isoscope._core.arrays import (
    accumulator_dtype,
    as_real_array,
    asarray_like,
    carries_gradient,
    cast_result,
    check_points,
    result_dtype,
    safe_sqrt,
    take,
    to_numpy,
)
from isoscope._core.errors import InputError, MissingValueError, ParameterError, ShapeError
from isoscope._core.pairs import MAX_MEMORY, scale_to_safe_range, spanning_tree

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def h0_barcode(X: Array, *, max_memory: int = MAX_MEMORY) -> Array:
    """Return the 0-dimensional persistence barcode of X: the edge lengths of its minimum spanning tree, longest first.

    These are the n − 1 finite bars of the Vietoris–Rips filtration: a bar ends at the distance where two components
    merge. A duplicate row gives a bar of length 0 with gradient 0. The result is exact and needs no n×n array.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    max_memory : int
        Memory in bytes for the tiles of pairs.

    Returns
    -------
    (n − 1,) array

    Examples
    --------
    >>> import isoscope
    >>> isoscope.h0_barcode([[0, 0], [0, 1], [0, 3], [9, 3]]).tolist()
    [9.0, 2.0, 1.0]
    """
    xp, X = check_points(X, min_dims=1)
    values = to_numpy(X)
    edges, lengths = spanning_tree(values, max_memory=max_memory)
    largest = float(xp.finfo(result_dtype(xp, X)).max)
    if len(lengths) and lengths.max() > largest:
        raise InputError(
            f"the longest bar is {lengths.max():.3g}, which exceeds the range of {X.dtype}: pass X as float64"
        )
    if not carries_gradient(X):
        return cast_result(xp, X, asarray_like(xp, X, lengths, accumulator_dtype(xp, X)))
    P = xp.astype(X, result_dtype(xp, X), copy=False)
    unit = scale_to_safe_range(values)[1]
    step = take(xp, P, edges[:, 0]) - take(xp, P, edges[:, 1])
    step = step if unit == 1 else step * (1 / unit)
    squared = xp.sum(step * step, axis=1, dtype=accumulator_dtype(xp, X))
    root = xp.sqrt(squared) if lengths.min() > 0 else safe_sqrt(xp, squared)
    return cast_result(xp, X, root if unit == 1 else root * unit)


def persistent_entropy(bars: Array) -> Array:
    """Return the persistent entropy of a barcode: log m if all m bars are equally long, near 0 if one bar dominates.

    The entropy is −Σ p·log p with p = l/Σl. Bars of length 0 contribute nothing. The entropy of no bars is 0.

    Parameters
    ----------
    bars : (m,) array
        Nonnegative lengths in any order, such as `h0_barcode` returns.

    Examples
    --------
    >>> import isoscope
    >>> round(float(isoscope.persistent_entropy([1, 1, 1, 1])), 4), round(float(isoscope.persistent_entropy([9, 1])), 4)
    (1.3863, 0.3251)

    References
    ----------
    Atienza et al., Persistent entropy for separating topological features from noise, 2019.
    """
    xp, bars, values = _check_bars(bars)
    positive = values > 0
    if not positive.any():
        return cast_result(xp, bars, xp.sum(bars))  # 0, connected to the gradient
    if not positive.all():
        bars = take(xp, bars, np.flatnonzero(positive))
    longest = float(values.max())
    lengths = xp.astype(bars, accumulator_dtype(xp, bars), copy=False)
    lengths = lengths if 1e-100 < longest < 1e100 else lengths / longest
    p = lengths / xp.sum(lengths)
    if float(values[positive].min()) / longest < 1e-300:  # so short that its share may be 0
        p = take(xp, p, np.flatnonzero(to_numpy(p) > 0))
    return cast_result(xp, bars, 0 - xp.sum(p * xp.log(p)))


def select_bars(bars: Array, *, rule: Literal["reference", "printed"] = "reference") -> Array:
    """Return the bars that are topological features rather than noise, longest first.

    This is Atienza's method. It replaces the longest bars, one after another, by the length that maximizes the entropy
    of the barcode, and stops when a replacement no longer makes the longest bar stand out more. The longest bar is
    always kept. All bars are kept if there are fewer than 4, or if all are equal. Bars of length 0 are never kept.

    Parameters
    ----------
    bars : (m,) array
        Nonnegative lengths in any order.
    rule : {"reference", "printed"}
        "reference" follows the code and the prose of Kudrjashov et al.: stop if C < 1, continue while Q < i. "printed"
        follows their Algorithm 1, which prints C > 1 and Q ≤ i and may never end; this function limits the loop. See
        docs/errata.md.

    Returns
    -------
    (m′,) array, m′ ≤ m

    Examples
    --------
    >>> import isoscope
    >>> isoscope.metrics.select_bars([0.9, 1.1, 8.0, 1.0, 7.0, 1.2, 0.8]).tolist()
    [8.0, 7.0, 1.2]

    References
    ----------
    Atienza et al., Persistent entropy for separating topological features from noise, 2019.
    Kudrjashov et al., Shrink the longest, 2025.
    """
    if rule not in ("reference", "printed"):
        raise ParameterError(f'rule is {rule!r}: need "reference" or "printed"')
    xp, bars, values = _check_bars(bars)
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > 0]
    count = len(order)
    if count and values[order[-1]] < values[order[0]] * (1 - 8 * float(xp.finfo(bars.dtype).eps)):
        count = count_features(values[order], rule == "printed")
    return take(xp, bars, order[:count])


def count_features(bars: np.ndarray, printed: bool) -> int:
    """Return how many of the sorted, positive bars are features by the method of Atienza et al.; see `select_bars`.

    T is the longest bar and r the shortest. In each round, the algorithm's list x holds the sorted bars 1…m−2, then r,
    then T. Suffix sums P of x and S of x·log x give the entropy log P − S/P of every suffix.
    """
    m, longest, shortest = len(bars), bars[0], bars[-1]
    if m < 4:
        return m
    alpha = max(shortest / longest, np.finfo(np.float64).tiny)  # the ratio may underflow
    x = np.append(bars[1:], longest)
    while True:
        suffix, entropy_sum = (np.cumsum(values[::-1])[::-1] for values in (x, x * np.log(x)))
        last = max(1, m - 2 if printed else m - 3)
        # with i bars replaced: P + i·P/e^E, where E is the entropy
        totals = suffix[: last + 1] + np.arange(last + 1) * np.exp(entropy_sum[: last + 1] / suffix[: last + 1])
        ratios = totals[:-1] / totals[1:]
        stops = ratios > 1 if printed else ratios < 1
        i = int(np.argmax(stops)) + 1 if stops.any() else last
        quota = np.ceil(alpha * m * (alpha - 1 - np.log(alpha)) / (alpha - 1) ** 2)
        if not (quota <= i if printed else quota < i) or i + 2 >= m:
            return i + 1
        m = i + 2
        if m < 4:
            return i + 1
        x = np.concatenate([x[:i], [shortest, longest]])


def _check_bars(bars: Array) -> tuple[Any, Array, np.ndarray]:
    """Check a barcode; return its namespace, the barcode, and its values as a NumPy array."""
    xp, bars = as_real_array(bars, "bars")
    if bars.ndim != 1:
        raise ShapeError(f"bars has shape {tuple(bars.shape)}: need one length per bar, shape (m,)")
    values = to_numpy(bars).astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise MissingValueError(
            f"{int(bad.sum())} of {len(values)} bars are negative, infinite or NaN, the first at index "
            f"{int(bad.argmax())}: need finite lengths; remove the infinite bar"
        )
    return xp, bars, values
