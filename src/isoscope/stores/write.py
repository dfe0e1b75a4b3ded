"""Write stores to files and databases, batch by batch; files are written atomically."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BytesIO, FileIO
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from isoscope._core.errors import FileFormatError, MissingValueError, OutputError, ParameterError, ShapeError
from isoscope._io.files import atomic_replace, check_regular, expand_user
from isoscope._io.progress import show_progress
from isoscope.stores.columns import ColumnError
from isoscope.stores.databases.address import Address, parse_target
from isoscope.stores.open import open_store
from isoscope.stores.store import Batch, Store, check_finite_batches, check_finite_rows, complete_rows
from isoscope.stores.table_schema import output_names, role_layout

if TYPE_CHECKING:
    from isoscope._io.progress import Progress
    from isoscope.stores.table_schema import Layout

TABLE_ENDINGS = (".parquet", ".arrow")
"""The extensions of files that can store columns in addition to the vectors."""
ENDINGS = (".npy", ".safetensors", *TABLE_ENDINGS)
_SAFETENSORS_DTYPES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8"}
_SAFETENSORS_DTYPES |= {"u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8"}
_WRITE_BYTES = 2**20  # bytes per write call, so that the data is still in the CPU cache when the kernel copies it
_MAX_PREALLOCATION = 2**28  # bytes

T = TypeVar("T")


def write_store(
    source: Any,
    output: str | os.PathLike[str] | Address,
    *,
    columns: bool = True,
    restart: bool = False,
    progress: bool | Progress | None = None,
) -> int:
    """Write vectors to a file or a database in bounded memory, and return the number of rows.

    A file is written atomically: an interrupted call leaves the old file unchanged.

    Parameters
    ----------
    source : store, array, iterable of Batch, or anything that `open_store` accepts
        The vectors to write. Their dtype is kept (float16, float32, float64, integers); bfloat16 becomes float32. NaN
        or infinity raises an error, unless the store drops such rows (``open_store(…, missing="drop")``).
    output : path or database address
        A file name that ends in `.npy`, `.safetensors`, `.parquet` or `.arrow`. A `.safetensors` file contains one
        tensor, ``embeddings``. A `.parquet` or `.arrow` file contains a column of fixed-size lists, with the name from
        the source, or ``embedding``. Or the address of a database (see `open_store`): rows are written under their ids,
        or under their row numbers if they have none. Rows that an earlier, interrupted call wrote are skipped.
    columns : bool
        Whether to write the other columns too. A table keeps all its columns, in the same order and with the same
        types. For any other source, labels, types, text and ids are written under their own names. Parquet files, Arrow
        files and databases can store these columns; `.npy` and `.safetensors` files contain only the vectors.
    restart : bool
        Whether to delete the rows that an earlier call wrote to the database. A file is always written from the
        beginning.
    progress : bool or function, optional
        Whether to show a progress bar: by default in notebooks and at a Python prompt. A function is called
        with "writing", the number of rows written, and the share of the source (0 to 1).

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores import open_store, write_store
    >>> store = open_store(np.eye(3, dtype=np.float32), text=["east", "north", "up"])
    >>> write_store(store, "axes.parquet")
    3
    >>> again = open_store("axes.parquet")
    >>> again.take([1]), again.text.tolist()
    (array([[0., 1., 0.]], dtype=float32), ['east', 'north', 'up'])
    """
    with show_progress(progress) as report:
        target = parse_target(output)
        if isinstance(target, Address):
            from isoscope.stores.databases.write import write_to_database

            if isinstance(source, Iterator):
                raise ParameterError(f"{target} cannot be written from an iterator of batches: pass a store")
            store = source if isinstance(source, Store) else open_store(source)
            return write_to_database(target, store, columns=columns, restart=restart, progress=report)
        path = check_writable(target)
        if _is_batches(source):
            batches = _check_batches(source)
            return _write_file(
                path, batches if columns else (batch._replace(columns={}) for batch in batches), None, report
            )
        store = source if isinstance(source, Store) else open_store(source)
        return write_without_guessed_columns(
            store,
            lambda store: _write_store_file(store, path, columns and path.suffix.lower() in TABLE_ENDINGS, report),
        )


def write_without_guessed_columns(store: Store, write: Callable[[Store], T]) -> T:
    """Call `write` with a store; if an automatically chosen id or frequency column is invalid, retry without it."""
    try:
        return write(store)
    except ColumnError as error:
        if not _can_drop_column(error, store):
            raise
        return write_without_guessed_columns(store.without(error.role), write)


def _can_drop_column(error: ColumnError, store: Store) -> bool:
    """Return whether an invalid column can be dropped: ids or frequencies that were chosen automatically."""
    return error.role in ("ids", "frequency") and error.role in store.guessed


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write; raise an `OutputError` if its extension or its folder cannot be used."""
    path = expand_user(path)
    if path.suffix.lower() not in ENDINGS:
        raise OutputError(f"{path} does not have a supported extension: need .npy, .safetensors, .parquet or .arrow")
    if not path.parent.is_dir():
        raise OutputError(f"{path.parent} is not a folder: create it first, or choose another location")
    if path.is_dir():
        raise OutputError(f"{path} is a folder: pass the name of a file")
    check_regular(path)
    return path


