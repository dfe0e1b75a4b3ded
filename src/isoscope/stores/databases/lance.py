"""Read LanceDB tables as stores, and write to them."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import DatabaseError, InputError, MissingExtra, NotFoundError, ParameterError
from isoscope._io.files import expand_user
from isoscope.stores.arrow import ArrowStore
from isoscope.stores.columns import choose_vectors
from isoscope.stores.databases.base import (
    NOTE,
    check_folder,
    check_options,
    check_ownership,
    check_resumable,
    check_row_count,
    count_usable_rows,
    format_note,
    holds_ids,
    not_found_error,
    retry,
    rows_lost_error,
    unnamed_error,
    warn_if_unfinished,
)
from isoscope.stores.table_schema import role_layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch, Store
    from isoscope.stores.table_schema import Layout


_COLUMN_ROLES = "isoscope:table"  # metadata key: the names of the id and vector columns
_PIECE = 65_536  # rows in a piece
_ROWS_PER_LOOKUP = 4_096
_IDS_PER_QUERY = 4_096
_MAX_FRAGMENTS = 64  # a finished table with more fragments is compacted
_URL = re.compile(r"\w{2,}://")


def open_lance(address: Address, wanted: ColumnSpec) -> Store:
    """Open a LanceDB table as a store, with its other columns.

    Parameters
    ----------
    address : Address
        ``lancedb:PATH#table``; the path may be an object store such as ``s3://…``, with credentials in the environment.
    wanted : ColumnSpec
        The columns to use as vectors, labels, text, …

    Notes
    -----
    The store reads the version that is the latest when it is opened, and ignores later writes.
    """
    check_options(address.options, ["missing"], address.redacted)
    table = _open_table(address, reading=True)
    if table is None:
        raise not_found_error(address, _names(_connect(address)))
    schema = table.schema
    warn_if_unfinished(_read_note(schema), address.redacted)
    with _translate_errors(address):
        rows = table.count_rows()
    count_usable_rows(address, rows)
    lists = [field.name for field in schema if _list_type(field.type) is not None]
    bad: Sequence[int] = ()
    if lists:
        vectors = choose_vectors(lists, wanted, address.redacted, others=schema.names)
        bad = _find_rows_without_vector(address, table, vectors, rows)
    return LanceStore(address, LancePieces(address, table, rows, bad), wanted)


class LancePieces:
    """One version of a table, in blocks of rows; rows without a usable vector are excluded."""

    def __init__(self, address: Address, table: Any, rows: int, bad: Sequence[int]) -> None:
        self._address, self._table, self._version = address, table, table.version
        with _translate_errors(address):
            table.checkout(self._version)  # ignore later writes
        self.schema = _drop_notes(table.schema)
        self._blocks = list(blocks(rows, _PIECE))
        self._bad = np.asarray(bad, np.int64)
        self.lengths = [block.stop - block.start - len(self._bad_rows_in(block)) for block in self._blocks]
        self._kept_before = self._bad - np.arange(len(self._bad))  # number of usable rows before each unusable row

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._table = _open_table(self._address, reading=True)
        if self._table is None:
            raise NotFoundError(
                f"{self._address.redacted} does not exist on this worker: need a path that every worker can access"
            )
        with _translate_errors(self._address):
            self._table.checkout(self._version)

    def full_schema(self) -> Any:
        """See `Pieces`."""
        return self.schema

    def read(self, piece: int, names: list[str], rows: int) -> Iterator[Any]:
        """See `Pieces`."""
        import pyarrow as pa

        block = self._blocks[piece]
        bad, at = self._bad_rows_in(block) - block.start, 0
        query = self._table.search().select(names).offset(block.start).limit(block.stop - block.start)
        with _translate_errors(self._address):
            for batch in query.to_batches(rows):
                dropped = bad[(bad >= at) & (bad < at + len(batch))] - at
                at += len(batch)
                if len(dropped):
                    batch = batch.take(pa.array(np.delete(np.arange(len(batch)), dropped)))
                yield batch.select(names)
        if at < block.stop - block.start:
            raise rows_lost_error(self._address.redacted)

    def rows(self, names: list[str], indices: np.ndarray) -> Any:
        """Return a record batch of these rows; the indices are in ascending order."""
        import pyarrow as pa

        offsets = indices + np.searchsorted(self._kept_before, indices, side="right")
        with _translate_errors(self._address):
            found = self._table.take_offsets(offsets.tolist()).select([*names, "_rowoffset"]).to_arrow()
        order = np.argsort(found.column("_rowoffset").to_numpy(), kind="stable")
        return found.select(names).take(pa.array(order)).combine_chunks().to_batches()[0]

    def _bad_rows_in(self, block: slice) -> np.ndarray:
        rows: np.ndarray = self._bad[(self._bad >= block.start) & (self._bad < block.stop)]
        return rows


class LanceStore(ArrowStore):
    """A LanceDB table; rows are read by number, without reading the rows before them."""

    _pieces: LancePieces

    def __init__(self, address: Address, pieces: LancePieces, wanted: ColumnSpec) -> None:
        super().__init__(address.redacted, address.redacted, pieces, wanted)

    def _picked(self, names: list[str], indices: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        names = list(dict.fromkeys(names))
        for part in blocks(len(indices), _ROWS_PER_LOOKUP):
            yield self._pieces.rows(names, indices[part]), indices[part]


def _import_lancedb() -> Any:
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtra('lancedb is not installed: pip install "isoscope[lancedb]"') from error
    return lancedb


def _connect(address: Address) -> Any:
    lancedb = _import_lancedb()
    with _translate_errors(address):
        return lancedb.connect(address.place if _URL.match(address.place) else expand_user(address.place))


def _open_table(address: Address, *, reading: bool) -> Any:
    """Return the table, or None if it does not exist."""
    _import_lancedb()
    if not _URL.match(address.place):
        check_folder(address, _has_tables, "LanceDB", reading=reading)
    database = _connect(address)
    names = _names(database)
    if not address.collection:
        raise unnamed_error(address, names, "table")
    if address.collection not in names:
        return None
    with _translate_errors(address):
        return database.open_table(address.collection)


def _has_tables(folder: Path) -> bool:
    return folder.is_dir() and any(each.name.endswith(".lance") for each in folder.iterdir())


def _read_note(schema: Any) -> str | None:
    """Return isoscope's metadata: from the table while it is being written, and from a column once it is complete."""
    note = (schema.metadata or {}).get(NOTE.encode())
    for field in schema:
        note = (field.metadata or {}).get(NOTE.encode(), note)
    return None if note is None else note.decode()


