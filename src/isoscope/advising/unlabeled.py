"""No task: do two halves of the coordinates agree about which rows are near each other?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone

from isoscope._core.errors import InputError
from isoscope.advising.inference import Units
from isoscope.advising.measures import Evidence
from isoscope.advising.search import prepare, top_k
from isoscope.advising.task import Round, Task, row_identity
from isoscope.transforms.affine import Whiten
from isoscope.transforms.chain import Chain

if TYPE_CHECKING:
    from isoscope.advising.rows import Rows

_NEIGHBORS, _SPLITS = 10, 8
_MAX_SCORED, _MAX_FITTED = 4_000, 10_000  # rows


class Unlabeled(Task):
    """The share of a row's 10 nearest rows that two random halves of the coordinates have in common.

    This is split-half reliability: neighbors that depend on a few coordinates are found by one half only. A repair is
    fitted to each half on its own, since otherwise it would tie the halves together. It says nothing about what the
    vectors are used for. With `new_rows` the scored rows are held out of the fit.
    """

    measures: ClassVar = {"stability": "split-half stability"}
    example: ClassVar = "row"

    def __init__(self, rows: Rows, metric: str, folds: int, seed: int, *, new_rows: bool = False):
        super().__init__(rows, metric)
        if rows.vectors.shape[1] < 4:
            raise InputError(
                f"vectors of {rows.vectors.shape[1]} dimensions: need at least 4 to split them into halves; give a task"
            )
        if len(rows) < 12 * folds:
            raise InputError(f"{len(rows)} rows for {folds} folds: need at least {12 * folds}; each has 10 neighbors")
        rng = np.random.default_rng(seed)
        self.seed = seed
        shuffled = rng.permutation(len(rows))
        self.scored = np.sort(shuffled[: min(_MAX_SCORED, len(rows) // 2 if new_rows else len(rows))])
        learned = np.setdiff1d(shuffled, self.scored) if new_rows else np.arange(len(rows))
        self.learned = np.sort(rng.permutation(learned)[:_MAX_FITTED])
        m = len(self.scored)
        identity = row_identity(rows.vectors[self.scored])
        self.units = Units(csr_array((np.ones(m), (np.arange(m), identity)), shape=(m, m)), folds)
        self.rounds = [Round(self.learned if new_rows else None, np.arange(m))]

    def score(self, repair: Any, round: Round) -> dict[str, Evidence]:
        """Return the share of neighbors that two halves have in common, for each scored row."""
        learned, scored = (self.rows.vectors[rows] for rows in (self.learned, self.scored))
        rng = np.random.default_rng(self.seed)
        common = np.zeros((_SPLITS, len(scored)))
        for split in range(_SPLITS):
            lists = []
            for half in np.array_split(rng.permutation(scored.shape[1]), 2):
                Y = prepare(halve_repair(repair).fit(learned[:, half]).transform(scored[:, half]), self.metric)
                order = rng.permutation(len(Y))  # equally similar rows are found in random order
                near = np.empty((len(Y), _NEIGHBORS), np.int64)
                near[order] = order[top_k(Y[order], Y[order], _NEIGHBORS, self.metric, exclude_self=True)]
                lists.append(near)
            a, b = lists
            common[split] = (a[:, :, None] == b[:, None, :]).sum(axis=(1, 2)) / _NEIGHBORS
        return {"stability": Evidence(common.mean(axis=0), common.mean(axis=1))}


def halve_repair(repair: Any) -> Any:
    """Return the same repair, unfitted, for half the dimensions; one that keeps k dimensions keeps k/2."""
    if isinstance(repair, Chain):
        return Chain([halve_repair(step) for step in repair.steps])
    repair = clone(repair)
    if isinstance(repair, Whiten) and repair.n_components is not None:
        repair.set_params(n_components=max(1, repair.n_components // 2))
    return repair
