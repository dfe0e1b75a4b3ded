"""Some rows of a store, one after the other, as another process can read them: what a cluster's workers are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.errors import InputError
from isoscope.stores.store import Store

if TYPE_CHECKING:
    from isoscope.stores.store import Batch, Piece
    from isoscope.stores.table_schema import Layout

SPAN_BYTES = 128 * 2**20
"""Of vectors: what a worker reads in one task. It holds a batch of them at a time."""

_MOST_SPANS = 20_000


class Span(Store):
    """Rows of another store, from number `first` on; `layout` is that of the whole, if its table is to be written."""

    def __init__(
        self, store: Store, first: int, rows: int, given: dict[str, np.ndarray], layout: Layout | None = None
    ) -> None:
        super().__init__(store.name, store.dim, store.dtype, {**store.columns, **{role: role for role in given}})
        self._store, self._start, self._length, self.first, self._whole = store, first, rows, first, layout
        self._given, self._hidden, self.guessed = given, store._hidden, store.guessed

    def __len__(self) -> int:
        return self._length

    def __getstate__(self) -> dict[str, Any]:
        own, start = self._store._cut(self._start, self._start + self._length)  # no more than its rows is sent
        if self._whole is not None and own._layout() is None:
            raise InputError(
                f"{self.name} is read from here, and its table cannot be sent to workers: leave the engine, or the "
                "columns: columns=False, on the command line --vectors-only"
            )
        return {**self.__dict__, "_store": own, "_start": start}

    def numbered_batches(self, columns: Sequence[str] = ()) -> Iterator[Batch]:
        """The batches in which the whole store gives these rows, with its numbers."""
        for batch in self.batches(columns):
            yield batch._replace(start=batch.start + self.first)

    def _read(self, names: Sequence[str], rows: int, start: int, beside: bool) -> Iterator[Piece]:
        left = self._length - start
        for piece in self._store._read(names, rows, self._start + start, beside):
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
        return self._whole or self._store._layout()


def _truncate_piece(piece: Piece, rows: int) -> Piece:
    if len(piece.vectors) <= rows:
        return piece
    columns = {name: values[:rows] for name, values in piece.columns.items()}
    beside = None if piece.other_columns is None else piece.other_columns.slice(0, rows)
    return piece._replace(vectors=piece.vectors[:rows], columns=columns, other_columns=beside)


def spans(store: Store, most_bytes: int = SPAN_BYTES, *, beside: bool = False) -> list[Span]:
    """A store cut into spans of about so many bytes, where reading can begin at once.

    A file that is read from its beginning (text, CSV, JSON lines, one Parquet row group) is one span. With `beside`
    each knows the table that all of them are.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores import open_store
    >>> store = open_store(np.zeros((100_000, 64), np.float32), labels=np.arange(100_000) % 2)
    >>> [(span.first, len(span)) for span in spans(store, 10_000_000)]
    [(0, 65536), (65536, 34464)]
    """
    n = len(store)
    rows = max(1, most_bytes // (store.dim * store.dtype.itemsize), -(-n // _MOST_SPANS))
    cuts = [0]
    for place in store._places():
        if cuts[-1] + rows <= place < n:
            cuts.append(place)
    bare = store
    for role in store._given:
        bare = bare.without(role)
    layout = bare._layout() if beside else None
    found = []
    for start, stop in zip(cuts, [*cuts[1:], n], strict=True):
        given = {role: values[start:stop] for role, values in store._given.items()}
        found.append(Span(bare, start, stop - start, given, layout))
    return found
