"""Addresses are parsed, and their secrets are never shown."""

import numpy as np
import pytest

import isoscope
from isoscope._core.errors import InputError, NotFoundError, ParameterError
from isoscope.stores.databases.address import parse_address, parse_target
from isoscope.stores.open import open_store
from isoscope.stores.write import write_store

SECRET = "s3cr3t%40x"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@host:5432/db?table=docs&column=v",
        f"postgres://me:{SECRET}@host/db?sslmode=require",
        f"postgresql://host/db?user=me&password={SECRET}&table=docs",
        f"postgresql+psycopg://:{SECRET}@/db?host=/socket/dir&table=docs",
        f"qdrant:https://host:6333#docs?api_key={SECRET}",
        f"qdrant:https://me:{SECRET}@host:6333#docs",
        f"chroma:https://host:8000?token={SECRET}#docs",
        f"lancedb:/data/db#docs?aws_secret_access_key={SECRET}&auth_token={SECRET}",
    ],
)
def test_secrets_are_kept_but_never_shown(text):
    found = parse_address(text)
    for words in (
        found.redacted,
        str(found),
        repr(found),
        f"{found}",
        found.redact(f"failed: s3cr3t@x, {SECRET}, {text}"),
    ):
        assert "s3cr3t" not in words
    assert "s3cr3t" in found.place + str(dict(found.options))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me@host:5432/db?sslmode=require&table=public.docs&column=v&key=a,b&missing=drop",
        "postgresql:///db?host=/socket/dir&table=docs",
        "qdrant:/data/q#docs?missing=drop",
        "qdrant:http://localhost:6333#docs",
        "lancedb:data/db#docs",
        "chroma:data/c#a-b",
        "chroma:data/c",
        "chroma:http://[::1]:8000#docs@2",
        "lancedb:s3://bucket/a@b#docs",
    ],
)
def test_redacted_address_points_to_the_same_place(text):
    found = parse_address(text)
    assert found.redacted == text
    assert parse_address(found.redacted) == found


def test_folder_names_are_not_redacted_from_messages():
    assert parse_address("lancedb:L#docs").redact("LanceError:\n no L") == "LanceError: no L"


def test_parts_of_postgresql_address():
    found = parse_address("postgres://me:pw@host/db?table=a%20b&column=v&application_name=x%26y")
    assert (found.kind, found.collection, found.options) == ("postgresql", "a b", {"column": "v"})
    assert found.place == "postgresql://me:pw@host/db?application_name=x%26y"


def test_parts_of_other_addresses():
    found = parse_address("qdrant:/data/h#my#docs?missing=drop")
    assert (found.place, found.collection) == ("/data/h#my", "docs")
    assert parse_address("chroma:folder?missing=drop#docs").options == {"missing": "drop"}


@pytest.mark.parametrize(
    "text", ["docs.parquet", "-", "data/*.npy", "qdrant", "http://x#y", "C:\\data\\x.npy", "postgres.npy"]
)
def test_file_is_not_an_address(text):
    assert parse_address(text) is None


def test_unknown_scheme_raises_one_line_without_secret():
    with pytest.raises(InputError, match=r"mysql://….*postgresql://") as caught:
        open_store("mysql://me:s3cr3t@host/db?table=t")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:s3cr3t/x@host/db",
        "postgresql://me:s3cr3t@x@host/db",
        "postgresql://me:s3cr3t?x@host/db?table=t",
        "postgresql://me:s3cr3t#x@host/db?table=t",
        "postgresql://host/db?table",
        "postgresql://host/db?table=a&table=b",
        "postgresql://host/db?missing=maybe",
        "postgresql:me:s3cr3t@host/db",
        "postgres:/me:s3cr3t@host/db",
        "postgresql//me:s3cr3t@host/db",
        "qdrant:#docs",
        "chroma:",
        "qdrant://me:s3cr3t@host:6333#docs",
        "qdrant:https://me:s3cr3t/x@host:6333#docs",
        "qdrant:https://me:1/s3cr3t@host:6333#docs",
        "chroma:https://me:s3cr3t#x@host:8000#docs",
        "chroma:https://me:s3cr3t#x@host:8000",
        "chroma:https://me:s3cr3t?x=y@host:8000#docs",
        "lancedb:s3://key:s3cr3t/x@bucket/folder#docs",
    ],
)
def test_syntax_error_raises_one_line_without_secret(text):
    with pytest.raises(InputError) as caught:
        parse_address(text)
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)


UNSUPPORTED = {
    "pinecone:my-index": r"pinecone:….*index\.list\(\) and index\.fetch\(\).*\.parquet",
    "Pinecone://my-index": r"Pinecone://….*index\.fetch",
    "weaviate:Docs": "include_vector=True",
    "milvus://host:19530/docs": "query_iterator",
    "elasticsearch://me:s3cr3t@host/docs": r"helpers\.scan",
    "opensearch:docs": r"helpers\.scan",
    "rediss://me:s3cr3t@host": "scan_iter",
    "vespa://host": "vespa visit",
    "turbopuffer:docs": "rank_by",
    "duckdb://docs": "did you mean duckdb:FILE",
    "faiss:docs.index": "reconstruct_n",
    "mongodb+srv://me:s3cr3t@host/db": r"collection\.find",
    "unheard-of://host/docs": "unheard-of://….*export the vectors",
    "az://container/docs.parquet": "copy the files.*s3://",
    "qdrnt:data#docs": "did you mean qdrant:PATH#collection",
    "chromadb:data#docs": "did you mean chroma:PATH#collection",
    "pgvector://me:s3cr3t@host/db": "did you mean postgresql://user@host",
}


@pytest.mark.parametrize("text", UNSUPPORTED)
def test_unsupported_database_says_what_to_do(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for use in (open_store, parse_target, lambda text: write_store(np.eye(3), text)):
        with pytest.raises(ParameterError, match=UNSUPPORTED[text]) as caught:
            use(text)
        assert "s3cr3t" not in str(caught.value)
        assert "spelling" not in str(caught.value)
    with pytest.raises(InputError):
        isoscope.Center().fit(np.eye(3)).save(text)
    assert not list(tmp_path.iterdir())


def test_colon_in_a_file_name_is_not_a_scheme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("pinecone:dump.npy", np.eye(3))
    assert len(open_store("pinecone:dump.npy")) == 3
    assert write_store(np.eye(4), "2024-01:dump.npy") == 4
    assert write_store(np.eye(5), "pinecone:dump.npy") == 5
    with pytest.raises(NotFoundError, match="did you mean pinecone:dump"):
        open_store("./pinecone:dmp.npy")


@pytest.mark.parametrize("place", ["http//host:6333", "https:/host", "http:host", "localhost:6333", "me:pw@host"])
def test_mistyped_server_does_not_become_a_folder(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("qdrant", "chroma"):
        with pytest.raises(ParameterError, match=rf"cannot parse the address.*{kind}:http://host"):
            write_store(np.eye(3), f"{kind}:{place}#docs")
    assert not list(tmp_path.iterdir())
