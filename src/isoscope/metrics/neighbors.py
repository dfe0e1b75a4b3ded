"""What the nearest neighbours say of a cloud: its local dimension, and whether a few are everybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
    to_numpy,
    unit_rows,
)
from isoscope._core.errors import InputError, warn_data
from isoscope._core.pairs import MAX_MEMORY, nearest_neighbors, scale_to_safe_range

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


class Hubness(NamedTuple):
    """How unevenly rows turn up among the k nearest neighbours of others."""

    skewness: Array
    """Skewness of the k-occurrence: near 0 if all turn up alike, above 1 if a few hubs are near everything."""
    antihubs: Array
    """The share of rows that are nobody's neighbour: they can never be found."""
    largest: Array
    """How often the greatest hub turns up; k on average."""


def lid(
    X: Any,
    k: int = 100,
    *,
    metric: str = "euclidean",
    convention: str = "textbook",
    sample: int | None = None,
    seed: int = 0,
    max_memory: int = MAX_MEMORY,
) -> Array:
    """Local intrinsic dimension: along how many directions the k nearest neighbours of a point spread, on average.

    For a point with distances r₁ ≤ … ≤ r_k to its neighbors this is (k − 2)/Σ log(r_k/rᵢ), averaged over points. The
    sum has k − 1 random terms, so that k − 2 in the numerator makes the estimate unbiased; the maximum-likelihood
    estimate, with k − 1, is too large by (k − 1)/(k − 2).

    Parameters
    ----------
    X : (n, d) array
        One row for each vector, n > k.
    k : int
        How many neighbors: at least 3, for "cai" at least 2.
    metric : {"euclidean", "cosine"}
        The distance; for "cosine", the chord between the unit vectors.
    convention : {"textbook", "cai"}
        "textbook" is the unbiased estimate. "cai" gives the numbers of Cai et al.: k in place of k − 2, and half of
        that, since they put squared distances (and 1 − cos, half a squared chord) into the formula. Without duplicates
        it is k/(2(k − 2)) times the textbook value.
    sample : int, optional
        Average over so many random rows only; their neighbours are still sought among all.
    seed : int
        For that choice.
    max_memory : int
        Bytes for the tiles of pairs.

    Notes
    -----
    A neighbour at distance zero (a duplicate) says nothing of the dimension and is left out of its point's mean; a
    point whose neighbours are all at one distance has no estimate and is left out; so is a zero row for "cosine". A
    `DataWarning` counts them. With a gradient an (n, k, d) array is held: use batches then.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> plane = np.random.default_rng(0).random((2000, 2)) @ np.random.default_rng(1).standard_normal((2, 64))
    >>> round(float(isoscope.lid(plane, k=20)), 1)
    1.9

    References
    ----------
    Levina and Bickel, Maximum likelihood estimation of intrinsic dimension, 2004: k − 2 makes it unbiased, section 3.1.
    MacKay and Ghahramani, Comments on "Maximum likelihood estimation of intrinsic dimension", 2005.
    Amsaleg et al., Estimating local intrinsic dimensionality, 2015.
    """
    if convention not in ("textbook", "cai"):
        raise InputError(f'convention is {convention!r}: need "textbook" or "cai"')
    least = 2 if convention == "cai" else 3
    if check_integer(k, "k") < least:
        raise InputError(f"k is {k}: need {least} neighbours at least")
    xp, X = check_points(X, min_dims=1)
    distances = _neighbor_distances(xp, X, k, metric, sample, seed, max_memory)
    eps = float(xp.finfo(result_dtype(xp, X)).eps)
    estimates, known = local_dimensions(xp, distances, eps, unbiased=convention == "textbook")
    count = int(known.sum())
    if not count:
        raise InputError(
            f"no row of X has {k} neighbours at different distances: there is no local dimension to estimate"
        )
    _warn_duplicates(to_numpy(distances), known)
    mean = xp.sum(estimates) / count
    return cast_result(xp, X, mean / 2 if convention == "cai" else mean)


def local_dimensions(xp: Any, distances: Array, eps: float, *, unbiased: bool = True) -> tuple[Array, np.ndarray]:
    """Return each row's LID from the distances to its neighbors, nearest first, and which rows have one; others get 0.

    `eps` is that of the points: equal distances have ratios of 1 up to rounding. Of the t distances above zero the last
    is the reference, and Σ log(r_t/rᵢ) of the other t − 1 follows a gamma law of shape t − 1 and rate LID, whose
    inverse has the mean LID/(t − 2). `unbiased` multiplies by t − 2, otherwise by t as Cai et al. do.
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
    X: Any,
    *,
    discard: float = 0.1,
    sample: int | None = None,
    seed: int = 0,
    max_memory: int = MAX_MEMORY,
) -> Array:
    """Intrinsic dimension from two neighbours: how much farther the second is than the first.

    In d dimensions the ratio μ of the two distances follows 1 − μ^−d; the slope of −log(1−F) against log μ through the
    origin is the estimate.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    discard : float
        The share of largest ratios left out, which are the noisiest.
    sample : int, optional
        Use so many random rows only; their neighbours are still sought among all.
    seed : int
        For that choice.
    max_memory : int
        Bytes for the tiles of pairs.

    Notes
    -----
    A row with a duplicate has no ratio and is left out; a `DataWarning` counts them.

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
        raise InputError(f"discard is {discard}: need a share of at least 0 and below 1")
    xp, X = check_points(X, min_rows=3, min_dims=1)
    distances = _neighbor_distances(xp, X, 2, "euclidean", sample, seed, max_memory)
    value = two_nn_slope(xp, distances, float(xp.finfo(result_dtype(xp, X)).eps), discard)
    _warn_duplicates(to_numpy(distances), to_numpy(distances)[:, 0] > 0)
    return cast_result(xp, X, value)


