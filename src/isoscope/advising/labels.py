"""The labels task (linear probe, nearest neighbors, clusterings), and the stability task without labels."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone

from isoscope._core.arrays import blocks
from isoscope._core.errors import NotFoundError, ParameterError, ShapeError, TooFewRowsError, plural, was_dropped
from isoscope.advising.inference import ExampleScores, Units, v_measure
from isoscope.advising.linear_probe import LinearProbe, predict_with_shared_probes
from isoscope.advising.retrieval import prepare, top_k
from isoscope.advising.shared_neighbors import find_shared_neighbors
from isoscope.advising.task import NO_ROWS, Round, Task, check_folds, note_rows, note_sample, read_rows, row_identity
from isoscope.metrics.clusters import choose_starts, run_elkan
from isoscope.transforms.affine import Whiten
from isoscope.transforms.chain import Chain

if TYPE_CHECKING:
    from isoscope._core.types import Metric
    from isoscope._io.progress import Progress
    from isoscope.advising.task import AdviceSettings, Rows
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store
    from isoscope.transforms.repair import Repair


_TILE_ROWS = 1024  # rows that are compared with all centers together, so that the scores stay in the cache
_NEIGHBORS, _CLUSTERINGS = 10, 8
_MAX_CLUSTERED = 4_000


class Labels(Task):
    """Accuracy of a linear probe and of the 10 nearest neighbors, and the chance-adjusted V-measure of k-means.

    Each row is classified with a model of all other rows (leave-one-out). K-means uses as many clusters as there are
    classes, and its score is averaged over several starts. Equal rows count once. With `new_rows`, the repair, the
    probe and the neighbors use only the other folds.
    """

    measures: ClassVar = {
        "probe": "linear probe accuracy",
        "knn": "neighbor accuracy",
        "v_measure": "adjusted V-measure",
    }
    example: ClassVar = "row"
    variance_factors: ClassVar = {"knn": 2.0}  # rows vote for each other, so their errors are correlated

    def __init__(
        self, rows: Rows, labels: np.ndarray, metric: Metric, folds: int, seed: int, *, new_rows: bool = False
    ):
        super().__init__(rows, metric)
        _, index, copy_of = np.unique(row_identity(rows.vectors), return_index=True, return_inverse=True)
        first = np.sort(index)
        self.rows = rows.at(first)
        if len(first) < len(rows):
            self.notes.append(f"Equal rows count once, so {was_dropped(len(rows) - len(first), 'repeated row')}.")
        conflicts = int((np.asarray(labels) != np.asarray(labels)[index[copy_of]]).sum())
        if conflicts:
            self.notes.append(
                f"{plural(conflicts, 'repeated row')} had a different label from the equal row that was kept: the "
                "scores are too high, because no vectors can separate these rows."
            )
        check_folds(folds, len(first), "distinct row")
        names, self.labels = np.unique(np.asarray(labels)[first], return_inverse=True)
        if len(names) < 2:
            raise TooFewRowsError(f"every row has the label {names[0]}: need at least two distinct labels")
        if 2 * len(names) > len(self.labels):
            copies = f" of {len(rows):,}" if len(first) < len(rows) else ""
            raise ParameterError(
                f"{len(self.labels):,} distinct rows{copies} have {plural(len(names), 'distinct label')}: need labels "
                "that several distinct rows share, not unique ids"
            )
        self.seed = seed
        self._neighbors: WeakKeyDictionary[Repair, np.ndarray] = WeakKeyDictionary()
        self._predicted: WeakKeyDictionary[Repair, np.ndarray] = WeakKeyDictionary()
        everything = np.arange(len(self.labels))
        self.units = Units(_independent_examples(len(everything)), folds)
        self.rounds = [Round(None, everything)]
        if new_rows:
            parts = stratified_folds(self.labels, folds, np.random.default_rng(seed))
            self.rounds = [Round(np.setdiff1d(everything, part), part) for part in parts]

    def share_work(self, repairs: Sequence[Repair]) -> None:
        """Find the neighbors and the labels predicted by the probe, of all repairs that share computations."""
        if self.rounds[0].fit_rows is None:
            predicted = predict_with_shared_probes(self.rows.vectors, self.labels, repairs)
            self._predicted.update((repairs[position], labels) for position, labels in predicted.items())
            vectors, mean = self.rows.vectors, self.corpus.sketch.mean
            found = find_shared_neighbors(vectors, mean, repairs, _NEIGHBORS, self.metric)
            self._neighbors.update((repairs[position], near) for position, near in found.items())

    def score(self, repair: Repair, round: Round) -> dict[str, ExampleScores]:
        """Return whether each row of a round is classified correctly, and how well the clusters match the labels."""
        held_out, truth = round.examples, self.labels[round.examples]
        Z = repair.transform(self.rows.vectors[held_out])
        compared = prepare(Z, self.metric)
        if round.fit_rows is None:
            predicted = self._predicted.pop(repair, None)
            if predicted is None:
                predicted = LinearProbe(Z, truth).leave_one_out()
            lists = self._neighbors.pop(repair, None)
            if lists is None:
                lists = top_k(compared, compared, _NEIGHBORS, self.metric, exclude_self=True)
            near = truth[lists]
        else:
            X, known = repair.transform(self.rows.vectors[round.fit_rows]), self.labels[round.fit_rows]
            predicted = LinearProbe(X, known).predict(Z)
            near = known[top_k(compared, prepare(X, self.metric), _NEIGHBORS, self.metric)]
        return {
            "probe": ExampleScores((predicted == truth).astype(np.float64)),
            "knn": ExampleScores((plurality(near) == truth).astype(np.float64)),
            "v_measure": v_measure(self._run_kmeans(compared, len(np.unique(truth))), truth),
        }

    def _run_kmeans(self, Z: np.ndarray, k: int) -> np.ndarray:
        """Return the cluster of each row in each of several runs of k-means."""
        Z = (Z - Z.mean(axis=0, dtype=np.float64)).astype(Z.dtype)
        Z /= float(np.abs(Z).max()) or 1.0
        shuffled = np.random.default_rng(self.seed).permutation(len(Z))
        clustered, others = np.sort(shuffled[:_MAX_CLUSTERED]), np.sort(shuffled[_MAX_CLUSTERED:])
        some, rest = Z[clustered], Z[others]
        rngs = [np.random.default_rng((self.seed, start)) for start in range(_CLUSTERINGS)]
        codes = np.empty((_CLUSTERINGS, len(Z)), np.int64)
        centers = []
        for run, (chosen, near) in enumerate(zip(*choose_starts(some, min(k, len(some)), rngs), strict=True)):
            found, codes[run, clustered] = run_elkan(some, some[chosen], nearest_start=near)
            centers.append(found)
        codes[:, others] = nearest_centers(rest, np.stack(centers))
        return codes


def nearest_centers(X: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the index of the nearest center for each clustering and row; `centers` has shape (clusterings, k, d)."""
    halves = np.einsum("ijk,ijk->ij", centers, centers) / 2
    flat, codes = centers.reshape(-1, X.shape[1]).T, np.empty((len(centers), len(X)), np.int64)
    for part in blocks(len(X), _TILE_ROWS):
        scores = halves - (X[part] @ flat).reshape(-1, *halves.shape)
        codes[:, part] = scores.argmin(axis=2).T
    return codes


