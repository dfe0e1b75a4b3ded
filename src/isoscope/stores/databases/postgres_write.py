"""Write vectors to PostgreSQL, to a new column or a new table, with one transaction per batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import OutputError, ParameterError, plural, warn_data
from isoscope.stores.databases.base import check_ownership, check_resumable, check_row_count, format_note
from isoscope.stores.databases.postgres_catalog import (
    COMMENT_PREFIX,
    Column,
    Key,
    binary_number,
    check_unique_key,
    check_vector_type,
    choose_vector_type,
    column_type,
    find_table,
    identifier,
    read_note,
    split_name,
    to_text_column,
)
from isoscope.stores.databases.postgres_copy import pack_numbers, pack_rows, pack_vectors
from isoscope.stores.databases.postgres_session import Session, require_psycopg
from isoscope.stores.table_schema import VECTOR_COLUMN

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address
    from isoscope.stores.databases.postgres_catalog import Table, VectorType
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout

_LOCK_TIMEOUT = "10s"  # how long to wait for a lock on the table
_STAGE = "isoscope_rows"
_RESUME_HINT = "rerun the same command to resume"


class PostgresDestination:
    """A PostgreSQL column whose rows are matched by the table's key, or a table into which rows are inserted.

    An existing table that isoscope did not create receives a new column. Otherwise a table is created, with the other
    columns of the source. The comment on the column or table records the origin of the rows.
    """

    def __init__(self, address: Address) -> None:
        if not address.collection:
            raise ParameterError(f"{address} does not specify a table to write to: add &table=NAME")
        check_vector_type(address.options.get("type"), str(address))
        self._address = address
        self._session = Session(address, writes=True)
        self._about: dict[str, str] = {}
        self._layout: Layout | None = None
        self._table: Table | None = None
        self._kind: VectorType
        self._key: Key
        self._own = True  # isoscope created the table or will create it
        self._has_rows = False  # whether rows of an earlier run exist
        self._unmatched = 0  # number of source rows that are missing from the table
        self._last_id: Any = None
        self._is_new = False  # whether this run creates the table
        self._highest_id: Any = None  # of all ids that were looked up in a new table

    @property
    def _column(self) -> str:
        return self._address.options.get("column") or (VECTOR_COLUMN if self._layout is None else self._layout.vectors)

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        self._about, self._layout = dict(about), layout
        self._find()
        if self._own:
            self._about["column"] = self._column
            self._check_column_free()
        wanted = self._address.options.get("type")
        self._kind = self._session.run(
            lambda connection: choose_vector_type(connection, dtype, dim, wanted, str(self._address))
        )
        self._is_new = self._table is None
        if self._table is None:
            return False  # the first rows create the table, because they determine the type of the ids
        if self._own:
            check_resumable(read_note(self._table.comment), self._about, str(self._address))
            self._key = self._table.key(None, str(self._address))
            return True
        return self._begin_column(self._table)

    def _check_column_free(self) -> None:
        """Raise an error if the vectors would replace another column of the source."""
        if self._layout is not None and self._column in {field.name for field in self._layout.others}:
            raise OutputError(
                f"{self._address}: the source has another column named {self._column}: choose another name with "
                "&column=NAME, or write only the vectors with --vectors-only"
            )

    def _begin_column(self, table: Table) -> bool:
        self._key = table.key(self._address.options.get("key"), str(self._address))
        self._check_ids_match(table)
        column = table.column(self._column)
        if column is not None:
            check_resumable(read_note(column.comment), self._about, f"{self._address}: {column.name}")
            self._has_rows = True
            return True

        def add(connection: Any) -> None:
            from psycopg import sql

            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            form = sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}")
            connection.execute(form.format(table.sql, identifier(self._column), self._kind.sql))
            self._comment(connection, table, None)

        Session.release_all_snapshots()
        self._session.run(add)
        return False

    def _check_ids_match(self, table: Table) -> None:
        """Raise an error if the ids could assign a vector to the wrong row."""
        where, ids = str(self._address), self._about.get("ids", "")
        if not ids:
            raise ParameterError(
                f"{where}: the source has no ids to match with the table's {self._key.name}: specify the id column "
                "with --columns ids=NAME, or write to a new table"
            )
        if ids != self._key.name and table.column(ids) is not None:
            raise ParameterError(
                f"{where}: the id column of the source is {ids}, but the key of the table is {self._key.name}: use "
                f"&key={ids} for the table, or --columns ids=NAME for the source"
            )
        if not self._key.is_unique:
            self._session.run(lambda connection: check_unique_key(connection, table, self._key, where))

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        from psycopg import sql

        missing = np.ones(len(ids), bool)
        are_new = self._are_new(ids)
        if self._table is None or are_new:
            return missing
        form = sql.SQL(
            "SELECT s.n FROM unnest({}::{}[]) WITH ORDINALITY AS s(id, n) JOIN {} AS t ON {} = {} "
            "WHERE t.{} IS NOT NULL"
        ).format(
            sql.Literal(self._cast_ids(ids).tolist()),  # not a parameter: names may contain %
            sql.SQL(self._id_type),
            self._table.sql,
            self._key.sql("t"),
            self._key.cast(sql.SQL("s.id")),
            identifier(self._column),
        )
        present = self._session.run(lambda connection: connection.execute(form).fetchall(), _RESUME_HINT)
        missing[np.array([row[0] for row in present], np.int64) - 1] = False
        return missing

    def _are_new(self, ids: np.ndarray) -> bool:
        """Return whether this run created the table, and all ids written before are smaller."""
        values = ids.tolist() if ids.dtype.kind in "iu" else ids.astype(str).tolist()
        before, lowest, highest = self._highest_id, min(values), max(values)
        self._highest_id = highest if before is None else max(before, highest)
        return self._is_new and before is not None and lowest > before

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        ids = batch.columns["ids"]
        if self._table is None:
            self._create_table(ids)
        table = self._table
        assert table is not None
        ids = self._cast_ids(ids)
        vectors = pack_vectors(batch.vectors.astype(self._kind.dtype, copy=False), self._kind.name)
        columns = [] if batch.other_columns is None else [batch.other_columns.column(f.name) for f in self._staged]
        direct = self._pack_directly(ids, vectors, columns)

        def store(connection: Any) -> int:
            nonlocal direct
            rows, direct = direct, None  # if the connection is lost, the rows may exist when it is repeated
            if rows is not None and self._copy_rows(connection, table, rows):
                return len(ids)
            rows = pack_rows([_pack_ids(ids), vectors, *map(to_text_column, columns)])
            return self._stage_rows(connection, table, rows)

        self._unmatched += len(ids) - self._session.run(store, _RESUME_HINT)
        self._last_id = ids[-1]
        if self._unmatched == len(ids) and batch.start == 0 and not self._has_rows:
            raise self._no_match_error(ids[0])

    @property
    def _staged(self) -> list[Any]:
        """The fields that are written in addition to the ids and vectors."""
        return self._other_fields() if self._own else []

    def _pack_directly(self, ids: np.ndarray, vectors: np.ndarray, columns: list[Any]) -> memoryview | None:
        """Return rows to copy into the table itself; None if a type needs a cast, or if rows are updated."""
        key = self._table and self._table.column(self._key.name)
        if not self._own or not key or key.kind not in ("int8", "text"):
            return None
        fields = [_pack_ids(ids), vectors]
        for field, column in zip(self._staged, columns, strict=True):
            if number := binary_number(field):
                fields.append(pack_numbers(column, number))
            elif column_type(field) == "text":
                fields.append(to_text_column(column))
            else:
                return None
        return pack_rows(fields)

    def _copy_rows(self, connection: Any, table: Table, rows: memoryview) -> bool:
        """Copy rows into the table, and return whether that succeeded; it fails if a row exists."""
        from psycopg import errors, sql

        names = [self._key.name, self._column, *(field.name for field in self._staged)]
        columns = sql.SQL(", ").join(map(identifier, names))
        form = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table.sql, columns)
        try:
            with connection.cursor() as cursor, cursor.copy(form) as copy:
                copy.write(rows)
        except errors.UniqueViolation:
            connection.rollback()
            return False
        return True

    def _stage_rows(self, connection: Any, table: Table, rows: memoryview) -> int:
        """Copy rows into a temporary table, then update or insert them; return the number of rows."""
        from psycopg import sql

        others = self._staged
        staged = [sql.SQL("id {}").format(sql.SQL(self._id_type)), sql.SQL("v {}").format(self._kind.sql)]
        staged += [sql.SQL("{} text").format(identifier(f"c{i}")) for i in range(len(others))]
        stage = identifier(_STAGE, "pg_temp")
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute(
            sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DROP").format(
                identifier(_STAGE), sql.SQL(", ").join(staged)
            )
        )
        with connection.cursor() as cursor:
            with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(stage)) as copy:
                copy.write(rows)
            cursor.execute(
                self._insert_statement(table, others, stage) if self._own else self._update_statement(table, stage)
            )
            return int(cursor.rowcount)

    def _update_statement(self, table: Table, stage: Any) -> Any:
        from psycopg import sql

        return sql.SQL("UPDATE {} AS t SET {} = s.v FROM {} AS s WHERE {} = {}").format(
            table.sql,
            identifier(self._column),
            stage,
            self._key.sql("t"),
            self._key.cast(sql.SQL("s.id")),
        )

    def _insert_statement(self, table: Table, others: list[Any], stage: Any) -> Any:
        from psycopg import sql

        names = [self._column, *(field.name for field in others)]
        values: list[Any] = [sql.SQL("s.v")]
        values += [
            sql.SQL("s.{}::{}").format(identifier(f"c{i}"), sql.SQL(column_type(field)))
            for i, field in enumerate(others)
        ]
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} AS s ON CONFLICT ({}) DO UPDATE SET {}").format(
            table.sql,
            sql.SQL(", ").join(map(identifier, [self._key.name, *names])),
            sql.SQL(", ").join([self._key.cast(sql.SQL("s.id")), *values]),
            stage,
            identifier(self._key.name),
            sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(identifier(name)) for name in names),
        )

    def _no_match_error(self, example: Any) -> ParameterError:
        return ParameterError(
            f"{self._address}: the table's {self._key.name} contains none of the source's ids, such as {example}: "
            "specify the matching column of the source with --columns ids=NAME"
        )

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        from psycopg import sql

        table = self._table
        assert table is not None
        if self._unmatched >= rows:
            raise self._no_match_error(self._last_id)
        form = sql.SQL("SELECT count({}) FROM {}").format(identifier(self._column), table.sql)
        found = self._session.run(lambda connection: int(connection.execute(form).fetchone()[0]), _RESUME_HINT)
        check_row_count(rows - self._unmatched, found, str(self._address))
        self._session.run(lambda connection: self._comment(connection, table, rows), _RESUME_HINT)
        if self._unmatched:
            warn_data(
                f"{self._address}: skipped {plural(self._unmatched, 'row')} of the source without a match in the table"
            )

    def clear(self) -> None:
        """See `Destination`."""
        from psycopg import sql

        self._find()
        table = self._table
        if table is None:
            return
        column = table.column(self._column)
        if self._own:
            form = sql.SQL("DROP TABLE {}").format(table.sql)
        elif column is None:
            return
        else:
            check_ownership(read_note(column.comment), f"{self._address}: {column.name}")
            form = sql.SQL("ALTER TABLE {} DROP COLUMN {}").format(table.sql, identifier(column.name))

        def drop(connection: Any) -> None:
            connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
            connection.execute(form)

        Session.release_all_snapshots()
        self._session.run(drop)
        self._table = None

    def close(self) -> None:
        """See `Destination`."""
        self._session.close()

    def _find(self) -> None:
        table = self._table = self._session.run(lambda connection: find_table(connection, self._address))
        name = self._address.options.get("column")
        column = table and name and table.column(name)
        is_added = name is not None and (not column or read_note(column.comment) is not None)  # later than the table
        self._own = table is None or (read_note(table.comment) is not None and not is_added)
        if not self._own and "column" not in self._address.options:
            raise OutputError(
                f"{self._address} exists and was not created by isoscope: choose a new column with &column=NAME, or "
                "write to another table"
            )

    def _create_table(self, ids: np.ndarray) -> None:
        """Create the table with a key column for ids of this type."""
        kind = "bigint" if ids.dtype.kind in "iu" else "text"
        known = {} if self._layout is None else {field.name: field for field in self._layout.others}
        name = self._about.get("ids", "")
        if name in known:
            kind = column_type(known[name])
        else:
            name = "id"
            while name in {*known, self._column}:
                name = f"row_{name}"
        self._key = Key(Column(name, "int8" if ids.dtype.kind in "iu" else kind, "", -1, kind, None), True)

        def create(connection: Any) -> None:
            from psycopg import sql

            columns = [sql.SQL("{} {} PRIMARY KEY").format(identifier(name), sql.SQL(kind))]
            columns += [sql.SQL("{} {} NOT NULL").format(identifier(self._column), self._kind.sql)]
            columns += [
                sql.SQL("{} {}").format(identifier(field.name), sql.SQL(column_type(field)))
                for field in self._other_fields()
            ]
            schema, table = split_name(self._address.collection)
            form = sql.SQL("CREATE TABLE {} ({})").format(identifier(table, schema), sql.SQL(", ").join(columns))
            connection.execute(form)
            created = find_table(connection, self._address)
            assert created is not None
            self._comment(connection, created, None)

        self._session.run(create)
        self._table = self._session.run(lambda connection: find_table(connection, self._address))

    def _other_fields(self) -> list[Any]:
        """Return the fields other than the vectors and the ids."""
        if self._layout is None:
            return []
        return [field for field in self._layout.others if field.name not in (self._key.name, self._column)]

    def _comment(self, connection: Any, table: Table, rows: int | None) -> None:
        from psycopg import sql

        text = sql.Literal(COMMENT_PREFIX + format_note(self._about, rows))
        if self._own:
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table.sql, text))
        else:
            column = sql.Identifier(table.schema, table.name, self._column)
            connection.execute(sql.SQL("COMMENT ON COLUMN {} IS {}").format(column, text))

    @property
    def _id_type(self) -> str:
        return "bigint" if self._key.is_integer else "text"

    def _cast_ids(self, ids: np.ndarray) -> np.ndarray:
        """Return the ids converted to the type of the key."""
        if not self._key.is_integer:
            return ids.astype(str).astype(object)
        try:
            return ids.astype(np.int64)
        except (TypeError, ValueError, OverflowError):
            wrong = next((each for each in ids.tolist() if not _is_integer(each)), ids[0])
            raise ParameterError(
                f"{self._address}: {self._key.name} is a 64-bit integer, but the source contains the id {wrong!r}: "
                "choose other ids with --columns ids=NAME"
            ) from None


def open_postgres_destination(address: Address) -> PostgresDestination:
    """Open a PostgreSQL column or table for writing."""
    require_psycopg()
    return PostgresDestination(address)


def _is_integer(value: Any) -> bool:
    with suppress(TypeError, ValueError):
        return abs(int(value)) < 2**63
    return False


def _pack_ids(ids: np.ndarray) -> Any:
    """Return ids as a field for `pack_rows`."""
    import pyarrow as pa

    if ids.dtype.kind == "i":
        return ids.astype(">i8").view(np.uint8).reshape(-1, 8)
    return pa.array(ids.tolist(), pa.string())
