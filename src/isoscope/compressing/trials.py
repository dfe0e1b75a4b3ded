"""Trials: every candidate, fitted to the corpus and scored on the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope._core.threads import map_in_threads, run_all, single_threaded
from isoscope.advising.inference import Scores
from isoscope.advising.retrieval import NDCG_DEPTH, RECALL_DEPTH, Retrieval, prepare, top_k
from isoscope.compressing.candidates import AS_IS
from isoscope.compressing.recall import FIRST_QUERIES, NeighborRecall
from isoscope.transforms.chain import Chain
from isoscope.transforms.quantize import Geometry

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.advising.inference import ExampleScores
    from isoscope.advising.task import Task
    from isoscope.compressing.candidates import Candidate
    from isoscope.transforms.quantize import Quantizer

_HOPELESS_ERRORS = 4  # a candidate so many standard errors below the share is not scored on all queries
_HOPELESS_SHARE = 0.02  # and at least this far below
_RESCORED_QUERIES = 16  # at a time


@dataclass(frozen=True)
class Trials:
    """Candidates, fitted and scored; the last one leaves the vectors unchanged."""

    candidates: list[Candidate]
    quantizers: list[Quantizer | None]
    scores: Scores
    """The scores on all examples; the first column is that of the unchanged vectors, the others follow `candidates`."""
    stopped: list[bool]
    """Whether each candidate was scored on the first queries only."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The candidates that could not be fitted, and the reason for each."""


def try_candidates(
    task: Task | NeighborRecall, candidates: Sequence[Candidate], keep: float, seed: int, progress: Progress
) -> Trials:
    """Fit every candidate and score it on the task; leave out candidates that cannot be fitted."""
    if isinstance(task, NeighborRecall):
        return _try_on_neighbors(task, candidates, keep, progress)
    return _try_on_task(task, candidates, seed, progress)


def _group_by_codes(candidates: Sequence[Candidate]) -> list[list[list[Candidate]]]:
    """Group candidates by the affine map before rounding, then by quantizer.

    Variants with and without rescoring share codes.
    """

    def by_frame(each: Candidate) -> tuple[str, int, str, str]:
        of = each.quantizer
        assert of is not None
        return of.reduction, -(of.n_components or 0), str(of.preprocess), each.name  # narrow frames reuse wide ones

    coded = sorted((each for each in candidates if each.quantizer), key=by_frame)
    return [
        [list(group) for _, group in groupby(of_frame, key=lambda each: id(each.quantizer))]
        for _, of_frame in groupby(coded, key=lambda each: str(each.frame))
    ]


def _fit(members: Sequence[Candidate], geometry: Geometry, left_out: dict[str, str]) -> Quantizer | None:
    """Return the fitted quantizer of candidates with the same codes; None if it cannot be fitted."""
    try:
        fitted: Quantizer = clone(members[0].quantizer).fit_geometry(geometry)
    except InputError as error:
        left_out.update({each.name: str(error) for each in members})
        return None
    return fitted


def _try_on_neighbors(task: NeighborRecall, candidates: Sequence[Candidate], keep: float, progress: Progress) -> Trials:
    """Score every candidate on a few queries, and on all queries unless its recall is far below the share to keep."""
    left_out: dict[str, str] = {}
    values: dict[str, np.ndarray] = {}
    quantizers: dict[str, Quantizer] = {}
    first, every = min(FIRST_QUERIES, len(task)), len(task)

    def score(members: list[Candidate]) -> None:
        with single_threaded():
            quantizer = _fit(members, task.corpus, left_out)
            if quantizer is None:
                return
            search = task.open_search(quantizer)
            scored = search.recall([each.depth for each in members], 0, first)
            promising = [i for i, of in enumerate(scored) if not _is_hopeless(of, keep)]
            rest = search.recall([members[i].depth for i in promising], first, every) if promising else np.empty((0, 0))
        for i, each in enumerate(members):
            quantizers[each.name] = quantizer
            later = rest[promising.index(i)] if i in promising else []
            values[each.name] = np.concatenate([scored[i], later])

    task.find_all_nearest(first)
    done = 0
    for of_frame in _group_by_codes(candidates):
        if (quantizer := of_frame[0][0].quantizer) is not None:
            task.corpus.project(task.frame_of(quantizer))
        run_all(map_in_threads(score, of_frame, len(of_frame)))
        done += sum(map(len, of_frame))
        progress("trying candidates", 0, done / len(candidates))
    kept = [each for each in candidates if each.name in values or each.name == AS_IS]
    values[AS_IS] = np.ones(every)
    stopped = [len(values[each.name]) < every for each in kept]
    table = np.full((every, len(kept) + 1), np.nan)
    for i, each in enumerate([kept[-1], *kept]):
        own = values[each.name]
        table[: len(own), i] = own
    scores = Scores({"recall@10": table}, {}, task.units)
    return Trials(kept, [quantizers.get(each.name) for each in kept], scores, stopped, left_out)


