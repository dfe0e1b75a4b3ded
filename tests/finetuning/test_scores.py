"""Scores: what they are by their definitions, what scikit-learn's peers say, and models that learnt nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from isoscope import InputError
from isoscope.finetuning.result import CLASS_MEASURES, GRADE_MEASURES, score_classes, score_grades, score_logits


@pytest.fixture
def guesses():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    return np.where(rng.random(200) < 0.8, labels, 1 - labels), labels


def test_perfect_predictions_score_one_and_wrong_ones_the_opposite(guesses):
    _, labels = guesses
    assert score_classes(labels, labels, 2) == {"accuracy": 1, "f1": 1, "matthews": 1}
    assert score_classes(1 - labels, labels, 2) == {"accuracy": 0, "f1": 0, "matthews": -1}


def test_matthews_equals_correlation_of_class_numbers(guesses):
    predicted, labels = guesses
    assert score_classes(predicted, labels, 2)["matthews"] == pytest.approx(np.corrcoef(predicted, labels)[0, 1])


def test_f1_uses_class_one_as_positive(guesses):
    predicted, labels = guesses
    hits = ((predicted == 1) & (labels == 1)).sum()
    expected = 2 * hits / ((predicted == 1).sum() + (labels == 1).sum())
    assert score_classes(predicted, labels, 2)["f1"] == pytest.approx(expected)
    assert score_classes(1 - predicted, 1 - labels, 2)["f1"] != pytest.approx(expected)


def test_f1_of_three_classes_is_macro_averaged_even_if_one_is_absent():
    labels, predicted = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    each = [2 * 1 / (1 + 2), 2 * 2 / (3 + 2), 0.0]
    assert score_classes(predicted, labels, 3)["f1"] == pytest.approx(np.mean(each))


def test_correlations_match_scipy_for_values_and_ranks():
    rng = np.random.default_rng(1)
    grades = rng.random(100)
    predicted = np.exp(3 * grades) + 0.5 * rng.random(100)
    found = score_grades(predicted, grades)
    assert found["pearson"] == pytest.approx(np.corrcoef(predicted, grades)[0, 1])
    assert found["spearman"] == pytest.approx(np.corrcoef(rankdata(predicted), rankdata(grades))[0, 1])


def test_constant_predictions_have_finite_scores():
    labels = np.array([0, 1, 1, 0])
    assert score_classes(np.ones(4, int), labels, 2)["matthews"] == 0
    assert score_grades(np.ones(4), np.arange(4.0)) == {"pearson": 0, "spearman": 0}


def test_highest_output_is_the_class_and_single_output_the_grade():
    logits = np.array([[0.1, 0.9, 0.0], [2.0, -1.0, 0.0], [0.0, 0.1, 0.2]])
    assert tuple(score_logits(logits, np.array([1, 0, 2]), 3)) == CLASS_MEASURES
    assert score_logits(logits, np.array([1, 0, 2]), 3)["accuracy"] == 1
    assert tuple(score_logits(logits[:, :1], np.array([1.0, 2.0, 0.5]), 0)) == GRADE_MEASURES
    assert score_logits(logits[:, :1], np.array([1.0, 2.0, 0.5]), 0)["spearman"] == pytest.approx(1)


def test_nonfinite_outputs_raise():
    logits = np.array([[0.0, 1.0], [np.nan, 1.0], [0.0, np.inf]])
    with pytest.raises(
        InputError, match="contain NaN or infinity for 2 of 3 rows of the dev set: training has diverged"
    ):
        score_logits(logits, np.array([0, 1, 1]), 2)
