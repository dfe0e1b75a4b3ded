"""Read vectors from PostgreSQL, stored as pgvector columns or arrays, page by page in key order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.errors import NotFoundError, ParameterError, warn_data
from isoscope.stores.columns import ColumnSpec, choose_columns, choose_vectors
from isoscope.stores.databases.base import count_usable_rows, rows_lost_error, suggest_names, warn_if_unfinished
from isoscope.stores.databases.postgres_catalog import (
    NOT_FLAT,
    NULL_ELEMENTS,
    UNSUPPORTED_TYPES,
    VECTOR_TYPES,
    check_unique_key,
    count_dimensions,
    identifier,
    read_note,
    require_table,
    valid_vector_condition,
    vector_dtype,
)
from isoscope.stores.databases.postgres_copy import NATIVE, VARYING, CopiedRows, arrow_kind
from isoscope.stores.databases.postgres_session import Session, require_psycopg
from isoscope.stores.store import Piece, Store
from isoscope.stores.table_schema import Layout

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address
    from isoscope.stores.databases.postgres_catalog import Column, Key, Table

_ROWS_PER_LOOKUP = 50_000  # rows requested by number in one query
_PAGE = 65_536  # rows in a page without vectors
_FIRST, _PAGE_BYTES = 1024, 2**25  # with text: rows in the first page, bytes in later pages


class _Page(NamedTuple):
    """A page of consecutive rows."""

    vectors: np.ndarray | None
    columns: dict[str, Any]
    """Arrow arrays by column name."""
    rows: int
    last: int | str | None
    """The id of the last row."""
    size: int
    """The number of bytes received."""


class PostgresStore(Store):
    """The rows of a table or view that have a vector, in key order.

    Each page is a query that starts after the last key of the previous page, so reading can resume after a lost
    connection. All queries see one snapshot as long as the connection is open.
    """

    def __init__(
        self, session: Session, table: Table, key: Key, vectors: Column, dim: int, columns: dict[str, str]
    ) -> None:
        super().__init__(session.address.redacted, dim, vector_dtype(vectors), columns)
        self._session, self._table, self._key, self._vectors = session, table, key, vectors
        self._counted: tuple[int, int] = (-1, 0)
        self._marks: dict[int, int | str | None] = {}
        self._marked = -1

    def __len__(self) -> int:
        if self._counted[0] != self._session.snapshot:
            from psycopg import sql

            form = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(self._table.sql, self._valid_vector_condition)
            count = self._session.run(lambda connection: connection.execute(form).fetchone()[0])
            self._counted = (self._session.snapshot, int(count))
        return self._counted[1]

    @property
    def _valid_vector_condition(self) -> Any:
        return valid_vector_condition(self._vectors, self.dim)

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        others = [column.name for column in self._table.columns if column.name != self._vectors.name] if beside else []
        expected = len(self)
        done = start
        for page in self._pages([*others, *names], rows, start, vectors=True):
            assert page.vectors is not None
            done += page.rows
            values = {name: _to_numpy(page.columns[name]) for name in names}
            record = _record(page.columns, others) if beside else None
            yield Piece(page.vectors, values, done / max(expected, done), record)
        if done < start + max(0, expected - start) or done > max(expected, start):
            warn_data(
                f"{self.name} changed during reading: it had {expected:,} rows with a vector, and now has {done:,}"
            )

    def _layout(self) -> Layout:
        import pyarrow as pa

        fields = [
            pa.field(column.name, pa.list_(pa.from_numpy_dtype(self.dtype)))
            if column.name == self._vectors.name
            else pa.field(column.name, arrow_kind(column.kind), metadata={"postgresql": column.sql})
            for column in self._table.columns
        ]
        return Layout(pa.schema(fields), self._vectors.name)

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        pages = self._picked([], indices, vectors=True)
        return np.concatenate([page.vectors for page in pages if page.vectors is not None])

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        if indices is None:
            pages = self._pages([name], _PAGE, 0, vectors=False)
        else:
            pages = self._picked([name], indices, vectors=False)
        values = [_to_numpy(page.columns[name]) for page in pages]
        return np.concatenate(values) if values else np.empty(0, object)

    def _pages(self, names: list[str], rows: int, start: int, *, vectors: bool) -> Iterator[_Page]:
        """Yield pages, starting at a row; each page starts after the last key of the previous page."""
        from psycopg import sql

        len(self)  # connects if needed; row numbers refer to the snapshot of this connection
        numbered = self._session.snapshot
        done, after = self._known_key_before(start)
        skip = start - done
        done = start
        most = min(rows, _FIRST) if any(self._kind(name) in VARYING for name in names) else rows
        while True:
            behind: sql.Composable = sql.SQL("")
            if after is not None:
                behind = sql.SQL("AND {} > {}").format(self._key.sql(), self._key.cast(sql.Literal(after)))
            form = sql.SQL("SELECT {} FROM {} AS t WHERE {} {} ORDER BY {} LIMIT {} OFFSET {}").format(
                self._select_list(names, vectors),
                self._table.sql,
                self._valid_vector_condition,
                behind,
                self._key.sql("t"),
                sql.Literal(most),
                sql.Literal(skip),
            )
            page = self._copy_page(form, names, vectors)
            if page.rows:
                skip, done, after = 0, done + page.rows, page.last
                if numbered == self._session.snapshot:
                    self._mark(done, after)
                yield page
            if page.rows < most:
                return
            if most < rows or page.size > 2 * _PAGE_BYTES:
                most = min(rows, 4 * most, max(1, _PAGE_BYTES * page.rows // page.size))

    def _mark(self, row: int, after: int | str | None) -> None:
        """Remember the key before a row for as long as the snapshot lasts."""
        if self._marked != self._session.snapshot:
            self._marks, self._marked = {}, self._session.snapshot
        self._marks[row] = after

    def _known_key_before(self, row: int) -> tuple[int, int | str | None]:
        known = self._marks if self._marked == self._session.snapshot else {}
        at = max((each for each in known if each <= row), default=0)
        return at, known.get(at)

    def _picked(self, names: list[str], indices: np.ndarray, *, vectors: bool) -> Iterator[_Page]:
        """Yield rows by number; the server selects them if they are few, otherwise they are selected from pages."""
        from psycopg import sql

        low, high = int(indices[0]), int(indices[-1]) + 1
        if 4 * len(indices) >= high - low:
            yield from self._pick_from_pages(names, indices, vectors=vectors)
            return
        numbered = sql.SQL("SELECT *, row_number() OVER (ORDER BY {}) - 1 AS {} FROM {} WHERE {}").format(
            self._key.sql(), identifier(self._counter), self._table.sql, self._valid_vector_condition
        )
        for few in np.array_split(indices, -(-len(indices) // _ROWS_PER_LOOKUP)):
            form = sql.SQL("SELECT {0} FROM ({1}) s WHERE {2} = ANY({3}::bigint[]) ORDER BY {2}").format(
                self._select_list(names, vectors),
                numbered,
                identifier(self._counter),
                sql.Literal("{" + ",".join(map(str, few.tolist())) + "}"),
            )
            page = self._copy_page(form, names, vectors)
            if page.rows != len(few):
                raise rows_lost_error(self.name)
            yield page

    @property
    def _counter(self) -> str:
        """Return a name for the row number that no column of the table uses."""
        taken = {column.name for column in self._table.columns}
        return next(name for i in range(len(taken) + 1) if (name := f"row{i or ''}") not in taken)

    def _pick_from_pages(self, names: list[str], indices: np.ndarray, *, vectors: bool) -> Iterator[_Page]:
        import pyarrow as pa

        at = int(indices[0])
        size = min(_PAGE, max(1, 2**24 // (4 * self.dim)), int(indices[-1]) + 1 - at)
        for page in self._pages(names, size, at, vectors=vectors):
            low, high = np.searchsorted(indices, (at, at + page.rows))
            own = indices[low:high] - at
            columns = {name: values.take(pa.array(own)) for name, values in page.columns.items()}
            yield page._replace(vectors=None if page.vectors is None else page.vectors[own], columns=columns)
            at += page.rows
            if high == len(indices):
                return
        raise rows_lost_error(self.name)

    def _select_list(self, names: list[str], vectors: bool) -> Any:
        """Return the expressions to select: the vector, the id, and these columns."""
        from psycopg import sql

        first = [identifier(self._vectors.name)] if vectors else []
        return sql.SQL(", ").join([*first, self._key.id(), *(self._select_expression(name) for name in _unique(names))])

    def _select_expression(self, name: str) -> Any:
        from psycopg import sql

        return sql.SQL("{}" if self._column(name).kind in NATIVE else "{}::text").format(identifier(name))

    def _copy_page(self, form: Any, names: list[str], vectors: bool) -> _Page:
        from psycopg import sql

        statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT BINARY)").format(form)

        def read(connection: Any) -> list[Any]:
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                return list(copy)

        messages = self._session.run(read, "rerun to read it from the beginning")
        names = _unique(names)
        rows = CopiedRows(messages, vectors + 1 + len(names))
        matrix = rows.vectors(self._vectors.kind, self.dim) if vectors else None
        ids = rows.column("int8" if self._key.is_integer else "text")
        columns = {name: rows.column(self._kind(name)) for name in names}
        return _Page(matrix, columns, len(rows), ids[-1].as_py() if len(rows) else None, sum(map(len, messages)))

    def _column(self, name: str) -> Column:
        return next(column for column in self._table.columns if column.name == name)

    def _kind(self, name: str) -> str:
        kind = self._column(name).kind
        return kind if kind in NATIVE else "text"


def open_postgres(address: Address, wanted: ColumnSpec) -> Store:
    """Open a PostgreSQL table or view as a store, and count its rows with a vector."""
    require_psycopg()
    name = address.options.get("column")
    if name and wanted.vectors and name != wanted.vectors:
        raise ParameterError(f"{address} has column={name}, but vectors is {wanted.vectors}: pass only one of the two")
    if name:
        wanted = ColumnSpec(name, wanted.roles)
    session = Session(address)
    try:
        return _open_store(session, address, wanted)
    except BaseException:
        session.close()  # its snapshot would lock the table
        raise


def _open_store(session: Session, address: Address, wanted: ColumnSpec) -> Store:
    address, table = session.run(lambda connection: require_table(connection, address))
    session.address = address
    where = address.redacted
    vectors = _vector_column(table, wanted, where)
    key = table.key(address.options.get("key"), where)
    for comment in (vectors.comment, table.comment):
        if note := read_note(comment):
            warn_if_unfinished(note, where)
            break
    counts = session.run(lambda connection: count_dimensions(connection, table, vectors))
    dim = max((each for each in counts if each and each > 0), key=lambda each: (counts[each], -each), default=0)
    if dim and not key.is_unique:
        session.run(lambda connection: check_unique_key(connection, table, key, where))
    rows = _count_rows(session, table, key, vectors, counts, dim)
    plain = [column.name for column in table.columns if column.kind not in (*VECTOR_TYPES, *UNSUPPORTED_TYPES)]
    if wanted.roles.get("ids") is None and key.name in plain:
        wanted = ColumnSpec(wanted.vectors, {**wanted.roles, "ids": key.name})
    store = PostgresStore(session, table, key, vectors, dim, choose_columns(plain, wanted, where))
    store._counted = (session.snapshot, rows)
    return store


def _vector_column(table: Table, wanted: ColumnSpec, where: str) -> Column:
    names = [column.name for column in table.columns if column.kind in VECTOR_TYPES]
    own = wanted.vectors and table.column(wanted.vectors)
    if own and own.kind in UNSUPPORTED_TYPES:
        raise ParameterError(
            f"{where}: {own.name} contains {UNSUPPORTED_TYPES[own.kind]}, which isoscope cannot read: need a vector, "
            "halfvec, real[] or double precision[] column"
        )
    if wanted.vectors and not own:
        raise NotFoundError(f"{where} has no column {wanted.vectors}: {suggest_names(wanted.vectors, names)}")
    others = [column.name for column in table.columns]
    column = table.column(choose_vectors(names, wanted, where, others=others))
    assert column is not None
    return column


def _count_rows(
    session: Session, table: Table, key: Key, vectors: Column, counts: dict[int | None, int], dim: int
) -> int:
    from psycopg import sql

    def first() -> str:
        form = sql.SQL("SELECT {} FROM {} AS t WHERE NOT coalesce({}, false) ORDER BY {} LIMIT 1").format(
            key.id(), table.sql, valid_vector_condition(vectors, dim), key.sql("t")
        )
        return f"{key.name} {session.run(lambda connection: connection.execute(form).fetchone())[0]}"

    problems = {
        f"no {vectors.name}": counts.get(None, 0),
        f"NULL elements in {vectors.name}": counts.get(NULL_ELEMENTS, 0),
        f"an empty or nested array in {vectors.name}": counts.get(NOT_FLAT, 0),
    }
    problems |= {
        f"{each} dimensions instead of {dim}": count
        for each, count in counts.items()
        if each not in (None, NULL_ELEMENTS, NOT_FLAT, dim)
    }
    return count_usable_rows(session.address, sum(counts.values()), problems, first)


def _record(columns: dict[str, Any], names: list[str]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def _to_numpy(values: Any) -> np.ndarray:
    array: np.ndarray = values.to_numpy(zero_copy_only=False)
    return array


def _unique(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))
