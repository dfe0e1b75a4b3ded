"""Clusters and the local dimension against null samples: random data has no structure."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope.auditing import nulls, structure
from isoscope.auditing.passes import Axes


@pytest.fixture(autouse=True)
def one_thread():
    with threadpool_limits(1):
        yield


def long_cloud(n, d, power, seed, *, unit=False, degrees=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.arange(1, d + 1) ** (-power / 2)
    if degrees:
        X *= np.sqrt(degrees / rng.chisquare(degrees, (n, 1)))
    return X / np.linalg.norm(X, axis=1, keepdims=True) if unit else X


def mixture(n, d, k, apart, seed, *, unit=False):
    rng = np.random.default_rng(seed)
    centers = np.linalg.qr(rng.standard_normal((d, k)))[0].T * apart / np.sqrt(2)
    X = rng.standard_normal((n, d)) + centers[rng.integers(0, k, n)]
    return X / np.linalg.norm(X, axis=1, keepdims=True) if unit else X


# the constants that verdicts hang on


def test_thresholds_match_the_documentation():
    assert structure.MIN_SILHOUETTE == 0.1
    assert structure.CLUSTER_NULLS == 49
    assert structure.MIN_UNIMODAL_KURTOSIS == 1.5
    assert (structure.LID_SEARCH_ROWS, structure.LID_NULLS) == (5_000, 6)
    assert list(structure.CLUSTER_COUNTS) == list(range(2, 16))


# clusters


@pytest.mark.parametrize(("unit", "degrees"), [(True, None), (False, None), (False, 3)])
@pytest.mark.parametrize("power", [1.0, 1.5])
def test_unimodal_data_give_one_cluster(power, unit, degrees):
    clouds = [long_cloud(300, 48, power, seed, unit=unit, degrees=degrees) for seed in range(8)]
    # at a level of 2% two of eight or more come once in 120 times
    assert sum(structure.has_clusters(X, 0) for X in clouds) <= 1


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("d", "k", "apart"), [(16, 2, 8), (64, 5, 8), (64, 15, 10), (768, 2, 12)])
def test_separated_mixtures_are_found(d, k, apart, unit):
    found = [isoscope.audit(mixture(400, d, k, apart, seed, unit=unit))["clusters"] for seed in range(2)]
    assert [f.details["n_clusters"] > 1 for f in found] == [True, True]
    if k < 15:
        assert [f.details["n_clusters"] for f in found] == [k, k]


def test_two_groups_are_found_at_any_distance():
    for apart in (8, 40, 1e4):
        X = mixture(300, 32, 2, apart, 0)
        assert structure.cluster_rows(X, Axes.of(np.cov(X.T)), 0, {}).n_clusters == 2


def test_outlier_is_not_a_cluster():
    X = long_cloud(300, 16, 0, 0)
    X[0] *= 1e4
    found = isoscope.audit(X)["clusters"]
    assert found.details["n_clusters"] == 1
    assert found.value < 0.2


@pytest.mark.parametrize(("weights", "apart"), [((0.5, 0.5), True), ((1.0, 0.0), False)])
def test_kurtosis_detects_two_modes(weights, apart):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    X[:, 0] = rng.choice([-30.0, 30.0], 400, p=weights) + (0 if apart else rng.uniform(-60, 60, 400))
    assert structure.is_bimodal(X, Axes.of(np.cov(X.T))) == apart


def test_null_directions_have_the_spectrum_of_the_data():
    X = nulls.directions_from_median(long_cloud(200, 24, 1, 0))
    null = nulls.UnimodalDirections(X, 16, np.random.default_rng(1))
    drawn = null.draw(np.random.default_rng(2))
    np.testing.assert_allclose(drawn.T @ drawn, np.diag(null.scores.T @ null.scores) * np.eye(16), atol=1e-8)
    np.testing.assert_allclose(np.diag(null.scores.T @ null.scores), np.linalg.eigvalsh(X.T @ X)[::-1][:16])


def test_scores_along_principal_axes_match_numpy(rng):
    for shape in ((30, 6), (6, 30)):
        X = rng.standard_normal(shape)
        values, scores = nulls.principal_scores(X)
        np.testing.assert_allclose(values, np.linalg.svd(X, compute_uv=False) ** 2)
        np.testing.assert_allclose(np.abs(scores.T @ scores), np.diag(values), atol=1e-8)
        np.testing.assert_allclose(scores @ scores.T, X @ X.T, atol=1e-8)


def test_spatial_median_removes_mean_direction_and_ignores_outlier(rng):
    X = rng.standard_normal((200, 5)) + 100
    assert np.linalg.norm(nulls.directions_from_median(X).mean(axis=0)) < 1e-3
    X[0] = 1e9
    assert np.linalg.norm(nulls.directions_from_median(X).mean(axis=0)) < 1e-3


# the local dimension


def test_a_spectrum_is_shrunk_to_the_requested_participation_ratio(rng):
    values = np.sort(rng.random(40))[::-1] ** 3
    found = nulls.shrunk_spectrum(values, 30.0)
    assert found.sum() == pytest.approx(values.sum())
    assert found.sum() ** 2 / (found**2).sum() == pytest.approx(30)
    np.testing.assert_allclose(nulls.shrunk_spectrum(values, 1.0), values)
    np.testing.assert_allclose(nulls.shrunk_spectrum(values, 99.0), values.mean())


def test_null_rows_keep_the_lengths_of_the_data(rng):
    lengths = rng.random(50)
    rows = nulls.GaussianRows(np.ones(8), np.arange(8.0), lengths).draw(rng)
    np.testing.assert_allclose(np.sort(np.linalg.norm(rows, axis=1)), np.sort(lengths), rtol=1e-5)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("n", "d"), [(500, 384), (300, 768), (600, 24)])
def test_gaussian_data_match_the_local_dimension_of_their_null(n, d, metric):
    for power in (0, 1):
        found = isoscope.audit(long_cloud(n, d, power, 3), metric=metric)["intrinsic_dimension"]
        assert found.verdict == "ok"
        assert found.value == pytest.approx(found.judged.null, rel=0.12)


def test_thin_space_is_look():
    rng = np.random.default_rng(0)
    t = rng.random((1500, 1)) * 40
    X = np.concatenate([np.cos(t * np.arange(1, 17)), np.sin(t * np.arange(1, 17))], axis=1)  # a curve in 32 dimensions
    found = isoscope.audit(X)["intrinsic_dimension"]
    assert found.verdict == "look"
    assert found.value < 0.5 * found.judged.null


def test_local_dimension_thresholds_are_relative_to_the_null():
    found = isoscope.audit(long_cloud(600, 24, 0, 0))["intrinsic_dimension"]
    null = np.array(found.details["null"])
    reach = 2.570582 * null.std(ddof=1) * np.sqrt(7 / 6)  # Student's t of 5 degrees at 97.5%
    assert found.judged.ok == pytest.approx((0.5 * (null.mean() - reach), 1.1 * (null.mean() + reach)))
