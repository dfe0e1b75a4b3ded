"""How the variance of a cloud is shared among its dimensions: IsoScore, anisotropy, effective rank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import (
    accumulator_dtype,
    asarray_like,
    cast_result,
    check_integer,
    check_points,
    check_real,
    detach,
    is_traced,
    result_dtype,
    tiles,
    to_float,
    to_numpy,
    zeros,
)
from isoscope._core.arrays import encode_labels as grouped
from isoscope._core.errors import InputError
from isoscope._core.formulas import Moments
from isoscope._core.grouped_traces import MIN_GROUPS, jackknife_blocks, sum_groups

if TYPE_CHECKING:
    from isoscope._core.arrays import Array, Groups
    from isoscope._core.grouped_traces import GroupSums

_CONSTANT_MESSAGE = "all {n} rows of X are equal: there is no variance to share among the dimensions"


class Estimate(NamedTuple):
    """A value with the ends of its confidence interval."""

    value: Array
    low: Array
    high: Array


def isoscore(
    X: Any, *, unbiased: bool = False, groups: Any = None, return_interval: bool = False, confidence: float = 0.95
) -> Array | Estimate:
    """Return the IsoScore of X, how evenly its variance fills the d dimensions: 0 is a line, 1 a ball.

    Equals (PR − 1)/(d − 1), with PR = (tr Σ)²/tr(Σ²) the participation ratio of the covariance Σ. That is exactly
    what the published five steps come to, without the eigenvalues and with a gradient that is never singular.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    unbiased : bool
        The plug-in value is far too low unless n is much larger than d (0.07 for 64 rows of pure noise in 768
        dimensions, where the truth is 1). True replaces both traces by their unbiased estimators; needs n ≥ 4 and
        assumes independent rows unless `groups` says otherwise. This is the row-corrected participation ratio of
        Chun et al. (2026). The estimate scatters around the truth and so can pass 1 a little; it is not cut off,
        which would bias it. (As a ratio of two unbiased estimates it keeps a bias of order 1/n: see
        docs/estimators.md.) As a loss, aim at 1, for instance with (1 − score)²: a batch can be trained to read above
        1, up to a bound without slope.
    groups : (n,) labels, optional
        The group of each row, for rows that are not independent: the text of each token, the document of each
        passage. The unbiased estimate then uses only rows from different groups, and the interval leaves out whole
        groups. Every row has the same weight. Needs `unbiased=True` and 4 groups, 5 for an interval.
    return_interval : bool
        Return an `Estimate` with a jackknife confidence interval. The ends carry no gradient.
    confidence : float
        The share of samples whose interval should hold the truth.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal((64, 768))
    >>> round(float(isoscope.isoscore(noise)), 2), round(float(isoscope.isoscore(noise, unbiased=True)), 2)
    (0.07, 0.94)
    >>> value, low, high = isoscope.isoscore(noise, unbiased=True, return_interval=True)
    >>> bool(low < 1 < high)
    True

    Thirty texts of 50 tokens that share most of what they say; the truth is 1:

    >>> text = np.repeat(np.arange(30), 50)
    >>> tokens = 2 * rng.standard_normal((30, 64))[text] + rng.standard_normal((1500, 64))
    >>> round(float(isoscope.isoscore(tokens, unbiased=True)), 2)
    0.4
    >>> round(float(isoscope.isoscore(tokens, unbiased=True, groups=text)), 2)
    0.96

    References
    ----------
    Rudman et al., IsoScore: Measuring the uniformity of embedding space utilization, 2022.
    Himeno and Yamada, Estimations for some functions of covariance matrix in high dimension, 2014.
    Chun, Canatar, Chung and Lee, Estimating dimensionality of neural representations from finite samples, ICLR 2026.
    """
    least = 4 if unbiased else 2
    xp, X = check_points(X, min_rows=least + 1 if return_interval else least)
    if not 0 < check_real(confidence, "confidence") < 1:
        raise InputError(f"confidence is {confidence}: need a number between 0 and 1, such as 0.95")
    n, d = X.shape
    found = _check_groups(groups, n, unbiased, MIN_GROUPS + 1 if return_interval else MIN_GROUPS)
    if found is not None:
        return _grouped_isoscore(xp, X, found, confidence if return_interval else None)
    X, sums = _scale_free_sums(xp, X, wide=unbiased or return_interval)

    def score(n: int, trace: Array, trace_squared: Array, quartic: Array) -> Array:
        return formulas.isoscore(_traces(xp, n, d, trace, trace_squared, quartic, unbiased), d)

    value = cast_result(xp, X, score(n, sums.trace, sums.trace_squared, sums.quartic))
    if not return_interval:
        return value
    left = _leave_one_out(xp, X, sums)
    rounding = 64 * n * float(xp.finfo(left.trace.dtype).eps)
    if to_float(xp.min(left.trace)) <= rounding * to_float(sums.trace):
        low, high = -math.inf, math.inf  # one row makes all the variance: nothing can be said
    else:
        scores = score(n - 1, *left)
        spread = to_float(xp.sum((scores - xp.mean(scores)) ** 2) * (n - 1) / n) ** 0.5
        low, high = formulas.student_interval(to_float(value), spread, confidence, n - 1)
    return Estimate(value, asarray_like(xp, X, low), asarray_like(xp, X, high))


def _traces(
    xp: Any, n: int, d: int, trace: Array, trace_squared: Array, quartic: Array, unbiased: bool
) -> formulas.Traces:
    """Return both traces from tr W, tr(W²) and Σ‖y‖⁴."""
    if not unbiased:
        return formulas.covariance_traces(n, trace, trace_squared)
    estimates = formulas.unbiased_traces(n, trace, trace_squared, quartic)
    return formulas.clip_traces(xp, estimates, (trace / (n - 1)) ** 2, n, d)


def _check_groups(groups: Any, n: int, unbiased: bool, least: int) -> Groups | None:
    """Return the checked groups; None if there are none, or if each has one row and rows are independent after all."""
    if groups is None:
        return None
    if not unbiased:
        raise InputError("groups is given without unbiased=True: the plug-in value does not depend on groups")
    found = grouped(groups, n, name="groups")
    if len(found.names) < least:
        raise InputError(
            f"groups has {len(found.names)} different values: need at least {least}, since the estimate compares rows "
            "of different groups; take more texts or documents"
        )
    return None if len(found.names) == n else found


def _grouped_isoscore(xp: Any, X: Array, found: Groups, confidence: float | None) -> Array | Estimate:
    """Return the score of checked rows in checked groups, with an interval if a confidence is given."""
    n, d = X.shape
    X, centre, sums = _grouped_sums(xp, X, found)
    value = cast_result(xp, X, formulas.isoscore(_grouped_traces(xp, sums, n, d), d))
    if confidence is None:
        return value
    rows, middle = to_numpy(X), to_numpy(centre).astype(np.float64)  # the interval carries no gradient
    total = sum_groups(np, rows, middle, found.codes, found.counts)
    left = []
    for codes in jackknife_blocks(found):
        rest = total - sum_groups(np, rows, middle, codes, found.counts)
        left.append(float(formulas.isoscore(_grouped_traces(np, rest, n, d), d)))
    low, high = formulas.student_interval(to_float(value), formulas.jackknife_error(left), confidence, len(left) - 1)
    return Estimate(value, asarray_like(xp, X, low), asarray_like(xp, X, high))


def _grouped_sums(xp: Any, X: Array, found: Groups) -> tuple[Array, Array, GroupSums]:
    """Return X, scaled where its squares would leave the range, a point amid it, and the sums of its groups."""
    if not is_traced(X):
        X = _rescale(xp, X, X - X[:1, :])
    centre = _pivot(xp, X, accumulator_dtype(xp, X))
    sums = sum_groups(xp, X, centre, found.codes, found.counts)
    _check_variance(sums.plug_in(xp), X.shape[0])
    return X, centre, sums


def _grouped_traces(xp: Any, sums: GroupSums, n: int, d: int) -> formulas.Traces:
    return formulas.clip_traces(xp, sums.traces(xp), sums.plug_in(xp), n, d)


def isoscore_star(X: Any, shrinkage: Any, zeta: float = 0.2) -> Array:
    """IsoScore of the covariance of X pulled towards a given one: stable on small batches, biased by the choice.

    The score of (1−ζ)Σ_X + ζΣ_S. By traces alone: tr, ‖Σ_X‖², ⟨Σ_X, Σ_S⟩ and ‖Σ_S‖² are all it needs.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector, n ≥ 2.
    shrinkage : (d, d) array
        The covariance Σ_S, usually of a large sample of the same space (`Sketch.covariance`).
    zeta : float
        How much of Σ_S goes in: 0 is `isoscore(X)`, 1 the score of Σ_S.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> batch = np.random.default_rng(0).standard_normal((64, 768))
    >>> round(float(isoscope.isoscore_star(batch, np.eye(768), zeta=0.75)), 2)
    0.56

    References
    ----------
    Rudman and Eickhoff, Stable anisotropic regularization, 2024.
    """
    xp, X = check_points(X)
    n, d = X.shape
    if not 0 <= check_real(zeta, "zeta") <= 1:
        raise InputError(f"zeta is {zeta}: need a share between 0 and 1")
    S_xp, S = check_points(shrinkage, name="shrinkage")
    if tuple(S.shape) != (d, d):
        raise InputError(f"shrinkage has shape {tuple(S.shape)}: X has {d} columns, need ({d}, {d})")
    if zeta == 0:
        sums = _scale_free_sums(xp, X, wide=False)[1]
        return cast_result(xp, X, formulas.isoscore(formulas.covariance_traces(n, sums.trace, sums.trace_squared), d))
    S = S if S_xp is xp else asarray_like(xp, X, to_numpy(S), accumulator_dtype(xp, X))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        traces = _shrunk_traces(xp, X, S, zeta)
    if not is_traced(X) and not 1e-12 < to_float(traces.squared_trace) < 1e12:  # squares of it may have left the range
        traces = _shrunk_traces(xp, *_rescale_both(xp, X, S), zeta)
    if not is_traced(X) and not to_float(traces.squared_trace) > 0:
        raise InputError(f"neither the {n} rows of X nor shrinkage have any variance at zeta={zeta}")
    return cast_result(xp, X, formulas.isoscore(traces, d))


def _shrunk_traces(xp: Any, X: Array, S: Array, zeta: float) -> formulas.Traces:
    """The traces of (1−ζ)Σ_X + ζΣ_S, without forming it."""
    n = X.shape[0]
    S = xp.astype(S, result_dtype(xp, X), copy=False)
    wide = accumulator_dtype(xp, X)
    sums = _centered_sums(xp, X, wide=False)
    if sums.rows is not None:
        inner = xp.sum((sums.rows @ S) * sums.rows, dtype=wide)
    else:
        inner = xp.sum(sums.matrix * xp.astype(S, wide))
    return formulas.shrunk_traces(
        zeta,
        sums.trace / (n - 1),
        sums.trace_squared / (n - 1) ** 2,
        xp.sum(xp.linalg.diagonal(S), dtype=wide),
        xp.sum(xp.linalg.vector_norm(S, axis=1) ** 2, dtype=wide),
        inner / (n - 1),
    )


def participation_ratio(X: Any, *, unbiased: bool = False, groups: Any = None) -> Array:
    """Return how many dimensions share the variance of X: from 1, a line, to d, a ball.

    (tr Σ)²/tr(Σ²) of the covariance Σ.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    unbiased : bool
        Replace both traces by their unbiased estimators, as `isoscore` does; needs n ≥ 4. This equals the estimator
        that Chun et al. (2026) call "row". The value can pass d a little.
    groups : (n,) labels, optional
        The group of each row, for rows that are not independent: see `isoscore`.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> disk = [[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]]
    >>> float(isoscope.participation_ratio(disk))
    2.0
    >>> noise = np.random.default_rng(0).standard_normal((64, 768))
    >>> [round(float(isoscope.participation_ratio(noise, unbiased=unbiased))) for unbiased in (False, True)]
    [58, 724]

    References
    ----------
    Chun, Canatar, Chung and Lee, Estimating dimensionality of neural representations from finite samples, ICLR 2026.
    """
    xp, X = check_points(X, min_rows=4 if unbiased else 2)
    n, d = X.shape
    found = _check_groups(groups, n, unbiased, MIN_GROUPS)
    if found is not None:
        X, _, own = _grouped_sums(xp, X, found)
        return cast_result(xp, X, formulas.participation_ratio(_grouped_traces(xp, own, n, d)))
    if not unbiased:
        return cast_result(xp, X, unchecked_participation_ratio(xp, X))
    X, sums = _scale_free_sums(xp, X, wide=True)
    traces = _traces(xp, n, d, sums.trace, sums.trace_squared, sums.quartic, unbiased)
    return cast_result(xp, X, formulas.participation_ratio(traces))


def unchecked_participation_ratio(xp: Any, X: Array) -> Array:
    """The participation ratio of a checked cloud, in the accumulator's precision."""
    sums = _scale_free_sums(xp, X, wide=False)[1]
    return sums.trace**2 / sums.trace_squared


