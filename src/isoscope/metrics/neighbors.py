"""Intrinsic dimension and hubness, measured from the nearest neighbors of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from isoscope._core.arrays import (
    accumulator_dtype,
    asarray_like,
    carries_gradient,
    cast_result,
    check_integer,
    check_points,
    check_real,
    nonzero_rows,
    result_dtype,
    safe_sqrt,
    take,
    to_float,
    to_numpy,
    unit_rows,
)
from isoscope._core.errors import InputError, ParameterError, TooFewRowsError, plural, warn_data
from isoscope._core.pairs import MAX_MEMORY, nearest_neighbors, scale_to_safe_range
from isoscope._core.random import check_seed

if TYPE_CHECKING:
    from isoscope._core.arrays import Array
    from isoscope._core.types import Metric, Seed


class Hubness(NamedTuple):
    """The hubness of rows: how unevenly they occur among the k nearest neighbors of other rows.

    The k-occurrence of a row is the number of rows that have it among their k nearest neighbors.
    """

    skewness: Array
    """Skewness of the k-occurrence: near 0 if rows occur equally often, above 1 if a few hubs occur very often."""
    antihubs: Array
    """Share of anti-hubs, the rows with k-occurrence 0: a nearest-neighbor search never returns them."""
    largest: Array
    """The largest k-occurrence; the mean is k."""

    def __repr__(self) -> str:
        skewness, antihubs, largest = (to_float(number) for number in self)
        return f"Hubness(skewness={skewness:.3g}, antihubs={antihubs:.3g}, largest={largest:.0f})"


def lid(
    X: Array,
    k: int = 100,
    *,
    metric: Metric = "euclidean",
    convention: Literal["textbook", "cai"] = "textbook",
    sample: int | None = None,
    seed: Seed = 0,
    max_memory: int = MAX_MEMORY,
) -> Array:
    """Return the local intrinsic dimension (LID) of X, estimated from the k nearest neighbors and averaged over rows.

    For a row with distances r₁ ≤ … ≤ r_k to its neighbors, the estimate is (k − 2)/Σ log(r_k/rᵢ). The sum has k − 1
    random terms, so k − 2 in the numerator makes the estimate unbiased. The maximum-likelihood estimate has k − 1
    there, and is too large by the factor (k − 1)/(k − 2).

    Parameters
    ----------
    X : (n, d) array
        One row per vector, n > k.
    k : int
        The number of neighbors: at least 3, or at least 2 for "cai".
    metric : {"euclidean", "cosine"}
        The distance. "cosine" uses the Euclidean distance between unit vectors.
    convention : {"textbook", "cai"}
        "textbook" is the unbiased estimate. "cai" reproduces the numbers of Cai et al., who use k in place of k − 2,
        and halve the result by using squared distances (or 1 − cos, half a squared distance) in the formula. Without
        duplicates, it is k/(2(k − 2)) times the textbook value.
    sample : int, optional
        Average over only this many random rows. Their neighbors are still searched among all rows.
    seed : int
        Random seed for the sample.
    max_memory : int
        Memory in bytes for the tiles of pairs.

    Notes
    -----
    Neighbors at distance zero (duplicates) are left out of their row's estimate. Rows whose neighbors all have the
    same distance have no estimate and are left out, as are zero rows for "cosine". A `DataWarning` states how many.
    With a gradient, an (n, k, d) array is kept in memory, so use batches.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> plane = np.random.default_rng(0).random((2000, 2)) @ np.random.default_rng(1).standard_normal((2, 64))
    >>> round(float(isoscope.lid(plane, k=20)), 1)
    1.9

    References
    ----------
    Levina and Bickel, Maximum likelihood estimation of intrinsic dimension, 2004 (k − 2: section 3.1).
    MacKay and Ghahramani, Comments on "Maximum likelihood estimation of intrinsic dimension", 2005.
    Amsaleg et al., Estimating local intrinsic dimensionality, 2015.
    """
    if convention not in ("textbook", "cai"):
        raise ParameterError(f'convention is {convention!r}: need "textbook" or "cai"')
    least = 2 if convention == "cai" else 3
    if check_integer(k, "k") < least:
        raise ParameterError(f"k is {k}: need at least {least} neighbors")
    xp, X = check_points(X, min_dims=1)
    distances = _neighbor_distances(xp, X, k, metric, sample, seed, max_memory)
    eps = float(xp.finfo(result_dtype(xp, X)).eps)
    estimates, known = local_dimensions(xp, distances, eps, unbiased=convention == "textbook")
    count = int(known.sum())
    if not count:
        raise InputError(
            f"no row of X has {k} neighbors at distinct distances: the local dimension cannot be estimated"
        )
    _warn_duplicates(to_numpy(distances), known)
    mean = xp.sum(estimates) / count
    return cast_result(xp, X, mean / 2 if convention == "cai" else mean)


def local_dimensions(xp: Any, distances: Array, eps: float, *, unbiased: bool = True) -> tuple[Array, np.ndarray]:
    """Return the LID of each row, from its sorted neighbor distances, and a mask of defined values; others are 0.

    `eps` is the precision of the points: ratios of equal distances are 1 up to rounding. The largest of the t positive
    distances is the reference. Σ log(r_t/rᵢ) over the other t − 1 follows a gamma distribution of shape t − 1 and rate
    LID, and the mean of its inverse is LID/(t − 2). So `unbiased` multiplies by t − 2; Cai et al. multiply by t.
    """
    k = distances.shape[1]
    zero = distances <= 0
    last = distances[:, -1:]
    ratio = xp.where(
        zero | (last <= 0), xp.ones_like(distances), distances / xp.where(last > 0, last, xp.ones_like(last))
    )
    logs = xp.sum(xp.log(ratio), axis=1)
    terms = k - xp.sum(xp.astype(zero, logs.dtype), axis=1)
    factor = terms - 2 if unbiased else terms
    known = (logs < -8 * k * eps) & (factor > 0)
    estimates = xp.where(known, -factor / xp.where(known, logs, -xp.ones_like(logs)), xp.zeros_like(logs))
    return estimates, (to_numpy(logs) < -8 * k * eps) & (to_numpy(factor) > 0)


def two_nn(
    X: Array,
    *,
    discard: float = 0.1,
    sample: int | None = None,
    seed: Seed = 0,
    max_memory: int = MAX_MEMORY,
) -> Array:
    """Return the TwoNN intrinsic dimension of X, estimated from the distances to the two nearest neighbors.

    In d dimensions the ratio μ of the two distances has the distribution function F(μ) = 1 − μ^−d. The estimate is the
    slope of −log(1−F) against log μ, fitted through the origin.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    discard : float
        The share of the largest ratios to leave out, because they are the noisiest.
    sample : int, optional
        Use only this many random rows. Their neighbors are still searched among all rows.
    seed : int
        Random seed for the sample.
    max_memory : int
        Memory in bytes for the tiles of pairs.

    Notes
    -----
    A row with a duplicate has no ratio and is left out. A `DataWarning` states how many.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> plane = np.random.default_rng(0).random((2000, 2)) @ np.random.default_rng(1).standard_normal((2, 64))
    >>> round(float(isoscope.two_nn(plane)), 1)
    2.0

    References
    ----------
    Facco et al., Estimating the intrinsic dimension of datasets by a minimal neighborhood information, 2017.
    """
    if not 0 <= check_real(discard, "discard") < 1:
        raise ParameterError(f"discard is {discard}: need a number in [0, 1)")
    xp, X = check_points(X, min_rows=3, min_dims=1)
    distances = _neighbor_distances(xp, X, 2, "euclidean", sample, seed, max_memory)
    value = two_nn_slope(xp, distances, float(xp.finfo(result_dtype(xp, X)).eps), discard)
    _warn_duplicates(to_numpy(distances), to_numpy(distances)[:, 0] > 0)
    return cast_result(xp, X, value)


def two_nn_slope(xp: Any, distances: Array, eps: float, discard: float) -> Array:
    """Compute the TwoNN estimate from the distances to the two nearest neighbors; `eps` is the points' precision."""
    known = to_numpy(distances)[:, 0] > 0
    n = int(known.sum())
    kept = max(0, min(int(n * (1 - discard)), n - 1))  # the largest ratio has F = 1, and log 0 is not finite
    if kept < 2:
        raise TooFewRowsError(
            f"discard={discard} keeps {kept} of the {plural(n, 'row')} without a duplicate: need at least 2; pass more "
            "distinct rows or a smaller discard"
        )
    pairs = take(xp, distances, np.flatnonzero(known))
    logs = xp.log(pairs[:, 1] / pairs[:, 0])
    logs = take(xp, logs, np.argsort(to_numpy(logs), kind="stable")[:kept])
    heights = asarray_like(xp, distances, -np.log1p(-np.arange(1, kept + 1) / n), logs.dtype)
    if not float(to_numpy(logs)[-1]) > 8 * eps:
        raise InputError(
            "every row of X has its two nearest neighbors at the same distance: the dimension cannot be estimated"
        )
    return xp.sum(logs * heights) / xp.sum(logs * logs)


