"""LanceDB tables are written by id and read back unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from isoscope._core.errors import InputError
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases import base
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.lance import open_lance, open_lance_destination
from tests.stores.databases.contract import ABOUT, check_foreign_collection_is_safe, check_writing, some_rows

lancedb = pytest.importorskip("lancedb")

N, D = 40, 6
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)


def doors(where):
    return lambda: open_lance_destination(parse_address(where)), lambda: open_lance(parse_address(where), ColumnSpec())


@pytest.mark.parametrize("ids", [[i - 20 for i in range(N)], [f"doc '{i}" for i in range(N)]])
def test_writing_to_a_table(tmp_path, ids):
    check_writing(*doors(f"lancedb:{tmp_path}/db#docs"), VECTORS, ids)


def test_checksum_collisions_lose_no_row(tmp_path, monkeypatch):
    from isoscope.stores.databases import lance

    monkeypatch.setattr(lance, "_checksums", lambda ids: np.zeros(len(ids), np.int64))
    check_writing(*doors(f"lancedb:{tmp_path}/db#docs"), VECTORS, list(range(N)))


def test_foreign_collection_is_not_touched(tmp_path):
    lancedb.connect(tmp_path).create_table(
        "docs", pa.table({"vector": pa.array([[1.0] * 4], pa.list_(pa.float32(), 4))})
    )
    check_foreign_collection_is_safe(*doors(f"lancedb:{tmp_path}#docs"))


@pytest.mark.parametrize("key", ["id", "doc_id"])
def test_every_column_is_copied(tmp_path, key):
    rows = pa.array(list(VECTORS.astype(np.float16)), pa.list_(pa.float16(), D))
    others = {"when": pa.array(range(N), pa.timestamp("ms")), "tags": pa.array([["a"]] * N), "more": rows}
    source = pa.table({key: pa.array(range(N), pa.int32()), "vector": rows, **others})
    lancedb.connect(tmp_path).create_table("docs", source)
    store = open_lance(parse_address(f"lancedb:{tmp_path}#docs"), ColumnSpec("vector"))
    destination = open_lance_destination(parse_address(f"lancedb:{tmp_path}#repaired"))
    destination.begin(3, np.dtype(np.float32), store.layout(), {**ABOUT, "ids": key})
    for batch in store.batches(["ids"], rows=7, other_columns=True):
        destination.write(batch._replace(vectors=np.ascontiguousarray(batch.vectors[:, :3], np.float32)))
    destination.finish(N)
    made = lancedb.connect(tmp_path).open_table("repaired").to_arrow()
    assert made.schema.names == source.schema.names
    assert made.drop_columns(["vector"]).equals(source.drop_columns(["vector"]))
    assert made.schema.field("vector").type == pa.list_(pa.float32(), 3)
    np.testing.assert_array_equal(made["vector"].to_pylist(), VECTORS.astype(np.float16)[:, :3])


def test_copy_of_an_isoscope_table_has_its_own_note(tmp_path):
    first, second = (f"lancedb:{tmp_path}#{name}" for name in ("first", "second"))
    destination = open_lance_destination(parse_address(first))
    destination.begin(D, VECTORS.dtype, None, ABOUT)
    destination.write(some_rows(list(range(N)), VECTORS))
    destination.finish(N)
    store = open_lance(parse_address(first), ColumnSpec())
    for goes_on in (False, True):
        destination = open_lance_destination(parse_address(second))
        assert destination.begin(D, VECTORS.dtype, store.layout(), {"source": "first"}) is goes_on
        destination.write(next(store.batches(["ids"], rows=9, other_columns=True)))
    with pytest.warns(UserWarning, match="is incomplete"):
        assert len(open_lance(parse_address(second), ColumnSpec())) == 9


def test_many_fragments_are_compacted(tmp_path, monkeypatch):
    from isoscope.stores.databases import lance

    monkeypatch.setattr(lance, "_MAX_FRAGMENTS", 4)
    destination, reader = (make() if i == 0 else make for i, make in enumerate(doors(f"lancedb:{tmp_path}#docs")))
    destination.begin(D, VECTORS.dtype, None, ABOUT)
    for i in range(0, N, 5):
        destination.write(some_rows(list(range(i, i + 5)), VECTORS[i : i + 5]))
    destination.finish(N)
    assert lancedb.connect(tmp_path).open_table("docs").stats()["fragment_stats"]["num_fragments"] == 1
    np.testing.assert_array_equal(reader().take(np.arange(N)), VECTORS)


def test_write_that_fails_after_success_is_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "PAUSES", (0.01,))
    destination, reader = (make() if i == 0 else make for i, make in enumerate(doors(f"lancedb:{tmp_path}#docs")))
    destination.begin(D, VECTORS.dtype, None, ABOUT)
    destination.write(some_rows([0, 1], VECTORS[:2]))
    table = destination._table
    add = table.add

    def lost(rows):
        add(rows)
        monkeypatch.setattr(table, "add", add)
        raise OSError("the connection is gone")

    monkeypatch.setattr(table, "add", lost)
    destination.write(some_rows(list(range(N)), VECTORS))
    destination.finish(N)
    np.testing.assert_array_equal(reader().take(np.arange(N)), VECTORS)


def test_invalid_destination_raises(tmp_path):
    with pytest.raises(InputError, match="does not specify a table"):
        open_lance_destination(parse_address(f"lancedb:{tmp_path}"))
    with pytest.raises(InputError, match="unknown option missing: "):
        open_lance_destination(parse_address(f"lancedb:{tmp_path}#docs?missing=drop"))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a LanceDB folder"):
        open_lance_destination(parse_address(f"lancedb:{tmp_path}#docs"))