def spectrum(X: Any, *, center: bool = True) -> Array:
    """The variance along each principal axis of X, largest first: the squared singular values σ², as sums over rows.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    center : bool
        True takes the mean out first: σ²/(n−1) are then the eigenvalues of the covariance. False keeps it in.

    Returns
    -------
    (min(n, d),) array

    Examples
    --------
    >>> import isoscope
    >>> isoscope.spectrum([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).tolist()
    [18.0, 2.0]
    """
    xp, X = check_points(X)
    return cast_result(xp, X, _spectrum(xp, X, center))


def anisotropy(X: Any, k: int = 3, *, center: bool = False) -> Array:
    """The share of all variance that lies along each of the k strongest axes: near 1/d each in a ball, 1 on a line.

    Parameters
    ----------
    X : (n, d) array
        One row for each vector.
    k : int
        How many axes: anisotropy_1 … anisotropy_k.
    center : bool
        False, as published, counts the mean as an axis of its own; True gives the shares of the covariance.

    Returns
    -------
    (k,) array

    Examples
    --------
    >>> import isoscope
    >>> isoscope.anisotropy([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], k=2).tolist()
    [0.9, 0.1]

    References
    ----------
    Razzhigaev et al., The shape of learning, 2024.
    """
    xp, X = check_points(X, min_rows=1 if not center else 2)
    if not 1 <= check_integer(k, "k") <= min(X.shape):
        raise InputError(f"k is {k}: X of shape {tuple(X.shape)} has {min(X.shape)} axes, need 1 ≤ k ≤ {min(X.shape)}")
    values = _spectrum(xp, X, center, scale_free=True)
    if not is_traced(X) and not to_float(xp.sum(values)) > 0:
        raise InputError(
            _CONSTANT_MESSAGE.format(n=X.shape[0]) if center else "all rows of X are zero: there is nothing to share"
        )
    return cast_result(xp, X, formulas.anisotropy(xp, values, k))


