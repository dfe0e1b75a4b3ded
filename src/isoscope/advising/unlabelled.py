"""Where nothing is known of the vectors: do the halves of the coordinates agree about who is near whom?"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from isoscope.advising.alike import most_alike, ready
from isoscope.advising.evidence import Evidence, Means
from isoscope.advising.rows import Rows
from isoscope.advising.task import Task, check_folds, dealt
from isoscope.errors import InputError
from isoscope.transforms.affine import Whiten
from isoscope.transforms.chain import Chain

_NEIGHBORS, _SPLITS = 10, 4
_MOST_ROWS, _MOST_FITTED = 2_000, 10_000  # of a fold, and those that halves are fitted to


class Unlabelled(Task):
    """How many of a row's 10 nearest rows are the same by one random half of the coordinates and by the other.

    Split-half reliability, as tests of people have it: neighbours that hang on a few coordinates are found by one half
    only. A repair is fitted to each half by itself, or it would tie them to each other. It is blind to what the vectors
    are for.
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

    def fit_rows(self, fold: int) -> np.ndarray:
        """All other rows."""
        return np.setdiff1d(np.arange(len(self.rows)), self.folds[fold])

    def score(self, fold: int, repair: Any) -> dict[str, Evidence]:
        """The share of neighbours that two halves have in common, for each held-out row."""
        learnt, held = (self.rows.vectors[rows] for rows in (self.fit_rows(fold)[:_MOST_FITTED], self.folds[fold]))
        rng = np.random.default_rng((self.seed, fold))
        common = np.zeros(len(held))
        for _ in range(_SPLITS):
            lists = []
            for half in np.array_split(rng.permutation(held.shape[1]), 2):
                Y = ready(halved(repair).fit(learnt[:, half]).transform(held[:, half]), self.metric)
                order = rng.permutation(len(Y))  # rows that cannot be told apart are near in no order of theirs
                near = np.empty((len(Y), _NEIGHBORS), np.int64)
                near[order] = order[most_alike(Y[order], Y[order], _NEIGHBORS, self.metric, itself=True)]
                lists.append(near)
            a, b = lists
            common += (a[:, :, None] == b[:, None, :]).sum(axis=(1, 2)) / _NEIGHBORS
        return {"stability": Means(common / _SPLITS)}


def halved(repair: Any) -> Any:
    """The same repair for half as many dimensions: of dimensions that are kept it keeps half as many."""
    if isinstance(repair, Chain):
        return Chain([halved(step) for step in repair.steps])
    repair = clone(repair)
    if isinstance(repair, Whiten) and repair.n_components is not None:
        repair.set_params(n_components=max(1, repair.n_components // 2))
    return repair
