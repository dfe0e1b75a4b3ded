"""When a layer has collapsed: it tells its inputs apart no more, or along one direction alone.

A layer is held against its own first measurement, for no number is bad by itself: the [CLS] states of a healthy encoder
have mean cosines above 0.999 in its lower layers, and are all equal in its embeddings. Fine-tuning all-MiniLM-L6-v2 on
CoLA as one should moves the effective dimensions of its last layer from 61 to between 26 and 58; with a learning rate
twenty times too high they are 1.2 after twenty steps, the mean cosine is 0.995, and no class is told from the other.

Effective dimensions are those of the *unbiased* IsoScore. The plug-in cannot read more than n − 1 of them, so on a
probe of a few rows it takes every cloud for a flat one: noise that fills 768 dimensions has 30 of them from 32 rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MIN_ROWS = 8
"""From so many rows on the unbiased IsoScore tells 5 effective dimensions from 2; with fewer none is judged."""

_MIN_EFFECTIVE_DIMENSIONS = 2.0  # effective dimensions, below which there is one direction and some dust
_MAX_ISOSCORE_RATIO = 0.1  # of the IsoScore at the start
_MAX_SPREAD_RATIO = 0.01  # of one minus the mean cosine at the start
_MIN_CLASS_SILHOUETTE = 0.25  # a silhouette below shows no structure (Kaufman and Rousseeuw, 1990)


@dataclass(frozen=True)
class Collapse:
    """A layer that has collapsed: since which step, and by which numbers."""

    layer: str
    step: int
    reason: str

    @property
    def message(self) -> str:
        """One line with what to try."""
        return (
            f"{self.layer} has collapsed by step {self.step}: {self.reason}. Try a lower learning rate, a longer "
            "warm-up, or a regulariser that keeps the space open"
        )


def effective_dimensions(isoscore: float, dimensions: float) -> float:
    """How many dimensions share the variance: 1 for an IsoScore of 0, all of them for 1.

    >>> effective_dimensions(0.5, 101)
    51.0
    """
    return isoscore * (dimensions - 1) + 1


def collapse_reason(first: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Why a layer counts as collapsed, given its first row of a history and a later one; None if it does not.

    It does if its states became equal; if their spread, one minus the mean cosine, fell under a hundredth of what it
    was; or if fewer than 2 effective dimensions are left and the unbiased IsoScore fell under a tenth. A layer that
    tells the classes apart (silhouette from 0.25 on) has not collapsed: a classifier's last layer needs few directions.

    Examples
    --------
    >>> first = {"rows": 64, "dimensions": 384, "isoscore_unbiased": 0.16, "mean_cosine": 0.61, "silhouette": 0.02}
    >>> collapse_reason(first, first | {"isoscore_unbiased": 0.1})
    >>> collapse_reason(first, first | {"isoscore_unbiased": 0.0005})
    'its effective dimensions fell from 62.3 to 1.19 of 384'
    """
    if now["rows"] < MIN_ROWS or math.isnan(first["isoscore_unbiased"]):
        return None
    if math.isnan(now["isoscore_unbiased"]):
        return f"its {now['rows']} states are all equal"
    if now["silhouette"] >= _MIN_CLASS_SILHOUETTE:
        return None
    dimensions = now["dimensions"]
    before, after = (effective_dimensions(row["isoscore_unbiased"], dimensions) for row in (first, now))
    if (
        after < _MIN_EFFECTIVE_DIMENSIONS <= before
        and now["isoscore_unbiased"] < _MAX_ISOSCORE_RATIO * first["isoscore_unbiased"]
    ):
        return f"its effective dimensions fell from {before:.3g} to {after:.3g} of {dimensions}"
    if 1 - now["mean_cosine"] < _MAX_SPREAD_RATIO * (1 - first["mean_cosine"]):
        return f"its mean cosine rose from {first['mean_cosine']:.4f} to {now['mean_cosine']:.6f}"
    return None


class CollapseDetector:
    """Looks at the rows of a history as they come, and finds each collapse once."""

    def __init__(self) -> None:
        self._first: dict[str, Mapping[str, Any]] = {}
        self.found: dict[str, Collapse] = {}

    def look(self, rows: Iterable[Mapping[str, Any]]) -> list[Collapse]:
        """The layers that have collapsed in these rows and had not before."""
        fresh = []
        for row in rows:
            layer = row["layer"]
            reason = None if layer in self.found else collapse_reason(self._first.setdefault(layer, row), row)
            if reason:
                self.found[layer] = Collapse(layer, row["step"], reason)
                fresh.append(self.found[layer])
        return fresh


def find_collapses(history: Iterable[Mapping[str, Any]]) -> list[Collapse]:
    """The layers of a history that have collapsed, each with the first step at which it had.

    Examples
    --------
    >>> find_collapses([])
    []
    """
    return CollapseDetector().look(history)
