"""The passes: batches of any size give the numbers of all rows at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

import isoscope
from isoscope._core.pairs import NeighborSearch, nearest_neighbors
from isoscope.auditing import passes
from isoscope.auditing.measure import Settings
from isoscope.auditing.passes import (
    JACKKNIFE_GROUPS,
    Axes,
    NeighborTally,
    PartitionTally,
    RowScaling,
    first_pass,
    second_pass,
)
from isoscope.engines.engine import LocalEngine, Tally
from isoscope.stores.open import open_store
from isoscope.stores.store import Batch
from tests.conftest import DTYPES, rotation, tolerance

CLOUDS = {
    "tall": lambda rng: rng.standard_normal((100, 7)) * np.linspace(0.5, 1.5, 7),
    "cone": lambda rng: rng.standard_normal((100, 7)) + 2,
    "wide": lambda rng: rng.standard_normal((20, 50)) / 3,
    "long": lambda rng: 200 * rng.standard_normal((100, 7)),
    "longer": lambda rng: 1e5 * (rng.standard_normal((60, 5)) + 1),
    "few": lambda rng: rng.standard_normal((5, 3)),
    "square": lambda rng: rng.standard_normal((12, 12)),
}


@pytest.fixture(params=CLOUDS)
def X(request, rng):
    return CLOUDS[request.param](rng)


def silent(stage, rows, share):
    pass


def chunks(X, size):
    """Yield X in batches of this many rows."""
    return (Batch(i, X[i : i + size], {}, 0.0) for i in range(0, len(X), size))


def partition(sketch, raw, batches):
    return PartitionTally(sketch, raw).add_batches(batches).log_partitions()


def logs_of(X, size):
    sketch = isoscope.sketch(X)
    raw = Axes.of(sketch.scatter + sketch.n * np.outer(sketch.mean, sketch.mean))
    return partition(sketch, raw, chunks(X, size))[0], raw


# the partition function


@pytest.mark.parametrize("size", [1, 13, 16, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_partition_function_covers_all_rows(X, size, dtype):
    X = X.astype(dtype)
    total = np.logaddexp.reduce(logs_of(X, size)[0], axis=0)
    expected = float(isoscope.partition_isotropy(X.astype(np.float64), log=True))
    assert total.min() - total.max() == pytest.approx(expected, rel=tolerance(dtype), abs=tolerance(dtype))


@pytest.mark.parametrize("size", [13, 1000])
def test_second_partition_function_uses_unit_rms_length(X, size):
    sketch = isoscope.sketch(X)
    raw = Axes.of(X.T @ X)
    total = np.logaddexp.reduce(partition(sketch, raw, chunks(X, size))[1], axis=0)
    expected = float(isoscope.partition_isotropy(X / np.sqrt((X**2).sum() / len(X)), log=True))
    assert total.min() - total.max() == pytest.approx(expected, rel=tolerance("float64"), abs=tolerance("float64"))


@pytest.mark.parametrize("size", [1, 13, 1000])
@pytest.mark.parametrize("name", CLOUDS)
def test_each_group_of_rows_has_its_own_sums(name, size, rng):
    X = CLOUDS[name](rng)
    logs, raw = logs_of(X, size)
    directions = raw.vectors if len(X) >= X.shape[1] else raw.vectors[:, : len(X)]
    for group in range(JACKKNIFE_GROUPS):
        rows = X[group::JACKKNIFE_GROUPS] @ directions
        expected = logsumexp(np.concatenate([rows, -rows], axis=1), axis=0) if len(rows) else -np.inf
        np.testing.assert_allclose(
            logs[group][: 2 * directions.shape[1]], expected, rtol=tolerance("float64"), atol=1e-6
        )


def test_a_direction_orthogonal_to_all_rows_counts_the_rows(rng):
    logs, _ = logs_of(rng.standard_normal((20, 50)), 7)
    assert logs.shape == (JACKKNIFE_GROUPS, 2 * 20 + 1)
    np.testing.assert_allclose(np.exp(logs[:, -1]), [2] * 4 + [1] * 12)


@pytest.mark.parametrize("size", [5, 1000])
def test_the_partition_function_ignores_non_finite_rows(rng, size):
    X = rng.standard_normal((60, 4))
    Y = np.insert(X, [3, 20, 20], np.nan, axis=0)
    sketch = isoscope.sketch(X)
    raw = Axes.of(X.T @ X)
    found, expected = (np.logaddexp.reduce(partition(sketch, raw, chunks(Z, size))[0], axis=0) for Z in (Y, X))
    np.testing.assert_allclose(found, expected, rtol=tolerance("float64"))


def test_a_batch_without_finite_rows_is_ignored(rng):
    X = rng.standard_normal((60, 4))
    Y = np.insert(X, [20] * 20, np.nan, axis=0)
    sketch, raw = isoscope.sketch(X), Axes.of(X.T @ X)
    found, expected = (np.logaddexp.reduce(partition(sketch, raw, chunks(Z, 20))[0], axis=0) for Z in (Y, X))
    np.testing.assert_allclose(found, expected, rtol=tolerance("float64"))


# principal directions


def test_axes_match_numpy_largest_first(rng):
    Y = rng.standard_normal((40, 6)) / np.arange(1, 7)
    values, vectors = Axes.of(Y.T @ Y)
    np.testing.assert_allclose(values, np.linalg.svd(Y, compute_uv=False) ** 2, rtol=tolerance("float64"))
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, Y.T @ Y, atol=1e-9)
    assert (Axes.of(np.outer(Y[0], Y[0])).values >= 0).all()


# the first pass


def test_first_pass_gives_the_sketch_and_a_sample_with_columns(tmp_path, rng):
    X, labels = rng.standard_normal((300, 5)).astype(np.float32), np.arange(300) % 7
    told = []
    store = open_store(X, labels=labels, types=labels % 2, text=[f"row {i}" for i in range(300)])
    found = first_pass(
        LocalEngine(), store, Settings(seed=3), lambda *a: told.append(a), "reading", columns=store.columns, size=50
    )
    expected = isoscope.sketch(X, types=labels % 2)
    np.testing.assert_allclose(found.sketch.scatter, expected.scatter, rtol=tolerance("float64"))
    assert found.types.inter == pytest.approx(expected.inter_similarity(), rel=tolerance("float64"))
    assert found.types.intra == pytest.approx(expected.intra_similarity(), rel=tolerance("float64"))
    np.testing.assert_array_equal(found.types.counts, expected.types.counts)
    assert found.n_dropped_types == 0
    assert len(found.sample) == 50
    np.testing.assert_array_equal(found.sample.columns["labels"], labels[found.sample.rows])
    assert found.sample.columns["text"].tolist() == [f"row {i}" for i in found.sample.rows]
    assert told[-1] == ("reading", 300, 1.0)


@pytest.mark.parametrize("allowed", [1, 100, 250])
def test_too_many_types_are_dropped_and_counted(rng, monkeypatch, allowed):
    monkeypatch.setattr(passes, "_TYPE_BYTES", allowed * 5 * 16)
    X = rng.standard_normal((300, 5))

    class Pieces(type(open_store(X))):
        def batches(self, columns=(), rows=None):
            return super().batches(columns, 50)

    store = open_store(X, types=np.arange(300))
    store.__class__ = Pieces
    found = first_pass(LocalEngine(), store, Settings(seed=3), silent, "", columns=store.columns, size=50)
    assert found.types.rows == 50  # of the sample
    assert found.n_dropped_types == 50 * (allowed // 50 + 1)
    assert found.sketch.n == 300
    np.testing.assert_array_equal(found.sample.columns["types"], found.sample.rows)


def test_a_store_without_finite_rows_raises_an_error():
    store = open_store(np.full((5, 3), np.nan))
    with pytest.raises(isoscope.InputError, match="no finite rows"):
        first_pass(LocalEngine(), store, Settings(missing="drop"), silent, "", size=50)


class Seen(Tally):
    """A tally of all rows, in the order in which they arrive."""

    def __init__(self):
        self.rows = []

    def summarize(self, item):
        return item.vectors

    def add(self, part):
        self.rows.append(part)


@pytest.mark.parametrize("size", [200, 100])
def test_second_pass_reads_only_the_sample_if_it_has_all_rows(rng, size):
    X = rng.standard_normal((150, 5))
    store = open_store(X)
    first = first_pass(LocalEngine(), store, Settings(), silent, "", size=size)
    store.batches = None if size == 200 else store.batches  # it is not asked for what is held
    told = []
    seen = Seen()
    second_pass(LocalEngine(), seen, store, first.sample, 150, lambda *a: told.append(a), "again")
    np.testing.assert_array_equal(np.concatenate(seen.rows), X)
    assert told[-1] == ("again", 150, 1.0)


# neighbors


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e15])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_neighbors_do_not_depend_on_batches_or_scale(rng, metric, scale):
    X = (scale * (rng.standard_normal((200, 6)) + 1)).astype(np.float32)
    placed = RowScaling(metric, isoscope.sketch(X))
    asked = np.array([3, 50, 199])
    search = NeighborSearch(placed(X[asked]), 5, center=placed.center, own=asked)
    NeighborTally([search], placed).add_batches(chunks(X, 37))
    distances, indices = search.results()
    unit = X / np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    expected = nearest_neighbors((unit if metric == "cosine" else X / scale).astype(np.float64), 5, rows=asked)
    np.testing.assert_array_equal(indices, expected[1])
    length = 1 if metric == "cosine" else scale
    np.testing.assert_allclose(distances * placed.unit / length, expected[0], rtol=tolerance("float32"))


@pytest.mark.parametrize(("metric", "found"), [("cosine", [1, 4]), ("euclidean", [1, 2])])
def test_zero_rows_by_cosine_and_nan_rows_are_never_neighbors(metric, found):
    X = np.array([[1.0, 1], [2, 1], [0, 0], [np.nan, 1], [5, 1]])
    placed = RowScaling(metric, isoscope.sketch(X, missing="drop"))
    assert placed.usable(X).tolist() == [True, True, metric == "euclidean", False, True]
    search = NeighborSearch(placed(X[:1]), 2, center=placed.center, own=np.array([0]))
    NeighborTally([search], placed).add_batches(chunks(X, 2))
    assert sorted(search.results()[1][0].tolist()) == found


def test_rotation_preserves_neighbors(rng):
    X = rng.standard_normal((80, 5)) + 1
    answers = []
    for Y in (X, X @ rotation(5, rng)):
        placed = RowScaling("cosine", isoscope.sketch(Y))
        search = NeighborSearch(placed(Y[:10]), 4, center=placed.center, own=np.arange(10))
        NeighborTally([search], placed).add_batches(chunks(Y, 11))
        answers.append(search.results())
    np.testing.assert_array_equal(answers[0][1], answers[1][1])
    np.testing.assert_allclose(answers[0][0], answers[1][0], rtol=tolerance("float64"))