def is_folder(path: Path) -> bool:
    """Return whether a path denotes a folder: it has no extension, or it is a folder without a format's extension."""
    return not path.suffix or (path.suffix.lower() not in ENDINGS and path.is_dir())


def rows_to_write(store: Store, columns: bool) -> Iterator[Batch]:
    """Yield the batches of a store, with the columns under their output names, and without rows to drop."""
    if not store.drops_rows:
        yield from _named_batches(store, columns)
        return
    done = 0
    for batch in map(complete_rows, _named_batches(store, columns)):
        if len(batch.vectors):
            yield batch._replace(start=done, vectors=batch.vectors.astype(store.dtype, copy=False))
            done += len(batch.vectors)


def _named_batches(store: Store, columns: bool) -> Iterator[Batch]:
    if not columns:
        return store.batches()
    if store.layout() is not None:
        return store.batches(other_columns=True)
    names = output_names(store)
    return (
        batch._replace(columns={names[role]: values for role, values in batch.columns.items()})
        for batch in store.batches([*names])
    )


class Target(Protocol):
    """A file that is being written."""

    @property
    def rows(self) -> int:
        """The number of rows written so far."""

    def write(self, batch: Batch) -> None:
        """Append the rows of a batch."""

    def finish(self) -> None:
        """Complete the file by writing the final header or the footer."""

    def close(self) -> None:
        """Close the file, whether it is complete or not."""


def open_target(path: Path, ending: str, first: Batch, layout: Layout | None) -> Target:
    """Create a file for rows with the same columns and dtype as the first batch."""
    dtype, dim = first.vectors.dtype.newbyteorder("<"), first.vectors.shape[1]
    if ending in TABLE_ENDINGS:
        table = ParquetTarget if ending == ".parquet" else ArrowTarget
        return table(path, (layout or role_layout(first)).with_vectors(dtype, dim))
    header = _npy_header if ending == ".npy" else _safetensors_header
    return ArrayTarget(path, header(dtype, dim), dtype.itemsize * dim)


class _UnbufferedFile(FileIO):
    """An unbuffered file, so that a full disk raises an error in `write`; each call writes all bytes."""

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        length = len(left)
        while left:
            left = left[super().write(left[:_WRITE_BYTES]) :]
        return length