def effective_rank(X: Any, *, center: bool = True) -> Array:
    """How many axes the spectrum of X amounts to: exp of the entropy of σ²/Σσ², from 1 to min(n, d).

    It counts weak axes more than `participation_ratio` does. Roy and Vetterli (2007) take the entropy of the singular
    values; this is the entropy of the variances, their squares.

    The value is too low unless n is much larger than d, and it has no unbiased counterpart: the entropy is not a
    polynomial of the covariance, so no average over tuples of rows estimates it. Where n is not large, use
    ``participation_ratio(X, unbiased=True)``, the same count with the entropy of order 2.

    Examples
    --------
    >>> import isoscope
    >>> round(float(isoscope.effective_rank([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])), 6)
    2.0
    """
    xp, X = check_points(X)
    values = _spectrum(xp, X, center, scale_free=True)
    _check_variance(xp.sum(values), X.shape[0])
    return cast_result(xp, X, formulas.effective_rank(xp, values))


class _CenteredSums(NamedTuple):
    """tr W, tr(W²) and Σ‖y‖⁴ of a cloud, and where its mean lies: at pivot + drift."""

    pivot: Array
    drift: Array
    trace: Array
    trace_squared: Array
    quartic: Array | None
    matrix: Array  # W, or the Gram matrix YYᵀ where that is smaller: they share trace and square
    rows: Array | None = None  # Y itself, where the Gram matrix was taken


