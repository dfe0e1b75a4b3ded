"""The task of labels: can a classifier, a neighbour or a clustering tell the classes apart?"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

from isoscope.advising.alike import most_alike, ready
from isoscope.advising.evidence import Agreement, Evidence, Means
from isoscope.advising.probe import linear_probe
from isoscope.advising.rows import Rows
from isoscope.advising.task import Task, check_folds
from isoscope.errors import InputError
from isoscope.metrics.clusters import scattered_rows
from isoscope.stores.columns import plural

_NEIGHBORS, _CLUSTERINGS = 10, 8
_MOST_CLUSTERED = 4_000


class Labelled(Task):
    """Accuracy of a linear probe and of the 10 nearest neighbours, and V-measure of K-means, adjusted for chance.

    Probe and neighbours learn from the training folds, repaired; K-means is given the held-out rows and the number of
    their classes. Its own luck is averaged over several starts.
    """

    measures: ClassVar = {
        "probe": "linear probe accuracy",
        "knn": "neighbour accuracy",
        "v_measure": "adjusted V-measure",
    }
    example: ClassVar = "row"

    def __init__(self, rows: Rows, labels: np.ndarray, metric: str, folds: int, seed: int):
        super().__init__(rows, metric)
        check_folds(folds, len(labels), "rows")
        self.names, self.labels = np.unique(labels, return_inverse=True)
        if len(self.names) < 2:
            raise InputError(f"every row has the label {self.names[0]}: need two labels at least to tell apart")
        if 2 * len(self.names) > len(labels):
            raise InputError(
                f"{len(labels)} rows have {plural(len(self.names), 'different label')}: need labels that several rows "
                "share; is this a column of ids?"
            )
        self.seed = seed
        _, first, self.groups = np.unique(_row_bytes(rows.vectors), return_index=True, return_inverse=True)
        check_folds(folds, len(first), "different rows")
        # copies of a row are one piece of evidence: held out together, and drawn together
        parts = stratified(self.labels[first], folds, np.random.default_rng(seed))
        home = np.empty(len(first), np.int64)
        for fold, part in enumerate(parts):
            home[part] = fold
        shuffled = np.random.default_rng(seed).permutation(len(labels))
        self.folds = [shuffled[home[self.groups[shuffled]] == fold] for fold in range(folds)]

    def held_rows(self, fold: int) -> np.ndarray:
        """The rows that are held out."""
        return self.folds[fold]

    def fit_rows(self, fold: int) -> np.ndarray:
        """All other rows: of those that are held out the labels would be learnt too."""
        return np.setdiff1d(np.arange(len(self.labels)), self.folds[fold])

    def score(self, fold: int, repair: Any) -> dict[str, Evidence]:
        """What is got right of the held-out rows."""
        held, learnt = self.folds[fold], self.fit_rows(fold)
        X, Z = (repair.transform(self.rows.vectors[rows]) for rows in (learnt, held))
        told, truth = self.labels[learnt], self.labels[held]
        near = told[most_alike(ready(Z, self.metric), ready(X, self.metric), _NEIGHBORS, self.metric)]
        return {
            "probe": Means((linear_probe(X, told, Z) == truth).astype(np.float64)),
            "knn": Means((plurality(near) == truth).astype(np.float64)),
            "v_measure": self._clustered(ready(Z, self.metric), truth, fold),
        }

    def _clustered(self, Z: np.ndarray, truth: np.ndarray, fold: int) -> Evidence:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits

        Z = Z - Z.mean(axis=0, dtype=np.float64)
        Z /= float(np.abs(Z).max()) or 1.0
        some = Z[:_MOST_CLUSTERED]  # folds are in random order of rows
        k = min(len(np.unique(truth)), len(some))
        codes = []
        # one thread: K-means of few rows spends its time waiting for the others
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of fewer different rows than classes
            for start in range(_CLUSTERINGS):
                rng = np.random.default_rng((self.seed, fold, start))
                centers = some[scattered_rows(some, k, rng)]
                codes.append(KMeans(k, init=centers, n_init=1).fit(some).predict(Z))
        return Agreement(np.asarray(codes, np.int64), truth, self.seed)


def _row_bytes(X: np.ndarray) -> np.ndarray:
    """Each row as one value that can be compared; −0 is 0."""
    X = np.ascontiguousarray(X + 0.0)
    return X.view(np.dtype((np.void, X.dtype.itemsize * X.shape[1]))).ravel()


def stratified(labels: np.ndarray, folds: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows in folds, each label dealt out evenly; in random order."""
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    home = np.empty(len(labels), np.int64)
    home[by_label] = np.arange(len(labels)) % folds
    return [shuffled[home[shuffled] == fold] for fold in range(folds)]


def plurality(votes: np.ndarray) -> np.ndarray:
    """The commonest label of each row of votes; of equals the one that comes first.

    >>> plurality(np.array([[3, 1, 1], [2, 0, 1]])).tolist()
    [1, 2]
    """
    agreeing = (votes[:, :, None] == votes[:, None, :]).sum(axis=2)
    return np.asarray(votes[np.arange(len(votes)), agreeing.argmax(axis=1)])
