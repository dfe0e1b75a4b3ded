"""Compute each measurement from a few sums over rows.

The same formulas are used for arrays in memory (`metrics`), training batches (with gradients) and sketches merged from
many machines (`sketching`); only the way to compute the sums differs. Arguments are scalars or arrays of any library.

Notation: n rows, d dimensions, the mean x̄, y = x − x̄, the scatter W = Σ yyᵀ, the covariance S = W/(n−1), and the unit
vectors u = x/‖x‖.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from isoscope._core.arrays import Array

_MOST_SUMMED_DEGREES = 500  # degrees of freedom up to which Student's distribution is summed up term by term


class Traces(NamedTuple):
    """The two traces of a covariance Σ that determine its IsoScore."""

    squared_trace: Array  # (tr Σ)²
    trace_squared: Array  # tr(Σ²)


def participation_ratio(traces: Traces) -> Array:
    """Return the participation ratio PR = (tr Σ)²/tr(Σ²)."""
    return traces.squared_trace / traces.trace_squared


def isoscore(traces: Traces, d: int) -> Array:
    """Return the IsoScore (PR − 1)/(d − 1), which equals the result of Rudman et al.'s five-step algorithm (2022)."""
    return (participation_ratio(traces) - 1) / (d - 1)


def covariance_traces(n: int, trace: Array, trace_squared: Array) -> Traces:
    """Return the traces of the sample covariance (the plug-in estimates), computed from tr W and tr(W²)."""
    return Traces(trace**2 / (n - 1) ** 2, trace_squared / (n - 1) ** 2)


def unbiased_traces(n: int | Array, trace: Array, trace_squared: Array, quartic: Array) -> Traces:
    """Estimate (tr Σ)² and tr(Σ²) without bias from tr W, tr(W²) and Σ‖y‖⁴ (Himeno and Yamada, 2014).

    These are the published estimators with S = W/(n−1) and Q = Σ‖y‖⁴/(n−1). They are unbiased for independent rows from
    any distribution with finite fourth moments. Their ratio is the participation ratio that Chun et al. (ICLR 2026)
    call "row". Rows that depend on each other within groups need `isoscope._core.grouped_traces`.
    """
    tr_s, tr_s2, q = trace / (n - 1), trace_squared / (n - 1) ** 2, quartic / (n - 1)
    c = (n - 1) / (n * (n - 2) * (n - 3))
    return Traces(
        squared_trace=c * (2 * tr_s2 + (n**2 - 3 * n + 1) * tr_s**2 - n * q),
        trace_squared=c * ((n - 1) * (n - 2) * tr_s2 + tr_s**2 - n * q),
    )


def clip_traces(xp: Any, traces: Traces, plug_in: Array, n: int, d: int) -> Traces:
    """Limit estimated traces to the range in which their ratio is meaningful.

    The true traces obey tr(Σ²) ≥ (tr Σ)²/d, that is, IsoScore ≤ 1. Estimates vary around the true value and may exceed
    1, because clipping them at 1 would bias their mean. But with very few rows, tr(Σ²) can be near zero or negative. It
    is clipped at half its smallest possible value, so that the IsoScore never exceeds (2d−1)/(d−1). If (tr Σ)² is
    smaller than the rounding error of its `plug_in` value (all rows but one are equal), the rows lie on a line, and the
    IsoScore is 0.
    """
    resolved = traces.squared_trace > 64 * n * float(xp.finfo(plug_in.dtype).eps) * plug_in
    top = xp.where(resolved, traces.squared_trace, xp.ones_like(plug_in))
    bottom = xp.where(resolved, traces.trace_squared, xp.ones_like(plug_in))
    least = top / (2 * d)
    return Traces(top, xp.where(bottom > least, bottom, least))


def shrunk_traces(
    zeta: float, trace: Array, trace_squared: Array, shrinkage_trace: Array, shrinkage_squared: Array, inner: Array
) -> Traces:
    """Compute the traces of (1−ζ)Σ_X + ζΣ_S from tr Σ_X, ‖Σ_X‖², tr Σ_S, ‖Σ_S‖² and ⟨Σ_X, Σ_S⟩."""
    return Traces(
        squared_trace=((1 - zeta) * trace + zeta * shrinkage_trace) ** 2,
        trace_squared=(1 - zeta) ** 2 * trace_squared + 2 * zeta * (1 - zeta) * inner + zeta**2 * shrinkage_squared,
    )


