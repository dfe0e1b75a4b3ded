"""Qdrant collections are read completely and in order, from a folder and from a server."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid

import numpy as np
import pytest

from isoscope._core.errors import DataWarning, InputError
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases import base
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.qdrant import QdrantStore, open_qdrant
from tests.services import require
from tests.stores.databases.contract import check_reading
from tests.stores.databases.qdrant_rest import serving

qdrant_client = require("qdrant_client")
models = qdrant_client.models

N, D = 300, 8
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)
UUIDS = sorted(str(uuid.uuid5(uuid.NAMESPACE_URL, str(i))) for i in range(N))


def fill(client, name="docs", ids=range(N), vectors=VECTORS, distance="Dot", config=None):
    config = config or models.VectorParams(size=D, distance=distance)
    client.create_collection(name, vectors_config=config)
    payloads = [{"text": f"text {i}", "label": i % 3, "deep": {"a": [i]}} for i in range(len(vectors))]
    rows = vectors if isinstance(vectors, list) else vectors.tolist()
    points = [models.PointStruct(id=i, vector=v, payload=p) for i, v, p in zip(ids, rows, payloads, strict=True)]
    order = np.random.default_rng(0).permutation(len(points))
    client.upsert(name, points=[points[i] for i in order])


@pytest.fixture
def client():
    """A client in memory, whose collections the client of a folder then reads."""
    return qdrant_client.QdrantClient(":memory:")


@pytest.fixture
def door(client, tmp_path, monkeypatch):
    """The same collections opened as a folder, without flushing each point to disk."""
    from isoscope.stores.databases import qdrant

    (tmp_path / "meta.json").write_text(json.dumps({"collections": {}, "aliases": {}}))
    monkeypatch.setitem(qdrant._folders, str(tmp_path.resolve()), client)
    return f"qdrant:{tmp_path}"


def opened(where, /, **wanted):
    vectors = wanted.pop("vectors", None)
    return open_qdrant(parse_address(where), ColumnSpec(vectors, wanted))


COLUMNS = {"text": [f"text {i}" for i in range(N)], "labels": [i % 3 for i in range(N)]}


@pytest.mark.parametrize("ids", [list(range(N)), UUIDS])
def test_folder_is_read_in_order_of_ids(client, door, ids):
    fill(client, ids=ids)
    check_reading(opened(f"{door}#docs"), VECTORS, {"ids": ids, **COLUMNS})


@pytest.mark.parametrize("ids", [list(range(N)), UUIDS])
def test_server_is_read_like_a_folder(client, ids, monkeypatch):
    from isoscope.stores.databases import qdrant

    monkeypatch.setattr(qdrant, "_STEP", 64)
    monkeypatch.setattr(qdrant, "_PAGE_ROWS", 50)
    fill(client, ids=ids)
    with serving(client) as url:
        check_reading(opened(f"qdrant:{url}#docs"), VECTORS, {"ids": ids, **COLUMNS})


def test_mixed_ids_are_text_with_numbers_first(client, door):
    fill(client, ids=[*range(N - 2), 2**63 + 5, UUIDS[0]])
    store = opened(f"{door}#docs")
    assert store.ids.tolist() == [*map(str, range(N - 2)), str(2**63 + 5), UUIDS[0]]


def test_payload_is_a_json_column(client, door):
    fill(client)
    store = opened(f"{door}#docs")
    assert store.layout().schema.names == ["id", "vector", "payload"]
    record = next(store.batches(other_columns=True)).other_columns
    assert json.loads(record.column("payload")[7].as_py()) == {"text": "text 7", "label": 1, "deep": {"a": [7]}}


def test_one_of_several_vectors_is_chosen_by_name(client, door):
    config = {
        "small": models.VectorParams(size=D, distance="Dot"),
        "late": models.VectorParams(
            size=2, distance="Dot", multivector_config=models.MultiVectorConfig(comparator="max_sim")
        ),
        "other": models.VectorParams(size=2, distance="Dot"),
    }
    fill(client, config=config, vectors=[{"small": v, "other": [1.0, 0.0]} for v in VECTORS.tolist()])
    np.testing.assert_array_equal(opened(f"{door}#docs", vectors="small").take([3]), VECTORS[[3]])
    with pytest.raises(InputError, match="small, late, other"):
        opened(f"{door}#docs")
    with pytest.raises(InputError, match="several vectors per point"):
        opened(f"{door}#docs", vectors="late")


def test_sparse_vectors_raise(client, door):
    client.create_collection("words", vectors_config={}, sparse_vectors_config={"bm25": models.SparseVectorParams()})
    with pytest.raises(InputError, match="bm25 is sparse: need dense vectors"):
        opened(f"{door}#words")


def test_points_without_vector_raise_or_are_dropped(client, door):
    config = {
        "small": models.VectorParams(size=D, distance="Dot"),
        "other": models.VectorParams(size=2, distance="Dot"),
    }
    vectors = [{"small": v} if i % 3 else {"other": [1.0, 0.0]} for i, v in enumerate(VECTORS.tolist())]
    fill(client, config=config, vectors=vectors)
    with pytest.raises(InputError, match=r"100 of 300 rows .*no small.* id 0: .*missing=drop"):
        opened(f"{door}#docs", vectors="small")
    with pytest.warns(DataWarning, match=r"100 of 300 rows .*no small"):
        store = opened(f"{door}#docs?missing=drop", vectors="small")
    kept = np.arange(N) % 3 > 0
    columns = {"ids": np.flatnonzero(kept).tolist(), "text": [f"text {i}" for i in np.flatnonzero(kept)]}
    check_reading(store, VECTORS[kept], columns)


def test_field_beyond_the_sample_can_be_named(client, door):
    fill(client)
    client.set_payload("docs", {"rare name": "x"}, points=[N - 1])
    assert opened(f"{door}#docs", text="rare name").text.tolist() == [""] * (N - 1) + ["x"]
    with pytest.raises(InputError, match="has no column nothing for labels"):
        opened(f"{door}#docs", labels="nothing")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("#dosc", "does not exist: did you mean docs"),
        ("", "does not specify a collection: .*#NAME; it contains docs"),
        ("#empty", "has no rows"),
        ("#docs?mising=drop", "unknown option mising: choose from missing"),
    ],
)
def test_missing_collection_raises_one_line(client, door, name, message):
    fill(client)
    client.create_collection("empty", vectors_config=models.VectorParams(size=D, distance="Dot"))
    with pytest.raises(InputError, match=message):
        opened(door + name)


def test_foreign_folder_is_not_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a Qdrant folder"):
        opened(f"qdrant:{tmp_path}#docs")
    with pytest.raises(InputError, match=r"does not exist: .* or a server"):
        opened(f"qdrant:{tmp_path}/nowhere#docs")
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_folder_open_in_another_process_raises(tmp_path):
    hold = f"""
