"""Isotropy measured by how little the partition function Z(c) = Σ exp(c·x) varies between directions c."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from isoscope._core.arrays import (
    accumulator_dtype,
    cast_result,
    check_not_traced,
    check_points,
    detach,
    is_traced,
    tiles,
    to_float,
    zeros,
)
from isoscope._core.errors import InputError, ParameterError

if TYPE_CHECKING:
    from isoscope._core.arrays import Array


def partition_isotropy(X: Array, *, signs: Literal["both", "plus"] = "both", log: bool = False) -> Array:
    """Return the partition isotropy of X, min Z(c)/max Z(c): 1 if isotropic, near 0 if one direction dominates.

    Z(c) = Σ exp(c·x), and c runs over the eigenvectors of XᵀX. Unlike IsoScore, the value depends on the scale of X
    and on the origin. It is computed in log space, so long vectors do not overflow. The gradient treats the
    eigenvectors as constants.

    Parameters
    ----------
    X : (n, d) array
        One row per vector.
    signs : {"both", "plus"}
        The sign of an eigenvector is arbitrary. "both" uses c and −c, which makes the value well defined. "plus" uses
        the sign that the eigensolver returns, as the published code does; the value can then depend on the machine.
    log : bool
        Return log(min Z/max Z), which stays finite even if the ratio underflows.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((1000, 32))
    >>> round(float(isoscope.partition_isotropy(0.1 * X)), 2), round(float(isoscope.partition_isotropy(X + 1)), 4)
    (0.98, 0.0)

    References
    ----------
    Arora et al., A latent variable model approach to PMI-based word embeddings, 2016; Mu and Viswanath, 2018.
    """
    if signs not in ("both", "plus"):
        raise ParameterError(f'signs is {signs!r}: need "both" or "plus"')
    xp, X = check_points(X)
    directions, null = _check_directions(xp, X)
    ratio = _log_ratio(xp, X, log_partition(xp, X, directions, both=signs == "both"), null)
    return cast_result(xp, X, ratio if log else xp.exp(ratio))


def log_ratios(X: Array) -> tuple[float, float]:
    """Return log(min Z/max Z) for signs="both" and for signs="plus", in one pass.

    >>> import numpy as np
    >>> both, one = log_ratios(np.random.default_rng(0).standard_normal((1000, 32)))
    >>> both <= one <= 0
    True
    """
    xp, X = check_points(X)
    directions, null = _check_directions(xp, X)
    logs = log_partition(xp, X, directions, both=True)
    one = logs[: directions.shape[1]]
    return to_float(_log_ratio(xp, X, logs, null)), to_float(_log_ratio(xp, X, one, null))


def _log_ratio(xp: Any, X: Array, logs: Array, null: bool) -> Array:
    if null:  # a direction orthogonal to all rows: n terms of e⁰
        logs = xp.concat([logs, zeros(xp, X, (1,)) + math.log(X.shape[0])])
    return xp.min(logs) - xp.max(logs)


def log_partition(xp: Any, X: Array, directions: Array, *, both: bool) -> Array:
    """Return log Σ exp(c·x) for each column c of `directions`; if `both` is True, then also for each −c."""
    wide = accumulator_dtype(xp, X)
    sums = [LogSum.of(xp, xp.astype(X[part, :], wide) @ directions, both=both) for part in tiles(X)]
    total = sums[0]
    for more in sums[1:]:
        total = total.plus(xp, more)
    return total.largest + xp.log(total.rest)


class LogSum(NamedTuple):
    """The sum Σ exp(c·x) over some rows, stored as exp(largest)·rest to avoid overflow; sums can be added."""

    largest: Array
    rest: Array

    @classmethod
    def of(cls, xp: Any, projected: Array, *, both: bool) -> LogSum:
        """Return the sum for an (m, directions) array of projections; `both` adds the opposite directions."""
        if both:
            projected = xp.concat([projected, -projected], axis=1)
        largest = detach(xp.max(projected, axis=0))
        return cls(largest, xp.sum(xp.exp(projected - largest), axis=0))

    def plus(self, xp: Any, other: LogSum) -> LogSum:
        """Return the sum over the rows of both."""
        largest = xp.maximum(self.largest, other.largest)
        some = largest > -math.inf  # the largest of no rows is −inf
        base = xp.where(some, largest, xp.zeros_like(largest))
        mine, theirs = xp.exp(self.largest - base), xp.exp(other.largest - base)
        return LogSum(largest, self.rest * mine + other.rest * theirs)


def _check_directions(xp: Any, X: Array) -> tuple[Array, bool]:
    if X.shape[0] < X.shape[1]:
        check_not_traced(X)  # the rank decides how many directions there are
    if not is_traced(X):
        longest = to_float(xp.max(xp.abs(X)))
        if longest == 0:
            raise InputError(f"all {X.shape[0]} rows of X are zero: they have no direction")
        if longest > 1e150:
            raise InputError(f"X has values up to {longest:.3g}: their squares overflow; rescale X to smaller values")
    return _directions(xp, X)


def _directions(xp: Any, X: Array) -> tuple[Array, bool]:
    """Return the eigenvectors of XᵀX as columns, without a gradient, and whether any direction is orthogonal to X."""
    n, d = X.shape
    wide = accumulator_dtype(xp, X)
    X = detach(X)
    if n >= d:
        moment = zeros(xp, X, (d, d))
        for part in tiles(X):
            rows = xp.astype(X[part, :], wide)
            moment = moment + rows.T @ rows
        return xp.linalg.eigh(moment)[1], False
    rows = xp.astype(X, wide)
    values, vectors = xp.linalg.eigh(rows @ rows.T)
    real = values > values[-1] * d * xp.finfo(wide).eps
    first = n - int(xp.count_nonzero(real))
    return rows.T @ (vectors[:, first:] / xp.sqrt(values[first:])), True
