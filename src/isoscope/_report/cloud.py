"""Point clouds on a page: their colors, legends and controls."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isoscope._report.html import join_markup, json_script, tag
from isoscope._report.pictures import subsample_points
from isoscope._report.svg import format_coordinate
from isoscope.auditing.finding import format_number
from isoscope.auditing.findings.frequency import KINDS

if TYPE_CHECKING:
    from isoscope._report.html import Markup
    from isoscope._report.pictures import PointCloud


MAX_GROUPS = 20
"""The largest number of groups with their own color and shape; the rest are "others"."""
HUES = 7
"""Number of group colors in colors.css."""
SHAPES = ("disc", "square", "ring")
"""The shapes of points. A slot has the color `slot % HUES` and the shape `slot % len(SHAPES)`: neighboring slots
differ in both, and no two of the `MAX_GROUPS` slots look alike."""
SHADES = 6
"""Number of colors of a continuous scale in colors.css."""

_SHARED_COLORINGS = ("kinds", "labels", "frequency", "clusters", "lengths")  # in the order of the buttons
_SHOWN_NEIGHBORS = 5
_MAX_NAME_LENGTH = 24  # characters of a name that is written into the cloud


@dataclass(frozen=True)
class CategoricalColoring:
    """A coloring by name: each name has a color slot, or −1 if it has no color of its own."""

    key: str
    title: str
    names: list[str]
    codes: np.ndarray
    rest: str
    shared_slots: np.ndarray | None = None
    """The slots of the names, if several clouds share them."""

    @property
    def slots(self) -> np.ndarray:
        """The slot of each name; the most frequent name has the first slot."""
        if self.shared_slots is not None:
            return self.shared_slots
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.names))
        slots = np.full(len(self.names), -1)
        order = np.argsort(-counts, kind="stable")[:MAX_GROUPS]
        slots[order] = np.arange(len(order))
        return slots

    @property
    def point_slots(self) -> np.ndarray:
        """The slot of each point."""
        return np.asarray(np.append(self.slots, -1)[self.codes])

    def to_dict(self) -> dict[str, Any]:
        """Return the coloring in the form that the script reads."""
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
    """A coloring by a number, from its 2nd to its 98th percentile."""

    key: str
    title: str
    values: np.ndarray
    log: bool = False
    shared_ends: tuple[float, float] | None = None
    """The ends of the scale, if several clouds share them."""

    @property
    def ends(self) -> tuple[float, float]:
        """The lower and upper ends of the scale."""
        if self.shared_ends is not None:
            return self.shared_ends
        low, high = np.quantile(self.values, [0.02, 0.98])
        return float(f"{low:.4g}"), float(f"{high:.4g}")

    @property
    def shades(self) -> np.ndarray:
        """The shade of each point, numbered from 0."""
        low, high = self.ends
        values = self.values.astype(np.float64)
        if self.log:
            low, high, values = np.log(max(low, 1e-300)), np.log(max(high, 1e-300)), np.log(np.maximum(values, 1e-300))
        places = (values - low) / (high - low) if high > low else np.full(len(values), 0.5)
        return np.asarray(np.clip((places * SHADES).astype(int), 0, SHADES - 1))

    def to_dict(self) -> dict[str, Any]:
        """Return the coloring in the form that the script reads."""
        low, high = self.ends
        values = [float(f"{value:.5g}") for value in self.values.tolist()]
        return {"key": self.key, "title": self.title, "values": values, "low": low, "high": high, "log": self.log}


def find_colorings(p: PointCloud) -> list[CategoricalColoring | ContinuousColoring]:
    """Return the ways to color the points."""
    colorings: list[CategoricalColoring | ContinuousColoring] = []
    if p.labels is not None and len(p.label_names):
        others = len(p.label_names) - MAX_GROUPS
        colorings.append(CategoricalColoring("labels", "Label", p.label_names, p.labels, f"{others:,} other labels"))
    if p.clusters is not None:
        colorings.append(_cluster_coloring(p.clusters))
    if p.kinds is not None:
        colorings.append(CategoricalColoring("kinds", "Kind of token", list(KINDS), p.kinds, "others"))
    if p.frequency is not None:
        colorings.append(ContinuousColoring("frequency", "Frequency", p.frequency, log=True))
    colorings.append(ContinuousColoring("lengths", "Length", p.lengths))
    colorings.append(ContinuousColoring("rows", "Row number", p.rows))  # rows are often sorted by frequency or date
    return colorings


def _cluster_coloring(codes: np.ndarray) -> CategoricalColoring:
    """Return a coloring by cluster, numbered by size from the largest."""
    counts = np.bincount(codes[codes >= 0])
    place = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
    names = [f"cluster {i + 1}" for i in range(len(counts))]
    return CategoricalColoring("clusters", "Cluster", names, np.append(place, -1)[codes], "not clustered")


def find_shared_colorings(clouds: Sequence[PointCloud]) -> list[list[CategoricalColoring | ContinuousColoring]]:
    """Return the ways to color several clouds; a label, kind or frequency has the same color in all of them.

    Clusters and lengths are separate for each cloud: clusters are numbered by size, and lengths run from the shortest
    to the longest.
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
                own[key] = replace(way, shared_slots=one.slots)
    counts = [p.frequency for p in clouds if p.frequency is not None]
    if counts:
        ends = ContinuousColoring("frequency", "Frequency", np.concatenate(counts)).ends
        for own in ways:
            if isinstance(way := own.get("frequency"), ContinuousColoring):
                own["frequency"] = replace(way, shared_ends=ends)
    return [[own[key] for key in _SHARED_COLORINGS if key in own] for own in ways]


