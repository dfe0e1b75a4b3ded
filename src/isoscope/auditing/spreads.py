"""How sure a measurement is: standard errors of what a sketch gives, from the influence of single rows.

The value comes from all n rows; how much one row moves it is seen on a sample of them. This is the (infinitesimal)
jackknife: the interval speaks of other rows from the same source, not of the rows at hand, whose value is exact.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import unit_rows

if TYPE_CHECKING:
    from isoscope.sketching.sketch import Sketch


def mean_cosine_error(sketch: Sketch, rows: np.ndarray) -> float:
    """Of the mean cosine: it is a U-statistic, whose error is twice that of each row's mean cosine with the others."""
    units = unit_rows(np, rows, np.dtype(np.float64))
    others = (units @ sketch.unit_sum - (units * units).sum(axis=1)) / (sketch.n - 1)
    return 2 * float(others.std()) / math.sqrt(sketch.n)


def isoscore_error(sketch: Sketch, rows: np.ndarray) -> float:
    """Of the unbiased IsoScore: leave out each row in turn."""
    n, d = sketch.n, sketch.d
    if n < 5:
        return math.inf
    trace = np.trace(sketch.scatter)
    y = (rows - sketch.mean) / math.sqrt(trace)
    W, cubic = sketch.scatter / trace, sketch.cubic / trace**1.5
    r = (y * y).sum(axis=1)
    q = ((y @ W) * y).sum(axis=1)
    left = formulas.leave_one_out(n, 1.0, np.sum(W * W), sketch.quartic / trace**2, r, q, y @ cubic)
    if not left.trace.min() > 64 * n * np.finfo(np.float64).eps:
        return math.inf  # one row makes all the variance: nothing can be said
    traces = formulas.unbiased_traces(n - 1, left.trace, left.trace_squared, left.quartic)
    plug_in = left.trace**2 / (n - 2) ** 2
    scores = formulas.isoscore(formulas.clip_traces(np, traces, plug_in, n - 1, d), d)
    return float(np.std(scores)) * math.sqrt(n - 1)


def spectrum_share_error(values: np.ndarray, squares: np.ndarray, k: int, n: float) -> float:
    """Return the error of the first k directions' share of Σσ², from squared projections (m, d) on all directions.

    The projections are those of some of n rows, or sums over the rows of each of n independent blocks of rows.
    """
    share = values[:k].sum() / values.sum()
    influence = squares[:, :k].sum(axis=1) - share * squares.sum(axis=1)
    return float(influence.std()) * math.sqrt(n) / float(values.sum())


def effective_rank_error(values: np.ndarray, squares: np.ndarray, n: float) -> float:
    """Of exp(entropy of the spectrum): dH = −Σ(ln p + H)dλ/Σλ."""
    p = values / values.sum()
    some = p > 1e-300
    entropy = -float(np.sum(p[some] * np.log(p[some])))
    slopes = np.where(some, np.log(np.where(some, p, 1)) + entropy, 0)
    return math.exp(entropy) * float((squares @ slopes[: squares.shape[1]]).std()) * math.sqrt(n) / float(values.sum())


def variation_error(values: np.ndarray, n: int) -> float:
    """Of the standard deviation over the mean of some positive numbers."""
    mean, spread = values.mean(), values.std()
    if not spread > 0:
        return 0.0
    gap = values - mean
    influence = (gap**2 - spread**2) / (2 * spread * mean) - spread * gap / mean**2
    return float(influence.std()) / math.sqrt(n)


def mean_error(values: np.ndarray) -> float:
    """Of a mean of so many numbers."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def jackknife_error(values: np.ndarray) -> float:
    """Of a value that was measured again without each of some equal groups of rows (the delete-a-group jackknife)."""
    return formulas.jackknife_error(values)


def wilson_interval(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval for a share of n rows."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(min(middle - reach, share), 0.0), min(max(middle + reach, share), 1.0)
