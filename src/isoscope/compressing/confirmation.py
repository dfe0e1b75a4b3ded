"""The recall of a few candidates on the whole source, if the others were scored on a sample of it.

Among more rows, neighbors are closer together, so a search in codes finds fewer of them: recall on a sample is too
high.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks, to_numpy
from isoscope.compressing.candidates import LIST_LENGTH
from isoscope.compressing.recall import Ranking, exact_operands, tie_margin
from isoscope.engines.engine import Tally
from isoscope.transforms.quantize import scale_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isoscope._io.progress import Progress
    from isoscope.compressing.candidates import Candidate
    from isoscope.compressing.recall import NeighborRecall
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Batch, Store
    from isoscope.transforms.quantize import Quantizer

_TILE_ROWS = 2048

Lists = list[np.ndarray]
"""The best results so far: exact similarities, then each candidate's similarities and the exact ones of its results."""


class SearchTally(Tally):
    """A tally of the best results of every query, by exact search and by each candidate."""

    def __init__(self, task: NeighborRecall, candidates: Sequence[Candidate], quantizers: Sequence[Quantizer]):
        self.queries, self.metric, self.center = task.queries, task.metric, task.corpus.mean
        self.order = np.argsort(task.query_numbers)
        self.own = task.query_numbers[self.order]
        self.depths = [each.depth for each in candidates]
        self.rankings = [Ranking(each, each.frame, self.center) for each in quantizers]
        self.projected = [ranking.queries(self.queries) for ranking in self.rankings]
        self.lists: Lists | None = None

    def summarize(self, item: Batch) -> Lists | None:
        """Return the best results among the rows of a batch."""
        vectors = to_numpy(item.vectors)
        usable = np.isfinite(vectors).all(axis=1)
        if self.metric == "cosine":
            usable &= vectors.any(axis=1)
        vectors, numbers = vectors[usable], item.start + np.flatnonzero(usable)
        if vectors.dtype not in (np.float32, np.float64):
            vectors = vectors.astype(np.float32)
        best: Lists | None = None
        for part in blocks(len(vectors), _TILE_ROWS):
            best = _merge(best, self._search(vectors[part], numbers[part]), self.depths)
        return best

    def _search(self, vectors: np.ndarray, numbers: np.ndarray) -> Lists:
        rows = scale_rows(vectors, self.metric)
        if self.metric == "cosine":
            rows = rows.astype(np.float32, copy=False)
        queries, exact_rows = exact_operands(self.queries, rows, self.metric, self.center)
        exact = queries @ exact_rows.T
        found = [exact]
        for ranking, projected in zip(self.rankings, self.projected, strict=True):
            found += [projected @ ranking.rows(ranking.frame.project(rows)).T, exact]
        own = np.flatnonzero(np.isin(numbers, self.own))
        queries_of = self.order[np.searchsorted(self.own, numbers[own])]
        for similarity in found:
            similarity[queries_of, own] = -np.inf  # a query is not its own result
        return found

    def add(self, part: Lists | None) -> None:
        """Add the results of the next batch."""
        if part is not None:
            self.lists = _merge(self.lists, part, self.depths)

    def partial_result(self) -> Lists | None:
        """Return the best results so far."""
        return self.lists

    def join(self, gathered: Lists | None) -> None:
        """Add the results of later rows."""
        self.add(gathered)

    def recalls(self) -> list[np.ndarray]:
        """Return the recall of every query for each candidate."""
        assert self.lists is not None
        last = self.lists[0].min(axis=1, keepdims=True) - tie_margin(self.lists[0])
        return [np.minimum((exact >= last).sum(axis=1), LIST_LENGTH) / LIST_LENGTH for exact in self.lists[2::2]]


def _merge(before: Lists | None, new: Lists, depths: Sequence[int]) -> Lists:
    """Return the best of two lists of results."""
    joined = new if before is None else [np.hstack(pair) for pair in zip(before, new, strict=True)]
    merged: Lists = [_take(joined[0], _best(joined[0], LIST_LENGTH))]
    for i, depth in enumerate(depths):
        chosen = _best(joined[1 + 2 * i], depth)
        merged += [_take(joined[1 + 2 * i], chosen), _take(joined[2 + 2 * i], chosen)]
    return merged


def _best(similarity: np.ndarray, depth: int) -> np.ndarray:
    if similarity.shape[1] <= depth:
        return np.broadcast_to(np.arange(similarity.shape[1]), similarity.shape)
    return np.asarray(np.argpartition(similarity, -depth, axis=1)[:, -depth:])


def _take(similarity: np.ndarray, positions: Any) -> np.ndarray:
    return np.take_along_axis(similarity, positions, axis=1)


def confirm(
    task: NeighborRecall,
    candidates: Sequence[Candidate],
    quantizers: Sequence[Quantizer],
    store: Store,
    engine: Engine,
    progress: Progress,
) -> list[np.ndarray]:
    """Return the recall of every query on the whole source, for each candidate."""
    return engine.tally(SearchTally(task, candidates, quantizers), store, progress, "confirming").recalls()
