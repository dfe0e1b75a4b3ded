"""Files that rows are appended to: .npy and .safetensors behind a header, Parquet in row groups."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO, FileIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.footers import join_footers, read_footer
from isoscope.stores.table_schema import VECTOR_COLUMN, Layout, arrow_type

if TYPE_CHECKING:
    from isoscope.stores.store import Batch

_SAFETENSORS = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8"}
_SAFETENSORS |= {"u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8"}
_WRITE_BYTES = 2**20  # bytes: what the kernel copies is still in the cache
_AHEAD = 2**28  # bytes at most for which room is made before they are written: that costs the disk's books less


class Checkpoint(NamedTuple):
    """From where a file can be gone on with."""

    rows: int = 0
    size: int = 0
    """Bytes of the file that hold them."""
    footers: tuple[bytes, ...] = ()
    """Of the parts of a Parquet file."""


class Target(Protocol):
    """A file that is being written."""

    @property
    def rows(self) -> int:
        """How many rows were written."""

    def write(self, batch: Batch) -> None:
        """Append the rows of a batch."""

    def mark(self) -> Checkpoint:
        """Have the disk hold what was written."""

    def finish(self) -> None:
        """Make the file whole."""

    def close(self) -> None:
        """Let go of the file, whole or not."""


class _File(FileIO):
    """A file without a buffer, which would keep what a full disk did not take; what is written is written whole."""

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        length = len(left)
        while left:
            left = left[super().write(left[:_WRITE_BYTES]) :]
        return length


class Flat:
    """Rows behind a header that says how many, which is known at the end."""

    def __init__(self, path: Path, header: Callable[[int], bytes], row_bytes: int, mark: Checkpoint) -> None:
        self._header, self._row_bytes = header, row_bytes
        self.rows = mark.rows
        self._start, self._room = len(header(0)), 0
        self._lock = Lock()
        self._file = _File(path, "r+b" if mark.rows else "wb")
        if mark.rows:
            self._file.truncate(self._end)
        else:
            self._file.write(header(0))

    @property
    def _end(self) -> int:
        return self._start + self.rows * self._row_bytes

    def write(self, batch: Batch) -> None:
        """See `Target`."""
        self.put(self.rows, batch.vectors)
        self.rows += len(batch.vectors)

    def put(self, row: int, vectors: np.ndarray) -> None:
        """Write rows in their place, from any thread; they count once `rows` is past them."""
        at = self._start + row * self._row_bytes
        with self._lock:
            self._preallocate(at, vectors.nbytes)
            self._file.seek(at)
            self._file.write(vectors.data)

    def mark(self) -> Checkpoint:
        """See `Target`."""
        mark = Checkpoint(self.rows, self._end)
        os.fsync(self._file.fileno())
        return mark

    def finish(self) -> None:
        """See `Target`."""
        final = self._header(self.rows)
        assert len(final) == self._start
        if self._room:
            self._file.truncate(self._end)
        self._file.seek(0)
        self._file.write(final)

    def close(self) -> None:
        """See `Target`."""
        self._file.close()

    def _preallocate(self, at: int, length: int) -> None:
        """Have the disk set aside as much as was written already; if it cannot, it need not."""
        if at > _WRITE_BYTES and at + length > self._room and hasattr(os, "posix_fallocate"):
            ahead = max(length, min(at, _AHEAD))
            with suppress(OSError):
                os.posix_fallocate(self._file.fileno(), at, ahead)
                self._room = at + ahead


class Parquet:
    """Row groups, one for each batch, and the footers of those that were marked.

    A Parquet file can be read once its footer stands at its end. To mark the rows written so far their footer is taken
    off and kept; at the end one footer is made of all, with each place in the file moved to where it is.
    """

    def __init__(self, path: Path, layout: Layout, mark: Checkpoint) -> None:
        self._layout, self._mark = layout, mark
        self._kind = layout.schema.field(layout.vectors).type
        self._unmarked = 0
        self._torn = False
        self._writer: Any = None
        self._path = path
        self._file = _File(path, "r+b" if mark.rows else "wb")
        if mark.rows:
            self._rewind()

    @property
    def rows(self) -> int:
        """How many rows were written."""
        return self._mark.rows + self._unmarked

    def write(self, batch: Batch) -> None:
        """See `Target`."""
        import pyarrow as pa

        lists = pa.FixedSizeListArray.from_arrays(pa.array(batch.vectors.ravel()), type=self._kind)
        columns = {self._layout.vectors: lists, **self._values(batch)}
        if batch.other_columns is not None:
            columns |= dict(zip(batch.other_columns.schema.names, batch.other_columns.columns, strict=True))
        schema = self._layout.schema
        record = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        if self._writer is None:
            self._begin()
        self._torn = True
        self._writer.write_batch(record)
        self._torn = False
        self._unmarked += len(batch.vectors)

    def mark(self) -> Checkpoint:
        """See `Target`; what was not written to its end takes the rows since the last mark along."""
        if self._torn:
            self._drop()
            self._rewind()
        elif self._writer is not None:
            self._torn = True
            self._writer.close()
            footer, size = read_footer(self._path)
            rows, footer = join_footers([(footer, self._mark.size)])
            self._file.truncate(size)
            self._file.seek(size)
            os.fsync(self._file.fileno())
            self._mark = Checkpoint(self._mark.rows + rows, size, (*self._mark.footers, footer))
            self._writer = None
            self._torn = False
        self._unmarked = 0
        return self._mark

    def finish(self) -> None:
        """See `Target`."""
        if not self._mark.footers:
            self._writer.close()  # a file like any other
        else:
            self.mark()
            rows, footer = join_footers([(each, 0) for each in self._mark.footers])
            assert rows == self.rows
            self._file.write(footer + len(footer).to_bytes(4, "little") + b"PAR1")

    def close(self) -> None:
        """See `Target`."""
        self._drop()
        self._file.close()

    def _drop(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # or it would write its footer when it is collected
            self._writer = None

    def _rewind(self) -> None:
        """Forget the rows since the last mark."""
        self._file.truncate(self._mark.size)
        self._file.seek(self._mark.size)
        self._torn = False

    def _begin(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [field.name for field in self._layout.others]
        try:
            self._writer = pq.ParquetWriter(self._file, self._layout.schema, use_dictionary=names)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            why = " ".join(str(error).split())[:200]
            raise InputError(
                f"a column cannot be written to Parquet: {why}; leave the columns: columns=False, on the command line "
                "--vectors-only"
            ) from error

    def _values(self, batch: Batch) -> dict[str, Any]:
        """The values of roles, of a store that is no table."""
        import pyarrow as pa

        try:
            return {
                name: pa.array(values, self._layout.schema.field(name).type) for name, values in batch.columns.items()
            }
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(f"row {batch.start} begins a batch whose columns are of another kind: {error}") from error


def npy_header(dtype: np.dtype, dim: int) -> Callable[[int], bytes]:
    """The header of an .npy file; NumPy leaves room for any number of rows, so that it can be written over itself."""

    def header(rows: int) -> bytes:
        about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, dim)}
        into = BytesIO()
        np.lib.format.write_array_header_1_0(into, about)
        return into.getvalue()

    return header


def safetensors_header(dtype: np.dtype, dim: int) -> Callable[[int], bytes]:
    """The header of a .safetensors file with one tensor, with room for any number of rows."""

    def header(rows: int) -> bytes:
        about = {
            "dtype": _SAFETENSORS[dtype.str[1:]],
            "shape": [rows, dim],
            "data_offsets": [0, rows * dim * dtype.itemsize],
        }
        text = json.dumps({"embeddings": about}).encode().ljust(160)
        return len(text).to_bytes(8, "little") + text

    return header


def role_layout(first: Batch) -> Layout:
    """The table that is made of a store that is none: its vectors, and the columns of its roles."""
    import pyarrow as pa

    fields = [pa.field(VECTOR_COLUMN, pa.list_(pa.float64()))]
    fields += [pa.field(name, arrow_type(values)) for name, values in first.columns.items()]
    return Layout(pa.schema(fields), VECTOR_COLUMN)
