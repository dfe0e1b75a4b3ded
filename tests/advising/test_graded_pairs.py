"""The task of graded pairs: Spearman's correlation on held-out pairs, those that share rows together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from isoscope import Chain, InputError
from isoscope.advising.graded_pairs import GradedPairs
from tests.advising.conftest import rows_of


def pairs_of(rng, n=80, m=60):
    X = rng.standard_normal((n, 5))
    first, second = rng.integers(0, n, (2, m))
    return X, first, second, rng.integers(0, 6, m) / 2


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_it_is_scipys_correlation(rng, metric):
    X, first, second, grade = pairs_of(rng)
    task = GradedPairs(rows_of(X), first, second, grade, metric, 3, 0)
    for fold, held in enumerate(task.folds):
        a, b = X[first[held]], X[second[held]]
        alike = -np.linalg.norm(a - b, axis=1)
        if metric == "cosine":
            alike = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        found = task.score(fold, Chain().fit(X))["spearman"].resampled(np.ones((1, len(held))))[0]
        assert found == pytest.approx(spearmanr(alike, grade[held]).statistic, abs=1e-12)


def test_which_of_a_pair_comes_first_does_not_matter(rng):
    X, first, second, grade = pairs_of(rng)
    a, b = (
        GradedPairs(rows_of(X), *sides, grade, "cosine", 3, 0)
        .score(0, Chain().fit(X))["spearman"]
        .resampled(np.ones((1, 20)))
        for sides in ((first, second), (second, first))
    )
    np.testing.assert_allclose(a, b, atol=1e-12)


def test_pairs_that_share_a_row_are_held_out_together(rng):
    chains = np.arange(90).reshape(30, 3)  # a–b, b–c
    first, second = chains[:, :2].ravel(), chains[:, 1:].ravel()
    task = GradedPairs(rows_of(rng.standard_normal((90, 4))), first, second, rng.random(60), "cosine", 5, 0)
    assert task.groups.tolist() == np.repeat(np.arange(30), 2).tolist()
    held = [set(task.held_rows(fold)) for fold in range(5)]
    assert not any(held[i] & held[j] for i in range(5) for j in range(i))
    assert not task.notes


def test_where_all_hang_together_each_stands_for_itself_and_it_is_said(rng):
    task = GradedPairs(
        rows_of(rng.standard_normal((60, 4))), np.zeros(59, int), np.arange(1, 60), rng.random(59), "cosine", 5, 0
    )
    assert len(np.unique(task.groups)) == 59
    assert "each was drawn by itself" in task.notes[0]


def test_too_few_for_the_folds(rng):
    X, first, second, grade = pairs_of(rng, m=30)
    with pytest.raises(InputError, match="30 examples"):
        GradedPairs(rows_of(X), first, second, grade, "cosine", 8, 0)


def test_a_fold_has_several_groups_to_draw_from(rng):
    task = GradedPairs(
        rows_of(rng.standard_normal((105, 4))),
        np.repeat(np.arange(5), 20),
        np.arange(5, 105),
        rng.random(100),
        "cosine",
        5,
        0,
    )
    assert min(len(np.unique(task.groups[fold])) for fold in task.folds) > 1


def test_few_groups_are_not_held_out_whole(rng):
    first, second = np.repeat(np.arange(5), 20), np.arange(5, 105)  # five rows, each in twenty pairs
    task = GradedPairs(rows_of(rng.standard_normal((105, 4))), first, second, rng.random(100), "cosine", 5, 0)
    assert len(np.unique(task.groups)) == 100
    assert any("drawn by itself" in note for note in task.notes)
