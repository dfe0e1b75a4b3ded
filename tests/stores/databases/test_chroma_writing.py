"""Chroma collections are written by id and read back unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.chroma import open_chroma, open_chroma_destination
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store
from tests.services import require
from tests.stores.databases.chroma_server import serving
from tests.stores.databases.contract import ABOUT, check_foreign_collection_is_safe, check_writing, some_rows

chromadb = require("chromadb")

N, D = 40, 6
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)


def doors(where):
    return lambda: open_chroma_destination(parse_address(where)), lambda: open_chroma(
        parse_address(where.split("?")[0]), ColumnSpec()
    )


@pytest.mark.parametrize("ids", [[i - 20 for i in range(N)], [f"doc {i}" for i in range(N)]])
def test_writing_to_a_folder(tmp_path, ids):
    check_writing(*doors(f"chroma:{tmp_path}/db#docs?distance=dot"), VECTORS, ids)


def test_writing_to_a_server(tmp_path):
    with serving(tmp_path) as url:
        check_writing(*doors(f"chroma:{url}#docs?distance=dot"), VECTORS, [f"doc {i}" for i in range(N)])


def test_foreign_collection_is_not_touched(tmp_path):
    client = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(anonymized_telemetry=False))
    client.create_collection("docs", embedding_function=None).add(ids=["a"], embeddings=[[1.0, 2.0, 3.0, 4.0]])
    check_foreign_collection_is_safe(*doors(f"chroma:{tmp_path}#docs"))


def test_documents_metadata_and_distance_are_copied(tmp_path):
    client = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(anonymized_telemetry=False))
    source = client.create_collection("docs", embedding_function=None, metadata={"hnsw:space": "ip"})
    metadatas = [{"label": i, "tags": ["a", "b"]} if i % 2 else None for i in range(N)]
    documents = [f"text {i}" if i % 3 else None for i in range(N)]
    ids = [f"doc {i}" for i in range(N)]
    source.add(ids=ids, embeddings=VECTORS, documents=documents, metadatas=metadatas)
    store = open_chroma(parse_address(f"chroma:{tmp_path}#docs"), ColumnSpec())
    destination = open_chroma_destination(parse_address(f"chroma:{tmp_path}#repaired"))
    destination.begin(D, VECTORS.dtype, store.layout(), {**ABOUT, "ids": "id"})
    for batch in store.batches(["ids"], rows=7, other_columns=True):
        destination.write(batch._replace(vectors=2 * batch.vectors))
    destination.finish(N)
    made = client.get_collection("repaired", embedding_function=None)
    found = made.get(include=["embeddings", "documents", "metadatas"])
    assert (found["ids"], found["documents"], found["metadatas"]) == (ids, documents, metadatas)
    np.testing.assert_array_equal(found["embeddings"], 2 * VECTORS)
    assert made.configuration_json["hnsw"]["space"] == "ip"


def test_values_chroma_cannot_hold_become_json(tmp_path):
    destination = open_chroma_destination(parse_address(f"chroma:{tmp_path}#docs?distance=euclid"))
    destination.begin(D, VECTORS.dtype, None, ABOUT)
    deep = [{"a": [1]}, [1, "x"], [], None]
    destination.write(some_rows([1, 2, 3, 4], VECTORS[:4], deep=np.array([*deep, 0], object)[:4]))
    destination.finish(4)
    client = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(anonymized_telemetry=False))
    made = client.get_collection("docs", embedding_function=None)
    assert made.get()["metadatas"] == [{"deep": '{"a": [1]}'}, {"deep": '[1, "x"]'}, {"deep": "[]"}, None]
    assert made.configuration_json["hnsw"]["space"] == "l2"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("#docs?distance=manhattan", "distance=manhattan is unknown: choose from cosine, dot, euclid"),
        ("", "does not specify a collection"),
        ("#a", "Expected a name containing 3-512 characters"),
    ],
)
def test_invalid_destination_raises(tmp_path, where, message):
    def write():
        destination = open_chroma_destination(parse_address(f"chroma:{tmp_path}{where}"))
        destination.begin(D, VECTORS.dtype, None, ABOUT)
        destination.write(some_rows([1], VECTORS[:1]))

    with pytest.raises(InputError, match=message):
        write()


def test_text_ids_added_to_integers_make_all_ids_text(tmp_path):
    where = f"chroma:{tmp_path}#numbers"
    assert write_store(VECTORS[:3], where) == 3
    assert sorted(open_store(where).ids.tolist()) == [0, 1, 2]
    client = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(anonymized_telemetry=False))
    client.get_collection("numbers", embedding_function=None).add(ids=["a"], embeddings=VECTORS[:1])
    assert sorted(open_store(where).ids.tolist()) == ["0", "1", "2", "a"]