def _independent_examples(m: int) -> csr_array:
    """Return the matrix for `Units` of examples that share no rows."""
    return csr_array((np.ones(m), (np.arange(m), np.arange(m))), shape=(m, m))


def stratified_folds(labels: np.ndarray, folds: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Split the rows at random into folds that contain about the same share of every label."""
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    home = np.empty(len(labels), np.int64)
    home[by_label] = np.arange(len(labels)) % folds
    return [shuffled[home[shuffled] == fold] for fold in range(folds)]


def plurality(votes: np.ndarray) -> np.ndarray:
    """Return the most frequent label in each row of votes; if several are tied, return the one that comes first.

    >>> plurality(np.array([[3, 1, 1], [2, 0, 1]])).tolist()
    [1, 2]
    """
    agreeing = (votes[:, :, None] == votes[:, None, :]).sum(axis=2)
    return np.asarray(votes[np.arange(len(votes)), agreeing.argmax(axis=1)])


_STABILITY_NEIGHBORS, _SPLITS = 10, 8
_MAX_SCORED, _MAX_FITTED = 4_000, 10_000  # numbers of rows


class Unlabeled(Task):
    """The share of a row's 10 nearest neighbors on which two random halves of the coordinates agree.

    This is split-half reliability: neighbors that depend on a few coordinates are found in only one half. A repair is
    fitted to each half separately, since otherwise it would make the halves dependent. The score says nothing about
    what the vectors are used for. With `new_rows`, the scored rows are held out of the fit.
    """

    measures: ClassVar = {"stability": "split-half stability"}
    example: ClassVar = "row"

    def __init__(self, rows: Rows, metric: Metric, folds: int, seed: int, *, new_rows: bool = False):
        super().__init__(rows, metric)
        if rows.vectors.shape[1] < 4:
            raise ShapeError(
                f"the vectors have {rows.vectors.shape[1]} dimensions: need at least 4 to split them into halves; "
                "pass a task instead"
            )
        if len(rows) < 12 * folds:
            raise TooFewRowsError(
                f"{plural(len(rows), 'row')} {'is' if len(rows) == 1 else 'are'} too few for {folds} folds: need at "
                f"least {12 * folds}, because each row needs 10 neighbors"
            )
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

    def score(self, repair: Repair, round: Round) -> dict[str, ExampleScores]:
        """Return, for each scored row, the share of neighbors that the two halves have in common."""
        learned, scored = (self.rows.vectors[rows] for rows in (self.learned, self.scored))
        rng = np.random.default_rng(self.seed)
        common = np.zeros((_SPLITS, len(scored)))
        for split in range(_SPLITS):
            lists = []
            for half in np.array_split(rng.permutation(scored.shape[1]), 2):
                Y = prepare(halve_repair(repair).fit(learned[:, half]).transform(scored[:, half]), self.metric)
                order = rng.permutation(len(Y))  # equally similar rows are ranked in random order
                near = np.empty((len(Y), _STABILITY_NEIGHBORS), np.int64)
                near[order] = order[top_k(Y[order], Y[order], _STABILITY_NEIGHBORS, self.metric, exclude_self=True)]
                lists.append(near)
            a, b = lists
            common[split] = (a[:, :, None] == b[:, None, :]).sum(axis=(1, 2)) / _STABILITY_NEIGHBORS
        return {"stability": ExampleScores(common.mean(axis=0), common.mean(axis=1))}


def halve_repair(repair: Repair) -> Repair:
    """Return an unfitted copy of a repair for half of the dimensions; if it keeps k dimensions, the copy keeps k/2."""
    if isinstance(repair, Chain):
        return Chain([halve_repair(step) for step in repair.steps])
    repair = clone(repair)
    if isinstance(repair, Whiten) and repair.n_components is not None:
        repair.set_params(n_components=max(1, repair.n_components // 2))
    return repair


def labels_task(store: Store, settings: AdviceSettings, progress: Progress, engine: Engine | None = None) -> Labels:
    """Return the task of predicting the store's labels."""
    if "labels" not in store.columns:
        raise NotFoundError(f"{store.name} has no labels: pass the name of the label column")
    rows = read_rows(store, NO_ROWS, settings.sample, settings.seed, progress, engine)
    labels = store.column("labels", rows.numbers)
    assert labels is not None
    task = Labels(rows, labels, settings.metric, settings.folds, settings.seed, new_rows=settings.new_rows)
    note_rows(task)
    note_sample(task)
    return task


def unlabeled_task(
    store: Store, settings: AdviceSettings, progress: Progress, engine: Engine | None = None
) -> Unlabeled:
    """Return the task that needs only the vectors."""
    rows = read_rows(store, NO_ROWS, settings.sample, settings.seed, progress, engine)
    task = Unlabeled(rows, settings.metric, settings.folds, settings.seed, new_rows=settings.new_rows)
    note_rows(task)
    note_sample(task)
    if "labels" in store.columns:
        name = store.columns["labels"]
        task.notes.append(f"The source has a label column, “{name}”; to use it, pass --labels {shlex.quote(name)}.")
    return task
