"""The retrieval task: do queries find the documents judged relevant?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.sparse import csr_array

from isoscope.advising.inference import Units
from isoscope.advising.measures import Evidence
from isoscope.advising.search import prepare, top_k
from isoscope.advising.task import Round, Task, check_folds, row_identity

if TYPE_CHECKING:
    from isoscope.advising.rows import Rows

_NDCG_DEPTH, _RECALL_DEPTH = 10, 100


class Retrieval(Task):
    """nDCG@10 and recall@100, as trec_eval and BEIR define them, of queries searched among all documents.

    Repairs learn from the documents alone, never from queries or judgments, so in production and here they are fitted
    to the whole corpus. With `new_rows` a random part of the documents, the same whatever the judgments say, is held
    out of each fit.
    """

    measures: ClassVar = {"ndcg@10": "nDCG@10", "recall@100": "recall@100"}
    example: ClassVar = "query"

    def __init__(
        self,
        rows: Rows,
        queries: np.ndarray,
        relevant: list[dict[int, float]],
        metric: str,
        folds: int,
        seed: int,
        *,
        new_rows: bool = False,
    ):
        super().__init__(rows, metric)
        check_folds(folds, len(queries), "queries")
        self.queries, self.relevant = queries, relevant
        self.units = Units(_query_links(queries, relevant, rows), folds)
        self._note_links()
        rng = np.random.default_rng(seed)
        self.order = rng.permutation(len(rows))  # equally similar documents are found in random order
        everything = np.arange(len(queries))
        self.rounds = [Round(None, everything)]
        if new_rows:
            held_out = np.array_split(rng.permutation(len(rows)), folds)
            self.rounds = [Round(np.setdiff1d(np.arange(len(rows)), part), everything) for part in held_out]
        if len(rows) < rows.total:
            self.notes.append(
                f"Queries searched {len(rows):,} of {rows.total:,} documents, including all judged ones: scores are "
                "higher than in the whole corpus, and gains may differ from those there."
            )

    def score(self, repair: Any, round: Round) -> dict[str, Evidence]:
        """Return each query's nDCG@10 and recall@100."""
        documents = prepare(repair.transform(self.rows.vectors[self.order]), self.metric)
        queries = prepare(repair.transform(self.queries[round.examples]), self.metric)
        lists = self.order[top_k(queries, documents, _RECALL_DEPTH, self.metric)]
        judged = [self.relevant[query] for query in round.examples]
        return {
            "ndcg@10": Evidence(np.asarray([ndcg(found, of) for found, of in zip(lists, judged, strict=True)])),
            "recall@100": Evidence(np.asarray([recall(found, of) for found, of in zip(lists, judged, strict=True)])),
        }


def _query_links(queries: np.ndarray, relevant: list[dict[int, float]], rows: Rows) -> csr_array:
    """Return which query shares what: its relevant documents (equal ones are one) and queries of the same vector."""
    judged = np.unique([row for of in relevant for row in of]).astype(np.int64)
    identity = row_identity(rows.vectors[judged])
    same_query = row_identity(queries) + len(judged)
    query = np.repeat(np.arange(len(queries)), [len(of) + 1 for of in relevant])
    shared = [
        [*identity[np.searchsorted(judged, list(of))], same] for of, same in zip(relevant, same_query, strict=True)
    ]
    column = np.concatenate(shared).astype(np.int64)
    return csr_array((np.ones(len(query)), (query, column)), shape=(len(queries), len(judged) + len(queries)))


def ndcg(found: np.ndarray, judged: dict[int, float], depth: int = _NDCG_DEPTH) -> float:
    """Return the normalized discounted cumulative gain of a list; a document's gain is its relevance.

    >>> ndcg(np.array([7, 3]), {3: 1.0})
    0.6309297535714575
    """
    gains = [judged.get(int(document), 0.0) for document in found[:depth]]
    best = sorted(judged.values(), reverse=True)[:depth]
    return _dcg(gains) / _dcg(best)


def recall(found: np.ndarray, judged: dict[int, float]) -> float:
    """Return the share of the relevant documents that were found."""
    return sum(int(document) in judged for document in found) / len(judged)


def _dcg(gains: list[float]) -> float:
    return float(np.sum(np.asarray(gains) / np.log2(np.arange(2, len(gains) + 2))))
