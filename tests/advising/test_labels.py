"""The labels task: a linear probe, nearest neighbors and k-means, each row classified by a model of the others."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import isoscope
from isoscope import Chain, InputError
from isoscope.advising import labels as labels_module
from isoscope.advising.labels import Labels, nearest_centers, plurality, stratified_folds
from isoscope.advising.linear_probe import LinearProbe
from isoscope.advising.retrieval import top_k
from isoscope.transforms.repair import Repair
from tests.advising.conftest import rows_of, topics


def test_folds_are_stratified_by_label(rng):
    labels = rng.integers(0, 7, 203)
    folds = stratified_folds(labels, 5, rng)
    assert sorted(np.concatenate(folds)) == list(range(203))
    for label in range(7):
        counts = [int((labels[fold] == label).sum()) for fold in folds]
        assert np.ptp(counts) <= 1


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbors_match_scikit_learn(rng, metric):
    X, of = topics(rng, 200, k=2)
    task = Labels(rows_of(X), of, metric, 5, 0, new_rows=True)
    round = task.rounds[1]
    learned, held_out = round.fit_rows, round.examples
    oracle = KNeighborsClassifier(10, metric=metric, algorithm="brute").fit(X[learned], of[learned])
    clear = np.abs(oracle.predict_proba(X[held_out])[:, 0] - 0.5) > 0.01  # 5 against 5: the nearer ones decide
    hits = task.score(Chain().fit(X), round)["knn"].values
    np.testing.assert_array_equal(hits[clear], (oracle.predict(X[held_out]) == of[held_out])[clear])
    assert clear.sum() > 20


def test_each_row_is_classified_by_all_others(rng):
    X, of = topics(rng, 60, k=2)
    task = Labels(rows_of(X), of, "cosine", 5, 0)
    found = task.score(Chain().fit(X), task.rounds[0])
    for i in range(60):
        rest = np.arange(60) != i
        oracle = KNeighborsClassifier(10, metric="cosine", algorithm="brute").fit(X[rest], of[rest])
        if abs(oracle.predict_proba(X[[i]])[0, 0] - 0.5) > 0.01:
            assert found["knn"].values[i] == (oracle.predict(X[[i]])[0] == of[i])
    np.testing.assert_array_equal(found["probe"].values, LinearProbe(X, of).leave_one_out() == of)


def test_separable_classes_score_one_by_every_measure(rng):
    X, of = topics(rng, 100, noise=0.01)
    task = Labels(rows_of(X), of, "cosine", 5, 0)
    for measure, evidence in task.score(Chain().fit(X), task.rounds[0]).items():
        assert evidence.values.mean() == pytest.approx(1), measure


def test_labels_may_be_of_any_comparable_type(rng):
    X, of = topics(rng, 100)
    tasks = [Labels(rows_of(X), labels, "cosine", 5, 0) for labels in (of, of + 0.5, np.asarray(list("abcd"))[of])]
    hits = [task.score(Chain().fit(X), task.rounds[0])["probe"].values for task in tasks]
    np.testing.assert_array_equal(hits[0], hits[1])
    np.testing.assert_array_equal(hits[0], hits[2])


def test_tied_votes_go_to_the_nearest():
    assert plurality(np.asarray([[2, 1, 1, 2], [0, 3, 3, 5]])).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("labels", "words"), [(np.zeros(40), "at least two distinct labels"), (np.arange(40), "not unique ids")]
)
def test_uninformative_labels_raise_an_error(rng, labels, words):
    with pytest.raises(InputError, match=words):
        Labels(rows_of(rng.standard_normal((40, 3))), labels, "cosine", 5, 0)


def test_labels_that_two_rows_share_on_average_are_accepted(rng):
    X = rng.standard_normal((40, 3))
    assert len(np.unique(Labels(rows_of(X), np.arange(40) % 20, "cosine", 5, 0).labels)) == 20
    with pytest.raises(InputError, match="40 distinct rows have 21 distinct labels"):
        Labels(rows_of(X), np.arange(40) % 21, "cosine", 5, 0)


def test_class_with_one_row_does_not_raise(rng):
    X, of = topics(rng, 60)
    of = of.copy()
    of[7] = 99
    for new_rows in (False, True):
        task = Labels(rows_of(X), of, "cosine", 5, 0, new_rows=new_rows)
        for round in task.rounds:
            task.score(Chain().fit(X), round)


class Nearly(Repair):
    """A small random map, which helps as often as it harms."""

    _fitted_attribute = "map_"

    def __init__(self, seed: int = 0):
        self.seed = seed

    def fit(self, X, y=None):
        d = self.n_features_in_ = X.dim if hasattr(X, "dim") else X.shape[1]
        self.map_ = np.eye(d) + 0.02 * np.random.default_rng(self.seed).standard_normal((d, d)) / np.sqrt(d)
        return self

    def _apply(self, xp, X):
        return X @ self.map_.astype(X.dtype)


def test_random_k_means_variation_is_not_significant(monkeypatch):
    monkeypatch.setattr(labels_module, "_NEIGHBORS", 1)
    maps = [type(f"Nearly{i}", (Nearly,), {}) for i in range(3)]  # each under its own name
    significant = 0
    for run in range(12):
        rng = np.random.default_rng([3, run])
        of = rng.integers(0, 20, 400)
        X = rng.standard_normal((20, 16))[of] + rng.standard_normal((400, 16))
        given = [kind(1000 * run + i) for i, kind in enumerate(maps)]
        advice = isoscope.advise(X, labels=of, candidates=given, measure="v_measure")
        significant += any(trial["v_measure"].verdict != "noise" for trial in advice.trials[1:])
    assert significant <= 2  # of 12, where one at most is to be expected


def test_equal_rows_count_once(rng):
    X = rng.standard_normal((40, 6))
    of = rng.integers(0, 2, 40)  # labels are noise
    task = Labels(rows_of(np.repeat(X, 10, axis=0)), np.repeat(of, 10), "cosine", 5, 0)
    assert len(task) == 40
    assert task.score(Chain().fit(X), task.rounds[0])["knn"].values.mean() < 0.8
    assert "360 repeated rows" in task.notes[0]
    assert len(task.notes) == 1


def test_equal_rows_with_other_labels_are_counted(rng):
    X = rng.standard_normal((40, 6))
    of = np.arange(40) % 2
    task = Labels(rows_of(np.concatenate([X, X])), np.concatenate([of, np.r_[1 - of[:30], of[30:]]]), "cosine", 5, 0)
    assert "30 repeated rows had a different label" in task.notes[1]


@pytest.mark.parametrize("n", [41, 101])
def test_new_rows_are_excluded_from_fit_and_labels(rng, n):
    task = Labels(rows_of(rng.standard_normal((n, 4))), np.arange(n) % 2, "cosine", 2, 0, new_rows=True)
    for round in task.rounds:
        assert not set(round.fit_rows) & set(round.examples)
        assert len(round.fit_rows) + len(round.examples) == n


def test_variance_of_votes_on_noise_is_within_its_factor():
    """Rows that vote for each other are not independent: their accuracy varies up to twice as much."""
    ratios = []
    for run in range(150):
        rng = np.random.default_rng([8, run])
        X, of = rng.standard_normal((150, 6)), rng.integers(0, 3, 150)
        task = Labels(rows_of(X), of, "euclidean", 5, 0)
        hits = []
        for Y in (X, X[:, :2]):
            near = top_k(Y, Y, 10, "euclidean", exclude_self=True)
            hits.append(plurality(task.labels[near]) == task.labels)
        difference = hits[1].astype(float) - hits[0]
        ratios.append(difference.mean() / (difference.std(ddof=1) / np.sqrt(150)))
    assert 1.1 < np.std(ratios) < np.sqrt(Labels.variance_factors["knn"]) * 1.12


def test_rows_outside_of_k_means_get_the_nearest_center(rng, monkeypatch):
    monkeypatch.setattr(labels_module, "_TILE_ROWS", 30)
    X, centers = rng.standard_normal((100, 6)), rng.standard_normal((3, 5, 6))
    expected = [np.linalg.norm(X[:, None] - each, axis=2).argmin(axis=1) for each in centers]
    np.testing.assert_array_equal(nearest_centers(X, centers), expected)
