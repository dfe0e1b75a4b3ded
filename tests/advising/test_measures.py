"""Measures as one value per example: their mean is the score, their slopes are those of the weighted score."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information

from isoscope.advising.inference import expected_information, spearman, v_measure


def weighted_spearman(a, b, weights):
    """Spearman's correlation of examples that are repeated by their (whole) weights."""
    return spearmanr(np.repeat(a, weights), np.repeat(b, weights)).statistic


def examples(rng, m, ties):
    a = rng.standard_normal(m)
    b = a + rng.standard_normal(m)
    return (np.round(a), np.round(2 * b)) if ties else (a, b)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("m", [5, 60])
def test_spearman_matches_scipy(rng, ties, m):
    a, b = examples(rng, m, ties)
    assert spearman(a, b).values.mean() == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_spearman_values_are_slopes_of_the_weighted_correlation(rng, ties):
    a, b = examples(rng, 40, ties)
    values = spearman(a, b).values
    base = 2000
    for i in (0, 7, 39):
        up, down = (np.full(40, base) + sign * np.eye(40, dtype=int)[i] * 20 for sign in (1, -1))
        slope = (weighted_spearman(a, b, up) - weighted_spearman(a, b, down)) / (40 / base)
        assert (values[i] - values.mean()) / 40 == pytest.approx(slope, rel=2e-3, abs=1e-5)


def test_spearman_depends_only_on_ranks(rng):
    a, b = rng.standard_normal((2, 40))
    np.testing.assert_allclose(spearman(a, b).values, spearman(np.exp(a), rankdata(b)).values, atol=1e-12)
    np.testing.assert_allclose(spearman(a, b).values, -spearman(-a, b).values, atol=1e-12)


def test_constant_input_has_zero_correlation():
    assert spearman(np.ones(6), np.arange(6.0)).values.tolist() == [0] * 6


def test_spread_of_values_matches_the_spread_over_new_samples():
    rng = np.random.default_rng(5)
    found, expected = [], []
    for _ in range(400):
        a, b = examples(rng, 80, ties=False)
        values = spearman(a, b).values
        expected.append(values.std(ddof=1) / np.sqrt(80))
        found.append(values.mean())
    assert np.std(found) == pytest.approx(np.mean(expected), rel=0.12)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_v_measure_matches_scikit_learn_adjusted_mutual_information(rng, k):
    labels = rng.integers(0, 4, 50)
    clusterings = np.stack([np.where(rng.random(50) < 0.5, labels, rng.integers(0, 9, 50)) % k for _ in range(3)])
    each = [adjusted_mutual_info_score(labels, codes) for codes in clusterings]
    found = v_measure(clusterings, labels)
    assert found.values.mean() == pytest.approx(np.mean(each), abs=1e-12)
    np.testing.assert_allclose(found.repeats, each, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "a", "b"), [(50, 2, 3), (1000, 2, 2), (5000, 1, 4), (4000, 77, 60), (20, 20, 20), (7, 7, 1)]
)
def test_expected_information_equals_that_of_scikit_learn(rng, n, a, b):
    first, second = rng.integers(0, a, n), rng.integers(0, b, n)
    expected = expected_mutual_information(contingency_matrix(first, second, sparse=True).astype(np.int64), n)
    assert expected_information(np.bincount(first), np.bincount(second)) == pytest.approx(
        expected, rel=1e-10, abs=1e-13
    )


def test_v_measure_of_random_labels_is_zero_for_any_cluster_sizes(rng):
    labels = rng.integers(0, 10, 60)
    for sizes in (np.arange(60) % 10, np.minimum(np.arange(60), 9)):
        found = [v_measure(rng.permutation(sizes)[None], labels).values.mean() for _ in range(200)]
        assert np.mean(found) == pytest.approx(0, abs=0.01)


def test_mean_v_measure_value_of_a_subset_approximates_its_score(rng):
    labels = rng.integers(0, 3, 3000)
    codes = np.where(rng.random(3000) < 0.6, labels, rng.integers(0, 3, 3000))
    values = v_measure(codes[None], labels).values
    some = rng.permutation(3000)[:1500]
    assert values[some].mean() == pytest.approx(adjusted_mutual_info_score(labels[some], codes[some]), abs=0.01)


def test_one_class_and_one_cluster_agree():
    assert v_measure(np.zeros((2, 5), int), np.zeros(5, int)).values.tolist() == [1] * 5
