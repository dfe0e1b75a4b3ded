"""Two-sample tests: exact levels, independent formulas, and power."""

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from isoscope import Sketch
from isoscope.comparing.two_sample import (
    LEVEL,
    SpaceMoments,
    auc_interval,
    column_aucs,
    compare_moments,
    compare_rows,
)
from tests.comparing.spaces import topics


def compare(old, new, old_groups=None, new_groups=None, seed=0):
    return compare_rows(old, new, old_groups=old_groups, new_groups=new_groups, seed=seed)


def moments(X, **options):
    return SpaceMoments.of(Sketch.of(X, **options))


def test_auc_is_the_statistic_of_mann_and_whitney(rng):
    scores, positive = rng.standard_normal((40, 3)).round(1), rng.random((40, 3)) < 0.4
    expected = [
        mannwhitneyu(s[p], s[~p]).statistic / (p.sum() * (~p).sum()) for s, p in zip(scores.T, positive.T, strict=True)
    ]
    np.testing.assert_allclose(column_aucs(scores, positive), expected)
    assert np.isnan(column_aucs(scores[:, :1], np.ones((40, 1), bool))).all()


def test_interval_of_an_auc_covers_it():
    """95% intervals of 300 samples with the true AUC 0.714; fewer than 270 cover it once in 10,000 runs."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(300):
        a, b = rng.standard_normal(60) + 0.8, rng.standard_normal(60)
        auc = column_aucs(np.r_[a, b][:, None], np.arange(120)[:, None] < 60)[0]
        low, high = auc_interval(float(auc), 60, 60)
        covered += low <= 0.7142 <= high
    assert covered >= 270


def test_statistics_equal_the_direct_formulas():
    """The first column of the permutations is the data: the statistics are means over pairs of different rows."""
    a, b = topics(40, d=6).astype(np.float64), topics(30, d=6, model=1).astype(np.float64)
    Z = np.r_[a, b] - np.r_[a, b].mean(axis=0)
    Z /= np.sqrt((Z**2).sum(axis=1).mean())
    w = np.r_[np.full(40, 1 / 40), np.full(30, -1 / 30)]
    found = {test.name: test.value for test in compare(a, b).tests}
    for name, power in (("means", 1), ("second_moments", 2)):
        direct = sum(w[i] * w[j] * (Z[i] @ Z[j]) ** power for i in range(70) for j in range(70) if i != j)
        assert found[name] == pytest.approx(direct, rel=1e-9)


def test_random_halves_are_rarely_different():
    """At a level of 1%, more than 2 of 12 pairs of halves differ once in 5,000 runs."""
    X = topics(400)
    alarms = 0
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(len(X))
        alarms += compare(X[order[:60]], X[order[60:120]], seed=seed).differs
    assert alarms <= 2


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_reversed_coordinates_and_other_models_differ(mean):
    X = topics(400, k=1)
    old, new = X[:200] - X.mean(axis=0) + mean, X[200:] - X.mean(axis=0) + mean
    found = compare(old, new[:, ::-1])
    assert found.differs
    assert compare(old, topics(200, model=1)).differs
    assert compare_moments(moments(old), moments(np.ascontiguousarray(new[:, ::-1]))).differs
    assert not compare_moments(moments(old), moments(new)).differs


def test_dependent_rows_need_groups():
    """Passages of 12 documents on each side: as single rows they seem to differ, as groups they do not."""
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.standard_normal((24, 8)), 30, axis=0) + 0.2 * rng.standard_normal((720, 8))
    groups = np.repeat(np.arange(24), 30)
    old, new = rows[:360], rows[360:]
    assert compare(old, new).differs
    assert not compare(old, new, groups[:360], groups[360:]).differs


def test_few_rows_are_not_enough():
    X = topics(600)
    few = compare(X[:10], X[10:20])
    assert few.enough > 10
    assert compare(X[:200], X[200:400]).enough < 200


def test_moments_see_a_shift_and_a_factor():
    X = topics(1200)
    old, new = moments(X[:600]), moments(X[600:])
    assert compare_moments(old, new.scaled(1.5)).rejects("covariances")
    moved = compare_moments(old, new.moved(new.mean + 0.5))
    assert moved.rejects("means")
    assert not moved.rejects("covariances")


def test_difference_of_covariances_is_estimated_without_bias():
    """For two parts of one set, the estimates of 60 pairs average to 0 within 4 standard errors."""
    values = []
    for seed in range(60):
        X = topics(200, d=24, seed=seed)
        values.append(compare_moments(moments(X[:100]), moments(X[100:])).tests[1].value)
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(60)


def test_levels_add_up():
    X = topics(100)
    assert sum(test.level for test in compare(X[:50], X[50:]).tests) == pytest.approx(LEVEL)
    assert sum(test.level for test in compare_moments(moments(X[:50]), moments(X[50:])).tests) == pytest.approx(LEVEL)
