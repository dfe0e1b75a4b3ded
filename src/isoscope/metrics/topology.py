"""At what distances the points of a cloud grow together: the 0-dimensional barcode and its entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from isoscope._core.errors import InputError
from isoscope._core.pairs import MAX_MEMORY, scale_to_safe_range, spanning_tree

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def h0_barcode(X: Any, *, max_memory: int = MAX_MEMORY) -> Array:
    """The lengths of the minimum spanning tree of X, longest first: a bar ends where two parts of the cloud meet.

    These are the n − 1 finite bars of 0-dimensional persistent homology of the Vietoris–Rips filtration. A duplicate
    gives a bar of length 0, with gradient 0. Exact, without an n×n array.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    max_memory : int
        Bytes for the tiles of pairs.

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
    if not carries_gradient(X):
        return cast_result(xp, X, asarray_like(xp, X, lengths, accumulator_dtype(xp, X)))
    P = xp.astype(X, result_dtype(xp, X), copy=False)
    unit = scale_to_safe_range(values)[1]
    step = take(xp, P, edges[:, 0]) - take(xp, P, edges[:, 1])
    step = step if unit == 1 else step * (1 / unit)
    squared = xp.sum(step * step, axis=1, dtype=accumulator_dtype(xp, X))
    root = xp.sqrt(squared) if lengths.min() > 0 else safe_sqrt(xp, squared)
    return cast_result(xp, X, root if unit == 1 else root * unit)


def persistent_entropy(bars: Any) -> Array:
    """How alike the bars are in length: log of their number if all are equal, near 0 if one outweighs the rest.

    −Σ p·log p with p = l/Σl. Bars of length 0 add nothing, and no bars at all have entropy 0.

    Parameters
    ----------
    bars : (m,) array
        Lengths of at least 0, in any order, such as `h0_barcode` gives.

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
        return cast_result(xp, bars, xp.sum(bars))  # 0, with the gradient of a sum of nothing
    if not positive.all():
        bars = take(xp, bars, np.flatnonzero(positive))
    longest = float(values.max())
    lengths = xp.astype(bars, accumulator_dtype(xp, bars), copy=False)
    lengths = lengths if 1e-100 < longest < 1e100 else lengths / longest
    p = lengths / xp.sum(lengths)
    return cast_result(xp, bars, 0 - xp.sum(p * xp.log(p)))


def select_bars(bars: Any, *, rule: str = "reference") -> Array:
    """The bars that are features and not noise, longest first.

    Atienza's method: sort the bars, replace the longest one after another by the length that would make the entropy
    of the whole largest, and stop where this no longer makes the longest bar T stand out more. The longest bar is
    always kept; so are all if there are fewer than 4 or they are equal. Bars of length 0 are never features.

    Parameters
    ----------
    bars : (m,) array
        Lengths of at least 0, in any order.
    rule : {"reference", "printed"}
        Kudrjashov et al. stop in their code where C < 1 and go on while Q < i, which is what their prose describes and
        what "reference" does. Their Algorithm 1 prints C > 1 and Q ≤ i, and can run for ever: "printed" does that, with
        the loop guarded. See docs/errata.md.

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
        raise InputError(f'rule is {rule!r}: need "reference" or "printed"')
    from isoscope._core.kernels import count_features

    xp, bars, values = _check_bars(bars)
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > 0]
    count = len(order)
    if count and values[order[-1]] < values[order[0]] * (1 - 8 * float(xp.finfo(bars.dtype).eps)):
        count = count_features(values[order], rule == "printed")
    return take(xp, bars, order[:count])


def _check_bars(bars: Any) -> tuple[Any, Array, np.ndarray]:
    """Check a barcode; give it with its namespace and its values on the host."""
    xp, bars = as_real_array(bars, "bars")
    if bars.ndim != 1:
        raise InputError(f"bars has shape {tuple(bars.shape)}: need one length for each bar, shape (m,)")
    values = to_numpy(bars).astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        raise InputError(
            f"bars has {int(bad.sum())} of {len(values)} that are negative, infinite or NaN, the first at "
            f"{int(bad.argmax())}: need finite lengths, leave out the bar that never ends"
        )
    return xp, bars, values