def _scale_free_sums(xp: Any, X: Array, *, wide: bool) -> tuple[Array, _CenteredSums]:
    """The sums for a score that does not depend on scale, of X scaled where its squares would leave the range."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums = _centered_sums(xp, X, wide=wide)
    if is_traced(X):
        return X, sums
    low, high = (1e-140, 1e140) if wide or X.dtype == xp.float64 else (1e-30, 1e37)
    if not low < to_float(sums.trace) < high:
        X = _rescale(xp, X, X - X[:1, :])
        sums = _centered_sums(xp, X, wide=wide)
        _check_variance(sums.trace, X.shape[0])
    return X, sums


def _rescale(xp: Any, X: Array, by: Array) -> Array:
    """X times a power of two that brings the largest value of `by` near 1, unless it is an ordinary number."""
    exponent = 0 if is_traced(X) else _exponent(xp, by)
    return X if -50 < exponent < 50 else xp.astype(X, result_dtype(xp, X)) * _power_of_two(xp, X, exponent)


def _rescale_both(xp: Any, X: Array, S: Array) -> tuple[Array, Array]:
    """X and a covariance in the same unit, a power of two in which the fourth powers of X stay in range."""
    exponent = max(_exponent(xp, X - X[:1, :]), _exponent(xp, xp.linalg.diagonal(S)) // 2)
    if -25 < exponent < 25:
        return X, S
    unit = _power_of_two(xp, X, exponent)
    return xp.astype(X, result_dtype(xp, X)) * unit, S * unit * unit


def _exponent(xp: Any, X: Array) -> int:
    """The binary exponent of the largest value; a very small one if all are zero."""
    largest = to_float(xp.max(xp.abs(X)))
    return math.frexp(largest)[1] if largest > 0 else -1000


def _power_of_two(xp: Any, X: Array, exponent: int) -> float:
    """The power of two that undoes an exponent, as far as X's precision holds it."""
    most = 1000 if result_dtype(xp, X) == xp.float64 else 120
    return float(2.0 ** min(most, max(-most, -exponent)))