def hubness(
    X: Array,
    k: int = 10,
    *,
    metric: Metric = "euclidean",
    sample: int | None = None,
    seed: Seed = 0,
    max_memory: int = MAX_MEMORY,
) -> Hubness:
    """Return the hubness of X: how unevenly rows occur among the nearest neighbors of other rows.

    Parameters
    ----------
    X : (n, d) array
        One row per vector, n > k.
    k : int
        The number of neighbors of each row.
    metric : {"euclidean", "cosine"}
        The distance.
    sample : int, optional
        Search the neighbors of only this many random rows. Fewer searches return fewer distinct rows, so the share of
        anti-hubs rises. Compare only values with the same sample size.
    seed : int
        Random seed for the sample.
    max_memory : int
        Memory in bytes for the tiles of pairs.

    Returns
    -------
    Hubness
        The named tuple (skewness, antihubs, largest).

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> noise = np.random.default_rng(0).standard_normal((1000, 100))
    >>> flat, deep = isoscope.hubness(noise[:, :2]), isoscope.hubness(noise)
    >>> bool(flat.skewness < 0.2), bool(deep.skewness > 3), bool(deep.antihubs > 0.1)
    (True, True, True)

    References
    ----------
    Radovanović et al., Hubs in space, 2010.
    """
    xp, X = check_points(X, min_dims=1)
    X = _drop_zero_rows(xp, X) if metric == "cosine" else X
    _, indices = _neighbors(X, check_integer(k, "k"), metric, sample, seed, max_memory)
    return Hubness(*(asarray_like(xp, X, value) for value in occurrence_statistics(indices, X.shape[0])))


