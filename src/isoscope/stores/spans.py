"""Some rows of a store, one after the other, as another process can read them: what a cluster's workers are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isoscope.stores.store import Batch, Store

SPAN_BYTES = 128 * 2**20
"""Of vectors: what a worker reads in one task. It holds a batch of them at a time."""

_MOST_SPANS = 20_000


@dataclass(frozen=True)
class Span:
    """The rows `first` … `first + rows` of a store, to be read where the span arrives."""

    store: Store
    """The shards that hold them; nothing of it is read before it is asked for."""
    start: int
    """Where they begin in it."""
    rows: int
    first: int
    """The number of the first of them in the whole store."""
    given: dict[str, np.ndarray]
    """The values of roles that are in no file."""

    def batches(self, columns: Sequence[str] = ()) -> Iterator[Batch]:
        """These rows in order, in the batches in which the whole store gives them, with its numbers."""
        read = [role for role in columns if role not in self.given]
        for batch in self.store.batches(read, start=self.start):
            at = batch.start - self.start
            batch = _clipped(batch, self.rows - at)
            stop = at + len(batch.vectors)
            values = {role: self.given[role][at:stop] for role in columns if role in self.given}
            ordered = {role: (batch.columns | values)[role] for role in columns}
            yield batch._replace(start=self.first + at, columns=ordered, share=stop / self.rows)
            if stop == self.rows:
                return


def _clipped(batch: Batch, rows: int) -> Batch:
    if len(batch.vectors) <= rows:
        return batch
    columns = {role: values[:rows] for role, values in batch.columns.items()}
    return batch._replace(vectors=batch.vectors[:rows], columns=columns)


def spans(store: Store, most_bytes: int = SPAN_BYTES) -> list[Span]:
    """A store cut into spans of about so many bytes, where reading can begin at once.

    A file that is read from its beginning (text, CSV, JSON lines, one Parquet row group) is one span.

    Examples
    --------
    >>> import numpy as np
    >>> from isoscope.stores import open_store
    >>> store = open_store(np.zeros((100_000, 64), np.float32), labels=np.arange(100_000) % 2)
    >>> [(span.first, span.rows) for span in spans(store, 10_000_000)]
    [(0, 65536), (65536, 34464)]
    """
    n = len(store)
    rows = max(1, most_bytes // (store.dim * store.dtype.itemsize), -(-n // _MOST_SPANS))
    cuts = [0]
    for place in store._places():
        if place - cuts[-1] >= rows:
            cuts.append(place)
    bare = store
    for role in store._given:
        bare = bare.without(role)
    found = []
    for start, stop in zip(cuts, [*cuts[1:], n], strict=True):
        own, at = bare._cut(start, stop)
        given = {role: values[start:stop] for role, values in store._given.items()}
        found.append(Span(own, at, stop - start, start, given))
    return found
