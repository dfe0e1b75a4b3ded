"""PostgreSQL's catalog: tables, columns, keys and vector types."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.databases.address import Address
from isoscope.stores.databases.base import suggest_names, to_json_value

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


VECTOR_TYPES = {"vector": "f4", "halfvec": "f2", "_float4": "f4", "_float8": "f8"}
"""The kinds of columns that are read as vectors, and the numbers in them."""
UNSUPPORTED_TYPES = {"sparsevec": "sparse vectors", "bit": "bits"}
COMMENT_PREFIX = "isoscope "
"""What a comment of isoscope's begins with."""
_TABLES = "rpvmf"  # tables, parted ones, views, materialized views, foreign tables


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: str
    """The name of its type in the catalog; that of the base of a domain."""
    schema: str
    """Where the type lives, with its functions."""
    modifier: int
    """The dimensions of a vector, if the type says them; else below 1."""
    sql: str
    """Its type as it is written."""
    comment: str | None


class Key(NamedTuple):
    """What the rows are told apart and ordered by."""

    columns: tuple[Column, ...]
    is_unique: bool
    """Whether the database keeps them different."""

    @property
    def name(self) -> str:
        """The column, or the columns joined by a plus."""
        return "+".join(column.name for column in self.columns)

    @property
    def whole(self) -> bool:
        """Whether ids are whole numbers; they are text otherwise."""
        return len(self.columns) == 1 and self.columns[0].kind in ("int2", "int4", "int8")

    def ordered(self, of: str | None = None) -> Any:
        """The columns, as they are sorted by."""
        from psycopg import sql

        return sql.SQL(", ").join(identifier(column.name, of) for column in self.columns)

    def id(self, of: str | None = None) -> Any:
        """The id of a row: a whole number, or text; that of several columns is a list in JSON."""
        from psycopg import sql

        if self.whole:
            return sql.SQL("{}::bigint").format(identifier(self.columns[0].name, of))
        if len(self.columns) == 1:
            return sql.SQL("{}::text").format(identifier(self.columns[0].name, of))
        return sql.SQL("jsonb_build_array({})::text").format(self.ordered(of))

    def parts(self, given: Any) -> Any:
        """The key's values that an id stands for, given as SQL, in a form that an index is used for."""
        from psycopg import sql

        if len(self.columns) == 1:
            return sql.SQL("({})::{}").format(given, sql.SQL(self.columns[0].sql))
        return sql.SQL(", ").join(
            sql.SQL("(({})::jsonb ->> {})::{}").format(given, sql.Literal(i), sql.SQL(column.sql))
            for i, column in enumerate(self.columns)
        )


@dataclass(frozen=True)
class Table:
    """A table or a view."""

    schema: str
    name: str
    columns: tuple[Column, ...]
    primary: tuple[str, ...]
    unique: tuple[frozenset[str], ...]
    """Columns by which rows are different, for sure."""
    comment: str | None

    @property
    def sql(self) -> Any:
        """Its name, quoted."""
        return identifier(self.name, self.schema)

    def column(self, name: str) -> Column | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)

    def key(self, said: str | None, where: str) -> Key:
        """What rows are ordered by: as said, or the primary key."""
        names = [name.strip() for name in said.split(",")] if said else list(self.primary)
        if not names:
            raise InputError(
                f"{where} has no primary key to read its rows in one order by: name columns that differ in every row, "
                "&key=NAME (several with commas)"
            )
        found = [self.column(name) for name in names]
        for name, column in zip(names, found, strict=True):
            if column is None:
                raise InputError(
                    f"{where} has no column {name} for key=: {suggest_names(name, [c.name for c in self.columns])}"
                )
        columns = tuple(column for column in found if column is not None)
        return Key(columns, any(each <= set(names) for each in self.unique))


