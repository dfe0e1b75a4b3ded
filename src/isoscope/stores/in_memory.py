"""Stores over arrays: in memory, or mapped from a file."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_cupy_array, is_numpy_array, is_torch_array

from isoscope._core.arrays import as_real_array, blocks, detach, take
from isoscope._core.errors import InputError, plural
from isoscope.stores.columns import choose_columns
from isoscope.stores.store import Piece, Store

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store


class _Foreign:
    """Rows of an array of another library, brought to the host a few at a time; bfloat16 comes as float32."""

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


def open_memory(source: Any, wanted: ColumnSpec) -> Store:
    """A store over an object of NumPy, torch, JAX, CuPy, pandas, polars, pyarrow or datasets, or a list of lists."""
    library = type(source).__module__.partition(".")[0]
    if library in ("pandas", "polars", "pyarrow", "datasets"):
        from isoscope.stores.frames import open_frame

        return open_frame(source, library, wanted)
    if not is_array_api_obj(source):
        source = as_real_array(source, "source")[1]
    if source.ndim != 2:
        check_rows(tuple(source.shape), np.dtype(float), "the array")
    as_real_array(source[:1, :], "the array")  # says what is wrong with its dtype or layout
    if wanted.vectors is not None:
        raise InputError(f"vectors is {wanted.vectors!r} and the source is an array: it has no columns to choose from")
    rows = source if is_numpy_array(source) else _Foreign(source)
    return IndexedStore("array", rows, choose_columns((), wanted, "the array"), {})


_WINDOW_BYTES = 64 * 2**20  # the most that is mapped to find single rows


class Rows(Protocol):
    """What can be sliced by rows."""

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def dtype(self) -> np.dtype: ...  # noqa: D102

    def __getitem__(self, rows: Any) -> np.ndarray: ...


class IndexedStore(Store):
    """Vectors that can be sliced, and columns that can."""

    def __init__(self, name: str, rows: Rows, columns: Mapping[str, str], table: Mapping[str, Any]) -> None:
        check_rows(rows.shape, rows.dtype, name)
        super().__init__(name, rows.shape[1], native_dtype(rows.dtype), columns)
        self._rows = rows
        self._table = table

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        for block in blocks(len(self) - start, rows):
            part = slice(start + block.start, start + block.stop)
            values = {name: self._table[name][part] for name in names}
            yield Piece(to_native(self._rows[part]), values, part.stop / len(self))

    def _places(self) -> list[int]:
        return [] if getattr(self._rows, "scanned", False) else super()._places()

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return to_native(self._rows[indices])

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        return self._table[name][slice(None) if indices is None else indices]


@dataclass(frozen=True)
class MappedArray:
    """An array in a file: the rows asked for are mapped, and nothing else of it.

    A map of the whole file would take as much address space as the file is long, which `ulimit -v` and batch systems
    bound, and all pages that were ever looked at would count as this process's memory.
    """

    file: Path | IO[bytes]
    """Its path, or the file itself if it has none."""
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    fortran: bool = False
    seen: tuple[int, ...] = ()
    """Which file it was when it was opened: half of one and half of another would be neither."""

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
        """The columns of an array in Fortran's order, each a piece of the file."""
        length = self.shape[0] * self.dtype.itemsize
        places = range(self.offset, self.offset + length * self.shape[1], length)
        return [MappedArray(self.file, self.dtype, self.shape[:1], place, seen=self.seen) for place in places]

    def _read_scattered(self, rows: np.ndarray) -> np.ndarray:
        """Rows that stand in order; only the pages that they are on are read."""
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        reach = max(1, _WINDOW_BYTES // self._row_bytes)
        done = 0
        while done < len(rows):
            start = int(rows[done])
            end = int(np.searchsorted(rows, start + reach))
            window = self._window(start, int(rows[end - 1]) + 1, scattered=True)
            found[done:end] = window[rows[done:end] - start]
            done = end
        return found

    @property
    def _row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def _window(self, start: int, stop: int, *, scattered: bool = False) -> np.ndarray:
        """The rows from `start` to `stop`, mapped for as long as they are held."""
        shape = (stop - start, *self.shape[1:])
        if not math.prod(shape):
            return np.empty(shape, self.dtype)
        place = self.offset + start * self._row_bytes
        before = place % mmap.ALLOCATIONGRANULARITY  # a map begins where a page does
        with self.file.open("rb") if isinstance(self.file, Path) else nullcontext(self.file) as file:
            try:
                length = before + shape[0] * self._row_bytes
                window = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=place - before)
            except ValueError as error:
                raise InputError(f"{self.file} has become shorter since it was opened: open it again") from error
            if self.seen and _file_identity(os.fstat(file.fileno())) != self.seen:
                raise InputError(f"{self.file} has changed since it was opened: open it again")
        if scattered and hasattr(mmap, "MADV_RANDOM"):
            window.madvise(mmap.MADV_RANDOM)  # or the system reads far around each row
        return np.frombuffer(window, self.dtype, math.prod(shape), before).reshape(shape)


def _file_identity(file: os.stat_result) -> tuple[int, ...]:
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def check_rows(shape: tuple[int, ...], dtype: np.dtype, where: str) -> None:
    """Refuse what is not (n, d) real numbers."""
    if dtype.kind not in "fiu":
        what = {"b": "booleans", "O": "objects", "c": "complex numbers"}.get(dtype.kind, f"values of dtype {dtype}")
        raise InputError(f"{where} holds {what}: need real numbers, float16, float32 or float64")
    if len(shape) != 2:
        advice = {
            1: "; is this a column of labels? One vector alone is reshape(1, -1)",
            3: "; (batch, tokens, d) states are reshape(-1, d), without the padding",
        }.get(len(shape), "")
        raise InputError(f"{where} has shape {tuple(shape)}: need (n, d), one row for each vector{advice}")
    if not shape[0] or not shape[1]:
        empty = "rows" if not shape[0] else "columns"
        raise InputError(f"{where} has no {empty}, shape {tuple(shape)}: need at least one vector")


def native_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype that rows are handed out in: this machine's byte order, at most float64."""
    return np.dtype(np.float64) if dtype.kind == "f" and dtype.itemsize > 8 else dtype.newbyteorder("=")


def to_native(part: np.ndarray) -> np.ndarray:
    """Rows as they are handed out; copied only if their bytes stand in a foreign order or place."""
    part = np.asarray(part).astype(native_dtype(part.dtype), copy=False)
    return part if part.flags.aligned else part.copy()


def check_size(path: Path, offset: int, nbytes: int, shape: tuple[int, ...]) -> None:
    """Refuse a file that ends before its array does."""
    size = path.stat().st_size
    if size < offset + nbytes:
        rows = plural(shape[0], "row") if shape else "a number"
        raise InputError(
            f"{path} is cut: its header says {rows}, {offset + nbytes} bytes, and it has {size}; copy or write it again"
        )
