"""Spaces for the tests: topics of one model, and another model of the same shape."""

from __future__ import annotations

import numpy as np


def topics(n: int, d: int = 48, seed: int = 0, model: int = 0, k: int = 12) -> np.ndarray:
    """Rows of k topics that share the directions of one model; another `model` has other directions."""
    rng = np.random.default_rng((seed, 1))
    axes = np.linalg.qr(np.random.default_rng((model, 2)).standard_normal((d, d)))[0]
    deviations = np.arange(1, d + 1) ** -0.7
    means = np.random.default_rng((model, 3)).standard_normal((k, d)) * deviations
    rows = means[rng.integers(0, k, n)] + 0.7 * rng.standard_normal((n, d)) * deviations
    return (rows @ axes.T).astype(np.float32)
