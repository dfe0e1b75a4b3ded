"""The other columns of a table are kept: names, types, order, values."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from isoscope import InputError
from isoscope.stores.open import open_store
from isoscope.stores.table_schema import with_metadata
from isoscope.stores.write import write_store

N, D = 50, 3


def wide_table(kind="list"):
    """Return a table with ten columns of many types, the vectors in the middle."""
    numbers = pa.array(np.arange(N * D, dtype=np.float32))
    lists = (
        pa.FixedSizeListArray.from_arrays(numbers, D)
        if kind == "fixed"
        else pa.ListArray.from_arrays(pa.array(range(0, N * D + 1, D), "int32"), numbers)
    )
    schema = pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False, metadata={"note": "kept"}),
            pa.field("when", pa.timestamp("us", "UTC")),
            pa.field("state", lists.type),
            pa.field("label", pa.dictionary(pa.int8(), pa.string())),
            pa.field("count", pa.int16()),
            pa.field("price", pa.decimal128(9, 2)),
            pa.field("raw", pa.binary()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("where", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
            pa.field("empty", pa.null()),
        ],
        metadata={"made by": "a test"},
    )
    columns = [
        [f"d{i}" for i in range(N)],
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=i) for i in range(N)],
        lists,
        pa.array(["abc"[i % 3] for i in range(N)]).dictionary_encode().cast(schema.field("label").type),
        [i if i % 7 else None for i in range(N)],
        list(range(N)),
        [bytes([i]) for i in range(N)],
        [["t"] * (i % 4) for i in range(N)],
        [{"lat": i / 2, "lon": -i} for i in range(N)],
        [None] * N,
    ]
    arrays = [c if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def saved_parquet(table, path):
    pq.write_table(table, path / "a.parquet", row_group_size=17)
    return path / "a.parquet"


def saved_feather(table, path):
    feather.write_feather(table, str(path / "a.feather"), chunksize=13)
    return path / "a.feather"


def saved_shards(table, path):
    (path / "shards").mkdir()
    for i, start in enumerate(range(0, N, 20)):
        pq.write_table(table.slice(start, 20), path / "shards" / f"{i}.parquet")
    return path / "shards"


def in_memory(table, path):
    return table


def assert_same_but_for_the_vectors(found, table, vectors):
    assert found.schema.names == table.schema.names
    for field in table.schema:
        if field.name != "state":
            assert found.schema.field(field.name).equals(field, check_metadata=field.name == "doc_id"), field
            assert found[field.name].to_pylist() == table[field.name].to_pylist()
    assert found.schema.field("state").type == pa.list_(pa.float32(), vectors.shape[1])
    np.testing.assert_array_equal(np.array(found["state"].to_pylist()), vectors)
    assert found.schema.metadata[b"made by"] == b"a test"


@pytest.mark.parametrize("kind", ["list", "fixed"])
@pytest.mark.parametrize("saved", [saved_parquet, saved_feather, saved_shards, in_memory])
def test_every_other_column_of_a_table_is_kept(saved, kind, tmp_path):
    table = wide_table(kind)
    store, target = open_store(saved(table, tmp_path)), tmp_path / "out.parquet"
    assert dict(store.columns) == {"labels": "label", "ids": "doc_id", "frequency": "count"}
    write_store(store, target)
    vectors = np.arange(N * D, dtype=np.float32).reshape(N, D)
    assert_same_but_for_the_vectors(pq.read_table(target), table, vectors)
    write_store(store.mapped(lambda rows: rows[:, :2] + 1, 2), target)
    assert_same_but_for_the_vectors(pq.read_table(target), table, vectors[:, :2] + 1)
    write_store(store, target, columns=False)
    assert pq.read_table(target).schema.names == ["embedding"]


def test_dimension_columns_become_one_list_column_in_place(tmp_path):
    table = pa.table({"name": ["x", "y"], "a": [1.0, 2.0], "b": [3.0, 4.0], "note": ["p", None], "label": [1, 2]})
    write_store(table, tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert found.to_pydict() == {
        "name": ["x", "y"],
        "embedding": [[1, 3], [2, 4]],
        "note": ["p", None],
        "label": [1, 2],
    }
    write_store(table.append_column("embedding", [["p", "q"]]), tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").schema.names == ["name", "vectors", "note", "label", "embedding"]


def test_passed_values_are_appended_and_hidden_columns_are_omitted(tmp_path):
    path = saved_parquet(wide_table(), tmp_path)
    store = open_store(path, text=[f"t{i}" for i in range(N)], ids=np.arange(N))
    write_store(store.without("labels"), tmp_path / "b.parquet")
    found = pq.read_table(tmp_path / "b.parquet")
    names = [name for name in wide_table().schema.names if name != "label"]
    assert found.schema.names == [*names, "text", "ids"]
    assert found["ids"].to_pylist() == list(range(N))
    assert found["doc_id"].to_pylist()[:2] == ["d0", "d1"]
    assert open_store(tmp_path / "b.parquet", ids="ids").ids.tolist() == list(range(N))


def test_pandas_and_polars_keep_their_columns(tmp_path):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    late = [None] * 1500 + ["late"] * 500
    columns = {"v": [[float(i), 1.0] for i in range(2000)], "odd": [1] * 1500 + [2.5] * 500, "late": late}
    for frame in (
        pd.DataFrame({**columns, "odd": pd.Series(columns["odd"], dtype=object), "bad": [object()] * 2000}),
        pl.DataFrame(columns, strict=False),
    ):
        write_store(frame, tmp_path / "a.parquet")
        assert pq.read_table(tmp_path / "a.parquet").to_pydict() == columns  # what Arrow cannot hold is not there


def test_a_dataset_keeps_its_column_metadata(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "vector": datasets.Sequence(datasets.Value("float32"), length=4),
            "label": datasets.ClassLabel(names=["no", "yes"]),
        }
    )
    made = datasets.Dataset.from_dict({"vector": [[1, 2, 3, 4], [5, 6, 7, 8]], "label": [0, 1]}, features=features)
    made.to_parquet(str(tmp_path / "a.parquet"))
    for source in (made, tmp_path / "a.parquet"):
        write_store(open_store(source).mapped(lambda rows: rows[:, :2], 2), tmp_path / "b.parquet")
        again = datasets.Dataset.from_parquet(str(tmp_path / "b.parquet"), cache_dir=str(tmp_path / "cache"))
        assert again.features["label"].names == ["no", "yes"]
        assert again["vector"][1] == [5, 6]
        (tmp_path / "b.parquet").unlink()


def test_shards_with_different_columns_are_unified_or_rejected(tmp_path):
    first = pa.table({"v": [[1.0, 2.0]], "n": pa.array([1], "int16"), "only": ["a"]})
    second = pa.table({"v": [[3.0, 4.0]], "n": pa.array([2], "int64"), "more": ["b"]})
    (tmp_path / "shards").mkdir()
    for name, table in (("a", first), ("b", second)):
        pq.write_table(table, tmp_path / "shards" / f"{name}.parquet")
    write_store(tmp_path / "shards", tmp_path / "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet").to_pydict() == {
        "v": [[1, 2], [3, 4]],
        "n": [1, 2],
        "only": ["a", None],
        "more": [None, "b"],
    }
    pq.write_table(second.set_column(1, "n", [["x"]]), tmp_path / "shards" / "b.parquet")
    with pytest.raises(
        InputError, match=r"b\.parquet has different columns from .*a\.parquet: .*--vectors-only"
    ) as caught:
        write_store(tmp_path / "shards", tmp_path / "all.parquet")
    assert "\n" not in str(caught.value)
    assert write_store(tmp_path / "shards", tmp_path / "all.parquet", columns=False) == 2


def test_a_column_that_parquet_cannot_hold_is_reported(tmp_path):
    table = pa.table({"v": [[1.0, 2.0]], "odd": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with pytest.raises(InputError, match=r"Parquet.*--vectors-only"):
        write_store(table, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_other_columns_are_read_only_on_request(tmp_path):
    store = open_store(saved_parquet(wide_table(), tmp_path))
    assert [batch.other_columns for batch in store.batches()] == [None] * 3
    names = [name for name in wide_table().schema.names if name != "state"]
    assert next(store.batches(other_columns=True)).other_columns.schema.names == names
    assert next(open_store(np.eye(3)).batches(other_columns=True)).other_columns is None


def test_an_arrow_file_keeps_the_columns_of_shards_with_different_dictionaries(tmp_path):
    (tmp_path / "shards").mkdir()
    for number, words in enumerate((["a", "b"], ["b", "c"])):
        columns = {"embedding": [[1.0, number], [2.0, number]], "label": pa.array(words).dictionary_encode()}
        pq.write_table(pa.table(columns), tmp_path / "shards" / f"{number}.parquet")
    assert write_store(open_store(tmp_path / "shards"), tmp_path / "one.arrow") == 4
    found = pa.ipc.open_file(tmp_path / "one.arrow").read_all()
    assert found.schema.names == ["embedding", "label"]
    assert found["label"].to_pylist() == ["a", "b", "b", "c"]
    assert open_store(tmp_path / "one.arrow").labels.tolist() == ["a", "b", "b", "c"]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_recorded_roles_are_recognized_and_survive_rewriting(ending, tmp_path):
    roles = {"labels": "mood", "ids": "nr", "text": None}
    table = pa.table({"embedding": [[1.0, 2.0], [3.0, 4.0]], "mood": ["x", "y"], "nr": [7, 8], "title": ["s", "t"]})
    pq.write_table(
        table.replace_schema_metadata(with_metadata(table.schema, {"roles": roles}).metadata), tmp_path / "a.parquet"
    )
    assert open_store(tmp_path / "a.parquet").columns == {"labels": "mood", "ids": "nr"}
    assert open_store(tmp_path / "a.parquet", text="title", labels="title").columns == {
        "labels": "title",
        "text": "title",
        "ids": "nr",
    }
    write_store(open_store(tmp_path / "a.parquet").without("ids"), tmp_path / f"b.{ending}")
    again = open_store(tmp_path / f"b.{ending}")
    assert again.columns == {"labels": "mood"}
    assert again.labels.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    "written", [b"{", b"[1]", b'{"roles": 3}', b'{"roles": {"by": "nr", "ids": "gone", "text": 5}}']
)
def test_damaged_or_foreign_records_of_roles_are_ignored(written, tmp_path):
    table = pa.table({"embedding": [[1.0, 2.0]], "nr": [7], "id": [8]}).replace_schema_metadata({"isoscope": written})
    pq.write_table(table, tmp_path / "a.parquet")
    assert open_store(tmp_path / "a.parquet").columns == {"ids": "id"}
