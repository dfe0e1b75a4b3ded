"""Tables of LanceDB, as Arrow: read in the order of one version, which stays as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import blocks
from isoscope._core.errors import InputError, MissingExtra
from isoscope.stores.arrow import ArrowStore
from isoscope.stores.columns import choose_vectors
from isoscope.stores.databases.notes import (
    NOTE,
    check_missing_vectors,
    check_options,
    suggest_names,
    warn_if_unfinished,
)

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.databases.address import Address
    from isoscope.stores.store import Store

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

    def settled(self) -> Any:
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
