"""A store whose vectors go through a function when they are read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.store import Store

if TYPE_CHECKING:
    from isoscope.stores.store import Piece
    from isoscope.stores.table_schema import Layout

Function = Callable[[np.ndarray], Any]


class MappedStore(Store):
    """The rows and columns of another store, with its vectors sent through a function batch by batch."""

    def __init__(self, store: Store, function: Function, dim: int, dtype: Any, name: str | None) -> None:
        if dtype is None:
            dtype = store.dtype if store.dtype.kind == "f" else np.float32
        super().__init__(store.name if name is None else name, dim, dtype, store.columns)
        self._store, self._function = store, function
        self._given, self._hidden, self.guessed = store._given, store._hidden, store.guessed

    def __len__(self) -> int:
        return len(self._store)

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        for piece in self._store._read(names, rows, start, beside):
            yield piece._replace(vectors=self._apply_function(piece.vectors))

    def _cut(self, start: int, stop: int) -> tuple[Store, int]:
        inner, start = self._store._cut(start, stop)
        other = copy.copy(self)
        other._store = inner
        return other, start

    def _places(self) -> list[int]:
        return self._store._places()

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return self._apply_function(self._store._pick(indices))

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        return self._store._values(name, indices)

    def _layout(self) -> Layout | None:
        return self._store._layout()

    def _has_column(self, name: str) -> bool:
        return self._store._has_column(name)

    def _apply_function(self, vectors: np.ndarray) -> np.ndarray:
        given = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float32)
        found = np.asarray(self._function(given))
        if found.shape != (len(vectors), self.dim):
            raise InputError(
                f"the function made shape {found.shape} of {given.shape}: need {(len(vectors), self.dim)}, a vector of "
                f"{self.dim} dimensions for each"
            )
        return found.astype(self.dtype, copy=False)