def _drop_notes(schema: Any) -> Any:
    """Return the schema without isoscope's notes, so that it can be used for another table."""
    import pyarrow as pa

    def without_notes(metadata: dict[bytes, bytes] | None) -> dict[bytes, bytes]:
        return {
            name: value
            for name, value in (metadata or {}).items()
            if name not in (NOTE.encode(), _COLUMN_ROLES.encode())
        }

    fields = [field.with_metadata(without_notes(field.metadata)) if field.metadata else field for field in schema]
    return pa.schema(fields, metadata=without_notes(schema.metadata) or None)


@contextmanager
def _translate_errors(address: Address) -> Iterator[None]:
    """Convert LanceDB errors into a one-line `DatabaseError`."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = address.redact(str(error))[:200] or type(error).__name__
        raise DatabaseError(f"{address.redacted}: {reason}; the table may be damaged or unreachable") from error


def _quote_column(name: str) -> str:
    """Return a column name, quoted for use in a condition."""
    return "`" + name.replace("`", "``") + "`"


def _names(database: Any) -> list[str]:
    """Return the names of all tables."""
    names: list[str] = []
    token = None
    while True:
        page = database.list_tables(page_token=token)
        names += page.tables
        token = page.page_token
        if not token:
            return names


def _list_type(kind: Any) -> Any:
    """Return the number type of a list column, or None for other columns."""
    import pyarrow.types as kinds

    kind = getattr(kind, "storage_type", kind)
    if not (kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)):
        return None
    return kind.value_type if kinds.is_floating(kind.value_type) or kinds.is_integer(kind.value_type) else None


def _find_rows_without_vector(address: Address, table: Any, vectors: str, rows: int) -> list[int]:
    """Return the indices of rows without a vector of the expected length; raise an error or warn about them."""
    import pyarrow.types as kinds

    name, kind = _quote_column(vectors), table.schema.field(vectors).type
    is_bad, problem = f"{name} IS NULL", f"no {vectors}"
    with _translate_errors(address):
        if not kinds.is_fixed_size_list(getattr(kind, "storage_type", kind)):
            first = table.search().where(f"{name} IS NOT NULL").select([vectors]).limit(1).to_arrow()
            dim = len(first.column(0)[0]) if len(first) else 0
            is_bad = f"{name} IS NULL OR array_length({name}) IS NULL OR array_length({name}) <> {dim}"
            problem = f"no {vectors} of {dim} dimensions"
        elif not table.schema.field(vectors).nullable:
            return []
        if not table.count_rows(is_bad):
            return []
        bad = sorted(table.search().where(is_bad).select(["_rowoffset"]).to_arrow().column("_rowoffset").to_pylist())

    def first_row() -> str:
        with _translate_errors(address):
            row = table.take_offsets(bad[:1]).to_arrow().drop_columns([vectors]).to_pylist()[0]
        names = ("id", "ids", "_id", "doc_id", "uuid", "key")
        return next((f"{each} {row[each]}" for each in names if each in row), f"row {bad[0]}")

    count_usable_rows(address, rows, {problem: len(bad)}, first_row)
    return bad


def open_lance_destination(address: Address) -> LanceDestination:
    """Open a LanceDB table for writing, given an address ``lancedb:PATH#table``."""
    check_options(address.options, [], address.redacted)
    return LanceDestination(address, _open_table(address, reading=False))


