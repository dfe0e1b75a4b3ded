"""Spans that are pickled and read again give the rows, columns, row numbers and tables of the store."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isoscope
from isoscope.stores import store as whole_stores
from isoscope.stores.open import open_store
from isoscope.stores.shards import spans
from tests.stores.conftest import FORMATS, Cloud, D, N, arrow_table


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Batches of 70 rows, so that a store of 1,000 has several spans."""
    monkeypatch.setattr(whole_stores, "_MOST_ROWS", 70)


def sent(span):
    return pickle.loads(pickle.dumps(span))


def read(store, parts):
    """Return the batches of all spans after pickling."""
    roles = [*store.columns]
    batches = [batch for part in parts for batch in sent(part).numbered_batches(roles)]
    ends = [0, *np.cumsum([len(batch.vectors) for batch in batches])]
    assert [batch.start for batch in batches] == ends[:-1]
    return np.concatenate([b.vectors for b in batches]), {
        role: np.concatenate([b.columns[role] for b in batches]) for role in roles
    }


def beside(store):
    """Return the other columns of the table."""
    layout = store.layout()
    return None if layout is None else (layout.vectors, str(layout.others))


def same(store, parts):
    """Check that the spans give the same as the store."""
    assert sum(map(len, parts)) == len(store)
    assert [part.first for part in parts] == [0, *np.cumsum([len(part) for part in parts])[:-1]]
    assert all(len(part) for part in parts)
    vectors, columns = read(store, parts)
    np.testing.assert_array_equal(vectors, np.concatenate([*store.chunks()]))
    assert vectors.dtype == store.dtype
    for role, values in columns.items():
        np.testing.assert_array_equal(values, store.column(role))
    assert {beside(sent(part)) for part in parts} == {beside(store)}
    for part in parts:
        shares = [batch.share for batch in sent(part).batches()]
        assert shares == sorted(shares)
        assert shares[-1] == 1
        some = np.unique([0, len(part) // 2, len(part) - 1])
        np.testing.assert_array_equal(sent(part).take(some), store.take(part.first + some))


@pytest.mark.parametrize("form", FORMATS, ids=repr)
def test_every_format(form, written):
    store = open_store(written(form))
    same(store, spans(store, 100 * D * store.dtype.itemsize, other_columns=True))
    more = store.with_column("labels", np.arange(N) % 7).with_column("by", np.arange(N) // 50)
    same(more, spans(more, 150 * D * store.dtype.itemsize, other_columns=True))


@pytest.mark.parametrize("form", FORMATS, ids=repr)
def test_every_format_without_a_column_and_mapped(form, written):
    store = open_store(written(form)).without("text").mapped(np.negative, D)
    same(store, spans(store, 100 * D * store.dtype.itemsize, other_columns=True))


@pytest.mark.parametrize("kind", ["array", "pyarrow", "pandas", "polars"])
def test_stores_in_memory(truth, kind):
    table = arrow_table(truth, "list").append_column("price", [np.arange(N) * 1.5])
    if kind == "pandas":
        source = table.to_pandas()
    elif kind == "polars":
        source = pytest.importorskip("polars").from_arrow(table)
    else:
        source = truth.vectors if kind == "array" else table
    store = open_store(source)
    parts = spans(store, 100 * D * 4, other_columns=True)
    same(store, parts)
    if kind == "array":
        return
    tables = [batch.other_columns for part in parts for batch in sent(part).batches(other_columns=True)]
    assert [price for each in tables for price in each.column("price").to_pylist()] == [1.5 * i for i in range(N)]


def write_shards(folder, lengths, dtypes, groups):
    """Write Parquet files with row groups of unequal size, in two precisions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    first = 0
    for i, (length, dtype) in enumerate(zip(lengths, dtypes, strict=True)):
        rows = np.arange(first, first + length)
        flat = (rows[:, None] * 3 + np.arange(3)).astype(dtype).ravel()
        table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(flat, 3), "label": rows % 5})
        with pq.ParquetWriter(folder / f"{i}.parquet", table.schema) as file:
            for start in range(0, length, groups):
                file.write_table(table.slice(start, groups))
                file.write_table(table.slice(0, 0))
        first += length
    return folder


@given(
    shards=st.lists(st.tuples(st.integers(1, 25), st.sampled_from(["f4", "f8"])), min_size=1, max_size=4),
    groups=st.integers(1, 12),
    rows=st.integers(1, 30),
)
def test_shards_with_odd_and_empty_row_groups(tmp_path_factory, shards, groups, rows):
    lengths, dtypes = zip(*shards, strict=True)
    folder = write_shards(tmp_path_factory.getbasetemp() / "odd", lengths, dtypes, groups)
    store = open_store(folder)
    parts = spans(store, rows * 3 * store.dtype.itemsize, other_columns=True)
    same(store, parts)


def test_spans_do_not_depend_on_the_memory_limit(tmp_path, monkeypatch):
    monkeypatch.undo()
    np.save(tmp_path / "a.npy", np.zeros((300_000, 96), np.float32))
    store = open_store(tmp_path / "a.npy")
    free = [len(span) for span in spans(store, 2**24)]
    with isoscope.memory_limit("230MB"):
        assert [len(span) for span in spans(store, 2**24)] == free


@pytest.mark.parametrize("ending", ["npy", "parquet", "npz"])
def test_changed_file_raises(truth, tmp_path, ending):
    from tests.stores.conftest import write_npy, write_npz, write_parquet

    write = {"npy": write_npy, "parquet": write_parquet, "npz": write_npz}[ending]
    write(truth, tmp_path / f"a.{ending}")
    part = pickle.dumps(spans(open_store(tmp_path / f"a.{ending}"))[0])
    write(Cloud(truth.vectors[:400], truth.labels[:400], truth.words[:400]), tmp_path / f"a.{ending}")
    with pytest.raises(isoscope.InputError, match=rf"a\.{ending} changed while it was being read"):
        np.concatenate([*pickle.loads(part).chunks()])


def test_file_in_memory_is_not_copied_before_sending():
    rows = np.zeros((1000, 50), np.float32)
    assert all(np.shares_memory(batch.vectors, rows) for span in spans(open_store(rows)) for batch in span.batches())


def test_database_table_is_sent_without_its_columns(truth, tmp_path):
    lancedb = pytest.importorskip("lancedb", reason="LanceDB is not installed")
    lancedb.connect(tmp_path).create_table("docs", arrow_table(truth))
    store = open_store(f"lancedb:{tmp_path}#docs")
    parts = spans(store, 100 * D * 4)
    np.testing.assert_array_equal(read(store, parts)[0], truth.vectors)
    with pytest.raises(isoscope.InputError, match="omit the engine, or write only the vectors"):
        sent(spans(store, 100 * D * 4, other_columns=True)[0])