def two_nn_slope(xp: Any, distances: Array, eps: float, discard: float) -> Array:
    """The slope of −log(1−F) against log μ, from each row's distances to its two nearest; `eps` of the points."""
    known = to_numpy(distances)[:, 0] > 0
    n = int(known.sum())
    kept = max(0, min(int(n * (1 - discard)), n - 1))  # the largest ratio has F = 1, whose logarithm is no height
    if kept < 2:
        raise InputError(f"{n} rows of X have no duplicate and {kept} of them are kept: need 2 at least")
    pairs = take(xp, distances, np.flatnonzero(known))
    logs = xp.log(pairs[:, 1] / pairs[:, 0])
    logs = take(xp, logs, np.argsort(to_numpy(logs), kind="stable")[:kept])
    heights = asarray_like(xp, distances, -np.log1p(-np.arange(1, kept + 1) / n), logs.dtype)
    if not float(to_numpy(logs)[-1]) > 8 * eps:
        raise InputError("all rows of X have two neighbours at the same distance: there is no dimension to estimate")
    return xp.sum(logs * heights) / xp.sum(logs * logs)


def hubness(
    X: Any,
    k: int = 10,
    *,
    metric: str = "euclidean",
    sample: int | None = None,
    seed: int = 0,
    max_memory: int = MAX_MEMORY,
) -> Hubness:
    """Whether a few rows are among the nearest neighbours of everything, and how many are never found.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector, n > k.
    k : int
        How many neighbours each row asks for.
    metric : {"euclidean", "cosine"}
        The distance.
    sample : int, optional
        Let so many random rows ask only. Fewer ask, so more rows are found by nobody: compare like with like.
    seed : int
        For that choice.
    max_memory : int
        Bytes for the tiles of pairs.

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
    """Skewness, share of rows that never turn up, and the most often one, from who is whose neighbour among n rows."""
    times = np.bincount(indices.ravel(), minlength=n).astype(np.float64)
    spread = times.std()
    skewness = ((times - times.mean()) ** 3).mean() / spread**3 if spread > 0 else 0.0
    return float(skewness), float((times == 0).mean()), float(times.max())


def _neighbors(
    X: Array, k: int, metric: str, sample: int | None, seed: int, max_memory: int
) -> tuple[np.ndarray, np.ndarray]:
    """Distances and indices of the k nearest, on the host."""
    n = X.shape[0]
    if metric not in ("euclidean", "cosine"):
        raise InputError(f'metric is {metric!r}: need "euclidean" or "cosine"')
    if not 1 <= k < n:
        raise InputError(f"k is {k} and X has {n} rows: need 1 ≤ k ≤ {n - 1}, a row has {n - 1} others")
    if sample is not None and not 1 <= check_integer(sample, "sample") <= n:
        raise InputError(f"sample is {sample} and X has {n} rows: need 1 ≤ sample ≤ {n}")
    rows = None
    if sample is not None and sample < n:
        rows = np.sort(np.random.default_rng(seed).choice(n, sample, replace=False))
    values = to_numpy(X)
    return nearest_neighbors(
        unit_rows(np, values, values.dtype) if metric == "cosine" else values, k, rows=rows, max_memory=max_memory
    )


def _neighbor_distances(
    xp: Any, X: Array, k: int, metric: str, sample: int | None, seed: int, max_memory: int
) -> Array:
    """Distances to the k nearest, nearest first, wide; through the points if X carries a gradient."""
    if carries_gradient(X) and sample is not None:
        raise InputError("sample is for measuring: with a gradient pass the rows that you mean")
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
    """The rows of X that are not zero; the others have no direction, are left out and counted."""
    some = nonzero_rows(X)
    if some.all():
        return X
    if not some.any():
        raise InputError(f"all {len(some)} rows of X are zero: they have no direction")
    warn_data(f"{int((~some).sum())} of {len(some)} rows are zero: they have no direction and are left out")
    return take(xp, X, np.flatnonzero(some))


def _warn_duplicates(distances: np.ndarray, known: np.ndarray) -> None:
    """Count the rows that have a duplicate and those that give no estimate."""
    duplicated, left_out = int((distances[:, 0] <= 0).sum()), int((~known).sum())
    if duplicated or left_out:
        warn_data(
            f"{duplicated} of {len(distances)} rows have a duplicate; {left_out} give no estimate and are left out"
        )