def render_legends(
    ways: Sequence[Sequence[CategoricalColoring | ContinuousColoring]], each: str
) -> dict[str, tuple[str, Markup]]:
    """Return the title and the legend of each coloring of several clouds; `each` is the noun for one cloud."""
    legends: dict[str, tuple[str, Markup]] = {}
    for key in _SHARED_COLORINGS:
        own = [way for some in ways for way in some if way.key == key]
        if not own:
            continue
        one = _merge_colorings(own)
        if key == "lengths":
            legends[key] = (
                own[0].title,
                render_ramp("from the shortest vector", f"to the longest vector of each {each}"),
            )
        elif one is not None:
            legends[key] = one.title, render_color_legend(one)
        else:
            legends[key] = own[0].title, render_color_legend(own[0])
    return legends


def _merge_colorings(ways: Sequence[CategoricalColoring | ContinuousColoring]) -> CategoricalColoring | None:
    """Return one coloring that combines the colorings of several clouds by the same names."""
    groups = [way for way in ways if isinstance(way, CategoricalColoring)]
    if not groups:
        return None
    longest = max(groups, key=lambda way: len(way.names))
    return replace(longest, codes=np.concatenate([way.codes for way in groups]))


# appearance


def points_by_class(way: CategoricalColoring | ContinuousColoring) -> list[tuple[str, np.ndarray]]:
    """Return the points of each color; points to draw on top come last."""
    if isinstance(way, ContinuousColoring):
        return [(f"shade-{i}", np.flatnonzero(way.shades == i)) for i in range(SHADES)]
    slots = way.point_slots
    return [(_css_class(slot), np.flatnonzero(slots == slot)) for slot in range(-1, int(slots.max(initial=-1)) + 1)]


def _css_class(slot: int) -> str:
    """Return the color and the shape of a slot as CSS classes."""
    return "other disc" if slot < 0 else f"hue-{slot % HUES} {SHAPES[slot % len(SHAPES)]}"


def render_color_legend(way: CategoricalColoring | ContinuousColoring) -> Markup:
    """Return the legend of the static picture."""
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
    """Return the shades of a continuous scale, with a label at each end."""
    steps = (tag("rect", x=str(20 * i), width="20", height="10", class_=f"shade-{i}") for i in range(SHADES))
    shades = tag("svg", *steps, viewBox=f"0 0 {20 * SHADES} 10", class_="ramp", aria_hidden="true")
    return tag("p", f"{before} ", shades, f" {after}", class_="legend still")


def _render_swatch(slot: int) -> Markup:
    look = _css_class(slot)
    hole = tag("path", d="M6 6h0", class_="dots hole") if "ring" in look else None
    own = tag("path", d=f"M6 6{draw_dot(look)}", class_=f"dots {look}")
    return tag("svg", own, hole, viewBox="0 0 12 12", aria_hidden="true")


_WIDTH, _HEIGHT = 1000, 620


def render_point_cloud(p: PointCloud, identity: str, name: str, total: int) -> tuple[Markup, str]:
    """Return the point cloud of one space, and its caption."""
    caption = format_caption(p, total)
    ways = find_colorings(p)
    choices = [(way.key, way.title) for way in ways]
    body = render_interactive_cloud(
        identity,
        f"Points of {name}. {caption}",
        choices,
        three=len(_axis_names(p)) == 3,
        still=_draw_static_cloud(p, ways[0], caption),
        legend=render_color_legend(ways[0]),
    )
    return join_markup(body, json_script(identity, encode_cloud(p, ways))), caption


