"""What kinds of columns PostgreSQL gets: for vectors of some precision, and for each kind of Arrow's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.databases.payloads import to_json_value
from isoscope.stores.databases.postgres_catalog import identifier

_MAX_DIMENSIONS = 16_000  # dimensions of a vector or halfvec of pgvector
_CHOICES = {
    "vector": ("vector", "f4"),
    "halfvec": ("halfvec", "f2"),
    "real[]": ("_float4", "f4"),
    "double precision[]": ("_float8", "f8"),
}


_PLAIN = re.compile(r"[a-z_][\w ]*(\.\w+)?(\(\d+(,-?\d+)?\))?[\w ]*(\[\])*")
"""A type that may stand in SQL as it is; what a file says of itself may be anything."""


class VectorType(NamedTuple):
    """A kind of column for vectors."""

    name: str
    """As the catalog has it."""
    dtype: np.dtype
    sql: Any


def choose_vector_type(connection: Any, dtype: np.dtype, dim: int, said: str | None, where: str) -> VectorType:
    """The kind that holds numbers of this precision as they are: as said, or pgvector's if it is there, or arrays."""
    from psycopg import sql

    rows = connection.execute(
        "SELECT t.typname, n.nspname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace "
        "WHERE t.typname IN ('vector', 'halfvec')"
    )
    there = dict(rows.fetchall())
    choice = said or _choice(dtype, there)
    name, number = _CHOICES[choice]
    if name.startswith("_"):
        return VectorType(name, np.dtype(number), sql.SQL(choice))
    if name not in there:
        raise InputError(f"{where}: pgvector is not in this database: CREATE EXTENSION vector, or type=real[]")
    if dim > _MAX_DIMENSIONS:
        raise InputError(
            f"{where}: {dim} dimensions are more than the {_MAX_DIMENSIONS} that a {name} holds: use type=real[]"
        )
    return VectorType(name, np.dtype(number), sql.SQL("{}({})").format(identifier(name, there[name]), sql.Literal(dim)))


def check_vector_type(said: str | None, where: str) -> None:
    """Refuse a kind of vectors that there is none of."""
    if said is not None and said not in _CHOICES:
        raise InputError(f"{where}: type={said} is not known: need {', '.join(_CHOICES)}")


def _choice(dtype: np.dtype, there: dict[str, str]) -> str:
    if dtype == np.float16 and "halfvec" in there:
        return "halfvec"
    if not np.can_cast(dtype, np.float32):
        return "double precision[]"
    return "vector" if "vector" in there else "real[]"


def column_type(field: Any) -> str:
    """The type of a column for a field of Arrow's; that which it had, if it comes from PostgreSQL."""
    import pyarrow.types as kinds

    kind = getattr(field.type, "storage_type", field.type)
    known = (field.metadata or {}).get(b"postgresql", b"").decode("utf-8", "replace")
    if _PLAIN.fullmatch(known):
        return str(known)
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if kinds.is_nested(kind):
        return "jsonb"
    if kinds.is_uint64(kind) or kinds.is_decimal(kind):
        return "numeric"
    for is_kind, name in (
        (kinds.is_boolean, "boolean"),
        (lambda each: kinds.is_integer(each) and each.bit_width <= 16, "integer"),
        (lambda each: kinds.is_int32(each), "integer"),
        (kinds.is_integer, "bigint"),
        (kinds.is_float64, "double precision"),
        (kinds.is_floating, "real"),
        (kinds.is_date, "date"),
        (kinds.is_time, "time"),
        (_is_bytes, "bytea"),
    ):
        if is_kind(kind):
            return name
    return "text"


def to_text_column(column: Any) -> Any:
    """The values of a column as text that PostgreSQL reads, in Arrow's strings."""
    import pyarrow as pa
    import pyarrow.types as kinds

    column = getattr(column, "storage", column)
    kind = column.type
    if kinds.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if kinds.is_nested(kind):
        return _format_values(column, lambda each: json.dumps(to_json_value(each)))
    if _is_bytes(kind):
        return _format_values(column, lambda each: f"\\x{each.hex()}")
    if kinds.is_float16(kind):
        column = column.cast(pa.float32())
    return column.cast(pa.string())


def _is_bytes(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind))


def _format_values(column: Any, form: Callable[[Any], str]) -> Any:
    import pyarrow as pa

    return pa.array([None if each is None else form(each) for each in column.to_pylist()], pa.string())
