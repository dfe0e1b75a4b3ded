"""Standard errors from one sample match the spread over many samples of one source."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import isoscope
from isoscope._core.formulas import student_interval
from isoscope.auditing import nulls
from isoscope.auditing.passes import Axes
from tests.conftest import tolerance

N, D, DRAWS = 400, 8, 200
NEAR = 0.2  # 200 draws know a deviation to 5%, heavy tails to 10%


@pytest.fixture(scope="module")
def draws():
    """Samples of one distribution with a decaying spectrum, a large mean and heavy tails."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((DRAWS, N, D)) * (0.5 + rng.random((DRAWS, N, 1)))
    return 1.5 * rows / np.sqrt(np.arange(1, D + 1)) + 0.3


@pytest.fixture(scope="module")
def sketches(draws):
    return [isoscope.Sketch.of(X) for X in draws]


def matches(values, errors):
    """Check that the mean squared standard error matches the variance of the values."""
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values, ddof=1), rel=NEAR)


# identities


@pytest.mark.parametrize("shape", [(5, 3), (40, 6), (30, 50), (400, 8)])
def test_isoscore_error_on_all_rows_matches_its_interval(shape, rng):
    X = rng.standard_normal(shape) / np.arange(1, shape[1] + 1) + 2
    estimate = isoscope.isoscore_interval(X)
    found = student_interval(estimate.value, nulls.isoscore_error(isoscope.sketch(X), X), 0.95, len(X) - 1)
    np.testing.assert_allclose(found, [estimate.low, estimate.high], rtol=tolerance("float64"))


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e15])
def test_errors_of_shares_do_not_depend_on_the_scale(draws, scale):
    for X in draws[:2]:
        small, large = isoscope.sketch(X), isoscope.sketch(scale * X)
        for spread in (nulls.mean_cosine_error, nulls.isoscore_error):
            assert spread(large, scale * X) == pytest.approx(spread(small, X), rel=tolerance("float64"))


def test_error_of_a_mean_matches_the_textbook(rng):
    values = rng.exponential(size=50)
    assert nulls.mean_error(values) == pytest.approx(stats.sem(values), rel=tolerance("float64"))


def test_jackknife_error_of_a_mean_matches_the_textbook(rng):
    values = rng.exponential(size=50)
    left = (values.sum() - values) / 49
    assert nulls.jackknife_error(left) == pytest.approx(stats.sem(values), rel=tolerance("float64"))


# against the spread over draws


def test_error_of_mean_cosine(draws, sketches):
    matches(
        [s.mean_cosine() for s in sketches],
        [nulls.mean_cosine_error(s, X) for s, X in zip(sketches, draws, strict=True)],
    )


def test_error_of_isoscore(draws, sketches):
    matches(
        [s.isoscore(unbiased=True) for s in sketches],
        [nulls.isoscore_error(s, X) for s, X in zip(sketches, draws, strict=True)],
    )


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("center", [False, True])
def test_error_of_share_of_top_directions(draws, sketches, k, center):
    values, errors = [], []
    for s, X in zip(sketches, draws, strict=True):
        rows = X - s.mean if center else X
        axes = Axes.of(rows.T @ rows)
        values.append(axes.values[:k].sum() / axes.values.sum())
        errors.append(nulls.spectrum_share_error(axes.values, (rows @ axes.vectors) ** 2, k, N))
    np.testing.assert_allclose(values[0], s_anisotropy(sketches[0], k, center), rtol=tolerance("float64"))
    matches(values, errors)


def s_anisotropy(sketch, k, center):
    return sketch.anisotropy(k, center=center).sum()


def test_error_of_effective_rank(draws, sketches):
    values, errors = [], []
    for s, X in zip(sketches, draws, strict=True):
        axes = Axes.of(s.scatter)
        values.append(s.effective_rank())
        errors.append(nulls.effective_rank_error(axes.values, ((X - s.mean) @ axes.vectors) ** 2, N))
    matches(values, errors)


