"""Stores over HDF5 files, such as those from ann-benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import FileFormatError, InputError, MissingExtra
from isoscope.stores.columns import choose_columns, choose_vectors
from isoscope.stores.in_memory import check_rows
from isoscope.stores.store import IndexedStore

if TYPE_CHECKING:
    from isoscope.stores.columns import ColumnSpec
    from isoscope.stores.store import Store

_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError)  # errors that h5py raises for a damaged file


class _Dataset:
    """A dataset in an HDF5 file; the file is open only while rows are read."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._path, self._name, self.shape, self.dtype = path, name, shape, dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        h5py = _import_h5py(self._path)
        try:
            with h5py.File(self._path, "r") as file:
                dataset = file[self._name]
                _check_own_storage(dataset, self._path)
                return np.asarray(
                    dataset.asstr("utf-8", "backslashreplace")[rows] if _is_text(dataset) else dataset[rows]
                )
        except InputError:
            raise
        except _DAMAGE as error:
            raise _read_error(self._path, error) from error


def open_hdf5(path: Path, wanted: ColumnSpec) -> Store:
    """Open a two-dimensional dataset in an HDF5 file, with its one-dimensional datasets as columns."""
    h5py = _import_h5py(path)
    datasets: dict[str, _Dataset] = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            datasets[name] = _Dataset(path, name, item.shape, item.dtype)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(note)
    except _DAMAGE as error:
        raise _read_error(path, error) from error
    flat = [name for name, item in datasets.items() if len(item.shape) == 2 and item.dtype.kind in "fiu"]
    chosen = choose_vectors(flat, wanted, str(path), others=list(datasets))
    rows = datasets[chosen]
    check_rows(rows.shape, rows.dtype, f"{path}: {chosen}")
    columns = choose_columns(
        [name for name, item in datasets.items() if item.shape == rows.shape[:1]], wanted, str(path)
    )
    for name in (chosen, *columns.values()):
        datasets[name][:0]  # raises an error for a dataset that is stored elsewhere
    return IndexedStore(path.name, rows, columns, datasets)


def _check_own_storage(dataset: Any, path: Path) -> None:
    """Raise a `FileFormatError` if a dataset is not stored in its file.

    A file could otherwise show the content of any other file, and a virtual dataset reads as zeros if one is missing.
    """
    if dataset.external or dataset.is_virtual:
        kind = "has external storage" if dataset.external else "is a virtual dataset"
        raise FileFormatError(
            f"{path}: {dataset.name.lstrip('/')} {kind}, so its values are in other files, which isoscope does not "
            "read: copy the values into one file with h5py"
        )


def _is_text(dataset: Any) -> bool:
    import h5py

    return h5py.check_string_dtype(dataset.dtype) is not None


def _import_h5py(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingExtra(f"{path} is an HDF5 file, which needs h5py: pip install 'isoscope[hdf5]'") from error
    return h5py


def _read_error(path: Path, error: Exception) -> Exception:
    if isinstance(error, PermissionError | FileNotFoundError):
        return error
    why = " ".join(str(error).split())[:200]
    return FileFormatError(f"{path} is a damaged or truncated HDF5 file: {why}; copy or write it again")
