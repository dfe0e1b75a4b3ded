"""Qdrant collections are written by id and read back unchanged."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid

import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope.stores import open_store, write_store
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases import base
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.qdrant import open_qdrant, open_qdrant_destination
from tests.services import require
from tests.stores.databases.contract import ABOUT, check_foreign_collection_is_safe, check_writing, some_rows
from tests.stores.databases.qdrant_rest import serving

qdrant_client = require("qdrant_client")
models = qdrant_client.models

N, D = 40, 6
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)
UUIDS = [str(uuid.uuid5(uuid.NAMESPACE_URL, str(i))) for i in range(N)]


def doors(where):
    return lambda: open_qdrant_destination(parse_address(where)), lambda: open_qdrant(
        parse_address(where.split("?")[0]), ColumnSpec()
    )


@pytest.mark.parametrize(
    "ids", [list(range(N)), UUIDS, [f"doc/{i}" for i in range(N)], [i - 20 for i in range(N)]], ids="nuts"
)
def test_writing_to_a_folder(tmp_path, ids):
    check_writing(*doors(f"qdrant:{tmp_path}/db#docs?distance=dot"), VECTORS, ids)


def test_writing_to_a_server():
    with serving(qdrant_client.QdrantClient(":memory:")) as url:
        check_writing(*doors(f"qdrant:{url}#docs?distance=dot"), VECTORS, [f"doc {i}" for i in range(N)])


def test_foreign_collection_is_not_touched(tmp_path):
    client = qdrant_client.QdrantClient(path=str(tmp_path))
    client.create_collection("docs", vectors_config=models.VectorParams(size=4, distance="Dot"))
    client.upsert("docs", points=[models.PointStruct(id=1, vector=[1.0, 2.0, 3.0, 4.0])])
    client.close()
    check_foreign_collection_is_safe(*doors(f"qdrant:{tmp_path}#docs"))


def test_payload_ids_name_and_distance_are_copied(tmp_path):
    client = qdrant_client.QdrantClient(path=str(tmp_path))
    client.create_collection("docs", vectors_config={"dense": models.VectorParams(size=D, distance="Euclid")})
    payloads = [{"text": f"t{i}", "deep": {"a": [i, None, "ü"]}, "none": None} for i in range(N)]
    ids = [*range(N - 2), 2**63 + 9, UUIDS[0]]
    client.upsert(
        "docs",
        points=[
            models.PointStruct(id=i, vector={"dense": v}, payload=p)
            for i, v, p in zip(ids, VECTORS.tolist(), payloads, strict=True)
        ],
    )
    client.close()
    del client
    store = open_qdrant(parse_address(f"qdrant:{tmp_path}#docs"), ColumnSpec())
    destination = open_qdrant_destination(parse_address(f"qdrant:{tmp_path}#repaired"))  # in the same folder, at once
    destination.begin(D, VECTORS.dtype, store.layout(), {**ABOUT, "ids": "id"})
    for batch in store.batches(["ids"], rows=7, other_columns=True):
        destination.write(batch._replace(vectors=2 * batch.vectors))
    destination.finish(N)
    destination.close()
    del destination, store
    client = qdrant_client.QdrantClient(path=str(tmp_path))
    points = client.scroll("repaired", limit=N, with_vectors=True)[0]
    assert [point.id for point in points] == ids
    assert [point.payload for point in points] == payloads
    np.testing.assert_array_equal([point.vector["dense"] for point in points], 2 * VECTORS)
    assert client.get_collection("repaired").config.params.vectors["dense"].distance == models.Distance.EUCLID
    client.close()


def test_written_rows_survive_a_killed_process(tmp_path):
    write = f"""
import os, numpy as np
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.qdrant import open_qdrant_destination
from tests.stores.databases.contract import ABOUT, some_rows
destination = open_qdrant_destination(parse_address("qdrant:{tmp_path}#docs"))
destination.begin({D}, np.dtype("f4"), None, ABOUT)
start = 0
while True:
    destination.write(some_rows(list(range(start, start + 500)), np.ones((500, {D}), "f4")))
    start += 500
    print(start, flush=True)
"""
    other = subprocess.Popen([sys.executable, "-c", write], stdout=subprocess.PIPE)
    try:
        done = [int(other.stdout.readline()) for _ in range(3)][-1]
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    destination = open_qdrant_destination(parse_address(f"qdrant:{tmp_path}#docs"))
    assert destination.begin(D, np.dtype("f4"), None, ABOUT)
    assert not destination.find_missing(np.arange(done)).any()


def test_writing_retries_then_raises(monkeypatch):
    monkeypatch.setattr(base, "PAUSES", (0.01, 0.01, 0.01))
    with serving(qdrant_client.QdrantClient(":memory:")) as url:
        destination = open_qdrant_destination(parse_address(f"qdrant:{url}#docs"))
        destination.begin(D, VECTORS.dtype, None, ABOUT)
        url.failures = 3
        destination.write(some_rows(list(range(N)), VECTORS))
        url.failures = 1000
        with pytest.raises(InputError, match="rerun to resume"):
            destination.write(some_rows(list(range(N)), VECTORS))
        url.failures = 0
        destination.finish(N)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("#docs?distance=cosinus", "distance=cosinus is unknown: choose from cosine, dot, euclid, manhattan"),
        ("", "does not specify a collection"),
        ("#a/b", "Collection name cannot contain"),
    ],
)
def test_invalid_destination_raises(tmp_path, where, message):
    with pytest.raises(InputError, match=message):
        open_qdrant_destination(parse_address(f"qdrant:{tmp_path}{where}")).begin(D, VECTORS.dtype, None, ABOUT)


def test_a_batch_that_was_written_in_part_is_completed(tmp_path):
    np.save(tmp_path / "x.npy", VECTORS)  # no columns besides the vectors
    client = qdrant_client.QdrantClient(":memory:")
    with serving(client) as url:
        write_store(tmp_path / "x.npy", f"qdrant:{url}#docs?distance=dot")
        client.delete("docs", points_selector=[3, 11])
        assert write_store(tmp_path / "x.npy", f"qdrant:{url}#docs?distance=dot") == N
        np.testing.assert_array_equal(open_store(f"qdrant:{url}#docs").take(np.arange(N)), VECTORS)