def render_interactive_cloud(
    identity: str,
    words: str,
    choices: Sequence[tuple[str, str]],
    *,
    three: bool,
    still: Markup | None = None,
    legend: Markup | None = None,
    later: bool = False,
) -> Markup:
    """Return an interactive point cloud with its controls; `choices` are the keys and titles of its colorings.

    `words` describe it for readers who cannot see it. `still` and its `legend` are for print and for browsers without
    scripts. The points are in the JSON element with this id, unless a script sets them `later`.
    """
    controls = tag(
        "div",
        render_button_group("Color by", "color", choices),
        render_button_group("View", "view", [("3", "3-D"), ("2", "2-D")]) if three else None,
        tag(
            "div",
            *(
                tag("button", sign, type="button", data_zoom=how, aria_label=words, title=words)
                for how, sign, words in (
                    ("in", "+", "Zoom in"),
                    ("out", "−", "Zoom out"),
                    ("reset", "Reset", "Reset the view"),
                )
            ),
            role="group",
            aria_label="Zoom",
            class_="choice",
        ),
        tag("button", "Rotate freely", type="button", data_hold=True, aria_pressed="false", class_="for-touch"),
        class_="controls live",
    )
    tools = tag(
        "div",
        tag(
            "label",
            "Find ",
            tag("input", type="search", data_find=True, placeholder="text, label, id or row", autocomplete="off"),
            class_="find",
        ),
        tag("span", data_matches=True, role="status", class_="size"),
        tag("button", "Select matches", type="button", data_take=True, hidden=True),
        tag("button", "Lasso", type="button", data_lasso=True, aria_pressed="false"),
        tag("button", "Names", type="button", data_names=True, aria_pressed="true"),
        class_="controls live",
    )
    stage = tag(
        "div",
        tag(
            "canvas",
            tabindex="0",
            role="application",
            aria_label=words,
            aria_describedby=f"{identity}-keys",
            class_="live",
        ),
        still,
        tag("div", class_="tip live", hidden=True),
        class_="stage",
    )
    keys = tag(
        "p",
        tag(
            "span",
            "Drag to rotate, hold Ctrl and scroll to zoom, hover over a point to read it, and click it to list its "
            "nearest neighbors. ",
            class_="for-mouse",
        ),
        tag(
            "span",
            "Swipe sideways to rotate, pinch to zoom, and tap a point to list its nearest neighbors. With “Rotate "
            "freely”, swiping up and down rotates instead of scrolling. ",
            class_="for-touch",
        ),
        "With “Lasso”, drag around points to select them and export their ids. "
        "Keys: arrows rotate, + and − zoom, 0 resets the view, N and P go to the next and the previous point, Enter "
        "lists its neighbors, S adds it to the selection.",
        id=f"{identity}-keys",
        class_="hint live",
    )
    return tag(
        "div",
        controls,
        tools,
        stage,
        tag("div", class_="picked live", hidden=True, data_picked=True),
        tag("div", class_="picked live", hidden=True, data_selection=True),
        legend,
        tag("ul", class_="legend live"),
        keys,
        tag("p", class_="spoken live", aria_live="polite"),
        data_cloud=None if later else identity,
        class_="cloud",
    )


def format_caption(p: PointCloud, total: int) -> str:
    """Return a caption with the number of drawn points and the variance that the drawn components explain."""
    drawn = len(p.points)
    count = f"All {total:,} vectors are drawn" if drawn >= total else f"{drawn:,} of {total:,} vectors are drawn"
    directions = min(3, p.dimensions)
    shares = [format_number(float(share), "share") for share in p.explained_variance[:directions]]
    together = format_number(min(float(p.explained_variance.sum()), 1.0), "share")
    return (
        f"{count} along the {'three' if directions == 3 else 'two'} leading principal components, which explain "
        f"{', '.join(shares[:-1])} and {shares[-1]} of the variance ({together} in total). "
        "Points that are close here may be far apart in the full space."
    )


def render_button_group(name: str, kind: str, options: Sequence[tuple[str, str]]) -> Markup:
    """Return a group of buttons, one for each pair (value, words); the first one is pressed."""
    buttons = (
        tag("button", words, type="button", aria_pressed="false" if i else "true", **{f"data_{kind}": value})
        for i, (value, words) in enumerate(options)
    )
    return tag("div", tag("span", name, aria_hidden="true"), *buttons, role="group", aria_label=name, class_="choice")


_SMALL_POINTS = 1_000  # points of a small view


def draw_small_cloud(p: PointCloud) -> Markup:
    """Draw the two leading principal components as a small picture without controls."""
    few = subsample_points(p, _SMALL_POINTS)
    way, own = find_colorings(p)[0], find_colorings(few)[0]
    if isinstance(way, CategoricalColoring) and isinstance(own, CategoricalColoring):
        own = replace(own, shared_slots=way.slots)  # the colors of the whole cloud
    elif isinstance(way, ContinuousColoring) and isinstance(own, ContinuousColoring):
        own = replace(own, shared_ends=way.ends)
    caption = f"A random subset of {len(few.points):,} vectors." if len(few.points) < len(p.points) else ""
    return _draw_static_cloud(few, own, caption, "small-cloud")


