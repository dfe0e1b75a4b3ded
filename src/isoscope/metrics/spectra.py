"""Measurements of how variance is distributed over dimensions: IsoScore, anisotropy and effective rank."""

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
    encode_labels,
    is_traced,
    result_dtype,
    to_float,
    to_numpy,
)
from isoscope._core.errors import InputError, ParameterError, ShapeError, TooFewRowsError
from isoscope._core.grouped_traces import MIN_GROUPS, jackknife_blocks, sum_groups
from isoscope.metrics.scatter import (
    CONSTANT_MESSAGE,
    centered_sums,
    central_point,
    check_variance,
    eigenvalues,
    leave_one_out,
    rescale,
    rescale_both,
    scale_free_sums,
)

if TYPE_CHECKING:
    from isoscope._core.arrays import Array, Groups
    from isoscope._core.grouped_traces import GroupSums


class Estimate(NamedTuple):
    """A value with a confidence interval, printed as ``0.99 [0.98, 1.00]``.

    Examples
    --------
    >>> print(Estimate(0.987, 0.976, 0.998))
    0.99 [0.98, 1.00]
    """

    value: Array
    """The estimate."""
    low: Array
    """The lower end of the interval."""
    high: Array
    """The upper end of the interval."""

    def __str__(self) -> str:
        value, low, high = (to_float(number) for number in self)
        width = high - low
        decimals = max(2, math.ceil(-math.log10(width))) if 0 < width < math.inf else 2
        return f"{value:.{decimals}f} [{low:.{decimals}f}, {high:.{decimals}f}]"

    def __repr__(self) -> str:
        return f"Estimate({self})"


