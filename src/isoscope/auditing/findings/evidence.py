"""What findings are made from: the measurements, how sure they are, and the conventions they are judged by."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.errors import InputError
from isoscope._core.formulas import student_interval as student
from isoscope.auditing.finding import Finding

if TYPE_CHECKING:
    from isoscope.auditing.finding import Range
    from isoscope.auditing.measure import Measurements
    from isoscope.auditing.passes import Axes

SHARE_LOOK, SHARE_BAD = 0.1, 0.5
"""For shares of a whole: one in ten is worth a look, one in two is bad."""
BROKEN_LOOK, BROKEN_BAD = 0.01, 0.1
"""For rows that should not be there: one in a hundred is worth a look, one in ten is bad."""

IF_CONFIRMED = "if `isoscope advise` confirms it on your task"
"""Ends every suggestion of a repair: shape alone does not tell whether it helps."""

SHARE_SOURCE = "convention for shares: one in ten is worth a look, one in two is bad"
BROKEN_SOURCE = "convention for broken rows: one in a hundred is worth a look, one in ten is bad"

FOLDS = 20
"""Groups of rows that are left out in turn."""

_SPREAD_ROWS = 4_000  # rows on which the influence of single rows is seen


class Projection(NamedTuple):
    """What the error of a function of a spectrum is computed from."""

    values: np.ndarray
    """Eigenvalues, largest first."""
    squares: np.ndarray
    """Squared projections on the axes: of seen rows, or summed over the rows of each block of groups."""
    summands: float
    """How many such summands make up the eigenvalues."""


class Evidence:
    """What was measured, with what several findings need of it."""

    def __init__(self, measured: Measurements):
        self.m = measured
        self.sketch = measured.sketch
        self.n, self.d = measured.n, measured.d
        self.seen = measured.sample.vectors[measured.sample.first(_SPREAD_ROWS)].astype(np.float64)
        """Rows on which the influence of single rows is seen."""

    @cached_property
    def centred(self) -> Projection:
        """Eigenvalues of the scatter, largest first, and the squared projections of rows on its axes."""
        self.check_variance()
        return self._project(self.m.centred, self.sketch.mean)

    @cached_property
    def raw(self) -> Projection:
        """The same of the second moment XᵀX."""
        return self._project(self.m.raw, np.zeros(self.d))

    def _project(self, axes: Axes, origin: np.ndarray) -> Projection:
        blocks = self.sketch.groups
        if blocks is None:
            return Projection(axes.values, ((self.seen - origin) @ axes.vectors) ** 2, self.n)
        moments = (blocks.moments_about(origin, block) for block in range(len(blocks)))
        squares = np.stack([((moment @ axes.vectors) * axes.vectors).sum(axis=0) for moment in moments])
        return Projection(axes.values, squares, len(blocks) ** 2 / (len(blocks) - 1))

    @property
    def assumption(self) -> str:
        """What estimates and intervals of the shape take to be independent."""
        if self.sketch.groups is None:
            return "assumes independent rows"
        column = self.m.columns.get("groups", "groups")
        named = "groups" if column == "groups" else f"values of {column}"
        return f"assumes independent groups of rows, {self.sketch.groups.groups:,} {named}"

    def check_variance(self) -> None:
        """Refuse a cloud that is a single point."""
        if not np.trace(self.sketch.scatter) > 0:
            raise InputError(f"all {self.n:,} rows are equal: there is no variance to share among the dimensions")

    def around(self, value: float, spread: float, rows: int) -> tuple[float, float]:
        """The interval around a value for a standard error seen on so many rows."""
        return student(value, spread, self.m.settings.confidence, max(rows - 1, 1))

    def finding(
        self,
        name: str,
        title: str,
        value: float,
        interval: tuple[float, float] | None,
        judged: Range,
        meaning: str,
        advice: str,
        *,
        rows: int | None = None,
        sampled: bool | None = None,
        form: str = "number",
        details: dict[str, Any] | None = None,
    ) -> Finding:
        """A finding, of all rows unless it says of how many; on fewer than all it is of a sample."""
        low, high = interval or (None, None)
        if form == "share" and low is not None and high is not None:
            low, high = max(low, 0.0), min(high, 1.0)
        rows = self.n if rows is None else rows
        sampled = rows < self.n if sampled is None else sampled
        return Finding(
            name, title, value, low, high, judged, meaning, advice, rows, form, sampled=sampled, details=details or {}
        )
