"""Checks that every database must pass: reading in a fixed order, and writing by id."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope.stores.store import Batch, Store

ABOUT = {"source": "docs.npy", "repair": "9f2c", "version": "1"}


def check_reading(store: Store, vectors: np.ndarray, columns: dict[str, list[Any]]) -> None:
    """Read all rows, in batches, from the middle, by number, again and from a pickle: the rows are the same."""
    n, roles = len(vectors), list(columns)
    assert (len(store), store.dim) == vectors.shape
    for rows in (n, 7, 1000):
        batches = list(store.batches(roles, rows=rows))
        assert max(len(batch.vectors) for batch in batches) <= rows
        np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), vectors)
        for role, values in columns.items():
            assert [value for batch in batches for value in batch.columns[role].tolist()] == values
        assert batches[-1].share == 1.0
    for start in (1, n // 2, n - 1):
        batches = list(store.batches(roles, rows=11, start=start))
        assert batches[0].start == start
        np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), vectors[start:])
        assert [v for batch in batches for v in batch.columns[roles[0]].tolist()] == columns[roles[0]][start:]
    some = np.random.default_rng(3).integers(0, n, 40)
    np.testing.assert_array_equal(store.take(some), vectors[some])
    for role, values in columns.items():
        assert store.column(role).tolist() == values
        assert store.column(role, some).tolist() == [values[i] for i in some]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(store)).take(some), vectors[some])


def some_rows(ids: Any, vectors: np.ndarray, **columns: Any) -> Batch:
    """Return a batch to write."""
    values = {"ids": np.asarray(ids, None if isinstance(ids[0], int) else object)}
    values |= {name: np.asarray(each, object) for name, each in columns.items()}
    return Batch(0, vectors, values, 1.0)


def check_writing(
    destination: Callable[[], Any], reader: Callable[[], Store], vectors: np.ndarray, ids: list[Any]
) -> None:
    """Write twice, resume an interrupted run, reject another origin, and clear."""
    half = len(ids) // 2
    texts = [f"text {each}" for each in ids]
    first = destination()
    assert first.begin(vectors.shape[1], vectors.dtype, None, ABOUT) is False
    assert first.find_missing(np.asarray(ids, object if isinstance(ids[0], str) else None)).all()
    first.write(some_rows(ids[:half], vectors[:half], text=texts[:half]))
    first.write(some_rows(ids[:half], vectors[:half], text=texts[:half]))
    first.close()
    del first

    with pytest.raises(InputError, match="used another repair"):
        destination().begin(vectors.shape[1], vectors.dtype, None, {**ABOUT, "repair": "0000"})
    with pytest.warns(UserWarning, match="is incomplete"):
        assert len(reader()) == half

    again = destination()
    assert again.begin(vectors.shape[1], vectors.dtype, None, ABOUT) is True
    missing = again.find_missing(np.asarray(ids, object if isinstance(ids[0], str) else None))
    np.testing.assert_array_equal(missing, np.arange(len(ids)) >= half)
    again.write(some_rows(ids[half - 2 :], vectors[half - 2 :], text=texts[half - 2 :]))
    again.finish(len(ids))
    with pytest.raises(InputError, match="unique ids"):
        again.finish(len(ids) + 1)
    again.close()
    del again

    store = reader()
    order = np.argsort([ids.index(each) for each in store.ids.tolist()])
    assert [store.ids.tolist()[i] for i in order] == ids
    np.testing.assert_array_equal(store.take(order), vectors)
    assert store.column("text", order).tolist() == texts
    del store

    last = destination()
    assert last.begin(vectors.shape[1], vectors.dtype, None, ABOUT) is True
    last.clear()
    assert last.begin(vectors.shape[1], vectors.dtype, None, {"other": "run"}) is False
    last.write(some_rows(ids[:3], vectors[:3]))
    last.finish(3)
    last.close()
    assert len(reader()) == 3


def check_foreign_collection_is_safe(destination: Callable[[], Any], reader: Callable[[], Store]) -> None:
    """A collection that isoscope did not create is neither written nor cleared."""
    rows = len(reader())
    with pytest.raises(InputError, match="not created by isoscope"):
        destination().begin(4, np.dtype(np.float32), None, ABOUT)
    with pytest.raises(InputError, match="not created by isoscope"):
        destination().clear()
    assert len(reader()) == rows
