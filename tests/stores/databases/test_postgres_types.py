"""Column types for Arrow types; metadata of a file never becomes SQL."""

import pyarrow as pa
import pytest

from isoscope.stores.databases.postgres_catalog import column_type, to_text_column


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.bool_(), "boolean"),
        (pa.int8(), "integer"),
        (pa.int32(), "integer"),
        (pa.uint32(), "bigint"),
        (pa.int64(), "bigint"),
        (pa.uint64(), "numeric"),
        (pa.float16(), "real"),
        (pa.float32(), "real"),
        (pa.float64(), "double precision"),
        (pa.string(), "text"),
        (pa.large_string(), "text"),
        (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.binary(), "bytea"),
        (pa.date32(), "date"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.timestamp("ms", "UTC"), "timestamptz"),
        (pa.decimal128(9, 2), "numeric"),
        (pa.list_(pa.int8()), "jsonb"),
        (pa.struct({"a": pa.int8()}), "jsonb"),
        (pa.null(), "text"),
    ],
)
def test_each_arrow_type_has_a_column_type(kind, name):
    assert column_type(pa.field("x", kind)) == name


@pytest.mark.parametrize(
    "known", ["numeric(9,2)", "timestamp(3) with time zone", "character varying(20)[]", "public.vector(3)", "uuid"]
)
def test_type_from_postgresql_is_kept(known):
    assert column_type(pa.field("x", pa.string(), metadata={"postgresql": known})) == known


@pytest.mark.parametrize(
    "known", ["int); DROP TABLE docs; --", 'int "', "int --", "int /* */", "int'", "int\n, b int", "", "int, b", "(1)"]
)
def test_unsafe_type_names_are_ignored(known):
    assert column_type(pa.field("x", pa.string(), metadata={"postgresql": known})) == "text"


def test_values_become_text_that_postgresql_parses():
    assert to_text_column(pa.array([b"\xde\xad", None])).to_pylist() == ["\\xdead", None]
    assert to_text_column(pa.array([{"a": [1, None]}, None])).to_pylist() == ['{"a": [1, null]}', None]
    assert to_text_column(pa.array([True, None])).to_pylist() == ["true", None]
    assert to_text_column(pa.array(["x", None, "x"]).dictionary_encode()).to_pylist() == ["x", None, "x"]
