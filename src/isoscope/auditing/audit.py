"""An audit: what was measured of a store, what it means, and the ways to show it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

import isoscope
from isoscope._core.arrays import check_integer, check_real
from isoscope._core.errors import InputError
from isoscope._io.files import atomic_replace
from isoscope._io.json import jsonable, read_json, write_json
from isoscope._io.progress import show_progress
from isoscope._render import render
from isoscope.auditing.finding import VERDICTS, Finding, worst_verdict
from isoscope.auditing.findings import judge
from isoscope.auditing.measure import measure
from isoscope.auditing.settings import Settings
from isoscope.auditing.similarity import Similarity
from isoscope.engines.engine import open_engine
from isoscope.stores.columns import ColumnError
from isoscope.stores.open import open_store

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isoscope._core.types import Metric, Nonfinite
    from isoscope._io.progress import Progress
    from isoscope._report.pictures import Pictures
    from isoscope.auditing.grouped import GroupedAudit
    from isoscope.auditing.measure import Measurements
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store

T = TypeVar("T")

SCHEMA = "isoscope.audit/1"
"""The schema of the JSON; the number rises when a reader of the old one would misread the new one."""


@overload
def audit(
    source: Any,
    *,
    by: None = ...,
    labels: Any = ...,
    types: Any = ...,
    text: Any = ...,
    frequency: Any = ...,
    groups: Any = ...,
    vectors: str | None = ...,
    queries: Any = ...,
    metric: Metric = ...,
    sample: int = ...,
    seed: int = ...,
    nonfinite: Nonfinite = ...,
    progress: bool | Progress = ...,
    engine: Any = ...,
) -> Audit: ...
@overload
def audit(
    source: Any,
    *,
    by: str | Iterable[Any],
    labels: Any = ...,
    types: Any = ...,
    text: Any = ...,
    frequency: Any = ...,
    groups: Any = ...,
    vectors: str | None = ...,
    queries: Any = ...,
    metric: Metric = ...,
    sample: int = ...,
    seed: int = ...,
    nonfinite: Nonfinite = ...,
    progress: bool | Progress = ...,
    engine: Any = ...,
) -> GroupedAudit: ...
def audit(
    source: Any,
    *,
    by: str | Iterable[Any] | None = None,
    labels: Any = None,
    types: Any = None,
    text: Any = None,
    frequency: Any = None,
    groups: Any = None,
    vectors: str | None = None,
    queries: Any = None,
    metric: Metric = "cosine",
    sample: int = 20_000,
    seed: int = 0,
    nonfinite: Nonfinite = "raise",
    progress: bool | Progress = False,
    engine: Any = "local",
) -> Audit | GroupedAudit:
    """Measure everything that applies to some vectors and say what it means.

    At most two passes over the source, in bounded memory. Sums over rows are exact, whatever the number of rows;
    what needs pairs is measured on all rows up to `sample`, and on a random sample above, which each finding says.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        Whatever `open_store` opens.
    by : column name, or one entry for each row, optional
        Audit each group of rows apart, in the same passes: each layer, label, range of frequencies, … More than 24
        different numbers are cut into 8 ranges of about equally many rows; of more different names the 24 most
        frequent are taken. Gives a `GroupedAudit`.
    labels, types, text, frequency : column name, or one entry for each row, optional
        What each row belongs to, what it is a token of, what to show for it, and how often it occurs.
    groups : column name, or one entry for each row, optional
        Which rows are not independent: the text of each token, the document of each passage. The unbiased IsoScore
        then uses rows of different groups alone, and the intervals of the shape leave out whole groups. The column
        `document` of a store that `isoscope embed` wrote is found. Without groups, rows count as independent.
    vectors : str, optional
        The column with the vectors, where there is a choice.
    queries : like `source`, optional
        Queries that are to be answered from the source.
    metric : {"cosine", "euclidean"}
        How neighbours are sought and labels judged.
    sample : int
        Rows up to which pairs are all looked at; at least 100.
    seed : int
        For the sample and for K-means.
    nonfinite : {"raise", "drop"}
        Refuse rows with NaN or infinity, or leave them out and count them.
    progress : bool or function
        Show a bar on the terminal; or a function that is told the stage, the rows seen and the share done.
    engine : {"local", "dask"}, address of a Dask scheduler, or dask.distributed.Client
        Who reads the rows: threads of this process; the client that it uses, or Dask's threads in it; a cluster.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> cone = np.random.default_rng(0).standard_normal((2000, 64)) + 2
    >>> found = isoscope.audit(cone)
    >>> found.verdict, found["mean_cosine"].verdict, found["mean_cosine"].shown
    ('bad', 'bad', '0.801')
    >>> print(found["mean_cosine"].meaning)
    Every cosine is high, related or not: 80% of every vector's squared length is one direction that all share.
    """
    settings = Settings(metric=metric, sample=sample, seed=seed, nonfinite=nonfinite)
    if by is not None and queries is not None:
        raise InputError("queries and by are both given: audit a group's rows alone for its queries")
    columns = {"labels": labels, "types": types, "text": text, "frequency": frequency, "groups": groups}
    store = open_store(source, vectors=vectors, by=by, **columns)
    asked = None if queries is None else open_store(queries)

    def made(progress: Progress) -> Audit | GroupedAudit:
        with open_engine(engine) as running:
            if by is None:
                return Audit.of(
                    _measure_store(store.without("by"), asked, settings.limit_sample(store), progress, running)
                )
            from isoscope.auditing.grouped import audit_groups

            return audit_groups(store, by if isinstance(by, str) else "groups", settings, progress, running)

    with show_progress(progress) as report:
        return made(report)


def _measure_store(
    store: Store, queries: Store | None, settings: Settings, progress: Progress, engine: Engine
) -> Measurements:
    def measured(store: Store) -> Measurements:
        return measure(store, queries=queries, settings=settings, progress=progress, engine=engine)

    found, lacking = run_with_usable_columns(store, measured)
    found.skipped.update(lacking)
    return found


def run_with_usable_columns(store: Store, work: Callable[[Store], T]) -> tuple[T, dict[str, str]]:
    """What comes of a store; a column that was only guessed and cannot serve is done without, and said."""
    try:
        return work(store), {}
    except ColumnError as error:
        if error.role not in store.guessed:
            raise
        done, lacking = run_with_usable_columns(store.without(error.role), work)
        return done, {**lacking, error.role: str(error)}


def make_printable(name: str) -> str:
    """A name as any file and terminal can hold it."""
    return "".join(mark if mark.isprintable() else "\ufffd" for mark in name)


@dataclass
class Audit:
    """What an audit found.

    `audit["mean_cosine"]` is a finding by its name; `audit.findings` are all, the worst first.
    """

    source: str
    n: int
    d: int
    dtype: str
    settings: Settings
    findings: list[Finding]
    skipped: dict[str, str]
    """What could not be measured, and why."""
    similarity: Similarity
    """What a cosine is worth here."""
    columns: dict[str, str] = field(default_factory=dict)
    version: str = ""
    measured: Measurements | None = None
    """The numbers behind it; None if the audit was read from JSON."""
    pictures: Pictures | None = None

    @classmethod
    def of(cls, measured: Measurements) -> Audit:
        """Judge what was measured."""
        findings, skipped = judge(measured)
        return cls(
            source=make_printable(measured.name),
            n=measured.n,
            d=measured.d,
            dtype=measured.dtype,
            settings=measured.settings,
            findings=sorted(findings, key=lambda finding: -VERDICTS.index(finding.verdict)),
            skipped=skipped,
            similarity=Similarity.of(
                measured.cosines, measured.around if measured.settings.metric == "cosine" else None
            ),
            columns=measured.columns,
            version=isoscope.__version__,
            measured=measured,
            pictures=render("Audit", "pictures", measured, findings),
        )

    @property
    def verdict(self) -> str:
        """The worst of the findings' verdicts: ok, look or bad."""
        return worst_verdict(self.findings)

    def __getitem__(self, name: str) -> Finding:
        found = self.get(name)
        if found is not None:
            return found
        raise KeyError(f"{name}: " + self.skipped.get(name, "not among " + ", ".join(f.name for f in self.findings)))

    def __contains__(self, name: object) -> bool:
        return any(finding.name == name for finding in self.findings)

    def get(self, name: str) -> Finding | None:
        """A finding by its name; None if there is none."""
        return next((finding for finding in self.findings if finding.name == name), None)

    def __repr__(self) -> str:
        return f"Audit({self.source}: {self.n:,} × {self.d}, {self.verdict})"

    def __str__(self) -> str:
        return str(render("Audit", "text", self))

    def _repr_html_(self) -> str:
        return str(render("Audit", "notebook", self))

    # how it is kept

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as JSON holds it; docs/audit-json.md describes it."""
        return {
            "schema": SCHEMA,
            "isoscope": self.version,
            "source": {"name": self.source, "rows": self.n, "dimensions": self.d, "dtype": self.dtype},
            "columns": self.columns,
            "settings": dict(vars(self.settings)),
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "skipped": self.skipped,
            "similarity": jsonable(self.similarity.to_dict()),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; an interruption leaves the old file."""
        write_json(self.to_dict(), path)

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Audit:
        """Read what `to_json` wrote; it has no pictures."""
        return cls.from_dict(read_json(path, SCHEMA, "isoscope audit --json"), path)

    @classmethod
    def from_dict(cls, held: dict[str, Any], path: str | os.PathLike[str]) -> Audit:
        """Read what `to_dict` gave; `path` is where it stood, for what an error says."""
        try:
            return cls(
                source=held["source"]["name"],
                n=check_integer(held["source"]["rows"], "rows"),
                d=check_integer(held["source"]["dimensions"], "dimensions"),
                dtype=held["source"]["dtype"],
                settings=Settings(**held["settings"]),
                findings=[Finding.from_dict(finding) for finding in held["findings"]],
                skipped=held["skipped"],
                similarity=Similarity(**{name: np.asarray(values) for name, values in held["similarity"].items()}),
                columns=held["columns"],
                version=held["isoscope"],
            )
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"{path} is not a whole audit: {type(error).__name__} {error}") from error

    def to_html(self, path: str | os.PathLike[str], *, baseline: Audit | None = None) -> None:
        """Write the page: one file that needs nothing else; an interruption leaves the old one."""
        with atomic_replace(path) as temporary:
            temporary.write_text(render("Audit", "page", [self], baseline=baseline), encoding="utf-8")

    def percentile(self, cosine: float) -> float:
        """The share of random pairs of rows that are less alike than this cosine, in per cent.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> cone = np.random.default_rng(0).standard_normal((2000, 64)) + 2
        >>> round(isoscope.audit(cone).percentile(0.8))    # 0.8 sounds high, and is what any two rows have
        46
        """
        if not -1 <= check_real(cosine, "cosine") <= 1:
            raise InputError(f"cosine is {cosine}: need a number from −1 to 1")
        return self.similarity.percentile(float(cosine))

    # pictures for papers

    def plot_spectrum(self, ax: Axes | None = None) -> Axes:
        """Draw each direction's share of the variance against an isotropic cloud's."""
        axes: Axes = render("Audit", "spectrum", self._require_pictures(), ax)
        return axes

    def plot_cosines(self, ax: Axes | None = None) -> Axes:
        """Draw the cosines of random pairs and of nearest neighbours against an isotropic cloud's."""
        axes: Axes = render("Audit", "cosines", self._require_pictures(), ax)
        return axes

    def plot_activations(self, ax: Axes | None = None) -> Axes:
        """Draw each coordinate's mean and deviation: rogue dimensions stand out."""
        axes: Axes = render("Audit", "activations", self._require_pictures(), ax)
        return axes

    def plot_points(self, ax: Axes | None = None, *, color: str = "labels") -> Axes:
        """Draw the rows along the first two principal directions, or three if `ax` is 3-D.

        `color` is "labels", "clusters", "kinds" (of token), "frequency" or "lengths".
        """
        axes: Axes = render("Audit", "points", self._require_pictures(), ax, color)
        return axes

    def plot_barcode(self, ax: Axes | None = None) -> Axes:
        """Draw the lengths at which the cloud grows together, those that stand out first."""
        axes: Axes = render("Audit", "barcode", self._require_pictures(), ax)
        return axes

    def _require_pictures(self) -> Pictures:
        if self.pictures is None:
            raise InputError("this audit was read from JSON, which holds no pictures: audit the vectors again")
        return self.pictures