def _draw_static_cloud(
    p: PointCloud, way: CategoricalColoring | ContinuousColoring, caption: str, class_: str = "still"
) -> Markup:
    """Draw the two leading principal components as a static picture, for print and for browsers without scripts."""
    x, y = p.points[:, 0], -p.points[:, 1]
    wide, high = float(np.ptp(x)) if len(x) else 0.0, float(np.ptp(y)) if len(y) else 0.0
    scale = min((_WIDTH - 40) / max(wide, 1e-300), (_HEIGHT - 40) / max(high, 1e-300))
    scale = scale if np.isfinite(scale) and max(wide, high) > 0 else 0.0
    middle = [(float(v.max()) + float(v.min())) / 2 if len(v) else 0.0 for v in (x, y)]
    across, down = _WIDTH / 2 + scale * (x - middle[0]), _HEIGHT / 2 + scale * (y - middle[1])
    return tag(
        "svg",
        *draw_points(across, down, way),
        *(_draw_names(across, down, way) if class_ == "still" else ()),  # a small picture has no room for names
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"Points along two principal components. {caption}".rstrip(),
        class_=class_,
    )


def _draw_names(
    across: np.ndarray, down: np.ndarray, way: CategoricalColoring | ContinuousColoring
) -> Iterator[Markup]:
    """Write each name at the median of its points; a name that would overlap a larger group's name is left out."""
    if not isinstance(way, CategoricalColoring):
        return
    slots = way.point_slots
    placed: list[tuple[float, float, float]] = []
    for slot in range(int(way.slots.max(initial=-1)) + 1):
        members = slots == slot
        if not members.any():
            continue
        name = way.names[int(np.flatnonzero(way.slots == slot)[0])]
        name = name if len(name) <= _MAX_NAME_LENGTH else name[: _MAX_NAME_LENGTH - 1] + "…"
        half = 5 * len(name) + 4
        x = min(max(float(np.median(across[members])), half), _WIDTH - half)
        middle = float(np.median(down[members]))
        for y in (middle + step for step in (0, -20, 20, -40, 40)):
            if 18 < y < _HEIGHT - 6 and all(abs(x - a) > half + b or abs(y - c) > 19 for a, b, c in placed):
                placed.append((x, half, y))
                yield tag("text", name, x=format_coordinate(x), y=format_coordinate(y), class_="note name")
                break


def draw_dot(class_: str) -> str:
    """Return the path of one point; a square has a length, because PDF omits square ends of a line without length.

    >>> draw_dot("slot-0 disc"), draw_dot("slot-1 square")
    ('h0', 'h0.1')
    """
    return "h0.1" if "square" in class_ else "h0"


def draw_points(
    across: np.ndarray, down: np.ndarray, way: CategoricalColoring | ContinuousColoring | None
) -> list[Markup]:
    """Draw points in the colors of a coloring, or in a single color if `way` is None."""
    paths = []
    for class_, members in points_by_class(way) if way is not None else [("other disc", np.arange(len(across)))]:
        d = "".join(
            f"M{format_coordinate(a)} {format_coordinate(b)}{draw_dot(class_)}"
            for a, b in zip(across[members], down[members], strict=True)
        )
        if d:
            paths.append(tag("path", d=d, class_=f"dots {class_}"))
            if "ring" in class_:
                paths.append(tag("path", d=d, class_="dots hole"))
    return paths


def _axis_names(p: PointCloud) -> list[str]:
    """Return the names of the components that have variance."""
    return [
        f"component {i + 1}: {format_number(share, 'share')}"
        for i, share in enumerate(p.explained_variance.tolist())
        if share > 1e-9
    ]


def encode_cloud(p: PointCloud, ways: Sequence[CategoricalColoring | ContinuousColoring]) -> dict[str, Any]:
    """Return the data for the script; coordinates are 16-bit integers, scaled to a maximum of 32767."""
    greatest = float(np.abs(p.points).max(initial=0)) or 1.0
    coordinates = np.rint(p.points / greatest * 32767).astype("<i2")
    neighbors = scores = None
    if p.neighbors is not None and p.neighbor_scores is not None:
        neighbors = p.neighbors[:, :_SHOWN_NEIGHBORS].tolist()
        scores = [[float(f"{each:.3g}") for each in row] for row in p.neighbor_scores[:, :_SHOWN_NEIGHBORS].tolist()]
    return {
        "points": b64encode(coordinates.tobytes()).decode("ascii"),
        "rows": p.rows.tolist(),
        "ids": None if p.ids is None else [str(each) for each in p.ids.tolist()],
        "neighbors": neighbors,
        "scores": scores,
        "metric": p.neighbor_metric,
        "text": p.text,
        "axes": _axis_names(p),
        "colorings": [way.to_dict() for way in ways],
    }
