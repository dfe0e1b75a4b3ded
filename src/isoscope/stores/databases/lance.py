"""LanceDB: tables as stores, and writing to them."""

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
from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.arrow import ArrowStore
from isoscope.stores.columns import choose_vectors
from isoscope.stores.databases.base import (
    NOTE,
    can_resume,
    check_missing_vectors,
    check_options,
    check_ownership,
    check_row_count,
    format_note,
    holds_ids,
    retry,
    suggest_names,
    warn_if_unfinished,
)
from isoscope.stores.targets import role_layout

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch, Store
    from isoscope.stores.table_schema import Layout


COLUMN_ROLES_KEY = "isoscope:table"
"""Where the metadata of a table says which of its columns are the ids, and which the vectors."""

_PIECE = 65_536  # rows
_ROWS_PER_LOOKUP = 4_096  # rows that are looked up at once
_URL = re.compile(r"\w{2,}://")


def open_lance(address: Address, wanted: ColumnSpec) -> Store:
    """A table of LanceDB, with its other columns.

    Parameters
    ----------
    address : Address
        ``lancedb:PATH#table``; the path may be one of an object store, ``s3://…``, whose keys are in the environment.
    wanted : Wanted
        Which of several columns holds the vectors, and which are labels, text, …

    Notes
    -----
    The version that is the latest when the table is opened is read, whatever is written to it meanwhile.
    """
    check_options(address.options, ["missing"], address.shown)
    table = open_lance_table(address, reading=True)
    if table is None:
        raise InputError(
            f"{address.shown} does not exist: {suggest_names(address.collection, _names(connect_lance(address)))}"
        )
    schema = table.schema
    warn_if_unfinished(read_note(schema), address.shown)
    with reraise_as_input_error(address):
        rows = table.count_rows()
    if not rows:
        raise InputError(f"{address.shown} has no rows: need at least one vector")
    lists = [field.name for field in schema if _list_type(field.type) is not None]
    bad: Sequence[int] = ()
    if lists:
        vectors = choose_vectors(lists, wanted, address.shown, others=schema.names)
        bad = _find_rows_without_vector(address, table, vectors, rows)
    return LanceStore(address, LancePieces(address, table, rows, bad), wanted)


class LancePieces:
    """A version of a table in blocks of rows; those without a vector are not among them."""

    def __init__(self, address: Address, table: Any, rows: int, bad: Sequence[int]) -> None:
        self._address, self._table, self._version = address, table, table.version
        with reraise_as_input_error(address):
            table.checkout(self._version)  # what is written from now on is not read
        self.schema = drop_notes(table.schema)
        self._blocks = list(blocks(rows, _PIECE))
        self._bad = np.asarray(bad, np.int64)
        self.lengths = [block.stop - block.start - len(self._bad_rows_in(block)) for block in self._blocks]
        self._kept_before = self._bad - np.arange(len(self._bad))  # how many good rows stand before each bad one

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._table = open_lance_table(self._address, reading=True)
        if self._table is None:
            raise InputError(f"{self._address.shown} does not exist here: need a path that every worker sees")
        with reraise_as_input_error(self._address):
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
        with reraise_as_input_error(self._address):
            for batch in query.to_batches(rows):
                gone = bad[(bad >= at) & (bad < at + len(batch))] - at
                at += len(batch)
                if len(gone):
                    batch = batch.take(pa.array(np.delete(np.arange(len(batch)), gone)))
                yield batch.select(names)
        if at < block.stop - block.start:
            raise InputError(f"{self._address.shown} has lost rows since it was opened: open it again")

    def rows(self, names: list[str], indices: np.ndarray) -> Any:
        """A record batch of these rows, which are sorted."""
        import pyarrow as pa

        offsets = indices + np.searchsorted(self._kept_before, indices, side="right")
        with reraise_as_input_error(self._address):
            found = self._table.take_offsets(offsets.tolist()).select([*names, "_rowoffset"]).to_arrow()
        order = np.argsort(found.column("_rowoffset").to_numpy(), kind="stable")
        return found.select(names).take(pa.array(order)).combine_chunks().to_batches()[0]

    def _bad_rows_in(self, block: slice) -> np.ndarray:
        found: np.ndarray = self._bad[(self._bad >= block.start) & (self._bad < block.stop)]
        return found