def _centered_sums(xp: Any, X: Array, *, wide: bool) -> _CenteredSums:
    """One pass over the tiles of X, held near the origin by a pivot so that a large mean does not eat the digits.

    `wide` multiplies in float64 and gives Σ‖y‖⁴ too. Otherwise each tile is multiplied in X's own precision and the
    products are added up in float64, which is twice as fast and good to about 1e-6 in float32.
    """
    n, d = X.shape
    sums = accumulator_dtype(xp, X)
    dtype = sums if wide else result_dtype(xp, X)
    if n <= d:
        pivot = xp.astype(detach(X[0, :]), dtype, copy=False)
        y = xp.astype(X, dtype, copy=False) - pivot
        drift = xp.mean(y, axis=0)
        y = y - drift
        matrix = xp.astype(y @ y.T, sums, copy=False)
        r = xp.linalg.diagonal(matrix)
        return _CenteredSums(pivot, drift, xp.sum(r), xp.sum(matrix * matrix), xp.sum(r * r), matrix, y)

    pivot = _pivot(xp, X, dtype)
    matrix = zeros(xp, X, (d, d))
    total = zeros(xp, X, (d,))
    quartic = zeros(xp, X, ())
    cubic = total
    for part in tiles(X, itemsize=8 if wide else 4):
        y = xp.astype(X[part, :], dtype, copy=False) - pivot
        matrix = matrix + xp.astype(y.T @ y, sums, copy=False)
        total = total + xp.astype(xp.sum(y, axis=0), sums, copy=False)
        if wide:
            r = xp.sum(y * y, axis=1)
            quartic = quartic + xp.sum(r * r)
            cubic = cubic + r @ y
    drift = total / n
    if wide:
        about_mean = Moments(total, matrix, cubic, quartic).shift_rows(xp, n, -drift)
        matrix, quartic = about_mean.scatter, about_mean.quartic
    else:
        matrix = matrix - n * (drift[:, None] * drift[None, :])
    trace = xp.sum(xp.linalg.diagonal(matrix))
    return _CenteredSums(pivot, drift, trace, xp.sum(matrix * matrix), quartic if wide else None, matrix)


