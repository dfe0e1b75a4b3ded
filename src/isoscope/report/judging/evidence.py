"""What findings are made from: the measurements, how sure they are, and the conventions they are judged by."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from isoscope.auditing.measuring import Measured
from isoscope.errors import InputError
from isoscope.formulas import interval as student
from isoscope.report.finding import Finding, Range

SHARE_LOOK, SHARE_BAD = 0.1, 0.5
"""For shares of a whole: one in ten is worth a look, one in two is bad."""
BROKEN_LOOK, BROKEN_BAD = 0.01, 0.1
"""For rows that should not be there: one in a hundred is worth a look, one in ten is bad."""

SHARE_SOURCE = "convention for shares: one in ten is worth a look, one in two is bad"
BROKEN_SOURCE = "convention for broken rows: one in a hundred is worth a look, one in ten is bad"

FOLDS = 20
"""Groups of rows that are left out in turn."""

_SPREAD_ROWS = 4_000  # rows on which the influence of single rows is seen


class Evidence:
    """What was measured, with what several findings need of it."""

    def __init__(self, measured: Measured):
        self.m = measured
        self.sketch = measured.sketch
        self.n, self.d = measured.n, measured.d
        self.seen = measured.sample.vectors[measured.sample.first(_SPREAD_ROWS)].astype(np.float64)
        """Rows on which the influence of single rows is seen."""

    @cached_property
    def centred(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of the scatter, largest first, and the seen rows' squared projections."""
        self.need_variance()
        return self.m.centred.values, ((self.seen - self.sketch.mean) @ self.m.centred.vectors) ** 2

    @cached_property
    def raw(self) -> tuple[np.ndarray, np.ndarray]:
        """The same of the second moment XᵀX."""
        return self.m.raw.values, (self.seen @ self.m.raw.vectors) ** 2

    def need_variance(self) -> None:
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
