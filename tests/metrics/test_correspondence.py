"""CKA, Procrustes distance and mutual neighbors: invariances, and independent formulas."""

import numpy as np
import pytest
from scipy.spatial import procrustes
from sklearn.neighbors import NearestNeighbors

from isoscope import InputError
from isoscope.metrics import cka, mutual_knn, procrustes_distance
from tests.conftest import rotation, tolerance

TOL = tolerance("float64")
ALL = [cka, procrustes_distance, mutual_knn]


@pytest.fixture
def spaces(rng):
    X = rng.standard_normal((60, 8)) * np.arange(1, 9)
    return X, X @ rng.standard_normal((8, 5)) + 3 * rng.standard_normal((60, 5))


@pytest.mark.parametrize("measure", ALL)
def test_rotation_and_scale_change_nothing(measure, spaces, rng):
    X, Y = spaces
    turned = 3 * X @ rotation(8, rng)
    assert float(measure(turned, Y)) == pytest.approx(float(measure(X, Y)), abs=TOL)
    assert float(measure(Y, X)) == pytest.approx(float(measure(X, Y)), abs=TOL)
    assert float(measure(X, turned)) == pytest.approx(0 if measure is procrustes_distance else 1, abs=TOL)


def test_cka_equals_the_gram_formula(spaces):
    X, Y = spaces
    H = np.eye(60) - 1 / 60
    K, L = H @ X @ X.T @ H, H @ Y @ Y.T @ H
    expected = (K * L).sum() / np.sqrt((K * K).sum() * (L * L).sum())
    assert float(cka(X, Y, unbiased=False)) == pytest.approx(expected, abs=TOL)


def test_unbiased_cka_equals_song_et_al(spaces):
    X, Y = spaces

    def hsic(A, B):
        K, L = A @ A.T, B @ B.T  # not centered: the estimator does not depend on the mean
        np.fill_diagonal(K, 0)
        np.fill_diagonal(L, 0)
        n, one = len(K), np.ones(len(K))
        return np.trace(K @ L) + K.sum() * L.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ K @ L @ one)

    expected = hsic(X, Y) / np.sqrt(hsic(X, X) * hsic(Y, Y))
    assert float(cka(X + 5, Y - 2)) == pytest.approx(expected, abs=TOL)


def test_unbiased_cka_of_unrelated_spaces_is_zero_with_few_rows():
    """20 rows in 100 dimensions: the biased value exceeds 0.7; the mean of 200 unbiased ones is 0 within 5 errors."""
    rng = np.random.default_rng(0)
    pairs = [(rng.standard_normal((20, 100)), rng.standard_normal((20, 100))) for _ in range(200)]
    values = [float(cka(X, Y)) for X, Y in pairs]
    assert abs(np.mean(values)) < 5 * np.std(values) / np.sqrt(200)
    assert float(cka(*pairs[0], unbiased=False)) > 0.7


def test_procrustes_distance_is_the_disparity_of_scipy(spaces):
    X, Y = spaces[0], spaces[0] ** 2
    assert float(procrustes_distance(X, Y)) == pytest.approx(procrustes(X, Y)[2], abs=TOL)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_mutual_neighbors_are_those_of_scikit_learn(metric, spaces):
    lists = [NearestNeighbors(n_neighbors=5, metric=metric).fit(X).kneighbors(return_distance=False) for X in spaces]
    expected = [len(set(a) & set(b)) / 5 for a, b in zip(*lists, strict=True)]
    np.testing.assert_allclose(mutual_knn(*spaces, 5, metric=metric, per_point=True), expected)
    assert float(mutual_knn(*spaces, 5, metric=metric)) == pytest.approx(np.mean(expected))


def test_any_array_library(library, spaces):
    X, Y = spaces
    for measure in ALL:
        got = measure(library.array(X), library.array(Y))
        assert float(library.values(got) if measure is not mutual_knn else got) == pytest.approx(
            float(measure(X, Y)), abs=tolerance("float32")
        )


def test_bad_input(spaces):
    X, Y = spaces
    for measure in ALL:
        with pytest.raises(InputError, match="60 rows and Y has 59"):
            measure(X, Y[:59])
    for measure in (cka, procrustes_distance):
        with pytest.raises(InputError, match="equal"):
            measure(np.ones((10, 3)), X[:10])
    with pytest.raises(InputError, match="k is 60"):
        mutual_knn(X, Y, 60)
    with pytest.raises(InputError, match="metric"):
        mutual_knn(X, Y, metric="l1")