import sys
from qdrant_client import QdrantClient, models
client = QdrantClient(path={str(tmp_path)!r})
client.create_collection("docs", vectors_config=models.VectorParams(size=2, distance="Dot"))
client.upsert("docs", points=[models.PointStruct(id=1, vector=[1.0, 2.0])])
print("ready", flush=True)
sys.stdin.read()
"""
    other = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(InputError, match="is open in another process"):
            opened(f"qdrant:{tmp_path}#docs")
    finally:
        other.communicate(b"")
    assert len(opened(f"qdrant:{tmp_path}#docs")) == 1


def test_exit_with_open_folder_prints_nothing(tmp_path):
    run = f"""
import numpy as np, isoscope
from isoscope.stores import open_store, write_store
write_store(np.eye(3), "qdrant:{tmp_path}#docs")
store = open_store("qdrant:{tmp_path}#docs")
"""
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_unreachable_server_or_missing_key_raises(client, monkeypatch):
    monkeypatch.setattr(base, "PAUSES", (0.01,))
    with pytest.raises(InputError, match=r"cannot be reached .* check that it is running"):
        opened("qdrant:http://127.0.0.1:9#docs")
    fill(client)
    with serving(client, key="s3cr3t") as url:
        with pytest.raises(InputError, match=r"denies access \(401\): set QDRANT_API_KEY"):
            opened(f"qdrant:{url}#docs")
        monkeypatch.setenv("QDRANT_API_KEY", "s3cr3t")
        with pytest.warns(UserWarning, match="insecure connection"):
            store = opened(f"qdrant:{url}#docs")
    assert "s3cr3t" not in repr(store) + store.name


def test_reading_survives_short_server_failures(client, monkeypatch):
    from isoscope.stores.databases import qdrant

    monkeypatch.setattr(qdrant, "_PAGE_ROWS", 50)
    monkeypatch.setattr(base, "PAUSES", (0.01, 0.01, 0.01))
    fill(client)
    with serving(client) as url:
        store = opened(f"qdrant:{url}#docs")
        url.failures = 3
        np.testing.assert_array_equal(np.concatenate(list(store.chunks(50))), VECTORS)
        assert url.failures == 0
        batches = store.batches(rows=50)
        next(batches)
        url.failures = 1000
        with pytest.raises(InputError, match="cannot be reached"):
            list(batches)


def test_deleted_points_raise(client, door):
    fill(client)
    store = opened(f"{door}#docs")
    store.take([0])
    client.delete("docs", points_selector=[5])
    with pytest.raises(InputError, match="lost rows while it was being read"):
        list(store.chunks())
    assert isinstance(store, QdrantStore)
