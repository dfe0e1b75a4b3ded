"""The components of a study (arms, parameters, published numbers, outcome), and the registry of studies."""

from __future__ import annotations

import json
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar

from isoscope._core.errors import NotFoundError, ParameterError

if TYPE_CHECKING:
    from isoscope.studies.datasets.source import DataSource
    from isoscope.studies.models import Model


@dataclass(frozen=True)
class Number:
    """A published number, with its uncertainty (usually a standard deviation) and its location in the paper."""

    table: str
    row: str
    column: str
    value: float
    uncertainty: float | None
    where: str
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A falsifiable statement of a paper."""

    key: str
    words: str
    where: str


@dataclass(frozen=True)
class Paper:
    """The citation of a paper."""

    title: str
    authors: str
    year: int
    venue: str


@dataclass(frozen=True)
class Published:
    """The claims and numbers of a paper."""

    paper: Paper
    claims: tuple[Claim, ...]
    """The paper's claims."""
    tables: dict[str, dict[tuple[str, str], Number]]
    """The numbers of each table, by row and column."""
    titles: dict[str, str]
    """The title of each table."""
    observations: tuple[Claim, ...] = ()
    """Our own statements that the study also tests; `where` names their origin."""

    def number(self, table: str, row: str, column: str) -> Number | None:
        """Return the number in a cell, or None if the cell is empty; raise a `KeyError` for an unknown table."""
        return self.tables[table].get((row, column))

    def numbers(self, table: str, row: str, columns: Mapping[str, str] | Iterable[str]) -> dict[str, Number]:
        """Return the published numbers of a row, by our column names; empty cells are left out.

        `columns` maps our names to the paper's, or lists names that are identical in both.
        """
        names = columns if isinstance(columns, Mapping) else {name: name for name in columns}
        cells = {ours: self.number(table, row, theirs) for ours, theirs in names.items()}
        return {ours: number for ours, number in cells.items() if number is not None}

    def first(self, table: str) -> Number:
        """Return the first number of a table; it includes the table's location and note."""
        return next(iter(self.tables[table].values()))

    def rows(self, table: str) -> list[str]:
        """Return the row names of a table, in the paper's order."""
        return list(dict.fromkeys(row for row, _ in self.tables[table]))

    def columns(self, table: str) -> list[str]:
        """Return the column names of a table, in the paper's order."""
        return list(dict.fromkeys(column for _, column in self.tables[table]))

    def claim(self, key: str) -> Claim:
        """Return the claim or observation with this key."""
        return next(each for each in (*self.claims, *self.observations) if each.key == key)


@cache
def read_published(study: str) -> Published:
    """Return the published claims and numbers of a study.

    >>> read_published("isotropy-clusters-classifiers").number("glue", "cola", "all-MiniLM-L6-v2 r").value
    -0.88291
    """
    content = json.loads(files("isoscope.studies").joinpath("published", f"{study}.json").read_text("utf-8"))
    return Published(
        Paper(**content["paper"]),
        tuple(Claim(**each) for each in content["claims"]),
        {key: _parse_numbers(key, table) for key, table in content["tables"].items()},
        {key: table["title"] for key, table in content["tables"].items()},
        tuple(Claim(**each) for each in content.get("observations", ())),
    )


def _parse_numbers(key: str, table: dict[str, Any]) -> dict[tuple[str, str], Number]:
    """Return the numbers of a table: each row lists its values in column order, with null for empty cells."""
    numbers = {}
    for name, values in table["rows"].items():
        for column, value in zip(table["columns"], values, strict=True):
            if value is not None:
                mean, spread = value if isinstance(value, list) else (value, None)
                numbers[name, column] = Number(key, name, column, mean, spread, table["where"], table.get("note", ""))
    return numbers


