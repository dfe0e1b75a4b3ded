"""The result of an audit: findings, similarity table, JSON, page and figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import isoscope
from isoscope._core.arrays import check_integer, check_real
from isoscope._core.errors import FileFormatError, NotFoundError, ParameterError
from isoscope._io.files import replace_result
from isoscope._io.json import check_names, check_type, jsonable, read_json, shorten, write_result
from isoscope._render import Displayed, render
from isoscope.auditing.causes import describe_causes, find_causes
from isoscope.auditing.finding import VERDICTS, Finding, count_verdicts, worst_verdict
from isoscope.auditing.findings import judge
from isoscope.auditing.measure import Settings
from isoscope.auditing.similarity import Similarity
from isoscope.auditing.worst_rows import WorstRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isoscope._core.types import Verdict
    from isoscope._report.pictures import Pictures, PointCloud
    from isoscope.auditing.causes import Cause
    from isoscope.auditing.measure import Measurements
    from isoscope.auditing.row_table import RowTable

SCHEMA = "isoscope.audit/1"
"""The JSON schema; its version increases if readers of the old schema would misread the new one."""


@dataclass(repr=False)
class Audit(Displayed):
    """The findings of an audit.

    `audit["mean_cosine"]` is one finding; `audit.findings` contains all of them, worst first.
    """

    source: str
    n: int
    d: int
    dtype: str
    settings: Settings
    findings: list[Finding]
    skipped: dict[str, str]
    """The measurements that could not be made, and the reason for each."""
    similarity: Similarity
    """The percentiles of cosines in this space."""
    columns: dict[str, str] = field(default_factory=dict)
    version: str = ""
    measured: Measurements | None = None
    """The measurements behind the findings; None if the audit was read from JSON."""
    pictures: Pictures | None = None
    """The arrays behind the figures; None if the audit was read from JSON."""
    rows: RowTable | None = None
    """The table with one line per row, if it was requested; None if the audit was read from JSON."""
    worst: WorstRows | None = None
    """The rows to check, if the row table was requested."""

    @classmethod
    def of(
        cls,
        measured: Measurements,
        unusable: Mapping[str, str] | None = None,
        rows: RowTable | None = None,
        worst: WorstRows | None = None,
    ) -> Audit:
        """Create an audit by judging the measurements.

        `unusable` lists the columns that had to be ignored, with the reasons. `rows` and `worst` are the row table and
        the lists of the worst rows, if they were requested.
        """
        measured.skipped.update(unusable or {})
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
            rows=rows,
            worst=worst,
        )

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all findings: "ok", "look" or "bad"."""
        return worst_verdict(self.findings)

    @property
    def causes(self) -> list[Cause]:
        """The findings that need attention, grouped by cause; the worst cause comes first."""
        return find_causes(self.findings, self.d, self._noun)

    @property
    def headline(self) -> str:
        """The worst cause in one sentence, or that no finding needs attention."""
        return describe_causes(self.findings, self.causes, self._noun)

    @property
    def _noun(self) -> str:
        return "texts" if "text" in self.columns and "types" not in self.columns else "rows"

    def without_texts(self) -> Audit:
        """Return the audit without the texts of rows, for a page or a file to share.

        The names of labels, ids and row numbers remain.

        Examples
        --------
        >>> import numpy as np, isoscope, pathlib
        >>> X = np.random.default_rng(0).standard_normal((200, 8))
        >>> result = isoscope.audit(X, text=[f"customer {i}" for i in range(200)])
        >>> result.without_texts().to_html("shared.html")
        >>> "customer" in pathlib.Path("shared.html").read_text(encoding="utf-8")
        False
        """
        pictures = None if self.pictures is None else replace(self.pictures, text=None)
        worst = None if self.worst is None else self.worst.without_texts()
        rows = None if self.rows is None else self.rows.without_texts()
        return replace(self, pictures=pictures, worst=worst, rows=rows)

    def __getitem__(self, name: str) -> Finding:
        finding = self.get(name)
        if finding is not None:
            return finding
        raise KeyError(
            f"{name}: " + self.skipped.get(name, "not found; choose from " + ", ".join(f.name for f in self.findings))
        )

    def __contains__(self, name: object) -> bool:
        return any(finding.name == name for finding in self.findings)

    def get(self, name: str) -> Finding | None:
        """Return the finding with this name, or None if the audit does not include it."""
        return next((finding for finding in self.findings if finding.name == name), None)

    def __repr__(self) -> str:
        return f"Audit({self.source}: {self.n:,} × {self.d}; {count_verdicts(each.verdict for each in self.findings)})"

    def __str__(self) -> str:
        return str(render("Audit", "text", self))

    def _render_page(self) -> str:
        return str(render("Audit", "page", [self]))

    def _drawn_sources(self) -> list[tuple[str, Sequence[PointCloud]]]:
        return [] if self.pictures is None else [(self.source, [self.pictures])]

    # JSON and HTML

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the chart data as JSON-compatible values; see docs/audit-json.md."""
        content = {
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
        return content if self.worst is None else {**content, "worst_rows": self.worst.to_dict()}

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the audit as JSON, atomically."""
        write_result(self.to_dict(), path)

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Audit:
        """Read an audit that was written by `to_json`; the file does not contain the chart data."""
        return cls.from_dict(read_json(path, SCHEMA, "isoscope audit --json"), path)

    @classmethod
    def from_dict(cls, content: dict[str, Any], path: str | os.PathLike[str]) -> Audit:
        """Create an audit from a dict returned by `to_dict`; error messages mention `path`."""
        try:
            return cls(
                source=check_type(content["source"]["name"], str, "source"),
                n=check_integer(content["source"]["rows"], "rows"),
                d=check_integer(content["source"]["dimensions"], "dimensions"),
                dtype=check_type(content["source"]["dtype"], str, "dtype"),
                settings=Settings.from_dict(content["settings"]),
                findings=[Finding.from_dict(finding) for finding in check_type(content["findings"], list, "findings")],
                skipped=check_names(content["skipped"], "skipped"),
                similarity=Similarity.from_dict(check_type(content["similarity"], dict, "similarity")),
                columns=check_names(content["columns"], "columns"),
                version=check_type(content["isoscope"], str, "isoscope"),
                worst=WorstRows.from_dict(content["worst_rows"]) if "worst_rows" in content else None,
            )
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            why = shorten(f"{type(error).__name__} {error}", 200)
            raise FileFormatError(f"{path} is not a complete audit: {why}") from error

    def to_html(self, path: str | os.PathLike[str], *, baseline: Audit | None = None) -> None:
        """Atomically write the report as HTML; if `baseline` is given, include the changes since the baseline."""
        with replace_result(path) as temporary:
            temporary.write_text(render("Audit", "page", [self], baseline=baseline), encoding="utf-8")

    def percentile(self, cosine: float) -> float:
        """Return the percentage of random pairs of rows with a lower cosine than this one.

        Examples
        --------
        >>> import numpy as np, isoscope
        >>> cone = np.random.default_rng(0).standard_normal((2000, 64)) + 2
        >>> round(isoscope.audit(cone).percentile(0.8))    # here 0.8 is an ordinary cosine of two random rows
        46
        """
        if not -1 <= check_real(cosine, "cosine") <= 1:
            raise ParameterError(f"cosine is {cosine}: need a number from −1 to 1")
        return self.similarity.percentile(float(cosine))

    # figures

    def plot_spectrum(self, ax: Axes | None = None) -> Axes:
        """Draw each principal component's share of the variance, compared with isotropic data."""
        axes: Axes = render("Audit", "spectrum", self._require_pictures(), ax)
        return axes

    def plot_cosines(self, ax: Axes | None = None) -> Axes:
        """Draw the cosines of random pairs and of nearest neighbors, compared with isotropic data."""
        axes: Axes = render("Audit", "cosines", self._require_pictures(), ax)
        return axes

    def plot_activations(self, ax: Axes | None = None) -> Axes:
        """Draw the mean and standard deviation of each coordinate; rogue dimensions stand out."""
        axes: Axes = render("Audit", "activations", self._require_pictures(), ax)
        return axes

    def plot_points(
        self,
        ax: Axes | None = None,
        *,
        color: Literal["labels", "clusters", "kinds", "frequency", "lengths"] = "labels",
    ) -> Axes:
        """Draw the rows along the first two principal components, or the first three if `ax` is 3-D.

        `color` selects what the colors show; "kinds" means the kinds of tokens.
        """
        axes: Axes = render("Audit", "points", self._require_pictures(), ax, color)
        return axes

    def plot_barcode(self, ax: Axes | None = None) -> Axes:
        """Draw the barcode of connected components (H0), longest bars first; bars that stand out are colored."""
        axes: Axes = render("Audit", "barcode", self._require_pictures(), ax)
        return axes

    def _require_pictures(self) -> Pictures:
        if self.pictures is None:
            raise NotFoundError(
                "this audit was loaded from JSON, which does not contain the data for plots: run the audit again"
            )
        return self.pictures


def make_printable(name: str) -> str:
    """Return the name with its unprintable characters replaced."""
    return "".join(mark if mark.isprintable() else "\ufffd" for mark in name)