def _pivot(xp: Any, X: Array, dtype: Any) -> Array:
    """A point amid the cloud: the first row, moved by the mean of a few hundred others. Equal rows give it exactly.

    Any point is right, so that no gradient goes through it.
    """
    few = xp.astype(detach(X[:: max(1, X.shape[0] // 512), :]), accumulator_dtype(xp, X))
    return xp.astype(few[0, :] + xp.mean(few - few[0, :], axis=0), dtype)


def _leave_one_out(xp: Any, X: Array, sums: _CenteredSums) -> formulas.LeaveOneOutSums:
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
        # yᵀWy: from the Gram matrix it is the row's sum of squares
        q.append(xp.sum(sums.matrix[part, :] ** 2, axis=1) if n <= d else xp.sum((y @ sums.matrix) * y, axis=1))
        s.append(y @ cubic)
    return formulas.leave_one_out(
        n, sums.trace, sums.trace_squared, sums.quartic, xp.concat(r), xp.concat(q), xp.concat(s)
    )


def _spectrum(xp: Any, X: Array, center: bool, *, scale_free: bool = False) -> Array:
    """Eigenvalues of the smaller of XXᵀ and XᵀX, largest first; rounding below zero is cut off.

    `scale_free` lets X be scaled where its squares would leave the range: for shares, where the unit does not matter.
    """
    if not center and not is_traced(X):
        far = _far_spectrum(xp, X)
        if far is not None:
            return far
    with np.errstate(over="ignore", invalid="ignore"):
        matrix = _moment(xp, X, center)
    if scale_free and not is_traced(X) and not 1e-140 < to_float(xp.sum(xp.linalg.diagonal(matrix))) < 1e140:
        matrix = _moment(xp, _rescale(xp, X, X - X[:1, :] if center else X), center)
    if not is_traced(X) and not math.isfinite(to_float(xp.sum(xp.linalg.diagonal(matrix)))):
        raise InputError("the squares of X overflow: scale X down")
    values = xp.flip(xp.linalg.eigvalsh(matrix), axis=0)
    return xp.where(values > 0, values, xp.zeros_like(values))


def _far_spectrum(xp: Any, X: Array) -> Array | None:
    """Return the raw spectrum if the mean is so far that it would take the digits of all but the first; else None."""
    n, d = X.shape
    few = xp.astype(detach(X[:: max(1, n // 512), :]), accumulator_dtype(xp, X))
    middle = xp.mean(few, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = to_float(xp.sum((few - middle) ** 2)) / few.shape[0]
        if not to_float(xp.sum(middle * middle)) > formulas.FAR_MEAN / 4 * spread:  # a glance at some rows rules it out
            return None
        sums = _centered_sums(xp, X, wide=True)
        mean = sums.pivot + sums.drift
        trace, square = to_float(sums.trace), n * to_float(xp.sum(mean * mean))
    if not (trace > 1e-140 and formulas.FAR_MEAN * trace < square < 1e140):
        return None
    if sums.rows is None:
        return formulas.spectrum_about_far_mean(xp, sums.matrix, n, mean)
    values = formulas.spectrum_about_far_mean(xp, sums.rows.T @ sums.rows, n, mean)
    return values[: min(n, d)]


def _moment(xp: Any, X: Array, center: bool) -> Array:
    """The smaller of XXᵀ and XᵀX, of the centred X or of X as it is, in float64."""
    n, d = X.shape
    if n <= d and not center:
        wide = xp.astype(X, accumulator_dtype(xp, X), copy=False)
        return wide @ wide.T
    sums = _centered_sums(xp, X, wide=True)
    mean = sums.pivot + sums.drift
    return sums.matrix if center else sums.matrix + n * (mean[:, None] * mean[None, :])


def _check_variance(trace: Array, n: int) -> None:
    if not is_traced(trace) and not to_float(trace) > 0:
        raise InputError(_CONSTANT_MESSAGE.format(n=n))
