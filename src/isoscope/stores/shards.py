"""Stores that combine several files, and ranges of rows of a store for parallel work."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import ParameterError, ShapeError
from isoscope.stores.columns import INVERSE_RANK
from isoscope.stores.remote import file_version
from isoscope.stores.store import Store
from isoscope.stores.table_schema import unify_layouts

if TYPE_CHECKING:
    from isoscope.stores.remote import RemoteFile
    from isoscope.stores.store import Batch, Piece
    from isoscope.stores.table_schema import Layout


_GUESSES = ("ids", "frequency")  # automatically chosen roles that are ignored if the shards differ in them


class ShardedStore(Store):
    """Several stores read as one, in the given order."""

    def __init__(self, name: str, paths: Sequence[Path | RemoteFile], stores: Sequence[Store]) -> None:
        first = stores[0]
        columns = dict(first.columns)
        for role in _GUESSES:
            if role in columns and (
                columns[role] == INVERSE_RANK or any(store.columns.get(role) != columns[role] for store in stores)
            ):
                columns.pop(role)  # a requested column is in all shards; ranks restart in each shard
        for path, store in zip(paths, stores, strict=True):
            if store.dim != first.dim:
                raise ShapeError(
                    f"{paths[0]} has {first.dim} dimensions but {path} has {store.dim}: need vectors of equal length"
                )
            if _required_columns(store) != _required_columns(first):
                roles = [*_required_columns(first), *_required_columns(store)]
                role = next(r for r in roles if first.columns.get(r) != store.columns.get(r))
                raise ParameterError(
                    f"{paths[0]} has {first.columns.get(role, 'no column')} for {role}, but {path} has "
                    f"{store.columns.get(role, 'no column')}: need the same columns in all shards"
                )
        super().__init__(name, first.dim, np.result_type(*(store.dtype for store in stores)), columns)
        self.guessed_dimensions = first.guessed_dimensions
        self._stores, self._paths = stores, paths
        self._sizes = np.cumsum([file_version(path)[1] for path in paths])
        self._row_ends: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self._ends()[-1])

    def known_length(self) -> int | None:
        """Return the number of rows of all shards, or None if a shard must be read to count them."""
        lengths = [store.known_length() for store in self._stores]
        return None if None in lengths else sum(length or 0 for length in lengths)

    def _ends(self) -> np.ndarray:
        if self._row_ends is None:
            self._row_ends = np.cumsum([len(store) for store in self._stores])
        return self._row_ends

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        before = 0
        for store, size in zip(self._stores, self._sizes, strict=True):
            skip = min(start, len(store)) if start else 0
            start -= skip
            for piece in store._read(names, rows, skip, other_columns):
                share = float((before + piece.share * (size - before)) / self._sizes[-1])  # share of the bytes
                yield piece._replace(vectors=piece.vectors.astype(self.dtype, copy=False), share=share)
            before = size

    def slice(self, start: int, stop: int) -> tuple[Store, int]:
        """Return the shards that contain the rows from `start` to `stop`, and the position of row `start` in them."""
        starts = np.concatenate([[0], self._ends()])
        low = int(np.searchsorted(starts, start, "right")) - 1
        high = max(int(np.searchsorted(starts, stop)), low + 1)
        other = copy.copy(self)
        other._stores, other._paths = self._stores[low:high], self._paths[low:high]
        other._sizes = self._sizes[low:high] - (self._sizes[low - 1] if low else 0)
        other._row_ends, other.files = self._ends()[low:high] - starts[low], tuple(other._paths)
        return other, start - int(starts[low])

    def read_starts(self) -> list[int]:
        """Return the rows of all shards where reading can start directly."""
        starts = np.concatenate([[0], self._ends()])
        return [
            int(start) + row
            for start, store in zip(starts, self._stores, strict=False)
            for row in (0, *store.read_starts())
        ]

    def _layout(self) -> Layout | None:
        layouts = [layout for store in self._stores if (layout := store._layout()) is not None]
        return unify_layouts(layouts, self._paths) if len(layouts) == len(self._stores) else None

    def _reading_missing(self) -> Store:
        other = super()._reading_missing()
        assert isinstance(other, ShardedStore)
        other._stores = [store._reading_missing() for store in self._stores]
        return other

    def has_column(self, name: str) -> bool:
        """Return whether every shard has a column with this name that has no role."""
        return all(store.has_column(name) for store in self._stores)

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return np.concatenate([store._pick(own).astype(self.dtype, copy=False) for store, own in self._split(indices)])

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        if indices is None:
            parts = [store._values(name, None) for store in self._stores]
        else:
            parts = [store._values(name, own) for store, own in self._split(indices)]
        if all(isinstance(part, np.ndarray) for part in parts) and len({part.dtype.kind for part in parts}) == 1:
            return np.concatenate(parts)
        return [value for part in parts for value in part]

    def _split(self, indices: np.ndarray) -> Iterator[tuple[Store, np.ndarray]]:
        """Yield each shard that contains some of these rows, with their row numbers in that shard."""
        starts = np.concatenate([[0], self._ends()])
        for i, store in enumerate(self._stores):
            low, high = np.searchsorted(indices, starts[i : i + 2])
            if low < high:
                yield store, indices[low:high] - starts[i]


def _required_columns(store: Store) -> dict[str, str]:
    """Return the columns that must be the same in all shards."""
    return {role: name for role, name in store.columns.items() if role not in _GUESSES}


def natural_sort_key(path: object) -> list[Any]:
    """Return a sort key that puts shard-2 before shard-10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", str(path)) if part]


