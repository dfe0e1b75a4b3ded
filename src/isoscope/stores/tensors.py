"""safetensors files: one tensor holds the vectors; bfloat16 comes as float32."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isoscope.errors import InputError
from isoscope.stores.columns import Wanted, choose_columns, choose_vectors
from isoscope.stores.indexed import IndexedStore, Mapped, check_rows
from isoscope.stores.store import Store

_DTYPES = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?"},
}


@dataclass(frozen=True)
class _BrainFloats:
    """bfloat16 numbers: the upper halves of float32 numbers."""

    halves: Mapped
    dtype = np.dtype(np.float32)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.halves.shape

    def __getitem__(self, rows: Any) -> np.ndarray:
        return (self.halves[rows].astype(np.uint32) << 16).view(np.float32)


def open_safetensors(path: Path, wanted: Wanted) -> Store:
    """A tensor of a safetensors file, memory-mapped, with its one-dimensional tensors as columns."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):  # checks the header and that every tensor is there
            pass
    except SafetensorError as error:
        raise InputError(f"{path} is not a whole safetensors file: {error}; copy or write it again") from error
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    tensors = {name: _tensor(path, about, 8 + length) for name, about in header.items() if about["dtype"] in _DTYPES}
    flat = [name for name, tensor in tensors.items() if len(tensor.shape) == 2 and tensor.dtype.kind in "fiu"]
    chosen = choose_vectors(flat, wanted, str(path), others=list(header))
    rows = tensors[chosen]
    check_rows(rows.shape, rows.dtype, f"{path}: {chosen}")
    beside = [name for name, tensor in tensors.items() if tensor.shape == rows.shape[:1]]
    return IndexedStore(path.name, rows, choose_columns(beside, wanted, str(path)), tensors)


def _tensor(path: Path, about: dict[str, Any], start: int) -> Mapped | _BrainFloats:
    dtype = np.dtype(_DTYPES[about["dtype"]])
    mapped = Mapped(path, dtype, tuple(about["shape"]), start + about["data_offsets"][0])
    return _BrainFloats(mapped) if about["dtype"] == "BF16" else mapped
