"""Recall against exact search: how many of a query's 10 nearest rows a search in codes finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.sparse import csr_array

from isoscope._core.arrays import blocks
from isoscope._core.errors import TooFewRowsError, plural
from isoscope._core.memory import tile_bytes
from isoscope._core.threads import map_in_threads, run_all
from isoscope.advising.inference import Units
from isoscope.advising.task import row_identity
from isoscope.compressing.candidates import LIST_LENGTH
from isoscope.transforms.quantize import Geometry, scale_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isoscope._core.types import Metric
    from isoscope.transforms.quantize import Frame, Quantizer

FIRST_QUERIES = 64
"""The number of queries that every candidate is scored on before candidates far below the share are dropped."""

_TILE = 16 * 2**20  # bytes of similarities per thread
_ROW_TILE = 2**18  # bytes of rows that are rounded while they are in the cache
_ROUNDING = 1e-6  # rows whose similarity differs by less, relative to the largest one, are equally near
_FEWEST_ROWS, _FEWEST_QUERIES, _MOST_QUERIES = 100, 20, 400
_QUERY_SHARES = 5, 50  # a fifth of the rows up to 400 queries, then at least one query for every 50 rows


def count_queries(rows: int) -> int:
    """Return how many of the rows become queries: a fifth, at most 400, or one of 50 if that is more.

    >>> count_queries(1000), count_queries(20_000), count_queries(80_000)
    (200, 400, 1600)
    """
    few, many = _QUERY_SHARES
    return max(_FEWEST_QUERIES, min(rows // few, max(_MOST_QUERIES, rows // many)))


class NeighborRecall:
    """Recall@10 of a search in codes, against exact search in the original vectors.

    Some rows become queries. For each query, all other rows are searched, including the other queries. Leaving these
    out would thin out the rows and overestimate recall. Quantizers learn from the rows that are not queries. A result
    counts as found if it is as near as the 10th nearest row, so equal rows stand for each other. Rows that a search
    ranks equally are taken in random order: the expected recall is returned.
    """

    measures: ClassVar = {"recall@10": "recall@10"}
    example: ClassVar = "query"

    def __init__(self, vectors: np.ndarray, numbers: np.ndarray, metric: Metric, seed: int):
        if metric == "cosine":
            vectors = scale_rows(vectors, metric).astype(np.float32, copy=False)
        if len(vectors) < _FEWEST_ROWS:
            count, verb = plural(len(vectors), "row"), "is" if len(vectors) == 1 else "are"
            raise TooFewRowsError(f"{count} {verb} too few to measure recall: need at least {_FEWEST_ROWS}")
        self.metric = metric
        order = np.random.default_rng(seed).permutation(len(vectors))
        chosen = np.zeros(len(vectors), bool)
        chosen[order[: count_queries(len(vectors))]] = True
        self.corpus = Geometry(vectors[~chosen], metric, seed)
        picked = order[: count_queries(len(vectors))]
        self.queries = scale_rows(vectors[picked], metric)
        self.query_numbers = numbers[picked]
        m = len(picked)
        identity = row_identity(self.queries)
        self.units = Units(csr_array((np.ones(m), (np.arange(m), identity)), shape=(m, m)), folds=2)
        self._nearest: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __len__(self) -> int:
        return len(self.queries)

    def open_search(self, quantizer: Quantizer) -> CodeSearch:
        """Return a search in the codes of the corpus."""
        frame = self.frame_of(quantizer)
        ranking = Ranking(quantizer, frame, self.corpus.mean)
        rows = [ranking.rows(self.corpus.project(frame)), ranking.rows(frame.project(self.queries))]
        return CodeSearch(self, np.vstack(rows), ranking.queries(self.queries))

    def exclude(self, similarity: np.ndarray, part: slice) -> None:
        """Exclude each query of a part from its own results, given its similarity to the corpus and to all queries."""
        own = np.arange(part.start, part.start + len(similarity))
        similarity[np.arange(len(similarity)), len(self.corpus.rows) + own] = -np.inf

    def frame_of(self, quantizer: Quantizer) -> Frame:
        """Return the map before rounding for a quantizer that need not be fitted."""
        width = quantizer.n_components or self.queries.shape[1]
        return self.corpus.frame(quantizer.reduction, width, quantizer.preprocess)

    def find_all_nearest(self, first: int) -> None:
        """Search exactly for all queries, in the same parts as the searches for the first and for the other queries."""
        parts = [slice(part.start, min(part.stop, first)) for part in blocks(first, self.tile)]
        others = blocks(len(self) - first, self.tile)
        parts += [slice(first + part.start, min(first + part.stop, len(self))) for part in others]
        run_all(map_in_threads(self.find_nearest, parts, len(parts)))

    @property
    def tile(self) -> int:
        """The number of queries to search for at a time."""
        return max(1, tile_bytes(_TILE) // (4 * len(self.corpus.rows)))

    def find_nearest(self, part: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs (position of a query in the part, one of its nearest rows) from exact search."""
        if part.start not in self._nearest:
            parts = []
            for rows in (self.corpus.rows, self.queries):
                queries, factor = exact_operands(self.queries[part], rows, self.metric, self.corpus.mean)
                parts.append(queries @ factor.T)
            similarity = np.hstack(parts)
            margin = tie_margin(similarity)
            self.exclude(similarity, part)
            last = np.partition(similarity, -LIST_LENGTH, axis=1)[:, -LIST_LENGTH]
            own, near = np.nonzero(similarity >= (last - margin)[:, None])
            self._nearest[part.start] = own, near
        return self._nearest[part.start]


