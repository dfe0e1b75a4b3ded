"""The rows of a store into a database: only those that it lacks are made and written, by their ids."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import numpy as np

import isoscope
from isoscope._core.errors import InputError
from isoscope._core.threads import map_in_threads
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.base import open_destination
from isoscope.stores.databases.postgres_catalog import split_name
from isoscope.stores.table_schema import VECTOR_COLUMN
from isoscope.stores.targets import role_layout
from isoscope.stores.write import output_names

if TYPE_CHECKING:
    from isoscope.stores.databases.address import Address
    from isoscope.stores.databases.base import Destination
    from isoscope.stores.store import Batch, Store
    from isoscope.stores.table_schema import Layout

_LOCAL_HOSTS = ("", "127.0.0.1", "[::1]", "::1")
_PORTS = {"postgresql": "5432", "qdrant": "6333", "chroma": "8000"}


def write_to_database(
    target: Address,
    store: Store,
    *,
    about: Mapping[str, str] | None = None,
    made: Callable[[Batch], Batch] | None = None,
    columns: bool = True,
    restart: bool = False,
    progress: Callable[[str, int, float], None] | None = None,
    say: Callable[[str], None] | None = None,
    stage: str = "writing",
) -> int:
    """Write the rows of a store that a database lacks; gives the number of rows of the store.

    Parameters
    ----------
    target : Address
        Where to write.
    store : Store
        What to read. Its ids are those of the rows; a store without has their numbers.
    about : mapping, optional
        What is made of the rows, as words, beside what they are made of: another such is another run.
    made : function, optional
        What is made of a batch, in a thread; the batch itself unless given.
    columns : bool
        Whether what stands beside the vectors is written too.
    restart : bool
        Remove what an earlier run wrote.
    progress, say : function, optional
        As for `repair_store`.
    stage : str
        What `progress` is told that is done.
    """
    _check_not_source(target, store)
    layout, batches = _rows(store, columns)
    first = next(batches, None)
    if first is None:
        raise InputError(f"{store.name} has no rows: there is nothing to write")
    _check_unique_ids(first.columns["ids"], store.name)  # before anything is cleared
    sample = (made or _identity)(first._replace(vectors=first.vectors[:1]))
    layout = layout or (role_layout(_keep_named_columns(first, store)) if columns else None)
    whole = {**_source(store, columns), **(about or {}), "version": isoscope.__version__}
    with closing(open_destination(target)) as destination:
        if restart:
            destination.clear()
        kept = layout and layout.with_vectors(sample.vectors.dtype.newbyteorder("="), sample.vectors.shape[1])
        there = destination.begin(sample.vectors.shape[1], sample.vectors.dtype, kept, whole)
        if there and say is not None:
            say(f"going on with what an earlier run wrote to {target}")
        lacking = _MissingRows(destination, there, store.name, layout, progress, stage)
        try:
            with closing(map_in_threads(made or _identity, lacking.of(chain([first], batches)), 2)) as ready:
                for batch in ready:
                    destination.write(batch)
        except BaseException as error:
            error.add_note("what was written is there: run the same command again to go on")
            raise
        destination.finish(lacking.rows)
    return lacking.rows


class _MissingRows:
    """The rows that a database lacks, with their ids, and with what stands beside them as records of Arrow's."""

    def __init__(
        self,
        destination: Destination,
        there: bool,
        name: str,
        layout: Layout | None,
        progress: Callable[[str, int, float], None] | None,
        stage: str,
    ) -> None:
        self._destination, self._there, self._name, self._layout = destination, there, name, layout
        self._progress, self._stage = progress, stage
        self.rows = 0

    def of(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            ids = batch.columns["ids"]
            _check_unique_ids(ids, self._name)
            lack = self._destination.find_missing(ids)
            if not self._there and not lack.all():
                raise _duplicate_id_error(ids[~lack][0], self._name, ", or another run is writing to the same place")
            self.rows += len(ids)
            if lack.any():
                yield self._select_rows(batch, lack)
            if self._progress is not None:
                self._progress(self._stage, self.rows, batch.share)

    def _select_rows(self, batch: Batch, lack: np.ndarray) -> Batch:
        import pyarrow as pa

        beside = batch.other_columns
        if beside is None and self._layout is not None:
            fields = self._layout.others
            values = [pa.array(batch.columns[field.name], field.type) for field in fields]
            beside = pa.RecordBatch.from_arrays(values, schema=pa.schema(fields))
        ids = {"ids": batch.columns["ids"]}
        if lack.all():
            return batch._replace(columns=ids, other_columns=beside)
        return batch._replace(
            vectors=batch.vectors[lack],
            columns={"ids": ids["ids"][lack]},
            other_columns=None if beside is None else beside.filter(pa.array(lack)),
        )


def _check_unique_ids(ids: np.ndarray, where: str) -> None:
    """Refuse rows that have the same id: one would take the place of the other."""
    unique, counts = np.unique(ids.astype(str) if ids.dtype.kind == "O" else ids, return_counts=True)
    if len(unique) < len(ids):
        raise _duplicate_id_error(unique[counts > 1][0], where)


def _duplicate_id_error(twice: Any, where: str, otherwise: str = "") -> InputError:
    return InputError(
        f"{where}: the id {twice} is that of two rows{otherwise}: need different ids to write to a database; name "
        "others with --columns ids=NAME"
    )


def _rows(store: Store, columns: bool) -> tuple[Layout | None, Iterator[Batch]]:
    """The table that the store is, if it is to be kept, and its batches, each with ids."""
    layout = store.layout() if columns else None
    ids = ["ids"] if "ids" in store.columns else []
    if layout is not None or not columns:
        return layout, map(_add_ids, store.batches(ids, other_columns=layout is not None))
    own = output_names(store)

    def named(batch: Batch) -> Batch:
        values = {own[role]: each for role, each in batch.columns.items()}
        return _add_ids(batch._replace(columns=values | {role: batch.columns[role] for role in ids}))

    return None, map(named, store.batches([*own]))


def _keep_named_columns(batch: Batch, store: Store) -> Batch:
    """The batch with the columns that the store has, under their own names: its ids are there once."""
    return batch._replace(columns={name: batch.columns[name] for name in output_names(store).values()})


def _add_ids(batch: Batch) -> Batch:
    if "ids" in batch.columns:
        return batch
    numbers = np.arange(batch.start, batch.start + len(batch.vectors))
    return batch._replace(columns={**batch.columns, "ids": numbers})


def _identity(batch: Batch) -> Batch:
    return batch


def _source(store: Store, columns: bool) -> dict[str, str]:
    """What rows are made of, in words; a file is another one when it has changed, a table is not."""
    digest = hashlib.blake2b(digest_size=16)
    for file in store.files:
        stat = file.stat()
        digest.update(f"{os.path.realpath(file)}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return {
        "source": store.name,
        "files": digest.hexdigest() if store.files else "",
        "vectors": f"{_vectors(store)}, {store.dim} of {store.dtype}",
        "columns": "all" if columns else "none",
        "ids": output_names(store).get("ids", ""),
    }


def _vectors(store: Store) -> str:
    layout = store.layout()
    return VECTOR_COLUMN if layout is None else layout.vectors


def _check_not_source(target: Address, store: Store) -> None:
    """Refuse to write where it is read from; another column of the same table is another place."""
    source = parse_address(store.name)
    if source is None or _location_key(source) != _location_key(target):
        return
    if target.options.get("column", _vectors(store)) == _vectors(store):
        raise InputError(f"{target} is what is read: give another place to write to")


def _location_key(where: Address) -> tuple[str, ...]:
    """Where rows are, however it was typed: to take one place for two would clear what is still to be read."""
    if where.kind != "postgresql" and "://" not in where.place:
        return where.kind, os.path.realpath(os.path.expanduser(where.place)), where.collection
    url = urlsplit(where.place)
    said = dict(parse_qsl(url.query))
    host, _, port = url.netloc.rpartition("@")[2].lower().rpartition(":")
    if not port.isdigit():
        host, port = f"{host}:{port}".strip(":"), ""
    host, port = said.get("host", host), said.get("port", port) or _PORTS.get(where.kind, "")
    host = "localhost" if host in _LOCAL_HOSTS or host.startswith("/") else host
    collection = where.collection
    if where.kind == "postgresql":
        schema, table = split_name(collection) if collection else (None, "")
        collection = f"{schema or 'public'}.{table}"
    return where.kind, host, port, unquote(said.get("dbname") or url.path.strip("/")), collection
