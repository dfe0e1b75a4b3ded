"""Stores over safetensors files: one tensor contains the vectors; bfloat16 becomes float32."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import FileFormatError
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.in_memory import FileArray, check_rows
from isoscope.stores.store import IndexedStore

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store

_DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"},
}

_LONGEST_HEADER = 100 * 10**6  # the limit of the safetensors library


@dataclass(frozen=True)
class _BFloat16Array:
    """An array of bfloat16 numbers, which are the upper halves of float32 numbers."""

    halves: FileArray
    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.halves.shape

    def __getitem__(self, rows: Any) -> np.ndarray:
        return (self.halves[rows].astype(np.uint32) << 16).view(np.float32)


def open_safetensors(path: Path, wanted: ColumnSpec) -> Store:
    """Open a two-dimensional tensor in a safetensors file, with its one-dimensional tensors as columns."""
    header, start = _header(path)
    tensors = {name: _tensor(path, about, start) for name, about in header.items() if about["dtype"] in _DTYPES}
    flat = [name for name, tensor in tensors.items() if len(tensor.shape) == 2 and tensor.dtype.kind in "fiu"]
    chosen = choose_vectors(flat, wanted, str(path), others=list(header))
    rows = tensors[chosen]
    check_rows(rows.shape, rows.dtype, f"{path}: {chosen}")
    columns = [name for name, tensor in tensors.items() if tensor.shape == rows.shape[:1]]
    return IndexedStore(path.name, rows, choose_columns(columns, wanted, str(path)), tensors)


def _tensor(path: Path, about: dict[str, Any], start: int) -> FileArray | _BFloat16Array:
    dtype = np.dtype(_DTYPES[about["dtype"]])
    array = FileArray(path, dtype, tuple(about["shape"]), start + about["data_offsets"][0])
    return _BFloat16Array(array) if about["dtype"] == "BF16" else array


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header entry of each tensor and the offset of the data; check that they fill the file exactly.

    The safetensors library would map the entire file for this check.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if 8 + length > min(size, _LONGEST_HEADER):
                raise ValueError(f"the header would take {length} bytes, but the file has {size}")
            header: dict[str, Any] = json.loads(file.read(length))
        header.pop("__metadata__", None)
        end = 0
        for about in sorted(header.values(), key=lambda about: about["data_offsets"]):
            start, stop = about["data_offsets"]
            shape, bits = about["shape"], _bits(about["dtype"])
            if not all(type(number) is int for number in (start, stop, *shape)):
                raise ValueError(f"{shape} and {[start, stop]} are not integers")
            if start != end or min(shape, default=0) < 0 or 8 * (stop - start) != math.prod(shape) * bits:
                raise ValueError(
                    f"the {stop - start} bytes at offset {start} do not match shape {shape} of {about['dtype']}"
                )
            end = stop
        if 8 + length + end != size:
            raise ValueError(f"the tensors end at byte {8 + length + end}, but the file has {size} bytes")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise FileFormatError(
            f"{path} is a damaged or truncated safetensors file: {why}; copy or write it again"
        ) from error
    return header, 8 + length


def _bits(dtype: str) -> int:
    """Return the number of bits per value of a dtype, which the name of the dtype contains."""
    digits = re.findall(r"\d+", "8" if dtype == "BOOL" else dtype)
    if not digits:
        raise ValueError(f"{dtype!r} is not a known dtype")
    return int(digits[0])
