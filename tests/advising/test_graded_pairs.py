"""The task of graded pairs: Spearman's correlation; pairs that share a row are one unit."""

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


def score_of(task):
    return task.score(Chain().fit(task.rows.vectors), task.rounds[0])["spearman"].values.mean()


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_score_matches_scipy_correlation(rng, metric):
    X, first, second, grades = pairs_of(rng)
    a, b = X[first], X[second]
    similarity = -np.linalg.norm(a - b, axis=1)
    if metric == "cosine":
        similarity = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    found = score_of(GradedPairs(rows_of(X), first, second, grades, metric, 3, 0))
    assert found == pytest.approx(spearmanr(similarity, grades).statistic, abs=1e-12)


def test_the_order_within_a_pair_does_not_matter(rng):
    X, first, second, grades = pairs_of(rng)
    a, b = (
        score_of(GradedPairs(rows_of(X), *sides, grades, "cosine", 3, 0))
        for sides in ((first, second), (second, first))
    )
    assert a == pytest.approx(b, abs=1e-12)


def test_pairs_that_share_a_row_are_one_unit(rng):
    chains = np.arange(90).reshape(30, 3)  # a–b, b–c
    first, second = chains[:, :2].ravel(), chains[:, 1:].ravel()
    task = GradedPairs(rows_of(rng.standard_normal((90, 4))), first, second, rng.random(60), "cosine", 5, 0)
    assert task.units.of.tolist() == np.repeat(np.arange(30), 2).tolist()
    assert not task.notes


def test_pairs_with_equal_rows_are_one_unit(rng):
    X = np.tile(rng.standard_normal((60, 4)), (2, 1))  # rows 60…119 are copies
    first, second = np.arange(0, 120, 2), np.arange(1, 120, 2)
    task = GradedPairs(rows_of(X), first, second, rng.random(60), "cosine", 5, 0)
    assert task.units.of.tolist() == [*range(30), *range(30)]


def test_repeated_pairs_are_one_unit(rng):
    X = rng.standard_normal((60, 4))
    first, second = (np.tile(side, 6) for side in np.arange(60).reshape(2, 30))
    task = GradedPairs(rows_of(X), first, second, rng.random(180), "cosine", 5, 0)
    assert len(task.units) == 30
    assert task.units.effective_count(np.arange(180)) == pytest.approx(30)


def test_fully_connected_pairs_depend_on_pairs_that_share_a_row(rng):
    first, second = np.arange(59), np.arange(1, 60)  # one chain
    task = GradedPairs(rows_of(rng.standard_normal((60, 4))), first, second, rng.random(59), "cosine", 5, 0)
    assert len(task.units) == 59
    assert task.units.links.toarray().sum(axis=1).tolist() == [2, *[3] * 57, 2]
    assert "share a row directly" in task.notes[0]


def test_new_rows_are_scored_by_repairs_fitted_without_them(rng):
    X = rng.standard_normal((150, 6))
    first, second = np.arange(0, 100, 2), np.arange(1, 101, 2)
    task = GradedPairs(rows_of(X), first, second, rng.random(50), "cosine", 5, 0, new_rows=True)
    assert sorted(np.concatenate([round.examples for round in task.rounds])) == list(range(50))
    for round in task.rounds:
        used = set(first[round.examples]) | set(second[round.examples])
        assert set(round.fit_rows) == set(range(150)) - used


def test_new_rows_need_rows_to_fit_on(rng):
    first, second = np.full(60, 0), np.arange(1, 61)
    with pytest.raises(InputError, match="must be fitted to at least half of the rows"):
        GradedPairs(rows_of(rng.standard_normal((61, 4))), first, second, rng.random(60), "cosine", 2, 0, new_rows=True)


def test_too_few_pairs_for_the_folds_raise(rng):
    X, first, second, grades = pairs_of(rng, m=30)
    with pytest.raises(InputError, match="30 pairs are too few for 8 folds"):
        GradedPairs(rows_of(X), first, second, grades, "cosine", 8, 0)