class Moments(NamedTuple):
    """Sums over the vectors y, which are the rows minus a fixed point."""

    total: Array  # Σy
    scatter: Array  # Σyyᵀ
    cubic: Array  # Σ‖y‖²y
    quartic: Array  # Σ‖y‖⁴

    def shift_rows(self, xp: Any, n: int, by: Array) -> Moments:
        """Return the same sums for the vectors y + `by`."""
        trace = xp.sum(xp.linalg.diagonal(self.scatter))
        square = xp.sum(by * by)
        along = xp.sum(self.total * by)
        pull = self.scatter @ by
        cross = self.total[:, None] * by[None, :]
        return Moments(
            total=self.total + n * by,
            scatter=self.scatter + cross + cross.T + n * (by[:, None] * by[None, :]),
            cubic=self.cubic + (trace + 2 * along + n * square) * by + 2 * pull + square * self.total,
            quartic=self.quartic
            + 4 * xp.sum(by * self.cubic)
            + 4 * xp.sum(by * pull)
            + 2 * square * trace
            + n * square**2
            + 4 * square * along,
        )


class LeaveOneOutSums(NamedTuple):
    """The values of tr W, tr(W²) and Σ‖y‖⁴ when each row in turn is left out."""

    trace: Array
    trace_squared: Array
    quartic: Array


def leave_one_out(
    n: int, trace: Array, trace_squared: Array, quartic: Array, r: Array, q: Array, s: Array
) -> LeaveOneOutSums:
    """Compute the sums that leave out each row in turn, from that row's r = ‖y‖², q = yᵀWy and s = y·Σ‖y‖²y.

    Without row i the mean moves by −yᵢ/(n−1) and the scatter loses n/(n−1)·yᵢyᵢᵀ.
    """
    f, h = n / (n - 1), 1 / (n - 1)
    return LeaveOneOutSums(
        trace=trace - f * r,
        trace_squared=trace_squared - 2 * f * q + f**2 * r**2,
        quartic=(quartic - r**2)
        + 4 * h**2 * (q - r**2)
        + h**3 * r**2
        + 4 * h * (s - r**2)
        + 2 * h**2 * r * (trace - r)
        - 4 * h**3 * r**2,
    )


FAR_MEAN = 1e6
"""If n‖x̄‖² exceeds 1e6·tr W, the eigenvalues of XᵀX are computed by `spectrum_about_far_mean`."""


def spectrum_about_far_mean(xp: Any, scatter: Array, n: int, mean: Array) -> Array:
    """Return the d eigenvalues of XᵀX = W + n·x̄x̄ᵀ, largest first, for rows whose mean is much larger than their spread.

    An eigensolver has an error of eps·n‖x̄‖² in each eigenvalue, which can exceed all eigenvalues but the first. In a
    basis that starts with x̄/‖x̄‖, the matrix is [[a, bᵀ], [b, C]] with a large a. Its other eigenvalues are those of
    C − bbᵀ/a up to a relative error of (tr W/a)², at most 1e-12 above `FAR_MEAN`. C keeps d dimensions, so its
    eigenvalue along the mean is 0.
    """
    size = xp.linalg.vector_norm(mean)
    u = mean / size
    pull = scatter @ u
    along = xp.sum(u * pull)
    b = pull - along * u
    cross = u[:, None] * pull[None, :]
    a = n * size**2 + along
    C = scatter - cross - cross.T + along * (u[:, None] * u[None, :])
    rest = xp.flip(xp.linalg.eigvalsh(C - b[:, None] * b[None, :] / a), axis=0)[:-1]
    rest = xp.where(rest > 0, rest, xp.zeros_like(rest))
    first = n * size**2 + xp.sum(xp.linalg.diagonal(scatter)) - xp.sum(rest)
    return xp.concat([xp.reshape(first, (1,)), rest])


def anisotropy(xp: Any, spectrum: Array, k: int) -> Array:
    """Return the shares σ²/Σσ² of the k largest values of a sorted spectrum."""
    return spectrum[:k] / xp.sum(spectrum)


def effective_rank(xp: Any, spectrum: Array) -> Array:
    """Return the effective rank: exp of the entropy of the normalized spectrum; zeros have no effect."""
    p = spectrum / xp.sum(spectrum)
    positive = p > 0
    return xp.exp(-xp.sum(xp.where(positive, p * xp.log(xp.where(positive, p, xp.ones_like(p))), xp.zeros_like(p))))


def mean_cosine(n: int, unit_sum: Array, unit_squares: Array) -> Array:
    """Return the mean cosine of all pairs, (‖Σu‖² − Σ‖u‖²)/(n(n−1)), in total or for each dimension."""
    return (unit_sum**2 - unit_squares) / (n * (n - 1))


