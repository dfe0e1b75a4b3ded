"""The audit of each group of a store's rows, side by side: a layer's, a label's, a range of frequencies'."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import isoscope
from isoscope._core.arrays import check_integer
from isoscope._core.errors import InputError
from isoscope._core.threads import map_in_threads
from isoscope._io.files import atomic_replace
from isoscope._io.json import jsonable, read_json, write_json
from isoscope._render import render
from isoscope.auditing.audit import Audit, make_printable, run_with_usable_columns
from isoscope.auditing.by_group import measure_groups
from isoscope.auditing.finding import VERDICTS
from isoscope.auditing.findings import FINDINGS
from isoscope.auditing.grouping import MAX_GROUPS, group_rows
from isoscope.auditing.settings import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from isoscope._io.progress import Progress
    from isoscope.auditing.by_group import GroupMeasurements
    from isoscope.auditing.grouping import Grouping
    from isoscope.engines.engine import Engine
    from isoscope.stores.store import Store

SCHEMA = "isoscope.grouped-audit/1"
"""The schema of the JSON; see `isoscope.auditing.audit.SCHEMA`."""

_MAX_LAYERS = 1_000  # of a model are measured apart, however many there are


class Series(NamedTuple):
    """One finding along the groups: arrays with an entry for each; NaN where a group lacks it."""

    names: np.ndarray
    values: np.ndarray
    """What each group stands for: numbers, or its name."""
    estimates: np.ndarray
    low: np.ndarray
    high: np.ndarray
    verdicts: np.ndarray
    """ok, look, bad, or nothing."""
    null: np.ndarray
    """What a cloud without structure gives."""


def audit_groups(store: Store, by: str, settings: Settings, progress: Progress, engine: Engine) -> GroupedAudit:
    """Audit each group of a store that has a column to group by."""
    values = store.column("by")
    assert values is not None
    grouping = group_rows(values, _MAX_LAYERS if by == "layer" else MAX_GROUPS)

    def measured(store: Store) -> GroupMeasurements:
        return measure_groups(store, grouping, by, settings=settings, progress=progress, engine=engine)

    found, lacking = run_with_usable_columns(store, measured)
    if not found.groups:
        name, why = next(iter(found.skipped.items()))
        raise InputError(
            f"none of the {len(grouping.names)} groups of {store.name} by {by} can be measured; {name}: {why}"
        )
    for one in found.groups.values():
        one.skipped.update(lacking)
    return GroupedAudit.of(found, grouping, store.name, by)


@dataclass
class GroupedAudit:
    """What an audit found in each group of the rows.

    `grouped["6"]` is a group's audit by its name, `grouped[6]` by its value; `grouped.series("mean_cosine")` is one
    finding along the groups.

    Examples
    --------
    >>> import numpy as np, isoscope
    >>> cloud = np.random.default_rng(0).standard_normal((900, 16))
    >>> layer = np.arange(900) // 300
    >>> found = isoscope.audit(cloud + layer[:, None], by=layer)
    >>> found
    GroupedAudit(array by groups: 3 groups, bad)
    >>> found.series("mean_cosine").estimates.round(2).tolist(), found[2]["mean_cosine"].verdict
    ([0.0, 0.51, 0.81], 'bad')
    """

    source: str
    by: str
    """The column, or "groups" if values were given."""
    groups: dict[str, Audit]
    """The groups' audits by name: numbers and ranges ascending, names in natural order."""
    values: dict[str, int | float | str]
    """What each group stands for: its number, the middle of its range, or its name."""
    ordered: bool
    """Whether groups are numbers or ranges of them, so that a line may join them."""
    skipped: dict[str, str]
    """Groups that could not be measured, and why."""
    left_out: int
    """Rows in groups that were not measured."""
    settings: Settings
    """As they were for each group; with many groups the samples are smaller than asked for."""
    version: str = ""

    @classmethod
    def of(cls, measured: GroupMeasurements, grouping: Grouping, source: str, by: str) -> GroupedAudit:
        """Judge what was measured of each group."""
        values = dict(zip(grouping.names, grouping.values, strict=True))
        counts = dict(zip(grouping.names, grouping.counts.tolist(), strict=True))
        judged = map_in_threads(Audit.of, measured.groups.values(), len(measured.groups))
        groups = {make_printable(name): audit for name, audit in zip(measured.groups, judged, strict=True)}
        return cls(
            source=make_printable(source),
            by=make_printable(by),
            groups=groups,
            values={make_printable(name): _make_value_printable(values[name]) for name in measured.groups},
            ordered=grouping.ordered,
            skipped={make_printable(name): why for name, why in measured.skipped.items()},
            left_out=grouping.left_out + sum(counts.get(name, 0) for name in measured.skipped),
            settings=measured.settings,
            version=isoscope.__version__,
        )

    @property
    def verdict(self) -> str:
        """The worst of the groups' verdicts: ok, look or bad."""
        return max((audit.verdict for audit in self.groups.values()), key=VERDICTS.index)

    def __getitem__(self, group: str | float) -> Audit:
        if isinstance(group, str) and group in self.groups:
            return self.groups[group]
        for name, value in self.values.items():
            if value == group:
                return self.groups[name]
        why = self.skipped.get(str(group), "not among " + ", ".join(self.groups))
        raise KeyError(f"{self.by} {group}: {why}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def series(self, finding: str) -> Series:
        """One finding along the groups."""
        if finding not in FINDINGS:
            raise KeyError(f"{finding}: not among {', '.join(FINDINGS)}")
        found = [audit.get(finding) for audit in self.groups.values()]
        return Series(
            names=np.asarray(list(self.groups)),
            values=np.asarray(list(self.values.values())),
            estimates=_to_floats([None if each is None else each.value for each in found]),
            low=_to_floats([None if each is None else each.low for each in found]),
            high=_to_floats([None if each is None else each.high for each in found]),
            verdicts=np.asarray(["" if each is None else each.verdict for each in found]),
            null=_to_floats([None if each is None else each.judged.null for each in found]),
        )

    def detail(self, finding: str, *path: str | int) -> np.ndarray:
        """A number inside a finding's details along the groups; NaN where a group lacks it.

        `grouped.detail("anisotropy", "centred", 0)` is the first direction's share of the variance.
        """
        if finding not in FINDINGS:
            raise KeyError(f"{finding}: not among {', '.join(FINDINGS)}")
        return _to_floats(
            [
                _number_at_path(audit[finding].details, path) if finding in audit else None
                for audit in self.groups.values()
            ]
        )

    def __repr__(self) -> str:
        many = "1 group" if len(self) == 1 else f"{len(self)} groups"
        return f"GroupedAudit({self.source} by {self.by}: {many}, {self.verdict})"

    def __str__(self) -> str:
        return str(render("GroupedAudit", "text", self))

    def _repr_html_(self) -> str:
        return str(render("GroupedAudit", "notebook", self))

    def plot(self, finding: str, ax: Axes | None = None) -> Axes:
        """Draw one finding along the groups with its interval, against a cloud's without structure."""
        axes: Axes = render("GroupedAudit", "series", self, finding, ax)
        return axes

    # how it is kept

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pictures, as JSON holds it; docs/audit-json.md describes it."""
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
        """Write it as JSON; an interruption leaves the old file."""
        write_json(self.to_dict(), path)

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> GroupedAudit:
        """Read what `to_json` wrote; it has no pictures."""
        held = read_json(path, SCHEMA, "isoscope audit --by … --json")
        try:
            return cls(
                source=held["source"],
                by=held["by"],
                groups={group["name"]: Audit.from_dict(group["audit"], path) for group in held["groups"]},
                values={group["name"]: group["value"] for group in held["groups"]},
                ordered=bool(held["ordered"]),
                skipped=held["skipped"],
                left_out=check_integer(held["left_out"], "left_out"),
                settings=Settings(**held["settings"]),
                version=held["isoscope"],
            )
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{path} is not a whole audit by groups: {type(error).__name__} {error}") from error

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page: one file that needs nothing else; an interruption leaves the old one."""
        write_page([self], path)


def write_page(many: Sequence[GroupedAudit], path: str | os.PathLike[str]) -> None:
    """Write the page of one audit by groups, or of several to compare."""
    with atomic_replace(path) as temporary:
        temporary.write_text(render("GroupedAudit", "page", many), encoding="utf-8")


def _make_value_printable(value: int | float | str) -> int | float | str:
    return make_printable(value) if isinstance(value, str) else value


def _to_floats(values: list[Any]) -> np.ndarray:
    return np.asarray([math.nan if value is None else float(value) for value in values])


def _number_at_path(held: Any, path: tuple[str | int, ...]) -> float | None:
    """What stands at a path through mappings and lists, if it is a number; JSON's keys are strings."""
    for step in path:
        if isinstance(held, dict):
            held = next((value for key, value in held.items() if str(key) == str(step)), None)
        elif isinstance(held, list | tuple | np.ndarray) and isinstance(step, int) and -len(held) <= step < len(held):
            held = held[step]
        else:
            return None
    return float(held) if isinstance(held, int | float | np.number) else None
