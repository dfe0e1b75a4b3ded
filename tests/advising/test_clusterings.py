"""Runs of k-means that share products equal separate runs of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from isoscope.advising.clusterings import nearest_center, run_k_means
from tests.conftest import tolerance


@pytest.mark.parametrize(("dtype", "k"), [(np.float64, 3), (np.float32, 12)])
def test_runs_equal_those_of_scikit_learn(rng, dtype, k):
    X = (rng.standard_normal((500, 6)) + 3 * rng.standard_normal((k, 6))[rng.integers(0, k, 500)]).astype(dtype)
    starts = [X[rng.choice(500, k, replace=False)] for _ in range(3)]
    for start, (centers, codes) in zip(starts, run_k_means(X, starts), strict=True):
        expected = KMeans(k, init=start, n_init=1, tol=0).fit(X)
        np.testing.assert_array_equal(codes, expected.labels_)
        np.testing.assert_allclose(centers, expected.cluster_centers_, rtol=tolerance(dtype), atol=1e-5)
        np.testing.assert_array_equal(nearest_center(X, centers), codes)


def test_an_empty_cluster_keeps_its_center():
    X = np.asarray([[0.0, 0], [1, 0], [0, 1]])
    ((centers, codes),) = run_k_means(X, [np.asarray([[0.0, 0], [50, 50]])])
    assert codes.tolist() == [0, 0, 0]
    np.testing.assert_allclose(centers, [[1 / 3, 1 / 3], [50, 50]])
