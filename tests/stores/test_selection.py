"""Selecting one layer of hidden states: every way of reading gives the rows of that layer and no others."""

from __future__ import annotations

import copy

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import isoscope
from isoscope._core.errors import NotFoundError, ParameterError
from isoscope.engines.engine import sketch
from isoscope.stores import open_store
from isoscope.stores.selection import SelectedStore, list_layers, select_layer

TEXTS, LAYERS = 50, (0, 3, 6)


@pytest.fixture
def states(tmp_path, rng):
    """Return a folder of hidden states in several files, whose layers do not start at file boundaries."""
    n = TEXTS * len(LAYERS)
    X = rng.standard_normal((n, 6)).astype(np.float32)
    texts = np.tile(np.arange(TEXTS), len(LAYERS))
    columns = {
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 6),
        "layer": np.repeat(LAYERS, TEXTS),
        "document": texts,
        "id": [f"d{i}" for i in texts],
        "label": [f"l{i % 4}" for i in texts],
        "note": [f"n{i}" for i in range(n)],
    }
    table = pa.table(columns)
    for part, start in enumerate(range(0, n, 40)):
        pq.write_table(table.slice(start, 40), tmp_path / f"part-{part}.parquet", row_group_size=15)
    return tmp_path, X


def test_all_ways_of_reading_give_the_layer(states):
    folder, X = states
    for layer, place in ((0, 0), (3, 1), (-1, 2), (6, 2)):
        rows = X[place * TEXTS : (place + 1) * TEXTS]
        store = open_store(folder, layer=layer)
        assert (len(store), store.dim, store.layer) == (TEXTS, 6, LAYERS[place])
        for size in (1, 7, 1_000):
            np.testing.assert_array_equal(np.concatenate([b.vectors for b in store.batches(rows=size)]), rows)
        for start in (0, 9, TEXTS - 1):
            batches = list(store.batches(["ids"], rows=8, start=start, other_columns=True))
            np.testing.assert_array_equal(np.concatenate([b.vectors for b in batches]), rows[start:])
            assert batches[0].start == start
            assert np.concatenate([b.columns["ids"] for b in batches])[0] == f"d{start}"
            notes = [note for b in batches for note in b.other_columns.column("note").to_pylist()]
            assert notes == [f"n{place * TEXTS + i}" for i in range(start, TEXTS)]
            assert batches[-1].share == 1
        np.testing.assert_array_equal(store.take([4, 0, 4]), rows[[4, 0, 4]])
        assert store.ids[[0, 49]].tolist() == ["d0", "d49"]
        assert store.column("labels", [5, 2]).tolist() == ["l1", "l2"]
        assert sketch(store).n == TEXTS
        np.testing.assert_allclose(sketch(store).mean, rows.mean(axis=0), atol=1e-6)


def test_slices_for_other_processes(states):
    folder, X = states
    store = open_store(folder, layer=3).with_column("types", [f"t{i}" for i in range(TEXTS)])
    part, start = store.slice(20, 31)
    batches = list(part.batches(["types", "labels"], rows=5, start=start))
    np.testing.assert_array_equal(np.concatenate([b.vectors for b in batches])[:11], X[TEXTS + 20 : TEXTS + 31])
    assert np.concatenate([b.columns["types"] for b in batches])[0] == "t20"
    assert len(copy.copy(part)) == len(part)


def test_given_values_have_one_entry_per_row_of_the_layer(states):
    store = open_store(states[0], layer=6, labels=np.arange(TEXTS))
    assert store.labels.tolist() == list(range(TEXTS))
    assert isoscope.audit(store).n == TEXTS


def test_missing_values_are_dropped_within_a_layer(tmp_path, rng):
    X = rng.standard_normal((40, 4)).astype(np.float32)
    X[25] = np.nan
    columns = {"vector": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 4)}
    columns |= {"layer": np.repeat([0, 1], 20), "document": np.tile(np.arange(20), 2)}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    store = open_store(tmp_path / "x.parquet", layer=1, missing="drop")
    assert sketch(store, missing="drop").n == 19
    assert isoscope.audit(store, missing="drop").n == 19


def test_layers_of_other_stores(states, rng):
    assert list_layers(open_store(states[0])) == list(LAYERS)
    plain = open_store(rng.standard_normal((9, 3)))
    assert list_layers(plain) == []
    with pytest.raises(ParameterError, match="does not contain hidden states of layers"):
        open_store(plain, layer=0)
    with pytest.raises(NotFoundError, match="no layer 5: it has layers 0, 3, 6"):
        open_store(states[0], layer=5)
    with pytest.raises(NotFoundError, match="no layer -4"):
        open_store(states[0], layer=-4)
    one = open_store(states[0], layer=3)
    assert isinstance(one, SelectedStore)
    assert select_layer(one, 3) is one
