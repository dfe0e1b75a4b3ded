"""The part of a source that repairs are tried on: rows that the task names, and a random sample of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isoscope.arrays import host
from isoscope.engines.engine import Progress
from isoscope.errors import InputError
from isoscope.memory import sample_rows
from isoscope.stores.columns import plural
from isoscope.stores.sampling import Sampler
from isoscope.stores.store import Store


@dataclass(frozen=True)
class Rows:
    """Vectors in memory, in the source's order."""

    vectors: np.ndarray
    numbers: np.ndarray
    """Of each row in the source."""
    total: int
    """Rows of the source."""

    def __len__(self) -> int:
        return len(self.numbers)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Where rows of these numbers are among these; all of them are."""
        return np.searchsorted(self.numbers, numbers)


def gather(store: Store, needed: np.ndarray, size: int, seed: int, progress: Progress, stage: str = "reading") -> Rows:
    """The rows of these numbers, and so many others, chosen at random, that there are `size` in all."""
    needed = np.unique(needed)
    size = sample_rows(size, store.dim, 2 * store.dtype.itemsize)  # as they are, and as a repair makes them
    sampler = Sampler(max(size, len(needed)), seed)  # some of the sample may be needed anyway
    kept, numbers, total = [], [], 0
    for batch in store.batches():
        vectors = host(batch.vectors)
        stop = batch.start + len(vectors)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            first = batch.start + int(np.argmax(bad))
            raise InputError(f"{store.name} has NaN or infinity, the first in row {first}: drop or mend such rows")
        low, high = np.searchsorted(needed, (batch.start, stop))
        if low < high:
            kept.append(vectors[needed[low:high] - batch.start].copy())
            numbers.append(needed[low:high])
        if size > len(needed):
            sampler.offer(batch)
        total = stop
        progress(stage, stop, batch.share)
    if size > len(needed):
        sample = sampler.sample()
        others = np.flatnonzero(~np.isin(sample.rows, needed))
        others = np.sort(others[np.argsort(sample.keys[others])[: size - len(needed)]])
        kept.append(sample.vectors[others])
        numbers.append(sample.rows[others])
    joined, order = np.concatenate(kept), np.concatenate(numbers)
    if joined.dtype not in (np.float32, np.float64):
        joined = joined.astype(np.float32)
    back = np.argsort(order)
    return Rows(np.ascontiguousarray(joined[back]), order[back], total)


def find_rows(store: Store, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The row number of each name, and which names are unknown: by ids, else by text, else by row number."""
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
    rows = np.fromiter((_row_number(name, len(store)) for name in names), np.int64, len(names))
    if best is None or (rows < 0).sum() < best[1].sum():
        best = rows, rows < 0
    return best


def _row_number(name: str, n: int) -> int:
    return int(name) if name.isascii() and name.isdigit() and int(name) < n else -1


def refuse_unknown(names: Sequence[str], unknown: np.ndarray, what: str, store: Store) -> None:
    """Say how many names a source does not have, and the first."""
    if not unknown.any():
        return
    missing = list(dict.fromkeys(name for name, gone in zip(names, unknown, strict=True) if gone))
    by = "its ids" if "ids" in store.columns else "its text" if "text" in store.columns else "its row numbers"
    first = missing[0] if len(missing[0]) <= 60 else missing[0][:57] + "…"
    raise InputError(
        f"{store.name} does not have among {by} {plural(len(missing), 'row')} that {what} name, the first is "
        f"{first!r}: say which column identifies rows (ids=, on the command line --columns ids=NAME), or leave those "
        'out (missing="drop", --missing drop)'
    )
