"""Scores, compared with their definitions and scikit-learn's functions; models that learned nothing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from isoscope import InputError
from isoscope.finetuning.result import (
    CLASS_MEASURES,
    GRADE_MEASURES,
    has_learned,
    score_classes,
    score_constant_prediction,
    score_grades,
    score_logits,
)


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


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_scores_of_classes_match_scikit_learn(classes):
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    rng = np.random.default_rng(2)
    labels = rng.integers(0, classes, 150)
    predicted = np.where(rng.random(150) < 0.5, labels, rng.integers(0, classes, 150))
    average = {"average": "binary"} if classes == 2 else {"average": "macro"}
    expected = accuracy_score(labels, predicted), f1_score(labels, predicted, **average)
    assert [*score_classes(predicted, labels, classes).values()] == pytest.approx(
        [*expected, matthews_corrcoef(labels, predicted)]
    )


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


# models that learned nothing


def test_baseline_is_the_best_constant_prediction():
    labels = np.array([0, 0, 0, 1, 1, 2])
    found = score_constant_prediction(labels, 3)
    assert found["accuracy"] == 0.5
    assert found["f1"] == pytest.approx(2 * 3 / (6 + 3) / 3)
    assert found["matthews"] == 0
    positive = score_constant_prediction(np.array([1, 1, 1, 0]), 2)
    assert positive["f1"] == pytest.approx(2 * 3 / (4 + 3))
    assert score_constant_prediction(np.array([0.5, 1.0]), 0) == {"pearson": 0, "spearman": 0}


@pytest.mark.parametrize("classes", [0, 2, 5])
def test_guesses_rarely_count_as_learned_and_real_relations_do(classes):
    rng, rows = np.random.default_rng(0), 400
    measure = "accuracy" if classes else "spearman"
    found = []
    for share in (0.0, 0.4):
        learned = 0
        for _ in range(200):
            labels = rng.integers(0, classes, rows) if classes else rng.random(rows)
            guesses = rng.integers(0, classes, rows) if classes else rng.random(rows)
            predicted = np.where(rng.random(rows) < share, labels, guesses)
            scores = score_classes(predicted, labels, classes) if classes else score_grades(predicted, labels)
            learned += has_learned(scores, score_constant_prediction(labels, classes), measure, rows)
        found.append(learned / 200)
    assert found[0] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert found[1] > 0.99


def test_most_common_class_is_not_learned():
    labels = np.array([1] * 70 + [0] * 30)
    scores = score_classes(np.ones(100, int), labels, 2)
    baseline = score_constant_prediction(labels, 2)
    assert not any(has_learned(scores, baseline, measure, 100) for measure in CLASS_MEASURES)
    scores = score_classes(np.r_[np.ones(60, int), np.zeros(40, int)], labels, 2)
    assert all(has_learned(scores, baseline, measure, 100) for measure in CLASS_MEASURES)
