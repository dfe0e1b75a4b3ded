"""Chroma collections are read completely and in order, from a folder and from a server."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from isoscope._core.errors import InputError
from isoscope.stores.columns import ColumnSpec
from isoscope.stores.databases import base, chroma
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.chroma import open_chroma
from tests.services import require
from tests.stores.databases.chroma_server import guarding, serving
from tests.stores.databases.contract import check_reading

chromadb = require("chromadb")

N, D = 300, 8
VECTORS = np.random.default_rng(5).standard_normal((N, D)).astype(np.float32)
COLUMNS = {
    "ids": [f"doc {(7 * i) % N}" for i in range(N)],
    "text": [f"text {i}" for i in range(N)],
    "labels": [i % 3 for i in range(N)],
}


def client_of(path):
    return chromadb.PersistentClient(path, settings=chromadb.Settings(anonymized_telemetry=False))


def fill(client, name="docs", **settings):
    made = client.create_collection(name, embedding_function=None, **settings)
    metadatas = [{"label": i % 3, "title": f"title {i}"} for i in range(N)]
    for start in range(0, N, 90):
        part = slice(start, start + 90)
        made.add(
            ids=COLUMNS["ids"][part],
            embeddings=VECTORS[part],
            documents=COLUMNS["text"][part],
            metadatas=metadatas[part],
        )
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chroma")
    fill(client_of(path), configuration={"hnsw": {"space": "ip", "ef_construction": 50}})
    client_of(path).create_collection("empty", embedding_function=None)
    bare = client_of(path).create_collection("bare", embedding_function=None)
    bare.add(ids=["b", "a"], embeddings=[[1.0, 2.0], [3.0, 4.0]])
    return path


def opened(where, /, **wanted):
    return open_chroma(parse_address(where), ColumnSpec(wanted.pop("vectors", None), wanted))


@pytest.fixture
def small_pages(monkeypatch):
    from isoscope.stores.databases import chroma

    monkeypatch.setattr(chroma, "_PAGE_ROWS", 50)
    monkeypatch.setattr(chroma, "_IDS_PER_PAGE", 70)


def test_folder_is_read_in_order_of_insertion(folder, small_pages):
    check_reading(opened(f"chroma:{folder}#docs"), VECTORS, COLUMNS)


def test_server_is_read_like_a_folder(folder, small_pages):
    with serving(folder) as url:
        check_reading(opened(f"chroma:{url}#docs"), VECTORS, COLUMNS)


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_that_denies_access_asks_for_a_password(folder, status):
    with serving(folder) as url, guarding(url, "me:s3cr3t", status) as guarded:
        for login in ("", "me:wr0ng@"):
            with pytest.raises(InputError, match="denies access: pass a user name and password, as in http://") as told:
                opened(f"chroma:{guarded.replace('//', '//' + login)}#docs")
            assert "wr0ng" not in str(told.value)
            assert "\n" not in str(told.value)
        check_reading(opened(f"chroma:{guarded.replace('//', '//me:s3cr3t@')}#docs"), VECTORS, COLUMNS)


def test_a_server_that_denies_access_later_raises_one_line(folder, small_pages):
    with serving(folder) as url, guarding(url, "me:s3cr3t", 403, answers=14) as guarded:
        store = opened(f"chroma:{guarded.replace('//', '//me:s3cr3t@')}#docs")
        with pytest.raises(InputError, match="denies access: pass a user name and password") as told:
            list(store.chunks(50))
        assert "s3cr3t" not in str(told.value)


def test_documents_are_the_text_by_default(folder):
    assert opened(f"chroma:{folder}#docs").text[3] == "text 3"
    assert opened(f"chroma:{folder}#docs", text="title").text[3] == "title 3"


def test_rows_without_documents_and_metadata(folder):
    check_reading(opened(f"chroma:{folder}#bare"), np.array([[1, 2], [3, 4]], np.float32), {"ids": ["b", "a"]})


def test_other_columns_are_documents_and_metadata(folder):
    store = opened(f"chroma:{folder}#docs")
    layout = store.layout()
    assert layout.schema.names == ["id", "embedding", "document", "metadata"]
    assert layout.schema.metadata[b"isoscope:distance"] == b"dot"
    record = next(store.batches(rows=20, other_columns=True)).other_columns
    assert record.column("document")[7].as_py() == "text 7"
    assert json.loads(record.column("metadata")[7].as_py()) == {"label": 1, "title": "title 7"}


def test_folder_opened_by_the_program_is_read(tmp_path):
    fill(chromadb.PersistentClient(tmp_path))
    assert len(opened(f"chroma:{tmp_path}#docs")) == N


def test_folder_opened_with_other_settings_raises(tmp_path):
    theirs = chromadb.PersistentClient(tmp_path, settings=chromadb.Settings(allow_reset=True))
    with pytest.raises(InputError, match="with different settings"):
        opened(f"chroma:{tmp_path}#docs")
    assert theirs.list_collections() == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("#dosc", "does not exist: did you mean docs"),
        ("", "does not specify a collection: .*#NAME; it contains"),
        ("#empty", "has no rows"),
        ("#docs?mising=drop", "unknown option mising: choose from missing"),
    ],
)
def test_missing_collection_raises_one_line(folder, name, message):
    with pytest.raises(InputError, match=message):
        opened(f"chroma:{folder}{name}")
    with pytest.raises(InputError, match="has no column named dense; choose from embedding"):
        opened(f"chroma:{folder}#docs", vectors="dense")
    with pytest.raises(InputError, match="has no column nothing for labels"):
        opened(f"chroma:{folder}#docs", labels="nothing")


def test_foreign_folder_is_not_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "theirs").mkdir()
    sqlite3.connect(tmp_path / "theirs" / "chroma.sqlite3").execute("CREATE TABLE mine (id)").connection.close()
    with pytest.raises(InputError, match="is not a Chroma folder"):
        opened(f"chroma:{tmp_path}/theirs#docs")
    with pytest.raises(InputError, match="is not a Chroma folder"):
        opened(f"chroma:{tmp_path}#docs")
    with pytest.raises(InputError, match=r"does not exist: .* or a server"):
        opened(f"chroma:{tmp_path}/nowhere#docs")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["notes.txt", "theirs"]


def test_deleted_rows_raise(tmp_path):
    made = fill(client_of(tmp_path))
    store = opened(f"chroma:{tmp_path}#docs")
    made.delete(ids=["doc 7"])
    with pytest.raises(InputError, match="lost rows while it was being read"):
        list(store.chunks())


def test_unreachable_server_raises(folder, monkeypatch, small_pages):
    monkeypatch.setattr(base, "PAUSES", (0.01,))
    with pytest.raises(InputError, match=r"chroma:http://me@127.0.0.1:9#docs: the server cannot be reached"):
        opened("chroma:http://me:s3cr3t@127.0.0.1:9#docs")
    with serving(folder) as url:
        store = opened(f"chroma:{url}#docs")
        batches = store.batches(rows=50)
        next(batches)
    with pytest.raises(InputError, match="cannot be reached"):
        list(batches)


@pytest.mark.heavy
def test_reading_resumes_after_server_restart(folder, monkeypatch, small_pages):
    monkeypatch.setattr(base, "PAUSES", (1.0,) * 15)
    with serving(folder) as url:
        store = opened(f"chroma:{url}#docs")
        batches = store.batches(rows=50)
        found = [next(batches).vectors]
    with serving(folder, port=int(url.rpartition(":")[2])):
        found += [batch.vectors for batch in batches]
    np.testing.assert_array_equal(np.concatenate(found), VECTORS)


def test_locked_folder_raises(tmp_path, monkeypatch):
    hold = f"""
import sqlite3, sys
other = sqlite3.connect({str(tmp_path / "chroma.sqlite3")!r}, isolation_level=None)
other.execute("CREATE TABLE collections (id)")
other.execute("BEGIN EXCLUSIVE")
print("ready", flush=True)
sys.stdin.read()
"""
    monkeypatch.setattr(chroma, "_WAIT", 0.1)
    other = subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"ready\n"
        with pytest.raises(InputError, match="is locked by another process"):
            opened(f"chroma:{tmp_path}#docs")
    finally:
        other.communicate(b"")
