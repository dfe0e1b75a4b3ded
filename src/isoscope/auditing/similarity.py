"""What a cosine is worth in a given space: its percentile among random pairs, and among nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isoscope.auditing.measure import percentile, quantile

if TYPE_CHECKING:
    from isoscope.auditing.measure import Neighborhood

_TAIL = np.concatenate([[0, 1e-5, 3e-5, 1e-4, 3e-4], np.arange(1, 10) / 1000])
_COSINES = np.arange(-100, 101) / 100
_TABLE_COSINES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_SHARES = np.concatenate([_TAIL, np.arange(1, 100) / 100, 1 - _TAIL[::-1]])


@dataclass(frozen=True)
class Similarity:
    """Quantiles of the cosine of two random rows, and of a row with its nearest neighbour.

    One in two random pairs is below the middle one. A cosine says "related" only if it is high among random pairs, and
    "as near as it gets" only if it is high among nearest neighbours.
    """

    shares: np.ndarray
    pairs: np.ndarray
    """The cosine below which each share of all pairs lies."""
    nearest: np.ndarray
    """The cosine with the nearest neighbour below which each share of rows lies; empty without neighbours by cosine."""
    cosines: np.ndarray
    """Cosines at which the shares are counted: all with two decimals."""
    pairs_below: np.ndarray
    """The share of all pairs below each of them, counted."""
    nearest_below: np.ndarray
    """The share of rows whose nearest neighbour is below each of them, counted; empty without."""

    @classmethod
    def of(cls, counts: np.ndarray, around: Neighborhood | None) -> Similarity:
        """From the counts of cosines of pairs, and from neighbours by cosine if there are any."""
        pairs = np.asarray([quantile(counts, share) for share in _SHARES])
        below = np.asarray([percentile(counts, cosine) for cosine in _COSINES])
        if around is None:
            return cls(_SHARES, pairs, np.zeros(0), _COSINES, below, np.zeros(0))
        nearest = np.sort(1 - around.distances[:, 0] ** 2 / 2)
        nearer = np.searchsorted(nearest, _COSINES) / len(nearest)
        return cls(_SHARES, pairs, np.quantile(nearest, _SHARES), _COSINES, below, nearer)

    def percentile(self, cosine: float) -> float:
        """The share of random pairs below this cosine, in per cent: counted at two decimals, interpolated between."""
        return 100 * self._share_below(self.pairs, self.pairs_below, cosine)

    def nearest_percentile(self, cosine: float) -> float | None:
        """The share of rows whose nearest neighbour is less alike than this cosine, in per cent."""
        return 100 * self._share_below(self.nearest, self.nearest_below, cosine) if len(self.nearest) else None

    def table(self) -> list[tuple[float, float, float | None]]:
        """Rows of (cosine, percentile among random pairs, percentile among nearest neighbours) at round cosines."""
        return [(cosine, self.percentile(cosine), self.nearest_percentile(cosine)) for cosine in _TABLE_COSINES]

    def to_dict(self) -> dict[str, np.ndarray]:
        """The three arrays by name."""
        return dict(vars(self))

    def _share_below(self, quantiles: np.ndarray, counted: np.ndarray, cosine: float) -> float:
        """The share below a cosine; page.js finds it in the same way."""
        after = int(np.searchsorted(self.cosines, cosine - 1e-9))
        if after < len(counted) and abs(self.cosines[after] - cosine) < 1e-9:
            return float(counted[after])
        low = float(counted[after - 1]) if after else 0.0
        high = float(counted[after]) if after < len(counted) else 1.0
        rising, first = np.unique(quantiles, return_index=True)
        return float(np.clip(np.interp(cosine, rising, self.shares[first]), low, high))