@pytest.mark.parametrize("sigma", [0.2, 0.7])
def test_error_of_norm_variation(sigma, rng):
    lengths = rng.gamma(1 / sigma**2, size=(DRAWS, N))  # of variation sigma, skewed
    matches(lengths.std(axis=1) / lengths.mean(axis=1), [nulls.variation_error(each, N) for each in lengths])


def test_error_of_mean(draws):
    matches(draws[:, :, 0].mean(axis=1), [nulls.mean_error(X[:, 0]) for X in draws])


def test_error_of_grouped_jackknife(draws):
    def skewed(X):
        return np.log(np.exp(X[:, 0]).mean())

    errors = [
        nulls.jackknife_error(np.array([skewed(np.delete(X, np.s_[g::16], axis=0)) for g in range(16)])) for X in draws
    ]
    matches([skewed(X) for X in draws], errors)


def test_some_rows_approximate_the_error_of_all_rows(draws, sketches):
    """A hundred values determine a standard deviation to 7%, and these are heavy-tailed."""
    for s, X in zip(sketches[:5], draws[:5], strict=True):
        axes = Axes.of(s.scatter)
        squares = ((X - s.mean) @ axes.vectors) ** 2
        for some, whole in (
            (nulls.mean_cosine_error(s, X[:100]), nulls.mean_cosine_error(s, X)),
            (nulls.isoscore_error(s, X[:100]), nulls.isoscore_error(s, X)),
            (
                nulls.effective_rank_error(axes.values, squares[:100], N),
                nulls.effective_rank_error(axes.values, squares, N),
            ),
        ):
            assert some == pytest.approx(whole, rel=0.35)


def test_mean_cosine_error_is_not_too_small_for_isotropic_data(rng):
    # there the first-order influence vanishes: the error may be too large by √2, never too small
    clouds = rng.standard_normal((300, 60, 6))
    errors = [nulls.mean_cosine_error(isoscope.Sketch.of(X), X) for X in clouds]
    assert 0.95 < np.mean(errors) / np.std([isoscope.mean_cosine(X) for X in clouds]) < 1.6


# shares of rows


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (3, 60), (30, 60), (60, 60), (999, 1000)])
def test_interval_of_a_share_matches_wilson(hits, n):
    expected = stats.binomtest(hits, n).proportion_ci(method="wilson")
    np.testing.assert_allclose(nulls.wilson_interval(hits / n, n), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_interval_of_a_share_covers_it_in_19_of_20_samples(share, rng):
    hits = rng.binomial(200, share, 500) / 200
    held = np.mean([low <= share <= high for low, high in (nulls.wilson_interval(hit, 200) for hit in hits)])
    assert 0.92 <= held <= 0.99


# edges


def test_constants_have_zero_error_and_single_values_infinite():
    assert nulls.variation_error(np.ones(10), 10) == 0
    assert nulls.mean_error(np.ones(10)) == 0
    assert nulls.mean_error(np.ones(1)) == math.inf


def test_directions_without_variance_add_no_error(rng):
    X = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 6))
    s = isoscope.sketch(X)
    axes = Axes.of(s.scatter)
    assert math.isfinite(nulls.effective_rank_error(axes.values, ((X - s.mean) @ axes.vectors) ** 2, 50))
    exact = np.concatenate([axes.values[:3], np.zeros(3)])
    assert nulls.effective_rank_error(exact, ((X - s.mean) @ axes.vectors) ** 2, 50) == pytest.approx(
        nulls.effective_rank_error(axes.values, ((X - s.mean) @ axes.vectors) ** 2, 50), rel=tolerance("float64")
    )


def test_four_rows_have_infinite_isoscore_error(rng):
    X = rng.standard_normal((4, 3))
    assert nulls.isoscore_error(isoscope.sketch(X), X) == math.inf


def test_one_row_with_all_the_variance_has_an_infinite_error():
    X = np.ones((10, 3))
    X[4] = 5
    assert nulls.isoscore_error(isoscope.sketch(X), X) == math.inf
    assert isoscope.isoscore_interval(X).high == math.inf
