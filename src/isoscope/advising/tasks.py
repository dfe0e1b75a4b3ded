"""From what the owner knows of a source to a task: pairs, queries with relevance, labels, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from isoscope.advising.graded_pairs import GradedPairs
from isoscope.advising.judgements import read_pairs, read_qrels
from isoscope.advising.labelled import Labelled
from isoscope.advising.retrieval import Retrieval
from isoscope.advising.rows import find_rows, gather, refuse_unknown
from isoscope.advising.settings import AdviceSettings
from isoscope.advising.task import Task
from isoscope.advising.unlabelled import Unlabelled
from isoscope.engines.engine import Progress
from isoscope.errors import InputError
from isoscope.stores.columns import plural
from isoscope.stores.store import Store

NOTHING = np.empty(0, np.int64)


def pairs_task(store: Store, pairs: Any, settings: AdviceSettings, progress: Progress) -> Task:
    """Graded pairs of rows of the store."""
    named = read_pairs(pairs)
    rows, unknown = find_rows(store, [*named.first, *named.second])
    dropped = _drop_or_refuse([*named.first, *named.second], unknown, "the pairs", store, settings)
    m = len(named)
    kept = ~(unknown[:m] | unknown[m:])
    first, second, scores = rows[:m][kept], rows[m:][kept], named.scores[kept]
    if len(scores) < 20 or scores.min() == scores.max():
        raise InputError(f"{plural(len(scores), 'pair')} with known rows are left: need 20 with scores that differ")
    held = gather(store, np.concatenate([first, second]), settings.sample, settings.seed, progress)
    task = GradedPairs(
        held, held.places(first), held.places(second), scores, settings.metric, settings.folds, settings.seed
    )
    if len(held) < held.total:
        task.notes.append(f"Repairs were fitted to a random sample of {held.total:,} rows, {len(held):,} of them.")
    if dropped:
        task.notes.append(f"{plural(m - len(scores), 'pair')} named rows that are not there, and were left out.")
    return task


def retrieval_task(store: Store, queries: Store, qrels: Any, settings: AdviceSettings, progress: Progress) -> Task:
    """Queries that are answered from the store."""
    if queries.dim != store.dim:
        raise InputError(
            f"the queries have {queries.dim} dimensions, {store.name} has {store.dim}: embed both with one model"
        )
    judged = read_qrels(qrels)
    judged = {query: {d: r for d, r in of.items() if r > 0} for query, of in judged.items()}
    judged = {query: of for query, of in judged.items() if of}
    if not judged:
        raise InputError("the qrels have no relevance above 0: there is nothing to be found")
    names = list(judged)
    asked, unknown = find_rows(queries, names)
    gone = _drop_or_refuse(names, unknown, "the qrels", queries, settings)
    documents = list(dict.fromkeys(document for of in judged.values() for document in of))
    places, missing = find_rows(store, documents)
    gone += _drop_or_refuse(documents, missing, "the qrels", store, settings)
    where = {d: int(row) for d, row, no in zip(documents, places, missing, strict=True) if not no}
    held = gather(store, np.fromiter(where.values(), np.int64), settings.sample, settings.seed, progress)
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
        raise InputError(f"{queries.name} has NaN or infinity in row {bad}: drop or mend such rows")
    task = Retrieval(held, vectors, relevant, settings.metric, settings.folds, settings.seed)
    if gone:
        task.notes.append(f"The qrels name {gone} queries or documents that are not there; they were left out.")
    if len(queries) > len(kept):
        task.notes.append(f"{len(queries) - len(kept):,} of {len(queries):,} queries have no relevant document.")
    return task


def labels_task(store: Store, settings: AdviceSettings, progress: Progress) -> Task:
    """The labels of the store."""
    if "labels" not in store.columns:
        raise InputError(f"{store.name} has no labels: name the column that holds them")
    held = gather(store, NOTHING, settings.sample, settings.seed, progress)
    labels = store.column("labels", held.numbers)
    assert labels is not None
    return _sampled(Labelled(held, labels, settings.metric, settings.folds, settings.seed))


def unlabelled_task(store: Store, settings: AdviceSettings, progress: Progress) -> Task:
    """The vectors alone."""
    held = gather(store, NOTHING, settings.sample, settings.seed, progress)
    return _sampled(Unlabelled(held, settings.metric, settings.folds, settings.seed))


def _sampled(task: Task) -> Task:
    """Have a task say that it is not of all rows."""
    if len(task.rows) < task.rows.total:
        task.notes.append(f"A random sample of {len(task.rows):,} of {task.rows.total:,} rows was tried on.")
    return task


def _drop_or_refuse(names: list[str], unknown: np.ndarray, what: str, store: Store, settings: AdviceSettings) -> int:
    """How many names are unknown and left out; an error unless that was allowed, or if it is all of them."""
    if settings.missing == "raise" or unknown.all():
        refuse_unknown(names, unknown, what, store)
    return len({name for name, no in zip(names, unknown, strict=True) if no})
