"""The task of labels: what a fitted probe, the neighbours and K-means make of held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import isoscope
from isoscope import Chain, InputError
from isoscope.advising import labelled, trying
from isoscope.advising.labelled import Labelled, plurality, stratified
from isoscope.transforms.repair import Repair
from tests.advising.conftest import rows_of, topics


def test_folds_are_even_in_every_label(rng):
    labels = rng.integers(0, 7, 203)
    folds = stratified(labels, 5, rng)
    assert sorted(np.concatenate(folds)) == list(range(203))
    for label in range(7):
        counts = [int((labels[fold] == label).sum()) for fold in folds]
        assert np.ptp(counts) <= 1


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbours_are_scikit_learns(rng, metric):
    X, of = topics(rng, 200, k=2)
    task = Labelled(rows_of(X), of, metric, 5, 0)
    learnt, held = task.fit_rows(1), task.held_rows(1)
    oracle = KNeighborsClassifier(10, metric=metric, algorithm="brute").fit(X[learnt], of[learnt])
    clear = np.abs(oracle.predict_proba(X[held])[:, 0] - 0.5) > 0.01  # 5 against 5: the nearer ones decide
    hits = task.score(1, Chain().fit(X))["knn"].values
    np.testing.assert_array_equal(hits[clear], (oracle.predict(X[held]) == of[held])[clear])
    assert clear.sum() > 20


def test_what_is_easy_is_got_right_by_all(rng):
    X, of = topics(rng, 100, noise=0.01)
    task = Labelled(rows_of(X), of, "cosine", 5, 0)
    for measure, evidence in task.score(0, Chain().fit(X)).items():
        assert evidence.resampled(np.ones((1, 20)))[0] == pytest.approx(1), measure


def test_labels_may_be_anything_that_can_be_told_apart(rng):
    X, of = topics(rng, 100)
    tasks = [Labelled(rows_of(X), labels, "cosine", 5, 0) for labels in (of, of + 0.5, np.asarray(list("abcd"))[of])]
    hits = [task.score(0, Chain().fit(X))["probe"].values for task in tasks]
    np.testing.assert_array_equal(hits[0], hits[1])
    np.testing.assert_array_equal(hits[0], hits[2])


def test_equal_votes_go_to_the_nearest():
    assert plurality(np.asarray([[2, 1, 1, 2], [0, 3, 3, 5]])).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("labels", "words"), [(np.zeros(40), "need two labels"), (np.arange(40), "is this a column of ids")]
)
def test_labels_that_tell_nothing(rng, labels, words):
    with pytest.raises(InputError, match=words):
        Labelled(rows_of(rng.standard_normal((40, 3))), labels, "cosine", 5, 0)


def test_a_class_with_one_row_is_no_harm(rng):
    X, of = topics(rng, 60)
    of = of.copy()
    of[7] = 99
    task = Labelled(rows_of(X), of, "cosine", 5, 0)
    for fold in range(5):
        task.score(fold, Chain().fit(X))


class Nearly(Repair):
    """A small random map: as likely to help as to harm."""

    _learnt = "map_"

    def __init__(self, seed: int = 0):
        self.seed = seed

    def fit(self, X, y=None):
        d = self.n_features_in_ = X.dim if hasattr(X, "dim") else X.shape[1]
        self.map_ = np.eye(d) + 0.02 * np.random.default_rng(self.seed).standard_normal((d, d)) / np.sqrt(d)
        return self

    def _apply(self, xp, X):
        return X @ self.map_.astype(X.dtype)


def test_the_luck_of_k_means_is_no_sure_difference(monkeypatch):
    monkeypatch.setattr(trying, "DRAWS", 200)
    monkeypatch.setattr(labelled, "linear_probe", lambda X, told, Z: np.zeros(len(Z)))
    maps = [type(f"Nearly{i}", (Nearly,), {}) for i in range(3)]  # each under its own name
    sure = 0
    for run in range(12):
        rng = np.random.default_rng([3, run])
        of = rng.integers(0, 20, 400)
        X = rng.standard_normal((20, 16))[of] + rng.standard_normal((400, 16))
        given = [kind(1000 * run + i) for i, kind in enumerate(maps)]
        advice = isoscope.advise(X, labels=of, candidates=given, measure="v_measure")
        sure += any(trial["v_measure"].verdict != "noise" for trial in advice.trials[1:])
    assert sure <= 2  # of 12, where one at most is to be expected


def test_copies_of_rows_are_no_new_evidence(rng):
    X = rng.standard_normal((40, 6))
    of = rng.integers(0, 2, 40)  # nothing to be learnt
    task = Labelled(rows_of(np.repeat(X, 10, axis=0)), np.repeat(of, 10), "cosine", 5, 0)
    assert task.score(0, Chain().fit(X))["knn"].values.mean() < 0.8
