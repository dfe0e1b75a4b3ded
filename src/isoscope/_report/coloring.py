"""What the points of a cloud are coloured by: names that each have a look, or a number on a scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._report.html import tag
from isoscope.auditing.finding import format_number
from isoscope.auditing.findings.token_kinds import KINDS

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope._report.pictures import Pictures

MAX_GROUPS = 20
"""Groups that have a colour and a shape of their own; the rest are "others"."""
HUES = 7
"""Colours of groups in page.css; after each round of them the shape changes."""
SHADES = 6
"""Colours of a continuous scale in page.css."""

_SHARED_COLORINGS = ("kinds", "labels", "frequency", "clusters", "lengths")  # of several clouds, the first at first
_SHAPES = ("disc", "square", "ring")


@dataclass(frozen=True)
class CategoricalColoring:
    """A colouring by names: each name has a slot, −1 for those without a colour of their own."""

    key: str
    title: str
    names: list[str]
    codes: np.ndarray
    rest: str
    given: np.ndarray | None = None
    """The names' slots where several clouds share them."""

    @property
    def slots(self) -> np.ndarray:
        """The names' slots: the most frequent name has the first."""
        if self.given is not None:
            return self.given
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        slots = np.full(len(self.names), -1)
        order = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
        slots[order] = np.arange(len(order))
        return slots

    @property
    def point_slots(self) -> np.ndarray:
        """Each point's slot."""
        return np.asarray(np.append(self.slots, -1)[self.codes])

    def held(self) -> dict[str, Any]:
        """As the script reads it."""
        return {
            "key": self.key,
            "title": self.title,
            "names": self.names,
            "codes": self.codes.tolist(),
            "slots": self.slots.tolist(),
            "rest": self.rest,
        }


@dataclass(frozen=True)
class ContinuousColoring:
    """A colouring by a number, between its 2nd and its 98th percentile."""

    key: str
    title: str
    values: np.ndarray
    log: bool = False
    given: tuple[float, float] | None = None
    """The ends where several clouds share them."""

    @property
    def ends(self) -> tuple[float, float]:
        """Where the scale begins and ends."""
        if self.given is not None:
            return self.given
        low, high = np.quantile(self.values, [0.02, 0.98])
        return float(f"{low:.4g}"), float(f"{high:.4g}")

    @property
    def shades(self) -> np.ndarray:
        """Each point's shade, from 0."""
        low, high = self.ends
        values = self.values.astype(np.float64)
        if self.log:
            low, high, values = np.log(max(low, 1e-300)), np.log(max(high, 1e-300)), np.log(np.maximum(values, 1e-300))
        places = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
        return np.asarray(np.clip((places * SHADES).astype(int), 0, SHADES - 1))

    def held(self) -> dict[str, Any]:
        """As the script reads it."""
        low, high = self.ends
        values = [float(f"{value:.5g}") for value in self.values.tolist()]
        return {"key": self.key, "title": self.title, "values": values, "low": low, "high": high, "log": self.log}


def find_colorings(p: Pictures) -> list[CategoricalColoring | ContinuousColoring]:
    """What the points can be coloured by."""
    found: list[CategoricalColoring | ContinuousColoring] = []
    if p.labels is not None and len(p.label_names):
        others = len(p.label_names) - MAX_GROUPS
        found.append(CategoricalColoring("labels", "Label", p.label_names, p.labels, f"{others:,} other labels"))
    if p.clusters is not None:
        found.append(_cluster_coloring(p.clusters))
    if p.kinds is not None:
        found.append(CategoricalColoring("kinds", "Kind of token", list(KINDS), p.kinds, "others"))
    if p.frequency is not None:
        found.append(ContinuousColoring("frequency", "Frequency", p.frequency, log=True))
    found.append(ContinuousColoring("lengths", "Length", p.lengths))
    found.append(ContinuousColoring("rows", "Row number", p.rows))  # word vectors come by frequency, and data by date
    return found


def _cluster_coloring(codes: np.ndarray) -> CategoricalColoring:
    """Clusters numbered by size, the largest first."""
    counts = np.bincount(codes[codes >= 0])
    place = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
    names = [f"cluster {i + 1}" for i in range(len(counts))]
    return CategoricalColoring("clusters", "Cluster", names, np.append(place, -1)[codes], "not clustered")


