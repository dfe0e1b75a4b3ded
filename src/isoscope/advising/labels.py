"""The task of labels: can a classifier, a nearest-neighbor vote or a clustering tell the classes apart?"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from isoscope._core.errors import InputError
from isoscope.advising.inference import Units
from isoscope.advising.measures import Evidence, v_measure
from isoscope.advising.probe import LinearProbe
from isoscope.advising.search import prepare, top_k
from isoscope.advising.task import Round, Task, check_folds, row_identity
from isoscope.metrics.clusters import kmeans_plus_plus
from isoscope.stores.columns import plural

if TYPE_CHECKING:
    from isoscope.advising.rows import Rows

_NEIGHBORS, _CLUSTERINGS = 10, 8
_MAX_CLUSTERED = 4_000


class Labels(Task):
    """Accuracy of a linear probe and of the 10 nearest neighbors, and the V-measure of k-means, adjusted for chance.

    Each row is classified by all other rows (leave-one-out); k-means gets the number of classes and is averaged over
    several starts. Equal rows count once. With `new_rows` repair, probe and neighbors learn from the other folds.
    """

    measures: ClassVar = {
        "probe": "linear probe accuracy",
        "knn": "neighbor accuracy",
        "v_measure": "adjusted V-measure",
    }
    example: ClassVar = "row"
    variance_factors: ClassVar = {"knn": 2.0}  # rows vote for each other: of two that do, both are right or wrong

    def __init__(self, rows: Rows, labels: np.ndarray, metric: str, folds: int, seed: int, *, new_rows: bool = False):
        super().__init__(rows, metric)
        first = np.sort(np.unique(row_identity(rows.vectors), return_index=True)[1])
        self.rows = rows.at(first)
        if len(first) < len(rows):
            self.notes.append(f"{plural(len(rows) - len(first), 'row')} equal an earlier row and do not count again.")
        check_folds(folds, len(first), "different rows")
        names, self.labels = np.unique(np.asarray(labels)[first], return_inverse=True)
        if len(names) < 2:
            raise InputError(f"every row has the label {names[0]}: need at least two labels to tell apart")
        if 2 * len(names) > len(self.labels):
            raise InputError(
                f"{len(self.labels)} different rows have {plural(len(names), 'different label')}: need labels that "
                "several rows share; is this a column of ids?"
            )
        self.seed = seed
        everything = np.arange(len(self.labels))
        self.units = Units(_independent_examples(len(everything)), folds)
        self.rounds = [Round(None, everything)]
        if new_rows:
            parts = stratified_folds(self.labels, folds, np.random.default_rng(seed))
            self.rounds = [Round(np.setdiff1d(everything, part), part) for part in parts]

    def score(self, repair: Any, round: Round) -> dict[str, Evidence]:
        """Return which rows of a round are classified correctly, and how well their clusters match the labels."""
        held_out, truth = round.examples, self.labels[round.examples]
        Z = repair.transform(self.rows.vectors[held_out])
        compared = prepare(Z, self.metric)
        if round.fit_rows is None:
            predicted = LinearProbe(Z, truth).leave_one_out()
            near = truth[top_k(compared, compared, _NEIGHBORS, self.metric, exclude_self=True)]
        else:
            X, known = repair.transform(self.rows.vectors[round.fit_rows]), self.labels[round.fit_rows]
            predicted = LinearProbe(X, known).predict(Z)
            near = known[top_k(compared, prepare(X, self.metric), _NEIGHBORS, self.metric)]
        return {
            "probe": Evidence((predicted == truth).astype(np.float64)),
            "knn": Evidence((plurality(near) == truth).astype(np.float64)),
            "v_measure": v_measure(self._run_kmeans(compared, len(np.unique(truth))), truth),
        }

    def _run_kmeans(self, Z: np.ndarray, k: int) -> np.ndarray:
        """Return the cluster of each row in each of several runs of k-means."""
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits

        Z = Z - Z.mean(axis=0, dtype=np.float64)
        Z /= float(np.abs(Z).max()) or 1.0
        some = Z[np.sort(np.random.default_rng(self.seed).permutation(len(Z))[:_MAX_CLUSTERED])]
        codes = []
        # one thread: k-means on few rows spends its time waiting for the others
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than classes
            for start in range(_CLUSTERINGS):
                centers = some[kmeans_plus_plus(some, min(k, len(some)), np.random.default_rng((self.seed, start)))]
                codes.append(KMeans(len(centers), init=centers, n_init=1).fit(some).predict(Z))
        return np.asarray(codes, np.int64)


def _independent_examples(m: int) -> csr_array:
    """Return examples that share nothing."""
    return csr_array((np.ones(m), (np.arange(m), np.arange(m))), shape=(m, m))


def stratified_folds(labels: np.ndarray, folds: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return rows in folds that each hold about the same share of every label, in random order."""
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    home = np.empty(len(labels), np.int64)
    home[by_label] = np.arange(len(labels)) % folds
    return [shuffled[home[shuffled] == fold] for fold in range(folds)]


def plurality(votes: np.ndarray) -> np.ndarray:
    """Return the most frequent label of each row of votes; ties go to the one that comes first.

    >>> plurality(np.array([[3, 1, 1], [2, 0, 1]])).tolist()
    [1, 2]
    """
    agreeing = (votes[:, :, None] == votes[:, None, :]).sum(axis=2)
    return np.asarray(votes[np.arange(len(votes)), agreeing.argmax(axis=1)])
