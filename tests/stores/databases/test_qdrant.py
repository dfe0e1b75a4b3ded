"""A collection of Qdrant is read as it was filled, in a folder as on a server."""

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
from tests.stores.databases.contract import reads_as_one_cloud
from tests.stores.databases.qdrant_rest import serving

qdrant_client = pytest.importorskip("qdrant_client")
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
    """In memory: what is filled is then looked at through the folder's client, which knows it by its path."""
    return qdrant_client.QdrantClient(":memory:")


@pytest.fixture
def door(client, tmp_path, monkeypatch):
    """The same collections as a folder, without a sync of the disk for each point."""
    from isoscope.stores.databases import qdrant

    (tmp_path / "meta.json").write_text(json.dumps({"collections": {}, "aliases": {}}))
    monkeypatch.setitem(qdrant._folders, str(tmp_path.resolve()), client)
    return f"qdrant:{tmp_path}"


def opened(where, /, **wanted):
    vectors = wanted.pop("vectors", None)
    return open_qdrant(parse_address(where), ColumnSpec(vectors, wanted))


COLUMNS = {"text": [f"text {i}" for i in range(N)], "labels": [i % 3 for i in range(N)]}


@pytest.mark.parametrize("ids", [list(range(N)), UUIDS])
def test_a_folder_is_one_cloud_in_the_order_of_ids(client, door, ids):
    fill(client, ids=ids)
    reads_as_one_cloud(opened(f"{door}#docs"), VECTORS, {"ids": ids, **COLUMNS})


@pytest.mark.parametrize("ids", [list(range(N)), UUIDS])
def test_a_server_is_the_same_cloud(client, ids, monkeypatch):
    from isoscope.stores.databases import qdrant

    monkeypatch.setattr(qdrant, "_STEP", 64)
    monkeypatch.setattr(qdrant, "_PAGE_ROWS", 50)
    fill(client, ids=ids)
    with serving(client) as url:
        reads_as_one_cloud(opened(f"qdrant:{url}#docs"), VECTORS, {"ids": ids, **COLUMNS})


def test_ids_that_are_numbers_and_uuids_are_text_numbers_first(client, door):
    fill(client, ids=[*range(N - 2), 2**63 + 5, UUIDS[0]])
    store = opened(f"{door}#docs")
    assert store.ids.tolist() == [*map(str, range(N - 2)), str(2**63 + 5), UUIDS[0]]


def test_the_payload_stands_beside_as_json(client, door):
    fill(client)
    store = opened(f"{door}#docs")
    assert store.layout().schema.names == ["id", "vector", "payload"]
    record = next(store.batches(other_columns=True)).other_columns
    assert json.loads(record.column("payload")[7].as_py()) == {"text": "text 7", "label": 1, "deep": {"a": [7]}}


def test_one_of_several_vectors_is_named(client, door):
    config = {
        "small": models.VectorParams(size=D, distance="Dot"),
        "late": models.VectorParams(
            size=2, distance="Dot", multivector_config=models.MultiVectorConfig(comparator="max_sim")
        ),
        "other": models.VectorParams(size=2, distance="Dot"),
    }
    fill(client, config=config, vectors=[{"small": v, "other": [1.0, 0.0]} for v in VECTORS.tolist()])
    np.testing.assert_array_equal(opened(f"{door}#docs", vectors="small").take([3]), VECTORS[[3]])
    with pytest.raises(InputError, match="has several candidates for the vectors: small, late, other"):
        opened(f"{door}#docs")
    with pytest.raises(InputError, match="several vectors for each point"):
        opened(f"{door}#docs", vectors="late")


def test_sparse_vectors_are_refused(client, door):
    client.create_collection("words", vectors_config={}, sparse_vectors_config={"bm25": models.SparseVectorParams()})
    with pytest.raises(InputError, match="bm25 is sparse: need dense vectors"):
        opened(f"{door}#words")