def find_table(connection: Any, address: Address) -> Table | None:
    """The table that is meant; None if it is not there."""
    schema, name = split_name(address.collection)
    row = connection.execute(
        "SELECT c.oid, n.nspname, c.relname, obj_description(c.oid, 'pg_class'), "
        "c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = %(name)s AND c.relkind = ANY(%(kinds)s) AND "
        "(n.nspname = %(schema)s OR (%(schema)s::text IS NULL AND pg_table_is_visible(c.oid)))",
        {"name": name, "schema": schema, "kinds": list(_TABLES)},
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
    # a unique index does not reach into tables that inherit
    unique = tuple(frozenset(names) for _, names, filled in indices if filled and not inherited)
    return Table(schema, name, tuple(Column(*column) for column in columns), primary, unique, comment)


def require_table(connection: Any, address: Address) -> tuple[Address, Table]:
    """The table that is meant, or the only one that holds vectors, and the address that says it."""
    found = _tables(connection)
    if not address.collection:
        if len(found) != 1:
            has = f"those with vectors are {', '.join(found[:12])}" if found else "none holds vectors"
            raise InputError(f"{address} does not say which table: &table=NAME; {has}")
        address = Address(address.kind, address.place, found[0], address.options)
    table = find_table(connection, address)
    if table is None:
        said = ".".join(part for part in split_name(address.collection) if part)
        raise InputError(f"{address}: there is no table {said}: {suggest_names(said, found)}")
    return address, table


def _tables(connection: Any) -> list[str]:
    """The tables and views that hold vectors, named as is needed here."""
    rows = connection.execute(
        "SELECT DISTINCT CASE WHEN pg_table_is_visible(c.oid) THEN quote_ident(c.relname) ELSE quote_ident(n.nspname) "
        "|| '.' || quote_ident(c.relname) END FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN "
        "pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid WHERE t.typname = ANY(%s) AND "
        "c.relkind = ANY(%s) AND NOT a.attisdropped AND n.nspname NOT IN ('pg_catalog', 'information_schema') "
        "ORDER BY 1",
        (list(VECTOR_TYPES), list(_TABLES)),
    )
    return [row[0] for row in rows]


def valid_vector_condition(column: Column, dim: int) -> Any:
    """The condition that a row has a vector of these dimensions."""
    from psycopg import sql

    name = identifier(column.name)
    if column.kind.startswith("_"):
        form = "array_ndims({0}) = 1 AND cardinality({0}) = {1} AND array_position({0}, NULL) IS NULL"
        return sql.SQL("({0} IS NOT NULL AND " + form + ")").format(name, sql.Literal(dim))
    if column.modifier > 0:
        return sql.SQL("{} IS NOT NULL").format(name)
    return sql.SQL("({} IS NOT NULL AND {} = {})").format(name, _dimensions(column), sql.Literal(dim))


def count_dimensions(connection: Any, table: Table, column: Column) -> dict[int | None, int]:
    """How many rows have a vector of which dimensions; None is none."""
    from psycopg import sql

    if column.modifier > 0 and not column.kind.startswith("_"):
        form = sql.SQL("SELECT count(*), count({}) FROM {}").format(identifier(column.name), table.sql)
        every, filled = connection.execute(form).fetchone()
        counts: dict[int | None, int] = {column.modifier: filled, None: every - filled}
        return {dim: count for dim, count in counts.items() if count}
    form = sql.SQL("SELECT {}, count(*) FROM {} GROUP BY 1").format(_dimensions(column), table.sql)
    return dict(connection.execute(form).fetchall())


def _dimensions(column: Column) -> Any:
    """The number of dimensions of a row's vector, in SQL; null for an array that is none."""
    from psycopg import sql

    name = identifier(column.name)
    if column.kind.startswith("_"):
        form = "CASE WHEN array_ndims({0}) = 1 AND array_position({0}, NULL) IS NULL THEN cardinality({0}) END"
        return sql.SQL(form).format(name)
    return sql.SQL("{}({})").format(identifier("vector_dims", column.schema), name)


def check_unique_key(connection: Any, table: Table, key: Key, where: str) -> None:
    """Refuse a key that does not tell the rows apart: some would be read never, or written as another."""
    from psycopg import sql

    empty = sql.SQL(" OR ").join(sql.SQL("{} IS NULL").format(identifier(column.name)) for column in key.columns)
    form = sql.SQL("SELECT count(*), count(DISTINCT ({})), count(*) FILTER (WHERE {}) FROM {}")
    rows, different, nulls = connection.execute(form.format(key.ordered(), empty, table.sql)).fetchone()
    if nulls or different != rows:
        what = f"is null in {nulls:,} rows" if nulls else f"has {different:,} different values in {rows:,} rows"
        raise InputError(f"{where}: key={','.join(column.name for column in key.columns)} {what}: name another key=")


def vector_dtype(column: Column) -> np.dtype:
    """The numbers in a column of vectors."""
    return np.dtype(VECTOR_TYPES[column.kind])


def read_note(comment: str | None) -> str | None:
    """What isoscope noted in a comment; None if the comment is not isoscope's."""
    return comment.removeprefix(COMMENT_PREFIX) if comment and comment.startswith(COMMENT_PREFIX) else None


def identifier(name: str, of: str | None = None) -> Any:
    """A name, quoted, and what it is of."""
    from psycopg import sql

    return sql.Identifier(name) if of is None else sql.Identifier(of, name)


def split_name(name: str) -> tuple[str | None, str]:
    """Schema and name; a dot between double quotes parts nothing, and a quote in a name is two between quotes."""
    parts: list[str] = [""]
    quoted = False
    for at, letter in enumerate(name):
        if letter == '"':
            quoted = not quoted
            parts[-1] += '"' if quoted and name[at - 1 : at] == '"' else ""  # two are one that is meant
        elif letter == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    if len(parts) > 2 or not all(parts):
        raise InputError(f"table={name}: need NAME or SCHEMA.NAME")
    return (parts[0] if len(parts) == 2 else None), parts[-1]
