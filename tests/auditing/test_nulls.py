"""Null models against simulated data."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

import isoscope
from isoscope.auditing import nulls
from tests.conftest import tolerance

SHAPES = [(400, 20), (100, 100), (60, 200)]


def shares(n, d, rng, draws=20):
    """Each direction's share of ‖X‖² in Gaussian clouds, largest first, one row for each draw."""
    values = [np.linalg.svd(rng.standard_normal((n, d)), compute_uv=False) ** 2 for _ in range(draws)]
    padded = np.zeros((draws, d))
    padded[:, : min(n, d)] = np.asarray(values) / np.sum(values, axis=1, keepdims=True)
    return padded


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices spend their time waiting for BLAS's threads."""
    with threadpool_limits(1):
        yield


# what must hold


@pytest.mark.parametrize(("n", "d"), [*SHAPES, (4, 2), (5, 3), (10**6, 768), (50, 4096)])
def test_spectrum_shares_decrease_and_sum_to_one(n, d):
    found = nulls.spectrum(n, d)
    assert found.shape == (d,)
    assert found.sum() == pytest.approx(1, abs=tolerance("float64"))
    assert (np.diff(found) <= 0).all()
    assert (found > 0).sum() == min(n, d)


def test_with_many_rows_all_directions_have_equal_shares():
    np.testing.assert_allclose(nulls.spectrum(10**12, 50), 1 / 50, rtol=1e-4)
    assert nulls.top_share(10**12, 50) == pytest.approx(1 / 50, rel=1e-4)
    assert nulls.effective_rank(10**12, 50) == pytest.approx(50, rel=1e-4)


@pytest.mark.parametrize("d", [2, 3, 4, 10, 768, 4096])
def test_the_density_of_cosines_has_an_area_of_one(d):
    # c = cos θ, which takes the poles at ±1 for d = 2 away
    angles = (np.arange(40_000) + 0.5) * np.pi / 40_000
    area = (nulls.cosine_density(np.cos(angles), d) * np.sin(angles)).sum() * np.pi / 40_000
    assert area == pytest.approx(1, rel=1e-6)


# outside oracles


@pytest.mark.parametrize("d", [2, 3, 10, 768])
def test_density_of_cosines_matches_scipy_and_random_directions(d, rng):
    cosines = np.linspace(-0.99, 0.99, 199)
    # (1 + c)/2 follows a beta law
    expected = stats.beta((d - 1) / 2, (d - 1) / 2).pdf((cosines + 1) / 2) / 2
    np.testing.assert_allclose(nulls.cosine_density(cosines, d), expected, rtol=1e-6, atol=1e-12)
    rows = rng.standard_normal((1000, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    edges = np.linspace(-1, 1, 21) * min(1, 4 / np.sqrt(d))
    middles = (edges[1:] + edges[:-1]) / 2
    found, _ = np.histogram((rows @ rows.T)[np.triu_indices(1000, 1)], edges)
    some = slice(1, -1) if d == 2 else slice(None)  # at the poles the middle of a bin is not its mean
    width = edges[1] - edges[0]
    np.testing.assert_allclose(
        found[some] / (499_500 * width), nulls.cosine_density(middles, d)[some], atol=0.05 / width / 20, rtol=0.05
    )


@pytest.mark.parametrize(("n", "d"), [(30, 5), (8, 40)])
def test_mean_cosine_std_matches_random_directions(n, d, rng):
    found = [float(isoscope.mean_cosine(rng.standard_normal((n, d)))) for _ in range(1000)]
    # 1000 draws know a deviation to 2.2%; the tails are heavier than a Gaussian's
    assert nulls.mean_cosine_std(n, d) == pytest.approx(np.std(found), rel=0.12)


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_spectrum_matches_random_data(n, d, rng):
    drawn = shares(n, d, rng).mean(axis=0)
    np.testing.assert_allclose(np.cumsum(nulls.spectrum(n, d)), np.cumsum(drawn), atol=0.01)
    assert nulls.top_share(n, d) == pytest.approx(drawn[0], rel=0.06)  # the edge is approached from below
    assert nulls.top_share(n, d) > drawn[0]


@pytest.mark.parametrize(("n", "d"), [*SHAPES, (2000, 10), (20, 500)])
def test_effective_rank_matches_random_data(n, d, rng):
    drawn = np.exp(stats.entropy(shares(n, d, rng), axis=1)).mean()
    assert nulls.effective_rank(n, d) == pytest.approx(drawn, rel=0.02)


@pytest.mark.parametrize(("d", "near"), [(2, 0.05), (8, 0.02), (64, 0.003), (768, 0.001)])
def test_norm_variation_matches_gaussian_vectors(d, near):
    lengths = stats.chi(d)
    assert nulls.norm_variation(d) == pytest.approx(lengths.std() / lengths.mean(), rel=near)


@pytest.mark.parametrize(
    ("n", "d", "length"),
    [
        (1000, 20, 0.3),
        (1000, 20, 3),
        (1000, 20, 5),
        (1500, 64, 1),
        (1500, 64, 5),
        (1000, 128, 11.3),
        (2000, 256, 16),
        (50, 800, 28),
        (400, 32, 20),
        (400, 32, 100),
        (2000, 64, 1000),
    ],
)
def test_partition_log_ratio_matches_random_directions(n, d, length, rng):
    found = []
    for _ in range(3):
        X = rng.standard_normal((n, d))
        X *= length * rng.uniform(0.9, 1.1, (n, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
        found.append(float(isoscope.partition_isotropy(X, log=True)))
    # within a factor of about 2 of the logarithm: a yardstick for ratios that run over hundreds of powers of ten
    ratio = nulls.partition_log_ratio(np.linalg.norm(X, axis=1), n, d) / np.mean(found)
    assert 1 / 2.2 < ratio < 2.2


@pytest.mark.parametrize(("n", "dimensions"), [(300, 100), (3000, 300)])
def test_max_chance_cosine_slightly_exceeds_best_unrelated_cosine(n, dimensions, rng):
    best = []
    for _ in range(30):
        rows = rng.standard_normal((n, dimensions))
        best.append((rows[:, 0] / np.linalg.norm(rows, axis=1)).max())
    assert nulls.max_chance_cosine(n, dimensions) == pytest.approx(np.mean(best), rel=0.2)
    assert nulls.max_chance_cosine(n, dimensions) > np.mean(best)


# edges


@pytest.mark.parametrize("length", [100.0, 1e9])
def test_long_vectors_have_a_finite_null(length):
    assert nulls.partition_log_ratio(np.full(100, length), 100, 10) < -10


@pytest.mark.parametrize("length", [1e-3, 1e-8, 1e-30])
def test_short_vectors_have_an_isotropic_partition_function(length):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nulls.partition_log_ratio(np.full(100, length), 100, 10)
    assert -1e-3 < found <= 0
