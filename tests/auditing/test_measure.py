"""Measurements in at most two passes: exact for sums, close for samples."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import isoscope
from isoscope import InputError
from isoscope._core.pairs import nearest_neighbors
from isoscope.auditing.measure import (
    LIST_LENGTH,
    Settings,
    count_queries,
    count_query_rows,
    measure,
    measure_cosines,
)
from isoscope.engines.engine import LocalEngine
from isoscope.stores.open import open_store
from tests.conftest import tolerance


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: k-means of a small dataset spends most of its time waiting for threads."""
    with threadpool_limits(1):
        yield


def counted(source, **columns):
    """A store that counts how often it is read from the beginning, and the list with its counts."""
    store, reads = open_store(source, **columns), []
    plain = store.batches

    def batches(columns=(), rows=None):
        reads.append(tuple(columns))
        return plain(columns, 77)  # a last batch that is smaller

    store.batches = batches
    return store, reads


def measured(source, queries=None, progress=lambda *a: None, **settings):
    store = source if hasattr(source, "batches") else open_store(source)
    asked = queries if queries is None or hasattr(queries, "batches") else open_store(queries)
    return measure(store, queries=asked, settings=Settings(**settings), progress=progress, engine=LocalEngine())


@pytest.fixture
def X(rng):
    return (rng.standard_normal((600, 8)) / np.sqrt(np.arange(1, 9)) + 0.4).astype(np.float32)


# passes


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_store_is_read_twice_and_queries_once(X, rng, metric):
    store, reads = counted(X, labels=np.arange(600) % 3, types=np.arange(600) % 50, text=["t"] * 600)
    queries, query_reads = counted(rng.standard_normal((150, 8)))
    measured(store, queries, sample=100, metric=metric)
    assert len(reads) == 2
    assert set(reads[0]) == {"labels", "types", "text"}
    assert reads[1] == ()  # what stands beside the vectors is read once
    assert len(query_reads) == 1


def test_a_store_that_fits_the_sample_is_read_once(X, rng):
    store, reads = counted(X, labels=np.arange(600) % 3)
    measured(store, rng.standard_normal((20, 8)), sample=600)
    assert len(reads) == 1


def test_measuring_only_cosines_takes_two_passes(X):
    store, reads = counted(X)
    counts, around = measure_cosines(
        store, settings=Settings(sample=100), progress=lambda *a: None, engine=LocalEngine()
    )
    assert len(reads) == 2
    assert counts.counts.sum() == 100 * 99 / 2
    whole = measured(X, sample=100)
    np.testing.assert_array_equal(counts.counts, whole.cosines.counts)
    np.testing.assert_array_equal(around.indices, whole.around.indices)


def test_progress_names_stages_and_never_decreases(X):
    told = []
    measured(counted(X)[0], sample=100, progress=lambda *a: told.append(a))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages[:2] == ["summing up", "partition and neighbors"]
    for stage in stages[:2]:
        shares = [share for name, _, share in told if name == stage]
        assert shares == sorted(shares)
        assert shares[-1] == 1
        assert [rows for name, rows, _ in told if name == stage][-1] == 600


# what must hold


def test_the_batch_size_does_not_matter(X):
    store, _ = counted(X)
    found, expected = measured(store, sample=150), measured(X, sample=150)
    np.testing.assert_array_equal(found.sample.rows, expected.sample.rows)
    scatter = expected.sketch.scatter
    np.testing.assert_allclose(np.diag(found.sketch.scatter), np.diag(scatter), rtol=tolerance("float64"))
    np.testing.assert_allclose(found.sketch.scatter, scatter, rtol=0, atol=1e-6 * np.diag(scatter).min())
    np.testing.assert_allclose(
        np.logaddexp.reduce(found.partition, axis=0), np.logaddexp.reduce(expected.partition, axis=0), rtol=1e-6
    )
    np.testing.assert_array_equal(found.around.indices, expected.around.indices)
    np.testing.assert_array_equal(found.cosines.counts, expected.cosines.counts)


