"""Vectors that are in memory already: arrays of any library, lists, data frames, tables and datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_cupy_array, is_numpy_array, is_torch_array

from isoscope._core.arrays import as_real_array, detach, take
from isoscope._core.errors import InputError
from isoscope.stores.columns import choose_columns
from isoscope.stores.indexed import IndexedStore, check_rows

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
