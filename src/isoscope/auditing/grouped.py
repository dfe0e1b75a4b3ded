"""The result of a grouped audit: one audit per group, and a series for each finding across the groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import isoscope
from isoscope._core.arrays import check_integer
from isoscope._core.errors import FileFormatError, InputError, plural
from isoscope._core.threads import map_in_threads
from isoscope._io.files import replace_result
from isoscope._io.json import check_names, check_type, jsonable, read_json, shorten, write_result
from isoscope._render import Displayed, render
from isoscope.auditing.audit_result import Audit, make_printable
from isoscope.auditing.finding import VERDICTS, count_verdicts
from isoscope.auditing.findings import FINDINGS
from isoscope.auditing.measure import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isoscope._core.types import Verdict
    from isoscope._report.pictures import PointCloud
    from isoscope.auditing.by_group import GroupMeasurements
    from isoscope.auditing.finding import Finding
    from isoscope.auditing.grouping import Grouping

SCHEMA = "isoscope.grouped-audit/1"
"""The JSON schema; see `isoscope.auditing.audit_result.SCHEMA`."""


class Series(NamedTuple):
    """One finding across the groups, as arrays with one entry per group; NaN if a group lacks the finding."""

    names: np.ndarray
    values: np.ndarray
    """The number or name that each group represents."""
    estimates: np.ndarray
    low: np.ndarray
    high: np.ndarray
    verdicts: np.ndarray
    """"ok", "look", "bad" or an empty string."""
    null: np.ndarray
    """The value for random data of the same size."""


@dataclass(repr=False)
class GroupedAudit(Displayed):
    """Separate audits of groups of rows.

    `grouped["6"]` is the audit of a group by its name, `grouped[6]` by its value. `grouped.series("mean_cosine")` is
    one finding across the groups.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> X = np.random.default_rng(0).standard_normal((900, 16))
    >>> layer = np.arange(900) // 300
    >>> grouped = isoscope.audit(X + layer[:, None], by=layer)
    >>> grouped
    GroupedAudit(array by groups: 3 groups; 2 bad, 1 look)
    >>> grouped.series("mean_cosine").estimates.round(2).tolist(), grouped[2]["mean_cosine"].verdict
    ([0.0, 0.51, 0.81], 'bad')
    """

    source: str
    by: str
    """The column name, or "groups" if values were passed."""
    groups: dict[str, Audit]
    """The audits by group: numbers and ranges in ascending order, names in natural order."""
    values: dict[str, int | float | str]
    """The value that each group represents: its number, the middle of its range, or its name."""
    ordered: bool
    """Whether the groups are numbers or ranges of numbers, so that a line can connect them."""
    skipped: dict[str, str]
    """The groups that could not be measured, and the reason for each."""
    left_out: int
    """The number of rows in groups that were not measured."""
    settings: Settings
    """The settings of each group; if there are many groups, the samples are smaller than requested."""
    version: str = ""

    @classmethod
    def of(
        cls,
        measured: GroupMeasurements,
        grouping: Grouping,
        source: str,
        by: str,
        unusable: Mapping[str, str] | None = None,
    ) -> GroupedAudit:
        """Create the audit of each group by judging its measurements.

        `unusable` lists the columns that had to be ignored, with the reasons.
        """
        values = dict(zip(grouping.names, grouping.values, strict=True))
        counts = dict(zip(grouping.names, grouping.counts.tolist(), strict=True))
        audits = map_in_threads(lambda group: Audit.of(group, unusable), measured.groups.values(), len(measured.groups))
        return cls(
            source=make_printable(source),
            by=make_printable(by),
            groups={make_printable(name): audit for name, audit in zip(measured.groups, audits, strict=True)},
            values={make_printable(name): _make_value_printable(values[name]) for name in measured.groups},
            ordered=grouping.ordered,
            skipped={make_printable(name): why for name, why in measured.skipped.items()},
            left_out=grouping.left_out + sum(counts.get(name, 0) for name in measured.skipped),
            settings=measured.settings,
            version=isoscope.__version__,
        )

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all groups: "ok", "look" or "bad"."""
        return max((audit.verdict for audit in self.groups.values()), key=VERDICTS.index)

    def __getitem__(self, group: str | float) -> Audit:
        if isinstance(group, str) and group in self.groups:
            return self.groups[group]
        for name, value in self.values.items():
            if value == group:
                return self.groups[name]
        why = self.skipped.get(str(group), "not found; choose from " + ", ".join(self.groups))
        raise KeyError(f"{self.by} {group}: {why}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def series(self, finding: str) -> Series:
        """Return one finding across the groups."""
        if finding not in FINDINGS:
            raise KeyError(f"{finding} is not a finding: choose from {', '.join(FINDINGS)}")
        findings: list[Finding | None] = [audit.get(finding) for audit in self.groups.values()]
        return Series(
            names=np.asarray(list(self.groups)),
            values=np.asarray(list(self.values.values())),
            estimates=_to_floats([None if each is None else each.value for each in findings]),
            low=_to_floats([None if each is None else each.low for each in findings]),
            high=_to_floats([None if each is None else each.high for each in findings]),
            verdicts=np.asarray(["" if each is None else each.verdict for each in findings]),
            null=_to_floats([None if each is None else each.judged.null for each in findings]),
        )

    def detail(self, finding: str, *path: str | int) -> np.ndarray:
        """Return a number from a finding's details for each group; NaN if a group lacks it.

        `grouped.detail("anisotropy", "centered", 0)` is the first principal component's share of the variance.
        """
        if finding not in FINDINGS:
            raise KeyError(f"{finding} is not a finding: choose from {', '.join(FINDINGS)}")
        return _to_floats(
            [
                _number_at_path(audit[finding].details, path) if finding in audit else None
                for audit in self.groups.values()
            ]
        )

    def __repr__(self) -> str:
        counts = count_verdicts(audit.verdict for audit in self.groups.values())
        return f"GroupedAudit({self.source} by {self.by}: {plural(len(self), 'group')}; {counts})"

    def __str__(self) -> str:
        return str(render("GroupedAudit", "text", self))

    def _render_page(self) -> str:
        return str(render("GroupedAudit", "page", [self]))

    def _drawn_sources(self) -> list[tuple[str, Sequence[PointCloud]]]:
        return [(self.source, [audit.pictures for audit in self.groups.values() if audit.pictures is not None])]

    def plot(self, finding: str, ax: Axes | None = None) -> Axes:
        """Draw one finding across the groups, with its interval and the value for random data."""
        axes: Axes = render("GroupedAudit", "series", self, finding, ax)
        return axes

    # JSON and HTML

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the chart data as JSON-compatible values; see docs/audit-json.md."""
        return {
            "schema": SCHEMA,
            "isoscope": self.version,
            "source": self.source,
            "by": self.by,
            "ordered": self.ordered,
            "settings": dict(vars(self.settings)),
            "verdict": self.verdict,
            "groups": [
                {"name": name, "value": jsonable(self.values[name]), "audit": audit.to_dict()}
                for name, audit in self.groups.items()
            ],
            "skipped": self.skipped,
            "left_out": self.left_out,
        }

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the audits as JSON, atomically."""
        write_result(self.to_dict(), path)

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> GroupedAudit:
        """Read a grouped audit that was written by `to_json`; the file does not contain the chart data."""
        content = read_json(path, SCHEMA, "isoscope audit --by … --json")
        try:
            names = {finding["name"] for group in content["groups"] for finding in group["audit"]["findings"]}
            if unknown := names - {*FINDINGS}:
                raise ValueError(f"{min(map(str, unknown))} is not a finding of this version of isoscope")
            ordered = check_type(content["ordered"], bool, "ordered")
            kinds = (int, float) if ordered else (int, float, str)
            return cls(
                source=check_type(content["source"], str, "source"),
                by=check_type(content["by"], str, "by"),
                groups={
                    check_type(group["name"], str, "name"): Audit.from_dict(group["audit"], path)
                    for group in check_type(content["groups"], list, "groups")
                },
                values={group["name"]: check_type(group["value"], kinds, "value") for group in content["groups"]},
                ordered=ordered,
                skipped=check_names(content["skipped"], "skipped"),
                left_out=check_integer(content["left_out"], "left_out"),
                settings=Settings.from_dict(content["settings"]),
                version=check_type(content["isoscope"], str, "isoscope"),
            )
        except InputError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = shorten(f"{type(error).__name__} {error}", 200)
            raise FileFormatError(f"{path} is not a complete grouped audit: {why}") from error

    def without_texts(self) -> GroupedAudit:
        """Return the audits without the texts of rows, for a page to share."""
        return replace(self, groups={name: audit.without_texts() for name, audit in self.groups.items()})

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one self-contained HTML page, atomically."""
        write_page([self], path)


def write_page(audits: Sequence[GroupedAudit], path: str | os.PathLike[str]) -> None:
    """Write an HTML page for one grouped audit, or for several side by side."""
    with replace_result(path) as temporary:
        temporary.write_text(render("GroupedAudit", "page", audits), encoding="utf-8")


def _make_value_printable(value: int | float | str) -> int | float | str:
    return make_printable(value) if isinstance(value, str) else value


def _to_floats(values: Sequence[float | None]) -> np.ndarray:
    return np.asarray([math.nan if value is None else float(value) for value in values])


def _number_at_path(content: Any, path: tuple[str | int, ...]) -> float | None:
    """Return the number at a path through mappings and lists, or None; keys are compared as strings, as in JSON."""
    for step in path:
        if isinstance(content, dict):
            content = next((value for key, value in content.items() if str(key) == str(step)), None)
        elif (
            isinstance(content, list | tuple | np.ndarray)
            and isinstance(step, int)
            and -len(content) <= step < len(content)
        ):
            content = content[step]
        else:
            return None
    return float(content) if isinstance(content, int | float | np.number) else None
