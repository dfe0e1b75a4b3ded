"""Stores over fvecs, bvecs and ivecs files, the formats of nearest-neighbor benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import FileFormatError
from isoscope.stores.columns import choose_columns
from isoscope.stores.in_memory import FileArray, check_rows
from isoscope.stores.store import IndexedStore

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store

_NUMBERS = {".fvecs": "<f4", ".bvecs": "u1", ".ivecs": "<i4"}


class _Records:
    """Rows that each begin with their number of dimensions; reading fails if this number differs between rows."""

    def __init__(self, path: Path, dim: int, number: np.dtype, n: int) -> None:
        record = np.dtype([("dim", "<i4"), ("vector", number, (dim,))])
        self._records = FileArray(path, record, (n,), 0)
        self.shape = (n, dim)
        self.dtype = number

    def __getitem__(self, rows: Any) -> np.ndarray:
        part = self._records[rows]
        wrong = part["dim"] != self.shape[1]
        if wrong.any():
            at = int(np.argmax(wrong))
            row = range(self.shape[0])[rows][at] if isinstance(rows, slice) else int(rows[at])
            raise FileFormatError(
                f"{self._records.file}: row {row} has {part['dim'][at]} dimensions, but row 0 has {self.shape[1]}: "
                "need vectors of equal length; copy or write it again"
            )
        vectors: np.ndarray = part["vector"]
        return vectors


def open_records(path: Path, wanted: ColumnSpec) -> Store:
    """Open an fvecs, bvecs or ivecs file; its rows are read batch by batch."""
    number = np.dtype(_NUMBERS[path.suffix.lower()])
    size = path.stat().st_size
    with path.open("rb") as file:
        dim = int.from_bytes(file.read(4), "little", signed=True)
    if not 0 < dim < 2**20:
        raise FileFormatError(f"the first 4 bytes of {path} declare {dim} dimensions: it is not a {path.suffix} file")
    n, rest = divmod(size, 4 + dim * number.itemsize)
    if rest:
        raise FileFormatError(
            f"{path} is truncated, or its rows differ in length: {size} bytes are {n} rows of {dim} dimensions plus "
            f"{rest} extra bytes; copy or write it again"
        )
    check_rows((n, dim), number, str(path))
    rows = _Records(path, dim, number, n)
    rows[-1:]
    return IndexedStore(path.name, rows, choose_columns((), wanted, str(path)), {})
