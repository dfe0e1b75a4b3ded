"""Candidates are fitted and scored in the same way; one that cannot be fitted is left out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import isoscope
from isoscope import (
    AllButTheTop,
    Center,
    Chain,
    ClusterCenter,
    ClusterNull,
    InputError,
    Standardize,
    Whiten,
    open_store,
)
from isoscope.advising.candidates import build_candidates, describe_repair
from isoscope.advising.labels import Labels
from isoscope.advising.trials import _Part, try_candidates
from isoscope.metrics.cosine import mean_cosine
from isoscope.stores.sampling import row_keys
from isoscope.transforms.affine import principal_directions
from isoscope.transforms.repair import Repair
from tests.advising.conftest import rows_of, silent, topics


@pytest.fixture
def task(rng):
    X, of = topics(rng, 120, noise=0.8)
    return Labels(rows_of(X), of, "cosine", 4, 0)


def tried(task, given, seed=0):
    return try_candidates(task, open_store(task.rows.vectors), build_candidates(8, 120, seed, given), seed, silent)


def test_scores_equal_those_of_repair_fitted_to_the_source(task):
    found = tried(task, [Center(), Whiten()])
    X = task.rows.vectors
    for i, repair in enumerate([Chain().fit(X), Center().fit(X), Whiten().fit(X)]):
        evidence = task.score(repair, task.rounds[0])
        for measure in task.measures:
            np.testing.assert_allclose(found.scores.values[measure][:, i], evidence[measure].values, atol=1e-9)
    assert found.scores.repeats["v_measure"].shape == (8, 3)


def test_new_rows_are_scored_by_a_fit_without_them(rng):
    X, of = topics(rng, 120, noise=0.8)
    task = Labels(rows_of(X), of, "cosine", 4, 0, new_rows=True)
    found = tried(task, [Whiten()])
    for round in task.rounds:
        repair = Whiten().fit(X[round.fit_rows])
        np.testing.assert_array_equal(
            found.scores.values["knn"][round.examples, 1], task.score(repair, round)["knn"].values
        )


def test_candidate_score_does_not_depend_on_other_candidates(task):
    alone, among = tried(task, [Whiten()]), tried(task, [Center(), Whiten()])
    for measure in task.measures:
        np.testing.assert_array_equal(alone.scores.values[measure][:, 1], among.scores.values[measure][:, 2])


def test_a_source_larger_than_the_sample_is_fitted_completely(rng, tmp_path):
    """Affine repairs and their chains learn from all rows; clustered ones from the sample alone."""
    X = rng.standard_normal((600, 6)) * [9, 4, 1, 1, 1, 1]
    np.save(tmp_path / "corpus.npy", X)
    given = [Standardize(), AllButTheTop(2), Whiten(), Chain([Standardize(), AllButTheTop(2)])]
    first, second = np.arange(40), np.arange(40, 80)  # rows that the pairs name are not a random sample
    advice = isoscope.advise(
        tmp_path / "corpus.npy",
        pairs=(first, second, rng.random(40)),
        candidates=[*given, ClusterCenter(3, random_state=0)],
        sample=100,
    )
    for repair in given:
        found = advice[describe_repair(repair)].repair.transform(X)
        np.testing.assert_allclose(found, repair.fit(X).transform(X), atol=1e-9)
    sampled = np.sort(row_keys(0, 600, 0).argsort()[:100])
    expected = ClusterCenter(3, random_state=0).fit(X[sampled]).transform(X)
    np.testing.assert_allclose(advice["ClusterCenter(3)"].repair.transform(X), expected, atol=1e-9)


def test_candidates_that_cannot_be_fitted_are_excluded_with_reason(task):
    found = tried(task, [Center(), AllButTheTop(9)])
    assert [candidate.name for candidate in found.candidates] == ["as it is", "Center"]
    assert "n_components is 9" in found.left_out["AllButTheTop(9)"]
    assert found.scores.values["probe"].shape == (120, 2)


class Failing(Repair):
    """A repair that raises an error from the third fit on."""

    _fitted_attribute = "fitted_"
    fits = 0

    def fit(self, X, y=None):
        Failing.fits += 1
        if Failing.fits > 2:
            raise InputError("tired")
        self.n_features_in_, self.fitted_ = X.shape[1], True
        return self

    def _apply(self, xp, X):
        return X


def test_candidate_that_fails_in_a_later_round_is_excluded(rng, monkeypatch):
    monkeypatch.setattr(Failing, "fits", 0)
    X, of = topics(rng, 120, noise=0.8)
    task = Labels(rows_of(X), of, "cosine", 4, 0, new_rows=True)
    found = tried(task, [Failing(), Whiten()])
    assert [candidate.name for candidate in found.candidates] == ["as it is", "Whiten"]
    assert found.left_out == {"Failing": "tired"}


def test_isotropy_is_measured_on_held_out_rows(rng):
    """Whitened rows look perfectly isotropic to the repair that was fitted to them, and only to it."""
    X = rng.standard_normal((60, 20))
    task = Labels(rows_of(X), np.arange(60) % 2, "cosine", 4, 0)
    found = tried(task, [Whiten(shrinkage=None)]).shapes[1]
    own = Whiten(shrinkage=None).fit(X).transform(X)
    assert found["isoscore"] < 0.9 < float(isoscope.isoscore(own, unbiased=True))
    assert abs(found["mean_cosine"]) < 0.2
    assert float(mean_cosine(own)) == pytest.approx(-1 / 59, abs=0.01)


def test_same_seed_gives_identical_results(task):
    a, b = (tried(task, [Center()], 0) for _ in range(2))
    for measure in task.measures:
        np.testing.assert_array_equal(a.scores.values[measure], b.scores.values[measure])


def test_progress_goes_from_zero_to_one(task):
    shares = []
    try_candidates(
        task,
        open_store(task.rows.vectors),
        build_candidates(8, 90, 0, [Center()]),
        0,
        lambda stage, rows, share: shares.append(share),
    )
    assert shares == [0.5, 1]


def test_fitting_to_the_source_gives_the_repair_of_an_ordinary_fit(task):
    X = task.rows.vectors
    given = [Standardize(), AllButTheTop(2), Whiten(), ClusterCenter(3, random_state=0)]
    given += [ClusterNull(3, 1, random_state=0), Chain([Standardize(), Whiten()])]
    given += [Chain([Standardize(), AllButTheTop(1), Whiten()]), Chain([Standardize(), AllButTheTop(1)])]
    found = tried(task, given)
    for candidate, repair in zip(found.candidates[1:], found.repairs[1:], strict=True):
        np.testing.assert_allclose(repair.transform(X), candidate.repair.fit(X).transform(X), atol=1e-9)


def test_principal_directions_are_computed_once(task, monkeypatch):
    computed = []

    def count(total):
        computed.append(total)
        return principal_directions(total)

    monkeypatch.setattr("isoscope.advising.trials.principal_directions", count)
    part = _Part(task.rows.vectors, np.arange(len(task.rows)))
    repairs = [AllButTheTop(1), Whiten(), Whiten("pca", 2)]
    repairs += [Chain([Standardize(), step]) for step in (AllButTheTop(1), Whiten())]
    for repair in repairs:
        fitted, alone = part.fit(repair), clone(repair).fit(task.rows.vectors)
        np.testing.assert_allclose(fitted.as_affine()[0], alone.as_affine()[0], rtol=1e-9, atol=1e-12)
    assert len(computed) == 2  # of the vectors and of the standardized vectors


def test_fitted_repairs_do_not_share_arrays(task):
    part = _Part(task.rows.vectors, np.arange(len(task.rows)))
    first, second = part.fit(Whiten()), part.fit(Whiten())
    first.components_[:] = 0
    assert second.components_.any()
    assert part.fit(AllButTheTop(1)).components_.any()
