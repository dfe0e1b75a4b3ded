"""The sums behind the formulas: shifted, leave-one-out, unbiased and clipped.

`metrics` tests the formulas themselves.
"""

from itertools import product

import numpy as np
import pytest
from array_api_compat import array_namespace

import isoscope
from isoscope._core.formulas import (
    Moments,
    Traces,
    clip_traces,
    isoscore,
    leave_one_out,
    student_interval,
    student_quantile,
    unbiased_traces,
)
from tests.conftest import tolerance


def moments(Y):
    r = (Y * Y).sum(axis=1)
    return Moments(Y.sum(axis=0), Y.T @ Y, r @ Y, (r * r).sum())


def traces(X):
    """(tr W, tr(W²), Σ‖y‖⁴) by their definitions."""
    Y = X - X.mean(axis=0)
    W = Y.T @ Y
    return np.trace(W), np.vdot(W, W), ((Y * Y).sum(axis=1) ** 2).sum()


def test_shifted_sums_equal_sums_of_shifted_rows(library, rng):
    Y = rng.standard_normal((9, 4)) + 0.5
    by = np.array([1.0, -2.0, 0.25, 3.0])
    own = Moments(*(library.array(value) for value in moments(Y)))
    moved = own.shift_rows(array_namespace(own.total), len(Y), library.array(by))
    tol = tolerance(np.float64 if "64" in library.name else np.float32)
    for got, expected in zip(moved, moments(Y + by), strict=True):
        np.testing.assert_allclose(library.values(got), expected, rtol=tol, atol=tol * abs(expected).max())


def test_shift_and_inverse_shift_change_nothing(rng):
    Y, by = rng.standard_normal((9, 4)), rng.standard_normal(4)
    back = moments(Y).shift_rows(np, 9, by).shift_rows(np, 9, -by)
    for got, expected in zip(back, moments(Y), strict=True):
        np.testing.assert_allclose(got, expected, rtol=tolerance(np.float64), atol=tolerance(np.float64))


@pytest.mark.parametrize("shape", [(3, 2), (5, 8), (30, 4)])
def test_leaving_a_row_out_equals_deleting_it(shape, rng):
    X = rng.standard_normal(shape) ** 3 + 2  # skewed, so that odd moments count
    Y = X - X.mean(axis=0)
    W, r = Y.T @ Y, (Y * Y).sum(axis=1)
    left_out = leave_one_out(len(X), *traces(X), r, ((Y @ W) * Y).sum(axis=1), Y @ (r @ Y))
    deleted = zip(*(traces(np.delete(X, i, axis=0)) for i in range(len(X))), strict=True)
    for got, expected in zip(left_out, deleted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=tolerance(np.float64))


@pytest.mark.parametrize(("population", "n"), [(4, 4), (3, 5), (2, 7)])
def test_traces_are_unbiased_over_all_samples(population, n, rng):
    points = rng.standard_normal((population, 3)) ** 3 + 1
    Y = points - points.mean(axis=0)
    covariance = Y.T @ Y / population
    estimates = [unbiased_traces(n, *traces(points[list(drawn)])) for drawn in product(range(population), repeat=n)]
    mean = np.mean(estimates, axis=0)
    truth = Traces(np.trace(covariance) ** 2, np.vdot(covariance, covariance))
    np.testing.assert_allclose(mean, truth, rtol=tolerance(np.float64))


def test_plug_in_traces_are_biased(rng):
    X = rng.standard_normal((64, 768))
    assert isoscope.isoscore(X) < 0.1
    assert isoscope.isoscore(X, unbiased=True) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("d", [2, 3, 50])
def test_few_rows_give_a_finite_estimate(d, rng):
    for _ in range(200):
        score = isoscope.isoscore(rng.standard_normal((4, d)), unbiased=True)
        assert np.isfinite(score)
        assert score <= (2 * d - 1) / (d - 1) + tolerance(np.float64)


@pytest.mark.parametrize(
    ("squared_trace", "trace_squared"), [(1.0, 0.0), (1.0, -3.0), (0.0, 0.0), (-1.0, 2.0), (-1.0, -2.0), (0.0, 1.0)]
)
def test_impossible_traces_are_clipped_to_finite_ratios(squared_trace, trace_squared):
    held = clip_traces(np, Traces(np.float64(squared_trace), np.float64(trace_squared)), np.float64(1), n=20, d=5)
    assert held.trace_squared > 0
    assert 0 <= isoscore(held, 5) <= (2 * 5 - 1) / (5 - 1)


@pytest.mark.parametrize("ratio", [1.0, 3.0, 5.0, 6.5])
def test_possible_traces_are_unchanged_even_above_one(ratio):
    given = Traces(np.float64(ratio), np.float64(1))
    assert clip_traces(np, given, np.float64(ratio), n=20, d=5) == given


def test_trace_within_rounding_error_scores_zero(library):
    plug_in = library.array(7.0)
    xp = array_namespace(plug_in)
    eps = float(np.finfo(np.float64 if "64" in library.name else np.float32).eps)
    for share, score in [(20 * eps, 0), (10_000 * eps, 1)]:
        traces = Traces(plug_in * share, plug_in * share / 5)
        found = isoscore(clip_traces(xp, traces, plug_in, n=20, d=5), 5)
        assert library.values(found) == pytest.approx(score, abs=tolerance(np.float32))


@pytest.mark.parametrize("n", [4, 5, 20])
def test_one_row_distinct_from_equal_rows_scores_zero(n, rng):
    for _ in range(30):
        X = np.tile(rng.standard_normal(3), (n, 1))
        X[-1] += rng.standard_normal(3)
        assert isoscope.isoscore(X, unbiased=True) == 0
        assert isoscope.Sketch.of(X).isoscore(unbiased=True) == 0


def test_interval_matches_student():
    from scipy.stats import t

    low, high = student_interval(2.0, 0.5, 0.9, 7)
    np.testing.assert_allclose([low, high], t.interval(0.9, 7, loc=2.0, scale=0.5), rtol=tolerance(np.float64))
    assert student_interval(2.0, np.inf, 0.9, 7) == (-np.inf, np.inf)
    assert student_interval(2.0, np.nan, 0.9, 7) == (-np.inf, np.inf)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99, 0.9999])
def test_student_quantiles_agree_with_scipy(confidence):
    from scipy.special import stdtrit

    degrees = np.asarray([*range(1, 40), 99, 100, 499, 500, 501, 502, 1_000, 19_999, 10**6])
    found = [student_quantile(int(each), confidence) for each in degrees]
    np.testing.assert_allclose(found, stdtrit(degrees, 0.5 + confidence / 2), rtol=1e-10)
    assert student_quantile(0, confidence) == np.inf