class LanceDestination:
    """A LanceDB table to write to; the first rows create it, because they determine the id column.

    Rows are appended, except those whose id already exists. The destination keeps a checksum of every id in memory, 8
    bytes per row, and queries the table only for ids with a known checksum.
    """

    def __init__(self, address: Address, table: Any) -> None:
        self._address, self._table = address, table
        self._about: dict[str, str] = {}
        self._layout: Layout | None = None
        self._key = "id"
        self._known = np.empty(0, np.int64)

    def begin(self, dim: int, dtype: np.dtype, layout: Layout | None, about: Mapping[str, str]) -> bool:
        """See `Destination`."""
        self._about, self._layout = dict(about), layout
        if self._table is None:
            return False
        check_resumable(_read_note(self._table.schema), about, self._address.redacted)
        self._load_ids()
        return bool(len(self._known))

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        missing = np.ones(len(ids), bool)
        maybe = np.flatnonzero(_isin_sorted(_checksums(ids), self._known))
        for part in blocks(len(maybe), _IDS_PER_QUERY):
            queried = ids[maybe[part]].tolist()
            condition = f"{_quote_column(self._key)} IN ({', '.join(map(_literal, queried))})"
            with _translate_errors(self._address):
                rows = self._table.search().where(condition).select([self._key]).to_arrow()
            present = set(rows.column(0).to_pylist())
            missing[maybe[part]] = [each not in present for each in queried]
        return missing

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        if self._table is None:
            self._create_table(batch)
        ids = batch.columns["ids"]

        def attempt() -> None:
            import pyarrow as pa

            rows = np.flatnonzero(self.find_missing(ids))
            rows = rows[np.sort(np.unique(ids[rows], return_index=True)[1])]  # the first row with each id
            if len(rows):
                try:
                    self._table.add(pa.Table.from_batches([self._record(batch).take(pa.array(rows))]))
                except Exception:
                    self._load_ids()  # the rows may have been written nevertheless
                    raise
                self._known = np.sort(np.concatenate([self._known, _checksums(ids[rows])]), kind="stable")

        with _translate_errors(self._address):
            retry(attempt, lambda error: isinstance(error, OSError) and not isinstance(error, PermissionError))

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        with _translate_errors(self._address):
            check_row_count(rows, self._table.count_rows(), self._address.redacted)
            if self._table.stats()["fragment_stats"]["num_fragments"] > _MAX_FRAGMENTS:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "optimize")  # nobody reads an unfinished table
                    self._table.optimize(cleanup_older_than=timedelta(0))
            self._table.update_field_metadata({"path": self._key, "metadata": {NOTE: format_note(self._about, rows)}})

    def clear(self) -> None:
        """See `Destination`."""
        if self._table is not None:
            check_ownership(_read_note(self._table.schema), self._address.redacted)
            with _translate_errors(self._address):
                _connect(self._address).drop_table(self._address.collection)
            self._table, self._known = None, np.empty(0, np.int64)

    def close(self) -> None:
        """See `Destination`."""
        self._table = None

    def _create_table(self, batch: Batch) -> None:
        """Create the table with a schema for these rows."""
        import pyarrow as pa

        ids = batch.columns["ids"]
        others = {name: values for name, values in batch.columns.items() if name != "ids"}
        layout = self._layout
        if layout is None or batch.other_columns is None:
            layout = role_layout(batch._replace(columns=others))
        layout = layout.with_vectors(batch.vectors.dtype, batch.vectors.shape[1])
        own_ids = holds_ids(batch, self._about.get("ids", ""))
        free = next(name for name in ("id", "ids", "isoscope_id") if name not in layout.schema.names)
        self._key = self._about["ids"] if own_ids else free
        schema = layout.schema
        if not own_ids:
            kind = pa.int64() if ids.dtype.kind in "iu" else pa.string()
            schema = schema.insert(0, pa.field(self._key, kind))
        own = {
            NOTE: format_note(self._about),
            _COLUMN_ROLES: json.dumps({"key": self._key, "column": layout.vectors}),
        }
        metadata = {**(schema.metadata or {}), **{name.encode(): value.encode() for name, value in own.items()}}
        with _translate_errors(self._address):
            database = _connect(self._address)
            self._table = database.create_table(self._address.collection, schema=schema.with_metadata(metadata))

    def _record(self, batch: Batch) -> Any:
        """Return the rows of a batch in the table's schema."""
        import pyarrow as pa

        schema = self._table.schema
        own = _column_roles(schema)
        kind = schema.field(own["column"]).type
        numbers = pa.array(np.ascontiguousarray(batch.vectors).ravel(), kind.value_type)
        columns = {own["column"]: pa.FixedSizeListArray.from_arrays(numbers, type=kind)}
        if batch.other_columns is not None:
            columns |= dict(zip(batch.other_columns.schema.names, batch.other_columns.columns, strict=True))
        given = {own["key"] if name == "ids" else name: values for name, values in batch.columns.items()}
        for name in set(schema.names) - columns.keys():
            columns[name] = pa.array(given[name], schema.field(name).type)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _load_ids(self) -> None:
        """Load a checksum of every id in the table."""
        with _translate_errors(self._address):
            self._table.checkout_latest()
            self._key = _column_roles(self._table.schema)["key"]
            query = self._table.search().select([self._key])
            parts = [_checksums(batch.column(0).to_pylist()) for batch in query.to_batches(65_536)]
        self._known = np.sort(np.concatenate(parts or [np.empty(0, np.int64)]))


def _column_roles(schema: Any) -> dict[str, str]:
    roles: dict[str, str] = json.loads(schema.metadata[_COLUMN_ROLES.encode()])
    return roles


def _checksums(ids: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Return a checksum of each id; equal ids have equal checksums, but distinct ids may also collide."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return np.fromiter(map(hash, values), np.int64, len(values))


def _isin_sorted(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return a boolean mask of the values that occur in the sorted array `known`."""
    at = np.searchsorted(known, values)
    return np.append(known, 0)[at] == values if len(known) else np.zeros(len(values), bool)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, int):
        return str(value)
    raise ParameterError(f"the id {value!r} is not supported: ids must be integers or strings")