class CodeSearch:
    """A search in the codes of the corpus: products of `rows` and `queries` rank the rows for each query."""

    def __init__(self, task: NeighborRecall, rows: np.ndarray, queries: np.ndarray):
        self.task, self.rows, self.queries = task, rows, queries

    def recall(self, depths: Sequence[int], first: int, last: int) -> np.ndarray:
        """Return the recall of queries `first` to `last` at each depth: an array of shape (depths, queries)."""
        found = np.empty((len(depths), last - first))

        def search(part: slice) -> None:
            chosen = slice(first + part.start, min(first + part.stop, last))
            similarity = self.queries[chosen] @ self.rows.T
            self.task.exclude(similarity, chosen)
            own, near = self.task.find_nearest(chosen)
            for i, depth in enumerate(depths):
                found[i, part] = expected_hits(similarity, own, near, depth) / LIST_LENGTH

        parts = list(blocks(last - first, self.task.tile))
        run_all(map_in_threads(search, parts, len(parts)))
        return found


def exact_operands(
    queries: np.ndarray, rows: np.ndarray, metric: Metric, center: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return two matrices A and B for which A·Bᵀ ranks the rows for each query as the metric does."""
    if metric == "cosine":
        return queries, rows
    queries, rows = queries - center.astype(queries.dtype), rows - center.astype(rows.dtype)
    squares = np.einsum("ij,ij->i", rows, rows) / -2
    return np.column_stack([queries, np.ones(len(queries), queries.dtype)]), np.column_stack([rows, squares])


class Ranking:
    """Products of rows and queries that rank decoded rows as the metric does, without decoding the rows.

    A decoded row is m + B·y with orthonormal columns B, so ⟨q, m + B·y⟩ = ⟨q, m⟩ + ⟨Bᵀq, y⟩ needs only the projected
    query. One more column holds ⟨q, m⟩ (for cosine) or the squared length of the row (for Euclidean distance).
    """

    def __init__(self, quantizer: Quantizer, frame: Frame, center: np.ndarray):
        self.quantizer, self.frame = quantizer, frame
        self.is_cosine, self.center = quantizer.metric == "cosine", center
        self.origin = frame.mean if self.is_cosine else frame.mean - center
        self.plain = frame._replace(mean=np.zeros_like(frame.mean), weights=np.ones_like(frame.weights))
        self.along = self.plain.project(self.origin[None].astype(np.float64))[0]

    @property
    def _extra(self) -> int:
        return int(not self.quantizer.compares_bits and (not self.is_cosine or bool(self.origin.any())))

    def rows(self, projected: np.ndarray) -> np.ndarray:
        """Return the left factor for projected rows, which are rounded first."""
        found = np.empty((len(projected), self.frame.width + self._extra), np.float32)
        for tile in blocks(len(projected), max(1, _ROW_TILE // (4 * self.frame.width))):
            found[tile] = self._rank_rows(self.quantizer.round_projected(projected[tile]))
        return found

    def _rank_rows(self, rounded: np.ndarray) -> np.ndarray:
        if self.quantizer.compares_bits:
            return np.asarray(np.sign(rounded))  # products of ±1 are exact, so equal distances stay equal
        if (self.frame.weights != 1).any():
            rounded /= self.frame.weights.astype(np.float32)
        squares = np.einsum("ij,ij->i", rounded, rounded)
        if self._extra:
            squares += 2 * (rounded @ self.along) + np.float32(self.origin @ self.origin)
        if not self.is_cosine:
            return np.column_stack([rounded, squares / -2])
        scale = 1 / np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
        rounded *= scale[:, None]
        return np.column_stack([rounded, scale]) if self._extra else rounded

    def queries(self, queries: np.ndarray) -> np.ndarray:
        """Return the right factor for queries."""
        if self.quantizer.compares_bits:
            return np.asarray(np.sign(self.quantizer.round_projected(self.frame.project(queries))))
        if not self.is_cosine:
            projected = self.plain.project(queries - self.center.astype(queries.dtype))
            return np.column_stack([projected, np.ones(len(projected), np.float32)])
        projected = self.plain.project(queries)
        if not self._extra:
            return projected
        return np.column_stack([projected, (queries @ self.origin.astype(queries.dtype)).astype(np.float32)])


def tie_margin(similarity: np.ndarray) -> float:
    """Return the difference below which two similarities are equal but for rounding."""
    return _ROUNDING * float(np.abs(similarity).max(initial=0))


def expected_hits(similarity: np.ndarray, own: np.ndarray, near: np.ndarray, depth: int) -> np.ndarray:
    """Return how many nearest rows of each query are among its `depth` most similar rows, at most 10.

    `own` and `near` are pairs of a query and one of its nearest rows. Rows tied at the last place are taken in random
    order, so each of them counts with the probability that it is taken.

    >>> similarity = np.array([[9.0, 8.0, 7.0, 7.0]])
    >>> expected_hits(similarity, np.array([0, 0]), np.array([0, 2]), depth=3).tolist()
    [1.5]
    """
    k = min(depth, similarity.shape[1])
    last = np.partition(similarity, -k, axis=1)[:, -k]
    taken = similarity >= last[:, None]
    hits = taken[own, near].astype(np.float64)
    counts = np.count_nonzero(taken, axis=1)
    if (counts > k).any():  # more rows than places are tied at the last place
        above = similarity > last[:, None]
        fewer = np.count_nonzero(above, axis=1)
        free = (k - fewer) / (counts - fewer)
        hits = np.where(above[own, near], 1.0, hits * free[own])
    return np.minimum(np.bincount(own, hits, minlength=len(similarity)), LIST_LENGTH)
