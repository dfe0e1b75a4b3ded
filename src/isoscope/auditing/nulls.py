"""Null distributions and standard errors of the measurements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core import formulas
from isoscope._core.arrays import unit_rows

if TYPE_CHECKING:
    from isoscope.sketching.sketch import Sketch


_ITERATIONS = 8  # fixed-point iterations; they converge to within a few percent


def mean_cosine_std(n: int, d: int) -> float:
    """Return the standard deviation of the mean cosine of n random directions (uncorrelated pairs of variance 1/d)."""
    return math.sqrt(2 / (n * (n - 1) * d))


def top_share(n: int, d: int) -> float:
    """Return the first component's expected share of the variance, from the upper edge of the Marchenko–Pastur law."""
    return min((1 + math.sqrt(d / n)) ** 2 / d, 1.0)


def effective_rank(n: int, d: int) -> float:
    """Return the effective rank of Gaussian data; under the Marchenko–Pastur law, the mean of x·ln x is d/(2n)."""
    small, large = min(n, d), max(n, d)
    return small * math.exp(-small / (2 * large))


def spectrum(n: int, d: int) -> np.ndarray:
    """Return each component's expected share of the variance, largest first, from Marchenko–Pastur quantiles."""
    ratio = d / n
    low, high = (1 - math.sqrt(ratio)) ** 2, (1 + math.sqrt(ratio)) ** 2
    x = np.linspace(low, high, 4097)
    middle = (x[1:] + x[:-1]) / 2
    weight = np.sqrt(np.maximum((high - middle) * (middle - low), 0)) / middle
    cumulative = np.concatenate([[0], np.cumsum(weight)]) / weight.sum()
    count = min(n, d)
    values = np.interp((np.arange(count) + 0.5) / count, cumulative, x)[::-1]
    return np.asarray(np.concatenate([values, np.zeros(d - count)]) / values.sum())


def cosine_density(cosines: np.ndarray, d: int) -> np.ndarray:
    """Return the density of the cosine of two random directions, proportional to (1−c²)^((d−3)/2)."""
    if d == 2:
        return np.asarray(1 / (np.pi * np.sqrt(np.maximum(1 - cosines**2, 1e-12))))
    log_area = math.lgamma((d - 1) / 2) + 0.5 * math.log(math.pi) - math.lgamma(d / 2)
    return np.asarray(np.exp((d - 3) / 2 * np.log(np.maximum(1 - cosines**2, 1e-300)) - log_area))


def norm_variation(d: int) -> float:
    """Return the coefficient of variation of the lengths of Gaussian vectors."""
    return 1 / math.sqrt(2 * d)


_LIST_PAIRS = 2_000_000  # pairs of a query and a row for the expected overlap of neighbor lists
_MAX_LIST_QUERIES = 400


