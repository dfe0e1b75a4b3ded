"""All pairs of points, tile by tile: the result does not depend on tiles and threads, in bounded memory."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

import isoscope
from isoscope._core.pairs import (
    MAX_MEMORY,
    NeighborSearch,
    cluster_distances,
    nearest_neighbors,
    spanning_tree,
    tile_rows,
    weighted_distances,
)
from tests.conftest import DTYPES, HARD, memory_for, tolerance


def distances(X: np.ndarray) -> np.ndarray:
    """Return all distances in float64, computed by difference; a point is not its own neighbor."""
    table = cdist(X.astype(np.float64), X.astype(np.float64))
    np.fill_diagonal(table, np.inf)
    return table


def tree_lengths(X: np.ndarray, **options: int) -> np.ndarray:
    return np.sort(spanning_tree(X, **options)[1])


def lattice(side: int) -> np.ndarray:
    """Integers around 0, so that equal distances are exactly equal."""
    ticks = np.arange(side) - side // 2
    return np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2).astype(float)


# what must hold


@given(st.integers(0, 10**6), st.integers(2, 150), st.integers(1, 6), st.integers(32, 50))
def test_neighbors_are_other_rows_sorted_and_complete(seed, n, d, rows):
    X = np.random.default_rng(seed).standard_normal((n, d))
    k = 1 + seed % (n - 1)
    found, indices = nearest_neighbors(X, k, max_memory=memory_for(rows))
    assert (indices != np.arange(n)[:, None]).all()
    assert all(len(set(row)) == k for row in indices.tolist())
    assert (np.diff(found, axis=1) >= 0).all()
    np.testing.assert_allclose(found, np.sort(distances(X), axis=1)[:, :k], rtol=tolerance("float64"))


@given(st.integers(0, 10**6), st.integers(2, 150), st.integers(1, 6), st.integers(32, 50))
def test_tree_connects_all_points_and_blocks_do_not_change_lengths(seed, n, d, rows):
    X = np.random.default_rng(seed).standard_normal((n, d))
    edges, _ = spanning_tree(X, max_memory=memory_for(rows))
    assert edges.shape == (n - 1, 2)
    reached = {0}
    for _ in range(n):
        reached |= {int(v) for edge in edges.tolist() if reached & set(edge) for v in edge}
    assert reached == set(range(n))
    np.testing.assert_allclose(tree_lengths(X, max_memory=memory_for(rows)), tree_lengths(X), rtol=tolerance("float64"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [90, 91, 135, 700, 1300])  # whole blocks, a last block of one row, several of either size
def test_blocks_do_not_matter(rng, n, dtype):
    X = rng.standard_normal((n, 5)).astype(dtype)
    codes = np.arange(n) % 4
    small = {"max_memory": memory_for(45)}
    np.testing.assert_array_equal(nearest_neighbors(X, 7, **small)[1], nearest_neighbors(X, 7)[1])
    np.testing.assert_allclose(nearest_neighbors(X, 7, **small)[0], nearest_neighbors(X, 7)[0], rtol=tolerance(dtype))
    np.testing.assert_allclose(tree_lengths(X, **small), tree_lengths(X), rtol=tolerance(dtype))
    np.testing.assert_allclose(
        cluster_distances(X, codes, 4, **small), cluster_distances(X, codes, 4), rtol=tolerance(dtype)
    )


def test_number_of_threads_does_not_matter(rng):
    X, codes = rng.standard_normal((1300, 6)), np.arange(1300) % 3
    with threadpool_limits(3):
        many = nearest_neighbors(X, 9)[1], tree_lengths(X), cluster_distances(X, codes, 3)
    with threadpool_limits(1):
        one = nearest_neighbors(X, 9)[1], tree_lengths(X), cluster_distances(X, codes, 3)
    np.testing.assert_array_equal(many[0], one[0])
    np.testing.assert_allclose(many[1], one[1], rtol=tolerance("float64"))
    np.testing.assert_allclose(many[2], one[2], rtol=tolerance("float64"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_calls_are_bit_identical(rng, dtype):
    X, codes = rng.standard_normal((1300, 6)).astype(dtype), np.arange(1300) % 3

    def answers():
        return *nearest_neighbors(X, 9), *spanning_tree(X), cluster_distances(X, codes, 3)

    with threadpool_limits(2):
        for first, again in zip(answers(), answers(), strict=True):
            np.testing.assert_array_equal(first, again)


def test_concurrent_callers_get_the_same_results(rng):
    X = rng.standard_normal((1300, 6)).astype(np.float32)
    labels = np.arange(1300) % 3

    def answers(_):
        return isoscope.lid(X, 9), isoscope.silhouette(X, labels), float(isoscope.h0_barcode(X).sum())

    alone = answers(0)
    with ThreadPoolExecutor(2) as callers:
        for together in callers.map(answers, range(6)):
            assert together == pytest.approx(alone, rel=tolerance("float32"))


def test_float32_and_float64_agree(rng):
    """Six clusters with a common direction and a spectrum that decays, in many blocks."""
    labels = rng.integers(0, 6, 1500)
    clusters = 1.2 * rng.standard_normal((6, 32))[labels]
    X = (1.5 + (rng.standard_normal((1500, 32)) + clusters) / np.sqrt(np.arange(1, 33))).astype(np.float32)
    small, tol = {"max_memory": memory_for(100)}, tolerance("float32")
    for measure in (
        lambda X: isoscope.two_nn(X, **small),
        lambda X: isoscope.lid(X, 20, **small),
        lambda X: isoscope.lid(X, 20, metric="cosine", **small),
        lambda X: isoscope.hubness(X, 10, **small),
        lambda X: isoscope.hubness(X, 10, metric="cosine", **small),
        lambda X: isoscope.h0_barcode(X, **small),
    ):
        np.testing.assert_allclose(measure(X), measure(X.astype(np.float64)), rtol=tol)
    for metric in ("euclidean", "cosine"):
        found, expected = (
            isoscope.silhouette(Y, labels, metric=metric, per_point=True, **small) for Y in (X, X.astype(np.float64))
        )
        np.testing.assert_allclose(found, expected, atol=tol)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("asked", [1, 31, 300])
def test_sampled_rows_equal_rows_of_the_full_result(rng, asked, dtype):
    X = rng.standard_normal((700, 5)).astype(dtype)
    rows = np.sort(rng.choice(700, asked, replace=False))
    full, some = nearest_neighbors(X, 8), nearest_neighbors(X, 8, rows=rows, max_memory=memory_for(40))
    np.testing.assert_array_equal(some[1], full[1][rows])
    np.testing.assert_allclose(some[0], full[0][rows], rtol=tolerance(dtype))


# outside oracles


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbors_match_scikit_learn(cloud, dtype):
    X = cloud.astype(dtype)
    # float32 cannot tell 1e4 + x from its neighbours' values: there the distances tie, and the order is free
    theirs, their_indices = NearestNeighbors(n_neighbors=6, algorithm="brute").fit(X.astype(float)).kneighbors()
    ours, indices = nearest_neighbors(X, 6)
    np.testing.assert_allclose(ours, np.sort(distances(X), axis=1)[:, :6], rtol=tolerance(dtype))
    if X.mean() < 100:
        np.testing.assert_array_equal(indices, their_indices)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_cluster_distances_equal_sums_of_the_distance_matrix(cloud, rng, dtype):
    X = cloud.astype(dtype)
    codes = np.concatenate([[0, 1, 2, 3], rng.integers(0, 4, len(X) - 4)])
    table = cdist(X.astype(float), X.astype(float))
    np.testing.assert_allclose(
        cluster_distances(X, codes, 4, max_memory=memory_for(32)), table @ np.eye(4)[codes], rtol=tolerance(dtype)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_distances_with_several_weights_equal_separate_sums(rng, dtype):
    X, codes = rng.standard_normal((130, 7)).astype(dtype) + 3, rng.integers(0, 5, (2, 130))
    weights = np.concatenate([np.eye(5)[own] for own in codes], axis=1)
    found = weighted_distances(X, weights, max_memory=memory_for(32))
    expected = [cluster_distances(X, own, 5) for own in codes]
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), rtol=tolerance(dtype))
    table = cdist(X.astype(float), X.astype(float))
    np.testing.assert_allclose(found, table @ weights, rtol=tolerance(dtype))


# digits: each distance is right by its own measure, not by that of the cloud


@pytest.mark.parametrize("shape", HARD)
@pytest.mark.parametrize("d", [2, 8, 768, 4096])
@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbors_keep_full_precision(rng, shape, d, dtype):
    X = HARD[shape](120, d, rng).astype(dtype)
    np.testing.assert_allclose(nearest_neighbors(X, 3)[0], np.sort(distances(X), axis=1)[:, :3], rtol=tolerance(dtype))


@pytest.mark.parametrize("n", [60, 120])  # a small cloud is measured without BLAS
@pytest.mark.parametrize(
    ("dtype", "near"),
    [("float32", 1e-15), ("float64", 1e-150)],  # squares of smaller ones vanish: docs/tolerances.md
)
def test_points_near_the_origin_are_not_duplicates(rng, n, dtype, near):
    X = np.concatenate([near * rng.standard_normal((n // 2, 4)), rng.standard_normal((n // 2, 4))]).astype(dtype)
    np.testing.assert_allclose(nearest_neighbors(X, 3)[0], np.sort(distances(X), axis=1)[:, :3], rtol=tolerance(dtype))
    expected = np.sort(minimum_spanning_tree(csr_array(cdist(X.astype(float), X.astype(float)))).data)
    np.testing.assert_allclose(tree_lengths(X), expected, rtol=tolerance(dtype))


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float32", 1e-40), ("float32", 1e-20), ("float32", 1e37), ("float64", 1e-300), ("float64", 1e300)],
)
def test_squares_neither_underflow_nor_overflow(rng, dtype, scale):
    X = (scale * rng.standard_normal((120, 4))).astype(dtype)
    codes = np.arange(120) % 2
    unit = X.astype(np.float64) / scale
    np.testing.assert_allclose(nearest_neighbors(X, 3)[0] / scale, nearest_neighbors(unit, 3)[0], rtol=tolerance(dtype))
    np.testing.assert_allclose(tree_lengths(X) / scale, tree_lengths(unit), rtol=tolerance(dtype))
    np.testing.assert_allclose(
        cluster_distances(X, codes, 2) / scale, cluster_distances(unit, codes, 2), rtol=tolerance(dtype)
    )


@pytest.mark.parametrize(("dtype", "large"), [("float32", 1.2e19), ("float32", 1.6e38), ("float64", 8e307)])
def test_representable_length_is_not_infinite(dtype, large):
    assert tree_lengths(np.array([[large, 0], [-large, 0]], dtype))[0] == pytest.approx(2 * large)


def test_largest_float_is_handled():
    assert tree_lengths(np.array([[1.7e308, 0], [0, 0]]))[0] == pytest.approx(1.7e308)


# ties: up to 96 rows distances are taken by difference, so that equal ones are; above, rounding chooses at the k-th


@pytest.mark.parametrize("k", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("rows", [32, 640])
def test_ties_are_broken_by_smaller_index(k, rows):
    for X in (lattice(7), np.concatenate([lattice(7), [[7, 7]]])):  # the second one's mean is 7/50
        _, indices = nearest_neighbors(X, k, max_memory=memory_for(rows))
        np.testing.assert_array_equal(indices, np.argsort(distances(X), axis=1, kind="stable")[:, :k])


@pytest.mark.parametrize("k", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("rows", [32, 640])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_among_many_points_are_broken_by_index(k, rows, dtype):
    X = lattice(13).astype(dtype)
    found, indices = nearest_neighbors(X, k, max_memory=memory_for(rows))
    table = distances(X)
    np.testing.assert_allclose(found, np.take_along_axis(table, indices, axis=1), rtol=tolerance(dtype))
    np.testing.assert_allclose(found, np.sort(table, axis=1)[:, :k], rtol=tolerance(dtype))
    assert (np.diff(indices, axis=1)[np.diff(found, axis=1) == 0] > 0).all()


# memory


@pytest.mark.parametrize(
    "measure",
    [
        lambda X: isoscope.silhouette(X, np.arange(len(X)) % 5),
        lambda X: isoscope.lid(X, 20),
        isoscope.h0_barcode,
        isoscope.uniformity,
    ],
    ids=["silhouette", "lid", "h0_barcode", "uniformity"],
)
def test_full_distance_matrix_is_never_allocated(rng, measure):
    n = 6000
    X = rng.standard_normal((n, 16)).astype(np.float32)
    measure(X[:1100])  # compiled before the count begins
    tracemalloc.start()
    try:
        measure(X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < n * n * 4 / 6


def test_block_uses_the_available_memory():
    with threadpool_limits(2):
        assert tile_rows(8, 2 * 8 * 100**2) == 100
        assert tile_rows(4, MAX_MEMORY) == 640  # no larger than the cache likes
        with pytest.raises(isoscope.InputError, match="max_memory is 16383 bytes: need at least 16384"):
            tile_rows(8, 16383)


# neighbours of queries while the rows come by


def sought(queries, X, k, size, *, own=None, usable=None, **options):
    """Return the k nearest rows of X for each query, from chunks of this many rows."""
    search = NeighborSearch(queries, k, center=X.mean(axis=0, dtype=np.float64), own=own, **options)
    usable = np.ones(len(X), bool) if usable is None else usable
    for start in range(0, len(X), size):
        part = slice(start, start + size)
        search.offer(X[part], start, usable[part])
    return search.results()


@given(st.integers(0, 10**6), st.integers(3, 200), st.integers(1, 6), st.integers(1, 90))
def test_chunk_size_does_not_change_neighbors(seed, n, d, size):
    rng = np.random.default_rng(seed)
    X, k = rng.standard_normal((n, d)), 1 + seed % (n - 1)
    asked = np.sort(rng.choice(n, min(n, 20), replace=False))
    found, indices = sought(X[asked], X, k, size, own=asked)
    np.testing.assert_allclose(found, np.sort(distances(X)[asked], axis=1)[:, :k], rtol=tolerance("float64"))
    assert (indices != asked[:, None]).all()
    np.testing.assert_array_equal(indices, nearest_neighbors(X, k, rows=asked)[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [13, 37, 5000])
def test_queries_match_scikit_learn(rng, dtype, size):
    X, queries = (rng.standard_normal((n, 12)).astype(dtype) + 1 for n in (600, 70))
    theirs, their_indices = NearestNeighbors(n_neighbors=9, algorithm="brute").fit(X.astype(float)).kneighbors(queries)
    found, indices = sought(queries, X, 9, size, max_memory=memory_for(40))
    np.testing.assert_allclose(found, theirs, rtol=tolerance(dtype))
    np.testing.assert_array_equal(indices, their_indices)


@pytest.mark.parametrize("shape", HARD)
@pytest.mark.parametrize("d", [2, 8, 768])
@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbors_of_queries_keep_full_precision(rng, shape, d, dtype):
    X = HARD[shape](120, d, rng).astype(dtype)
    found, _ = sought(X, X, 3, 50, own=np.arange(120))
    np.testing.assert_allclose(found, np.sort(distances(X), axis=1)[:, :3], rtol=tolerance(dtype))


def test_unusable_row_is_skipped_even_if_nearest(rng):
    X = rng.standard_normal((100, 4))
    usable = np.arange(100) % 3 > 0
    queries = X[~usable] + 1e-3
    found, indices = sought(queries, np.where(usable[:, None], X, 0), 5, 33, usable=usable)
    assert usable[indices].all()
    np.testing.assert_allclose(found, np.sort(cdist(queries, X[usable]), axis=1)[:, :5], rtol=tolerance("float64"))


@pytest.mark.parametrize("size", [7, 100])
def test_query_is_not_its_own_neighbor_but_its_copy_is(rng, size):
    X = np.repeat(rng.standard_normal((30, 5)), 2, axis=0)
    found, indices = sought(X, X, 2, size, own=np.arange(60))
    np.testing.assert_array_equal(indices[:, 0], np.arange(60) ^ 1)
    np.testing.assert_array_equal(found[:, 0], np.zeros(60))
    assert (found[:, 1] > 0).all()
    again, itself = sought(X, X, 2, size)
    np.testing.assert_array_equal(np.sort(itself, axis=1), np.arange(60)[:, None] // 2 * 2 + [0, 1])
    np.testing.assert_array_equal(again, np.zeros((60, 2)))


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("size", [1, 10, 49])
def test_ties_in_chunks_are_broken_by_smaller_row_number(k, size):
    X = np.repeat(lattice(5), 2, axis=0)
    queries = lattice(5)[[12, 0]]
    _, indices = sought(queries, X, k, size)
    table = cdist(queries, X)
    np.testing.assert_array_equal(indices, np.argsort(table, axis=1, kind="stable")[:, :k])
