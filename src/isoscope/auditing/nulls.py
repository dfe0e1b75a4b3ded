"""What an isotropic cloud of the same number of rows and dimensions would give: the yardstick of most findings."""

from __future__ import annotations

import math

import numpy as np


def mean_cosine_spread(n: int, d: int) -> float:
    """Standard deviation of the mean cosine of n random directions: pairs are uncorrelated, each has variance 1/d."""
    return math.sqrt(2 / (n * (n - 1) * d))


def top_share(n: int, d: int) -> float:
    """The first direction's share of the variance: the upper edge of the Marchenko–Pastur law."""
    return min((1 + math.sqrt(d / n)) ** 2 / d, 1.0)


def effective_rank(n: int, d: int) -> float:
    """exp of the spectrum's entropy: ∫x·ln x of the Marchenko–Pastur law is (d/n)/2, and its dual's where n < d."""
    small, large = min(n, d), max(n, d)
    return small * math.exp(-small / (2 * large))


def spectrum(n: int, d: int) -> np.ndarray:
    """Each direction's share of the variance, largest first: quantiles of the Marchenko–Pastur law."""
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
    """The density of the cosine of two random directions: (1−c²)^((d−3)/2), to an area of 1."""
    if d == 2:
        return np.asarray(1 / (np.pi * np.sqrt(np.maximum(1 - cosines**2, 1e-12))))
    log_area = math.lgamma((d - 1) / 2) + 0.5 * math.log(math.pi) - math.lgamma(d / 2)
    return np.asarray(np.exp((d - 3) / 2 * np.log(np.maximum(1 - cosines**2, 1e-300)) - log_area))


def norm_variation(d: int) -> float:
    """Standard deviation over mean of the lengths of Gaussian vectors."""
    return 1 / math.sqrt(2 * d)


def partition_log_ratio(norms: np.ndarray, n: int, d: int) -> float:
    """log(min Z/max Z) of n random directions with these lengths, over the eigenvectors and their opposites.

    Along a fixed c, c·x is close to N(0, ‖x‖²/d), so that log(Z/n) is near log mean exp(‖x‖²/2d); along the first and
    the last eigenvector the variance is larger and smaller by the edges of the Marchenko–Pastur law. To this comes the
    reach of 2d sums of n terms, of mean Σexp(‖x‖²/2d) and variance Σexp(2‖x‖²/d) − exp(‖x‖²/d). Long vectors end
    that: each sum is then its largest term, and the gap is that between the largest of 2dn and of n/ln 2d Gaussians.
    """
    half = norms**2 / (2 * d)
    ratio = math.sqrt(d / n)
    edges = _log_mean(half * (1 + ratio) ** 2) - _log_mean(half * max(1 - ratio, 0.0) ** 2)
    with np.errstate(divide="ignore"):
        variance = _log_mean(4 * half + np.log(-np.expm1(-2 * half)))
    excess = (variance - 2 * _log_mean(half) - math.log(n)) / 2
    reach = 2 * math.sqrt(2 * math.log(2 * d)) * math.exp(min(excess, 300))
    most = math.hypot(1, ratio) * math.sqrt(2 * math.log(2 * d * n))
    least = max(1 - ratio, 0.0) * math.sqrt(2 * max(math.log(n / math.log(2 * d)), 0.0))
    short, long = math.hypot(edges, reach), float(norms.mean()) / math.sqrt(d) * (most - least)
    return -1 / math.hypot(1 / short, 1 / long) if short > 0 else 0.0


def _log_mean(logs: np.ndarray) -> float:
    """log of the mean of exp."""
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))


def chance_ceiling(n: int, dimensions: float) -> float:
    """The highest cosine that one of n unrelated vectors reaches by chance in a space of so many dimensions."""
    return math.sqrt(2 * math.log(n) / dimensions)