class LanceStore(ArrowStore):
    """A table whose rows are found by their numbers, without reading those before them."""

    _pieces: LancePieces

    def __init__(self, address: Address, pieces: LancePieces, wanted: ColumnSpec) -> None:
        super().__init__(address.shown, address.shown, pieces, wanted)

    def _picked(self, names: list[str], indices: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
        names = list(dict.fromkeys(names))
        for part in blocks(len(indices), _ROWS_PER_LOOKUP):
            yield self._pieces.rows(names, indices[part]), indices[part]


def connect_lance(address: Address) -> Any:
    """The database; its client makes a folder of any path, so look first."""
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtra('lancedb is not installed: pip install "isoscope[lancedb]"') from error
    with reraise_as_input_error(address):
        return lancedb.connect(address.place if _URL.match(address.place) else Path(address.place).expanduser())


def open_lance_table(address: Address, *, reading: bool) -> Any:
    """The table; None if the database has none of that name."""
    if not _URL.match(address.place):
        path = Path(address.place).expanduser()
        tables = [each for each in path.iterdir() if each.name.endswith(".lance")] if path.is_dir() else []
        empty = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        if not tables and (reading or not empty):
            there = "is not a folder of LanceDB's" if path.exists() else "does not exist"
            raise InputError(f"{address.shown}: {path} {there}: need the folder that the tables are in")
    connected_to = connect_lance(address)
    names = _names(connected_to)
    if not address.collection:
        has = f"; it has {', '.join(names[:12])}" if names else ""
        raise InputError(f"{address.shown} says no table: need {address.shown}#NAME{has}")
    if address.collection not in names:
        return None
    with reraise_as_input_error(address):
        return connected_to.open_table(address.collection)


def read_note(schema: Any) -> str | None:
    """What isoscope noted of a table: at its making for the table, at its end for a column."""
    found = (schema.metadata or {}).get(NOTE.encode())
    for field in schema:
        found = (field.metadata or {}).get(NOTE.encode(), found)
    return None if found is None else found.decode()


def drop_notes(schema: Any) -> Any:
    """The schema for another table, of which isoscope has noted nothing yet."""
    import pyarrow as pa

    def kept(metadata: dict[bytes, bytes] | None) -> dict[bytes, bytes]:
        return {
            name: value
            for name, value in (metadata or {}).items()
            if name not in (NOTE.encode(), COLUMN_ROLES_KEY.encode())
        }

    fields = [field.with_metadata(kept(field.metadata)) if field.metadata else field for field in schema]
    return pa.schema(fields, metadata=kept(schema.metadata) or None)


@contextmanager
def reraise_as_input_error(address: Address) -> Iterator[None]:
    """Say in one line what LanceDB cannot do."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = address.redact(str(error))[:200] or type(error).__name__
        raise InputError(f"{address.shown}: {why}; the table may be damaged, or out of reach") from error


def quote_column(name: str) -> str:
    """A column's name in a condition."""
    return "`" + name.replace("`", "``") + "`"


def _names(database: Any) -> list[str]:
    """The tables that are there."""
    found: list[str] = []
    token = None
    while True:
        page = database.list_tables(page_token=token)
        found += page.tables
        token = page.page_token
        if not token:
            return found


def _list_type(kind: Any) -> Any:
    """The type of the numbers in a column of lists; None if it is none."""
    import pyarrow.types as kinds

    kind = getattr(kind, "storage_type", kind)
    if not (kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)):
        return None
    return kind.value_type if kinds.is_floating(kind.value_type) or kinds.is_integer(kind.value_type) else None


def _find_rows_without_vector(address: Address, table: Any, vectors: str, rows: int) -> list[int]:
    """The numbers of the rows that have no vector, or one of another length than most first ones; refused or told."""
    import pyarrow.types as kinds

    name, kind = quote_column(vectors), table.schema.field(vectors).type
    wrong, why = f"{name} IS NULL", f"no {vectors}"
    with reraise_as_input_error(address):
        if not kinds.is_fixed_size_list(getattr(kind, "storage_type", kind)):
            first = table.search().where(f"{name} IS NOT NULL").select([vectors]).limit(1).to_arrow()
            dim = len(first.column(0)[0]) if len(first) else 0
            wrong, why = (
                f"{name} IS NULL OR array_length({name}) IS NULL OR array_length({name}) <> {dim}",
                (f"no {vectors}, or one of another length than {dim},"),
            )
        elif not table.schema.field(vectors).nullable:
            return []
        count = table.count_rows(wrong)
        if not count:
            return []
        found = table.search().where(wrong).select(["_rowoffset"]).to_arrow()
        bad = sorted(found.column("_rowoffset").to_pylist())
        first = table.take_offsets(bad[:1]).to_arrow().drop_columns([vectors]).to_pylist()[0]
    shown = next(
        (first[each] for each in ("id", "ids", "_id", "doc_id", "uuid", "key") if each in first), f"row {bad[0]}"
    )
    check_missing_vectors(count, rows, shown, address.options.get("missing") == "drop", address.shown, why)
    return bad


_FRAGMENTS = 64  # above which a table is put together when it is whole
_IDS_PER_QUERY = 4_096  # ids in a condition


