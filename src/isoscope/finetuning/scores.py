"""How well a fine-tuned model does its task: the scores that GLUE and the papers report."""

from __future__ import annotations

import warnings

import numpy as np

from isoscope._core.errors import InputError

CLASS_MEASURES = ("accuracy", "f1", "matthews")
"""What is computed of a task with classes."""
GRADE_MEASURES = ("pearson", "spearman")
"""What is computed of a task with grades."""


def score_classes(predicted: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Accuracy, F1 and Matthews' correlation of predicted class numbers.

    F1 is that of class 1 where there are two classes, as in GLUE, and the mean over classes where there are more. It
    is 0 where nothing was predicted of a class, and Matthews' correlation is 0 where one class was predicted always.

    Parameters
    ----------
    predicted, labels : ndarray of shape (n,)
        Class numbers from 0.
    classes : int
        How many classes the task has.

    >>> score_classes(np.array([1, 1, 0, 0]), np.array([1, 0, 0, 0]), 2)["accuracy"]
    0.75
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    averaged = {"average": "binary"} if classes == 2 else {"average": "macro", "labels": range(classes)}
    return {
        "accuracy": float(accuracy_score(labels, predicted)),
        "f1": float(f1_score(labels, predicted, zero_division=0, **averaged)),
        "matthews": float(matthews_corrcoef(labels, predicted)),
    }


def score_grades(predicted: np.ndarray, grades: np.ndarray) -> dict[str, float]:
    """Pearson's and Spearman's correlation of predicted grades; 0 where all predictions are the same.

    >>> score_grades(np.array([0.1, 0.2, 0.4]), np.array([1.0, 2.0, 3.0]))["spearman"]
    1.0
    """
    from scipy.stats import ConstantInputWarning, pearsonr, spearmanr

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantInputWarning)
        found = {"pearson": pearsonr(predicted, grades)[0], "spearman": spearmanr(predicted, grades)[0]}
    return {name: 0.0 if np.isnan(value) else float(value) for name, value in found.items()}


def score_logits(logits: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """The scores of what a model's head gives: a column for each class, or one of grades where `classes` is 0.

    >>> score_logits(np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([0, 1]), 2)
    {'accuracy': 1.0, 'f1': 1.0, 'matthews': 1.0}
    """
    if not np.isfinite(logits).all():
        rows = int((~np.isfinite(logits)).any(axis=1).sum())
        raise InputError(
            f"the model's outputs are not finite for {rows} of {len(logits)} rows of the dev set: training has "
            "diverged; try a lower learning rate or a smaller weight of the regulariser"
        )
    if not classes:
        return score_grades(logits[:, 0].astype(np.float64), labels)
    return score_classes(logits.argmax(axis=1), labels, classes)
