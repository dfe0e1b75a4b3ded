"""Build the task from what the user knows about a source: pairs, queries with relevance, labels, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope.advising.graded_pairs import GradedPairs
from isoscope.advising.judgments import read_pairs, read_qrels
from isoscope.advising.labels import Labels
from isoscope.advising.retrieval import Retrieval
from isoscope.advising.rows import check_known, find_rows, read_rows
from isoscope.advising.unlabeled import Unlabeled
from isoscope.stores.columns import plural

if TYPE_CHECKING:
    from isoscope.advising.settings import AdviceSettings
    from isoscope.advising.task import Task
    from isoscope.engines.engine import Progress
    from isoscope.stores.store import Store

NO_ROWS = np.empty(0, np.int64)


def pairs_task(store: Store, pairs: Any, settings: AdviceSettings, progress: Progress) -> Task:
    """Return the task of graded pairs of rows of the store."""
    named = read_pairs(pairs)
    rows, unknown = find_rows(store, [*named.first, *named.second])
    dropped = _check_unknown([*named.first, *named.second], unknown, "the pairs", store, settings)
    m = len(named)
    kept = ~(unknown[:m] | unknown[m:])
    first, second, scores = rows[:m][kept], rows[m:][kept], named.scores[kept]
    if len(scores) < 20 or scores.min() == scores.max():
        raise InputError(f"{plural(len(scores), 'pair')} with known rows remain: need at least 20 whose scores differ")
    held = read_rows(store, np.concatenate([first, second]), settings.sample, settings.seed, progress)
    sides = held.places(first), held.places(second)
    task = GradedPairs(held, *sides, scores, settings.metric, settings.folds, settings.seed, new_rows=settings.new_rows)
    if dropped:
        task.notes.append(f"{plural(m - len(scores), 'pair')} with unknown rows were dropped.")
    return task


def retrieval_task(store: Store, queries: Store, qrels: Any, settings: AdviceSettings, progress: Progress) -> Task:
    """Return the task of queries answered from the store."""
    if queries.dim != store.dim:
        raise InputError(
            f"the queries have {queries.dim} dimensions, {store.name} has {store.dim}: embed both with one model"
        )
    judged = read_qrels(qrels)
    judged = {query: {d: r for d, r in of.items() if r > 0} for query, of in judged.items()}
    judged = {query: of for query, of in judged.items() if of}
    if not judged:
        raise InputError("the qrels have no relevance above 0: need at least one relevant document")
    names = list(judged)
    asked, unknown = find_rows(queries, names)
    gone = _check_unknown(names, unknown, "the qrels", queries, settings)
    documents = list(dict.fromkeys(document for of in judged.values() for document in of))
    places, missing = find_rows(store, documents)
    gone += _check_unknown(documents, missing, "the qrels", store, settings)
    where = {d: int(row) for d, row, no in zip(documents, places, missing, strict=True) if not no}
    held = read_rows(store, np.fromiter(where.values(), np.int64), settings.sample, settings.seed, progress)
    kept, relevant = [], []
    for name, row, no in zip(names, asked, unknown, strict=True):
        of = {int(held.places(np.asarray([where[d]]))[0]): r for d, r in judged[name].items() if d in where}
        if of and not no:
            kept.append(row)
            relevant.append(of)
    order = np.asarray(kept, np.int64)
    vectors = queries.take(order).astype(held.vectors.dtype)
    if not np.isfinite(vectors).all():
        bad = int(order[np.argmin(np.isfinite(vectors).all(axis=1))])
        raise InputError(f"{queries.name} has NaN or infinity, first in row {bad}: fix or drop these rows")
    task = Retrieval(
        held, vectors, relevant, settings.metric, settings.folds, settings.seed, new_rows=settings.new_rows
    )
    if gone:
        task.notes.append(f"Judgments of {gone:,} unknown queries or documents were dropped.")
    if len(queries) > len(kept):
        task.notes.append(f"{len(queries) - len(kept):,} of {len(queries):,} queries have no relevant document.")
    return task


def labels_task(store: Store, settings: AdviceSettings, progress: Progress) -> Task:
    """Return the task of the labels of the store."""
    if "labels" not in store.columns:
        raise InputError(f"{store.name} has no labels: name their column")
    held = read_rows(store, NO_ROWS, settings.sample, settings.seed, progress)
    labels = store.column("labels", held.numbers)
    assert labels is not None
    task = Labels(held, labels, settings.metric, settings.folds, settings.seed, new_rows=settings.new_rows)
    return _note_sample(task)


def unlabeled_task(store: Store, settings: AdviceSettings, progress: Progress) -> Task:
    """Return the task that uses the vectors alone."""
    held = read_rows(store, NO_ROWS, settings.sample, settings.seed, progress)
    return _note_sample(Unlabeled(held, settings.metric, settings.folds, settings.seed, new_rows=settings.new_rows))


def _note_sample(task: Task) -> Task:
    """Add a note if the task is scored on a sample of the rows."""
    if len(task.corpus) < task.corpus.total:
        task.notes.append(f"Scored on a random sample of {len(task.corpus):,} of {task.corpus.total:,} rows.")
    return task


def _check_unknown(names: list[str], unknown: np.ndarray, what: str, store: Store, settings: AdviceSettings) -> int:
    """Return how many names are unknown; raise InputError unless unknown names may be dropped and some are known."""
    if settings.missing == "raise" or unknown.all():
        check_known(names, unknown, what, store)
    return len({name for name, no in zip(names, unknown, strict=True) if no})
