"""Compute neighbors, spanning trees and sums over all pairs of rows, tile by tile on all cores.

A tile is one BLAS product of two blocks of rows. A kernel turns it into distances and uses them while they are in
cache. Rows are centered first and close pairs are measured by difference, so that ‖a‖²+‖b‖²−2ab costs no precision.
All functions take NumPy arrays and return NumPy arrays of indices or sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core import array_kernels
from isoscope._core.array_kernels import pair_kernels
from isoscope._core.arrays import blocks, check_integer
from isoscope._core.errors import ParameterError
from isoscope._core.memory import tile_bytes
from isoscope._core.threads import map_in_threads, run_all, thread_count

if TYPE_CHECKING:
    from isoscope._core.cosine_histogram import CosineCounter

MAX_MEMORY = 256 * 2**20
"""The default memory for tiles of pairs, in bytes."""

_BLOCK = 640  # rows of a block: larger tiles multiply faster, but the tiles of all cores must fit in their shared cache
_SMALLEST_BLOCK = 32
_QUERY_BLOCK = 160  # queries of a block: a few hundred queries use several cores
_MAX_SQUARED_DISTANCE = 1e30  # larger than any squared distance here, but within the range of float32
# Up to this number of rows, a tile is faster without BLAS, whose idle threads would compete with those of torch.
_MAX_ROWS_WITHOUT_BLAS = 96
_LEAST_ROOM = 32  # entries of a list of nearest points beyond the k nearest ones
_MAX_ROWS_OF_ONE_TREE = 2048  # up to this number of rows, the tree is computed from all pairs, by NumPy


def tile_rows(itemsize: int, max_memory: int) -> int:
    """Return the number of rows per block for which one tile of pairs per thread fits in `max_memory` bytes."""
    each, max_memory = itemsize * thread_count(), tile_bytes(check_integer(max_memory, "max_memory"))
    if max_memory < each * _SMALLEST_BLOCK**2:
        raise ParameterError(
            f"max_memory is {max_memory} bytes: need at least {each * _SMALLEST_BLOCK**2} for the smallest tiles"
        )
    return min(_BLOCK, int((max_memory / each) ** 0.5))


def _upper(m: int) -> Iterator[tuple[int, int]]:
    """Yield each pair of m blocks once, in diagonal order, so that consecutive pairs share no block."""
    for offset in range(m):
        for i in range(m - offset):
            yield i, i + offset


class _RowBlocks:
    """The rows of an array in blocks, raw and centered; to undo the scaling, multiply lengths by `unit`."""

    def __init__(self, X: np.ndarray, *, max_memory: int, tiles_each: int = 1):
        X, self.unit = scale_to_safe_range(X)
        self.X, self.kernels = np.ascontiguousarray(X), pair_kernels(len(X))
        self.slices = list(blocks(len(X), tile_rows(X.dtype.itemsize * tiles_each, max_memory)))
        if len(X) <= _MAX_ROWS_WITHOUT_BLAS:
            return
        self.centered = self.X - X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        self.norms = np.einsum("ij,ij->i", self.centered, self.centered)
        self.near = 8 * float(np.sqrt(np.finfo(X.dtype).eps))

    def squared_distances(self, a: slice | np.ndarray, b: slice) -> np.ndarray:
        """Return the squared distances between the rows in `a` and the rows in `b`, two selections of rows."""
        if len(self.X) <= _MAX_ROWS_WITHOUT_BLAS:
            from isoscope._core.kernels import pairwise_squared_distances

            squared = np.empty((len(self.X), len(self.X)), self.X.dtype)
            pairwise_squared_distances(self.X, squared)
            return squared[a, b]
        tile: np.ndarray = self.centered[a] @ self.centered[b].T
        self.kernels.products_to_squared_distances(tile, self.X[a], self.X[b], self.norms[a], self.norms[b], self.near)
        return tile

    def all_squared_distances(self) -> np.ndarray:
        """Return the squared distances of all pairs of a few rows."""
        squared = np.empty((len(self.X), len(self.X)), self.X.dtype)

        def fill(pair: tuple[int, int]) -> None:
            a, b = self.slices[pair[0]], self.slices[pair[1]]
            squared[a, b] = self.squared_distances(a, b)
            squared[b, a] = squared[a, b].T

        run_all(map_in_threads(fill, _upper(len(self.slices)), len(self.slices)))
        return squared


class _NearestLists:
    """The k nearest points of each row so far, as distances and indices, in lists that have room for more points.

    `none` is the index of a missing point. The kernels document the arrays.
    """

    def __init__(self, n: int, k: int, dtype: np.dtype, none: int):
        width = k + max(k // 2, _LEAST_ROOM)
        self.k = k
        self.distances = np.full((n, width), np.inf, dtype)
        self.indices = np.full((n, width), none, np.int64)
        self.counts, self.limits = np.zeros(n, np.int64), np.full(n, np.inf, dtype)
        self.last = np.full(n, np.iinfo(np.int64).max)

    def part(self, rows: slice) -> tuple[np.ndarray, ...]:
        """Return the arrays of these rows, in the order of the kernels' parameters."""
        return self.distances[rows], self.indices[rows], self.counts[rows], self.limits[rows], self.last[rows]

    def nearest(self, rows: slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances and indices of the k nearest points of these rows, in any order."""
        if (self.counts[rows] > self.k).any():
            from isoscope._core.kernels import reduce_lists

            reduce_lists(self.k, *self.part(rows))
        return self.distances[rows, : self.k], self.indices[rows, : self.k]


def _sort_lists(distances: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of nonnegative distances and of indices, nearest first; ties are ordered by index."""
    if distances.dtype == np.float32 and indices.max(initial=0) < 2**32:
        keys = distances.view(np.uint32).astype(np.uint64) << np.uint64(32)  # the bits are in the order of the numbers
        keys |= indices.astype(np.uint64)
        keys.sort(axis=1)
        nearest = (keys >> np.uint64(32)).astype(np.uint32).view(np.float32)
        return nearest, (keys & np.uint64(2**32 - 1)).astype(np.int64)
    order = np.lexsort((indices, distances))
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(indices, order, axis=1)


def nearest_neighbors(
    X: np.ndarray,
    k: int,
    *,
    rows: np.ndarray | None = None,
    cosines: CosineCounter | None = None,
    max_memory: int = MAX_MEMORY,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances and indices of the k nearest other rows, nearest first, for all rows or only for `rows`.

    If X holds unit vectors and `rows` is None, `cosines` can count the cosines of all pairs in the same pass. Ties
    are ordered by index, so the result does not depend on the order of the tiles. If several rows are tied at the k-th
    distance, rounding decides which of them are returned.
    """
    points = _RowBlocks(X, max_memory=max_memory)
    kernels = points.kernels
    queries = np.arange(len(X)) if rows is None else rows
    lists = _NearestLists(len(queries), k, X.dtype, len(X))
    locks = [Lock() for _ in points.slices]

    def offer_both(pair: tuple[int, int]) -> None:
        i, j = pair
        a, b = points.slices[i], points.slices[j]
        tile = points.squared_distances(a, b)
        if cosines is not None:
            cosines.add(tile, i == j, kernels)
        with locks[i]:
            if i == j:
                kernels.keep_nearest(tile, queries[a], b.start, k, *lists.part(a))
                return
            with locks[j]:  # i < j, so no two threads wait for each other
                kernels.keep_nearest_of_both(tile, a.start, b.start, k, *lists.part(a), *lists.part(b))

    def offer_all(part: slice) -> None:
        own = queries[part]
        for b in points.slices:
            kernels.keep_nearest(points.squared_distances(own, b), own, b.start, k, *lists.part(part))

    if rows is None:
        run_all(map_in_threads(offer_both, _upper(len(points.slices)), len(points.slices)))
    else:
        parts = list(blocks(len(queries), points.slices[0].stop))
        run_all(map_in_threads(offer_all, parts, len(parts)))

    distances, indices = np.empty((len(queries), k)), np.empty((len(queries), k), np.int64)

    def finish(part: slice) -> None:
        squared, found = (np.ascontiguousarray(each) for each in lists.nearest(part))
        kernels.neighbor_distances(points.X, queries[part], squared, found)
        squared, indices[part] = _sort_lists(squared, found)
        distances[part] = np.sqrt(squared, dtype=np.float64) * points.unit

    run_all(map_in_threads(finish, blocks(len(queries), 256), len(queries) // 256))
    return distances, indices


def most_similar(
    queries: np.ndarray, corpus: np.ndarray, k: int, offsets: np.ndarray | None = None, *, exclude_self: bool = False
) -> np.ndarray:
    """Return the k rows of the corpus with the largest `queries @ corpus.T - offsets`, best first.

    Ties are ordered by index. With `exclude_self`, the queries are the corpus, no row is among its own results, and
    each product is computed once for both of its rows.
    """
    offsets = np.zeros(len(corpus), corpus.dtype) if offsets is None else offsets
    if exclude_self:
        return most_similar_others(lambda a, b: [queries[a] @ corpus[b].T], [offsets], k)[0]
    best = _SimilarityHeaps(len(queries), len(corpus), k, corpus.dtype)
    size = tile_rows(corpus.dtype.itemsize, MAX_MEMORY)
    columns, rows = (
        list(blocks(n, each)) for n, each in ((len(corpus), size), (len(queries), min(size, _QUERY_BLOCK)))
    )

    def offer_all(a: slice) -> None:
        for b in columns:
            best.offer(queries[a] @ corpus[b].T, a, b, offsets)

    run_all(map_in_threads(offer_all, rows, len(rows)))
    return best.results()


def most_similar_others(
    products: Callable[[slice, slice], Iterable[np.ndarray]], offsets: list[np.ndarray], k: int
) -> list[np.ndarray]:
    """Return the k other rows with the largest product minus offset for each row, for several symmetric matrices.

    `products(a, b)` returns one tile of each matrix: the products of the rows in `a` and the rows in `b`. Each pair of
    blocks is computed once. Results are ordered as those of `most_similar`.
    """
    n, dtype = len(offsets[0]), offsets[0].dtype
    best = [_SimilarityHeaps(n, n, k, dtype) for _ in offsets]
    slices = list(blocks(n, tile_rows(dtype.itemsize, MAX_MEMORY)))
    locks = [Lock() for _ in slices]

    def offer_pair(pair: tuple[int, int]) -> None:
        i, j = pair
        for heaps, tile, each in zip(best, products(slices[i], slices[j]), offsets, strict=True):
            with locks[i], locks[j] if i != j else nullcontext():
                heaps.offer_others(tile, slices[i], slices[j], each)

    run_all(map_in_threads(offer_pair, _upper(len(slices)), len(slices)))
    return [heaps.results() for heaps in best]


class _SimilarityHeaps:
    """The k most similar rows of a corpus that were found so far, for each query."""

    def __init__(self, queries: int, rows: int, k: int, dtype: np.dtype):
        self.distances, self.indices = np.full((queries, k), np.inf, dtype), np.full((queries, k), rows, np.int64)
        self._none = np.zeros(queries, dtype)

    def offer(self, products: np.ndarray, a: slice, b: slice, offsets: np.ndarray) -> None:
        """Update the results of the queries in `a`, given their products with the rows in `b`."""
        from isoscope._core.kernels import keep_most_similar

        none = self.distances[:0], self.indices[:0]
        own = self.distances[a], self.indices[a]
        keep_most_similar(products, self._none[a], offsets[b], a.start, b.start, *own, *none, False)

    def offer_others(self, products: np.ndarray, a: slice, b: slice, offsets: np.ndarray) -> None:
        """Update the results of the rows in `a` and `b` if the queries are the corpus; no row is its own result."""
        from isoscope._core.kernels import keep_most_similar

        own = self.distances[a], self.indices[a]
        others = (self.distances[b], self.indices[b]) if a != b else (self.distances[:0], self.indices[:0])
        keep_most_similar(products, offsets[a], offsets[b], a.start, b.start, *own, *others, True)

    def results(self) -> np.ndarray:
        """Return the rows found so far, the most similar first; ties are ordered by index."""
        return np.take_along_axis(self.indices, np.lexsort((self.indices, self.distances)), axis=1)


class NeighborSearch:
    """A search for the k nearest rows of each query, for rows that arrive in chunks of any size.

    Distances of pairs so close that ‖a‖²+‖b‖²−2ab would cancel are computed by difference; others are accurate to √eps.

    Parameters
    ----------
    queries : (q, d) array
        The points whose neighbors to find.
    k : int
        The number of neighbors.
    center : (d,) array
        A point near the mean of the rows, so that a large mean costs no precision.
    own : (q,) integers, optional
        The row number of each query that is itself a row (−1 otherwise), so that it is not its own neighbor.
    cosines : CosineCounter, optional
        Counts the cosines of all pairs of a query and a row; needs unit vectors, and all rows must be usable.
    """

    def __init__(
        self,
        queries: np.ndarray,
        k: int,
        *,
        center: np.ndarray,
        own: np.ndarray | None = None,
        cosines: CosineCounter | None = None,
        max_memory: int = MAX_MEMORY,
    ):
        self.cosines = cosines
        self.queries = np.ascontiguousarray(queries)
        self.center = center.astype(queries.dtype)
        self.centered, self.norms = self._center_rows(self.queries)
        self.own = np.full(len(queries), -1) if own is None else own
        self.lists = _NearestLists(len(queries), k, queries.dtype, np.iinfo(np.int64).max)
        self.rows = tile_rows(queries.dtype.itemsize, max_memory)
        self.near = 8 * float(np.sqrt(np.finfo(queries.dtype).eps))

    def _center_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centered = rows - self.center
        return centered, np.einsum("ij,ij->i", centered, centered)

    def offer(self, rows: np.ndarray, first: int, usable: np.ndarray) -> None:
        """Search a chunk of finite rows, numbered from `first`; rows that are not `usable` are skipped."""
        from isoscope._core import kernels

        rows = np.ascontiguousarray(rows, dtype=self.queries.dtype)
        centered, norms = self._center_rows(rows)
        norms[~usable] = _MAX_SQUARED_DISTANCE

        def offer_part(part: slice) -> None:
            for b in blocks(len(rows), self.rows):
                tile = self.centered[part] @ centered[b].T
                kernels.products_to_squared_distances(
                    tile, self.queries[part], rows[b], self.norms[part], norms[b], self.near
                )
                if self.cosines is not None:
                    self.cosines.add(tile, False, kernels)
                kernels.keep_nearest(tile, self.own[part], first + b.start, self.lists.k, *self.lists.part(part))

        parts = list(blocks(len(self.queries), self.rows))
        run_all(map_in_threads(offer_part, parts, len(parts)))

    def partial_result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the squared distances and row numbers found so far, in any order."""
        return self.lists.nearest()

    def join(self, distances: np.ndarray, indices: np.ndarray) -> None:
        """Merge the `partial_result` of another search, for the same queries among other rows."""
        k, n = self.lists.k, len(self.queries)
        own = self.lists.nearest()
        merged = (np.concatenate(both, axis=1) for both in zip(own, (distances, indices), strict=True))
        distances, indices = (each[:, :k] for each in _sort_lists(*merged))
        self.lists = _NearestLists(n, k, distances.dtype, np.iinfo(np.int64).max)
        self.lists.distances[:, :k], self.lists.indices[:, :k], self.lists.counts[:] = distances, indices, k
        self.lists.limits[:], self.lists.last[:] = distances[:, -1], indices[:, -1]

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances and row numbers found so far, nearest first; ties are ordered by row number."""
        distances, indices = self.lists.nearest()
        nearest, indices = _sort_lists(np.maximum(distances, 0), indices)
        return np.sqrt(nearest, dtype=np.float64), indices


def spanning_tree(X: np.ndarray, *, max_memory: int = MAX_MEMORY) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of the minimum spanning tree, an (n−1, 2) array, and their lengths, longest first.

    The tree is contained in the union of the trees of all pairs of blocks. One pass over the tiles computes these, and
    Kruskal's algorithm finds the tree among their edges.
    """
    points = _RowBlocks(X, max_memory=max_memory, tiles_each=2)
    n, itemsize = len(X), X.dtype.itemsize
    if _MAX_ROWS_WITHOUT_BLAS < n <= _MAX_ROWS_OF_ONE_TREE and n * n * itemsize <= tile_bytes(max_memory):
        return _measure_edges(points, _prim(points.all_squared_distances(), array_kernels)[0])
    from isoscope._core import kernels

    def block_tree(part: slice) -> tuple[np.ndarray, np.ndarray]:
        return _prim(points.squared_distances(part, part), kernels)

    trees = list(map_in_threads(block_tree, points.slices, len(points.slices)))
    if len(trees) == 1:
        return _measure_edges(points, trees[0][0])

    def joint_tree(pair: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        i, j = pair
        a, b = points.slices[i], points.slices[j]
        m = a.stop - a.start
        n = m + b.stop - b.start
        tile = points.squared_distances(a, b)
        edges, weights = np.empty((n - 1, 2), np.int64), np.empty(n - 1, X.dtype)
        within = 2 * (n - 2)  # both ends of each edge of the two trees
        kernels.merge_block_trees(
            tile,
            np.ascontiguousarray(tile.T),
            trees[i][0],
            trees[j][0],
            trees[i][1],
            trees[j][1],
            edges,
            weights,
            *_tree_memory(n, X.dtype),
            np.zeros(n + 1, np.int64),
            np.empty(n, np.int64),
            np.empty(within, np.int64),
            np.empty(within, X.dtype),
        )
        return np.where(edges < m, edges + a.start, edges - m + b.start), weights

    pool, pool_weights, pool_size = [], [], 0
    pairs = [(i, j) for i, j in _upper(len(points.slices)) if i != j]
    for edges, weights in map_in_threads(joint_tree, pairs, len(pairs)):
        pool.append(edges)
        pool_weights.append(weights)
        pool_size += len(edges)
        if pool_size > 8 * len(X):  # keep only the edges that can still be in the tree
            kept, kept_weights = _kruskal(np.concatenate(pool), np.concatenate(pool_weights), len(X))
            pool, pool_weights, pool_size = [kept], [kept_weights], len(kept)
    return _measure_edges(points, _kruskal(np.concatenate(pool), np.concatenate(pool_weights), len(X))[0])


def _prim(squared: np.ndarray, kernels: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the edges of the minimum spanning tree of a few points, and their squared lengths."""
    n = len(squared)
    edges, weights = np.empty((n - 1, 2), np.int64), np.empty(n - 1, squared.dtype)
    if n > 1:
        kernels.prim_tree(squared, edges, weights, *_tree_memory(n, squared.dtype))
    return edges, weights


def _tree_memory(n: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the working memory of Prim's algorithm: the keys, the parents and which of the n nodes are in the tree."""
    return np.full(n, np.inf, dtype), np.zeros(n, np.int64), np.zeros(n, np.bool_)


def _measure_edges(points: _RowBlocks, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and their lengths, longest first, computed from coordinate differences in float64."""
    squared = np.empty(len(edges))
    for part in blocks(len(edges), 512):
        steps = np.subtract(points.X[edges[part, 0]], points.X[edges[part, 1]], dtype=np.float64)
        squared[part] = np.einsum("ij,ij->i", steps, steps)
    order = np.argsort(-squared, kind="stable")
    return edges[order], np.sqrt(squared[order]) * points.unit


def _kruskal(edges: np.ndarray, weights: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    from isoscope._core.kernels import kruskal_tree

    kept = np.empty(n - 1, np.int64)
    count = kruskal_tree(edges, np.argsort(weights, kind="stable"), np.arange(n), kept)
    return edges[kept[:count]], weights[kept[:count]]


def cluster_distances(X: np.ndarray, codes: np.ndarray, k: int, *, max_memory: int = MAX_MEMORY) -> np.ndarray:
    """Return the sum of each row's distances to the rows of each of the k clusters, as an (n, k) float64 array."""
    from isoscope._core.kernels import add_cluster_distances

    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    points = _RowBlocks(X[order], max_memory=max_memory)
    clusters = [np.unique(codes[part]) for part in points.slices]
    starts = [
        np.append(np.searchsorted(codes[part], present), part.stop - part.start)
        for part, present in zip(points.slices, clusters, strict=True)
    ]

    def sums(pair: tuple[int, int]) -> tuple[int, int, np.ndarray, np.ndarray]:
        i, j = pair
        tile = points.squared_distances(points.slices[i], points.slices[j])
        by_row = np.zeros((tile.shape[0], len(clusters[j])), X.dtype)
        by_column = np.zeros((len(clusters[i]), tile.shape[1]), X.dtype)
        add_cluster_distances(tile, starts[i], starts[j], by_row, by_column)
        return i, j, by_row, by_column

    total = np.zeros((len(X), k))
    for i, j, by_row, by_column in map_in_threads(sums, _upper(len(points.slices)), len(points.slices)):
        total[points.slices[i], clusters[j][0] : clusters[j][-1] + 1] += by_row
        if i != j:
            total[points.slices[j], clusters[i][0] : clusters[i][-1] + 1] += by_column.T
    back = np.empty_like(total)
    back[order] = total * points.unit
    return back


def weighted_distances(X: np.ndarray, weights: np.ndarray, *, max_memory: int = MAX_MEMORY) -> np.ndarray:
    """Return weighted sums of each row's distances to all rows, as an (n, m) float64 array for (n, m) weights.

    Many clusterings cost hardly more than one, because the distances are computed only once.
    """
    points = _RowBlocks(X, max_memory=max_memory)
    weights = weights.astype(X.dtype)

    def sums(pair: tuple[int, int]) -> tuple[int, int, np.ndarray, np.ndarray]:
        i, j = pair
        a, b = points.slices[i], points.slices[j]
        tile = points.squared_distances(a, b)
        np.sqrt(np.maximum(tile, 0, out=tile), out=tile)
        return i, j, tile @ weights[b], tile.T @ weights[a]

    total = np.zeros(weights.shape)
    for i, j, by_row, by_column in map_in_threads(sums, _upper(len(points.slices)), len(points.slices)):
        total[points.slices[i]] += by_row
        if i != j:
            total[points.slices[j]] += by_column
    return total * points.unit


def scale_to_safe_range(X: np.ndarray) -> tuple[np.ndarray, float]:
    """Scale X by a power of two so that squares neither overflow nor underflow; return it and the inverse factor."""
    exponent = int(np.frexp(max(X.max(), -X.min()))[1]) - 1
    return (X, 1.0) if -40 < exponent < 50 else (np.ldexp(X, -exponent), 2.0**exponent)