class ArrayTarget:
    """An .npy or .safetensors file: a header with the number of rows, then the rows."""

    def __init__(self, path: Path, header: Callable[[int], bytes], row_bytes: int) -> None:
        self._header, self._row_bytes = header, row_bytes
        self.rows = 0
        self._start, self._allocated = len(header(0)), 0
        self._lock = Lock()
        self._file = _UnbufferedFile(path, "wb")
        self._file.write(header(0))

    def write(self, batch: Batch) -> None:
        """See `Target`."""
        self.write_at(self.rows, batch.vectors)
        self.rows += len(batch.vectors)

    def write_at(self, row: int, vectors: np.ndarray) -> None:
        """Write vectors at a row number, from any thread; the caller adds them to `rows`."""
        at = self._start + row * self._row_bytes
        with self._lock:
            self._preallocate(at, vectors.nbytes)
            self._file.seek(at)
            self._file.write(vectors.data)

    def finish(self) -> None:
        """See `Target`."""
        final = self._header(self.rows)
        assert len(final) == self._start
        if self._allocated:
            self._file.truncate(self._start + self.rows * self._row_bytes)
        self._file.seek(0)
        self._file.write(final)

    def close(self) -> None:
        """See `Target`."""
        self._file.close()

    def _preallocate(self, at: int, length: int) -> None:
        """If possible, reserve disk space in proportion to the bytes written so far, which makes writes faster."""
        if at > _WRITE_BYTES and at + length > self._allocated and hasattr(os, "posix_fallocate"):
            ahead = max(length, min(at, _MAX_PREALLOCATION))
            with suppress(OSError):
                os.posix_fallocate(self._file.fileno(), at, ahead)
                self._allocated = at + ahead


class TableTarget(ABC):
    """A table with one row group or record batch per batch."""

    format: ClassVar[str]

    def __init__(self, path: Path, layout: Layout) -> None:
        import pyarrow as pa

        self._layout = layout
        self._vector_type = layout.schema.field(layout.vectors).type
        self.rows = 0
        self._file = _UnbufferedFile(path, "wb")
        try:
            self._writer = self._open_writer()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            self._file.close()
            raise FileFormatError(
                f"{self.format} cannot store a column: {' '.join(str(error).split())[:200]}; write only the vectors "
                "with columns=False (on the command line: --vectors-only)"
            ) from error

    @abstractmethod
    def _open_writer(self) -> Any: ...

    def write(self, batch: Batch) -> None:
        """See `Target`."""
        import pyarrow as pa

        lists = pa.FixedSizeListArray.from_arrays(pa.array(batch.vectors.ravel()), type=self._vector_type)
        columns = {self._layout.vectors: lists, **self._role_columns(batch)}
        if batch.other_columns is not None:
            columns |= dict(zip(batch.other_columns.schema.names, batch.other_columns.columns, strict=True))
        self._write([columns[name] for name in self._layout.schema.names])
        self.rows += len(batch.vectors)

    def _write(self, columns: list[Any]) -> None:
        import pyarrow as pa

        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._layout.schema))

    def finish(self) -> None:
        """See `Target`."""
        self._writer.close()

    def close(self) -> None:
        """See `Target`."""
        self._file.close()

    def _role_columns(self, batch: Batch) -> dict[str, Any]:
        """Return the labels, ids and other columns of a source that is not a table."""
        import pyarrow as pa

        try:
            return {
                name: pa.array(values, self._layout.schema.field(name).type) for name, values in batch.columns.items()
            }
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ParameterError(
                f"the columns of the batch at row {batch.start} have a different type than in earlier batches: {error}"
            ) from error


class ParquetTarget(TableTarget):
    """A Parquet file."""

    format = "Parquet"

    def _open_writer(self) -> Any:
        import pyarrow.parquet as pq

        names = [field.name for field in self._layout.others]
        return pq.ParquetWriter(self._file, self._layout.schema, use_dictionary=names)

    def close(self) -> None:
        """See `Target`."""
        self._writer.is_open = False  # otherwise pyarrow writes a footer when the writer is garbage-collected
        super().close()


class ArrowTarget(TableTarget):
    """An uncompressed Arrow (Feather) file; dictionary-encoded columns are decoded.

    Such a file can contain only one dictionary per column, which is unknown before all batches are read.
    """

    format = "Arrow"

    def _open_writer(self) -> Any:
        import pyarrow as pa

        schema = self._layout.schema
        fields = [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema
        ]
        self._schema = pa.schema(fields, metadata=schema.metadata)
        return pa.ipc.new_file(self._file, self._schema)

    def _write(self, columns: list[Any]) -> None:
        import pyarrow as pa

        plain = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(plain, schema=self._schema))