def isoscore(X: Array, *, unbiased: bool = False, groups: Array | None = None) -> Array:
    """Return the IsoScore of X: 0 if all variance lies along one direction, 1 if it is equal in all d dimensions.

    IsoScore is (PR − 1)/(d − 1), where PR = (tr Σ)²/tr(Σ²) is the participation ratio of the covariance Σ. This equals
    the published five-step algorithm exactly, but needs no eigenvalues, and its gradient is never singular.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    unbiased : bool
        By default the covariance of the rows is used as it is (the plug-in value). That value is far too low unless n
        is much larger than d: for 64 rows of isotropic noise in 768 dimensions it is 0.07, and the true value is 1.
        True replaces both traces by unbiased estimators. This needs n ≥ 4, and assumes independent rows unless
        `groups` is given. The estimate varies around the true value, so it can slightly exceed 1; clipping it would
        bias it. A bias of order 1/n remains, because the score is a ratio of two unbiased estimates (see
        docs/estimators.md). As a loss, use for instance (1 − score)²: training can push a batch above 1.
    groups : (n,) labels, optional
        The group of each row, for rows that are not independent: the text of each token, or the document of each
        passage. The unbiased estimate then compares only rows of different groups. Every row has the same weight.
        Requires `unbiased=True` and at least 4 groups.

    Returns
    -------
    scalar array
        In the library, device and precision of X.

    See Also
    --------
    isoscore_interval : The same value with a confidence interval.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal((64, 768))
    >>> round(float(isoscope.isoscore(noise)), 2), round(float(isoscope.isoscore(noise, unbiased=True)), 2)
    (0.07, 0.94)

    Thirty texts of 50 tokens each. Tokens of one text resemble each other; the true value is 1:

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
    xp, X = check_points(X, min_rows=4 if unbiased else 2, finite=groups is not None)
    n, d = X.shape
    texts = _check_groups(groups, n, unbiased, MIN_GROUPS)
    if texts is not None:
        X, _, own = _grouped_sums(xp, X, texts)
        return cast_result(xp, X, formulas.isoscore(_grouped_traces(xp, own, n, d), d))
    X, sums = scale_free_sums(xp, X, wide=unbiased)
    traces = _traces(xp, n, d, sums.trace, sums.trace_squared, sums.quartic, unbiased)
    return cast_result(xp, X, formulas.isoscore(traces, d))


def isoscore_interval(
    X: Array, *, unbiased: bool = True, groups: Array | None = None, confidence: float = 0.95
) -> Estimate:
    """Return the unbiased IsoScore of X with a jackknife confidence interval.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    unbiased : bool
        True, the default here, uses the unbiased estimate and needs n ≥ 5. False uses the plug-in value of `isoscore`
        and needs n ≥ 3.
    groups : (n,) labels, optional
        The group of each row, for rows that are not independent; see `isoscore`. The jackknife then leaves out
        complete groups. Needs at least 5 groups.
    confidence : float
        The confidence level, between 0 and 1.

    Returns
    -------
    Estimate
        The named tuple (value, low, high). The ends of the interval carry no gradient. They are infinite if a single
        row accounts for all the variance.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> noise = np.random.default_rng(0).standard_normal((64, 768))
    >>> score = isoscope.isoscore_interval(noise)
    >>> print(score)
    0.94 [0.86, 1.03]
    >>> bool(score.low < 1 < score.high)
    True
    """
    xp, X = check_points(X, min_rows=5 if unbiased else 3)
    if not 0 < check_real(confidence, "confidence") < 1:
        raise ParameterError(f"confidence is {confidence}: need a number between 0 and 1, such as 0.95")
    n, d = X.shape
    texts = _check_groups(groups, n, unbiased, MIN_GROUPS + 1)
    if texts is not None:
        return _grouped_interval(xp, X, texts, confidence)
    X, sums = scale_free_sums(xp, X, wide=True)

    def score(n: int, trace: Array, trace_squared: Array, quartic: Array) -> Array:
        return formulas.isoscore(_traces(xp, n, d, trace, trace_squared, quartic, unbiased), d)

    value = cast_result(xp, X, score(n, sums.trace, sums.trace_squared, sums.quartic))
    left = leave_one_out(xp, X, sums)
    rounding = 64 * n * float(xp.finfo(left.trace.dtype).eps)
    if to_float(xp.min(left.trace)) <= rounding * to_float(sums.trace):
        low, high = -math.inf, math.inf  # one row accounts for all the variance
    else:
        scores = score(n - 1, *left)
        spread = to_float(xp.sum((scores - xp.mean(scores)) ** 2) * (n - 1) / n) ** 0.5
        low, high = formulas.student_interval(to_float(value), spread, confidence, n - 1)
    return Estimate(value, asarray_like(xp, X, low), asarray_like(xp, X, high))


def _traces(
    xp: Any, n: int, d: int, trace: Array, trace_squared: Array, quartic: Array, unbiased: bool
) -> formulas.Traces:
    """Return (tr Σ)² and tr(Σ²), computed from tr W, tr(W²) and Σ‖y‖⁴."""
    if not unbiased:
        return formulas.covariance_traces(n, trace, trace_squared)
    estimates = formulas.unbiased_traces(n, trace, trace_squared, quartic)
    return formulas.clip_traces(xp, estimates, (trace / (n - 1)) ** 2, n, d)


def _check_groups(groups: Array | None, n: int, unbiased: bool, min_groups: int) -> Groups | None:
    """Check the groups; return None if there are none, or if each group has one row, so that rows are independent."""
    if groups is None:
        return None
    if not unbiased:
        raise ParameterError("groups has no effect on the plug-in estimate: pass unbiased=True too, or omit groups")
    texts = encode_labels(groups, n, name="groups")
    if len(texts.names) < min_groups:
        raise TooFewRowsError(
            f"groups has {len(texts.names)} distinct values: need at least {min_groups}, because the estimate "
            "compares rows from different groups; use more texts or documents"
        )
    return None if len(texts.names) == n else texts


def _grouped_interval(xp: Any, X: Array, texts: Groups, confidence: float) -> Estimate:
    n, d = X.shape
    X, center, sums = _grouped_sums(xp, X, texts)
    value = cast_result(xp, X, formulas.isoscore(_grouped_traces(xp, sums, n, d), d))
    rows, middle = to_numpy(X), to_numpy(center).astype(np.float64)  # the interval carries no gradient
    total = sum_groups(np, rows, middle, texts.codes, texts.counts)
    left = []
    for codes in jackknife_blocks(texts):
        rest = total - sum_groups(np, rows, middle, codes, texts.counts)
        left.append(float(formulas.isoscore(_grouped_traces(np, rest, n, d), d)))
    low, high = formulas.student_interval(to_float(value), formulas.jackknife_error(left), confidence, len(left) - 1)
    return Estimate(value, asarray_like(xp, X, low), asarray_like(xp, X, high))


def _grouped_sums(xp: Any, X: Array, texts: Groups) -> tuple[Array, Array, GroupSums]:
    """Return X, which may be rescaled to avoid overflow, a central point, and the sums over each group of rows."""
    if not is_traced(X):
        X = rescale(xp, X, X - X[:1, :])
    center = central_point(xp, X, accumulator_dtype(xp, X))
    sums = sum_groups(xp, X, center, texts.codes, texts.counts)
    check_variance(sums.plug_in(xp), X.shape[0])
    return X, center, sums


def _grouped_traces(xp: Any, sums: GroupSums, n: int, d: int) -> formulas.Traces:
    return formulas.clip_traces(xp, sums.traces(xp), sums.plug_in(xp), n, d)


def isoscore_star(X: Array, shrinkage: Array, zeta: float = 0.2) -> Array:
    """Return the IsoScore* of X: the IsoScore of its covariance after shrinkage toward the covariance `shrinkage`.

    IsoScore* is the IsoScore of (1−ζ)Σ_X + ζΣ_S. It varies little between small batches, but the choice of ζ and Σ_S
    biases it. It needs only traces: tr Σ_X, tr Σ_S, ‖Σ_X‖², ⟨Σ_X, Σ_S⟩ and ‖Σ_S‖².

    Parameters
    ----------
    X : (n, d) array
        One row per vector, n ≥ 2.
    shrinkage : (d, d) array
        The covariance Σ_S, usually of a large sample of the same space (`Sketch.covariance`).
    zeta : float
        The weight ζ of Σ_S: 0 gives `isoscore(X)`, 1 the IsoScore of Σ_S.

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
        raise ParameterError(f"zeta is {zeta}: need a number between 0 and 1")
    S_xp, S = check_points(shrinkage, name="shrinkage")
    if tuple(S.shape) != (d, d):
        raise ShapeError(f"shrinkage has shape {tuple(S.shape)} but X has {d} columns: need shape ({d}, {d})")
    if zeta == 0:
        sums = scale_free_sums(xp, X, wide=False)[1]
        return cast_result(xp, X, formulas.isoscore(formulas.covariance_traces(n, sums.trace, sums.trace_squared), d))
    S = S if S_xp is xp else asarray_like(xp, X, to_numpy(S), accumulator_dtype(xp, X))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        traces = _shrunk_traces(xp, X, S, zeta)
    if not is_traced(X) and not 1e-12 < to_float(traces.squared_trace) < 1e12:  # its squares may be out of range
        traces = _shrunk_traces(xp, *rescale_both(xp, X, S), zeta)
    if not is_traced(X) and not to_float(traces.squared_trace) > 0:
        raise InputError(f"the {n} rows of X combined with shrinkage at zeta={zeta} have zero variance")
    return cast_result(xp, X, formulas.isoscore(traces, d))


