"""Fit each candidate to the training rows of each fold and score it on what was held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from isoscope.advising.candidates import AS_IS, Candidate
from isoscope.advising.evidence import Evidence, draws
from isoscope.advising.labelled import Labelled
from isoscope.advising.task import Task
from isoscope.engines.engine import Progress
from isoscope.errors import InputError
from isoscope.memory import tile_bytes
from isoscope.metrics.clusters import silhouette
from isoscope.metrics.cosine import mean_cosine
from isoscope.metrics.spectrum import isoscore
from isoscope.sketching import Sketch, sketch
from isoscope.transforms.affine import AffineRepair

DRAWS = 2_000
"""Of the bootstrap."""
_LEAST_SHAPED, _SHAPED = 50, 4_000  # rows whose shape is measured


@dataclass(frozen=True)
class Tried:
    """Every candidate's scores, as they are and in each draw of the bootstrap."""

    candidates: list[Candidate]
    scores: dict[str, np.ndarray]
    """By measure: of each candidate, over all folds."""
    by_fold: dict[str, np.ndarray]
    """(folds, candidates)."""
    resampled: dict[str, np.ndarray]
    """(draws, candidates); the same draws for all."""
    shapes: list[dict[str, float]]
    """Isotropy of each candidate's space."""
    sizes: np.ndarray
    """Examples in each fold."""
    freedom: int = 10**6
    """How many groups of examples there are beyond one for each fold: what is left to tell how much they vary."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Candidates that could not be fitted, and why."""


def try_all(task: Task, candidates: Sequence[Candidate], seed: int, progress: Progress) -> Tried:
    """Score every candidate on every fold; one that cannot be fitted is left out."""
    evidence: dict[str, list[dict[str, Evidence]]] = {candidate.name: [] for candidate in candidates}
    shapes: dict[str, dict[str, float]] = {}
    left_out: dict[str, str] = {}
    done, steps = 0, len(task.folds) * len(candidates)
    for fold in range(len(task.folds)):
        rows = task.rows.vectors[task.fit_rows(fold)]
        total = sketch(rows)
        for candidate in candidates:
            if candidate.name not in left_out:
                try:
                    repair = fitted(candidate, rows, total)
                    evidence[candidate.name].append(task.score(fold, repair))
                    if fold == 0:
                        shapes[candidate.name] = shape(task, repair, seed)
                except InputError as error:
                    if candidate.name == AS_IS:
                        raise
                    left_out[candidate.name] = str(error)
            done += 1
            progress("trying repairs", 0, done / steps)
    kept = [candidate for candidate in candidates if candidate.name not in left_out]
    sizes = np.asarray([len(fold) for fold in task.folds])
    by_fold, resampled = {}, {}
    for measure in task.measures:
        held = [[evidence[candidate.name][fold][measure] for candidate in kept] for fold in range(len(sizes))]
        by_fold[measure] = np.asarray([[one.value() for one in of_fold] for of_fold in held])
        resampled[measure] = _drawn(task, held, sizes, seed)
        progress("drawing again", 0, 1.0)
    shares = sizes / sizes.sum()
    return Tried(
        kept,
        {measure: shares @ values for measure, values in by_fold.items()},
        by_fold,
        resampled,
        [shapes[candidate.name] for candidate in kept],
        sizes,
        freedom(task),
        left_out,
    )


def fitted(candidate: Candidate, rows: np.ndarray, total: Sketch) -> Any:
    """A candidate that has learnt from these rows; their sketch is enough for an affine one."""
    repair = clone(candidate.repair)
    return repair.fit(total if isinstance(repair, AffineRepair) else rows)


def freedom(task: Task) -> int:
    """How many groups of examples there are beyond one for each fold."""
    return sum(len(np.unique(task.groups[fold])) - 1 for fold in task.folds)


def _drawn(task: Task, held: list[list[Evidence]], sizes: np.ndarray, seed: int) -> np.ndarray:
    """(draws, candidates): in each draw every fold's groups of examples are drawn again, alike for all candidates."""
    rng = np.random.default_rng(seed)
    found = np.zeros((DRAWS, len(held[0])))
    for fold, (of_fold, size) in enumerate(zip(held, sizes, strict=True)):
        _, groups = np.unique(task.groups[task.folds[fold]], return_inverse=True)
        drawn = np.empty_like(found)
        step = max(1, int(tile_bytes(2**25) // (8 * size)))  # draws at a time: 32 MB of weights
        for start in range(0, DRAWS, step):
            stop = min(start + step, DRAWS)
            weights = draws(groups, stop - start, rng)
            for i, one in enumerate(of_fold):
                drawn[start:stop, i] = one.resampled(weights)
        count = int(groups.max()) + 1
        middle = drawn.mean(axis=0)
        drawn = middle + (drawn - middle) * np.sqrt(count / max(count - 1, 1))  # draws from few vary too little
        found += size / sizes.sum() * drawn
    return found


def shape(task: Task, repair: Any, seed: int) -> dict[str, float]:
    """How isotropic a repaired space is, and how far apart its labels are, on rows that it was not learnt from."""
    some = task.held_rows(0)
    if len(some) < _LEAST_SHAPED:
        some = np.arange(len(task.rows))
    some = np.random.default_rng(seed).permutation(some)[:_SHAPED]
    Y = repair.transform(task.rows.vectors[some]).astype(np.float64)
    found = {}
    if len(Y) >= 4 and Y.shape[1] > 1 and np.ptp(Y, axis=0).any():
        found["isoscore"] = float(isoscore(Y, unbiased=True))  # type: ignore[arg-type]
    alive = Y[np.abs(Y).any(axis=1)]
    if len(alive) > 1:
        found["mean_cosine"] = float(mean_cosine(alive))
    if isinstance(task, Labelled):
        labels = task.labels[some][np.abs(Y).any(axis=1)]
        if 1 < len(np.unique(labels)) < len(labels):
            found["silhouette"] = float(silhouette(alive, labels, metric=task.metric))
    return found