def _npy_header(dtype: np.dtype, dim: int) -> Callable[[int], bytes]:
    """Return the header of an .npy file as a function of the number of rows; NumPy pads it to a constant length."""

    def header(rows: int) -> bytes:
        content = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, dim)}
        into = BytesIO()
        np.lib.format.write_array_header_1_0(into, content)
        return into.getvalue()

    return header


def _safetensors_header(dtype: np.dtype, dim: int) -> Callable[[int], bytes]:
    """Return the header of a .safetensors file with one tensor, as a function of the number of rows."""

    def header(rows: int) -> bytes:
        content = {
            "dtype": _SAFETENSORS_DTYPES[dtype.str[1:]],
            "shape": [rows, dim],
            "data_offsets": [0, rows * dim * dtype.itemsize],
        }
        text = json.dumps({"embeddings": content}).encode().ljust(160)  # enough space for any number of rows
        return len(text).to_bytes(8, "little") + text

    return header


def _write_store_file(store: Store, path: Path, columns: bool, progress: Progress) -> int:
    batches = check_finite_batches(rows_to_write(store, columns), store.name)
    return _write_file(path, batches, store.layout() if columns else None, progress)


def _write_file(path: Path, batches: Iterator[Batch], layout: Layout | None, progress: Progress) -> int:
    first = next(batches, None)
    if first is None:
        raise MissingValueError("the source has no rows: there is nothing to write")
    with atomic_replace(path) as temporary:
        target = open_target(temporary, path.suffix.lower(), first, layout)
        try:
            for batch in _check_consistent(chain([first], batches), first):
                target.write(batch)
                progress("writing", batch.start + len(batch.vectors), batch.share)
            target.finish()
        finally:
            target.close()
    return target.rows


RECORD_ENDINGS = (".parquet", ".arrow", ".csv")
"""The extensions of files with columns of any type."""


def write_records(path: Path, schema: Any, batches: Iterable[Any]) -> int:
    """Write Arrow record batches to a .parquet, .arrow or .csv file, atomically, and return the number of rows."""
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    rows = 0
    with atomic_replace(path) as temporary, _UnbufferedFile(temporary, "wb") as file:
        ending = path.suffix.lower()
        if ending == ".parquet":
            writer: Any = pq.ParquetWriter(file, schema)
        else:
            writer = pa.ipc.new_file(file, schema) if ending == ".arrow" else pc.CSVWriter(file, schema)
        try:
            for batch in batches:
                writer.write_batch(batch) if ending == ".parquet" else writer.write(batch)
                rows += batch.num_rows
            writer.close()
        except BaseException:
            writer.is_open = False  # otherwise pyarrow writes a footer when the writer is garbage-collected
            raise
    return rows


def _is_batches(source: Any) -> bool:
    return isinstance(source, Iterator) or (
        isinstance(source, list | tuple) and len(source) > 0 and isinstance(source[0], Batch)
    )


def _check_batches(batches: Iterable[Any]) -> Iterator[Batch]:
    for batch in batches:
        if not isinstance(batch, Batch):
            raise ParameterError(
                f"the source yields a {type(batch).__name__}: need a store, an array, or batches from a store"
            )
        if len(batch.vectors):
            check_finite_rows(batch.vectors, "the source", batch.start)
            yield batch


def _check_consistent(batches: Iterable[Batch], first: Batch) -> Iterator[Batch]:
    """Yield the batches in little-endian order; raise an error if dimensions, columns or dtype differ."""
    dtype, dim = first.vectors.dtype.newbyteorder("<"), first.vectors.shape[1:]
    for batch in batches:
        if batch.vectors.shape[1:] != dim or batch.columns.keys() != first.columns.keys():
            raise ShapeError(
                f"the batch at row {batch.start} has shape {batch.vectors.shape} and columns {list(batch.columns)}, "
                f"but the first batch has {first.vectors.shape} and {list(first.columns)}: need the same dimensions "
                "and columns"
            )
        if not np.can_cast(batch.vectors.dtype, dtype):
            raise ParameterError(
                f"the batch at row {batch.start} has dtype {batch.vectors.dtype}, but the first batch has {dtype}: "
                "cast one of them"
            )
        yield batch._replace(vectors=np.ascontiguousarray(batch.vectors, dtype))