def _shrunk_traces(xp: Any, X: Array, S: Array, zeta: float) -> formulas.Traces:
    """Return the traces of (1−ζ)Σ_X + ζΣ_S without forming that matrix."""
    n = X.shape[0]
    S = xp.astype(S, result_dtype(xp, X), copy=False)
    wide = accumulator_dtype(xp, X)
    sums = centered_sums(xp, X, wide=False)
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


def participation_ratio(X: Array, *, unbiased: bool = False, groups: Array | None = None) -> Array:
    """Return the participation ratio of X, its effective number of dimensions: 1 on a line, d if isotropic.

    The participation ratio is (tr Σ)²/tr(Σ²) of the covariance Σ.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    unbiased : bool
        Replace both traces by unbiased estimators, as in `isoscore`; needs n ≥ 4. This equals the estimator that
        Chun et al. (2026) call "row". The estimate can slightly exceed d.
    groups : (n,) labels, optional
        The group of each row, for rows that are not independent; see `isoscore`.

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
    xp, X = check_points(X, min_rows=4 if unbiased else 2, finite=groups is not None)
    n, d = X.shape
    texts = _check_groups(groups, n, unbiased, MIN_GROUPS)
    if texts is not None:
        X, _, own = _grouped_sums(xp, X, texts)
        return cast_result(xp, X, formulas.participation_ratio(_grouped_traces(xp, own, n, d)))
    if not unbiased:
        return cast_result(xp, X, unchecked_participation_ratio(xp, X))
    X, sums = scale_free_sums(xp, X, wide=True)
    traces = _traces(xp, n, d, sums.trace, sums.trace_squared, sums.quartic, unbiased)
    return cast_result(xp, X, formulas.participation_ratio(traces))


def unchecked_participation_ratio(xp: Any, X: Array) -> Array:
    """Return the participation ratio of rows that are already checked, in the precision of the sums."""
    sums = scale_free_sums(xp, X, wide=False)[1]
    return sums.trace**2 / sums.trace_squared


def spectrum(X: Array, *, center: bool = True) -> Array:
    """Return the squared singular values σ² of X, largest first: the variance along each principal axis, times n − 1.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    center : bool
        True subtracts the mean first; σ²/(n−1) are then the eigenvalues of the covariance. False keeps the mean.

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
    return cast_result(xp, X, eigenvalues(xp, X, center))


