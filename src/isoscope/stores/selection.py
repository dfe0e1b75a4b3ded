"""Stores with some of the rows of another store, such as those of one layer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.arrays import check_integer
from isoscope._core.errors import NotFoundError, ParameterError
from isoscope.stores.store import Piece, WrappedStore

if TYPE_CHECKING:
    from isoscope.stores.store import Store


class SelectedStore(WrappedStore):
    """A store with these rows of another store, in the same order, numbered from 0."""

    def __init__(self, store: Store, rows: np.ndarray, name: str) -> None:
        super().__init__(store, name, store.dim, store.dtype)
        self._rows = np.asarray(rows, np.int64)
        self._given = {role: values[rows] for role, values in store._given.items()}
        self._given_missing = {role: mask[rows] for role, mask in store._given_missing.items()}
        self.guessed_dimensions, self.files, self.chosen = store.guessed_dimensions, store.files, store.chosen

    def __len__(self) -> int:
        return len(self._rows)

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        if start >= len(self._rows):
            return
        row = int(self._rows[start])
        for piece in self._store._read(names, rows, row, other_columns):
            stop = int(np.searchsorted(self._rows, row + len(piece.vectors)))
            inside = self._rows[start:stop] - row
            if len(inside):
                yield _select_rows(piece, inside, stop / len(self._rows))
            row, start = row + len(piece.vectors), stop
            if start == len(self._rows):
                return

    def read_starts(self) -> list[int]:
        """See `Store`."""
        return super().read_starts() if self._store.read_starts() else []

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return self._store._pick(self._rows[indices])

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        return self._store._values(name, self._rows if indices is None else self._rows[indices])

    def slice(self, start: int, stop: int) -> tuple[Store, int]:
        """See `Store`."""
        first = int(self._rows[start])
        inner, place = self._store.slice(first, int(self._rows[stop - 1]) + 1)
        other = copy.copy(self)
        other._store, other._rows = inner, self._rows[start:stop] - first + place
        other._given = {role: values[start:stop] for role, values in self._given.items()}
        other._given_missing = {role: mask[start:stop] for role, mask in self._given_missing.items()}
        return other, 0


def _select_rows(piece: Piece, rows: np.ndarray, share: float) -> Piece:
    if len(rows) == len(piece.vectors):
        return piece._replace(share=share)
    columns = {name: _select_values(values, rows) for name, values in piece.columns.items()}
    others = piece.other_columns
    if others is not None:
        import pyarrow as pa

        others = others.take(pa.array(rows))
    return Piece(piece.vectors[rows], columns, share, others)


def _select_values(values: Any, rows: np.ndarray) -> Any:
    """Return some values of a column, which is an array of NumPy or Arrow, or a list."""
    if isinstance(values, list):
        return [values[row] for row in rows]
    return values[rows] if isinstance(values, np.ndarray) else values.take(rows)


def list_layers(store: Store) -> list[int]:
    """Return the layers in a store of hidden states, as `isoscope embed` writes it; none for other stores."""
    if "document" not in store.columns.values() or not store.has_column("layer"):
        return []
    layers = np.unique(np.asarray(store.group_by("layer").column("by")))
    return layers.tolist() if layers.dtype.kind == "i" else []


def select_layer(store: Store, layer: int) -> Store:
    """Return the rows of one layer in a store of hidden states; −1 is the last layer."""
    layer = check_integer(layer, "layer")
    layers = list_layers(store)
    if not layers:
        raise ParameterError(f"{store.name} does not contain hidden states of layers: omit layer (CLI: --layer)")
    if layer < 0 and -layer <= len(layers):
        layer = layers[layer]
    if layer not in layers:
        known = ", ".join(str(each) for each in layers)
        raise NotFoundError(f"{store.name} has no layer {layer}: it has layers {known}")
    if len(layers) == 1:
        return store
    rows = np.flatnonzero(np.asarray(store.group_by("layer").column("by")) == layer)
    selected = SelectedStore(store, rows, f"{store.name}, layer {layer}")
    selected.layer = layer
    return selected
