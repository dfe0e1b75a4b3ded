"""Milvus Lite: collections of other programs are read, and rows are written by id."""

import numpy as np
import pytest

import isoscope
from isoscope.errors import NotFoundError, ParameterError
from isoscope.stores import open_store, write_store
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.milvus import open_milvus_destination
from tests.services import require
from tests.stores.databases.contract import check_foreign_collection_is_safe, check_reading, check_writing

pymilvus = require("pymilvus")
require("milvus_lite")
X = np.random.default_rng(0).standard_normal((150, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """A collection that isoscope did not create."""
    path = tmp_path_factory.mktemp("milvus") / "library.db"
    client = pymilvus.MilvusClient(str(path))
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field("key", pymilvus.DataType.VARCHAR, is_primary=True, max_length=64)
    schema.add_field("emb", pymilvus.DataType.FLOAT_VECTOR, dim=4)
    schema.add_field("topic", pymilvus.DataType.VARCHAR, max_length=64)
    index = client.prepare_index_params()
    index.add_index("emb", index_type="FLAT", metric_type="IP")
    client.create_collection("docs", schema=schema, index_params=index)
    rows = [
        {"key": f"row {i:03d}", "emb": X[i].tolist(), "topic": f"{i % 3}", "text": f"text {i}", "tags": ["a", i]}
        for i in range(len(X))
    ]
    client.insert("docs", rows)
    client.close()
    return path


def test_reading(foreign):
    store = open_store(f"milvus:{foreign}#docs")
    columns = {"ids": [f"row {i:03d}" for i in range(len(X))], "labels": [f"{i % 3}" for i in range(len(X))]}
    check_reading(store, X, columns | {"text": [f"text {i}" for i in range(len(X))]})


def test_collection_is_copied_with_its_fields(foreign, tmp_path):
    write_store(open_store(f"milvus:{foreign}#docs"), tmp_path / "docs.parquet")
    write_store(open_store(tmp_path / "docs.parquet"), f"milvus:{tmp_path / 'copy.db'}#docs")
    store = open_store(f"milvus:{tmp_path / 'copy.db'}#docs")
    assert np.array_equal(np.concatenate([*store]), X)
    assert store.text[7] == "text 7"
    assert store.labels[7] == "1"


@pytest.mark.parametrize("ids", [[f"id {i}" for i in range(40)], list(range(5, 45))], ids=["text", "integers"])
def test_writing(ids, tmp_path):
    address = f"milvus:{tmp_path / 'new.db'}#docs"
    check_writing(lambda: open_milvus_destination(parse_address(address)), lambda: open_store(address), X[:40], ids)


def test_foreign_collection_is_safe(foreign):
    address = f"milvus:{foreign}#docs"
    check_foreign_collection_is_safe(
        lambda: open_milvus_destination(parse_address(address)), lambda: open_store(address)
    )


def test_repair_is_written_once(tmp_path):
    target = f"milvus:{tmp_path / 'new.db'}#docs?distance=dot"
    repair = isoscope.Center().fit(X)
    source = open_store(X, text=[f"text {i}" for i in range(len(X))])
    for _ in range(2):
        assert isoscope.repair_store(source, repair, target) == len(X)
    store = open_store(f"milvus:{tmp_path / 'new.db'}#docs")
    order = np.argsort(store.ids)
    np.testing.assert_array_equal(store.take(order), repair.transform(X))
    with pytest.raises(isoscope.InputError, match="used another repair"):
        isoscope.repair_store(source, isoscope.Standardize().fit(X), target)


@pytest.mark.parametrize(
    ("rest", "error", "match"),
    [
        ("library.db", ParameterError, "does not specify a collection.*docs"),
        ("library.db#dogs", NotFoundError, "did you mean docs"),
        ("none.db#docs", NotFoundError, "does not exist"),
        ("library#docs", NotFoundError, r"ends in \.db"),
    ],
)
def test_errors_are_one_line(foreign, rest, error, match):
    with pytest.raises(error, match=match) as caught:
        open_store(f"milvus:{foreign.parent}/{rest}")
    assert "\n" not in str(caught.value)


def test_server_is_not_supported():
    with pytest.raises(ParameterError, match="query_iterator"):
        open_store("milvus:http://host:19530#docs")