@dataclass(frozen=True)
class Value:
    """One of our numbers, aggregated over seeds: the mean, its 95% interval, and the sample standard deviation.

    >>> Value.of([1.0, 2.0, 3.0]).interval
    (-0.48..., 4.48...)
    """

    mean: float
    std: float
    seeds: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float] | float) -> Value:
        """Create a value from one number per seed, or from a single number."""
        seeds = (float(values),) if isinstance(values, int | float) else tuple(map(float, values))
        spread = stdev(seeds) if len(seeds) > 1 and all(map(math.isfinite, seeds)) else math.nan
        return cls(fmean(seeds), spread, seeds)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the mean (Student's t); NaN for a single seed."""
        from scipy.stats import t

        half = float(t.ppf(0.975, max(len(self.seeds) - 1, 1))) * self.std / math.sqrt(len(self.seeds))
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Row:
    """A row of a table: our numbers and the published numbers, by column."""

    name: str
    ours: Mapping[str, Value]
    published: Mapping[str, Number] = field(default_factory=dict)
    of: str = ""
    """The model of the published numbers if it differs from ours, such as "bert-base-uncased"."""


@dataclass(frozen=True)
class Table:
    """A table of the paper, or one of our own if `where` is empty."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    where: str = ""
    note: str = ""
    digits: int = 3
    row_name: str = ""
    """The heading of the row names, such as "task" or "model"."""

    def choose_digits(self, row: Row, column: str) -> int:
        """Return the number of decimals: 0 for a column of counts, or for a row of counts in a one-column table."""
        rows = [row] if len(self.columns) == 1 else self.rows
        ours = [seed for each in rows if column in each.ours for seed in each.ours[column].seeds]
        theirs = [each.published[column].value for each in rows if column in each.published]
        counts = all(float(value).is_integer() for value in ours + theirs)
        one_each = all(len(each.ours[column].seeds) == 1 for each in rows if column in each.ours)
        shares = len(self.columns) > 1 and max(ours + theirs, default=0) <= 1
        return 0 if counts and one_each and not shares else self.digits


@dataclass(frozen=True)
class Series:
    """A line or a set of dots, with a band from `low` to `high` if given."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dots: bool = False
    """Whether to draw dots instead of a line."""
    dashed: bool = False
    """Whether to draw a dashed line, for published numbers and references."""

    @classmethod
    def over_seeds(cls, name: str, x: Sequence[float], values: Sequence[Value]) -> Series:
        """Return a line of means with a band of one standard deviation; a single seed has no band."""
        means = [each.mean for each in values]
        if any(math.isnan(each.std) for each in values):
            return cls(name, x, means)
        low, high = ([each.mean + side * each.std for each in values] for side in (-1, 1))
        return cls(name, x, means, low, high)


@dataclass(frozen=True)
class Panel:
    """A panel of a figure: one pair of axes with its series."""

    title: str
    series: Sequence[Series]
    x_name: str
    y_name: str
    log_x: bool = False
    log_y: bool = False
    zero: bool = False
    """Whether the y axis always includes 0."""


@dataclass(frozen=True)
class Scatter:
    """Points in 2 or 3 dimensions, and one or more colorings: each gives a group name or a number for every point."""

    title: str
    points: Sequence[Sequence[float]]
    colors: Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, or one of our own if `where` is empty; it has one or more panels."""

    key: str
    title: str
    caption: str
    panels: Sequence[Panel | Scatter]
    where: str = ""


class Holds(StrEnum):
    """The possible verdicts on a claim, for our data and models."""

    yes = "yes"
    partly = "partly"
    no = "no"
    undecided = "undecided"
    untested = "not tested"


Bounds = tuple[float, float]


@dataclass(frozen=True)
class Case:
    """An estimate that tests a claim, with its interval and the range in which the claim holds.

    >>> Case("polarity, r", -0.8004, (-0.8021, -0.7987), (-math.inf, -0.8)).holds.value
    'undecided'
    """

    words: str
    estimate: float
    interval: Bounds
    """The 95% interval; (estimate, estimate) if exact, (NaN, NaN) if the uncertainty is unknown."""
    claimed: Bounds
    """The open range of values that agree with the claim."""

    @classmethod
    def of(cls, words: str, value: Value, claimed: Bounds) -> Case:
        """Build a case from a mean over seeds; a value from a single seed is treated as exact."""
        return cls.over_seeds(words, value, claimed) if len(value.seeds) > 1 else cls.exact(words, value.mean, claimed)

    @classmethod
    def exact(cls, words: str, estimate: float, claimed: Bounds) -> Case:
        """Build a case from a number without random variation."""
        return cls(words, float(estimate), (float(estimate), float(estimate)), claimed)

    @classmethod
    def over_seeds(cls, words: str, value: Value, claimed: Bounds) -> Case:
        """Build a case from a mean over seeds, with Student's t interval; the interval is NaN for a single seed."""
        return cls(words, value.mean, value.interval, claimed)

    @property
    def holds(self) -> Holds:
        """The verdict: "yes" if the interval is inside the claimed range, "no" if it is outside, else "undecided"."""
        low, high = self.interval
        if self.claimed[0] < low and high < self.claimed[1]:
            return Holds.yes
        return Holds.no if high <= self.claimed[0] or low >= self.claimed[1] else Holds.undecided


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim, with short summaries of the published evidence and ours, and the reason."""

    claim: Claim
    published: str
    ours: str
    holds: Holds
    why: str = ""
    cases: Sequence[Case] = ()
    """The numbers from which `isoscope.studies.verdicts.judge` derives `holds`."""
    most: float = 1.0
    """The share of the cases that must agree for the verdict "yes"."""


@dataclass(frozen=True)
class Outcome:
    """The tables, figures and verdicts of a study."""

    tables: Sequence[Table]
    figures: Sequence[Figure]
    verdicts: Sequence[Verdict]
    """Verdicts on the paper's claims."""
    notes: Sequence[str] = ()
    """Differences from the paper's setup, and other notes for the reader."""
    observations: Sequence[Verdict] = ()
    """Verdicts on our own observations, which are not counted among the claims."""


Results = Mapping[str, dict[str, Any]]
"""The results of the finished arms, by arm key."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a study: its defaults in a full and in a quick run, and the values that it accepts.

    Bounds and choices apply to every entry of a list. If `widens` is true, the parameter only adds or removes arms, so
    a run can be resumed with another value.
    """

    full: Any
    quick: Any
    words: str
    widens: bool = False
    _: KW_ONLY
    least: float | None = None
    most: float | None = None
    above: float | None = None
    choices: Iterable[str] | None = None

    def parse(self, name: str, text: str) -> Any:
        """Parse a value with the type of the default; raise an `InputError` if the value is not accepted."""
        default = self.full
        try:
            if isinstance(default, tuple):
                kind = type(default[0]) if default else str
                value: Any = tuple(_parse_value(kind, word.strip()) for word in text.split(",") if word.strip())
            else:
                value = _parse_value(type(default), text)
        except (ValueError, KeyError):
            kinds = {bool: "yes or no", int: "an integer", float: "a number"}
            wanted = kinds.get(type(default), "a comma-separated list")
            raise ParameterError(f"{name} is {text}: need {wanted}, such as {format_value(default)}") from None
        self._check(name, value)
        return value

    def _check(self, name: str, value: Any) -> None:
        entries = value if isinstance(value, tuple) else (value,)
        verb = "has" if isinstance(value, tuple) else "is"
        for i, entry in enumerate(entries):
            if entry in entries[:i]:
                raise ParameterError(f"{name} contains {entry} twice; list each value once")
            if self.choices is not None and entry not in self.choices:
                raise ParameterError(f"{name} {verb} {entry}: choose from {', '.join(self.choices)}")
            for limit, words, accepted in (
                (self.least, "at least", operator.ge),
                (self.most, "at most", operator.le),
                (self.above, "a number above", operator.gt),
            ):
                if limit is not None and not accepted(entry, limit):
                    raise ParameterError(f"{name} {verb} {entry:g}: need {words} {limit:g}")


def _parse_value(kind: type, text: str) -> Any:
    """Parse a single value; raise a `ValueError` or `KeyError` if the text does not have this type."""
    if kind is bool:
        return {"yes": True, "no": False}[text]
    value = kind(text)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(text)
    return value


def format_value(value: Any) -> str:
    """Return a parameter's value as text, in the form that `--set` accepts.

    >>> format_value(("cola", "mrpc")), format_value(True), format_value(0.5)
    ('cola,mrpc', 'yes', '0.5')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else f"{value}"


@dataclass(frozen=True)
class Setting:
    """The models, data and parameter values of a run."""

    models: tuple[Model, ...]
    data: DataSource
    values: Mapping[str, Any]
    quick: bool

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class ArmContext:
    """The folders of an arm, and its progress callback."""

    folder: Path
    """The arm's own folder; it is kept if the arm is interrupted and removed when the arm is finished."""
    shared: Path
    """The run's folder for files that several arms use, such as embedded texts."""
    tell: Callable[[float, str], None]
    """A callback that receives the share of the arm that is done, and a note such as a score."""


@dataclass(frozen=True)
class Arm:
    """A reproducible unit of work whose result is saved, such as one task with one model and one seed."""

    key: str
    """A unique key that contains everything in which arms differ, such as "cola/all-MiniLM-L6-v2/seed-0"."""
    words: str
    """A description for the progress bar."""
    run: Callable[[ArmContext], dict[str, Any]]
    """A function that returns the result, which must be serializable as JSON; NaN is allowed."""
    cost: float = 1.0
    """The expected duration relative to other arms, to estimate the remaining time."""


class Study(ABC):
    """A study: the experimental protocol of a paper. Its computations come from the public library."""

    name: ClassVar[str]
    about: ClassVar[str]
    """A description of the protocol in two or three sentences."""
    models: ClassVar[tuple[str, ...]]
    """The names of the paper's models on the Hugging Face Hub."""
    quick_models: ClassVar[tuple[str, ...]]
    parameters: ClassVar[Mapping[str, Parameter]]
    extra: ClassVar[str] = ""
    """The optional dependency group (extra) that the study needs, such as "train"."""

    @property
    def published(self) -> Published:
        """The paper's claims and numbers."""
        return read_published(self.name)

    def extra_for(self, setting: Setting) -> str:
        """Return the optional dependency group (extra) that a run with these settings needs."""
        return self.extra

    @abstractmethod
    def data_sets(self, setting: Setting) -> Sequence[str]:
        """Return the names of the datasets that the arms read; a run checks them before it starts."""

    @abstractmethod
    def arms(self, setting: Setting) -> list[Arm]:
        """Return the arms in the order in which they run, starting with those that give an overview of the results."""

    @abstractmethod
    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Return the tables, figures and verdicts for the finished arms; some arms may be missing."""


_MODULES = {
    "shrink-the-longest": ("shrink_the_longest", "ShrinkTheLongest"),
    "isotropy-clusters-classifiers": ("isotropy_clusters_classifiers", "IsotropyClustersClassifiers"),
    "clusters-and-manifolds": ("clusters_and_manifolds", "ClustersAndManifolds"),
    "stable-anisotropic-regularization": ("stable_anisotropic_regularization", "StableAnisotropicRegularization"),
    "isotropic-word-representation-in-bert": ("isotropic_word_representation", "IsotropicWordRepresentation"),
}

STUDIES = tuple(_MODULES)
"""The names of all studies."""


def study(name: str) -> Study:
    """Return the study with this name.

    >>> study("stable-anisotropic-regularization").published.paper.year
    2024
    """
    if name not in _MODULES:
        raise NotFoundError(f"no study is named {name}: choose from {', '.join(STUDIES)}")
    module, class_name = _MODULES[name]
    instance: Study = getattr(import_module(f"isoscope.studies.{module}.study"), class_name)()
    return instance
