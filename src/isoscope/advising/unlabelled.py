"""Where nothing is known of the vectors: do the halves of the coordinates agree about who is near whom?"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from isoscope.advising.alike import most_alike, ready
from isoscope.advising.evidence import Evidence, Means
from isoscope.advising.rows import Rows
from isoscope.advising.task import Task, check_folds, dealt
from isoscope.errors import InputError

_NEIGHBORS, _SPLITS = 10, 4
_MOST_ROWS = 2_000  # of a fold


class Unlabelled(Task):
    """How many of a row's 10 nearest rows are the same by one random half of the coordinates and by the other.

    Split-half reliability, as tests of people have it: neighbours that hang on a few coordinates are found by one half
    only. It is blind to what the vectors are for, and unfair to whitening, which takes away what the halves share.
    """

    measures: ClassVar = {"stability": "split-half stability"}
    example: ClassVar = "row"

    def __init__(self, rows: Rows, metric: str, folds: int, seed: int):
        super().__init__(rows, metric)
        if rows.vectors.shape[1] < 4:
            raise InputError(
                f"vectors of {rows.vectors.shape[1]} dimensions: need 4 at least to halve them; give a task"
            )
        if len(rows) < 12 * folds:
            raise InputError(f"{len(rows)} rows in {folds} folds: need {12 * folds} at least, each has its 10 nearest")
        check_folds(folds, len(rows), "rows")
        rng = np.random.default_rng(seed)
        self.seed = seed
        self.groups = np.arange(len(rows))
        self.folds = [rng.permutation(fold)[:_MOST_ROWS] for fold in dealt(self.groups, folds, rng)]

    def held_rows(self, fold: int) -> np.ndarray:
        """The rows that are held out."""
        return self.folds[fold]

    def score(self, fold: int, repair: Any) -> dict[str, Evidence]:
        """The share of neighbours that two halves have in common, for each held-out row."""
        Y = repair.transform(self.rows.vectors[self.folds[fold]])
        rng = np.random.default_rng((self.seed, fold))
        common = np.zeros(len(Y))
        for _ in range(_SPLITS):
            order = rng.permutation(Y.shape[1])
            halves = (ready(Y[:, part], self.metric) for part in np.array_split(order, 2))
            a, b = (most_alike(half, half, _NEIGHBORS, self.metric, itself=True) for half in halves)
            common += (a[:, :, None] == b[:, None, :]).sum(axis=(1, 2)) / a.shape[1]
        return {"stability": Means(common / _SPLITS)}