def test_same_seed_gives_same_measurements(X):
    first, again, other = (measured(X, sample=150, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.sample.rows, again.sample.rows)
    np.testing.assert_array_equal(first.partition, again.partition)
    assert first.clusters.silhouettes == again.clusters.silhouettes
    assert (first.sample.rows != other.sample.rows).any()
    np.testing.assert_allclose(first.raw.values, other.raw.values, rtol=tolerance("float64"))  # sums see every row


def test_neighbors_are_searched_among_all_rows(X):
    found = measured(X, sample=150)
    asked = found.around.asked
    assert not found.complete
    assert found.around.n_searched == 600
    np.testing.assert_array_equal(asked, found.sample.rows)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    distances, indices = nearest_neighbors(units, 60, rows=asked)  # a tenth of all rows
    np.testing.assert_allclose(found.around.distances, distances, rtol=tolerance("float32"))
    np.testing.assert_array_equal(found.around.indices[:, :LIST_LENGTH], indices[:, :LIST_LENGTH])


def test_neighbor_lists_are_positions_within_the_sample(X):
    found = measured(X, sample=150)
    units = X[found.sample.rows] / np.linalg.norm(X[found.sample.rows], axis=1, keepdims=True)
    np.testing.assert_array_equal(found.lists.asked, np.arange(150))
    np.testing.assert_array_equal(found.lists.indices, nearest_neighbors(units, LIST_LENGTH)[1])


def test_queries_find_their_rows_in_the_store(X, rng):
    wanted = rng.choice(600, 40, replace=False)
    for sample in (100, 1000):
        found = measured(X, X[np.sort(wanted)], sample=sample).queries
        assert found.n == 40
        np.testing.assert_array_equal(found.indices[:, 0], np.sort(wanted))
        assert found.distances[:, 0].max() < 1e-3


def test_queries_find_their_rows_if_other_rows_are_dropped(X):
    X[:5] = np.nan
    found = measured(X, X[100:140], missing="drop").queries
    np.testing.assert_array_equal(found.indices[:, 0], np.arange(100, 140))


def test_a_zero_row_is_not_a_neighbor_of_queries(rng):
    X = np.zeros((60, 8))
    X[:6] = rng.standard_normal((6, 8))
    found = measured(X, rng.standard_normal((20, 8))).queries
    assert found.indices.max() < 6
    assert found.distances.max() <= 2


# how many rows ask


@pytest.mark.parametrize(
    ("n", "sample", "queries"),
    [(500, 20_000, 500), (20_000, 20_000, 20_000), (40_000, 20_000, 10_000), (10**9, 20_000, 1_000), (10**6, 100, 100)],
)
def test_number_of_query_rows_is_bounded(n, sample, queries):
    assert count_queries(n, sample) == queries


@pytest.mark.parametrize(
    ("n", "sample", "rows"),
    [(20_001, 20_000, 4_999), (50_000, 20_000, 2_000), (10**9, 20_000, 1_000), (10**6, 100, 100)],
)
def test_number_of_sampled_rows_that_search_among_all_rows_is_bounded(n, sample, rows):
    assert count_query_rows(n, sample) == rows


# errors


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"sample": 99}, "sample is 99: need at least 100"),
        ({"sample": 1e4}, "sample"),
        ({"metric": "dot"}, "metric is 'dot'"),
        ({"missing": "keep"}, "missing is 'keep'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "x"}, "seed is 'x'"),
    ],
)
def test_invalid_settings_raise_an_error(settings, complaint):
    with pytest.raises(InputError, match=complaint):
        Settings(**settings)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (np.ones((3, 5)), "3 vectors with 5 dimensions: an audit needs at least 4"),
        (np.ones((9, 1)), "9 vectors with 1 dimension"),
        (np.zeros((9, 3)), "9 of 9 vectors in array are zero"),
        (np.full((9, 3), 1e18), "norm in array is 1.73e\\+18: need .*rescale"),
        (np.full((9, 3), 1e200), "rescale"),
        (np.full((9, 3), 1e-200), "rescale"),
        (np.eye(6, 3, k=-5) + 0.0, "5 of 6 vectors in array are zero"),
        (np.full((9, 3), np.nan), "NaN"),
    ],
)
def test_invalid_shapes_raise_an_error(source, complaint):
    with pytest.raises(InputError, match=complaint):
        measured(source)


def test_queries_of_another_dimension_or_all_zero_raise_an_error(X):
    with pytest.raises(InputError, match="queries have 5 dimensions but the corpus has 8"):
        measured(X, np.ones((10, 5)))
    with pytest.raises(InputError, match="all queries in array are zero"):
        measured(X, np.zeros((10, 8)))


def test_cosines_need_two_nonzero_rows():
    with pytest.raises(InputError, match="nonzero vectors in array is 1: need at least 2"):
        measure_cosines(open_store(np.eye(1, 4)), settings=Settings(), progress=lambda *a: None, engine=LocalEngine())


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([f"row {i}" for i in range(60)], "60 rows have 60 distinct labels: need labels that several rows share"),
        (["a"] * 60, "all rows have the same label: need at least two distinct labels"),
    ],
)
def test_labels_that_form_no_groups_are_skipped_with_a_reason(X, labels, reason):
    found = measured(open_store(X[:60], labels=labels))
    assert found.label_scores is None
    assert found.skipped["labels"] == reason


def test_clusters_are_found_if_the_store_starts_with_copies(X):
    found = measured(np.concatenate([np.ones((200, 8), np.float32), X[:200]]))
    assert found.clusters is not None


def test_silhouettes_of_labels_match_given_and_shuffled_labels(X):
    labels = np.arange(600) % 3
    for metric in ("cosine", "euclidean"):
        found = measured(open_store(X[:90], labels=labels[:90]), metric=metric)
        expected = isoscope.silhouette(X[:90], labels[:90], metric=metric, per_point=True)
        np.testing.assert_allclose(found.label_scores, expected, atol=tolerance("float32"))
        assert abs(found.shuffled_scores.mean()) < 0.1


def test_a_sample_of_zero_rows_raises_an_error():
    X = np.zeros((5000, 3))
    X[:2] = np.eye(2, 3)
    with pytest.raises(InputError, match=r"4,998 of 5,000 vectors .* including nearly all of the sampled vectors"):
        measured(X, sample=100)