def anisotropy(X: Array, k: int = 3, *, center: bool = False) -> Array:
    """Return the shares of variance along the k leading principal axes: near 1/d if isotropic, 1 on a line.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    k : int
        The number of axes: the result is anisotropy_1 … anisotropy_k.
    center : bool
        False, as published, keeps the mean, which then counts as a direction of its own. True subtracts the mean and
        returns the shares of the covariance.

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
        raise ParameterError(
            f"k is {k}, but X of shape {tuple(X.shape)} has {min(X.shape)} principal axes: need 1 ≤ k ≤ {min(X.shape)}"
        )
    values = eigenvalues(xp, X, center, scale_free=True)
    if not is_traced(X) and not to_float(xp.sum(values)) > 0:
        raise InputError(
            CONSTANT_MESSAGE.format(n=X.shape[0]) if center else "all rows of X are zero: they have no variance"
        )
    return cast_result(xp, X, formulas.anisotropy(xp, values, k))


def effective_rank(X: Array, *, center: bool = True) -> Array:
    """Return the effective rank of X, from 1 to min(n, d): the effective number of axes, exp of the entropy of σ²/Σσ².

    Weak axes count more than in `participation_ratio`. Roy and Vetterli (2007) use the entropy of the singular values;
    this function uses the entropy of the variances, which are their squares.

    The value is too low unless n is much larger than d, and no unbiased version exists: entropy is not a polynomial of
    the covariance, so no average over tuples of rows estimates it. For small n use
    ``participation_ratio(X, unbiased=True)``, the same count based on the entropy of order 2.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    center : bool
        True subtracts the mean first. False keeps it, and it then counts as a direction of its own.

    Examples
    --------
    >>> import isoscope
    >>> round(float(isoscope.effective_rank([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])), 6)
    2.0
    """
    xp, X = check_points(X)
    values = eigenvalues(xp, X, center, scale_free=True)
    check_variance(xp.sum(values), X.shape[0])
    return cast_result(xp, X, formulas.effective_rank(xp, values))
