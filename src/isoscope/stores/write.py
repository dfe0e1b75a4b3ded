"""Writing a store to a file or a database, batch by batch; an interruption leaves the old file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace
from isoscope.stores.columns import INVERSE_RANK, ColumnError
from isoscope.stores.databases.address import Address, parse_address
from isoscope.stores.open import open_store
from isoscope.stores.store import Batch, Store
from isoscope.stores.table_schema import VECTOR_COLUMN
from isoscope.stores.targets import Checkpoint, Flat, Parquet, npy_header, role_layout, safetensors_header

if TYPE_CHECKING:
    from isoscope.stores.table_schema import Layout
    from isoscope.stores.targets import Target

ENDINGS = (".npy", ".safetensors", ".parquet")


def write_store(
    path: str | os.PathLike[str] | Address,
    source: Any,
    *,
    columns: bool = True,
    restart: bool = False,
    progress: Callable[[str, int, float], None] | None = None,
) -> int:
    """Write vectors to a file, whole or not at all, or to a database, in bounded memory; gives the number of rows.

    Parameters
    ----------
    path : path
        A name that ends in `.npy`, `.safetensors` (a tensor ``embeddings``) or `.parquet` (a column of lists of fixed
        size, named as in the source or ``embedding``). It is replaced when all is written. Or the address of a
        database (see `open_store`): rows are written by their ids, or their numbers if they have none; those that are
        there from an earlier, interrupted call are not written again.
    source : store, array, iterable of Batch, or whatever `open_store` opens
        What to write. The numbers' kind is kept (float16, float32, float64, whole numbers); bfloat16 becomes float32.
    columns : bool
        Whether what stands beside the vectors is written too: every column of a table, in its place and of its kind;
        the labels, types, text and ids of anything else, under their own names. Parquet alone can hold them: `.npy`
        and `.safetensors` hold the vectors, whatever is said here; a database holds them too.
    restart : bool
        Remove what an earlier call wrote to the database; a file is always written anew.
    progress : function, optional
        Told "writing", the rows written so far, and the share of the source that they are.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores import open_store, write_store
    >>> store = open_store(np.eye(3, dtype=np.float32), text=["east", "north", "up"])
    >>> write_store("axes.parquet", store)
    3
    >>> again = open_store("axes.parquet")
    >>> again.take([1]), again.text.tolist()
    (array([[0., 1., 0.]], dtype=float32), ['east', 'north', 'up'])
    """
    if (target := parse_address(path)) is not None:
        from isoscope.stores.databases.write import write_to_database

        if isinstance(source, Iterator):
            raise InputError(f"{target} is written from a store, to be gone on with: batches alone go to a file")
        store = source if isinstance(source, Store) else open_store(source)
        return write_to_database(target, store, columns=columns, restart=restart, progress=progress)
    assert not isinstance(path, Address)
    path = check_writable(path)
    if isinstance(source, Iterator) or (isinstance(source, list | tuple) and source and isinstance(source[0], Batch)):
        given = _check_batches(source)
        return _write_file(path, given if columns else (batch._replace(columns={}) for batch in given), None, progress)
    store = source if isinstance(source, Store) else open_store(source)
    columns = columns and path.suffix.lower() == ".parquet"
    try:
        return _write_file(path, rows_to_write(store, columns), store.layout() if columns else None, progress)
    except ColumnError as error:
        if not can_drop_column(error, store):
            raise
        return write_store(path, store.without(error.role), columns=columns, progress=progress)


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The path of a file that can be written; an `InputError` if its name, its folder or what is there forbids it."""
    path = Path(path).expanduser()
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path} does not say a format that can be written: need .npy, .safetensors or .parquet")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder: make it first, or write elsewhere")
    if path.is_dir():
        raise InputError(f"{path} is a folder: need the name of a file")
    return path


def is_folder(path: Path) -> bool:
    """Whether a path means a folder of files: it has no ending, or there is a folder and the ending is no format's."""
    return not path.suffix or (path.suffix.lower() not in ENDINGS and path.is_dir())


def rows_to_write(store: Store, columns: bool, start: int = 0) -> Iterator[Batch]:
    """The batches of a store with what is written beside them, under the names that it gets in the file."""
    if not columns:
        return store.batches(start=start)
    if store.layout() is not None:
        return store.batches(start=start, other_columns=True)
    own = output_names(store)
    return (
        batch._replace(columns={own[role]: values for role, values in batch.columns.items()})
        for batch in store.batches([*own], start=start)
    )


def output_names(store: Store) -> dict[str, str]:
    """What the column of each role is called where it is written."""
    return {role: role if name in (VECTOR_COLUMN, INVERSE_RANK) else name for role, name in store.columns.items()}


def can_drop_column(error: ColumnError, store: Store) -> bool:
    """Whether a column can be done without: ids or frequencies that nobody asked for, and that some rows lack."""
    return error.role in ("ids", "frequency") and error.role in store.guessed


def open_target(path: Path, ending: str, first: Batch, layout: Layout | None, mark: Checkpoint) -> Target:
    """The file for rows like those of a first batch, begun or gone on with."""
    dtype, dim = first.vectors.dtype.newbyteorder("<"), first.vectors.shape[1]
    if ending == ".parquet":
        return Parquet(path, (layout or role_layout(first)).with_vectors(dtype, dim), mark)
    header = npy_header if ending == ".npy" else safetensors_header
    return Flat(path, header(dtype, dim), dtype.itemsize * dim, mark)


def _write_file(
    path: Path,
    batches: Iterator[Batch],
    layout: Layout | None,
    progress: Callable[[str, int, float], None] | None,
) -> int:
    first = next(batches, None)
    if first is None:
        raise InputError("the source has no rows: there is nothing to write")
    with atomic_replace(path) as temporary:
        target = open_target(temporary, path.suffix.lower(), first, layout, Checkpoint())
        try:
            for batch in _check_consistent(chain([first], batches), first):
                target.write(batch)
                if progress is not None:
                    progress("writing", batch.start + len(batch.vectors), batch.share)
            target.finish()
        finally:
            target.close()
    return target.rows


def _check_batches(batches: Iterable[Any]) -> Iterator[Batch]:
    for batch in batches:
        if not isinstance(batch, Batch):
            raise InputError(
                f"the source gives a {type(batch).__name__}: need a store, an array, or batches of a store"
            )
        if len(batch.vectors):
            yield batch


def _check_consistent(batches: Iterable[Batch], first: Batch) -> Iterator[Batch]:
    """Batches of the first one's dimensions, columns and precision, in the byte order of files."""
    dtype, dim = first.vectors.dtype.newbyteorder("<"), first.vectors.shape[1:]
    for batch in batches:
        if batch.vectors.shape[1:] != dim or batch.columns.keys() != first.columns.keys():
            raise InputError(
                f"row {batch.start} begins a batch of shape {batch.vectors.shape} with columns {list(batch.columns)}, "
                f"the first has {first.vectors.shape} with {list(first.columns)}: need the same"
            )
        if not np.can_cast(batch.vectors.dtype, dtype):
            raise InputError(
                f"row {batch.start} begins a batch of {batch.vectors.dtype}, the first is of {dtype}: cast one"
            )
        yield batch._replace(vectors=np.ascontiguousarray(batch.vectors, dtype))
