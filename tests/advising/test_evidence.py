"""A draw by weights is the measure of the repeated examples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import adjusted_mutual_info_score, v_measure_score

from isoscope.advising.evidence import Agreement, Means, RankCorrelation, draws


def repeated(values, weights):
    return np.repeat(values, weights.astype(int))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("m", [5, 60])
def test_rank_correlation_is_scipys_of_the_repeated_examples(rng, ties, m):
    a, b = rng.standard_normal((2, m))
    if ties:
        a, b = np.round(a), np.round(2 * b)
    weights = draws(np.arange(m), 30, rng)
    found = RankCorrelation(a, b).resampled(weights)
    for value, w in zip(found, weights, strict=True):
        x, y = repeated(a, w), repeated(b, w)
        expected = spearmanr(x, y).statistic if np.ptp(x) and np.ptp(y) else 0.0
        assert value == pytest.approx(expected, abs=1e-12)


def test_rank_correlation_hangs_on_ranks_alone(rng):
    a, b = rng.standard_normal((2, 40))
    weights = draws(np.arange(40), 5, rng)
    np.testing.assert_array_equal(
        RankCorrelation(a, b).resampled(weights), RankCorrelation(np.exp(a), 3 * b - 1).resampled(weights)
    )
    np.testing.assert_allclose(
        RankCorrelation(a, b).resampled(weights), -RankCorrelation(-a, b).resampled(weights), atol=1e-12
    )


def test_a_side_that_does_not_vary_is_not_correlated(rng):
    weights = np.stack([np.ones(6), np.eye(6)[2] * 6])
    assert RankCorrelation(np.ones(6), np.arange(6.0)).resampled(weights).tolist() == [0, 0]
    assert RankCorrelation(np.arange(6.0), np.arange(6.0)).resampled(weights).tolist() == [pytest.approx(1), 0]


@pytest.mark.parametrize("k", [1, 2, 7])
def test_agreement_is_the_v_measure_that_scikit_learn_adjusts_for_chance(rng, k):
    labels = rng.integers(0, 4, 50)
    clusterings = np.stack([np.where(rng.random(50) < 0.5, labels, rng.integers(0, 9, 50)) % k for _ in range(3)])
    each = [adjusted_mutual_info_score(labels, codes) for codes in clusterings]
    found = Agreement(clusterings, labels).resampled(np.ones((1, 50)))[0]
    assert found == pytest.approx(np.mean(each), abs=1e-12)


def test_agreement_with_random_labels_is_none_whatever_the_sizes_of_clusters(rng):
    labels = rng.integers(0, 10, 60)
    for sizes in (np.arange(60) % 10, np.minimum(np.arange(60), 9)):
        found = [Agreement(rng.permutation(sizes)[None], labels).resampled(np.ones((1, 60)))[0] for _ in range(200)]
        assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(200)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_agreement_without_chance_is_scikit_learns_of_the_repeated_examples(rng, k):
    labels = rng.integers(0, 4, 50)
    clusterings = np.stack([np.where(rng.random(50) < 0.5, labels, rng.integers(0, 9, 50)) % k for _ in range(3)])
    weights = draws(np.arange(50), 20, rng)
    agreement = Agreement(clusterings, labels)
    agreement.by_chance = [0.0] * 3
    found = agreement._of_each(weights).mean(axis=0)
    for value, w in zip(found, weights, strict=True):
        each = [v_measure_score(repeated(labels, w), repeated(codes, w)) for codes in clusterings]
        assert value == pytest.approx(np.mean(each), abs=1e-12)


def test_one_class_in_one_cluster_agrees_perfectly():
    weights = np.ones((1, 5))
    assert Agreement(np.zeros((1, 5), int), np.zeros(5, int)).resampled(weights) == 1
    assert Agreement(np.zeros((1, 5), int), np.arange(5)).resampled(weights) == pytest.approx(0, abs=1e-15)


def test_names_of_clusters_and_labels_do_not_matter(rng):
    labels, codes = rng.integers(0, 4, 30), rng.integers(0, 3, 30)
    weights = draws(np.arange(30), 4, rng)
    np.testing.assert_allclose(
        Agreement(codes[None], labels).resampled(weights),
        Agreement(rng.permutation(3)[codes][None], rng.permutation(4)[labels]).resampled(weights),
        atol=1e-12,
    )


def test_means_are_those_of_the_repeated_examples(rng):
    values = rng.standard_normal(30)
    weights = draws(np.arange(30), 10, rng)
    expected = [repeated(values, w).mean() for w in weights]
    np.testing.assert_allclose(Means(values).resampled(weights), expected, atol=1e-12)


def test_whole_groups_are_drawn(rng):
    groups = np.asarray([0, 0, 1, 2, 2, 2, 3])
    weights = draws(groups, 500, rng)
    for group in range(4):
        assert (np.ptp(weights[:, groups == group], axis=1) == 0).all()
    per_group = weights[:, [0, 2, 3, 6]]
    assert (per_group.sum(axis=1) == 4).all()
    np.testing.assert_allclose(per_group.mean(axis=0), 1, atol=0.2)
