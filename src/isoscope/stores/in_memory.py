"""Stores over arrays that are in memory or memory-mapped from a file."""

from __future__ import annotations

import math
import mmap
import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
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


_WINDOW_BYTES = 64 * 2**20  # maximum number of bytes mapped at a time to read scattered rows


@dataclass(frozen=True)
class MappedArray:
    """An array in a file; only the requested rows are mapped into memory.

    Mapping the entire file would take as much address space as the size of the file, which `ulimit -v` and batch
    systems limit. All pages ever read would also count as memory of this process.
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
            object.__setattr__(self, "seen", _file_identity(self.file.stat()))

    def __getitem__(self, rows: Any) -> np.ndarray:
        if self.fortran and len(self.shape) > 1:
            return np.stack([column[rows] for column in self._columns()]).T
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.shape[0])
            return self._window(start, max(start, stop))[::step]
        return self._read_scattered(np.asarray(rows))

    def _columns(self) -> list[MappedArray]:
        """Return the columns of an array in Fortran order; each is contiguous in the file."""
        length = self.shape[0] * self.dtype.itemsize
        places = range(self.offset, self.offset + length * self.shape[1], length)
        return [MappedArray(self.file, self.dtype, self.shape[:1], place, seen=self.seen) for place in places]

    def _read_scattered(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows at these increasing indices, reading only the pages that contain them."""
        picked = np.empty((len(rows), *self.shape[1:]), self.dtype)
        reach = max(1, _WINDOW_BYTES // self._row_bytes)
        done = 0
        while done < len(rows):
            start = int(rows[done])
            end = int(np.searchsorted(rows, start + reach))
            window = self._window(start, int(rows[end - 1]) + 1, scattered=True)
            picked[done:end] = window[rows[done:end] - start]
            done = end
        return picked

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def _window(self, start: int, stop: int, *, scattered: bool = False) -> np.ndarray:
        """Return the rows from `start` to `stop`, mapped for as long as the array is in use."""
        shape = (stop - start, *self.shape[1:])
        if not math.prod(shape):
            return np.empty(shape, self.dtype)
        place = self.offset + start * self._row_bytes
        before = place % mmap.ALLOCATIONGRANULARITY  # a map must begin at a page boundary
        with self.file.open("rb") if isinstance(self.file, Path) else nullcontext(self.file) as file:
            try:
                length = before + shape[0] * self._row_bytes
                window = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=place - before)
            except ValueError as error:
                raise FileFormatError(f"{self.file} was truncated after it was opened: open it again") from error
            if self.seen and _file_identity(os.fstat(file.fileno())) != self.seen:
                raise FileFormatError(f"{self.file} changed after it was opened: open it again")
        if scattered and hasattr(mmap, "MADV_RANDOM"):
            window.madvise(mmap.MADV_RANDOM)  # otherwise the operating system reads ahead after each row
        return np.frombuffer(window, self.dtype, math.prod(shape), before).reshape(shape)


def _file_identity(file: os.stat_result) -> tuple[int, ...]:
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def check_rows(shape: tuple[int, ...], dtype: np.dtype, where: str) -> None:
    """Raise an error unless the array has shape (n, d), at least one row, and real numbers."""
    if dtype.kind not in "fiu":
        what = {"b": "booleans", "O": "objects", "c": "complex numbers"}.get(dtype.kind, f"values of dtype {dtype}")
        raise ParameterError(f"{where} contains {what}: need real numbers (float16, float32 or float64)")
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