def open_lance_destination(address: Address) -> LanceDestination:
    """A table of LanceDB to write to, ``lancedb:PATH#table``."""
    check_options(address.options, [], address.shown)
    return LanceDestination(address, open_lance_table(address, reading=False))


class LanceDestination:
    """A table that is written; see `Destination`.

    It is made with the first rows, as these say which column holds the ids. Rows are appended, but for those whose ids
    are there: a checksum of every id is kept in memory, 8 bytes for a row, and the table is asked for those alone
    whose checksum is known.
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
        can_resume(read_note(self._table.schema), about, self._address.shown)
        self._learn()
        return bool(len(self._known))

    def find_missing(self, ids: np.ndarray) -> np.ndarray:
        """See `Destination`."""
        lacking = np.ones(len(ids), bool)
        maybe = np.flatnonzero(_isin_sorted(_checksums(ids), self._known))
        for part in blocks(len(maybe), _IDS_PER_QUERY):
            asked = ids[maybe[part]]
            condition = f"{quote_column(self._key)} IN ({', '.join(map(_literal, asked.tolist()))})"
            with reraise_as_input_error(self._address):
                found = self._table.search().where(condition).select([self._key]).to_arrow()
            there = set(found.column(0).to_pylist())
            lacking[maybe[part]] = [each not in there for each in asked.tolist()]
        return lacking

    def write(self, batch: Batch) -> None:
        """See `Destination`."""
        if self._table is None:
            self._make(batch)
        ids = batch.columns["ids"]

        def attempt() -> None:
            import pyarrow as pa

            rows = np.flatnonzero(self.find_missing(ids))
            rows = rows[np.sort(np.unique(ids[rows], return_index=True)[1])]  # one of each id
            if len(rows):
                try:
                    self._table.add(pa.Table.from_batches([self._record(batch).take(pa.array(rows))]))
                except Exception:
                    self._learn()  # it may be there all the same
                    raise
                self._known = np.sort(np.concatenate([self._known, _checksums(ids[rows])]), kind="stable")

        with reraise_as_input_error(self._address):
            retry(attempt, lambda error: isinstance(error, OSError) and not isinstance(error, PermissionError))

    def finish(self, rows: int) -> None:
        """See `Destination`."""
        with reraise_as_input_error(self._address):
            check_row_count(rows, self._table.count_rows(), self._address.shown)
            if self._table.stats()["fragment_stats"]["num_fragments"] > _FRAGMENTS:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "optimize")  # nobody reads a table that is not whole
                    self._table.optimize(cleanup_older_than=timedelta(0))
            whole = {"path": self._key, "metadata": {NOTE: format_note(self._about, rows)}}
            self._table.update_field_metadata(whole)

    def clear(self) -> None:
        """See `Destination`."""
        if self._table is not None:
            check_ownership(read_note(self._table.schema), self._address.shown)
            with reraise_as_input_error(self._address):
                connect_lance(self._address).drop_table(self._address.collection)
            self._table, self._known = None, np.empty(0, np.int64)

    def close(self) -> None:
        """See `Destination`."""
        self._table = None

    def _make(self, batch: Batch) -> None:
        """The table for rows like these."""
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
            COLUMN_ROLES_KEY: json.dumps({"key": self._key, "column": layout.vectors}),
        }
        metadata = {**(schema.metadata or {}), **{name.encode(): value.encode() for name, value in own.items()}}
        with reraise_as_input_error(self._address):
            database = connect_lance(self._address)
            self._table = database.create_table(self._address.collection, schema=schema.with_metadata(metadata))

    def _record(self, batch: Batch) -> Any:
        """The rows of a batch, as the table has them."""
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

    def _learn(self) -> None:
        """Know every id that is in the table."""
        with reraise_as_input_error(self._address):
            self._table.checkout_latest()
            self._key = _column_roles(self._table.schema)["key"]
            query = self._table.search().select([self._key])
            parts = [_checksums(batch.column(0).to_pylist()) for batch in query.to_batches(65_536)]
        self._known = np.sort(np.concatenate(parts or [np.empty(0, np.int64)]))


def _column_roles(schema: Any) -> dict[str, str]:
    found: dict[str, str] = json.loads(schema.metadata[COLUMN_ROLES_KEY.encode()])
    return found


def _checksums(ids: Sequence[Any] | np.ndarray) -> np.ndarray:
    """A number for each id: different ones may share it, equal ones do."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return np.fromiter(map(hash, values), np.int64, len(values))


def _isin_sorted(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which values are among known ones, which are sorted."""
    at = np.searchsorted(known, values)
    return np.append(known, 0)[at] == values if len(known) else np.zeros(len(values), bool)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, int):
        return str(value)
    raise InputError(f"an id is {value!r}: ids are whole numbers or strings")