def test_points_without_the_vector_are_counted_and_left_out_if_asked(client, door):
    config = {
        "small": models.VectorParams(size=D, distance="Dot"),
        "other": models.VectorParams(size=2, distance="Dot"),
    }
    vectors = [{"small": v} if i % 3 else {"other": [1.0, 0.0]} for i, v in enumerate(VECTORS.tolist())]
    fill(client, config=config, vectors=vectors)
    with pytest.raises(InputError, match=r"no small in 100 of 300 rows, the first has the id 0: .*\?missing=drop"):
        opened(f"{door}#docs", vectors="small")
    with pytest.warns(DataWarning, match="no small in 100 of 300 rows"):
        store = opened(f"{door}#docs?missing=drop", vectors="small")
    kept = np.arange(N) % 3 > 0
    columns = {"ids": np.flatnonzero(kept).tolist(), "text": [f"text {i}" for i in np.flatnonzero(kept)]}
    reads_as_one_cloud(store, VECTORS[kept], columns)


def test_a_field_beyond_the_first_points_can_be_named(client, door):
    fill(client)
    client.set_payload("docs", {"rare name": "x"}, points=[N - 1])
    assert opened(f"{door}#docs", text="rare name").text.tolist() == [""] * (N - 1) + ["x"]
    with pytest.raises(InputError, match="has no column nothing for labels"):
        opened(f"{door}#docs", labels="nothing")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("#dosc", "does not exist: is it docs?"),
        ("", "says no collection: need .*#NAME; it has docs"),
        ("#empty", "has no points"),
        ("#docs?mising=drop", "mising= is not an option here: need missing"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(client, door, name, message):
    fill(client)
    client.create_collection("empty", vectors_config=models.VectorParams(size=D, distance="Dot"))
    message = message if name != "#dosc" else "does not exist: is it docs"
    with pytest.raises(InputError, match=message):
        opened(door + name)


def test_a_path_that_is_no_folder_of_qdrants_stays_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not a folder of Qdrant's local mode"):
        opened(f"qdrant:{tmp_path}#docs")
    with pytest.raises(InputError, match="does not exist: need one, or a server"):
        opened(f"qdrant:{tmp_path}/nowhere#docs")
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_another_process_has_open_is_said(tmp_path):
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
        with pytest.raises(InputError, match="is open in another process or client"):
            opened(f"qdrant:{tmp_path}#docs")
    finally:
        other.communicate(b"")
    assert len(opened(f"qdrant:{tmp_path}#docs")) == 1


def test_a_program_that_ends_with_a_folder_open_says_nothing(tmp_path):
    run = f"""
import numpy as np, isoscope
from isoscope.stores import open_store, write_store
write_store("qdrant:{tmp_path}#docs", np.eye(3))
store = open_store("qdrant:{tmp_path}#docs")
"""
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_server_that_is_down_or_wants_a_key_is_said(client, monkeypatch):
    monkeypatch.setattr(base, "PAUSES", (0.01,))
    with pytest.raises(InputError, match=r"cannot be reached: .* is the server up\?"):
        opened("qdrant:http://127.0.0.1:9#docs")
    fill(client)
    with serving(client, key="s3cr3t") as url:
        with pytest.raises(InputError, match=r"does not let you in \(401\): set QDRANT_API_KEY"):
            opened(f"qdrant:{url}#docs")
        monkeypatch.setenv("QDRANT_API_KEY", "s3cr3t")
        with pytest.warns(UserWarning, match="insecure connection"):
            store = opened(f"qdrant:{url}#docs")
    assert "s3cr3t" not in repr(store) + store.name


def test_a_server_that_goes_away_in_the_middle_costs_time_and_not_the_rows(client, monkeypatch):
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


def test_points_that_vanish_are_noticed(client, door):
    fill(client)
    store = opened(f"{door}#docs")
    store.take([0])
    client.delete("docs", points_selector=[5])
    with pytest.raises(InputError, match="has lost points since it was opened"):
        list(store.chunks())
    assert isinstance(store, QdrantStore)
