"""The task of retrieval: does a query find the documents that answer it?"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from isoscope.advising.alike import most_alike, ready
from isoscope.advising.evidence import Evidence, Means
from isoscope.advising.rows import Rows
from isoscope.advising.task import Task, check_folds, dealt

_DEPTH, _FAR = 10, 100


class Retrieval(Task):
    """nDCG of the first 10 documents and recall of the first 100, as trec_eval and BEIR have them.

    Repairs are fitted to documents that no held-out query is answered by; all are searched. Queries are transformed by
    what the documents taught, as they would be in service.
    """

    measures: ClassVar = {"ndcg@10": "nDCG@10", "recall@100": "recall@100"}
    example: ClassVar = "query"

    def __init__(
        self, rows: Rows, queries: np.ndarray, relevant: list[dict[int, float]], metric: str, folds: int, seed: int
    ):
        super().__init__(rows, metric)
        check_folds(folds, len(queries), "queries")
        self.queries, self.relevant = queries, relevant
        self.groups = np.arange(len(queries))
        rng = np.random.default_rng(seed)
        self.folds = dealt(self.groups, folds, rng)
        self.order = rng.permutation(len(rows))  # documents that cannot be told apart are found in no order of theirs
        if len(rows) < rows.total:
            self.notes.append(
                f"The queries searched {len(rows):,} of {rows.total:,} documents, all judged ones among them: scores "
                "are higher than in the whole, differences between repairs are what counts."
            )

    def held_rows(self, fold: int) -> np.ndarray:
        """The documents that answer queries which are held out."""
        return np.unique([place for query in self.folds[fold] for place in self.relevant[query]]).astype(np.int64)

    def score(self, fold: int, repair: Any) -> dict[str, Evidence]:
        """What each held-out query finds."""
        held = self.folds[fold]
        documents = ready(repair.transform(self.rows.vectors[self.order]), self.metric)
        asked = ready(repair.transform(self.queries[held]), self.metric)
        lists = self.order[most_alike(asked, documents, _FAR, self.metric)]
        answers = [self.relevant[query] for query in held]
        return {
            "ndcg@10": Means(np.asarray([ndcg(found, judged) for found, judged in zip(lists, answers, strict=True)])),
            "recall@100": Means(
                np.asarray([recall(found, judged) for found, judged in zip(lists, answers, strict=True)])
            ),
        }


def ndcg(found: np.ndarray, judged: dict[int, float], depth: int = _DEPTH) -> float:
    """Discounted gain of a list as a share of the best that was to be had; a document's gain is its relevance.

    >>> ndcg(np.array([7, 3]), {3: 1.0})
    0.6309297535714575
    """
    gains = [judged.get(int(document), 0.0) for document in found[:depth]]
    best = sorted(judged.values(), reverse=True)[:depth]
    return _discounted(gains) / _discounted(best)


def recall(found: np.ndarray, judged: dict[int, float]) -> float:
    """The share of the relevant documents that were found."""
    return sum(int(document) in judged for document in found) / len(judged)


def _discounted(gains: list[float]) -> float:
    return float(np.sum(np.asarray(gains) / np.log2(np.arange(2, len(gains) + 2))))
