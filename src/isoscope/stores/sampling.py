"""Random samples of a store's rows, drawn in one pass without knowing the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.arrays import to_numpy

if TYPE_CHECKING:
    from isoscope.stores.store import Batch


@dataclass(frozen=True)
class Sample:
    """A random sample of the finite rows of a store, in the order of the store."""

    rows: np.ndarray
    """The row numbers in the store."""
    vectors: np.ndarray
    columns: dict[str, np.ndarray]
    keys: np.ndarray
    """A random key for each row; the rows with the m smallest keys are a sample of size m."""

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, m: int) -> np.ndarray:
        """Return the positions of a smaller sample of m rows within this sample, in ascending order."""
        if m >= len(self):
            return np.arange(len(self))
        return np.sort(np.argpartition(self.keys, m)[:m])

    def at(self, positions: np.ndarray) -> Sample:
        """Return a sample with only the rows at these positions."""
        columns = {role: values[positions] for role, values in self.columns.items()}
        return Sample(self.rows[positions], self.vectors[positions], columns, self.keys[positions])


class Sampler:
    """A sampler that keeps the `size` rows with the smallest random keys, so every set of rows is equally likely.

    The key of a row depends only on its number and the seed. Therefore, the sample does not depend on the batches, and
    two stores of the same length yield the same row numbers.
    """

    def __init__(self, size: int, seed: int):
        self.size, self.seed = size, seed
        self.limit = np.uint64(2**64 - 1)
        self.pool: list[Sample] = []
        self.pool_size = 0
        self.expected = False

    def offer(self, batch: Batch) -> None:
        """Add the rows of a batch to the candidates, except those with NaN or infinity."""
        keys = row_keys(batch.start, len(batch.vectors), self.seed)
        chosen = np.flatnonzero(keys <= self.limit)
        vectors = to_numpy(batch.vectors[chosen])
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            chosen, vectors = chosen[finite], vectors[finite]
        columns = {role: np.asarray(values)[chosen] for role, values in batch.columns.items()}
        self.pool.append(Sample(batch.start + chosen, vectors.copy(), columns, keys[chosen]))
        self.pool_size += len(chosen)
        if self.pool_size > 2 * self.size:
            self._prune()

    def expect(self, rows: int) -> None:
        """Set the total number of rows, so that rows with keys too large for the sample can be skipped.

        This allows for up to 1 in 1,000 non-finite rows; with more, `fell_short` may become true.
        """
        enough = 1.001 * self.size + 8 * math.sqrt(self.size) + 64
        if enough < rows:
            self.limit = np.uint64(int(enough / rows * 2**64))
            self.expected = True

    def fell_short(self) -> bool:
        """Return whether `expect` skipped rows that turned out to be needed."""
        return self.expected and self.pool_size < self.size

    def join(self, later: Sample) -> None:
        """Add the sample of later rows to the candidates."""
        self.pool.append(later)
        self.pool_size += len(later)
        self._prune()

    def sample(self) -> Sample:
        """Return the sample, in the order of the store."""
        self._prune()
        return self.pool[0]

    def _prune(self) -> None:
        if self.pool_size > self.size:  # before concatenating, so that dropped rows are not copied
            keys = np.concatenate([part.keys for part in self.pool])
            self.limit = np.partition(keys, self.size - 1)[self.size - 1]
            for i, part in enumerate(self.pool):
                self.pool[i] = part.at(np.flatnonzero(part.keys <= self.limit))
        joined = Sample(
            np.concatenate([part.rows for part in self.pool]),
            np.concatenate([part.vectors for part in self.pool]),
            {role: np.concatenate([part.columns[role] for part in self.pool]) for role in self.pool[0].columns},
            np.concatenate([part.keys for part in self.pool]),
        )
        self.pool, self.pool_size = [joined], len(joined)


def row_keys(first: int, count: int, seed: int) -> np.ndarray:
    """Return a random 64-bit key for each of `count` rows from row `first`, computed by the splitmix64 finalizer."""
    with np.errstate(over="ignore"):
        keys = np.arange(first + 1, first + 1 + count, dtype=np.uint64) + np.uint64((seed * 0xD1342543DE82EF95) % 2**64)
        keys *= np.uint64(0x9E3779B97F4A7C15)
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(keys ^ (keys >> np.uint64(31)))
