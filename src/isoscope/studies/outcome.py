"""What a study gives: tables with the published numbers beside ours, figures, and a verdict on each claim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isoscope.studies.published import Claim, Number


@dataclass(frozen=True)
class Value:
    """A number of ours over its seeds: mean, sample standard deviation, and the 95% interval of the mean.

    >>> Value.of([1.0, 2.0, 3.0]).interval
    (-0.48..., 4.48...)
    """

    mean: float
    std: float
    seeds: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float] | float) -> Value:
        """The value over seeds, or a single number."""
        seeds = (float(values),) if isinstance(values, int | float) else tuple(map(float, values))
        spread = stdev(seeds) if len(seeds) > 1 and all(map(math.isfinite, seeds)) else math.nan
        return cls(fmean(seeds), spread, seeds)

    @property
    def interval(self) -> tuple[float, float]:
        """Student's interval of the mean; NaN for a single seed."""
        from scipy.stats import t

        half = float(t.ppf(0.975, max(len(self.seeds) - 1, 1))) * self.std / math.sqrt(len(self.seeds))
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Row:
    """A row of a table: our numbers by column, the published ones beside them, and whose they are."""

    name: str
    ours: Mapping[str, Value]
    published: Mapping[str, Number] = field(default_factory=dict)
    of: str = ""
    """What the published numbers were measured on, where it is something else than ours: "bert-base-uncased"."""


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one of our own (`where` is empty then)."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    where: str = ""
    note: str = ""
    digits: int = 3
    row_name: str = ""
    """What the rows are: "task", "model"."""

    def choose_digits(self, row: Row, column: str) -> int:
        """Digits behind the point: none in a column of counts, nor in a row of counts where there is one column."""
        alike = [row] if len(self.columns) == 1 else self.rows
        ours = [seed for each in alike if column in each.ours for seed in each.ours[column].seeds]
        theirs = [each.published[column].value for each in alike if column in each.published]
        counts = all(float(value).is_integer() for value in ours + theirs)
        one_each = all(len(each.ours[column].seeds) == 1 for each in alike if column in each.ours)
        shares = len(self.columns) > 1 and max(ours + theirs, default=0) <= 1
        return 0 if counts and one_each and not shares else self.digits


@dataclass(frozen=True)
class Series:
    """A line or a set of dots; `low` and `high` give a line its band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dots: bool = False
    """Drawn as dots and not as a line."""
    dashed: bool = False
    """What was published, or a reference."""


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    series: Sequence[Series]
    x_name: str
    y_name: str
    log_x: bool = False
    log_y: bool = False
    zero: bool = False
    """Whether 0 is on the upright axis whatever the numbers."""


@dataclass(frozen=True)
class Scatter:
    """Points in 2 or 3 dimensions, coloured in one or several ways: by group names or by a number for each point."""

    title: str
    points: Sequence[Sequence[float]]
    colors: Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, or one of our own (`where` is empty then): small multiples."""

    key: str
    title: str
    caption: str
    panels: Sequence[Panel | Scatter]
    where: str = ""


class Holds(StrEnum):
    """Whether a claim holds on our data and models."""

    yes = "yes"
    partly = "partly"
    no = "no"
    undecided = "undecided"
    untested = "not tested"


Bounds = tuple[float, float]


@dataclass(frozen=True)
class Case:
    """One estimate that a claim speaks of, its interval, and where it must lie for the claim to hold.

    >>> Case("polarity, r", -0.8004, (-0.8021, -0.7987), (-math.inf, -0.8)).holds.value
    'undecided'
    """

    words: str
    estimate: float
    interval: Bounds
    """The 95% interval; the estimate twice if it is exact, NaN twice if chance plays a part and its size is unknown."""
    claimed: Bounds
    """The open range of values that agree with the claim."""

    @classmethod
    def exact(cls, words: str, estimate: float, claimed: Bounds) -> Case:
        """Return the case of a number in which chance plays no part."""
        return cls(words, float(estimate), (float(estimate), float(estimate)), claimed)

    @classmethod
    def over_seeds(cls, words: str, value: Value, claimed: Bounds) -> Case:
        """Return the case of a mean over seeds, with Student's interval; a single seed has none."""
        return cls(words, value.mean, value.interval, claimed)

    @property
    def holds(self) -> Holds:
        """Yes or no if the whole interval lies on that side; undecided if it contains both outcomes or is unknown."""
        low, high = self.interval
        if self.claimed[0] < low and high < self.claimed[1]:
            return Holds.yes
        return Holds.no if high <= self.claimed[0] or low >= self.claimed[1] else Holds.undecided


@dataclass(frozen=True)
class Verdict:
    """A claim with the published evidence and ours in a few words, whether it holds, and why we think so."""

    claim: Claim
    published: str
    ours: str
    holds: Holds
    why: str = ""
    cases: Sequence[Case] = ()
    """The numbers from which `isoscope.studies.verdicts.judge` derives `holds`."""
    most: float = 1.0
    """The share of the cases that must agree for a plain yes."""


@dataclass(frozen=True)
class Outcome:
    """All that a study gives."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    verdicts: Sequence[Verdict]
    """On the paper's claims."""
    notes: Sequence[str] = ()
    """What differs from the paper's set-up, and what else a reader must know."""
    observations: Sequence[Verdict] = ()
    """On statements of ours that no paper makes; they are not counted among the claims."""
