"""Trying: fitted without the held-out fold, scored on it, drawn again alike for all."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope import AllButTheTop, Center, InputError, Standardize, Whiten
from isoscope.advising import trying
from isoscope.advising.candidates import candidates
from isoscope.advising.labelled import Labelled
from isoscope.advising.trying import fitted, try_all
from isoscope.metrics.clusters import silhouette
from isoscope.metrics.cosine import mean_cosine
from isoscope.sketching import sketch
from isoscope.transforms.repair import Repair
from tests.advising.conftest import rows_of, silent, topics


@pytest.fixture
def task(rng):
    X, of = topics(rng, 120, noise=0.8)
    return Labelled(rows_of(X), of, "cosine", 4, 0)


def tried(task, given, seed=0):
    return try_all(task, candidates(8, 90, seed, given), seed, silent)


def test_scores_are_the_folds_means_and_draws_are_around_them(task):
    found = tried(task, [Center(), Whiten()])
    for measure in task.measures:
        assert found.by_fold[measure].shape == (4, 3)
        np.testing.assert_allclose(found.scores[measure], found.by_fold[measure].mean(axis=0))
        assert found.resampled[measure].shape == (trying.DRAWS, 3)
    for measure in ("probe", "knn"):  # V-measure of a draw is higher: repeated rows agree with themselves
        np.testing.assert_allclose(found.resampled[measure].mean(axis=0), found.scores[measure], atol=0.005)


def test_a_candidate_is_scored_as_if_it_were_alone(task):
    alone, among = tried(task, [Whiten()]), tried(task, [Center(), Whiten()])
    for measure in task.measures:
        np.testing.assert_array_equal(alone.resampled[measure][:, 1], among.resampled[measure][:, 2])


def test_scores_are_those_of_a_fit_to_the_other_folds(task):
    found = tried(task, [Whiten()])
    for fold in range(4):
        repair = Whiten().fit(task.rows.vectors[task.fit_rows(fold)])
        assert found.by_fold["knn"][fold, 1] == pytest.approx(task.score(fold, repair)["knn"].values.mean())


def test_an_affine_repair_learns_the_same_from_a_sketch(task):
    X = task.rows.vectors
    for candidate in candidates(8, 90, 0, [Standardize(), AllButTheTop(2), Whiten()])[1:]:
        np.testing.assert_allclose(
            fitted(candidate, X, sketch(X)).transform(X), candidate.repair.fit(X).transform(X), atol=1e-9
        )


def test_what_cannot_be_fitted_is_left_out_with_its_reason(task):
    found = tried(task, [Center(), AllButTheTop(9)])
    assert [candidate.name for candidate in found.candidates] == ["as it is", "Center"]
    assert "n_components is 9" in found.left_out["AllButTheTop(9)"]
    assert found.scores["probe"].shape == (2,)


class Failing(Repair):
    """Can be fitted twice, and then no more."""

    _learnt = "fitted_"
    fits = 0

    def fit(self, X, y=None):
        Failing.fits += 1
        if Failing.fits > 2:
            raise InputError("tired")
        self.n_features_in_, self.fitted_ = X.shape[1], True
        return self

    def _apply(self, xp, X):
        return X


def test_what_fails_in_a_later_fold_is_left_out_as_a_whole(task, monkeypatch):
    monkeypatch.setattr(Failing, "fits", 0)
    found = tried(task, [Failing(), Whiten()])
    assert [candidate.name for candidate in found.candidates] == ["as it is", "Whiten"]
    assert found.left_out == {"Failing": "tired"}
    assert found.by_fold["probe"].shape == (4, 2)


def test_the_shape_is_that_of_held_out_rows(task, monkeypatch):
    monkeypatch.setattr(trying, "_LEAST_SHAPED", 10)
    held, learnt = task.held_rows(0), task.fit_rows(0)
    Y = Whiten().fit(task.rows.vectors[learnt]).transform(task.rows.vectors[held])
    found = tried(task, [Whiten()]).shapes[1]
    assert found["mean_cosine"] == pytest.approx(float(mean_cosine(Y)))
    assert found["silhouette"] == pytest.approx(float(silhouette(Y, task.labels[held], metric="cosine")))


def test_the_same_seed_gives_the_same_bits_and_another_other_draws(task):
    a, b, c = (tried(task, [Center()], seed) for seed in (0, 0, 1))
    for measure in task.measures:
        np.testing.assert_array_equal(a.resampled[measure], b.resampled[measure])
    assert (a.resampled["probe"] != c.resampled["probe"]).any()


def test_progress_goes_from_nothing_to_all(task):
    told = []
    try_all(task, candidates(8, 90, 0, [Center()]), 0, lambda stage, rows, share: told.append((stage, share)))
    shares = [share for stage, share in told if stage == "trying repairs"]
    assert shares == sorted(shares)
    assert shares[-1] == 1
