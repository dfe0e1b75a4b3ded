"""LanceDB tables are read completely and in order, in one version."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from isoscope._core.errors import DataWarning, InputError
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.lance import open_lance
from tests.stores.databases.contract import check_reading

lancedb = pytest.importorskip("lancedb")

N, D = 300, 8
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)
COLUMNS = {
    "ids": [f"doc '{i}'" for i in range(N)],
    "text": [f"text {i}" for i in range(N)],
    "labels": [i % 3 for i in range(N)],
}


def lists(vectors, gone=(), kind=None):
    rows = [None if i in gone else row for i, row in enumerate(vectors)]
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


def test_table_of_many_fragments_is_read_in_order(database, door, monkeypatch):
    from isoscope.stores.databases import lance

    monkeypatch.setattr(lance, "_PIECE", 64)
    monkeypatch.setattr(lance, "_ROWS_PER_LOOKUP", 16)
    made = database.create_table("docs", table().slice(0, 100))
    made.add(table().slice(100, 17))
    made.add(table().slice(117))
    check_reading(opened(f"{door}#docs"), VECTORS, COLUMNS)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_precision_matches_the_table(database, door, dtype):
    database.create_table("docs", table(lists(VECTORS.astype(dtype))))
    store = opened(f"{door}#docs")
    assert store.dtype == dtype
    np.testing.assert_array_equal(store.take(np.arange(N)), VECTORS.astype(dtype))


def test_rows_written_after_opening_are_not_read(database, door):
    made = database.create_table("docs", table())
    store = opened(f"{door}#docs")
    made.add(table())
    made.delete("label = 1")
    check_reading(store, VECTORS, COLUMNS)


def test_deleted_rows_are_not_read(database, door):
    database.create_table("docs", table()).delete("label = 1")
    kept = np.arange(N) % 3 != 1
    columns = {role: [values[i] for i in np.flatnonzero(kept)] for role, values in COLUMNS.items()}
    check_reading(opened(f"{door}#docs"), VECTORS[kept], columns)


def test_every_column_is_read(database, door):
    database.create_table("docs", table())
    store = opened(f"{door}#docs")
    assert store.layout().schema.names == ["id", "text", "label", "vector", "when"]
    beside = pa.Table.from_batches([batch.other_columns for batch in store.batches(rows=70, other_columns=True)])
    assert beside.equals(table().drop_columns(["vector"]))


@pytest.mark.parametrize("fixed", [True, False])
def test_rows_without_vector_raise_or_are_dropped(database, door, fixed, monkeypatch):
    from isoscope.stores.databases import lance

    monkeypatch.setattr(lance, "_PIECE", 64)
    gone = [2, 63, 64, 65, 299]
    vectors = lists(VECTORS, gone, None if fixed else pa.list_(pa.float32()))
    if not fixed:
        rows = vectors.to_pylist()
        rows[2], rows[64] = [1.0], []
        vectors = pa.array(rows, pa.list_(pa.float32()))
    database.create_table("docs", table(vectors).rename_columns({"vector": "emb"}))  # LanceDB refuses by name
    with pytest.raises(InputError, match=r"5 of 300 rows .* id doc '2': .*missing=drop"):
        opened(f"{door}#docs")
    with pytest.warns(DataWarning, match=r"5 of 300 rows .*dropped"):
        store = opened(f"{door}#docs?missing=drop")
    kept = np.delete(np.arange(N), gone)
    columns = {role: [values[i] for i in kept] for role, values in COLUMNS.items()}
    check_reading(store, VECTORS[kept], columns)


def test_column_with_special_characters_is_quoted(database, door):
    odd = table(lists(VECTORS, [0])).rename_columns({"vector": "my Emb's"})
    database.create_table("docs", odd)
    with pytest.raises(InputError, match=r"1 of 300 rows has .*no my Emb's"):
        opened(f"{door}#docs", vectors="my Emb's")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("#dosc", "does not exist: did you mean docs"),
        ("", "does not specify a table: .*#NAME; it contains docs, empty"),
        ("#empty", "has no rows"),
        ("#docs?column=x", "unknown option column: choose from"),
    ],
)
def test_missing_collection_raises_one_line(database, door, name, message):
    database.create_table("docs", table())
    database.create_table("empty", schema=table().schema)
    with pytest.raises(InputError, match=message):
        opened(door + name)
    with pytest.raises(InputError, match="has no column named vektor; choose from vector"):
        opened(f"{door}#docs", vectors="vektor")


def test_foreign_folder_is_not_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a LanceDB folder"):
        opened(f"lancedb:{tmp_path}#docs")
    with pytest.raises(InputError, match="does not exist"):
        opened(f"lancedb:{tmp_path}/nowhere#docs")
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_damaged_table_raises(database, door, tmp_path):
    database.create_table("docs", table())
    store = opened(f"{door}#docs")
    for file in (tmp_path / "docs.lance" / "data").iterdir():
        file.write_bytes(b"gone")
    with pytest.raises(InputError, match="may be damaged or unreachable"):
        list(opened(f"{door}#docs").chunks())
    assert len(store) == N
