"""The rows that repairs are tried on: those the task names and a random sample; and how rows are found by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.arrays import to_numpy
from isoscope._core.errors import InputError
from isoscope._core.memory import limit_sample_size
from isoscope.sketching.sketch import Sketch
from isoscope.stores.columns import plural
from isoscope.stores.sampling import Sampler

if TYPE_CHECKING:
    from isoscope.engines.engine import Progress
    from isoscope.stores.store import Store


@dataclass(frozen=True)
class Rows:
    """Rows in memory, in the order of the source, and the sums of all rows of the source."""

    vectors: np.ndarray
    numbers: np.ndarray
    """Each row's number in the source."""
    total: int
    """Rows of the source."""
    sketch: Sketch
    """Of all rows of the source."""
    sampled: np.ndarray
    """Whether each row belongs to the uniform random sample, and is not there only because the task names it."""

    def __len__(self) -> int:
        return len(self.numbers)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Return the positions of the rows with these numbers, all of which are in memory."""
        return np.searchsorted(self.numbers, numbers)

    def at(self, positions: np.ndarray) -> Rows:
        """Return the rows at some positions."""
        return replace(
            self,
            vectors=self.vectors[positions],
            numbers=self.numbers[positions],
            sampled=self.sampled[positions],
        )


def read_rows(
    store: Store, needed: np.ndarray, size: int, seed: int, progress: Progress, stage: str = "reading"
) -> Rows:
    """Return the rows with these numbers and a uniform random sample of `size` rows, in one pass over the store."""
    needed = np.unique(needed)
    size = limit_sample_size(size, store.dim, 2 * store.dtype.itemsize)  # the rows, and their repaired copies
    sampler = Sampler(size, seed)
    kept, numbers, total, stop = [], [], Sketch(), 0
    for batch in store.batches():
        vectors = to_numpy(batch.vectors)
        stop = batch.start + len(vectors)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            first = batch.start + int(np.argmax(bad))
            raise InputError(f"{store.name} has NaN or infinity, first in row {first}: fix or drop these rows")
        low, high = np.searchsorted(needed, (batch.start, stop))
        if low < high:
            kept.append(vectors[needed[low:high] - batch.start].copy())
            numbers.append(needed[low:high])
        sampler.offer(batch)
        total = total + Sketch.of(vectors, first=batch.start)
        progress(stage, stop, batch.share)
    sample = sampler.sample()
    others = ~np.isin(sample.rows, needed)
    kept.append(sample.vectors[others])
    numbers.append(sample.rows[others])
    joined, order = np.concatenate(kept), np.concatenate(numbers)
    if joined.dtype not in (np.float32, np.float64):
        joined = joined.astype(np.float32)
    back = np.argsort(order)
    sampled = np.isin(order[back], sample.rows)
    return Rows(np.ascontiguousarray(joined[back]), order[back], stop, total, sampled)


def find_rows(store: Store, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the row number of each name, and which names are unknown: by id, else by text, else by row number."""
    best: tuple[np.ndarray, np.ndarray] | None = None
    for role in ("ids", "text"):
        values = store.column(role) if role in store.columns else None
        if values is None:
            continue
        known = {str(value): row for row, value in zip(range(len(values) - 1, -1, -1), values[::-1], strict=True)}
        rows = np.fromiter((known.get(name, -1) for name in names), np.int64, len(names))
        unknown = rows < 0
        if best is None or unknown.sum() < best[1].sum():
            best = rows, unknown
        if not unknown.any():
            return best
    if best is not None and "ids" in store.columns:
        return best
    rows = np.fromiter((_parse_row_number(name, len(store)) for name in names), np.int64, len(names))
    if best is None or (rows < 0).sum() < best[1].sum():
        best = rows, rows < 0
    return best


def _parse_row_number(name: str, n: int) -> int:
    return int(name) if name.isascii() and name.isdigit() and int(name) < n else -1


def check_known(names: Sequence[str], unknown: np.ndarray, what: str, store: Store) -> None:
    """Raise InputError if a source lacks some of the names, with their number and the first one."""
    if not unknown.any():
        return
    missing = list(dict.fromkeys(name for name, gone in zip(names, unknown, strict=True) if gone))
    by = "its ids" if "ids" in store.columns else "its text" if "text" in store.columns else "its row numbers"
    first = missing[0] if len(missing[0]) <= 60 else missing[0][:57] + "…"
    raise InputError(
        f"{what} name {plural(len(missing), 'row')} that {store.name} does not have among {by}, first {first!r}: name "
        'the column of ids (ids=, --columns ids=NAME), or drop these judgments (missing="drop", --missing drop)'
    )
