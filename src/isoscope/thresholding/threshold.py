"""The function `threshold`, which finds the cosine that means a match, with or without judgments."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope._core.arrays import nonzero_rows, unit_rows
from isoscope._core.errors import ParameterError, ShapeError, TooFewRowsError, plural
from isoscope._core.missing import note_dropped_rows, note_zero_rows
from isoscope._core.random import check_seed
from isoscope._io.progress import show_progress
from isoscope.advising.graded_pairs import GradedPairs
from isoscope.advising.labels import Labels
from isoscope.advising.retrieval import Retrieval
from isoscope.advising.task import AdviceSettings
from isoscope.advising.task_inputs import TaskInputs, open_queries
from isoscope.auditing.measure import Settings
from isoscope.auditing.passes import first_pass
from isoscope.engines.engine import open_engine
from isoscope.stores.databases.address import redact_source_name
from isoscope.thresholding.counts import GradedExamples, LabeledExamples, QueryExamples
from isoscope.thresholding.cuts import (
    Choice,
    bound_best,
    choose_cut,
    confirm,
    evaluate,
    f1,
    locate_cut,
    precision,
    recall,
)
from isoscope.thresholding.tails import find_tail_cut, is_within_reach, limit_pairs
from isoscope.thresholding.threshold_result import Curve, RelativeCut, Threshold, ThresholdSettings

if TYPE_CHECKING:
    from isoscope._core.types import Column, Missing, Seed, Zeros
    from isoscope._io.progress import Progress
    from isoscope.advising.task import Task
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store
    from isoscope.thresholding.counts import JudgedPairs
    from isoscope.thresholding.cuts import Goal
    from isoscope.thresholding.threshold_result import Kind


def threshold(
    source: Any,
    *,
    pairs: Any = None,
    queries: Any = None,
    qrels: Any = None,
    labels: Column | None = None,
    precision: float | None = None,
    recall: float | None = None,
    f1: bool = False,
    match_from: float | None = None,
    false_matches: float | None = None,
    vectors: str | None = None,
    ids: Column | None = None,
    query_ids: Column | None = None,
    text: Column | None = None,
    layer: int | None = None,
    folds: int = 5,
    sample: int = 20_000,
    seed: Seed = 0,
    missing: Missing = "error",
    zeros: Zeros = "keep",
    progress: bool | Progress | None = None,
    engine: Any = "local",
) -> Threshold:
    """Find the cosine that means a match, for a requested precision, recall or F1, or for a rate of false matches.

    Pass one of `pairs`, `queries` with `qrels`, or `labels`. The threshold reaches the requested precision or recall
    with 95% confidence, and its scores are measured on examples that took no part in its choice. Without judgments, the
    threshold is the cosine that a fraction `false_matches` of random pairs reach or exceed.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        The corpus; anything that `open_store` opens.
    pairs : path, table, list of (first, second, grade), or (first, second, grades)
        Pairs of rows, identified by id, text or row number. Of two grades, the higher one means a match; otherwise,
        `match_from` is needed.
    queries : like `source`
        Query vectors. Without `qrels`, random pairs of a query and a row of the source are used.
    qrels : path, {query: {document: relevance}}, table, or list of (query, document, relevance)
        The relevant documents of each query. All other documents count as no match.
    labels : column name, or one entry for each row
        The class of each row. Two rows match if their labels are equal.
    precision, recall : float, optional
        The required precision or recall of the threshold (default: a precision of 0.9).
    f1 : bool
        Whether to return the threshold with the highest F1.
    match_from : float, optional
        The lowest grade, or relevance, of a match.
    false_matches : float, optional
        Without judgments: the share of random pairs above the threshold (default: 1e-4).
    vectors, ids, text : str, or values, optional
        Columns of the source; see `open_store`.
    query_ids : str, or values, optional
        The ids of the queries.
    layer : int, optional
        The layer to use if the source has hidden states of several layers (default: the last one).
    folds : int
        The number of folds; each fold is scored with a threshold that was chosen on the others.
    sample : int
        The number of rows to keep in memory; rows that the judgments refer to are kept in addition.
    seed : int, sequence of int, SeedSequence, Generator or None
        Random seed for the sample and the folds.
    missing : {"error", "drop"}
        Raise an error for rows, labels and judgments with a missing value, and for judgments that refer to unknown
        rows; or drop them and report how many.
    zeros : {"keep", "drop"}
        Keep rows of zeros, or drop them. Random pairs never contain them, because their cosine is undefined.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt, for work of more than a second;
        or a function that is called with the stage, the number of rows read and the share of the work done (0 to 1).
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        Where the rows of the source are read. This process reads judgments, labels and judged queries.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> rng = np.random.default_rng(0)
    >>> topic = rng.integers(0, 40, 800)
    >>> X = rng.standard_normal((40, 32))[topic] + 0.5 * rng.standard_normal((800, 32))
    >>> found = isoscope.threshold(X, labels=topic)
    >>> found.verdict, round(found.cut, 2), found.scores["precision"].value > 0.9
    ('cut', 0.57, True)
    >>> print(isoscope.threshold(X).headline)                       # without judgments
    1 in 10,000 random pairs has a cosine of at least 0.9202.
    """
    settings = ThresholdSettings(
        precision=precision,
        recall=recall,
        f1=bool(f1),
        false_matches=false_matches,
        match_from=match_from,
        folds=folds,
        sample=sample,
        seed=check_seed(seed),
        missing=missing,
        zeros=zeros,
    )
    alone = queries is not None and qrels is None
    inputs = TaskInputs(
        source,
        pairs,
        None if alone else queries,
        qrels,
        labels,
        vectors,
        ids,
        None if alone else query_ids,
        text,
        layer,
    )
    is_judged = any(each is not None for each in (pairs, qrels, labels))
    if alone and is_judged:
        raise ParameterError("queries were passed with pairs or labels: pass only one kind of judgments")
    goal, rate = (settings.goal(), None) if is_judged else (None, settings.rate())
    store, query_store, notes = inputs.open_stores(missing, zeros)
    settings = replace(settings, layer=store.layer)
    given = dict(inputs.names)
    if store.dim < 2:
        raise ShapeError(f"{store.name} has vectors with 1 dimension: need at least 2")
    with show_progress(progress) as report, open_engine(engine) as running:
        if goal is not None:
            result = _find_judged_cut(inputs, store, query_store, settings, goal, report, running)
        else:
            assert rate is not None
            if alone:
                query_store, more = open_queries(queries, store, query_ids, missing, zeros)
                names = {"queries": queries, "query_ids": query_ids}
                given |= {
                    role: redact_source_name(os.fspath(name))
                    for role, name in names.items()
                    if isinstance(name, str | os.PathLike)
                }
                notes += more
            result = _find_random_cut(store, query_store, settings, rate, report, running)
    result.notes[:0] = notes
    result.given = given
    return result


# with judgments


def _find_judged_cut(
    inputs: TaskInputs,
    store: Store,
    queries: Store | None,
    settings: ThresholdSettings,
    goal: Goal,
    progress: Progress,
    engine: Engine,
) -> Threshold:
    reading = AdviceSettings(
        folds=settings.folds,
        sample=settings.sample,
        seed=settings.seed,
        missing=settings.missing,
        zeros=settings.zeros,
    )
    task = inputs.open_task(store, queries, reading, progress, engine)
    progress("comparing pairs", 0, 0.0)
    kind, judged, notes = _judge_pairs(task, settings, goal)
    progress("choosing a threshold", 0, 0.0)
    choice = choose_cut(judged.counts, goal)
    held_out = evaluate(judged, goal, settings.folds, settings.seed)
    choice = confirm(choice, held_out, judged.counts)
    if goal.measure != "precision" and choice.verdict == "cut" and not held_out.lift.low > 0:
        choice = Choice(None, "no cut", best=choice.index)
    counts, index = judged.counts, choice.index
    alpha = goal.alpha
    curve = Curve(
        counts.cuts,
        precision(counts, alpha),
        recall(counts, alpha),
        f1(counts, alpha),
        judged.edges,
        judged.matches,
        judged.others,
    )
    low, high = locate_cut(counts, goal, index) if choice.verdict != "no cut" and goal.measure != "f1" else (None, None)
    if goal.measure == "f1" and index is not None:
        low, high = locate_cut(counts, goal, index)
    best = None
    if index is None and choice.best is not None and (share := bound_best(counts, goal, choice)) is not None:
        best = float(counts.cuts[choice.best]), share
    return Threshold(
        source=store.name,
        n=task.corpus.total,
        d=store.dim,
        kind=kind,
        goal=goal.measure,
        level=None if goal.measure == "f1" else goal.level,
        verdict=choice.verdict,
        cut=None if index is None else float(counts.cuts[index]),
        low=low,
        high=high,
        example=task.example,
        examples=len(counts),
        pairs=round(judged.number_of_pairs),
        matches=round(judged.number_of_matches),
        settings=settings,
        scores={} if index is None else held_out.scores,
        fold_cuts=held_out.cuts,
        lift=held_out.lift,
        best=best,
        needed=choice.needed,
        relative=_find_relative_cut(judged, goal, settings) if judged.relative is not None else None,
        curve=curve,
        notes=notes,
        version=isoscope.__version__,
    )


def _judge_pairs(task: Task, settings: ThresholdSettings, goal: Goal) -> tuple[Kind, JudgedPairs, list[str]]:
    """Return the pairs of a task with their judgments, and notes for the reader."""
    level = goal.level if goal.measure == "recall" else None
    notes = list(task.notes)
    if isinstance(task, GradedPairs):
        return "pairs", GradedExamples(task, settings.match_from, level), notes
    if isinstance(task, Retrieval):
        notes = [note for note in notes if note != task.sample_note]
        notes.append("Documents without a judgment count as no match.")
        if task.sample_note is not None:
            notes.append(
                f"Queries were run against {len(task.rows):,} of {task.rows.total:,} documents, including all relevant "
                "ones; counts of other documents are scaled up to the whole corpus. Thresholds relative to the best "
                "result need all documents: raise sample (CLI: --sample)."
            )
        return "queries", QueryExamples(task, settings.match_from, level), notes
    assert isinstance(task, Labels)
    if settings.match_from is not None:
        raise ParameterError("match_from is for grades and relevances, but labels were passed: omit it")
    labeled = LabeledExamples(task, settings.folds, level, settings.seed)
    if len(labeled.counts) < len(task.labels):
        notes.append(
            f"All pairs of {len(labeled.counts):,} rows were compared, a random sample of {len(task.labels):,} "
            "distinct rows."
        )
    return "labels", labeled, notes


def _find_relative_cut(judged: JudgedPairs, goal: Goal, settings: ThresholdSettings) -> RelativeCut:
    assert judged.relative is not None
    choice = choose_cut(judged.relative, goal)
    held_out = evaluate(judged, goal, settings.folds, settings.seed, relative=True)
    choice = confirm(choice, held_out, judged.relative)
    if choice.index is None:
        return RelativeCut(choice.verdict, None, {}, choice.needed)
    if goal.measure != "precision" and not held_out.lift.low > 0:
        return RelativeCut("no cut", None, {})
    gap = -float(judged.relative.cuts[choice.index])
    return RelativeCut("cut", max(gap, 0.0) + 0.0, held_out.scores)


# without judgments


def _find_random_cut(
    store: Store,
    queries: Store | None,
    settings: ThresholdSettings,
    rate: float,
    progress: Progress,
    engine: Engine,
) -> Threshold:
    if queries is not None and queries.dim != store.dim:
        raise ShapeError(
            f"the queries have {queries.dim} dimensions but {store.name} has {store.dim}: embed both with the same "
            "model"
        )
    reading = Settings(
        sample=settings.sample, seed=settings.seed, missing=settings.missing, zeros=settings.zeros
    ).limit_sample(store)
    first = first_pass(engine, store, reading, progress, "reading")
    rows, notes = _unit_sample(first.sample.vectors, store.name)
    if first.sketch.nonfinite:
        notes.append(note_dropped_rows(first.sketch.nonfinite, first.sketch.n + first.sketch.nonfinite))
    others = None
    if queries is not None:
        asked = first_pass(engine, queries, reading, progress, "reading queries")
        others, more = _unit_sample(asked.sample.vectors.astype(rows.dtype), queries.name)
        notes += more
        rows, others = others, rows
    rows, others = limit_pairs(rows, others, rate, settings.seed)
    compared = len(rows if others is None else others)
    if compared < first.sketch.n - first.sketch.zeros:
        words = (
            "All pairs of a random sample were compared"
            if queries is None
            else "The queries were compared with a random sample"
        )
        notes.append(f"{words}: {compared:,} of {first.sketch.n:,} rows.")
    if queries is not None and len(rows) < asked.sketch.n - asked.sketch.zeros:
        notes.append(f"A random sample of {len(rows):,} of {asked.sketch.n:,} queries was used.")
    progress("comparing pairs", 0, 0.0)
    try:
        tail = find_tail_cut(rows, others, rate, settings.confidence, settings.seed)
    except TooFewRowsError as error:
        everything = (first.sketch.n, first.sketch.n) if others is None else (len(rows), first.sketch.n)
        if len(first.sample) < first.sketch.n and is_within_reach(rate, everything, others is None):
            raise TooFewRowsError(
                f"{error}; the source has {first.sketch.n:,} rows, so raise sample (CLI: --sample)"
            ) from None
        raise
    notes.append("Random pairs may include real matches, so the rate of false matches is at most the stated rate.")
    return Threshold(
        source=store.name,
        n=first.sketch.n,
        d=store.dim,
        kind="random pairs" if queries is None else "random results",
        goal="false matches",
        level=rate,
        verdict="no cut" if tail.cut is None else "cut",
        cut=tail.cut,
        low=tail.low,
        high=tail.high,
        example="row" if queries is None else "query",
        examples=len(rows),
        pairs=tail.pairs,
        settings=settings,
        tail=tail,
        notes=notes,
        version=isoscope.__version__,
    )


def _unit_sample(vectors: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
    """Return the nonzero rows, scaled to length 1, and a note about the others."""
    nonzero = nonzero_rows(vectors)
    if (found := int(nonzero.sum())) < 2:
        zeros = f" and {plural(len(vectors) - found, 'row')} of zeros" if found < len(vectors) else ""
        raise TooFewRowsError(
            f"{name} has {plural(found, 'nonzero row')}{zeros}: need at least 2 nonzero rows to compare"
        )
    rows = vectors[nonzero]
    notes = []
    if not nonzero.all():
        notes.append(note_zero_rows(int((~nonzero).sum())))
    return np.asarray(unit_rows(np, rows, rows.dtype)), notes
