"""Rows in memory: those that a task names, and a uniform sample that does not depend on batches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from isoscope import InputError, open_store
from isoscope._core.errors import NotFoundError
from isoscope.advising.matching import Match, check_known, find_rows
from isoscope.advising.task import read_rows
from isoscope.engines.engine import LocalEngine
from isoscope.stores import store as stores
from isoscope.stores.store import Batch
from tests.advising.conftest import silent

NONE = np.empty(0, np.int64)


@pytest.fixture
def cloud_of_300(rng):
    return rng.standard_normal((300, 4))


@pytest.mark.parametrize(("needed", "size", "sampled"), [(0, 100, 100), (40, 100, 100), (150, 100, 100), (7, 999, 300)])
def test_needed_rows_and_a_sample_of_the_requested_size(cloud_of_300, rng, needed, size, sampled):
    named = rng.choice(300, needed, replace=False)
    rows = read_rows(open_store(cloud_of_300), np.tile(named, 2), size, 0, silent)
    assert rows.sampled.sum() == sampled
    assert set(rows.numbers) == set(named) | set(rows.numbers[rows.sampled])
    assert rows.total == 300
    np.testing.assert_allclose(rows.sketch.mean, cloud_of_300.mean(axis=0), atol=1e-12)
    assert set(named) <= set(rows.numbers)
    assert (np.diff(rows.numbers) > 0).all()
    np.testing.assert_array_equal(rows.vectors, cloud_of_300[rows.numbers])
    np.testing.assert_array_equal(rows.numbers[rows.places(named)], named)


def test_rows_do_not_depend_on_the_reading_method(cloud_of_300, rng, monkeypatch):
    named = rng.choice(300, 20, replace=False)
    store = open_store(cloud_of_300)
    whole = read_rows(store, named, 100, 5, silent)
    monkeypatch.setattr(stores, "_MOST_ROWS", 7)
    pieces = read_rows(store, named, 100, 5, silent)
    np.testing.assert_array_equal(whole.numbers, pieces.numbers)
    np.testing.assert_array_equal(whole.vectors, pieces.vectors)
    assert not np.array_equal(whole.numbers, read_rows(store, named, 100, 6, silent).numbers)


def test_processes_that_read_parts_find_the_same_rows(cloud_of_300, rng):
    cloud_of_300[4], cloud_of_300[250] = np.nan, 0
    store = open_store(cloud_of_300, missing="drop")
    named = np.sort(rng.choice(np.arange(5, 300), 20, replace=False))
    whole = read_rows(store, named, 100, 5, silent)

    class TwoProcesses(LocalEngine):
        def tally(self, tally, store, progress=silent, stage="reading"):
            empty, parts = pickle.dumps(tally), []
            for first, stop in ((0, 110), (110, 300)):
                part = pickle.loads(empty)
                part.expect(300)
                part.narrow(tally.share(first, stop - first))
                assert ((part.needed >= first) & (part.needed < stop)).all()
                batches = [Batch(first, cloud_of_300[first:stop], {}, 1.0)]
                parts.append(pickle.dumps(part.add_batches(batches).partial_result()))
            for part in parts:
                tally.join(pickle.loads(part))
            return tally

    parts = read_rows(store, named, 100, 5, silent, TwoProcesses())
    for field in ("vectors", "numbers", "sampled", "total", "dropped"):
        np.testing.assert_array_equal(getattr(whole, field), getattr(parts, field))
    np.testing.assert_allclose(parts.sketch.covariance(), whole.sketch.covariance(), atol=1e-12)
    assert (parts.total, parts.dropped) == (299, 1)


def test_sample_does_not_depend_on_the_needed_rows(cloud_of_300):
    """Repairs are fitted to it: rows with judgments must not be overrepresented."""
    counts = np.zeros(300)
    for seed in range(100):
        rows = read_rows(open_store(cloud_of_300), np.arange(50), 100, seed, silent)
        alone = read_rows(open_store(cloud_of_300), NONE, 100, seed, silent)
        np.testing.assert_array_equal(rows.numbers[rows.sampled], alone.numbers)
        counts += np.bincount(alone.numbers, minlength=300)
    assert counts.mean() == pytest.approx(100 / 3)
    assert counts.max() < 60


def test_nonfinite_row_is_named(cloud_of_300, monkeypatch):
    monkeypatch.setattr(stores, "_MOST_ROWS", 50)
    cloud_of_300[123, 2] = np.nan
    with pytest.raises(InputError, match="first in row 123"):
        read_rows(open_store(cloud_of_300), NONE, 100, 0, silent)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.float32, np.float64])
def test_precision_is_at_least_single(cloud_of_300, dtype):
    rows = read_rows(open_store((9 * cloud_of_300).astype(dtype)), NONE, 100, 0, silent)
    assert rows.vectors.dtype == (np.float64 if dtype == np.float64 else np.float32)


# names


def found(store, names):
    return [None if row < 0 else int(row) for row in find_rows(store, names, "the pairs").rows]


def test_ids_may_be_text_or_numbers():
    X = np.zeros((4, 2))
    ids, text = [10, 11, 12, 13], ["a", "b", "a", "11"]
    assert found(open_store(X, ids=ids), ["12", "10", "12"]) == [2, 0, 2]
    assert found(open_store(X, ids=["x", "y", "z", "w"]), ["y", "1"]) == [1, None]  # ids are never row numbers
    assert found(open_store(X, text=text), ["b", "a"]) == [1, 0]  # the first of equals
    assert found(open_store(X, ids=ids, text=text), ["11"]) == [1]  # ids go first
    assert found(open_store(X, ids=ids, text=text), ["b", "a"]) == [1, 0]
    assert found(open_store(X, text=text), ["3", "0"]) == [3, 0]
    assert found(open_store(X), ["3", "0"]) == [3, 0]
    assert found(open_store(X), ["2", "1"]) == [2, 1]
    assert find_rows(open_store(X), ["2", "1"], "the pairs").may_count_from_1
    assert not find_rows(open_store(X), ["2", "0"], "the pairs").may_count_from_1
    assert not find_rows(open_store(X, ids=ids), ["12"], "the pairs").may_count_from_1


@pytest.mark.parametrize("odd", ["4", "-1", "1.0", "x", "²", "01", "9" * 30])
def test_without_ids_every_name_must_be_a_row_number(odd):
    with pytest.raises(NotFoundError, match="has no ids, and its rows are numbered from 0 to 3: pass the ids") as error:
        find_rows(open_store(np.zeros((4, 2))), ["3", "0", odd], "the pairs")
    assert "missing" not in str(error.value)


def test_numbers_from_1_to_n_are_refused():
    with pytest.raises(NotFoundError, match="numbers from 1 to 4, but array has no ids, and its rows are numbered"):
        find_rows(open_store(np.zeros((4, 2))), ["3", "1", "4"], "the qrels")


def test_unknown_names_are_counted_once_and_the_first_is_shown():
    store = open_store(np.zeros((4, 2)), ids=list("abcd"))
    names = ["a", "zz", "zz", "y"]
    with pytest.raises(
        InputError, match=r"the pairs refer to 2 rows that .* does not contain .compared with its ids., such as 'zz'"
    ):
        check_known(names, find_rows(store, names, "the pairs"), "the pairs", store)
    check_known(["a"], find_rows(store, ["a"], "the pairs"), "the pairs", store)


def test_long_name_is_truncated():
    store = open_store(np.zeros((2, 2)), text=["a", "b"])
    with pytest.raises(InputError) as error:
        check_known(["x" * 500], Match(np.asarray([-1]), "texts"), "the pairs", store)
    assert len(str(error.value)) < 300
