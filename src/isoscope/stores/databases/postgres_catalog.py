"""Look up tables, columns, keys and vector types in the PostgreSQL catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from isoscope._core.errors import DatabaseError, NotFoundError, ParameterError
from isoscope.stores.databases.address import Address
from isoscope.stores.databases.base import suggest_names, to_json_value
from isoscope.stores.databases.postgres_copy import NUMBERS

VECTOR_TYPES = {"vector": "f4", "halfvec": "f2", "_float4": "f4", "_float8": "f8"}
"""Column types that are read as vectors, with the type of their numbers."""
UNSUPPORTED_TYPES = {"sparsevec": "sparse vectors", "bit": "bits"}
COMMENT_PREFIX = "isoscope "
"""The beginning of a comment that isoscope wrote."""

_MAX_DIMENSIONS = 16_000  # limit of pgvector's vector and halfvec
_TABLE_KINDS = "rpvmf"  # tables, partitioned tables, views, materialized views, foreign tables
_CHOICES = {
    "vector": ("vector", "f4"),
    "halfvec": ("halfvec", "f2"),
    "real[]": ("_float4", "f4"),
    "double precision[]": ("_float8", "f8"),
}
_BINARY_NUMBERS = {
    "boolean": "bool",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
}
_PLAIN_TYPE = re.compile(r"[a-z_][\w ]*(\.\w+)?(\(\d+(,-?\d+)?\))?[\w ]*(\[\])*")
"""Types that are safe to insert into SQL; the metadata of a file may contain anything."""


class VectorType(NamedTuple):
    """A column type for vectors."""

    name: str
    """The name of the type in the catalog."""
    dtype: np.dtype
    sql: Any


def choose_vector_type(connection: Any, dtype: np.dtype, dim: int, wanted: str | None, where: str) -> VectorType:
    """Return the requested type, or one that stores these numbers exactly: from pgvector if installed, else arrays."""
    from psycopg import sql

    rows = connection.execute(
        "SELECT t.typname, n.nspname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace "
        "WHERE t.typname IN ('vector', 'halfvec')"
    )
    installed = dict(rows.fetchall())
    choice = wanted or _exact_type(dtype, installed)
    name, number = _CHOICES[choice]
    if name.startswith("_"):
        return VectorType(name, np.dtype(number), sql.SQL(choice))
    if name not in installed:
        raise DatabaseError(f"{where}: this database lacks pgvector: run CREATE EXTENSION vector, or use type=real[]")
    if dim > _MAX_DIMENSIONS:
        raise ParameterError(
            f"{where}: the vectors have {dim} dimensions, but the type {name} supports at most {_MAX_DIMENSIONS}: use "
            "type=real[]"
        )
    return VectorType(
        name, np.dtype(number), sql.SQL("{}({})").format(identifier(name, installed[name]), sql.Literal(dim))
    )


def check_vector_type(wanted: str | None, where: str) -> None:
    """Raise an error for an unknown vector type."""
    if wanted is not None and wanted not in _CHOICES:
        raise ParameterError(f"{where}: type={wanted} is unknown: choose from {', '.join(_CHOICES)}")


def _exact_type(dtype: np.dtype, installed: dict[str, str]) -> str:
    if dtype == np.float16 and "halfvec" in installed:
        return "halfvec"
    if not np.can_cast(dtype, np.float32):
        return "double precision[]"
    return "vector" if "vector" in installed else "real[]"


def column_type(field: Any) -> str:
    """Return the SQL type for an Arrow field; a field that came from PostgreSQL keeps its type."""
    import pyarrow.types as kinds

    kind = getattr(field.type, "storage_type", field.type)
    known = (field.metadata or {}).get(b"postgresql", b"").decode("utf-8", "replace")
    if _PLAIN_TYPE.fullmatch(known):
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


def binary_number(field: Any) -> str | None:
    """Return the catalog name of a field's SQL type if its numbers fit that type; None means that a cast is needed."""
    import pyarrow.types as kinds

    kind, name = field.type, _BINARY_NUMBERS.get(column_type(field))
    is_number = kinds.is_boolean(kind) or kinds.is_integer(kind) or kinds.is_floating(kind)
    return name if name and is_number and np.can_cast(kind.to_pandas_dtype(), NUMBERS[name], "safe") else None


def to_text_column(column: Any) -> Any:
    """Return an Arrow column as strings that PostgreSQL can parse."""
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


def _format_values(column: Any, format_one: Callable[[Any], str]) -> Any:
    import pyarrow as pa

    return pa.array([None if each is None else format_one(each) for each in column.to_pylist()], pa.string())


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: str
    """The name of its type in the catalog; for a domain, the name of the base type."""
    schema: str
    """The schema of the type and its functions."""
    modifier: int
    """The number of dimensions of a vector if the type declares it; otherwise less than 1."""
    sql: str
    """The SQL type of the column."""
    comment: str | None


