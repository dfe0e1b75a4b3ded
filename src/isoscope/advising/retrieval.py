"""The retrieval task: exact search, nDCG and recall for queries with judged documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from isoscope._core.arrays import blocks, unit_rows
from isoscope._core.errors import MissingValueError, ParameterError, ShapeError, TooFewRowsError, was_dropped
from isoscope._core.missing import DROP_HINT
from isoscope._core.pairs import most_similar
from isoscope.advising.inference import ExampleScores, Units
from isoscope.advising.judgments import read_qrels
from isoscope.advising.matching import Side, check_numbering, count_unknown, find_rows
from isoscope.advising.task import (
    Round,
    Task,
    check_folds,
    note_kept_zeros,
    note_rows,
    read_rows,
    row_identity,
)

if TYPE_CHECKING:
    from isoscope._core.types import Metric
    from isoscope._io.progress import Progress
    from isoscope.advising.task import AdviceSettings, Rows
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store
    from isoscope.transforms.repair import Repair


def prepare(X: np.ndarray, metric: Metric) -> np.ndarray:
    """Return X prepared for comparison; for cosine, rows are scaled to unit length (zero rows stay zero)."""
    X = X if X.dtype.itemsize >= 4 else X.astype(np.float32)
    return np.asarray(unit_rows(np, X, X.dtype)) if metric == "cosine" else X


def similarity(A: np.ndarray, B: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the similarity between each row of A and the corresponding row of B; `prepare` must be applied first."""
    if metric == "cosine":
        return np.asarray(np.einsum("ij,ij->i", A, B, dtype=np.float64))
    return np.asarray(-np.linalg.norm(A.astype(np.float64) - B, axis=1))


def top_k(queries: np.ndarray, corpus: np.ndarray, k: int, metric: Metric, *, exclude_self: bool = False) -> np.ndarray:
    """Return the k rows of the corpus most similar to each query, best first; `prepare` must be applied to both first.

    With `exclude_self`, the queries are the corpus, and no row is among its own results.
    """
    k = min(k, len(corpus) - exclude_self)
    half_squares = None
    if metric == "euclidean":
        # −‖q − c‖² = 2q·c − ‖c‖² − ‖q‖², and the last term is the same for the whole corpus. Centering and scaling
        # first keeps the digits when the vectors lie far from the origin or are very large.
        mean, unit = corpus.mean(axis=0, dtype=np.float64), float(np.abs(corpus).max()) or 1.0
        queries, corpus = (((X - mean) / unit).astype(corpus.dtype) for X in (queries, corpus))
        half_squares = np.einsum("ij,ij->i", corpus, corpus) / 2
    return most_similar(queries, corpus, k, half_squares, exclude_self=exclude_self)


_TILE_ROWS = 2048  # rows that are repaired and scaled together, so that intermediate results stay in the cache
NDCG_DEPTH, RECALL_DEPTH = 10, 100
"""The number of top results that nDCG and recall take into account."""


class Retrieval(Task):
    """nDCG@10 and recall@100, as defined by trec_eval and BEIR, for queries run against all documents.

    Repairs learn only from the documents, never from queries or judgments, so they are fitted to the whole corpus, as
    in production. With `new_rows`, a random subset of the documents is held out of each fit; the subset does not depend
    on the judgments.
    """

    measures: ClassVar = {"ndcg@10": "nDCG@10", "recall@100": "recall@100"}
    example: ClassVar = "query"

    def __init__(
        self,
        rows: Rows,
        queries: np.ndarray,
        relevant: list[dict[int, float]],
        metric: Metric,
        folds: int,
        seed: int,
        *,
        new_rows: bool = False,
    ):
        super().__init__(rows, metric)
        check_folds(folds, len(queries), "query")
        self.queries, self.relevant = queries, relevant
        self.units = Units(_query_links(queries, relevant, rows), folds)
        self._note_links()
        rng = np.random.default_rng(seed)
        self.order = rng.permutation(len(rows))  # equally similar documents are ranked in random order
        self._shuffled = rows.vectors[self.order]
        self._judgments = Judgments(relevant, len(rows))
        self._tiles = list(blocks(len(rows), _TILE_ROWS))
        everything = np.arange(len(queries))
        self.rounds = [Round(None, everything)]
        if new_rows:
            held_out = np.array_split(rng.permutation(len(rows)), folds)
            self.rounds = [Round(np.setdiff1d(np.arange(len(rows)), part), everything) for part in held_out]
        self.sample_note: str | None = None
        """A note, if queries are run against a sample of the documents."""
        if len(rows) < rows.total:
            self.sample_note = (
                f"Queries were run against {len(rows):,} of {rows.total:,} documents, including all judged ones: "
                "scores are higher than on the whole corpus, and gains may differ."
            )
            self.notes.append(self.sample_note)

    def score(self, repair: Repair, round: Round) -> dict[str, ExampleScores]:
        """Return each query's nDCG@10 and recall@100."""
        documents = np.empty(0)
        for part in self._tiles:
            tile = prepare(repair.transform(self._shuffled[part]), self.metric)
            if part.start == 0:
                documents = np.empty((len(self._shuffled), tile.shape[1]), tile.dtype)
            documents[part] = tile
        queries = prepare(repair.transform(self.queries[round.examples]), self.metric)
        return self.score_lists(self.order[top_k(queries, documents, RECALL_DEPTH, self.metric)], round.examples)

    def score_lists(self, lists: np.ndarray, examples: np.ndarray) -> dict[str, ExampleScores]:
        """Return nDCG@10 and recall@100 of ranked lists of documents, one for each of these queries."""
        gains, recalls = self._judgments.score(lists, examples)
        return {"ndcg@10": ExampleScores(gains), "recall@100": ExampleScores(recalls)}


