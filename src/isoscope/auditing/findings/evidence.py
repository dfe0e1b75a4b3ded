"""Measurements, standard errors and verdict conventions that several findings share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isoscope._core.errors import TooFewRowsError
from isoscope._core.formulas import student_interval as student
from isoscope.auditing.finding import Finding

if TYPE_CHECKING:
    from isoscope.auditing.finding import Form, Range
    from isoscope.auditing.measure import Measurements
    from isoscope.auditing.passes import Axes

SHARE_LOOK, SHARE_BAD = 0.1, 0.5
"""For shares: `look` at one in ten or more, `bad` at one in two or more."""
BROKEN_LOOK, BROKEN_BAD = 0.01, 0.1
"""For rows that should not exist: `look` at one in a hundred or more, `bad` at one in ten or more."""

IF_CONFIRMED = "if `isoscope advise` confirms it on your task"
"""Every suggestion to use a repair ends with this: the shape alone does not show whether the repair helps."""
ABOUT_SHAPE = "This is about the shape, not about your task."
"""The last sentence of the meaning, if a `look` or `bad` verdict is about the shape."""

ALL_EQUAL = "All vectors are equal, so no repair can separate them. Check how they were computed."
"""The advice if no two rows differ."""
SHARE_SOURCE = 'convention for shares: "look" at one in ten or more, "bad" at one in two or more'
BROKEN_SOURCE = 'convention for broken rows: "look" at one in a hundred or more, "bad" at one in ten or more'

FOLDS = 20
"""The number of groups of rows that a jackknife leaves out in turn."""

_SPREAD_ROWS = 4_000  # rows whose influence on a measurement is computed


class Projection(NamedTuple):
    """The inputs to the standard error of a function of the spectrum."""

    values: np.ndarray
    """Eigenvalues, largest first."""
    squares: np.ndarray
    """Squared projections onto the axes: of single rows, or summed over the rows of each block of groups."""
    summands: float
    """The number of such terms in the sum for each eigenvalue."""


class Evidence:
    """The measurements of an audit, and derived quantities that several findings share."""

    def __init__(self, measured: Measurements):
        self.m = measured
        self.sketch = measured.sketch
        self.n, self.d = measured.n, measured.d
        self.seen = measured.sample.vectors[measured.sample.first(_SPREAD_ROWS)].astype(np.float64)
        """The rows whose influence on a measurement is computed."""

    @cached_property
    def centered(self) -> Projection:
        """The eigenvalues of the scatter matrix, largest first, and the squared projections of rows onto its axes."""
        self.check_variance()
        return self._project(self.m.centered, self.sketch.mean)

    @cached_property
    def raw(self) -> Projection:
        """The eigenvalues of the second-moment matrix XᵀX, largest first, and the squared projections onto its axes."""
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
        """The independence assumption behind the estimates and intervals, as text."""
        if self.sketch.groups is None:
            return "assumes independent rows"
        column = self.m.columns.get("groups", "groups")
        named = "groups" if column == "groups" else f"values of {column}"
        return f"assumes independent groups of rows ({self.sketch.groups.groups:,} {named})"

    def check_variance(self) -> None:
        """Raise an error if all rows are equal."""
        if not np.trace(self.sketch.scatter) > 0:
            raise TooFewRowsError(f"all {self.n:,} rows are equal: need at least two distinct rows")

    def around(self, value: float, spread: float, rows: int) -> tuple[float, float]:
        """Return the interval around a value, given its standard error and the number of rows it was estimated from."""
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
        form: Form = "number",
        details: dict[str, Any] | None = None,
    ) -> Finding:
        """Return a finding; `rows` is the number of rows that were measured (default: all)."""
        low, high = interval or (None, None)
        if form == "share" and low is not None and high is not None:
            low, high = max(low, 0.0), min(high, 1.0)
        rows = self.n if rows is None else rows
        sampled = rows < self.n if sampled is None else sampled
        return Finding(
            name, title, value, low, high, judged, meaning, advice, rows, form, sampled=sampled, details=details or {}
        )
