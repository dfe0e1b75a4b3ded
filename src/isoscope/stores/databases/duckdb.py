"""Read DuckDB tables and query results as stores."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoscope._core.errors import DatabaseError, InputError, MissingExtra, NotFoundError, OutputError
from isoscope._io.files import expand_user
from isoscope.stores.arrow import ArrowStore, IpcPieces
from isoscope.stores.databases.base import check_options, count_usable_rows, not_found_error, unnamed_error

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Store

MEMORY = ":memory:"
"""The name of a database without a file, for queries that read files themselves."""
_ROWS = 8_192  # rows in a batch


def open_duckdb(address: Address, wanted: ColumnSpec) -> Store:
    """Open a table or the result of a query as a store.

    Parameters
    ----------
    address : Address
        ``duckdb:FILE#table`` or ``duckdb:FILE?query=SELECT …``. The database is opened for reading only.
    wanted : ColumnSpec
        The columns to use as vectors, labels, text, …

    Notes
    -----
    The query runs once. Its rows are streamed to a temporary file, so that every pass reads the same rows in the same
    order; the file is removed with the store.
    """
    check_options(address.options, ["missing", "query"], address.redacted)
    with closing(_connect(address)) as database:
        query = address.options.get("query") or f"SELECT * FROM {_find_table(address, database)}"
        pieces = QueryPieces(address, database, query)
    count_usable_rows(address, sum(pieces.lengths))
    store: Store = ArrowStore(address.redacted, address.redacted, pieces, wanted)
    return store.dropping(missing="drop") if address.options.get("missing") == "drop" else store


def open_duckdb_destination(address: Address) -> Any:
    """Raise an `OutputError`, because DuckDB files are not written."""
    raise OutputError(
        f"{address.redacted} cannot be written: write a .parquet file, and load it in DuckDB with "
        "CREATE TABLE docs AS FROM 'file.parquet'"
    )


class QueryPieces(IpcPieces):
    """The result of a query in a temporary Arrow file."""

    def __init__(self, address: Address, database: Any, query: str) -> None:
        import pyarrow as pa

        self._folder: Any = tempfile.TemporaryDirectory(prefix="isoscope-query-")
        path = Path(self._folder.name, "result.arrow")
        with _translate_errors(address):
            result = database.sql(query)
            if result is None:
                raise DatabaseError(f"{address.redacted}: the query returns no rows: need a SELECT")
            read = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader  # its name before DuckDB 1.4
            reader = read(_ROWS)
            batches = iter(reader)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, reader.schema) as writer:
            while True:
                with _translate_errors(address):
                    batch = next(batches, None)
                if batch is None:
                    break
                writer.write_batch(batch)
        super().__init__(path)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_folder": None}  # the process that ran the query removes the file


def _connect(address: Address) -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtra('duckdb is not installed: pip install "isoscope[duckdb]"') from error
    if address.place == MEMORY:
        return duckdb.connect(MEMORY)
    path = expand_user(address.place)
    if not path.is_file():
        raise NotFoundError(f"{address.redacted}: {path} is not a file: pass a DuckDB file, or {MEMORY}")
    with _translate_errors(address):
        return duckdb.connect(str(path), read_only=True)


def _find_table(address: Address, database: Any) -> str:
    """Return the quoted name of the table or view in the address, with its schema if there is one."""
    with _translate_errors(address):
        rows = database.execute(
            "SELECT table_schema, table_name FROM information_schema.tables ORDER BY table_name"
        ).fetchall()
    known = {name: (schema, name) for schema, name in rows} | {f"{s}.{n}": (s, n) for s, n in rows}
    if not address.collection:
        raise unnamed_error(address, [name for _, name in rows], "table")
    if address.collection not in known:
        raise not_found_error(address, [name for _, name in rows])
    return ".".join('"' + each.replace('"', '""') + '"' for each in known[address.collection])


@contextmanager
def _translate_errors(address: Address) -> Iterator[None]:
    """Convert DuckDB errors into a one-line `DatabaseError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("duckdb", "_duckdb", "pyarrow")):
            raise
        reason = address.redact(str(error))[:200] or type(error).__name__
    else:
        return
    raise DatabaseError(f"{address.redacted}: {reason}; check the query, and that no other process writes to the file")