def _query_links(queries: np.ndarray, relevant: list[dict[int, float]], rows: Rows) -> csr_array:
    """Return a matrix that links queries with the same relevant documents (equal documents count as one) or vectors."""
    judged = np.unique([row for of in relevant for row in of]).astype(np.int64)
    identity = row_identity(rows.vectors[judged])
    same_query = row_identity(queries) + len(judged)
    query = np.repeat(np.arange(len(queries)), [len(of) + 1 for of in relevant])
    shared = [
        [*identity[np.searchsorted(judged, list(of))], same] for of, same in zip(relevant, same_query, strict=True)
    ]
    column = np.concatenate(shared).astype(np.int64)
    return csr_array((np.ones(len(query)), (query, column)), shape=(len(queries), len(judged) + len(queries)))


class Judgments:
    """The relevance of documents 0…n−1 for each query, to score ranked lists of documents.

    >>> Judgments([{3: 1.0}], 9).score(np.array([[7, 3]]), np.array([0]))
    (array([0.63092975]), array([1.]))
    """

    def __init__(self, relevant: list[dict[int, float]], n: int):
        self.n = n
        queries = np.repeat(np.arange(len(relevant)), [len(of) for of in relevant])
        places = queries * n + np.asarray([document for of in relevant for document in of], np.int64)
        order = np.argsort(places)
        self._places = places[order]
        self._gains = np.asarray([gain for of in relevant for gain in of.values()], np.float64)[order]
        best = np.zeros((len(relevant), NDCG_DEPTH))
        for row, of in zip(best, relevant, strict=True):
            gains = sorted(of.values(), reverse=True)[:NDCG_DEPTH]
            row[: len(gains)] = gains
        self._best, self._counts = _discounted_gain(best), np.bincount(queries, minlength=len(relevant))

    def score(self, lists: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the normalized discounted cumulative gain at 10, and the share of relevant documents, of each list.

        A document's gain is its relevance.
        """
        places = queries[:, None] * self.n + lists
        at = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        found = self._places[at] == places
        gains = np.where(found, self._gains[at], 0.0)[:, :NDCG_DEPTH]
        return _discounted_gain(gains) / self._best[queries], found.sum(axis=1) / self._counts[queries]


def _discounted_gain(gains: np.ndarray) -> np.ndarray:
    """Return the discounted cumulative gain of each row of gains."""
    return np.asarray(np.sum(gains / np.log2(np.arange(2, gains.shape[1] + 2)), axis=1))


def retrieval_task(
    store: Store, queries: Store, qrels: Any, settings: AdviceSettings, progress: Progress, engine: Engine | None = None
) -> Retrieval:
    """Return the task of finding the store's relevant documents for each query."""
    if queries.dim != store.dim:
        raise ShapeError(
            f"the queries have {queries.dim} dimensions but {store.name} has {store.dim}: embed both with the same "
            "model"
        )
    read = read_qrels(qrels, settings.missing)
    judged = {query: {d: r for d, r in of.items() if r > 0} for query, of in read.items()}
    judged = {query: of for query, of in judged.items() if of}
    if not judged:
        raise TooFewRowsError("no relevance in qrels is above 0: need at least one relevant document")
    names = list(judged)
    found_queries = find_rows(queries, names, "the qrels")
    if found_queries.unknown.all():
        _check_swapped(store, queries, judged)
    unknown = count_unknown(names, found_queries, "the qrels", queries, settings.missing)
    documents = list(dict.fromkeys(document for of in judged.values() for document in of))
    found = find_rows(store, documents, "the qrels")
    unknown += count_unknown(documents, found, "the qrels", store, settings.missing)
    row_of = {document: int(row) for document, row in zip(documents, found.rows, strict=True) if row >= 0}
    query_rows = dict(zip(names, found_queries.rows.tolist(), strict=True))
    pairs = np.asarray(
        [(query_rows[q], row_of[d]) for q, of in judged.items() for d in of if query_rows[q] >= 0 and d in row_of],
        np.int64,
    ).reshape(-1, 2)
    sides = Side(queries, found_queries, pairs[:, 0]), Side(store, found, pairs[:, 1])
    notes = check_numbering(sides, np.ones(len(pairs)), "the qrels", settings.seed)
    rows = read_rows(store, pairs[:, 1], settings.sample, settings.seed, progress, engine)
    judged_rows = np.fromiter(row_of.values(), np.int64, len(row_of))
    known, places = rows.contains(judged_rows), rows.places(judged_rows)
    place_of = {
        document: int(place) for document, place, is_known in zip(row_of, places, known, strict=True) if is_known
    }
    kept, relevant = [], []
    for name in names:
        of = {place_of[d]: r for d, r in judged[name].items() if d in place_of}
        if of and query_rows[name] >= 0:
            kept.append(query_rows[name])
            relevant.append(of)
    vectors, usable = _read_queries(queries, np.asarray(kept, np.int64), rows.vectors.dtype, settings)
    relevant = [of for of, use in zip(relevant, usable, strict=True) if use]
    task = Retrieval(
        rows, vectors, relevant, settings.metric, settings.folds, settings.seed, new_rows=settings.new_rows
    )
    task.notes += notes
    note_rows(task)
    if unknown:
        nouns = "query or document" if unknown == 1 else "queries or documents"
        task.notes.append(f"Judgments that refer to {unknown:,} unknown {nouns} were dropped.")
    if read.dropped:
        task.notes.append(was_dropped(read.dropped, "judgment", "with a missing value") + ".")
    if not usable.all():
        count = int((~usable).sum())
        task.notes.append(
            f"{was_dropped(count, 'judged query')}: {'it is' if count == 1 else 'they are'} incomplete or all zeros."
        )
    if zero := int((~vectors.any(axis=1)).sum()):
        task.notes.append(note_kept_zeros(zero, "query", task.metric))
    if len(queries) > len(kept):
        count = len(queries) - len(kept)
        have = "has" if count == 1 else "have"
        task.notes.append(f"{count:,} of {len(queries):,} queries {have} no relevant document.")
    return task


def _check_swapped(store: Store, queries: Store, judged: dict[str, dict[str, float]]) -> None:
    """Raise an error if the qrels name rows of the store as queries, and queries as documents."""
    documents = [document for of in judged.values() for document in of]
    if all(
        "ids" in side.columns and not find_rows(side, names, "the qrels").unknown.all()
        for side, names in ((store, list(judged)), (queries, documents))
    ):
        raise ParameterError(
            f"the qrels name rows of {store.name} as queries and rows of {queries.name} as documents: swap the source "
            "and the queries, or the first two columns of the qrels"
        )


def _read_queries(
    queries: Store, rows: np.ndarray, dtype: np.dtype, settings: AdviceSettings
) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the usable queries, and which queries are usable."""
    vectors = queries.take(rows)
    usable = np.isfinite(vectors).all(axis=1)
    drops_missing = settings.missing == "drop" or (queries.drops_rows and settings.zeros == "keep")
    if not drops_missing and not usable.all():
        raise MissingValueError(
            f"{queries.name} contains NaN or infinity, first in row {int(rows[np.argmin(usable)])}: fix these rows, or "
            f"{DROP_HINT}"
        )
    if settings.zeros == "drop":
        usable &= vectors.any(axis=1)
    if len(usable) and not usable.any():
        raise MissingValueError(
            f"all judged rows of {queries.name} are incomplete or all zeros: embed the queries again"
        )
    return vectors[usable].astype(dtype), usable