def list_overlap(n: int, d: int, k: int, metrics: tuple[str, str], seed: int) -> float:
    """Return the share of the k nearest rows by one metric that another metric finds too, in Gaussian data.

    The metrics need only a row's coordinate along the query, which is Gaussian, and its squared length in the other
    d − 1 dimensions, which is chi-squared. These are drawn, not the vectors.
    """
    rng = np.random.default_rng(seed)
    shares = []
    for _ in range(min(max(_LIST_PAIRS // n, 1), _MAX_LIST_QUERIES)):
        query, along = math.sqrt(rng.chisquare(d)), rng.standard_normal(n - 1)
        squares = along**2 + rng.chisquare(d - 1, n - 1)
        scores = {
            "cosine": along / np.sqrt(squares),
            "inner_product": along,
            "euclidean": query * along - squares / 2,
        }
        first, second = (np.argpartition(-scores[metric], k - 1)[:k] for metric in metrics)
        shares.append(len(np.intersect1d(first, second)) / k)
    return float(np.mean(shares))


def partition_log_ratio(norms: np.ndarray, n: int, d: int) -> float:
    """Return log(min Z/max Z) for n random directions with these lengths, over the eigenvectors and their opposites.

    Along a fixed c, c·x is close to N(0, ‖x‖²/d), so log(Z/n) is near log mean exp(‖x‖²/2d). Along the first and last
    eigenvector, the variance is multiplied by the upper and lower edge of the Marchenko–Pastur law. The range of 2d
    sums of n terms, with mean Σexp(‖x‖²/2d) and variance Σexp(2‖x‖²/d) − exp(‖x‖²/d), adds to the difference. For long
    vectors, each sum is close to its largest term; the difference is then that between the largest of 2dn Gaussians and
    the largest of n/ln 2d Gaussians.
    """
    half = norms**2 / (2 * d)
    ratio = math.sqrt(d / n)
    edges = _log_mean_exp(half * (1 + ratio) ** 2) - _log_mean_exp(half * max(1 - ratio, 0.0) ** 2)
    with np.errstate(divide="ignore"):
        variance = _log_mean_exp(4 * half + np.log(-np.expm1(-2 * half)))
    excess = (variance - 2 * _log_mean_exp(half) - math.log(n)) / 2
    reach = 2 * math.sqrt(2 * math.log(2 * d)) * math.exp(min(excess, 300))
    most = math.hypot(1, ratio) * math.sqrt(2 * math.log(2 * d * n))
    least = max(1 - ratio, 0.0) * math.sqrt(2 * max(math.log(n / math.log(2 * d)), 0.0))
    short, long = math.hypot(edges, reach), float(norms.mean()) / math.sqrt(d) * (most - least)
    return -1 / math.hypot(1 / short, 1 / long) if short > 0 else 0.0


def _log_mean_exp(logs: np.ndarray) -> float:
    """Return the logarithm of the mean of the exponentials."""
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))


def max_chance_cosine(n: int, dimensions: float) -> float:
    """Return the highest cosine that a vector reaches by chance with n unrelated vectors in this many dimensions."""
    return math.sqrt(2 * math.log(n) / dimensions)


def shrunk_spectrum(values: np.ndarray, dimensions: float) -> np.ndarray:
    """Return `values` shrunk toward their mean so that their participation ratio is `dimensions`.

    The eigenvalues of a small sample are more spread out than those of the source. The unbiased participation ratio
    estimates how spread out the eigenvalues of the source are. If `values` are less spread out than that, they are
    returned unchanged.
    """
    mean = values.mean()
    gaps = values - mean
    wanted = len(values) * mean**2 * max(len(values) / min(max(dimensions, 1.0), len(values)) - 1, 0.0)
    seen = float(gaps @ gaps)
    return np.asarray(mean + gaps * math.sqrt(min(wanted / seen, 1.0)) if seen > 0 else values)


class GaussianRows:
    """A generator of Gaussian rows with the mean, the spectrum and the lengths of given data.

    Parameters
    ----------
    mean : (d,) array
        The mean in the basis of the principal components.
    values : (d,) array
        The variances along the principal components.
    lengths : (n,) array
        The lengths of the data rows. They are assigned to the rows of a random sample in rank order, so data of unit
        length gives samples of unit length.
    """

    def __init__(self, mean: np.ndarray, values: np.ndarray, lengths: np.ndarray):
        self.mean, self.deviations = mean.astype(np.float32), np.sqrt(values).astype(np.float32)
        self.lengths = np.sort(lengths).astype(np.float32)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return a random sample with one row per length."""
        rows = rng.standard_normal((len(self.lengths), len(self.mean)), dtype=np.float32)
        rows *= self.deviations
        rows += self.mean
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        wanted = np.empty_like(norms)
        wanted[np.argsort(norms)] = self.lengths
        rows *= (wanted / np.maximum(norms, np.finfo(np.float32).tiny))[:, None]
        return rows


class UnimodalDirections:
    """A generator of random directions without clusters that have the second moment of given unit vectors.

    Gaussian rows scaled to unit length have one mode (and its opposite), for any spectrum and any lengths. Fixed-point
    iteration finds the variances for which the directions have the spectrum of the given ones; each draw is then mapped
    linearly to exactly that spectrum.

    Parameters
    ----------
    directions : (m, d) array
        Unit vectors that point from a center to the rows.
    rank : int
        The number of principal axes to keep.
    rng : Generator
        The random generator for the fixed-point iteration.
    """

    def __init__(self, directions: np.ndarray, rank: int, rng: np.random.Generator):
        values, scores = principal_scores(directions)
        self.size, self.rank = len(directions), min(rank, len(values))
        self.scores = scores[:, : self.rank]
        """The projections of the given directions onto the leading axes."""
        self.lengths = np.sqrt(values[: self.rank])
        noise = rng.standard_normal((self.size, len(values))) ** 2
        wanted = values / values.sum() * noise.mean(axis=0)
        variances = values / values.sum()
        for _ in range(_ITERATIONS):
            squares = noise * variances
            variances = variances * wanted / (squares / squares.sum(axis=1, keepdims=True)).mean(axis=0)
            variances /= variances.sum()
        self.deviations = np.sqrt(variances)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return a random sample of directions, as coordinates along the leading axes."""
        rows = rng.standard_normal((self.size, len(self.deviations))) * self.deviations
        first = rows[:, : self.rank] / np.linalg.norm(rows, axis=1, keepdims=True)
        first -= first.mean(axis=0)
        return np.asarray(np.linalg.qr(first)[0] * self.lengths)


def principal_scores(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nonzero eigenvalues of rowsᵀ·rows, largest first, and the projections of rows on the eigenvectors."""
    wide = rows.shape[1] > len(rows)
    values, vectors = np.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)
    some = np.flatnonzero(values > values[-1] * 1e-10)[::-1]
    return values[some], vectors[:, some] * np.sqrt(values[some]) if wide else rows @ vectors[:, some]


def directions_from_median(rows: np.ndarray) -> np.ndarray:
    """Return the unit vectors from the spatial median (by Weiszfeld's iteration; robust to outliers) to each row."""
    center = np.median(rows, axis=0)
    for _ in range(_ITERATIONS):
        gaps = rows - center
        weights = 1 / np.maximum(np.linalg.norm(gaps, axis=1), 1e-300)
        center = center + weights @ gaps / weights.sum()
    gaps = rows - center
    return np.asarray(gaps / np.maximum(np.linalg.norm(gaps, axis=1, keepdims=True), 1e-300))


def mean_cosine_error(sketch: Sketch, rows: np.ndarray) -> float:
    """Return the standard error of the mean cosine: twice that of a row's mean cosine with the other rows."""
    units = unit_rows(np, rows, np.dtype(np.float64))
    others = (units @ sketch.unit_sum - (units * units).sum(axis=1)) / (sketch.n - 1)
    return 2 * float(others.std()) / math.sqrt(sketch.n)


def isoscore_error(sketch: Sketch, rows: np.ndarray) -> float:
    """Return the standard error of the unbiased IsoScore by the jackknife, which leaves out each row in turn."""
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
        return math.inf  # one row has all the variance, so the error is unbounded
    traces = formulas.unbiased_traces(n - 1, left.trace, left.trace_squared, left.quartic)
    plug_in = left.trace**2 / (n - 2) ** 2
    scores = formulas.isoscore(formulas.clip_traces(np, traces, plug_in, n - 1, d), d)
    return float(np.std(scores)) * math.sqrt(n - 1)


def spectrum_share_error(values: np.ndarray, squares: np.ndarray, k: int, n: float) -> float:
    """Return the standard error of the first k components' share of Σσ², given squared projections of shape (m, d).

    Each row of `squares` belongs to one of n data rows, or is the sum over one of n independent blocks of data rows.
    """
    share = values[:k].sum() / values.sum()
    influence = squares[:, :k].sum(axis=1) - share * squares.sum(axis=1)
    return float(influence.std()) * math.sqrt(n) / float(values.sum())


def effective_rank_error(values: np.ndarray, squares: np.ndarray, n: float) -> float:
    """Return the standard error of the effective rank exp(H), from dH = −Σ(ln p + H)dλ/Σλ."""
    p = values / values.sum()
    some = p > 1e-300
    entropy = -float(np.sum(p[some] * np.log(p[some])))
    slopes = np.where(some, np.log(np.where(some, p, 1)) + entropy, 0)
    return math.exp(entropy) * float((squares @ slopes[: squares.shape[1]]).std()) * math.sqrt(n) / float(values.sum())


def variation_error(values: np.ndarray, n: int) -> float:
    """Return the standard error of the coefficient of variation of positive numbers."""
    mean, spread = values.mean(), values.std()
    if not spread > 0:
        return 0.0
    gap = values - mean
    influence = (gap**2 - spread**2) / (2 * spread * mean) - spread * gap / mean**2
    return float(influence.std()) / math.sqrt(n)


def mean_error(values: np.ndarray) -> float:
    """Return the standard error of the mean, which is infinite for a single number."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf


def jackknife_error(values: np.ndarray) -> float:
    """Return the standard error, given the values measured without each group of rows (delete-a-group jackknife)."""
    return formulas.jackknife_error(values)


def wilson_interval(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the Wilson interval for a share of n rows."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(min(middle - reach, share), 0.0), min(max(middle + reach, share), 1.0)


def discovery_threshold(p_values: np.ndarray, rate: float) -> float:
    """Return the largest p-value that counts as a discovery at a false discovery rate; −1 if no p-value does.

    This is the step-up procedure of Benjamini and Hochberg (1995).

    >>> discovery_threshold(np.asarray([0.5, 0.001, 0.01, 0.9]), 0.05)
    0.025
    """
    ordered = np.sort(p_values)
    allowed = rate * np.arange(1, len(ordered) + 1) / len(ordered)
    return float(allowed[ordered <= allowed].max(initial=-1.0))