def occurrence_statistics(indices: np.ndarray, n: int) -> tuple[float, float, float]:
    """Compute the skewness, share of zeros and maximum of the k-occurrence from the neighbor indices among n rows."""
    times = np.bincount(indices.ravel(), minlength=n).astype(np.float64)
    spread = times.std()
    skewness = ((times - times.mean()) ** 3).mean() / spread**3 if spread > 0 else 0.0
    return float(skewness), float((times == 0).mean()), float(times.max())


def _neighbors(
    X: Array, k: int, metric: Metric, sample: int | None, seed: Seed, max_memory: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances and indices of the k nearest neighbors as NumPy arrays."""
    n = X.shape[0]
    if metric not in ("euclidean", "cosine"):
        raise ParameterError(f'metric is {metric!r}: need "euclidean" or "cosine"')
    if not 1 <= k < n:
        raise ParameterError(f"k is {k} but X has {n} rows: need 1 ≤ k ≤ {n - 1}")
    if sample is not None and not 1 <= check_integer(sample, "sample") <= n:
        raise ParameterError(f"sample is {sample} but X has {n} rows: need 1 ≤ sample ≤ {n}")
    rows = None
    if sample is not None and sample < n:
        rows = np.sort(np.random.default_rng(check_seed(seed)).choice(n, sample, replace=False))
    values = to_numpy(X)
    return nearest_neighbors(
        unit_rows(np, values, values.dtype) if metric == "cosine" else values, k, rows=rows, max_memory=max_memory
    )


def _neighbor_distances(
    xp: Any, X: Array, k: int, metric: Metric, sample: int | None, seed: Seed, max_memory: int
) -> Array:
    """Return the distances to the k nearest neighbors, nearest first; differentiable if X carries a gradient."""
    if carries_gradient(X) and sample is not None:
        raise ParameterError(
            f"sample is {sample}, but X requires gradients: sample the rows yourself and pass only those"
        )
    X = _drop_zero_rows(xp, X) if metric == "cosine" else X
    distances, indices = _neighbors(X, k, metric, sample, seed, max_memory)
    wide = accumulator_dtype(xp, X)
    if not carries_gradient(X):
        return asarray_like(xp, X, distances, wide)
    unit = scale_to_safe_range(to_numpy(X))[1]
    P = unit_rows(xp, X, wide) if metric == "cosine" else xp.astype(X, wide) * (1 / unit)
    others = xp.reshape(take(xp, P, indices.ravel()), (*indices.shape, X.shape[1]))
    step = others - P[:, None, :]
    return safe_sqrt(xp, xp.sum(step * step, axis=2)) * (1 if metric == "cosine" else unit)


def _drop_zero_rows(xp: Any, X: Array) -> Array:
    """Return the nonzero rows of X, and warn about zero rows, which have no direction."""
    some = nonzero_rows(X)
    if some.all():
        return X
    if not some.any():
        raise InputError(f"all {len(some)} rows of X are zero: they have no direction")
    warn_data(f"{int((~some).sum())} of {len(some)} rows are zero: they have no direction and are omitted")
    return take(xp, X, np.flatnonzero(some))


def _warn_duplicates(distances: np.ndarray, known: np.ndarray) -> None:
    """Warn about rows that have a duplicate or no estimate."""
    duplicated, left_out = int((distances[:, 0] <= 0).sum()), int((~known).sum())
    if duplicated or left_out:
        warn_data(
            f"{duplicated} of {len(distances)} rows have a duplicate; {left_out} rows yield no estimate and are omitted"
        )
