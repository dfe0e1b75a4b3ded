"""Stores over arrays in memory, and arrays in files of which only the requested rows are read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_cupy_array, is_numpy_array, is_torch_array

from isoscope._core.arrays import as_real_array, detach, take
from isoscope._core.errors import FileFormatError, MissingValueError, ParameterError, ShapeError, plural
from isoscope.stores.columns import choose_columns
from isoscope.stores.store import IndexedStore

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store


class _Foreign:
    """An array from another library; rows are copied to the host a few at a time, and bfloat16 becomes float32."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape = tuple(array.shape)
        self.dtype = self[:1].dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        X = detach(self._array)
        part = X[rows, :] if isinstance(rows, slice) else take(array_namespace(X), X, rows)
        if is_torch_array(part):
            values: np.ndarray = (part.float() if "bfloat16" in str(part.dtype) else part).cpu().numpy()
        else:
            values = part.get() if is_cupy_array(part) else np.asarray(part)
        return values.astype(np.float32) if values.dtype.kind == "V" else values


def open_array(source: Any, wanted: ColumnSpec) -> Store:
    """Open an (n, d) array from NumPy, torch, JAX or CuPy, or a list of lists."""
    if not is_array_api_obj(source):
        source = as_real_array(source, "source")[1]
    if source.ndim != 2:
        check_rows(tuple(source.shape), np.dtype(float), "the array")
    as_real_array(source[:1, :], "the array")  # raises an error for a wrong dtype or layout
    if wanted.vectors is not None:
        raise ParameterError(
            f"vectors is {wanted.vectors!r}, but the source is an array, which has no columns: omit vectors"
        )
    rows = source if is_numpy_array(source) else _Foreign(source)
    check_rows(rows.shape, rows.dtype, "array")
    return IndexedStore("array", rows, choose_columns((), wanted, "the array"), {})


_WINDOW_BYTES = 4 * 2**20  # maximum number of bytes read at a time for scattered rows
_GAP_BYTES = 2**14  # rows that are closer than this are read together
_spool_lock = Lock()  # threads share the position of an open file


@dataclass(frozen=True)
class FileArray:
    """An array in a file; only the requested rows are read.

    They are read and not memory-mapped: if another process truncates a mapped file, the operating system ends this
    process. A map of the entire file would also take as much address space as the file is large, which `ulimit -v` and
    batch systems limit.
    """

    file: Path | IO[bytes]
    """The path, or an open file without a path."""
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    fortran: bool = False
    seen: tuple[int, ...] = ()
    """The device, inode, size and modification time of the file when it was opened, to detect changes."""

    def __post_init__(self) -> None:
        if isinstance(self.file, Path) and not self.seen:
            object.__setattr__(self, "seen", file_identity(self.file.stat()))

    def __getitem__(self, rows: Any) -> np.ndarray:
        read = self._read_slice if isinstance(rows, slice) else self._read_scattered
        with self._open() as file:
            if not self.fortran or len(self.shape) < 2:
                result = read(file, rows, self.offset, self.shape[1:])
            else:  # each column is contiguous in the file
                length = self.shape[0] * self.dtype.itemsize
                places = range(self.offset, self.offset + length * self.shape[1], length)
                result = np.stack([read(file, rows, place, ()) for place in places]).T
            if self.seen and file_identity(os.fstat(file.fileno())) != self.seen:
                raise FileFormatError(
                    f"{self.file} changed while it was being read: run again when it no longer changes"
                )
        return result

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        if isinstance(self.file, Path):
            with self.file.open("rb", buffering=0) as file:
                yield file
        else:
            with _spool_lock:
                yield self.file

    def _read_slice(self, file: IO[bytes], rows: slice, offset: int, row_shape: tuple[int, ...]) -> np.ndarray:
        start, stop, step = rows.indices(self.shape[0])
        return self._read(file, start, max(start, stop), offset, row_shape)[::step]

    def _read_scattered(self, file: IO[bytes], rows: Any, offset: int, row_shape: tuple[int, ...]) -> np.ndarray:
        """Return the rows at these increasing indices; rows that are close together are read at once."""
        rows = np.asarray(rows)
        row_bytes = max(1, math.prod(row_shape) * self.dtype.itemsize)
        picked = np.empty((len(rows), *row_shape), self.dtype)
        ends = np.append(np.flatnonzero(np.diff(rows) * row_bytes > _GAP_BYTES) + 1, len(rows)).tolist()
        reach = max(1, _WINDOW_BYTES // row_bytes)
        done = 0
        with _random_access(file):
            for end in ends:
                while done < end:
                    start = int(rows[done])
                    stop = min(end, done + int(np.searchsorted(rows[done:end], start + reach)))
                    window = self._read(file, start, int(rows[stop - 1]) + 1, offset, row_shape)
                    picked[done:stop] = window[rows[done:stop] - start]
                    done = stop
        return picked

    def _read(self, file: IO[bytes], start: int, stop: int, offset: int, row_shape: tuple[int, ...]) -> np.ndarray:
        """Return the rows from `start` to `stop`."""
        rows = np.empty((stop - start, *row_shape), self.dtype)
        place = offset + start * math.prod(row_shape) * self.dtype.itemsize
        read_exactly(file, place, rows.reshape(-1).view(np.uint8), self.file)
        return rows


def read_exactly(file: IO[bytes], place: int, into: np.ndarray, name: object) -> None:
    """Fill an array of bytes from a file; raise a `FileFormatError` if the file is too short."""
    left = into.data
    file.seek(place)
    while left:
        count = file.readinto(left)  # type: ignore[attr-defined]
        if not count:
            raise FileFormatError(f"{name} was truncated while it was being read: restore the file, then run again")
        left = left[count:]


@contextmanager
def _random_access(file: IO[bytes]) -> Iterator[None]:
    """Tell the operating system not to read ahead; not all systems can."""
    advise = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    try:
        yield
    finally:
        if advise is not None:
            advise(file.fileno(), 0, 0, os.POSIX_FADV_NORMAL)


def file_identity(file: os.stat_result) -> tuple[int, ...]:
    """Return the device, inode, size and modification time of a file; they differ if the file has changed."""
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def check_rows(shape: tuple[int, ...], dtype: np.dtype, where: str) -> None:
    """Raise an error unless the array has shape (n, d), at least one row, and real numbers."""
    if dtype.kind not in "fiu":
        what = {"b": "booleans", "O": "objects", "c": "complex numbers"}.get(dtype.kind, f"values of dtype {dtype}")
        raise ParameterError(f"{where} contains {what}: need integers or floating-point numbers")
    if len(shape) != 2:
        advice = {
            1: "; for a single vector, pass X.reshape(1, -1)",
            3: "; for states of shape (batch, tokens, d), pass X.reshape(-1, d) and drop the padding rows",
        }.get(len(shape), "")
        raise ShapeError(f"{where} has shape {tuple(shape)}: need shape (n, d), one row per vector{advice}")
    if not shape[0] or not shape[1]:
        empty = "rows" if not shape[0] else "columns"
        raise MissingValueError(f"{where} has no {empty} (shape {tuple(shape)}): need at least one vector")


def check_size(path: Path, offset: int, nbytes: int, shape: tuple[int, ...]) -> None:
    """Raise an error if a file is too short for its array."""
    size = path.stat().st_size
    if size < offset + nbytes:
        rows = plural(shape[0], "row") if shape else "a number"
        raise FileFormatError(
            f"{path} is truncated: its header declares {rows} ({offset + nbytes} bytes), but the file has {size} "
            "bytes; copy it again"
        )
