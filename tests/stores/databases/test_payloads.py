"""Payloads pass through Arrow unchanged."""

import datetime
import decimal
import json

import numpy as np
import pyarrow as pa

from isoscope.stores.databases.base import (
    CollectionInfo,
    batch_payloads,
    holds_ids,
    object_field,
    scalar_fields,
    to_json_column,
)
from isoscope.stores.store import Batch

OBJECTS = [{"a": 1, "b": {"c": [1, None, "ü"]}}, {}, None, {"a": None, "d": True}]


def batch(record=None, ids=(1, 2, 3, 4), **columns):
    values = {"ids": np.array(ids), **{name: np.asarray(each) for name, each in columns.items()}}
    return Batch(0, np.eye(len(ids)), values, 1.0, record)


def test_objects_survive_an_arrow_column(tmp_path):
    import pyarrow.parquet as pq

    table = pa.Table.from_arrays([to_json_column(OBJECTS)], schema=pa.schema([object_field("payload")]))
    pq.write_table(table, tmp_path / "objects.parquet")
    record = pq.read_table(tmp_path / "objects.parquet").to_batches()[0]
    assert batch_payloads(batch(record)) == [each or {} for each in OBJECTS]


def test_text_that_looks_like_json_stays_text():
    record = pa.record_batch({"payload": pa.array([json.dumps(each) for each in OBJECTS])})
    assert batch_payloads(batch(record))[0] == {"payload": json.dumps(OBJECTS[0])}


def test_columns_become_json_values_without_nulls():
    day = datetime.date(2024, 5, 6)
    record = pa.record_batch(
        {
            "id": pa.array([1, 2]),
            "day": pa.array([day, None]),
            "price": pa.array([decimal.Decimal("1.50"), None]),
            "part": pa.array([{"x": [1.5, float("nan")]}, None]),
            "raw": pa.array([b"abc", None]),
        }
    )
    first, second = batch_payloads(batch(record, ids=(1, 2), label=[0.5, float("nan")]), "id")
    assert first == {
        "label": 0.5,
        "day": "2024-05-06",
        "price": "1.50",
        "part": {"x": [1.5, None]},
        "raw": "abc",
    }
    assert second == {"label": None}
    json.dumps(first)


def test_only_the_id_column_is_omitted_if_it_equals_the_ids():
    record = pa.record_batch({"rank": pa.array([7, 8]), "n": pa.array([7, 8])})
    rows = batch(record, ids=(7, 8))
    assert holds_ids(rows, "n")
    assert batch_payloads(rows, "n") == [{"rank": 7}, {"rank": 8}]
    assert batch_payloads(rows) == [{"rank": 7, "n": 7}, {"rank": 8, "n": 8}]
    assert batch_payloads(batch(record, ids=(7, 9)), "n")[1] == {"rank": 8, "n": 8}
    assert not holds_ids(batch(ids=(7, 8)), "n")


def test_collection_info_survives_a_schema():
    info = CollectionInfo("dot", "dense", "qdrant")
    assert CollectionInfo.from_schema(pa.schema([object_field("payload")], metadata=info.to_metadata())) == info
    assert CollectionInfo.from_schema(None) == CollectionInfo.from_schema(pa.schema([])) == CollectionInfo()


def test_scalar_fields_exclude_lists_and_objects():
    assert scalar_fields([{"a": 1, "b": [1]}, None, {"c": "x", "a": None}, {"c": {}}]) == ["a"]
