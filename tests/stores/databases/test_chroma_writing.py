"""A collection of Chroma is written by ids, and reads back as what was written."""

from __future__ import annotations

import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.chroma import open_chroma, open_chroma_destination
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store
from tests.stores.databases.chroma_server import serving
from tests.stores.databases.contract import ABOUT, is_written_by_ids, leaves_what_is_not_its_own, some_rows

chromadb = pytest.importorskip("chromadb")

N, D = 40, 6
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)


def doors(where):
    return lambda: open_chroma_destination(parse_address(where)), lambda: open_chroma(
        parse_address(where.split("?")[0]), ColumnSpec()
    )


@pytest.mark.parametrize("ids", [[i - 20 for i in range(N)], [f"doc {i}" for i in range(N)]])
def test_a_folder_is_written_by_ids(tmp_path, ids):
    is_written_by_ids(*doors(f"chroma:{tmp_path}/db#docs?distance=dot"), VECTORS, ids)


def test_a_server_is_written_by_ids(tmp_path):
    with serving(tmp_path) as url:
        is_written_by_ids(*doors(f"chroma:{url}#docs?distance=dot"), VECTORS, [f"doc {i}" for i in range(N)])


def test_what_is_not_its_own_is_left(tmp_path):
    client = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(anonymized_telemetry=False))
    client.create_collection("docs", embedding_function=None).add(ids=["a"], embeddings=[[1.0, 2.0, 3.0, 4.0]])
    leaves_what_is_not_its_own(*doors(f"chroma:{tmp_path}#docs"))


def test_documents_metadata_and_the_index_go_from_collection_to_collection(tmp_path):
    client = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(anonymized_telemetry=False))
    source = client.create_collection("docs", embedding_function=None, metadata={"hnsw:space": "ip", "hnsw:M": 8})
    metadatas = [{"label": i, "tags": ["a", "b"]} if i % 2 else None for i in range(N)]
    documents = [f"text {i}" if i % 3 else None for i in range(N)]
    ids = [f"doc {i}" for i in range(N)]
    source.add(ids=ids, embeddings=VECTORS, documents=documents, metadatas=metadatas)
    store = open_chroma(parse_address(f"chroma:{tmp_path}#docs"), ColumnSpec())
    destination = open_chroma_destination(parse_address(f"chroma:{tmp_path}#mended"))
    destination.begin(D, VECTORS.dtype, store.layout(), {**ABOUT, "ids": "id"})
    for batch in store.batches(["ids"], rows=7, other_columns=True):
        destination.write(batch._replace(vectors=2 * batch.vectors))
    destination.finish(N)
    made = client.get_collection("mended", embedding_function=None)
    found = made.get(include=["embeddings", "documents", "metadatas"])
    assert (found["ids"], found["documents"], found["metadatas"]) == (ids, documents, metadatas)
    np.testing.assert_array_equal(found["embeddings"], 2 * VECTORS)
    assert made.configuration_json["hnsw"] == source.configuration_json["hnsw"]


def test_what_chroma_cannot_hold_is_json(tmp_path):
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
        ("#docs?distance=manhattan", "distance=manhattan: need cosine, dot, euclid"),
        ("", "says no collection"),
        ("#a", "Expected a name containing 3-512 characters"),
    ],
)
def test_what_cannot_be_written_to_is_said(tmp_path, where, message):
    def write():
        destination = open_chroma_destination(parse_address(f"chroma:{tmp_path}{where}"))
        destination.begin(D, VECTORS.dtype, None, ABOUT)
        destination.write(some_rows([1], VECTORS[:1]))

    with pytest.raises(InputError, match=message):
        write()


def test_ids_that_others_add_to_numbers_make_all_of_them_text(tmp_path):
    where = f"chroma:{tmp_path}#numbers"
    assert write_store(where, VECTORS[:3]) == 3
    assert sorted(open_store(where).ids.tolist()) == [0, 1, 2]
    client = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(anonymized_telemetry=False))
    client.get_collection("numbers", embedding_function=None).add(ids=["a"], embeddings=VECTORS[:1])
    assert sorted(open_store(where).ids.tolist()) == ["0", "1", "2", "a"]
