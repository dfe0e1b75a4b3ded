"""Write a store to a database by id; only missing rows are computed and written."""

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
from isoscope._core.errors import OutputError, ParameterError, TooFewRowsError
from isoscope._core.threads import map_in_threads
from isoscope.stores.databases.address import parse_address
from isoscope.stores.databases.base import open_destination
from isoscope.stores.databases.postgres_catalog import split_name
from isoscope.stores.remote import file_version
from isoscope.stores.store import check_finite_batches, complete_rows
from isoscope.stores.table_schema import VECTOR_COLUMN, output_names, role_layout

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
    """Write the rows of a store that are missing from a database; return the number of rows in the store.

    Parameters
    ----------
    target : Address
        The address to write to.
    store : Store
        The store to read. Its ids identify the rows; a store without ids uses row numbers.
    about : mapping, optional
        A description of the work, in addition to the source; a run with a different description cannot resume this one.
    made : function, optional
        A function that transforms a batch, in a thread (default: no change).
    columns : bool
        Whether to write the other columns too.
    restart : bool
        Whether to delete what an earlier run wrote.
    progress, say : function, optional
        Callbacks, as in `repair_store`.
    stage : str
        The stage that `progress` receives.
    """
    _check_not_source(target, store)
    layout, batches = _rows(store, columns)
    first = next(batches, None)
    if first is None:
        raise TooFewRowsError(f"{store.name} has no rows: nothing to write")
    _check_unique_ids(first.columns["ids"], store.name)  # before anything is cleared
    sample = (made or _identity)(first._replace(vectors=first.vectors[:1]))
    layout = layout or (role_layout(_keep_named_columns(first, store)) if columns else None)
    origin = {**_source(store, columns), **(about or {}), "version": isoscope.__version__}
    with closing(open_destination(target)) as destination:
        if restart:
            destination.clear()
        written = layout and layout.with_vectors(sample.vectors.dtype.newbyteorder("="), sample.vectors.shape[1])
        resumed = destination.begin(sample.vectors.shape[1], sample.vectors.dtype, written, origin)
        if resumed and say is not None:
            say(f"resuming an earlier run that wrote to {target}")
        missing = _MissingRows(destination, resumed, store.name, layout, progress, stage)
        try:
            with closing(map_in_threads(made or _identity, missing.of(chain([first], batches)), 2)) as ready:
                for batch in ready:
                    destination.write(batch)
        except BaseException as error:
            error.add_note("the rows written so far are kept: rerun the same command to resume")
            raise
        destination.finish(missing.rows)
    return missing.rows


