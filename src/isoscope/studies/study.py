"""What a study is: arms, parameters, published numbers, outcome, and the list of studies."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, ClassVar

from isoscope._core.errors import InputError

if TYPE_CHECKING:
    from isoscope.studies.datasets import DataSource, Model


@dataclass(frozen=True)
class Number:
    """A published number, its uncertainty (as the paper gives it, mostly ± a standard deviation), and where it is."""

    table: str
    row: str
    column: str
    value: float
    uncertainty: float | None
    where: str
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """Something that a paper says, in a sentence that can turn out false."""

    key: str
    words: str
    where: str


@dataclass(frozen=True)
class Paper:
    """What is cited."""

    title: str
    authors: str
    year: int
    venue: str


@dataclass(frozen=True)
class Published:
    """All that a study compares with."""

    paper: Paper
    claims: tuple[Claim, ...]
    """What the paper says."""
    tables: dict[str, dict[tuple[str, str], Number]]
    """Numbers by row and column, for each table by its key."""
    titles: dict[str, str]
    """What each table is, by its key."""
    observations: tuple[Claim, ...] = ()
    """Statements of ours that the study tests beside the paper's claims; `where` says what led to them."""

    def number(self, table: str, row: str, column: str) -> Number | None:
        """A published number; None if the paper has none there, a `KeyError` if there is no such table."""
        return self.tables[table].get((row, column))

    def rows(self, table: str) -> list[str]:
        """The rows of a table, in the paper's order."""
        return list(dict.fromkeys(row for row, _ in self.tables[table]))

    def columns(self, table: str) -> list[str]:
        """The columns of a table, in the paper's order."""
        return list(dict.fromkeys(column for _, column in self.tables[table]))

    def claim(self, key: str) -> Claim:
        """Return a claim or an observation by its key."""
        return next(each for each in (*self.claims, *self.observations) if each.key == key)


@cache
def read_published(study: str) -> Published:
    """What was published for a study.

    >>> read_published("isotropy-clusters-classifiers").number("glue", "cola", "all-MiniLM-L6-v2 r").value
    -0.88291
    """
    told = json.loads(files("isoscope.studies").joinpath("published", f"{study}.json").read_text("utf-8"))
    tables = {key: _parse_numbers(key, table) for key, table in told["tables"].items()}
    return Published(
        Paper(**told["paper"]),
        tuple(Claim(**each) for each in told["claims"]),
        tables,
        {key: table["title"] for key, table in told["tables"].items()},
        tuple(Claim(**each) for each in told.get("observations", ())),
    )


def _parse_numbers(key: str, table: dict[str, Any]) -> dict[tuple[str, str], Number]:
    """A table's numbers: for each row its values in the order of the columns, null where the paper has none."""
    found = {}
    for name, values in table["rows"].items():
        for column, value in zip(table["columns"], values, strict=True):
            if value is not None:
                one, spread = value if isinstance(value, list) else (value, None)
                found[name, column] = Number(key, name, column, one, spread, table["where"], table.get("note", ""))
    return found


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


Results = Mapping[str, dict[str, Any]]
"""What each finished arm gave, by its key."""


@dataclass(frozen=True)
class Parameter:
    """Something that a run can be told, with its value in a full and in a quick run.

    One that `widens` adds or leaves out arms and changes none: a run can be gone on with under another value of it.
    """

    full: Any
    quick: Any
    words: str
    widens: bool = False

    def parse(self, name: str, text: str) -> Any:
        """The value that was typed; its kind is the default's."""
        like = self.full
        try:
            if isinstance(like, tuple):
                kind = type(like[0]) if like else str
                return _check_unique(
                    name, [_parse_value(kind, word.strip()) for word in text.split(",") if word.strip()]
                )
            return _parse_value(type(like), text)
        except InputError:
            raise
        except (ValueError, KeyError):
            wanted = {bool: "yes or no", int: "a whole number", float: "a number"}.get(type(like), "a list with commas")
            raise InputError(f"{name} is {text}: need {wanted}, such as {format_value(like)}") from None