class Key(NamedTuple):
    """The column that identifies and orders the rows."""

    column: Column
    is_unique: bool
    """Whether the database guarantees that the values are unique."""

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.column.name

    @property
    def is_integer(self) -> bool:
        """Whether ids are integers; otherwise they are text."""
        return self.column.kind in ("int2", "int4", "int8")

    def sql(self, of: str | None = None) -> Any:
        """Return the column's quoted name."""
        return identifier(self.name, of)

    def id(self) -> Any:
        """Return the SQL expression for the id of a row, as bigint or text."""
        from psycopg import sql

        return sql.SQL("{}::bigint" if self.is_integer else "{}::text").format(self.sql())

    def cast(self, value: Any) -> Any:
        """Return a SQL expression that casts an id to the column's type, so that the index is used."""
        from psycopg import sql

        return sql.SQL("({})::{}").format(value, sql.SQL(self.column.sql))


@dataclass(frozen=True)
class Table:
    """A table or a view."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary: tuple[str, ...]
    """The columns of the primary key."""
    unique: frozenset[str]
    """The columns whose values the database guarantees to be unique and not null."""
    comment: str | None

    @property
    def sql(self) -> Any:
        """The quoted name of the table."""
        return identifier(self.name, self.schema)

    def column(self, name: str) -> Column | None:
        """Return the column of this name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    def key(self, wanted: str | None, where: str) -> Key:
        """Return the column that orders the rows: the requested one, or the primary key."""
        advice = "pass a column with unique values as &key=NAME, or create such a column (generated, or in a view)"
        if not wanted and not self.primary:
            raise ParameterError(f"{where} has no primary key: {advice}")
        if not wanted and len(self.primary) > 1:
            raise ParameterError(
                f"{where} has a primary key with several columns ({', '.join(self.primary)}): {advice}"
            )
        name = wanted or self.primary[0]
        column = self.column(name)
        if column is None and "," in name:
            raise ParameterError(f"{where}: key={name} refers to several columns: {advice}")
        if column is None:
            names = [each.name for each in self.columns]
            raise NotFoundError(f"{where} has no column {name} for key=: {suggest_names(name, names)}")
        return Key(column, name in self.unique)


def find_table(connection: Any, address: Address) -> Table | None:
    """Return the table at an address, or None if it does not exist."""
    schema, name = split_name(address.collection)
    row = connection.execute(
        "SELECT c.oid, n.nspname, c.relname, obj_description(c.oid, 'pg_class'), "
        "c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = %(name)s AND c.relkind = ANY(%(kinds)s) AND "
        "(n.nspname = %(schema)s OR (%(schema)s::text IS NULL AND pg_table_is_visible(c.oid)))",
        {"name": name, "schema": schema, "kinds": list(_TABLE_KINDS)},
    ).fetchone()
    if row is None:
        return None
    oid, schema, name, comment, inherited = row
    columns = connection.execute(
        "SELECT a.attname, coalesce(b.typname, t.typname), coalesce(m.nspname, n.nspname), "
        "CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE t.typtypmod END, format_type(a.atttypid, a.atttypmod), "
        "col_description(a.attrelid, a.attnum) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "JOIN pg_namespace n ON n.oid = t.typnamespace LEFT JOIN pg_type b ON t.typtype = 'd' AND "
        "b.oid = t.typbasetype LEFT JOIN pg_namespace m ON m.oid = b.typnamespace "
        "WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        (oid,),
    ).fetchall()
    indices = connection.execute(
        "SELECT i.indisprimary, array_agg(a.attname::text ORDER BY k.at), bool_and(a.attnotnull) FROM pg_index i, "
        "unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(number, at) "
        "JOIN pg_attribute a ON a.attnum = k.number WHERE a.attrelid = i.indrelid AND i.indrelid = %s "
        "AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL GROUP BY i.indexrelid, 1",
        (oid,),
    ).fetchall()
    primary = next((tuple(names) for first, names, _ in indices if first), ())
    # a unique index does not cover tables that inherit from this one
    unique = frozenset(names[0] for _, names, filled in indices if len(names) == 1 and filled and not inherited)
    return Table(schema, name, tuple(Column(*column) for column in columns), primary, unique, comment)


def require_table(connection: Any, address: Address) -> tuple[Address, Table]:
    """Return the table at an address, or the only table with vectors, and the complete address."""
    names = _tables(connection)
    if not address.collection:
        if len(names) != 1:
            known = f"tables with vectors are {', '.join(names[:12])}" if names else "no table contains vectors"
            raise ParameterError(f"{address} does not specify a table: add &table=NAME; {known}")
        address = Address(address.kind, address.place, names[0], address.options)
    table = find_table(connection, address)
    if table is None:
        name = ".".join(part for part in split_name(address.collection) if part)
        raise NotFoundError(f"{address}: there is no table {name}: {suggest_names(name, names)}")
    return address, table