class _MissingRows:
    """The rows missing from a destination, with their ids, and their other columns as Arrow records."""

    def __init__(
        self,
        destination: Destination,
        resumed: bool,
        name: str,
        layout: Layout | None,
        progress: Callable[[str, int, float], None] | None,
        stage: str,
    ) -> None:
        self._destination, self._resumed, self._name, self._layout = destination, resumed, name, layout
        self._progress, self._stage = progress, stage
        self.rows = 0

    def of(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for batch in batches:
            ids = batch.columns["ids"]
            _check_unique_ids(ids, self._name)
            missing = self._destination.find_missing(ids)
            if not self._resumed and not missing.all():
                raise _duplicate_id_error(
                    ids[~missing][0], self._name, ", or another run is writing to the same target"
                )
            self.rows += len(ids)
            if missing.any():
                yield self._select_rows(batch, missing)
            if self._progress is not None:
                self._progress(self._stage, self.rows, batch.share)

    def _select_rows(self, batch: Batch, missing: np.ndarray) -> Batch:
        import pyarrow as pa

        others = batch.other_columns
        if others is None and self._layout is not None:
            fields = self._layout.others
            values = [pa.array(batch.columns[field.name], field.type) for field in fields]
            others = pa.RecordBatch.from_arrays(values, schema=pa.schema(fields))
        ids = {"ids": batch.columns["ids"]}
        if missing.all():
            return batch._replace(columns=ids, other_columns=others)
        if others is not None and others.num_columns:  # a record batch without columns has no rows to filter
            others = others.filter(pa.array(missing))
        return batch._replace(
            vectors=batch.vectors[missing], columns={"ids": ids["ids"][missing]}, other_columns=others
        )


def _check_unique_ids(ids: np.ndarray, where: str) -> None:
    """Raise an error if two rows share an id, because one would overwrite the other."""
    unique, counts = np.unique(ids.astype(str) if ids.dtype.kind == "O" else ids, return_counts=True)
    if len(unique) < len(ids):
        raise _duplicate_id_error(unique[counts > 1][0], where)


def _duplicate_id_error(duplicate: Any, where: str, otherwise: str = "") -> ParameterError:
    return ParameterError(
        f"{where}: two rows have the id {duplicate}{otherwise}: a database needs unique ids; choose others with "
        "--columns ids=NAME"
    )


def _rows(store: Store, columns: bool) -> tuple[Layout | None, Iterator[Batch]]:
    """Return the layout of the table, if its columns are written, and the batches with ids."""
    layout = store.layout() if columns else None
    ids = ["ids"] if "ids" in store.columns else []
    if layout is not None or not columns:
        return layout, _drop_rows(store, map(_add_ids, store.batches(ids, other_columns=layout is not None)))
    own = output_names(store)

    def named(batch: Batch) -> Batch:
        values = {own[role]: each for role, each in batch.columns.items()}
        return _add_ids(batch._replace(columns=values | {role: batch.columns[role] for role in ids}))

    return None, _drop_rows(store, map(named, store.batches([*own])))


def _drop_rows(store: Store, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield the batches without rows to drop; the other rows keep their ids and must be finite."""
    if not store.drops_rows:
        return check_finite_batches(batches, store.name)
    return (batch for batch in map(complete_rows, batches) if len(batch.vectors))


def _keep_named_columns(batch: Batch, store: Store) -> Batch:
    """Return the batch with only the store's columns, under their output names, so that ids occur only once."""
    return batch._replace(columns={name: batch.columns[name] for name in output_names(store).values()})


def _add_ids(batch: Batch) -> Batch:
    if "ids" in batch.columns:
        return batch
    numbers = np.arange(batch.start, batch.start + len(batch.vectors))
    return batch._replace(columns={**batch.columns, "ids": numbers})


def _identity(batch: Batch) -> Batch:
    return batch


def _source(store: Store, columns: bool) -> dict[str, str]:
    """Return a description of the source; a changed file counts as another source, but a changed table does not."""
    digest = hashlib.blake2b(digest_size=16)
    for file in store.files:
        digest.update("".join(f"{each}\0" for each in file_version(file)).encode())
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
    """Raise an error if the target is the source itself; another column of the same table is allowed."""
    source = parse_address(store.name)
    if source is None or _location_key(source) != _location_key(target):
        return
    if target.options.get("column", _vectors(store)) == _vectors(store):
        raise OutputError(f"{target} is the source itself: choose another target")


def _location_key(address: Address) -> tuple[str, ...]:
    """Return the normalized location of the rows, so that `--restart` never clears the source."""
    if address.kind != "postgresql" and "://" not in address.place:
        return address.kind, os.path.realpath(os.path.expanduser(address.place)), address.collection
    url = urlsplit(address.place)
    options = dict(parse_qsl(url.query))
    host, _, port = url.netloc.rpartition("@")[2].lower().rpartition(":")
    if not port.isdigit():
        host, port = f"{host}:{port}".strip(":"), ""
    host, port = options.get("host", host), options.get("port", port) or _PORTS.get(address.kind, "")
    host = "localhost" if host in _LOCAL_HOSTS or host.startswith("/") else host
    collection = address.collection
    if address.kind == "postgresql":
        schema, table = split_name(collection) if collection else (None, "")
        collection = f"{schema or 'public'}.{table}"
    return address.kind, host, port, unquote(options.get("dbname") or url.path.strip("/")), collection
