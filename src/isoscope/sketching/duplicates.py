"""How many rows are copies of others, counted in pieces that can be added up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CAPACITY = 2**16
"""Different rows that are remembered. Up to so many the count is exact, above it is estimated from a sample."""


@dataclass(frozen=True)
class RowCounts:
    """How often each different row occurs, for the rows whose 64-bit hash is below 2^(64 − level).

    Which rows are remembered depends on their values alone, so that pieces counted apart agree on them: adding is
    associative and commutative, and a row is either counted fully or not at all (distinct sampling, Gibbons 2001).
    """

    hashes: np.ndarray
    counts: np.ndarray
    total: int
    """All rows, remembered or not."""
    level: int = 0

    @classmethod
    def of(cls, hashes: np.ndarray) -> RowCounts:
        """Count the given rows' hashes."""
        return cls._limit_to_capacity(hashes, np.ones(len(hashes), np.int64), len(hashes), 0)

    def __add__(self, other: RowCounts) -> RowCounts:
        return self._limit_to_capacity(
            np.concatenate([self.hashes, other.hashes]),
            np.concatenate([self.counts, other.counts]),
            self.total + other.total,
            max(self.level, other.level),
        )

    @classmethod
    def _limit_to_capacity(cls, hashes: np.ndarray, counts: np.ndarray, total: int, level: int) -> RowCounts:
        kept = _level_mask(hashes, level)
        different, inverse = np.unique(hashes[kept], return_inverse=True)
        added = np.bincount(inverse, weights=counts[kept], minlength=len(different)).astype(np.int64)
        while len(different) > CAPACITY:
            level += 1
            kept = _level_mask(different, level)
            different, added = different[kept], added[kept]
        return cls(different, added, total, level)

    @property
    def exact(self) -> bool:
        """Whether every different row is remembered."""
        return self.level == 0

    @property
    def copies(self) -> float:
        """How many rows have an equal before them: all rows less the different ones.

        Above the capacity there are two estimates. The copies seen in the sample, scaled up, are sharp when copies are
        few; but one row repeated very often is either in the sample or not. All rows less the scaled-up number of
        different ones do not mind that, and are taken where the two disagree by more than chance.
        """
        seen = float(int((self.counts - 1).sum()) << self.level)
        different = float(len(self.hashes) << self.level)
        chance = (different * (2**self.level - 1)) ** 0.5
        rest = self.total - different
        return seen if abs(seen - rest) <= 4 * chance else rest


def _level_mask(hashes: np.ndarray, level: int) -> np.ndarray:
    return (hashes >> np.uint64(64 - level)) == 0 if level else np.ones(len(hashes), bool)