def _parse_value(kind: type, text: str) -> Any:
    """A single value of what was typed; a `ValueError` or a `KeyError` if it is none."""
    if kind is bool:
        return {"yes": True, "no": False}[text]
    found = kind(text)
    if isinstance(found, float) and not math.isfinite(found):
        raise ValueError(text)
    return found


def _check_unique(name: str, found: list[Any]) -> tuple[Any, ...]:
    twice = [each for i, each in enumerate(found) if each in found[:i]]
    if twice:
        raise InputError(f"{name} has {twice[0]} twice: name each once")
    return tuple(found)


def format_value(value: Any) -> str:
    """A parameter's value as it is typed.

    >>> format_value(("cola", "mrpc")), format_value(True), format_value(0.5)
    ('cola,mrpc', 'yes', '0.5')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else f"{value}"


@dataclass(frozen=True)
class Setting:
    """What a run was asked for."""

    models: tuple[Model, ...]
    data: DataSource
    values: Mapping[str, Any]
    quick: bool

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class ArmContext:
    """Where an arm works, and whom it tells how far it is."""

    folder: Path
    """The arm's own: what it leaves there it finds again if it was interrupted. It is removed when the arm is done."""
    shared: Path
    """The run's: what several arms use, such as embedded texts. It is kept."""
    tell: Callable[[float, str], None]
    """Is told the share of the arm that is done, and a few words such as a score."""


@dataclass(frozen=True)
class Arm:
    """A piece of work that is done as a whole: what it gives is kept, and is the same whenever it is run."""

    key: str
    """Unique among the arms, with everything in it that makes this arm another: "cola/all-MiniLM-L6-v2/seed-0"."""
    words: str
    run: Callable[[ArmContext], dict[str, Any]]
    """Gives what can be written as JSON; NaN is allowed."""
    cost: float = 1.0
    """How long it takes in relation to other arms, for the time left."""


class Study(ABC):
    """A paper as a protocol. A module of a study holds no mathematics: it calls the library."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What is done, in two or three sentences."""
    models: ClassVar[tuple[str, ...]]
    """The paper's models by their names on the Hugging Face hub."""
    quick_models: ClassVar[tuple[str, ...]]
    parameters: ClassVar[Mapping[str, Parameter]]
    extra: ClassVar[str] = ""
    """The extra of the package that it needs, such as train."""

    @property
    def published(self) -> Published:
        """The paper's numbers and claims."""
        return read_published(self.name)

    def extra_for(self, setting: Setting) -> str:
        """The extra that a run needs, where not every run needs the same."""
        return self.extra

    @abstractmethod
    def data_sets(self, setting: Setting) -> Sequence[str]:
        """The names of the data sets that the arms of a setting read: they are looked for before the work begins."""

    @abstractmethod
    def arms(self, setting: Setting) -> list[Arm]:
        """What is to be done, in its order: arms that a first look needs come first."""

    @abstractmethod
    def outcome(self, setting: Setting, results: Results) -> Outcome:
        """Tables, figures and verdicts of the arms that are done; it must do with some of them lacking."""


_MODULES = {
    "shrink-the-longest": ("shrink_the_longest", "ShrinkTheLongest"),
    "isotropy-clusters-classifiers": ("isotropy_clusters_classifiers", "IsotropyClustersClassifiers"),
    "clusters-and-manifolds": ("clusters_and_manifolds", "ClustersAndManifolds"),
    "stable-anisotropic-regularization": ("stable_anisotropic_regularization", "StableAnisotropicRegularization"),
    "isotropic-word-representation-in-bert": ("isotropic_word_representation", "IsotropicWordRepresentation"),
}

STUDIES = tuple(_MODULES)
"""Their names."""


def study(name: str) -> Study:
    """A study by its name.

    >>> study("stable-anisotropic-regularization").published.paper.year
    2024
    """
    if name not in _MODULES:
        raise InputError(f"no study is named {name}: there are {', '.join(STUDIES)}")
    module, kind = _MODULES[name]
    found: Study = getattr(import_module(f"isoscope.studies.{module}.study"), kind)()
    return found
