"""The task of graded pairs: are those that people find alike alike to the space?"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from isoscope.advising.alike import likeness, ready
from isoscope.advising.evidence import Evidence, RankCorrelation
from isoscope.advising.rows import Rows
from isoscope.advising.task import Task, check_folds, dealt

_LEAST_GROUPS = 4  # of a fold: of fewer it cannot be told how much they vary


class GradedPairs(Task):
    """Spearman's correlation of the pairs' cosines with their grades.

    Pairs that share a row stand or fall together: they are in one fold, and drawn together by the bootstrap. Where that
    would put most pairs into one fold, each stands for itself.
    """

    measures: ClassVar = {"spearman": "Spearman's correlation"}
    example: ClassVar = "pair"

    def __init__(
        self, rows: Rows, first: np.ndarray, second: np.ndarray, scores: np.ndarray, metric: str, folds: int, seed: int
    ):
        super().__init__(rows, metric)
        check_folds(folds, len(scores), "pairs")
        self.first, self.second, self.scores = first, second, scores
        n = len(rows)
        links = coo_array((np.ones(len(first)), (first, second)), shape=(n, n))
        _, component = connected_components(links, directed=False)
        _, self.groups = np.unique(component[first], return_inverse=True)
        sizes = np.bincount(self.groups)
        if sizes.max() > len(scores) / folds or len(sizes) < _LEAST_GROUPS * folds:
            self.groups = np.arange(len(scores))
            self.notes.append(
                "Pairs share rows with too many others to be held out together: each was drawn by itself."
            )
        self.folds = dealt(self.groups, folds, np.random.default_rng(seed))

    def held_rows(self, fold: int) -> np.ndarray:
        """The rows of the pairs that are held out."""
        held = self.folds[fold]
        return np.unique(np.concatenate([self.first[held], self.second[held]]))

    def score(self, fold: int, repair: Any) -> dict[str, Evidence]:
        """The ranks of the pairs that are held out."""
        held, places = self.folds[fold], self.held_rows(fold)
        repaired = ready(repair.transform(self.rows.vectors[places]), self.metric)
        a, b = (repaired[np.searchsorted(places, side[held])] for side in (self.first, self.second))
        return {"spearman": RankCorrelation(likeness(a, b, self.metric), self.scores[held])}
