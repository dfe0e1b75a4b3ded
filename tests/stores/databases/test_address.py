"""What is typed for a database is taken apart, and what is secret in it is shown nowhere."""

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
def test_a_secret_is_in_the_place_or_the_options_and_never_shown(text):
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
def test_what_is_shown_leads_to_the_same_place(text):
    found = parse_address(text)
    assert found.redacted == text
    assert parse_address(found.redacted) == found


def test_the_name_of_a_folder_is_left_in_other_words():
    assert parse_address("lancedb:L#docs").redact("LanceError:\n no L") == "LanceError: no L"


def test_the_parts_of_a_postgresql_address():
    found = parse_address("postgres://me:pw@host/db?table=a%20b&column=v&application_name=x%26y")
    assert (found.kind, found.collection, found.options) == ("postgresql", "a b", {"column": "v"})
    assert found.place == "postgresql://me:pw@host/db?application_name=x%26y"


def test_the_parts_of_the_others():
    found = parse_address("qdrant:/data/h#my#docs?missing=drop")
    assert (found.place, found.collection) == ("/data/h#my", "docs")
    assert parse_address("chroma:folder?missing=drop#docs").options == {"missing": "drop"}


@pytest.mark.parametrize(
    "text", ["docs.parquet", "-", "data/*.npy", "qdrant", "http://x#y", "C:\\data\\x.npy", "postgres.npy"]
)
def test_a_file_is_no_address(text):
    assert parse_address(text) is None


def test_another_kind_of_address_is_one_line_without_the_secret():
    with pytest.raises(InputError, match=r"mysql://… is not read: need a file, or postgresql://") as caught:
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
def test_what_cannot_be_read_is_one_line_without_the_secret(text):
    with pytest.raises(InputError) as caught:
        parse_address(text)
    assert "s3cr3t" not in str(caught.value)
    assert "\n" not in str(caught.value)
