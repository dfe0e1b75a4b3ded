"""Trials: every candidate, fitted and scored on the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
from sklearn.base import clone

from isoscope._core.errors import InputError
from isoscope._core.threads import map_in_threads, single_threaded
from isoscope.advising.candidates import AS_IS
from isoscope.advising.inference import ExampleScores, Scores
from isoscope.advising.labels import Labels
from isoscope.engines.engine import sketch
from isoscope.metrics.clusters import silhouette
from isoscope.metrics.cosine import mean_cosine
from isoscope.metrics.spectra import isoscore
from isoscope.transforms.affine import AffineRepair, principal_directions
from isoscope.transforms.chain import Chain
from isoscope.transforms.clustered import ClusterCenter

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.advising.candidates import Candidate
    from isoscope.advising.task import Task
    from isoscope.sketching.sketch import Sketch
    from isoscope.stores.store import Store
    from isoscope.transforms.affine import Directions
    from isoscope.transforms.repair import Repair

_SHAPE_ROWS = 4_000  # the largest number of rows to measure, and to fit on


@dataclass(frozen=True)
class Trials:
    """Every candidate, fitted and scored."""

    candidates: list[Candidate]
    repairs: list[Repair]
    """The repairs, fitted to the whole source."""
    scores: Scores
    shapes: list[dict[str, float]]
    """IsoScore, mean cosine and silhouette of each candidate's space, on rows it was not fitted to.

    IsoScore and mean cosine of the unchanged vectors are exact, as in an audit.
    """
    left_out: dict[str, str] = field(default_factory=dict)
    """The candidates that could not be fitted, and the reason for each."""


def try_candidates(task: Task, store: Store, candidates: Sequence[Candidate], seed: int, progress: Progress) -> Trials:
    """Fit every candidate and score it on every round of the task; leave out candidates that cannot be fitted.

    Candidates are tried in parallel, each in one thread with one BLAS thread. Only fits that read the source run before
    the others, one after another.
    """
    parts = _Parts(task, seed)
    from_source = {each.name: clone(each.repair).fit(store) for each in candidates if _reads_source(each, task)}

    def fit(candidate: Candidate) -> Repair | InputError:
        with single_threaded():
            try:
                return from_source.get(candidate.name) or parts.source.fit(candidate.repair)
            except InputError as error:
                if candidate.name == AS_IS:
                    raise
                return error

    def attempt(each: tuple[Candidate, Repair | InputError]) -> _Attempt | InputError:
        candidate, repair = each
        if isinstance(repair, InputError):
            return repair
        with single_threaded():
            try:
                scores = _score_candidate(task, candidate, repair, parts)
                return _Attempt(repair, scores, _measure_shape(task, candidate, parts))
            except InputError as error:
                if candidate.name == AS_IS:
                    raise
                return error

    tried: dict[str, _Attempt] = {}
    left_out: dict[str, str] = {}
    fitted = list(map_in_threads(fit, candidates, len(candidates)))
    task.share_work([repair for repair in fitted if not isinstance(repair, InputError)])
    found = map_in_threads(attempt, zip(candidates, fitted, strict=True), len(candidates))
    for i, (candidate, result) in enumerate(zip(candidates, found, strict=True)):
        if isinstance(result, InputError):
            left_out[candidate.name] = str(result)
        else:
            tried[candidate.name] = result
        progress("trying repairs", 0, (i + 1) / len(candidates))
    scores = {measure: [each.scores[measure] for each in tried.values()] for measure in task.measures}
    return Trials(
        [candidate for candidate in candidates if candidate.name in tried],
        [each.repair for each in tried.values()],
        Scores(
            {measure: np.column_stack([each.values for each in of]) for measure, of in scores.items()},
            {
                measure: np.column_stack([each.repeats for each in of if each.repeats is not None])
                for measure, of in scores.items()
                if of[0].repeats is not None
            },
            task.units,
            dict(task.variance_factors),
        ),
        [each.shape for each in tried.values()],
        left_out,
    )


class _Attempt(NamedTuple):
    """A candidate that could be fitted and scored."""

    repair: Repair
    scores: dict[str, ExampleScores]
    shape: dict[str, float]


class _Part:
    """Rows that all candidates are fitted to, with the results that several candidates share."""

    def __init__(self, vectors: np.ndarray, rows: np.ndarray, total: Sketch | None = None):
        self.vectors, self.rows = vectors, rows
        self.sketch = sketch(vectors[rows]) if total is None else total
        self._found: dict[Any, Any] = {}
        self._locks: dict[Any, Lock] = {}

    def fit(self, unfitted: Repair) -> Repair:
        """Return a copy of the repair, fitted to these rows.

        Affine repairs learn from the sketch. Its principal directions, clusters, and the sketch of the vectors before
        the last step of a chain are computed only once.
        """
        repair: Repair = clone(unfitted)
        if isinstance(repair, AffineRepair):
            return repair._fit_with(self.sketch, lambda: self._find_directions("", self.sketch))
        if isinstance(repair, ClusterCenter) and repair.clusterer == "kmeans" and isinstance(repair.random_state, int):
            settings = {name: getattr(repair, name) for name in ("n_clusters", "sample", "random_state")}
            clusters: ClusterCenter = self._share(
                tuple(settings.values()), lambda: ClusterCenter(**settings).fit(self._take())
            )
            return clusters if type(repair) is ClusterCenter else repair._fit_to_clusters(clusters, self._take())
        if _is_affine_chain(repair) and len(repair.steps) > 1 and len(self.rows) == self.sketch.n:
            before = repr(repair.steps[:-1])
            first, total = self._share(before, lambda: self._fit_first_steps(repair))
            return repair._fit_last(first, total, lambda: self._find_directions(before, total))
        repair.fit(self._take())
        return repair

    def _fit_first_steps(self, chain: Chain) -> tuple[list[Repair], Sketch]:
        steps = chain.steps[:-1]
        first = self.fit(steps[0] if len(steps) == 1 else Chain(steps))
        return first.steps_ if isinstance(first, Chain) else [first], sketch(first.transform(self._take()))

    def _find_directions(self, before: str, total: Sketch) -> Directions:
        values, components, seen = self._share(("directions", before), lambda: principal_directions(total))
        return values, components.copy(order="K"), seen  # repairs may keep a view

    def _take(self) -> np.ndarray:
        return self.vectors if len(self.rows) == len(self.vectors) else self.vectors[self.rows]

    def _share(self, key: Any, compute: Callable[[], Any]) -> Any:
        with self._locks.setdefault(key, Lock()):
            if key not in self._found:
                self._found[key] = compute()
        return self._found[key]


class _Parts:
    """The parts of the rows that candidates are fitted to, and the rows on which shapes are measured."""

    def __init__(self, task: Task, seed: int):
        vectors = task.rows.vectors
        some = np.random.default_rng(seed).permutation(len(vectors))[: 2 * _SHAPE_ROWS]
        shape_rows, self.held_out = np.array_split(some, 2)
        self.shape = _Part(vectors, shape_rows)
        self.source = _Part(task.corpus.vectors, np.flatnonzero(task.corpus.sampled), task.corpus.sketch)
        """The uniform sample, so that rows named in the judgments are not overrepresented, and the sums of all rows."""
        self.rounds = [None if each.fit_rows is None else _Part(vectors, each.fit_rows) for each in task.rounds]


def _reads_source(candidate: Candidate, task: Task) -> bool:
    """Return whether fitting reads the source again, because the sums of all rows are not enough."""
    return _is_affine_chain(candidate.repair) and len(task.corpus) < task.corpus.total


def _is_affine_chain(repair: Repair) -> TypeGuard[Chain]:
    return (
        isinstance(repair, Chain)
        and len(repair.steps) > 0
        and all(isinstance(step, AffineRepair) for step in repair.steps)
    )


def _score_candidate(task: Task, candidate: Candidate, repair: Repair, parts: _Parts) -> dict[str, ExampleScores]:
    """Return the values of all examples and the repeated scores for each measure, averaged over the rounds."""
    counts = np.zeros(len(task))
    sums = {measure: np.zeros(len(task)) for measure in task.measures}
    repeats: dict[str, list[np.ndarray]] = {}
    for round, part in zip(task.rounds, parts.rounds, strict=True):
        if part is not None:
            repair = part.fit(candidate.repair)
        counts[round.examples] += 1
        for measure, scores in task.score(repair, round).items():
            sums[measure][round.examples] += scores.values
            if scores.repeats is not None:
                repeats.setdefault(measure, []).append(len(round.examples) * scores.repeats)
    scored = sum(len(round.examples) for round in task.rounds)
    return {
        measure: ExampleScores(of / counts, np.sum(repeats[measure], axis=0) / scored if measure in repeats else None)
        for measure, of in sums.items()
    }


def _measure_shape(task: Task, candidate: Candidate, parts: _Parts) -> dict[str, float]:
    """Return the repaired space's IsoScore, mean cosine and label silhouette, on rows not used to fit the repair."""
    repair = parts.shape.fit(candidate.repair)
    Y = repair.transform(task.rows.vectors[parts.held_out])
    Y = Y if Y.dtype.itemsize >= 4 else Y.astype(np.float32)
    found = {}
    if len(Y) >= 4 and Y.shape[1] > 1 and np.ptp(Y, axis=0).any():
        found["isoscore"] = float(isoscore(Y, unbiased=True))
    nonzero = np.abs(Y).any(axis=1)
    if nonzero.sum() > 1:
        found["mean_cosine"] = float(mean_cosine(Y[nonzero]))
    if candidate.name == AS_IS:
        if "isoscore" in found:
            found["isoscore"] = float(task.corpus.sketch.isoscore(unbiased=True))
        if "mean_cosine" in found:
            found["mean_cosine"] = float(task.corpus.sketch.mean_cosine())
    if isinstance(task, Labels):
        labels = task.labels[parts.held_out][nonzero]
        if 1 < len(np.unique(labels)) < len(labels):
            found["silhouette"] = float(silhouette(Y[nonzero], labels, metric=task.metric))
    return found
