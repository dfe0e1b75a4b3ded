"""Errors that are raised before a database is changed."""

import os
import sys

import numpy as np
import pytest

from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.write import write_to_database
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store


def test_iterator_of_batches_raises():
    store = open_store(np.eye(3))
    with pytest.raises(InputError, match="store"):
        write_store(store.batches(), "lancedb:library#docs")


@pytest.mark.parametrize(
    ("kind", "package", "extra"),
    [("lancedb", "lancedb", "lancedb"), ("chroma", "chromadb", "chroma")],
)
def test_missing_extra_is_named_before_the_folder_is_checked(kind, package, extra, tmp_path, monkeypatch):
    (tmp_path / "notes.txt").touch()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf'pip install "isoscope\[{extra}\]"'):
        write_store(np.eye(3), f"{kind}:{tmp_path}#docs")


@pytest.mark.parametrize("kind", ["qdrant", "lancedb", "chroma"])
def test_source_is_not_a_destination(kind):
    where = f"{kind}:library#docs"
    store = open_store(np.eye(3)).mapped(np.asarray, 3, name=f"{where}?missing=drop")
    for restart in (False, True):
        with pytest.raises(InputError, match="is the source itself"):
            write_to_database(parse_address(where), store, restart=restart)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("lancedb:library#docs", "lancedb:./folder/../library/#docs"),
        ("qdrant:~/library#docs", f"qdrant:{os.path.expanduser('~')}/library#docs"),
        ("chroma:http://me@localhost#docs", "chroma:http://127.0.0.1:8000/#docs"),
        ("qdrant:http://[::1]:6333#docs", "qdrant:http://localhost#docs"),
        (
            "postgresql://me@host/db?table=docs",
            "postgresql://you:s3cr3t@HOST:5432/db?table=public.docs&sslmode=require",
        ),
        ("postgresql:///db?host=/socket/dir&table=docs", 'postgresql://localhost/db?table="docs"&column=embedding'),
    ],
)
def test_source_is_recognized_in_another_spelling(read, written):
    store = open_store(np.eye(3)).mapped(np.asarray, 3, name=read)
    with pytest.raises(InputError, match="is the source itself"):
        write_to_database(parse_address(written), store, restart=True)
