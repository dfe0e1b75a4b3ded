"""Repairs of every class, and datasets to fit them to."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from isoscope import AllButTheTop, Center, Chain, ClusterCenter, ClusterNull, Standardize, Whiten

AFFINE = [
    Center(),
    Standardize(),
    AllButTheTop(),
    AllButTheTop(n_components=2),
    AllButTheTop(n_components=0),
    Whiten(),
    Whiten("pca"),
    Whiten("zca", 2, shrinkage=None),
    Whiten("pca", 2, shrinkage=0.3),
]
CLUSTERED = [
    ClusterCenter(random_state=0),
    ClusterCenter(2, random_state=0),
    ClusterCenter(2, clusterer="gmm", random_state=0),
    ClusterNull(1, 1, random_state=0),
    ClusterNull(2, 0, random_state=0),
    ClusterNull(3, 2, random_state=0),
    ClusterNull(3, 2, clusterer="gmm", random_state=0),
    ClusterNull("auto", 2, random_state=0),
]
CHAINS = [
    Chain([Standardize(), AllButTheTop(1)]),
    Chain([AllButTheTop(1), Whiten("pca", 1)]),
    Chain([Standardize(), ClusterNull(2, 1, random_state=0)]),
]
EVERY = AFFINE + CLUSTERED + CHAINS


def has_step(repair: object, kinds: object) -> bool:
    """Return whether a repair, or a step of a chain, has one of these classes."""
    return any(isinstance(step, kinds) for step in getattr(repair, "steps", [repair]))


class Labelled:
    """A clusterer that returns given clusters."""

    def __init__(self, X: np.ndarray, labels: np.ndarray) -> None:
        self.told = {row.tobytes(): label for row, label in zip(X, labels, strict=True)}

    def fit(self, X: np.ndarray) -> Labelled:
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray([self.told[row.tobytes()] for row in X])


def clustered_cloud(rng: np.random.Generator, n: int = 300, d: int = 8, k: int = 3) -> np.ndarray:
    """k clusters far apart, each stretched along the first coordinate."""
    return rng.standard_normal((n, d)) * ([4] + [1] * (d - 1)) + 20 * np.eye(d)[1 + np.arange(n) % k]


@pytest.fixture
def clusters(rng: np.random.Generator) -> np.ndarray:
    return clustered_cloud(rng)


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one thread: k-means of a small dataset spends most of its time waiting for threads."""
    with threadpool_limits(1):
        yield
