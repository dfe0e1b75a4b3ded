"""What every task is: examples in folds, what a repair may learn from in each, and how it is scored on the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from isoscope.advising.evidence import Evidence
from isoscope.advising.rows import Rows
from isoscope.errors import InputError

FITTED_TO_ALL = (
    "Held-out examples touch most rows: repairs were fitted to all rows, theirs included; what is known of the "
    "held-out examples was never used."
)
"""The note of a task whose rows could not be held out."""


class Task(ABC):
    """Examples of what the vectors are for."""

    measures: ClassVar[dict[str, str]]
    """What is measured, by name, in words; the first decides unless another is asked for."""
    example: ClassVar[str]
    """What one example is."""

    rows: Rows
    metric: str
    folds: list[np.ndarray]
    """The examples that are held out in turn."""
    groups: np.ndarray
    """Of each example; those of one group are drawn, and held out, together."""

    def __init__(self, rows: Rows, metric: str):
        self.rows, self.metric = rows, metric
        self.notes: list[str] = []
        """What a reader should know of how it was done."""

    def __len__(self) -> int:
        return sum(len(fold) for fold in self.folds)

    @abstractmethod
    def held_rows(self, fold: int) -> np.ndarray:
        """Rows that a repair may not learn from when this fold is held out."""

    @abstractmethod
    def score(self, fold: int, repair: Any) -> dict[str, Evidence]:
        """What a repair that was learnt without this fold gets on it, by each measure."""

    def fit_rows(self, fold: int) -> np.ndarray:
        """Rows that a repair may learn from when this fold is held out."""
        free = np.ones(len(self.rows), bool)
        free[self.held_rows(fold)] = False
        if 2 * free.sum() < len(free):
            if FITTED_TO_ALL not in self.notes:
                self.notes.append(FITTED_TO_ALL)
            free[:] = True
        return np.flatnonzero(free)


def dealt(groups: np.ndarray, folds: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Examples in folds of about the same size, whole groups in each: the largest first, to the smallest fold."""
    sizes = np.bincount(groups)
    order = rng.permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    load, home = np.zeros(folds, np.int64), np.empty(len(sizes), np.int64)
    for group in order:
        home[group] = load.argmin()
        load[home[group]] += sizes[group]
    of_example = home[groups]
    return [np.flatnonzero(of_example == fold) for fold in range(folds)]


def check_folds(folds: int, examples: int, example: str) -> None:
    """Refuse folds that are too few, or too small for a measure to mean anything."""
    if folds < 2:
        raise InputError(f"folds is {folds}: need 2 at least, one to learn from and one to be tried on")
    if examples < 4 * folds:
        raise InputError(f"{examples} examples ({example}) in {folds} folds: need {4 * folds} at least, or fewer folds")
