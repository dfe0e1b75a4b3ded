"""A table of LanceDB is read as it was filled, one version of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from isoscope._core.errors import DataWarning, InputError
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.lance import open_lance
from tests.stores.databases.contract import reads_as_one_cloud

lancedb = pytest.importorskip("lancedb")

N, D = 300, 8
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)
COLUMNS = {
    "ids": [f"doc '{i}'" for i in range(N)],
    "text": [f"text {i}" for i in range(N)],
    "labels": [i % 3 for i in range(N)],
}


def lists(vectors, gone=(), kind=None):
    rows = [None if i in gone else row for i, row in enumerate(vectors.tolist())]
    return pa.array(rows, kind or pa.list_(pa.from_numpy_dtype(vectors.dtype), vectors.shape[1]))


def table(vectors=None):
    vectors = lists(VECTORS) if vectors is None else vectors
    others = {"id": COLUMNS["ids"], "text": COLUMNS["text"], "label": COLUMNS["labels"]}
    return pa.table({**others, "vector": vectors, "when": pa.array(range(len(vectors)), pa.timestamp("ms"))})


@pytest.fixture
def database(tmp_path):
    return lancedb.connect(tmp_path)


@pytest.fixture
def door(tmp_path):
    return f"lancedb:{tmp_path}"


def opened(where, /, **wanted):
    return open_lance(parse_address(where), ColumnSpec(wanted.pop("vectors", None), wanted))


def test_a_table_of_many_fragments_is_one_cloud(database, door, monkeypatch):
    from isoscope.stores.databases import lance

    monkeypatch.setattr(lance, "_PIECE", 64)
    monkeypatch.setattr(lance, "_ROWS_PER_LOOKUP", 16)
    made = database.create_table("docs", table().slice(0, 100))
    made.add(table().slice(100, 17))
    made.add(table().slice(117))
    reads_as_one_cloud(opened(f"{door}#docs"), VECTORS, COLUMNS)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_precision_is_the_tables(database, door, dtype):
    database.create_table("docs", table(lists(VECTORS.astype(dtype))))
    store = opened(f"{door}#docs")
    assert store.dtype == dtype
    np.testing.assert_array_equal(store.take(np.arange(N)), VECTORS.astype(dtype))


def test_what_is_written_after_opening_is_not_read(database, door):
    made = database.create_table("docs", table())
    store = opened(f"{door}#docs")
    made.add(table())
    made.delete("label = 1")
    reads_as_one_cloud(store, VECTORS, COLUMNS)


def test_deleted_rows_are_not_there(database, door):
    database.create_table("docs", table()).delete("label = 1")
    kept = np.arange(N) % 3 != 1
    columns = {role: [values[i] for i in np.flatnonzero(kept)] for role, values in COLUMNS.items()}
    reads_as_one_cloud(opened(f"{door}#docs"), VECTORS[kept], columns)


def test_every_column_stands_beside(database, door):
    database.create_table("docs", table())
    store = opened(f"{door}#docs")
    assert store.layout().schema.names == ["id", "text", "label", "vector", "when"]
    beside = pa.Table.from_batches([batch.other_columns for batch in store.batches(rows=70, other_columns=True)])
    assert beside.equals(table().drop_columns(["vector"]))


@pytest.mark.parametrize("fixed", [True, False])
def test_rows_without_a_vector_are_counted_and_left_out_if_asked(database, door, fixed, monkeypatch):
    from isoscope.stores.databases import lance

    monkeypatch.setattr(lance, "_PIECE", 64)
    gone = [2, 63, 64, 65, 299]
    vectors = lists(VECTORS, gone, None if fixed else pa.list_(pa.float32()))
    if not fixed:
        rows = vectors.to_pylist()
        rows[2], rows[64] = [1.0], []
        vectors = pa.array(rows, pa.list_(pa.float32()))
    database.create_table("docs", table(vectors).rename_columns({"vector": "emb"}))  # LanceDB refuses by name
    with pytest.raises(InputError, match=r"in 5 of 300 rows, the first has the id doc '2': .*\?missing=drop"):
        opened(f"{door}#docs")
    with pytest.warns(DataWarning, match="in 5 of 300 rows"):
        store = opened(f"{door}#docs?missing=drop")
    kept = np.delete(np.arange(N), gone)
    columns = {role: [values[i] for i in kept] for role, values in COLUMNS.items()}
    reads_as_one_cloud(store, VECTORS[kept], columns)


def test_a_column_with_a_strange_name_is_quoted(database, door):
    odd = table(lists(VECTORS, [0])).rename_columns({"vector": "my Emb's"})
    database.create_table("docs", odd)
    with pytest.raises(InputError, match="no my Emb's in 1 of 300 rows"):
        opened(f"{door}#docs", vectors="my Emb's")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("#dosc", "does not exist: is it docs"),
        ("", "says no table: need .*#NAME; it has docs, empty"),
        ("#empty", "has no rows"),
        ("#docs?column=x", "column= is not an option here"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(database, door, name, message):
    database.create_table("docs", table())
    database.create_table("empty", schema=table().schema)
    with pytest.raises(InputError, match=message):
        opened(door + name)
    with pytest.raises(InputError, match="has nothing named vektor; choose from vector"):
        opened(f"{door}#docs", vectors="vektor")


def test_a_path_that_is_no_folder_of_lancedbs_stays_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a folder of LanceDB's"):
        opened(f"lancedb:{tmp_path}#docs")
    with pytest.raises(InputError, match="does not exist: need the folder"):
        opened(f"lancedb:{tmp_path}/nowhere#docs")
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_table_is_said(database, door, tmp_path):
    database.create_table("docs", table())
    store = opened(f"{door}#docs")
    for file in (tmp_path / "docs.lance" / "data").iterdir():
        file.write_bytes(b"gone")
    with pytest.raises(InputError, match="may be damaged, or out of reach"):
        list(opened(f"{door}#docs").chunks())
    assert len(store) == N
