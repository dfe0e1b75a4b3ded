"""Addresses are parsed, and their secrets are never shown."""

import pytest

from isoscope._core.errors import InputError
from isoscope.stores.databases.address import parse_address
from isoscope.stores.open import open_store

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
