"""The percentiles of a cosine among random pairs and among nearest neighbors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._core.cosine_histogram import GRID
from isoscope._io.json import check_type

if TYPE_CHECKING:
    from isoscope._core.cosine_histogram import CosineHistogram
    from isoscope.auditing.measure import Neighborhood

_TAIL = np.concatenate([[0, 1e-5, 3e-5, 1e-4, 3e-4], np.arange(1, 10) / 1000])
_TABLE_COSINES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_SHARES = np.concatenate([_TAIL, np.arange(2, 199) / 200, 1 - _TAIL[::-1]])


@dataclass(frozen=True)
class Similarity:
    """Quantiles of the cosine of two random rows, and of a row with its nearest neighbor.

    Half of the random pairs have a cosine below the median. A cosine suggests that two rows are related only if it is
    high among random pairs. It suggests that they are as close as nearest neighbors only if it is also high among
    nearest neighbors.
    """

    shares: np.ndarray
    pairs: np.ndarray
    """The cosine below which each share of all pairs lies."""
    nearest: np.ndarray
    """The same for the cosine of a row with its nearest neighbor; empty if neighbors were not measured by cosine."""
    cosines: np.ndarray
    """The cosines at which shares are counted: −1 to 1 in steps of 0.01."""
    pairs_below: np.ndarray
    """The share of all pairs below each of these cosines."""
    nearest_below: np.ndarray
    """The share of rows whose cosine with the nearest neighbor is below each of these cosines; may be empty."""

    def __repr__(self) -> str:
        low, middle, high = (float(np.interp(share, self.shares, self.pairs)) for share in (0.05, 0.5, 0.95))
        return f"Similarity(random pairs: median {middle:.3f}, 90% between {low:.3f} and {high:.3f})"

    @classmethod
    def of(cls, histogram: CosineHistogram, around: Neighborhood | None) -> Similarity:
        """Return the quantiles, given a histogram of pair cosines and, if available, nearest neighbors by cosine."""
        pairs, below = histogram.quantiles(_SHARES), histogram.grid_shares
        if around is None:
            return cls(_SHARES, pairs, np.zeros(0), GRID, below, np.zeros(0))
        nearest = np.sort(1 - around.distances[:, 0].astype(np.float64) ** 2 / 2)
        nearer = np.searchsorted(nearest, GRID) / len(nearest)
        return cls(_SHARES, pairs, np.quantile(nearest, _SHARES), GRID, below, nearer)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Similarity:
        """Create the quantiles from a dict returned by `to_dict`; raise a `ValueError` if the arrays do not fit."""
        lists = {name: check_type(values, list, f"similarity.{name}") for name, values in content.items()}
        for name, values in lists.items():
            for value in values:
                check_type(value, (int, float), f"similarity.{name}")
        found = cls(**{name: np.array(values, np.float64) for name, values in lists.items()})
        for axis, names in ((found.shares, ("pairs", "nearest")), (found.cosines, ("pairs_below", "nearest_below"))):
            for name in names:
                length = len(lists[name])
                if length != len(axis) and (length or name.startswith("pairs")):
                    raise ValueError(f"similarity.{name} has {length} values: need {len(axis)}")
        return found

    def percentile(self, cosine: float) -> float:
        """Return the percentage of random pairs below this cosine, interpolated between steps of 0.01."""
        return 100 * self._share_below(self.pairs, self.pairs_below, cosine)

    def nearest_percentile(self, cosine: float) -> float | None:
        """Return the percentage of rows whose nearest neighbor has a lower cosine; None if this was not measured."""
        return 100 * self._share_below(self.nearest, self.nearest_below, cosine) if len(self.nearest) else None

    def table(self) -> list[tuple[float, float, float | None]]:
        """Return rows of (cosine, percentile among random pairs, percentile among nearest neighbors)."""
        return [(cosine, self.percentile(cosine), self.nearest_percentile(cosine)) for cosine in _TABLE_COSINES]

    def to_dict(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return dict(vars(self))

    def _share_below(self, quantiles: np.ndarray, counted: np.ndarray, cosine: float) -> float:
        """Return the share of values below a cosine; page.js computes it in the same way."""
        after = int(np.searchsorted(self.cosines, cosine - 1e-9))
        if after < len(counted) and abs(self.cosines[after] - cosine) < 1e-9:
            return float(counted[after])
        low = float(counted[after - 1]) if after else 0.0
        high = float(counted[after]) if after < len(counted) else 1.0
        rising, first = np.unique(quantiles, return_index=True)
        return float(np.clip(np.interp(cosine, rising, self.shares[first]), low, high))