def _tables(connection: Any) -> list[str]:
    """Return the tables and views that have vectors; a name outside the search path includes its schema."""
    rows = connection.execute(
        "SELECT DISTINCT CASE WHEN pg_table_is_visible(c.oid) THEN quote_ident(c.relname) ELSE quote_ident(n.nspname) "
        "|| '.' || quote_ident(c.relname) END FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN "
        "pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid WHERE t.typname = ANY(%s) AND "
        "c.relkind = ANY(%s) AND NOT a.attisdropped AND n.nspname NOT IN ('pg_catalog', 'information_schema') "
        "ORDER BY 1",
        (list(VECTOR_TYPES), list(_TABLE_KINDS)),
    )
    return [row[0] for row in rows]


NULL_ELEMENTS, NOT_FLAT = -1, -2
"""The keys under which `count_dimensions` counts arrays with null elements, and empty or nested arrays."""


def valid_vector_condition(column: Column, dim: int) -> Any:
    """Return the SQL condition for rows that have a vector with this many dimensions."""
    from psycopg import sql

    name = identifier(column.name)
    if column.kind.startswith("_"):
        return sql.SQL("({} = {})").format(_dimensions(column), sql.Literal(dim))
    if column.modifier > 0:
        return sql.SQL("{} IS NOT NULL").format(name)
    return sql.SQL("({} IS NOT NULL AND {} = {})").format(name, _dimensions(column), sql.Literal(dim))


def count_dimensions(connection: Any, table: Table, column: Column) -> dict[int | None, int]:
    """Return the number of rows for each number of dimensions.

    None counts rows without a vector, `NULL_ELEMENTS` arrays with null elements, and `NOT_FLAT` empty or nested arrays.
    """
    from psycopg import sql

    if column.modifier > 0 and not column.kind.startswith("_"):
        form = sql.SQL("SELECT count(*), count({}) FROM {}").format(identifier(column.name), table.sql)
        total, filled = connection.execute(form).fetchone()
        counts: dict[int | None, int] = {column.modifier: filled, None: total - filled}
        return {dim: count for dim, count in counts.items() if count}
    form = sql.SQL("SELECT {}, count(*) FROM {} GROUP BY 1").format(_dimensions(column), table.sql)
    return dict(connection.execute(form).fetchall())


def _dimensions(column: Column) -> Any:
    """Return the SQL expression for a vector's number of dimensions, or for the negative code of its problem."""
    from psycopg import sql

    name = identifier(column.name)
    if column.kind.startswith("_"):  # array_position raises an error for several axes
        form = (
            f"CASE WHEN {{0}} IS NULL THEN NULL WHEN coalesce(array_ndims({{0}}), 0) <> 1 THEN {NOT_FLAT} "
            f"WHEN array_position({{0}}, NULL) IS NOT NULL THEN {NULL_ELEMENTS} ELSE cardinality({{0}}) END"
        )
        return sql.SQL(form).format(name)
    return sql.SQL("{}({})").format(identifier("vector_dims", column.schema), name)


def check_unique_key(connection: Any, table: Table, key: Key, where: str) -> None:
    """Raise an error if the key is not unique, because rows could be skipped or vectors written to the wrong row."""
    from psycopg import sql

    form = sql.SQL("SELECT count(*), count({0}), count(DISTINCT {0}) FROM {1}").format(key.sql(), table.sql)
    rows, filled, different = connection.execute(form).fetchone()
    if filled < rows:
        raise ParameterError(
            f"{where}: key={key.name} is null in {rows - filled:,} rows: choose another column with key=NAME"
        )
    if different < rows:
        raise ParameterError(
            f"{where}: key={key.name} has {different:,} distinct values in {rows:,} rows: choose another "
            "column with key=NAME"
        )


def vector_dtype(column: Column) -> np.dtype:
    """Return the number type of a vector column."""
    return np.dtype(VECTOR_TYPES[column.kind])


def read_note(comment: str | None) -> str | None:
    """Return isoscope's note in a comment, or None if isoscope did not write it."""
    return comment.removeprefix(COMMENT_PREFIX) if comment and comment.startswith(COMMENT_PREFIX) else None


def identifier(name: str, of: str | None = None) -> Any:
    """Return a quoted name, qualified by a schema or table if given."""
    from psycopg import sql

    return sql.Identifier(name) if of is None else sql.Identifier(of, name)


def split_name(name: str) -> tuple[str | None, str]:
    """Split a name into schema and name; inside double quotes, a dot is kept, and two quotes stand for one."""
    parts: list[str] = [""]
    quoted = False
    for at, letter in enumerate(name):
        if letter == '"':
            quoted = not quoted
            parts[-1] += '"' if quoted and name[at - 1 : at] == '"' else ""  # a doubled quote
        elif letter == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    if len(parts) > 2 or not all(parts):
        raise ParameterError(f"table={name}: need NAME or SCHEMA.NAME")
    return (parts[0] if len(parts) == 2 else None), parts[-1]
