"""Several runs of k-means on the same rows, which share one matrix product per iteration."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

_MAX_ITERATIONS = 300  # as in scikit-learn


def run_k_means(X: np.ndarray, starts: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return centers and codes for each start of k-means.

    A run ends when no row changes its cluster, or after scikit-learn's maximum number of iterations. One matrix product
    per iteration serves all runs.
    """
    runs = [_Lloyd(X, start) for start in starts]
    active = runs
    for _ in range(_MAX_ITERATIONS):
        products = np.concatenate([run.centers[run.moved] for run in active]) @ X.T
        ends = np.cumsum([len(run.moved) for run in active])[:-1]
        active = [run for run, own in zip(active, np.split(products, ends), strict=True) if run.step(own)]
        if not active:
            break
    return [(run.centers, run.codes) for run in runs]


class _Lloyd:
    """One run of Lloyd's algorithm.

    After the first iteration, only clusters that gained or lost a row have new centers, so only their distances are
    computed again. An empty cluster keeps its center, and a row changes its cluster only if another center is nearer.
    """

    def __init__(self, X: np.ndarray, centers: np.ndarray):
        self.X, self.centers = X, centers.astype(X.dtype)
        self.codes, self.moved = np.full(len(X), -1), np.arange(len(centers))
        self._sums, self._counts = np.zeros(centers.shape), np.zeros(len(centers), np.int64)
        self._rows, self._distances = np.arange(len(X)), np.empty((len(centers), len(X)), X.dtype)

    def step(self, products: np.ndarray) -> bool:
        """Run one iteration, given the products of the moved centers and the rows; return whether a row changed."""
        near = self.centers[self.moved]
        self._distances[self.moved] = np.einsum("ij,ij->i", near, near)[:, None] / 2 - products
        own = self._distances[self.codes, self._rows]
        changed = np.flatnonzero((self.codes < 0) | (own > self._distances.min(axis=0)))
        if not len(changed):
            return False
        left, entered = self.codes[changed], self._distances[:, changed].argmin(axis=0)
        had = np.flatnonzero(left >= 0)
        signs = np.repeat([1.0, -1.0], [len(changed), len(had)])
        places = np.concatenate([entered, left[had]]), np.concatenate([np.arange(len(changed)), had])
        member = csr_array((signs, places), shape=(len(self.centers), len(changed)))
        self._sums += member @ self.X[changed].astype(np.float64)
        self._counts += np.bincount(entered, minlength=len(self.centers))
        self._counts -= np.bincount(left[had], minlength=len(self.centers))
        self.codes[changed] = entered
        self.moved = np.flatnonzero((np.diff(member.indptr) > 0) & (self._counts > 0))
        self.centers[self.moved] = self._sums[self.moved] / self._counts[self.moved, None]
        return True


def nearest_center(X: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the index of the nearest center for each row."""
    return np.asarray(np.argmin(np.einsum("ij,ij->i", centers, centers) / 2 - X @ centers.T, axis=1))