def find_shared_colorings(clouds: Sequence[Pictures]) -> list[list[CategoricalColoring | ContinuousColoring]]:
    """What the points of several clouds can be coloured by, each name and each frequency with one look in all of them.

    Clusters are each cloud's own, numbered by size; so are lengths, from its shortest to its longest.
    """
    names = sorted({name for p in clouds for name in (p.label_names if p.labels is not None else ())})
    ways = [{way.key: way for way in find_colorings(p)} for p in clouds]
    for p, own in zip(clouds, ways, strict=True):
        if p.labels is not None and "labels" in own:
            codes = np.asarray([names.index(name) for name in p.label_names])[p.labels]
            own["labels"] = CategoricalColoring(
                "labels", "Label", names, codes, f"{len(names) - MAX_GROUPS:,} other labels"
            )
    for key in ("labels", "kinds"):
        one = _merge_colorings([own[key] for own in ways if key in own])
        for own in ways:
            if one is not None and isinstance(way := own.get(key), CategoricalColoring):
                own[key] = replace(way, given=one.slots)
    counts = [p.frequency for p in clouds if p.frequency is not None]
    if counts:
        ends = ContinuousColoring("frequency", "Frequency", np.concatenate(counts)).ends
        for own in ways:
            if isinstance(way := own.get("frequency"), ContinuousColoring):
                own["frequency"] = replace(way, given=ends)
    return [[own[key] for key in _SHARED_COLORINGS if key in own] for own in ways]


def render_legends(
    ways: Sequence[Sequence[CategoricalColoring | ContinuousColoring]], each: str
) -> dict[str, tuple[str, Markup]]:
    """The title and the legend of everything that some of several clouds can be coloured by; `each` names one cloud."""
    found: dict[str, tuple[str, Markup]] = {}
    for key in _SHARED_COLORINGS:
        own = [way for some in ways for way in some if way.key == key]
        if not own:
            continue
        one = _merge_colorings(own)
        if key == "lengths":
            found[key] = own[0].title, render_ramp("from the shortest", f"to the longest of each {each}")
        elif one is not None:
            found[key] = one.title, render_legend(one)
        else:
            found[key] = own[0].title, render_legend(own[0])
    return found


def _merge_colorings(ways: Sequence[CategoricalColoring | ContinuousColoring]) -> CategoricalColoring | None:
    """Colourings of several clouds by the same names, as one."""
    groups = [way for way in ways if isinstance(way, CategoricalColoring)]
    if not groups:
        return None
    longest = max(groups, key=lambda way: len(way.names))
    return replace(longest, codes=np.concatenate([way.codes for way in groups]))


# how it looks


def points_by_class(way: CategoricalColoring | ContinuousColoring) -> list[tuple[str, np.ndarray]]:
    """The points of each colour, those that should be on top last."""
    if isinstance(way, ContinuousColoring):
        return [(f"shade-{i}", np.flatnonzero(way.shades == i)) for i in range(SHADES)]
    slots = way.point_slots
    return [(_css_class(slot), np.flatnonzero(slots == slot)) for slot in range(-1, int(slots.max(initial=-1)) + 1)]


def _css_class(slot: int) -> str:
    """The colour and the shape of a slot, as classes of page.css."""
    return "other disc" if slot < 0 else f"hue-{slot % HUES} {_SHAPES[slot // HUES]}"


def render_legend(way: CategoricalColoring | ContinuousColoring) -> Markup:
    """What the colours of the still projection are."""
    if isinstance(way, ContinuousColoring):
        low, high = way.ends
        return render_ramp(f"{way.title.lower()} from {format_number(low)}", f"to {format_number(high)}")
    slots = way.point_slots
    entries = []
    for slot in [*range(int(way.slots.max(initial=-1)) + 1), -1]:
        count = int((slots == slot).sum())
        if count:
            name = way.rest if slot < 0 else way.names[int(np.flatnonzero(way.slots == slot)[0])]
            entries.append(tag("li", _render_swatch(slot), tag("bdi", name), " ", tag("small", f"{count:,}")))
    return tag("ul", *entries, class_="legend still")


def render_ramp(before: str, after: str) -> Markup:
    """The shades of a continuous scale between the words for its ends."""
    steps = (tag("rect", x=str(20 * i), width="20", height="10", class_=f"shade-{i}") for i in range(SHADES))
    shades = tag("svg", *steps, viewBox=f"0 0 {20 * SHADES} 10", class_="ramp", aria_hidden="true")
    return tag("p", f"{before} ", shades, f" {after}", class_="legend still")


def _render_swatch(slot: int) -> Markup:
    look = _css_class(slot)
    hole = tag("path", d="M6 6h0", class_="dots hole") if "ring" in look else None
    return tag("svg", tag("path", d="M6 6h0", class_=f"dots {look}"), hole, viewBox="0 0 12 12", aria_hidden="true")
