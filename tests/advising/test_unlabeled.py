"""Without a task: the share of neighbors that two halves of the coordinates have in common."""

from __future__ import annotations

import numpy as np
import pytest

import isoscope
from isoscope import AllButTheTop, Chain, InputError, Standardize, Whiten
from isoscope.advising import labels
from isoscope.advising.labels import Unlabeled
from tests.advising.conftest import rows_of


def stability(X, metric="cosine"):
    task = Unlabeled(rows_of(X), metric, 5, 0)
    return task.score(Chain().fit(X), task.rounds[0])["stability"].values.mean()


def test_identical_halves_agree_and_noise_does_not(rng):
    half = rng.standard_normal((400, 6))
    assert stability(np.tile(half, 80)) > 0.8
    by_chance = 10 / 399
    assert stability(rng.standard_normal((400, 40))) == pytest.approx(by_chance, abs=0.005)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_scale_does_not_matter(rng, metric):
    X = rng.standard_normal((100, 8))
    assert stability(X, metric) == stability(1024 * X, metric)


def test_rogue_coordinate_is_found_by_only_one_half(rng):
    X = np.tile(rng.standard_normal((300, 8)), 3) + 0.5 * rng.standard_normal((300, 24))
    rogue = X.copy()
    rogue[:, 3] *= 50
    assert stability(rogue) < 0.8 * stability(X)
    advice = isoscope.advise(rogue, candidates=[Standardize()])
    assert advice.choice.name == "Standardize"
    assert "This evidence is weak" in advice.paragraph


def test_many_rows_are_subsampled_for_scoring(rng, monkeypatch):
    monkeypatch.setattr(labels, "_MAX_SCORED", 75)
    assert len(Unlabeled(rows_of(rng.standard_normal((200, 4))), "cosine", 5, 0)) == 75


def test_new_rows_are_excluded_from_the_fit(rng):
    task = Unlabeled(rows_of(rng.standard_normal((200, 4))), "cosine", 5, 0, new_rows=True)
    assert not set(task.learned) & set(task.scored)
    assert len(task.learned) == len(task.scored) == 100


@pytest.mark.parametrize(("shape", "words"), [((100, 3), "need at least 4 to split"), ((59, 8), "need at least 60")])
def test_too_small_input_raises_an_error(rng, shape, words):
    with pytest.raises(InputError, match=words):
        Unlabeled(rows_of(rng.standard_normal(shape)), "cosine", 5, 0)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_isotropic_data_has_nothing_to_gain(rng, metric):
    X = rng.standard_normal((500, 16))
    assert isoscope.advise(X, metric=metric, candidates=[AllButTheTop(3)]).leaves_vectors_unchanged


def test_identical_neighbors_do_not_count_as_agreement(rng):
    X = rng.standard_normal((400, 8))
    assert isoscope.advise(X, candidates=[Whiten("pca", 2)]).leaves_vectors_unchanged


def test_one_dimension_has_no_cosine_neighbors(rng):
    advice = isoscope.advise(rng.standard_normal((100, 8)), candidates=[Whiten("pca", 1)])
    assert advice["Whiten(pca, 1)"]["stability"].verdict == "loss" or advice.leaves_vectors_unchanged