SPAN_BYTES = 128 * 2**20
"""The number of bytes of vectors that a worker reads in one task; it keeps only one batch at a time in memory."""

_MAX_SPANS = 20_000


class Span(Store):
    """A range of rows of another store that starts at row `first`.

    `layout` is the layout of the full table, if the table is to be written.
    """

    def __init__(
        self, store: Store, first: int, rows: int, given: dict[str, np.ndarray], layout: Layout | None = None
    ) -> None:
        super().__init__(store.name, store.dim, store.dtype, {**store.columns, **{role: role for role in given}})
        self._store, self._start, self._length, self.first, self._full_layout = store, first, rows, first, layout
        self._given, self._hidden, self.guessed = given, store._hidden, store.guessed

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict[str, Any]:
        own, start = self._store.slice(self._start, self._start + self._length)
        if self._full_layout is not None and own._layout() is None:
            raise ParameterError(
                f"{self.name} is held in memory by this process, and its table cannot be sent to workers: omit the "
                "engine, or write only the vectors with columns=False (on the command line: --vectors-only)"
            )
        return {**self.__dict__, "_store": own, "_start": start}

    def numbered_batches(self, columns: Sequence[str] = ()) -> Iterator[Batch]:
        """Yield the batches with row numbers that refer to the full store."""
        for batch in self.batches(columns):
            yield batch._replace(start=batch.start + self.first)

    def _read(self, names: Sequence[str], rows: int, start: int, other_columns: bool) -> Iterator[Piece]:
        left = self._length - start
        for piece in self._store._read(names, rows, self._start + start, other_columns):
            piece = _truncate_piece(piece, left)
            left -= len(piece.vectors)
            yield piece._replace(share=1 - left / self._length)
            if not left:
                return

    def _pick(self, indices: np.ndarray) -> np.ndarray:
        return self._store._pick(indices + self._start)

    def _values(self, name: str, indices: np.ndarray | None) -> Any:
        return self._store._values(name, self._start + (np.arange(len(self)) if indices is None else indices))

    def _layout(self) -> Layout | None:
        return self._full_layout or self._store._layout()


def _truncate_piece(piece: Piece, rows: int) -> Piece:
    if len(piece.vectors) <= rows:
        return piece
    columns = {name: values[:rows] for name, values in piece.columns.items()}
    others = None if piece.other_columns is None else piece.other_columns.slice(0, rows)
    return piece._replace(vectors=piece.vectors[:rows], columns=columns, other_columns=others)


def spans(store: Store, max_bytes: int = SPAN_BYTES, *, other_columns: bool = False) -> list[Span]:
    """Split a store into spans of about `max_bytes` bytes, at rows where reading can start directly.

    A file that can only be read from its beginning (text, CSV, JSON lines, one Parquet row group) becomes one span.
    With `other_columns` each span has the layout of the full table.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores import open_store
    >>> store = open_store(np.zeros((100_000, 64), np.float32), labels=np.arange(100_000) % 2)
    >>> [(span.first, len(span)) for span in spans(store, 10_000_000)]
    [(0, 65536), (65536, 34464)]
    """
    n = len(store)
    rows = max(1, max_bytes // (store.dim * store.dtype.itemsize), -(-n // _MAX_SPANS))
    starts = [0]
    for row in store.read_starts():
        if starts[-1] + rows <= row < n:
            starts.append(row)
    bare = store
    for role in store.given_columns:
        bare = bare.without(role)
    layout = bare.layout() if other_columns else None
    found = []
    for start, stop in zip(starts, [*starts[1:], n], strict=True):
        given = {role: values[start:stop] for role, values in store.given_columns.items()}
        span = Span(bare, start, stop - start, given, layout)
        span._required, span._drop_zeros = store._required, store._drop_zeros
        span._given_missing = {role: mask[start:stop] for role, mask in store._given_missing.items()}
        found.append(span)
    return found
