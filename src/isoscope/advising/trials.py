"""Trials: every candidate, fitted and scored on the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from isoscope._core.errors import InputError
from isoscope.advising.candidates import AS_IS
from isoscope.advising.inference import Scores
from isoscope.advising.labels import Labels
from isoscope.engines.engine import sketch
from isoscope.metrics.clusters import silhouette
from isoscope.metrics.cosine import mean_cosine
from isoscope.metrics.spectra import isoscore
from isoscope.transforms.affine import AffineRepair
from isoscope.transforms.chain import Chain

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.advising.candidates import Candidate
    from isoscope.advising.task import Task
    from isoscope.sketching.sketch import Sketch
    from isoscope.stores.store import Store
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
    """Fit every candidate and score it on every round of the task; leave out candidates that cannot be fitted."""
    shape_rows = _split_shape_rows(task, seed)
    repairs: dict[str, Repair] = {}
    values: dict[str, list[np.ndarray]] = {measure: [] for measure in task.measures}
    repeats: dict[str, list[np.ndarray]] = {measure: [] for measure in task.measures}
    shapes: list[dict[str, float]] = []
    left_out: dict[str, str] = {}
    for i, candidate in enumerate(candidates):
        try:
            repair = fit_to_source(candidate, task, store)
            scores = _score_candidate(task, candidate, repair)
            shape = _measure_shape(task, candidate, *shape_rows)
        except InputError as error:
            if candidate.name == AS_IS:
                raise
            left_out[candidate.name] = str(error)
        else:
            repairs[candidate.name] = repair
            shapes.append(shape)
            for measure, (of, again) in scores.items():
                values[measure].append(of)
                if again is not None:
                    repeats[measure].append(again)
        progress("trying repairs", 0, (i + 1) / len(candidates))
    return Trials(
        [candidate for candidate in candidates if candidate.name in repairs],
        list(repairs.values()),
        Scores(
            {measure: np.column_stack(of) for measure, of in values.items()},
            {measure: np.column_stack(of) for measure, of in repeats.items() if of},
            task.units,
            dict(task.variance_factors),
        ),
        shapes,
        left_out,
    )


def fit_to_source(candidate: Candidate, task: Task, store: Store) -> Repair:
    """Return the candidate fitted to the whole source.

    Affine repairs learn from the sums of all rows. Chains of affine repairs read the source again if it is larger than
    the sample. Clustered repairs learn from the uniform sample, so that rows named in the judgments are not
    overrepresented.
    """
    rows = task.corpus
    repair: Repair = clone(candidate.repair)
    affine_chain = isinstance(repair, Chain) and all(isinstance(step, AffineRepair) for step in repair.steps)
    if isinstance(repair, AffineRepair):
        repair.fit(rows.sketch)
    elif affine_chain and len(rows) < rows.total:
        repair.fit(store)
    else:
        repair.fit(rows.vectors[rows.sampled])
    return repair


def _fit_to_rows(candidate: Candidate, vectors: np.ndarray, total: Sketch) -> Repair:
    repair: Repair = clone(candidate.repair)
    repair.fit(total if isinstance(repair, AffineRepair) else vectors)
    return repair


def _score_candidate(
    task: Task, candidate: Candidate, repair: Repair
) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Return the values of all examples and the repeated scores for each measure, averaged over the rounds."""
    counts = np.zeros(len(task))
    sums = {measure: np.zeros(len(task)) for measure in task.measures}
    repeats: dict[str, list[np.ndarray]] = {}
    for round in task.rounds:
        if round.fit_rows is not None:
            vectors = task.rows.vectors[round.fit_rows]
            repair = _fit_to_rows(candidate, vectors, sketch(vectors))
        counts[round.examples] += 1
        for measure, scores in task.score(repair, round).items():
            sums[measure][round.examples] += scores.values
            if scores.repeats is not None:
                repeats.setdefault(measure, []).append(len(round.examples) * scores.repeats)
    scored = sum(len(round.examples) for round in task.rounds)
    return {
        measure: (of / counts, np.sum(repeats[measure], axis=0) / scored if measure in repeats else None)
        for measure, of in sums.items()
    }


def _split_shape_rows(task: Task, seed: int) -> tuple[np.ndarray, np.ndarray, Sketch]:
    """Return rows to fit on and other rows to measure, with at most a few thousand of each."""
    some = np.random.default_rng(seed).permutation(len(task.rows))[: 2 * _SHAPE_ROWS]
    fit_rows, held_out = np.array_split(some, 2)
    return fit_rows, held_out, sketch(task.rows.vectors[fit_rows])


def _measure_shape(
    task: Task, candidate: Candidate, fit_rows: np.ndarray, held_out: np.ndarray, total: Sketch
) -> dict[str, float]:
    """Return the repaired space's IsoScore, mean cosine and label silhouette, on rows not used to fit the repair."""
    repair = _fit_to_rows(candidate, task.rows.vectors[fit_rows], total)
    Y = repair.transform(task.rows.vectors[held_out]).astype(np.float64)
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
        labels = task.labels[held_out][nonzero]
        if 1 < len(np.unique(labels)) < len(labels):
            found["silhouette"] = float(silhouette(Y[nonzero], labels, metric=task.metric))
    return found
