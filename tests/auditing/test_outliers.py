"""Outliers: planted rows are found, ordinary data have almost none, and coordinates do not matter."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope._core.pairs import nearest_neighbors
from isoscope.auditing.outliers import (
    FALSE_DISCOVERY_RATE,
    MIN_OUTLIER_ROWS,
    _fit_distances,
    find_outliers,
    fit_outliers,
    neighbor_differences,
)
from tests.conftest import rotation

KINDS = ["gaussian", "power", "cone", "clusters"]


def cloud(kind, n, d, seed):
    rng = np.random.default_rng([seed, n, d])
    X = rng.standard_normal((n, d))
    if kind == "power":
        return X / np.arange(1, d + 1)
    if kind == "cone":
        return X / np.arange(1, d + 1) + 1
    return X + 6 * rng.standard_normal((8, d))[rng.integers(8, size=n)] if kind == "clusters" else X


def search(X, near=0.0):
    return fit_outliers(X, *nearest_neighbors(X, min(20, len(X) - 1)), near=near)


def outliers(X, near=0.0):
    return np.flatnonzero(find_outliers(search(X, near)[1])).tolist()


# identities and invariances


@pytest.mark.parametrize("kind", KINDS)
def test_rotation_translation_and_scale_do_not_matter(kind, rng):
    X = cloud(kind, 300, 12, 0)
    expected = search(X)[1]
    for other in (X @ rotation(12, rng), 1e-5 * X, X + 100):
        np.testing.assert_allclose(search(other)[1], expected, rtol=1e-5)


def test_distances_are_mahalanobis_distances_with_the_row_left_out():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((400, 6)) / np.arange(1, 7)
    found = _fit_distances(lambda: iter([(slice(0, 250), Y[:250]), (slice(250, 400), Y[250:])]), 400, 6)
    model, p_values = found
    fitted = _kept(Y)
    ridge = 0.01 * np.trace(Y[fitted].T @ Y[fitted]) / 6 * np.eye(6)
    expected = []
    for row in range(400):
        kept = fitted.copy()
        kept[row] = False
        squared = Y[row] @ np.linalg.solve(Y[kept].T @ Y[kept] + ridge, Y[row]) * fitted.sum()
        expected.append(np.cbrt(squared))
    np.testing.assert_allclose(model.distances(Y, fitted), expected, rtol=1e-9)
    np.testing.assert_allclose(model.p_values(np.asarray(expected)), p_values, rtol=1e-9)
    assert model.start == pytest.approx(np.quantile(expected, 0.75))


def _kept(Y):
    """The 95% of rows with the smallest distances from a covariance that includes all rows."""
    scatter = Y.T @ Y
    scatter += 0.01 * np.trace(scatter) / Y.shape[1] * np.eye(Y.shape[1])
    leverages = np.einsum("ij,ij->i", Y @ np.linalg.inv(scatter), Y)
    return leverages <= np.quantile(leverages, 0.95)


def test_a_row_must_be_unusual_in_both_ways():
    X = cloud("power", 400, 8, 0)
    model, _ = search(X)
    others = np.random.default_rng(1).standard_normal((50, 8)), np.random.default_rng(2).standard_normal((50, 8))
    expected = np.maximum(
        model.from_neighbors.p_values(model.from_neighbors.distances(others[1])),
        model.from_center.p_values(model.from_center.distances(others[0] - X.mean(axis=0))),
    )
    np.testing.assert_allclose(model.p_values(*others), expected)


def test_a_small_distant_topic_is_not_an_outlier():
    rng = np.random.default_rng(0)
    X = cloud("power", 1000, 64, 0)
    X[:15] += 0.5 * rng.standard_normal(64)  # 15 rows have each other as their 10 nearest
    assert len(set(outliers(X)) & set(range(15))) <= 2
    X[1:15] = cloud("power", 14, 64, 1)
    assert 0 in outliers(X)  # the same distance, but alone


def test_differences_are_from_the_mean_of_the_ten_nearest_rows():
    X = cloud("gaussian", 60, 5, 0)
    distances, indices = nearest_neighbors(X, 30)
    expected = X - X[indices[:, :10]].mean(axis=1)
    np.testing.assert_allclose(neighbor_differences(X, X, distances, indices, 0.0), expected)
    apart = [[j for j, r in zip(i, d, strict=True) if r > 1.5][:10] for i, d in zip(indices, distances, strict=True)]
    expected = np.stack([x - X[chosen].mean(axis=0) for x, chosen in zip(X, apart, strict=True)])
    np.testing.assert_allclose(neighbor_differences(X, X, distances, indices, 1.5), expected)


def test_if_all_neighbors_are_near_they_are_used():
    X = np.zeros((15, 2))
    found = neighbor_differences(X + 1, X, np.zeros((15, 4)), np.tile(np.arange(4), (15, 1)), 0.5)
    np.testing.assert_array_equal(found, np.ones((15, 2)))


def test_p_values_fall_with_the_score_and_match_their_quantiles():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((4000, 16))
    model, p = _fit_distances(lambda: iter([(slice(0, 4000), Y)]), 4000, 16)
    order = np.argsort(np.linalg.norm(Y, axis=1))
    assert np.corrcoef(np.argsort(order), -p)[0, 1] > 0.7
    assert (np.diff(model.p_values(np.linspace(0, 9, 50))) <= 0).all()
    for share in (0.05, 0.1, 0.2):
        assert np.mean(p <= share) == pytest.approx(share, abs=0.02)
    assert (p == 1).mean() == pytest.approx(0.75, abs=0.001)
    assert model.p_values(np.asarray([model.start + model.scale]))[0] == pytest.approx(0.25 / np.e)


# planted outliers


@pytest.mark.parametrize("kind", ["power", "cone"])
def test_only_vectors_from_elsewhere_are_found(kind):
    X = cloud(kind, 800, 64, 0)
    planted = [5, 77, 300, 301, 640]
    noise = np.random.default_rng(9).standard_normal((5, 64))
    X[planted] = (
        noise * np.linalg.norm(X[planted], axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    )
    found = outliers(X)
    assert set(planted) <= set(found)
    assert len(found) <= 6  # at a false discovery rate of 5%, 5 discoveries have 0.3 false ones on average


def test_copies_of_an_outlier_do_not_hide_it():
    X = cloud("power", 800, 32, 0)
    X[10:22] = 3.0 * X[10] + 3.0
    assert outliers(X, near=1e-9) == [*range(10, 22)]


# ordinary data


@pytest.mark.parametrize("kind", KINDS)
def test_ordinary_data_have_outliers_in_at_most_5_percent_of_the_runs(kind):
    # without outliers, the false discovery rate is the probability of any discovery: 2 of 40 runs, plus 3 deviations
    alarms = sum(len(outliers(cloud(kind, 300, d, seed))) > 0 for d in (4, 32) for seed in range(20))
    assert alarms <= 6


# edges


def test_too_few_or_equal_rows_have_no_model():
    assert search(cloud("gaussian", MIN_OUTLIER_ROWS - 1, 4, 0)) is None
    assert search(cloud("gaussian", MIN_OUTLIER_ROWS, 4, 0)) is not None
    assert search(np.ones((200, 4))) is None


def test_more_dimensions_than_rows():
    X = cloud("power", 120, 400, 0)
    X[3] = 10 * np.random.default_rng(1).standard_normal(400)
    assert outliers(X) == [3]


def test_missing_p_values_are_not_outliers():
    assert find_outliers(np.asarray([np.nan, 1e-9, 0.5, np.nan])).tolist() == [False, True, False, False]
    assert not find_outliers(np.full(3, np.nan)).any()
    limit = FALSE_DISCOVERY_RATE / 4
    assert find_outliers(np.asarray([limit * 1.01, 1, 1, 1])).tolist() == [False] * 4
    assert find_outliers(np.asarray([limit * 0.99, 1, 1, 1])).tolist() == [True, False, False, False]
