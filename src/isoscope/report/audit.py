"""An audit: what was measured of a store, what it means, and the ways to show it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import isoscope
from isoscope.arrays import real, whole
from isoscope.auditing.measuring import Measured, measure, percentile
from isoscope.auditing.passes import Progress
from isoscope.auditing.settings import Settings
from isoscope.errors import InputError
from isoscope.files import replacing
from isoscope.report.finding import VERDICTS, Finding, plain, worst
from isoscope.report.judging import judge
from isoscope.report.pictures import Pictures, pictures
from isoscope.report.similarity import Similarity
from isoscope.stores import Store, open_store
from isoscope.stores.columns import ColumnError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA = "isoscope.audit/1"
"""The schema of the JSON; the number rises when a reader of the old one would misread the new one."""


def audit(
    source: Any,
    *,
    labels: Any = None,
    types: Any = None,
    text: Any = None,
    vectors: str | None = None,
    queries: Any = None,
    metric: str = "cosine",
    sample: int = 20_000,
    seed: int = 0,
    nonfinite: str = "raise",
    progress: bool | Progress = False,
) -> Audit:
    """Measure everything that applies to some vectors and say what it means.

    At most three passes over the source, in bounded memory. Sums over rows are exact, whatever the number of rows;
    what needs pairs is measured on all rows up to `sample`, and on a random sample above, which each finding says.

    Parameters
    ----------
    source : path, array, DataFrame, Dataset or store
        Whatever `open_store` opens.
    labels, types, text : column name, or one entry for each row, optional
        What each row belongs to, what it is a token of, and what to show for it.
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

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> cone = np.random.default_rng(0).standard_normal((2000, 64)) + 2
    >>> found = isoscope.audit(cone)
    >>> found.verdict, found["mean_cosine"].verdict, found["mean_cosine"].shown
    ('bad', 'bad', '0.801')
    >>> print(found["mean_cosine"].advice)
    Subtract the mean vector from corpus and queries alike: here the mean cosine falls to 0.000.
    """
    settings = Settings(metric=metric, sample=sample, seed=seed, nonfinite=nonfinite)
    store = open_store(source, vectors=vectors, labels=labels, types=types, text=text)
    asked = None if queries is None else open_store(queries)
    if progress is True:
        from isoscope.report.terminal import Bar

        with Bar() as bar:
            return Audit.of(_measured(store, asked, settings, bar))
    return Audit.of(_measured(store, asked, settings, progress or _silent))


def _measured(store: Store, queries: Store | None, settings: Settings, progress: Progress) -> Measured:
    """Measure a store; a column that was only guessed and cannot serve is done without, and said."""
    try:
        return measure(store, queries=queries, settings=settings, progress=progress)
    except ColumnError as error:
        if error.role not in store.guessed:
            raise
        rest = _measured(store.without(error.role), queries, settings, progress)
        rest.skipped[error.role] = str(error)
        return rest


def _printable(name: str) -> str:
    """A name as any file and terminal can hold it."""
    return "".join(mark if mark.isprintable() else "\ufffd" for mark in name)


def _silent(stage: str, rows: int, share: float) -> None:
    """Show nothing."""


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
    measured: Measured | None = None
    """The numbers behind it; None if the audit was read from JSON."""
    pictures: Pictures | None = None

    @classmethod
    def of(cls, measured: Measured) -> Audit:
        """Judge what was measured."""
        findings, skipped = judge(measured)
        return cls(
            source=_printable(measured.name),
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
            pictures=pictures(measured, findings),
        )

    @property
    def verdict(self) -> str:
        """The worst of the findings' verdicts: ok, look or bad."""
        return worst(self.findings)

    def __getitem__(self, name: str) -> Finding:
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(f"{name}: " + self.skipped.get(name, "not among " + ", ".join(f.name for f in self.findings)))

    def __contains__(self, name: object) -> bool:
        return any(finding.name == name for finding in self.findings)

    def __repr__(self) -> str:
        return f"Audit({self.source}: {self.n:,} × {self.d}, {self.verdict})"

    def __str__(self) -> str:
        from isoscope.report.terminal import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from isoscope.report.page import fragment

        return fragment(self)

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
            "similarity": plain(self.similarity.to_dict()),
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; an interruption leaves the old file."""
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Audit:
        """Read what `to_json` wrote; it has no pictures."""
        try:
            held = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not JSON: {error}") from error
        schema = held.get("schema") if isinstance(held, dict) else None
        if schema != SCHEMA:
            raise InputError(f"{path} has schema {schema!r}: need {SCHEMA!r}, as `isoscope audit --json` writes")
        try:
            return cls(
                source=held["source"]["name"],
                n=whole(held["source"]["rows"], "rows"),
                d=whole(held["source"]["dimensions"], "dimensions"),
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
        from isoscope.report.page import page

        with replacing(path) as temporary:
            temporary.write_text(page([self], baseline=baseline), encoding="utf-8")

    def percentile(self, cosine: float) -> float:
        """The share of random pairs of rows that are less alike than this cosine, in per cent.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> cone = np.random.default_rng(0).standard_normal((2000, 64)) + 2
        >>> round(isoscope.audit(cone).percentile(0.8))    # 0.8 sounds high, and is what any two rows have
        46
        """
        if not -1 <= real(cosine, "cosine") <= 1:
            raise InputError(f"cosine is {cosine}: need a number from −1 to 1")
        if self.measured is not None:
            return 100 * percentile(self.measured.cosines, float(cosine))
        return self.similarity.percentile(float(cosine))

    # pictures for papers

    def plot_spectrum(self, ax: Axes | None = None) -> Axes:
        """Draw each direction's share of the variance against an isotropic cloud's."""
        from isoscope.report import figures

        return figures.spectrum(self._drawn(), ax)

    def plot_cosines(self, ax: Axes | None = None) -> Axes:
        """Draw the cosines of random pairs and of nearest neighbours against an isotropic cloud's."""
        from isoscope.report import figures

        return figures.cosines(self._drawn(), ax)

    def plot_activations(self, ax: Axes | None = None) -> Axes:
        """Draw each coordinate's mean and deviation: rogue dimensions stand out."""
        from isoscope.report import figures

        return figures.activations(self._drawn(), ax)

    def plot_points(self, ax: Axes | None = None, *, color: str = "labels") -> Axes:
        """Draw the rows along the first two principal directions, or three if `ax` is 3-D.

        `color` is "labels", "clusters", "frequency" or "lengths".
        """
        from isoscope.report import figures

        return figures.points(self._drawn(), ax, color)

    def plot_barcode(self, ax: Axes | None = None) -> Axes:
        """Draw the lengths at which the cloud grows together, those that stand out first."""
        from isoscope.report import figures

        return figures.barcode(self._drawn(), ax)

    def _drawn(self) -> Pictures:
        if self.pictures is None:
            raise InputError("this audit was read from JSON, which holds no pictures: audit the vectors again")
        return self.pictures
