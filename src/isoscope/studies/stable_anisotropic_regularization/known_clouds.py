"""Clouds whose covariance is known, so that an estimate of their isotropy can be compared with the truth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Sampler = Callable[[np.random.Generator, int], np.ndarray]
"""Gives so many rows of a cloud."""


def isotropic(d: int) -> tuple[Sampler, np.ndarray]:
    """A ball: how its rows are drawn, and its covariance."""
    return lambda rng, n: rng.standard_normal((n, d)), np.eye(d)


def power_law(d: int) -> tuple[Sampler, np.ndarray]:
    """Variances that fall like 1/i, and a mean far from the origin."""
    variances = 1 / np.arange(1, d + 1)
    return lambda rng, n: rng.standard_normal((n, d)) * np.sqrt(variances) + 5, np.diag(variances)


def clustered(d: int) -> tuple[Sampler, np.ndarray]:
    """Eight round clusters of equal weight, whose centres are four times as far apart as they are wide."""
    centres = np.random.default_rng(0).standard_normal((8, d)) * 4 / np.sqrt(d) * np.sqrt(8)
    off = centres - centres.mean(axis=0)

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(centres[rng.integers(0, 8, n)] + rng.standard_normal((n, d)))

    return draw, np.eye(d) + off.T @ off / 8


def heavy_tailed(d: int) -> tuple[Sampler, np.ndarray]:
    """Student's t with 6 degrees of freedom over variances that fall like i^−½."""
    scales = np.arange(1, d + 1) ** -0.5

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.asarray(rng.standard_normal((n, d)) * np.sqrt(scales) / np.sqrt(rng.chisquare(6, (n, 1)) / 6))

    return draw, np.diag(scales) * 6 / 4


DISTRIBUTIONS = {"isotropic": isotropic, "power law": power_law, "clustered": clustered, "heavy tails": heavy_tailed}
"""By name: for a number of dimensions, how rows are drawn, and the covariance."""


def true_isoscore(covariance: np.ndarray) -> float:
    """The IsoScore of a covariance.

    >>> true_isoscore(np.eye(8))
    1.0
    """
    ratio = np.trace(covariance) ** 2 / np.vdot(covariance, covariance)
    return float((ratio - 1) / (len(covariance) - 1))
