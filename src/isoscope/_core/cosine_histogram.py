"""A histogram of cosines that also resolves narrow spaces, in which all cosines are close to 1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

_BINS_PER_OCTAVE_BITS = 13  # each doubling of the squared distance has 2¹³ bins
_OCTAVES = (-26, 2)  # the squared distances of unit vectors, as powers of two; smaller ones are rounding errors
_BINS = (_OCTAVES[1] - _OCTAVES[0]) << _BINS_PER_OCTAVE_BITS
_NO_GRID_COSINE = 255

GRID = np.arange(-100, 101) / 100
"""The cosines for which the number of pairs with a lower cosine is exact: −1 to 1 in steps of 0.01."""


@dataclass(frozen=True)
class CosineHistogram:
    """Counts of the cosines of all pairs of unit vectors.

    The cosine of two unit vectors with the squared distance s is 1 − s/2. A bin is at most s/8192 wide, so bins become
    narrower towards a cosine of 1.
    """

    counts: np.ndarray
    """The number of pairs in each bin, in the order of increasing cosines."""
    grid_shares: np.ndarray
    """The share of pairs (0 to 1) below each cosine in `GRID`, counted exactly.

    Cosines that differ from a cosine in `GRID` only by rounding count as equal to it.
    """

    @property
    def edges(self) -> np.ndarray:
        """The cosines at the edges of the bins, from −1 to 1."""
        return np.asarray(1 - _squared_edges()[::-1] / 2)

    def quantiles(self, shares: np.ndarray) -> np.ndarray:
        """Return the cosines below which these shares of pairs lie, interpolated linearly within a bin."""
        some = np.flatnonzero(self.counts)
        used = slice(some[0], some[-1] + 1)
        below = np.concatenate([[0], np.cumsum(self.counts[used])]) / self.counts.sum()
        return np.asarray(np.interp(shares, below, self.edges[used.start : used.stop + 1]))


class CosineCounter:
    """A counter of the cosines of pairs of unit vectors, given tiles of their squared distances."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._rule: _Binning | None = None
        self._all: list[tuple[np.ndarray, np.ndarray]] = []
        self._idle: list[tuple[np.ndarray, np.ndarray]] = []  # so that each thread adds to counts of its own

    def add(self, squared: np.ndarray, diagonal: bool, kernels: Any) -> None:
        """Add a tile of squared distances, with these kernels; in a diagonal tile, count each pair once."""
        self._rule = rule = _binning(squared.dtype)
        with self._lock:
            if not self._idle:
                self._all.append((np.zeros(_BINS, np.int64), np.zeros(len(GRID), np.int64)))
                self._idle.append(self._all[-1])
            counts, beyond = self._idle.pop()
        bits = squared.view(rule.integers)
        kernels.count_cosines(bits, rule.shift, rule.first, diagonal, counts, rule.marks, squared, rule.limits, beyond)
        with self._lock:
            self._idle.append((counts, beyond))

    def histogram(self) -> CosineHistogram:
        """Return the counts of all tiles."""
        assert self._rule is not None
        counts = np.sum([counts for counts, _ in self._all], axis=0)[::-1]
        beyond = np.sum([beyond for _, beyond in self._all], axis=0)
        below = np.concatenate([[0], np.cumsum(counts)])[_BINS - 1 - _bin_of(self._rule.limits)]
        return CosineHistogram(counts, (below + beyond) / counts.sum())


class _Binning(NamedTuple):
    """How the bits of a squared distance determine its bin: the exponent and the leading bits of the mantissa."""

    integers: Any
    shift: int
    first: int
    limits: np.ndarray
    """The squared distance above which a cosine is below each cosine in `GRID`."""
    marks: np.ndarray
    """The index in `GRID` of the cosine that lies in each bin."""


@cache
def _binning(dtype: np.dtype) -> _Binning:
    integers, mantissa = (np.int32, 23) if dtype == np.float32 else (np.int64, 52)
    shift = mantissa - _BINS_PER_OCTAVE_BITS
    first = int(np.asarray(2.0 ** _OCTAVES[0], dtype).view(integers)) >> shift
    limits = _grid_limits(dtype)
    marks = np.full(_BINS, _NO_GRID_COSINE, np.uint8)
    marks[_bin_of(limits)] = np.arange(len(GRID))
    return _Binning(integers, shift, first, limits, marks)


def _grid_limits(dtype: np.dtype) -> np.ndarray:
    limits = 2 * (1 - GRID) * (1 + 16 * float(np.finfo(dtype).eps))
    return np.asarray(np.clip(limits, 2.0 ** _OCTAVES[0], 4).astype(dtype))


@cache
def _squared_edges() -> np.ndarray:
    """Return the squared distances at the edges of the bins; the first bin starts at 0."""
    octaves, steps = np.divmod(np.arange(_BINS + 1), 1 << _BINS_PER_OCTAVE_BITS)
    edges = np.ldexp(1 + steps / (1 << _BINS_PER_OCTAVE_BITS), octaves + _OCTAVES[0])
    edges[0] = 0
    edges.flags.writeable = False
    return np.asarray(edges)


def _bin_of(squared: np.ndarray) -> np.ndarray:
    at = np.searchsorted(_squared_edges(), squared.astype(np.float64), side="right") - 1
    return np.asarray(np.minimum(at, _BINS - 1))
