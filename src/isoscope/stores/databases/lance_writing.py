"""Writing to LanceDB: a new table with every column, appended to in large parts."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError
from isoscope.stores.databases.lance import (
    COLUMN_ROLES_KEY,
    connect_lance,
    open_lance_table,
    quote_column,
    read_note,
    reraise_as_input_error,
)
from isoscope.stores.databases.notes import (
    NOTE,
    can_resume,
    check_options,
    check_ownership,
    check_row_count,
    format_note,
)
from isoscope.stores.databases.patience import retry
from isoscope.stores.databases.payloads import holds_ids
from isoscope.stores.targets import role_layout

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Batch
    from isoscope.stores.table_schema import Layout

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