def intra_similarity(xp: Any, counts: Array, unit_sums: Array, unit_squares: Array) -> Array:
    """Return the mean cosine within each type that has at least two rows, averaged over these types."""
    several = counts >= 2
    pairs = xp.where(several, counts * (counts - 1), xp.ones_like(counts))
    means = (xp.sum(unit_sums**2, axis=1) - unit_squares) / pairs
    return xp.sum(xp.where(several, means, xp.zeros_like(means))) / xp.sum(xp.astype(several, means.dtype))


def inter_similarity(xp: Any, counts: Array, unit_sums: Array, average: str) -> Array:
    """Return the mean cosine between rows of different types, averaged over pairs of rows or over pairs of types."""
    if average == "types":
        unit_sums = unit_sums / counts[:, None]
        counts = xp.ones_like(counts)
    total = xp.sum(unit_sums, axis=0)
    n = xp.sum(counts)
    return (xp.sum(total**2) - xp.sum(unit_sums**2)) / (n**2 - xp.sum(counts**2))


def isotropy_objective(n: int, trace: Array) -> Array:
    """Return O_I = ΣΣ‖x−x′‖² over all ordered pairs, which is 2n·tr W."""
    return 2 * n * trace


def silhouette_objective(xp: Any, n: int, trace: Array, counts: Array, within: Array) -> Array:
    """Compute O_S = ΣΣ ±‖x−x′‖², negative for pairs within a label, from tr W of all rows and of each label."""
    return 2 * n * trace - 4 * xp.sum(counts * within)


def triplet_objective(xp: Any, n: int, means: Array, counts: Array, within: Array) -> Array:
    """Return O_T = ΣΣ wgt·‖x−x′‖², where wgt = |D_ω|−n within the label ω of x and |D_ω|−1 outside.

    The sum of ‖x−x′‖² over x in ω and all x′ is n·W_ω + |D_ω|·tr W + n|D_ω|‖m_ω − m‖², where m is the mean of all rows.
    """
    mean = xp.sum(counts[:, None] * means, axis=0) / n
    between = xp.sum((means - mean) ** 2, axis=1)
    trace = xp.sum(within + counts * between)
    inside = 2 * counts * within
    outside = n * within + counts * trace + n * counts * between - inside
    return xp.sum((counts - n) * inside + (counts - 1) * outside)


def classifier_objective(xp: Any, sums: Array, class_vectors: Array) -> Array:
    """Compute O_C = −ΣΣ sign(ω, ℓ(x))⟨x, c_ω⟩ from the sum Σx of each label."""
    own = xp.sum(sums * class_vectors)
    every = xp.sum(xp.sum(sums, axis=0) * xp.sum(class_vectors, axis=0))
    return 2 * own - every


def jackknife_error(left: Any) -> float:
    """Compute the jackknife standard error from the values obtained by leaving out each group of rows in turn."""
    spread = sum((value - sum(left) / len(left)) ** 2 for value in left)
    return math.sqrt(spread * (len(left) - 1) / len(left))


def student_interval(value: float, spread: float, confidence: float, degrees: int) -> tuple[float, float]:
    """Return the bounds of Student's confidence interval around `value`, given the standard error `spread`."""
    reach = student_quantile(degrees, confidence) * spread
    return (value - reach, value + reach) if math.isfinite(reach) else (-math.inf, math.inf)


@cache
def student_quantile(degrees: int, confidence: float) -> float:
    """Return t such that Student's distribution lies between −t and t with the probability `confidence`.

    The relative error is below 1e-10. Importing scipy.special would take 0.2 s.

    >>> round(student_quantile(4, 0.95), 6)
    2.776445
    """
    if degrees < 1:
        return math.inf
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    if degrees > _MOST_SUMMED_DEGREES:  # the expansion of Cornish and Fisher; Abramowitz and Stegun, 26.7.5
        n, s = degrees, z * z
        first = (s + 1) / (4 * n)
        second = (5 * s**2 + 16 * s + 3) / (96 * n**2)
        third = (3 * s**3 + 19 * s**2 + 17 * s - 15) / (384 * n**3)
        fourth = (79 * s**4 + 776 * s**3 + 1482 * s**2 - 1920 * s - 945) / (92160 * n**4)
        return z * (1 + first + second + third + fourth)
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    t = z
    for _ in range(100):  # Newton's method; the probability is concave in t, so t only increases
        density = 2 * math.exp(log_scale - (degrees + 1) / 2 * math.log1p(t * t / degrees))
        step = (confidence - _student_probability(degrees, t)) / density
        t += step
        if abs(step) <= 1e-13 * t:
            break
    return t


def _student_probability(degrees: int, t: float) -> float:
    """Return the probability that Student's distribution lies between −t and t; Abramowitz and Stegun, 26.7.3."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(2 + odd, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total