def _is_hopeless(recall: np.ndarray, keep: float) -> bool:
    """Return whether a candidate is so far below the share that more queries are pointless."""
    error = float(recall.std(ddof=1)) / np.sqrt(len(recall))
    return bool(recall.mean() + max(_HOPELESS_ERRORS * error, _HOPELESS_SHARE) < keep)


def _try_on_task(task: Task, candidates: Sequence[Candidate], seed: int, progress: Progress) -> Trials:
    corpus = task.corpus
    geometry = Geometry(corpus.vectors[corpus.sampled], task.metric, seed)
    left_out: dict[str, str] = {}
    found = {AS_IS: _score_original(task)}
    quantizers: dict[str, Quantizer] = {}
    for members in (members for of_frame in _group_by_codes(candidates) for members in of_frame):
        quantizer = _fit(members, geometry, left_out)
        if quantizer is not None:
            for each in members:
                found[each.name] = score_candidate(task, quantizer, each.oversampling)
                quantizers[each.name] = quantizer
        progress("trying candidates", 0, len(found) / len(candidates))
    kept = [each for each in candidates if each.name in found]
    columns = [found[AS_IS], *(found[each.name] for each in kept)]
    repeats = {
        measure: [again for of in columns if (again := of[measure].repeats) is not None] for measure in task.measures
    }
    scores = Scores(
        {measure: np.column_stack([of[measure].values for of in columns]) for measure in task.measures},
        {measure: np.column_stack(of) for measure, of in repeats.items() if of},
        task.units,
        dict(task.variance_factors),
    )
    return Trials(kept, [quantizers.get(each.name) for each in kept], scores, [False] * len(kept), left_out)


def _score_original(task: Task) -> dict[str, ExampleScores]:
    unchanged = Chain().fit(task.rows.vectors[:2])
    return task.score(unchanged, task.rounds[0])


def score_candidate(task: Task, quantizer: Quantizer, oversampling: int) -> dict[str, ExampleScores]:
    """Return the scores of a fitted quantizer on all examples of a task.

    In a search, only the documents are stored as codes; queries stay floats, unless bits are compared with bits. In
    other tasks, all rows are stored as codes.
    """
    if not isinstance(task, Retrieval):
        return task.score(quantizer, task.rounds[0])
    vectors = task.rows.vectors[task.order]
    documents = prepare(quantizer.transform(vectors), task.metric)
    queries = prepare(quantizer.transform(task.queries) if quantizer.compares_bits else task.queries, task.metric)
    everything = np.arange(len(task))
    if not oversampling:
        lists = task.order[top_k(queries, documents, RECALL_DEPTH, task.metric)]
        return task.score_lists(lists, everything)
    found = {}
    for measure, depth in (("ndcg@10", NDCG_DEPTH), ("recall@100", RECALL_DEPTH)):
        pools = top_k(queries, documents, oversampling * depth, task.metric)
        lists = task.order[_rescore(pools, task.queries, vectors, depth, task)]
        found[measure] = task.score_lists(lists, everything)[measure]
    return found


def _rescore(pools: np.ndarray, queries: np.ndarray, vectors: np.ndarray, depth: int, task: Task) -> np.ndarray:
    """Return the `depth` best rows of each pool, ranked by exact similarity to the query."""
    documents, asked = prepare(vectors, task.metric), prepare(queries, task.metric)
    lists = np.empty((len(pools), min(depth, pools.shape[1])), np.int64)
    for part in blocks(len(pools), _RESCORED_QUERIES):
        own = documents[pools[part]]
        if task.metric == "cosine":
            similarity = np.einsum("qpd,qd->qp", own, asked[part])
        else:
            similarity = -((own - asked[part][:, None]) ** 2).sum(axis=2)
        best = np.argsort(-similarity, axis=1, kind="stable")[:, :depth]
        lists[part] = np.take_along_axis(pools[part], best, axis=1)
    return lists
