"""Parts of a sketch: the sums for each type of row, and the counts of duplicate rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope._core.errors import ParameterError

if TYPE_CHECKING:
    from isoscope._core.arrays import Groups


@dataclass(frozen=True)
class TypeSums:
    """The sums over the rows of each type, in the sorted order of the names."""

    names: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    within: np.ndarray
    """tr W, the sum of squared distances to the mean of the type."""
    unit_sums: np.ndarray
    unit_squares: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, types: Groups) -> TypeSums:
        """Return the sums of the rows of each type."""
        order = np.argsort(types.codes, kind="stable")
        starts = np.cumsum(types.counts) - types.counts
        rows = X[order].astype(np.float64)
        largest = np.abs(rows).max(axis=1, keepdims=True)
        units = rows / np.where(largest > 0, largest, 1)
        lengths = np.linalg.norm(units, axis=1, keepdims=True)
        units /= np.where(lengths > 0, lengths, 1)
        first = rows[starts]  # subtracted, so that a large mean costs no precision
        rows -= np.repeat(first, types.counts, axis=0)
        shift = np.add.reduceat(rows, starts, axis=0) / types.counts[:, None]
        rows -= np.repeat(shift, types.counts, axis=0)
        with np.errstate(over="ignore"):
            squares = (rows * rows).sum(axis=1)
        return cls(
            names=types.names,
            counts=types.counts,
            means=first + shift,
            within=np.add.reduceat(squares, starts),
            unit_sums=np.add.reduceat(units, starts, axis=0),
            unit_squares=np.add.reduceat((units * units).sum(axis=1), starts),
        )

    def __add__(self, other: TypeSums) -> TypeSums:
        if (self.names.dtype.kind == "U") != (other.names.dtype.kind == "U"):
            raise ParameterError(
                f"types are {self.names.dtype} in one sketch and {other.names.dtype} in the other: need numbers "
                "in both or strings in both"
            )
        names = np.union1d(self.names, other.names)
        a, b = self._expand_to(names), other._expand_to(names)
        counts = a.counts + b.counts
        gap = np.where(((a.counts > 0) & (b.counts > 0))[:, None], b.means - a.means, 0)
        with np.errstate(over="ignore"):
            between = (gap * gap).sum(axis=1)
        return TypeSums(
            names=names,
            counts=counts,
            means=(a.counts[:, None] * a.means + b.counts[:, None] * b.means) / counts[:, None],
            within=a.within + b.within + (a.counts * b.counts / counts) * between,
            unit_sums=a.unit_sums + b.unit_sums,
            unit_squares=a.unit_squares + b.unit_squares,
        )

    def _expand_to(self, names: np.ndarray) -> TypeSums:
        """Return the same sums for a larger set of names, with zeros for the new names."""
        at = np.searchsorted(names, self.names)

        def over(values: np.ndarray) -> np.ndarray:
            wider = np.zeros((len(names), *values.shape[1:]), values.dtype)
            wider[at] = values
            return wider

        rest = {name: over(value) for name, value in self.tensors().items() if name != "names"}
        return TypeSums(names=names, **rest)

    def fits(self, d: int) -> bool:
        """Return whether all arrays have the same number of types and d dimensions."""
        k = len(self.names)
        flat = {self.names.shape, self.counts.shape, self.within.shape, self.unit_squares.shape}
        return flat == {(k,)} and self.means.shape == self.unit_sums.shape == (k, d)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the arrays to save; the names are stored as JSON bytes, so that no pickle is needed."""
        arrays = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays["names"] = np.frombuffer(json.dumps(self.names.tolist()).encode(), np.uint8)
        return arrays

    @classmethod
    def from_tensors(cls, tensors: dict[str, np.ndarray]) -> TypeSums:
        """Rebuild the sums from their `tensors`."""
        names = json.loads(tensors["names"].tobytes().decode())
        if not isinstance(names, list) or not {type(name) for name in names} <= {str, int, float}:
            raise TypeError("the names of its types are not strings or numbers")
        return cls(**(tensors | {"names": np.asarray(names)}))


CAPACITY = 2**16
"""The maximum number of distinct rows to remember; up to this number, counts are exact, and above it, estimated."""


@dataclass(frozen=True)
class RowCounts:
    """The number of copies of each distinct row whose 64-bit hash is below 2^(64 − level).

    Whether a row is remembered depends only on its values, so the counts of different parts are consistent: addition is
    associative and commutative, and either all copies of a row are counted or none (distinct sampling, Gibbons 2001).
    """

    hashes: np.ndarray
    counts: np.ndarray
    total: int
    """The number of all rows, remembered or not."""
    level: int = 0

    @classmethod
    def of(cls, hashes: np.ndarray) -> RowCounts:
        """Return the counts of these row hashes."""
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
        """Whether all distinct rows are counted, not only a sample of them."""
        return self.level == 0

    @property
    def copies(self) -> float:
        """The number of rows that equal an earlier row: all rows minus the distinct ones.

        Above the capacity there are two estimates. The number of copies in the sample, scaled up, is precise if copies
        are few. It is far off if a row has very many copies, because this row is either in the sample or not. The
        number of all rows minus the scaled-up number of distinct ones does not have this problem; it is used if the two
        differ by more than chance.
        """
        seen = float(int((self.counts - 1).sum()) << self.level)
        different = float(len(self.hashes) << self.level)
        chance = (different * (2**self.level - 1)) ** 0.5
        rest = self.total - different
        return seen if abs(seen - rest) <= 4 * chance else rest


def _level_mask(hashes: np.ndarray, level: int) -> np.ndarray:
    return (hashes >> np.uint64(64 - level)) == 0 if level else np.ones(len(hashes), bool)
